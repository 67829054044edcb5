import type { KeyedRoute, Route } from "../catalog/catalog.ts";
import type { AnswerKind } from "../catalog/route_sums.ts";
import type { Deps } from "../deps.ts";
import type { Usage } from "../ledger/ledger.ts";
import { noteTried } from "../ledger/tried_routes.ts";
import type { ReservedRequest } from "./reserve.ts";

/** What is noted of a route after it has answered. What is noted before: `dispatch.ts`. Source: PRV-22, PRV-24. */

/** Adds what an answer used to the sums of its route. Our own estimate does not say what a provider's cache served. */
export function noteUsed(
  { routeStats }: Deps,
  { route, kind, usage }: { route: Route; kind: AnswerKind; usage: Usage },
): void {
  if (!usage.estimated) routeStats.used(route.id, kind, usage);
}

/** The provider broke off a stream that had begun: an error of its route, and named on the receipt. */
export function noteBreak({ deps, caller, hold }: ReservedRequest, route: KeyedRoute): void {
  const { id, providerName: provider, upstreamModel, key } = route;
  const ms = deps.clock.nowMs() - caller.record.answeredMs;
  deps.routeStats.brokeOff(id);
  noteTried(hold, { routeId: id, provider, upstreamModel, key: key.name, ms, status: null, why: "broke_off" });
}
