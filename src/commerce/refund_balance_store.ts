import { sql } from "drizzle-orm";
import { addBalanceIn, insufficientBalance, lastEntryOf } from "../ledger/balances_store.ts";
import { IdleMoneyError } from "../platform/changes_store.ts";
import type { Tx } from "../platform/db.ts";
import type { Order } from "./orders_store.ts";
import { OPERATOR } from "./sellers_store.ts";

/**
 * The balance's side of a refund: a top-up is taken back from the balance, and returned to it if the refund fails.
 * Source: BUY-6, BUY-10.
 */

export type Taking = {
  amountNano: bigint;
  reason: string | null;
  actorId: number | null;
  /** true: takes only what is available. false: takes everything, or nothing and throws insufficient_balance. */
  isPartial?: boolean;
};

/** `entryId`: the entry of the customer's balance; null: nothing was taken. */
export type Taken = { entryId: number | null; takenNano: bigint };

/**
 * Takes a top-up back from the customer's balance, and returns it to the reseller that it came from. The accounts are
 * locked. Throws
 * insufficient_balance, IdleMoneyError.
 */
export async function takeTopUp(
  tx: Tx,
  { reference, account, sellerId }: Order,
  { amountNano, reason, actorId, isPartial = false }: Taking,
): Promise<Taken> {
  const to = sellerId === OPERATOR ? null : sellerId;
  const said = reason ?? `order ${reference}`;
  const row = await refundBalance(
    tx,
    sql`
    ${account.accountId}::bigint, ${to}::bigint, ${String(amountNano)}::text::bigint, ${said}, ${actorId}::bigint, ${isPartial}`,
  );
  if (row.code === "idle") throw new IdleMoneyError(account.accountId);
  if (row.code === "insufficient_balance")
    throw insufficientBalance("The customer's available balance is smaller than the refund.", row.free_nano_usd);
  if (row.code !== null) throw new Error(`refund_balance answered ${row.code}`);
  return { entryId: row.entry_id === null ? null : Number(row.entry_id), takenNano: BigInt(row.taken_nano_usd) };
}

/**
 * Returns to the customer what a failed refund had taken, from the reseller's balance if it went there. Returns the
 * entry's id. Throws
 * insufficient_balance, IdleMoneyError.
 */
export async function giveTopUpAgain(
  tx: Tx,
  order: Order,
  { refundId, takenNano }: { refundId: number; takenNano: bigint },
): Promise<number> {
  const { accountId } = order.account;
  const reason = `refund ${refundId} failed`;
  if (order.sellerId === OPERATOR)
    await addBalanceIn(tx, { accountId, nanoUsd: takenNano, kind: "refund", reason, actorId: null });
  else {
    const row = await refundBalance(
      tx,
      sql`
      ${order.sellerId}::bigint, ${accountId}::bigint, ${String(takenNano)}::text::bigint, ${reason}, null`,
    );
    if (row.code === "idle") throw new IdleMoneyError(order.sellerId);
    if (row.code === "insufficient_balance")
      throw insufficientBalance("The reseller's available balance is smaller than the refund.", row.free_nano_usd);
    if (row.code !== null) throw new Error(`refund_balance answered ${row.code}`);
  }
  return await lastEntryOf(tx, accountId);
}

type Row = { code: string | null; entry_id: string | null; free_nano_usd: string | null; taken_nano_usd: string };

async function refundBalance(tx: Tx, args: ReturnType<typeof sql>): Promise<Row> {
  const [row] = await tx.execute<Row>(sql`select * from refund_balance(${args})`);
  if (!row) throw new Error("refund_balance answered nothing");
  return row;
}
