import {
  chunk,
  completion,
  DONE,
  type Entry,
  GOOD_STREAM,
  GOOD_WHOLE,
  STOP,
  STREAMED,
  USAGE,
  USAGE_CHUNK,
  WHOLE,
} from "../form.ts";

/** Members that clients rely on and providers leave out, repeat or write in another way. Rust's `async-openai` failed at most of them. */

const HEAD = { id: "chatcmpl-7", object: "chat.completion.chunk", created: 1_763_856_000, model: "up" };
const BEGIN = chunk({ role: "assistant", content: "" });
const GOOD = chunk({ content: "good" });
const READS = { text: "good" } as const;
const CHARGED = { tokens: [5, 7] } as const;
const json = JSON.stringify;
const FILTER = { hate: { filtered: false, severity: "safe" } };
const PROVIDER_MESSAGE = { role: "assistant", content: "good" };
/** A chunk whose text is written as it stands, with its escapes. */
const escaped = (delta: object, text: string) => `data: ${json(chunk(delta)).replace('"TEXT"', `"${text}"`)}\n\n`;
const logprobs = (content: unknown) => ({
  choices: [{ index: 0, message: PROVIDER_MESSAGE, finish_reason: "stop", logprobs: { content } }],
});
const thought = (text: string) => ({ type: "reasoning", summary: [{ type: "summary_text", text }] });

