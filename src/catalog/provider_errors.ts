import type { FailureKind, TimeLimit } from "../platform/metrics.ts";
import { isRecord } from "../platform/records.ts";
import { isContextLength } from "./context_lengths.ts";
import { CONTENT_WORDS, type ErrorReport, reportOfBody, reportOfText } from "./error_reports.ts";
import { CREDIT, operatorFault } from "./operator_faults.ts";

export type { FailureKind } from "../platform/metrics.ts";

/** Longest provider message that is passed on or logged. */
const MESSAGE_CHARS_MAX = 500;
/** How much text is cleaned: the patterns run over text from strangers. */
const UNCLEAN_CHARS_MAX = 8_192;
/** Longest Retry-After that is accepted from a provider. */
const RETRY_AFTER_SECONDS_MAX = 60;
/** A number of seconds, as in Retry-After; some write their unit behind it. */
const SECONDS = /^\d{1,9}(?:\.\d{1,9})?s?$/;
/** The data of the first event of a stream, whose data is an object. */
const EVENT = /^\uFEFF?(?:\s|:[^\n]*\n|(?:event|id|retry):[^\n]*\n)*(?:data:\s*){1,2}(\{[^\n]*\})\s*?(?:\n|$)/;
/** Longest refusal in plain text. A longer one is a page. */
const TEXT_CHARS_MAX = 2_000;

/** Statuses that concern the request itself. All others are the provider's problem or ours. */
const REJECTION_STATUSES: ReadonlySet<number> = new Set([400, 422]);
/** What a code may say in the place of these: some services have one status for all errors. */
const CODED_STATUSES: ReadonlySet<number> = new Set([401, 402, 429]);
/** Statuses with which providers say that a prompt is too long. */
const CONTEXT_STATUSES: ReadonlySet<number> = new Set([400, 404, 413, 422, 500, 502]);
/**
 * Sent with a 429 or 413 for a request that exceeds the operator's tokens per minute, so that waiting does not help: by
 * OpenAI and Groq ("Request too large for … Limit 30000, Requested 36835"), and by Azure, which says to retry in a day.
 */
const TOO_LARGE =
  /\brequest too large\b|\bLimit \d{1,12}, Requested \d|\btoken rate limit\b[\s\S]{0,300}\bretry after 86400 seconds\b/i;
