import { type SQL, sql } from "drizzle-orm";
import { minuteOf } from "../accounts/refusal_counts_store.ts";
import { InputError, sentence } from "../errors.ts";
import { INSTANT } from "../http/checks.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { pageSize } from "../platform/pages.ts";
import { type Chunk, type ChunkLimits, readAlongIndex, readPage } from "./paged_reads_store.ts";

/**
 * Lists of usage records, and of requests that were not charged. Request ids begin with their time, receipts are
 * partitioned by it, and every list is read in chunks along an index of (account, request id): `paged_reads_store.ts`.
 * Sums are read from rollups: `usage_sums_store.ts`.
 */

const PAGE_MAX = 1000;
const PAGE_DEFAULT = 100;
const UUID_MS_MAX = 2 ** 48 - 1;
export const REQUEST_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
export const ID_MIN = "00000000-0000-0000-0000-000000000000";
export const ID_MAX = "ffffffff-ffff-ffff-ffff-ffffffffffff";
const IS_INSTANT = new RegExp(INSTANT.pattern);

export type BillingMode = "package" | "payg";

export type UsageFilter = {
  accountId?: number;
  keyId?: number;
  modelId?: string;
  /** Only records of these hosts; null or absent: of all hosts. */
  hosts?: readonly string[] | null;
  mode?: BillingMode;
  /** The route that answered. */
  routeId?: number;
  /** How it ended: one of the ledger's reasons. */
  reason?: string;
  /** ISO 8601: from `start` on, and before `end`. */
  start?: string;
  end?: string;
};

export type UsageQuery = UsageFilter & {
  /** Without an account: only those of this reseller and of its customers. */
  tenantOf?: number | undefined;
  /** The `nextAfter` of the previous page. */
  after?: string | undefined;
  limit?: number;
  /** The page begins no further chunk after this time. */
  pageMsMax?: number;
};

export type UsageRow = {
  requestId: string;
  accountId: number;
  keyId: number;
  keyName: string | null;
  modelId: string;
  host: string;
  mode: BillingMode;
  units: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** Tokens counted against the package or the balance: fewer than all if the operator bears the rest. */
  chargedTokens: number;
  heldNanoUsd: bigint;
  chargedNanoUsd: bigint;
  /** What it cost beyond what could be charged: the operator's loss. */
  shortfallNanoUsd: bigint;
  estimated: boolean;
  /** How it ended: `complete`, `client_left`, `late`, … */
  reason: string;
  createdAt: string;
  finishedAt: string;
};

/**
 * A page of a list. `nextAfter` is the `after` of the next page; null at the end of the list. It is the last row's
 * request id or, if the page ran out of time before it was full, the last one read. Such a page may be empty although
 * the list continues.
 */
export type Page<Row> = { rows: Row[]; hasMore: boolean; nextAfter: string | null };

/** Usage records, newest first: requests that were settled. Throws InputError. Source: USE-1, USE-2. */
export async function listUsageRecords({ db }: { db: Db }, query: UsageQuery): Promise<Page<UsageRow>> {
  const { rows, next } = await readPage(finished(db, "settled", query));
  return { rows: rows.map(toUsageRow), hasMore: next !== null, nextAfter: next };
}

/** One usage record of an account, on one of the hosts; undefined if there is none. Source: USE-8. */
export async function findUsageRecord(
  { db }: { db: Db },
  { requestId, accountId, hosts }: { requestId: string; accountId: number; hosts: readonly string[] | null },
): Promise<UsageRow | undefined> {
  if (!REQUEST_ID.test(requestId)) return undefined;
  const [row] = await db.sql`
    select r.*, k.name as key_name from receipts r left join keys k on k.id = r.key_id
    where r.account_id = ${accountId} and r.request_id = ${requestId}::text::uuid and r.outcome = 'settled'
      and ${hosts === null ? db.sql`true` : db.sql`r.host = any(${[...hosts]})`}
    limit 1`;
  return row && toUsageRow(row);
}

/** A released hold: the request reached the ledger and cost nothing. */
export type ReleasedRow = {
  kind: "released";
  requestId: string;
  keyId: number;
  keyName: string | null;
  modelId: string;
  host: string;
  mode: BillingMode;
  heldNanoUsd: bigint;
  /** Why it was released: one of the ledger's reasons. */
  reason: string;
  createdAt: string;
  finishedAt: string;
};

