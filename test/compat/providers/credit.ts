import { type Entry, GOOD_STREAM, GOOD_WHOLE, STREAMED, WHOLE } from "../form.ts";

/** The operator has no credit at the provider, said as if the request were wrong: it is no client's fault, and none learns of it. */

const READS = { text: "good" } as const;
const CHARGED = { tokens: [5, 7] } as const;

const FORMS: readonly (readonly [says: string, source: string, body: object])[] = [
  [
    "Anthropic",
    "github.com/anthropics/claude-code/issues/846: 400 invalid_request_error",
    {
      type: "error",
      error: {
        type: "invalid_request_error",
        message:
          "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.",
      },
    },
  ],
  [
    "DeepSeek",
    "api-docs.deepseek.com/quick_start/error_codes: Insufficient Balance",
    {
      error: { message: "Insufficient Balance", type: "unknown_error", param: null, code: "invalid_request_error" },
    },
  ],
  [
    "DashScope",
    "help.aliyun.com/zh/model-studio/error-code: 400 Arrearage",
    {
      error: {
        message: "Access denied, please make sure your account is in good standing.",
        type: "Arrearage",
        param: null,
        code: "Arrearage",
      },
    },
  ],
  [
    "LiteLLM",
    "docs.litellm.ai/docs/proxy/users: 400 budget_exceeded",
    {
      error: {
        message: "Budget has been exceeded! Current cost: 10.0, Max budget: 5.0",
        type: "budget_exceeded",
        param: null,
        code: "400",
      },
    },
  ],
  [
    "Moonshot",
    "platform.moonshot.ai/docs/api/chat: exceeded_current_quota_error",
    {
      error: {
        message: "Your account is suspended, please check your plan and billing details",
        type: "exceeded_current_quota_error",
      },
    },
  ],
];

export default [
  ...FORMS.flatMap(([says, source, body]): Entry[] => [
    {
      says: `${says}, with status 400: the next route answers`,
      source,
      request: WHOLE,
      provider: [{ status: 400, json: body }, GOOD_WHOLE],
      client: READS,
      charged: CHARGED,
    },
    {
      says: `${says}, as the first event: the next route answers`,
      source,
      request: STREAMED,
      provider: [{ events: [body] }, GOOD_STREAM],
      client: READS,
      charged: CHARGED,
    },
    {
      says: `${says}, and no other route: nothing of it is told`,
      source,
      request: WHOLE,
      provider: { status: 400, json: body },
      client: { error: "invalid_request", message: /^(?!.*(?:credit|balance|budget|standing|account))/i },
      charged: "nothing",
    },
  ]),
  {
    says: "The same words inside a refusal are the client's: it may quote the prompt",
    source: "tried on a replica on 29 November 2026",
    request: WHOLE,
    provider: {
      status: 400,
      json: { error: { message: "messages.0: the text 'Insufficient Balance' is not allowed" } },
    },
    client: { error: "invalid_request" },
    charged: "nothing",
  },
] satisfies Entry[];
