import { type SchemaOptions, type Static, type TSchema, Type } from "@sinclair/typebox";
import { Refusal } from "../errors.ts";
import type { Body } from "../http/body.ts";
import { checker, INSTANT } from "../http/checks.ts";
import {
  EMBEDDING_DIMENSIONS,
  EMBEDDING_INPUT_TOKENS_MAX,
  EMBEDDING_INPUTS_MAX,
  IMAGE_PROMPT_CHARS,
  IMAGE_SIZES,
} from "../limits.ts";
import { type EmbeddingInput, readInput, TOKEN_ID_MAX } from "./embedding_input.ts";

/** The shapes of requests, and the functions that check bodies against them. Source: API-5, API-6, API-7, EMB-2. */

/** Optional, or null: SDKs send null for options that were not set. */
const Optional = <T extends TSchema>(schema: T, words: SchemaOptions = {}) =>
  Type.Optional(Type.Union([schema, Type.Null()], words));

/** Whether the answer's usage tells the charge. Source: USE-7. */
export const UsageOptions = Optional(
  Type.Object(
    {
      include: Optional(Type.Boolean(), {
        description: "Add what the request cost in USD, as usage.cost, and what paid it, as usage.mode.",
      }),
    },
    { additionalProperties: true },
  ),
);

/** Whether a request asks what it costs. */
export function asksForCharge({ usage }: { usage?: Static<typeof UsageOptions> }): boolean {
  return usage?.include === true;
}

/** Maximum number of parts in a message's content. */
const CONTENT_PARTS_MAX = 1_000;
const ContentParts = Type.Array(Type.Object({}, { additionalProperties: true }), { maxItems: CONTENT_PARTS_MAX });

/**
 * Rules for the published description only; TypeBox does not check them, `readChat` does: only an assistant message may have no
 * content, only a tool message has an empty list, a tool message names the call that it answers, and a function's message the function.
 */
const BY_ROLE = {
  if: { properties: { role: { const: "assistant" } } },
  else: {
    required: ["content"],
    properties: { content: { type: ["string", "array"] } },
    if: { properties: { role: { const: "tool" } } },
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
    then: { required: ["tool_call_id"], properties: { tool_call_id: { type: "string" } } },
    else: {
      properties: { content: { minItems: 1 } },
      if: { properties: { role: { const: "function" } } },
      // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
      then: { required: ["name"], properties: { name: { type: "string" } } },
    },
  },
};

export const ChatMessage = Type.Object(
  {
    role: Type.Union(
      ["system", "user", "assistant", "tool", "developer", "function"].map((role) => Type.Literal(role)),
    ),
    content: Optional(Type.Union([Type.String(), ContentParts]), {
      description:
        "Text, or parts of text and images. Required unless the role is assistant, whose message may consist of tool calls alone.",
    }),
    tool_call_id: Optional(Type.String(), {
      description: "The id of the tool call that this message answers. Required if the role is tool.",
    }),
    name: Type.Optional(
      Type.Unknown({ description: "The function whose result this is. Required, as text, if the role is function." }),
    ),
  },
  { title: "ChatMessage", additionalProperties: true, ...BY_ROLE },
);

export const ChatBody = Type.Object(
  {
    model: Type.String({ minLength: 1, maxLength: 200, description: "The id of a model, as GET /models lists it." }),
    messages: Type.Array(ChatMessage, { minItems: 1, maxItems: 10_000 }),
    stream: Optional(Type.Boolean(), { default: false, description: "Send the answer as server-sent events." }),
    stream_options: Optional(
      Type.Object(
        { include_usage: Optional(Type.Boolean(), { description: "Send the usage in a last chunk before [DONE]." }) },
        { additionalProperties: true },
      ),
    ),
    temperature: Optional(Type.Number({ minimum: 0, maximum: 2 })),
    max_tokens: Optional(Type.Integer({ minimum: 1, maximum: 2_000_000_000 }), {
      description: "Maximum number of tokens in the answer.",
    }),
    max_completion_tokens: Optional(Type.Integer({ minimum: 1, maximum: 2_000_000_000 }), {
      description: "The newer name of max_tokens; takes precedence if both are sent.",
    }),
    n: Optional(Type.Integer({ minimum: 1, maximum: 128 }), { description: "Number of choices to generate." }),
    usage: UsageOptions,
  },
  {
    title: "ChatCompletionRequest",
    description:
      "Other fields are accepted. Supported ones are passed on to the model unchanged; the others are dropped, and named in the response header X-Dropped-Params.",
    additionalProperties: true,
  },
);
export type ChatBody = Static<typeof ChatBody>;
export type ChatMessage = Static<typeof ChatMessage>;

export const IMAGE_SIZE_DEFAULT = "1024x1024";

export const ImageBody = Type.Object(
  {
    model: Type.String({ minLength: 1, maxLength: 200, description: "The id of an image model." }),
    prompt: Type.String({ codePoints: IMAGE_PROMPT_CHARS }),
    size: Optional(Type.Union(IMAGE_SIZES.map((size) => Type.Literal(size))), { default: IMAGE_SIZE_DEFAULT }),
    n: Optional(Type.Literal(1), { default: 1 }),
    response_format: Optional(Type.Union([Type.Literal("url"), Type.Literal("b64_json")]), {
      default: "url",
      description: "Always honored, whatever the model returns. A URL may be a data: URL.",
    }),
    usage: UsageOptions,
  },
  {
    title: "ImageGenerationRequest",
    description:
      "Other fields are accepted. Supported ones are passed on to the model unchanged, and quality if it has a price; the others are dropped, and named in the response header X-Dropped-Params.",
    additionalProperties: true,
  },
);
export type ImageBody = Static<typeof ImageBody>;