/** Released holds of one account or all, newest first. Throws InputError. */
export async function listReleased(
  { db }: { db: Db },
  query: UsageQuery,
): Promise<Page<ReleasedRow & { accountId: number }>> {
  const { rows, next } = await readPage(finished(db, "released", query));
  return {
    rows: rows.map((row) => ({ accountId: Number(row.account_id), ...toReleased(row) })),
    hasMore: next !== null,
    nextAfter: next,
  };
}

/** Requests of one key and model that were refused with the same code in the same minute. */
export type RefusedRow = {
  kind: "refused";
  /** The id of the last of them. */
  requestId: string;
  /** null: refused before a key was known. */
  keyId: number | null;
  keyName: string | null;
  /** null: the catalog has no such model. */
  modelId: string | null;
  host: string;
  code: string;
  count: number;
  minute: string;
};

/**
 * Requests that were not charged, newest first: released holds, and refusals as long as they are kept. A request that
 * no provider could serve appears as its released hold only. Throws InputError.
 */
export async function listNotCharged(
  { db }: { db: Db },
  query: UsageQuery & { accountId: number },
): Promise<Page<ReleasedRow | RefusedRow>> {
  const size = sizeOf(query);
  const released = await readPage(finished(db, "released", query));
  const refused = await readPage(refusals(db, query));
  // Only as far as both lists were read: beyond that, one of them may have more rows. As text, ids sort like their
  // bytes.
  const upto = [released.next ?? "", refused.next ?? ""].toSorted().at(-1) ?? "";
  const rows = [...released.rows.map(toReleased), ...refused.rows.map(toRefused)]
    .filter(({ requestId }) => requestId >= upto)
    .sort((a, b) => (a.requestId < b.requestId ? 1 : -1));
  const nextAfter = rows.length > size ? (rows[size - 1]?.requestId ?? null) : upto || null;
  return { rows: rows.slice(0, size), hasMore: nextAfter !== null, nextAfter };
}

/** The index range of the receipts asked for. Throws InputError. */
function receiptsOf({ accountId, ...query }: UsageQuery): SQL {
  // The request id begins with its time, and receipts are partitioned by it: only the months asked for are read.
  const { from, below } = requestIdsOf(query);
  return allOf([
    from !== undefined && sql`request_id >= ${from}::text::uuid`,
    below !== undefined && sql`request_id < ${below}::text::uuid`,
    ...(accountId === undefined
      ? []
      : [
          sql`(account_id, request_id) >= (${accountId}::bigint, ${from ?? ID_MIN}::text::uuid)`,
          sql`(account_id, request_id) < (${accountId}::bigint, ${below ?? ID_MAX}::text::uuid)`,
        ]),
  ]);
}

/**
 * The index range of the refusals asked for. A refusal's minute is that of its last request id, so that one index
 * serves for both. Throws InputError.
 */
function refusalsOf({ accountId, start, end, after }: UsageQuery & { accountId: number }): SQL {
  const { from, below } = requestIdsOf({ start, end, after });
  const minute = (id: string) => sql`(${accountId}::bigint, ${minuteOf(id)}::text::timestamptz)`;
  return allOf([
    sql`(account_id, minute) >= ${minute(from ?? ID_MIN)}`,
    sql`(account_id, minute) <= ${minute(below ?? ID_MAX)}`,
    from !== undefined && sql`last_request_id >= ${from}::text::uuid`,
    below !== undefined && sql`last_request_id < ${below}::text::uuid`,
  ]);
}

