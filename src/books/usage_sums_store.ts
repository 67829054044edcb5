import { sql } from "drizzle-orm";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { readAlongIndex } from "./paged_reads_store.ts";
import { allOf, matches, type UsageFilter, unixMsOf } from "./usage_records_store.ts";
import { ALL_KEYS, CLOCKS_APART, DAY, IS_FOLDED, QUARTER, UNFOLDED_RECORDS } from "./usage_rollups_store.ts";

/**
 * Usage summed by day and model, and by key: from the rollups, and from receipts that are not folded yet. One statement
 * reads both, so that a sum is exact and of one moment.
 */

const DAYS_MAX = 92;
/** Sums of rollup rows. */
const SUMS = sql.raw(`sum(requests) as requests, sum(prompt_tokens) as prompt_tokens,
  sum(completion_tokens) as completion_tokens, sum(charged_nano_usd) as charged_nano_usd`);

export type Measure = "requests" | "tokens" | "charged";
export type UsageSum = {
  modelId: string;
  requests: number;
  promptTokens: number;
  completionTokens: number;
  chargedNanoUsd: bigint;
};
export type UsageByDay = {
  /** The time zone of the account's package, or the given one if it has none. */
  timeZone: string;
  /** Every day of the chart, as 2030-01-31, oldest first. */
  days: string[];
  /** Usage by day and model. A day without usage has no row. */
  rows: (UsageSum & { day: string })[];
  /** Usage over all days by model, the largest `measure` first. */
  models: UsageSum[];
};

/**
 * Usage records of the last `days` days by the database's clock, summed by model and the day they began. Throws
 * InputError.
 */
export async function usageByDay(
  { db }: { db: Db },
  {
    days,
    measure,
    timeZone,
    ...filter
  }: UsageFilter & { accountId: number; days: number; measure: Measure; timeZone: string },
): Promise<UsageByDay> {
  const { accountId, start, end } = filter;
  const count = Math.min(Math.max(days, 1), DAYS_MAX);
  const calendar = await calendarOf(db, { accountId, days: count, timeZone });
  const [first = 0, last = 0] = [calendar.edges[0], calendar.edges.at(-1)];
  const since = start === undefined ? first : Math.min(unixMsOf(start, "start"), last);
  const upto = end === undefined ? last : Math.min(unixMsOf(end, "end"), last);
  // The part of each day between start and end; days without one are left out.
  const parts = calendar.days
    .map((day, i) => ({
      day,
      from: Math.max(calendar.edges[i] ?? last, since),
      to: Math.min(calendar.edges[i + 1] ?? last, upto),
    }))
    .filter(({ from, to }) => from < to);
  const edges = [...parts.map(({ from }) => from), ...parts.slice(-1).map(({ to }) => to)];
  const found = parts.length === 0 ? [] : await usageBetween(db, { filter, edges, byKey: false });
  const rows = found.map((row) => ({ day: parts[Number(row.i) - 1]?.day ?? "", ...toSum(row) }));
  rows.sort((a, b) => (a.day === b.day ? (a.modelId < b.modelId ? -1 : 1) : a.day < b.day ? -1 : 1));
  return { timeZone: calendar.timeZone, days: calendar.days, rows, models: byMeasure(rows, measure) };
}

/** When the first of the days of `usageByDay` begins, in ISO 8601. */
export async function firstDayBegins(
  { db }: { db: Db },
  { days, ...calendar }: { accountId: number; days: number; timeZone: string },
): Promise<string> {
  const { edges } = await calendarOf(db, { ...calendar, days: Math.min(Math.max(days, 1), DAYS_MAX) });
  return new Date(edges[0] ?? 0).toISOString();
}

/** Usage records of an account in the last 24 hours, counted by key. */
export async function requestsByKey({ db }: { db: Db }, accountId: number): Promise<Map<number, number>> {
  const [clock] = await db.orm.execute<{ since: string; upto: string }>(
    sql`select ledger_now() - interval '24 hours' as since, ledger_now() + interval '1 day' as upto`,
  );
  const edges = [String(clock?.since), String(clock?.upto)].map((at) => Date.parse(toIso(at)));
  const requests = new Map<number, number>();
  for (const row of await usageBetween(db, { filter: { accountId }, edges, byKey: true })) {
    const keyId = Number(row.key_id);
    requests.set(keyId, (requests.get(keyId) ?? 0) + Number(row.requests));
  }
  return requests;
}

type Between = {
  filter: UsageFilter & { accountId: number };
  /**
   * Unix milliseconds, ascending. Usage that began from one edge to before the next is a part, named by the number of
   * its first edge.
   */
  edges: readonly number[];
  byKey: boolean;
};

/**
 * Sums by part, model and, if asked for, key. A part is the whole days between the UTC midnights nearest to its edges,
 * plus or minus what lies between each edge and its midnight: quarters of an hour from the rollups, and receipts for
 * the rest of a quarter. Each of these reads is fenced, by its sum or by `offset 0`: otherwise the planner reads all
 * quarters of an account and filters them afterwards.
 */
