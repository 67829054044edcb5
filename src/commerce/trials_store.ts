import { and, eq, lte, sql } from "drizzle-orm";
import { lockAccounts } from "../accounts/locks_store.ts";
import { InputError } from "../errors.ts";
import { setPaygIn } from "../ledger/balances_store.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db } from "../platform/db.ts";
import { signedUp } from "../platform/schema_sign_up.ts";
import { giveIn, whyNotPaid } from "./giving_store.ts";
import { OPERATOR } from "./sellers_store.ts";
import { maySwitchPayg } from "./sign_up_settings_store.ts";

/**
 * Trials: what a seller gives to those who sign up, once a person. They wait until their seller can pay for them, as paid orders do.
 * Source: SUP-6, SUP-7.
 */

/** A trial that its seller could not pay is tried again after this. */
const PAUSE_MINUTES = 10;

/** Why a trial waits. `payg`: its amount would pay for nothing, because the seller may no longer enable pay-as-you-go. */
export type TrialWhy = NonNullable<(typeof signedUp.$inferSelect)["trialWhy"]>;

/** Rolls back, so that the trial waits. */
class WaitsError extends Error {
  override readonly name = "WaitsError";
  readonly why: TrialWhy;

  constructor(why: TrialWhy, cause?: unknown) {
    super(`a trial waits: ${why}`, { cause });
    this.why = why;
  }
}

/** Gives an account the trial that it waits for. Does nothing if it waits for none. Concurrent calls give it once. */
export async function giveTrial(deps: ChangeDeps, accountId: number): Promise<void> {
  try {
    await changing(deps, async (tx) => {
      const mine = and(eq(signedUp.accountId, accountId), eq(signedUp.trial, "waits"));
      const [seller] = await tx.select({ sellerId: signedUp.sellerId }).from(signedUp).where(mine);
      if (!seller) return;
      const payerId = seller.sellerId === OPERATOR ? null : seller.sellerId;
      // The accounts' locks come before rows, always in this order.
      await lockAccounts(tx, payerId === null ? [accountId] : [accountId, payerId]);
      const [trial] = await tx.select().from(signedUp).where(mine).for("update");
      if (!trial) return;
      const { trialOfferingId: offeringId, trialNanoUsd: amountNanoUsd, trialPayWith } = trial;
      if (amountNanoUsd !== null && !(await maySwitchPayg(tx, trial.sellerId))) throw new WaitsError("payg");
      const given = { offeringId, amountNanoUsd, fromAllotment: trialPayWith === "allotment" };
      await giveIn(tx, { ...given, accountId, payerId, actorId: null, reason: "trial" }).catch(waitsFor);
      if (amountNanoUsd !== null) await setPaygIn(tx, accountId, true);
      await tx
        .update(signedUp)
        .set({ trial: "given", trialGivenAt: sql`clock_timestamp()`, trialWhy: null })
        .where(mine);
    });
  } catch (error) {
    if (!(error instanceof WaitsError)) throw error;
    // In a separate transaction, because that of the gift was rolled back.
    await deps.db.orm
      .update(signedUp)
      .set({ trialWhy: error.why, trialTryAt: sql`clock_timestamp() + make_interval(mins => ${PAUSE_MINUTES})` })
      .where(and(eq(signedUp.accountId, accountId), eq(signedUp.trial, "waits")));
  }
}

function waitsFor(error: unknown): never {
  const why = whyNotPaid(error);
  if (why !== undefined) throw new WaitsError(why, error);
  // The balance would exceed its limit, which a new account cannot reach.
  throw error instanceof InputError ? new WaitsError("balance", error) : error;
}

/**
 * Gives trials that wait and are due, at most `trialsMax`. One that fails does not stop the others. Returns how many were tried.
 */
export async function giveWaitingTrials(
  deps: ChangeDeps & { db: Db },
  { trialsMax, onFailure }: { trialsMax: number; onFailure: (error: unknown, accountId: number) => void },
): Promise<number> {
  const due = await deps.db.orm
    .select({ accountId: signedUp.accountId })
    .from(signedUp)
    .where(and(eq(signedUp.trial, "waits"), lte(signedUp.trialTryAt, sql`clock_timestamp()`)))
    .orderBy(signedUp.trialTryAt)
    .limit(trialsMax);
  for (const { accountId } of due) await giveTrial(deps, accountId).catch((error) => onFailure(error, accountId));
  return due.length;
}

/** How many trials of a seller wait. */
export async function waitingTrials({ db }: { db: Db }, sellerId: number): Promise<number> {
  return db.orm.$count(signedUp, and(eq(signedUp.sellerId, sellerId), eq(signedUp.trial, "waits")));
}
