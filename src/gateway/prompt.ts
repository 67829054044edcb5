import type { ChatBody, ChatMessage } from "./wire.ts";

/**
 * What a prompt can cost at most, without a tokenizer: a token is at least one byte of UTF-8. Source: rulings › Money.
 */

/** Role, separators and priming, in tokens: chat formats spend 3 to 7. */
const TOKENS_A_MESSAGE = 8;
const TOKENS_A_REPLY = 8;
/** Beside the messages, what the model reads. */
const PROMPT_FIELDS = ["tools", "functions", "response_format", "tool_choice", "prediction"];

/** A larger prompt is counted by a sample while its stream is open: SAMPLE_PIECES pieces of PIECE_CHARS each. */
const SAMPLE_CHARS = 4_096;
const SAMPLE_PIECES = 8;
const PIECE_CHARS = SAMPLE_CHARS / SAMPLE_PIECES;

/** What is kept of a prompt to count it later: all of a small one; of a larger one some of its text, and how long it is. */
export type PromptSample = { readonly text: string; readonly bytes: number; readonly images: number };

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

  /** Its sample. The places are drawn by `random`, so that nobody can write a prompt that counts for less than it is. */
  sample(random: () => number = Math.random): PromptSample {
    const { bytes, images } = this;
    let chars = Math.max(0, this.#texts.length - 1);
    for (const text of this.#texts) chars += text.length;
    if (chars <= SAMPLE_CHARS) return { text: this.text, bytes, images };
    const stride = chars / SAMPLE_PIECES;
    const starts = Array.from({ length: SAMPLE_PIECES }, (_, i) =>
      Math.floor(i * stride + random() * (stride - PIECE_CHARS)),
    );
    // A copy: a piece that is cut out of a text keeps all of that text in memory.
    return { text: Buffer.from(piecesOf(this.#texts, starts)).toString(), bytes, images };
  }
}

/** What stands at `starts` in the joined texts, PIECE_CHARS each, without joining them: they may be very long. */
function piecesOf(texts: readonly string[], starts: readonly number[]): string {
  let pieces = "";
  let next = 0;
  let offset = 0;
  for (const text of texts) {
    for (let start = starts[next]; start !== undefined && start < offset + text.length; start = starts[++next]) {
      const end = start + PIECE_CHARS - offset;
      pieces += `${text.slice(Math.max(0, start - offset), Math.max(0, end))}\n`;
      // The rest of the piece stands in the next text.
      if (end > text.length) break;
    }
    offset += text.length + 1;
  }
  return pieces;
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
