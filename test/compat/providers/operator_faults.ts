import { type Entry, GOOD_STREAM, GOOD_WHOLE, STREAMED, WHOLE } from "../form.ts";

/**
 * What only the operator can mend, said as if the request were wrong: the key, the place, the name of the model at the provider, or too many
 * calls in a minute. The next route answers, and no client learns of it. Credit: `credit.ts`.
 */

const said = (message: string, more: object = {}) => ({ error: { message, type: "invalid_request_error", ...more } });

type Case = readonly [who: string, source: string, json: object];

const CASES: readonly Case[] = [
  [
    "Gemini: the place of the server",
    "github.com/FoundationAgents/OpenManus/issues/803",
    [
      {
        error: { code: 400, message: "User location is not supported for the API use.", status: "FAILED_PRECONDITION" },
      },
    ],
  ],
  [
    "Gemini: an expired key",
    "ai.google.dev/gemini-api/docs/troubleshooting: API key expired; form constructed",
    [
      {
        error: {
          code: 400,
          message: "API key expired. Please renew the API key.",
          status: "INVALID_ARGUMENT",
          details: [{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", reason: "API_KEY_INVALID" }],
        },
      },
    ],
  ],
  [
    "Anthropic: a disabled organization",
    "github.com/anthropics/claude-code/issues/19028",
    { type: "error", ...said("This organization has been disabled.") },
  ],
  [
    "OpenAI: an organization that is not verified",
    "community.openai.com: Your organization must be verified; form constructed",
    said("Your organization must be verified to use the model `up`. Please go to settings.", {
      param: "stream",
      code: "unsupported_value",
    }),
  ],
  [
    "Anthropic: a limit of usage",
    "docs.claude.com/en/api/errors; platform.claude.com: spend limits; form constructed",
    {
      type: "error",
      ...said("You have reached your specified API usage limits. You will regain access on 2027-01-01 at 00:00 UTC."),
    },
  ],
  [
    "New API: a user's quota",
    "github.com/QuantumNous/new-api, service/quota.go: insufficient_user_quota; form constructed",
    said("用户额度不足, 剩余额度: ＄0.000000", { type: "new_api_error", code: "insufficient_user_quota" }),
  ],
  [
    "SiliconFlow: a model that is not there",
    "github.com/anyme123/Any-code/issues/1",
    { code: 20012, message: "Model does not exist. Please check it carefully.", data: null },
  ],
  [
    "LiteLLM: a model that is not there",
    "github.com/BerriAI/litellm/issues/9663",
    {
      error: {
        message:
          "400: {'error': '/chat/completions: Invalid model name passed in model=up. Call `/v1/models` to view available models for your key.'}",
        type: "None",
        param: "None",
        code: 400,
      },
    },
  ],
  [
    "LiteLLM: the same, its message an object",
    "github.com/BerriAI/litellm/issues/8821",
    {
      error: {
        message: {
          error:
            "/chat/completions: Invalid model name passed in model=up. Call `/v1/models` to view available models for your key.",
        },
        type: "None",
        param: "None",
        code: "400",
      },
    },
  ],
  [
    "Groq: a model that has ended",
    "console.groq.com/docs/deprecations: model_decommissioned; form constructed",
    said("The model `up` has been decommissioned and is no longer supported.", { code: "model_decommissioned" }),
  ],
  [
    "Mistral: a model that is not there",
    "docs.mistral.ai: invalid_model; form constructed",
    { object: "error", message: "Invalid model: up", type: "invalid_model", param: null, code: "1500" },
  ],
  [
    "Perplexity: a model that is not there",
    "docs.perplexity.ai/getting-started/models: invalid_model; form constructed",
    { error: { message: "Invalid model 'up'. Permitted models can be found here.", type: "invalid_model", code: 400 } },
  ],
  [
    "OpenRouter: a model that is not there",
    "openrouter.ai/docs/api-reference/errors; form constructed",
    { error: { message: "up is not a valid model ID", code: 400 }, user_id: "user_1" },
  ],
  [
    "MiniMax: a model that is not there",
    "platform.minimax.io/docs/api-reference/errorcode: 2013; form constructed",
    { type: "error", error: { type: "bad_request_error", message: "invalid params, unknown model 'up' (2013)" } },
  ],
  [
    "Bedrock: a model that needs a profile",
    "docs.aws.amazon.com/bedrock/latest/userguide/inference-profiles-support.html; form constructed",
    {
      message:
        "Invocation of model ID up with on-demand throughput isn’t supported. Retry your request with the ID or ARN of an inference profile that contains this model.",
    },
  ],
  [
    "New API: a group without the model",
    "github.com/QuantumNous/new-api, middleware/distributor.go; form constructed",
    said("No available channel for model up under group default (distributor)", { type: "new_api_error", code: "" }),
  ],
  [
    "Too many calls in a minute, by its type alone",
    "smithy.io/2.0/aws/protocols/aws-json-1_1-protocol.html: ThrottlingException has status 400; form constructed",
    { __type: "ThrottlingException", type: "ThrottlingException", message: "Too many tokens, please wait." },
  ],
];

const READS = { text: "good" } as const;
const CHARGED = { tokens: [5, 7] } as const;

export default [
  ...CASES.flatMap(([who, source, json]): Entry[] => [
    {
      says: `${who}, with status 400: the next route answers`,
      source,
      request: WHOLE,
      provider: [{ status: 400, json }, GOOD_WHOLE],
      client: READS,
      charged: CHARGED,
    },
    {
      says: `${who}, as the first event: the next route answers`,
      source,
      request: STREAMED,
      provider: [{ events: [json] }, GOOD_STREAM],
      client: READS,
      charged: CHARGED,
    },
  ]),
  {
    says: "A model that has ended is gone: the next route answers",
    source: "docs.api.nvidia.com/nim: 410 Gone, end of life; form constructed",
    request: WHOLE,
    provider: [
      { status: 410, json: { status: 410, title: "Gone", detail: "The model 'up' has reached its end of life." } },
      GOOD_WHOLE,
    ],
    client: READS,
    charged: CHARGED,
  },
  {
    says: "The same words behind another sentence are the client's: they may be of the prompt",
    source: "constructed",
    request: WHOLE,
    provider: { status: 400, json: said("messages.0: 'Invalid model: up' is not allowed") },
    client: { error: "invalid_request" },
    charged: "nothing",
  },
  {
    says: "A parameter of the model is the client's",
    source: "github.com/Mai-with-u/MaiBot/issues/1105",
    request: WHOLE,
    provider: {
      status: 400,
      json: {
        code: 20015,
        message: "Value error, current model does not support parameter `enable_thinking`.",
        data: null,
      },
    },
    client: { error: "invalid_request", message: "does not support parameter `enable_thinking`" },
    charged: "nothing",
  },
] satisfies Entry[];
