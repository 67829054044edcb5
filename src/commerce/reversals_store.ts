import { and, eq, isNull, ne, or } from "drizzle-orm";
import { Refusal } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { orders } from "../platform/schema_offerings.ts";
import { payments, refunds } from "../platform/schema_payments.ts";
import { lockOrderOf } from "./order_fulfilment_store.ts";
import { factsOfOrder, type Order } from "./orders_store.ts";
import { takeTopUp } from "./refund_balance_store.ts";
import {
  addRefund,
  awaitIn,
  confirmIn,
  failIn,
  markRefunded,
  onePayment,
  type PaymentRow,
  type RefundRow,
  shareOf,
} from "./refunds_store.ts";

/**
 * Money that Stripe took back by itself: refunds made in its dashboard, and disputes that were lost. Each is recorded
 * as one refund. The money is already gone, so nothing is refused here: the part that the customer has spent is a
 * shortfall, of which the seller is told.
 * Locks: the accounts', then the order's row. Source: BUY-10, BUY-11.
 */

const RETRY_AFTER_SECONDS = 30;
const UNRETURNED =
  "Stripe could not make this refund. Your balance is too low to give the customer its money again: top it up.";

/** A refund as Stripe has it. */
export type ReportedRefund = {
  sellerId: number;
  /** The payment at Stripe. */
  paymentExternalId: string;
  externalId: string;
  /** The key of a refund that was requested here. */
  requestKey: string | null;
  amountNano: bigint;
  reason: string | null;
  /** `failed`: also one that was cancelled. */
  state: "waiting" | "done" | "failed";
  /** Why it failed. */
  problem: string;
};

/** The time at which a query to Stripe begins: a later query has the newer answer. */
export async function databaseTime({ db }: { db: Db }): Promise<string> {
  const [row] = await db.sql`select clock_timestamp()::text as now`;
  return String(row?.now);
}

/** Whether a payment at Stripe is recorded here. */
export async function isPayment(
  { db }: { db: Db },
  { sellerId, paymentExternalId }: Pick<ReportedRefund, "sellerId" | "paymentExternalId">,
): Promise<boolean> {
  return (await onePayment(db.orm, isOf({ sellerId, paymentExternalId }))) !== undefined;
}

/**
 * Records Stripe's state of a refund. Repeated states, concurrent ones included, and older ones change nothing: a
 * refund goes from pending to done to failed. Throws service_unavailable if Stripe must be asked again.
 */
export async function takeRefund(deps: ChangeDeps, reported: ReportedRefund): Promise<void> {
  try {
    await withPayment(deps, reported, async (tx, order, payment) => {
      const [row] = await tx.select().from(refunds).where(isKnown(payment, reported)).for("update");
      if (row) await update(tx, { order, payment, row, reported });
      // A refund that failed before its first event has taken nothing.
      else if (reported.state !== "failed")
        await recordReversal(tx, { ...reported, order, payment, origin: "stripe", isDone: reported.state === "done" });
    });
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "insufficient_balance") throw error;
    await noteUnreturned(deps, reported);
    throw new Refusal("service_unavailable", { message: UNRETURNED, retryAfterSeconds: RETRY_AFTER_SECONDS });
  }
}

/** A refund has failed, and the reseller no longer has the money that is due to the customer. */
async function noteUnreturned({ db }: ChangeDeps, { sellerId, externalId }: ReportedRefund): Promise<void> {
  const isIt = and(eq(refunds.sellerId, sellerId), eq(refunds.externalId, externalId), ne(refunds.status, "failed"));
  await db.orm.update(refunds).set({ problem: UNRETURNED }).where(isIt);
}

/**
 * Finds a refund by its id at Stripe, or one that was requested here and has no id yet. One that failed here and is made at Stripe is
 * not found: that takes the money once more.
 */
function isKnown({ id }: PaymentRow, { externalId, requestKey }: ReportedRefund) {
  const isAsked =
    requestKey === null
      ? undefined
      : and(isNull(refunds.externalId), eq(refunds.requestKey, requestKey), ne(refunds.status, "failed"));
  return and(eq(refunds.paymentId, id), or(eq(refunds.externalId, externalId), isAsked));
}

type Update = { order: Order; payment: PaymentRow; row: RefundRow; reported: ReportedRefund };

async function update(tx: Tx, { order, payment, row, reported }: Update): Promise<void> {
  const { externalId, state, problem } = reported;
  if (row.externalId === null) await tx.update(refunds).set({ externalId }).where(eq(refunds.id, row.id));
  if (row.status === "failed") return;
  if (state === "failed") await failIn(tx, order, row, problem);
  else if (row.status === "pending" && state === "done") await confirmIn(tx, order, row, payment);
  else if (row.status === "pending") await awaitIn(tx, row);
}

export type Reversal = Pick<ReportedRefund, "externalId" | "amountNano" | "reason"> & {
  order: Order;
  payment: PaymentRow;
  origin: "stripe" | "dispute";
  /** false: Stripe makes it later. */
  isDone: boolean;
};

