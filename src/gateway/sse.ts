import { ByteBlocks } from "../platform/byte_blocks.ts";

/**
 * Parses Server-Sent Events: bytes in, payloads of `data:` out. Comments, other fields and events without data are dropped. CR, LF
 * and CRLF end lines. Chunks may split a payload anywhere, even inside a character. Every byte is read once, however small the
 * chunks are. Source: STR-5.
 */

/** Maximum size of one event, in bytes, and in characters of its complete lines. Without it an endless event would fill the memory. */
export const EVENT_SIZE_MAX = 8 * 1024 * 1024;
/** At most, of a text in memory. */
const BYTES_OF_CHAR = 2;
const DONE_CHARS_MAX = 16;
const LF = 10;
const CR = 13;
const DATA = "data:";
const SPACE = 32;
/** Completes the last line and the last event. */
const BLANK_LINES = Uint8Array.of(LF, LF);
const BYTE_ORDER_MARK = 0xfeff;
/** Has no state between calls: only whole lines are decoded. */
const UTF_8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** Whether a payload is the end of a chat stream. Some providers put spaces around it. */
export function isDone(payload: string): boolean {
  return payload.length < DONE_CHARS_MAX && payload.trim() === "[DONE]";
}

export class OversizedEvent extends Error {
  override readonly name = "OversizedEvent";
}

/** Receives the events of a stream in their order. */
export type EventSink = {
  /**
   * Called where an event may begin, with text that ends with a complete line. Returns the index after the event if it has taken it
   * as it stands in the text, with the blank line; otherwise −1, and the event is parsed.
   */
  takeEvent(text: string, at: number): number;
  /** Called with the payload of each event that `takeEvent` has not taken. */
  takePayload(payload: string): void;
};

/** Parses one stream. */
export class SseReader {
  /** The beginning of a line whose end has not arrived. */
  readonly #partial = new ByteBlocks();
  #isFirstLine = true;
  /** The last line ended with CR: an LF that follows belongs to it. */
  #afterCr = false;
  /** The data of the current event; undefined if there was no data line yet. */
  #data: string | undefined;

  /** Returns the payloads that this chunk completes. Throws OversizedEvent. */
  push(chunk: Uint8Array): string[] {
    const payloads: string[] = [];
    this.read(chunk, { takeEvent: () => -1, takePayload: (payload) => payloads.push(payload) });
    return payloads;
  }

  /** Gives `sink` the events that this chunk completes. Throws OversizedEvent, and what the sink throws. */
  read(chunk: Uint8Array, sink: EventSink): void {
    let at = this.#afterCr && chunk[0] === LF ? 1 : 0;
    if (chunk.length > 0) this.#afterCr = false;
    const end = endOfLines(chunk);
    if (end > at) {
      // All complete lines are decoded at once: decoding them one by one costs more than parsing them.
      const isWhole = at === 0 && end === chunk.length && this.#partial.size === 0;
      this.#readLines(UTF_8.decode(isWhole ? chunk : this.#lineWith(chunk.subarray(at, end))), sink);
      this.#afterCr = end === chunk.length && chunk[end - 1] === CR;
      at = end;
    }
    if (this.#partial.size + chunk.length - at + (this.#data?.length ?? 0) > EVENT_SIZE_MAX) throw oversized();
    if (at < chunk.length) this.#partial.add(chunk.subarray(at));
  }

  /** Returns the payload that the end of the stream completes, if any: some providers leave out the last blank line. */
  end(): string[] {
    return this.push(BLANK_LINES);
  }

  /** Gives `sink` the event that the end of the stream completes, if any. */
  finish(sink: EventSink): void {
    this.read(BLANK_LINES, sink);
  }

  /** Bytes of memory that the beginning of an event takes, whose end has not arrived. */
  get heldBytes(): number {
    return this.#partial.allocated + BYTES_OF_CHAR * (this.#data?.length ?? 0);
  }

  #lineWith(rest: Uint8Array): Uint8Array {
    return this.#partial.size === 0 ? rest : this.#partial.takeWith(rest);
  }

  /** Parses whole lines, each with its line end. */
  #readLines(text: string, sink: EventSink): void {
    let at = 0;
    let lf = -1;
    let cr = -1;
    while (at < text.length) {
      const next = this.#data === undefined ? sink.takeEvent(text, at) : -1;
      if (next > at) {
        at = next;
        continue;
      }
      // Each search continues from the last result. Otherwise a text without CR would be searched to its end for every line.
      if (lf < at) lf = indexFrom(text, "\n", at);
      if (cr < at) cr = indexFrom(text, "\r", at);
      const end = Math.min(lf, cr);
      const payload = this.#endLine(text, at, end);
      if (payload !== undefined) sink.takePayload(payload);
      at = lf === cr + 1 ? lf + 1 : end + 1;
    }
  }

  /** Parses one line. Returns the payload that it completes, if any. */
  #endLine(text: string, start: number, end: number): string | undefined {
    const from = this.#isFirstLine && text.charCodeAt(start) === BYTE_ORDER_MARK ? start + 1 : start;
    this.#isFirstLine = false;
    if (from === end) {
      const payload = this.#data;
      this.#data = undefined;
      // An event with empty data is dropped.
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

function oversized(): OversizedEvent {
  return new OversizedEvent("an event of the provider's stream is too large");
}

/** The index after the last complete line. */
function endOfLines(chunk: Uint8Array): number {
  if (chunk[chunk.length - 1] === LF) return chunk.length;
  return 1 + Math.max(chunk.lastIndexOf(LF), chunk.lastIndexOf(CR));
}

/** The index of the next `character` at or after `from`; the length of the text if there is none. */
function indexFrom(text: string, character: string, from: number): number {
  const found = text.indexOf(character, from);
  return found < 0 ? text.length : found;
}
