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
/** Objects of an error are in each other: an error in an error, a list of details, a message that is JSON. */
const DEPTH_MAX = 4;
/** Members of one object that are looked at. */
const MEMBERS_MAX = 50;

/** The numbers of vendors that use none of HTTP's. Source: END-19. */
const STATUS_BY_NUMBER: Readonly<Record<number, number>> = {
  // Zhipu (docs.bigmodel.cn/cn/faq/api-code).
  ...{ 1000: 401, 1001: 401, 1002: 429, 1003: 401, 1004: 401, 1113: 402, 1210: 400, 1211: 404, 1212: 400, 1213: 400 },
  ...{ 1214: 400, 1215: 400, 1220: 403, 1221: 404, 1222: 404, 1230: 500, 1231: 400, 1234: 500, 1261: 400, 1300: 400 },
  ...{ 1301: 400, 1302: 429, 1303: 429, 1304: 429, 1305: 429, 1308: 429, 1309: 402, 1312: 503 },
  // MiniMax (platform.minimax.io/docs/api-reference/errorcode): 1002 and 1004 mean the same there.
  ...{ 1008: 402, 1024: 500, 1026: 400, 1027: 400, 1033: 500, 1039: 400, 1041: 429, 1042: 400, 2013: 400, 2049: 401 },
  // FastChat (github.com/lm-sys/FastChat, fastchat/constants.py: ErrorCode).
  ...{ 40001: 400, 40101: 401, 40102: 401, 40103: 403, 40301: 404, 40302: 400, 40303: 400, 42901: 429, 42902: 429 },
  ...{ 42903: 429, 50001: 500, 50002: 500, 50003: 500, 50004: 500, 50005: 503, 50006: 504 },
  // SiliconFlow (docs.siliconflow.cn/cn/faqs/error-code).
  ...{ 20012: 404, 20015: 400, 30001: 402, 50501: 503, 50505: 503, 50603: 503 },
  // Baidu (cloud.baidu.com/doc/WENXINWORKSHOP/s/tlmyncueh).
  ...{ 4: 429, 17: 429, 18: 429, 19: 429, 110: 401, 111: 401, 336000: 500, 336003: 400, 336100: 503, 336103: 400 },
  ...{ 336501: 429, 336502: 429 },
  // iFlytek Spark (www.xfyun.cn/doc/spark).
  ...{ 10007: 429, 10013: 400, 10014: 400, 10019: 400, 10163: 400, 10907: 400, 11200: 401, 11202: 429, 11203: 429 },
};

/** Words of a code that say that a content is not allowed, as each vendor calls it. */
export const CONTENT_WORDS =
  /content[ _]?(?:filter|policy|violation|blocked)|data_?inspection|moderation|sensitive|safety|censor|prohibited|recitation|blocklist|^spii$|prompt_?blocked|risk_?(?:control|detect)/i;

/** What the words of a code mean, the first that fits. Source: END-19. */
const STATUS_BY_WORD: readonly (readonly [RegExp, number])[] = [
  [/insufficient[ _]?(?:balance|credits?|funds|user_?quota)|arrear|payment[ _]?required/i, 402],
  [
    /rate[ _-]?limit|too[ _]?many[ _]?requests|resource[ _]?exhausted|throttl|insufficient_quota|quota[ _]?exceeded/i,
    429,
  ],
  [CONTENT_WORDS, 400],
  [/context[ _]?(?:length|window|size)|too_long/i, 400],
  [/api_?key|authenticat|unauthori[sz]ed/i, 401],
  [/permission|forbidden|access_?denied/i, 403],
  [/not[ _]?found|not_?exist/i, 404],
  [/invalid|bad[ _]?request|unprocessable|validation|unsupported|out_of_range|failed_precondition/i, 400],
  [/time[ _]?out|timed[ _]?out|deadline/i, 504],
  [/overloaded|unavailable|capacity|busy/i, 503],
  [/server|internal|engine|^api_error$|unknown/i, 500],
];

/*
 * The names of members, in lower case and without "_" and "-": vendors write one name in many ways.
 */

