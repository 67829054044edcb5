import { usageTotalsOf } from "../books/statement_store.ts";
import type { Db, Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf } from "../platform/pages.ts";
import { WAITS_FOR_SELLER } from "../platform/schema_payments.ts";

/** A reseller's home page: customers about to run out, open orders, and the margin of this month. Source: RTL-8. */

/** Customers shown on Home. The list of customers has all of them. */
const CUSTOMERS_SHOWN = 5;
const READ_MS_MAX = 2_000;
/** Days for which an ended package is shown, if no other follows and no balance pays. */
const ENDED_DAYS = 7;

export type SellerHome = {
  /** The beginning of the month, in `timeZone`. */
  from: string;
  timeZone: string;
  ordersOpen: number;
  /** Payments whose dispute waits for the seller's answer. */
  disputesToAnswer: number;
  /**
   * Orders of customers that were fulfilled this month, and packages that were renewed from balances: their price without tax less refunds, and the wholesale price that was paid,
   * which is not refunded. A package from an allotment, or that the operator paid for, costs today's wholesale price.
   * A top-up is in neither: it becomes the customer's money, and is earned when requests use it. What a refunded top-up
   * had spent is a cost.
   */
  month: {
    /** As in 2026-11: the month of the statement. */
    name: string;
    orders: number;
    revenueNanoUsd: bigint;
    costNanoUsd: bigint;
    /** What customers added to their balances, less refunds. */
    topUpsNanoUsd: bigint;
    /**
     * Earned by markups on requests that customers' balances paid and that ended this month: the margin of the
     * statement's usage.
     */
    earnedNanoUsd: bigint;
    /** revenue − cost + earned */
    marginNanoUsd: bigint;
    /** Package orders without a price. They are in no sum. */
    unpriced: number;
  };
  runningOut: Page<RunningOut>;
};

/** Uses the thresholds that the customer set for its own notices. */
export type RunningOut = {
  accountId: number;
  name: string;
  /** null: the balance is low. `endsAt` may have passed. */
  package: { name: string; endsAt: string; timeZone: string; ended: boolean; left: number; totalLimit: number } | null;
  /** Of the balance, without what is reserved. */
  freeNanoUsd: bigint;
};

/** The home page of a reseller, by the database's clock. */
export async function sellerHome(
  db: Db,
  { sellerId, timeZone }: { sellerId: number; timeZone: string },
): Promise<SellerHome> {
  const home = await withoutEarnings(db.sql, { sellerId, timeZone });
  const query = { resellerId: sellerId, month: home.month.name, timeZone };
  const { earnedNanoUsd } = await usageTotalsOf({ db }, query);
  const marginNanoUsd = home.month.revenueNanoUsd - home.month.costNanoUsd + earnedNanoUsd;
  return { ...home, month: { ...home.month, earnedNanoUsd, marginNanoUsd } };
}

type WithoutEarnings = Omit<SellerHome, "month"> & {
  month: Omit<SellerHome["month"], "earnedNanoUsd" | "marginNanoUsd">;
};

