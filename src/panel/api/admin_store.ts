import { type Sql, sqlState } from "../../platform/db.ts";

/** What an admin's pages count, over everybody. */

/** A landing page does not wait for a count of a busy day: it does without. */
const REQUESTS_MS_MAX = 500;
const COUNTS_MS_MAX = 3_000;
const QUERY_CANCELED = "57014";

/** How many packages are active now, by offering; one without is left out. */
export async function activePackages(sql: Sql): Promise<Map<number, number>> {
  const rows = await sql`
    select offering_id, count(*)::int as active from packages
    where starts_at <= ledger_now() and ends_at > ledger_now() and offering_id is not null group by offering_id`;
  return new Map(rows.map((row) => [Number(row.offering_id), Number(row.active)]));
}

export type Counts = { accountsActive: number; accountsSuspended: number; ordersOpen: number; domainsFailing: number };

/** Small tables, and the index of open orders. A domain fails when it is off for it, or answers and its last check did not succeed. */
export async function countEverything(sql: Sql): Promise<Counts> {
  return await sql.begin(async (tx) => {
    await tx`select set_config('statement_timeout', ${String(COUNTS_MS_MAX)}, true)`;
    const [row] = await tx`
      select a.active, a.suspended, o.open, h.failing
      from (select count(*) filter (where status = 'active')::int as active,
              count(*) filter (where status = 'suspended')::int as suspended from accounts) as a,
        (select count(*)::int as open from orders where status = 'open') as o,
        (select count(*)::int as failing from hosts
          where status = 'failed' or (status = 'active' and failures > 0)) as h`;
    return {
      accountsActive: Number(row?.active),
      accountsSuspended: Number(row?.suspended),
      ordersOpen: Number(row?.open),
      domainsFailing: Number(row?.failing),
    };
  });
}

export type Requests = { settled: number; released: number };

/** Requests of the last 24 hours, by how they ended; null: there are too many to count for a landing page. */
export async function countRequests(sql: Sql): Promise<Requests | null> {
  try {
    return await sql.begin(async (tx) => {
      await tx`select set_config('statement_timeout', ${String(REQUESTS_MS_MAX)}, true)`;
      // Request ids begin with their time, and the primary key is in that order: only the last day is read. In a select of
      // its own the clock is read once, and not for every row.
      const [row] = await tx`
        select count(*) filter (where outcome = 'settled')::int as settled,
          count(*) filter (where outcome = 'released')::int as released
        from receipts where request_id >= (select request_id_floor(clock_timestamp() - interval '24 hours'))`;
      return { settled: Number(row?.settled), released: Number(row?.released) };
    });
  } catch (error) {
    if (sqlState(error) === QUERY_CANCELED) return null;
    throw error;
  }
}
