/**
 * The API's shapes and endpoints, written by hand: the tests compare the published OpenAPI document with them. Source: API-2, API-8.
 *
 * A field is described as words: its type, its bounds, and `required`.
 */

export type Fields = Readonly<Record<string, string>>;

/** The basic shapes of the API. */
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
  PanelEmbeddingRequest: { "...": "EmbeddingRequest", api_key_id: "string maxLength 40" },
  PanelResponseRequest: { "...": "CreateResponse", api_key_id: "string maxLength 40" },
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

/** Shapes that clients send: an optional field may also be null. Source: API-5. */
export const SENT = [
  "ChatMessage",
  "ChatCompletionRequest",
  "ImageGenerationRequest",
  "PanelChatRequest",
  "PanelResponseRequest",
  "PanelImageRequest",
  "PanelEmbeddingRequest",
];

/** What a client may ask for, and then gets: what the request cost. */
const USAGE_OPTIONS = { usage: "object|null", "usage.include": "boolean|null" };
const CHARGE = { cost: "number format double minimum 0", mode: "string enum package,payg" };

const COMPLETION = {
  id: "string required",
  object: "string const text_completion required",
  created: "integer required",
  model: "string required",
  choices: "array of CompletionChoice required",
};

/** Fields that SHAPES does not have, and bounds that it does not name. None contradicts SHAPES. */
export const MORE: Readonly<Record<string, Fields>> = {
  // Source: USE-5.
  Usage: CHARGE,
  // Source: MOD-1.
  Model: {
    created: "integer required",
    status: "string enum active,preview,deprecated",
    modality: "string enum text,multimodal,image,embedding,rerank",
  },
  // The Responses API of OpenAI, without storage. Source: RSP-1, RSP-3.
  CreateResponse: {
    ...USAGE_OPTIONS,
    include: "array of string|null maxItems 50",
    input: "string|array of object|object|object|object|object|object|object|object|object required",
    instructions: "string|null",
    max_output_tokens: "integer|null minimum 1 maximum 2000000000",
    metadata: "object|null",
    model: "string minLength 1 maxLength 200 required",
    parallel_tool_calls: "boolean|null",
    reasoning: "object|null",
    "reasoning.effort": "string|null maxLength 64",
    "reasoning.summary": "string|null maxLength 64",
    store: "boolean|null default true",
    previous_response_id: "string|null minLength 1",
    stream: "boolean|null default false",
    temperature: "number|null minimum 0 maximum 2",
    text: "object|null",
    "text.format": "object|null",
    "text.format.type": "string required",
    "text.verbosity": "string|null maxLength 64",
    tool_choice: "string|object|null",
    "tool_choice.type": "string required",
    tools: "array of object|null maxItems 1000",
    "tools[].type": "string required",
    top_p: "number|null minimum 0 maximum 1",
  },
  Response: {
    created_at: "integer required",
    error: "object|null",
    id: "string required",
    incomplete_details: "object|null",
    model: "string required",
    object: "string const response required",
    output: "array of object required",
    status: "string required",
    usage: "ResponseUsage|null",
  },
  ResponseEvent: {
    response: "Response",
    sequence_number: "integer minimum 0 required",
    type: "string required",
  },
  ResponseUsage: {
    ...CHARGE,
    input_tokens: "integer minimum 0 required",
    input_tokens_details: "object required",
    "input_tokens_details.cached_tokens": "integer minimum 0 required",
    output_tokens: "integer minimum 0 required",
    output_tokens_details: "object required",
    "output_tokens_details.reasoning_tokens": "integer minimum 0 required",
    total_tokens: "integer minimum 0 required",
  },
  // The roles `developer` and `function`, and an assistant's content that is null. A name may be anything, except a function's. Source: API-5.
  ChatMessage: {
    tool_call_id: "string|null",
    name: "",
    role: "string enum system,user,assistant,tool,developer,function required",
    content: "string|array of object|null",
  },
  // Source: ADM-5, MON-5, STR-3.
  ChatCompletionRequest: {
    ...USAGE_OPTIONS,
    model: "string minLength 1 maxLength 200 required",
    messages: "array of ChatMessage minItems 1 maxItems 10000 required",
    stream_options: "object|null",
    "stream_options.include_usage": "boolean|null",
    max_tokens: "integer|null minimum 1 maximum 2000000000",
    max_completion_tokens: "integer|null minimum 1 maximum 2000000000",
    n: "integer|null minimum 1 maximum 128",
  },
  ImageGenerationRequest: { model: "string minLength 1 maxLength 200 required", ...USAGE_OPTIONS },
  // As OpenAI's API has it. Source: API-1.
  ChatCompletion: { object: "string const chat.completion required", usage: "Usage required" },
  // Source: STR-3, STR-4.
  ChatCompletionChunk: {
    id: "string required",
    object: "string const chat.completion.chunk required",
    created: "integer required",
    model: "string required",
    choices: "array of object required",
    usage: "Usage|null",
  },
  // Source: EMB-1, EMB-2, EMB-3.
  EmbeddingRequest: {
    ...USAGE_OPTIONS,
    model: "string minLength 1 maxLength 200 required",
    input: "string|array of string|array of integer|array of array of integer required",
    encoding_format: "string|null enum float,base64 default float",
    dimensions: "integer|null minimum 1 maximum 65536",
    user: "string|null",
  },
  EmbeddingList: {
    object: "string const list required",
    data: "array of object minItems 1 required",
    "data[].object": "string const embedding required",
    "data[].index": "integer minimum 0 required",
    "data[].embedding": "array of number|string required",
    model: "string required",
    usage: "Usage required",
  },
  // Source: API-16.
  CompletionRequest: {
    ...USAGE_OPTIONS,
    model: "string minLength 1 maxLength 200 required",
    prompt: "string|array of string required",
    suffix: "string|null",
    stream: "boolean|null default false",
    stream_options: "object|null",
    "stream_options.include_usage": "boolean|null",
    temperature: "number|null minimum 0 maximum 2",
    max_tokens: "integer|null minimum 1 maximum 2000000000",
    n: "integer|null minimum 1 maximum 128",
  },
  CompletionChoice: {
    text: "string required",
    index: "integer minimum 0 required",
    logprobs: "null required",
    finish_reason: "string|null required",
  },
  Completion: { ...COMPLETION, usage: "Usage required" },
  CompletionEvent: { ...COMPLETION, usage: "Usage|null" },
  // Source: API-17.
  RerankRequest: {
    ...USAGE_OPTIONS,
    model: "string minLength 1 maxLength 200 required",
    query: "string minLength 1 required",
    documents: "array of string|object minItems 1 maxItems 1000 required",
    top_n: "integer|null minimum 1",
    return_documents: "boolean|null default false",
  },
  RerankList: {
    object: "string const list required",
    model: "string required",
    results: "array of RerankResult required",
    usage: "Usage required",
  },
  RerankResult: {
    index: "integer minimum 0 required",
    relevance_score: "number format double required",
    document: "object",
    "document.text": "string required",
  },
  // Source: USE-4.
  Balance: { "payg.held_usd": "number format double minimum 0" },
  // Source: USE-3.
  UsageRecord: {
    host: "string",
    chargedTokens: "integer",
    costUsd: "number format double minimum 0",
    estimated: "boolean",
    status: "string",
  },
  // Source: USE-2.
  UsageList: { has_more: "boolean required", next_after: "string|null required" },
  // Source: RSP-12.
  DeletedResponse: {
    id: "string required",
    object: "string const response required",
    deleted: "boolean const true required",
  },
  InputItemList: {
    object: "string const list required",
    data: "array of object required",
    "data[].id": "string required",
    "data[].type": "string required",
    first_id: "string|null required",
    last_id: "string|null required",
    has_more: "boolean required",
  },
  // Source: ERR-1, ERR-5.
  ErrorEnvelope: {
    error: "object required",
    "error.param": "string|null required",
    "error.limit": "number",
    "error.used": "number",
    "error.remaining": "number",
    "error.resets_at": "string|null format date-time",
  },
};

