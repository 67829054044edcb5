import { and, eq, sql } from "drizzle-orm";
import { lockAccounts } from "../accounts/locks_store.ts";
import { InputError, sentence } from "../errors.ts";
import type { Package } from "../ledger/packages_store.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { voucherBatches, voucherProblems, vouchers, voucherUses } from "../platform/schema_vouchers.ts";
import { giveIn, type UnpaidWhy, whyNotPaid } from "./giving_store.ts";
import { findSellerOf } from "./sellers_store.ts";
import { digestOfVoucher } from "./voucher_codes.ts";

/**
 * Redeems vouchers: one transaction takes a use of the code and hands out the package or the amount. If two redeem the
 * last use concurrently, the second waits for the first and is refused. Source: VOU-3, VOU-4, VOU-5.
 */

export type Redemption = {
  voucherId: number;
  /** null: the code was for an amount. */
  package: Package | null;
  amountNanoUsd: bigint | null;
};

/** The seller cannot pay for what the code is for. Rolls back, so that the code stays unused. */
class UnpaidError extends Error {
  override readonly name = "UnpaidError";
  readonly batchId: number;
  readonly why: UnpaidWhy;

  constructor(batchId: number, why: UnpaidWhy, cause: unknown) {
    super(`a voucher of batch ${batchId} cannot be paid: ${why}`, { cause });
    this.batchId = batchId;
    this.why = why;
  }
}

/**
 * Redeems a code for an account. `unknown`: no such code, or one of a seller who does not sell to this account. Throws InputError with
 * `code` if it has ended, was disabled, was redeemed before, or cannot be paid by its seller; then nothing was changed.
 */
export async function redeemVoucher(
  deps: ChangeDeps,
  { accountId, code }: { accountId: number; code: string },
): Promise<Redemption | "unknown"> {
  const digest = digestOfVoucher(code);
  if (digest === undefined) return "unknown";
  const actorId = deps.by?.accountId ?? null;
  try {
    return await changing(deps, (tx) => redeemIn(tx, { accountId, digest, actorId }));
  } catch (error) {
    if (!(error instanceof UnpaidError)) throw error;
    await noteProblem(deps, error);
    // The customer must not learn the seller's balance or prices.
    throw new InputError(
      "The voucher is valid, but cannot be redeemed right now. It stays unused. Try again later, or ask whoever sold it.",
      "code",
    );
  }
}

type Redeeming = { accountId: number; digest: Buffer; actorId: number | null };

async function redeemIn(tx: Tx, { accountId, digest, actorId }: Redeeming): Promise<Redemption | "unknown"> {
  const found = await findCode(tx, { accountId, digest });
  if (found === undefined) return "unknown";
  const { voucherId, batchId } = found;
  // These states are final, so they are reported without waiting for the seller's lock. They are checked again under
  // the locks.
  if (found.isOver) throw await whyNot(tx, batchId);
  const payerId = found.payWith === "operator" ? null : found.sellerId;
  // The accounts' locks come before rows, always in this order.
  await lockAccounts(tx, payerId === null ? [accountId] : [accountId, payerId]);
  await takeUse(tx, { voucherId, batchId, accountId });
  const given = await hand(tx, { ...found, accountId, payerId, actorId });
  await tx.insert(voucherUses).values({ voucherId, batchId, accountId, packageId: given?.packageId ?? null });
  return { voucherId, package: given, amountNanoUsd: found.amountNanoUsd };
}

type Found = NonNullable<Awaited<ReturnType<typeof findCode>>>;

/** The code of a seller who sells to this account. */
async function findCode(tx: Tx, { accountId, digest }: { accountId: number; digest: Buffer }) {
  const sellerId = await findSellerOf(tx, accountId);
  if (sellerId === null) return undefined;
  const [row] = await tx
    .select({
      voucherId: vouchers.id,
      batchId: voucherBatches.id,
      sellerId: voucherBatches.sellerId,
      offeringId: voucherBatches.offeringId,
      amountNanoUsd: voucherBatches.amountNanoUsd,
      payWith: voucherBatches.payWith,
      isOver: sql<boolean>`${voucherBatches.disabledAt} is not null or ${voucherBatches.endsAt} <= ledger_now()
        or (${vouchers.used} >= ${vouchers.usesMax} and not exists (
          select from ${voucherUses} where ${voucherUses.voucherId} = ${vouchers.id} and ${voucherUses.accountId} = ${accountId}::bigint))`,
    })
    .from(vouchers)
    .innerJoin(voucherBatches, eq(voucherBatches.id, vouchers.batchId))
    .where(and(eq(vouchers.digest, digest), eq(voucherBatches.sellerId, sellerId)));
  return row;
}