async function withoutEarnings(
  sql: Sql,
  { sellerId, timeZone }: { sellerId: number; timeZone: string },
): Promise<WithoutEarnings> {
  return await sql.begin(async (tx) => {
    await tx`select set_config('statement_timeout', ${String(READ_MS_MAX)}, true)`;
    const [sums] = await tx`
      with month as materialized (
        select date_trunc('month', now) at time zone ${timeZone} as since, to_char(now, 'YYYY-MM') as name
        from (select ledger_now() at time zone ${timeZone} as now) clock
      ), paid as materialized (
        select e.package_id, -e.amount_nano_usd as price from balance_entries e cross join month
        where e.account_id = ${sellerId} and e.kind = 'wholesale' and e.kind <> 'charge' and e.created_at >= month.since - interval '1 hour'
      ), done as materialized (
        select o.id, o.kind, o.price_nano_usd as revenue, coalesce(o.amount_nano_usd, paid.price, f.wholesale_nano_usd) as cost
        from orders o join accounts a on a.id = o.account_id cross join month
          left join paid on paid.package_id = o.package_id left join offerings f on f.id = o.offering_id
        where o.decided_at >= month.since and o.status <> 'open' and o.status = 'fulfilled' and a.reseller_id = ${sellerId}
        union all
        select null, 'package', r.paid_nano_usd, paid.price
        from renewals r join accounts a on a.id = r.account_id cross join month left join paid on paid.package_id = r.new_package_id
        where r.source = 'balance' and r.status = 'done' and r.ended_at >= month.since and a.reseller_id = ${sellerId}
      ), given as (
        select coalesce(sum(r.worth_nano_usd) filter (where done.kind = 'package'), 0) as of_packages,
          coalesce(sum(r.worth_nano_usd) filter (where done.kind = 'top_up'), 0) as of_top_ups,
          coalesce(sum(r.shortfall_nano_usd) filter (where done.kind = 'top_up'), 0) as spent
        from done join refunds r on r.order_id = done.id and r.status <> 'failed' join payments p on p.id = r.payment_id and p.problem is null
      )
      select month.since, month.name, count(done.revenue)::int as orders,
        (coalesce(sum(revenue) filter (where done.kind = 'package'), 0) - given.of_packages)::text as revenue,
        (coalesce(sum(revenue) filter (where done.kind = 'top_up'), 0) - given.of_top_ups)::text as top_ups,
        (coalesce(sum(cost) filter (where done.kind = 'package' and revenue is not null), 0) + given.spent)::text as cost,
        count(done.cost) filter (where revenue is null)::int as unpriced,
        (select count(*)::int from orders o join accounts a on a.id = o.account_id
          where o.status = 'open' and a.reseller_id = ${sellerId}) as open,
        (select count(distinct payment_id)::int from disputes where seller_id = ${sellerId} and ${tx.unsafe(WAITS_FOR_SELLER)}) as to_answer
      from month cross join given left join done on true group by month.since, month.name, given.of_packages, given.of_top_ups, given.spent`;
    const rows = await tx`
      with clock as materialized (select ledger_now() as now)
      select a.id, a.name, p.name as package, p.ends_at, p.ends_at <= clock.now as ended, p.time_zone, p.total_limit, p.units_left,
        b.balance_nano_usd - reserved_as_shown(b) as free
      from clock cross join accounts a join balances b on b.account_id = a.id
      left join lateral (
        select x.*, x.total_limit - x.units_taken as units_left from packages x
        where x.account_id = a.id and x.starts_at <= clock.now and x.starts_at < x.ends_at
          and x.ends_at > clock.now - case when b.payg_enabled then interval '0' else make_interval(days => ${ENDED_DAYS}::int) end
        order by x.starts_at desc limit 1) p on true
      where a.reseller_id = ${sellerId} and a.status = 'active'
        and case when p.id is null then b.payg_enabled and b.balance_nano_usd - reserved_as_shown(b) < a.notice_balance_nano_usd
          else (p.ends_at <= clock.now + make_interval(days => a.notice_days) and not package_renews(p.id)
              or p.units_left * 100::bigint <= p.total_limit * a.notice_units_percent::bigint)
            and not exists (select 1 from packages q where q.account_id = a.id and q.starts_at > clock.now and q.ends_at > clock.now) end
      order by p.ends_at nulls first, a.id limit ${CUSTOMERS_SHOWN + 1}`;
    return {
      from: toIso(String(sums?.since)),
      timeZone,
      ordersOpen: Number(sums?.open),
      disputesToAnswer: Number(sums?.to_answer),
      month: {
        name: String(sums?.name),
        orders: Number(sums?.orders),
        revenueNanoUsd: BigInt(sums?.revenue ?? 0),
        costNanoUsd: BigInt(sums?.cost ?? 0),
        topUpsNanoUsd: BigInt(sums?.top_ups ?? 0),
        unpriced: Number(sums?.unpriced),
      },
      runningOut: pageOf(rows.map(toRunningOut), CUSTOMERS_SHOWN),
    };
  });
}

function toRunningOut(row: Record<string, unknown>): RunningOut {
  return {
    accountId: Number(row.id),
    name: String(row.name),
    package:
      row.package === null
        ? null
        : {
            name: String(row.package),
            endsAt: toIso(String(row.ends_at)),
            timeZone: String(row.time_zone),
            ended: row.ended === true,
            left: Math.max(0, Number(row.units_left)),
            totalLimit: Number(row.total_limit),
          },
    freeNanoUsd: BigInt(String(row.free)),
  };
}
