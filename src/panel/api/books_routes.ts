import { t } from "elysia";
import { brokenRows, readBooksOverview } from "../../books/books_overview_store.ts";
import { explain, lastChecks } from "../../books/check_runs_store.ts";
import { countFindings, invariantOf } from "../../books/invariants.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { recentReplicas } from "../../ledger/replicas_store.ts";
import { within } from "../../platform/time_limit.ts";
import { countEverything, countRequests } from "./admin_store.ts";
import { longRead } from "./long_read.ts";
import { type Person, signedIn, toWire, whole } from "./panel_session.ts";
import { openBreakers } from "./providers_routes.ts";

/** For admins: whether every unit and cent is accounted for, which replicas live, and the figures of the landing page. */

/** A page waits so long for a check; a longer one goes on, and is shown by the next look. */
const CHECK_WAIT_MS_MAX = 25_000;
/** Its two counts have limits of their own, which are shorter. */
const OVERVIEW_MS_MAX = 5_000;
const ROWS_DEFAULT = 20;
const ROWS_MAX = 100;
/** The longest name of a view that Postgres would know. */
const NAME_LENGTH_MAX = 63;

export function booksRoutes(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/overview", ({ person, request: { signal } }) => overview(deps, person, signal))
    .get("/admin/replicas", async () => ({ replicas: await recentReplicas(deps.db.sql) }))
    .get("/admin/books", async () => toWire(await readBooksOverview(deps)))
    .post("/admin/books/check", () => checkBooks(deps))
    .get("/admin/books/:name/rows", ({ params, query }) => rowsOf(deps, params.name, query.limit), {
      params: t.Object({ name: t.String({ maxLength: NAME_LENGTH_MAX }) }),
      query: t.Object({ limit: t.Optional(whole(1, ROWS_MAX)) }),
    });
}

/** The first rows that break an invariant. Throws not_found for any other name: only those of the list reach SQL. */
async function rowsOf(deps: Deps, asked: string, limit = ROWS_DEFAULT) {
  const invariant = invariantOf(asked);
  if (!invariant) throw new Refusal("not_found");
  const rows = await brokenRows(deps.db.sql, invariant.name, limit + 1);
  return { ...invariant, rows: rows.slice(0, limit), hasMore: rows.length > limit };
}

/** A check's result, or that it still runs. */
async function checkBooks({ booksCheck }: Deps) {
  const late = new Error("the check takes longer than a page waits");
  const checking = booksCheck.now();
  checking.catch(() => {}); // It is logged there, and by then the page may have gone.
  try {
    const check = await within(CHECK_WAIT_MS_MAX, checking, () => late);
    return { running: false, check: explain(check) };
  } catch (error) {
    if (error === late) return { running: true, check: null };
    throw error;
  }
}

async function overview(deps: Deps, person: Person, signal: AbortSignal) {
  const [last] = await lastChecks(deps.db.sql, 1);
  const counts = await longRead(deps, { person, signal, readMsMax: OVERVIEW_MS_MAX }, async ({ db: { sql } }) => ({
    ...(await countEverything(sql)),
    /** Of the last 24 hours; null: too many to count for this page. */
    requests: await countRequests(sql),
  }));
  return {
    ...counts,
    /** By name, with the number of routes that this replica leaves out for a moment. */
    providersFailing: [...openBreakers(deps)].map(([name, routes]) => ({ name, routes })),
    books: last ? { checkedAt: last.checkedAt, ...countFindings(last.results) } : null,
  };
}
