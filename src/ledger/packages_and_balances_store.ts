import { eq, sql } from "drizzle-orm";
import { isRowId } from "../accounts/checks.ts";
import { InputError, Refusal } from "../errors.ts";
import { MONEY_NANO_USD_MAX, REASON_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { packages } from "../platform/schema.ts";
import { notAssignable, type Package, selectPackages } from "./holdings_store.ts";

/**
 * The books: packages and balances as people change and read them, over the SQL functions in drizzle/0001_ledger.sql,
 * which take the accounts' locks and read the database's clock. Who may do what is the caller's to decide.
 */

/** How far ahead receipt months are looked for. */
const MONTHS_AHEAD_MAX = 24;

/** The account of a package, as far as it decides who pays. */
export type Owner = { accountId: number; role: "customer" | "reseller" | "admin"; resellerId: number | null };
export type PayWith = "balance" | "allotment" | "operator";
/** Whose balance pays the wholesale price, or whose allotment gives a piece; null: the operator. */
export type Payer = { payerId: number | null; fromAllotment: boolean };

/**
 * Who pays for a package. A reseller pays for its customers and for itself; nothing is handed out for free by accident.
 * Throws InputError. Source: rulings › Resellers.
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
  /** `now`: takes over at once, what was left of the active package is dropped. `after`: behind all others. */
  when: "now" | "after";
  /** Whose balance pays the wholesale price; null: the operator gives it. */
  payerId: number | null;
  /** The payer gives a piece of its allotment instead. */
  fromAllotment?: boolean;
  actorId: number | null;
};

/**
 * Assigns an offering to an account. Throws InputError (an allotment that is used up included), and insufficient_balance if
 * the payer's free balance does not cover the wholesale price. Source: rulings › Which entitlement pays, Resellers.
 */
export async function assignPackage(deps: ChangeDeps, assignment: Assignment): Promise<Package> {
  return changing(deps, (tx) => assignIn(tx, assignment));
}

/** The same inside a transaction, which must be rolled back if it throws. */
export async function assignIn(
  tx: Tx,
  { accountId, offeringId, when, payerId, fromAllotment = false, actorId }: Assignment,
): Promise<Package> {
  if (!isRowId(accountId) || !isRowId(offeringId)) throw notAssignable();
  const [row] = await tx.execute<{
    code: string | null;
    package_id: string | null;
    free_nano_usd: string | null;
  }>(sql`
    select * from assign_package(${accountId}::bigint, ${offeringId}::bigint, ${when}, ${payerId}::bigint, ${actorId}::bigint,
      ${fromAllotment})`);
  if (row?.code === "insufficient_balance")
    throw tooLittle("The payer's balance does not cover the wholesale price.", row.free_nano_usd);
  if (row?.code === "allotment_used_up")
    throw new InputError("No piece of this offering is left in the reseller's allotment.", "payWith");
  if (row?.code === "not_found") throw notAssignable();
  const [assigned] = await selectPackages(tx, eq(packages.id, Number(row?.package_id)));
  if (!assigned) throw new Error(`assign_package answered ${row?.code}`);
  return assigned;
}

/** Ends an active or queued package now; those behind it move up. Throws InputError if there is none such. */
export async function endPackage(
  deps: ChangeDeps,
  { accountId, packageId }: { accountId: number; packageId: number },
): Promise<Package> {
  return changing(deps, async (tx) => {
    const [row] = await tx.execute<{ ended: boolean }>(
      sql`select end_package(${accountId}::bigint, ${packageId}::bigint) as ended`,
    );
    const [ended] = row?.ended ? await selectPackages(tx, eq(packages.id, packageId)) : [];
    if (!ended) throw new InputError("There is no such package, or it has ended.", "packageId");
    return ended;
  });
}

/** An account's packages, the latest first. */
export async function listPackages({ db }: { db: Db }, accountId: number): Promise<Package[]> {
  return isRowId(accountId) ? selectPackages(db.orm, eq(packages.accountId, accountId)) : [];
}

/** One package by its id. */
export async function findPackage({ db }: { db: Db }, packageId: number): Promise<Package | undefined> {
  return isRowId(packageId) ? (await selectPackages(db.orm, eq(packages.id, packageId)))[0] : undefined;
}

export type BalanceChange = {
  accountId: number;
  /** Above zero for a top-up; a correction may take away, but never what is held. */
  nanoUsd: bigint;
  kind: "top_up" | "correction";
  reason: string | null;
  actorId: number | null;
};

/** Adds to a balance, or corrects it. Returns the new balance in nano-USD. Throws InputError. */
export async function addBalance(deps: ChangeDeps, change: BalanceChange): Promise<bigint> {
  return changing(deps, (tx) => addBalanceIn(tx, change));
}

