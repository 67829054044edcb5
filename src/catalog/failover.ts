import { RETRY_AFTER_SECONDS_MAX, Refusal } from "../errors.ts";
import type { Log } from "../platform/log.ts";
import type { StopSignal } from "../platform/stop.ts";
import { type Draw, drawsOf, rankOf } from "./affinity.ts";
import type { Breakers, Pass, Requester } from "./breaker.ts";
import type { KeyedRoute, ModelRoute, Route } from "./catalog.ts";
import type { RouteChoice } from "./catalog_input.ts";
import type { KeyPool } from "./key_pool.ts";
import {
  type FailureKind,
  NO_MESSAGE,
  ProviderFailure,
  ProviderRejection,
  type Work,
  withoutModelName,
} from "./provider_errors.ts";
import type { SpeedRanks } from "./route_speeds.ts";

/** Attempts of one request that fail because of the route or the request. More would only delay the client. */
const ATTEMPTS_MAX = 5;
/** Attempts of one request that fail only because of the key. Each failure removes its key for the next requests. */
const KEY_FAILURES_MAX = 64;
/** Retry-After for a model without any route: retrying sooner would not help. */
const RETRY_AFTER_NO_ROUTE_SECONDS = 30;
const NO_KEYS: readonly KeyedRoute[] = [];

/** One request in this many ignores the ranks of a choice by latency, so that a slow route is measured again. */
const EXPLORED_ONE_IN = 20;

type Failover = RouteOrder & {
  /** The name by which the client knows the model. */
  modelId: string;
  /** The field of the request that has the prompt. Default: `messages`. */
  promptParam?: string | undefined;
  routes: readonly ModelRoute[];
  breakers: Breakers;
  keys: KeyPool;
  /** The account that makes the request. */
  requester: Requester;
  signal: StopSignal;
  log: Log;
  observer?: Observer;
};

/** Whether an answer has nothing in it: it counts as a failure, and is used only if no other route has a better one. */
type IsEmpty<T> = (answer: T) => boolean;

/** Called after each attempt that does not serve the request, before the next key or route is tried. */
export type Observer = {
  /** The route's breaker is open, or none of its keys may be used: it was not called. */
  skipped(route: Route): void;
  failed(route: KeyedRoute, failure: ProviderFailure): void;
  /** The provider refused the request itself. */
  rejected(route: KeyedRoute, rejection: ProviderRejection): void;
};

/**
 * What the client is told if every route finds that it cannot serve this request. Never the provider's message, which
 * concerns the operator's account.
 */
const UNSERVED: Partial<Readonly<Record<FailureKind, string>>> = {
  too_large: "The request is too large for the model service. Shorten it, or lower max_tokens.",
  no_credit: "The model service does not take the request at this size. Shorten it, or lower max_tokens.",
  unknown_model: "The model cannot do what the request asks for.",
  unsupported: "The model does not take what the request has, such as images, audio or tools.",
};

/** What the client is told of work that is not begun again. Retried, it would be done again, at the operator's cost. */
const NOT_AGAIN: Readonly<Record<Exclude<Work, "none">, string>> = {
  too_large: "The answer of the model service is too large. Ask for less in one request.",
  unfetched: "The image of the model service could not be fetched. Nothing was charged.",
  begun: "The model service took too long. Nothing was charged. Ask for a shorter answer, or for a stream.",
};

/**
 * Runs `attempt` on one route after another, and within a route on one key after another, until one succeeds: in the
 * order of `orderRoutes`, skipping open breakers and resting keys. `attempt` ends at the first byte, and throws
 * ProviderFailure (the next key or route is tried, unless a provider has done work that must not be done again) or ProviderRejection
 * (no other is tried); any other error passes through. `attempt` must obey `signal` itself. An empty answer is returned if no route has
 * a better one.
 *
 * Throws invalid_request (with the provider's cleaned message, or with ours if no route can serve this request),
 * provider_unavailable, or the reason of `signal`.
 * Source: PRV-3, PRV-4, PRV-5, PRV-12, PRV-13, END-16, END-18, END-21, IMG-6.
 */
export async function withFailover<T>(
  failover: Failover & { isEmpty?: IsEmpty<T> },
  attempt: (route: KeyedRoute) => Promise<T>,
): Promise<T> {
  const { routes, breakers, keys, requester, affinity, random, signal, observer } = failover;
  const failures = noFailures();
  let empty: { answer: T } | undefined;
  for (const route of orderRoutes(routes, failover)) {
    if (isEnough(failures)) break;
    signal.throwIfAborted();
    const pass = breakers.enter(route.id, requester);
    // A different draw than for the routes: otherwise the choice of a route would decide that of its key.
    const usable = pass ? keys.usable(route, requester, affinity === undefined ? random : drawsOf(~affinity)) : NO_KEYS;
    if (pass === undefined || usable.length === 0) {
      pass?.abandoned();
      failures.others += 1;
      observer?.skipped(route);
      continue;
    }
    let worst: ProviderFailure | undefined;
    for (const keyed of usable) {
      const wasQuarantined = keys.isQuarantined(keyed.key.id);
      try {
        const result = await attempt(keyed);
        if (failover.isEmpty?.(result)) {
          empty ??= { answer: result };
          throw new ProviderFailure("empty", "the answer has nothing in it");
        }
        pass.succeeded();
        if (wasQuarantined) keys.recovered(keyed.key.id);
        return result;
      } catch (thrown) {
        const failure = providerFailureOf(thrown, { failover, keyed, pass });
        note(failover, { keyed, failures }, failure);
        worst = worseOf(worst, failure);
        if (!mayNextKeyServe(failure) || isEnough(failures)) break;
      }
    }
    endPass(pass, worst);
  }
  if (empty !== undefined) return empty.answer;
  throw unservedRefusal(failover, failures);
}

