import { InputError, Refusal } from "../errors.ts";
import { addBalanceIn, transferIn } from "../ledger/balances_store.ts";
import { assignIn, type Package } from "../ledger/packages_store.ts";
import type { Tx } from "../platform/db.ts";

/** What a seller gives without an order, for a voucher or as a trial: a package or an amount, which a reseller pays. Source: RES-1. */

export type Gift = {
  accountId: number;
  /** The reseller that pays; null: the operator, who pays nobody. */
  payerId: number | null;
  /** One of the two. */
  offeringId: number | null;
  amountNanoUsd: bigint | null;
  /** The package is paid with a piece of the allotment. */
  fromAllotment: boolean;
  reason: string;
  actorId: number | null;
};

/** What the seller lacks. */
export type UnpaidWhy = "balance" | "allotment" | "offering";

/**
 * Gives it in the caller's transaction. A package follows all others, so that nothing is dropped. Throws insufficient_balance, InputError;
 * then roll back.
 */
export async function giveIn(tx: Tx, gift: Gift): Promise<Package | null> {
  const { accountId, payerId, offeringId, fromAllotment, reason, actorId } = gift;
  if (offeringId !== null)
    return await assignIn(tx, { accountId, offeringId, when: "after", payerId, fromAllotment, reason, actorId });
  const nanoUsd = gift.amountNanoUsd ?? 0n;
  if (payerId === null) await addBalanceIn(tx, { accountId, nanoUsd, kind: "top_up", reason, actorId });
  else await transferIn(tx, { fromId: payerId, toId: accountId, nanoUsd, reason, actorId });
  return null;
}

/** Why the seller cannot give it, if that is what an error of `giveIn` says. */
export function whyNotPaid(error: unknown): UnpaidWhy | undefined {
  if (error instanceof Refusal && error.code === "insufficient_balance") return "balance";
  if (!(error instanceof InputError)) return undefined;
  if (error.param === "payWith") return "allotment";
  return error.param === "offeringId" ? "offering" : undefined;
}
