import { eq, inArray, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { packages } from "../platform/schema_ledger.ts";
import { type Assignment, notAssignable, type Package, selectPackages } from "./packages_store.ts";

/** What an account has, for people to read: its balance and packages, and a preview of one more package. */

/** How many ended packages are shown. */
const ENDED_SHOWN = 20;

export type Holdings = {
  /** `freeNanoUsd`: the available balance. */
  balance: { balanceNanoUsd: bigint; heldNanoUsd: bigint; freeNanoUsd: bigint; paygEnabled: boolean };
  /** All queued ones, the active one, and the last ones that ended; the latest end first. */
  packages: Package[];
};

/** The active and queued packages of several accounts, the latest end first. */
export async function currentPackagesOf({ db }: { db: Db }, accountIds: readonly number[]): Promise<Package[]> {
  if (accountIds.length === 0) return [];
  return selectPackages(
    db.orm,
    sql`${inArray(packages.accountId, [...accountIds])} and ${packages.endsAt} > ledger_now()`,
  );
}

/** An account's balance and packages. */
export async function holdingsOf({ db }: { db: Db }, accountId: number): Promise<Holdings> {
  const [row] = await db.orm.execute<Record<string, unknown>>(sql`
    select balance_nano_usd, reserved_as_shown(balances) as held_nano_usd, payg_enabled from balances where account_id = ${accountId}::bigint`);
  const own = eq(packages.accountId, accountId);
  const ended = sql`(select id from packages where account_id = ${accountId}::bigint and ends_at <= ledger_now()
    order by ends_at desc, id desc limit ${ENDED_SHOWN})`;
  const balanceNanoUsd = BigInt(String(row?.balance_nano_usd ?? 0));
  const heldNanoUsd = BigInt(String(row?.held_nano_usd ?? 0));
  return {
    balance: {
      balanceNanoUsd,
      heldNanoUsd,
      freeNanoUsd: balanceNanoUsd - heldNanoUsd,
      paygEnabled: row?.payg_enabled === true,
    },
    packages: await selectPackages(
      db.orm,
      sql`${own} and (${packages.endsAt} > ledger_now() or ${packages.id} in ${ended})`,
    ),
  };
}

/** What a package grants. */
export type Terms = Pick<
  Package,
  "name" | "days" | "dailyLimit" | "totalLimit" | "carryover" | "tokenLimit" | "timeZone" | "modelIds"
>;

export type Preview = {
  startsAt: string;
  endsAt: string;
  /** The active package that would end, and how many of its requests would be dropped. */
  dropped: { packageId: number; name: string; unitsLeft: number } | null;
  /** The package before it: the active one that it replaces, or the last of the queue. */
  before: Package | null;
  after: Terms;
  costNanoUsd: bigint;
  /** The payer's balance before and after; null: the operator pays. */
  payer: { accountId: number; freeNanoUsd: bigint; balanceNanoUsd: bigint; balanceAfterNanoUsd: bigint } | null;
  /** Pieces left in the payer's allotment afterwards; null: no allotment is used. */
  allotmentLeftAfter: number | null;
  /** Whether the payer's available balance, or its allotment, covers it. */
  enough: boolean;
};

/** What an assignment would do now. Changes and reserves nothing. Throws InputError. */
export async function previewAssignment(
  { db }: { db: Db },
  { accountId, offeringId, when, payerId, fromAllotment = false }: Omit<Assignment, "actorId">,
): Promise<Preview> {
  if (!isRowId(accountId) || !isRowId(offeringId)) throw notAssignable();
  const [row] = await db.orm.execute<Record<string, unknown>>(sql`
    with clock as materialized (select ledger_now() as now), own as (
      select p.* from packages p, clock where p.account_id = ${accountId}::bigint and p.ends_at > clock.now
    ), start as (
      select case when ${when} = 'now' then now else greatest(now, (select max(ends_at) from own)) end as at from clock
    )
    select start.at as starts_at, package_end(start.at, f.days, f.time_zone) as ends_at, f.wholesale_nano_usd,
      f.name, f.days, f.daily_limit, f.total_limit, f.carryover, f.token_limit, f.time_zone, f.model_ids,
      (select id from own, clock where starts_at <= clock.now order by starts_at desc limit 1) as active_id,
      (select id from own order by ends_at desc, id desc limit 1) as last_id,
      coalesce(b.balance_nano_usd, 0) as balance, coalesce(b.balance_nano_usd - reserved_as_shown(b), 0) as free,
      (select coalesce(sum(granted - used), 0) from allotments
       where reseller_id = ${payerId}::bigint and offering_id = f.id) as pieces
    from start cross join offerings f join accounts a on a.id = ${accountId}::bigint
    left join balances b on b.account_id = ${payerId}::bigint
    where f.id = ${offeringId}::bigint and f.enabled and not f.measured`);
  if (!row) throw notAssignable();
  const ids = [row.active_id, row.last_id].filter((id) => id !== null).map(Number);
  const own = ids.length === 0 ? [] : await selectPackages(db.orm, inArray(packages.id, ids));
  const active = own.find(({ packageId }) => packageId === Number(row.active_id)) ?? null;
  const last = own.find(({ packageId }) => packageId === Number(row.last_id)) ?? null;
  const costNanoUsd = payerId === null || fromAllotment ? 0n : BigInt(String(row.wholesale_nano_usd));
  const [balanceNanoUsd, freeNanoUsd] = [BigInt(String(row.balance)), BigInt(String(row.free))];
  const pieces = Number(row.pieces);
  return {
    startsAt: toIso(String(row.starts_at)),
    endsAt: toIso(String(row.ends_at)),
    dropped:
      when === "now" && active
        ? { packageId: active.packageId, name: active.name, unitsLeft: active.allowance?.totalLeft ?? 0 }
        : null,
    before: when === "now" ? active : last,
    after: toTerms(row),
    costNanoUsd,
    payer:
      payerId === null
        ? null
        : { accountId: payerId, freeNanoUsd, balanceNanoUsd, balanceAfterNanoUsd: balanceNanoUsd - costNanoUsd },
    allotmentLeftAfter: fromAllotment ? Math.max(0, pieces - 1) : null,
    enough: fromAllotment ? pieces > 0 : costNanoUsd <= (payerId === null ? costNanoUsd : freeNanoUsd),
  };
}

function toTerms(row: Record<string, unknown>): Terms {
  return {
    name: String(row.name),
    days: Number(row.days),
    dailyLimit: Number(row.daily_limit),
    totalLimit: Number(row.total_limit),
    carryover: row.carryover === true,
    tokenLimit: row.token_limit === null ? null : Number(row.token_limit),
    timeZone: String(row.time_zone),
    modelIds: Array.isArray(row.model_ids) ? row.model_ids.map(String) : null,
  };
}
