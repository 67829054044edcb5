import {
  chunk,
  completion,
  DONE,
  type Entry,
  GOOD_STREAM,
  GOOD_WHOLE,
  type ProviderAnswer,
  STOP,
  STREAMED,
  USAGE,
  USAGE_CHUNK,
  WHOLE,
} from "../form.ts";

/** Answers that are good and look odd, and such that are none and look good. */

const GOOD = { text: "good", usage: [5, 7, 12] } as const;
const CHARGED = { tokens: [5, 7] } as const;
const BEGIN = chunk({ role: "assistant", content: "" });
const CALL = { id: "call_1", type: "function", function: { name: "toll", arguments: '{"a":1}' } };
const CALLS = [{ name: "toll", arguments: '{"a":1}' }] as const;
const json = (value: object) => JSON.stringify(value);

type Case = readonly [says: string, source: string, answer: ProviderAnswer];

const WHOLES: readonly Case[] = [
  [
    "Counts as fractions, of a proxy that divides them",
    "constructed",
    {
      json: completion({ content: "good" }, "stop", {
        usage: { ...USAGE, prompt_tokens: 5.0, completion_tokens: 6.2 },
      }),
    },
  ],
  [
    "Details of null",
    "constructed",
    {
      json: completion({ content: "good" }, "stop", {
        usage: { ...USAGE, prompt_tokens_details: null, completion_tokens_details: null },
      }),
    },
  ],
  [
    "A total of zero beside good counts",
    "constructed",
    { json: completion({ content: "good" }, "stop", { usage: { ...USAGE, total_tokens: 0 } }) },
  ],
  [
    "A total that is not their sum",
    "constructed",
    { json: completion({ content: "good" }, "stop", { usage: { ...USAGE, total_tokens: 6 } }) },
  ],
  [
    "An id that is a number, and a time that is a text",
    "github.com/QuantumNous/new-api/issues/5221 (numbers that are no integers)",
    { json: { ...completion({ content: "good" }), id: 7, created: "2026-11-29T10:00:00Z" } },
  ],
  [
    "No id, no object, no model",
    "constructed",
    { json: { ...completion({ content: "good" }), id: null, object: "", model: null } },
  ],
  [
    "An error of null, a warning and a status",
    "github.com/songquanpeng/one-api/issues/193 (errors with 200)",
    { json: { ...completion({ content: "good" }), error: null, status: 200, msg: "success", code: 0, success: true } },
  ],
  [
    "Comments in front of the JSON",
    "openrouter.ai/docs/api-reference/streaming: comments to keep a connection",
    { text: `: OPENROUTER PROCESSING\n\n: OPENROUTER PROCESSING\n\n${json(completion({ content: "good" }))}` },
  ],
  [
    "The end of a stream behind the JSON, as events",
    "github.com/decolua/9router/issues/3492",
    {
      text: `${json(completion({ content: "good" }))}\n\ndata: [DONE]\n\n`,
      headers: { "content-type": "text/event-stream" },
    },
  ],
  ["Line breaks behind the JSON", "constructed", { text: `${json(completion({ content: "good" }))}\r\n\r\n` }],
  [
    "A finish reason of null, and the last word in capitals",
    "constructed",
    {
      json: completion({ content: "good" }, null, {
        choices: [{ index: 0, message: { role: "Assistant", content: "good" }, finish_reason: "STOP" }],
      }),
    },
  ],
];

