import type { ChatBody, ChatMessage } from "./wire.ts";

/**
 * What a prompt can cost at most, without a tokenizer: a token is at least one byte of UTF-8. Source: rulings › Money.
 */

/** Role, separators and priming, in tokens: chat formats spend 3 to 7. */
const TOKENS_A_MESSAGE = 8;
const TOKENS_A_REPLY = 8;
/** Beside the messages, what the model reads. */
const PROMPT_FIELDS = ["tools", "functions", "response_format", "tool_choice", "prediction"];

/** What a provider reads as prompt: its text, and how many messages and images it stands in. */
export class Prompt {
  readonly messages: number;
  readonly images: number;
  /** Of the text, as UTF-8. */
  readonly bytes: number;
  readonly #texts: readonly string[];

  constructor(texts: readonly string[], { messages, images }: { messages: number; images: number }) {
    this.#texts = texts;
    this.messages = messages;
    this.images = images;
    let bytes = Math.max(0, texts.length - 1);
    for (const text of texts) bytes += Buffer.byteLength(text);
    this.bytes = bytes;
  }

  /** In one piece, made when it is asked for: hardly any prompt is counted by a tokenizer. */
  get text(): string {
    return this.#texts.join("\n");
  }
}

/** Collects all text of a chat request: messages, names, tool calls, and the schemas that become part of the prompt. */
export function promptOf(body: ChatBody): Prompt {
  const texts: string[] = [];
  let images = 0;
  for (const message of body.messages) {
    images += addMessage(message, texts);
  }
  const fields = body as Record<string, unknown>;
  for (const name of PROMPT_FIELDS) {
    if (fields[name] !== undefined && fields[name] !== null) texts.push(JSON.stringify(fields[name]));
  }
  return new Prompt(texts, { messages: body.messages.length, images });
}

/** An upper bound of the prompt's tokens, given a bound of its text's: bytes, or a tokenizer's count. */
export function promptTokens(prompt: Prompt, textTokens: number, imageInputTokens: number): number {
  return textTokens + prompt.messages * TOKENS_A_MESSAGE + TOKENS_A_REPLY + prompt.images * imageInputTokens;
}

function addMessage(message: ChatMessage, texts: string[]): number {
  let images = 0;
  for (const [name, value] of Object.entries(message)) {
    if (name === "role" || value === null || value === undefined) continue;
    if (typeof value === "string") texts.push(value);
    else if (name !== "content" || !Array.isArray(value)) texts.push(JSON.stringify(value));
    else {
      for (const part of value as Record<string, unknown>[]) {
        if (part.type === "image_url") images++;
        else texts.push(typeof part.text === "string" && part.type === "text" ? part.text : JSON.stringify(part));
      }
    }
  }
  return images;
}
