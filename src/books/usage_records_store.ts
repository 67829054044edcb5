import { type SQL, sql } from "drizzle-orm";
import { toIso } from "../accounts/checks.ts";
import { minuteOf } from "../accounts/refusal_counts_store.ts";
import { InputError } from "../errors.ts";
import { INSTANT } from "../http/checks.ts";
import type { Db } from "../platform/db.ts";
import { type Chunk, type ChunkLimits, readAlongIndex, readPage } from "./paged_reads_store.ts";

/**
 * What was used, as people read it: usage records, and requests that were not charged. Request ids carry their time, receipts
 * are partitioned by it, and every list is read along an index of (account, request id), in slices: `walk.ts`. Sums are read
 * from the rollups: `usage_sums_store.ts`.
 */

const PAGE_MAX = 1000;
const PAGE_DEFAULT = 100;
const UUID_MS_MAX = 2 ** 48 - 1;
const REQUEST_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const ID_MIN = "00000000-0000-0000-0000-000000000000";
const ID_MAX = "ffffffff-ffff-ffff-ffff-ffffffffffff";
const IS_INSTANT = new RegExp(INSTANT.pattern);

export type BillingMode = "package" | "payg";

export type UsageFilter = {
  accountId?: number;
  keyId?: number;
  modelId?: string;
  /** Only records of these hosts; null or left out: of all. */
  hosts?: readonly string[] | null;
  mode?: BillingMode;
  /** ISO 8601: from `start` on, and before `end`. */
  start?: string;
  end?: string;
};

export type UsageQuery = UsageFilter & {
  /** The `nextAfter` of the page before. */
  after?: string | undefined;
  limit?: number;
  /** A page begins no further slice after this. */
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
  /** What counts as used by the package or the balance: less than all tokens where the operator bears the rest. */
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
 * A page of a list. `nextAfter` is the `after` of the next one, null at the list's end: the last row's request id or, where the
 * page's time was over before it was full, how far it has read. Such a page may be empty, and the list goes on all the same.
 */
export type Page<Row> = { rows: Row[]; hasMore: boolean; nextAfter: string | null };

/** Usage records, newest first: requests that were settled. Throws InputError. Source: contract › GET /usage, rulings › Usage. */
export async function listUsageRecords({ db }: { db: Db }, query: UsageQuery): Promise<Page<UsageRow>> {
  const { rows, next } = await readPage(finished(db, "settled", query));
  return { rows: rows.map(toUsageRow), hasMore: next !== null, nextAfter: next };
}

/** A hold that was given back: the request reached the ledger, and cost nothing. */
export type ReleasedRow = {
  kind: "released";
  requestId: string;
  keyId: number;
  keyName: string | null;
  modelId: string;
  host: string;
  mode: BillingMode;
  heldNanoUsd: bigint;
  /** Why: one of the ledger's reasons. */
  reason: string;
  createdAt: string;
  finishedAt: string;
};

/** Holds of everybody that were given back, newest first. Throws InputError. */
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

/** Requests of one minute that were refused with the same code, by key and model. */
export type RefusedRow = {
  kind: "refused";
  /** Of the last of them. */
  requestId: string;
  /** null: none was chosen yet. */
  keyId: number | null;
  keyName: string | null;
  /** null: none that the catalog has. */
  modelId: string | null;
  host: string;
  code: string;
  count: number;
  minute: string;
};

/**
 * Requests that were not charged, newest first: released holds, and refusals as far as they are kept. Where a provider was
 * out of reach the hold speaks for the request. Throws InputError.
 */
export async function listNotCharged(
  { db }: { db: Db },
  query: UsageQuery & { accountId: number },
): Promise<Page<ReleasedRow | RefusedRow>> {
  const size = sizeOf(query);
  const released = await readPage(finished(db, "released", query));
  const refused = await readPage(refusals(db, query));
  // As far as both have come: beyond, one of them may have more. As text ids stand in the order of their bytes.
  const upto = [released.next ?? "", refused.next ?? ""].toSorted().at(-1) ?? "";
  const rows = [...released.rows.map(toReleased), ...refused.rows.map(toRefused)]
    .filter(({ requestId }) => requestId >= upto)
    .sort((a, b) => (a.requestId < b.requestId ? 1 : -1));
  const nextAfter = rows.length > size ? (rows[size - 1]?.requestId ?? null) : upto || null;
  return { rows: rows.slice(0, size), hasMore: nextAfter !== null, nextAfter };
}

/** Where in the index the receipts lie that are asked for. Throws InputError. */
function receiptsOf({ accountId, ...query }: UsageQuery): SQL {
  // The request id carries its time, and receipts are partitioned by it: only the months asked for are read.
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

/** The same of the refusals. Their minute is that of their last request id, so that one index serves for both. Throws InputError. */
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

/** Finished requests, newest first, with their keys' names. Throws InputError. */
function finished(db: Db, outcome: "settled" | "released", query: UsageQuery) {
  const { accountId, after } = query;
  const conditions = matches(query);
  // One account's records stand in its index in this order; everybody's, in that of the request ids.
  const latestFirst =
    accountId === undefined ? sql`order by request_id desc` : sql`order by account_id desc, request_id desc`;
  return listOf(db, query, {
    after,
    isFiltered: conditions.some((condition) => condition !== false),
    rows: (before, rowsMax) => sql`
      select *, request_id as id from receipts
      where outcome = ${sql.raw(`'${outcome}'`)} and ${receiptsOf({ ...query, after: before })} ${latestFirst} limit ${rowsMax}`,
    passes: allOf(conditions),
  });
}

/** Refusals, the same. */
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
      // A refused request was paid by nothing: what it would have been is its key's mode.
      mode !== undefined && sql`exists (select from keys where id = page.key_id and keys.mode = ${mode})`,
    ]),
  });
}

