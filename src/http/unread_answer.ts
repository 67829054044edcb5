import type { AnswerMemory, HeldAnswer } from "../platform/answer_memory.ts";
import type { Owner } from "../platform/share_limit.ts";

/** So much the sockets take at once, whether or not the client reads: the process keeps nothing. */
const AT_ONCE_CHARS = 64 * 1024;
const PIECE_CHARS = 64 * 1024;
const UTF_8 = new TextEncoder();

/** Who an answer is for. */
export type Reader = {
  memory: AnswerMemory;
  owner: Owner;
  /** Of the request. */
  signal: AbortSignal;
};

/**
 * A whole answer as a response. A large one is sent piece by piece, as the client reads, and counts as held until it has read all. If the
 * replica holds too much, the connection of an answer that was not read is closed: a client that does not read would otherwise keep it for
 * as long as it likes. Source: ADM-12.
 */
export function textResponse(text: string, init: ResponseInit, reader: Reader): Response {
  if (text.length <= AT_ONCE_CHARS || reader.signal.aborted) return new Response(text, init);
  // No read-ahead: a piece is asked for when the client has taken the one before.
  return new Response(new ReadableStream(new UnreadAnswer(text, reader), { highWaterMark: 0 }), init);
}

/**
 * The same for a JSON answer that was built without it. Others are streams, or files of which there is one for all: those have an encoding or
 * an ETag.
 */
export async function countedResponse(response: Response, reader: Reader): Promise<Response> {
  const { headers } = response;
  const isOwn = !headers.has("etag") && !headers.has("content-encoding");
  if (!isOwn || !(headers.get("content-type") ?? "").startsWith("application/json")) return response;
  return textResponse(await response.text(), response, reader);
}

class UnreadAnswer implements UnderlyingDefaultSource<Uint8Array> {
  readonly #text: string;
  readonly #reader: Reader;
  #at = 0;
  #held: HeldAnswer | undefined;

  constructor(text: string, reader: Reader) {
    this.#text = text;
    this.#reader = reader;
  }

  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    const { memory, owner, signal } = this.#reader;
    this.#held = memory.open(owner, () => {
      this.#end();
      controller.error(new Error("The client has not read its answer, and others need the memory."));
    });
    // The runtime does not cancel a body whose client left before it was begun.
    signal.addEventListener("abort", this.#end, { once: true });
    this.#held.wasRead();
    this.#held.hold(Buffer.byteLength(this.#text));
  }

  pull(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#held?.wasRead();
    const from = this.#at;
    this.#at = endOfPiece(this.#text, from);
    controller.enqueue(UTF_8.encode(this.#text.slice(from, this.#at)));
    if (this.#at < this.#text.length) return;
    controller.close();
    this.#end();
  }

  cancel(): void {
    this.#end();
  }

  readonly #end = (): void => {
    this.#reader.signal.removeEventListener("abort", this.#end);
    this.#held?.close();
  };
}

/** Where a piece ends: never inside a surrogate pair. */
function endOfPiece(text: string, start: number): number {
  const end = start + PIECE_CHARS;
  if (end >= text.length) return text.length;
  const last = text.charCodeAt(end - 1);
  return last >= 0xd800 && last <= 0xdbff ? end - 1 : end;
}