/** What is known of the routes that did not serve the request. */
type Failures = {
  /** Seconds by route. */
  retryAfter: Map<number, number> | undefined;
  /** The reason of the first route that cannot serve this request. */
  unserved: FailureKind | undefined;
  /** What the first route said for whose model the prompt is too long. */
  tooLong: { message: string; upstreamModel: string } | undefined;
  /** Routes and keys that may serve it later: those that failed, and those that were skipped. */
  others: number;
  attempts: number;
  keyFailures: number;
  /** What a provider has done that must not be done again. */
  work: Work;
};

function noFailures(): Failures {
  return {
    retryAfter: undefined,
    unserved: undefined,
    tooLong: undefined,
    others: 0,
    attempts: 0,
    keyFailures: 0,
    work: "none",
  };
}

function isEnough({ attempts, keyFailures, work }: Failures): boolean {
  return work !== "none" || attempts >= ATTEMPTS_MAX || keyFailures >= KEY_FAILURES_MAX;
}

type Attempted = { failover: Failover; keyed: KeyedRoute; pass: Pass };

/** The failure after which the next key or route is tried. Throws what ends the request instead, and ends its pass. */
function providerFailureOf(thrown: unknown, { failover, keyed, pass }: Attempted): ProviderFailure {
  const { modelId, signal, log, observer } = failover;
  if (signal.aborted) {
    // The failure says nothing about the provider: the call may have failed because we cancelled it.
    pass.abandoned();
    throw signal.reason;
  }
  if (thrown instanceof ProviderRejection) {
    pass.succeeded();
    observer?.rejected(keyed, thrown);
    log.info({ ...namesOf(keyed), status: thrown.status, param: thrown.param }, "provider refused the request");
    const message = withoutModelName(thrown.message, keyed.upstreamModel, modelId);
    throw new Refusal("invalid_request", { message, param: thrown.param });
  }
  if (thrown instanceof ProviderFailure) return thrown;
  // The stack is full: whatever reads an answer calls itself for each level.
  if (thrown instanceof RangeError) return new ProviderFailure("not_json", "the answer is nested too deep");
  pass.abandoned();
  throw thrown;
}

/** Reports a failure to the key pool, the log and the observer. */
function note(
  { keys, requester, log, observer }: Failover,
  { keyed, failures }: { keyed: KeyedRoute; failures: Failures },
  failure: ProviderFailure,
): void {
  const { kind, status, message: detail, retryAfterSeconds, blame } = failure;
  observer?.failed(keyed, failure);
  if (blame === "replica") {
    failures.attempts += 1;
    failures.work = failure.work;
    log.warn(
      { ...namesOf(keyed), kind, detail },
      "an answer was ended: no other held as much of the memory for answers",
    );
    return;
  }
  keys.failed(keyed, requester, failure);
  if (blame === "key") failures.keyFailures += 1;
  else failures.attempts += 1;
  failures.work = failure.work;
  if (kind === "context_length") failures.tooLong ??= { message: detail, upstreamModel: keyed.upstreamModel };
  if (blame === "request") {
    failures.unserved ??= kind;
    log.warn({ ...namesOf(keyed), kind, status, detail }, "a route does not serve this request");
    return;
  }
  failures.others += 1;
  if (blame !== "key" && retryAfterSeconds !== null) {
    failures.retryAfter ??= new Map();
    failures.retryAfter.set(keyed.id, retryAfterSeconds);
  }
  log.warn({ ...namesOf(keyed), kind, status, detail }, "provider failed");
}

/** Whether another key of the same provider may serve the request: its limits, credit or permissions may differ. */
function mayNextKeyServe({ kind, blame }: ProviderFailure): boolean {
  // A matter of the model, whatever the key.
  if (kind === "context_length" || kind === "unsupported") return false;
  return blame === "key" || blame === "request" || kind === "credentials";
}

/** The failure, of all failures of a route's keys, that says most about the route. */
function worseOf(one: ProviderFailure | undefined, other: ProviderFailure): ProviderFailure {
  return one !== undefined && SEVERITY[one.blame] >= SEVERITY[other.blame] ? one : other;
}
const SEVERITY: Readonly<Record<ProviderFailure["blame"], number>> = {
  replica: 0,
  nobody: 0,
  key: 0,
  request: 1,
  provider: 2,
  connection: 3,
};

