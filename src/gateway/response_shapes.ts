import { type Static, type TSchema, Type } from "@sinclair/typebox";

/**
 * The shapes of what the API answers: what is published of it, and by `Static` the types of what the controllers build. Nothing is
 * checked by them while serving. A title is the shape's name in the contract. Source: contract › Resources and their fields.
 */

const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);
const list = Type.Literal("list");
const mode = Type.Union([Type.Literal("package"), Type.Literal("payg")]);
const count = Type.Integer({ minimum: 0 });
const unixTime = Type.Integer({ description: "Unix time, in seconds." });
const moment = Type.String({ format: "date-time" });
/** Whatever the model's own service sends goes through. */
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
      Type.Union([Type.Literal("text"), Type.Literal("image"), Type.Literal("multimodal")], {
        description: "text serves chat, image serves images, multimodal serves both.",
      }),
    ),
    architecture: Type.Optional(FreeForm),
  },
  { title: "Model" },
);
export type ModelOnWire = Static<typeof ModelOnWire>;

export const ModelList = Type.Object({ object: list, data: Type.Array(ModelOnWire) }, { title: "ModelList" });

export const Usage = Type.Object(
  { prompt_tokens: count, completion_tokens: count, total_tokens: count },
  { title: "Usage" },
);

export const ChatCompletion = Type.Object(
  {
    id: Type.String(),
    object: Type.Literal("chat.completion"),
    created: unixTime,
    model: Type.String({ description: "The model's id, as the request named it." }),
    choices: Type.Array(FreeForm, {
      description: "As OpenAI's API has them; passed on as the model's service sent them.",
    }),
    usage: Type.Optional(Usage),
  },
  { title: "ChatCompletion" },
);

export const ChatCompletionChunk = Type.Object(
  {
    id: Type.String({ description: "The same in all chunks of a stream, as is created." }),
    object: Type.Literal("chat.completion.chunk"),
    created: unixTime,
    model: Type.String({ description: "The model's id, as the request named it." }),
    choices: Type.Array(FreeForm, {
      description: "As OpenAI's API has them; none in the chunk that brings the usage.",
    }),
    usage: Type.Optional(Nullable(Usage)),
  },
  { title: "ChatCompletionChunk" },
);

export const ImageGenerationResponse = Type.Object(
  {
    created: unixTime,
    model: Type.Optional(Type.String({ description: "The model's id, as the request named it." })),
    data: Type.Array(
      Type.Object({
        url: Type.Optional(Type.String({ format: "uri" })),
        b64_json: Type.Optional(Type.String()),
        revised_prompt: Type.Optional(Type.String()),
      }),
      { minItems: 1, description: "The image: by url or b64_json, as response_format asked." },
    ),
  },
  { title: "ImageGenerationResponse" },
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
        Type.Integer({ minimum: 0, description: "Requests left now; of a carryover package, what has accumulated." }),
      ),
    ),
    total_limit: Type.Optional(Nullable(count)),
    total_remaining: Type.Optional(Nullable(count)),
    carryover: Type.Optional(Type.Boolean({ description: "What a day leaves unused stays usable on later days." })),
  },
  { title: "PackageEntitlement", description: "Limits count requests. Requests under way count as used." },
);
export type PackageEntitlement = Static<typeof PackageEntitlement>;

const usd = (description?: string) =>
  Type.Number({ format: "double", minimum: 0, ...(description && { description }) });

export const Balance = Type.Object(
  {
    object: Type.Literal("balance"),
    mode,
    quota: Type.Optional(
      Nullable(Type.Integer({ description: "The package's allowance of tokens, where it has one." })),
    ),
    used_tokens: Type.Integer({
      description: "Of the package, or over the balance's life: the sum of chargedTokens of its usage records.",
    }),
    remaining_tokens: Type.Optional(Nullable(Type.Integer())),
    package: Type.Optional(Nullable(PackageEntitlement)),
    payg: Type.Optional(
      Nullable(
        Type.Object({
          enabled: Type.Optional(Type.Boolean()),
          balance_usd: Type.Optional(usd()),
          held_usd: Type.Optional(usd("The part of balance_usd that requests under way hold back.")),
        }),
      ),
    ),
  },
  { title: "Balance", description: "Shaped by the key's mode." },
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
      Type.Integer({ description: "Of totalTokens, what counts in used_tokens. The service bears the rest." }),
    ),
    mode: Type.Optional(mode),
    createdAt: Type.Optional(moment),
    host: Type.Optional(Type.String({ description: "The host the request came in on." })),
    costUsd: Type.Optional(usd("What the balance paid; 0 where the package did.")),
    estimated: Type.Optional(Type.Boolean({ description: "The tokens are our count: the model's service told none." })),
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
    has_more: Type.Boolean({ description: "There may be older records: ask again with after." }),
    next_after: Nullable(
      Type.String({
        description:
          "The after of the next page; null after the last one. A page whose time was over may have fewer records than its limit, or none, and go on all the same.",
      }),
    ),
  },
  { title: "UsageList", description: "Newest first." },
);