/** Statuses with which servers of open models say that they cannot do what was asked for, as if they had failed. */
const UNSUPPORTED_STATUSES: ReadonlySet<number> = new Set([500, 501]);
/** What they then say, llama.cpp for one: "image input is not supported", "tools param requires --jinja flag". Source: PRV-30. */
const UNSUPPORTED =
  /\b(?:image|audio|video|vision|file|multimodal|tool|function|grammar|embedding|rerank|logprob)\w*\b[^.]{0,40}?\b(?:not supported|unsupported|not support|param requires)\b|\b(?:does not|doesn't|cannot) (?:support|accept|take|process) (?:\w+ ){0,3}?(?:image|audio|video|vision|file|multimodal|tool|function|grammar|embedding|rerank|logprob)/i;
/** Its code, whatever the words. */
const UNSUPPORTED_CODE = /^not_(?:supported|implemented)(?:_error)?$/i;
/**
 * The time to wait, if only the message has it: "Please try again in 1m6.2s", "Please retry in 10.67s", "retry after
 * 60 seconds", "Please wait 12 seconds".
 */
const RETRY_WORDS =
  /\b(?:(?:try again|retry) (?:in|after)|wait(?: for)?) (?:(\d{1,3})h)?(?:(\d{1,3})m)?(\d{1,6}(?:\.\d{1,12})?)(ms|s| seconds?| minutes?)\b/i;
/** A header that a proxy has sent twice: its values are joined. */
const TWICE = /^(\d{1,9}),.*$/;
/**
 * Statuses that may be about the request's content: otherwise a client with forbidden prompts could open the breaker for everybody. 451 is
 * StepFun's, 498 Cohere's.
 */
const CONTENT_STATUSES: ReadonlySet<number> = new Set([403, 451, 498]);
/** xAI says so in a sentence: its code speaks of a permission. */
const CONTENT_SENTENCE = /^content violates (?:our |the )?usage\b/i;

/**
 * What a failure is attributed to. `connection`: none could be made, which no request can cause. `provider`: it failed,
 * perhaps only for this request. `key`: the provider works, but not with this key now. `request`: this route cannot serve
 * this request. `replica`: it had too little memory for the answer. `nobody`: the answer has nothing in it, which a request can cause.
 */
export type Blame = "connection" | "provider" | "key" | "request" | "replica" | "nobody";

export type FailureFacts = {
  status?: number | null;
  retryAfterSeconds?: number | null;
  limit?: TimeLimit;
  work?: Work;
};

/**
 * What the provider had done of a request when its call failed: nothing that is known of; it had accepted the request, and worked until
 * our time limit; or it has made an answer, which is too large, or an image at an address that cannot be fetched. Work that was begun is
 * not asked of another route: it would be done, and cost, twice. Source: PRV-3, END-16, END-18, IMG-6.
 */
export type Work = "none" | "begun" | "too_large" | "unfetched";

/**
 * The provider could not serve the request, but another route may. The message is the provider's, cleaned, for the log
 * only.
 */
export class ProviderFailure extends Error {
  override readonly name = "ProviderFailure";
  readonly kind: FailureKind;
  readonly status: number | null;
  readonly retryAfterSeconds: number | null;
  /** For a `timeout`: the limit that was exceeded. */
  readonly limit: TimeLimit | null;
  readonly work: Work;
  readonly blame: Blame;

  constructor(kind: FailureKind, message: string, facts: FailureFacts = {}) {
    const { status, retryAfterSeconds, limit, work = "none" } = facts;
    super(message);
    this.kind = kind;
    this.status = status ?? null;
    this.retryAfterSeconds = retryAfterSeconds ?? null;
    this.limit = limit ?? null;
    this.work = work;
    this.blame = blameOf(this);
  }
}

/** Kinds that say that the route cannot serve this request. */
const OF_REQUEST: ReadonlySet<FailureKind> = new Set(["too_large", "unknown_model", "unsupported", "context_length"]);

/** Source: PRV-4, PRV-5, PRV-6, PRV-10, PRV-30. */
function blameOf({ kind, status, limit }: Pick<ProviderFailure, "kind" | "status" | "limit">): Blame {
  if (kind === "no_memory") return "replica";
  if (kind === "connect" || kind === "address" || limit === "provider_connect") return "connection";
  if (kind === "empty") return "nobody";
  if (OF_REQUEST.has(kind)) return "request";
  // Some providers answer 402 only because one request may cost too much, and still serve smaller ones.
  if (kind === "no_credit") return status === 429 ? "key" : "request";
  // A 403 may be about the request: its content, its country, a model that the key may not use.
  if (kind === "credentials") return status === 403 ? "provider" : "key";
  return kind === "rate_limited" ? "key" : "provider";
}

/**
 * The provider refused the request itself, so no route would serve it. The message is cleaned, and may be shown to the
 * client.
 */
export class ProviderRejection extends Error {
  override readonly name = "ProviderRejection";
  readonly status: number;
  readonly param: string | null;

  constructor(message: string, { status, param = null }: { status: number; param?: string | null }) {
    super(message);
    this.status = status;
    this.param = param;
  }
}

/** The headers by which a provider asks to wait; null: not sent. */
export type AskedWait = { retryAfter: string | null; retryAfterMs: string | null; date: string | null };

/** The message of an error that has none. */
export const NO_MESSAGE = "no message";

type ErrorAnswer = {
  status: number;
  /** The body or its beginning. */
  text: string;
  /** How long the provider asks to wait, by its headers. */
  wait?: AskedWait;
  /** The route's key, which no message may contain. */
  secrets: readonly string[];
};

/**
 * What an error response of a provider means. An `error` object that came with status 200 is given as `text` with
 * status 400.
 */
export function toProviderError({ status, text, wait, secrets }: ErrorAnswer): ProviderFailure | ProviderRejection {
  const error = readError(status, text);
  const message = cleanWords(error?.message ?? "", secrets);
  const kind = failureKind(status, error);
  if (kind === undefined) {
    return new ProviderRejection(message || "The model service refused the request.", {
      status,
      param: error?.param ?? null,
    });
  }
  const words = message || cleanWords(text, secrets) || NO_MESSAGE;
  return new ProviderFailure(kind, words, {
    status,
    retryAfterSeconds: readWait(wait) ?? readRetryWords(error),
  });
}

/**
 * Removes addresses, keys, e-mail addresses and control characters from text of a provider; returns at most 500
 * characters.
 */
export function cleanWords(text: string, secrets: readonly string[] = []): string {
  let clean = text;
  for (const secret of secrets) if (secret.length >= 4) clean = clean.replaceAll(secret, "[secret]");
  clean = clean
    .slice(0, UNCLEAN_CHARS_MAX)
    .toWellFormed()
    // Control characters, and those that change the writing direction; not the joiners that some scripts need.
    .replace(/[\p{Cc}\u202A-\u202E\u2066-\u2069\s]+/gu, " ")
    .replace(/\bdata:[\w.+/-]{0,100}(?:;[\w=-]{1,50}){0,3},\S*/gi, "[data]")
    .replace(/\b[a-z][a-z0-9+.-]{1,20}:\/\/\S+/gi, "[address]")
    .replace(/[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}/g, "[address]")
    .replace(/\b(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?\b|\[[0-9a-f]{0,4}(?::[0-9a-f.]{0,15}){2,8}\](?::\d+)?/gi, "[address]")
    .replace(
      /\b(?:[a-z0-9-]{1,63}\.){1,8}(?:com|net|org|io|ai|dev|app|cloud|cn|eu|internal|local|svc)\b(?:[:/]\S*)?/gi,
      "[address]",
    )
    .replace(/\b(bearer|basic) [\w.~+/=*-]{6,}/gi, "$1 [secret]")
    // Keys, and ids of organizations, projects and requests: they identify our account with the provider.
    .replace(/\b(?:sk|pk|rk|gsk|xai|hf|org|proj|req|key|acct)[-_][\w*.-]{8,}|\bAIza[\w-]{10,}/gi, "[secret]")
    .replace(/\b(?=[\w-]{0,40}\d)[\w-]{32,}\b/g, "[secret]");
  return shorten(clean.trim());
}

/**
 * Removes the name that a model has at its provider, also one without its vendor or with a version behind it: customers know the model by
 * `modelId`. A last part that may be a common word is left. Source: PRV-7.
 */
export function withoutModelName(message: string, upstreamModel: string, modelId: string): string {
  const vendor = upstreamModel.slice(0, upstreamModel.lastIndexOf("/") + 1);
  const name = upstreamModel.slice(vendor.length);
  if ([upstreamModel, name].some((known) => known.toLowerCase() === modelId.toLowerCase())) return message;
  const optional = /[\d-]/.test(name) ? "?" : "";
  const pattern = `(?<![\\w-])(?:${RegExp.escape(vendor)})${optional}${RegExp.escape(name)}(?:[.:-]?\\w+)*`;
  return message.replace(new RegExp(pattern, "gi"), "[model]");
}

/** Undefined: the provider refused the request itself. */
function failureKind(status: number, error: ErrorBody | undefined): FailureKind | undefined {
  if ((status === 413 || status === 429) && error !== undefined && TOO_LARGE.test(error.start)) return "too_large";
  // Some servers say it with a 500.
  if (error !== undefined && CONTEXT_STATUSES.has(status) && isContextLength(error, UNCLEAN_CHARS_MAX))
    return "context_length";
  if (error !== undefined && UNSUPPORTED_STATUSES.has(status) && isUnsupported(error)) return "unsupported";
  // A plain web server refuses a large body before it is read, without JSON.
  if (status === 413) return undefined;
  if (REJECTION_STATUSES.has(status) && error !== undefined) {
    const ofCode = error.status ?? status;
    return operatorFault(error) ?? (CODED_STATUSES.has(ofCode) ? failureKind(ofCode, error) : undefined);
  }
  if (error !== undefined && CONTENT_STATUSES.has(status) && isOfContent(error)) return undefined;
  if (status === 401 || status === 403) return "credentials";
  if (status === 402) return "no_credit";
  // NVIDIA: a model that has ended is gone.
  if (status === 404 || status === 410) return error === undefined ? "not_json" : "unknown_model";
  if (status === 429) return error?.codes.some((code) => CREDIT.test(code)) ? "no_credit" : "rate_limited";
  if (status === 408 || status === 504) return "timeout";
  if (status < 500 && error === undefined) return "not_json";
  return "status";
}

/** Whether a server says that it cannot do what was asked for. That is no failure: it would do anything else. */
function isUnsupported({ codes, start }: ErrorBody): boolean {
  return codes.some((code) => UNSUPPORTED_CODE.test(code)) || UNSUPPORTED.test(start);
}

function isOfContent({ codes, start }: ErrorBody): boolean {
  return codes.some((code) => CONTENT_WORDS.test(code)) || CONTENT_SENTENCE.test(start);
}

/** `start`: the beginning of the message, which patterns may read. */
type ErrorBody = ErrorReport & { start: string };

/** The error in a body. Undefined if it is no JSON object, and no sentence of a 400 or 422 either: pages are of a proxy. */
function readError(status: number, text: string): ErrorBody | undefined {
  const report = readReport(status, text);
  return report && { ...report, start: report.message.slice(0, UNCLEAN_CHARS_MAX) };
}

function readReport(status: number, text: string): ErrorReport | undefined {
  let parsed: unknown;
  try {
    // Some gateways send an error as an event, also with its status.
    parsed = JSON.parse(EVENT.exec(text)?.[1] ?? text);
  } catch {
    const words = text.trim();
    const isSentence = words !== "" && words.length <= TEXT_CHARS_MAX && !words.startsWith("<");
    return isSentence && REJECTION_STATUSES.has(status) ? reportOfText(words) : undefined;
  }
  if (typeof parsed === "string" && REJECTION_STATUSES.has(status)) return reportOfText(parsed);
  const body: unknown = Array.isArray(parsed) ? parsed[0] : parsed;
  return isRecord(body) ? reportOfBody(body) : undefined;
}

/** In whole seconds, rounded up. A date is compared with the answer's own, so that no clock of ours counts. Source: PRV-6. */
function readWait(wait: AskedWait | undefined): number | null {
  if (wait === undefined) return null;
  const { retryAfter, retryAfterMs, date } = wait;
  if (retryAfterMs !== null && SECONDS.test(retryAfterMs)) return cappedSeconds(Number.parseFloat(retryAfterMs) / 1000);
  if (retryAfter === null) return null;
  const first = retryAfter.replace(TWICE, "$1");
  if (SECONDS.test(first)) return cappedSeconds(Number.parseFloat(first));
  const seconds = (dateMs(retryAfter) - dateMs(date ?? "")) / 1000;
  return Number.isFinite(seconds) ? cappedSeconds(Math.max(0, seconds)) : null;
}

/** An HTTP date, or one of ISO 8601, as Unix time in ms; NaN if it is none. Each is in UTC, also if it does not say so. */
function dateMs(text: string): number {
  if (!/^(?:[A-Z][a-z]{2,8},? |\d{4}-\d\d-\d\dT)/.test(text)) return Number.NaN;
  return Date.parse(/(?:GMT|UTC|Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text}Z`);
}

function cappedSeconds(seconds: number): number {
  return Math.min(RETRY_AFTER_SECONDS_MAX, Math.ceil(seconds));
}

function readRetryWords(error: ErrorBody | undefined): number | null {
  if (error === undefined) return null;
  const { start, retryDelay = "" } = error;
  const found = RETRY_WORDS.exec(start);
  if (found === null) return SECONDS.test(retryDelay) ? cappedSeconds(Number.parseFloat(retryDelay)) : null;
  const [, hours = "0", minutes = "0", amount = "0", unit = "s"] = found;
  const seconds = Number(amount) * (unit === "ms" ? 0.001 : unit.startsWith(" m") ? 60 : 1);
  return cappedSeconds(Number(hours) * 3600 + Number(minutes) * 60 + seconds);
}

function shorten(text: string): string {
  if (text.length <= MESSAGE_CHARS_MAX) return text;
  return `${text
    .slice(0, MESSAGE_CHARS_MAX - 1)
    .toWellFormed()
    .replace(/\uFFFD$/, "")}…`;
}
