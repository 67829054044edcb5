import { healthOf, type RouteHealth } from "../catalog/route_health.ts";
import { readRouteStats } from "../catalog/route_stats_store.ts";
import { type RouteReport, reportsOf } from "../catalog/route_sums.ts";
import { recentReplicas } from "../ledger/replicas_store.ts";
import type { Db } from "../platform/db.ts";

/**
 * The state of routes over all replicas: the sums of the last 24 hours, which they share, and the circuit breakers, of which
 * each replica has its own and tells with its heartbeat. Source: PRV-22.
 */

/** Replicas report every second; what an older report says of breakers is over. */
const REPORT_AGE_MS_MAX = 10_000;

export type BreakerFacts = {
  /** Some replica skips the route for now, because it failed or its provider asked for a pause. */
  open: boolean;
  /** The longest pause that is left. */
  dueInMs: number;
  /** Skipped for every account; false: only for the accounts that met the failures. */
  forAll: boolean;
  /** Why the route failed since it last served a request, a FailureKind; for the operator to fix. */
  trouble: string | null;
  /** Replicas that skip it, of those that report. */
  leftOutBy: number;
  replicas: number;
};

export type RouteState = {
  health: RouteHealth;
  breaker: BreakerFacts;
  /** undefined: it was not called in the last 24 hours. */
  report: RouteReport | undefined;
};

/** Reads the states; `routeIds` limits the sums to some routes. */
export async function readRouteStates(
  { db }: { db: Db },
  routeIds?: readonly number[],
): Promise<(routeId: number) => RouteState> {
  const replicas = (await recentReplicas(db.sql)).filter(({ ageMs }) => ageMs <= REPORT_AGE_MS_MAX);
  const reports = new Map(reportsOf(await readRouteStats({ db }, "day", routeIds)).map((each) => [each.routeId, each]));
  const told = Map.groupBy(
    replicas.flatMap(({ status }) => status?.routes ?? []),
    ({ routeId }) => routeId,
  );
  return (routeId) => {
    const all = told.get(routeId) ?? [];
    const skipped = all.filter(({ dueInMs }) => dueInMs > 0);
    return {
      health: healthOf(reports.get(routeId)),
      breaker: {
        open: skipped.length > 0,
        dueInMs: Math.max(0, ...skipped.map(({ dueInMs }) => dueInMs)),
        forAll: skipped.some(({ forAll }) => forAll),
        trouble: all.find(({ trouble }) => trouble !== null)?.trouble ?? null,
        leftOutBy: skipped.length,
        replicas: replicas.length,
      },
      report: reports.get(routeId),
    };
  };
}
