import { type TSchema, Type } from "@sinclair/typebox";
import { byService, SERVICES, type Service } from "../catalog/modalities.ts";
import type { ErrorCode } from "../errors.ts";
import { type Operation, refusalsOf } from "../http/openapi.ts";
import { ENTITLEMENT_REFUSALS } from "../ledger/refusals.ts";
import { IMAGE_TYPES } from "./image_files.ts";
import { ChatBody, EmbeddingBody, IMAGE_SIZE_DEFAULT, ImageBody, UsageQuery } from "./request_shapes.ts";
import {
  Balance,
  ChatCompletion,
  ChatCompletionChunk,
  DeletedResponse,
  EmbeddingList,
  ImageGenerationResponse,
  InputItemList,
  ModelList,
  ModelOnWire,
  ResponseEvent,
  ResponseObject,
  UsageList,
  UsageRecord,
} from "./response_shapes.ts";
import { ResponsesBody } from "./responses/request.ts";
import { InputItemsQuery } from "./responses/stored_endpoints.ts";

/** The OpenAPI description of each endpoint under /v1. Source: API-2, ERR-2. */

/** The errors of every endpoint. */
const ALWAYS = [
  "invalid_api_key",
  "host_not_allowed",
  "too_many_requests",
  "service_unavailable",
  "internal_error",
] as const satisfies ErrorCode[];

/** The errors of every metered request, through the API and through the panel. */
export const METERED = [
  "invalid_request",
  "context_length_exceeded",
  "request_too_large",
  "unsupported_media_type",
  ...ENTITLEMENT_REFUSALS,
  "provider_unavailable",
] as const satisfies ErrorCode[];

const IDEMPOTENT = ["idempotency_mismatch", "idempotency_conflict"] as const satisfies ErrorCode[];

/** The description of a metered endpoint. */
export function meteredOperation(
  more: Pick<Operation, "id" | "tag" | "summary" | "description" | "body" | "answer" | "events">,
): Operation {
  return {
    ...more,
    description: `${METERED_DESCRIPTION} ${more.description}`.trim(),
    caller: "key",
    headers: IdempotencyHeader,
    refusals: refusalsOf(...ALWAYS, ...METERED, ...IDEMPOTENT),
  };
}

const IdempotencyHeader = Type.Object({
  "Idempotency-Key": Type.Optional(
    Type.String({
      pattern: "^[\\x21-\\x7e]{1,255}$",
      description: "A key of your choice. A request that is repeated with the same key is served and charged once.",
    }),
  ),
});

/** What a chat, an image or a request for embeddings costs an account. */
const METERED_DESCRIPTION =
  "Counts as one request of the package, or is charged to the balance. A request that is refused, or that the model does not answer, costs nothing.";

/** The models of the examples. The API reference shows an installation's own in their place. */
export const EXAMPLE_MODELS: ExampleModels = byService((service) => SERVICES[service].example);
export type ExampleModels = Readonly<Record<Service, string>>;
export const CHAT_EXAMPLE = {
  model: EXAMPLE_MODELS.text,
  messages: [{ role: "user", content: "What is a toll gate?" }],
};
export const IMAGE_EXAMPLE = { model: EXAMPLE_MODELS.image, prompt: "A toll gate at dawn", size: IMAGE_SIZE_DEFAULT };
export const RESPONSE_EXAMPLE = { model: EXAMPLE_MODELS.text, input: "What is a toll gate?" };
export const EMBEDDING_EXAMPLE = {
  model: EXAMPLE_MODELS.embedding,
  input: ["What is a toll gate?", "A road with a barrier"],
};
export const CHAT_ANSWER: Operation["answer"] = {
  schema: ChatCompletion,
  description: "The model's answer. With stream: true, server-sent events.",
};
export const RESPONSE_ANSWER: Operation["answer"] = {
  schema: ResponseObject,
  description: "The model's response. With stream: true, server-sent events.",
};
export const IMAGE_ANSWER: Operation["answer"] = { schema: ImageGenerationResponse, description: "The image." };
export const EMBEDDING_ANSWER: Operation["answer"] = {
  schema: EmbeddingList,
  description: "The embeddings, in the order of the inputs.",
};

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
    summary: "List the models that this key can use now",
    description:
      "Lists the models that a request with this key would be served with. The list is empty if neither package nor balance can pay. A 200 shows that base URL and key are correct.",
  },
  ModelList,
);

