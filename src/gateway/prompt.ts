import type { ChatBody, ChatMessage } from "./wire.ts";

/**
 * What a prompt can cost at most, without a tokenizer: a token is at least one byte of UTF-8. Source: rulings › Money.
 */

/** Role, separators and priming, in tokens: chat formats spend 3 to 7. */
const TOKENS_A_MESSAGE = 8;
const TOKENS_A_REPLY = 8;

/** The text that a provider reads as prompt, and how many images stand in it. */
export type Prompt = { text: string; messages: number; images: number };

/** Collects all text of a chat request: messages, names, tool calls, and the schemas that become part of the prompt. */
export function promptOf(body: ChatBody): Prompt {
  const texts: string[] = [];
  let images = 0;
  for (const message of body.messages) {
    images += addMessage(message, texts);
  }
  const fields = body as Record<string, unknown>;
  for (const name of ["tools", "functions", "response_format", "tool_choice", "prediction"]) {
    if (fields[name] !== undefined && fields[name] !== null) texts.push(JSON.stringify(fields[name]));
  }
  return { text: texts.join("\n"), messages: body.messages.length, images };
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
