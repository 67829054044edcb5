import { t } from "@lingui/core/macro";
import { isRefusal, type RefusalFacts, refusalText } from "../../failures.ts";

/** Text about requests that several pages share: names of refusals, advice, next steps, and why a request ended. */

const REFUSAL_NAMES: Record<string, string> = {
  daily_quota_exceeded: t`daily limit`,
  carryover_quota_exceeded: t`carryover limit`,
  package_quota_exceeded: t`package used up`,
  package_expired: t`package ended`,
  package_required: t`no package`,
  insufficient_balance: t`balance too low`,
  payg_pricing_unavailable: t`no balance price`,
  model_not_in_package: t`model not in package`,
  model_not_found: t`unknown model`,
  key_request_limit_exceeded: t`key's daily requests`,
  key_spend_limit_exceeded: t`key's spending limit`,
  no_active_key: t`no key`,
  invalid_api_key: t`key not valid`,
  host_not_allowed: t`host not allowed`,
  too_many_requests: t`rate limit`,
  provider_unavailable: t`model not answering`,
  service_unavailable: t`service busy`,
  invalid_request: t`invalid request`,
  validation_failed: t`invalid request`,
  context_length_exceeded: t`prompt too long`,
  request_too_large: t`too large`,
  unsupported_media_type: t`wrong format`,
  idempotency_conflict: t`repeated request`,
  idempotency_mismatch: t`idempotency key used twice`,
};

/** A refusal in two or three words, for lists. */
export function refusalName(code: string): string {
  return REFUSAL_NAMES[code] ?? code.replaceAll("_", " ");
}

/** Advice for past refusals, whose amounts were not kept and whose waiting time is over, and for codes without other text. */
const ADVICE: Record<string, string> = {
  insufficient_balance: t`The balance did not cover the highest possible cost. Lower max tokens, or top up the balance.`,
  provider_unavailable: t`The model did not answer. Try again. Most SDKs retry automatically.`,
  service_unavailable: t`The service was busy. Try again. Most SDKs retry automatically.`,
  context_length_exceeded: t`The prompt was longer than the model takes. Shorten the conversation, or choose a model with a longer context.`,
  too_many_requests: t`Too many requests in a short time. Wait for the time in the Retry-After header of the response.`,
  invalid_request: t`The request was not valid. The error message in the response names the field.`,
  validation_failed: t`The request was not valid. The error message names the field.`,
  request_too_large: t`The request was too large. Send less text or smaller images.`,
  unsupported_media_type: t`Send the body as application/json, not compressed.`,
  idempotency_conflict: t`A request with this Idempotency-Key was running or finished. It was served and charged once.`,
  idempotency_mismatch: t`This Idempotency-Key was used for another request. Use a new one for each request.`,
  host_not_allowed: t`This key cannot be used on that host. Create a key for it, or use another host.`,
  invalid_api_key: t`The key is off, revoked or expired. Use another key.`,
};

/** Why a request was refused and what to do, for every code. */
export function whatNowText(facts: RefusalFacts): string {
  const advice = ADVICE[facts.code];
  if (isRefusal(facts.code) && (advice === undefined || facts.limit !== undefined)) return refusalText(facts);
  return advice ?? facts.message ?? t`The error message in the response says why.`;
}

type Step = { label: string; href: string };

const ASK_PACKAGE: Step = { label: t`Get a package`, href: "/billing?ask=package" };
const SEE_KEYS: Step = { label: t`Open keys`, href: "/keys" };
const NEXT_STEPS: Record<string, Step> = {
  package_required: ASK_PACKAGE,
  package_expired: ASK_PACKAGE,
  package_quota_exceeded: ASK_PACKAGE,
  daily_quota_exceeded: ASK_PACKAGE,
  carryover_quota_exceeded: ASK_PACKAGE,
  model_not_in_package: ASK_PACKAGE,
  insufficient_balance: { label: t`Top up the balance`, href: "/billing?ask=top_up" },
  no_active_key: { label: t`Create key`, href: "/keys?create=1" },
  key_request_limit_exceeded: SEE_KEYS,
  key_spend_limit_exceeded: SEE_KEYS,
  host_not_allowed: SEE_KEYS,
  invalid_api_key: SEE_KEYS,
};

/** The page that helps with a refusal; null if waiting or another request is enough. */
export function nextStep(code: string): Step | null {
  return NEXT_STEPS[code] ?? null;
}

const REASONS: Record<string, { short: string; inLine: string; long: string }> = {
  complete: { short: t`Complete`, inLine: t`complete`, long: t`The answer was complete.` },
  client_left: {
    short: t`Stopped early`,
    inLine: t`stopped early`,
    long: t`The client closed the connection before the answer was complete. What had arrived is charged.`,
  },
  late: {
    short: t`Settled late`,
    inLine: t`settled late`,
    long: t`It was settled after its hold had ended. Only what was still available was charged.`,
  },
  provider_failed: {
    short: t`Model did not answer`,
    inLine: t`model did not answer`,
    long: t`The model did not answer.`,
  },
  provider_broke_off: { short: t`Answer cut off`, inLine: t`answer cut off`, long: t`The answer was cut off.` },
  provider_rejected: {
    short: t`Refused by the model`,
    inLine: t`refused by the model`,
    long: t`The model's provider refused the request.`,
  },
  timed_out: {
    short: t`Took too long`,
    inLine: t`took too long`,
    long: t`The model took longer than we wait, or fell silent.`,
  },
  ended_by_us: {
    short: t`Ended by the service`,
    inLine: t`ended by the service`,
    long: t`We ended the request before it was complete.`,
  },
  gateway_failed: {
    short: t`Failed on our side`,
    inLine: t`failed on our side`,
    long: t`An error on our side ended the request.`,
  },
  not_dispatched: { short: t`Not sent`, inLine: t`not sent`, long: t`The request never reached the model.` },
  replica_died: {
    short: t`Interrupted`,
    inLine: t`interrupted`,
    long: t`The server that handled the request stopped before it was complete.`,
  },
  overrun_refused: {
    short: t`Cost more than reserved`,
    inLine: t`cost more than reserved`,
    long: t`The request cost more than was reserved, and the balance did not cover the rest.`,
  },
};

/** Why a request ended as it did, in a few words. */
export function reasonName(reason: string): string {
  return REASONS[reason]?.short ?? reason.replaceAll("_", " ");
}

/** The same after other words. */
export function reasonInLine(reason: string): string {
  return REASONS[reason]?.inLine ?? reason.replaceAll("_", " ");
}

/** The same as a sentence. */
export function reasonText(reason: string): string {
  return REASONS[reason]?.long ?? t`It ended with: ${{ reason: reason.replaceAll("_", " ") }}.`;
}
