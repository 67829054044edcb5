import { type Entry, GOOD_STREAM, GOOD_WHOLE, type ProviderAnswer } from "../form.ts";

/** What further clients send: each is served, or refused with the place that is wrong. */

const asks = (content: unknown) => ({ role: "user", content });
const CALL = { id: "c1", type: "function", function: { name: "toll", arguments: "{}" } };
const RESULT = { role: "tool", tool_call_id: "c1", content: "3" };
const TOOL = { type: "function", function: { name: "toll", parameters: { type: "object", properties: {} } } };

type Case = readonly [
  client: string,
  source: string,
  body: Readonly<Record<string, unknown>>,
  got: NonNullable<ProviderAnswer["got"]>,
];

const SERVED: readonly Case[] = [
  [
    "n8n: everything at its default",
    "constructed",
    { n: 1, frequency_penalty: 0, presence_penalty: 0, response_format: { type: "text" }, timeout: 60000 },
    { frequency_penalty: 0, response_format: { type: "text" }, timeout: undefined },
  ],
  [
    "Semantic Kernel: names of messages, and nulls",
    "constructed",
    { messages: [{ ...asks("Hi."), name: "ann" }], response_format: null, logit_bias: null, stop: null },
    { messages: [{ role: "user", content: "Hi.", name: "ann" }], response_format: undefined, stop: undefined },
  ],
  [
    "Spring AI: an extra body within the body",
    "constructed",
    { extra_body: {}, stream_options: null, temperature: 0.7 },
    { extra_body: undefined, stream_options: undefined, temperature: 0.7 },
  ],
  [
    "GitHub Copilot: members of its own",
    "constructed",
    { snippy: { enabled: false }, copilot_thread_id: "t", intent: true, temperature: 0.1 },
    { snippy: undefined, copilot_thread_id: undefined, intent: undefined, temperature: 0.1 },
  ],
  [
    "Qwen Code: metadata, and parameters of DashScope",
    "github.com/QwenLM/qwen-code, packages/core/src/core/openaiContentGenerator; form constructed",
    { vl_high_resolution_images: true, max_tokens: 100 },
    { vl_high_resolution_images: undefined, max_tokens: 100 },
  ],
  [
    "Zed: no effort of reasoning",
    "github.com/zed-industries/zed/issues/60411",
    { reasoning_effort: "none", stream: true, stream_options: { include_usage: true } },
    { reasoning_effort: "none", stream_options: { include_usage: true } },
  ],
  [
    "Adapters of Claude Code: an empty content beside a call",
    "constructed",
    { messages: [asks("Tolls?"), { role: "assistant", content: [], tool_calls: [CALL] }, RESULT], tools: [TOOL] },
    { messages: [asks("Tolls?"), { role: "assistant", tool_calls: [CALL] }, RESULT] },
  ],
  [
    "A call without a content",
    "constructed",
    { messages: [asks("Tolls?"), { role: "assistant", tool_calls: [CALL] }, RESULT], tools: [TOOL] },
    { messages: [asks("Tolls?"), { role: "assistant", tool_calls: [CALL] }, RESULT] },
  ],
  [
    "Mattermost: empty answers of before",
    "github.com/mudler/LocalAI/issues/1886",
    { messages: [asks("hello"), { role: "assistant", content: "" }, asks("help")] },
    { messages: [asks("hello"), { role: "assistant", content: "" }, asks("help")] },
  ],
  [
    "An empty result of a tool",
    "constructed",
    {
      messages: [asks("Tolls?"), { role: "assistant", content: null, tool_calls: [CALL] }, { ...RESULT, content: "" }],
    },
    { messages: [asks("Tolls?"), { role: "assistant", tool_calls: [CALL] }, { ...RESULT, content: "" }] },
  ],
  [
    "A tool without parameters, with nulls",
    "constructed",
    { tools: [{ type: "function", function: { name: "toll", description: null, parameters: null, strict: null } }] },
    { tools: [{ type: "function", function: { name: "toll" } }] },
  ],
  [
    "Gemini CLI: types in capital letters",
    "constructed",
    { tools: [{ type: "function", function: { name: "toll", parameters: { type: "OBJECT", properties: {} } } }] },
    { tools: [{ function: { parameters: { type: "OBJECT" } } }] },
  ],
  ["A seed of -1", "constructed", { seed: -1, temperature: 0 }, { seed: -1, temperature: 0 }],
  [
    "LangChain: a schema with its name",
    "constructed",
    { response_format: { type: "json_schema", json_schema: { name: "x", strict: true, schema: { type: "object" } } } },
    { response_format: { type: "json_schema", json_schema: { name: "x", strict: true, schema: { type: "object" } } } },
  ],
  [
    "Roo Code: OpenRouter's form of the effort",
    "constructed",
    { reasoning: { effort: "high" }, transforms: ["middle-out"] },
    { transforms: undefined },
  ],
  [
    "LibreChat: a user by its id, and a title",
    "constructed",
    { user: "66f0", temperature: 1, promptPrefix: null, endpoint: "custom", conversationId: "c" },
    { temperature: 1, promptPrefix: undefined, endpoint: undefined, conversationId: undefined },
  ],
  [
    "Clients of vLLM: its sampling, and a template",
    "docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
    { top_k: 40, min_p: 0.05, repetition_penalty: 1.1, guided_json: null },
    { guided_json: undefined },
  ],
];

const REFUSED: readonly (readonly [client: string, source: string, body: object, param: string])[] = [
  [
    "LM Studio's example: no limit as -1",
    "lmstudio.ai/docs/app/api/endpoints/openai; form constructed",
    { max_tokens: -1 },
    "max_tokens",
  ],
  ["A stream as a text", "constructed", { stream: "true" }, "stream"],
  ["A temperature as a text", "constructed", { temperature: "hot" }, "temperature"],
  ["A message alone, not in a list", "constructed", { messages: asks("Hi.") }, "messages"],
  ["A role that nobody knows", "constructed", { messages: [{ role: "model", content: "Hi." }] }, "messages.0.role"],
  ["LocalAI's default: no choices", "github.com/mudler/LocalAI/issues/1886", { n: 0 }, "n"],
];

export default [
  ...SERVED.map(
    ([says, source, body, got]): Entry => ({
      ...{ says, source, request: { only: "chat", body } },
      provider: { ...(body.stream === true ? GOOD_STREAM : GOOD_WHOLE), got },
      client: { text: "good" },
      charged: { tokens: [5, 7] },
    }),
  ),
  ...REFUSED.map(
    ([says, source, body, param]): Entry => ({
      ...{ says, source, request: { only: "chat", body: { ...body } }, provider: [] },
      client: { error: "invalid_request", param },
      charged: "nothing",
    }),
  ),
] satisfies Entry[];