export default [
  {
    says: "Azure's asynchronous filter: chunks without a delta, and one without a choice",
    source: "github.com/openai/openai-python/issues/1677; github.com/openai/openai-node/pull/1982",
    request: { only: "chat", ...STREAMED },
    provider: {
      dialect: "azure",
      events: [
        { id: "", object: "", created: 0, model: "", choices: [], prompt_filter_results: [{ prompt_index: 0 }] },
        BEGIN,
        GOOD,
        {
          ...{ id: "", object: "", created: 0, model: "" },
          choices: [{ index: 0, finish_reason: null, content_filter_results: FILTER, content_filter_offsets: {} }],
        },
        STOP,
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: {
      ...READS,
      events: [
        { prompt_filter_results: [{ prompt_index: 0 }], choices: [{ index: 0, delta: {}, finish_reason: null }] },
        {},
        {},
        { choices: [{ delta: {}, content_filter_results: FILTER }] },
        {},
      ],
    },
    charged: CHARGED,
  },
  {
    says: "A delta that is null at the end",
    source: "github.com/mozilla-ai/any-llm/pull/657 (MiniMax)",
    request: { only: "chat", ...STREAMED },
    provider: {
      events: [
        BEGIN,
        GOOD,
        { ...HEAD, choices: [{ index: 0, delta: null, finish_reason: "stop" }] },
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: { ...READS, finish: "stop", events: [{}, {}, { choices: [{ delta: {} }] }] },
    charged: CHARGED,
  },
  {
    says: "MiniMax: the whole answer once more at the end of a stream",
    source: "github.com/ENTERPILOT/GoModel/pull/1068; github.com/abundantbeing/hermes-browser-extension/issues/11",
    request: STREAMED,
    provider: {
      events: [
        chunk({ role: "assistant", content: "go" }),
        chunk({ role: "", content: "od" }),
        chunk({}, "stop"),
        completion({ content: "good", name: "MiniMax AI" }),
        DONE,
      ],
    },
    client: { ...READS, finish: "stop" },
    charged: CHARGED,
  },
  {
    says: "Perplexity: what was said so far beside each delta, and alone at the end",
    source: "docs.perplexity.ai/guides/streaming-responses: chat.completion.done",
    request: STREAMED,
    provider: {
      dialect: "perplexity",
      events: [
        ["go", "go", null],
        ["good", "od", "stop"],
      ]
        .map(([content, piece, finish_reason]): object => ({
          ...HEAD,
          choices: [{ index: 0, finish_reason, message: { role: "assistant", content }, delta: { content: piece } }],
          usage: USAGE,
        }))
        .concat({
          ...HEAD,
          object: "chat.completion.done",
          choices: [{ index: 0, finish_reason: "stop", message: PROVIDER_MESSAGE }],
          usage: USAGE,
        }),
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "The same in answer to a whole request",
    source: "github.com/abundantbeing/hermes-browser-extension/issues/11",
    request: WHOLE,
    provider: { events: [BEGIN, GOOD, completion({ content: "good" }), DONE] },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A whole answer without a finish_reason",
    source: "github.com/maximhq/bifrost/issues/1489; github.com/mudler/LocalAI/issues/788; xfyun.cn/doc/spark (Spark)",
    request: { only: "chat" },
    provider: {
      json: {
        ...{ code: 0, message: "Success", sid: "cha000b0003@dx1905cd86d6bb86d552" },
        choices: [{ message: PROVIDER_MESSAGE, index: 0 }],
        usage: USAGE,
      },
    },
    client: { ...READS, finish: "stop" },
    charged: CHARGED,
  },
  {
    says: "A whole answer with a call, and without a finish_reason",
    source: "github.com/maximhq/bifrost/issues/1489",
    request: { only: "chat" },
    provider: {
      json: completion(
        { content: null, tool_calls: [{ id: "a", type: "function", function: { name: "toll", arguments: "{}" } }] },
        null,
      ),
    },
    client: { calls: [{ name: "toll", arguments: "{}" }], finish: "tool_calls" },
    charged: CHARGED,
  },
  {
    says: "Chunks without a finish_reason have null",
    source: "github.com/danny-avila/LibreChat/pull/5563 (Bedrock); github.com/mudler/LocalAI/issues/1194",
    request: { only: "chat", ...STREAMED },
    provider: {
      events: [
        ...["go", "od"].map((content) => ({ ...HEAD, choices: [{ index: 0, delta: { role: "assistant", content } }] })),
        STOP,
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: {
      ...READS,
      events: [{ choices: [{ finish_reason: null }] }, { choices: [{ finish_reason: null }] }, {}],
    },
    charged: CHARGED,
  },
  ...(
    [
      ["content_filter: PROHIBITED_CONTENT", "content_filter", "Gemini's compatible API"],
      ["maxPredictedTokensReached", "length", "lmstudio.ai/docs/typescript: LLMPredictionStopReason"],
      ["eosFound", "stop", "lmstudio.ai/docs/typescript: LLMPredictionStopReason"],
      ["toolCalls", "tool_calls", "lmstudio.ai/docs/typescript: LLMPredictionStopReason"],
      ["eos", "stop", "github.com/openai/openai-dotnet/pull/267 (Together)"],
      ["eos_token", "stop", "github.com/spring-projects/spring-ai/pull/4900 (watsonx)"],
      ["repetition", "stop", "a word that nobody knows: github.com/vercel/ai/pull/1832"],
    ] as const
  ).map(
    ([theirs, finish, source]): Entry => ({
      says: `The finish reason ${theirs}`,
      source,
      request: { only: "chat" },
      provider: { json: completion({ content: "good" }, theirs) },
      client: { ...READS, finish },
      charged: CHARGED,
    }),
  ),
  {
    says: "Gemini's filter of calls is a failure: the next route answers",
    source: "github.com/googleapis/python-genai/issues/1836; github.com/OpenRouterTeam/openrouter-examples/issues/67",
    request: STREAMED,
    provider: [
      { events: [BEGIN, chunk({}, "function_call_filter: MALFORMED_FUNCTION_CALL"), USAGE_CHUNK, DONE] },
      GOOD_STREAM,
    ],
    client: READS,
    charged: CHARGED,
  },
  {
    says: "SGLang's own form of a finish reason",
    source: "github.com/sgl-project/sglang/issues/4097: meta_info.finish_reason",
    request: { only: "chat" },
    provider: {
      json: {
        ...completion({}),
        choices: [{ message: PROVIDER_MESSAGE, finish_reason: { type: "length", length: 7 } }],
      },
    },
    client: { ...READS, finish: "length" },
    charged: CHARGED,
  },
  {
    says: "Log probabilities of null, of tokens that are impossible",
    source: "github.com/sgl-project/sglang/pull/20323; github.com/vllm-project/vllm/pull/3867",
    request: { only: "chat" },
    provider: {
      json: completion(
        {},
        null,
        logprobs([{ token: "good", logprob: 0, bytes: null, top_logprobs: [{ token: "x", logprob: null }] }]),
      ),
    },
    client: { ...READS, json: logprobs([{ logprob: 0, top_logprobs: [{ token: "x", logprob: -9999 }] }]) },
    charged: CHARGED,
  },
  {
    says: "Infinity in a whole answer, as Python writes it",
    source: "docs.python.org/3/library/json.html: allow_nan; github.com/sgl-project/sglang/issues/2955",
    request: { only: "chat" },
    provider: {
      text: json(
        completion({}, null, logprobs([{ token: "NaN", logprob: "INF", bytes: null, top_logprobs: [] }])),
      ).replace('"INF"', "-Infinity"),
    },
    client: { ...READS, json: logprobs([{ token: "NaN", logprob: -9999 }]) },
    charged: CHARGED,
  },
  {
    says: "NaN in a stream",
    source: "github.com/PrimeIntellect-ai/prime-rl/pull/2082",
    request: STREAMED,
    provider: {
      events: [
        BEGIN,
        `data: ${json(chunk({ content: "good" }, null, { score: "NAN" })).replace('"NAN"', "NaN")}\n\n`,
        STOP,
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A character in two halves, each in a delta of its own",
    source: "github.com/elie222/rakazo/issues/416; github.com/elizaOS/eliza/issues/30904",
    request: STREAMED,
    provider: {
      events: [
        BEGIN,
        ...["a \\ud83d", "\\ude00", " b \\ud83d", "\\ude00 c \\ud83d"].map((text) =>
          escaped({ content: "TEXT" }, text),
        ),
        chunk({ content: "d" }),
        STOP,
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: { text: "a 😀 b 😀 c \uFFFDd", wellFormed: true },
    charged: CHARGED,
  },
  {
    says: "The same in the arguments of a call",
    source: "github.com/elizaOS/eliza/issues/30904",
    request: STREAMED,
    provider: {
      events: [
        BEGIN,
        escaped(
          { tool_calls: [{ index: 0, id: "a", type: "function", function: { name: "toll", arguments: "TEXT" } }] },
          '{\\"gate\\":\\"\\ud83d',
        ),
        escaped({ tool_calls: [{ index: 0, function: { arguments: "TEXT" } }] }, '\\ude00\\"}'),
        chunk({}, "tool_calls"),
        USAGE_CHUNK,
        DONE,
      ],
    },
    client: { calls: [{ name: "toll", arguments: '{"gate":"😀"}' }], wellFormed: true },
    charged: CHARGED,
  },
  {
    says: "Half a character at the end of a whole answer",
    source: "github.com/elie222/rakazo/issues/416: an answer that its cap has cut",
    request: WHOLE,
    provider: { text: json(completion({ content: "TEXT" }, "length")).replace('"TEXT"', '"a \\ud83d"') },
    client: { text: "a \uFFFD", wellFormed: true },
    charged: CHARGED,
  },
  ...[
    completion({ content: [thought("Who?"), { type: "text", text: "good" }] }),
    [
      chunk({ role: "assistant", content: [thought("Wh")] }),
      chunk({ content: [thought("o?")] }),
      GOOD,
      STOP,
      USAGE_CHUNK,
      DONE,
    ],
  ].map(
    (answer): Entry => ({
      says: `Databricks: reasoning as a summary in a list${Array.isArray(answer) ? ", as a stream" : ""}`,
      source: "learn.microsoft.com/azure/databricks/machine-learning/model-serving/query-reason-models",
      request: Array.isArray(answer) ? STREAMED : WHOLE,
      provider: Array.isArray(answer) ? { events: answer } : { json: answer },
      client: { ...READS, reasoning: "Who?" },
      charged: CHARGED,
    }),
  ),
  {
    says: "The data that was asked for in place of its text",
    source: "github.com/cloudflare/ai: workers-ai-provider, JSON mode",
    request: { body: { response_format: { type: "json_object" } }, only: "chat" },
    provider: { json: completion({ content: { gate: 1, toll: "3" } }) },
    client: { text: '{"gate":1,"toll":"3"}' },
    charged: CHARGED,
  },
  {
    says: "Cloudflare: the whole answer in `result`",
    source: "github.com/BerriAI/litellm/pull/29833",
    request: WHOLE,
    provider: { json: { result: completion({ content: "good" }), success: true, errors: [], messages: [] } },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "The name of the field twice: `data: data:`",
    source: "github.com/paiml/aprender/pull/2015",
    request: STREAMED,
    provider: {
      events: [BEGIN, GOOD, STOP, USAGE_CHUNK].map((event) => `data: data: ${json(event)}\n\n`).concat(`data: ${DONE}`),
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "DeepSeek: empty lines before a whole answer, while it waits for a place",
    source: "api-docs.deepseek.com/quick_start/rate_limit",
    request: WHOLE,
    provider: {
      dialect: "deepseek",
      headers: { "content-type": "application/json" },
      text: `\n\n\n\n${json(completion({ content: "good" }))}`,
    },
    client: READS,
    charged: CHARGED,
  },
  {
    says: "A refusal as an event, with its status: the client gets the code that agents know",
    source: "github.com/easychen/openai-api-proxy/pull/33; gateways that answer a stream with a stream",
    request: STREAMED,
    provider: {
      status: 400,
      events: [
        { error: { message: "too much", type: "invalid_request_error", code: "context_length_exceeded" } },
        DONE,
      ],
    },
    client: { error: "context_length_exceeded" },
    charged: "nothing",
  },
  {
    says: "The same of a field: its place, and its sentence alone",
    source: "github.com/easychen/openai-api-proxy/pull/33",
    request: { only: "chat", ...STREAMED },
    provider: {
      status: 400,
      events: [`event: error\ndata: ${json({ error: { message: "top_p is 3", code: 400, param: "top_p" } })}\n\n`],
    },
    client: { error: "invalid_request", param: "top_p", message: /^top_p is 3$/ },
    charged: "nothing",
  },
  {
    says: "The operator's credit in an event with the status of a refusal is no fault of the client's: the next route answers",
    source: "platform.openai.com/docs/guides/error-codes: insufficient_quota",
    request: WHOLE,
    provider: [
      { status: 400, events: [{ error: { message: "You have no credit.", code: "insufficient_quota" } }, DONE] },
      GOOD_WHOLE,
    ],
    client: READS,
    charged: CHARGED,
  },
  {
    says: "202 without an answer, as NIM says that a request is pending: the next route answers",
    source: "docs.api.nvidia.com: NVCF-STATUS pending-evaluation",
    request: WHOLE,
    provider: [{ status: 202, headers: { "nvcf-status": "pending-evaluation" }, text: "" }, GOOD_WHOLE],
    client: READS,
    charged: CHARGED,
  },
] satisfies Entry[];
