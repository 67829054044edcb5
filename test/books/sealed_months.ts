import type { Sql } from "postgres";
import { openSlices, type Slices } from "../../src/books/short_transactions_store.ts";
import { connect } from "../../src/platform/db.ts";
import type { World } from "../world.ts";

/** Past months with receipts: the last one, this one and the next one of the real clock, seen from ten days after the last of them. */

export type Months = {
  months: readonly [string, string, string];
  /** Ten days into the month after them. */
  now: string;
  /** The request ids of a month, in their order. */
  idsOf(month: string): Promise<string[]>;
};

/** Instants of tests are in UTC. */
function monthFrom(offset: number): string {
  const today = new Date();
  return new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + offset, 1)).toISOString().slice(0, 7);
}

/**
 * Writes `many` receipts a month for each of some accounts, as the ledger would have: a reseller's customer with a markup, a package, keys with
 * and without limits, refusals, losses, and requests over the end of a month.
 */
export async function fillMonths(world: World, many: number): Promise<Months> {
  const { sql } = world;
  const months = [monthFrom(-1), monthFrom(0), monthFrom(1)] as const;
  const reseller = await world.addReseller();
  const [packaged, payer, customer] = [
    await world.addCustomer(),
    await world.addCustomer(),
    await world.addCustomer(reseller.accountId),
  ];
  const keys = [
    await world.addKey(packaged),
    await world.addKey(payer, { mode: "payg" }),
    await world.addKey(customer, { mode: "payg" }),
  ];
  const packageId = await world.givePackage(packaged, { dailyLimit: 1_000_000, days: 30 });
  await world.setBalance(payer, 10n ** 12n);
  await world.setBalance(customer, 10n ** 12n);
  for (const [m, month] of months.entries())
    for (const [i, person] of [packaged, payer, customer].entries())
      await sql`
        with drawn as (
          select n, ${`${month}-01`}::text::timestamp at time zone 'UTC' + n * (interval '28 days' / ${many}::int) as at,
            (n + 1) % 5 as kind from generate_series(0, ${many - 1}::int) as n
        ), made as (
          insert into receipts (request_id, account_id, key_id, model_id, host, mode, package_id, day, key_day, outcome, reason, units, held_nano_usd,
            charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, further_counts,
            markup_basis_points, cost_nano_usd, route_id, first_ms, provider_cost_nano_usd, created_at, finished_at)
          select (left(request_id_floor(at)::text, 14) || '7000-8000-' || lpad(to_hex(${m * 3 + i}::int * 1000000 + n), 12, '0'))::uuid,
            ${person.accountId}, ${keys[i]?.keyId ?? 0}, 'model-' || n % 3, 'h', ${i === 0 ? "package" : "payg"},
            ${i === 0 ? packageId : null}::bigint, case when ${i === 0} then (at at time zone 'UTC')::date end,
            case when ${i === 1} then (at at time zone 'UTC')::date end, case when kind = 4 then 'released' else 'settled' end,
            case when kind = 4 then 'client_left' else 'complete' end, case when ${i === 0} and kind < 4 then 1 else 0 end, 500,
            case when ${i > 0} and kind < 4 then 300 + n else 0 end, case when kind = 3 then 7 else 0 end, 10 + n, 1, 20, case when kind < 4 then 30 + n else 0 end, false,
            case when kind = 1 then '{"reasoning": 3}'::jsonb end, case when ${i === 2} then 1000 end, case when ${i === 2} then 200 end,
            null, 12, 11, at, at + case when n = ${many - 1}::int then interval '5 days' else interval '1 second' end
          from drawn returning account_id, request_id, charged_nano_usd, finished_at)
        insert into balance_entries (account_id, amount_nano_usd, kind, request_id, created_at)
        select account_id, -charged_nano_usd, 'charge', request_id, finished_at from made where charged_nano_usd > 0`;
  await sql`
    update balances b set balance_nano_usd = e.nano from (
      select account_id, sum(amount_nano_usd) as nano from balance_entries group by 1) e where e.account_id = b.account_id`;
  await sql`
    insert into package_days (package_id, day, units_taken, units_max)
    select package_id, day, sum(units), 1000000 from receipts where package_id is not null group by 1, 2`;
  await sql`
    update packages p set total_limit = 1000000, units_taken = r.units, tokens_taken = r.tokens from (
      select package_id, sum(units) as units, sum(charged_tokens) as tokens from receipts where package_id is not null group by 1) r
    where r.package_id = p.id`;
  await sql`
    insert into key_days (key_id, day, units_taken, taken_nano_usd)
    select key_id, key_day, count(*), sum(charged_nano_usd) from receipts where key_day is not null and outcome = 'settled' group by 1, 2`;
  const now = `${monthFrom(2)}-10 12:00:00+00`;
  await world.setClock(now);
  return {
    months,
    now,
    idsOf: async (month) =>
      (
        await sql`
          select request_id::text as id from receipts where request_id >= receipt_month_floor(${`${month}-01`}::text::date)
            and request_id < receipt_month_floor((${`${month}-01`}::text::date + interval '1 month')::date) order by request_id`
      ).map(({ id }) => String(id)),
  };
}

/** Changes a row of a sealed month as somebody with all rights can: past the triggers. */
export async function tamper(sql: Sql, change: (tx: Sql) => PromiseLike<unknown>): Promise<void> {
  await sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`;
    await change(tx as unknown as Sql);
  });
}

/** Slices of at most `rows` rows. */
export async function inSlicesOf<T>(world: World, rows: number, work: (slices: Slices) => Promise<T>): Promise<T> {
  const sql = connect({ databaseUrl: world.url, dbPrepare: true, fetchTypes: false }, 1);
  const slices = openSlices(sql, { onSlice: (all) => (all.rows = rows) });
  slices.rows = rows;
  try {
    return await work(slices);
  } finally {
    await sql.end();
  }
}
