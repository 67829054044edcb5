/**
 * The contract's tables as data, written down from it by hand: what the published OpenAPI document is held against. Where the
 * rulings say more, or the API promises more than the contract asks, that stands apart, with its source.
 *
 * A field in words: its type, what bounds it, `required`.
 */

export type Fields = Readonly<Record<string, string>>;

/** Contract › Resources and their fields, Endpoints (GET /usage). */
export const SHAPES: Readonly<Record<string, Fields>> = {
  Model: {
    id: "string required",
    object: "string const model required",
    owned_by: "string",
    name: "string",
    context_length: "integer|null",
    status: "string",
    modality: "string",
    architecture: "object",
  },
  ModelList: { object: "string const list required", data: "array of Model required" },
  ChatMessage: {
    role: "string enum system,user,assistant,tool required",
    content: "string|array of object required",
  },
  ChatCompletionRequest: {
    model: "string required",
    messages: "array of ChatMessage minItems 1 required",
    stream: "boolean default false",
    temperature: "number minimum 0 maximum 2",
    max_tokens: "integer minimum 1",
  },
  ChatCompletion: {
    id: "string required",
    object: "string required",
    created: "integer required",
    model: "string required",
    choices: "array of object required",
    usage: "Usage",
  },
  Usage: {
    prompt_tokens: "integer minimum 0 required",
    completion_tokens: "integer minimum 0 required",
    total_tokens: "integer minimum 0 required",
  },
  ImageGenerationRequest: {
    model: "string required",
    prompt: "string minLength 3 maxLength 4000 required",
    size: "string enum 512x512,1024x1024,1024x1536,1536x1024 default 1024x1024",
    n: "integer enum 1 default 1",
    response_format: "string enum url,b64_json default url",
  },
  ImageGenerationResponse: {
    created: "integer required",
    model: "string",
    data: "array of object minItems 1 required",
    "data[].url": "string format uri",
    "data[].b64_json": "string",
    "data[].revised_prompt": "string",
  },
  PanelChatRequest: { "...": "ChatCompletionRequest", api_key_id: "string maxLength 40" },
  PanelImageRequest: { "...": "ImageGenerationRequest", api_key_id: "string maxLength 40" },
  Balance: {
    object: "string const balance required",
    mode: "string enum package,payg required",
    quota: "integer|null",
    used_tokens: "integer required",
    remaining_tokens: "integer|null",
    package: "PackageEntitlement|null",
    payg: "object|null",
    "payg.enabled": "boolean",
    "payg.balance_usd": "number format double minimum 0",
  },
  PackageEntitlement: {
    id: "integer|null",
    name: "string|null",
    starts_at: "string|null format date-time",
    ends_at: "string|null format date-time",
    daily_limit: "integer|null minimum 0",
    daily_remaining: "integer|null minimum 0",
    total_limit: "integer|null minimum 0",
    total_remaining: "integer|null minimum 0",
    carryover: "boolean",
  },
  UsageRecord: {
    requestId: "string",
    model: "string",
    promptTokens: "integer",
    completionTokens: "integer",
    totalTokens: "integer",
    mode: "string enum package,payg",
    createdAt: "string format date-time",
  },
  UsageList: {
    object: "string const list required",
    mode: "string enum package,payg required",
    data: "array of UsageRecord required",
  },
  ErrorEnvelope: {
    "error.message": "string required",
    "error.type": "string required",
    "error.code": "string required",
    "error.param": "string|null",
    request_id: "string required",
  },
};

/** Shapes that clients send: any optional field may be null instead of missing. Source: API-5. */
export const SENT = [
  "ChatMessage",
  "ChatCompletionRequest",
  "ImageGenerationRequest",
  "PanelChatRequest",
  "PanelImageRequest",
];

