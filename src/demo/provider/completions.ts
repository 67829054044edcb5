import type { Piece } from "./chat.ts";
import { ProviderError } from "./request.ts";
import { isRecord } from "./text.ts";

/** The legacy text completions of the simulated provider: its chat in another form. */

const DATA_LINE = /^(data: ?)(\{.*\})$/gm;

/** The chat that answers a text completion: the prompt, and what follows the gap, are the user's message. Throws ProviderError 400. */
export function chatOfCompletion(body: unknown): string {
  if (!isRecord(body)) throw new ProviderError(400, "The body must be a JSON object.");
  const { prompt, suffix = null, ...rest } = body;
  const [text] = Array.isArray(prompt) ? prompt : [prompt];
  if (typeof text !== "string" || text === "")
    throw new ProviderError(400, "'$.prompt' is invalid.", { param: "prompt" });
  const content = typeof suffix === "string" ? `${text} … ${suffix}` : text;
  return JSON.stringify({ ...rest, messages: [{ role: "user", content }] });
}

/** The pieces of a chat's reply as those of a text completion. Pieces that are no JSON stay as they are. */
export function textPieces(pieces: readonly Piece[]): Piece[] {
  return pieces.map((piece) => (typeof piece.text === "string" ? { ...piece, text: textForm(piece.text) } : piece));
}

function textForm(chat: string): string {
  return chat.startsWith("{")
    ? textJson(chat)
    : chat.replace(DATA_LINE, (_, data: string, json: string) => data + textJson(json));
}

function textJson(chat: string): string {
  let value: unknown;
  try {
    value = JSON.parse(chat);
  } catch {
    return chat; // A fault that was asked for.
  }
  if (!isRecord(value) || !Array.isArray(value.choices)) return chat;
  const choices = value.choices.map((choice: unknown, place) => {
    const { index = place, finish_reason = null, delta, message = delta } = isRecord(choice) ? choice : {};
    const text = isRecord(message) && typeof message.content === "string" ? message.content : "";
    return { index, text, logprobs: null, finish_reason };
  });
  return JSON.stringify({ ...value, object: "text_completion", choices });
}
