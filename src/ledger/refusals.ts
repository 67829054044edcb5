import { Refusal } from "../errors.ts";
import type { Log } from "../platform/log.ts";
import { LedgerError } from "./batch.ts";
import type { ReserveResult } from "./ledger_store.ts";

/** Translates the codes of `ledger_draw` and failed batches into the API's errors. */

/** Why nothing pays for a request. */
export const ENTITLEMENT_REFUSALS = [
  "model_not_found",
  "model_not_in_package",
  "package_required",
  "package_expired",
  "package_quota_exceeded",
  "daily_quota_exceeded",
  "carryover_quota_exceeded",
  "key_request_limit_exceeded",
  "key_spend_limit_exceeded",
  "insufficient_balance",
  "payg_pricing_unavailable",
] as const;
const REFUSALS = new Set(["invalid_api_key", "host_not_allowed", ...ENTITLEMENT_REFUSALS] as const);
/** The API reports these codes of the ledger as package_quota_exceeded: a token allowance is used up, or too little of it is left now. */
const TOKENS_EXCEEDED = "package_tokens_exceeded";
const TOKENS_SHORT = "package_tokens_short";
const SENTENCES = {
  tokensExceeded: "The package's token allowance is used up.",
  tokensShort:
    "This request may use more tokens than are left of the package's token allowance. Running requests have reserved theirs until they end. Ask for less output with max_tokens, or try again later.",
  overSpendLimit: "This request could cost more than what is left of this key's own spending limit.",
};
type RefusalCode = typeof REFUSALS extends Set<infer Code> ? Code : never;

/** The API error for a reservation that was not granted. An unexpected code becomes service_unavailable. */
export function toRefusal(result: ReserveResult, log: Log): Refusal {
  const isOfTokens = result.code === TOKENS_EXCEEDED || result.code === TOKENS_SHORT;
  const code = (isOfTokens ? "package_quota_exceeded" : result.code) as RefusalCode;
  if (!REFUSALS.has(code)) {
    log.error(
      { code: result.code },
      result.code === "clock_skew"
        ? "this machine's clock differs from the database's by more than an hour: every request is refused until it is set"
        : "the ledger refused to reserve a request",
    );
    return new Refusal("service_unavailable");
  }
  const exhausted = result.remaining !== null;
  const overSpendLimit = code === "key_spend_limit_exceeded" && result.remaining !== 0;
  return new Refusal(code, {
    ...(result.code === TOKENS_EXCEEDED && { message: SENTENCES.tokensExceeded }),
    ...(result.code === TOKENS_SHORT && { message: SENTENCES.tokensShort, isPassing: true }),
    ...(overSpendLimit && { message: SENTENCES.overSpendLimit }),
    ...(result.limit !== null && { limit: result.limit }),
    ...(result.used !== null && { used: result.used }),
    ...(result.remaining !== null && { remaining: result.remaining }),
    ...(exhausted && code !== "insufficient_balance" && { resetsAt: result.resetsAt }),
    ...(code.startsWith("model_") && { param: "model" }),
  });
}

/** The API error for a reservation that the database did not answer. */
export function unanswered(error: unknown): Refusal {
  if (error instanceof LedgerError && error.kind === "bad_row") return new Refusal("internal_error");
  return new Refusal("service_unavailable", { retryAfterSeconds: 1 });
}
