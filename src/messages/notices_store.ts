import type postgres from "postgres";
import type { Db } from "../platform/db.ts";

/**
 * Writes messages about low balances, and about packages that are nearly used up, used up, or about to end, by the
 * thresholds of each account. Runs once a minute, in the first replica that comes. Source: MSG-10.
 */

const EVERY_SECONDS = 60;
/** Messages of one kind that one run writes; the next run writes the rest. */
const MESSAGES_MAX = 2_000;
/** Balances, and packages, that one run looks at; the next run goes on after them, and begins anew after the last. */
const LOOKS_MAX = 20_000;

/**
 * Writes the messages that are due. Returns how many; null: another replica ran within the last minute. `looksMax`: only
 * tests set it.
 */
export async function writeNotices(
  { db }: { db: Db },
  { looksMax = LOOKS_MAX }: { looksMax?: number } = {},
): Promise<number | null> {
  return await db.sql.begin(async (sql) => {
    // Passed on as values, so that the slices are read by an index.
    const [from] = await sql`
      update notice_runs set ran_at = clock.now from (select ledger_now() as now offset 0) clock
      where id = 1 and (ran_at <= clock.now - make_interval(secs => ${EVERY_SECONDS}) or ran_at > clock.now + interval '1 hour')
      returning balances_after::text as balance, packages_after_end::text as end, packages_after::text as package`;
    if (from === undefined) return null;
    const after = { end: String(from.end), package: String(from.package) };
    const balances = await tellLowBalances(sql, String(from.balance), looksMax);
    return balances + (await tellPackages(sql, after, looksMax));
  });
}

/** Looks at the balances after this account. Returns how many messages were written. */
async function tellLowBalances(sql: postgres.TransactionSql, after: string, looksMax: number): Promise<number> {
  // Another message needs a balance above the threshold in between: a hold that ends must not count as a top-up.
  await sql`
    delete from told_low_balances t where not exists (
      select from accounts a join balances b on b.account_id = a.id
      where a.id = t.account_id and b.payg_enabled and b.balance_nano_usd < a.notice_balance_nano_usd)`;
  const told = await sql`
    with slice as materialized (
      select * from balances where account_id > ${after}::text::bigint order by account_id limit ${looksMax}
    ),
    low as (
      insert into told_low_balances (account_id)
      select a.id from slice b join accounts a on a.id = b.account_id
      where b.payg_enabled and a.status = 'active' and b.balance_nano_usd < a.notice_balance_nano_usd
        and exists (select from balance_entries e where e.account_id = a.id)
        and not exists (select from told_low_balances t where t.account_id = a.id)
      limit ${MESSAGES_MAX}
      on conflict do nothing returning account_id
    ),
    next as (
      update notice_runs set balances_after = case when of.rows < ${looksMax} then 0 else of.last end
      from (select count(*) as rows, max(account_id) as last from slice) as of where (select count(*) from low) < ${MESSAGES_MAX}
    )
    insert into outbox_messages (kind, account_id, data)
    select 'balance_low', a.id, jsonb_build_object('freeNanoUsd', greatest(0, b.balance_nano_usd - reserved_as_shown(b))::text,
      'belowNanoUsd', a.notice_balance_nano_usd::text)
    from low join accounts a on a.id = low.account_id join balances b on b.account_id = a.id returning 1`;
  return told.length;
}

/** Looks at the packages after this one, in the order of their end. Returns how many messages were written. */
async function tellPackages(
  sql: postgres.TransactionSql,
  after: { end: string; package: string },
  looksMax: number,
): Promise<number> {
  const told = await sql`
    with clock as materialized (select ledger_now() as now),
    slice as materialized (
      select id, account_id, name, starts_at, ends_at, time_zone, total_limit, units_taken
      from packages where ends_at > (select now from clock)
        and (ends_at, id) > (${after.end}::text::timestamptz, ${after.package}::text::bigint)
      order by ends_at, id limit ${looksMax}
    ),
    active as (
      select p.*, a.notice_units_percent, a.notice_days, clock.now from clock cross join slice p join accounts a on a.id = p.account_id
      where p.starts_at <= clock.now and a.status = 'active'
    ),
    due as (
      select case when left_total <= 0 then 'package_used_up' else 'package_80_percent' end as kind, x.* from (
        select v.*, package_total_left(package_as_shown(p)) as left_total from active v join packages p on p.id = v.id
        where (v.total_limit - v.units_taken)::bigint * 100 <= v.total_limit::bigint * v.notice_units_percent
          or v.units_taken >= v.total_limit
      ) x
      where left_total <= 0 or notice_units_percent > 0 and left_total::bigint * 100 <= total_limit::bigint * notice_units_percent
      union all
      select 'package_ending', v.*, v.total_limit - v.units_taken + package_drawn(p) from active v join packages p on p.id = v.id
      where v.notice_days > 0 and v.ends_at <= v.now + make_interval(days => v.notice_days) and not package_renews(v.id)
    ),
    told as (
      insert into outbox_messages (kind, account_id, data, once_key)
      select d.kind, d.account_id, jsonb_build_object('packageId', d.id, 'name', d.name, 'left', greatest(0, d.left_total), 'totalLimit', d.total_limit,
        'endsAt', to_char(d.ends_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'timeZone', d.time_zone,
        'nextName', (select n.name from packages n where n.account_id = d.account_id and n.starts_at > d.now and n.ends_at > n.starts_at order by n.starts_at limit 1)),
        d.kind || ':' || d.id
      from due d
      where not exists (select from outbox_messages m where m.once_key = d.kind || ':' || d.id)
      limit ${MESSAGES_MAX}
      on conflict do nothing returning 1
    ),
    next as (
      update notice_runs set (packages_after_end, packages_after) = (
        select case when count(*) < ${looksMax} then '-infinity' else max(ends_at) end,
          case when count(*) < ${looksMax} then 0 else (select id from slice order by ends_at desc, id desc limit 1) end from slice)
      where (select count(*) from told) < ${MESSAGES_MAX}
    )
    select 1 from told`;
  return told.length;
}
