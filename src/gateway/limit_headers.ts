import type { LimitedRequest } from "../platform/rate_limit.ts";
import type { LimitState } from "../platform/rate_tallies.ts";

/** The `x-ratelimit-*` headers of answers to metered requests, in OpenAI's form. Source: LIM-5. */

const SECOND_MS = 1000;
const MINUTE_SECONDS = 60;

/** Says in the headers how much is left of the limits of requests and of tokens a minute. A kind without a limit has no headers. */
export function setLimitHeaders(headers: Headers, limits: LimitedRequest): void {
  setHeaders(headers, "requests", limits.requests());
  setHeaders(headers, "tokens", limits.tokens());
}

function setHeaders(headers: Headers, kind: "requests" | "tokens", state: LimitState | undefined): void {
  if (state === undefined) return;
  headers.set(`x-ratelimit-limit-${kind}`, String(state.limit));
  headers.set(`x-ratelimit-remaining-${kind}`, String(state.remaining));
  headers.set(`x-ratelimit-reset-${kind}`, asDuration(state.resetsInMs));
}

/** A duration as OpenAI writes it: `20ms`, `1s`, `6m0s`. Rounded up, so that nobody comes back too early. */
export function asDuration(ms: number): string {
  const whole = Math.ceil(ms);
  if (whole < SECOND_MS) return `${whole}ms`;
  const seconds = Math.ceil(whole / SECOND_MS);
  const minutes = Math.floor(seconds / MINUTE_SECONDS);
  return minutes === 0 ? `${seconds}s` : `${minutes}m${seconds % MINUTE_SECONDS}s`;
}
