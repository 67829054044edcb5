import { type ClientRequest, type Entry, GOOD_STREAM, GOOD_WHOLE } from "../form.ts";

/** More of what clients send, as users of gateways and servers reported it. */

const HI = { role: "user", content: "Tell me about tolls." };
const TOOL = { type: "function", function: { name: "toll", parameters: { type: "object", properties: {} } } };
const CALL = { id: "call_1", type: "function", function: { name: "toll", arguments: "{}" } };
const PNG =
  "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const called = (assistant: object, tool: object) => [
  HI,
  { role: "assistant", content: null, tool_calls: [CALL], ...assistant },
  { role: "tool", tool_call_id: "call_1", content: "2", ...tool },
];

type Case = readonly [says: string, source: string, body: NonNullable<ClientRequest["body"]>];
const C = "constructed";

const SERVED: readonly Case[] = [
  [
    "Nulls for all that is not set",
    C,
    {
      stop: null,
      n: null,
      functions: null,
      tools: null,
      tool_choice: null,
      response_format: null,
      logit_bias: null,
      user: null,
      stream: null,
      stream_options: null,
      seed: null,
      logprobs: null,
      top_logprobs: null,
      max_tokens: null,
      max_completion_tokens: null,
      metadata: null,
      store: null,
      service_tier: null,
      reasoning_effort: null,
      modalities: null,
      audio: null,
      prediction: null,
      web_search_options: null,
      parallel_tool_calls: null,
      frequency_penalty: null,
      presence_penalty: null,
      temperature: null,
      top_p: null,
    },
  ],
  ["An assistant without a content and calls", C, { messages: [HI, { role: "assistant", content: "" }, HI] }],
  ["An assistant's content of null without calls", C, { messages: [HI, { role: "assistant", content: null }, HI] }],
  ["A tool's result in parts", C, { messages: called({}, { content: [{ type: "text", text: "2" }] }) }],
  ["A tool's result that is empty", C, { messages: called({}, { content: "" }) }],
  ["A tool's name beside its result", C, { messages: called({}, { name: "toll" }) }],
  ["An assistant's calls without a content", C, { messages: called({ content: undefined }, {}) }],
  [
    "An answer sent back with its nulls",
    C,
    {
      messages: [
        HI,
        {
          role: "assistant",
          content: "good",
          refusal: null,
          audio: null,
          function_call: null,
          tool_calls: null,
          annotations: [],
          reasoning_content: null,
        },
        HI,
      ],
    },
  ],
  [
    "An image's detail of null",
    C,
    {
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "a" },
            { type: "image_url", image_url: { url: PNG, detail: null } },
          ],
        },
      ],
    },
  ],
  [
    "An image with line breaks in its base64",
    C,
    {
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "a" },
            { type: "image_url", image_url: { url: PNG.replace("AAAA", "AA\nAA") } },
          ],
        },
      ],
    },
  ],
  ["A tool without parameters", C, { tools: [{ type: "function", function: { name: "toll" } }] }],
  [
    "A tool with nulls",
    C,
    { tools: [{ type: "function", function: { name: "toll", description: null, parameters: null, strict: null } }] },
  ],
  ["An empty choice of tools", C, { tools: [TOOL], tool_choice: "" }],
  ["A choice of any tool", C, { tools: [TOOL], tool_choice: "any" }],
  ["A format as a text", C, { response_format: "json_object" }],
  ["A format of text", C, { response_format: { type: "text" } }],
  [
    "A format with a schema whose strict is null",
    C,
    { response_format: { type: "json_schema", json_schema: { name: "a", schema: { type: "object" }, strict: null } } },
  ],
  ["Options of a stream that are empty", C, { stream: true, stream_options: {} }],
  ["Options of a stream with nulls", C, { stream: true, stream_options: { include_usage: null } }],
  [
    "Options of a stream with more",
    C,
    {
      stream: true,
      stream_options: {
        include_usage: true,
        include_obfuscation: false,
        continuous_usage_stats: true,
        chunk_include_usage: true,
      },
    },
  ],
  ["A user that is a number", C, { user: 42 }],
  ["A stop that is empty", C, { stop: "" }],
  ["Stops with an empty one", C, { stop: ["", "END"] }],
  ["extra_body as it stands", C, { extra_body: { top_k: 4 } }],
  ["Ollama's options", C, { options: { num_ctx: 8192 }, keep_alive: "5m" }],
  [
    "Open WebUI's fields",
    C,
    { chat_id: "1", session_id: "2", features: {}, variables: {}, model_item: {}, background_tasks: {} },
  ],
  ["Codex's client_metadata", "github.com/decolua/9router/issues/1157", { client_metadata: { originator: "codex" } }],
  ["A reasoning object of nulls", C, { reasoning: null, reasoning_effort: "none" }],
  ["Reasoning that is excluded", C, { reasoning: { effort: "high", exclude: true } }],
  ["A messages' name with a space", C, { messages: [{ role: "user", name: "Ann Lee", content: "Tell me." }] }],
  [
    "A part of text that is empty",
    C,
    {
      messages: [
        {
          role: "user",
          content: [
            { type: "text", text: "" },
            { type: "text", text: "Tell me." },
          ],
        },
      ],
    },
  ],
  [
    "Parts of thinking in an answer that is sent back",
    C,
    {
      messages: [
        HI,
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "Hm." },
            { type: "text", text: "good" },
          ],
        },
        HI,
      ],
    },
  ],
  [
    "A reasoning that is sent back",
    C,
    {
      messages: [
        HI,
        {
          role: "assistant",
          content: "good",
          reasoning_content: "Hm.",
          reasoning: "Hm.",
          reasoning_details: [{ type: "reasoning.text", text: "Hm." }],
        },
        HI,
      ],
    },
  ],
  [
    "A tool's strict and a schema with $schema",
    "npm @ai-sdk/openai-compatible",
    {
      tools: [
        {
          type: "function",
          function: {
            name: "toll",
            strict: true,
            parameters: {
              $schema: "http://json-schema.org/draft-07/schema#",
              type: "object",
              properties: {},
              additionalProperties: false,
            },
          },
        },
      ],
    },
  ],
  ["A call that is sent back with its index", C, { messages: called({ tool_calls: [{ ...CALL, index: 0 }] }, {}) }],
  [
    "A call with empty arguments that is sent back",
    C,
    { messages: called({ tool_calls: [{ ...CALL, function: { name: "toll", arguments: "" } }] }, {}) },
  ],
];