/** Records money that is gone, as far as it is not yet recorded. The order is locked. */
export async function recordReversal(tx: Tx, reversal: Reversal): Promise<void> {
  const { order, payment, origin, externalId, reason, isDone } = reversal;
  const leftNano = payment.amountNano - payment.refunded.amountNano;
  const isMore = reversal.amountNano > leftNano;
  const amountNano = isMore ? leftNano : reversal.amountNano;
  if (isMore) await requireNoneAsked(tx, payment);
  if (amountNano <= 0n) return;
  const share = shareOf(order, payment, amountNano);
  const { entryId, shortfallNanoUsd } = await undo(tx, { ...reversal, amountNano, worthNanoUsd: share.worthNanoUsd });
  const row = await addRefund(tx, payment, {
    ...{ amountNano, ...share, shortfallNanoUsd, origin, externalId, reason, entryId },
    status: "pending",
    problem: isMore ? "Stripe refunded more than was left of this payment. Only what was left is recorded." : null,
  });
  if (shortfallNanoUsd > 0n) await tellShortfall(tx, order, row);
  if (isDone) await confirmIn(tx, order, row, payment);
  else await awaitIn(tx, row);
}

/**
 * Throws service_unavailable while a requested refund of this payment is pending: it may be the one that can no longer
 * be made.
 */
async function requireNoneAsked(tx: Tx, { id }: PaymentRow): Promise<void> {
  const isAsked = and(eq(refunds.paymentId, id), eq(refunds.status, "pending"), isNull(refunds.externalId));
  const asked = await tx.select({ id: refunds.id }).from(refunds).where(isAsked).limit(1);
  if (asked.length > 0)
    throw new Refusal("service_unavailable", {
      message: "Another refund of this payment has no answer yet.",
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
}

/** Undoes what the payment had bought, as far as possible. A package stays active: its seller may end it. */
async function undo(tx: Tx, { order, payment, amountNano, worthNanoUsd, reason }: Reversal & { worthNanoUsd: bigint }) {
  const none = { entryId: null, shortfallNanoUsd: 0n };
  if (payment.problem !== null) return none;
  if (order.status === "paid") {
    if (payment.refunded.amountNano + amountNano === payment.amountNano) await markRefunded(tx, order, null);
    // A person must decide what a part of the price buys.
    else await tx.update(orders).set({ waitsFor: "seller", tryAt: null }).where(eq(orders.id, order.orderId));
    return none;
  }
  if (order.status !== "fulfilled" || order.kind === "package") return none;
  const taken = await takeTopUp(tx, order, { worthNanoUsd, reason, actorId: null, isPartial: true });
  return { entryId: taken.entryId, shortfallNanoUsd: worthNanoUsd - taken.takenNanoUsd };
}

async function tellShortfall(
  tx: Tx,
  order: Order,
  { id, amountNano, shortfallNanoUsd, origin }: RefundRow,
): Promise<void> {
  await tell(tx, {
    kind: "refund_shortfall",
    accountId: order.account.accountId,
    data: {
      ...factsOfOrder(order),
      ...{ refundId: id, origin, refundNano: String(amountNano), shortfallNanoUsd: String(shortfallNanoUsd) },
    },
    onceKey: `refund_shortfall:${id}`,
  });
}

/** Returns the money that a dispute took: its refund has failed. */
export async function takeBackReversal(
  tx: Tx,
  { order, payment, externalId }: Pick<Reversal, "order" | "payment" | "externalId">,
): Promise<void> {
  const isLive = and(
    eq(refunds.paymentId, payment.id),
    eq(refunds.externalId, externalId),
    ne(refunds.status, "failed"),
  );
  const [row] = await tx.select().from(refunds).where(isLive).for("update");
  if (row) await failIn(tx, order, row, "The dispute was won after all.");
}

/** Whether a refund is recorded under this id. */
export async function isReversed(tx: Tx, { id }: PaymentRow, externalId: string): Promise<boolean> {
  const isLive = and(eq(refunds.paymentId, id), eq(refunds.externalId, externalId), ne(refunds.status, "failed"));
  return (await tx.select({ id: refunds.id }).from(refunds).where(isLive).limit(1)).length > 0;
}

type OfPayment = Pick<ReportedRefund, "sellerId" | "paymentExternalId">;

function isOf({ sellerId, paymentExternalId }: OfPayment) {
  return and(
    eq(payments.sellerId, sellerId),
    eq(payments.method, "stripe"),
    eq(payments.externalId, paymentExternalId),
  );
}

/**
 * Runs `fn` in a transaction, with the payment's order locked. Does not call `fn` for an unknown payment or another
 * seller's.
 */
export async function withPayment(
  deps: ChangeDeps,
  whose: OfPayment,
  fn: (tx: Tx, order: Order, payment: PaymentRow) => Promise<void>,
): Promise<void> {
  await changing(deps, async (tx) => {
    const known = await onePayment(tx, isOf(whose));
    if (!known) return;
    const order = await lockOrderOf(tx, known.orderId);
    // Read under the lock, with all earlier refunds.
    const payment = await onePayment(tx, isOf(whose));
    if (payment) await fn(tx, order, payment);
  });
}