function usageBetween(db: Db, { filter, edges, byKey }: Between): Promise<Record<string, unknown>[]> {
  const { accountId, keyId } = filter;
  const keys =
    keyId !== undefined
      ? sql`select ${keyId}::bigint as key_id`
      : byKey
        ? sql`select id as key_id from keys where account_id = ${accountId}::bigint`
        : sql`select ${ALL_KEYS}::bigint as key_id`;
  const key = byKey || keyId !== undefined ? sql`key_id` : sql`${ALL_KEYS}::bigint`;
  const moments = sql`${`{${edges.map((ms) => new Date(ms).toISOString()).join(",")}}`}::text::timestamptz[]`;
  const begun = sql.raw(`request_id_floor(e.quarter - interval '${CLOCKS_APART}')`);
  const over = sql.raw(`request_id_floor(e.at + interval '${CLOCKS_APART}')`);
  const isAsked = allOf([sql`account_id = ${accountId}::bigint`, ...matches(filter)]);
  return readAlongIndex(
    db,
    sql`
    with edges as materialized (
      select *, case when quarter < midnight then 1 else -1 end as times from (
        select *, span_begins(${DAY}, quarter + interval '12 hours') as midnight from (
          select i::int, at, span_begins(${QUARTER}, at) as quarter from unnest(${moments}) with ordinality as e(at, i)) e) e
    ), keys_asked as materialized (${keys}),
    whole as (
      select e.i, k.key_id, u.* from edges e join edges n on n.i = e.i + 1 cross join keys_asked k
      cross join lateral (
        select kind_id, ${SUMS} from usage_sums where account_id = ${accountId}::bigint and key_id = k.key_id and span = ${DAY}
          and begins >= e.midnight and begins < n.midnight group by kind_id) u
    ), off as materialized (
      select e.i, e.times, k.key_id, u.* from edges e cross join keys_asked k
      cross join lateral (
        select kind_id, ${SUMS} from usage_sums where account_id = ${accountId}::bigint and key_id = k.key_id and span = ${QUARTER}
          and begins >= least(e.quarter, e.midnight) and begins < greatest(e.quarter, e.midnight) group by kind_id) u
    ), rolled_up as (
      select i, 1 as times, key_id, kind_id, requests, prompt_tokens, completion_tokens, charged_nano_usd from whole
      union all select i, times, key_id, kind_id, requests, prompt_tokens, completion_tokens, charged_nano_usd from off
      union all select i - 1, -times, key_id, kind_id, requests, prompt_tokens, completion_tokens, charged_nano_usd from off
    ), pieces as materialized (
      select e.i, ${key} as key_id, r.model_id, -1 as times, r.prompt_tokens, r.completion_tokens, r.charged_nano_usd
      from edges e cross join lateral (
        select * from receipts
        where outcome = 'settled' and ${isAsked} and e.quarter < e.at and created_at >= e.quarter and created_at < e.at
          and request_id >= ${begun} and request_id < ${over}
          and (account_id, request_id) >= (${accountId}::bigint, ${begun}) and (account_id, request_id) < (${accountId}::bigint, ${over})
          and ${sql.raw(IS_FOLDED)} offset 0) r
    ), records as (
      select * from pieces
      union all select i - 1, key_id, model_id, 1, prompt_tokens, completion_tokens, charged_nano_usd from pieces
      union all
      select width_bucket(created_at, ${moments}), ${key}, model_id, 1, prompt_tokens, completion_tokens, charged_nano_usd
      from ${sql.raw(UNFOLDED_RECORDS)} tail where ${isAsked}
    ), parts as (
      select i, key_id, k.model_id, times * requests as requests, times * prompt_tokens as prompt_tokens,
        times * completion_tokens as completion_tokens, times * charged_nano_usd as charged_nano_usd
      from rolled_up join usage_kinds k on k.id = rolled_up.kind_id where ${allOf(matches({ ...filter, keyId: undefined }))}
      union all
      select i, key_id, model_id, times, times * prompt_tokens, times * completion_tokens, times * charged_nano_usd from records
    )
    select i, key_id::text, model_id, sum(requests)::text as requests, sum(prompt_tokens)::text as prompt_tokens,
      sum(completion_tokens)::text as completion_tokens, sum(charged_nano_usd)::text as charged_nano_usd
    from parts where i between 1 and ${edges.length - 1}::int
    group by i, key_id, model_id having sum(requests) <> 0`,
  );
}

/**
 * The last `days` days including today, in the time zone of the account's package or else in `timeZone`: their names,
 * when each begins, and when the last one ends.
 */
async function calendarOf(
  { orm }: Db,
  { accountId, days, timeZone }: { accountId: number; days: number; timeZone: string },
): Promise<{ timeZone: string; edges: number[]; days: string[] }> {
  const rows = await orm.execute<{ zone: string; day: string; begins: string }>(sql`
    with clock as materialized (select ledger_now() as now), zone as materialized (
      select now, coalesce((
        select time_zone from packages where account_id = ${accountId}::bigint and starts_at <= now and ends_at > now
        order by starts_at desc limit 1), ${timeZone}) as name
      from clock), calendar as (
      select name, (now at time zone name)::date - ago as day from zone, generate_series(-1, ${days - 1}::int) as ago)
    select name as zone, day::text, day_begins(day, name) as begins from calendar order by day`);
  const [first] = rows;
  if (!first) throw new Error("the calendar has no day");
  const edges = rows.map(({ begins }) => Date.parse(toIso(begins)));
  return { timeZone: first.zone, edges, days: rows.slice(0, -1).map(({ day }) => day) };
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
