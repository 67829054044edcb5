import { type ClientReads, chunk, DONE, type Entry, STREAMED, WHOLE } from "../form.ts";

/** Errors with status 200 as vendors, gateways and frameworks write them: each as a body, an event, and behind half an answer. */

type Form = {
  says: string;
  source: string;
  body: unknown;
  /** What a client is told that sent the request; without it, the provider has failed. */
  message?: string;
  /** The field that is wrong. */
  param?: string | null;
};

const NO = "temperature is out of range";
const FORMS: readonly Form[] = [
  {
    says: "Gemini: a list of one error",
    source: "github.com/google-gemini/gemini-cli/issues/12823",
    body: [{ error: { code: 400, message: NO, status: "INVALID_ARGUMENT" } }],
    message: NO,
  },
  {
    says: "Gemini behind a gateway: the error is JSON in the message",
    source: "github.com/Kilo-Org/kilocode/issues/6476",
    body: {
      error: { message: JSON.stringify({ error: { code: 400, message: NO } }), code: 400, status: "Bad Request" },
    },
    message: NO,
  },
  {
    says: "Anthropic: a type around the error",
    source: "docs.claude.com/en/api/errors",
    body: { type: "error", error: { type: "invalid_request_error", message: NO }, request_id: "req_1" },
    message: NO,
  },
  {
    says: "Anthropic: overloaded",
    source: "docs.claude.com/en/api/errors",
    body: { type: "error", error: { type: "overloaded_error", message: "Overloaded" } },
  },
  {
    says: "TGI: the type beside the error",
    source: "github.com/huggingface/text-generation-inference/issues/2749",
    body: { error: `Input validation error: ${NO}`, error_type: "validation" },
    message: NO,
  },
  {
    says: "TGI: the status as http_status_code",
    source: "github.com/huggingface/text-generation-inference/pull/2668",
    body: { error: { message: NO, http_status_code: 422 } },
    message: NO,
  },
  {
    says: "Ollama: a text",
    source: "docs.ollama.com/api/errors",
    body: { error: "model runner has unexpectedly stopped" },
  },
  {
    says: "Bedrock: a member named after the exception",
    source: "docs.aws.amazon.com/bedrock: ConverseStreamOutput",
    body: { validationException: { message: NO } },
    message: NO,
  },
  {
    says: "AWS: __type",
    source: "smithy.io/2.0/aws/protocols/aws-json-1_1-protocol.html",
    body: { __type: "ValidationException", message: NO },
    message: NO,
  },
  {
    says: "Tencent: an error in a response, with capital letters",
    source: "cloud.tencent.com/document/api: error codes",
    body: { Response: { Error: { Code: "InvalidParameter", Message: NO }, RequestId: "1" } },
    message: NO,
  },
  {
    says: "Tencent: ErrorMsg in an event",
    source: "cloud.tencent.com/document/product/1729: ChatCompletions",
    body: { ErrorMsg: { Msg: "the server is busy", Code: 4001 } },
  },
  {
    says: "DashScope: a code in words",
    source: "help.aliyun.com/zh/model-studio/error-code",
    body: { code: "InvalidParameter", message: NO, request_id: "1" },
    message: NO,
  },
  {
    says: "Cloudflare: success is false",
    source: "developers.cloudflare.com/workers-ai/platform/errors",
    body: { result: null, success: false, errors: [{ code: 3040, message: "Capacity exceeded" }], messages: [] },
  },
  {
    says: "A list of errors with their statuses",
    source: "jsonapi.org/format/#errors",
    body: { errors: [{ status: "422", title: "Invalid", detail: NO }] },
    message: NO,
  },
  {
    says: "Problem details",
    source: "www.rfc-editor.org/rfc/rfc9457",
    body: { type: "about:blank", title: "Bad Request", status: 400, detail: NO },
    message: NO,
  },
  {
    says: "FastAPI: a list of what is wrong, and where",
    source: "fastapi.tiangolo.com/tutorial/handling-errors",
    body: { detail: [{ type: "less_than_equal", loc: ["body", "temperature"], msg: NO, input: 9 }] },
    message: NO,
    param: "temperature",
  },
  {
    says: "FastAPI: an object as the detail",
    source: "fastapi.tiangolo.com/tutorial/handling-errors",
    body: { detail: { message: NO, code: 400 } },
    message: NO,
  },
  {
    says: "Fastify: the status as statusCode, its name as the error",
    source: "fastify.dev/docs/latest/Reference/Errors",
    body: { statusCode: 400, error: "Bad Request", message: NO },
    message: NO,
  },
  {
    says: "NestJS: a list of messages",
    source: "docs.nestjs.com/techniques/validation",
    body: { statusCode: 400, error: "Bad Request", message: [NO, "top_p is out of range"] },
    message: NO,
  },
  {
    says: "Azure API Management: no error, only a statusCode",
    source: "learn.microsoft.com/azure/api-management/rate-limit-by-key-policy",
    body: { statusCode: 429, message: "Rate limit is exceeded. Try again in 12 seconds." },
  },
  {
    says: "Apigee: a fault",
    source: "docs.apigee.com/api-platform/fundamentals/fault-handling",
    body: {
      fault: { faultstring: "Rate limit quota violation", detail: { errorcode: "policies.ratelimit.QuotaViolation" } },
    },
  },
  {
    says: "An error in an error",
    source: "tried on a replica on 28 November 2026; gateways behind gateways",
    body: { error: { error: { message: NO, type: "invalid_request_error", code: 400 } } },
    message: NO,
  },
  {
    says: "A code beside an empty list of choices",
    source: "tried on a replica on 28 November 2026: counted as an answer without words",
    body: { id: "", object: "chat.completion.chunk", choices: [], code: 400, message: NO },
    message: NO,
  },
  {
    says: "A code beside a usage",
    source: "tried on a replica on 28 November 2026: charged",
    body: { code: 400, msg: NO, usage: { total_tokens: 5 } },
    message: NO,
  },
];

function entriesOf({ says, source, body, message, param = null }: Form): Entry[] {
  const event = `data: ${JSON.stringify(body)}\n\n`;
  const half = [chunk({ role: "assistant", content: "" }), chunk({ content: "good" }), event, DONE];
  const isRefusal = message !== undefined;
  const client: ClientReads = isRefusal
    ? { error: "invalid_request", message, param }
    : { error: "provider_unavailable" };
  const exchange = (as: string, given: Pick<Entry, "request" | "provider"> & Partial<Entry>): Entry => ({
    ...{ says: `${says} (${as})`, source, client, charged: "nothing" },
    ...given,
  });
  return [
    exchange("a body", { request: WHOLE, provider: { json: body } }),
    exchange("the first event", { request: STREAMED, provider: { events: [event] } }),
    exchange("behind half an answer", {
      request: STREAMED,
      provider: { events: half },
      client: { text: "good", error: "provider_unavailable" },
    }),
    exchange("to embeddings", { request: { path: "embeddings" }, provider: { json: body } }),
    exchange("to an image", { request: { path: "images" }, provider: { json: body } }),
  ];
}

export default FORMS.flatMap(entriesOf) satisfies Entry[];
