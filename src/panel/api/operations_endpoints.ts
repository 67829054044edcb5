import { t } from "elysia";
import { brokenRows, readBooksOverview } from "../../books/books_overview_store.ts";
import { explain, lastChecks } from "../../books/check_runs_store.ts";
import { countFindings, invariantOf } from "../../books/invariants.ts";
import { losing, lossOf, lowestMargin, readMargins } from "../../catalog/margins.ts";
import { listModels } from "../../catalog/models_store.ts";
import { listProviders } from "../../catalog/providers_store.ts";
import { type RouteHealth, worstHealth } from "../../catalog/route_health.ts";
import { listRoutes } from "../../catalog/routes_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { troublesOf } from "../../ledger/replica_health.ts";
import { recentReplicas } from "../../ledger/replicas_store.ts";
import { getRetention } from "../../operations/retention.ts";
import { readRouteStates } from "../../operations/route_states.ts";
import { pageOf } from "../../platform/pages.ts";
import { within } from "../../platform/time_limit.ts";
import { countEverything, countRequests } from "./admin_counts_store.ts";
import { whole } from "./fields.ts";
import { toJson } from "./formats.ts";
import { operate } from "./operate.ts";
import { longRead, type Person, signedIn } from "./panel_session.ts";

/** For admins, about the whole service: the Overview, replicas, and the check of the books. */

/** The time that a page waits for a check. A longer check continues, and the next load of the page shows its result. */
const CHECK_WAIT_MS_MAX = 25_000;
/** Its two counts have their own, shorter limits. */
const OVERVIEW_MS_MAX = 5_000;
const ROWS_DEFAULT = 20;
const ROWS_MAX = 100;
/** The longest name of a Postgres view. */
const NAME_LENGTH_MAX = 63;
/** Models with the lowest margins, and losing routes, on the Overview. */
const MARGINS_MAX = 1_000;
const LOSSES_MAX = 20;
const PROVIDERS_MAX = 1_000;

export function operationsEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/overview", ({ person, request: { signal } }) => overview(deps, person, signal))
    .get("/admin/margins", () => allMargins(deps))
    .get("/admin/replicas", async () => ({ replicas: await recentReplicas(deps.db.sql) }))
    .get("/admin/books", async () => toJson(await readBooksOverview(deps)))
    .post("/admin/books/check", () => checkBooks(deps))
    .get("/admin/retention", operate(deps, getRetention))
    .get("/admin/books/:name/rows", ({ params, query }) => rowsOf(deps, params.name, query.limit), {
      params: t.Object({ name: t.String({ maxLength: NAME_LENGTH_MAX }) }),
      query: t.Object({ limit: t.Optional(whole(1, ROWS_MAX)) }),
    });
}

/** The first rows that break an invariant. Throws not_found for an unknown name: only names from the list reach SQL. */
async function rowsOf(deps: Deps, name: string, limit = ROWS_DEFAULT) {
  const invariant = invariantOf(name);
  if (!invariant) throw new Refusal("not_found");
  const rows = await brokenRows(deps.db.sql, invariant.name, limit + 1);
  return { ...invariant, ...pageOf(rows, limit) };
}

/** Starts a check, or joins the running one. Returns its result, or `running: true` after CHECK_WAIT_MS_MAX. */
async function checkBooks({ booksCheck }: Deps) {
  const late = new Error("the check takes longer than a page waits");
  const checking = booksCheck.now();
  checking.catch(() => {}); // The check logs its own failure; nobody may be waiting by then.
  try {
    const check = await within(CHECK_WAIT_MS_MAX, checking, () => late);
    return { running: false, check: explain(check) };
  } catch (error) {
    if (error === late) return { running: true, check: null };
    throw error;
  }
}

/** What is left of the price of each enabled model, lowest first, and the routes that cost more than their price. */
async function allMargins(deps: Deps) {
  const enabled = (await listModels(deps)).filter((model) => model.enabled);
  const margins = await readMargins(deps, enabled);
  const models = enabled.map(({ id }) => ({ id, permille: lowestMargin(margins.get(id) ?? []) }));
  const lost = enabled.flatMap(({ id }) =>
    losing(margins.get(id) ?? []).map((route) => ({ modelId: id, ...lossOf(route) })),
  );
  return {
    models: models.sort((a, b) => (a.permille ?? Infinity) - (b.permille ?? Infinity)).slice(0, MARGINS_MAX),
    losing: lost.slice(0, LOSSES_MAX),
  };
}

/**
 * The providers that are on, by the state of their routes: those that fail by name, the others counted. A provider without a
 * route is untested.
 */
async function providerStates(deps: Deps) {
  const [providers, routes, stateOf] = [
    await listProviders(deps, { limit: PROVIDERS_MAX }),
    await listRoutes(deps),
    await readRouteStates(deps),
  ];
  const states = providers
    .filter(({ enabled }) => enabled)
    .map(({ id, name }) => {
      const own = routes.filter((route) => route.providerId === id && route.enabled).map((route) => stateOf(route.id));
      const failing = own.filter(({ health, breaker }) => breaker.open || health === "failing").length;
      return { name, failing, health: worstHealth(own.map(({ health }) => health)) };
    });
  const count = (wanted: RouteHealth) =>
    states.filter(({ health, failing }) => failing === 0 && health === wanted).length;
  return {
    /** With the number of their routes that some replica skips, or that fail by the sums of 24 hours. */
    failing: states.filter(({ failing }) => failing > 0).map(({ name, failing }) => ({ name, routes: failing })),
    degraded: count("degraded"),
    answering: count("answers"),
    untested: count("untested"),
  };
}

async function replicaStates({ db }: Deps) {
  const replicas = await recentReplicas(db.sql);
  return { all: replicas.length, unwell: replicas.filter((replica) => troublesOf(replica).length > 0).length };
}

async function overview(deps: Deps, person: Person, signal: AbortSignal) {
  const [last] = await lastChecks(deps.db.sql, 1);
  const counts = await longRead(deps, { person, signal, readMsMax: OVERVIEW_MS_MAX }, async ({ db: { sql } }) => ({
    ...(await countEverything(sql)),
    /** The last 24 hours; null: the count took too long. */
    requests: await countRequests(sql),
  }));
  return {
    ...counts,
    providers: await providerStates(deps),
    replicas: await replicaStates(deps),
    books: last ? { checkedAt: last.checkedAt, ...countFindings(last.results) } : null,
  };
}
