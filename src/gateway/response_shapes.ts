import { type Static, type TSchema, Type } from "@sinclair/typebox";
import { MODALITY_NAMES } from "../catalog/modalities.ts";

/**
 * The shapes of the API's responses. They are published in the OpenAPI document, and `Static` makes of them the types that the handlers
 * build. Responses are not checked against them at run time. A title is the shape's name in the contract. Source: API-8.
 */

const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const list = Type.Literal("list");
const mode = Type.Union([Type.Literal("package"), Type.Literal("payg")]);
const count = Type.Integer({ minimum: 0 });
const unixTime = Type.Integer({ description: "Unix time, in seconds." });
const moment = Type.String({ format: "date-time" });
/** An object that is passed on from the provider unchanged. */
const FreeForm = Type.Object({}, { additionalProperties: true });

export const ModelOnWire = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("model"),
    created: unixTime,
    owned_by: Type.Optional(Type.String()),
    name: Type.Optional(Type.String()),
    context_length: Type.Optional(Nullable(Type.Integer({ description: "In tokens." }))),
    status: Type.Optional(Type.Union([Type.Literal("active"), Type.Literal("preview"), Type.Literal("deprecated")])),
    modality: Type.Optional(
      Type.Union(
        MODALITY_NAMES.map((modality) => Type.Literal(modality)),
        { description: "text: chat; image: images; multimodal: both; embedding: embeddings." },
      ),
    ),
    architecture: Type.Optional(FreeForm),
  },
  { title: "Model" },
);
export type ModelOnWire = Static<typeof ModelOnWire>;

export const ModelList = Type.Object({ object: list, data: Type.Array(ModelOnWire) }, { title: "ModelList" });

const cost = Type.Optional(
  Type.Number({ format: "double", minimum: 0, description: "What was charged in USD, if the request asked for it." }),
);
const paid = Type.Optional(mode);

export const Usage = Type.Object(
  { prompt_tokens: count, completion_tokens: count, total_tokens: count, cost, mode: paid },
  { title: "Usage", description: "The counts that were charged." },
);

export const ChatCompletion = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("chat.completion"),
    created: unixTime,
    model: Type.String({ description: "The model id of the request." }),
    choices: Type.Array(FreeForm, {
      description: "As in OpenAI's API.",
    }),
    usage: Usage,
  },
  { title: "ChatCompletion" },
);

export const ChatCompletionChunk = Type.Object(
  {
    id: Type.String({ description: "The same in all chunks of a stream, like created." }),
    object: Type.Literal("chat.completion.chunk"),
    created: unixTime,
    model: Type.String({ description: "The model id of the request." }),
    choices: Type.Array(FreeForm, {
      description: "As in OpenAI's API. Empty in the chunk with the usage.",
    }),
    usage: Type.Optional(Nullable(Usage)),
  },
  { title: "ChatCompletionChunk" },
);

const ResponseUsage = Type.Object(
  {
    input_tokens: count,
    input_tokens_details: Type.Object({ cached_tokens: count }, { additionalProperties: true }),
    output_tokens: count,
    output_tokens_details: Type.Object({ reasoning_tokens: count }, { additionalProperties: true }),
    total_tokens: count,
    cost,
    mode: paid,
  },
  { title: "ResponseUsage" },
);

export const ResponseObject = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("response"),
    created_at: unixTime,
    status: Type.String({ description: "completed, incomplete or failed; in_progress at the beginning of a stream." }),
    model: Type.String({ description: "The model id of the request." }),
    output: Type.Array(FreeForm, { description: "As in OpenAI's API: messages, tool calls and reasoning." }),
    error: Type.Optional(Nullable(FreeForm)),
    incomplete_details: Type.Optional(Nullable(FreeForm)),
    usage: Type.Optional(Nullable(ResponseUsage)),
  },
  { title: "Response", additionalProperties: true },
);

export const ResponseEvent = Type.Object(
  {
    type: Type.String({ description: "As in OpenAI's API. The last is response.completed, .incomplete or .failed." }),
    sequence_number: count,
    response: Type.Optional(ResponseObject),
  },
  { title: "ResponseEvent", additionalProperties: true },
);

export const ImageGenerationResponse = Type.Object(
  {
    created: unixTime,
    model: Type.Optional(Type.String({ description: "The model id of the request." })),
    data: Type.Array(
      Type.Object({
        url: Type.Optional(Type.String({ format: "uri" })),
        b64_json: Type.Optional(Type.String()),
        revised_prompt: Type.Optional(Type.String()),
      }),
      { minItems: 1, description: "The image, as url or b64_json, depending on response_format." },
    ),
  },
  { title: "ImageGenerationResponse" },
);

