import { eq, type SQLWrapper, sql } from "drizzle-orm";
import { addBalanceIn, insufficientBalance, lastEntryOf } from "../ledger/balances_store.ts";
import { IdleMoneyError } from "../platform/changes_store.ts";
import type { Tx } from "../platform/db.ts";
import { balanceEntries } from "../platform/schema_ledger.ts";
import { orders } from "../platform/schema_offerings.ts";
import type { Order } from "./orders_store.ts";

/**
 * The balance's side of a refund: a top-up is taken back from the balance, and returned to it if the refund fails. The entries say
 * between whom the money moved, not the order's seller: an admin may have paid a reseller's order for the operator.
 * Source: BUY-6, BUY-10.
 */

export type Taking = {
  worthNanoUsd: bigint;
  reason: string | null;
  actorId: number | null;
  /** true: takes only what is available. false: takes everything, or nothing and throws insufficient_balance. */
  isPartial?: boolean;
};

/** `entryId`: the entry of the customer's balance; null: nothing was taken. */
export type Taken = { entryId: number | null; takenNanoUsd: bigint };

/**
 * Takes a top-up back from the customer's balance, and returns it to the reseller that it came from. The accounts are locked. Throws
 * insufficient_balance, IdleMoneyError.
 */
export async function takeTopUp(
  tx: Tx,
  { orderId, reference, account }: Order,
  { worthNanoUsd, reason, actorId, isPartial = false }: Taking,
): Promise<Taken> {
  // A part of a large total in a small unit may be worth less than the smallest amount of the ledger.
  if (worthNanoUsd === 0n) return { entryId: null, takenNanoUsd: 0n };
  const topUpId = tx.select({ id: orders.entryId }).from(orders).where(eq(orders.id, orderId));
  const to = await otherSideOf(tx, topUpId);
  const said = reason ?? `order ${reference}`;
  const row = await refundBalance(
    tx,
    sql`
    ${account.accountId}::bigint, ${to}::bigint, ${String(worthNanoUsd)}::text::bigint, ${said}, ${actorId}::bigint, ${isPartial}`,
  );
  if (row.code === "idle") throw new IdleMoneyError(account.accountId);
  if (row.code === "insufficient_balance")
    throw insufficientBalance("The customer's available balance is smaller than the refund.", row.free_nano_usd);
  if (row.code !== null) throw new Error(`refund_balance answered ${row.code}`);
  return { entryId: row.entry_id === null ? null : Number(row.entry_id), takenNanoUsd: BigInt(row.taken_nano_usd) };
}

/**
 * Returns to the customer what a failed refund had taken, from the reseller's balance if it went there. `entryId`: the refund's.
 * Returns the new entry's id. Throws insufficient_balance, IdleMoneyError.
 */
export async function giveTopUpAgain(
  tx: Tx,
  order: Order,
  { refundId, entryId, takenNanoUsd }: { refundId: number; entryId: number; takenNanoUsd: bigint },
): Promise<number> {
  const { accountId } = order.account;
  const reason = `refund ${refundId} failed`;
  const from = await otherSideOf(tx, entryId);
  if (from === null)
    await addBalanceIn(tx, { accountId, nanoUsd: takenNanoUsd, kind: "refund", reason, actorId: null });
  else {
    const row = await refundBalance(
      tx,
      sql`
      ${from}::bigint, ${accountId}::bigint, ${String(takenNanoUsd)}::text::bigint, ${reason}, null`,
    );
    if (row.code === "idle") throw new IdleMoneyError(from);
    if (row.code === "insufficient_balance")
      throw insufficientBalance("The reseller's available balance is smaller than the refund.", row.free_nano_usd);
    if (row.code !== null) throw new Error(`refund_balance answered ${row.code}`);
  }
  return await lastEntryOf(tx, accountId);
}

/** The reseller on the other side of an entry of a customer's balance; null: the operator. */
async function otherSideOf(tx: Tx, entryId: number | SQLWrapper): Promise<number | null> {
  const [entry] = await tx
    .select({ resellerId: balanceEntries.counterpartId })
    .from(balanceEntries)
    .where(eq(balanceEntries.id, entryId));
  if (!entry) throw new Error("a top-up or its refund has no entry");
  return entry.resellerId;
}

type Row = { code: string | null; entry_id: string | null; free_nano_usd: string | null; taken_nano_usd: string };

async function refundBalance(tx: Tx, args: ReturnType<typeof sql>): Promise<Row> {
  const [row] = await tx.execute<Row>(sql`select * from refund_balance(${args})`);
  if (!row) throw new Error("refund_balance answered nothing");
  return row;
}
