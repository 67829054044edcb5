import { toIso } from "../accounts/checks.ts";
import type { Sql } from "../platform/db.ts";

/** What an account could spend now, read and not held: for /models, /balance and the panel. The ledger decides anew. */

export type PackageState = {
  id: number;
  name: string;
  startsAt: string;
  endsAt: string;
  dailyLimit: number;
  /** The allowance left now (carryover: accumulated), never above totalRemaining. Live holds count as used. */
  dailyRemaining: number;
  totalLimit: number;
  totalRemaining: number;
  carryover: boolean;
  tokenLimit: number | null;
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
      least(p.total_left, case when p.carryover then p.daily_limit * least(p.today - p.first_day + 1, p.days) - p.units
        else p.daily_limit - coalesce(d.units_used + d.units_held, 0) end) as daily_left
    from clock
    join balances b on b.account_id = ${accountId}
    left join lateral (
      select *, units_used + units_held as units, total_limit - units_used - units_held as total_left,
        (clock.now at time zone time_zone)::date as today
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

function toPackageState(row: Record<string, unknown>): PackageState {
  return {
    id: Number(row.id),
    name: String(row.name),
    startsAt: toIso(String(row.starts_at)),
    endsAt: toIso(String(row.ends_at)),
    dailyLimit: Number(row.daily_limit),
    dailyRemaining: Number(row.daily_left),
    totalLimit: Number(row.total_limit),
    totalRemaining: Number(row.total_left),
    carryover: row.carryover === true,
    tokenLimit: row.token_limit === null ? null : Number(row.token_limit),
    tokensUsed: Number(row.tokens_used),
    modelIds: Array.isArray(row.model_ids) ? new Set(row.model_ids.map(String)) : null,
  };
}
