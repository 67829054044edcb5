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

/** What broke the clients and gateways of others: providers as they were reported. */

const json = JSON.stringify;
const reads = { client: { text: "good" }, charged: { tokens: [5, 7] } } as const;
const CALL = [{ name: "toll", arguments: '{"gate":1}' }] as const;
const calls = { client: { calls: CALL, uniqueIds: true }, charged: { tokens: [5, 7] } } as const;
const CALL_END = chunk({}, "tool_calls");
const piece = (call: object, more: object = {}) => chunk({ tool_calls: [call], ...more });
const ended = (...events: (string | object)[]) => ({ events: [...events, STOP, USAGE_CHUNK, DONE] });
const called = (...events: (string | object)[]) => ({ events: [...events, CALL_END, USAGE_CHUNK, DONE] });
/** Without another route. */
const refused = { charged: "nothing" } as const;
const answer = (
  says: string,
  source: string,
  provider: Entry["provider"],
  request: Entry["request"] = STREAMED,
): Entry => ({ says, source, request, provider, ...reads });
const call = (says: string, source: string, provider: Entry["provider"], request = STREAMED): Entry => ({
  ...{ says, source, request, provider },
  ...calls,
});
const refusal = (
  says: string,
  source: string,
  provider: ProviderAnswer,
  client: Omit<Entry["client"], "error"> = {},
): Entry => ({ says, source, request: WHOLE, provider, client: { error: "invalid_request", ...client }, ...refused });

