import { sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import type { Db } from "../platform/db.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { type BalanceTransaction, toTransaction } from "./balance_transactions_store.ts";
import { endedIn } from "./statement_store.ts";

/**
 * A balance without single requests: its other transactions, and sums by month. However many requests an account sends, both cost
 * what they show: transactions that are no charges have an index of their own, and charges are summed from rollups. Source: RTL-9.
 */

const PAGE_MAX = 100;
/** Months with sums, the current one included. */
const MONTHS = 12;
const READ_MS_MAX = 2_000;

/** A transaction without the balance after it, which would need every charge since. */
export type Movement = Omit<BalanceTransaction, "balanceAfterNanoUsd">;

/** Transactions that are no charges of requests, newest first. `before`: the last id of the previous page. */
export async function listMovements(
  { db }: { db: Db },
  { accountId, before, limit = PAGE_MAX }: { accountId: number; before?: number; limit?: number },
): Promise<Page<Movement>> {
  const size = pageSize(limit, PAGE_MAX);
  const isEarlier =
    before === undefined
      ? sql`true`
      : isRowId(before)
        ? sql`(e.created_at, e.id) < (select created_at, id from balance_entries where id = ${before} and account_id = ${accountId}::bigint)`
        : sql`false`;
  const found = await db.orm.execute<Record<string, unknown>>(sql`
    select e.*, 0 as balance_after, a.name as actor_name, a.role as actor_role, c.name as counterpart_name,
      p.name as package_name, h.id as holder_id, h.name as holder_name, o.id as order_id
    from (select * from balance_entries e where account_id = ${accountId}::bigint and kind <> 'charge' and ${isEarlier}
      order by created_at desc, id desc limit ${size + 1}) e
    left join accounts a on a.id = e.actor_id
    left join accounts c on c.id = e.counterpart_id
    left join packages p on p.id = e.package_id
    left join accounts h on h.id = p.account_id
    left join orders o on o.entry_id = e.id
    order by e.created_at desc, e.id desc`);
  const movements = found.map((row) => {
    const { balanceAfterNanoUsd: _, ...movement } = toTransaction(row);
    return movement;
  });
  return pageOf(movements, size);
}

/** What went in and out of a balance in one month of `timeZone`. Outgoing sums are negative. */
export type BalanceMonth = {
  /** As in 2026-11. */
  month: string;
  /** Top-ups, and money to and from other accounts. */
  topUpsNanoUsd: bigint;
  packagesNanoUsd: bigint;
  correctionsNanoUsd: bigint;
  /** Charges of requests, by when the request ended, and how many there were. */
  chargesNanoUsd: bigint;
  charges: number;
  /** The sum of the others. */
  changeNanoUsd: bigint;
};

/** The last months in which anything happened, newest first, from one snapshot. */
export async function balanceMonths(
  { db }: { db: Db },
  { accountId, timeZone }: { accountId: number; timeZone: string },
): Promise<BalanceMonth[]> {
  return await db.orm.transaction(
    async (tx) => {
      // Locked before the snapshot is taken: to an older snapshot, rollups that are being rebuilt would look empty.
      await tx.execute(sql`lock table usage_sums, usage_crossings in access share mode`);
      await tx.execute(sql`
        select set_config('statement_timeout', ${String(READ_MS_MAX)}, true), set_config('jit', 'off', true),
          set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`);
      const spans = sql`
        select to_char(first, 'YYYY-MM') as name, first at time zone ${timeZone} as since,
          (first + interval '1 month') at time zone ${timeZone} as upto
        from (select date_trunc('month', ledger_now() at time zone ${timeZone}) - n * interval '1 month' as first
          from generate_series(0, ${MONTHS - 1}) n) months`;
      const rows = await tx.execute<Record<string, unknown>>(sql`
        select name, 'charge' as kind, -sum(charged_nano_usd) as nano_usd, sum(charges) as charges
        from ${endedIn(sql`select ${accountId}::bigint as account_id`, spans)} ended group by name having sum(charges) <> 0
        union all
        select s.name, e.kind, sum(e.amount_nano_usd), 0 from (${spans}) s cross join lateral (
          select kind, amount_nano_usd from balance_entries e
          where e.account_id = ${accountId}::bigint and e.kind <> 'charge' and e.created_at >= s.since and e.created_at < s.upto) e
        group by s.name, e.kind`);
      return toMonths(rows);
    },
    { isolationLevel: "repeatable read", accessMode: "read only" },
  );
}

function toMonths(rows: readonly Record<string, unknown>[]): BalanceMonth[] {
  const months = new Map<string, BalanceMonth>();
  for (const { name, kind, nano_usd, charges } of rows) {
    const month = months.get(String(name)) ?? emptyMonth(String(name));
    months.set(month.month, month);
    const nanoUsd = BigInt(String(nano_usd));
    month.changeNanoUsd += nanoUsd;
    month.charges += Number(charges);
    if (kind === "charge") month.chargesNanoUsd += nanoUsd;
    else if (kind === "wholesale" || kind === "package") month.packagesNanoUsd += nanoUsd;
    else if (kind === "correction" || kind === "refund") month.correctionsNanoUsd += nanoUsd;
    else month.topUpsNanoUsd += nanoUsd;
  }
  return [...months.values()].sort((a, b) => b.month.localeCompare(a.month));
}

function emptyMonth(month: string): BalanceMonth {
  const none = { topUpsNanoUsd: 0n, packagesNanoUsd: 0n, correctionsNanoUsd: 0n, chargesNanoUsd: 0n };
  return { month, ...none, charges: 0, changeNanoUsd: 0n };
}
