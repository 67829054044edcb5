import { Refusal } from "../errors.ts";
import type { Log } from "../platform/log.ts";
import type { TimeLimit } from "../platform/metrics.ts";
import type { StopSignal } from "../platform/stop.ts";
import type { Breakers, Pass, Requester } from "./breaker.ts";
import type { Route } from "./catalog.ts";
import { type FailureKind, ProviderFailure, ProviderRejection } from "./provider_errors.ts";

/** Routes tried for one request. More would only keep the client waiting. */
const ATTEMPTS_MAX = 5;
/** Longest Retry-After sent to a client; a breaker stays open for at most half of it. */
const RETRY_AFTER_SECONDS_MAX = 60;
/** The pause of a provider that asks for one without saying how long. */
const COOL_DOWN_DEFAULT_SECONDS = 1;
/** Retry-After for a model without any route: retrying sooner would not help. */
const RETRY_AFTER_NO_ROUTE_SECONDS = 30;

type Failover = {
  routes: readonly Route[];
  breakers: Breakers;
  /** The account that makes the request. */
  requester: Requester;
  /** Returns a number from 0 to below 1, like Math.random. */
  random: () => number;
  signal: StopSignal;
  log: Log;
  /** Called for each time limit that a provider exceeds. */
  onTimeOut?: (limit: TimeLimit) => void;
  /** Called for each failed attempt. */
  onFailure?: (kind: FailureKind) => void;
};

/**
 * What the client is told if every route finds that it cannot serve this request. Never the provider's message, which
 * concerns the operator's account.
 */
const UNSERVED: Partial<Readonly<Record<FailureKind, string>>> = {
  too_large: "The request is too large for the model service. Shorten it, or lower max_tokens.",
  no_credit: "The model service does not take the request at this size. Shorten it, or lower max_tokens.",
  unknown_model: "The model cannot do what the request asks for.",
};

/**
 * Runs `attempt` on one route after another until one succeeds: lowest priority number first, by weight among equal
 * ones, skipping open breakers. `attempt` ends at the first byte, and throws ProviderFailure (the next route is tried)
 * or ProviderRejection (no further route); any other error passes through. It must itself obey `signal`.
 *
 * Throws invalid_request (with the provider's cleaned message; or with ours, if each route refused the request for its
 * own reasons), provider_unavailable, or the reason of `signal`.
 * Source: PRV-3, PRV-4, PRV-5.
 */
export async function withFailover<T>(failover: Failover, attempt: (route: Route) => Promise<T>): Promise<T> {
  const { routes, breakers, requester, random, signal, log } = failover;
  const failures: Failures = { retryAfter: undefined, unserved: undefined, others: 0 };
  let attempts = 0;
  for (const route of orderRoutes(routes, random)) {
    if (attempts >= ATTEMPTS_MAX) break;
    signal.throwIfAborted();
    const pass = breakers.enter(route.id, requester);
    if (!pass) {
      failures.others += 1;
      continue;
    }
    attempts += 1;
    try {
      const result = await attempt(route);
      pass.succeeded();
      return result;
    } catch (thrown) {
      if (signal.aborted) {
        // It says nothing about the provider, which may fail because we cancelled the call.
        pass.abandoned();
        throw signal.reason;
      }
      if (thrown instanceof ProviderRejection) {
        pass.succeeded();
        log.info({ ...namesOf(route), status: thrown.status, param: thrown.param }, "provider refused the request");
        throw new Refusal("invalid_request", { message: thrown.message, param: thrown.param });
      }
      if (!(thrown instanceof ProviderFailure)) {
        pass.abandoned();
        throw thrown;
      }
      note(failover, { route, pass, failures }, thrown);
    }
  }
  if (failures.unserved !== undefined && failures.others === 0) {
    throw new Refusal("invalid_request", { message: UNSERVED[failures.unserved] ?? "The request cannot be served." });
  }
  const retryAfterSeconds = soonestSeconds(routes, (route) =>
    Math.max(breakers.dueInMs(route.id, requester) / 1000, failures.retryAfter?.get(route.id) ?? 0),
  );
  log.error({ routes: routes.length, attempts, retryAfterSeconds }, "no route could serve");
  throw new Refusal("provider_unavailable", { retryAfterSeconds });
}

/** What is known of the routes that did not serve the request. */
type Failures = {
  /** Seconds by route. */
  retryAfter: Map<number, number> | undefined;
  /** Why the first route that cannot serve this request cannot. */
  unserved: FailureKind | undefined;
  /** Routes that may serve it later: those that failed, and those that were skipped. */
  others: number;
};
type Attempted = { route: Route; pass: Pass; failures: Failures };

/** Reports a failure to the breaker, the log and the metrics. */
function note(
  { log, onTimeOut, onFailure }: Failover,
  { route, pass, failures }: Attempted,
  failure: ProviderFailure,
): void {
  const { kind, status, message: detail, retryAfterSeconds, limit, blame } = failure;
  onFailure?.(kind);
  if (limit !== null) onTimeOut?.(limit);
  if (blame === "request") {
    failures.unserved ??= kind;
    pass.unserved(kind);
    log.warn({ ...namesOf(route), kind, status, detail }, "a route does not serve this request");
    return;
  }
  failures.others += 1;
  if (retryAfterSeconds !== null) {
    failures.retryAfter ??= new Map();
    failures.retryAfter.set(route.id, retryAfterSeconds);
  }
  if (blame === "rate") pass.coolDown(Math.max(1, retryAfterSeconds ?? COOL_DOWN_DEFAULT_SECONDS) * 1000);
  else pass.failed({ unreachable: blame === "connection" });
  log.warn({ ...namesOf(route), kind, status, detail }, "provider failed");
}

/** All routes in the order in which they are tried: by priority, in random order weighted by `weight` within one. */
export function orderRoutes(routes: readonly Route[], random: () => number): readonly Route[] {
  if (routes.length <= 1) return routes;
  // Each route draws a key from an exponential distribution of its weight; the smallest key comes first in proportion
  // to the weight.
  const keyed = routes.map((route) => ({ route, key: -Math.log(1 - random()) / route.weight }));
  keyed.sort((a, b) => a.route.priority - b.route.priority || a.key - b.key);
  return keyed.map(({ route }) => route);
}

function soonestSeconds(routes: readonly Route[], waitSeconds: (route: Route) => number): number {
  if (routes.length === 0) return RETRY_AFTER_NO_ROUTE_SECONDS;
  const soonest = Math.min(...routes.map(waitSeconds));
  return Math.min(RETRY_AFTER_SECONDS_MAX, Math.max(1, Math.ceil(soonest)));
}

function namesOf(route: Route): { provider: string; routeId: number; upstreamModel: string } {
  return { provider: route.providerName, routeId: route.id, upstreamModel: route.upstreamModel };
}
