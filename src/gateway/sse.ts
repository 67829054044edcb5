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
    for (;;) {
      const end = lineEnd(rest, at);
      if (end < 0) break;
      // A CR at the very end may be half of a CRLF: it waits for the next chunk.
      const cr = rest.charCodeAt(end) === 13;
      if (cr && end + 1 === rest.length) break;
      line(rest.slice(at, end), payloads);
      at = end + (cr && rest.charCodeAt(end + 1) === 10 ? 2 : 1);
    }
    rest = rest.slice(at);
    if (rest.length + dataChars > EVENT_CHARS_MAX) throw new OversizedEvent("an event of the provider's stream is too large");
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
      dataChars += value.length;
      if (dataChars > EVENT_CHARS_MAX) throw new OversizedEvent("an event of the provider's stream is too large");
    }
  }

  return {
    push: (chunk) => feed(decoder.decode(chunk, { stream: true })),
    end: () => feed(`${decoder.decode()}\n\n`),
  };
}

/** The nearest CR or LF at or after `from`, or −1. */
function lineEnd(text: string, from: number): number {
  const lf = text.indexOf("\n", from);
  const cr = text.indexOf("\r", from);
  if (cr < 0 || lf < 0) return Math.max(cr, lf);
  return Math.min(cr, lf);
}