const STREAMS: readonly Case[] = [
  [
    "A whole answer, and the end of a stream behind it",
    "github.com/decolua/9router/issues/3492",
    { text: `${json(completion({ content: "good" }))}\n\ndata: [DONE]\n\n` },
  ],
  [
    "The reason for the end comes before the last text",
    "constructed",
    { events: [BEGIN, chunk({ content: "go" }, "stop"), chunk({ content: "od" }), USAGE_CHUNK, DONE] },
  ],
  [
    "The usage in a chunk whose choices are null",
    "constructed",
    { events: [BEGIN, chunk({ content: "good" }), STOP, { id: "1", choices: null, usage: USAGE }, DONE] },
  ],
  [
    "The usage in a chunk without choices",
    "github.com/open-webui/open-webui/issues/29064 (form)",
    {
      events: [
        BEGIN,
        chunk({ content: "good" }),
        STOP,
        { id: "1", object: "chat.completion.usage", usage: USAGE },
        DONE,
      ],
    },
  ],
  [
    "The usage before the first text, whole",
    "constructed",
    { events: [{ ...chunk({ role: "assistant" }), usage: USAGE }, chunk({ content: "good" }), STOP, DONE] },
  ],
  [
    "A usage that grows in every chunk",
    "github.com/ogx-ai/ogx/issues/5122 (Gemini)",
    {
      events: [
        chunk({ content: "go" }, null, { usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } }),
        chunk({ content: "od" }, null, { usage: { prompt_tokens: 5, completion_tokens: 6, total_tokens: 11 } }),
        chunk({}, "stop", { usage: USAGE }),
        DONE,
      ],
    },
  ],
  [
    "Padding of random length in every chunk",
    "platform.openai.com/docs/api-reference/chat/create: include_obfuscation",
    {
      events: [
        chunk({ role: "assistant", content: "" }, null, { obfuscation: "aB3" }),
        chunk({ content: "go" }, null, { obfuscation: "xYz12" }),
        chunk({ content: "od" }, null, { obfuscation: "q" }),
        chunk({}, "stop", { obfuscation: "Kk09" }),
        { ...USAGE_CHUNK, obfuscation: "" },
        DONE,
      ],
    },
  ],
  [
    "Events with a name, as DashScope has them",
    "help.aliyun.com/zh/model-studio/qwen-api-via-dashscope: id, event and :HTTP_STATUS",
    {
      events: [
        `id:1\nevent:result\n:HTTP_STATUS/200\ndata:${json(chunk({ role: "assistant", content: "go" }))}\n\n`,
        `id:2\nevent:result\n:HTTP_STATUS/200\ndata:${json(chunk({ content: "od" }, "stop", { usage: USAGE }))}\n\n`,
      ],
    },
  ],
  [
    "The end as an event with a name",
    "constructed",
    { events: [BEGIN, chunk({ content: "good" }), STOP, USAGE_CHUNK, "event: done\ndata: [DONE]\n\n"] },
  ],
  [
    "The end as an event without data",
    "constructed",
    { events: [BEGIN, chunk({ content: "good" }), STOP, USAGE_CHUNK, "event: end\n\n"] },
  ],
  [
    "A status of the provider between the chunks",
    "constructed",
    {
      events: [
        { type: "status", status: "queued", position: 3 },
        BEGIN,
        { object: "chat.completion.status", status: "running" },
        chunk({ content: "good" }),
        STOP,
        USAGE_CHUNK,
        DONE,
      ],
    },
  ],
  [
    "Choices of null until the first word",
    "constructed",
    { events: [{ id: "1", choices: null, created: 1 }, chunk({ content: "good" }), STOP, USAGE_CHUNK, DONE] },
  ],
];

/** What calls of tools look like. */
const CALLED: readonly Case[] = [
  [
    "An empty content beside the call, and stop as the reason",
    "constructed",
    { json: completion({ content: "", tool_calls: [CALL] }, "stop") },
  ],
  [
    "Null among the calls",
    "constructed",
    { json: completion({ content: null, tool_calls: [null, CALL] }, "tool_calls") },
  ],
  [
    "A type that is empty, and an index in a whole answer",
    "github.com/agentjido/req_llm/issues/742 (form)",
    { json: completion({ content: null, tool_calls: [{ ...CALL, type: "", index: 0 }] }, "tool_calls") },
  ],
];

