import type { Overhead } from "../catalog/overhead.ts";
import type { Body } from "../http/body.ts";
import { isRecord } from "../platform/records.ts";
import type { EmbeddingInput } from "./embedding_input.ts";
import type { ChatBody } from "./request_shapes.ts";

/**
 * An upper bound for the tokens of a prompt, without a tokenizer: a token is at least one byte of UTF-8. Everything that is sent to the
 * provider counts: known fields by their text, all others by the bytes of their JSON as it was sent. Source: MON-3.
 */

/** Tokens for role, separators and priming: chat formats use 3 to 7. */
const TOKENS_A_MESSAGE = 8;
const TOKENS_A_REPLY = 8;
/** Parameters that add no text to the prompt if their value is a number, a boolean or null. Other values count by their bytes. */
const SCALARS: ReadonlySet<string> = new Set(
  `stream n seed temperature top_p top_k min_p top_a max_tokens max_completion_tokens presence_penalty frequency_penalty
  repetition_penalty logprobs top_logprobs parallel_tool_calls store stop user tools functions tool_choice function_call
  response_format prediction modalities reasoning reasoning_effort verbosity logit_bias metadata service_tier
  prompt_cache_key stream_options`.split(/\s+/),
);
/** The known fields of messages and their parts. A message with only these is counted by its texts. */
const MESSAGE_FIELDS: ReadonlySet<string> = new Set(
  "role content name tool_calls tool_call_id refusal reasoning reasoning_content".split(" "),
);
const TOOL_CALL_FIELDS: ReadonlySet<string> = new Set(["id", "type", "index", "function"]);
const FUNCTION_FIELDS: ReadonlySet<string> = new Set(["name", "arguments"]);
const TEXT_FIELDS: ReadonlySet<string> = new Set(["type", "text"]);
const IMAGE_FIELDS: ReadonlySet<string> = new Set(["type", "image_url"]);
const IMAGE_URL_FIELDS: ReadonlySet<string> = new Set(["url", "detail"]);
/** A longer `detail` is not one of `auto`, `low` and `high`. */
const DETAIL_CHARS_MAX = 16;
const IMAGE_DATA = "data:image/";

/** While a stream is open, only a sample of a larger prompt is kept: SAMPLE_PIECES pieces of PIECE_CHARS each. */
const SAMPLE_CHARS = 4_096;
const SAMPLE_PIECES = 8;
const PIECE_CHARS = SAMPLE_CHARS / SAMPLE_PIECES;

/** What is kept of a prompt to count it later: the whole text if it is short, and otherwise a sample and the length. */
export type PromptSample = {
  readonly text: string;
  /** Bytes of the whole text, as UTF-8. */
  readonly textBytes: number;
  readonly images: number;
  /** Token ids that the client sent in place of text. */
  readonly ids: number;
  readonly framedTokens: number;
};

type PromptFacts = { messages: number; images: number; ids?: number; beyond?: number; hasMedia?: boolean };

/** What a provider reads as prompt: its text, and the number of messages and images. */
export class Prompt {
  readonly messages: number;
  readonly images: number;
  /** Token ids that the client sent in place of text. They are part of `beyond`. */
  readonly ids: number;
  /** Bytes of everything that is sent: of the text, as UTF-8, and `beyond`. */
  readonly bytes: number;
  /** The part of `bytes` that is in no text, and that the tokenizer therefore does not count. */
  readonly beyond: number;
  /** It has images, or messages with anything unknown, such as audio: a provider may report any kind of input. */
  readonly hasMedia: boolean;
  /** The bound in tokens that is reserved: the bytes, or the tokenizer's count. */
  textTokens: number;
  readonly #texts: readonly string[];

  constructor(texts: readonly string[], { messages, images, ids = 0, beyond = 0, hasMedia = images > 0 }: PromptFacts) {
    this.#texts = texts;
    this.messages = messages;
    this.images = images;
    this.ids = ids;
    this.beyond = beyond;
    this.hasMedia = hasMedia;
    this.bytes = this.textTokens = beyond + bytesOf(texts);
  }

  /** The text in one piece. Joined only when needed: few prompts are counted by the tokenizer. */
  get text(): string {
    return this.#texts.join("\n");
  }

  /** Bytes of the text, as UTF-8. */
  get textBytes(): number {
    return this.bytes - this.beyond;
  }

  /** The bound of the text with the tokens that the chat format adds. */
  get framedTokens(): number {
    return this.textTokens + this.messages * TOKENS_A_MESSAGE + TOKENS_A_REPLY;
  }