/** A list of finished requests, newest first, with the names of their keys. Throws InputError. */
export function finished(db: Db, outcome: "settled" | "released", query: UsageQuery) {
  const { accountId, tenantOf, after } = query;
  const conditions = matches(query);
  // One account's receipts are in this order in its index; those of all accounts in that of the request ids.
  const latestFirst =
    accountId === undefined ? sql`order by request_id desc` : sql`order by account_id desc, request_id desc`;
  return listOf(db, query, {
    after,
    isFiltered: conditions.some((condition) => condition !== false),
    rows: (before, rowsMax) =>
      accountId === undefined && tenantOf !== undefined
        ? tenantRows(outcome, { ...query, tenantOf, after: before }, rowsMax)
        : sql`
          select *, request_id as id from receipts
          where outcome = ${sql.raw(`'${outcome}'`)} and ${receiptsOf({ ...query, after: before })} ${latestFirst} limit ${rowsMax}`,
    passes: allOf(conditions),
  });
}

/** The latest receipts of a reseller and its customers: of each the latest ids, from its index, and then the receipts of the latest of all. */
function tenantRows(
  outcome: "settled" | "released",
  { tenantOf, ...query }: UsageQuery & { tenantOf: number },
  rowsMax: number,
): SQL {
  const { from = ID_MIN, below = ID_MAX } = requestIdsOf(query);
  return sql`
    select r.*, r.request_id as id from (
      select h.request_id from accounts a cross join lateral (
        select request_id from receipts
        where outcome = ${sql.raw(`'${outcome}'`)} and request_id >= ${from}::text::uuid and request_id < ${below}::text::uuid
          and (account_id, request_id) >= (a.id, ${from}::text::uuid) and (account_id, request_id) < (a.id, ${below}::text::uuid)
        order by account_id desc, request_id desc limit ${rowsMax}) h
      where a.reseller_id = ${tenantOf}::bigint or a.id = ${tenantOf}::bigint
      order by h.request_id desc limit ${rowsMax}) ids
    cross join lateral (select * from receipts where receipts.request_id = ids.request_id offset 0) r`;
}

/** A list of refusals, newest first, with the names of their keys. */
function refusals(db: Db, query: UsageQuery & { accountId: number }) {
  const { mode, after } = query;
  return listOf(db, query, {
    after,
    isFiltered: true,
    rows: (before, rowsMax) => sql`
      select last_request_id as id, account_id, key_id, model_id, host, code, count, minute
      from refusal_counts where ${refusalsOf({ ...query, after: before })}
      order by account_id desc, minute desc, last_request_id desc limit ${rowsMax}`,
    passes: allOf([
      sql`code <> 'provider_unavailable'`,
      ...matches({ ...query, mode: undefined }),
      // Nothing paid for a refused request: its billing mode is that of its key.
      mode !== undefined && sql`exists (select from keys where id = page.key_id and keys.mode = ${mode})`,
    ]),
  });
}

type Source = {
  after: string | undefined;
  isFiltered: boolean;
  /** Rows before a request id, newest first, filtered or not; their request id is `id`. */
  rows(before: string | undefined, rowsMax: number): SQL;
  /** The filter, as a condition on the table `page`. */
  passes: SQL;
};

function listOf(db: Db, query: UsageQuery, { after, isFiltered, rows, passes }: Source) {
  const size = sizeOf(query);
  const chunk = async (
    before: string | undefined,
    limits: ChunkLimits,
  ): Promise<Chunk<Record<string, unknown>, string>> => {
    const found = await readAlongIndex(
      db,
      sql`
      with page as materialized (${rows(before, limits.rowsMax)}), found as (
        select r.*, k.name as key_name, true as is_found
        from (select * from page where ${passes} order by id desc limit ${size + 1}) r left join keys k on k.id = r.key_id
        order by r.id desc)
      select read.read, read.last, found.* from (
        select count(*)::int as read, (select id::text from page order by page.id limit 1) as last from page
      ) read left join found on true`,
      limits.statementMsMax,
    );
    const [first] = found;
    return { rows: found.filter((row) => row.is_found === true), read: Number(first?.read), last: String(first?.last) };
  };
  const cursorOf = (row: Record<string, unknown>) => String(row.id);
  return { size, isFiltered, after, pageMsMax: query.pageMsMax, chunk, cursorOf };
}

