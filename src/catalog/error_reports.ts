import { isRecord } from "../platform/records.ts";

/**
 * How providers report errors in JSON: in which places, and what their codes mean. Used for bodies of error statuses, for answers whose
 * status is good, and for events of streams. Source: END-2, END-3, END-19.
 */

/** Texts that are looked at for the meaning of a code. */
const CODE_CHARS_MAX = 100;
/** Codes that a good answer may also have. */
const GOOD_CODES: ReadonlySet<unknown> = new Set([200, "200", "0", "ok", "OK", "success", "Success"]);
/** Fields that make a JSON object an answer, or an event of one, whatever else it has. */
const ANSWER_FIELDS = ["choices", "output", "data", "usage"];

/** The numbers of vendors that use none of HTTP's. Source: END-19. */
const STATUS_BY_NUMBER: Readonly<Record<number, number>> = {
  // Zhipu (docs.bigmodel.cn/cn/faq/api-code).
  ...{ 1000: 401, 1001: 401, 1002: 429, 1003: 401, 1004: 401, 1113: 402, 1210: 400, 1211: 404, 1212: 400, 1213: 400 },
  ...{ 1214: 400, 1215: 400, 1220: 403, 1221: 404, 1222: 404, 1230: 500, 1231: 400, 1234: 500, 1261: 400, 1300: 400 },
  ...{ 1301: 400, 1302: 429, 1303: 429, 1304: 429, 1305: 429, 1308: 429, 1309: 402, 1312: 503 },
  // MiniMax (platform.minimax.io/docs/api-reference/errorcode): 1002 and 1004 mean the same there.
  ...{ 1008: 402, 1024: 500, 1026: 400, 1027: 400, 1033: 500, 1039: 400, 1041: 429, 1042: 400, 2013: 400, 2049: 401 },
};

/** What the words of a code mean, the first that fits. Source: END-19. */
const STATUS_BY_WORD: readonly (readonly [RegExp, number])[] = [
  [/insufficient[ _]?(?:balance|credits?|funds)|arrear|payment[ _]?required/i, 402],
  [
    /rate[ _-]?limit|too[ _]?many[ _]?requests|resource[ _]?exhausted|throttl|insufficient_quota|quota[ _]?exceeded/i,
    429,
  ],
  [/content[ _]?(?:filter|policy)|context[ _]?(?:length|window|size)|data_?inspection|moderation|too_long/i, 400],
  [/api_?key|authenticat|unauthori[sz]ed/i, 401],
  [/permission|forbidden|access_?denied/i, 403],
  [/not_?found|not_?exist/i, 404],
  [/invalid|bad_?request|unprocessable|validation|unsupported|out_of_range|failed_precondition/i, 400],
  [/time_?out|deadline/i, 504],
  [/overloaded|unavailable|capacity|busy/i, 503],
  [/server|internal|engine|^api_error$|unknown/i, 500],
];

export type ErrorReport = {
  message: string;
  /** All that is a text of its codes, types and statuses. */
  codes: string[];
  param: string | null;
  /** The HTTP status that its codes stand for; undefined: they stand for none. */
  status: number | undefined;
};

/** The error that an answer or an event reports of itself; undefined if it reports none. An empty error is none. */
export function reportIn(body: Readonly<Record<string, unknown>>): ErrorReport | undefined {
  const { error, choices, base_resp: base } = body;
  if (isFilled(error)) return reportOf(error, body);
  if (isRecord(base) && isFilled(base.status_code) && !GOOD_CODES.has(base.status_code)) return reportOf(base, base);
  if (Array.isArray(choices)) return reportInChoices(choices);
  if (ANSWER_FIELDS.some((name) => isFilled(body[name]))) return undefined;
  return isBareError(body) ? reportOf(body, body) : undefined;
}

/** The error in the body of an error status, which may say nothing but a message. */
export function reportOfBody(body: Readonly<Record<string, unknown>>): ErrorReport {
  return reportIn(body) ?? reportOf(body, body);
}

/** Of a text that is no JSON. */
export function reportOfText(message: string): ErrorReport {
  return { message, codes: [], param: null, status: undefined };
}

function reportInChoices(choices: readonly unknown[]): ErrorReport | undefined {
  for (const choice of choices) {
    if (!isRecord(choice)) continue;
    if (isFilled(choice.error)) return reportOf(choice.error, {});
    if (isFailedFinish(choice.finish_reason)) return reportOfText("");
  }
  return undefined;
}

/** A choice may say with its finish_reason alone that the provider failed. Source: END-20. */
const FAILED_FINISHES: ReadonlySet<unknown> = new Set([
  ...["error", "ERROR", "network_error", "server_error", "internal_error", "engine_error", "failed"],
  ...["abort", "aborted", "cancelled", "canceled", "insufficient_system_resource", "engine_overloaded"],
  ...["MALFORMED_FUNCTION_CALL", "malformed_function_call", "OTHER", "FINISH_REASON_UNSPECIFIED"],
]);

/** Whether a finish_reason says that the provider failed. */
export function isFailedFinish(finish: unknown): boolean {
  return FAILED_FINISHES.has(finish);
}

/** Neither absent, nor false, nor zero, nor an object or a list of nothing else. */
function isFilled(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(isFilled);
  if (isRecord(value)) return Object.values(value).some(isFilled);
  return value !== undefined && value !== null && value !== "" && value !== false && value !== 0;
}

