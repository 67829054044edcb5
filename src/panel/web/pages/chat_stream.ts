import { createParser } from "eventsource-parser";
import { at } from "./playground_state.ts";

/** Reads the event stream of a chat completion. */

/** A longer event is an error. */
const EVENT_CHARS_MAX = 1_000_000;
/** Reading stops here; what arrived is charged. */
const ANSWER_CHARS_MAX = 2_000_000;

export type Piece = { text: string; thoughts: string };

/**
 * Passes on each piece. Returns `complete` after `[DONE]`, and `broke_off` after an error event or an early end. Throws the AbortError of
 * its request.
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
  // Nothing is read after the end; a stream without one is closed here.
  reader.cancel().catch(() => undefined);
  return end ?? "broke_off";
}

/** A broken connection counts as an early end. Only the person's own Stop is thrown. */
function rethrowAbort(error: unknown): { done: true; value: undefined } {
  if (error instanceof DOMException && error.name === "AbortError") throw error;
  return { done: true, value: undefined };
}

/** null: an error event, or invalid JSON. */
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
