import type { Body } from "../http/body.ts";
import { ownCopy } from "../platform/own_copy.ts";
import { isRecord } from "../platform/records.ts";
import type { EmbeddingInput } from "./embedding_input.ts";
import { fileTokensOf, imageTokensOf, type PromptBounds } from "./media_tokens.ts";
import { MEDIA_MEMBERS } from "./message_filter.ts";
import { addedByRepairs } from "./message_repairs.ts";
import type { ChatBody } from "./request_shapes.ts";
import { pieceOfTokens, SEARCHED_CHARS } from "./token_starts.ts";
import { COUNTED_CHARS_MAX } from "./tokens.ts";

/**
 * An upper bound for the tokens of a prompt, without a tokenizer: a token is at least one byte of UTF-8. Everything that is sent to the
 * provider counts: known fields by their text, all others by the bytes of their JSON as it was sent. What is no text, and what the
 * provider adds, counts by the settings of the model. Source: MON-3.
 */

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
/** Types of content parts that are text. All others but `image_url` are files: their tokens cannot be counted by their bytes. */
const TEXT_PARTS: ReadonlySet<unknown> = new Set(["text", "refusal", "thinking", "reasoning"]);
/** Types of tools that the client runs. All others run at the provider, and add what they find to the prompt. */
const CLIENT_TOOLS: ReadonlySet<unknown> = new Set([undefined, null, "function", "custom", "namespace"]);
/** A longer `detail` is not one of `auto`, `low` and `high`. */
const DETAIL_CHARS_MAX = 16;
const IMAGE_DATA = "data:image/";

/** While a stream is open, only a sample of a larger prompt is kept: pieces of about PIECE_CHARS each. */
const SAMPLE_CHARS = 8_192;
const PIECE_CHARS = 256;

/** What is kept of a prompt to count it later: the whole text if it is short, and otherwise a sample and the length. */
export type PromptSample = Readonly<PromptParts> & {
  readonly text: string;
  /** Bytes of the whole text, as UTF-8. */
  readonly textBytes: number;
  /** Token ids that the client sent in place of text. */
  readonly ids: number;
};

/** The most tokens of a prompt, by what they are reserved for. */
export type PromptParts = {
  /** The bytes of the text, or the tokenizer's count. */
  textTokens: number;
  /** What the chat format and the provider add. */
  overheadTokens: number;
  imageTokens: number;
  /** Files, audio, video and hosted tools. */
  fileTokens: number;
};

/** Whether it has images, files or hosted tools: only the provider can count them. */
export function hasUncounted({ imageTokens, fileTokens }: Pick<PromptParts, "imageTokens" | "fileTokens">): boolean {
  return imageTokens > 0 || fileTokens > 0;
}

type PromptFacts = Partial<PromptParts> & { ids?: number; beyond?: number; hasMedia?: boolean };

/** What a provider reads as prompt: its text, and the most tokens of everything else. */
export class Prompt implements PromptParts {
  readonly overheadTokens: number;
  readonly imageTokens: number;
  readonly fileTokens: number;
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

  constructor(
    texts: readonly string[],
    { overheadTokens = 0, imageTokens = 0, fileTokens = 0, ids = 0, beyond = 0, hasMedia = false }: PromptFacts,
  ) {
    this.#texts = texts;
    this.overheadTokens = overheadTokens;
    this.imageTokens = imageTokens;
    this.fileTokens = fileTokens;
    this.ids = ids;
    this.beyond = beyond;
    this.hasMedia = hasMedia;
    this.bytes = this.textTokens = beyond + bytesOf(texts);
  }

  /**
   * The text, or a sample of as much as the tokenizer counts. Made only when needed: few prompts are counted. Never all of a long one: a query that is
   * read with each of a thousand documents is a thousand times as long as its request.
   */
  get text(): string {
    return this.#sampled(COUNTED_CHARS_MAX, Math.random);
  }

  /** Bytes of the text, as UTF-8. */
  get textBytes(): number {
    return this.bytes - this.beyond;
  }

  /** The upper bound of the whole prompt. */
  get tokens(): number {
    return this.textTokens + this.overheadTokens + this.imageTokens + this.fileTokens;
  }