/** What says nothing about the route. */
const ABANDONED: ReadonlySet<ProviderFailure["blame"]> = new Set(["key", "replica", "nobody"]);

function endPass(pass: Pass, worst: ProviderFailure | undefined): void {
  if (worst === undefined || ABANDONED.has(worst.blame)) pass.abandoned();
  else if (worst.blame === "request") pass.unserved(worst.kind);
  else pass.failed({ unreachable: worst.blame === "connection" });
}

/** The error for the client if no route served its request. */
function unservedRefusal(failover: Failover, failures: Failures): Refusal {
  const { routes, breakers, keys, requester, log } = failover;
  // Also if another route failed: this one is known to be unable, and agents shorten the conversation only after this code.
  if (failures.tooLong !== undefined) return tooLongRefusal(failover, failures.tooLong);
  if (failures.unserved !== undefined && failures.others === 0)
    return new Refusal("invalid_request", { message: UNSERVED[failures.unserved] ?? "The request cannot be served." });
  const retryAfterSeconds = soonestSeconds(routes, (route) =>
    Math.max(
      breakers.dueInMs(route.id, requester) / 1000,
      keys.dueInMs(route, requester) / 1000,
      failures.retryAfter?.get(route.id) ?? 0,
    ),
  );
  const { attempts, keyFailures, work } = failures;
  log.error({ routes: routes.length, attempts, keyFailures, retryAfterSeconds }, "no route could serve");
  const more = work === "none" ? undefined : ({ message: NOT_AGAIN[work], isFinal: true } as const);
  return new Refusal("provider_unavailable", { retryAfterSeconds, ...more });
}

/** Words by which clients know a prompt that is too long: several read the message, and not the code. */
const TOO_LONG = /\bprompt is too long\b/i;

/** Source: END-22. */
function tooLongRefusal(
  { modelId, promptParam = "messages" }: Failover,
  { message, upstreamModel }: NonNullable<Failures["tooLong"]>,
): Refusal {
  const said = withoutModelName(message, upstreamModel, modelId);
  return new Refusal("context_length_exceeded", {
    ...(said !== NO_MESSAGE && {
      message: TOO_LONG.test(said) ? said : `The prompt is too long for the model: ${said}`,
    }),
    param: promptParam,
  });
}

/** What routes are ordered by. */
export type RouteOrder = {
  choice: RouteChoice;
  /** For the choice by latency. */
  speeds: SpeedRanks;
  /** Chooses among equal routes and keys, in the same way on every replica; undefined: `random` chooses. */
  affinity?: number | undefined;
  /** Returns a number from 0 to below 1, like Math.random. */
  random: () => number;
};

/**
 * All routes in the order in which they are tried: by the model's choice, then by priority number (with `weight`, priorities do not
 * count). Among routes that are equal in both, affinity decides, or else a random draw by weight. One in
 * EXPLORED_ONE_IN choices by latency ignores speeds, priorities and affinity. Source: PRV-19, PRV-20, PRV-21, PRV-17.
 */
export function orderRoutes<R extends Route>(
  routes: readonly R[],
  { choice, speeds, affinity, random }: RouteOrder,
): readonly R[] {
  if (routes.length <= 1) return routes;
  const explores = choice === "latency" && random() * EXPLORED_ONE_IN < 1;
  const isAny = explores || choice === "weight";
  const draw: Draw = explores || affinity === undefined ? random : drawsOf(affinity);
  const places = routes.map((route) => ({
    route,
    standing: isAny ? 0 : standingOf(route, choice, speeds),
    priority: isAny ? 0 : route.priority,
    drawn: rankOf(draw(route.id), route.weight),
  }));
  places.sort((a, b) => a.standing - b.standing || a.priority - b.priority || a.drawn - b.drawn);
  return places.map(({ route }) => route);
}

/** A route's place by the model's choice: lower is tried first. Routes with an unknown cost come last. */
function standingOf({ id, cost }: Route, choice: RouteChoice, speeds: SpeedRanks): number {
  if (choice === "price") return cost ?? Number.MAX_SAFE_INTEGER;
  return choice === "latency" ? (speeds.get(id) ?? 0) : 0;
}

function soonestSeconds(routes: readonly ModelRoute[], waitSeconds: (route: ModelRoute) => number): number {
  if (routes.length === 0) return RETRY_AFTER_NO_ROUTE_SECONDS;
  const soonest = Math.min(...routes.map(waitSeconds));
  return Math.min(RETRY_AFTER_SECONDS_MAX, Math.max(1, Math.ceil(soonest)));
}

function namesOf({ providerName: provider, key, id: routeId, upstreamModel }: KeyedRoute) {
  return { provider, key: key.name, routeId, upstreamModel };
}