/** What went wrong is in them, whatever else an object has. */
const ERRORS: ReadonlySet<string> = new Set(["error", "errors", "err", "errormsg", "errorinfo", "fault", "exception"]);
/** Objects around an error, or with details of one. A message may be one too, also as JSON in a text. */
const AROUND: ReadonlySet<string> = new Set(["detail", "details", "response", "result", "body", "cause"]);
/** A member named after the error: `validationException`, `modelStreamError`. */
const NAMED_ERROR = /(?:exception|error)$/;
/** Numbers and words that say which error it is. */
const CODES: readonly string[] = [
  ...["code", "type", "status", "statuscode", "errorcode", "errcode", "errortype", "httpcode", "httpstatus"],
  ...["httpstatuscode", "name", "exception", "retcode"],
];
/** Those of them that no good answer has with another value. */
const STRICT_CODES: readonly string[] = ["code", "errorcode", "errcode", "retcode", "statuscode"];
/** Texts for people, the best first. One of these alone, in the place of an answer, is an error … */
const MESSAGES: readonly string[] = [
  "message",
  "msg",
  "statusmsg",
  "errormsg",
  "errormessage",
  "errmsg",
  "retmsg",
  "detail",
];
/** … these are not. */
const MORE_MESSAGES: readonly string[] = [
  ...["details", "errordescription", "faultstring", "description", "reason", "title", "error", "errors"],
];
/** A reason that is one word is a code: `API_KEY_INVALID`. */
const ONE_WORD = /^\w{1,100}$/;

export type ErrorReport = {
  message: string;
  /** All that is a text of its codes, types and statuses. */
  codes: string[];
  param: string | null;
  /** The HTTP status that its codes stand for; undefined: they stand for none. */
  status: number | undefined;
  /** How long to wait, as Google's RetryInfo says it: "34.07s". */
  retryDelay?: string;
};

type Fields = Readonly<Record<string, unknown>>;

/** The error that an answer or an event reports of itself; undefined if it reports none. An empty error is none. */
export function reportIn(body: Fields): ErrorReport | undefined {
  const { error, choices, base_resp: base, x_groq: groq, promptFeedback: feedback } = body;
  if (isFilled(error)) return reportOfBody(body);
  // Groq says there why it ends a stream early.
  if (isRecord(groq) && isFilled(groq.error)) return reportOfBody({ error: groq.error });
  if (isRecord(base) && isFilled(base.status_code) && !GOOD_CODES.has(base.status_code)) return reportOfBody(base);
  if (Array.isArray(choices) && choices.length > 0) return reportInChoices(choices);
  // Gemini's own form of a prompt that is blocked: it has no candidates.
  if (isRecord(feedback) && isFilled(feedback.blockReason) && !isFilled(body.candidates)) return blocked(feedback);
  return isError(body) ? reportOfBody(body) : undefined;
}

function blocked({ blockReason, blockReasonMessage }: Fields): ErrorReport {
  const { message, codes, param } = reportOfBody({ code: blockReason, message: blockReasonMessage });
  return { message, codes: [...codes, "content_filter"], param, status: 400 };
}

/** The error in the body of an error status, which may say nothing but a message. */
export function reportOfBody(body: Fields): ErrorReport {
  const said: Said = { message: "", codes: [], param: null, retryDelay: undefined };
  read(body, said, 0);
  const { message, codes, param, retryDelay } = said;
  return {
    message,
    codes: codes.filter((code) => typeof code === "string" || typeof code === "number").map(String),
    param,
    status: statusOf(codes),
    ...(retryDelay !== undefined && { retryDelay }),
  };
}

/** Of a text that is no JSON. */
export function reportOfText(message: string): ErrorReport {
  return { message, codes: [], param: null, status: undefined };
}

function reportInChoices(choices: readonly unknown[]): ErrorReport | undefined {
  for (const choice of choices) {
    if (!isRecord(choice)) continue;
    if (isFilled(choice.error)) return reportOfBody({ error: choice.error });
    const { finish_reason: finish } = choice;
    if (isFailedFinish(reasonIn(finish))) return isRecord(finish) ? reportOfBody({ error: finish }) : reportOfText("");
  }
  return undefined;
}

