import { isRefusal, type RefusalFacts, refusalText } from "../../copy.ts";

/** Text about requests that several pages share: names of refusals, advice, next steps, and why a request ended. */

const REFUSAL_NAMES: Record<string, string> = {
  daily_quota_exceeded: "daily limit",
  carryover_quota_exceeded: "carryover limit",
  package_quota_exceeded: "package used up",
  package_expired: "package ended",
  package_required: "no package",
  insufficient_balance: "balance too low",
  payg_pricing_unavailable: "no balance price",
  model_not_in_package: "model not in package",
  model_not_found: "unknown model",
  key_request_limit_exceeded: "key's daily requests",
  key_spend_limit_exceeded: "key's spending limit",
  no_active_key: "no key",
  invalid_api_key: "key not valid",
  host_not_allowed: "host not allowed",
  too_many_requests: "rate limit",
  provider_unavailable: "model not answering",
  service_unavailable: "service busy",
  invalid_request: "invalid request",
  validation_failed: "invalid request",
  context_length_exceeded: "prompt too long",
  request_too_large: "too large",
  unsupported_media_type: "wrong format",
  idempotency_conflict: "repeated request",
  idempotency_mismatch: "idempotency key used twice",
};

/** A refusal in two or three words, for lists. */
export function refusalName(code: string): string {
  return REFUSAL_NAMES[code] ?? code.replaceAll("_", " ");
}

/** Advice for past refusals, whose amounts were not kept and whose waiting time is over, and for codes without other text. */
const ADVICE: Record<string, string> = {
  insufficient_balance: "The balance did not cover the highest possible cost. Lower max tokens, or top up the balance.",
  provider_unavailable: "The model did not answer. Try again. Most SDKs retry automatically.",
  service_unavailable: "The service was busy. Try again. Most SDKs retry automatically.",
  context_length_exceeded:
    "The prompt was longer than the model takes. Shorten the conversation, or choose a model with a longer context.",
  too_many_requests: "Too many requests in a short time. Wait for the time in the Retry-After header of the response.",
  invalid_request: "The request was not valid. The error message in the response names the field.",
  validation_failed: "The request was not valid. The error message names the field.",
  request_too_large: "The request was too large. Send less text or smaller images.",
  unsupported_media_type: "Send the body as application/json, not compressed.",
  idempotency_conflict: "A request with this Idempotency-Key was running or finished. It was served and charged once.",
  idempotency_mismatch: "This Idempotency-Key was used for another request. Use a new one for each request.",
  host_not_allowed: "This key cannot be used on that host. Create a key for it, or use another host.",
  invalid_api_key: "The key is off, revoked or expired. Use another key.",
};

/** Why a request was refused and what to do, for every code. */
export function whatNowText(facts: RefusalFacts): string {
  const advice = ADVICE[facts.code];
  if (isRefusal(facts.code) && (advice === undefined || facts.limit !== undefined)) return refusalText(facts);
  return advice ?? facts.message ?? "The error message in the response says why.";
}

type Step = { label: string; href: string };

const ASK_PACKAGE: Step = { label: "Get a package", href: "/billing?ask=package" };
const SEE_KEYS: Step = { label: "Open keys", href: "/keys" };
const NEXT_STEPS: Record<string, Step> = {
  package_required: ASK_PACKAGE,
  package_expired: ASK_PACKAGE,
  package_quota_exceeded: ASK_PACKAGE,
  daily_quota_exceeded: ASK_PACKAGE,
  carryover_quota_exceeded: ASK_PACKAGE,
  model_not_in_package: ASK_PACKAGE,
  insufficient_balance: { label: "Top up the balance", href: "/billing?ask=top_up" },
  no_active_key: { label: "Create key", href: "/keys?create=1" },
  key_request_limit_exceeded: SEE_KEYS,
  key_spend_limit_exceeded: SEE_KEYS,
  host_not_allowed: SEE_KEYS,
  invalid_api_key: SEE_KEYS,
};

/** The page that helps with a refusal; null if waiting or another request is enough. */
export function nextStep(code: string): Step | null {
  return NEXT_STEPS[code] ?? null;
}

const REASONS: Record<string, { short: string; long: string }> = {
  complete: { short: "Complete", long: "The answer was complete." },
  client_left: {
    short: "Stopped early",
    long: "The client closed the connection before the answer was complete. What had arrived is charged.",
  },
  late: {
    short: "Settled late",
    long: "It was settled after its hold had ended. Only what was still available was charged.",
  },
  provider_failed: { short: "Model did not answer", long: "The model did not answer." },
  provider_broke_off: { short: "Answer cut off", long: "The answer was cut off." },
  provider_rejected: { short: "Refused by the model", long: "The model's provider refused the request." },
  timed_out: { short: "Took too long", long: "The model took longer than we wait, or fell silent." },
  ended_by_us: { short: "Ended by the service", long: "We ended the request before it was complete." },
  gateway_failed: { short: "Failed on our side", long: "An error on our side ended the request." },
  not_dispatched: { short: "Not sent", long: "The request never reached the model." },
  replica_died: { short: "Interrupted", long: "The server that handled the request stopped before it was complete." },
  overrun_refused: {
    short: "Cost more than reserved",
    long: "The request cost more than was reserved, and the balance did not cover the rest.",
  },
};

/** Why a request ended as it did, in a few words. */
export function reasonName(reason: string): string {
  return REASONS[reason]?.short ?? reason.replaceAll("_", " ");
}

/** The same as a sentence. */
export function reasonText(reason: string): string {
  return REASONS[reason]?.long ?? `It ended with: ${reason.replaceAll("_", " ")}.`;
}
