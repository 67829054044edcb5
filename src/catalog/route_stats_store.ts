import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import type { Db } from "../platform/db.ts";
import { BUCKETS } from "../platform/durations.ts";
import { inSlices } from "../platform/prune.ts";
import { type AnswerKind, noSums, type RouteSums } from "./route_sums.ts";

/** The sums of routes that all replicas share, in rows of 5 minutes, of an hour and of a UTC day. Source: PRV-22, RTL-10. */

/** Minutes of a row. The database's clock says which row a write belongs to. */
const SPAN_SHORT = 5;
const SPAN_LONG = 60;
const SPAN_DAY = 24 * 60;
/** Rows are kept for longer than they are read. */
const SHORT_KEPT_MINUTES = 60;
const LONG_KEPT_MINUTES = 25 * 60;
const DAYS_KEPT_MINUTES = 31 * SPAN_DAY;
/** Rows deleted in one statement. */
const PRUNE_MAX = 20_000;

/**
 * The time that sums are read for. `recent`: these 5 minutes and the 10 before them. `day`: this hour and the 23 before it. `month`: today
 * and the 29 days before it.
 */
export type StatsWindow = "recent" | "day" | "month";
const WINDOWS = {
  recent: { span: SPAN_SHORT, minutes: 15 },
  day: { span: SPAN_LONG, minutes: 24 * 60 },
  month: { span: SPAN_DAY, minutes: 30 * SPAN_DAY },
} as const;

/** Adds a replica's sums to the shared ones, in one statement. */
export async function addRouteStats({ db }: { db: Db }, sums: readonly RouteSums[]): Promise<void> {
  const column = <T>(pick: (sum: RouteSums) => T) => sums.map(pick);
  // Sorted, so that two replicas do not deadlock.
  await db.sql`
    with clock as materialized (select ledger_now() as now)
    insert into route_stats as s
      (route_id, kind, span, begins, requests, errors, input_tokens, cached_tokens, cost_nano_usd, priced_nano_usd, durations)
    select a.route_id, a.kind, w.span, date_bin(make_interval(mins => w.span), clock.now, timestamptz 'epoch'), a.requests, a.errors,
      a.input_tokens, a.cached_tokens, a.cost_nano_usd, a.priced_nano_usd, a.durations::int[]
    from unnest(${column((s) => s.routeId)}::bigint[], ${column((s) => s.kind)}::text[], ${column((s) => s.requests)}::bigint[],
        ${column((s) => s.errors)}::bigint[], ${column((s) => s.inputTokens)}::bigint[], ${column((s) => s.cachedTokens)}::bigint[],
        ${column((s) => Math.round(s.costNanoUsd))}::bigint[], ${column((s) => Math.round(s.pricedNanoUsd))}::bigint[],
        ${column((s) => `{${s.durations.join(",")}}`)}::text[])
      as a(route_id, kind, requests, errors, input_tokens, cached_tokens, cost_nano_usd, priced_nano_usd, durations),
      (values (${SPAN_SHORT}::int), (${SPAN_LONG}::int), (${SPAN_DAY}::int)) as w(span), clock
    order by a.route_id, w.span, a.kind
    on conflict (route_id, span, begins, kind) do update set
      requests = s.requests + excluded.requests, errors = s.errors + excluded.errors,
      input_tokens = s.input_tokens + excluded.input_tokens, cached_tokens = s.cached_tokens + excluded.cached_tokens,
      cost_nano_usd = s.cost_nano_usd + excluded.cost_nano_usd, priced_nano_usd = s.priced_nano_usd + excluded.priced_nano_usd,
      durations = array(select coalesce(d.old, 0) + coalesce(d.new, 0)
        from unnest(s.durations, excluded.durations) with ordinality as d(old, new, place) order by d.place)`;
}

const Bars = Type.Record(Type.String(), Type.Number());

/** The sums of all replicas, by route and kind: of some routes, or of all. Routes without a request are omitted. */
export async function readRouteStats(
  { db }: { db: Db },
  window: StatsWindow,
  routeIds?: readonly number[],
): Promise<RouteSums[]> {
  const { span, minutes } = WINDOWS[window];
  const ofRoutes = routeIds === undefined ? db.sql`` : db.sql`and route_id = any(${[...routeIds]}::bigint[])`;
  const rows = await db.sql`
    with clock as materialized (select ledger_now() as now), picked as materialized (
      select s.* from route_stats s, clock
      where span = ${span} and begins > clock.now - make_interval(mins => ${minutes}) ${ofRoutes}
    ), bars as (
      select route_id, kind, d.place - 1 as bucket, sum(d.count) as count
      from picked, unnest(durations) with ordinality as d(count, place) where d.count > 0 group by 1, 2, 3
    ), drawn as (
      select route_id, kind, jsonb_object_agg(bucket, count) as bars from bars group by 1, 2
    )
    select p.route_id::float8 as route_id, p.kind, p.requests, p.errors, p.input_tokens, p.cached_tokens, p.cost, p.priced, drawn.bars
    from (
      select route_id, kind, sum(requests)::float8 as requests, sum(errors)::float8 as errors,
        sum(input_tokens)::float8 as input_tokens, sum(cached_tokens)::float8 as cached_tokens,
        sum(cost_nano_usd)::float8 as cost, sum(priced_nano_usd)::float8 as priced
      from picked group by 1, 2
    ) p left join drawn using (route_id, kind) order by 1, 2`;
  return rows.map(toSums);
}

function toSums(row: Record<string, unknown>): RouteSums {
  const kind: AnswerKind = row.kind === "stream" ? "stream" : "whole";
  const sums = noSums(Number(row.route_id), kind);
  sums.requests = Number(row.requests);
  sums.errors = Number(row.errors);
  sums.inputTokens = Number(row.input_tokens);
  sums.cachedTokens = Number(row.cached_tokens);
  sums.costNanoUsd = Number(row.cost);
  sums.pricedNanoUsd = Number(row.priced);
  if (Value.Check(Bars, row.bars))
    for (const [bucket, count] of Object.entries(row.bars))
      if (Number(bucket) < BUCKETS) sums.durations[Number(bucket)] = count;
  return sums;
}

/** Deletes rows that are no longer read; returns how many. Called by a job. */
export async function pruneRouteStats({ db }: { db: Db }): Promise<number> {
  return await inSlices(PRUNE_MAX, async () => {
    const deleted = await db.sql`
      delete from route_stats where ctid = any (array(
        select s.ctid from route_stats s, (select ledger_now() as now) clock
        where (span = ${SPAN_SHORT} and begins < clock.now - make_interval(mins => ${SHORT_KEPT_MINUTES}))
          or (span = ${SPAN_LONG} and begins < clock.now - make_interval(mins => ${LONG_KEPT_MINUTES}))
          or (span = ${SPAN_DAY} and begins < clock.now - make_interval(mins => ${DAYS_KEPT_MINUTES}))
        limit ${PRUNE_MAX}))
      returning 1`;
    return deleted.length;
  });
}
