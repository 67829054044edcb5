import { eq, inArray, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { routeOverheads, routes } from "../platform/schema_catalog.ts";
import { isNone, OVERHEAD_MAX, OVERHEAD_PAYERS_MIN, type Overhead, OWN_OVERHEAD_MAX, within } from "./overhead.ts";

/**
 * Learned overheads, by account and route, until they have faded. A route's own overhead applies to everybody. For each
 * part, it is the value that at least OVERHEAD_PAYERS_MIN payers have seen. So neither one account nor one reseller
 * with all its customers can change what is reserved for others.
 * Source: MON-8.
 */

/** An overhead is halved in this time unless it is seen again. */
const HALF_LIFE_HOURS = 24;
/** It fades in steps, because every replica is notified of each step. */
const DECAY_EVERY_HOURS = 1;
/** Account ids listed per route. */
const ACCOUNTS_SHOWN = 20;

type RouteOverhead = { routeId: number; overhead: Overhead };
/**
 * An answer that cost more than its hold: the route, the account and its payer, and the overhead that would have
 * covered it.
 */
export type Overrun = { routeId: number; accountId: number; payerId: number; shown: Overhead };

/** The overheads that apply to everybody, by route. Routes without one are omitted. */
export async function loadOverheads(tx: Tx): Promise<RouteOverhead[]> {
  return (await readOverheads(tx)).flatMap(({ routeId, overhead }) =>
    isNone(overhead) ? [] : [{ routeId, overhead }],
  );
}

/** What is known of a route's overhead. */
export type KnownOverhead = {
  routeId: number;
  /** Applies to everybody. */
  overhead: Overhead;
  /** The largest that any account has seen; it applies to that account. */
  largest: Overhead;
  accounts: number;
  payers: number;
  /** The accounts with the largest values, at most ACCOUNTS_SHOWN. */
  accountIds: number[];
  firstAt: string;
  lastAt: string;
};

/** What is known of the overheads of some routes, or of all. Routes without any are omitted. */
export async function listOverheads({ db }: { db: Db }, routeIds?: readonly number[]): Promise<KnownOverhead[]> {
  return await readOverheads(db.orm, routeIds);
}

async function readOverheads(tx: Tx, routeIds?: readonly number[]): Promise<KnownOverhead[]> {
  const instant = (name: "first_at" | "last_at", of: "min" | "max") =>
    sql.raw(`to_char(${of}(${name}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`);
  const rows: Record<string, unknown>[] = await tx.execute(sql`
    with known as (
      select * from route_overheads where ${routeIds === undefined ? sql`true` : inArray(routeOverheads.routeId, [...routeIds])}
    ), by_payer as (
      select route_id, max(constant_tokens) as constant, max(image_tokens) as image, max(factor_permille) as factor
      from known group by route_id, payer_id
    ), met as (
      select route_id, count(*)::int as payers,
        (array_agg(constant order by constant desc))[${OVERHEAD_PAYERS_MIN}::int] as constant,
        (array_agg(image order by image desc))[${OVERHEAD_PAYERS_MIN}::int] as image,
        (array_agg(factor order by factor desc))[${OVERHEAD_PAYERS_MIN}::int] as factor
      from by_payer group by route_id
    )
    select route_id::float8 as "routeId", met.payers, met.constant, met.image, met.factor, count(*)::int as accounts,
      max(constant_tokens) as "mostConstant", max(image_tokens) as "mostImage", max(factor_permille) as "mostFactor",
      (array_agg(account_id::float8 order by constant_tokens + image_tokens + factor_permille desc, account_id))[1:${ACCOUNTS_SHOWN}::int] as "accountIds",
      ${instant("first_at", "min")} as "firstAt", ${instant("last_at", "max")} as "lastAt"
    from known join met using (route_id)
    group by route_id, met.payers, met.constant, met.image, met.factor order by route_id`);
  return rows.map((row) => ({
    routeId: Number(row.routeId),
    overhead: within(overheadOf(row.constant, row.image, row.factor), OVERHEAD_MAX),
    largest: overheadOf(row.mostConstant, row.mostImage, row.mostFactor),
    accounts: Number(row.accounts),
    payers: Number(row.payers),
    accountIds: Array.isArray(row.accountIds) ? row.accountIds.map(Number) : [],
    firstAt: String(row.firstAt),
    lastAt: String(row.lastAt),
  }));
}

/** Null: fewer than OVERHEAD_PAYERS_MIN payers have seen it. */
function overheadOf(constant: unknown, image: unknown, factor: unknown): Overhead {
  return {
    constantTokens: Number(constant ?? 0),
    imageTokens: Number(image ?? 0),
    factorPermille: Number(factor ?? 1000),
  };
}

/** Stores the overhead of an overrun: the greater of old and new, for each part. Returns whether any part rose. */
export async function learnOverhead(
  deps: ChangeDeps,
  { routeId, accountId, payerId, shown }: Overrun,
): Promise<boolean> {
  const { constantTokens, imageTokens, factorPermille } = within(shown, OWN_OVERHEAD_MAX);
  return await changing(deps, async (tx) => {
    const rows: unknown[] = await tx.execute(sql`
      insert into route_overheads as known
        (account_id, route_id, payer_id, constant_tokens, image_tokens, factor_permille, first_at, last_at, decayed_at)
      select ${accountId}, id, ${payerId}, ${constantTokens}, ${imageTokens}, ${factorPermille}, now, now, now
      from routes, ledger_now() as now where id = ${routeId}
      on conflict (account_id, route_id) do update set
        constant_tokens = greatest(known.constant_tokens, excluded.constant_tokens),
        image_tokens = greatest(known.image_tokens, excluded.image_tokens),
        factor_permille = greatest(known.factor_permille, excluded.factor_permille),
        last_at = excluded.last_at
      where excluded.constant_tokens > known.constant_tokens or excluded.image_tokens > known.image_tokens
        or excluded.factor_permille > known.factor_permille
      returning 1`);
    return rows.length > 0;
  });
}

/**
 * Reduces all overheads by the time passed on the database's clock. Every replica calls this now and then; each hour
 * counts once.
 */
export async function decayOverheads(deps: ChangeDeps): Promise<void> {
  await changing(deps, async (tx) => {
    await tx.execute(sql`
      update route_overheads set constant_tokens = floor(constant_tokens * left_over), image_tokens = floor(image_tokens * left_over),
        factor_permille = 1000 + floor((factor_permille - 1000) * left_over), decayed_at = now
      from (
        select account_id as account, route_id as route, now,
          power(0.5, extract(epoch from now - decayed_at) / 3600 / ${HALF_LIFE_HOURS}) as left_over
        from route_overheads, ledger_now() as now
        where decayed_at <= now - make_interval(hours => ${DECAY_EVERY_HOURS}) for update of route_overheads
      ) as faded
      where account_id = account and route_id = route`);
    await tx.execute(sql`
      delete from route_overheads where constant_tokens = 0 and image_tokens = 0 and factor_permille = 1000`);
  });
}

/** Removes what was learned about a route. The audit log records it as a change of the route. Throws InputError. */
export async function resetOverhead(deps: ChangeDeps, routeId: number): Promise<void> {
  await changing(deps, async (tx) => {
    const rows = await tx
      .update(routes)
      .set({ overheadResetAt: sql`ledger_now()` })
      .where(eq(routes.id, routeId))
      .returning({ id: routes.id });
    if (rows.length === 0) throw new InputError("There is no such route.", "routeId");
    await tx.delete(routeOverheads).where(eq(routeOverheads.routeId, routeId));
  });
}
