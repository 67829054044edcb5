import { textsIn } from "./languages/server_texts.ts";

/**
 * The table of errors: every code that a client can get, with its HTTP status, type and default message. No other file
 * has a status of an error. Source: ERR-2.
 */
const TABLE = {
  invalid_api_key: [401, "authentication_error", "The API key is missing, invalid, revoked or expired."],
  host_not_allowed: [403, "permission_error", "This API key cannot be used on this host."],
  package_required: [402, "billing_error", "The account has no active package."],
  package_expired: [
    402,
    "billing_error",
    "The package has ended. The API key works again once a new package is active.",
  ],
  package_quota_exceeded: [402, "billing_error", "The total quota of the package is used up."],
  daily_quota_exceeded: [402, "billing_error", "The daily quota of the package is used up."],
  carryover_quota_exceeded: [402, "billing_error", "The accumulated quota of the package is used up."],
  insufficient_balance: [402, "billing_error", "The available balance does not cover this request."],
  payg_pricing_unavailable: [402, "billing_error", "This model has no pay-as-you-go price."],
  model_not_in_package: [403, "permission_error", "The active package does not include this model."],
  model_not_found: [404, "invalid_request_error", "The model does not exist, or this API key cannot use it."],
  key_request_limit_exceeded: [402, "billing_error", "The API key has reached its daily request limit."],
  key_spend_limit_exceeded: [402, "billing_error", "The API key has reached its spending limit."],
  invalid_request: [400, "invalid_request_error", "The request is invalid."],
  context_length_exceeded: [400, "invalid_request_error", "The prompt is too long for the model. Shorten it."],
  not_found: [404, "invalid_request_error", "No endpoint or page exists at this path."],
  method_not_allowed: [405, "invalid_request_error", "This path does not support the method."],
  request_too_large: [413, "invalid_request_error", "The request body is too large."],
  unsupported_media_type: [415, "invalid_request_error", "Send the body as uncompressed application/json."],
  idempotency_conflict: [409, "invalid_request_error", "This request was already sent."],
  idempotency_mismatch: [
    400,
    "invalid_request_error",
    "This Idempotency-Key was already used for a different request.",
  ],
  already_exists: [409, "invalid_request_error", "There is one already."],
  too_many_requests: [429, "rate_limit_error", "Too many requests. Slow down and try again."],
  provider_unavailable: [503, "provider_unavailable", "The model provider is temporarily unavailable. Try again."],
  service_unavailable: [503, "server_error", "The service cannot process this request right now. Try again."],
  internal_error: [500, "server_error", "An internal error occurred. Give the request id to support."],
  invalid_token: [
    401,
    "authentication_error",
    "The token is missing, invalid, revoked or ended, or may not be used from this address.",
  ],
  insufficient_scope: [403, "permission_error", "This token lacks the scope of this operation."],
  insufficient_role: [403, "permission_error", "Your role in this account does not allow this. Ask an owner."],
  session_required: [401, "authentication_error", "Sign in to use the panel."],
  second_factor_required: [401, "authentication_error", "Enter the code from your authenticator app."],
  read_only: [403, "permission_error", "You are viewing the panel of another account and cannot change anything."],
  csrf_failed: [403, "permission_error", "The CSRF token is missing or wrong."],
  no_active_key: [
    422,
    "invalid_request_error",
    "The account has no enabled API key that can be used for this request.",
  ],
  validation_failed: [422, "invalid_request_error", "The request is invalid."],
} as const satisfies Record<string, readonly [status: number, type: string, message: string]>;

export type ErrorCode = keyof typeof TABLE;
export const ERROR_TABLE: Readonly<Record<ErrorCode, readonly [status: number, type: string, message: string]>> = TABLE;

/** Codes whose amounts are money. */
const MONEY_CODES: readonly ErrorCode[] = ["insufficient_balance", "key_spend_limit_exceeded"];

/**
 * A sentence for a person, with values: `sentence("There is no model {model}.", { model })`. The English text, with ICU plurals, is its
 * id. The panel gets both, and says it in its language. Source: LNG-8.
 */
export class Sentence {
  readonly id: string;
  readonly values: SentenceValues;

  constructor(id: string, values: SentenceValues) {
    this.id = id;
    this.values = values;
  }

  /** In English. */
  toString(): string {
    return textsIn("en").t(this.id, this.values);
  }
}

export type SentenceValues = Readonly<Record<string, string | number>>;

/**
 * `id` must be written out where it is called: from there it is collected for translation. A word of English is no value, since it would
 * stay English: a value of a known set of words is the subject of a `select`.
 */
export function sentence<Id extends string, Values extends SentenceValues>(
  id: Id,
  values: { readonly [Name in keyof Values]: Datum<Id, Name, Values[Name]> },
): Sentence {
  return new Sentence(id, values);
}

type Datum<Id extends string, Name, Value> = Value extends number
  ? Value
  : string extends Value
    ? Value
    : Name extends string
      ? Id extends `${string}{${Name}, select,${string}`
        ? Value
        : never
      : never;

