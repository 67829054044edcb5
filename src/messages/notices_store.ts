import type { Db } from "../platform/db.ts";

/**
 * Writes messages about low balances, and about packages that are nearly used up, used up, or about to end, by the
 * thresholds of each account. Runs once a minute, in the first replica that comes. Source: MSG-10.
 */

const EVERY_SECONDS = 60;
/** Messages of one kind that one run writes; the next run writes the rest. */
const MESSAGES_MAX = 2_000;

/** Writes the messages that are due. Returns how many; null: another replica ran within the last minute. `at`: ISO 8601. */
export async function writeNotices({ db }: { db: Db }, { at }: { at: string }): Promise<number | null> {
  return await db.sql.begin(async (sql) => {
    const due = await sql`
      update notice_runs set ran_at = ${at}::timestamptz
      where id = 1 and (ran_at <= ${at}::timestamptz - make_interval(secs => ${EVERY_SECONDS}) or ran_at > ${at}::timestamptz + interval '1 hour')
      returning 1`;
    if (due.length === 0) return null;
    // Another message needs a balance above the threshold in between: a hold that ends must not count as a top-up.
    await sql`
      delete from told_low_balances t where not exists (
        select from accounts a join balances b on b.account_id = a.id
        where a.id = t.account_id and b.payg_enabled and b.balance_nano_usd < a.notice_balance_nano_usd)`;
    const balances = await sql`
      with low as (
        insert into told_low_balances (account_id)
        select a.id from balances b join accounts a on a.id = b.account_id
        where b.payg_enabled and a.status = 'active' and b.balance_nano_usd < a.notice_balance_nano_usd
          and exists (select from balance_entries e where e.account_id = a.id)
          and not exists (select from told_low_balances t where t.account_id = a.id)
        limit ${MESSAGES_MAX}
        on conflict do nothing returning account_id
      )
      insert into outbox_messages (kind, account_id, data)
      select 'balance_low', a.id, jsonb_build_object('freeNanoUsd', greatest(0, b.balance_nano_usd - reserved_as_shown(b))::text,
        'belowNanoUsd', a.notice_balance_nano_usd::text)
      from low join accounts a on a.id = low.account_id join balances b on b.account_id = a.id returning 1`;
    const packages = await sql`
      with clock as materialized (select ledger_now() as now),
      active as (
        select p.*, a.notice_units_percent, a.notice_days, clock.now from clock cross join packages p join accounts a on a.id = p.account_id
        where p.ends_at > clock.now and p.starts_at <= clock.now and a.status = 'active'
      ),
      due as (
        select case when left_total <= 0 then 'package_used_up' else 'package_80_percent' end as kind, x.* from (
          select v.*, package_total_left(package_as_shown(p)) as left_total from active v join packages p on p.id = v.id
          where (v.total_limit - v.units_used - v.units_held)::bigint * 100 <= v.total_limit::bigint * v.notice_units_percent
            or v.units_used + v.units_held >= v.total_limit
        ) x
        where left_total <= 0 or notice_units_percent > 0 and left_total::bigint * 100 <= total_limit::bigint * notice_units_percent
        union all
        select 'package_ending', v.*, v.total_limit - v.units_used from active v
        where v.notice_days > 0 and v.ends_at <= v.now + make_interval(days => v.notice_days)
      )
      insert into outbox_messages (kind, account_id, data, once_key)
      select d.kind, d.account_id, jsonb_build_object('packageId', d.id, 'name', d.name, 'left', greatest(0, d.left_total), 'totalLimit', d.total_limit,
        'endsAt', to_char(d.ends_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'), 'timeZone', d.time_zone,
        'nextName', (select n.name from packages n where n.account_id = d.account_id and n.starts_at > d.now and n.ends_at > n.starts_at order by n.starts_at limit 1)),
        d.kind || ':' || d.id
      from due d
      where not exists (select from outbox_messages m where m.once_key = d.kind || ':' || d.id)
      limit ${MESSAGES_MAX}
      on conflict do nothing returning 1`;
    return balances.length + packages.length;
  });
}