export default [
  // Roles, types, ids and names of deltas.
  answer(
    "An empty role in every delta",
    "github.com/anomalyco/opencode/issues/28427",
    ended(chunk({ role: "", content: "go" }), chunk({ role: "", content: "od" })),
  ),
  {
    ...answer(
      "MiniMax: an empty role beside empty reasoning",
      "github.com/Th0rgal/sandboxed.sh/issues/143",
      ended(chunk({ role: "", reasoning_content: "" }), chunk({ role: "", content: "good", reasoning_content: "" })),
    ),
    request: { only: "chat", body: { stream: true } },
    client: {
      text: "good",
      events: [
        { choices: [{ delta: { role: "assistant" } }] },
        { choices: [{ delta: { role: "assistant", content: "good" } }] },
        { choices: [{ finish_reason: "stop" }] },
      ],
    },
  },
  call(
    "Cloudflare: a role of null, and the id of a call that goes on is null",
    "github.com/Effect-TS/effect/pull/8333",
    called(
      piece({ index: 0, id: "c1", type: "function", function: { name: "toll", arguments: '{"ga' } }, { role: null }),
      piece({ index: 0, id: null, type: null, function: { name: null, arguments: 'te":1}' } }, { role: null }),
    ),
  ),
  answer(
    "Together: calls of null, and the text beside the delta",
    "github.com/vercel/ai/issues/1865",
    ended({
      ...chunk({}),
      choices: [
        {
          ...{ index: 0, text: "good", logprobs: null, finish_reason: null },
          delta: { token_id: 315, role: "assistant", content: "good", tool_calls: null },
        },
      ],
    }),
  ),
  call(
    "DeepInfra: the type of a call comes behind its arguments",
    "github.com/vercel/ai/issues/5350",
    called(
      piece({ index: 0, id: "c1", function: { name: "toll", arguments: "" } }),
      piece({ index: 0, function: { arguments: '{"gate":1}' } }),
      piece({ index: 0, type: "function" }),
    ),
  ),
  call(
    "Mistral at Azure: a call without a type",
    "github.com/vercel/ai/pull/12901",
    called(piece({ index: 0, id: "c1", function: { name: "toll", arguments: '{"gate":1}' } })),
  ),
  call(
    "SiliconFlow: an empty name in each further part of a call",
    "github.com/xuzhougeng/wisp-science/issues/222",
    called(
      piece({ index: 0, id: "c1", type: "function", function: { name: "toll", arguments: "" } }),
      piece({ index: 0, id: "c1", type: "function", function: { name: "", arguments: '{"gate"' } }),
      piece({ index: 0, id: "c1", type: "function", function: { name: "", arguments: ":1}" } }),
    ),
  ),
  call(
    "LM Studio: an empty name and no id in each further part",
    "github.com/lmstudio-ai/lmstudio-bug-tracker/issues/649",
    called(
      piece({ index: 0, id: "1", type: "function", function: { name: "toll", arguments: "" } }),
      piece({ index: 0, type: "function", function: { name: "", arguments: '{"gate":' } }),
      piece({ index: 0, type: "function", function: { name: "", arguments: "1}" } }),
    ),
  ),
  call(
    "SambaNova and Grok: a call without an index",
    "github.com/vercel/ai/issues/7238; github.com/chenyme/grok2api/issues/239",
    called(piece({ id: "c1", type: "function", function: { name: "toll", arguments: '{"gate":1}' } })),
  ),
  {
    ...call(
      "LiteLLM: nulls, a role and a type in every part of two calls",
      "github.com/agno-agi/agno/issues/3826",
      called(
        ...[
          { id: "c1", function: { arguments: "", name: "toll" }, type: "function", index: 0 },
          { id: null, function: { arguments: '{"gate":1}', name: null }, type: "function", index: 0 },
          { id: "c2", function: { arguments: "", name: "toll" }, type: "function", index: 1 },
          { id: null, function: { arguments: "{}", name: null }, type: "function", index: 1 },
        ].map((part) =>
          piece(part, { provider_specific_fields: null, refusal: null, content: null, role: "assistant", audio: null }),
        ),
      ),
    ),
    client: { calls: [...CALL, { name: "toll", arguments: "{}" }], uniqueIds: true },
  },
  {
    ...call(
      "Gemini: two calls of a whole answer, each with an empty id",
      "ai.google.dev/gemini-api/docs/openai; form constructed",
      {
        json: completion(
          { content: null, tool_calls: CALL.concat(CALL).map((one) => ({ id: "", type: "function", function: one })) },
          "tool_calls",
        ),
      },
      WHOLE,
    ),
    client: { calls: [...CALL, ...CALL], uniqueIds: true },
  },
  call(
    "An id of a call that is a number",
    "constructed",
    { json: completion({ content: null, tool_calls: [{ id: 7, type: "function", function: CALL[0] }] }, "tool_calls") },
    WHOLE,
  ),
  // The form of tools before tool calls.
  call(
    "GigaChat: a function_call with an object, in answer to tools",
    "developers.sber.ru/docs/ru/gigachat/guides/functions/overview; form constructed",
    {
      json: completion({ content: "", function_call: { name: "toll", arguments: { gate: 1 } } }, "function_call"),
    },
    { body: { tools: [{ type: "function", function: { name: "toll", parameters: { type: "object" } } }] } },
  ),
  call(
    "A function_call in pieces, in answer to tools",
    "github.com/mudler/LocalAI, pkg/functions; form constructed",
    {
      events: [
        chunk({ role: "assistant", content: null, function_call: { name: "toll", arguments: "" } }),
        chunk({ function_call: { arguments: '{"gate"' } }),
        chunk({ function_call: { arguments: ":1}" } }),
        chunk({}, "function_call"),
        USAGE_CHUNK,
        DONE,
      ],
    },
    {
      body: {
        stream: true,
        tools: [{ type: "function", function: { name: "toll", parameters: { type: "object" } } }],
      },
    },
  ),
  // The end of an answer.
  answer(
    "Gemini: the reason under the name finishReason, beside one that is null",
    "github.com/jakobdylanc/llmcord/issues/84",
    {
      events: [
        chunk({ content: "good" }),
        chunk({}, null, {}),
        { ...STOP, choices: [{ index: 0, delta: {}, finish_reason: null, finishReason: "stop" }], usage: USAGE },
        DONE,
      ],
    },
  ),
  answer("The same, and no [DONE]", "github.com/jakobdylanc/llmcord/issues/84", {
    events: [
      chunk({ content: "good" }),
      { ...STOP, choices: [{ index: 0, delta: {}, finish_reason: null, finishReason: "stop" }], usage: USAGE },
    ],
  }),
  answer(
    "The reason under the name finishReason, in a whole answer",
    "constructed",
    {
      json: {
        ...completion({ content: "good" }),
        choices: [{ index: 0, message: { content: "good" }, finishReason: "STOP" }],
      },
    },
    WHOLE,
  ),
  answer(
    "The reason under the name stop_reason, in a whole answer",
    "constructed",
    {
      json: {
        ...completion({ content: "good" }),
        choices: [{ index: 0, message: { content: "good" }, stop_reason: "end_turn" }],
      },
    },
    WHOLE,
  ),
  answer("Vertex AI: the reason in every chunk", "github.com/BerriAI/litellm/issues/2195", {
    events: [chunk({ content: "go" }, "stop"), chunk({ content: "od" }, "stop"), USAGE_CHUNK, DONE],
  }),
  // Frames.
  answer("iFlow: no space behind the field, and members of its own", "github.com/Kurama622/llm.nvim/issues/142", {
    events: [
      chunk({ role: "assistant", content: "" }),
      chunk({ content: "good", reasoning_content: "" }),
      STOP,
      USAGE_CHUNK,
    ]
      .map((event) => `data:${json({ ...event, extend_fields: { traceId: "t" } })}\n\n`)
      .concat("data:[DONE]\n\n"),
  }),
  answer(
    "LocalAI: zeros as the usage of every chunk, and no finish_reason until the end",
    "github.com/mudler/LocalAI/issues/1744",
    {
      events: [
        ...["", "go", "od"].map((content) => ({
          ...chunk({}),
          choices: [{ index: 0, delta: { content } }],
          usage: { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 },
        })),
        { ...STOP, usage: USAGE },
        DONE,
      ],
    },
  ),
  // Errors behind a beginning.
  answer(
    "SiliconFlow: filter results, then the body of an error without its field: the next route answers",
    "github.com/lobehub/lobehub/pull/4335",
    [
      {
        events: [
          {
            ...chunk({ content: "", role: "assistant" }),
            usage: { prompt_tokens: 105, completion_tokens: 0, total_tokens: 105 },
          },
          '{"code":60000,"message":"Request processing has failed due to some unknown error.","data":null}',
        ],
        end: "closed",
      },
      GOOD_STREAM,
    ],
  ),
  {
    says: "The same behind half an answer",
    source: "github.com/lobehub/lobehub/pull/4335",
    request: STREAMED,
    provider: {
      events: [
        chunk({ content: "go" }),
        '{"code":60000,"message":"Request processing has failed due to some unknown error.","data":null}',
      ],
      end: "closed",
    },
    client: { text: "go", error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "OpenRouter: an error in a choice that ends with one, behind half an answer",
    source: "github.com/genkit-ai/genkit/pull/6259",
    request: STREAMED,
    provider: {
      events: [
        chunk({ content: "Partial " }),
        {
          ...chunk({}),
          choices: [
            { index: 0, delta: {}, finish_reason: "error", error: { message: "upstream timed out", code: 504 } },
          ],
        },
        DONE,
      ],
    },
    client: { text: "Partial ", error: "provider_unavailable" },
    charged: "nothing",
  },
  answer(
    "Azure: the filter itself had an error, and the answer is good",
    "learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter",
    {
      json: {
        ...completion({ content: "good" }),
        choices: [
          {
            ...{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "good" } },
            content_filter_results: {
              error: { code: "content_filter_error", message: "The contents are not filtered" },
            },
          },
        ],
        prompt_filter_results: [
          {
            prompt_index: 0,
            content_filter_results: { error: { code: "content_filter_error", message: "not filtered" } },
          },
        ],
      },
    },
    WHOLE,
  ),
  answer(
    "The same in a stream",
    "learn.microsoft.com/azure/ai-foundry/openai/concepts/content-filter",
    ended({
      ...chunk({ content: "good" }),
      choices: [
        {
          ...{ index: 0, delta: { content: "good" }, finish_reason: null },
          content_filter_results: { error: { code: "content_filter_error", message: "The contents are not filtered" } },
        },
      ],
    }),
  ),
  // Usage, and what the operator pays.
  {
    ...answer(
      "Portkey: only the completion is counted, in the last chunk, which has a message",
      "github.com/Portkey-AI/gateway/issues/858",
      {
        events: [
          {
            ...chunk({}),
            choices: [{ index: 0, finish_reason: "stop", message: { role: "assistant", content: "good" } }],
            usage: { completion_tokens: 7 },
          },
          DONE,
        ],
      },
    ),
    client: { text: "good" },
    charged: { tokens: [12, 7] },
  },
  answer(
    "A completion of null beside a prompt and a total",
    "constructed",
    {
      json: {
        ...completion({ content: "good" }),
        usage: { prompt_tokens: 5, completion_tokens: null, total_tokens: 12 },
      },
    },
    WHOLE,
  ),
  answer("The usage between the text and its end", "constructed", {
    events: [chunk({ content: "good" }), USAGE_CHUNK, STOP, DONE],
  }),
  ...[
    [
      "xAI",
      "docs.x.ai/docs/api-reference",
      { usage: { ...USAGE, num_sources_used: 0, cost_in_usd_ticks: 158500 } },
      "158500",
    ],
    ["DeepInfra", "deepinfra.com/docs/openai_api", { usage: { ...USAGE, estimated_cost: 0.000987 } }, "0.000987"],
    [
      "OpenRouter",
      "openrouter.ai/docs/use-cases/usage-accounting",
      { usage: { ...USAGE, cost: 0.000987, cost_details: { upstream_inference_cost: 0.000876 } } },
      "0.000",
    ],
    [
      "Vercel's gateway",
      "vercel.com/docs/ai-gateway/openai-compat; form constructed",
      { usage: { ...USAGE, cost: 0.000987, market_cost: 0.000876 } },
      "0.000",
    ],
    [
      "Vercel's gateway, beside the message",
      "vercel.com/docs/ai-gateway/openai-compat; form constructed",
      { providerMetadata: { gateway: { cost: "0.000987", marketCost: "0.000876" } } },
      "0.000",
    ],
    [
      "LiteLLM",
      "docs.litellm.ai/docs/proxy/cost_tracking; form constructed",
      { _hidden_params: { response_cost: 0.000987 } },
      "0.000",
    ],
    [
      "Perplexity",
      "docs.perplexity.ai/api-reference/chat-completions-post",
      { usage: { ...USAGE, cost: { input_tokens_cost: 0.000987, total_cost: 0.000987 } } },
      "0.000",
    ],
    ["NanoGPT", "constructed", { x_nanogpt_pricing: { cost: 0.000987, currency: "USD" } }, "0.000"],
  ].map(
    ([who, source, members, unsaid]): Entry => ({
      ...answer(
        `What the operator pays is not told: ${who}`,
        String(source),
        { json: { ...completion({ content: "good" }), ...(members as object) } },
        WHOLE,
      ),
      client: { text: "good", usage: [5, 7, 12], unsaid: [String(unsaid)] },
    }),
  ),
  // Statuses.
  answer(
    "A good answer with the status 201",
    "constructed",
    { status: 201, json: completion({ content: "good" }) },
    WHOLE,
  ),
  answer(
    "204 without an answer: the next route answers",
    "constructed",
    [{ status: 204, text: "" }, GOOD_WHOLE],
    WHOLE,
  ),
  answer(
    "A redirect that keeps the method: the next route answers",
    "constructed",
    [{ status: 308, text: "", headers: { location: "https://example.com/v1/chat/completions" } }, GOOD_WHOLE],
    WHOLE,
  ),
  answer(
    "Cloudflare: error code 524 as a text: the next route answers",
    "developers.cloudflare.com/support/troubleshooting/http-status-codes/cloudflare-5xx-errors/error-524",
    [{ status: 524, text: "error code: 524", headers: { "content-type": "text/plain" } }, GOOD_WHOLE],
    WHOLE,
  ),
  answer(
    "Hugging Face: a model that is loading: the next route answers",
    "huggingface.co/docs/api-inference/detailed_parameters",
    [{ status: 503, json: { error: "Model x is currently loading", estimated_time: 20 } }, GOOD_WHOLE],
    WHOLE,
  ),
  answer(
    "A gateway to Bedrock: throttling as 500: the next route answers",
    "github.com/aws-samples/bedrock-access-gateway; form constructed",
    [
      {
        status: 500,
        json: { detail: "An error occurred (ThrottlingException) when calling the ConverseStream operation" },
      },
      GOOD_WHOLE,
    ],
    WHOLE,
  ),
  answer(
    "Moonshot: an overloaded engine as 429: the next route answers",
    "platform.moonshot.ai/docs/api/chat",
    [
      {
        status: 429,
        json: {
          error: {
            message: "The engine is currently overloaded, please try again later",
            type: "engine_overloaded_error",
          },
        },
      },
      GOOD_WHOLE,
    ],
    WHOLE,
  ),
  {
    says: "GitHub Models: the time to wait stands in the sentence",
    source: "docs.github.com/github-models/use-github-models/prototyping-with-ai-models; form constructed",
    request: WHOLE,
    provider: {
      status: 429,
      json: {
        error: {
          ...{ code: "RateLimitReached", details: "Rate limit of 10 per 60s exceeded for UserByModelByMinute." },
          message: "Rate limit of 10 per 60s exceeded for UserByModelByMinute. Please wait 12 seconds before retrying.",
        },
      },
    },
    client: { error: "provider_unavailable", retryAfter: [11, 13] },
    charged: "nothing",
  },
  // Refusals of the request.
  {
    ...refusal(
      "OpenAI: tools beside an effort of reasoning",
      "github.com/bug-ops/zeph/issues/5789",
      {
        status: 400,
        json: {
          error: {
            message:
              "Function tools with reasoning_effort are not supported for gpt-5.4-mini in /v1/chat/completions. Please use /v1/responses instead.",
            ...{ type: "invalid_request_error", param: "reasoning_effort", code: null },
          },
        },
      },
      { message: "Function tools with reasoning_effort are not supported", param: "reasoning_effort" },
    ),
    // /responses has another name of the field.
    request: { only: "chat" },
  },
  refusal(
    "Moonshot behind a gateway: an error in a detail in a detail",
    "github.com/router-for-me/CLIProxyAPI/issues/1307",
    {
      status: 400,
      json: {
        detail: `Invalid request: ${json({ detail: { error: { message: "1 validation error: reasoning_effort", type: "invalid_request_error" } } })}`,
      },
    },
    { message: "1 validation error: reasoning_effort" },
  ),
  refusal(
    "DashScope: a model that only streams",
    "github.com/FoundationAgents/OpenManus/issues/393",
    {
      status: 400,
      json: {
        error: {
          ...{ code: "invalid_parameter_error", param: null, type: "invalid_request_error" },
          message: "This model only support stream mode, please enable the stream parameter to access the model. ",
        },
      },
    },
    { message: "only support stream mode" },
  ),
  refusal(
    "watsonx: a list of errors beside a trace",
    "cloud.ibm.com/apidocs/watsonx-ai; form constructed",
    {
      status: 400,
      json: {
        errors: [
          {
            code: "invalid_input_argument",
            message: "Invalid input argument for Model 'x': top_p must be at most 1",
            more_info: "https://cloud.ibm.com/apidocs/watsonx-ai",
          },
        ],
        ...{ trace: "7d5c", status_code: 400 },
      },
    },
    { message: "top_p must be at most 1", unsaid: ["cloud.ibm.com"] },
  ),
  refusal(
    "Databricks: a code in capital letters",
    "docs.databricks.com/api/workspace/servingendpoints/query",
    { status: 400, json: { error_code: "INVALID_PARAMETER_VALUE", message: "temperature must be at most 2" } },
    { message: "temperature must be at most 2" },
  ),
  refusal(
    "Mistral: what is wrong stands in an object",
    "github.com/BerriAI/litellm/issues/10111; form constructed",
    {
      status: 422,
      json: {
        ...{ object: "error", type: "invalid_request_error", param: null, code: null },
        message: { detail: [{ type: "extra_forbidden", loc: ["body", "x"], msg: "Extra inputs are not permitted" }] },
      },
    },
    { message: "Extra inputs are not permitted", param: "x" },
  ),
  refusal(
    "Groq: the model has written no call",
    "console.groq.com/docs/tool-use",
    {
      status: 400,
      json: {
        error: {
          message: "Failed to call a function. Please adjust your prompt. See 'failed_generation' for more details.",
          ...{ type: "invalid_request_error", code: "tool_use_failed", failed_generation: "<function=toll" },
        },
      },
    },
    { message: "Failed to call a function" },
  ),
  // Contents.
  answer("A content that is a list of texts", "constructed", ended(chunk({ content: ["go", "od"] }))),
  answer(
    "A content in a part of the Responses API",
    "constructed",
    { json: completion({ content: [{ type: "output_text", text: "good", annotations: [] }] }) },
    WHOLE,
  ),
  {
    ...answer(
      "Perplexity: sources beside the answer pass",
      "docs.perplexity.ai/api-reference/chat-completions-post",
      { json: { ...completion({ content: "good" }), citations: ["https://example.com/tolls"] } },
      { only: "chat" },
    ),
    client: { text: "good", json: { citations: ["https://example.com/tolls"] } },
  },
  {
    ...answer(
      "Cerebras: times beside the usage pass",
      "inference-docs.cerebras.ai/api-reference/chat-completions",
      { json: { ...completion({ content: "good" }), time_info: { queue_time: 0.1, total_time: 0.3, created: 1 } } },
      { only: "chat" },
    ),
    client: { text: "good", json: { time_info: { total_time: 0.3 } } },
  },
] satisfies Entry[];
