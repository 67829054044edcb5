import { isRecord, type JsonRecord } from "./text.ts";

/** Limit of choices, or images, per request. */
export const CHOICES_MAX = 4;
const TOKENS_PER_IMAGE = 85;
const TOKENS_PER_MESSAGE = 3;
/** Nothing is cached below this many tokens; above it, whole blocks. As OpenAI's prompt cache. */
const CACHE_FROM_TOKENS = 1_024;
const CACHE_BLOCK_TOKENS = 128;

/** A chat request, read from untrusted JSON. */
export interface ChatRequest {
  readonly model: string;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly choices: number;
  /** The request's cap on tokens per choice; null for none. */
  readonly tokensMax: number | null;
  /** The text of the last user message. */
  readonly prompt: string;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly tool: { name: string; parameters: unknown } | null;
  /** JSON schema of a structured answer; `{}` for any JSON object, null for plain text. */
  readonly jsonSchema: unknown;
}

/** Reads a chat request. Throws ProviderError 400 with the invalid field. */
export function readChatRequest(body: unknown): ChatRequest {
  if (!isRecord(body)) throw new ProviderError(400, "The body must be a JSON object.");
  const model = readModel(body);
  const messages = body.messages;
  if (!Array.isArray(messages) || messages.length === 0 || !messages.every(isRecord)) {
    throw new ProviderError(400, "'messages' must be an array of at least one message.", { param: "messages" });
  }
  const lengths = messages.map(
    (message) => TOKENS_PER_MESSAGE + contentTokens(message.content) + jsonTokens(message.tool_calls),
  );
  const promptTokens = lengths.reduce((sum, length) => sum + length, 0) + jsonTokens(body.tools);
  const cacheable = promptTokens - (lengths.at(-1) ?? 0);
  const streamOptions = isRecord(body.stream_options) ? body.stream_options : {};
  const lastMessage: JsonRecord = messages.at(-1) ?? {};
  const lastUser: JsonRecord | undefined = messages.findLast((message) => message.role === "user");
  return {
    model,
    stream: body.stream === true,
    includeUsage: streamOptions.include_usage === true,
    choices: Math.min(readCount(body, "n") ?? 1, CHOICES_MAX),
    tokensMax: readCount(body, "max_completion_tokens") ?? readCount(body, "max_tokens"),
    prompt: textOf((lastUser ?? lastMessage).content),
    promptTokens,
    cachedTokens: cacheable < CACHE_FROM_TOKENS ? 0 : cacheable - (cacheable % CACHE_BLOCK_TOKENS),
    tool: lastMessage.role === "user" ? chosenTool(body) : null,
    jsonSchema: jsonSchemaOf(body.response_format),
  };
}

/** The model id of a request. Throws ProviderError 400. */
export function readModel(body: JsonRecord): string {
  if (typeof body.model !== "string" || body.model === "")
    throw new ProviderError(400, "You must provide a model.", { param: "model" });
  return body.model;
}

/** An optional count of at least 1; null when absent. Throws ProviderError 400 for anything else. */
export function readCount(body: JsonRecord, field: string): number | null {
  const value = body[field];
  if (value === undefined || value === null) return null;
  if (typeof value !== "number" || !Number.isInteger(value) || value < 1) {
    throw new ProviderError(400, `'${field}' must be an integer of at least 1.`, { param: field });
  }
  return value;
}

/** An error in OpenAI's format. */
export class ProviderError extends Error {
  readonly status: number;
  readonly type: string;
  readonly code: string | null;
  readonly param: string | null;

  constructor(status: number, message: string, fields: { type?: string; code?: string; param?: string } = {}) {
    super(message);
    this.status = status;
    this.type = fields.type ?? "invalid_request_error";
    this.code = fields.code ?? null;
    this.param = fields.param ?? null;
  }

  /** `{"error":{message,type,param,code}}` */
  body(): string {
    return JSON.stringify({ error: { message: this.message, type: this.type, param: this.param, code: this.code } });
  }
}

/** The function to call: the one in `tool_choice`, or the first. Null without tools or if they are switched off. */
function chosenTool(body: JsonRecord): { name: string; parameters: unknown } | null {
  if (!Array.isArray(body.tools) || body.tool_choice === "none") return null;
  const functions = body.tools
    .map((tool) => (isRecord(tool) && isRecord(tool.function) ? tool.function : {}))
    .filter(({ name }) => typeof name === "string");
  const named =
    isRecord(body.tool_choice) && isRecord(body.tool_choice.function) ? body.tool_choice.function.name : undefined;
  const chosen = functions.find(({ name }) => named === undefined || name === named);
  if (!chosen && named !== undefined)
    throw new ProviderError(400, `Tool choice '${String(named)}' not found in 'tools' parameter.`, {
      param: "tool_choice",
    });
  return chosen ? { name: String(chosen.name), parameters: chosen.parameters ?? { type: "object" } } : null;
}

function jsonSchemaOf(format: unknown): unknown {
  if (!isRecord(format)) return null;
  if (format.type === "json_object") return {};
  return format.type === "json_schema" && isRecord(format.json_schema) ? (format.json_schema.schema ?? {}) : null;
}

/** The text of a message's content: a string, or the text parts of an array. */
function textOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  const texts = content.map((part: unknown) => (isRecord(part) && typeof part.text === "string" ? part.text : ""));
  return texts.filter((text) => text !== "").join(" ");
}

function contentTokens(content: unknown): number {
  const images = Array.isArray(content)
    ? content.filter((part: unknown) => isRecord(part) && part.type === "image_url").length
    : 0;
  return Math.ceil(textOf(content).length / 4) + images * TOKENS_PER_IMAGE;
}

function jsonTokens(value: unknown): number {
  return Array.isArray(value) && value.length > 0 ? Math.ceil(JSON.stringify(value).length / 4) : 0;
}