/** Bodies with status 200 that are no answers. */
const NONE: readonly (readonly [says: string, source: string, answer: ProviderAnswer])[] = [
  ["Nothing", "github.com/songquanpeng/one-api/issues/443", { text: "" }],
  ["null", "constructed", { text: "null" }],
  ["An empty list", "constructed", { text: "[]" }],
  ["true", "constructed", { text: "true" }],
  ["A page", "github.com/openai/codex/issues/4284: a page of Cloudflare", { text: "<!DOCTYPE html><html></html>" }],
  [
    "LM Studio: another path, with 200",
    "github.com/lmstudio-ai/lmstudio-bug-tracker: Returning 200 anyway",
    { json: { error: "Unexpected endpoint or method. (POST /api/chat/completions). Returning 200 anyway" } },
  ],
  [
    "Half a JSON",
    "github.com/QuantumNous/new-api/issues/5221: unexpected end of JSON input",
    { text: '{"id":"1","choices":[{"mess' },
  ],
  ["A message of a gateway", "constructed", { json: { message: "no Route matched with those values" } }],
  [
    "New API: an overloaded service, with 200",
    "github.com/QuantumNous/new-api/issues/7399",
    {
      json: {
        error: {
          message: "Our servers are currently overloaded. Please try again later.",
          type: "service_unavailable_error",
          param: null,
          code: "server_is_overloaded",
        },
      },
    },
  ],
  [
    "OpenRouter: an error beside empty choices",
    "github.com/diegosouzapw/OmniRoute/pull/8210",
    {
      json: {
        id: "gen-1",
        object: "chat.completion.chunk",
        choices: [],
        error: { code: 502, message: "Worker local total request limit reached (33/32)" },
      },
    },
  ],
];

/** What breaks off half an answer. */
const BREAKS: readonly (readonly [says: string, source: string, event: string | object])[] = [
  [
    "OpenRouter: an error beside a choice that says so",
    "github.com/use-agent-os/agent-os/issues/2214; github.com/damianvtran/local-operator/pull/223",
    {
      ...chunk({ content: "" }, "error"),
      error: { code: "server_error", message: "Provider disconnected unexpectedly" },
    },
  ],
  [
    "An error beside empty choices",
    "github.com/use-agent-os/agent-os/issues/2214",
    { model: "up", error: { message: "the server had an error processing your request" }, choices: [] },
  ],
  [
    "Ollama: a line that is an error",
    "github.com/use-agent-os/agent-os/issues/2214",
    '{"error":"an error was encountered while running the model"}\n',
  ],
  [
    "An error as an event of the Responses API",
    "github.com/QuantumNous/new-api/issues/3142",
    { type: "response.failed", response: { status: "failed", error: { code: "server_error", message: "boom" } } },
  ],
  [
    "Half a JSON",
    "github.com/QuantumNous/new-api/issues/5221",
    'data: {"id":"1","choices":[{"index":0,"delta":{"con\n\n',
  ],
  [
    "A page",
    "github.com/QuantumNous/new-api/issues/5221: 502 of Cloudflare within a stream",
    "data: <html><h1>502 Bad Gateway</h1></html>\n\n",
  ],
  [
    "Bedrock: an exception by its name",
    "docs.aws.amazon.com/bedrock: ConverseStreamOutput",
    { modelStreamErrorException: { message: "The model stream broke.", originalStatusCode: 500 } },
  ],
];

export default [
  ...WHOLES.map(
    ([says, source, provider]): Entry => ({ says, source, request: WHOLE, provider, client: GOOD, charged: CHARGED }),
  ),
  ...STREAMS.map(
    ([says, source, provider]): Entry => ({
      ...{ says, source, provider },
      request: { body: { stream: true, stream_options: { include_usage: true } } },
      client: GOOD,
      charged: CHARGED,
    }),
  ),
  ...CALLED.map(
    ([says, source, provider]): Entry => ({
      ...{ says, source, provider, request: WHOLE },
      client: { calls: CALLS, uniqueIds: true, usage: [5, 7, 12] },
      charged: CHARGED,
    }),
  ),
  ...NONE.flatMap(([what, source, answer]): Entry[] => [
    {
      says: `${what} in place of an answer: the next route answers`,
      source,
      request: WHOLE,
      provider: [answer, GOOD_WHOLE],
      client: { text: "good" },
      charged: CHARGED,
    },
    {
      says: `${what} in place of a stream: the next route answers`,
      source,
      request: STREAMED,
      provider: [answer, GOOD_STREAM],
      client: { text: "good" },
      charged: CHARGED,
    },
  ]),
  ...BREAKS.map(
    ([what, source, event]): Entry => ({
      says: `${what}, behind half an answer`,
      source,
      request: STREAMED,
      provider: { events: [BEGIN, chunk({ content: "go" }), event, STOP, DONE] },
      client: { text: "go", error: "provider_unavailable" },
      charged: "nothing",
    }),
  ),
] satisfies Entry[];
