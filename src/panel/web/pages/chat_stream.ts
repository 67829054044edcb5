import { createParser } from "eventsource-parser";
import { at } from "./playground_state.ts";

/** An answer as it comes: the events of a chat's stream, read to their end. */

/** An event longer than this is no piece of an answer. */
const EVENT_CHARS_MAX = 1_000_000;
/** Longer answers are not read on; what has come is charged. */
const ANSWER_CHARS_MAX = 2_000_000;

export type Piece = { text: string; thoughts: string };

/**
 * Hands on each piece. `complete`: the stream ended as it should. `broke_off`: with an error, or without an end. Throws
 * the AbortError of the request it belongs to.
 */
export async function readAnswer(
  stream: ReadableStream<Uint8Array>,
  onPiece: (piece: Piece) => void,
): Promise<"complete" | "broke_off"> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let end: "complete" | "broke_off" | null = null;
  let chars = 0;
  const parser = createParser({
    maxBufferSize: EVENT_CHARS_MAX,
    onEvent: ({ data }) => {
      if (end !== null) return;
      if (data === "[DONE]") end = "complete";
      else {
        const piece = pieceOf(data);
        if (piece === null) end = "broke_off";
        else onPiece(piece);
        chars += data.length;
      }
    },
    onError: () => {
      end ??= "broke_off";
    },
  });
  while (end === null && chars < ANSWER_CHARS_MAX) {
    const { done, value } = await reader.read().catch(rethrowAbort);
    if (done) break;
    parser.feed(decoder.decode(value, { stream: true }));
  }
  // What comes after an end is nobody's; a stream that had none is closed here.
  reader.cancel().catch(() => undefined);
  return end ?? "broke_off";
}

/** A connection that breaks ends the stream like one that closes; only the visitor's own Stop is told apart. */
function rethrowAbort(error: unknown): { done: true; value: undefined } {
  if (error instanceof DOMException && error.name === "AbortError") throw error;
  return { done: true, value: undefined };
}

/** null: an error in the stream, or nothing that could be read. */
function pieceOf(data: string): Piece | null {
  let event: unknown;
  try {
    event = JSON.parse(data);
  } catch {
    return null;
  }
  if (at(event, "error") !== undefined) return null;
  const delta = at(event, "choices", 0, "delta");
  const text = (name: string) => {
    const value = at(delta, name);
    return typeof value === "string" ? value : "";
  };
  return { text: text("content"), thoughts: text("reasoning_content") || text("reasoning") };
}
