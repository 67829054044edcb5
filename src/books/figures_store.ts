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
  PROVIDER_COST,
  QUARTER,
  SUMMED,
  UNFOLDED_RECORDS,
  UNITS,
  UNITS_COST,
  WORTH,
} from "./usage_rollups_store.ts";

/**
 * Figures of requests between two moments: counts, tokens, charges, what units are worth, and provider cost, of all
 * accounts, of a reseller's customers or of one account. They are read from the rollups, and from receipts that are not
 * folded yet, in one statement. A period begins and ends at a quarter of an hour, so that it needs no folded receipt.
 * Source: MON-24.
 */

/** The longest period, and the one that is read unless another is given. */
const DAYS_MAX = 366;
const DAYS_DEFAULT = 30;
const DAY_MS = 86_400_000;
const QUARTER_MS = 900_000;
/** Lines of a breakdown. */
const LINES_MAX = 100;

/** Whose requests. */
export type FiguresScope = "everyone" | { customersOf: number } | { accountId: number };
export type FiguresBy = "model" | "route";

export type Figures = UsageAmounts & {
  requests: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** What providers charge the operator as far as it is known, and the requests of which it is not. */
  providerCostNanoUsd: bigint;
  costUnknown: number;
};

/** `modelId` or `routeId`, as was asked for. `routeId` is null if it is not known which route answered. */
export type FiguresLine = Figures & { modelId: string | null; routeId: number | null };

export type FiguresPeriod = {
  from: string;
  to: string;
  total: Figures;
  /** Of the period of the same length before it. */
  before: Figures;
  /** By model or route, the most requests first; empty unless asked for. */
  lines: FiguresLine[];
  hasMore: boolean;
};

/** Usage records that began in a period. Throws InputError. */
export async function figuresOf(
  { db }: { db: Db },
  { scope, by, start, end }: { scope: FiguresScope; by?: FiguresBy | undefined; start?: string; end?: string },
): Promise<FiguresPeriod> {
  const { fromMs, toMs } = await periodOf(db, { start, end });
  const edges = [2 * fromMs - toMs, fromMs, toMs];
  const rows = await readAlongIndex(db, figuresBetween({ scope, by, edges }));
  const lines = rows.filter(({ i }) => Number(i) === 2).map((row) => toLine(row, by));
  const name = ({ modelId, routeId }: FiguresLine) => modelId ?? String(routeId ?? 0);
  lines.sort((a, b) => b.requests - a.requests || (name(a) < name(b) ? -1 : 1));
  return {
    from: new Date(fromMs).toISOString(),
    to: new Date(toMs).toISOString(),
    total: sumOf(lines),
    before: sumOf(rows.filter(({ i }) => Number(i) === 1).map((row) => toLine(row, by))),
    lines: by === undefined ? [] : lines.slice(0, LINES_MAX),
    hasMore: by !== undefined && lines.length > LINES_MAX,
  };
}

/** The quarters of an hour that a period touches. Without an end it ends with the quarter that runs now. */
async function periodOf(db: Db, { start, end }: { start: string | undefined; end: string | undefined }) {
  const [clock] = await db.orm.execute<{ now: string }>(sql`select ledger_now()::text as now`);
  const nowMs = Date.parse(toIso(String(clock?.now)));
  const toMs = quarterAfter(end === undefined ? nowMs + 1 : unixMsOf(end, "end"));
  const fromMs = start === undefined ? toMs - DAYS_DEFAULT * DAY_MS : quarterOf(unixMsOf(start, "start"));
  if (fromMs >= toMs) throw new InputError("The period must begin before its end.", "start");
  if (toMs - fromMs > DAYS_MAX * DAY_MS)
    throw new InputError(`The period must have at most ${DAYS_MAX} days.`, "start");
  return { fromMs, toMs };
}

const quarterOf = (ms: number) => Math.floor(ms / QUARTER_MS) * QUARTER_MS;
const quarterAfter = (ms: number) => Math.ceil(ms / QUARTER_MS) * QUARTER_MS;

/**
 * Sums by part and, if asked for, model or route. A part is what began from one edge to before the next: the whole UTC
 * days between the midnights nearest to its edges, plus or minus the quarters between each edge and its midnight. Each
 * read of the rollups is fenced by its sum.
 */
function figuresBetween({
  scope,
  by,
  edges,
}: {
  scope: FiguresScope;
  by: FiguresBy | undefined;
  edges: readonly number[];
}): SQL {
  const moments = sql`${`{${edges.map((ms) => new Date(ms).toISOString()).join(",")}}`}::text::timestamptz[]`;
  const counts = sql.raw(COUNTS);
  const name = by === "model" ? sql`model_id` : by === "route" ? sql`route_id::text` : sql`null::text`;
  const rollups = (span: number) =>
    sql`select kind_id, ${sql.raw(SUMMED)} from usage_sums
      where account_id = ${holderOf(scope)}::bigint and key_id = ${ALL_KEYS} and span = ${span}`;
  const times = (factor: SQL) =>
    sql.join(
      COUNTS.split(", ").map((count) => sql`${factor} * ${sql.raw(count)} as ${sql.raw(count)}`),
      sql`, `,
    );
  return sql`
    with edges as materialized (
      select *, case when at < midnight then 1 else -1 end as times from (
        select i::int, at, span_begins(${DAY}, at + interval '12 hours') as midnight
        from unnest(${moments}) with ordinality as e(at, i)) e
    ), whole as (
      select e.i, 1 as times, u.* from edges e join edges n on n.i = e.i + 1
      cross join lateral (${rollups(DAY)} and begins >= e.midnight and begins < n.midnight group by kind_id) u
    ), off as materialized (
      select e.i, e.times, u.* from edges e
      cross join lateral (${rollups(QUARTER)} and begins >= least(e.at, e.midnight) and begins < greatest(e.at, e.midnight) group by kind_id) u
    ), rolled_up as (
      select i, times, kind_id, ${counts} from whole
      union all select i, times, kind_id, ${counts} from off
      union all select i - 1, -times, kind_id, ${counts} from off
    ), parts as (
      select i, ${name} as name, ${times(sql`times`)} from rolled_up join usage_kinds k on k.id = rolled_up.kind_id
      union all
      select width_bucket(created_at, ${moments}), ${by === "route" ? sql`coalesce(route_id, 0)::text` : name}, 1,
        (charged_nano_usd > 0)::int, prompt_tokens, cached_tokens, completion_tokens, charged_nano_usd, ${sql.raw(EARNED)},
        ${sql.raw(UNITS)}, ${sql.raw(UNITS_COST)}, ${sql.raw(PROVIDER_COST)}, ${sql.raw(COST_UNKNOWN)}
      from ${sql.raw(UNFOLDED_RECORDS)} tail ${sql.raw(WORTH)} where ${isIn(scope)}
    )
    select i, name, ${sql.raw(SUMMED)}
    from parts where i between 1 and ${edges.length - 1}::int group by i, name having sum(requests) <> 0`;
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

function toLine(row: Record<string, unknown>, by: FiguresBy | undefined): FiguresLine {
  return {
    modelId: by === "model" ? String(row.name) : null,
    routeId: by === "route" ? Number(row.name) || null : null,
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
  };
}