/** A choice may say with its finish_reason alone that the provider failed. Source: END-20. */
const FAILED_FINISHES: ReadonlySet<string> = new Set([
  ...["error", "error_server", "network_error", "server_error", "internal_error", "engine_error", "failed", "timeout"],
  ...["abort", "aborted", "cancelled", "canceled", "insufficient_system_resource", "engine_overloaded", "overloaded"],
  ...["malformed_function_call", "unexpected_tool_call", "too_many_tool_calls", "missing_thought_signature"],
  ...["malformed_response", "malformed_model_output", "malformed_tool_use", "other"],
  ...["modelunloaded", "userstopped", "user_cancel", "image_other", "no_image"],
]);
/** The same of words that are not in the list … */
const FAILED_WORDS =
  /error|fail|abort|cancel|time_?(?:d_?)?out|unavailable|overload|crash|malformed|invalid|exception|interrupt|disconnect|rate_?limit|quota|out_of_memory/;
/** … unless they say why a good answer ended, as Cohere's `error_limit` and `error_toxic`. */
const NOT_FAILED_WORDS = /length|token|context|toxic|filter|safety|(?<!rate_?)limit/;

/** Whether a finish_reason says that the provider failed. */
export function isFailedFinish(finish: unknown): boolean {
  return typeof finish === "string" && finish !== "stop" && finish !== "" && finishWords(finish).some(isFailedWord);
}

function isFailedWord(word: string): boolean {
  return FAILED_FINISHES.has(word) || (FAILED_WORDS.test(word) && !NOT_FAILED_WORDS.test(word));
}

/** The word of a finish_reason: SGLang's own form is an object with a type, with the error if it is one; others send a list of one. */
export function reasonIn(finish: unknown): unknown {
  if (typeof finish === "string" || finish === null) return finish;
  const only: unknown = Array.isArray(finish) ? finish[0] : finish;
  return isRecord(only) ? (only.type ?? only.reason ?? only.finish_reason) : only;
}

/**
 * The words of a finish_reason in lower case and without the name of its type, as vendors differ in both: `FINISH_REASON_STOP`. Gemini's
 * compatible API puts two of them together: `function_call_filter: MALFORMED_FUNCTION_CALL`.
 */
export function finishWords(finish: string): string[] {
  const plain = finish.toLowerCase().replace(/-|(?<!:) /g, "_");
  return plain.split(": ").map((word) => word.replace(/^finish_?reason_/, ""));
}

/** Neither absent, nor false, nor zero, nor an object or a list of nothing else. */
function isFilled(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(isFilled);
  if (isRecord(value)) return Object.values(value).some(isFilled);
  return value !== undefined && value !== null && value !== "" && value !== false && value !== 0;
}

/**
 * Whether an object without a choice is an error. Beside an answer only a clear sign counts; without one, a code that is not good, a
 * member named after an error, or a message in the place of an error.
 */
function isError(body: Fields): boolean {
  const { object, success, ok, status, type } = body;
  if (object === "error" || type === "error" || success === false || ok === false) return true;
  if (status === "error" || status === "fail" || status === "failed") return true;
  const members = membersOf(body);
  const codes = STRICT_CODES.map((name) => members.get(name)).filter((code) => isFilled(code) && !GOOD_CODES.has(code));
  const isRefused = statusOf(typeof status === "number" ? [...codes, status] : codes) !== undefined;
  if (isRefused || ANSWER_FIELDS.some((name) => isFilled(body[name]))) return isRefused;
  if (codes.length > 0) return true;
  for (const [name, value] of members)
    if (isFilled(value) && (isErrorName(name, value) || (AROUND.has(name) && hasError(value)))) return true;
  return object === undefined && !GOOD_CODES.has(body.code) && hasMessage(members);
}

/** FastAPI's detail is a text, an object, or a list of them. */
function hasMessage(members: ReadonlyMap<string, unknown>): boolean {
  const detail = members.get("detail");
  const [first]: unknown[] = Array.isArray(detail) ? detail : [detail];
  return textIn(members, MESSAGES) !== "" || (isRecord(first) && textIn(membersOf(first), MESSAGES) !== "");
}

function isErrorName(name: string, value: unknown): boolean {
  return ERRORS.has(name) || (NAMED_ERROR.test(name) && isRecord(value));
}

