import type { Db, Sql } from "../platform/db.ts";

/** The SQL of the ledger's upkeep: leases, and the monthly partitions of receipts. */

/** How many months ahead partitions are looked for. */
const MONTHS_AHEAD_MAX = 24;

/** Renews the leases of these holds. Returns the ids whose lease had not ended. */
export async function renewLeases(sql: Sql, requestIds: readonly string[], leaseSeconds: number): Promise<Set<string>> {
  const rows =
    await sql`select renew_leases(${`{${requestIds.join(",")}}`}::text::uuid[], ${`${leaseSeconds} seconds`}::interval) as id`;
  return new Set(rows.map((row) => String(row.id)));
}

/** Holds whose lease has ended, the earliest first. */
export async function expiredHolds(sql: Sql, rowsMax: number): Promise<{ requestId: string; accountId: number }[]> {
  const rows = await sql`
    select request_id, account_id from holds where lease_ends_at <= ledger_now() order by lease_ends_at limit ${rowsMax}`;
  return rows.map((row) => ({ requestId: String(row.request_id), accountId: Number(row.account_id) }));
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
