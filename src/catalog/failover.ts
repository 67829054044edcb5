import { Refusal } from "../errors.ts";
import type { Log } from "../platform/log.ts";
import type { TimeLimit } from "../platform/metrics.ts";
import type { StopSignal } from "../platform/stop.ts";
import type { Breakers, Pass, Requester } from "./breaker.ts";
import type { Route } from "./catalog.ts";
import { type FailureKind, ProviderFailure, ProviderRejection } from "./provider_errors.ts";

/** Routes tried for one request. More would keep the client waiting for what will not come. */
const ATTEMPTS_MAX = 5;
/** What a client is told to wait at most; a breaker stays open no longer than half of it. */
const RETRY_AFTER_SECONDS_MAX = 60;
/** A provider that asks for a pause and does not say how long is left alone for this long. */
const COOL_DOWN_DEFAULT_SECONDS = 1;
/** Where a model has no route at all, waiting less would not help. */
const RETRY_AFTER_NO_ROUTE_SECONDS = 30;

type Failover = {
  routes: readonly Route[];
  breakers: Breakers;
  /** Whose request it is. */
  requester: Requester;
  /** From 0 up to 1, as Math.random. */
  random: () => number;
  signal: StopSignal;
  log: Log;
  /** Told of each limit that a provider passed. */
  onTimeOut?: (limit: TimeLimit) => void;
  /** Told of each failed attempt. */
  onFailure?: (kind: FailureKind) => void;
};

/** What the client is told where every route found that the request itself cannot be served. Never the provider's words: they speak of the operator's account. */
const UNSERVED: Partial<Readonly<Record<FailureKind, string>>> = {
  too_large: "The request is too large for the model service. Shorten it, or lower max_tokens.",
  no_credit: "The model service does not take the request at this size. Shorten it, or lower max_tokens.",
  unknown_model: "The model cannot do what the request asks for.",
};

/**
 * Runs `attempt` on one route after another until one succeeds: lowest priority number first, by weight within one,
 * leaving out open breakers. `attempt` ends at the first byte, and throws ProviderFailure (next route) or
 * ProviderRejection (no further route); anything else it throws passes through. It must itself obey `signal`.
 *
 * Throws invalid_request (with the provider's cleaned words; or with ours, where each route refused the request for its own
 * reasons), provider_unavailable, or the reason of `signal`.
 * Source: house plan › Providers, rulings › What is sent on, and what counts as a provider's failure.
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
        // It says nothing about the provider: it may be failing because we let go of it.
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

/** What is known of the routes that did not serve a request. */
type Failures = {
  /** Seconds, by route. */
  retryAfter: Map<number, number> | undefined;
  /** Why the first route that could not serve this very request could not. */
  unserved: FailureKind | undefined;
  /** Routes that may serve it later: those that failed, and those that were left alone. */
  others: number;
};
type Attempted = { route: Route; pass: Pass; failures: Failures };

/** Tells the breaker, the log and the counters what a failure means. */
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

/** All routes in the order they are tried: by priority, and within one a random order in which weight counts. */
export function orderRoutes(routes: readonly Route[], random: () => number): readonly Route[] {
  if (routes.length <= 1) return routes;
  // Each draws a key from an exponential distribution of its weight; the smallest key is first as often as its share.
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
