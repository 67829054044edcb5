import type { Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";

/** What an account could spend now, read and not held: for /models, /balance and the panel. The ledger decides anew. */

export type PackageState = {
  id: number;
  name: string;
  startsAt: string;
  endsAt: string;
  /** Days are the calendar's, in this zone. */
  timeZone: string;
  days: number;
  /** At most `days`. */
  daysBegun: number;
  dailyLimit: number;
  /** The allowance left now (carryover: accumulated), never above totalRemaining. Live holds count as used. */
  dailyRemaining: number;
  /** Live holds included. */
  usedToday: number;
  /** The next midnight at which there will be more to use; null: there is none. */
  resetsAt: string | null;
  totalLimit: number;
  totalRemaining: number;
  carryover: boolean;
  tokenLimit: number | null;
  /** Live holds included. */
  tokensUsed: number;
  modelIds: ReadonlySet<string> | null;
};

export type Entitlement = {
  package: PackageState | null;
  paygEnabled: boolean;
  balanceNanoUsd: bigint;
  heldNanoUsd: bigint;
  /** Tokens over the balance's life. */
  balanceTokensUsed: number;
};

/** The active package and the balance of an account, by the database's clock. Source: rulings › Counting. */
export async function entitlementOf(sql: Sql, accountId: number): Promise<Entitlement> {
  const [row] = await sql`
    with clock as materialized (select ledger_now() as now)
    select b.payg_enabled, b.balance_nano_usd, b.held_nano_usd, b.tokens_used as balance_tokens, p.*,
      p.tokens_used + p.tokens_held as package_tokens,
      least(p.today - p.first_day + 1, p.days) as days_begun, coalesce(d.units_used + d.units_held, 0) as used_today,
      least(p.total_left, case when p.carryover then p.daily_limit * least(p.today - p.first_day + 1, p.days) - p.units
        else p.daily_limit - coalesce(d.units_used + d.units_held, 0) end) as daily_left,
      case when p.midnight < p.ends_at and p.total_left > 0
          and coalesce(p.tokens_used + p.tokens_held < p.token_limit, true) and not (p.carryover and p.today - p.first_day + 1 >= p.days)
        then p.midnight end as resets_at
    from clock
    join balances b on b.account_id = ${accountId}
    left join lateral (
      select *, units_used + units_held as units, total_limit - units_used - units_held as total_left,
        (clock.now at time zone time_zone)::date as today,
        day_begins((clock.now at time zone time_zone)::date + 1, time_zone) as midnight
      from packages where account_id = ${accountId} and starts_at <= clock.now and ends_at > clock.now
      order by starts_at desc limit 1
    ) p on true
    left join package_days d on d.package_id = p.id and d.day = p.today`;
  return {
    package: row?.id ? toPackageState(row) : null,
    paygEnabled: row?.payg_enabled === true,
    balanceNanoUsd: BigInt(row?.balance_nano_usd ?? 0),
    heldNanoUsd: BigInt(row?.held_nano_usd ?? 0),
    balanceTokensUsed: Number(row?.balance_tokens ?? 0),
  };
}

/** Whether a package has something left to use now. */
export function hasLeft({ dailyRemaining, tokenLimit, tokensUsed }: PackageState): boolean {
  return dailyRemaining > 0 && (tokenLimit === null || tokensUsed < tokenLimit);
}

/** What stands around an entitlement: the time, what comes next, what was before, and when its owner wants to be told. */
export type Surroundings = {
  now: string;
  /** The first of the queued packages. */
  next: {
    packageId: number;
    name: string;
    startsAt: string;
    endsAt: string;
    timeZone: string;
    days: number;
    dailyLimit: number;
    carryover: boolean;
  } | null;
  /** The one that ended last. */
  ended: { name: string; endedAt: string; timeZone: string } | null;
  notice: { unitsPercent: number; balanceNanoUsd: bigint; days: number };
};

/** By the database's clock. */
export async function surroundingsOf(sql: Sql, accountId: number): Promise<Surroundings> {
  const [row] = await sql`
    with clock as materialized (select ledger_now() as now)
    select clock.now, a.notice_units_percent, a.notice_balance_nano_usd, a.notice_days, n.*,
      e.name as ended_name, e.ends_at as ended_at, e.time_zone as ended_zone
    from clock
    join accounts a on a.id = ${accountId}
    left join lateral (
      select id, name, starts_at, ends_at, time_zone, days, daily_limit, carryover from packages
      where account_id = ${accountId} and ends_at > clock.now and starts_at > clock.now order by starts_at limit 1
    ) n on true
    left join lateral (
      select name, ends_at, time_zone from packages
      where account_id = ${accountId} and ends_at <= clock.now and ends_at > starts_at order by ends_at desc limit 1
    ) e on true`;
  if (!row) throw new Error(`there is no account ${accountId}`);
  return {
    now: toIso(String(row.now)),
    next: row.id ? toNext(row) : null,
    ended: row.ended_at
      ? { name: String(row.ended_name), endedAt: toIso(String(row.ended_at)), timeZone: String(row.ended_zone) }
      : null,
    notice: {
      unitsPercent: Number(row.notice_units_percent),
      balanceNanoUsd: BigInt(row.notice_balance_nano_usd),
      days: Number(row.notice_days),
    },
  };
}

function toNext(row: Record<string, unknown>): NonNullable<Surroundings["next"]> {
  return {
    packageId: Number(row.id),
    name: String(row.name),
    startsAt: toIso(String(row.starts_at)),
    endsAt: toIso(String(row.ends_at)),
    timeZone: String(row.time_zone),
    days: Number(row.days),
    dailyLimit: Number(row.daily_limit),
    carryover: row.carryover === true,
  };
}

function toPackageState(row: Record<string, unknown>): PackageState {
  return {
    id: Number(row.id),
    name: String(row.name),
    startsAt: toIso(String(row.starts_at)),
    endsAt: toIso(String(row.ends_at)),
    timeZone: String(row.time_zone),
    days: Number(row.days),
    daysBegun: Number(row.days_begun),
    dailyLimit: Number(row.daily_limit),
    dailyRemaining: Number(row.daily_left),
    usedToday: Number(row.used_today),
    resetsAt: row.resets_at === null ? null : toIso(String(row.resets_at)),
    totalLimit: Number(row.total_limit),
    totalRemaining: Number(row.total_left),
    carryover: row.carryover === true,
    tokenLimit: row.token_limit === null ? null : Number(row.token_limit),
    tokensUsed: Number(row.package_tokens),
    modelIds: Array.isArray(row.model_ids) ? new Set(row.model_ids.map(String)) : null,
  };
}
