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
    source: "github.com/openai/openai-python/issues: empty array; Dify and Flowise",
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

const REFUSED: readonly (readonly [says: string, content: unknown, param: string])[] = [
  ["Audio alone", [{ type: "input_audio", input_audio: { data: "AA==", format: "wav" } }], "messages.0.content.0"],
  ["A file alone", [{ type: "file", file: { file_id: "file-1" } }], "messages.0.content.0"],
  ["A video alone", [{ type: "video_url", video_url: { url: "https://example.com/a" } }], "messages.0.content.0"],
  ["An empty part", [{}], "messages.0.content.0"],
  ["No parts", [], "messages.0.content"],
];

export default [
  ...SERVED.map(({ says, source, body, headers, got }): Entry => {
    const answer = body.stream === true ? GOOD_STREAM : GOOD_WHOLE;
    const request = { only: "chat", body, ...(headers && { headers }) } as const;
    return { says, source, request, provider: { ...answer, got }, client: { text: "good" }, charged: CHARGED };
  }),
  ...REFUSED.map(
    ([says, content, param]): Entry => ({
      says: `${says} as a message: nothing of it could be sent, so it is refused`,
      source: "tried on a replica on 27 and 28 November 2026: sent as an empty list, and charged",
      request: { only: "chat", body: { messages: asks(content) } },
      provider: [],
      client: { error: "invalid_request", param },
      charged: "nothing",
    }),
  ),
] satisfies Entry[];
