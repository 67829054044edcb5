import { createParser } from "eventsource-parser";
import { at } from "./exchanges.ts";

/** Reads the event stream of a chat completion, or of a response. */

/** A longer event is an error. */
const EVENT_CHARS_MAX = 1_000_000;
/** Reading stops here; what arrived is charged. */
const ANSWER_CHARS_MAX = 2_000_000;

export type Piece = { text: string; thoughts: string };

type End = "complete" | "broke_off";

/**
 * Passes on each piece. Returns `complete` after `[DONE]` or a response's last event, and `broke_off` after an error event or an early
 * end. Throws the AbortError of its request.
 */
export async function readAnswer(stream: ReadableStream<Uint8Array>, onPiece: (piece: Piece) => void): Promise<End> {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  let end: End | null = null;
  let chars = 0;
  const parser = createParser({
    maxBufferSize: EVENT_CHARS_MAX,
    onEvent: ({ data }) => {
      if (end !== null) return;
      const read = readEvent(data);
      if (typeof read === "string") end = read;
      else onPiece(read);
      chars += data.length;
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

/** A piece of the answer, or how the answer ended. */
function readEvent(data: string): Piece | End {
  if (data === "[DONE]") return "complete";
  let event: unknown;
  try {
    event = JSON.parse(data);
  } catch {
    return "broke_off";
  }
  const type = at(event, "type");
  if (typeof type === "string") return readResponseEvent(type, textOf(event, "delta"));
  if (at(event, "error") !== undefined) return "broke_off";
  const delta = at(event, "choices", 0, "delta");
  return { text: textOf(delta, "content"), thoughts: textOf(delta, "reasoning_content") || textOf(delta, "reasoning") };
}

/** By event of a response, which has a type; chunks of a chat have none. */
function readResponseEvent(type: string, delta: string): Piece | End {
  switch (type) {
    case "response.completed":
    case "response.incomplete":
      return "complete";
    case "response.failed":
    case "error":
      return "broke_off";
    case "response.output_text.delta":
    case "response.refusal.delta":
      return { text: delta, thoughts: "" };
    case "response.reasoning_summary_text.delta":
      return { text: "", thoughts: delta };
    default:
      return { text: "", thoughts: "" };
  }
}

function textOf(value: unknown, name: string): string {
  const text = at(value, name);
  return typeof text === "string" ? text : "";
}
