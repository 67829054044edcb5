import { type SQL, sql } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { errorsBetween, lineErrorsBetween, marksBetween } from "./figure_lines_store.ts";
import { readAlongIndex } from "./paged_reads_store.ts";
import { momentsOf, spanned, timesEach } from "./spans_store.ts";
import type { UsageAmounts } from "./usage_money.ts";
import { unixMsOf } from "./usage_records_store.ts";
import {
  ALL_KEYS,
  COST_UNKNOWN,
  COUNTS,
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
/** `account` and `reseller`: of many accounts. `key`: of one account. `hour`: of at most two days. Days and months are those of UTC. */
export type FiguresBy = "model" | "route" | "host" | TimeBy | "key" | "account" | "reseller";
type TimeBy = "hour" | "day" | "month";

export type Figures = UsageAmounts & {
  requests: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** What providers charge the operator as far as it is known, and the requests of which it is not. */
  providerCostNanoUsd: bigint;
  costUnknown: number;
  /** Histograms (`latency_marks.ts`) of the time to the first event, and of the whole request. */
  firstMarks: bigint;
  wholeMarks: bigint;
};

/**
 * `of`: what it is the line of; null: it is not known which route answered. `errors`: requests that ended with an error;
 * null: they are not counted by route, host or key.
 */
export type FiguresLine = Figures & { of: string | null; errors: number | null };

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
  /** The most requests first, times in their order; empty unless asked for. */
  lines: FiguresLine[];
  hasMore: boolean;
};

/** Usage records that began in a period. Throws InputError. */
export async function figuresOf(
  { db }: { db: Db },
  { scope, by, start, end }: { scope: FiguresScope; by?: FiguresBy | undefined; start?: string; end?: string },
): Promise<FiguresPeriod> {
  requireLines(scope, by);
  const isByHour = by === "account" || by === "reseller" || by === "hour";
  const { fromMs, toMs } = await periodOf(db, { start, end, step: isByHour ? HOUR : QUARTER });
  if (by === "hour" && toMs - fromMs > HOURLY_DAYS_MAX * DAY_MS)
    throw new InputError(
      sentence("Hours are shown of at most {hourlyDaysMax} days.", { hourlyDaysMax: HOURLY_DAYS_MAX }),
      "start",
    );
  const lineEdges = edgesOf(by, fromMs, toMs);
  const edges = [2 * fromMs - toMs, ...(by === "day" || by === "month" ? lineEdges : [fromMs, toMs])];
  const rows = await readAlongIndex(db, figuresBetween({ scope, by: by === undefined ? "none" : KINDS_OF[by], edges }));
  const now = rows.filter(({ i }) => Number(i) > 1);
  const told = await readAlongIndex(
    db,
    errorsBetween({ holder: holderOf(scope), isByModel: by === "model", edges: [2 * fromMs - toMs, ...lineEdges] }),
  );
  const errors = told.filter(({ i }) => Number(i) > 1);
  const lines = await linesOf(db, { scope, by, edges: [fromMs, toMs], lineEdges, rows: now, errors });
  return {
    from: new Date(fromMs).toISOString(),
    to: new Date(toMs).toISOString(),
    total: sumOf(now.map(toLine)),
    before: sumOf(rows.filter(({ i }) => Number(i) === 1).map(toLine)),
    errors: toErrors(errors),
    errorsBefore: toErrors(told.filter(({ i }) => Number(i) === 1)),
    lines: isTime(by) ? lines : lines.slice(0, LINES_MAX),
    hasMore: !isTime(by) && lines.length > LINES_MAX,
  };
}

type LinesQuery = {
  scope: FiguresScope;
  by: FiguresBy | undefined;
  /** The period. */
  edges: readonly [number, number];
  /** Where lines of time begin, and the end of the last one. */
  lineEdges: readonly number[];
  /** Of the period, by part and name. */
  rows: Record<string, unknown>[];
  /** Of the period, by part and code, and by model if the lines are. */
  errors: Record<string, unknown>[];
};

async function linesOf(db: Db, { scope, by, edges, lineEdges, rows, errors }: LinesQuery): Promise<FiguresLine[]> {
  if (by === undefined) return [];
  if (by === "account" || by === "reseller") {
    const holders = await readAlongIndex(db, holdersBetween({ scope, by, edges }));
    return await withDetails(db, { by, edges, lines: holders.map(toLine) });
  }
  if (!isTime(by)) {
    const lines = rows.map(toLine);
    return (by === "model" ? withErrors(lines, errors) : lines).sort((a, b) => b.requests - a.requests || byName(a, b));
  }
  // A line for each time, also without requests: a chart has no gaps.
  return lineEdges.slice(0, -1).map((beginsMs, index) => {
    const part = index + 2;
    const own = rows.filter(({ i, name }) =>
      by === "hour" ? Date.parse(toIso(String(name))) === beginsMs : Number(i) === part,
    );
    const failed = countOf(errors, ({ i }) => Number(i) === part);
    return { ...sumOf(own.map(toLine)), of: new Date(beginsMs).toISOString(), errors: failed };
  });
}

