import { type Entry, type ProviderAnswer, STREAMED, WHOLE } from "../form.ts";

/** A content that a provider does not allow is the client's: a customer who asks for it must not close the route to others. */

type Case = readonly [who: string, source: string, answer: ProviderAnswer, isOfStream?: boolean];

const CASES: readonly Case[] = [
  [
    "xAI: 403 with a code that speaks of a permission",
    "github.com/UKGovernmentBEIS/inspect_ai/pull/2267; github.com/theopenco/llmgateway/pull/1785",
    {
      status: 403,
      json: {
        code: "The caller does not have permission to execute the specified operation",
        error:
          "Content violates usage guidelines. Team: t, API key ID: k, Model: up, Failed check: SAFETY_CHECK_TYPE_BIO",
      },
    },
  ],
  [
    "StepFun: 451",
    "platform.stepfun.com/docs/guide/error: 451 censorship_blocked; form constructed",
    {
      status: 451,
      json: {
        error: { message: "The content you provided or machine outputted is blocked.", type: "censorship_blocked" },
      },
    },
  ],
  [
    "Cohere: 498",
    "docs.cohere.com/reference/errors: 498, input or output tokens are blocked; form constructed",
    { status: 498, json: { message: "blocked input: please try again", code: "prompt_blocked" } },
  ],
  [
    "Anthropic: an output",
    "github.com/anthropics/claude-code/issues/6195",
    {
      status: 400,
      json: {
        type: "error",
        error: { type: "invalid_request_error", message: "Output blocked by content filtering policy" },
        request_id: null,
      },
    },
  ],
  [
    "Gemini: a code in the first event",
    "ai.google.dev/gemini-api/docs/api-errors: prohibited_content",
    { events: [{ error: { code: "prohibited_content", message: "The request was blocked." } }] },
    true,
  ],
  [
    "Gemini: personal data",
    "ai.google.dev/gemini-api/docs/api-errors: spii",
    { events: [{ error: { code: "spii", message: "The request was blocked." } }] },
    true,
  ],
  [
    "New API: sensitive words",
    "github.com/QuantumNous/new-api, types/error.go: sensitive_words_detected; form constructed",
    {
      events: [
        { error: { message: "sensitive words detected", type: "new_api_error", code: "sensitive_words_detected" } },
      ],
    },
    true,
  ],
  [
    "New API: a prompt that Gemini blocks",
    "github.com/QuantumNous/new-api, types/error.go: prompt_blocked; form constructed",
    { json: { error: { message: "request blocked by Gemini API", type: "new_api_error", code: "prompt_blocked" } } },
  ],
  [
    "Volcengine: a code in the first event",
    "www.volcengine.com/docs/82379/1299023: SensitiveContentDetected; form constructed",
    {
      events: [
        { error: { code: "SensitiveContentDetected", message: "The request failed.", param: "", type: "BadRequest" } },
      ],
    },
    true,
  ],
  [
    "DashScope: an event that is an error by its name",
    "help.aliyun.com/zh/model-studio/error-code: DataInspectionFailed; form constructed",
    {
      events: [
        'id:1\nevent:error\n:HTTP_STATUS/400\ndata:{"code":"DataInspectionFailed","message":"Input data may contain inappropriate content.","request_id":"r"}\n\n',
      ],
    },
    true,
  ],
  [
    "iFlytek: its number in a whole answer",
    "www.xfyun.cn/doc/spark: 10013; form constructed",
    { json: { code: 10013, message: "输入内容审核不通过", sid: "cha1" } },
  ],
  [
    "OpenRouter: moderation, with its reasons",
    "openrouter.ai/docs/api-reference/errors-and-debugging: moderation errors; form constructed",
    {
      status: 403,
      json: {
        error: {
          code: 403,
          message: "Input was flagged",
          metadata: { reasons: ["violence"], flagged_input: "…", provider_name: "OpenAI", model_slug: "up" },
        },
      },
    },
  ],
];

export default CASES.map(
  ([who, source, provider, isOfStream]): Entry => ({
    says: `${who}: nobody's failure`,
    source,
    request: isOfStream === true ? STREAMED : WHOLE,
    provider,
    client: { error: "invalid_request" },
    charged: "nothing",
  }),
) satisfies Entry[];
