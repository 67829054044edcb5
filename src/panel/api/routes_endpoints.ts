import { t } from "elysia";
import type { RouteReport } from "../../catalog/route_sums.ts";
import { listRoutes } from "../../catalog/routes_store.ts";
import type { Deps } from "../../deps.ts";
import { readRouteStates } from "../../operations/route_states.ts";
import { longRead, signedIn } from "./panel_session.ts";

/** The reports of all routes for the last 24 hours, for admins. One model's routes: models_endpoints.ts. */

const ROUTES_MAX = 500;

/** The measures that routes are sorted by, highest first; null comes last. */
const MEASURES: Readonly<Record<string, (report: RouteReport) => number | null>> = {
  requests: ({ requests }) => requests,
  errors: ({ requests, errors }) => share(errors, requests),
  first_event: ({ firstEvent }) => firstEvent?.p95Ms ?? null,
  whole_answer: ({ wholeAnswer }) => wholeAnswer?.p95Ms ?? null,
  cached: ({ inputTokens, cachedTokens }) => share(cachedTokens, inputTokens),
};
const By = t.Union([
  t.Literal("requests"),
  t.Literal("errors"),
  t.Literal("first_event"),
  t.Literal("whole_answer"),
  t.Literal("cached"),
]);

export function routesEndpoints(deps: Deps) {
  return signedIn(deps, "admin").get(
    "/admin/routes",
    async ({ person, request: { signal }, query: { by = "requests" } }) => {
      const routes = await listRoutes(deps);
      const stateOf = await longRead(deps, { person, signal }, (reading) => readRouteStates(reading));
      const rows = routes.map(({ id, modelId, providerId, providerName, upstreamModel, enabled, providerEnabled }) => ({
        ...{ id, modelId, providerId, providerName, upstreamModel, enabled, providerEnabled },
        ...stateOf(id),
        /** null: it was not called. */
        report: stateOf(id).report ?? null,
      }));
      const measure = (report: RouteReport | null) => (report && MEASURES[by]?.(report)) ?? -1;
      rows.sort((a, b) => measure(b.report) - measure(a.report) || a.id - b.id);
      return { routes: rows.slice(0, ROUTES_MAX), hasMore: rows.length > ROUTES_MAX };
    },
    { query: t.Object({ by: t.Optional(By) }) },
  );
}

function share(part: number, whole: number): number | null {
  return whole === 0 ? null : part / whole;
}
