import { isRefusal, type RefusalFacts, refusalText } from "../copy.ts";

/** Words about requests that Home, Usage and the playground share: refusals in short, where to go, why a receipt is as it is. */

const REFUSAL_NAMES: Record<string, string> = {
  daily_quota_exceeded: "daily limit",
  carryover_quota_exceeded: "saved-up limit",
  package_quota_exceeded: "package used up",
  package_expired: "package ended",
  package_required: "no package",
  insufficient_balance: "balance too low",
  payg_pricing_unavailable: "no balance price",
  model_not_in_package: "model not in package",
  model_not_found: "unknown model",
  key_request_limit_exceeded: "key's daily requests",
  key_spend_limit_exceeded: "key's daily spending",
  no_active_key: "no key",
  invalid_api_key: "key not valid",
  host_not_allowed: "host not allowed",
  too_many_requests: "too fast",
  provider_unavailable: "model not answering",
  service_unavailable: "service busy",
  invalid_request: "wrong request",
  validation_failed: "wrong request",
  request_too_large: "too large",
  unsupported_media_type: "wrong format",
  idempotency_conflict: "sent before",
  idempotency_mismatch: "idempotency key used twice",
};

/** In place of a receipt. It says nothing of other people's requests. */
export const UNKNOWN_REQUEST =
  "No request here has this id. Refused ones are counted by the minute for a week: only the last of a minute is found by its id.";

/** A refusal in two or three words, for lists. */
export function refusalName(code: string): string {
  return REFUSAL_NAMES[code] ?? code.replaceAll("_", " ");
}

/** For refusals of some time ago: their amounts were not kept, and no waiting is left. And for codes that no page words. */
const ADVICE: Record<string, string> = {
  insufficient_balance: "The balance did not cover what it could have cost. Lower max tokens, or ask for a top-up.",
  provider_unavailable: "The model did not answer. Try again; most programs do so by themselves.",
  service_unavailable: "We could not take it just then. Try again; most programs do so by themselves.",
  too_many_requests: "Too many requests in a short time. Wait as long as the header Retry-After of the answer says.",
  invalid_request: "The request was not of the right form. The answer your program got names the field.",
  validation_failed: "The request was not of the right form. The answer names the field.",
  request_too_large: "The request was too large. Send less text, or smaller pictures.",
  unsupported_media_type: "Send the body as application/json, not compressed.",
  idempotency_conflict:
    "A request with that Idempotency-Key was under way, or done. It was served once, and charged once.",
  idempotency_mismatch: "That Idempotency-Key was used before for another request. Take a new one for each request.",
  host_not_allowed: "This key may not be used on that host. Create one that may, or send to another host.",
  invalid_api_key: "The key is off, revoked or expired. Use another one.",
};

/** What was refused and what to do about it, for every code. */
export function whatNowText(facts: RefusalFacts): string {
  const advice = ADVICE[facts.code];
  if (isRefusal(facts.code) && (advice === undefined || facts.limit !== undefined)) return refusalText(facts);
  return advice ?? facts.message ?? "The answer your program got says why.";
}

type Step = { label: string; href: string };

const ASK_PACKAGE: Step = { label: "Ask for a package", href: "/billing?ask=package" };
const SEE_KEYS: Step = { label: "Open keys", href: "/keys" };
const NEXT_STEPS: Record<string, Step> = {
  package_required: ASK_PACKAGE,
  package_expired: ASK_PACKAGE,
  package_quota_exceeded: ASK_PACKAGE,
  daily_quota_exceeded: ASK_PACKAGE,
  carryover_quota_exceeded: ASK_PACKAGE,
  model_not_in_package: ASK_PACKAGE,
  insufficient_balance: { label: "Ask for a top-up", href: "/billing?ask=top_up" },
  no_active_key: { label: "Create key", href: "/keys?create=1" },
  key_request_limit_exceeded: SEE_KEYS,
  key_spend_limit_exceeded: SEE_KEYS,
  host_not_allowed: SEE_KEYS,
  invalid_api_key: SEE_KEYS,
};

/** The page where something can be done about a refusal; null: time, or another request, is all it needs. */
export function nextStep(code: string): Step | null {
  return NEXT_STEPS[code] ?? null;
}

const REASONS: Record<string, { short: string; long: string }> = {
  complete: { short: "Complete", long: "The answer was complete." },
  client_left: {
    short: "Stopped early",
    long: "The connection was closed before the answer was complete. What had arrived by then is charged.",
  },
  late: {
    short: "Accounted late",
    long: "It was accounted for after its hold had ended. Only what was still there was taken.",
  },
  provider_failed: { short: "Model did not answer", long: "The model did not answer." },
  provider_broke_off: { short: "Answer broke off", long: "The answer broke off." },
  provider_rejected: { short: "Refused by the model", long: "The model's service refused the request itself." },
  ended_by_us: { short: "Ended by us", long: "We had to end it before it was complete." },
  not_dispatched: { short: "Not sent", long: "It never reached the model." },
  reserve_timed_out: { short: "Not sent", long: "It waited too long, and never reached the model." },
  lease_ended: { short: "Did not end", long: "It did not come to an end in its time." },
  overrun_refused: {
    short: "Cost more than held",
    long: "It cost more than was held, and the balance did not cover the rest.",
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
