import { type SQL, sql } from "drizzle-orm";
import { DAY } from "./usage_rollups_store.ts";

/** Sums of a rollup between moments, as parts of a statement: whole UTC days, more or less the steps at their edges. */

/** Columns of a rollup, a part of it, and how many times it counts. */
type Spanned = { table: string; condition: SQL; step: number; groups: readonly string[]; sums: string; counts: string };

/**
 * CTEs up to `rolled_up`: sums of a rollup by part (`i`) and group. A part is what began from one edge to before the next: the
 * whole UTC days between the midnights nearest to its edges, plus or minus the steps between each edge and its midnight. Each
 * read is fenced by its sum.
 */
export function spanned(moments: SQL, { table, condition, step, groups, sums, counts }: Spanned): SQL {
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

export const momentsOf = (edges: readonly number[]): SQL =>
  sql`${`{${edges.map((ms) => new Date(ms).toISOString()).join(",")}}`}::text::timestamptz[]`;

/** Each count as often as its part says. */
export const timesEach = (counts: string): SQL =>
  sql.join(
    counts.split(", ").map((count) => sql.raw(`times * ${count} as ${count}`)),
    sql`, `,
  );