/** Details of a refusal. `limit`, `used` and `remaining` are units; for MONEY_CODES they are nano-USD, and sent as USD. */
export type RefusalFacts = {
  /** Default: that of the code. */
  message?: string | Sentence;
  /** Path of the invalid field, as in `messages.0.role`. */
  param?: string | null;
  limit?: number;
  used?: number;
  remaining?: number;
  /** ISO 8601, or null if the quota will not reset again. */
  resetsAt?: string | null;
  retryAfterSeconds?: number;
  /** The same request would fail again: SDKs are told not to retry it, although they retry its status. */
  isFinal?: true;
  /** What is missing is held by requests that are running, or this request asks for too much: it may be granted at any moment. */
  isPassing?: true;
  /** For 405: the supported methods. */
  allow?: string;
  /** A status other than the table's. Only the panel sets it. */
  status?: number;
};

/** A request is refused. Thrown anywhere; `src/server/app.ts` answers it. */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly code: ErrorCode;
  readonly facts: RefusalFacts;

  constructor(code: ErrorCode, facts: RefusalFacts = {}) {
    super(String(facts.message ?? TABLE[code][2]));
    this.code = code;
    this.facts = facts;
  }

  get status(): number {
    return this.facts.status ?? TABLE[this.code][0];
  }
}

/** Longest `Retry-After` that the API sends: OpenAI's older SDKs ignore a minute and more. Source: API-12. */
export const RETRY_AFTER_SECONDS_MAX = 59;
/** Default of `Retry-After`. */
const RETRY_AFTER_DEFAULT_SECONDS = 1;
const NANO_PER_USD = 1e9;

export type ErrorEnvelope = {
  error: {
    message: string;
    type: string;
    code: ErrorCode;
    param: string | null;
    limit?: number;
    used?: number;
    remaining?: number;
    resets_at?: string | null;
    /** To the panel only: the message as a text with values. */
    sentence?: Pick<Sentence, "id" | "values">;
  };
  request_id: string;
};

/** The body of every error. Source: ERR-1. */
export function toEnvelope(refusal: Refusal, requestId: string, isPanel = false): ErrorEnvelope {
  const { message, param, limit, used, remaining, resetsAt } = refusal.facts;
  const onWire = (amount: number) => (MONEY_CODES.includes(refusal.code) ? amount / NANO_PER_USD : amount);
  return {
    error: {
      message: refusal.message,
      type: TABLE[refusal.code][1],
      code: refusal.code,
      param: param ?? null,
      ...(limit !== undefined && { limit: onWire(limit) }),
      ...(used !== undefined && { used: onWire(used) }),
      ...(remaining !== undefined && { remaining: onWire(remaining) }),
      ...(resetsAt !== undefined && { resets_at: resetsAt }),
      ...(isPanel && message instanceof Sentence && { sentence: { id: message.id, values: message.values } }),
    },
    request_id: requestId,
  };
}

/** The answer to a refusal: status, envelope, and the headers that its status needs. */
export function toErrorResponse(refusal: Refusal, requestId: string, isPanel = false): Response {
  const status = refusal.status;
  const headers: Record<string, string> = {
    "content-type": "application/json",
    "cache-control": "no-store",
    "x-request-id": requestId,
  };
  const { retryAfterSeconds, isFinal = false } = refusal.facts;
  // SDKs retry these statuses by themselves, but a quota does not reset while they wait, and a finished request stays finished.
  if (isFinal || status === 402 || (status === 409 && retryAfterSeconds === undefined))
    headers["x-should-retry"] = "false";
  if (status === 429 || status === 503 || (status === 409 && retryAfterSeconds !== undefined))
    headers["retry-after"] = String(Math.max(1, Math.ceil(retryAfterSeconds ?? RETRY_AFTER_DEFAULT_SECONDS)));
  if (status === 401) headers["www-authenticate"] = "Bearer";
  if (refusal.facts.allow) headers.allow = refusal.facts.allow;
  return new Response(JSON.stringify(toEnvelope(refusal, requestId, isPanel)), { status, headers });
}

/** Any thrown value as a refusal. Unknown errors become internal_error: their details are only logged. */
export function asRefusal(thrown: unknown): Refusal {
  if (thrown instanceof InputError)
    return new Refusal(thrown instanceof ExistsError ? "already_exists" : "invalid_request", {
      message: thrown.sentence ?? thrown.message,
      param: thrown.param,
    });
  return thrown instanceof Refusal ? thrown : new Refusal("internal_error");
}

/** Invalid input of an operator or a form, with one sentence for them. `param` names the invalid field, if it is one field. */
export class InputError extends Error {
  override readonly name = "InputError";
  readonly param: string | null;
  /** The message as a text with values; null: it has none. */
  readonly sentence: Sentence | null;

  constructor(message: string | Sentence, param: string | null = null) {
    super(String(message));
    this.param = param;
    this.sentence = typeof message === "string" ? null : message;
  }
}

/** What should be added, or its name, is there already. */
export class ExistsError extends InputError {}
