import { Refusal } from "../errors.ts";
import type { Log } from "../platform/log.ts";
import type { TimeLimit } from "../platform/metrics.ts";
import type { StopSignal } from "../platform/stop.ts";
import type { Breakers } from "./breaker.ts";
import type { Route } from "./catalog.ts";
import { ProviderFailure, ProviderRejection } from "./provider_errors.ts";

/** Routes tried for one request. More would keep the client waiting for what will not come. */
const ATTEMPTS_MAX = 5;
/** What a client is told to wait at most; a breaker stays open no longer than half of it. */
const RETRY_AFTER_SECONDS_MAX = 60;
/** Where a model has no route at all, waiting less would not help. */
const RETRY_AFTER_NO_ROUTE_SECONDS = 30;

type Failover = {
  routes: readonly Route[];
  breakers: Breakers;
  /** From 0 up to 1, as Math.random. */
  random: () => number;
  signal: StopSignal;
  log: Log;
  /** Told of each limit that a provider passed. */
  onTimeOut?: (limit: TimeLimit) => void;
};

/**
 * Runs `attempt` on one route after another until one succeeds: lowest priority number first, by weight within one,
 * leaving out open breakers. `attempt` ends at the first byte, and throws ProviderFailure (next route) or
 * ProviderRejection (no further route); anything else it throws passes through. It must itself obey `signal`.
 *
 * Throws provider_unavailable, invalid_request with the provider's cleaned words, or the reason of `signal`.
 * Source: house plan › Providers.
 */
export async function withFailover<T>(
  { routes, breakers, random, signal, log, onTimeOut }: Failover,
  attempt: (route: Route) => Promise<T>,
): Promise<T> {
  let hints: Map<number, number> | undefined;
  let attempts = 0;
  for (const route of orderRoutes(routes, random)) {
    if (attempts >= ATTEMPTS_MAX) break;
    signal.throwIfAborted();
    const pass = breakers.enter(route.id);
    if (!pass) continue;
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
      pass.failed();
      if (thrown.limit !== null) onTimeOut?.(thrown.limit);
      if (thrown.retryAfterSeconds !== null) {
        hints ??= new Map();
        hints.set(route.id, thrown.retryAfterSeconds);
      }
      log.warn(
        { ...namesOf(route), kind: thrown.kind, status: thrown.status, detail: thrown.message },
        "provider failed",
      );
    }
  }
  const retryAfterSeconds = soonestSeconds(routes, (route) =>
    Math.max(breakers.dueInMs(route.id) / 1000, hints?.get(route.id) ?? 0),
  );
  log.error({ routes: routes.length, attempts, retryAfterSeconds }, "no route could serve");
  throw new Refusal("provider_unavailable", { retryAfterSeconds });
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
