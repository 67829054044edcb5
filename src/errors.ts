/**
 * THE table of errors: every code a client can meet, with its HTTP status and type.
 * No status number of an error stands anywhere else. Source: contract › Errors, rulings › Errors.
 */
const TABLE = {
  invalid_api_key: [401, "authentication_error", "The API key is missing, invalid, revoked or expired."],
  host_not_allowed: [403, "permission_error", "This key may not be used on this host."],
  package_required: [402, "billing_error", "No package is active on this account."],
  package_expired: [402, "billing_error", "The package has ended. The key works again once a new package is active."],
  package_quota_exceeded: [402, "billing_error", "The package's total allowance is used up."],
  daily_quota_exceeded: [402, "billing_error", "Today's allowance of the package is used up."],
  carryover_quota_exceeded: [402, "billing_error", "The package's accumulated allowance is used up."],
  insufficient_balance: [402, "billing_error", "The balance does not cover this request."],
  payg_pricing_unavailable: [402, "billing_error", "This model has no pay-as-you-go price."],
  model_not_in_package: [403, "permission_error", "This model is not part of the active package."],
  model_not_found: [404, "invalid_request_error", "The model does not exist or is not available to this key."],
  key_request_limit_exceeded: [402, "billing_error", "This key has used its own limit of requests for today."],
  key_spend_limit_exceeded: [402, "billing_error", "This key has used its own spending limit for today."],
  invalid_request: [400, "invalid_request_error", "The request is invalid."],
  not_found: [404, "invalid_request_error", "There is nothing at this address."],
  method_not_allowed: [405, "invalid_request_error", "This address does not answer that method."],
  request_too_large: [413, "invalid_request_error", "The request body is too large."],
  unsupported_media_type: [415, "invalid_request_error", "Send the body as uncompressed application/json."],
  idempotency_conflict: [409, "invalid_request_error", "This was sent before."],
  idempotency_mismatch: [400, "invalid_request_error", "This Idempotency-Key was sent before, with another request."],
  too_many_requests: [429, "rate_limit_error", "Too many requests. Slow down and try again."],
  provider_unavailable: [503, "provider_unavailable", "The model service is temporarily unreachable. Try again."],
  service_unavailable: [503, "server_error", "The service cannot take this request right now. Try again."],
  internal_error: [500, "server_error", "Something went wrong on our side. Quote the request id to support."],
  session_required: [401, "authentication_error", "Sign in to use the panel."],
  second_factor_required: [401, "authentication_error", "Enter the code of your authenticator app."],
  read_only: [403, "permission_error", "You are looking at somebody else's panel: nothing can be changed."],
  csrf_failed: [403, "permission_error", "The request did not come from the panel."],
  no_active_key: [422, "invalid_request_error", "No enabled API key can be used for this request."],
  validation_failed: [422, "invalid_request_error", "The request is invalid."],
} as const satisfies Record<string, readonly [status: number, type: string, message: string]>;

export type ErrorCode = keyof typeof TABLE;
export const ERROR_TABLE: Readonly<Record<ErrorCode, readonly [status: number, type: string, message: string]>> = TABLE;

/** Refusals whose amounts are money. */
const MONEY_CODES: readonly ErrorCode[] = ["insufficient_balance", "key_spend_limit_exceeded"];

/** What a refusal may add to its code. `limit`, `used` and `remaining` are units; where money ran out nano-USD, sent as USD. */
export type RefusalFacts = {
  message?: string;
  /** Path of the bad field, as in `messages.0.role`. */
  param?: string | null;
  limit?: number;
  used?: number;
  remaining?: number;
  /** ISO 8601, or null when no further reset comes. */
  resetsAt?: string | null;
  retryAfterSeconds?: number;
  /** For 405: the methods that work. */
  allow?: string;
  /** The status at this door, where it differs from the table's. Only the panel sets it. */
  status?: number;
};

/** A request that is turned down. Thrown anywhere, answered in one place (`http/app.ts`). */
export class Refusal extends Error {
  override readonly name = "Refusal";
  readonly code: ErrorCode;
  readonly facts: RefusalFacts;

  constructor(code: ErrorCode, facts: RefusalFacts = {}) {
    super(facts.message ?? TABLE[code][2]);
    this.code = code;
    this.facts = facts;
  }

  get status(): number {
    return this.facts.status ?? TABLE[this.code][0];
  }
}

/** Seconds a client is told to wait where nothing better is known. */
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
  };
  request_id: string;
};

/** The body of every error. Source: contract › ErrorEnvelope. */
export function toEnvelope(refusal: Refusal, requestId: string): ErrorEnvelope {
  const { param, limit, used, remaining, resetsAt } = refusal.facts;
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
    },
    request_id: requestId,
  };
}

/** The whole answer to a refusal: status, envelope, and the headers its status calls for. */
export function toErrorResponse(refusal: Refusal, requestId: string): Response {
  const status = refusal.status;
  const headers: Record<string, string> = {
    "content-type": "application/json",
    "cache-control": "no-store",
    "x-request-id": requestId,
  };
  const { retryAfterSeconds } = refusal.facts;
  // SDKs retry on several statuses: used-up quota does not come back within their patience, and what is done stays done.
  if (status === 402 || (status === 409 && retryAfterSeconds === undefined)) headers["x-should-retry"] = "false";
  if (status === 429 || status === 503 || (status === 409 && retryAfterSeconds !== undefined))
    headers["retry-after"] = String(Math.max(1, Math.ceil(retryAfterSeconds ?? RETRY_AFTER_DEFAULT_SECONDS)));
  if (status === 401) headers["www-authenticate"] = "Bearer";
  if (refusal.facts.allow) headers.allow = refusal.facts.allow;
  return new Response(JSON.stringify(toEnvelope(refusal, requestId)), { status, headers });
}

/** Any thrown value as a refusal: what is not one already is an internal error, and its details stay in the log. */
export function asRefusal(thrown: unknown): Refusal {
  if (thrown instanceof InputError)
    return new Refusal("invalid_request", { message: thrown.message, param: thrown.param });
  return thrown instanceof Refusal ? thrown : new Refusal("internal_error");
}

/** What an operator or a form got wrong, in one plain sentence. `param` names the field, where one is at fault. */
export class InputError extends Error {
  override readonly name = "InputError";
  readonly param: string | null;

  constructor(message: string, param: string | null = null) {
    super(message);
    this.param = param;
  }
}
