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

/** More of what broke the clients and gateways of others, and native forms of APIs. */

const json = JSON.stringify;
const line = (event: object | null) => `data: ${json(event)}\n`;
const reads = { client: { text: "good" }, charged: { tokens: [5, 7] } } as const;
const CALL = [{ name: "toll", arguments: '{"gate":1}' }] as const;
const TWO_CALLS = [...CALL, { name: "toll", arguments: '{"gate":2}' }] as const;
const CALL_END = chunk({}, "tool_calls");
const ended = (...events: (string | object)[]) => ({ events: [...events, STOP, USAGE_CHUNK, DONE] });
const piece = (...calls: object[]) => chunk({ tool_calls: calls });
const WITH_USAGE = { body: { stream: true, stream_options: { include_usage: true } } };
const answer = (
  says: string,
  source: string,
  provider: Entry["provider"],
  request: Entry["request"] = STREAMED,
): Entry => ({ says, source, request, provider, ...reads });
const call = (
  says: string,
  source: string,
  provider: ProviderAnswer,
  calls: readonly { name: string; arguments: string }[] = CALL,
): Entry => ({
  ...{ says, source, provider },
  request: "json" in provider ? WHOLE : STREAMED,
  client: { calls, uniqueIds: true },
  charged: { tokens: [5, 7] },
});
const failed = (says: string, source: string, provider: ProviderAnswer, request: Entry["request"] = WHOLE): Entry => ({
  ...{ says, source, request },
  provider: [provider, request === WHOLE ? GOOD_WHOLE : GOOD_STREAM],
  ...reads,
});
const refused = (
  says: string,
  source: string,
  provider: ProviderAnswer,
  client: Partial<Entry["client"]> = {},
  request: Entry["request"] = WHOLE,
): Entry => ({ says, source, request, provider, client: { error: "invalid_request", ...client }, charged: "nothing" });

const COHERE = "docs.cohere.com/reference/chat-stream";
const BEDROCK = "docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_ConverseStream.html";
const GEMINI = "ai.google.dev/api/generate-content";
const TGI = "app.unpkg.com/@huggingface/tasks@0.19.78/files/src/tasks/text-generation/spec/stream_output.json";