/** The same inside a transaction, which must be rolled back if it throws. */
export async function addBalanceIn(
  tx: Tx,
  { accountId, nanoUsd, kind, reason, actorId }: BalanceChange,
): Promise<bigint> {
  if (kind === "top_up" ? nanoUsd <= 0n : nanoUsd === 0n)
    throw new InputError("The amount must be above zero; only a correction takes away.", "amountNanoUsd");
  if (nanoUsd > MONEY_NANO_USD_MAX || nanoUsd < -MONEY_NANO_USD_MAX) throw tooMuch();
  checkReason(reason);
  if (!isRowId(accountId)) throw noSuchAccount();
  const [row] = await withinRange(
    tx.execute<{ balance: string | null }>(sql`
      select add_balance(${accountId}::bigint, ${String(nanoUsd)}::text::bigint, ${kind}, ${reason}, ${actorId}::bigint) as balance`),
  );
  if (typeof row?.balance === "string") return BigInt(row.balance);
  const known = await tx.execute(sql`select 1 from balances where account_id = ${accountId}::bigint`);
  throw known.length === 0
    ? noSuchAccount()
    : new InputError("The balance is smaller than that, or holds of live requests need it.", "amountNanoUsd");
}

export type Transfer = {
  fromId: number;
  toId: number;
  nanoUsd: bigint;
  reason: string | null;
  actorId: number | null;
};

/**
 * Moves money from one balance to another: a reseller's top-up of its customer. Throws InputError, and insufficient_balance
 * if the payer's free balance does not cover it. Source: rulings › Resellers.
 */
export async function transferBalance(deps: ChangeDeps, transfer: Transfer): Promise<void> {
  return changing(deps, (tx) => transferIn(tx, transfer));
}

/** The same inside a transaction, which must be rolled back if it throws. */
export async function transferIn(tx: Tx, { fromId, toId, nanoUsd, reason, actorId }: Transfer): Promise<void> {
  if (nanoUsd <= 0n) throw new InputError("The amount must be above zero.", "amountNanoUsd");
  if (nanoUsd > MONEY_NANO_USD_MAX) throw tooMuch();
  checkReason(reason);
  if (!isRowId(fromId) || !isRowId(toId)) throw noSuchAccount();
  const [row] = await withinRange(
    tx.execute<{ code: string | null; free_nano_usd: string | null }>(sql`
      select * from transfer_balance(${fromId}::bigint, ${toId}::bigint, ${String(nanoUsd)}::text::bigint, ${reason}, ${actorId}::bigint)`),
  );
  if (row?.code === "not_found") throw noSuchAccount();
  if (row?.code === "insufficient_balance")
    throw tooLittle("The payer's balance does not cover the amount.", row.free_nano_usd);
}

/** An amount's own limits are checked before; past what a balance may hold, the table's check refuses. */
async function withinRange<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw constraintOf(error) === "balances_range" ? tooMuch() : error;
  }
}

/** Why money moved, or pieces were granted: one line. Throws InputError. */
export function checkReason(reason: string | null): void {
  if (reason !== null && (reason.length > REASON_CHARS_MAX || /[\p{Cc}\p{Cs}]/u.test(reason))) {
    throw new InputError(`The reason must be one line of at most ${REASON_CHARS_MAX} characters.`, "reason");
  }
}

/**
 * Lets an account pay by balance, or no more. With `resellerId` it is that reseller who does it, and needs the right to. Throws
 * InputError if there is no such account, or no such right. Source: contract › Limits, PAYG.
 */
export async function setPayg(
  deps: ChangeDeps,
  accountId: number,
  enabled: boolean,
  resellerId?: number,
): Promise<void> {
  const known =
    isRowId(accountId) &&
    (await changing(deps, async (tx) => {
      if (resellerId !== undefined) await checkPaygRight(tx, resellerId);
      const [row] = await tx.execute<{ known: boolean }>(
        sql`select set_payg(${accountId}::bigint, ${enabled}) as known`,
      );
      return row?.known === true;
    }));
  if (!known) throw noSuchAccount();
}

/** The row is locked, so that a right that is withdrawn at the same moment is not used after. */
async function checkPaygRight(tx: Tx, resellerId: number): Promise<void> {
  const [row] = await tx.execute<{ granted: boolean }>(
    sql`select may_switch_payg as granted from accounts where id = ${resellerId}::bigint for share`,
  );
  if (row?.granted !== true)
    throw new InputError("You may not switch pay-as-you-go: ask the operator to do it, or for the right to.");
}

/** How many months after this one have their partition of receipts, without a gap. */
export async function receiptMonthsAhead({ db }: { db: Db }): Promise<number> {
  const [row] = await db.orm.execute<{ months: number }>(sql`
    select coalesce(min(n) - 1, ${MONTHS_AHEAD_MAX})::int as months from generate_series(1, ${MONTHS_AHEAD_MAX}) as n
    where to_regclass('receipts_' || to_char(
      date_trunc('month', ledger_now() at time zone 'UTC') + make_interval(months => n), 'YYYY_MM')) is null`);
  return Number(row?.months);
}

/** The constraint that a write would have broken; drizzle keeps Postgres's error as the cause. */
function constraintOf(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined;
  if (typeof cause !== "object" || cause === null || !("constraint_name" in cause)) return undefined;
  return String(cause.constraint_name);
}

function noSuchAccount(): InputError {
  return new InputError("There is no such account.", "accountId");
}

function tooLittle(message: string, freeNanoUsd: string | null): Refusal {
  return new Refusal("insufficient_balance", {
    message,
    ...(freeNanoUsd !== null && { remaining: Number(freeNanoUsd) }),
  });
}

function tooMuch(): InputError {
  return new InputError("A balance may hold at most $9,000,000.", "amountNanoUsd");
}