type Source = {
  after: string | undefined;
  isFiltered: boolean;
  /** Rows before a request id, newest first, whatever passes; with the request id as `id`. */
  rows(before: string | undefined, rowsMax: number): SQL;
  /** What passes, of a table `page`. */
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

/** Conditions on a receipt; all but that on the key are on its kind too. */
export function matches({ keyId, modelId, hosts, mode }: UsageFilter): (SQL | false)[] {
  return [
    mode !== undefined && sql`mode = ${mode}`,
    keyId !== undefined && sql`key_id = ${keyId}::bigint`,
    modelId !== undefined && sql`model_id = ${modelId}`,
    hosts !== undefined && hosts !== null && sql`host in ${hosts.length > 0 ? [...hosts] : [""]}`,
  ];
}

/**
 * The wanted request ids: from one on, and below another; undefined: without a bound. One of each, since Postgres begins its walk along
 * an index at the first that it is given, however far the nearer one lies. Throws InputError.
 */
function requestIdsOf({ start, end, after }: Pick<UsageQuery, "start" | "end" | "after">) {
  const limits = [
    ...(end === undefined ? [] : [requestIdFloor(end, "end")]),
    ...(after === undefined ? [] : [checkRequestId(after)]),
  ];
  // As text ids stand in the order of their bytes, as Postgres compares them.
  return { from: start === undefined ? undefined : requestIdFloor(start, "start"), below: limits.toSorted()[0] };
}

export function allOf(conditions: (SQL | false)[]): SQL {
  return sql.join([sql`true`, ...conditions.filter((condition) => condition !== false)], sql` and `);
}

function sizeOf({ limit = PAGE_DEFAULT }: UsageQuery): number {
  return Math.min(Math.max(limit, 1), PAGE_MAX);
}

/** A moment that a caller named, in Unix milliseconds. Throws InputError. */
export function unixMsOf(instant: string, param: string): number {
  const ms = Date.parse(instant);
  if (!IS_INSTANT.test(instant) || Number.isNaN(ms))
    throw new InputError(`The ${param} must be a date, or a time with its zone, in ISO 8601.`, param);
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

function nameOf(row: Record<string, unknown>): string | null {
  return typeof row.key_name === "string" ? row.key_name : null;
}

function modeOf(row: Record<string, unknown>): BillingMode {
  return row.mode === "payg" ? "payg" : "package";
}
