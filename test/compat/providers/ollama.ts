import { chunk, context, DONE, type Entry, GOOD_STREAM, GOOD_WHOLE, STREAMED, WHOLE } from "../form.ts";

/**
 * Answers of Ollama's server, v0.33.0-rc2 (fb30760), as they came. The process that runs the model was a stand-in, because none could be
 * built here: Ollama's own layer makes the shapes.
 */
const SEEN = "Ollama v0.33.0-rc2";
const HEAD = { created: 1_795_896_408, model: "stories", system_fingerprint: "fp_ollama" };
const USAGE = { prompt_tokens: 5, completion_tokens: 4, total_tokens: 9 };
const ASKS = { stream: true, stream_options: { include_usage: true } } as const;
const TOOLS = [{ type: "function", function: { name: "toll", parameters: { type: "object", properties: {} } } }];

const whole = (message: object, finish: string) => ({
  ...{ id: "chatcmpl-841", object: "chat.completion", ...HEAD, usage: USAGE },
  choices: [{ index: 0, message: { role: "assistant", ...message }, finish_reason: finish }],
});
const of = (delta: object, finish: string | null = null) =>
  chunk({}, null, {
    ...{ id: "chatcmpl-945", ...HEAD },
    choices: [{ index: 0, delta, finish_reason: finish }],
  });
const LAST = { id: "chatcmpl-945", object: "chat.completion.chunk", ...HEAD, choices: [], usage: USAGE };
const call = (index: number, gate: number) => ({
  id: `call_${index}`,
  index,
  type: "function",
  function: { name: "toll", arguments: `{"gate":${gate}}` },
});
const CALLS = [
  { name: "toll", arguments: '{"gate":2}' },
  { name: "toll", arguments: '{"gate":3}' },
];
const error = (status: number, message: string, type: string) => ({
  status,
  json: { error: { message, type, param: null, code: null } },
});
/** The error of the process behind it, in a text. */
const OVERFLOW =
  '{"error":{"code":400,"message":"request (1803 tokens) exceeds the available context size (256 tokens), try increasing it","type":"exceed_context_size_error","n_prompt_tokens":1803,"n_ctx":256}}';