/** Lines of models with their errors. A model whose requests all failed has a line too; "" is no model of the catalog. */
function withErrors(lines: readonly FiguresLine[], errors: readonly Record<string, unknown>[]): FiguresLine[] {
  const used = new Set(lines.map(({ of }) => of));
  const failed = new Set(errors.map(({ model_id }) => String(model_id)));
  const others = [...failed].filter((of) => of !== "" && !used.has(of)).map((of) => ({ ...sumOf([]), of }));
  return [...lines, ...others].map((line) => ({
    ...line,
    errors: countOf(errors, ({ model_id }) => model_id === line.of),
  }));
}

type DetailsQuery = { by: "account" | "reseller"; edges: readonly [number, number]; lines: FiguresLine[] };

/** Adds latency and errors of accounts or resellers: their rollup has neither, so they are read for those that are shown. */
async function withDetails(db: Db, { by, edges, lines }: DetailsQuery): Promise<FiguresLine[]> {
  const ids = lines.map(({ of }) => (by === "reseller" ? -Number(of) : Number(of)));
  if (ids.length === 0) return lines;
  const marks = new Map((await readAlongIndex(db, marksBetween({ ids, edges }))).map((row) => [Number(row.id), row]));
  const errors = await readAlongIndex(db, lineErrorsBetween({ ids, edges }));
  return lines.map((line, at) => {
    const found = marks.get(ids[at] ?? 0);
    const firstMarks = BigInt(String(found?.first_marks ?? 0));
    const wholeMarks = BigInt(String(found?.whole_marks ?? 0));
    return { ...line, firstMarks, wholeMarks, errors: countOf(errors, ({ id }) => Number(id) === ids[at]) };
  });
}

function isTime(by: FiguresBy | undefined): by is TimeBy {
  return by === "hour" || by === "day" || by === "month";
}

/** Where lines begin, and the end: with lines of time each hour, day or month of UTC within the period. */
function edgesOf(by: FiguresBy | undefined, fromMs: number, toMs: number): number[] {
  const edges = [fromMs];
  const from = new Date(fromMs);
  for (let next = 1; isTime(by); next++) {
    const ms =
      by === "month"
        ? Date.UTC(from.getUTCFullYear(), from.getUTCMonth() + next)
        : by === "day"
          ? Date.UTC(from.getUTCFullYear(), from.getUTCMonth(), from.getUTCDate() + next)
          : fromMs + next * HOUR * MINUTE_MS;
    if (ms >= toMs) break;
    edges.push(ms);
  }
  return [...edges, toMs];
}

const countOf = (rows: readonly Record<string, unknown>[], passes: (row: Record<string, unknown>) => boolean) =>
  rows.filter(passes).reduce((sum, { requests }) => sum + Number(requests), 0);

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
    throw new InputError(sentence("The period must have at most {daysMax} days.", { daysMax: DAYS_MAX }), "start");
  return { fromMs, toMs };
}

const NAMES = {
  model: { kind: "model_id", record: "model_id" },
  route: { kind: "route_id::text", record: "coalesce(route_id, 0)::text" },
  host: { kind: "host", record: "host" },
  key: { kind: "key_id::text", record: "key_id::text" },
  hour: { kind: "hour::text", record: `span_begins(${HOUR}, created_at)::text` },
  none: { kind: "null::text", record: "null::text" },
} as const;
/** How the sums of kinds are grouped. Days and months are parts of their own; accounts and resellers have a rollup of their own. */
const KINDS_OF = {
  model: "model",
  route: "route",
  host: "host",
  key: "key",
  hour: "hour",
  day: "none",
  month: "none",
  account: "none",
  reseller: "none",
} as const satisfies Record<FiguresBy, keyof typeof NAMES>;

/** Sums by part and, if asked for, model, route, host, key or hour. */
function figuresBetween({
  scope,
  by,
  edges,
}: {
  scope: FiguresScope;
  by: keyof typeof NAMES;
  edges: readonly number[];
}): SQL {
  const moments = momentsOf(edges);
  const name = NAMES[by];
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

function toErrors(rows: Record<string, unknown>[]): ErrorCounts {
  const sums = new Map<string, number>();
  for (const { code, requests } of rows) sums.set(String(code), (sums.get(String(code)) ?? 0) + Number(requests));
  return [...sums]
    .map(([code, requests]) => ({ code, requests }))
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
    errors: null,
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
