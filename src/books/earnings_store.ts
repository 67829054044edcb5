import type { Sql } from "../platform/db.ts";
import { EARNING, whenAllFolded } from "./folding_store.ts";
import type { Violation } from "./invariants.ts";
import type { Slices, SliceTx } from "./short_transactions_store.ts";

/**
 * What resellers earn by their markups. Folding sums it by reseller and UTC day of a request's end. A day is *closed* after it has
 * ended and everything is folded; then the reseller's balance is credited. A receipt whose transaction was still open at that time
 * is found with the next day's closing, and credited by an entry of its own. Source: MRK-6, MRK-7.
 */

/** A day is closed this long after its end: transactions that were open at midnight have ended. */
const CLOSED_AFTER = "1 minute";
/** Days before the last closed one that are looked through again. No transaction stays open as long. */
const REOPENED_DAYS = 31;
/** Resellers that are credited in one run. */
const RESELLERS_MAX = 10_000;
/** Resellers that one slice compares, each with all its days. */
const COMPARED_MAX = 20;

/** Closes the days up to `day`, unless they are closed already; without it, those that have ended. Throws FoldingBehindError. */
export async function closeEarnings(slices: Slices, day?: string): Promise<void> {
  const ended = slices.sql`coalesce(${day ?? null}::text::date,
    ((ledger_now() - ${CLOSED_AFTER}::text::interval) at time zone 'UTC')::date - 1)`;
  const open = await slices.sql`select 1 from book_closing where earnings_to < ${ended}`;
  if (open.length === 0) return;
  slices.doing = "closing earnings";
  await whenAllFolded(slices, async (tx) => {
    await tx`
      insert into earnings as e (reseller_id, day, requests, earned_nano_usd)
      select s.id, s.day, s.rows, s.nano_usd from book_sums s, book_closing b
      where s.kind = ${EARNING} and s.day <= ${ended} and s.day >= b.earnings_to - ${REOPENED_DAYS}::int
      on conflict (reseller_id, day) do update set requests = excluded.requests, earned_nano_usd = excluded.earned_nano_usd
        where e.earned_nano_usd < excluded.earned_nano_usd`;
    await tx`update book_closing set earnings_to = greatest(earnings_to, ${ended})`;
  });
}

/**
 * Credits what closed days have earned: each reseller in its own transaction, each day once, whoever else does the same. Returns
 * the number of entries. Throws the first failure after all others were credited.
 */
export async function creditEarnings(sql: Sql): Promise<number> {
  const due = await sql`
    select distinct reseller_id::text as id from earnings where credited_nano_usd < earned_nano_usd limit ${RESELLERS_MAX}`;
  let entries = 0;
  let failure: { reason: unknown } | undefined;
  for (const { id } of due) {
    try {
      const [row] = await sql`select credit_earnings(${String(id)}::text::bigint) as entries`;
      entries += Number(row?.entries);
    } catch (reason) {
      failure ??= { reason };
    }
  }
  if (failure) throw failure.reason;
  return entries;
}

/** Resellers and days that the view `inv_earnings` would contain, by the closed sums. Throws FoldingBehindError. */
export async function brokenEarnings(slices: Slices): Promise<Violation[]> {
  const broken: Violation[] = [];
  for (let after: string | undefined = "0"; after !== undefined; ) {
    const from: string = after;
    const rows = await whenAllFolded(slices, (tx) => brokenAfter(tx, from));
    for (const { ref } of rows) if (ref !== null) broken.push({ name: "inv_earnings", ref: String(ref) });
    const last: unknown = rows.find(({ ref }) => ref === null)?.last;
    after = typeof last === "string" ? last : undefined;
  }
  return broken;
}

/** The same of the next resellers after an id, and in a row without `ref` the last of them. */
function brokenAfter(tx: SliceTx, after: string) {
  const next = (id: string, rows: string) => tx`
    select distinct ${tx.unsafe(id)} as id from ${tx.unsafe(rows)} and ${tx.unsafe(id)} > ${after}::text::bigint order by 1 limit ${COMPARED_MAX}`;
  return tx`
    with asked as materialized (
      select id from (
        (${next("reseller_id", "earnings where true")}) union (${next("account_id", "balance_entries where kind = 'earning'")})
        union (${next("id", `book_sums where kind = '${EARNING}'`)})) ids
      order by id limit ${COMPARED_MAX}),
    closed as (select earnings.* from asked join earnings on reseller_id = asked.id),
    summed as (select s.id, s.day, s.nano_usd from asked join book_sums s on s.kind = ${EARNING} and s.id = asked.id),
    entries as (
      select account_id, sum(amount_nano_usd) as nano_usd from asked join balance_entries on kind = 'earning' and account_id = asked.id group by 1)
    select null as ref, max(id)::text as last from asked
    union all
    select coalesce(e.account_id, c.reseller_id)::text || ' -infinity', null
    from entries e
    full join (select reseller_id, sum(credited_nano_usd) as nano_usd from closed group by 1) c on c.reseller_id = e.account_id
    where coalesce(e.nano_usd, 0) <> coalesce(c.nano_usd, 0)
    union all
    select coalesce(e.reseller_id, s.id)::text || ' ' || coalesce(e.day, s.day)::text, null
    from closed e full join summed s on s.id = e.reseller_id and s.day = e.day cross join book_closing b
    where (coalesce(e.day, s.day) < b.earnings_to and coalesce(e.earned_nano_usd, 0) <> coalesce(s.nano_usd, 0))
      or e.earned_nano_usd > coalesce(s.nano_usd, 0)`;
}