/** Conditions on a receipt. All but those on the key and the reason apply to a rollup's kind too. */
export function matches({ keyId, modelId, hosts, mode, routeId, reason }: UsageFilter): (SQL | false)[] {
  return [
    routeId !== undefined && sql`route_id = ${routeId}::bigint`,
    reason !== undefined && sql`reason = ${reason}`,
    mode !== undefined && sql`mode = ${mode}`,
    keyId !== undefined && sql`key_id = ${keyId}::bigint`,
    modelId !== undefined && sql`model_id = ${modelId}`,
    hosts !== undefined && hosts !== null && sql`host in ${hosts.length > 0 ? [...hosts] : [""]}`,
  ];
}

/**
 * The range of request ids; undefined: no bound. At most one bound on each side, since Postgres begins an index scan at
 * the first bound that it is given, however far away the nearer one is. Throws InputError.
 */
function requestIdsOf({ start, end, after }: Pick<UsageQuery, "start" | "end" | "after">) {
  const limits = [
    ...(end === undefined ? [] : [requestIdFloor(end, "end")]),
    ...(after === undefined ? [] : [checkRequestId(after)]),
  ];
  // As text, ids sort like their bytes, which is how Postgres compares them.
  return { from: start === undefined ? undefined : requestIdFloor(start, "start"), below: limits.toSorted()[0] };
}

export function allOf(conditions: (SQL | false)[]): SQL {
  return sql.join([sql`true`, ...conditions.filter((condition) => condition !== false)], sql` and `);
}

function sizeOf({ limit = PAGE_DEFAULT }: UsageQuery): number {
  return pageSize(limit, PAGE_MAX);
}

/** A date or time that a caller gave, in Unix milliseconds, within the range of request ids. Throws InputError. */
export function unixMsOf(instant: string, param: string): number {
  const ms = Date.parse(instant);
  if (!IS_INSTANT.test(instant) || Number.isNaN(ms))
    throw new InputError(
      sentence("The {param} must be a date, or a time with its zone, in ISO 8601.", { param }),
      param,
    );
  return Math.min(Math.max(ms, 0), UUID_MS_MAX);
}

/** The smallest UUIDv7 of a moment: its first 48 bits are Unix milliseconds. Throws InputError. */
function requestIdFloor(instant: string, param: string): string {
  const hex = unixMsOf(instant, param).toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

/** Throws InputError. */
function checkRequestId(id: string): string {
  if (!REQUEST_ID.test(id)) throw new InputError("This is not a request id.", "after");
  return id.toLowerCase();
}

function toUsageRow(row: Record<string, unknown>): UsageRow {
  return {
    requestId: String(row.request_id),
    accountId: Number(row.account_id),
    keyId: Number(row.key_id),
    keyName: nameOf(row),
    modelId: String(row.model_id),
    host: String(row.host),
    mode: modeOf(row),
    units: Number(row.units),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    chargedTokens: Number(row.charged_tokens),
    heldNanoUsd: BigInt(String(row.held_nano_usd)),
    chargedNanoUsd: BigInt(String(row.charged_nano_usd)),
    shortfallNanoUsd: BigInt(String(row.shortfall_nano_usd)),
    estimated: row.estimated === true,
    reason: String(row.reason),
    createdAt: toIso(String(row.created_at)),
    finishedAt: toIso(String(row.finished_at)),
  };
}

function toReleased(row: Record<string, unknown>): ReleasedRow {
  return {
    kind: "released",
    requestId: String(row.request_id),
    keyId: Number(row.key_id),
    keyName: nameOf(row),
    modelId: String(row.model_id),
    host: String(row.host),
    mode: modeOf(row),
    heldNanoUsd: BigInt(String(row.held_nano_usd)),
    reason: String(row.reason),
    createdAt: toIso(String(row.created_at)),
    finishedAt: toIso(String(row.finished_at)),
  };
}

function toRefused(row: Record<string, unknown>): RefusedRow {
  return {
    kind: "refused",
    requestId: String(row.id),
    keyId: Number(row.key_id) || null,
    keyName: nameOf(row),
    modelId: String(row.model_id) || null,
    host: String(row.host),
    code: String(row.code),
    count: Number(row.count),
    minute: toIso(String(row.minute)),
  };
}

export function nameOf(row: Record<string, unknown>): string | null {
  return typeof row.key_name === "string" ? row.key_name : null;
}

export function modeOf(row: Record<string, unknown>): BillingMode {
  return row.mode === "payg" ? "payg" : "package";
}
