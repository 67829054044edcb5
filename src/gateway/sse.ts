/**
 * Reads Server-Sent Events: bytes in, payloads of `data:` out. Comments and other fields are dropped; CR, LF and CRLF end
 * lines; a payload may be split anywhere, inside a character included. Source: rulings › Streams.
 */

/** One event may not be larger: a provider that never ends a line would fill the memory. */
const EVENT_CHARS_MAX = 8 * 1024 * 1024;

export class OversizedEvent extends Error {
  override readonly name = "OversizedEvent";
}

export type SseReader = {
  /** The payloads that are complete with this chunk. Throws OversizedEvent. */
  push(chunk: Uint8Array): string[];
  /** The payload that the end of the stream completes, if there is one: some providers leave out the last blank line. */
  end(): string[];
};

/** A reader of one stream. */
export function createSseReader(): SseReader {
  const decoder = new TextDecoder();
  let rest = "";
  /** The data lines of the event that is being read. */
  let data: string[] = [];
  let dataChars = 0;

  function feed(text: string): string[] {
    const payloads: string[] = [];
    rest = rest === "" ? text : rest + text;
    let at = 0;
    let lf = indexFrom(rest, "\n", 0);
    let cr = indexFrom(rest, "\r", 0);
    for (;;) {
      // Searched for again only once passed: else a chunk of many lines without a CR would be searched whole for each.
      if (lf < at) lf = indexFrom(rest, "\n", at);
      if (cr < at) cr = indexFrom(rest, "\r", at);
      const end = Math.min(lf, cr);
      if (end === NOWHERE) break;
      // A CR at the very end may be half of a CRLF: it waits for the next chunk.
      if (end === cr && end + 1 === rest.length) break;
      line(rest.slice(at, end), payloads);
      at = end + (end === cr && rest.charCodeAt(end + 1) === 10 ? 2 : 1);
    }
    rest = rest.slice(at);
    if (rest.length + dataChars > EVENT_CHARS_MAX)
      throw new OversizedEvent("an event of the provider's stream is too large");
    return payloads;
  }

  function line(text: string, payloads: string[]): void {
    if (text === "") {
      if (data.length > 0) payloads.push(data.length === 1 ? (data[0] as string) : data.join("\n"));
      data = [];
      dataChars = 0;
    } else if (text.startsWith("data:")) {
      const value = text.slice(text.charCodeAt(5) === 32 ? 6 : 5);
      data.push(value);
      // With its line break: lines without a character are a way to fill the memory too.
      dataChars += value.length + 1;
      if (dataChars > EVENT_CHARS_MAX) throw new OversizedEvent("an event of the provider's stream is too large");
    }
  }

  return {
    push: (chunk) => feed(decoder.decode(chunk, { stream: true })),
    end: () => feed(`${decoder.decode()}\n\n`),
  };
}

const NOWHERE = Number.POSITIVE_INFINITY;

/** The nearest `mark` at or after `from`, or NOWHERE. */
function indexFrom(text: string, mark: string, from: number): number {
  const found = text.indexOf(mark, from);
  return found < 0 ? NOWHERE : found;
}
