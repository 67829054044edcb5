import { eq, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { MONEY_NANO_USD_MAX, REASON_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing, IdleMoneyError } from "../platform/changes_store.ts";
import type { Tx } from "../platform/db.ts";
import { balanceEntries } from "../platform/schema_ledger.ts";

/**
 * Balances: top-ups, corrections, transfers, pay-as-you-go. The SQL functions in drizzle/0003_packages_and_balances.sql take
 * the accounts' locks. Callers check permissions.
 */

export type BalanceChange = {
  accountId: number;
  /** A top-up is above zero. A correction may be negative, but cannot take reserved money. */
  nanoUsd: bigint;
  kind: "top_up" | "correction" | "refund";
  reason: string | null;
  actorId: number | null;
};

/** Adds to a balance, or corrects it. Returns the new balance in nano-USD. Throws InputError. */
export async function addBalance(deps: ChangeDeps, change: BalanceChange): Promise<bigint> {
  return changing(deps, (tx) => addBalanceIn(tx, change));
}

/** The same in the caller's transaction. If it throws, roll back. */
export async function addBalanceIn(
  tx: Tx,
  { accountId, nanoUsd, kind, reason, actorId }: BalanceChange,
): Promise<bigint> {
  if (kind === "top_up" ? nanoUsd <= 0n : nanoUsd === 0n)
    throw new InputError("The amount must be above zero; only a correction may be negative.", "amountNanoUsd");
  if (nanoUsd > MONEY_NANO_USD_MAX || nanoUsd < -MONEY_NANO_USD_MAX) throw tooMuch();
  checkReason(reason);
  if (!isRowId(accountId)) throw noSuchAccount();
  const [row] = await withinRange(
    tx.execute<{ code: string | null; balance: string | null }>(sql`
      select * from add_balance(${accountId}::bigint, ${String(nanoUsd)}::text::bigint, ${kind}, ${reason}, ${actorId}::bigint)`),
  );
  if (row?.code === "idle") throw new IdleMoneyError(accountId);
  if (typeof row?.balance === "string") return BigInt(row.balance);
  const known = await tx.execute(sql`select 1 from balances where account_id = ${accountId}::bigint`);
  throw known.length === 0
    ? noSuchAccount()
    : new InputError("The available balance is smaller than that.", "amountNanoUsd");
}

export type Transfer = {
  fromId: number;
  toId: number;
  nanoUsd: bigint;
  reason: string | null;
  actorId: number | null;
};

/**
 * Moves money between balances: a reseller's top-up of its customer. Throws InputError, and insufficient_balance if the
 * payer's available balance does not cover it. Source: RES-3.
 */
export async function transferBalance(deps: ChangeDeps, transfer: Transfer): Promise<void> {
  return changing(deps, (tx) => transferIn(tx, transfer));
}

/** The same in the caller's transaction. If it throws, roll back. */
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
  if (row?.code === "idle") throw new IdleMoneyError(fromId);
  if (row?.code === "insufficient_balance")
    throw insufficientBalance("The payer's balance does not cover the amount.", row.free_nano_usd);
}

/** The newest entry of an account that is locked: the one just written. */
export async function lastEntryOf(tx: Tx, accountId: number): Promise<number> {
  const [row] = await tx
    .select({ id: sql<number>`max(${balanceEntries.id})`.mapWith(Number) })
    .from(balanceEntries)
    .where(eq(balanceEntries.accountId, accountId));
  return Number(row?.id);
}

/** Translates the table's check of the largest balance into an InputError. */
async function withinRange<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    throw constraintOf(error) === "balances_range" ? tooMuch() : error;
  }
}

/** Checks the reason of a transaction or a grant: one line. Throws InputError. */
export function checkReason(reason: string | null): void {
  if (reason !== null && (reason.length > REASON_CHARS_MAX || /[\p{Cc}\p{Cs}]/u.test(reason))) {
    throw new InputError(
      sentence("The reason must be one line of at most {reasonCharsMax} characters.", {
        reasonCharsMax: REASON_CHARS_MAX,
      }),
      "reason",
    );
  }
}

/**
 * Switches an account's pay-as-you-go. With `resellerId` that reseller does it and needs the permission. Throws InputError if
 * there is no such account or no permission. Source: PAY-5.
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
      return await setPaygIn(tx, accountId, enabled);
    }));
  if (!known) throw noSuchAccount();
}

/** The same in the caller's transaction, which checks the permission. False: there is no such account. */
export async function setPaygIn(tx: Tx, accountId: number, enabled: boolean): Promise<boolean> {
  const [row] = await tx.execute<{ known: boolean }>(sql`select set_payg(${accountId}::bigint, ${enabled}) as known`);
  return row?.known === true;
}

/** Locks the row, so that a permission is not used after it was withdrawn. */
async function checkPaygRight(tx: Tx, resellerId: number): Promise<void> {
  const [row] = await tx.execute<{ granted: boolean }>(
    sql`select may_switch_payg as granted from accounts where id = ${resellerId}::bigint for share`,
  );
  if (row?.granted !== true)
    throw new InputError("You may not switch pay-as-you-go: ask the operator to do it, or for the permission.");
}

/** The constraint that a write violated. Drizzle wraps Postgres's error as the cause. */
function constraintOf(error: unknown): string | undefined {
  const cause = error instanceof Error ? error.cause : undefined;
  if (typeof cause !== "object" || cause === null || !("constraint_name" in cause)) return undefined;
  return String(cause.constraint_name);
}

function noSuchAccount(): InputError {
  return new InputError("There is no such account.", "accountId");
}

/** The error for a payer whose available balance is too small. */
export function insufficientBalance(message: string, freeNanoUsd: string | null): Refusal {
  return new Refusal("insufficient_balance", {
    message,
    ...(freeNanoUsd !== null && { remaining: Number(freeNanoUsd) }),
  });
}

function tooMuch(): InputError {
  return new InputError("A balance may hold at most $9,000,000.", "amountNanoUsd");
}