export default [
  // Streams.
  answer(
    "AgentRouter: `data: null` between thinking and answer, and no blank lines",
    "github.com/Kilo-Org/kilocode/pull/3083",
    {
      events: [
        line(chunk({ reasoning_content: "\n" })),
        line(null),
        line(chunk({ content: "go" })),
        line(null),
        line(chunk({ content: "od" })),
        line(STOP),
        line(USAGE_CHUNK),
        DONE,
      ],
    },
  ),
  answer(
    "`data: null` to keep a connection open",
    "github.com/NousResearch/hermes-agent/pull/80822",
    ended("data: null\n\n", chunk({ content: "go" }), "data: null\n\n", chunk({ content: "od" })),
  ),
  answer(
    "Azure: a delta of null",
    "github.com/bagofwords1/bagofwords/pull/742",
    ended(
      chunk({ content: "go" }),
      chunk({}, null, { choices: [{ index: 0, delta: null, finish_reason: null, content_filter_results: {} }] }),
      chunk({ content: "od" }),
    ),
  ),
  answer("A delta of null in the chunk that finishes", "github.com/microsoft/agent-framework/pull/5734", {
    events: [
      chunk({ content: "good" }),
      chunk({}, null, { choices: [{ index: 0, delta: null, finish_reason: "stop" }] }),
      USAGE_CHUNK,
      DONE,
    ],
  }),
  answer(
    "Choices without a delta",
    "github.com/QwenLM/qwen-code/pull/1448",
    ended(chunk({ content: "good" }), chunk({}, null, { choices: [{ index: 0, finish_reason: null }] })),
  ),
  answer(
    "v0: a usage without choices, and milliseconds",
    "github.com/vercel/ai/issues/7417",
    {
      events: [
        chunk({ content: "good" }, null, { created: 1752978879176, service_tier: "default" }),
        { ...STOP, created: 1752978879176 },
        { id: "v0-R4", object: "chat.completion.chunk", created: 1752978879176, service_tier: "default", usage: USAGE },
        DONE,
      ],
    },
    WITH_USAGE,
  ),
  answer(
    "Numbers in front of each event's data, as in a log",
    "constructed",
    ended(
      ...[chunk({ content: "go" }), chunk({ content: "od" })].map(
        (event, i) => `id: ${i}\nretry: 100\n${line(event)}\n`,
      ),
    ),
  ),
  answer(
    "Comments between the fields of an event",
    "openrouter.ai/docs/api-reference/streaming",
    ended(
      ": OPENROUTER PROCESSING\n\n",
      chunk({ content: "go" }),
      `: OPENROUTER PROCESSING\n${line(chunk({ content: "od" }))}\n`,
    ),
  ),
  answer(
    "Heartbeats as empty events",
    "constructed",
    ended("data:\n\n", chunk({ content: "go" }), "data: \n\n", chunk({ content: "od" })),
  ),
  answer(
    "Heartbeats as empty objects",
    "constructed",
    ended("data: {}\n\n", chunk({ content: "go" }), "data: {}\n\n", chunk({ content: "od" })),
  ),
  answer(
    "Heartbeats as texts",
    "constructed",
    ended(
      "event: heartbeat\ndata: ping\n\n",
      chunk({ content: "go" }),
      "event: ping\ndata: \n\n",
      chunk({ content: "od" }),
    ),
  ),
  answer(
    "An event with what is in the queue, first",
    "constructed",
    ended({ queue_position: 3, status: "queued" }, chunk({ content: "good" })),
  ),
  answer(
    "Chunks with an empty list of choices between others",
    "learn.microsoft.com/azure/ai-foundry/openai/concepts/content-streaming; form constructed",
    ended(chunk({ content: "go" }), { ...STOP, choices: [] }, chunk({ content: "od" })),
  ),
  answer(
    "Choices of null between others",
    "constructed",
    ended(chunk({ content: "go" }), { ...STOP, choices: null }, chunk({ content: "od" })),
  ),
  answer(
    "A last chunk that repeats the finish reason",
    "constructed",
    { events: [chunk({ content: "good" }), STOP, STOP, { ...STOP, usage: USAGE }, DONE] },
    WITH_USAGE,
  ),
  answer(
    "A content as a list of texts in each delta",
    "docs.mistral.ai/capabilities/reasoning; form constructed",
    ended(chunk({ content: [{ type: "text", text: "go" }] }), chunk({ content: [{ type: "text", text: "od" }] })),
  ),
  answer("A whole message in the chunk that finishes, behind its deltas", "docs.perplexity.ai; form constructed", {
    events: [
      chunk({ content: "go" }),
      chunk({ content: "od" }),
      chunk({}, null, {
        choices: [
          { index: 0, delta: { content: "" }, message: { role: "assistant", content: "good" }, finish_reason: "stop" },
        ],
        usage: USAGE,
      }),
      DONE,
    ],
  }),
  // Calls.
  call(
    "LMDeploy: two calls that all have index 0, and empty ids in each further part",
    "github.com/InternLM/lmdeploy/issues/3412",
    {
      events: [
        piece({ index: 0, id: "c1", type: "function", function: { name: "toll", arguments: "" } }),
        piece({ index: 0, id: "", type: "function", function: { name: null, arguments: '{"gate":1}' } }),
        piece({ index: 0, id: "c2", type: "function", function: { name: "toll", arguments: "" } }),
        piece({ index: 0, id: "", type: "function", function: { name: null, arguments: '{"gate":2}' } }),
        CALL_END,
        USAGE_CHUNK,
        DONE,
      ],
    },
    TWO_CALLS,
  ),
  call(
    "SGLang: two calls that all have index 0, and their ids in each part",
    "github.com/InternLM/lmdeploy/issues/3412",
    {
      events: [
        piece({ index: 0, id: "0", type: "function", function: { name: "toll", arguments: "" } }),
        piece({ index: 0, id: "0", type: "function", function: { name: null, arguments: '{"gate":1}' } }),
        piece({ index: 0, id: "1", type: "function", function: { name: "toll", arguments: "" } }),
        piece({ index: 0, id: "1", type: "function", function: { name: null, arguments: '{"gate":2}' } }),
        CALL_END,
        USAGE_CHUNK,
        DONE,
      ],
    },
    TWO_CALLS,
  ),
  call("A gateway: an empty type in every part", "github.com/sandbaseai/sandbase-harness/pull/220", {
    events: [
      piece({ index: 0, id: "c1", type: "", function: { name: "toll", arguments: '{"ga' } }),
      piece({ index: 0, type: "", function: { arguments: 'te":1}' } }),
      CALL_END,
      USAGE_CHUNK,
      DONE,
    ],
  }),
  call(
    "Indexes that begin at one",
    "constructed",
    {
      events: [
        piece({ index: 1, id: "c1", type: "function", function: { name: "toll", arguments: '{"gate":1}' } }),
        piece({ index: 2, id: "c2", type: "function", function: { name: "toll", arguments: '{"gate":2}' } }),
        CALL_END,
        USAGE_CHUNK,
        DONE,
      ],
    },
    TWO_CALLS,
  ),
  call("Calls in the chunk that finishes", "github.com/vllm-project/vllm-ascend/issues/8327", {
    events: [
      chunk({ role: "assistant", content: "" }),
      chunk(
        { tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "toll", arguments: '{"gate":1}' } }] },
        "tool_calls",
      ),
      USAGE_CHUNK,
      DONE,
    ],
  }),
  call("Arguments as an object in a stream", "github.com/ollama/ollama; form constructed", {
    events: [
      piece({ index: 0, id: "c1", type: "function", function: { name: "toll", arguments: { gate: 1 } } }),
      CALL_END,
      USAGE_CHUNK,
      DONE,
    ],
  }),
  call("A call whose index is null", "constructed", {
    events: [
      piece({ index: null, id: "c1", type: "function", function: { name: "toll", arguments: '{"gate":1}' } }),
      CALL_END,
      USAGE_CHUNK,
      DONE,
    ],
  }),
  {
    ...call("The name of a call in pieces", "constructed", {
      events: [
        piece({ index: 0, id: "c1", type: "function", function: { name: "to", arguments: "" } }),
        piece({ index: 0, function: { name: "ll" } }),
        piece({ index: 0, function: { arguments: '{"gate":1}' } }),
        CALL_END,
        USAGE_CHUNK,
        DONE,
      ],
    }),
    request: { only: "chat", ...STREAMED },
  },
  // Whole answers.
  answer(
    "OpenRouter: nulls, and the answer in `provider`",
    "github.com/pydantic/pydantic-ai/pull/4528",
    {
      json: {
        ...{ id: null, choices: null, model: null, object: null },
        provider: { ...completion({ content: "good" }), provider: "Google" },
      },
    },
    WHOLE,
  ),
  refused(
    "OpenRouter: nulls beside an error",
    "github.com/pydantic/pydantic-ai/pull/4528",
    {
      json: { id: null, choices: null, error: { message: "no such role", code: 400 }, user_id: "org_1" },
    },
    { message: "no such role" },
  ),
  {
    ...answer(
      "Nebius: `metadata` with a list",
      "github.com/pydantic/pydantic-ai/issues/8009",
      {
        json: completion({ content: "good" }, "stop", {
          metadata: { weight_version: "default", weight_versions: [{ version: "default", start: 0, end: 102 }] },
        }),
      },
      { only: "chat" },
    ),
    client: { text: "good", absent: ["metadata.weight_versions"] },
  },
  answer(
    "A refusal of null, an empty list of calls, and annotations of null",
    "constructed",
    {
      json: completion({ content: "good", refusal: null, tool_calls: [], annotations: null, audio: null }),
    },
    WHOLE,
  ),
  answer(
    "The choice as an object with an index as its name",
    "constructed",
    {
      json: {
        ...completion({}),
        choices: { 0: { message: { role: "assistant", content: "good" }, finish_reason: "stop" } },
      },
    },
    WHOLE,
  ),
  // Errors.
  refused(
    "Perplexity: an invalid streaming request is a 200 whose first event is the error",
    "github.com/openclaw/clawrouter/issues/101",
    {
      events: ['event: error\ndata: {"error":{"message":"invalid request","type":"invalid_request","code":400}}\n\n'],
    },
    { message: "invalid request" },
    STREAMED,
  ),
  {
    ...refused(
      "lemonade: the server's error without `data:` in a stream",
      "github.com/lemonade-sdk/lemonade/pull/2975",
      {
        headers: { "content-type": "text/event-stream" },
        text: json({
          error: {
            code: 400,
            message: "request (6009 tokens) exceeds the available context size (4096 tokens),\n try increasing it",
            type: "exceed_context_size_error",
          },
        }),
      },
      {},
      STREAMED,
    ),
    client: { error: "context_length_exceeded", message: "exceeds the available context size" },
  },
  failed(
    "Anthropic's overload as an event",
    "github.com/liaohch3/claude-tap/issues/43",
    {
      events: ['event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n'],
    },
    STREAMED,
  ),
  failed("A page of a proxy as a good answer", "constructed", {
    text: "<html><body>Sign in</body></html>",
    headers: { "content-type": "text/html" },
  }),
  failed("An empty body as a good answer", "constructed", {
    text: "",
    headers: { "content-type": "application/json" },
  }),
  failed(
    "An empty body as a stream",
    "constructed",
    { text: "", headers: { "content-type": "text/event-stream" } },
    STREAMED,
  ),
  failed("A text that is no JSON as a good answer", "constructed", {
    text: "Internal Server Error",
    headers: { "content-type": "text/plain" },
  }),
  failed("null as a good answer", "constructed", { json: null }),
  failed("A status alone as a good answer", "constructed", { json: { status: "ok" } }),
  failed("An upstream's message as a good answer", "constructed", { json: { message: "no healthy upstream" } }),
  failed("A 204 without a body", "constructed", { status: 204, text: "" }),
  failed("A 202 that says that the work is queued", "docs.nvidia.com/cloud-functions; form constructed", {
    status: 202,
    json: { reqId: "1", status: "pending-evaluation" },
  }),
  failed("A redirect", "constructed", { status: 302, headers: { location: "http://127.0.0.1:9/" }, text: "" }),
  {
    says: "An error in the text of an event behind half an answer",
    source: "constructed",
    request: STREAMED,
    provider: { events: [chunk({ content: "half" }), "data: Internal Server Error\n\n"], end: "closed" },
    client: { text: "half", error: "provider_unavailable" },
    charged: "nothing",
  },
  // Native forms.
  answer(
    "Cohere's whole answer",
    COHERE,
    {
      json: {
        id: "c14c80c3",
        finish_reason: "COMPLETE",
        message: { role: "assistant", content: [{ type: "text", text: "good" }] },
        usage: { billed_units: { input_tokens: 5, output_tokens: 7 }, tokens: { input_tokens: 71, output_tokens: 8 } },
      },
    },
    WHOLE,
  ),
  answer("Cohere's events", COHERE, {
    events: [
      {
        type: "message-start",
        id: "29f14a5a",
        delta: { message: { role: "assistant", content: [], tool_plan: "", tool_calls: [], citations: [] } },
      },
      { type: "content-start", index: 0, delta: { message: { content: { type: "text", text: "" } } } },
      { type: "content-delta", index: 0, delta: { message: { content: { text: "go" } } } },
      { type: "content-delta", index: 0, delta: { message: { content: { text: "od" } } } },
      { type: "content-end", index: 0 },
      {
        type: "message-end",
        delta: {
          finish_reason: "COMPLETE",
          usage: {
            billed_units: { input_tokens: 5, output_tokens: 7 },
            tokens: { input_tokens: 71, output_tokens: 8 },
          },
        },
      },
    ],
  }),
  call("Cohere's events of a call", COHERE, {
    events: [
      {
        type: "message-start",
        id: "29f14a5a",
        delta: { message: { role: "assistant", content: [], tool_plan: "", tool_calls: [], citations: [] } },
      },
      { type: "tool-plan-delta", delta: { message: { tool_plan: "I look." } } },
      {
        type: "tool-call-start",
        index: 0,
        delta: {
          message: { tool_calls: { id: "toll_1", type: "function", function: { name: "toll", arguments: "" } } },
        },
      },
      { type: "tool-call-delta", index: 0, delta: { message: { tool_calls: { function: { arguments: '{"gate"' } } } } },
      { type: "tool-call-delta", index: 0, delta: { message: { tool_calls: { function: { arguments: ":1}" } } } } },
      { type: "tool-call-end", index: 0 },
      {
        type: "message-end",
        delta: { finish_reason: "TOOL_CALL", usage: { billed_units: { input_tokens: 5, output_tokens: 7 } } },
      },
    ],
  }),
  answer(
    "Bedrock's whole answer of Converse",
    BEDROCK,
    {
      json: {
        output: { message: { role: "assistant", content: [{ text: "good" }] } },
        stopReason: "end_turn",
        usage: { inputTokens: 5, outputTokens: 7, totalTokens: 12 },
        metrics: { latencyMs: 900 },
      },
    },
    WHOLE,
  ),
  answer("Bedrock's events of ConverseStream", BEDROCK, {
    events: [
      { messageStart: { role: "assistant" } },
      { contentBlockDelta: { contentBlockIndex: 0, delta: { text: "go" } } },
      { contentBlockDelta: { contentBlockIndex: 0, delta: { text: "od" } } },
      { contentBlockStop: { contentBlockIndex: 0 } },
      { messageStop: { stopReason: "end_turn" } },
      { metadata: { usage: { inputTokens: 5, outputTokens: 7, totalTokens: 12 }, metrics: { latencyMs: 9 } } },
    ],
  }),
  answer(
    "Gemini's whole answer",
    GEMINI,
    {
      json: {
        candidates: [
          { content: { role: "model", parts: [{ text: "go" }, { text: "od" }] }, finishReason: "STOP", index: 0 },
        ],
        usageMetadata: { promptTokenCount: 5, candidatesTokenCount: 7, totalTokenCount: 12 },
        modelVersion: "up",
      },
    },
    WHOLE,
  ),
  answer("Gemini's events", GEMINI, {
    events: [
      {
        candidates: [{ content: { role: "model", parts: [{ text: "go" }] }, index: 0 }],
        usageMetadata: { promptTokenCount: 5, totalTokenCount: 5 },
      },
      {
        candidates: [{ content: { role: "model", parts: [{ text: "od" }] }, finishReason: "STOP", index: 0 }],
        usageMetadata: { promptTokenCount: 5, candidatesTokenCount: 7, totalTokenCount: 12 },
      },
    ],
  }),
  refused("Gemini's answer to a prompt that is blocked", GEMINI, {
    json: {
      promptFeedback: { blockReason: "PROHIBITED_CONTENT" },
      usageMetadata: { promptTokenCount: 5, totalTokenCount: 5 },
    },
  }),
  answer(
    "TGI's own whole answer",
    TGI,
    {
      json: [{ generated_text: "good", details: { finish_reason: "eos_token", generated_tokens: 7, input_length: 5 } }],
    },
    WHOLE,
  ),
  answer("TGI's own events", TGI, {
    events: [
      { index: 1, token: { id: 1, text: "go", logprob: -1, special: false }, generated_text: null, details: null },
      { index: 2, token: { id: 2, text: "od", logprob: -1, special: false }, generated_text: null, details: null },
      {
        index: 3,
        token: { id: 3, text: "</s>", logprob: -1, special: true },
        generated_text: "good",
        details: { finish_reason: "eos_token", generated_tokens: 7, input_length: 5 },
      },
    ],
  }),
  answer(
    "watsonx's own whole answer",
    "ibm.github.io/watsonx-ai-node-sdk/interfaces/0_1_x.WatsonXAI.TextGenResult-1.html",
    {
      json: {
        model_id: "up",
        results: [{ generated_text: "good", generated_token_count: 7, input_token_count: 5, stop_reason: "eos_token" }],
      },
    },
    WHOLE,
  ),
  answer("Workers AI's own events", "developers.cloudflare.com/workers-ai; form constructed", {
    events: [
      'data: {"response":"go","p":"abdef"}\n\n',
      'data: {"response":"od","p":"abd"}\n\n',
      { response: "", usage: USAGE },
      DONE,
    ],
  }),
  answer("Ollama's own lines", "github.com/ollama/ollama/blob/main/docs/api.md", {
    headers: { "content-type": "application/x-ndjson" },
    text: [
      { model: "up", message: { role: "assistant", content: "go" }, done: false },
      { model: "up", message: { role: "assistant", content: "od" }, done: false },
      {
        model: "up",
        message: { role: "assistant", content: "" },
        done: true,
        done_reason: "stop",
        prompt_eval_count: 5,
        eval_count: 7,
      },
    ]
      .map((event) => `${json(event)}\n`)
      .join(""),
  }),
  answer(
    "llama.cpp's own events",
    "github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md; form constructed",
    {
      events: [
        { index: 0, content: "go", tokens: [1], stop: false, id_slot: -1, tokens_predicted: 1, tokens_evaluated: 5 },
        { index: 0, content: "od", tokens: [2], stop: false, id_slot: -1, tokens_predicted: 2, tokens_evaluated: 5 },
        {
          index: 0,
          content: "",
          stop: true,
          stop_type: "eos",
          tokens_predicted: 7,
          tokens_evaluated: 5,
          timings: { cache_n: 0, prompt_n: 5, predicted_n: 7 },
        },
      ],
    },
  ),
] satisfies Entry[];