const EmbeddingText = Type.String({ minLength: 1 });
const EmbeddingTokens = Type.Array(Type.Integer({ minimum: 0, maximum: TOKEN_ID_MAX }), {
  minItems: 1,
  maxItems: EMBEDDING_INPUT_TOKENS_MAX,
});
const many = { minItems: 1, maxItems: EMBEDDING_INPUTS_MAX };
const EmbeddingModelId = Type.String({ minLength: 1, maxLength: 200, description: "The id of an embedding model." });
const EMBEDDING_OPTIONS = {
  encoding_format: Optional(Type.Union([Type.Literal("float"), Type.Literal("base64")]), {
    default: "float",
    description: "base64: the numbers as little-endian float32. Always honored, whatever the model returns.",
  }),
  dimensions: Optional(Type.Integer({ minimum: EMBEDDING_DIMENSIONS.min, maximum: EMBEDDING_DIMENSIONS.max }), {
    description: "Numbers per embedding, for models that can shorten them.",
  }),
  user: Optional(Type.String(), { description: "Your identifier of the end user." }),
  usage: UsageOptions,
};

export const EmbeddingBody = Type.Object(
  {
    model: EmbeddingModelId,
    input: Type.Union(
      [EmbeddingText, Type.Array(EmbeddingText, many), EmbeddingTokens, Type.Array(EmbeddingTokens, many)],
      {
        description:
          "A text, up to 2,048 texts, the token ids of a text, or up to 2,048 arrays of token ids. At most 8,192 tokens each, and 300,000 token ids in all.",
      },
    ),
    ...EMBEDDING_OPTIONS,
  },
  {
    title: "EmbeddingRequest",
    description:
      "Other fields are accepted. Supported ones are passed on to the model unchanged; the others are dropped, and named in the response header X-Dropped-Params.",
    additionalProperties: true,
  },
);

const checkChat = checker(ChatBody);
const checkImage = checker(ImageBody);
/** Without `input`: `readInput` checks it, because the errors of a union of lists would name the wrong variant. */
const EmbeddingFields = Type.Object(
  { model: EmbeddingModelId, input: Type.Unknown(), ...EMBEDDING_OPTIONS },
  { additionalProperties: true },
);
export type EmbeddingFields = Static<typeof EmbeddingFields>;
const checkEmbeddingFields = checker(EmbeddingFields);

/** Checks the body of a chat request by every rule that needs no model. Throws invalid_request. */
export function readChat(raw: Body): ChatBody {
  const body = checkChat(raw.value);
  for (const [i, message] of body.messages.entries()) checkMessage(message, `messages.${i}`);
  return body;
}

/** The rules for a message that its shape cannot express. Throws invalid_request. */
function checkMessage({ role, content, tool_call_id, name }: ChatMessage, path: string): void {
  // An empty list says as little as no content. An empty output of a tool is one.
  const isEmpty =
    content === undefined || content === null || (Array.isArray(content) && content.length === 0 && role !== "tool");
  // An assistant turn may consist of tool calls alone. Source: API-5.
  if (isEmpty && role !== "assistant") throw missing(`${path}.content`);
  // Every provider refuses a tool message that names no call.
  if (role === "tool" && typeof tool_call_id !== "string") throw missing(`${path}.tool_call_id`);
  if (role === "function" && typeof name !== "string") throw missing(`${path}.name`);
}

function missing(param: string): Refusal {
  return new Refusal("invalid_request", { message: `The field ${param} is required.`, param });
}

/** Checks the body of an image request by every rule that needs no model. Throws invalid_request. */
export function readImage(raw: Body): ImageBody {
  const body = checkImage(raw.value);
  // TypeBox counts UTF-16 code units; the rule counts code points.
  let chars = 0;
  for (const _ of body.prompt) if (++chars > IMAGE_PROMPT_CHARS.max) break;
  if (chars >= IMAGE_PROMPT_CHARS.min && chars <= IMAGE_PROMPT_CHARS.max) return body;
  throw new Refusal("invalid_request", {
    message: `The field prompt must have ${IMAGE_PROMPT_CHARS.min} to ${IMAGE_PROMPT_CHARS.max} characters.`,
    param: "prompt",
  });
}

/** An embedding request: its fields, and what it wants embedded. */
export type EmbeddingRequest = { fields: EmbeddingFields; input: EmbeddingInput };

/** Checks the body of an embedding request by every rule that needs no model. Throws invalid_request. */
export function readEmbedding(raw: Body): EmbeddingRequest {
  const fields = checkEmbeddingFields(raw.value);
  return { fields, input: readInput(fields.input) };
}

export const USAGE_LIMIT_DEFAULT = 100;

export const UsageQuery = Type.Object({
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 1000, default: USAGE_LIMIT_DEFAULT, description: "Records per page." }),
  ),
  after: Type.Optional(
    Type.String({
      pattern: "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}$",
      says: "the next_after of the previous page, or a requestId",
      description: "The next_after of the previous page, or a requestId.",
    }),
  ),
  start: Type.Optional(
    Type.String({
      ...INSTANT,
      description: "Records from this time on: a date, or an ISO 8601 date and time with its zone.",
    }),
  ),
  end: Type.Optional(
    Type.String({
      ...INSTANT,
      description: "Records before this time: a date, or an ISO 8601 date and time with its zone.",
    }),
  ),
  // A query can contain NUL, which Postgres does not accept in text.
  model: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 200,
      pattern: "^[^\\u0000]*$",
      says: "a string of 1 to 200 characters without NUL",
      description: "Only records of this model.",
    }),
  ),
});
export type UsageQuery = Static<typeof UsageQuery>;