/** Fields that say more than the contract's table, or are not in it. None contradicts the table. */
export const MORE: Readonly<Record<string, { source: string; fields: Fields }>> = {
  Model: {
    source: "rulings › Models",
    fields: {
      created: "integer required",
      status: "string enum active,preview,deprecated",
      modality: "string enum text,image,multimodal",
    },
  },
  ChatMessage: {
    source:
      "rulings › Streams (role developer; an assistant's content may be null: see LOOSER); decisions › What is sent on",
    fields: {
      tool_call_id: "string|null",
      role: "string enum system,user,assistant,tool,developer required",
      content: "string|array of object|null",
    },
  },
  ChatCompletionRequest: {
    source: "style 14 (everything has a limit), rulings › Money, Streams",
    fields: {
      model: "string minLength 1 maxLength 200 required",
      messages: "array of ChatMessage minItems 1 maxItems 10000 required",
      stream_options: "object|null",
      "stream_options.include_usage": "boolean|null",
      max_tokens: "integer|null minimum 1 maximum 2000000000",
      max_completion_tokens: "integer|null minimum 1 maximum 2000000000",
      n: "integer|null minimum 1 maximum 128",
    },
  },
  ImageGenerationRequest: {
    source: "style 14",
    fields: { model: "string minLength 1 maxLength 200 required" },
  },
  ChatCompletion: {
    source: "contract › ChatCompletion (its type name, as OpenAI's API has it)",
    fields: { object: "string const chat.completion required" },
  },
  ChatCompletionChunk: {
    source: "rulings › Streams",
    fields: {
      id: "string required",
      object: "string const chat.completion.chunk required",
      created: "integer required",
      model: "string required",
      choices: "array of object required",
      usage: "Usage|null",
    },
  },
  Balance: {
    source: "contract › Balance (extra fields allowed)",
    fields: { "payg.held_usd": "number format double minimum 0" },
  },
  UsageRecord: {
    source: "rulings › Usage",
    fields: {
      host: "string",
      chargedTokens: "integer",
      costUsd: "number format double minimum 0",
      estimated: "boolean",
      status: "string",
    },
  },
  UsageList: {
    source: "rulings › Usage",
    fields: { has_more: "boolean required", next_after: "string|null required" },
  },
  ErrorEnvelope: {
    source: "rulings › Errors",
    fields: {
      error: "object required",
      "error.param": "string|null required",
      "error.limit": "number",
      "error.used": "number",
      "error.remaining": "number",
      "error.resets_at": "string|null format date-time",
    },
  },
};

/** Where less is required than the table says. A message's content is required unless its role is assistant. */
export const LOOSER = ["ChatMessage.content"];

export type Endpoint = {
  caller: "key" | "session";
  sends: string | null;
  answers: string;
  streams: boolean;
  /** In the contract's own words. */
  statuses: readonly number[];
  /** In addition, by the rulings: errors of any request, and errors of requests with a body. */
  more: readonly number[];
  parameters: Fields;
};

const ANY = [429, 500, 503];
const BODY = [403, 413, 415];
const IDEMPOTENCY = { "header Idempotency-Key": "string pattern" };

/** Contract › Endpoints; `GET /models/{model}`: rulings › Hosts and keys. */
export const ENDPOINTS: Readonly<Record<string, Endpoint>> = {
  "GET /models": {
    caller: "key",
    sends: null,
    answers: "ModelList",
    streams: false,
    parameters: {},
    statuses: [200, 401, 403],
    more: ANY,
  },
  "GET /models/{model}": {
    caller: "key",
    sends: null,
    answers: "Model",
    streams: false,
    parameters: { "path model": "string required" },
    statuses: [200, 401, 403],
    more: [404, ...ANY],
  },
  "POST /chat/completions": {
    caller: "key",
    sends: "ChatCompletionRequest",
    answers: "ChatCompletion",
    streams: true,
    parameters: IDEMPOTENCY,
    statuses: [200, 400, 401, 402, 404, 503],
    more: [...BODY, 409, 429, 500],
  },
  "POST /images/generations": {
    caller: "key",
    sends: "ImageGenerationRequest",
    answers: "ImageGenerationResponse",
    streams: false,
    parameters: IDEMPOTENCY,
    statuses: [200, 400, 401, 402, 404, 503],
    more: [...BODY, 409, 429, 500],
  },
  "GET /balance": {
    caller: "key",
    sends: null,
    answers: "Balance",
    streams: false,
    parameters: {},
    statuses: [200, 401],
    more: [403, ...ANY],
  },
  "GET /usage": {
    caller: "key",
    sends: null,
    answers: "UsageList",
    streams: false,
    // Rulings › Usage.
    parameters: {
      "query limit": "integer minimum 1 maximum 1000 default 100",
      "query after": "string pattern",
      "query start": "string pattern",
      "query end": "string pattern",
      "query model": "string minLength 1 maxLength 200 pattern",
    },
    statuses: [200, 401],
    more: [400, 403, ...ANY],
  },
  "POST /api/panel/ai/chat": {
    caller: "session",
    sends: "PanelChatRequest",
    answers: "ChatCompletion",
    streams: true,
    parameters: {},
    statuses: [200, 401, 402, 422],
    more: [...BODY, 404, ...ANY],
  },
  "POST /api/panel/ai/image": {
    caller: "session",
    sends: "PanelImageRequest",
    answers: "ImageGenerationResponse",
    streams: false,
    parameters: {},
    statuses: [200, 401, 402, 422],
    more: [...BODY, ...ANY],
  },
};

/** Error codes of the contract and the rulings that these endpoints never return, and why. */
export const CODES_ELSEWHERE: Readonly<Record<string, string>> = {
  not_found: "of addresses that are none",
  method_not_allowed: "of other methods",
  second_factor_required: "of signing in",
};

/** Statuses that differ from the table of errors. Source: ERR-9. */
export const PANEL_STATUSES: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  "POST /api/panel/ai/chat": { package_required: 422, package_expired: 422 },
};
