import { t } from "elysia";
import { listNotCharged, listUsageRecords, type UsageQuery } from "../../books/usage_records_store.ts";
import { usageByDay } from "../../books/usage_sums_store.ts";
import { modelPlaces } from "../../catalog/models_store.ts";
import type { Deps } from "../../deps.ts";
import { INSTANT } from "../../http/checks.ts";
import type { Db } from "../../platform/db.ts";
import { longRead } from "./long_read.ts";
import { Id, type Person, signedIn, toWire, whole } from "./panel_session.ts";
import { receiptOf } from "./receipt.ts";
import { accountInScope } from "./scope.ts";
import { usageCsv } from "./usage_csv.ts";

/** Every request and what became of it: records, refusals, receipts, sums by day; one's own, or of an account one looks after. */

const PAGE_MAX = 200;
const PAGE_DEFAULT = 50;
const DAYS_MAX = 92;
const DAYS_DEFAULT = 30;
/** A page of a file waits longer for its place than one on the screen: what has begun is to come to its end. */
const FILE_WAIT_MS_MAX = 10_000;

export const Instant = t.String(INSTANT);
export const RequestId = t.String({
  pattern: "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
  says: "a request id",
});
const OfAccount = { accountId: t.Optional(Id) };
const Filter = {
  ...OfAccount,
  keyId: t.Optional(Id),
  // A query can bring NUL, which Postgres takes in no text.
  model: t.Optional(
    t.String({
      minLength: 1,
      maxLength: 200,
      pattern: "^[^\\u0000]*$",
      says: "a string of 1 to 200 characters without NUL",
    }),
  ),
  host: t.Optional(t.String({ minLength: 1, maxLength: 253, pattern: "^[a-z0-9.-]+$", says: "a host name" })),
  mode: t.Optional(t.Union([t.Literal("package"), t.Literal("payg")])),
  start: t.Optional(Instant),
  end: t.Optional(Instant),
};
const Kind = { kind: t.Optional(t.Union([t.Literal("charged"), t.Literal("not_charged")])) };
const FilterQuery = t.Object(Filter);
type FilterQuery = typeof FilterQuery.static;

export function usageRoutes(deps: Deps) {
  return signedIn(deps)
    .get(
      "/usage",
      async ({ person, request: { signal }, query: { kind, limit = PAGE_DEFAULT, after, ...filter } }) => {
        const asked = { ...(await askedFor(deps, person, filter)), limit, after };
        const page = async (reading: { db: Db }) =>
          toWire(kind === "not_charged" ? await listNotCharged(reading, asked) : await chargedPage(reading, asked));
        return await longRead(deps, { person, signal }, page);
      },
      {
        query: t.Object({
          ...Filter,
          ...Kind,
          after: t.Optional(RequestId),
          limit: t.Optional(whole(1, PAGE_MAX)),
        }),
      },
    )
    .get(
      "/usage/days",
      async ({ person, request: { signal }, query: { days = DAYS_DEFAULT, measure = "requests", ...filter } }) => {
        const asked = await askedFor(deps, person, filter);
        const wanted = { ...asked, days, measure, timeZone: deps.config.billingTimeZone };
        const sums = await longRead(deps, { person, signal }, (reading) => usageByDay(reading, wanted));
        const ids = sums.models.map(({ modelId }) => modelId);
        const places = await modelPlaces(deps, ids);
        const models = sums.models.map((model) => ({ ...model, place: places.get(model.modelId) ?? 0 }));
        return toWire({ ...sums, models });
      },
      {
        query: t.Object({
          ...Filter,
          days: t.Optional(whole(1, DAYS_MAX)),
          measure: t.Optional(t.Union([t.Literal("requests"), t.Literal("tokens"), t.Literal("charged")])),
        }),
      },
    )
    .get(
      "/usage.csv",
      async ({ person, query: { kind = "charged", ...filter } }) => {
        const asked = await askedFor(deps, person, filter);
        const csv = await usageCsv(
          (page, signal) => longRead(deps, { person, signal, waitMsMax: FILE_WAIT_MS_MAX }, page),
          kind,
          asked,
        );
        return new Response(csv, {
          headers: {
            "content-type": "text/csv; charset=utf-8",
            "content-disposition": `attachment; filename="${fileName(deps, person, kind)}"`,
          },
        });
      },
      { query: t.Object({ ...Filter, ...Kind }) },
    )
    .get(
      "/receipts/:requestId",
      async ({ person, params, query }) => {
        const accountId = await shownAccount(deps, person, query.accountId);
        return toWire(await receiptOf(deps, { ...params, accountId, role: person.role }));
      },
      { params: t.Object({ requestId: RequestId }), query: t.Object(OfAccount) },
    );
}

/** What a page asks for, in the ledger's words. Throws not_found. */
async function askedFor(deps: Deps, person: Person, { accountId, model, host, ...rest }: FilterQuery) {
  return {
    ...rest,
    accountId: await shownAccount(deps, person, accountId),
    modelId: model,
    hosts: host === undefined ? null : [host],
  } satisfies UsageQuery;
}

/** One's own account, or the one that was named, if one looks after it. Throws not_found. */
async function shownAccount(deps: Deps, person: Person, accountId: number | undefined): Promise<number> {
  if (accountId === undefined || accountId === person.accountId) return person.accountId;
  return (await accountInScope(deps, person, accountId)).accountId;
}

async function chargedPage(reading: { db: Db }, asked: UsageQuery) {
  const { rows, ...page } = await listUsageRecords(reading, asked);
  return { rows: rows.map((row) => ({ ...row, kind: "charged" as const })), ...page };
}

/** The file bears the name of the host it was asked on. */
function fileName({ clock }: Deps, { host }: Person, kind: "charged" | "not_charged"): string {
  const day = new Date(clock.unixMs()).toISOString().slice(0, 10);
  return `${kind === "charged" ? "usage" : "not-charged"}-${host.name}-${day}.csv`;
}
