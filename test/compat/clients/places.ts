import type { Entry, ProviderAnswer } from "../form.ts";

/**
 * What a provider says of a place in the body that it was sent, whose messages were merged, moved or divided: the client reads the place
 * in its own body.
 */

const TEXT = { type: "text", text: "A photo:" };
const IMAGE = { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } };
const WEB_SEARCH = { type: "web_search" };
const FUNCTION = { name: "toll", parameters: { type: "object" } };
const TOOL = { type: "function", function: FUNCTION };
const CALL = { id: "call_1", type: "function", function: { name: "toll", arguments: "{}" } };
const USE = { type: "tool_use", id: "call_1", name: "toll", input: {} };
const SYSTEMS = [
  { role: "system", content: "Be brief." },
  { role: "developer", content: "Be kind." },
];
const HI = { role: "user", content: "Hi." };
const CALLED = { role: "assistant", content: null, tool_calls: [CALL] };

type Case = {
  says: string;
  dialect?: NonNullable<ProviderAnswer["dialect"]>;
  body: Readonly<Record<string, unknown>>;
  /** What the provider names, and what the client reads. */
  names: readonly [provider: string, client: string];
};

const CASES: readonly Case[] = [
  {
    says: "A place that is the same stays as it is written",
    body: { messages: [HI, CALLED] },
    names: ["messages[1].tool_calls[0].function.arguments", "messages[1].tool_calls[0].function.arguments"],
  },
  {
    says: "System messages that were merged into one",
    dialect: "llama.cpp",
    body: { messages: [...SYSTEMS, HI, CALLED] },
    names: ["messages[2].tool_calls[0].function.name", "messages.3.tool_calls.0.function.name"],
  },
  {
    says: "The second of merged system messages is named by the first",
    dialect: "llama.cpp",
    body: { messages: [...SYSTEMS, HI] },
    names: ["messages.0.content", "messages.0.content"],
  },
  {
    says: "FastAPI's place, behind merged system messages",
    dialect: "vllm",
    body: { messages: [...SYSTEMS, HI] },
    names: ["messages.1.content", "messages.2.content"],
  },
  {
    says: "An image that was moved out of a tool's message",
    dialect: "openai",
    body: {
      messages: [HI, CALLED, { role: "tool", tool_call_id: "call_1", content: [TEXT, IMAGE] }, HI],
    },
    names: ["messages[3].content[0].image_url.url", "messages.2.content.1.image_url.url"],
  },
  {
    says: "A message behind an image that was moved",
    dialect: "openai",
    body: {
      messages: [HI, CALLED, { role: "tool", tool_call_id: "call_1", content: [TEXT, IMAGE] }, HI],
    },
    names: ["messages[4].content", "messages.3.content"],
  },
  {
    says: "A text behind an image that was moved out of a tool's message",
    dialect: "openai",
    body: { messages: [HI, CALLED, { role: "tool", tool_call_id: "call_1", content: [IMAGE, TEXT] }] },
    names: ["messages[2].content[0].text", "messages.2.content.1.text"],
  },
  {
    says: "A tool behind one that was left out",
    body: { tools: [WEB_SEARCH, TOOL] },
    names: ["tools[0].function.parameters", "tools.1.function.parameters"],
  },
  {
    says: "A result in Anthropic's form",
    body: {
      messages: [
        HI,
        { role: "assistant", content: [TEXT, USE] },
        { role: "user", content: [TEXT, { type: "tool_result", tool_use_id: "call_1", content: "3" }] },
      ],
    },
    names: ["messages[2].tool_call_id", "messages.2.content.1.tool_use_id"],
  },
  {
    says: "What follows a result in Anthropic's form",
    body: {
      messages: [
        HI,
        { role: "assistant", content: [USE] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "call_1", content: "3" }, TEXT] },
        HI,
      ],
    },
    names: ["messages[3].content[0].text", "messages.2.content.1.text"],
  },
  {
    says: "The message after that",
    body: {
      messages: [
        HI,
        { role: "assistant", content: [USE] },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "call_1", content: "3" }, TEXT] },
        HI,
      ],
    },
    names: ["messages.4.content", "messages.3.content"],
  },
  {
    says: "A call in Anthropic's form",
    body: { messages: [HI, { role: "assistant", content: [TEXT, USE] }] },
    names: ["messages[1].tool_calls[0].function.arguments", "messages.1.content.1.input"],
  },
  {
    says: "A part behind one that only another provider can read",
    body: { messages: [HI, { role: "assistant", content: [{ type: "redacted_thinking", data: "AA==" }, TEXT] }] },
    names: ["messages.1.content.0.text", "messages.1.content.1.text"],
  },
  {
    says: "A function that was sent as a tool",
    dialect: "mistral",
    body: { functions: [FUNCTION] },
    names: ["tools.0.function.parameters", "functions.0.parameters"],
  },
  {
    says: "A choice of a function that was sent as one of a tool",
    dialect: "mistral",
    body: { functions: [FUNCTION], function_call: { name: "toll" } },
    names: ["tool_choice", "function_call"],
  },
  {
    says: "A legacy call that was sent as a tool's",
    dialect: "mistral",
    body: {
      functions: [FUNCTION],
      messages: [HI, { role: "assistant", content: null, function_call: { name: "toll", arguments: "{" } }],
    },
    names: ["messages[1].tool_calls[0].function.arguments", "messages.1.function_call.arguments"],
  },
  {
    says: "The output limit by the client's name of it",
    dialect: "openai",
    body: { max_tokens: 5 },
    names: ["max_completion_tokens", "max_tokens"],
  },
  {
    says: "The output limit by the client's newer name of it",
    body: { max_completion_tokens: 5 },
    names: ["max_tokens", "max_completion_tokens"],
  },
];

const refusal = (param: string) => ({
  error: { message: `Invalid value at ${param}`, type: "invalid_request_error", param, code: "invalid_value" },
});

/** As a status, and as the first event of a stream. */
export default CASES.flatMap(({ says, dialect = "generic", body, names: [provider, client] }): Entry[] => {
  const source = "platform.openai.com/docs/guides/error-codes: param; fastapi.tiangolo.com: loc";
  // The message has the same path, except where the field has another name.
  const message = client.includes(".") ? { message: `Invalid value at ${client}` } : {};
  const expected = { client: { error: "invalid_request", param: client, ...message }, charged: "nothing" } as const;
  return [
    {
      says,
      source,
      request: { only: "chat", body },
      provider: { dialect, status: 400, json: refusal(provider) },
      ...expected,
    },
    {
      says: `${says}, in the first event of a stream`,
      source,
      request: { only: "chat", body: { ...body, stream: true } },
      provider: { dialect, events: [refusal(provider)] },
      ...expected,
    },
  ];
}) satisfies Entry[];