export default [
  {
    says: "A whole answer, with its reasoning",
    source: SEEN,
    request: WHOLE,
    provider: { dialect: "ollama", json: whole({ content: "Once upon", reasoning: "Hm." }, "stop") },
    client: { text: "Once upon", reasoning: "Hm.", finish: "stop", usage: [5, 4, 9] },
    charged: { tokens: [5, 4] },
  },
  {
    says: "A stream, with its reasoning beside an empty content",
    source: SEEN,
    request: { body: ASKS },
    provider: {
      dialect: "ollama",
      events: [
        of({ role: "assistant", content: "", reasoning: "Hm." }),
        of({ content: "Once" }),
        of({ content: " upon" }),
        of({}, "stop"),
        LAST,
        DONE,
      ],
    },
    client: { text: "Once upon", reasoning: "Hm.", finish: "stop", usage: [5, 4, 9] },
    charged: { tokens: [5, 4] },
  },
  {
    says: "Tool calls of a whole answer, with indexes",
    source: SEEN,
    request: { body: { tools: TOOLS } },
    provider: { dialect: "ollama", json: whole({ content: "", tool_calls: [call(0, 2), call(1, 3)] }, "tool_calls") },
    client: { text: "", calls: CALLS, finish: "tool_calls", usage: [5, 4, 9] },
    charged: { tokens: [5, 4] },
  },
  {
    says: "Tool calls of a stream, each in one piece",
    source: SEEN,
    request: { body: { ...ASKS, tools: TOOLS } },
    provider: {
      dialect: "ollama",
      events: [
        of({ role: "assistant", content: "", tool_calls: [call(0, 2)] }),
        of({ content: "", tool_calls: [call(1, 3)] }),
        of({}, "tool_calls"),
        LAST,
        DONE,
      ],
    },
    client: { text: "", calls: CALLS, finish: "tool_calls", usage: [5, 4, 9] },
    charged: { tokens: [5, 4] },
  },
  {
    says: "Until v0.5: tool calls of a stream, all with the index 0",
    source: "github.com/ollama/ollama/issues/7881",
    request: { body: { ...ASKS, tools: TOOLS } },
    provider: {
      dialect: "ollama",
      events: [
        of({ role: "assistant", content: "", tool_calls: [call(0, 2), { ...call(0, 3), id: "call_1" }] }),
        of({ role: "assistant", content: "" }, "tool_calls"),
        LAST,
        DONE,
      ],
    },
    client: { text: "", calls: CALLS, finish: "tool_calls", usage: [5, 4, 9] },
    charged: { tokens: [5, 4] },
  },
  {
    says: "Two choices were asked for, and n is ignored",
    source: SEEN,
    request: { only: "chat", body: { n: 2 } },
    provider: { dialect: "ollama", json: whole({ content: "Once upon" }, "stop") },
    client: { text: "Once upon", usage: [5, 4, 9], json: { choices: [{ index: 0 }] } },
    charged: { tokens: [5, 4] },
  },
  {
    says: "A model that it does not have: the next route answers",
    source: SEEN,
    request: WHOLE,
    provider: [{ dialect: "ollama", ...error(404, "model 'up' not found", "not_found_error") }, GOOD_WHOLE],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "A model that it does not have, and no other route",
    source: SEEN,
    request: STREAMED,
    provider: { dialect: "ollama", ...error(404, "model 'up' not found", "not_found_error") },
    client: { error: "invalid_request" },
    charged: "nothing",
  },
  {
    says: "A prompt that is too long, as the error of the process behind it in a text: the client gets the code that agents know",
    source: SEEN,
    request: WHOLE,
    provider: { dialect: "ollama", ...error(400, OVERFLOW, "invalid_request_error") },
    client: {
      error: "context_length_exceeded",
      message: "request (1803 tokens) exceeds the available context size (256 tokens)",
    },
    charged: "nothing",
  },
  {
    says: "The same to a stream",
    source: SEEN,
    request: STREAMED,
    provider: { dialect: "ollama", ...error(400, OVERFLOW, "invalid_request_error") },
    client: { error: "context_length_exceeded", message: "exceeds the available context size (256 tokens)" },
    charged: "nothing",
  },
  {
    says: "A model without tools: 400, without the address of its model",
    source: SEEN,
    request: { body: { tools: TOOLS } },
    provider: {
      dialect: "ollama",
      ...error(400, "registry.ollama.ai/library/up:latest does not support tools", "invalid_request_error"),
    },
    client: { error: "invalid_request", message: /^\[address\] does not support tools/ },
    charged: "nothing",
  },
  {
    says: "An image by its address",
    source: SEEN,
    request: WHOLE,
    provider: {
      dialect: "ollama",
      ...error(
        400,
        "image URLs are not currently supported, please use base64 encoded data instead",
        "invalid_request_error",
      ),
    },
    client: { error: "invalid_request", message: "image URLs are not currently supported" },
    charged: "nothing",
  },
  {
    says: "The process that runs the model has ended: the next route answers",
    source: SEEN,
    request: STREAMED,
    provider: [
      {
        dialect: "ollama",
        ...error(
          500,
          "model runner has unexpectedly stopped, this may be due to resource limitations or an internal error, check ollama server logs for details",
          "api_error",
        ),
      },
      GOOD_STREAM,
    ],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "Embeddings",
    source: SEEN,
    request: { path: "embeddings", body: { input: ["a", "b"] } },
    provider: {
      dialect: "ollama",
      json: {
        object: "list",
        data: [0, 1].map((index) => ({ object: "embedding", embedding: [0.6, 0.8], index })),
        model: "stories",
        usage: { prompt_tokens: 12, total_tokens: 12 },
      },
      got: { encoding_format: undefined },
    },
    client: { json: { data: [{ index: 0, embedding: [0.6, 0.8] }, { index: 1 }], usage: { prompt_tokens: 12 } } },
    charged: { tokens: [12, 0] },
  },
  {
    says: "Embeddings of a text that is too long: the client gets the code that agents know",
    source: SEEN,
    request: { path: "embeddings" },
    provider: context(400, {
      error: {
        message: "input exceeds maximum context length and cannot be truncated further",
        type: "invalid_request_error",
        param: null,
        code: null,
      },
    }),
    client: { error: "context_length_exceeded", message: "input exceeds maximum context length" },
    charged: "nothing",
  },
] satisfies Entry[];
