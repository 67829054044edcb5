import { Elysia, t } from "elysia";
import { namesOf } from "../../accounts/accounts_store.ts";
import { findRequestAccount } from "../../books/receipts_store.ts";
import { listNotCharged, listReleased, listUsageRecords, type UsageQuery } from "../../books/usage_records_store.ts";
import { firstDayBegins, usageByDay } from "../../books/usage_sums_store.ts";
import { modelPlaces } from "../../catalog/models_store.ts";
import { listRoutes } from "../../catalog/routes_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { accountInScope } from "../../operations/fence.ts";
import { perform } from "../../operations/operation.ts";
import { getFigures } from "../../operations/usage.ts";
import type { Db } from "../../platform/db.ts";
import { csvResponse, FILE_WAIT_MS_MAX } from "./csv_stream.ts";
import { BillingMode, HostFilter, Id, Instant, NO_NUL, RequestId, whole } from "./fields.ts";
import { toJson } from "./formats.ts";
import { callBy, longRead, type Person, signedIn } from "./panel_session.ts";
import { receiptOf } from "./receipt.ts";
import { usageCsv } from "./usage_csv.ts";

/**
 * Requests and their cost: lists, sums by day, CSV and receipts of one account (the person's own, or one it manages); finding a
 * request by its id; and for admins, the requests of all accounts.
 */

const PAGE_MAX = 200;
const PAGE_DEFAULT = 50;
const DAYS_MAX = 92;
const DAYS_DEFAULT = 30;

const AccountFilter = { accountId: t.Optional(Id) };
const Filter = {
  ...AccountFilter,
  keyId: t.Optional(Id),
  model: t.Optional(
    t.String({ minLength: 1, maxLength: 200, pattern: NO_NUL, says: "a string of 1 to 200 characters without NUL" }),
  ),
  host: t.Optional(HostFilter),
  mode: t.Optional(BillingMode),
  start: t.Optional(Instant),
  end: t.Optional(Instant),
};
const FilterQuery = t.Object(Filter);
type FilterQuery = typeof FilterQuery.static;
/** `days`: the days of `/usage/days`, instead of `start`. */
const ListFilter = { ...Filter, days: t.Optional(whole(1, DAYS_MAX)) };
const ListQuery = t.Object(ListFilter);
type ListQuery = typeof ListQuery.static;
const Kind = { kind: t.Optional(t.Union([t.Literal("charged"), t.Literal("not_charged")])) };

export function usageEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(listEndpoints(deps))
    .use(fileEndpoints(deps))
    .use(findEndpoints(deps))
    .use(figuresEndpoints(deps))
    .use(adminEndpoints(deps));
}

function listEndpoints(deps: Deps) {
  return signedIn(deps)
    .get(
      "/usage",
      async ({ person, request: { signal }, query: { kind, limit = PAGE_DEFAULT, after, ...filter } }) => {
        const query = { ...(await listQueryOf(deps, person, filter)), limit, after };
        const page = async (reading: { db: Db }) =>
          toJson(kind === "not_charged" ? await listNotCharged(reading, query) : await chargedPage(reading, query));
        return await longRead(deps, { person, signal }, page);
      },
      {
        query: t.Object({
          ...ListFilter,
          ...Kind,
          after: t.Optional(RequestId),
          limit: t.Optional(whole(1, PAGE_MAX)),
        }),
      },
    )
    .get(
      "/usage/days",
      async ({ person, request: { signal }, query: { days = DAYS_DEFAULT, measure = "requests", ...filter } }) => {
        const timeZone = deps.config.billingTimeZone;
        const query = { ...(await queryOf(deps, person, filter)), days, measure, timeZone };
        const sums = await longRead(deps, { person, signal }, (reading) => usageByDay(reading, query));
        const ids = sums.models.map(({ modelId }) => modelId);
        const places = await modelPlaces(deps, ids);
        const models = sums.models.map((model) => ({ ...model, place: places.get(model.modelId) ?? 0 }));
        return toJson({ ...sums, models });
      },
      {
        query: t.Object({
          ...Filter,
          days: t.Optional(whole(1, DAYS_MAX)),
          measure: t.Optional(t.Union([t.Literal("requests"), t.Literal("tokens"), t.Literal("charged")])),
        }),
      },
    );
}

function fileEndpoints(deps: Deps) {
  return signedIn(deps).get(
    "/usage.csv",
    async ({ person, query: { kind = "charged", ...filter } }) => {
      const query = await listQueryOf(deps, person, filter);
      const csv = await usageCsv(
        (page, signal) => longRead(deps, { person, signal, waitMsMax: FILE_WAIT_MS_MAX }, page),
        kind,
        query,
      );
      return csvResponse(csv, fileName(deps, person, kind));
    },
    { query: t.Object({ ...ListFilter, ...Kind }) },
  );
}

