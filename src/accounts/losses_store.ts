import { and, eq, gt } from "drizzle-orm";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { losses } from "../platform/schema_accounts.ts";

/** Losses by account and tenant, in the hour that runs and in all. The hours are by the database's clock. Source: LOS-1, LOS-2. */

/** Holders that are read as stopped at once. More are stopped later, when others are free again. */
const STOPS_MAX = 10_000;

/** What the operator bore of an account in some requests, in the unit of its kind. `tenantId`: 0 for none; null: the account's. */
export type Loss = { accountId: number; tenantId: number | null; kind: string; amount: bigint; times: number };

/** The most of a kind that is borne in an hour. */
export type LossBound = { kind: string; account: bigint; tenant: bigint };

/** A holder whose losses of the hour have reached their bound, and how long until its hour ends. */
export type Stop = { holder: "account" | "tenant"; holderId: number; kind: string; leftMs: number };

/**
 * Adds losses. To its tenant an account adds at most the account's own bound in an hour, so that one customer alone does not stop the
 * others. Source: LOS-2.
 */
export async function addLosses(
  { db }: { db: Db },
  losses: readonly Loss[],
  bounds: readonly LossBound[],
): Promise<void> {
  const { sql } = db;
  const column = <T>(pick: (loss: Loss) => T) => losses.map(pick);
  const boundOf = ({ kind }: Loss) => String(bounds.find((bound) => bound.kind === kind)?.account ?? 0n);
  const runs = sql`l.hour_began_at > excluded.last_at - interval '1 hour'`;
  const added = sql`
    on conflict (holder, holder_id, kind) do update set
      hour_amount = excluded.hour_amount + case when ${runs} then l.hour_amount else 0 end,
      hour_began_at = case when ${runs} then l.hour_began_at else excluded.hour_began_at end,
      amount = l.amount + excluded.amount, times = l.times + excluded.times, last_at = excluded.last_at`;
  // Accounts before tenants, and each in order, so that two replicas do not deadlock.
  await sql`
    with clock as materialized (select ledger_now() as now),
    noted as (
      select n.account_id, coalesce(n.tenant_id, (select case a.role when 'reseller' then a.id else a.reseller_id end
        from accounts a where a.id = n.account_id), 0) as tenant_id, n.kind, n.amount, n.times, n.bound
      from unnest(${column((l) => l.accountId)}::bigint[], ${column((l) => l.tenantId)}::bigint[],
        ${column((l) => l.kind)}::text[], ${column((l) => String(l.amount))}::text[]::bigint[],
        ${column((l) => l.times)}::bigint[], ${column(boundOf)}::text[]::bigint[])
        as n (account_id, tenant_id, kind, amount, times, bound)
    ),
    of_accounts as (
      insert into losses as l (holder, holder_id, kind, hour_began_at, hour_amount, amount, times, last_at)
      select 'account', account_id, kind, now, amount, amount, times, now from noted, clock order by account_id, kind
      ${added}
      returning holder_id as account_id, kind, hour_amount
    )
    insert into losses as l (holder, holder_id, kind, hour_began_at, hour_amount, amount, times, last_at)
    select 'tenant', tenant_id, kind, now, sum(least(hour_amount, bound) - least(hour_amount - n.amount, bound)), sum(n.amount),
      sum(times), now
    from of_accounts join noted n using (account_id, kind), clock
    where tenant_id > 0 group by tenant_id, kind, now order by tenant_id, kind
    ${added}`;
}

/** Who is stopped now. */
export async function readStops({ db }: { db: Db }, bounds: readonly LossBound[]): Promise<Stop[]> {
  const column = (pick: (bound: LossBound) => string) => bounds.map(pick);
  const rows = await db.sql<{ holder: Stop["holder"]; id: string; kind: string; left: number }[]>`
    with clock as materialized (select ledger_now() as now)
    select holder, holder_id::text as id, l.kind,
      extract(epoch from hour_began_at + interval '1 hour' - now)::float8 * 1000 as left
    from clock, losses l join unnest(${column((b) => b.kind)}::text[], ${column((b) => String(b.account))}::text[]::bigint[],
      ${column((b) => String(b.tenant))}::text[]::bigint[]) as b (kind, account, tenant) on b.kind = l.kind
    where hour_began_at > now - interval '1 hour' and hour_amount >= case holder when 'account' then account else tenant end
    limit ${STOPS_MAX}`;
  return rows.map(({ holder, id, kind, left }) => ({ holder, holderId: Number(id), kind, leftMs: left }));
}

/** What was borne of a holder, for display. */
export type HolderLosses = {
  holder: "account" | "tenant";
  holderId: number;
  kind: string;
  /** In the hour that runs; 0 if none does. */
  hourAmount: bigint;
  /** When that hour ends; null if none runs. */
  hourEndsAt: string | null;
  amount: bigint;
  times: number;
  lastAt: string;
  /** What `before` is for the rows after this one. */
  cursor: string;
};

/** The losses of one account or tenant, or of all: the latest first. */
export async function listLosses(
  { db }: { db: Db },
  { holderId, before, limit }: { holderId?: number | undefined; before?: string | undefined; limit: number },
): Promise<HolderLosses[]> {
  const [at = null, holder = null, id = null, kind = null] = before?.split("/") ?? [];
  const rows = await db.sql`
    with clock as materialized (select ledger_now() as now)
    select holder, holder_id, kind, amount, times, last_at, hour_began_at > now - interval '1 hour' as runs,
      hour_amount, hour_began_at + interval '1 hour' as ends_at,
      concat_ws('/', last_at, holder, holder_id, kind) as cursor
    from losses, clock where (${holderId ?? null}::bigint is null or holder_id = ${holderId ?? null})
      and (${at}::text is null or (last_at, holder, holder_id, kind) < (${at}::text::timestamptz, ${holder}::text, ${id}::text::bigint, ${kind}::text))
    order by last_at desc, holder desc, holder_id desc, kind desc limit ${limit}`;
  return rows.map((row) => ({
    holder: row.holder,
    holderId: Number(row.holder_id),
    kind: row.kind,
    hourAmount: row.runs ? BigInt(row.hour_amount) : 0n,
    hourEndsAt: row.runs ? toIso(row.ends_at) : null,
    amount: BigInt(row.amount),
    times: Number(row.times),
    lastAt: toIso(row.last_at),
    cursor: row.cursor,
  }));
}

/** Ends the hour of an account or tenant: it is no longer stopped. Returns whether one ran. */
export async function forgetHour(deps: ChangeDeps, holderId: number): Promise<boolean> {
  return await changing(deps, async (tx) => {
    const of = and(eq(losses.holderId, holderId), gt(losses.hourAmount, 0n));
    return (await tx.update(losses).set({ hourAmount: 0n }).where(of).returning({ kind: losses.kind })).length > 0;
  });
}
