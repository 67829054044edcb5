import { BUCKETS, percentileMs } from "../platform/durations.ts";

/**
 * The counts of a route, and what follows from them: error rate, percentiles, cache hit rate. Pure. Source: PRV-22,
 * PRV-23.
 */

/** `stream`: durations are those to the first event. `whole`: to the end of an answer that is not streamed. */
export type AnswerKind = "stream" | "whole";

/** What was counted for a route. */
export type RouteSums = {
  readonly routeId: number;
  readonly kind: AnswerKind;
  /** Attempts that the provider answered, failed or refused. Attempts that we ended are not counted. */
  requests: number;
  /** Attempts that the provider failed, before or after a stream's first event. Refusals are no errors. */
  errors: number;
  /** Input tokens of answers whose usage the provider reported. */
  inputTokens: number;
  /** Those of them that the provider read from its cache. */
  cachedTokens: number;
  /** What the provider says that answers cost the operator, and what these answers cost by the model's prices, without a markup. */
  costNanoUsd: number;
  pricedNanoUsd: number;
  /** Answers by duration: `durations.ts`. */
  readonly durations: Uint32Array;
};

/** Sums that are all zero. */
export function noSums(routeId: number, kind: AnswerKind): RouteSums {
  const counts = { requests: 0, errors: 0, inputTokens: 0, cachedTokens: 0, costNanoUsd: 0, pricedNanoUsd: 0 };
  return { routeId, kind, ...counts, durations: new Uint32Array(BUCKETS) };
}

/** Adds `more` to `sums`, and returns `sums`. */
export function addSums(sums: RouteSums, more: RouteSums): RouteSums {
  sums.requests += more.requests;
  sums.errors += more.errors;
  sums.inputTokens += more.inputTokens;
  sums.cachedTokens += more.cachedTokens;
  sums.costNanoUsd += more.costNanoUsd;
  sums.pricedNanoUsd += more.pricedNanoUsd;
  for (const [bucket, count] of more.durations.entries())
    sums.durations[bucket] = (sums.durations[bucket] ?? 0) + count;
  return sums;
}

/** The durations that half of the answers, and 95 in a hundred, did not exceed. */
export type Percentiles = { p50Ms: number; p95Ms: number };

/** The report of a route. */
export type RouteReport = {
  routeId: number;
  requests: number;
  errors: number;
  inputTokens: number;
  cachedTokens: number;
  /** Time to the first event of streams; null: there was none. */
  firstEvent: Percentiles | null;
  /** Time of whole answers; null: there was none. */
  wholeAnswer: Percentiles | null;
};

/** One report for each route in `sums`, streams and whole answers together. */
export function reportsOf(sums: readonly RouteSums[]): RouteReport[] {
  const reports = new Map<number, RouteReport>();
  for (const { routeId, kind, requests, errors, inputTokens, cachedTokens, durations } of sums) {
    const known = reports.get(routeId);
    reports.set(routeId, {
      routeId,
      requests: requests + (known?.requests ?? 0),
      errors: errors + (known?.errors ?? 0),
      inputTokens: inputTokens + (known?.inputTokens ?? 0),
      cachedTokens: cachedTokens + (known?.cachedTokens ?? 0),
      firstEvent: kind === "stream" ? percentilesOf(durations) : (known?.firstEvent ?? null),
      wholeAnswer: kind === "whole" ? percentilesOf(durations) : (known?.wholeAnswer ?? null),
    });
  }
  return [...reports.values()];
}

function percentilesOf(durations: ArrayLike<number>): Percentiles | null {
  const [p50Ms, p95Ms] = [percentileMs(durations, 0.5), percentileMs(durations, 0.95)];
  return p50Ms === null || p95Ms === null ? null : { p50Ms, p95Ms };
}