/** An object without an answer that has a message or a code of an error, in the place of an error. */
function isBareError(body: Readonly<Record<string, unknown>>): boolean {
  const { object, success, status } = body;
  if (object === "error" || success === false || status === "error" || status === "fail") return true;
  if ([body.code, body.error_code, body.status_code].some((code) => isFilled(code) && !GOOD_CODES.has(code)))
    return true;
  return object === undefined && messageIn(body) !== "" && !GOOD_CODES.has(body.code);
}

function reportOf(error: unknown, body: Readonly<Record<string, unknown>>): ErrorReport {
  const own = firstRecord(error);
  const message = typeof error === "string" ? error : messageIn(own) || messageIn(body);
  const metadata = isRecord(own.metadata) ? own.metadata : {};
  const said = [own.code, own.type, own.status, own.status_code, own.error_code, own.err_code, own.http_code];
  const outer = own === body ? [] : [body.code, body.status, body.status_code];
  // OpenRouter: a refusal by moderation has reasons.
  const codes = [...said, ...outer, ...(Array.isArray(metadata.reasons) ? ["moderation"] : [])];
  const { param } = own;
  return {
    message,
    codes: codes.filter((code) => typeof code === "string"),
    param: typeof param === "string" && /^[\w.[\]-]{1,100}$/.test(param) ? param : null,
    status: statusOf(codes),
  };
}

/** The object itself, or the first one of a list. */
function firstRecord(error: unknown): Readonly<Record<string, unknown>> {
  const first: unknown = Array.isArray(error) ? error[0] : error;
  return isRecord(first) ? first : { message: first };
}

function messageIn(own: Readonly<Record<string, unknown>>): string {
  const { detail, errors } = own;
  const listed: unknown = Array.isArray(errors) ? errors[0] : undefined;
  const detailed: unknown = Array.isArray(detail) ? detail[0] : detail;
  const candidates: unknown[] = [
    own.message,
    own.msg,
    own.status_msg,
    own.error_msg,
    own.error_message,
    own.errorMessage,
  ];
  for (const nested of [detailed, listed])
    candidates.push(nested, ...(isRecord(nested) ? [nested.message, nested.msg] : []));
  const found = candidates.find((text) => typeof text === "string" && text !== "");
  return typeof found === "string" ? found : "";
}

/** The first code that stands for a status: a number before words. */
function statusOf(codes: readonly unknown[]): number | undefined {
  for (const code of codes) {
    const number = typeof code === "string" && /^\d{3,5}$/.test(code) ? Number(code) : code;
    if (typeof number !== "number") continue;
    if (Number.isInteger(number) && number >= 400 && number < 600) return number;
    const known = STATUS_BY_NUMBER[number];
    if (known !== undefined) return known;
  }
  for (const code of codes) {
    if (typeof code !== "string" || code.length > CODE_CHARS_MAX) continue;
    const known = STATUS_BY_WORD.find(([words]) => words.test(code));
    if (known !== undefined) return known[1];
  }
  return undefined;
}

/** How providers say that a prompt is too long for the model: by a code … Source: END-22. */
const CONTEXT_CODES =
  /^(?:context_(?:length|window)_exceeded|exceed_context_size_error|model_context_window_exceeded|(?:input|prompt)_too_long|1261|1039)$/i;
/** … or in a sentence. */
const CONTEXT_WORDS: readonly RegExp[] = [
  // OpenAI, Azure, vLLM, DeepSeek, OpenRouter, Mistral.
  /\bmaximum context length\b/i,
  /\bexceeds? (?:the |this |its )?(?:model'?s? |available |maximum |max |allowed )*(?:context|prompt|input) (?:length|window|size|limit)/i,
  // vLLM.
  /\blonger than the (?:maximum model length|model'?s context length)/i,
  /\bmax_model_len\b|\bmaximum model length\b/i,
  // llama.cpp, Ollama, LM Studio, MiniMax.
  /\b(?:exceeds?|exceeded|overflows?|greater than)\b[^.]{0,80}\bcontext (?:length|window|size|limit)/i,
  /\bcontext (?:length|window|size|limit)\b[^.]{0,40}\b(?:exceed|overflow|is too small)/i,
  /\bwhen context the overflows\b/i,
  // Mistral.
  /\btoo large for model with \d+ maximum context/i,
  // Anthropic, Fireworks, Bedrock.
  /\b(?:prompt|input) is too long\b/i,
  /\binput length and `?max_tokens`? exceed context limit/i,
  /\btoo many input tokens\b/i,
  // Gemini.
  /\binput token count\b[^.]{0,60}\bexceeds the maximum number of tokens\b/i,
  // Groq.
  /\breduce the length of the (?:messages|prompt|input)\b/i,
  // Together, TGI.
  /`inputs`(?: tokens \+ `max_new_tokens`)? must (?:be <=|have less than) \d+/i,
  // xAI.
  /\bmaximum prompt length is \d+/i,
  // Qwen, Moonshot, Cohere.
  /\brange of input length should be\b/i,
  /\bexceeded model token limit\b/i,
  /\btotal number of tokens in the prompt cannot exceed\b/i,
];

/** Whether an error says that the prompt is too long for the model. Source: END-22. */
export function isContextLength({ codes, message }: ErrorReport, charsMax: number): boolean {
  if (codes.some((code) => CONTEXT_CODES.test(code))) return true;
  const words = message.slice(0, charsMax);
  return CONTEXT_WORDS.some((pattern) => pattern.test(words));
}
