import { type SQL, sql } from "drizzle-orm";
import { toIso } from "../accounts/checks.ts";
import { minuteOf } from "../accounts/refusal_counts_store.ts";
import { InputError } from "../errors.ts";
import type { Db } from "../platform/db.ts";

/**
 * What was used, as people read it: usage records, requests that were not charged, and both summed up. Request ids carry
 * their time, receipts are partitioned by it, and every list is read along an index of (account, request id).
 */

const PAGE_MAX = 1000;
const PAGE_DEFAULT = 100;
const DAYS_MAX = 92;
/** Records that one chart sums up, the newest first. */
const SUMMED_MAX = 500_000;
/** Records of the last 24 hours that are counted by key. */
const COUNTED_MAX = 200_000;
/** A filter that hardly anything passes is given up after this. */
const READ_MS_MAX = 5_000;
const UUID_MS_MAX = 2 ** 48 - 1;
const REQUEST_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
const ID_MIN = "00000000-0000-0000-0000-000000000000";
const ID_MAX = "ffffffff-ffff-ffff-ffff-ffffffffffff";
/** A date, or a moment with its zone. */
const INSTANT = /^\d{4}-\d{2}-\d{2}(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;

export type Mode = "package" | "payg";

export type UsageFilter = {
  accountId?: number;
  keyId?: number;
  modelId?: string;
  /** Only records of these hosts; null or left out: of all. */
  hosts?: readonly string[] | null;
  mode?: Mode;
  /** ISO 8601: from `start` on, and before `end`. */
  start?: string;
  end?: string;
};

export type UsageQuery = UsageFilter & {
  /** The request id that the page before ended with. */
  after?: string;
  limit?: number;
};

export type UsageRow = {
  requestId: string;
  accountId: number;
  keyId: number;
  keyName: string | null;
  modelId: string;
  host: string;
  mode: Mode;
  units: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
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

export type Page<Row> = { rows: Row[]; hasMore: boolean };

/** Usage records, newest first: requests that were settled. Throws InputError. Source: contract › GET /usage, rulings › Usage. */
export async function usage({ db }: { db: Db }, query: UsageQuery): Promise<Page<UsageRow>> {
  const size = sizeOf(query);
  const rows = await alongIndex(
    db,
    sql`
    select r.*, k.name as key_name from (
      select request_id, account_id, key_id, model_id, host, mode, units, prompt_tokens, cached_tokens, completion_tokens,
        held_nano_usd, charged_nano_usd, shortfall_nano_usd, estimated, reason, created_at, finished_at
      from receipts where outcome = 'settled' and ${receiptsOf(query)} ${latestFirst(query)} limit ${size + 1}
    ) r left join keys k on k.id = r.key_id order by r.request_id desc`,
  );
  return { rows: rows.slice(0, size).map(toUsageRow), hasMore: rows.length > size };
}

/** A hold that was given back: the request reached the ledger, and cost nothing. */
export type ReleasedRow = {
  kind: "released";
  requestId: string;
  keyId: number;
  keyName: string | null;
  modelId: string;
  host: string;
  mode: Mode;
  heldNanoUsd: bigint;
  /** Why: one of the ledger's reasons. */
  reason: string;
  createdAt: string;
  finishedAt: string;
};

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
export async function notCharged(
  { db }: { db: Db },
  query: UsageQuery & { accountId: number },
): Promise<Page<ReleasedRow | RefusedRow>> {
  const size = sizeOf(query);
  const rows = await alongIndex(
    db,
    sql`
    select n.*, k.name as key_name from (
      (select request_id, 'released' as kind, key_id, model_id, host, mode, held_nano_usd, reason as why, 1 as count, created_at,
        finished_at
      from receipts where outcome = 'released' and ${receiptsOf(query)} ${latestFirst(query)} limit ${size + 1})
      union all
      (select last_request_id, 'refused', key_id, model_id, host, null, 0, code, count, minute, null
      from refusal_counts where code <> 'provider_unavailable' and ${refusalsOf(query)}
      order by account_id desc, minute desc, last_request_id desc limit ${size + 1})
    ) n left join keys k on k.id = n.key_id order by n.request_id desc limit ${size + 1}`,
  );
  return { rows: rows.slice(0, size).map(toNotCharged), hasMore: rows.length > size };
}

export type Measure = "requests" | "tokens" | "charged";
export type UsageSum = {
  modelId: string;
  requests: number;
  promptTokens: number;
  completionTokens: number;
  chargedNanoUsd: bigint;
};
export type UsageDays = {
  /** The zone of the account's package, or the one given for accounts without. */
  timeZone: string;
  /** Every day asked for, as 2030-01-31, oldest first. */
  days: string[];
  /** What was used, by day and model; a day without use has no row. */
  rows: (UsageSum & { day: string })[];
  /** Over all days, the model with the most of `measure` first. */
  models: UsageSum[];
  /** Older records were left out, there being too many; null: all were counted. */
  countedFrom: string | null;
};

/** Usage records summed by day and model, of the last `days` days by the database's clock. Throws InputError. */
export async function usageDays(
  deps: { db: Db },
  {
    days,
    measure,
    timeZone,
    ...filter
  }: UsageFilter & { accountId: number; days: number; measure: Measure; timeZone: string },
): Promise<UsageDays> {
  const calendar = await calendarOf(deps, {
    accountId: filter.accountId,
    days: Math.min(Math.max(days, 1), DAYS_MAX),
    timeZone,
  });
  const rows = await alongIndex(
    deps.db,
    sql`
    select day::text, model_id, count(*)::int as requests, sum(prompt_tokens)::bigint as prompt_tokens,
      sum(completion_tokens)::bigint as completion_tokens, sum(charged_nano_usd)::bigint as charged_nano_usd,
      min(created_at) as counted_from
    from (
      select greatest((created_at at time zone ${calendar.timeZone})::date, ${calendar.days[0]}::text::date) as day,
        model_id, prompt_tokens, completion_tokens, charged_nano_usd, created_at
      from receipts where outcome = 'settled' and ${receiptsOf(filter, calendar.from)} ${latestFirst(filter)} limit ${SUMMED_MAX}
    ) r group by day, model_id order by day, model_id`,
  );
  const sums = rows.map((row) => ({ day: String(row.day), ...toSum(row) }));
  const counted = sums.reduce((total, { requests }) => total + requests, 0);
  const oldest = rows.map((row) => toIso(String(row.counted_from))).sort()[0] ?? null;
  return {
    timeZone: calendar.timeZone,
    days: calendar.days,
    rows: sums,
    models: byMeasure(sums, measure),
    countedFrom: counted < SUMMED_MAX ? null : oldest,
  };
}

/** What an account's keys did in the last 24 hours: settled requests by key. `cut`: there were more than are counted. */
export async function requestsByKey(
  { db }: { db: Db },
  accountId: number,
): Promise<{ requests: Map<number, number>; cut: boolean }> {
  // The floor is read once: the clock is volatile, and an index wants something that stays.
  const rows = await alongIndex(
    db,
    sql`
    with floor as materialized (select request_id_floor(ledger_now() - interval '24 hours') as id)
    select key_id, count(*)::int as requests from (
      select key_id from receipts
      where outcome = 'settled' and ${receiptsOf({ accountId })} and request_id >= (select id from floor)
        and (account_id, request_id) >= (${accountId}::bigint, (select id from floor))
      ${latestFirst({ accountId })} limit ${COUNTED_MAX}
    ) r group by key_id`,
  );
  const requests = new Map(rows.map((row) => [Number(row.key_id), Number(row.requests)]));
  const counted = [...requests.values()].reduce((total, count) => total + count, 0);
  return { requests, cut: counted >= COUNTED_MAX };
}

/** The days that end today, in the zone of the account's package or else in `timeZone`, and the moment they begin. */
async function calendarOf(
  { db }: { db: Db },
  { accountId, days, timeZone }: { accountId: number; days: number; timeZone: string },
): Promise<{ timeZone: string; from: string; days: string[] }> {
  const rows = await db.orm.execute<{ zone: string; day: string; begins: string }>(sql`
    with clock as materialized (select ledger_now() as now), zone as materialized (
      select now, coalesce((
        select time_zone from packages where account_id = ${accountId}::bigint and starts_at <= now and ends_at > now
        order by starts_at desc limit 1), ${timeZone}) as name
      from clock), calendar as (
      select name, (now at time zone name)::date - ago as day from zone, generate_series(0, ${days - 1}::int) as ago)
    select name as zone, day::text, day::timestamp at time zone name as begins from calendar order by day`);
  const [first] = rows;
  if (!first) throw new Error("the calendar has no day");
  return { timeZone: first.zone, from: toIso(first.begins), days: rows.map(({ day }) => day) };
}

/** What of the receipts is asked for, none from before `from`. Throws InputError. */
function receiptsOf({ accountId, start, end, after, ...filter }: UsageQuery, from?: string): SQL {
  // The request id carries its time, and receipts are partitioned by it: only the months asked for are read.
  const floors = [
    ...(from === undefined ? [] : [requestIdFloor(from, "days")]),
    ...(start === undefined ? [] : [requestIdFloor(start, "start")]),
  ];
  const limits = limitsOf({ end, after });
  return allOf([
    ...floors.map((floor) => sql`request_id >= ${floor}::text::uuid`),
    ...limits.map((limit) => sql`request_id < ${limit}::text::uuid`),
    ...(accountId === undefined
      ? []
      : [
          ...[ID_MIN, ...floors].map(
            (id) => sql`(account_id, request_id) >= (${accountId}::bigint, ${id}::text::uuid)`,
          ),
          ...[ID_MAX, ...limits].map((id) => sql`(account_id, request_id) < (${accountId}::bigint, ${id}::text::uuid)`),
        ]),
    ...matches(filter),
    filter.mode !== undefined && sql`mode = ${filter.mode}`,
  ]);
}

/** The same of the refusals. Their minute is that of their last request id, so that one index serves for both. Throws InputError. */
function refusalsOf({ accountId, start, end, after, ...filter }: UsageQuery & { accountId: number }): SQL {
  const floors = start === undefined ? [] : [requestIdFloor(start, "start")];
  const limits = limitsOf({ end, after });
  const upTo = (id: string) => sql`(account_id, minute) <= (${accountId}::bigint, ${minuteOf(id)}::text::timestamptz)`;
  const from = (id: string) => sql`(account_id, minute) >= (${accountId}::bigint, ${minuteOf(id)}::text::timestamptz)`;
  return allOf([
    ...[ID_MIN, ...floors].map(from),
    ...[ID_MAX, ...limits].map(upTo),
    ...floors.map((floor) => sql`last_request_id >= ${floor}::text::uuid`),
    ...limits.map((limit) => sql`last_request_id < ${limit}::text::uuid`),
    ...matches(filter),
    // A refused request was paid by nothing: what it would have been is its key's mode.
    filter.mode !== undefined &&
      sql`exists (select from keys where id = refusal_counts.key_id and keys.mode = ${filter.mode})`,
  ]);
}

/** One account's records stand in its index in this order; everybody's, in that of the request ids. */
function latestFirst({ accountId }: UsageQuery): SQL {
  return accountId === undefined ? sql`order by request_id desc` : sql`order by account_id desc, request_id desc`;
}

/**
 * Reads along the index of (account, request id), so that a list costs what it shows. The planner knows little of a month
 * that is being written, and would rather sort all that an account ever did, or walk back through everybody's requests:
 * hence bounds and order that no other index has, and no sorting in its stead. Throws what passes when it takes too long.
 */
async function alongIndex({ orm }: Db, query: SQL): Promise<Record<string, unknown>[]> {
  return orm.transaction(async (tx) => {
    // Without jit: to sort a page's few rows counts as dear now, and would be worth a compiler.
    await tx.execute(sql`
      select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true),
        set_config('statement_timeout', ${String(READ_MS_MAX)}, true)`);
    return tx.execute<Record<string, unknown>>(query);
  });
}

function matches({ keyId, modelId, hosts }: UsageFilter): (SQL | false)[] {
  return [
    keyId !== undefined && sql`key_id = ${keyId}::bigint`,
    modelId !== undefined && sql`model_id = ${modelId}`,
    hosts !== undefined && hosts !== null && sql`host in ${hosts.length > 0 ? [...hosts] : [""]}`,
  ];
}

/** Request ids that the wanted ones lie below. Throws InputError. */
function limitsOf({ end, after }: Pick<UsageQuery, "end" | "after">): string[] {
  return [
    ...(end === undefined ? [] : [requestIdFloor(end, "end")]),
    ...(after === undefined ? [] : [checkRequestId(after)]),
  ];
}

function allOf(conditions: (SQL | false)[]): SQL {
  return sql.join([sql`true`, ...conditions.filter((condition) => condition !== false)], sql` and `);
}

function sizeOf({ limit = PAGE_DEFAULT }: UsageQuery): number {
  return Math.min(Math.max(limit, 1), PAGE_MAX);
}

/** The smallest UUIDv7 of a moment: its first 48 bits are Unix milliseconds. Throws InputError. */
function requestIdFloor(instant: string, param: string): string {
  const ms = Date.parse(instant);
  const day = instant.slice(0, 10);
  // The runtimes take 30 February for 2 March.
  if (!INSTANT.test(instant) || Number.isNaN(ms) || !new Date(`${day}T00:00:00Z`).toISOString().startsWith(day))
    throw new InputError(`The ${param} must be a date, or a time with its zone, in ISO 8601.`, param);
  const hex = Math.min(Math.max(ms, 0), UUID_MS_MAX).toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}

/** Throws InputError. */
function checkRequestId(id: string): string {
  if (!REQUEST_ID.test(id)) throw new InputError("This is not a request id.", "after");
  return id.toLowerCase();
}

function byMeasure(rows: readonly UsageSum[], measure: Measure): UsageSum[] {
  const sums = new Map<string, UsageSum>();
  for (const { modelId, requests, promptTokens, completionTokens, chargedNanoUsd } of rows) {
    const sum = sums.get(modelId);
    sums.set(modelId, {
      modelId,
      requests: requests + (sum?.requests ?? 0),
      promptTokens: promptTokens + (sum?.promptTokens ?? 0),
      completionTokens: completionTokens + (sum?.completionTokens ?? 0),
      chargedNanoUsd: chargedNanoUsd + (sum?.chargedNanoUsd ?? 0n),
    });
  }
  const size = (sum: UsageSum) =>
    measure === "charged"
      ? Number(sum.chargedNanoUsd)
      : measure === "tokens"
        ? sum.promptTokens + sum.completionTokens
        : sum.requests;
  return [...sums.values()].sort((a, b) => size(b) - size(a) || (a.modelId < b.modelId ? -1 : 1));
}

function toSum(row: Record<string, unknown>): UsageSum {
  return {
    modelId: String(row.model_id),
    requests: Number(row.requests),
    promptTokens: Number(row.prompt_tokens),
    completionTokens: Number(row.completion_tokens),
    chargedNanoUsd: BigInt(String(row.charged_nano_usd)),
  };
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
    heldNanoUsd: BigInt(String(row.held_nano_usd)),
    chargedNanoUsd: BigInt(String(row.charged_nano_usd)),
    shortfallNanoUsd: BigInt(String(row.shortfall_nano_usd)),
    estimated: row.estimated === true,
    reason: String(row.reason),
    createdAt: toIso(String(row.created_at)),
    finishedAt: toIso(String(row.finished_at)),
  };
}

function toNotCharged(row: Record<string, unknown>): ReleasedRow | RefusedRow {
  const common = { requestId: String(row.request_id), keyName: nameOf(row), host: String(row.host) };
  if (row.kind === "released") {
    return {
      ...common,
      kind: "released",
      keyId: Number(row.key_id),
      modelId: String(row.model_id),
      mode: modeOf(row),
      heldNanoUsd: BigInt(String(row.held_nano_usd)),
      reason: String(row.why),
      createdAt: toIso(String(row.created_at)),
      finishedAt: toIso(String(row.finished_at)),
    };
  }
  return {
    ...common,
    kind: "refused",
    keyId: Number(row.key_id) || null,
    modelId: String(row.model_id) || null,
    code: String(row.why),
    count: Number(row.count),
    minute: toIso(String(row.created_at)),
  };
}

function nameOf(row: Record<string, unknown>): string | null {
  return typeof row.key_name === "string" ? row.key_name : null;
}

function modeOf(row: Record<string, unknown>): Mode {
  return row.mode === "payg" ? "payg" : "package";
}