export const GET_MODEL = read(
  {
    id: "getModel",
    tag: "Models",
    summary: "Get one of these models",
    description: "A model that is not in the list is not found.",
    params: Type.Object({
      model: Type.String({ description: "The model's id. Slashes in it may be sent as they are, or as %2F." }),
    }),
  },
  ModelOnWire,
  "model_not_found",
);

export const CREATE_CHAT = meteredOperation({
  id: "createChatCompletion",
  tag: "Chat",
  summary: "Create a chat completion, whole or as a stream",
  description: "",
  body: { schema: ChatBody, example: CHAT_EXAMPLE },
  answer: CHAT_ANSWER,
  events: ChatCompletionChunk,
});

export const CREATE_IMAGE = meteredOperation({
  id: "createImage",
  tag: "Images",
  summary: "Create an image",
  description: "",
  body: { schema: ImageBody, example: IMAGE_EXAMPLE },
  answer: IMAGE_ANSWER,
});

export const GET_IMAGE_FILE: Operation = {
  id: "getImageFile",
  tag: "Images",
  summary: "Get an image that was created with response_format url",
  description:
    "This is the url of the answer. It works without an API key, on its own host and for a limited time, an hour by default. The image is not stored: the provider may delete it earlier, so download it soon. Not metered.",
  caller: "anyone",
  params: Type.Object({ token: Type.String({ description: "The end of the url." }) }),
  answer: { mediaTypes: IMAGE_TYPES, description: "The image." },
  refusals: refusalsOf("not_found", "provider_unavailable", ...ALWAYS.filter((code) => code !== "invalid_api_key")),
};

export const CREATE_RESPONSE = meteredOperation({
  id: "createResponse",
  tag: "Responses",
  summary: "Create a response, whole or as a stream of events",
  description:
    "The response is kept for some hours, unless store is false: the next request can continue the conversation by previous_response_id, and is charged for all of it.",
  body: { schema: ResponsesBody, example: RESPONSE_EXAMPLE },
  answer: RESPONSE_ANSWER,
  events: ResponseEvent,
});

const ResponseId = Type.Object({ id: Type.String({ description: "The id of the response." }) });

export const GET_RESPONSE = read(
  {
    id: "getResponse",
    tag: "Responses",
    summary: "Get a stored response",
    description: "A response of another account, or that is past its time, is not found. Not metered.",
    params: ResponseId,
  },
  ResponseObject,
  "not_found",
);

export const DELETE_RESPONSE = read(
  {
    id: "deleteResponse",
    tag: "Responses",
    summary: "Delete a stored response",
    description:
      "Later responses of the same conversation keep what they were given, and can be deleted by their own ids. Not metered.",
    params: ResponseId,
  },
  DeletedResponse,
  "not_found",
);

export const LIST_INPUT_ITEMS = read(
  {
    id: "listInputItems",
    tag: "Responses",
    summary: "List the items that a stored response was made from",
    description: "Lists the whole conversation before the response, without its instructions. Not metered.",
    params: ResponseId,
    query: InputItemsQuery,
  },
  InputItemList,
  "not_found",
  "invalid_request",
);

export const CREATE_EMBEDDING = meteredOperation({
  id: "createEmbedding",
  tag: "Embeddings",
  summary: "Create embeddings",
  description: "The balance is charged for the tokens of the input.",
  body: { schema: EmbeddingBody, example: EMBEDDING_EXAMPLE },
  answer: EMBEDDING_ANSWER,
});

export const GET_BALANCE = read(
  {
    id: "getBalance",
    tag: "Account",
    summary: "Get what the key's account can still spend",
    description: "Depending on the key's mode, the package and what is left of it, or the balance. Not metered.",
  },
  Balance,
);

export const GET_USAGE = read(
  {
    id: "getUsage",
    tag: "Account",
    summary: "Get the usage record of one request",
    description:
      "The record of a request that was charged, on a host that the key may be used on. Any other id is not found. Not metered.",
    params: Type.Object({ requestId: Type.String({ description: "The X-Request-Id of the request." }) }),
  },
  UsageRecord,
  "not_found",
);

export const LIST_USAGE = read(
  {
    id: "listUsage",
    tag: "Account",
    summary: "List the account's usage records, newest first",
    description: "Lists the records on the hosts that the key may be used on. Not metered.",
    query: UsageQuery,
  },
  UsageList,
  "invalid_request",
);