/** Takes one use of the batch, then of the code, always in this order. Throws InputError. */
async function takeUse(
  tx: Tx,
  { voucherId, batchId, accountId }: { voucherId: number; batchId: number; accountId: number },
): Promise<void> {
  // Under the account's lock, so that concurrent attempts of an account run one after the other.
  const before = await tx
    .select({ id: voucherUses.id })
    .from(voucherUses)
    .where(and(eq(voucherUses.voucherId, voucherId), eq(voucherUses.accountId, accountId)));
  if (before.length > 0) throw new InputError("You have already redeemed this voucher.", "code");
  const inBatch = await tx
    .update(voucherBatches)
    .set({ used: sql`${voucherBatches.used} + 1` })
    .where(
      and(
        eq(voucherBatches.id, batchId),
        sql`${voucherBatches.disabledAt} is null and ${voucherBatches.endsAt} > ledger_now()
          and ${voucherBatches.used} < ${voucherBatches.codes}::bigint * ${voucherBatches.usesPerCode}`,
      ),
    )
    .returning({ id: voucherBatches.id });
  if (inBatch.length === 0) throw await whyNot(tx, batchId);
  const taken = await tx
    .update(vouchers)
    .set({ used: sql`${vouchers.used} + 1` })
    .where(and(eq(vouchers.id, voucherId), sql`${vouchers.used} < ${vouchers.usesMax}`))
    .returning({ id: vouchers.id });
  if (taken.length === 0) throw usedUp();
}

async function whyNot(tx: Tx, batchId: number): Promise<InputError> {
  const [batch] = await tx
    .select({
      isDisabled: sql<boolean>`${voucherBatches.disabledAt} is not null`,
      hasEnded: sql<boolean>`${voucherBatches.endsAt} <= ledger_now()`,
      endsAt: voucherBatches.endsAt,
    })
    .from(voucherBatches)
    .where(eq(voucherBatches.id, batchId));
  if (batch?.isDisabled) return new InputError("This voucher was withdrawn by its seller.", "code");
  if (batch?.hasEnded)
    return new InputError(
      sentence("This voucher ended on {endsAt}.", { endsAt: toIso(batch.endsAt).slice(0, 10) }),
      "code",
    );
  return usedUp();
}

function usedUp(): InputError {
  return new InputError("This voucher has already been redeemed.", "code");
}

type Handing = Found & { accountId: number; payerId: number | null; actorId: number | null };

/**
 * Hands out the package or the amount. A package follows all others, so that redeeming drops none. Throws UnpaidError,
 * InputError.
 */
async function hand(tx: Tx, given: Handing): Promise<Package | null> {
  const { accountId, payerId, actorId, offeringId, amountNanoUsd, batchId, payWith } = given;
  const fromAllotment = payWith === "allotment";
  try {
    const reason = `voucher ${given.voucherId}`;
    return await giveIn(tx, { accountId, payerId, actorId, offeringId, amountNanoUsd, fromAllotment, reason });
  } catch (error) {
    const why = whyNotPaid(error);
    if (why !== undefined) throw new UnpaidError(batchId, why, error);
    if (!(error instanceof InputError)) throw error;
    // The balance would exceed its limit.
    throw new InputError(error.message, "code");
  }
}

/** Tells the seller, in a separate transaction, because that of the redemption was rolled back. */
async function noteProblem({ db }: { db: Db }, { batchId, why }: UnpaidError): Promise<void> {
  await db.orm
    .insert(voucherProblems)
    .values({ batchId, why })
    .onConflictDoUpdate({
      target: voucherProblems.batchId,
      set: { why, count: sql`${voucherProblems.count} + 1`, lastAt: sql`clock_timestamp()` },
    });
}
