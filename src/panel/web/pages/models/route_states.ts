import { DEGRADED_SHARE, FAILING_SHARE, type RouteHealth } from "../../../../catalog/route_health.ts";
import { formatCount, formatOf, formatShare } from "../../format.ts";
import type { Tone } from "../../ui/states.tsx";

/** The states of routes in words. A route that was never called is neither good nor bad. Pure. */

/** What a route's state follows from. */
type Standing = {
  enabled: boolean;
  providerEnabled: boolean;
  health: RouteHealth;
  breaker: { open: boolean; trouble: string | null };
};

/** `left out`: some replica skips it now; `refuses`: the provider refused the last request. The others are by the last 24 hours. */
export function routeState({ enabled, providerEnabled, breaker, health }: Standing) {
  if (!enabled) return "off";
  if (!providerEnabled) return "provider off";
  if (breaker.open) return "left out";
  if (breaker.trouble !== null && health !== "failing") return "refuses";
  return health;
}

/** What the states of routes mean: beside every list that shows them. */
export const ROUTE_STATES_NOTE = `By the requests of the last 24 hours, on all replicas. Answers: errors in fewer than ${formatShare(DEGRADED_SHARE)} of them. Degraded: in ${formatShare(DEGRADED_SHARE)} or more. Failing: in ${formatShare(FAILING_SHARE)} or more. Untested: there was no request.`;

/** The number of routes of a model that can answer, in a few words. */
export function routesHealth(routes: readonly Standing[]): { tone: Tone; words: string; answering: number } {
  const states = routes.map(routeState);
  const wanted = states.filter((state) => state !== "off" && state !== "provider off").length;
  const untested = states.filter((state) => state === "untested").length;
  // A route that refused one request may serve the next, and so may one that was not called yet.
  const answering = states.filter(
    (state) => state === "answers" || state === "degraded" || state === "refuses" || state === "untested",
  ).length;
  if (routes.length === 0) return { tone: "bad", words: "No route", answering };
  if (wanted === 0) return { tone: "bad", words: "All off", answering };
  if (untested === wanted) return { tone: "neutral", words: `${formatOf(wanted, "route")}, untested`, answering };
  if (answering < wanted)
    return {
      tone: answering === 0 ? "bad" : "warn",
      words: `${formatCount(wanted - answering)} of ${formatOf(wanted, "route")} failing`,
      answering,
    };
  if (states.includes("degraded")) return { tone: "warn", words: `${formatOf(wanted, "route")}, degraded`, answering };
  return { tone: "ok", words: formatOf(answering, "route"), answering };
}
