import { type SQL, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { readAlongIndex } from "./paged_reads_store.ts";
import type { UsageAmounts } from "./usage_money.ts";
import { unixMsOf } from "./usage_records_store.ts";
import {
  ALL_KEYS,
  COST_UNKNOWN,
  COUNTS,
  DAY,
  EARNED,
  EVERYONE,
  FIRST_MARK,
  HELD,
  HOLDER_COUNTS,
  HOLDERS_SUMMED,
  HOUR,
  PROVIDER_COST,
  QUARTER,
  RESELLERS,
  SUMMED,
  UNFOLDED_RECORDS,
  UNITS,
  UNITS_COST,
  WHOLE_MARK,
  WORTH,
} from "./usage_rollups_store.ts";

/**
 * Figures of requests between two moments: counts, tokens, charges, what units are worth, and provider cost, of all
 * accounts, of a reseller's customers or of one account. They are read from the rollups, and from receipts that are not
 * folded yet, in one statement. A period begins and ends at a quarter of an hour (with lines by account, at an hour), so
 * that it needs no folded receipt. Source: MON-24, MON-25, MON-26.
 */

/** The longest period, and the one that is read unless another is given. */
const DAYS_MAX = 366;
const DAYS_DEFAULT = 30;
const DAY_MS = 86_400_000;
const MINUTE_MS = 60_000;
/** The longest period with a line for each hour. */
const HOURLY_DAYS_MAX = 2;
/** Lines of a breakdown. */
const LINES_MAX = 100;

/** Whose requests. */
export type FiguresScope = "everyone" | { customersOf: number } | { accountId: number };
/** `account` and `reseller`: of many accounts. `key`: of one account. `hour`: of at most two days. */
export type FiguresBy = "model" | "route" | "host" | "hour" | "key" | "account" | "reseller";

export type Figures = UsageAmounts & {
  requests: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** What providers charge the operator as far as it is known, and the requests of which it is not. */
  providerCostNanoUsd: bigint;
  costUnknown: number;
  /** Histograms (`latency_marks.ts`) of the time to the first event, and of the whole request. 0 in lines by account or reseller. */
  firstMarks: bigint;
  wholeMarks: bigint;
};

/** `of`: what it is the line of. null: it is not known which route answered. */
export type FiguresLine = Figures & { of: string | null };

/** Requests that ended with an error, by its code, the most frequent first. */
export type ErrorCounts = { code: string; requests: number }[];

export type FiguresPeriod = {
  from: string;
  to: string;
  total: Figures;
  /** Of the period of the same length before it. */
  before: Figures;
  errors: ErrorCounts;
  errorsBefore: ErrorCounts;
  /** The most requests first, hours in their order; empty unless asked for. */
  lines: FiguresLine[];
  hasMore: boolean;
};

/** Usage records that began in a period. Throws InputError. */
export async function figuresOf(
  { db }: { db: Db },
  { scope, by, start, end }: { scope: FiguresScope; by?: FiguresBy | undefined; start?: string; end?: string },
): Promise<FiguresPeriod> {
  requireLines(scope, by);
  const isByHolder = by === "account" || by === "reseller";
  const { fromMs, toMs } = await periodOf(db, { start, end, step: isByHolder || by === "hour" ? HOUR : QUARTER });
  if (by === "hour" && toMs - fromMs > HOURLY_DAYS_MAX * DAY_MS)
    throw new InputError(`Hours are shown of at most ${HOURLY_DAYS_MAX} days.`, "start");
  const edges = [2 * fromMs - toMs, fromMs, toMs];
  const rows = await readAlongIndex(db, figuresBetween({ scope, by: isByHolder ? undefined : by, edges }));
  const sums = (part: number) => rows.filter(({ i }) => Number(i) === part).map(toLine);
  const holders = isByHolder ? await readAlongIndex(db, holdersBetween({ scope, by, edges: [fromMs, toMs] })) : [];
  const lines = isByHolder ? holders.map(toLine) : by === undefined ? [] : sums(2);
  lines.sort(by === "hour" ? byName : (a, b) => b.requests - a.requests || byName(a, b));
  const errors = await readAlongIndex(db, errorsBetween({ scope, edges }));
  return {
    from: new Date(fromMs).toISOString(),
    to: new Date(toMs).toISOString(),
    total: sumOf(sums(2)),
    before: sumOf(sums(1)),
    errors: toErrors(errors, 2),
    errorsBefore: toErrors(errors, 1),
    lines: lines.slice(0, LINES_MAX),
    hasMore: lines.length > LINES_MAX,
  };
}

/** Throws InputError. */
function requireLines(scope: FiguresScope, by: FiguresBy | undefined): void {
  const isOne = typeof scope === "object" && "accountId" in scope;
  if (by === "key" && !isOne) throw new InputError("Keys are shown of one account: name it.", "by");
  if (by === "account" && isOne) throw new InputError("This is one account.", "by");
  if (by === "reseller" && scope !== "everyone") throw new InputError("Resellers are shown of all accounts.", "by");
}

const byName = (a: FiguresLine, b: FiguresLine) => ((a.of ?? "") < (b.of ?? "") ? -1 : 1);

/** The steps (minutes) that a period touches. Without an end it ends with the step that runs now. */
async function periodOf(
  db: Db,
  { start, end, step }: { start: string | undefined; end: string | undefined; step: number },
) {
  const stepMs = step * MINUTE_MS;
  const stepOf = (ms: number) => Math.floor(ms / stepMs) * stepMs;
  const stepAfter = (ms: number) => Math.ceil(ms / stepMs) * stepMs;
  const [clock] = await db.orm.execute<{ now: string }>(sql`select ledger_now()::text as now`);
  const nowMs = Date.parse(toIso(String(clock?.now)));
  const toMs = stepAfter(end === undefined ? nowMs + 1 : unixMsOf(end, "end"));
  const fromMs = start === undefined ? toMs - DAYS_DEFAULT * DAY_MS : stepOf(unixMsOf(start, "start"));
  if (fromMs >= toMs) throw new InputError("The period must begin before its end.", "start");
  if (toMs - fromMs > DAYS_MAX * DAY_MS)
    throw new InputError(`The period must have at most ${DAYS_MAX} days.`, "start");
  return { fromMs, toMs };
}

/** Columns of a rollup, a part of it, and how many times it counts. */
type Spanned = { table: string; condition: SQL; step: number; groups: readonly string[]; sums: string; counts: string };

/**
 * CTEs up to `rolled_up`: sums of a rollup by part (`i`) and group. A part is what began from one edge to before the next: the
 * whole UTC days between the midnights nearest to its edges, plus or minus the steps between each edge and its midnight. Each
 * read is fenced by its sum.
 */
function spanned(moments: SQL, { table, condition, step, groups, sums, counts }: Spanned): SQL {
  const columns = sql.raw([...groups, counts].join(", "));
  const read = (span: number) =>
    sql`select ${sql.raw([...groups, sums].join(", "))} from ${sql.raw(table)} where ${condition} and span = ${span}`;
  const group = groups.length === 0 ? sql`` : sql`group by ${sql.raw(groups.join(", "))}`;
  // Of no rows there is a sum without a group, which is null.
  const some = groups.length === 0 ? sql`having count(*) > 0` : sql``;
  return sql`
    edges as materialized (
      select *, case when at < midnight then 1 else -1 end as times from (
        select i::int, at, span_begins(${DAY}, at + interval '12 hours') as midnight
        from unnest(${moments}) with ordinality as e(at, i)) e
    ), whole as (
      select e.i, u.* from edges e join edges n on n.i = e.i + 1
      cross join lateral (${read(DAY)} and begins >= e.midnight and begins < n.midnight ${group} ${some}) u
    ), off as materialized (
      select e.i, e.times, u.* from edges e
      cross join lateral (${read(step)} and begins >= least(e.at, e.midnight) and begins < greatest(e.at, e.midnight) ${group} ${some}) u
    ), rolled_up as (
      select i, 1 as times, ${columns} from whole
      union all select i, times, ${columns} from off
      union all select i - 1, -times, ${columns} from off
    )`;
}

const momentsOf = (edges: readonly number[]): SQL =>
  sql`${`{${edges.map((ms) => new Date(ms).toISOString()).join(",")}}`}::text::timestamptz[]`;

/** Each count as often as its part says. */
const timesEach = (counts: string): SQL =>
  sql.join(
    counts.split(", ").map((count) => sql.raw(`times * ${count} as ${count}`)),
    sql`, `,
  );

const NAMES = {
  model: { kind: "model_id", record: "model_id" },
  route: { kind: "route_id::text", record: "coalesce(route_id, 0)::text" },
  host: { kind: "host", record: "host" },
  key: { kind: "key_id::text", record: "key_id::text" },
  hour: { kind: "hour::text", record: `span_begins(${HOUR}, created_at)::text` },
  none: { kind: "null::text", record: "null::text" },
} as const;

/** Sums by part and, if asked for, model, route, host, key or hour. */
function figuresBetween({
  scope,
  by,
  edges,
}: {
  scope: FiguresScope;
  by: keyof typeof NAMES | undefined;
  edges: readonly number[];
}): SQL {
  const moments = momentsOf(edges);
  const name = NAMES[by ?? "none"];
  const holder = sql`account_id = ${holderOf(scope)}::bigint`;
  const kinds = { table: "usage_sums", step: QUARTER, sums: SUMMED, counts: COUNTS };
  const rolledUp =
    by === "hour"
      ? sql`rolled_up as (
          select width_bucket(begins, ${moments}) as i, 1 as times, kind_id, span_begins(${HOUR}, begins) as hour, ${sql.raw(SUMMED)}
          from usage_sums where ${holder} and key_id = ${ALL_KEYS} and span = ${QUARTER}
            and begins >= (${moments})[1] and begins < (${moments})[${edges.length}::int] group by 1, 3, 4)`
      : by === "key"
        ? spanned(moments, {
            ...kinds,
            condition: sql`${holder} and key_id in (${keysUsed(holder)})`,
            groups: ["kind_id", "key_id"],
          })
        : spanned(moments, { ...kinds, condition: sql`${holder} and key_id = ${ALL_KEYS}`, groups: ["kind_id"] });
  return sql`
    with ${rolledUp}, parts as (
      select i, ${sql.raw(name.kind)} as name, ${timesEach(COUNTS)} from rolled_up join usage_kinds k on k.id = rolled_up.kind_id
      union all
      select width_bucket(created_at, ${moments}), ${sql.raw(name.record)}, 1,
        (charged_nano_usd > 0)::int, prompt_tokens, cached_tokens, completion_tokens, charged_nano_usd, ${sql.raw(EARNED)},
        ${sql.raw(UNITS)}, ${sql.raw(UNITS_COST)}, ${sql.raw(PROVIDER_COST)}, ${sql.raw(COST_UNKNOWN)},
        ${sql.raw(FIRST_MARK)}, ${sql.raw(WHOLE_MARK)}
      from ${sql.raw(UNFOLDED_RECORDS)} tail ${sql.raw(WORTH)} where ${isIn(scope)}
    )
    select i, name, ${sql.raw(SUMMED)}
    from parts where i between 1 and ${edges.length - 1}::int group by i, name having sum(requests) <> 0`;
}

/** Every key of an account that has rows, one after another along the index: a deleted key has its usage too. */
function keysUsed(holder: SQL): SQL {
  const next = (after: SQL) =>
    sql`select key_id from usage_sums where ${holder} and key_id > ${after} order by account_id, key_id limit 1`;
  return sql`
    with recursive used (id) as ((${next(sql`${ALL_KEYS}`)}) union all select (${next(sql`used.id`)}) from used where used.id is not null)
    select id from used where id is not null`;
}

/** The accounts, or resellers, with the most requests between two edges, at full hours. */
function holdersBetween({
  scope,
  by,
  edges,
}: {
  scope: FiguresScope;
  by: "account" | "reseller";
  edges: readonly number[];
}): SQL {
  const moments = momentsOf(edges);
  const isAsked = sql`scope = ${by === "reseller" ? RESELLERS : String(holderOf(scope))}::text::bigint`;
  const within = spanned(moments, {
    table: "usage_holders",
    condition: isAsked,
    step: HOUR,
    groups: ["holder_id"],
    sums: HOLDERS_SUMMED,
    counts: HOLDER_COUNTS,
  });
  return sql`
    with ${within}, parts as (
      select i, holder_id, ${timesEach(HOLDER_COUNTS)} from rolled_up
      union all
      select width_bucket(tail.created_at, ${moments}), holder_id, 1, prompt_tokens, cached_tokens, completion_tokens, charged_nano_usd,
        ${sql.raw(EARNED)}, ${sql.raw(UNITS)}, ${sql.raw(UNITS_COST)}, ${sql.raw(PROVIDER_COST)}, ${sql.raw(COST_UNKNOWN)}
      from ${sql.raw(UNFOLDED_RECORDS)} tail ${sql.raw(WORTH)} join accounts a on a.id = account_id cross join lateral ${sql.raw(HELD)} held
      where ${isAsked}
    )
    select abs(holder_id)::text as name, ${sql.raw(HOLDERS_SUMMED)}
    from parts where i = 1 group by holder_id having sum(requests) <> 0
    order by sum(requests) desc, holder_id limit ${LINES_MAX + 1}`;
}

/** Errors by part and code. */
function errorsBetween({ scope, edges }: { scope: FiguresScope; edges: readonly number[] }): SQL {
  const within = spanned(momentsOf(edges), {
    table: "error_sums",
    condition: sql`account_id = ${holderOf(scope)}::bigint`,
    step: QUARTER,
    groups: ["code"],
    sums: "sum(requests) as requests",
    counts: "requests",
  });
  return sql`
    with ${within}
    select i, code, sum(times * requests)::bigint as requests from rolled_up
    where i between 1 and ${edges.length - 1}::int group by i, code having sum(times * requests) > 0`;
}

function toErrors(rows: Record<string, unknown>[], part: number): ErrorCounts {
  return rows
    .filter(({ i }) => Number(i) === part)
    .map(({ code, requests }) => ({ code: String(code), requests: Number(requests) }))
    .sort((a, b) => b.requests - a.requests || (a.code < b.code ? -1 : 1));
}

/** The account id of the rollups' rows. */
function holderOf(scope: FiguresScope): number {
  if (scope === "everyone") return EVERYONE;
  return "customersOf" in scope ? -scope.customersOf : scope.accountId;
}

/** Condition: a receipt belongs to the scope. */
function isIn(scope: FiguresScope): SQL {
  if (scope === "everyone") return sql`true`;
  return "customersOf" in scope
    ? sql`account_id in (select id from accounts where reseller_id = ${scope.customersOf}::bigint)`
    : sql`account_id = ${scope.accountId}::bigint`;
}

function toLine(row: Record<string, unknown>): FiguresLine {
  const name = row.name ?? null;
  return {
    of: name === null || name === "0" ? null : String(name),
    requests: Number(row.requests),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    chargedNanoUsd: BigInt(String(row.charged_nano_usd)),
    earnedNanoUsd: BigInt(String(row.earned_nano_usd)),
    unitsNanoUsd: BigInt(String(row.units_nano_usd)),
    unitsCostNanoUsd: BigInt(String(row.units_cost_nano_usd)),
    providerCostNanoUsd: BigInt(String(row.provider_cost_nano_usd)),
    costUnknown: Number(row.cost_unknown),
    firstMarks: BigInt(String(row.first_marks ?? 0)),
    wholeMarks: BigInt(String(row.whole_marks ?? 0)),
  };
}

function sumOf(lines: readonly Figures[]): Figures {
  const count = (pick: (line: Figures) => number) => lines.reduce((sum, line) => sum + pick(line), 0);
  const amount = (pick: (line: Figures) => bigint) => lines.reduce((sum, line) => sum + pick(line), 0n);
  return {
    requests: count((line) => line.requests),
    promptTokens: count((line) => line.promptTokens),
    cachedTokens: count((line) => line.cachedTokens),
    completionTokens: count((line) => line.completionTokens),
    chargedNanoUsd: amount((line) => line.chargedNanoUsd),
    earnedNanoUsd: amount((line) => line.earnedNanoUsd),
    unitsNanoUsd: amount((line) => line.unitsNanoUsd),
    unitsCostNanoUsd: amount((line) => line.unitsCostNanoUsd),
    providerCostNanoUsd: amount((line) => line.providerCostNanoUsd),
    costUnknown: count((line) => line.costUnknown),
    firstMarks: amount((line) => line.firstMarks),
    wholeMarks: amount((line) => line.wholeMarks),
  };
}
