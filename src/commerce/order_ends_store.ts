import { and, eq, inArray, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { autoTopUps, cardCharges, renewals } from "../platform/schema_renewals.ts";

/**
 * What follows for a charge to a card, and for the renewal or automatic top-up it belongs to, when an order is paid, fulfilled or ended. Called in the transaction
 * that does it, under the order's lock. Source: CRD-4, REN-5.
 */

/** While Stripe is asked to charge a card, nobody may pay in another way, or end the order. Throws InputError. */
export async function requireNotCharging(tx: Tx, orderId: number): Promise<void> {
  const charging = and(eq(cardCharges.orderId, orderId), eq(cardCharges.status, "charging"));
  const [row] = await tx.select({ id: cardCharges.orderId }).from(cardCharges).where(charging).for("update");
  if (row) throw new InputError("The card on file is being charged right now. Nothing was changed. Try again shortly.");
}

/** The person pays on the order's page: from now on nothing is charged automatically. Throws InputError. */
export async function leaveToPerson(tx: Tx, orderId: number): Promise<void> {
  await requireNotCharging(tx, orderId);
  const isDue = and(eq(cardCharges.orderId, orderId), eq(cardCharges.status, "due"));
  await tx.update(cardCharges).set({ status: "person" }).where(isDue);
}

export async function chargePaid(tx: Tx, orderId: number): Promise<void> {
  await tx.update(cardCharges).set({ status: "paid", problem: null }).where(eq(cardCharges.orderId, orderId));
}

/** An order was fulfilled: the renewal or the automatic top-up that placed it is done, and a new package renews in turn. */
export async function orderFulfilled(
  tx: Tx,
  { orderId, packageId, priceNanoUsd }: { orderId: number; packageId: number | null; priceNanoUsd: bigint | null },
): Promise<void> {
  // The next one may begin.
  await tx.update(autoTopUps).set({ orderId: null }).where(eq(autoTopUps.orderId, orderId));
  if (packageId === null || priceNanoUsd === null) return;
  const [done] = await tx
    .update(renewals)
    .set({
      ...{ status: "done", newPackageId: packageId, paidNanoUsd: priceNanoUsd, problem: null },
      endedAt: sql`clock_timestamp()`,
    })
    .where(eq(renewals.orderId, orderId))
    .returning();
  if (done) await renewNext(tx, done);
}

type Renewed = Pick<typeof renewals.$inferSelect, "accountId" | "source" | "continues" | "newPackageId">;

/** The package that a renewal became renews in turn, unless the customer has cancelled that meanwhile. */
export async function renewNext(tx: Tx, { accountId, source, continues, newPackageId }: Renewed): Promise<void> {
  if (!continues || newPackageId === null) return;
  await tx.insert(renewals).values({ packageId: newPackageId, accountId, source }).onConflictDoNothing();
}

/** An order was withdrawn, declined, or refunded instead of fulfilled: nothing is charged for it, and it renews nothing. */
export async function orderEnded(tx: Tx, orderId: number): Promise<void> {
  const open = and(eq(cardCharges.orderId, orderId), inArray(cardCharges.status, ["due", "person"]));
  await tx.update(cardCharges).set({ status: "failed", problem: "withdrawn" }).where(open);
  await tx
    .update(renewals)
    .set({ status: "cancelled", endedAt: sql`clock_timestamp()` })
    .where(and(eq(renewals.orderId, orderId), eq(renewals.status, "ordered")));
  await tx
    .update(autoTopUps)
    .set({ orderId: null, status: "paused", problem: "withdrawn" })
    .where(eq(autoTopUps.orderId, orderId));
}

/** Automatic top-ups failed: they wait for the customer, who is told. Source: ATU-4. */
export async function pauseTopUp(
  tx: Tx,
  accountId: number,
  problem: NonNullable<(typeof autoTopUps.$inferSelect)["problem"]>,
): Promise<void> {
  const [paused] = await tx
    .update(autoTopUps)
    .set({ status: "paused", problem, orderId: null, updatedAt: sql`clock_timestamp()` })
    .where(eq(autoTopUps.accountId, accountId))
    .returning();
  if (!paused) return;
  const amountNanoUsd = String(paused.amountNanoUsd);
  await tell(tx, { kind: "auto_top_up_failed", accountId, data: { amountNanoUsd, problem } });
}
