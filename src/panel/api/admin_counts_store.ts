import { IS_FOLDED, UNFOLDED_RECORDS } from "../../books/usage_rollups_store.ts";
import { QUERY_CANCELED, type Sql, sqlState } from "../../platform/db.ts";
import { WAITS_FOR_SELLER } from "../../platform/schema_payments.ts";

/** Counts over all accounts, for the admins' pages. */

/** If counting a busy day takes longer, the Overview shows no number. */
const REQUESTS_MS_MAX = 500;
const COUNTS_MS_MAX = 3_000;

/** The number of active packages by offering id; offerings without one are left out. */
export async function activePackages(sql: Sql): Promise<Map<number, number>> {
  const rows = await sql`
    select offering_id, count(*)::int as active from packages
    where starts_at <= ledger_now() and ends_at > ledger_now() and offering_id is not null group by offering_id`;
  return new Map(rows.map((row) => [Number(row.offering_id), Number(row.active)]));
}

/**
 * People by state; open orders that an admin decides; disputes; domains, removed ones excluded, live ones and failing ones.
 */
export type Counts = {
  accountsActive: number;
  accountsInvited: number;
  accountsSuspended: number;
  ordersOpen: number;
  /** Of these, those whose buyer has the payment instructions: an admin confirms the payment. */
  ordersByHand: number;
  /** Payments to the operator whose dispute waits for an answer. */
  disputesToAnswer: number;
  domains: number;
  domainsLive: number;
  domainsFailing: number;
};

/**
 * Reads small tables and the index of open orders. The conditions match the lists that the figures link to: `accounts_store`
 * (state), `orders_store` (of the house), `payments_store` (to answer), `hosts_store` (failing).
 */
export async function countEverything(sql: Sql): Promise<Counts> {
  return await sql.begin(async (tx) => {
    await tx`select set_config('statement_timeout', ${String(COUNTS_MS_MAX)}, true)`;
    const [row] = await tx`
      select a.active, a.invited, a.suspended, o.open, o.by_hand, d.to_answer, h.added, h.live, h.failing
      from (select count(*) filter (where status = 'active' and password_hash is not null)::int as active,
              count(*) filter (where status = 'active' and password_hash is null)::int as invited,
              count(*) filter (where status = 'suspended')::int as suspended from accounts where not only_person) as a,
        (select count(*)::int as open, count(*) filter (where orders.method = 'instructions')::int as by_hand from orders join accounts on accounts.id = orders.account_id
          where orders.status = 'open' and accounts.reseller_id is null) as o,
        (select count(distinct payment_id)::int as to_answer from disputes where seller_id = 0 and ${tx.unsafe(WAITS_FOR_SELLER)}) as d,
        (select count(*) filter (where status <> 'removed')::int as added,
            count(*) filter (where status = 'active')::int as live,
            count(*) filter (where status = 'failed' or (status = 'active' and failures > 0))::int as failing
          from hosts) as h`;
    return {
      accountsActive: Number(row?.active),
      accountsInvited: Number(row?.invited),
      accountsSuspended: Number(row?.suspended),
      ordersOpen: Number(row?.open),
      ordersByHand: Number(row?.by_hand),
      disputesToAnswer: Number(row?.to_answer),
      domains: Number(row?.added),
      domainsLive: Number(row?.live),
      domainsFailing: Number(row?.failing),
    };
  });
}

export type Requests = { settled: number; released: number };

/** Requests of the last 24 hours, by how they ended. null: counting took too long, as when folding is far behind. */
export async function countRequests(sql: Sql): Promise<Requests | null> {
  try {
    return await sql.begin(async (tx) => {
      await tx`
        select set_config('statement_timeout', ${String(REQUESTS_MS_MAX)}, true), set_config('enable_seqscan', 'off', true),
          set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`;
      // Settled requests are summed by folding, in pieces of request ids, which begin with their time; only a part of the
      // first piece is counted here. Releases are few, and counted from an index.
      const [row] = await tx`
        with since as materialized (select request_id_floor(clock_timestamp() - interval '24 hours') as id)
        select ((select coalesce(sum(rows), 0) from book_sums
            where kind = 'receipts' and id > (select receipts_piece(id) from since) and day = '-infinity')
          + (select count(*) from receipts
            where outcome = 'settled' and request_id >= (select id from since)
              and request_id < (select receipts_piece_floor(receipts_piece(id) + 1) from since) and ${tx.unsafe(IS_FOLDED)})
          + (select count(*) from ${tx.unsafe(UNFOLDED_RECORDS)} tail where request_id >= (select id from since)))::int as settled,
          (select count(*) from receipts where outcome = 'released' and request_id >= (select id from since))::int as released`;
      return { settled: Number(row?.settled), released: Number(row?.released) };
    });
  } catch (error) {
    if (sqlState(error) === QUERY_CANCELED) return null;
    throw error;
  }
}
