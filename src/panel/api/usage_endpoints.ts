import { Elysia, t } from "elysia";
import { namesOf } from "../../accounts/accounts_store.ts";
import { keyNames } from "../../accounts/keys_store.ts";
import { type Figures, type FiguresBy, figuresOf } from "../../books/figures_store.ts";
import { percentilesOf } from "../../books/latency_marks.ts";
import { findRequestAccount } from "../../books/receipts_store.ts";
import { listNotCharged, listUsageRecords, type UsageQuery } from "../../books/usage_records_store.ts";
import { firstDayBegins, usageByDay } from "../../books/usage_sums_store.ts";
import { modelPlaces } from "../../catalog/models_store.ts";
import { listRoutes } from "../../catalog/routes_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError } from "../../errors.ts";
import { accountInScope } from "../../operations/fence.ts";
import { perform } from "../../operations/operation.ts";
import { getReceipt, notFound } from "../../operations/receipts.ts";
import { By, getFigures, lineOf, listAllRequests, requestQueryOf } from "../../operations/usage.ts";
import type { Db } from "../../platform/db.ts";
import { csvResponse, FILE_WAIT_MS_MAX } from "./csv_stream.ts";
import { BillingMode, HostFilter, Id, Instant, NO_NUL, RequestId, whole } from "./fields.ts";
import { toJson } from "./formats.ts";
import { operate } from "./operate.ts";
import { callBy, longRead, type Person, signedIn } from "./panel_session.ts";
import { requestsCsv } from "./requests_csv.ts";
import { usageCsv } from "./usage_csv.ts";

/**
 * Requests and their cost: lists, sums by day, CSV and receipts of one account (the person's own, or one it manages); finding a
 * request by its id; and for resellers and admins, the requests of the accounts that they manage.
 */

const PAGE_MAX = 200;
/** Rows of a page of an operation. */
const LIST_MAX = 100;
const REASON_CHARS_MAX = 40;
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
    .use(ownFiguresEndpoints(deps))
    .use(requestsEndpoints(deps));
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
    .get("/receipts/:requestId", operate(deps, getReceipt), {
      params: t.Object({ requestId: RequestId }),
      query: t.Object(AccountFilter),
    })
    .get(
      "/requests/:requestId",
      // The account that made a request: the person itself, one it manages, or for an admin any. Else not_found.
      async ({ person: { role, accountId }, params }) => {
        const scope = role === "admin" ? "everybody" : { accountId };
        const requester = await findRequestAccount(deps, { requestId: params.requestId.toLowerCase(), scope });
        if (!requester) throw await notFound(deps, params.requestId.toLowerCase());
        return requester;
      },
      { params: t.Object({ requestId: RequestId }) },
    );
}

const OwnBy = t.Union([t.Literal("model"), t.Literal("key"), t.Literal("host"), t.Literal("hour")]);

/** What an account used in a period, and how long it took: by model, key, host or hour, without what it brought its seller. Source: MON-24. */
function ownFiguresEndpoints(deps: Deps) {
  return signedIn(deps).get(
    "/usage/figures",
    async ({ person, request: { signal }, query: { accountId: named, by, ...period } }) => {
      const accountId = await filteredAccount(deps, person, named);
      const found = await longRead(deps, { person, signal }, (reading) =>
        figuresOf(reading, { scope: { accountId }, by, ...period }),
      );
      const lines = found.lines.map(({ of, ...figures }) => ({ ...lineOf(by, of), ...usedOf(figures) }));
      const names = await lineNames(deps, { by, accountId }, lines);
      return toJson({
        from: found.from,
        to: found.to,
        total: usedOf(found.total),
        errors: found.errors,
        lines: lines.map((line) => ({ ...line, name: names(line) ?? null })),
        hasMore: found.hasMore,
      });
    },
    { query: t.Object({ ...AccountFilter, by: OwnBy, start: t.Optional(Instant), end: t.Optional(Instant) }) },
  );
}

