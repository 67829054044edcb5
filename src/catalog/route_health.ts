import type { RouteReport } from "./route_sums.ts";

/**
 * How well a route works, by the sums of the last 24 hours that all replicas share. Pure, so that the panel can write the
 * thresholds beside the state. Source: PRV-22.
 */

/** Errors, as a share of the requests, from which a route is degraded, and failing. */
export const DEGRADED_SHARE = 0.05;
export const FAILING_SHARE = 0.5;

export const ROUTE_HEALTHS = ["untested", "answers", "degraded", "failing"] as const;
/** `untested`: there was no request, so nothing is known. */
export type RouteHealth = (typeof ROUTE_HEALTHS)[number];

/** `report` undefined: it was not called. */
export function healthOf(report: Pick<RouteReport, "requests" | "errors"> | undefined): RouteHealth {
  if (report === undefined || report.requests + report.errors === 0) return "untested";
  // A stream can break off in the hour after its request was counted.
  const share = report.errors / Math.max(report.requests, report.errors);
  if (share >= FAILING_SHARE) return "failing";
  return share >= DEGRADED_SHARE ? "degraded" : "answers";
}

/** The health of a provider, by its routes that are on: the worst of those that were called. */
export function worstHealth(healths: readonly RouteHealth[]): RouteHealth {
  return ROUTE_HEALTHS.findLast((health) => healths.includes(health)) ?? "untested";
}