/** What OpenAI refuses too: the error names the field. */
const REFUSED: readonly (readonly [says: string, param: string, body: NonNullable<ClientRequest["body"]>])[] = [
  [
    "A content that is one part",
    "messages.0.content",
    { messages: [{ role: "user", content: { type: "text", text: "Tell me." } }] },
  ],
  [
    "A content that is a list of texts",
    "messages.0.content.0",
    { messages: [{ role: "user", content: ["Tell", "me."] }] },
  ],
  ["A tool's result of null", "messages.2.content", { messages: called({}, { content: null }) }],
  ["A tool's result that is an object", "messages.2.content", { messages: called({}, { content: { gate: 2 } }) }],
  ["A tool's result that is a number", "messages.2.content", { messages: called({}, { content: 2 }) }],
  [
    "Roles with capital letters",
    "messages.0.role",
    {
      messages: [
        { role: "System", content: "Be brief." },
        { role: "User", content: "Tell me." },
      ],
    },
  ],
  ["Numbers as texts", "temperature", { temperature: "0.7", max_tokens: "100" }],
  ["A limit of minus one", "max_tokens", { max_tokens: -1 }],
  ["A limit of zero", "max_tokens", { max_tokens: 0 }],
  ["A limit with a fraction", "max_tokens", { max_tokens: 100.5 }],
  ["Booleans as texts", "stream", { stream: "false" }],
  [
    "A role function whose result is null",
    "messages.2.content",
    {
      messages: [
        HI,
        { role: "assistant", content: null, function_call: { name: "toll", arguments: "{}" } },
        { role: "function", name: "toll", content: null },
      ],
    },
  ],
];

const HEADERS: readonly (readonly [says: string, headers: Record<string, string>])[] = [
  ["A content type in capital letters", { "content-type": "Application/JSON" }],
  ["An accept of events", { accept: "text/event-stream" }],
];

export default [
  ...SERVED.map(
    ([says, source, body]): Entry => ({
      says,
      source,
      request: { only: "chat", body },
      provider: body.stream === true ? GOOD_STREAM : GOOD_WHOLE,
      client: { text: "good" },
      charged: { tokens: [5, 7] },
    }),
  ),
  ...REFUSED.map(
    ([says, param, body]): Entry => ({
      says: `${says} is refused`,
      source: C,
      request: { only: "chat", body },
      provider: [],
      client: { error: "invalid_request", param },
      charged: "nothing",
    }),
  ),
  ...HEADERS.map(
    ([says, headers]): Entry => ({
      says,
      source: C,
      request: { headers },
      provider: GOOD_WHOLE,
      client: { text: "good" },
      charged: { tokens: [5, 7] },
    }),
  ),
] satisfies Entry[];