function findEndpoints(deps: Deps) {
  return signedIn(deps)
    .get(
      "/receipts/:requestId",
      async ({ person, params, query }) => {
        const accountId = await filteredAccount(deps, person, query.accountId);
        return toJson(await receiptOf(deps, { ...params, accountId, viewer: person }));
      },
      { params: t.Object({ requestId: RequestId }), query: t.Object(AccountFilter) },
    )
    .get(
      "/requests/:requestId",
      // The account that made a request: the person itself, one it manages, or for an admin any. Else not_found.
      async ({ person: { role, accountId }, params }) => {
        const scope = role === "admin" ? "everybody" : { accountId };
        const requester = await findRequestAccount(deps, { requestId: params.requestId.toLowerCase(), scope });
        if (!requester) throw new Refusal("not_found");
        return requester;
      },
      { params: t.Object({ requestId: RequestId }) },
    );
}

/** Figures of a period; the lines of routes with the names of model and provider. Source: MON-24. */
function figuresEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin").get(
    "/figures",
    async ({ person, request, query }) => {
      const { lines, ...figures } = await perform(deps, getFigures, callBy(deps, { person, request }), query);
      const routes = query.by === "route" ? await listRoutes(deps) : [];
      const names = new Map(routes.map(({ id, modelId, providerName }) => [id, `${modelId} at ${providerName}`]));
      return toJson({
        ...figures,
        lines: lines.map((line) => ({
          ...line,
          name: line.routeId === null ? null : (names.get(line.routeId) ?? null),
        })),
      });
    },
    {
      query: t.Object({
        by: t.Optional(t.Union([t.Literal("model"), t.Literal("route")])),
        start: t.Optional(Instant),
        end: t.Optional(Instant),
      }),
    },
  );
}

function adminEndpoints(deps: Deps) {
  return signedIn(deps, "admin").get(
    "/admin/requests",
    async ({ person, request: { signal }, query: { kind = "charged", limit = PAGE_DEFAULT, ...page } }) => {
      const query = { ...page, limit };
      const read = async (reading: { db: Db }) =>
        kind === "released" ? await listReleased(reading, query) : await chargedPage(reading, query);
      const { rows, ...more } = await longRead(deps, { person, signal }, read);
      const names = await namesOf(
        deps,
        rows.map(({ accountId }) => accountId),
      );
      return toJson({ rows: rows.map((row) => ({ ...row, accountName: names.get(row.accountId) ?? null })), ...more });
    },
    {
      query: t.Object({
        kind: t.Optional(t.Union([t.Literal("charged"), t.Literal("released")])),
        start: t.Optional(Instant),
        after: t.Optional(RequestId),
        limit: t.Optional(whole(1, PAGE_MAX)),
      }),
    },
  );
}

/** The filter of a page as the query of the books. Throws not_found. */
async function queryOf(deps: Deps, person: Person, { accountId, model, host, ...rest }: FilterQuery) {
  return {
    ...rest,
    accountId: await filteredAccount(deps, person, accountId),
    modelId: model,
    hosts: host === undefined ? null : [host],
  } satisfies UsageQuery;
}

/** The same for a list or a file, whose `days` name its start. Throws not_found and InputError. */
async function listQueryOf(deps: Deps, person: Person, { days, ...filter }: ListQuery) {
  const query = await queryOf(deps, person, filter);
  if (days === undefined) return query;
  if (filter.start !== undefined) throw new InputError("Use days or start, not both.", "days");
  const { accountId } = query;
  return { ...query, start: await firstDayBegins(deps, { accountId, days, timeZone: deps.config.billingTimeZone }) };
}

/** The person's own account, or the named one if the person manages it. Throws not_found. */
async function filteredAccount(deps: Deps, person: Person, accountId: number | undefined): Promise<number> {
  if (accountId === undefined || accountId === person.accountId) return person.accountId;
  return (await accountInScope(deps, person, accountId)).accountId;
}

async function chargedPage(reading: { db: Db }, query: UsageQuery) {
  const { rows, ...page } = await listUsageRecords(reading, query);
  return { rows: rows.map((row) => ({ ...row, kind: "charged" as const })), ...page };
}

/** Named after the host of the request and the UTC day. */
function fileName({ clock }: Deps, { host }: Person, kind: "charged" | "not_charged"): string {
  const day = new Date(clock.unixMs()).toISOString().slice(0, 10);
  return `${kind === "charged" ? "usage" : "not-charged"}-${host.name}-${day}.csv`;
}