/** The part of figures that concerns the account itself. */
function usedOf(figures: Figures) {
  const { requests, promptTokens, cachedTokens, completionTokens, chargedNanoUsd, firstMarks, wholeMarks } = figures;
  const latency = { firstEvent: percentilesOf(firstMarks), wholeAnswer: percentilesOf(wholeMarks) };
  return { requests, promptTokens, cachedTokens, completionTokens, chargedNanoUsd, ...latency };
}

/** Figures of a period; the lines of routes, accounts and keys with their names. Source: MON-24. */
function figuresEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin").get(
    "/figures",
    async ({ person, request, query }) => {
      const { lines, ...figures } = await perform(deps, getFigures, callBy(deps, { person, request }), query);
      const names = await lineNames(deps, query, lines);
      return toJson({ ...figures, lines: lines.map((line) => ({ ...line, name: names(line) ?? null })) });
    },
    {
      query: t.Object({
        accountId: t.Optional(Id),
        resellerId: t.Optional(Id),
        by: t.Optional(By),
        start: t.Optional(Instant),
        end: t.Optional(Instant),
      }),
    },
  );
}

type LineIds = { routeId: number | null; accountId: number | null; keyId: number | null };

/** The names of what the lines of figures are of. The account, if one is named, was found to be in scope. */
async function lineNames(
  deps: Deps,
  { by, accountId }: { by?: FiguresBy; accountId?: number },
  lines: readonly LineIds[],
): Promise<(line: LineIds) => string | undefined> {
  if (by === "route") {
    const names = new Map(
      (await listRoutes(deps)).map((route) => [route.id, `${route.modelId} at ${route.providerName}`]),
    );
    return ({ routeId }) => names.get(routeId ?? 0);
  }
  if (by === "key" && accountId !== undefined) {
    const names = await keyNames(deps, accountId);
    return ({ keyId }) => names.get(keyId ?? 0);
  }
  const ids = lines.flatMap((line) => line.accountId ?? []);
  const names = ids.length === 0 ? new Map<number, string>() : await namesOf(deps, ids);
  return (line) => names.get(line.accountId ?? 0);
}

const RequestFilter = {
  outcome: t.Optional(t.Union([t.Literal("charged"), t.Literal("released")])),
  reason: t.Optional(
    t.String({ maxLength: REASON_CHARS_MAX, pattern: NO_NUL, says: "a string of at most 40 characters without NUL" }),
  ),
  ...Filter,
  routeId: t.Optional(Id),
};

/** The requests of all accounts that a person manages: a list, and the same as a file. Source: USE-9. */
function requestsEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/requests",
      async ({ person, request, query: { model, limit = PAGE_DEFAULT, ...query } }) => {
        const asked = { ...query, limit, ...(model !== undefined && { modelId: model }) };
        const { rows, next } = await perform(deps, listAllRequests, callBy(deps, { person, request }), asked);
        const names = await namesOf(
          deps,
          rows.map(({ accountId }) => accountId),
        );
        const named = rows.map((row) => ({ ...row, accountName: names.get(row.accountId) ?? null }));
        return toJson({ rows: named, nextBefore: next === null ? null : String(next) });
      },
      {
        query: t.Object({ ...RequestFilter, before: t.Optional(RequestId), limit: t.Optional(whole(1, LIST_MAX)) }),
      },
    )
    .get(
      "/requests.csv",
      async ({ person, query: { model, ...query } }) => {
        const asked = await requestQueryOf(deps, person, { ...query, ...(model !== undefined && { modelId: model }) });
        const csv = await requestsCsv(
          (page, signal) => longRead(deps, { person, signal, waitMsMax: FILE_WAIT_MS_MAX }, page),
          person,
          asked,
        );
        return csvResponse(csv, `requests-${person.host.name}-${utcDay(deps)}.csv`);
      },
      { query: t.Object(RequestFilter) },
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
function fileName(deps: Deps, { host }: Person, kind: "charged" | "not_charged"): string {
  return `${kind === "charged" ? "usage" : "not-charged"}-${host.name}-${utcDay(deps)}.csv`;
}

const utcDay = ({ clock }: Deps): string => new Date(clock.unixMs()).toISOString().slice(0, 10);
