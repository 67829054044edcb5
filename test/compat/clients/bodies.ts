import { type Entry, GOOD_STREAM, GOOD_WHOLE, type ProviderAnswer } from "../form.ts";

/** What clients send by default, and forms of other APIs that they send here: what the provider must get. */

const CHARGED = { tokens: [5, 7] } as const;
const SCHEMA = { type: "object", properties: { gate: { type: "integer" } } };
const TOOL = { type: "function", function: { name: "toll", description: "The toll", parameters: SCHEMA } };
const asks = (content: unknown) => [{ role: "user", content }];
const PNG = "iVBORw0KGgo=";

type Case = {
  says: string;
  source: string;
  body: Readonly<Record<string, unknown>>;
  got: ProviderAnswer["got"];
  headers?: Readonly<Record<string, string>>;
};

const TEXT = { type: "text", text: "I look it up." };
const SIGNED = {
  id: "a",
  type: "function",
  function: { name: "toll", arguments: "{}" },
  extra_content: { google: { thought_signature: "c2lnbmF0dXJl" } },
};

const TOOL_CHOICES: readonly (readonly [choice: unknown, says: string, got: ProviderAnswer["got"]])[] = [
  [{ type: "auto" }, "Anthropic's auto", { tool_choice: "auto" }],
  [{ type: "any" }, "Anthropic's any", { tool_choice: "required" }],
  [{ type: "none" }, "Anthropic's none", { tool_choice: "none" }],
  [
    { type: "tool", name: "toll" },
    "Anthropic's choice of a tool",
    { tool_choice: { type: "function", function: { name: "toll" } } },
  ],
  [
    { type: "any", disable_parallel_tool_use: true },
    "Anthropic's any, one call at a time",
    { tool_choice: "required", parallel_tool_calls: false },
  ],
  ["any", "Mistral's any", { tool_choice: "required" }],
];