/** Fields that MORE requires less of than SHAPES: a message's content is required unless its role is assistant. */
export const LOOSER = ["ChatMessage.content"];

export type Endpoint = {
  caller: "key" | "session" | "anyone";
  sends: string | null;
  answers: string;
  streams: boolean;
  /** Statuses of the endpoint's own rules. The tests see each of them on a running replica. */
  statuses: readonly number[];
  /** Further statuses: errors of any request, and errors of requests with a body. */
  more: readonly number[];
  parameters: Fields;
};

const ANY = [429, 500, 503];
const BODY = [403, 413, 415];
const IDEMPOTENCY = { "header Idempotency-Key": "string pattern" };

/** Source: API-2, ACC-1. */
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
  "POST /responses": {
    caller: "key",
    sends: "CreateResponse",
    answers: "Response",
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
  "POST /completions": {
    caller: "key",
    sends: "CompletionRequest",
    answers: "Completion",
    streams: true,
    parameters: IDEMPOTENCY,
    statuses: [200, 400, 401, 402, 404, 503],
    more: [...BODY, 409, 429, 500],
  },
  "POST /rerank": {
    caller: "key",
    sends: "RerankRequest",
    answers: "RerankList",
    streams: false,
    parameters: IDEMPOTENCY,
    statuses: [200, 400, 401, 402, 404, 503],
    more: [...BODY, 409, 429, 500],
  },
  "GET /images/files/{token}": {
    caller: "anyone",
    sends: null,
    answers: "image/png image/jpeg image/webp image/gif image/avif",
    streams: false,
    parameters: { "path token": "string required" },
    statuses: [200, 403, 404, 503],
    more: [429, 500],
  },
  "POST /embeddings": {
    caller: "key",
    sends: "EmbeddingRequest",
    answers: "EmbeddingList",
    streams: false,
    parameters: IDEMPOTENCY,
    statuses: [200, 400, 401, 402, 404, 503],
    more: [...BODY, 409, 429, 500],
  },
  "GET /responses/{id}": {
    caller: "key",
    sends: null,
    answers: "Response",
    streams: false,
    parameters: { "path id": "string required" },
    statuses: [200, 404, 401],
    more: [403, ...ANY],
  },
  "DELETE /responses/{id}": {
    caller: "key",
    sends: null,
    answers: "DeletedResponse",
    streams: false,
    parameters: { "path id": "string required" },
    statuses: [200, 404, 401],
    more: [403, ...ANY],
  },
  "GET /responses/{id}/input_items": {
    caller: "key",
    sends: null,
    answers: "InputItemList",
    streams: false,
    parameters: {
      "path id": "string required",
      "query limit": "integer minimum 1 maximum 100 default 20",
      "query order": "string enum asc,desc default desc",
      "query after": "string minLength 1 maxLength 128",
    },
    statuses: [200, 400, 404, 401],
    more: [403, ...ANY],
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
  "GET /usage/{requestId}": {
    caller: "key",
    sends: null,
    answers: "UsageRecord",
    streams: false,
    parameters: { "path requestId": "string required" },
    statuses: [200, 404, 401],
    more: [403, ...ANY],
  },
  "GET /usage": {
    caller: "key",
    sends: null,
    answers: "UsageList",
    streams: false,
    // Source: USE-2.
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
  "POST /api/panel/ai/responses": {
    caller: "session",
    sends: "PanelResponseRequest",
    answers: "Response",
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
  "POST /api/panel/ai/embeddings": {
    caller: "session",
    sends: "PanelEmbeddingRequest",
    answers: "EmbeddingList",
    streams: false,
    parameters: {},
    statuses: [200, 401, 402, 422],
    more: [...BODY, 404, ...ANY],
  },
};

/** Error codes that these endpoints never return, and what returns them. */
export const CODES_ELSEWHERE: Readonly<Record<string, string>> = {
  method_not_allowed: "other methods",
  invalid_token: "the management API",
  insufficient_scope: "the management API",
  already_exists: "the management API",
  second_factor_required: "signing in",
};

/** Statuses in the panel that differ from the error table. Source: ERR-9. */
export const PANEL_STATUSES: Readonly<Record<string, Readonly<Record<string, number>>>> = {
  "POST /api/panel/ai/chat": { package_required: 422, package_expired: 422, context_length_exceeded: 422 },
  "POST /api/panel/ai/responses": { package_required: 422, package_expired: 422, context_length_exceeded: 422 },
  "POST /api/panel/ai/image": { context_length_exceeded: 422 },
  "POST /api/panel/ai/embeddings": { context_length_exceeded: 422 },
};