export const EmbeddingList = Type.Object(
  {
    object: list,
    data: Type.Array(
      Type.Object({
        object: Type.Literal("embedding"),
        index: Type.Integer({ minimum: 0, description: "The place of its input in the request." }),
        embedding: Type.Union([Type.Array(Type.Number()), Type.String()], {
          description: "Numbers, or with encoding_format: base64 their little-endian float32 in base64.",
        }),
      }),
      { minItems: 1, description: "One embedding for each input, in the order of the inputs." },
    ),
    model: Type.String({ description: "The model id of the request." }),
    usage: Usage,
  },
  { title: "EmbeddingList" },
);

export const DeletedResponse = Type.Object(
  { id: Type.String(), object: Type.Literal("response"), deleted: Type.Literal(true) },
  { title: "DeletedResponse" },
);

export const InputItemList = Type.Object(
  {
    object: list,
    data: Type.Array(Type.Object({ id: Type.String(), type: Type.String() }, { additionalProperties: true })),
    first_id: Nullable(Type.String()),
    last_id: Nullable(Type.String({ description: "The value of after for the next page." })),
    has_more: Type.Boolean(),
  },
  { title: "InputItemList" },
);

export const PackageEntitlement = Type.Object(
  {
    id: Type.Optional(Nullable(Type.Integer())),
    name: Type.Optional(Nullable(Type.String())),
    starts_at: Type.Optional(Nullable(moment)),
    ends_at: Type.Optional(Nullable(moment)),
    daily_limit: Type.Optional(Nullable(count)),
    daily_remaining: Type.Optional(
      Nullable(
        Type.Integer({
          minimum: 0,
          description: "Requests left now. With carryover, includes unused requests of earlier days.",
        }),
      ),
    ),
    total_limit: Type.Optional(Nullable(count)),
    total_remaining: Type.Optional(Nullable(count)),
    carryover: Type.Optional(Type.Boolean({ description: "Unused requests of a day can be used on later days." })),
  },
  { title: "PackageEntitlement", description: "Limits count requests. Requests in progress count as used." },
);
export type PackageEntitlement = Static<typeof PackageEntitlement>;

const usd = (description?: string) =>
  Type.Number({ format: "double", minimum: 0, ...(description && { description }) });

export const Balance = Type.Object(
  {
    object: Type.Literal("balance"),
    mode,
    quota: Type.Optional(Nullable(Type.Integer({ description: "The token allowance of the package, if it has one." }))),
    used_tokens: Type.Integer({
      description: "The sum of chargedTokens of all usage records of the package, or of the balance.",
    }),
    remaining_tokens: Type.Optional(Nullable(Type.Integer())),
    package: Type.Optional(Nullable(PackageEntitlement)),
    payg: Type.Optional(
      Nullable(
        Type.Object({
          enabled: Type.Optional(Type.Boolean()),
          balance_usd: Type.Optional(usd()),
          held_usd: Type.Optional(usd("The part of balance_usd that is reserved for requests in progress.")),
        }),
      ),
    ),
  },
  { title: "Balance", description: "Its contents depend on the key's mode." },
);
export type Balance = Static<typeof Balance>;

export const UsageRecord = Type.Object(
  {
    requestId: Type.Optional(Type.String({ description: "The X-Request-Id of the request." })),
    model: Type.Optional(Type.String()),
    promptTokens: Type.Optional(Type.Integer()),
    completionTokens: Type.Optional(Type.Integer()),
    totalTokens: Type.Optional(Type.Integer()),
    chargedTokens: Type.Optional(
      Type.Integer({ description: "The part of totalTokens that counts in used_tokens. The service bears the rest." }),
    ),
    mode: Type.Optional(mode),
    createdAt: Type.Optional(moment),
    host: Type.Optional(Type.String({ description: "The host that the request was sent to." })),
    costUsd: Type.Optional(usd("What was charged to the balance; 0 if the package paid.")),
    estimated: Type.Optional(
      Type.Boolean({ description: "The tokens are estimated, because the provider reported none." }),
    ),
    status: Type.Optional(Type.String({ description: "How the request ended: complete, client_left, …" })),
  },
  { title: "UsageRecord" },
);
export type UsageRecord = Static<typeof UsageRecord>;

export const UsageList = Type.Object(
  {
    object: list,
    mode,
    data: Type.Array(UsageRecord),
    has_more: Type.Boolean({ description: "There may be older records. To get them, repeat the request with after." }),
    next_after: Nullable(
      Type.String({
        description:
          "The value of after for the next page; null on the last page. A page that reached its time limit may have fewer records than limit, or none, and still not be the last.",
      }),
    ),
  },
  { title: "UsageList", description: "Newest first." },
);
