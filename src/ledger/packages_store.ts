import { desc, eq, type SQL, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import { InputError } from "../errors.ts";
import { type ChangeDeps, changing, IdleMoneyError } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { packages } from "../platform/schema_ledger.ts";
import { offerings } from "../platform/schema_offerings.ts";
import { insufficientBalance } from "./balances_store.ts";

/**
 * Packages: read, assigned, ended. The SQL functions in drizzle/0003_packages_and_balances.sql take the accounts' locks and
 * read the database's clock. Callers check permissions.
 */

const PACKAGES_MAX = 1000;

export type Package = {
  packageId: number;
  accountId: number;
  offeringId: number | null;
  name: string;
  /** By the database's clock. */
  state: "active" | "queued" | "ended";
  startsAt: string;
  endsAt: string;
  timeZone: string;
  days: number;
  dailyLimit: number;
  totalLimit: number;
  carryover: boolean;
  tokenLimit: number | null;
  modelIds: string[] | null;
  unitsUsed: number;
  /** Reserved by requests in flight, without what replicas have drawn ahead. */
  unitsHeld: number;
  /** Reserved tokens included. */
  tokensUsed: number;
  /** `replaced` by another package, or `ended` by a person; null: neither. */
  endedEarly: "replaced" | "ended" | null;
  /** Units that were left when it ended early. */
  unitsDropped: number | null;
  /** The account that paid the wholesale price, or gave a piece of its allotment; null: the operator. */
  paidByAccountId: number | null;
  allotmentId: number | null;
  /** null unless it is active. */
  allowance: Allowance | null;
};

/** The figures of `package_quota` in drizzle/0001_daily_quota.sql. Reserved units count as used. */
export type Allowance = {
  /** Requests left now: of today, or with carryover of all days so far. Never above `totalLeft`. */
  availableNow: number;
  usedToday: number;
  totalLeft: number;
  /** The package's next midnight, if more requests become available then; null: never. */
  resetsAt: string | null;
  /** How many requests become available at `resetsAt`. */
  availableAtReset: number;
};

/** What decides who pays for an account's package. */
export type Owner = { accountId: number; role: "customer" | "reseller" | "admin"; resellerId: number | null };
export type PayWith = "balance" | "allotment" | "operator";
/** The account whose balance pays the wholesale price, or whose allotment gives a piece; null: the operator. */
export type Payer = { payerId: number | null; fromAllotment: boolean };

/**
 * Who pays for a package. A reseller pays for its customers and for itself, unless `payWith` says that the operator does.
 * Throws InputError if the account has no reseller that could pay. Source: RES-1, RES-2.
 */
export function payerOf({ accountId, role, resellerId }: Owner, payWith: PayWith | undefined): Payer {
  const reseller = role === "reseller" ? accountId : resellerId;
  if (payWith === "operator" || (payWith === undefined && reseller === null)) {
    return { payerId: null, fromAllotment: false };
  }
  if (reseller === null)
    throw new InputError("This account belongs to no reseller: only the operator can pay.", "payWith");
  return { payerId: reseller, fromAllotment: payWith === "allotment" };
}

export type Assignment = {
  accountId: number;
  offeringId: number;
  /** `now`: replaces the active package and drops what is left of it. `after`: follows all other packages. */
  when: "now" | "after";
  /** The account whose balance pays the wholesale price; null: the operator. */
  payerId: number | null;
  /** The payer gives a piece of its allotment instead of paying. */
  fromAllotment?: boolean;
  /** What the account pays its seller for it; absent or null: not known. Source: MON-21. */
  priceNanoUsd?: bigint | null;
  /** Kept with the payer's transaction. */
  reason?: string | null;
  actorId: number | null;
};

/**
 * Assigns an offering to an account, and tells it. Throws InputError (also when the allotment is used up), and insufficient_balance if the
 * payer's available balance does not cover the wholesale price. Source: PAY-4, RES-1.
 */
export async function assignPackage(deps: ChangeDeps, assignment: Assignment): Promise<Package> {
  return changing(deps, async (tx) => {
    await requireListed(tx, assignment.offeringId);
    const assigned = await assignIn(tx, assignment);
    const { accountId, packageId, name, totalLimit, dailyLimit, startsAt, endsAt, timeZone } = assigned;
    const data = { packageId, name, totalLimit, dailyLimit, startsAt, endsAt, timeZone };
    // Nobody needs to be told what they gave themselves.
    if (assignment.actorId !== accountId) await tell(tx, { kind: "package_assigned", accountId, data });
    return assigned;
  });
}

/** A made-to-measure offering is assigned by the order that it was made for, and by nothing else: its cost is of that day. Source: MTM-3. */
async function requireListed(tx: Tx, offeringId: number): Promise<void> {
  const [row] = isRowId(offeringId)
    ? await tx.select({ measured: offerings.measured }).from(offerings).where(eq(offerings.id, offeringId))
    : [];
  if (row?.measured !== false) throw notAssignable();
}

/** The same in the caller's transaction. If it throws, roll back. */
export async function assignIn(
  tx: Tx,
  {
    accountId,
    offeringId,
    when,
    payerId,
    fromAllotment = false,
    priceNanoUsd = null,
    reason = null,
    actorId,
  }: Assignment,
): Promise<Package> {
  if (!isRowId(accountId) || !isRowId(offeringId)) throw notAssignable();
  const [row] = await tx.execute<{
    code: string | null;
    package_id: string | null;
    free_nano_usd: string | null;
  }>(sql`
    select * from assign_package(${accountId}::bigint, ${offeringId}::bigint, ${when}, ${payerId}::bigint, ${actorId}::bigint,
      ${fromAllotment}, ${reason}, ${priceNanoUsd === null ? null : String(priceNanoUsd)}::text::bigint)`);
  if (row?.code === "insufficient_balance")
    throw insufficientBalance("The payer's balance does not cover the wholesale price.", row.free_nano_usd);
  if (row?.code === "idle" && payerId !== null) throw new IdleMoneyError(payerId);
  if (row?.code === "allotment_used_up")
    throw new InputError("No piece of this offering is left in the reseller's allotment.", "payWith");
  if (row?.code === "not_found") throw notAssignable();
  const [assigned] = await selectPackages(tx, eq(packages.id, Number(row?.package_id)));
  if (!assigned) throw new Error(`assign_package answered ${row?.code}`);
  return assigned;
}

/** Ends an active or queued package now; later ones move up. Throws InputError if there is no such package. */
export async function endPackage(
  deps: ChangeDeps,
  { accountId, packageId }: { accountId: number; packageId: number },
): Promise<Package> {
  return changing(deps, async (tx) => {
    const ended = await endPackageIn(tx, { accountId, packageId });
    if (!ended) throw new InputError("There is no such package, or it has ended.", "packageId");
    return ended;
  });
}

/** The same in the caller's transaction. undefined: there is no such package, or it has ended. */
export async function endPackageIn(
  tx: Tx,
  { accountId, packageId }: { accountId: number; packageId: number },
): Promise<Package | undefined> {
  const [row] = await tx.execute<{ ended: boolean }>(
    sql`select end_package(${accountId}::bigint, ${packageId}::bigint) as ended`,
  );
  return row?.ended ? (await selectPackages(tx, eq(packages.id, packageId)))[0] : undefined;
}

/** An account's packages, the latest end first. */
export async function listPackages({ db }: { db: Db }, accountId: number): Promise<Package[]> {
  return isRowId(accountId) ? selectPackages(db.orm, eq(packages.accountId, accountId)) : [];
}

/** One package by its id. */
export async function findPackage({ db }: { db: Db }, packageId: number): Promise<Package | undefined> {
  return isRowId(packageId) ? (await selectPackages(db.orm, eq(packages.id, packageId)))[0] : undefined;
}

/** The packages that meet a condition, the latest end first. */
export async function selectPackages(tx: Tx, where: SQL): Promise<Package[]> {
  const rows = await tx
    .select({
      packageId: packages.id,
      accountId: packages.accountId,
      offeringId: packages.offeringId,
      name: packages.name,
      state: sql<
        Package["state"]
      >`case when ${packages.endsAt} <= ledger_now() then 'ended' when ${packages.startsAt} > ledger_now() then 'queued' else 'active' end`,
      startsAt: packages.startsAt,
      endsAt: packages.endsAt,
      timeZone: packages.timeZone,
      days: packages.days,
      dailyLimit: packages.dailyLimit,
      totalLimit: packages.totalLimit,
      carryover: packages.carryover,
      tokenLimit: packages.tokenLimit,
      modelIds: packages.modelIds,
      unitsUsed: sql<number>`${packages.unitsTaken} - package_drawn(${packages})`,
      unitsHeld: sql<number>`(package_as_shown(${packages})).units_taken - ${packages.unitsTaken} + package_drawn(${packages})`,
      tokensUsed: sql<number>`package_tokens_shown(${packages})`.mapWith(Number),
      endedEarly: packages.endedEarly,
      // What is idle in escrows comes back: nobody used it.
      unitsDropped: sql<number | null>`case when ${packages.endedEarly} is not null
        then package_total_left(package_as_shown(${packages})) end`,
      paidByAccountId: packages.paidByAccountId,
      allotmentId: packages.allotmentId,
      quota: sql<Quota>`(select to_jsonb(q) from package_quota(${packages}, ledger_now()) q)`,
    })
    .from(packages)
    .where(where)
    .orderBy(desc(packages.endsAt), desc(packages.id))
    .limit(PACKAGES_MAX);
  return rows.map(({ quota, ...row }) => ({
    ...row,
    startsAt: toIso(row.startsAt),
    endsAt: toIso(row.endsAt),
    allowance: row.state === "active" ? toAllowance(quota) : null,
  }));
}

type Quota = {
  left_now: number;
  used_today: number;
  left_total: number;
  resets_at: string | null;
  left_at_reset: number;
};

function toAllowance(quota: Quota): Allowance {
  return {
    availableNow: quota.left_now,
    usedToday: quota.used_today,
    totalLeft: quota.left_total,
    resetsAt: toIso(quota.resets_at),
    availableAtReset: quota.left_at_reset,
  };
}

/** The error for an unknown account, or an offering that is unknown or not for sale. */
export function notAssignable(): InputError {
  return new InputError("There is no such account, or no such offering for sale.", "offeringId");
}
