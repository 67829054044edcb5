/**
 * Reads Server-Sent Events: bytes in, payloads of `data:` out. Comments and other fields are dropped, and so are events
 * without data; CR, LF and CRLF end lines; a payload may be split anywhere, inside a character included. Every byte is
 * looked at once, however small the pieces are that it comes in. Source: rulings › Streams.
 */

/** One event may not be larger, in bytes, or in characters of its whole lines: a provider that never ends it would fill the memory. */
const EVENT_SIZE_MAX = 8 * 1024 * 1024;
const LF = 10;
const CR = 13;
const DATA = "data:";
const SPACE = 32;
const BYTE_ORDER_MARK = 0xfeff;
/** Keeps nothing from one call to the next: lines are decoded whole. */
const UTF_8 = new TextDecoder("utf-8", { ignoreBOM: true });

export class OversizedEvent extends Error {
  override readonly name = "OversizedEvent";
}

/** Reads one stream. */
export class SseReader {
  readonly #begun = new Beginning();
  #isFirstLine = true;
  /** A CR ended the last line: an LF behind it is part of that end. */
  #afterCr = false;
  /** The data of the event that is being read; undefined: none has come. */
  #data: string | undefined;

  /** The payloads that are complete with this chunk. Throws OversizedEvent. */
  push(chunk: Uint8Array): string[] {
    const payloads: string[] = [];
    let at = this.#afterCr && chunk[0] === LF ? 1 : 0;
    if (chunk.length > 0) this.#afterCr = false;
    const end = endOfLines(chunk);
    if (end > at) {
      // All whole lines at once: to decode them one by one costs more than to read them.
      const isWhole = at === 0 && end === chunk.length && this.#begun.bytes === 0;
      this.#readLines(UTF_8.decode(isWhole ? chunk : this.#begun.with(chunk.subarray(at, end))), payloads);
      this.#afterCr = end === chunk.length && chunk[end - 1] === CR;
      at = end;
    }
    if (this.#begun.bytes + chunk.length - at + (this.#data?.length ?? 0) > EVENT_SIZE_MAX) throw oversized();
    if (at < chunk.length) this.#begun.keep(chunk.subarray(at));
    return payloads;
  }

  /** The payload that the end of the stream completes, if there is one: some providers leave out the last blank line. */
  end(): string[] {
    return this.push(Uint8Array.of(LF, LF));
  }

  /** Lines, each with its end. */
  #readLines(text: string, payloads: string[]): void {
    let at = 0;
    let lf = indexFrom(text, "\n", 0);
    let cr = indexFrom(text, "\r", 0);
    while (at < text.length) {
      // Searched for again only once passed: else a text of many lines without a CR would be searched whole for each.
      if (lf < at) lf = indexFrom(text, "\n", at);
      if (cr < at) cr = indexFrom(text, "\r", at);
      const end = Math.min(lf, cr);
      const payload = this.#endLine(text, at, end);
      if (payload !== undefined) payloads.push(payload);
      at = lf === cr + 1 ? lf + 1 : end + 1;
    }
  }

  /** Takes a line in; returns the payload that it completes. */
  #endLine(text: string, start: number, end: number): string | undefined {
    const from = this.#isFirstLine && text.charCodeAt(start) === BYTE_ORDER_MARK ? start + 1 : start;
    this.#isFirstLine = false;
    if (from === end) {
      const payload = this.#data;
      this.#data = undefined;
      // An event whose data is empty is none.
      return payload === "" ? undefined : payload;
    }
    if (text.startsWith(DATA, from)) {
      const at = from + DATA.length;
      const value = text.slice(text.charCodeAt(at) === SPACE ? at + 1 : at, end);
      this.#data = this.#data === undefined ? value : `${this.#data}\n${value}`;
      if (this.#data.length > EVENT_SIZE_MAX) throw oversized();
    }
    return undefined;
  }
}

const EMPTY = new Uint8Array(0);

/** A line of which only the beginning has come. It grows by doubling, so that a line in tiny pieces costs no more than a whole one. */
class Beginning {
  bytes = 0;
  #room = EMPTY;

  keep(part: Uint8Array): void {
    if (this.bytes + part.length > this.#room.length) {
      const larger = new Uint8Array(2 * (this.bytes + part.length));
      larger.set(this.#room.subarray(0, this.bytes));
      this.#room = larger;
    }
    this.#room.set(part, this.bytes);
    this.bytes += part.length;
  }

  /** The line that `rest` completes. The next one begins anew. */
  with(rest: Uint8Array): Uint8Array {
    if (this.bytes === 0) return rest;
    this.keep(rest);
    const line = this.#room.subarray(0, this.bytes);
    this.#room = EMPTY;
    this.bytes = 0;
    return line;
  }
}

function oversized(): OversizedEvent {
  return new OversizedEvent("an event of the provider's stream is too large");
}

/** Where the last whole line ends. */
function endOfLines(chunk: Uint8Array): number {
  if (chunk[chunk.length - 1] === LF) return chunk.length;
  return 1 + Math.max(chunk.lastIndexOf(LF), chunk.lastIndexOf(CR));
}

/** The nearest `character` at or after `from`; where there is none, the text's end. */
function indexFrom(text: string, character: string, from: number): number {
  const found = text.indexOf(character, from);
  return found < 0 ? text.length : found;
}
