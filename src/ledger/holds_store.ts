import { sql } from "drizzle-orm";
import { lockAccounts } from "../accounts/locks_store.ts";
import type { Db, Sql } from "../platform/db.ts";

/** The SQL of holds and receipts outside of batches: leases, repeated requests, the monthly partitions of receipts. */

/** How many months ahead partitions are looked for. */
const MONTHS_AHEAD_MAX = 24;

/** Renews the leases of these holds. Returns the ids whose lease had not ended. */
export async function renewLeases(
  connection: Sql,
  requestIds: readonly string[],
  leaseSeconds: number,
): Promise<Set<string>> {
  const rows =
    await connection`select renew_leases(${`{${requestIds.join(",")}}`}::text::uuid[], ${`${leaseSeconds} seconds`}::interval) as id`;
  return new Set(rows.map((row) => String(row.id)));
}

/** Holds whose lease has ended, the earliest first. */
export async function expiredHolds(sql: Sql, rowsMax: number): Promise<{ requestId: string; accountId: number }[]> {
  const rows = await sql`
    select request_id, account_id from holds where lease_ends_at <= ledger_now() order by lease_ends_at limit ${rowsMax}`;
  return rows.map((row) => ({ requestId: String(row.request_id), accountId: Number(row.account_id) }));
}

/**
 * The state of a request whose replica may have died, before a client's retry repeats it. `over`: it costs nothing, and never
 * will. If the reaper released it, this closes it: a late settlement is no longer accepted.
 */
export async function closeUnsettled(
  { db }: { db: Db },
  { accountId, requestId }: { accountId: number; requestId: string },
): Promise<"running" | "settled" | "over"> {
  return await db.orm.transaction(async (tx) => {
    await lockAccounts(tx, [accountId]);
    const rows = await tx.execute(sql`
      select outcome from receipts where request_id = ${requestId}::text::uuid and account_id = ${accountId}
      union all select 'running' from holds where request_id = ${requestId}::text::uuid and account_id = ${accountId}`);
    const status = rows[0]?.outcome;
    if (status === "running" || status === "settled") return status;
    await tx.execute(sql`
      update receipts set reason = 'ended_by_us'
      where request_id = ${requestId}::text::uuid and account_id = ${accountId} and outcome = 'released' and reason = 'lease_ended'`);
    return "over";
  });
}

/** Creates the partitions of receipts for the coming months. Returns how many were missing. */
export async function makeReceiptMonths(sql: Sql, monthsAhead: number): Promise<number> {
  const [row] = await sql`select make_receipt_months(${monthsAhead}) as made`;
  return Number(row?.made);
}

/** How many consecutive months after this one have a partition of receipts. */
export async function receiptMonthsAhead({ db }: { db: Db }): Promise<number> {
  const [row] = await db.sql`
    select coalesce(min(n) - 1, ${MONTHS_AHEAD_MAX})::int as months from generate_series(1, ${MONTHS_AHEAD_MAX}) as n
    where to_regclass('receipts_' || to_char(
      date_trunc('month', ledger_now() at time zone 'UTC') + make_interval(months => n), 'YYYY_MM')) is null`;
  return Number(row?.months);
}
