import { type Entry, GOOD_STREAM, GOOD_WHOLE, type ProviderAnswer } from "../form.ts";

/** What further clients and frameworks send unasked: it is served, and what providers refuse is not sent on. */

const asks = (content: unknown) => [{ role: "user", content }];
const MESSAGES = asks("Hi.");

type Case = readonly [
  client: string,
  source: string,
  body: Readonly<Record<string, unknown>>,
  got: NonNullable<ProviderAnswer["got"]>,
];

const CASES: readonly Case[] = [
  [
    "Open WebUI: what it keeps of a chat",
    "github.com/open-webui/open-webui, backend/open_webui/utils/middleware.py",
    {
      stream: true,
      stream_options: { include_usage: true },
      chat_id: "c",
      session_id: "s",
      id: "m",
      features: { web_search: false },
      background_tasks: { title_generation: true },
      params: {},
      tool_servers: [],
      model_item: { id: "x" },
    },
    { chat_id: undefined, session_id: undefined, id: undefined, features: undefined, params: undefined },
  ],
  [
    "Dify: no stop sequences, and a user",
    "github.com/langgenius/dify-plugin-sdks, openai_compatible/llm.py",
    { stream: true, stop: [], user: "u-1", temperature: 0.7, top_p: 1 },
    { stop: undefined, temperature: 0.7, top_p: 1 },
  ],
  [
    "SillyTavern: biases of nothing, and a proxy",
    "github.com/SillyTavern/SillyTavern, src/endpoints/backends/chat-completions.js",
    { stream: true, logit_bias: {}, reverse_proxy: "", proxy_password: "", chat_completion_source: "custom" },
    { reverse_proxy: undefined, proxy_password: undefined, chat_completion_source: undefined },
  ],
  [
    "Zed: no tools, and how they are called",
    "github.com/zed-industries/zed, crates/open_ai",
    { stream: true, tools: [], tool_choice: null, parallel_tool_calls: false, stop: [] },
    { tools: undefined, tool_choice: undefined, parallel_tool_calls: undefined, stop: undefined },
  ],
  [
    "Clients that send null for everything that is not set",
    "github.com/ggml-org/llama.cpp/issues/25515; github.com/LostRuins/koboldcpp/issues/1503; github.com/floneum/kalosm/issues/354 (refused)",
    {
      ...{ frequency_penalty: null, presence_penalty: null, top_p: null, logit_bias: null, logprobs: null, n: 1 },
      ...{ max_tokens: null, max_completion_tokens: null, stream: false, stream_options: null, tools: null },
      ...{ tool_choice: null, functions: null, function_call: null, response_format: null, user: null, seed: null },
    },
    {
      ...{ frequency_penalty: undefined, presence_penalty: undefined, top_p: undefined, logit_bias: undefined },
      ...{ logprobs: undefined, max_completion_tokens: undefined, stream_options: undefined, tools: undefined },
      ...{ tool_choice: undefined, functions: undefined, function_call: undefined, response_format: undefined },
      ...{ user: undefined, seed: undefined, n: 1, messages: MESSAGES },
    },
  ],
  [
    "LiteLLM: members of its own within the body",
    "github.com/BerriAI/litellm: extra_body",
    { extra_body: {}, extra_headers: {}, metadata: {}, api_base: "http://x", custom_llm_provider: "openai" },
    { extra_body: undefined, extra_headers: undefined, api_base: undefined, custom_llm_provider: undefined },
  ],
  [
    "Clients of Ollama: options, and how long a model stays",
    "docs.ollama.com/api/chat",
    { options: { num_ctx: 8192 }, keep_alive: "5m" },
    { options: undefined, keep_alive: undefined },
  ],
  [
    "Clients of Mistral: their names of a seed and of a filter",
    "docs.mistral.ai/api",
    { safe_prompt: false, random_seed: 7 },
    { safe_prompt: undefined, random_seed: 7 },
  ],
  [
    "openai (npm): what stores an answer there",
    "platform.openai.com/docs/api-reference/chat/create: store, metadata",
    { store: true, metadata: { a: "b" }, modalities: ["text"], prediction: null, safety_identifier: "s" },
    { store: undefined, metadata: undefined },
  ],
  [
    "An SDK that sends null as the content of a call, and its result as parts",
    "github.com/openai/openai-node, src/lib/ChatCompletionRunner",
    {
      messages: [
        ...MESSAGES,
        {
          role: "assistant",
          content: null,
          refusal: null,
          tool_calls: [{ id: "a", type: "function", function: { name: "toll", arguments: "" } }],
        },
        { role: "tool", tool_call_id: "a", content: [{ type: "text", text: "3 euros" }] },
      ],
    },
    {
      messages: [
        ...MESSAGES,
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "a", type: "function", function: { name: "toll", arguments: "" } }],
        },
        { role: "tool", tool_call_id: "a", content: [{ type: "text", text: "3 euros" }] },
      ],
    },
  ],
];

export default CASES.map(([says, source, body, got]): Entry => {
  const answer = body.stream === true ? GOOD_STREAM : GOOD_WHOLE;
  return {
    says,
    source,
    request: { only: "chat", body: { messages: MESSAGES, ...body } },
    provider: { ...answer, got },
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  };
}) satisfies Entry[];
