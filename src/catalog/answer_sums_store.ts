import type { Db } from "../platform/db.ts";
import { inSlices } from "../platform/prune.ts";
import type { AnswerCount, AnswerDays, Component } from "./answer_counts.ts";

/** The sums of answered requests that all replicas share, in rows of 5 minutes and of a UTC day. Source: STA-1. */

/** Minutes of a row. The database's clock says which row a write belongs to. */
const SPAN_SHORT = 5;
const SPAN_DAY = 24 * 60;
/** These 5 minutes and the 10 before them. */
const RECENT_MINUTES = 15;
/** Days that can be read, and that are kept: today and those before it. */
export const ANSWER_DAYS_MAX = 90;
/** Rows are kept for longer than they are read. */
const SHORT_KEPT_MINUTES = 60;
const DAYS_KEPT_MINUTES = (ANSWER_DAYS_MAX + 2) * SPAN_DAY;
/** Rows deleted in one statement. */
const PRUNE_MAX = 20_000;

/** Adds a replica's sums to the shared ones, in one statement. */
export async function addAnswerSums({ db }: { db: Db }, counts: readonly AnswerCount[]): Promise<void> {
  const column = <T>(pick: (count: AnswerCount) => T) => counts.map(pick);
  // Sorted, so that two replicas do not deadlock.
  await db.sql`
    with clock as materialized (select ledger_now() as now)
    insert into answer_sums as s (component, span, begins, answered, failed)
    select a.component, w.span, date_bin(make_interval(mins => w.span), clock.now, timestamptz 'epoch'), a.answered, a.failed
    from unnest(${column((c) => c.component)}::text[], ${column((c) => c.answered)}::bigint[], ${column((c) => c.failed)}::bigint[])
      as a(component, answered, failed), (values (${SPAN_SHORT}::int), (${SPAN_DAY}::int)) as w(span), clock
    order by a.component, w.span
    on conflict (component, span, begins) do update set
      answered = s.answered + excluded.answered, failed = s.failed + excluded.failed`;
}

/** Components, each with the name of what it is summed in. */
export type Summed = readonly (readonly [component: Component, as: string])[];

/** The sums of components over the last `days` UTC days, today included. What had no request is omitted. */
export async function readAnswerDays(
  { db }: { db: Db },
  summed: Summed,
  days: number,
): Promise<Map<string, AnswerDays>> {
  const rows = await db.sql`
    select c.name, to_char(s.begins at time zone 'UTC', 'YYYY-MM-DD') as day, sum(s.answered)::float8 as answered,
      sum(s.failed)::float8 as failed
    from ${wanted({ db }, summed)} join answer_sums s using (component), (select ledger_now() as now) clock
    where s.span = ${SPAN_DAY} and s.begins > clock.now - make_interval(days => ${Math.min(days, ANSWER_DAYS_MAX)})
    group by c.name, s.begins order by c.name, s.begins`;
  const found = new Map<string, AnswerDays>();
  for (const { name: said, day, answered, failed } of rows) {
    const name = String(said);
    const known = found.get(name) ?? [];
    if (known.length === 0) found.set(name, known);
    known.push({ day: String(day), answered: Number(answered), failed: Number(failed) });
  }
  return found;
}

function wanted({ db }: { db: Db }, summed: Summed) {
  const [components, names] = [summed.map(([component]) => component), summed.map(([, name]) => name)];
  return db.sql`unnest(${components}::text[], ${names}::text[]) as c(component, name)`;
}

/** The sums of components over the last quarter of an hour. What had no request is omitted. */
export async function readRecentAnswers(
  { db }: { db: Db },
  summed: Summed,
): Promise<Map<string, { answered: number; failed: number }>> {
  const rows = await db.sql`
    select c.name, sum(s.answered)::float8 as answered, sum(s.failed)::float8 as failed
    from ${wanted({ db }, summed)} join answer_sums s using (component), (select ledger_now() as now) clock
    where s.span = ${SPAN_SHORT} and s.begins > clock.now - make_interval(mins => ${RECENT_MINUTES})
    group by c.name`;
  return new Map(
    rows.map(({ name, answered, failed }) => [String(name), { answered: Number(answered), failed: Number(failed) }]),
  );
}

/** Deletes rows that are no longer read; returns how many. Called by a job. */
export async function pruneAnswerSums({ db }: { db: Db }): Promise<number> {
  return await inSlices(PRUNE_MAX, async () => {
    const deleted = await db.sql`
      delete from answer_sums where ctid = any (array(
        select s.ctid from answer_sums s, (select ledger_now() as now) clock
        where (span = ${SPAN_SHORT} and begins < clock.now - make_interval(mins => ${SHORT_KEPT_MINUTES}))
          or (span = ${SPAN_DAY} and begins < clock.now - make_interval(mins => ${DAYS_KEPT_MINUTES}))
        limit ${PRUNE_MAX}))
      returning 1`;
    return deleted.length;
  });
}