  /** The sample. Its places are random, so that nobody can write a prompt that is counted too low. */
  sample(random: () => number = Math.random): PromptSample {
    const { textBytes, ids, textTokens, overheadTokens, imageTokens, fileTokens } = this;
    const facts = { textBytes, ids, textTokens, overheadTokens, imageTokens, fileTokens };
    return { text: this.#sampled(SAMPLE_CHARS, random), ...facts };
  }

  /** The text if it has at most `charsMax` characters, and else pieces of about as many. */
  #sampled(charsMax: number, random: () => number): string {
    let chars = Math.max(0, this.#texts.length - 1);
    for (const text of this.#texts) chars += text.length;
    if (chars <= charsMax) return this.#texts.join("\n");
    const count = charsMax / PIECE_CHARS;
    const stride = chars / count;
    const starts = Array.from({ length: count }, (_, i) => Math.floor(i * stride + random() * (stride - PIECE_CHARS)));
    const pieces = piecesOf(this.#texts, starts).map((piece) => pieceOfTokens(piece, PIECE_CHARS));
    return ownCopy(pieces.join(""));
  }
}

/** What stands at each of `starts` in the joined texts, without joining them: they may be very long. Enough to find where tokens begin. */
function piecesOf(texts: readonly string[], starts: readonly number[]): string[] {
  const pieces = starts.map(() => "");
  let first = 0;
  let offset = 0;
  for (const text of texts) {
    const next = offset + text.length + 1;
    for (let i = first; i < starts.length && (starts[i] as number) < next; i++) {
      const from = (starts[i] as number) - offset;
      const to = from + PIECE_CHARS + SEARCHED_CHARS;
      pieces[i] += text.slice(Math.max(0, from), to) + (to > text.length ? "\n" : "");
      // Otherwise the rest of the piece is in the next text.
      if (to <= text.length + 1) first = i + 1;
    }
    offset = next;
  }
  return pieces;
}

/** Fields that are sent on with another value, or not sent on (undefined). */
type Changed = ReadonlyMap<string, unknown>;
const UNCHANGED: Changed = new Map();

/** What is sent on: the text of a body, except for the fields in `changed`; and to which model. */
type Sent = { raw: Pick<Body, "text" | "spans">; changed?: Changed; model: PromptBounds };

/** The prompt of a chat request. Every field of it counts. */
export function promptOf(body: ChatBody, { raw, changed = UNCHANGED, model }: Sent): Prompt {
  const filtered = changed.get("messages");
  // One message may be sent as several.
  const messages: readonly unknown[] = Array.isArray(filtered) ? filtered : body.messages;
  const known = readMessages(messages, model);
  const found = known ?? readUnknown(messages, { bytes: sentBytes("messages", raw, changed), model });
  const fields = body as Record<string, unknown>;
  for (const name of raw.spans.keys()) {
    if (name === "messages" || name === "model") continue;
    const value = changed.has(name) ? changed.get(name) : fields[name];
    if (value === undefined || isScalar(name, value)) continue;
    const json = JSON.stringify(value);
    found.texts.push(json);
    found.beyond += Math.max(0, sentBytes(name, raw, changed) - Buffer.byteLength(json));
    if (name === "tools" && Array.isArray(value) && !value.every(isClientTool)) found.hasFiles = true;
  }
  const { texts, imageTokens, hasFiles, beyond } = found;
  const hasMedia = known === undefined || imageTokens > 0 || hasFiles;
  const fileTokens = hasFiles ? fileTokensOf(model) : 0;
  const added = addedByRepairs(messages);
  const overheadTokens = overheadOf(messages.length + added.messages, model);
  return new Prompt(texts, { overheadTokens, imageTokens, fileTokens, beyond: beyond + added.bytes, hasMedia });
}

/** Fields of an embedding request that are no text for the model. `input` is counted by itself. */
const EMBEDDING_SCALARS: ReadonlySet<string> = new Set(["model", "input", "encoding_format", "dimensions"]);

/** The prompt of an embedding request: its texts, or a token for each token id. All other fields that are sent on count by their bytes. */
export function embeddingPromptOf(
  { count, texts, ids }: EmbeddingInput,
  { raw, changed = UNCHANGED, model }: Sent,
): Prompt {
  let beyond = ids;
  for (const name of raw.spans.keys()) {
    if (EMBEDDING_SCALARS.has(name) || (changed.has(name) && changed.get(name) === undefined)) continue;
    beyond += sentBytes(name, raw, changed);
  }
  // Models add tokens to each input, as a chat format does to a message.
  return new Prompt(texts, { overheadTokens: overheadOf(count, model), ids, beyond });
}

/** Bytes of a field with its name, as it is sent: a provider may read spaces or digits that parsing removes. */
function sentBytes(name: string, { text, spans }: Pick<Body, "text" | "spans">, changed: Changed): number {
  if (changed.has(name)) return Buffer.byteLength(JSON.stringify({ [name]: changed.get(name) }));
  const span = spans.get(name);
  return span === undefined ? 0 : Buffer.byteLength(text.slice(span.keyStart, span.end));
}

/** The most tokens that the format adds to messages, or the model to inputs, and the provider to the request. */
export function overheadOf(messages: number, { messageTokens, requestTokens }: PromptBounds): number {
  return messages * messageTokens + requestTokens;
}

/** The texts, the most tokens of the images, whether there are files, and the bytes that are in none of them. */
type Found = { texts: string[]; imageTokens: number; hasFiles: boolean; beyond: number };

/** The texts and images of messages; undefined if the messages contain anything unknown. */
function readMessages(messages: unknown, model: PromptBounds): Found | undefined {
  if (!Array.isArray(messages)) return undefined;
  const found: Found = { texts: [], imageTokens: 0, hasFiles: false, beyond: 0 };
  for (const message of messages as unknown[]) {
    if (!isRecord(message)) return undefined;
    // A loop over names: Object.entries makes a list for each field of each message. The objects come from JSON.parse.
    for (const name in message) {
      const value = message[name];
      if (!MESSAGE_FIELDS.has(name)) return undefined;
      if (name === "role" || value === null) continue;
      if (typeof value === "string") found.texts.push(value);
      else if (name === "content" && Array.isArray(value)) {
        if (!value.every((part) => readPart(part, found, model))) return undefined;
      } else if (name === "tool_calls" && Array.isArray(value) && value.every(isToolCall)) {
        found.texts.push(JSON.stringify(value));
      } else return undefined;
    }
  }
  return found;
}

/** Adds a part of a message. Returns false if the part is unknown. */
function readPart(part: unknown, found: Found, model: PromptBounds): boolean {
  if (!isRecord(part)) return false;
  if (part.type === "text" && typeof part.text === "string" && hasOnly(part, TEXT_FIELDS)) {
    found.texts.push(part.text);
    return true;
  }
  if (part.type !== "image_url" || !hasOnly(part, IMAGE_FIELDS) || !isImageUrl(part.image_url)) return false;
  const { url } = part.image_url;
  const isData = url.startsWith(IMAGE_DATA);
  found.imageTokens += imageTokensOf(isData ? url : undefined, model);
  // The data of an image does not count, only its width and height. Any other URL counts as text too.
  if (!isData) found.texts.push(url);
  return true;
}

/** Counts messages by the bytes of their JSON, without the data of images in their contents. */
function readUnknown(messages: unknown, { bytes, model }: { bytes: number; model: PromptBounds }): Found {
  let imageTokens = 0;
  let hasFiles = false;
  let imageBytes = 0;
  const countedPart = (part: unknown): unknown => {
    if (!isRecord(part) || TEXT_PARTS.has(part.type)) return part;
    if (part.type !== "image_url") {
      hasFiles = true;
      return part;
    }
    const { image_url: image } = part;
    const url = isRecord(image) && typeof image.url === "string" ? image.url : "";
    const isData = url.startsWith(IMAGE_DATA);
    imageTokens += imageTokensOf(isData ? url : undefined, model);
    if (!isData || !isRecord(image)) return part;
    imageBytes += Buffer.byteLength(url);
    return { ...part, image_url: { ...image, url: "" } };
  };
  const counted = (message: unknown): unknown => {
    if (!isRecord(message)) return message;
    hasFiles ||= MEDIA_MEMBERS.some((name) => (message[name] ?? null) !== null);
    return Array.isArray(message.content) ? { ...message, content: message.content.map(countedPart) } : message;
  };
  const json = JSON.stringify(Array.isArray(messages) ? messages.map(counted) : messages);
  const beyond = Math.max(0, bytes - imageBytes - Buffer.byteLength(json));
  return { texts: [json], imageTokens, hasFiles, beyond };
}

function isScalar(name: string, value: unknown): boolean {
  if (!SCALARS.has(name)) return false;
  if (value === null || typeof value === "number" || typeof value === "boolean") return true;
  return name === "stream_options" && isRecord(value) && Object.entries(value).every(isFlag);
}

function isFlag([name, value]: [string, unknown]): boolean {
  return (name === "include_usage" || name === "include_obfuscation") && (value === null || typeof value === "boolean");
}

/** Whether the client runs the tool. */
export function isClientTool(tool: unknown): boolean {
  return isRecord(tool) && CLIENT_TOOLS.has(tool.type);
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
