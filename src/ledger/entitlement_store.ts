import type { Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";

/** What an account could use now, for /models, /balance and the panel. It reserves nothing: `ledger_draw` decides again. */

/** The active package, with the figures of `package_quota` in drizzle/0001_daily_quota.sql. Reserved units count as used. */
export type PackageState = {
  id: number;
  name: string;
  startsAt: string;
  endsAt: string;
  /** Days are calendar days in this zone. */
  timeZone: string;
  days: number;
  /** At most `days`. */
  daysBegun: number;
  dailyLimit: number;
  /** Requests that today has granted and used; with carryover all days so far. */
  granted: number;
  used: number;
  /** Requests left now: of today, or with carryover of all days so far. Never above `totalRemaining`. */
  dailyRemaining: number;
  usedToday: number;
  /** The next midnight, if more requests become available then; null: never. */
  resetsAt: string | null;
  /** How many requests become available at `resetsAt`. */
  availableAtReset: number;
  totalLimit: number;
  totalRemaining: number;
  carryover: boolean;
  tokenLimit: number | null;
  /** Reserved tokens included. */
  tokensUsed: number;
  /** null: there is no limit. */
  tokensRemaining: number | null;
  modelIds: ReadonlySet<string> | null;
};

export type Entitlement = {
  package: PackageState | null;
  paygEnabled: boolean;
  balanceNanoUsd: bigint;
  heldNanoUsd: bigint;
  /** Tokens that the balance has paid for, in all. */
  balanceTokensUsed: number;
};

/** The active package and the balance of an account. Source: PAY-2, QUO-2. */
export async function entitlementOf(sql: Sql, accountId: number): Promise<Entitlement> {
  const [row] = await sql`
    with clock as materialized (select ledger_now() as now)
    select b.payg_enabled, b.balance_nano_usd, reserved_as_shown(b) as held_nano_usd, b.tokens_used as balance_tokens, p.*
    from clock
    join balances b on b.account_id = ${accountId}
    left join lateral (
      select x.*, q.*, package_tokens_shown(x) as package_tokens
      from packages x cross join lateral package_quota(x, clock.now) q
      where x.account_id = ${accountId} and x.starts_at <= clock.now and x.ends_at > clock.now
      order by x.starts_at desc limit 1
    ) p on true`;
  return {
    package: row?.id ? toPackageState(row) : null,
    paygEnabled: row?.payg_enabled === true,
    balanceNanoUsd: BigInt(row?.balance_nano_usd ?? 0),
    heldNanoUsd: BigInt(row?.held_nano_usd ?? 0),
    balanceTokensUsed: Number(row?.balance_tokens ?? 0),
  };
}

/** Whether a request could use the package now. */
export function hasLeft({ dailyRemaining, tokensRemaining }: PackageState): boolean {
  return dailyRemaining > 0 && (tokensRemaining === null || tokensRemaining > 0);
}

/** The time, the next and the last package, and when the owner wants notices. */
export type Surroundings = {
  now: string;
  /** The first queued package. */
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
  /** The package that ended last. */
  ended: { name: string; endedAt: string; timeZone: string } | null;
  /** The active package renews automatically. */
  renews: boolean;
  notice: { unitsPercent: number; balanceNanoUsd: bigint; days: number };
};

/** Throws if there is no such account. */
export async function surroundingsOf(sql: Sql, accountId: number): Promise<Surroundings> {
  const [row] = await sql`
    with clock as materialized (select ledger_now() as now)
    select clock.now, a.notice_units_percent, a.notice_balance_nano_usd, a.notice_days, n.*,
      e.name as ended_name, e.ends_at as ended_at, e.time_zone as ended_zone,
      exists (select from packages p where p.account_id = ${accountId} and p.starts_at <= clock.now and p.ends_at > clock.now
        and package_renews(p.id)) as renews
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
    renews: row.renews === true,
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
    granted: Number(row.granted),
    used: Number(row.used),
    dailyRemaining: Number(row.left_now),
    usedToday: Number(row.used_today),
    resetsAt: row.resets_at === null ? null : toIso(String(row.resets_at)),
    availableAtReset: Number(row.left_at_reset),
    totalLimit: Number(row.total_limit),
    totalRemaining: Number(row.left_total),
    carryover: row.carryover === true,
    tokenLimit: row.token_limit === null ? null : Number(row.token_limit),
    tokensUsed: Number(row.package_tokens),
    tokensRemaining: row.tokens_left === null ? null : Number(row.tokens_left),
    modelIds: Array.isArray(row.model_ids) ? new Set(row.model_ids.map(String)) : null,
  };
}