  /** The sample. Its places are random, so that nobody can write a prompt that is counted too low. */
  sample(random: () => number = Math.random): PromptSample {
    const { textBytes, images, ids, framedTokens } = this;
    let chars = Math.max(0, this.#texts.length - 1);
    for (const text of this.#texts) chars += text.length;
    if (chars <= SAMPLE_CHARS) return { text: this.text, textBytes, images, ids, framedTokens };
    const stride = chars / SAMPLE_PIECES;
    const starts = Array.from({ length: SAMPLE_PIECES }, (_, i) =>
      Math.floor(i * stride + random() * (stride - PIECE_CHARS)),
    );
    // Copied: a slice of a string keeps the whole string in memory.
    return { text: Buffer.from(piecesOf(this.#texts, starts)).toString(), textBytes, images, ids, framedTokens };
  }
}

/** Cuts PIECE_CHARS at each of `starts` out of the joined texts, without joining them: they may be very long. */
function piecesOf(texts: readonly string[], starts: readonly number[]): string {
  let pieces = "";
  let next = 0;
  let offset = 0;
  for (const text of texts) {
    for (let start = starts[next]; start !== undefined && start < offset + text.length; start = starts[++next]) {
      const end = start + PIECE_CHARS - offset;
      pieces += `${text.slice(Math.max(0, start - offset), Math.max(0, end))}\n`;
      // The rest of the piece is in the next text.
      if (end > text.length) break;
    }
    offset += text.length + 1;
  }
  return pieces;
}

/** Fields that are sent on with another value, or not sent on (undefined). */
type Changed = ReadonlyMap<string, unknown>;
const UNCHANGED: Changed = new Map();

/** The prompt of a chat request. `raw` is sent on, except for the fields in `changed`. Every field of it counts. */
export function promptOf(body: ChatBody, raw: Pick<Body, "text" | "spans">, changed: Changed = UNCHANGED): Prompt {
  const messages = changed.get("messages") ?? body.messages;
  const known = readMessages(messages);
  const found = known ?? readUnknown(messages, sentBytes("messages", raw, changed));
  const fields = body as Record<string, unknown>;
  for (const name of raw.spans.keys()) {
    if (name === "messages" || name === "model") continue;
    const value = changed.has(name) ? changed.get(name) : fields[name];
    if (value === undefined || isScalar(name, value)) continue;
    const json = JSON.stringify(value);
    found.texts.push(json);
    found.beyond += Math.max(0, sentBytes(name, raw, changed) - Buffer.byteLength(json));
  }
  const { texts, images, beyond } = found;
  const hasMedia = known === undefined || images > 0;
  return new Prompt(texts, { messages: body.messages.length, images, beyond, hasMedia });
}

/** Fields of an embedding request that are no text for the model. `input` is counted by itself. */
const EMBEDDING_SCALARS: ReadonlySet<string> = new Set(["model", "input", "encoding_format", "dimensions"]);

/** The prompt of an embedding request: its texts, or a token for each token id. All other fields that are sent on count by their bytes. */
export function embeddingPromptOf(
  { count, texts, ids }: EmbeddingInput,
  raw: Pick<Body, "text" | "spans">,
  changed: Changed,
): Prompt {
  let beyond = ids;
  for (const name of raw.spans.keys()) {
    if (EMBEDDING_SCALARS.has(name) || (changed.has(name) && changed.get(name) === undefined)) continue;
    beyond += sentBytes(name, raw, changed);
  }
  // Models add tokens to each input, as a chat format does to a message.
  return new Prompt(texts, { messages: count, images: 0, ids, beyond });
}

/** Bytes of a field with its name, as it is sent: a provider may read spaces or digits that parsing removes. */
function sentBytes(name: string, { text, spans }: Pick<Body, "text" | "spans">, changed: Changed): number {
  if (changed.has(name)) return Buffer.byteLength(JSON.stringify({ [name]: changed.get(name) }));
  const span = spans.get(name);
  return span === undefined ? 0 : Buffer.byteLength(text.slice(span.keyStart, span.end));
}

/** The upper bound of the prompt's tokens, in two parts: `textTokens` are multiplied by the overhead factor, `fixedTokens` are not. */
export function promptTokens(
  prompt: Prompt,
  { imageInputTokens, overhead }: { imageInputTokens: number; overhead: Overhead },
): { textTokens: number; fixedTokens: number } {
  return {
    textTokens: prompt.framedTokens,
    fixedTokens: overhead.constantTokens + prompt.images * (imageInputTokens + overhead.imageTokens),
  };
}

/** The texts, the number of images, and the bytes that are in neither. */
type Found = { texts: string[]; images: number; beyond: number };

/** The texts and images of messages; undefined if the messages contain anything unknown. */
function readMessages(messages: unknown): Found | undefined {
  if (!Array.isArray(messages)) return undefined;
  const found: Found = { texts: [], images: 0, beyond: 0 };
  for (const message of messages as unknown[]) {
    if (!isRecord(message)) return undefined;
    // A loop over names: Object.entries makes a list for each field of each message. The objects come from JSON.parse.
    for (const name in message) {
      const value = message[name];
      if (!MESSAGE_FIELDS.has(name)) return undefined;
      if (name === "role" || value === null) continue;
      if (typeof value === "string") found.texts.push(value);
      else if (name === "content" && Array.isArray(value)) {
        if (!value.every((part) => readPart(part, found))) return undefined;
      } else if (name === "tool_calls" && Array.isArray(value) && value.every(isToolCall)) {
        found.texts.push(JSON.stringify(value));
      } else return undefined;
    }
  }
  return found;
}

/** Adds a part of a message. Returns false if the part is unknown. */
function readPart(part: unknown, found: Found): boolean {
  if (!isRecord(part)) return false;
  if (part.type === "text" && typeof part.text === "string" && hasOnly(part, TEXT_FIELDS)) {
    found.texts.push(part.text);
    return true;
  }
  if (part.type !== "image_url" || !hasOnly(part, IMAGE_FIELDS) || !isImageUrl(part.image_url)) return false;
  found.images += 1;
  const { url } = part.image_url;
  // An image counts as one image, whatever the size of its data. A URL counts as text.
  if (!url.startsWith(IMAGE_DATA)) found.texts.push(url);
  return true;
}

/** Counts messages by the bytes of their JSON, without the data of images in their contents. */
function readUnknown(messages: unknown, bytes: number): Found {
  let images = 0;
  let imageBytes = 0;
  const countedPart = (part: unknown): unknown => {
    if (!isRecord(part) || part.type !== "image_url") return part;
    images += 1;
    const { image_url: image } = part;
    if (!isRecord(image) || typeof image.url !== "string" || !image.url.startsWith(IMAGE_DATA)) return part;
    imageBytes += Buffer.byteLength(image.url);
    return { ...part, image_url: { ...image, url: "" } };
  };
  const counted = (message: unknown): unknown =>
    isRecord(message) && Array.isArray(message.content)
      ? { ...message, content: message.content.map(countedPart) }
      : message;
  const json = JSON.stringify(Array.isArray(messages) ? messages.map(counted) : messages);
  return { texts: [json], images, beyond: Math.max(0, bytes - imageBytes - Buffer.byteLength(json)) };
}

function isScalar(name: string, value: unknown): boolean {
  if (!SCALARS.has(name)) return false;
  if (value === null || typeof value === "number" || typeof value === "boolean") return true;
  return name === "stream_options" && isRecord(value) && Object.entries(value).every(isFlag);
}

function isFlag([name, value]: [string, unknown]): boolean {
  return (name === "include_usage" || name === "include_obfuscation") && (value === null || typeof value === "boolean");
}

function isToolCall(call: unknown): boolean {
  if (!isRecord(call) || !hasOnly(call, TOOL_CALL_FIELDS) || !isRecord(call.function)) return false;
  const { function: called, index, ...rest } = call;
  return (
    hasOnly(called as Record<string, unknown>, FUNCTION_FIELDS) &&
    (index === undefined || typeof index === "number") &&
    [...Object.values(rest), ...Object.values(call.function)].every((value) => typeof value === "string")
  );
}

function isImageUrl(value: unknown): value is { url: string } {
  if (!isRecord(value) || typeof value.url !== "string" || !hasOnly(value, IMAGE_URL_FIELDS)) return false;
  const { detail } = value;
  return detail === undefined || detail === null || (typeof detail === "string" && detail.length <= DETAIL_CHARS_MAX);
}

function hasOnly(value: Record<string, unknown>, names: ReadonlySet<string>): boolean {
  for (const name in value) if (!names.has(name)) return false;
  return true;
}

function bytesOf(texts: readonly string[]): number {
  let bytes = Math.max(0, texts.length - 1);
  for (const text of texts) bytes += Buffer.byteLength(text);
  return bytes;
}
