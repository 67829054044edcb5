import { plural, t } from "@lingui/core/macro";
import { DEGRADED_SHARE, FAILING_SHARE, type RouteHealth } from "../../../../catalog/route_health.ts";
import { formatCount, formatShare } from "../../format.ts";
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
  if (!providerEnabled) return /* not a text */ "provider off";
  if (breaker.open) return /* not a text */ "left out";
  if (breaker.trouble !== null && health !== "failing") return "refuses";
  return health;
}

const DEGRADED = formatShare(DEGRADED_SHARE);
const FAILING = formatShare(FAILING_SHARE);

/** What the states of routes mean, after a sentence that says which requests they are by. */
export const ROUTE_STATES_MEANING = t`Answers: errors in fewer than ${{ degraded: DEGRADED }} of them. Degraded: in ${{ degraded: DEGRADED }} or more. Failing: in ${{ failing: FAILING }} or more. Untested: there was no request.`;

/** The same with that sentence: beside every list that shows them. */
export const ROUTE_STATES_NOTE = `${t`By the requests of the last 24 hours, on all replicas.`} ${ROUTE_STATES_MEANING}`;

/** The number of routes of a model that can answer, in a few words. */
export function routesHealth(routes: readonly Standing[]): { tone: Tone; words: string; answering: number } {
  const states = routes.map(routeState);
  const wanted = states.filter((state) => state !== "off" && state !== "provider off").length;
  const untested = states.filter((state) => state === "untested").length;
  // A route that refused one request may serve the next, and so may one that was not called yet.
  const answering = states.filter(
    (state) => state === "answers" || state === "degraded" || state === "refuses" || state === "untested",
  ).length;
  const failing = formatCount(wanted - answering);
  if (routes.length === 0) return { tone: "bad", words: t`No route`, answering };
  if (wanted === 0) return { tone: "bad", words: t`All off`, answering };
  if (untested === wanted)
    return {
      tone: "neutral",
      words: plural(wanted, { one: "# route, untested", other: "# routes, untested" }),
      answering,
    };
  if (answering < wanted)
    return {
      tone: answering === 0 ? "bad" : "warn",
      words: plural(wanted, { one: `${failing} of # route failing`, other: `${failing} of # routes failing` }),
      answering,
    };
  if (states.includes("degraded"))
    return {
      tone: "warn",
      words: plural(wanted, { one: "# route, degraded", other: "# routes, degraded" }),
      answering,
    };
  return { tone: "ok", words: plural(answering, { one: "# route", other: "# routes" }), answering };
}
