import { and, eq, inArray } from "drizzle-orm";
import type { ChangeDeps } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { disputes } from "../platform/schema_payments.ts";
import { factsOfOrder, type Order } from "./orders_store.ts";
import type { PaymentRow } from "./refunds_store.ts";
import { stopAutomatic } from "./renewals_store.ts";
import { isReversed, recordReversal, takeBackReversal, withPayment } from "./reversals_store.ts";

/** Payments that customers dispute at their banks. The seller answers in Stripe's dashboard. Source: BUY-11. */

/** Stripe's states in which a dispute is closed. `lost` can still be appealed. */
const CLOSED: readonly string[] = ["won", "lost", "warning_closed", "prevented"];
const WORD_CHARS_MAX = 60;

/** A dispute as Stripe has it. */
export type ReportedDispute = {
  sellerId: number;
  /** The payment at Stripe. */
  paymentExternalId: string;
  externalId: string;
  currency: string;
  amountNano: bigint;
  /** In Stripe's words. */
  reason: string;
  status: string;
  /** ISO 8601; null: the bank accepts no answer. */
  dueAt: string | null;
  /** When Stripe was asked, by the database's clock. */
  askedAt: string;
};

export type Dispute = Pick<
  ReportedDispute,
  "externalId" | "currency" | "amountNano" | "reason" | "status" | "dueAt"
> & {
  disputeId: number;
  paymentId: number;
  orderId: number;
  isClosed: boolean;
  createdAt: string;
};

/**
 * Records Stripe's state of a dispute, and tells the seller when it opens and closes. A lost dispute becomes a refund;
 * any other takes no money. A state that is older than the last one changes nothing. Throws service_unavailable if
 * Stripe must be asked again.
 */
export async function takeDispute(deps: ChangeDeps, reported: ReportedDispute): Promise<void> {
  await withPayment(deps, reported, async (tx, order, payment) => {
    const isIt = and(eq(disputes.sellerId, payment.sellerId), eq(disputes.externalId, reported.externalId));
    const [before] = await tx.select().from(disputes).where(isIt).for("update");
    if (before && new Date(before.askedAt) > new Date(reported.askedAt)) return;
    await save(tx, payment, reported);
    if (!before) {
      await tellOf(tx, "dispute_opened", { order, reported });
      await stopAutomatic(tx, payment.accountId);
    }
    await settle(tx, { order, payment, reported });
    if (CLOSED.includes(reported.status) && before?.status !== reported.status)
      await tellOf(tx, "dispute_closed", { order, reported });
  });
}

async function save(tx: Tx, payment: PaymentRow, reported: ReportedDispute): Promise<void> {
  const { externalId, currency, amountNano, dueAt, askedAt } = reported;
  const { id: paymentId, orderId, accountId, sellerId } = payment;
  const said = {
    ...{ currency, amountNano, dueAt, askedAt },
    reason: reported.reason.slice(0, WORD_CHARS_MAX),
    status: reported.status.slice(0, WORD_CHARS_MAX),
  };
  await tx
    .insert(disputes)
    .values({ ...said, paymentId, orderId, accountId, sellerId, externalId })
    .onConflictDoUpdate({ target: [disputes.sellerId, disputes.externalId], set: said });
}

type Case = { order: Order; payment: PaymentRow; reported: ReportedDispute };

/** The money of a lost dispute is gone; an appeal that is won brings it back. */
async function settle(tx: Tx, { order, payment, reported }: Case): Promise<void> {
  const { externalId, currency, status } = reported;
  const isGone = await isReversed(tx, payment, externalId);
  if (status === "lost" && !isGone) {
    // A bank may dispute in its customer's currency.
    const isSame = currency === payment.currency;
    const amountNano = isSame ? reported.amountNano : payment.amountNano - payment.refunded.amountNano;
    const reason = `disputed payment, order ${order.reference}`;
    await recordReversal(tx, { order, payment, externalId, amountNano, reason, origin: "dispute", isDone: true });
  } else if (status === "won" && isGone) await takeBackReversal(tx, { order, payment, externalId });
}

async function tellOf(
  tx: Tx,
  kind: "dispute_opened" | "dispute_closed",
  { order, reported }: Omit<Case, "payment">,
): Promise<void> {
  const { externalId, amountNano, currency, reason, status, dueAt } = reported;
  await tell(tx, {
    kind,
    accountId: order.account.accountId,
    data: { ...factsOfOrder(order), externalId, disputedNano: String(amountNano), currency, reason, status, dueAt },
    onceKey: `${kind}:${order.sellerId}:${externalId}:${kind === "dispute_closed" ? status : ""}`,
  });
}

/** The disputes of some payments, or of some orders, oldest first. */
export async function disputesOf(
  { db }: { db: Db },
  whose: { paymentIds: readonly number[] } | { orderIds: readonly number[] },
): Promise<Dispute[]> {
  const [column, ids] =
    "paymentIds" in whose ? [disputes.paymentId, whose.paymentIds] : [disputes.orderId, whose.orderIds];
  if (ids.length === 0) return [];
  const rows = await db.orm
    .select({
      disputeId: disputes.id,
      paymentId: disputes.paymentId,
      orderId: disputes.orderId,
      externalId: disputes.externalId,
      currency: disputes.currency,
      amountNano: disputes.amountNano,
      reason: disputes.reason,
      status: disputes.status,
      dueAt: disputes.dueAt,
      createdAt: disputes.createdAt,
    })
    .from(disputes)
    .where(inArray(column, [...ids]))
    .orderBy(disputes.id);
  return rows.map((row) => ({
    ...row,
    isClosed: CLOSED.includes(row.status),
    dueAt: toIso(row.dueAt),
    createdAt: toIso(row.createdAt),
  }));
}
