import { type TSchema, Type } from "@sinclair/typebox";
import type { ErrorCode } from "../errors.ts";
import { type Operation, refusalsOf } from "../http/openapi.ts";
import { ChatBody, IMAGE_SIZE_DEFAULT, ImageBody, UsageQuery } from "./request_shapes.ts";
import {
  Balance,
  ChatCompletion,
  ChatCompletionChunk,
  ImageGenerationResponse,
  ModelList,
  ModelOnWire,
  UsageList,
} from "./response_shapes.ts";

/** What each route under /v1 says of itself. Source: contract › Endpoints, rulings › Errors. */

/** Of every route: who asks, how often, and what may break. */
const ALWAYS = [
  "invalid_api_key",
  "host_not_allowed",
  "too_many_requests",
  "service_unavailable",
  "internal_error",
] as const satisfies ErrorCode[];

/** Of every metered request, at the API's door and at the panel's: body, model, entitlement, provider. */
export const METERED = [
  "invalid_request",
  "request_too_large",
  "unsupported_media_type",
  "model_not_found",
  "model_not_in_package",
  "package_required",
  "package_expired",
  "package_quota_exceeded",
  "daily_quota_exceeded",
  "carryover_quota_exceeded",
  "key_request_limit_exceeded",
  "key_spend_limit_exceeded",
  "insufficient_balance",
  "payg_pricing_unavailable",
  "provider_unavailable",
] as const satisfies ErrorCode[];

const IDEMPOTENT = ["idempotency_mismatch", "idempotency_conflict"] as const satisfies ErrorCode[];

const IdempotencyHeader = Type.Object({
  "Idempotency-Key": Type.Optional(
    Type.String({
      pattern: "^[\\x21-\\x7e]{1,255}$",
      description: "Of your making: a request that is sent again with the same one is served and charged once.",
    }),
  ),
});

/** What a chat or an image costs an account, in a sentence. */
const METERED_WORDS =
  "It counts as one request of the package, or is paid from the balance; if it is refused, or the model does not answer, it costs nothing.";

export const CHAT_EXAMPLE = { model: "gpt-mini", messages: [{ role: "user", content: "What is a toll gate?" }] };
export const IMAGE_EXAMPLE = { model: "painter", prompt: "A toll gate at dawn", size: IMAGE_SIZE_DEFAULT };
export const CHAT_ANSWER: Operation["answer"] = {
  schema: ChatCompletion,
  description: "The model's answer; with stream: true as server-sent events.",
};
export const IMAGE_ANSWER: Operation["answer"] = { schema: ImageGenerationResponse, description: "The image." };

const read = (
  more: Pick<Operation, "id" | "tag" | "summary" | "description" | "params" | "query">,
  answer: TSchema,
  ...codes: ErrorCode[]
): Operation => ({
  ...more,
  caller: "key",
  answer: { schema: answer, description: more.summary },
  refusals: refusalsOf(...ALWAYS, ...codes),
});

export const LIST_MODELS = read(
  {
    id: "listModels",
    tag: "Models",
    summary: "The models that this key can use now",
    description:
      "What a request could really be served with. With nothing to pay by the list is empty. A 200 shows that address and key are right.",
  },
  ModelList,
);

export const GET_MODEL = read(
  {
    id: "getModel",
    tag: "Models",
    summary: "One of these models",
    description: "A model that the list would not show is not found.",
    params: Type.Object({
      model: Type.String({ description: "The model's id. Its slashes may be sent as they are, or as %2F." }),
    }),
  },
  ModelOnWire,
  "model_not_found",
);

export const CREATE_CHAT: Operation = {
  id: "createChatCompletion",
  tag: "Chat",
  summary: "An answer of a model, whole or as a stream",
  description: METERED_WORDS,
  caller: "key",
  headers: IdempotencyHeader,
  body: { schema: ChatBody, example: CHAT_EXAMPLE },
  answer: CHAT_ANSWER,
  events: ChatCompletionChunk,
  refusals: refusalsOf(...ALWAYS, ...METERED, ...IDEMPOTENT),
};

export const CREATE_IMAGE: Operation = {
  id: "createImage",
  tag: "Images",
  summary: "An image of a model",
  description: METERED_WORDS,
  caller: "key",
  headers: IdempotencyHeader,
  body: { schema: ImageBody, example: IMAGE_EXAMPLE },
  answer: IMAGE_ANSWER,
  refusals: refusalsOf(...ALWAYS, ...METERED, ...IDEMPOTENT),
};

export const GET_BALANCE = read(
  {
    id: "getBalance",
    tag: "Account",
    summary: "What the key's account can still spend",
    description: "The package and what is left of it, or the balance: by the key's mode. It is not metered.",
  },
  Balance,
);

export const LIST_USAGE = read(
  {
    id: "listUsage",
    tag: "Account",
    summary: "The account's requests that were served, newest first",
    description: "Those on the hosts that the key may be used on. It is not metered.",
    query: UsageQuery,
  },
  UsageList,
  "invalid_request",
);