function hasError(value: unknown): boolean {
  if (!isRecord(value)) return false;
  for (const [name, inner] of membersOf(value)) if (isErrorName(name, inner) && isFilled(inner)) return true;
  return false;
}

/** The members of an object by their names in lower case and without "_" and "-". */
function membersOf(object: Fields): Map<string, unknown> {
  const members = new Map<string, unknown>();
  for (const name in object) {
    if (members.size >= MEMBERS_MAX) break;
    const plain = name.toLowerCase().replace(/[_-]/g, "");
    if (!members.has(plain)) members.set(plain, object[name]);
  }
  return members;
}

/** What is found of an error, the innermost object first. */
type Said = { message: string; codes: unknown[]; param: string | null; retryDelay: string | undefined };

/** Notes what an object says of an error: first the errors in it, then what it says itself, then its details. */
function read(object: Fields, said: Said, depth: number): void {
  const members = membersOf(object);
  for (const [name, value] of members) {
    if (!isErrorName(name, value) && name !== "message") continue;
    readInner(value, said, depth);
    if (!ERRORS.has(name) && name !== "message") said.codes.push(name);
  }
  const { raw, reasons } = isRecord(object.metadata) ? object.metadata : {};
  // OpenRouter: what the provider behind it said. Its own message is the same for all.
  readInner(raw, said, depth);
  if (typeof raw === "string" && !/^\s*[{[<]/.test(raw)) said.message ||= raw;
  said.message ||= textIn(members, MESSAGES) || textIn(members, MORE_MESSAGES);
  // "Bad Request" beside a message is a code.
  if (members.get("error") !== said.message) said.codes.push(members.get("error"));
  const reason = members.get("reason");
  if (typeof reason === "string" && ONE_WORD.test(reason)) said.codes.push(reason);
  said.codes.push(...CODES.map((name) => members.get(name)));
  if (Array.isArray(members.get("loc"))) said.codes.push("validation");
  said.param ??= paramIn(members);
  // OpenRouter: a refusal by moderation has reasons.
  if (Array.isArray(reasons)) said.codes.push("moderation");
  const delay = members.get("retrydelay");
  if (typeof delay === "string") said.retryDelay ??= delay;
  for (const [name, value] of members) if (AROUND.has(name)) readInner(value, said, depth);
}

/** Objects in a member: one, or a list of them, or one as JSON in a text, as gateways repeat the error of the provider behind them. */
function readInner(value: unknown, said: Said, depth: number): void {
  if (depth >= DEPTH_MAX) return;
  const inner: unknown[] = Array.isArray(value) ? value.slice(0, MEMBERS_MAX) : [jsonIn(value)];
  for (const one of inner) if (isRecord(one)) read(one, said, depth + 1);
}

function jsonIn(value: unknown): unknown {
  if (typeof value !== "string" || !value.startsWith("{")) return value;
  try {
    return JSON.parse(value);
  } catch {
    return undefined;
  }
}

/** The first text in these members, or in a list in one of them. */
function textIn(members: ReadonlyMap<string, unknown>, names: readonly string[]): string {
  for (const name of names) {
    const value = members.get(name);
    const [text] = Array.isArray(value) ? value : [value];
    if (typeof text === "string" && text !== "") return text;
  }
  return "";
}

/** The field that is wrong. FastAPI says where it is as a list: ["body", "messages", 0, "role"]; vLLM joins it. */
function paramIn(members: ReadonlyMap<string, unknown>): string | null {
  const param = members.get("param");
  const loc = members.get("loc");
  const places = Array.isArray(loc) ? loc.filter((part) => typeof part === "number" || typeof part === "string") : [];
  const path = Array.isArray(loc) ? places.join(".") : param;
  if (typeof path !== "string" || !/^[\w.[\]-]{1,100}$/.test(path)) return null;
  return path.replace(/^body(?:\.|$)/, "") || null;
}

/** The first code that stands for a status: a number before words. */
function statusOf(codes: readonly unknown[]): number | undefined {
  for (const code of codes) {
    const number = typeof code === "string" && /^\d{3,6}$/.test(code) ? Number(code) : code;
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