const SERVED: readonly Case[] = [
  {
    says: "openai (Python) with its headers",
    source: "github.com/openai/openai-python: src/openai/_base_client.py",
    headers: { "user-agent": "OpenAI/Python 2.9.0", "x-stainless-lang": "python", "x-stainless-retry-count": "0" },
    body: { temperature: 0.2, max_tokens: 100 },
    got: { temperature: 0.2, max_tokens: 100 },
  },
  {
    says: "LangChain: nulls for what is not set, and the newer name of the limit",
    source: "github.com/langchain-ai/langchain: ChatOpenAI",
    body: {
      max_completion_tokens: 100,
      n: 1,
      temperature: 0.7,
      stop: null,
      seed: null,
      tools: [TOOL],
      parallel_tool_calls: false,
    },
    got: { max_tokens: 100, max_completion_tokens: undefined, parallel_tool_calls: false },
  },
  {
    says: "LiteLLM: both names of the limit, and a role developer",
    source: "github.com/BerriAI/litellm",
    body: {
      max_tokens: 50,
      max_completion_tokens: 100,
      messages: [{ role: "developer", content: "Be brief." }, ...asks("Hi.")],
    },
    got: {
      max_tokens: 100,
      max_completion_tokens: undefined,
      messages: [{ role: "system", content: "Be brief." }, ...asks("Hi.")],
    },
  },
  {
    says: "Vercel's openai-compatible: parts of text, and a stream with its usage",
    source: "github.com/vercel/ai: packages/openai-compatible",
    body: {
      stream: true,
      stream_options: { include_usage: true },
      tools: [TOOL],
      tool_choice: "auto",
      messages: asks([{ type: "text", text: "Hi." }]),
    },
    got: {
      stream: true,
      stream_options: { include_usage: true },
      tool_choice: "auto",
      messages: asks([{ type: "text", text: "Hi." }]),
    },
  },
  {
    says: "Cline: no temperature, content in parts, options of a stream",
    source: "github.com/cline/cline: src/api/providers/openai.ts",
    body: {
      stream: true,
      stream_options: { include_usage: true },
      temperature: 0,
      messages: [{ role: "system", content: "You are Cline." }, ...asks([{ type: "text", text: "<task>Hi.</task>" }])],
    },
    got: {
      temperature: 0,
      messages: [{ role: "system", content: "You are Cline." }, ...asks([{ type: "text", text: "<task>Hi.</task>" }])],
    },
  },
  {
    says: "aider: what the last turn said, and nothing of tools",
    source: "github.com/Aider-AI/aider: aider/models.py",
    body: {
      stream: true,
      temperature: 0,
      messages: [
        { role: "system", content: "Act as an expert." },
        ...asks("Hi."),
        { role: "assistant", content: "Ok." },
        ...asks("Go on."),
      ],
    },
    got: { tools: undefined, temperature: 0 },
  },
  {
    says: "No tools, with what depends on them",
    source: "github.com/QwenLM/qwen-code/issues/2054 (DashScope); github.com/evalstate/fast-agent/issues/781 (vLLM)",
    body: { tools: [], tool_choice: "auto", parallel_tool_calls: true },
    got: { tools: undefined, tool_choice: undefined, parallel_tool_calls: undefined },
  },
  {
    says: "Options of a stream without one",
    source: "docs.vllm.ai: 400, stream options can only be defined when stream is true",
    body: { stream: false, stream_options: { include_usage: true } },
    got: { stream_options: undefined },
  },
  {
    says: "What only OpenRouter has",
    source: "openrouter.ai/docs/api-reference/parameters",
    body: {
      transforms: ["middle-out"],
      models: ["a"],
      route: "fallback",
      provider: { order: ["x"] },
      plugins: [{ id: "web" }],
      usage: { include: true },
    },
    got: {
      transforms: undefined,
      models: undefined,
      route: undefined,
      provider: undefined,
      plugins: undefined,
      usage: undefined,
    },
  },
  {
    says: "Tools as the Responses API has them",
    source: "forum.cursor.com: custom models; platform.openai.com/docs/api-reference/responses",
    body: {
      tools: [{ type: "function", name: "toll", description: "The toll", parameters: SCHEMA }],
      tool_choice: { type: "function", name: "toll" },
    },
    got: { tools: [TOOL], tool_choice: { type: "function", function: { name: "toll" } } },
  },
  {
    says: "Tools as Anthropic's API has them",
    source: "docs.claude.com/en/docs/agents-and-tools/tool-use; forum.cursor.com: custom models",
    body: { tools: [{ name: "toll", description: "The toll", input_schema: SCHEMA }] },
    got: { tools: [TOOL] },
  },
  {
    says: "Cursor, for a model whose name begins with claude: calls and their results in Anthropic's form",
    source: "github.com/automazeio/vibeproxy/issues/411; github.com/router-for-me/CLIProxyAPI/issues/3805",
    body: {
      tools: [{ name: "toll", description: "The toll", input_schema: SCHEMA }],
      tool_choice: { type: "auto" },
      messages: [
        ...asks("What is the toll at gate 2?"),
        { role: "assistant", content: [TEXT, { type: "tool_use", id: "toolu_1", name: "toll", input: { gate: 2 } }] },
        ...asks([{ type: "tool_result", tool_use_id: "toolu_1", content: "3 euros" }, TEXT]),
      ],
    },
    got: {
      tools: [TOOL],
      tool_choice: "auto",
      messages: [
        ...asks("What is the toll at gate 2?"),
        {
          role: "assistant",
          content: [TEXT],
          tool_calls: [{ id: "toolu_1", type: "function", function: { name: "toll", arguments: '{"gate":2}' } }],
        },
        { role: "tool", tool_call_id: "toolu_1", content: "3 euros" },
        ...asks([TEXT]),
      ],
    },
  },
  {
    says: "Anthropic's results in parts, with an image, and a call alone",
    source: "docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use",
    body: {
      messages: [
        ...asks("Show me gate 2."),
        { role: "assistant", content: [{ type: "tool_use", id: "toolu_2", name: "camera", input: {} }] },
        ...asks([
          {
            type: "tool_result",
            tool_use_id: "toolu_2",
            content: [TEXT, { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } }],
          },
        ]),
      ],
    },
    got: {
      messages: [
        ...asks("Show me gate 2."),
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "toolu_2", type: "function", function: { name: "camera", arguments: "{}" } }],
        },
        {
          role: "tool",
          tool_call_id: "toolu_2",
          content: [TEXT, { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } }],
        },
      ],
    },
  },
  {
    says: "openai (Python): an answer that is sent back with all of its members",
    source: "github.com/openai/openai-python/issues/777; github.com/tashfeenahmed/freellmapi/pull/232",
    body: {
      messages: [
        ...asks("Hi."),
        {
          role: "assistant",
          content: "Yes",
          refusal: null,
          annotations: null,
          audio: null,
          function_call: null,
          tool_calls: null,
        },
        ...asks("And?"),
      ],
    },
    got: { messages: [...asks("Hi."), { role: "assistant", content: "Yes" }, ...asks("And?")] },
  },
  {
    says: "An empty list of calls in an answer that is sent back",
    source: "github.com/home-assistant/core/pull/118577; github.com/0xPlaygrounds/rig/pull/327",
    body: { messages: [...asks("Hi."), { role: "assistant", content: "Yes", tool_calls: [] }, ...asks("And?")] },
    got: { messages: [...asks("Hi."), { role: "assistant", content: "Yes" }, ...asks("And?")] },
  },
  {
    says: "Calls that are sent back without a type, their arguments as an object",
    source: "github.com/bytedance/deer-flow/issues/4445; docs.ollama.com/capabilities/tool-calling",
    body: {
      messages: [
        ...asks("What is the toll at gate 2?"),
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "a", function: { name: "toll", arguments: { gate: 2 } } }],
        },
        { role: "tool", tool_call_id: "a", content: "3 euros" },
      ],
    },
    got: {
      messages: [
        ...asks("What is the toll at gate 2?"),
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "a", type: "function", function: { name: "toll", arguments: '{"gate":2}' } }],
        },
        { role: "tool", tool_call_id: "a", content: "3 euros" },
      ],
    },
  },
  {
    says: "A choice of a tool without a type",
    source: "tried on a replica on 28 November 2026: left out, and the tool was not called",
    body: { tools: [TOOL], tool_choice: { function: { name: "toll" } } },
    got: { tool_choice: { type: "function", function: { name: "toll" } } },
  },
  {
    says: "No stop sequences, and a choice of functions without functions",
    source: "github.com/agnaistic/agnai/pull/612; platform.openai.com: function_call is only allowed with functions",
    body: { stop: [], functions: null, function_call: "auto" },
    got: { stop: undefined, function_call: undefined },
  },
  {
    says: "Gemini 3: the signature of a call comes back as it was",
    source: "ai.google.dev/gemini-api/docs/thought-signatures; github.com/tinyhumansai/openhuman/issues/3548",
    body: {
      messages: [
        ...asks("What is the toll?"),
        { role: "assistant", content: null, tool_calls: [SIGNED] },
        { role: "tool", tool_call_id: "a", content: "3 euros" },
      ],
    },
    got: {
      messages: [
        ...asks("What is the toll?"),
        { role: "assistant", content: null, tool_calls: [SIGNED] },
        { role: "tool", tool_call_id: "a", content: "3 euros" },
      ],
    },
  },
  {
    says: "Cline and Roo: parts with cache_control, which is left out",
    source: "github.com/cline/cline: src/core/api/transform/openrouter-stream.ts",
    body: { messages: asks([{ type: "text", text: "Hi.", cache_control: { type: "ephemeral" } }]) },
    got: { messages: asks([{ type: "text", text: "Hi." }]) },
  },
  {
    says: "A content type with a charset of its own spelling, and an encoding that is none",
    source: "github.com/sashirestela/simple-openai; www.rfc-editor.org/rfc/rfc9110#field.content-type",
    headers: { "content-type": 'Application/JSON; charset="UTF8"', "content-encoding": "identity" },
    body: {},
    got: { messages: asks("Tell me about tolls.") },
  },
  ...TOOL_CHOICES.map(
    ([choice, says, got]): Case => ({
      says: `tool_choice: ${says}`,
      source:
        "docs.claude.com/en/docs/agents-and-tools/tool-use/implement-tool-use; docs.mistral.ai/capabilities/function_calling",
      body: { tools: [TOOL], tool_choice: choice },
      got,
    }),
  ),
  {
    says: "Parts as the Responses API has them, and one without a type",
    source: "platform.openai.com/docs/api-reference/responses",
    body: { messages: asks([{ type: "input_text", text: "Hi." }, { text: "And?" }]) },
    got: {
      messages: asks([
        { type: "text", text: "Hi." },
        { type: "text", text: "And?" },
      ]),
    },
  },
  {
    says: "Images as Anthropic's API has them, and with a text as their URL",
    source: "docs.claude.com/en/docs/build-with-claude/vision; platform.openai.com: input_image",
    body: {
      messages: asks([
        { type: "text", text: "What is it?" },
        { type: "image", source: { type: "base64", media_type: "image/png", data: PNG } },
        { type: "image", source: { type: "url", url: "https://example.com/a.png" } },
        { type: "image_url", image_url: "https://example.com/b.png" },
        { type: "input_image", image_url: "https://example.com/c.png", detail: "low" },
      ]),
    },
    got: {
      messages: asks([
        { type: "text", text: "What is it?" },
        { type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } },
        { type: "image_url", image_url: { url: "https://example.com/a.png" } },
        { type: "image_url", image_url: { url: "https://example.com/b.png" } },
        { type: "image_url", image_url: { url: "https://example.com/c.png", detail: "low" } },
      ]),
    },
  },
];

export default SERVED.map(({ says, source, body, headers, got }): Entry => {
  const answer = body.stream === true ? GOOD_STREAM : GOOD_WHOLE;
  const request = { only: "chat", body, ...(headers && { headers }) } as const;
  return { says, source, request, provider: { ...answer, got }, client: { text: "good" }, charged: CHARGED };
}) satisfies Entry[];
