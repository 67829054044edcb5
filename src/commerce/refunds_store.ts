import { randomUUID } from "node:crypto";
import { and, eq, inArray, isNull, ne, type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { checkReason } from "../ledger/balances_store.ts";
import { endPackageIn } from "../ledger/packages_store.ts";
import { CENT_NANO_USD } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { payableStepNano } from "../platform/currencies.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { orders } from "../platform/schema_offerings.ts";
import { payments, refunds } from "../platform/schema_payments.ts";
import { sellers } from "../platform/schema_sellers.ts";
import { refundShare } from "./order_amounts.ts";
import { orderEnded } from "./order_ends_store.ts";
import { lockOrderOf } from "./order_fulfilment_store.ts";
import { refundFailed, refundMade } from "./order_paid.ts";
import type { Order } from "./orders_store.ts";
import { giveTopUpAgain, takeTopUp } from "./refund_balance_store.ts";

/**
 * Refunds: separate entries, never above their payment. A refund through Stripe is first taken from the balance, and
 * then requested until Stripe has answered. Locks: the accounts', then the order's row. Source: BUY-6.
 */

/** After this time a refund without an answer is requested again. */
const TRY_AGAIN_SECONDS = 60;
/**
 * For a refund that Stripe has accepted and not made yet, as to a bank account. Stripe reports it by a webhook, and is
 * asked in case that is lost.
 */
const ASK_AGAIN_SECONDS = 3600;
const PROBLEM_CHARS_MAX = 300;
/** A change of a seller's settings is seen by all requests within this time. */
const CHANGE_SECONDS_MAX = 60;
const NOT_MADE = "The seller found that the former account at Stripe had not made it.";

export type RefundRow = typeof refunds.$inferSelect;

export type Refund = Pick<
  RefundRow,
  | "paymentId"
  | "orderId"
  | "sellerId"
  | "origin"
  | "taxNano"
  | "shortfallNanoUsd"
  | "reason"
  | "externalId"
  | "createdAt"
> & {
  refundId: number;
  /** Billionths of the payment's currency. */
  amountNano: bigint;
  /** `pending`: Stripe has not confirmed it yet. `failed`: Stripe refused it, and nothing was refunded. */
  status: "pending" | "done" | "failed";
  /** What Stripe said. */
  problem: string | null;
  /** The seller's settings were changed since: another account at Stripe may have been asked for it. */
  isBeforeChange: boolean;
};

/** What Stripe needs for a refund. */
export type RefundCall = {
  refund: Refund;
  requestKey: string;
  paymentExternalId: string;
  currency: string;
};

export type NewRefund = {
  /** The seller of the payment: payments of other sellers are not found. */
  sellerId: number;
  paymentId: number;
  amountNano: bigint;
  reason: string | null;
  /** Ends the order's package now. */
  endPackage: boolean;
};

/**
 * Refunds a payment: takes a top-up back from the balance, ends the package if wanted, and records the refund. A refund
 * through Stripe is `pending` until Stripe has confirmed it. Throws not_found, insufficient_balance, InputError (more
 * than the payment, only a part of an order that was not fulfilled, or Stripe's key was removed).
 */
export async function startRefund(deps: ChangeDeps, wanted: NewRefund): Promise<Refund> {
  checkReason(wanted.reason);
  if (wanted.amountNano <= 0n) throw new InputError("The amount must be above zero.", "amountNano");
  return changing(deps, async (tx) => {
    const known = await paymentOf(tx, wanted);
    const order = await lockOrderOf(tx, known.orderId);
    // Read under the lock: the second of two concurrent refunds sees the first.
    const payment = await paymentOf(tx, wanted);
    checkAmount(payment, wanted.amountNano);
    const isStripe = payment.method === "stripe";
    if (isStripe) await requireStripe(tx, wanted.sellerId);
    const actorId = deps.by?.accountId ?? null;
    const { amountNano, reason } = wanted;
    const share = shareOf(order, payment, amountNano);
    const entryId =
      payment.problem === null
        ? await takeBack(tx, order, { ...wanted, payment, worthNanoUsd: share.worthNanoUsd, actorId })
        : null;
    const row = await addRefund(tx, payment, {
      ...{ amountNano, ...share, reason, entryId, actorId },
      status: isStripe ? "pending" : "done",
      tryAt: sql`clock_timestamp() + make_interval(secs => ${TRY_AGAIN_SECONDS})`,
    });
    if (!isStripe) await refundMade(tx, order, { refund: row, payment });
    return oneRefund(tx, row.id);
  });
}

type Added = Omit<
  typeof refunds.$inferInsert,
  "paymentId" | "orderId" | "accountId" | "sellerId" | "requestKey" | "tryAt"
> & {
  tryAt?: SQL;
};

/** The tax and the worth of a refund. A payment that paid for no order has neither. */
export function shareOf(order: Order, payment: PaymentRow, amountNano: bigint) {
  const { priceNanoUsd, totalNano, taxNano, currency } = order;
  if (payment.problem !== null || priceNanoUsd === null || totalNano === null) return { taxNano: 0n, worthNanoUsd: 0n };
  return refundShare({ priceNanoUsd, totalNano, taxNano, currency }, payment.refunded, amountNano);
}

/** Writes the row of a refund. */
export async function addRefund(tx: Tx, payment: PaymentRow, added: Added): Promise<RefundRow> {
  const { id: paymentId, orderId, accountId, sellerId } = payment;
  const [row] = await tx
    .insert(refunds)
    .values({ ...added, paymentId, orderId, accountId, sellerId, requestKey: randomUUID() })
    .returning();
  if (!row) throw new Error("a refund was not added");
  return row;
}

type Taking = NewRefund & { payment: PaymentRow; worthNanoUsd: bigint; actorId: number | null };

/**
 * Undoes what a payment had bought. Returns the id of the entry that takes a top-up back from the balance; null: there
 * is none.
 */
async function takeBack(
  tx: Tx,
  order: Order,
  { payment, amountNano, worthNanoUsd, endPackage, reason, actorId }: Taking,
): Promise<number | null> {
  if (order.status === "paid") {
    if (payment.refunded.amountNano + amountNano !== payment.amountNano)
      throw new InputError(
        "This order is not fulfilled yet. Refund all that is left of its payment, or fulfil it first.",
        "amountNano",
      );
    await markRefunded(tx, order, actorId);
    return null;
  }
  if (order.packageId !== null && endPackage)
    await endPackageIn(tx, { accountId: order.account.accountId, packageId: order.packageId });
  if (order.kind === "package") return null;
  return (await takeTopUp(tx, order, { worthNanoUsd, reason, actorId })).entryId;
}

/** A paid order is refunded as a whole instead of fulfilled. */
export async function markRefunded(tx: Tx, { orderId }: Order, actorId: number | null): Promise<void> {
  await tx
    .update(orders)
    .set({ status: "refunded", waitsFor: null, tryAt: null, decidedBy: actorId, decidedAt: sql`clock_timestamp()` })
    .where(eq(orders.id, orderId));
  await orderEnded(tx, orderId);
}

/** Claims refunds that Stripe has not confirmed. Several replicas may call it: each refund is claimed by one. */
export async function takePendingRefunds({ db }: { db: Db }, refundsMax: number): Promise<RefundCall[]> {
  const taken = await db.orm
    .update(refunds)
    .set({ tryAt: sql`clock_timestamp() + make_interval(secs => ${TRY_AGAIN_SECONDS})` })
    .where(
      sql`${refunds.id} in (select id from refunds where status = 'pending' and try_at <= clock_timestamp()
        order by try_at limit ${refundsMax} for update skip locked)`,
    )
    .returning({ id: refunds.id });
  return Promise.all(taken.map(({ id }) => callOf({ db }, id)));
}

/** A seller's refunds that Stripe has not answered yet: it may have made them. */
export async function unansweredRefundsOf({ db }: { db: Db }, sellerId: number): Promise<RefundCall[]> {
  const isUnanswered = and(eq(refunds.sellerId, sellerId), eq(refunds.status, "pending"), isNull(refunds.externalId));
  const found = await db.orm.select({ id: refunds.id }).from(refunds).where(isUnanswered).orderBy(refunds.id);
  return Promise.all(found.map(({ id }) => callOf({ db }, id)));
}

/** What Stripe needs for a refund that is pending. */
export async function callOf({ db }: { db: Db }, refundId: number): Promise<RefundCall> {
  const refund = await oneRefund(db.orm, refundId);
  const [row] = await db.orm
    .select({
      requestKey: refunds.requestKey,
      paymentExternalId: payments.externalId,
      currency: payments.currency,
    })
    .from(refunds)
    .innerJoin(payments, eq(payments.id, refunds.paymentId))
    .where(eq(refunds.id, refundId));
  if (!row) throw new Error("a refund has no payment");
  return { refund, ...row };
}

/** Stripe will never make the refund: see `failIn`. */
export async function failRefund(deps: ChangeDeps, refundId: number, problem: string): Promise<Refund> {
  return endingPending(deps, refundId, async (tx, order, row) => {
    // With an id at Stripe it was accepted meanwhile, and only its state there decides.
    if (row.externalId === null) await failIn(tx, order, row, problem);
  });
}

/** Whether a refund was made that no account at Stripe answers for any more, as its seller found out. Throws as `failIn`. */
export async function decideRefund(
  deps: ChangeDeps,
  { refundId, isMade }: { refundId: number; isMade: boolean },
): Promise<Refund> {
  return endingPending(deps, refundId, async (tx, order, row) => {
    const payment = await onePayment(tx, eq(payments.id, row.paymentId));
    if (!payment) throw new Error("a refund has no payment");
    if (isMade) await confirmIn(tx, order, row, payment);
    else await failIn(tx, order, row, NOT_MADE);
  });
}

/** Calls `end` if the refund is pending, with its order and its row locked. Returns the refund. */
async function endingPending(
  deps: ChangeDeps,
  refundId: number,
  end: (tx: Tx, order: Order, row: RefundRow) => Promise<void>,
): Promise<Refund> {
  return changing(deps, async (tx) => {
    const known = await oneRefund(tx, refundId);
    const order = await lockOrderOf(tx, known.orderId);
    const [row] = await tx.select().from(refunds).where(eq(refunds.id, refundId)).for("update");
    if (row?.status === "pending") await end(tx, order, row);
    return oneRefund(tx, refundId);
  });
}

/** Stripe has made a pending refund. The order is locked. */
export async function confirmIn(
  tx: Tx,
  order: Order,
  { id, origin, problem }: RefundRow,
  payment: PaymentRow,
): Promise<void> {
  const [row] = await tx
    .update(refunds)
    // Earlier failures to ask Stripe no longer matter.
    .set({ status: "done", problem: origin === "seller" ? null : problem })
    .where(and(eq(refunds.id, id), eq(refunds.status, "pending")))
    .returning();
  if (row) await refundMade(tx, order, { refund: row, payment });
}

/** Stripe has accepted a refund, and makes it later. */
export async function awaitIn(tx: Tx, { id }: RefundRow): Promise<void> {
  await tx
    .update(refunds)
    .set({ tryAt: sql`clock_timestamp() + make_interval(secs => ${ASK_AGAIN_SECONDS})` })
    .where(eq(refunds.id, id));
}

/**
 * Undoes a refund that will not be made, or was made and came back: the balance gets the money again, from the reseller
 * if it went there; an order that was not fulfilled is paid again; a credit note is reversed. A package that was ended
 * stays ended. The order is locked. Throws
 * insufficient_balance, IdleMoneyError: then the refund stays as it is.
 */
export async function failIn(tx: Tx, order: Order, row: RefundRow, problem: string): Promise<void> {
  const { id, worthNanoUsd, shortfallNanoUsd, entryId } = row;
  const takenNanoUsd = worthNanoUsd - shortfallNanoUsd;
  const returnEntryId =
    entryId === null ? null : await giveTopUpAgain(tx, order, { refundId: id, entryId, takenNanoUsd });
  const said = problem.slice(0, PROBLEM_CHARS_MAX);
  await tx.update(refunds).set({ status: "failed", problem: said, returnEntryId }).where(eq(refunds.id, id));
  if (order.status === "refunded" && (await problemOfPayment(tx, row.paymentId)) === null)
    await tx
      .update(orders)
      .set({ status: "paid", waitsFor: "seller", decidedBy: null, decidedAt: null })
      .where(eq(orders.id, order.orderId));
  await refundFailed(tx, order, row);
}

/** Stores why Stripe could not be asked, so that the seller sees it. */
export async function noteRefundProblem({ db }: { db: Db }, refundId: number, problem: string): Promise<void> {
  await db.orm
    .update(refunds)
    .set({ problem: problem.slice(0, PROBLEM_CHARS_MAX) })
    .where(and(eq(refunds.id, refundId), eq(refunds.status, "pending")));
}

/** The refunds of some payments, oldest first. */
export async function refundsOf({ db }: { db: Db }, paymentIds: readonly number[]): Promise<Refund[]> {
  if (paymentIds.length === 0) return [];
  const rows = await db.orm
    .select(columns)
    .from(refunds)
    .where(inArray(refunds.paymentId, [...paymentIds]))
    .orderBy(refunds.id);
  return rows.map(toRefund);
}

/** A payment, and the sums of its refunds, pending ones included. */
export type PaymentRow = typeof payments.$inferSelect & {
  refunded: { amountNano: bigint; taxNano: bigint; worthNanoUsd: bigint };
};

async function paymentOf(
  tx: Tx,
  { paymentId, sellerId }: Pick<NewRefund, "paymentId" | "sellerId">,
): Promise<PaymentRow> {
  const payment = isRowId(paymentId)
    ? await onePayment(tx, and(eq(payments.id, paymentId), eq(payments.sellerId, sellerId)))
    : undefined;
  if (!payment) throw new Refusal("not_found", { message: "There is no such payment." });
  return payment;
}

export async function onePayment(tx: Tx, where: SQL | undefined): Promise<PaymentRow | undefined> {
  const [payment] = await tx.select().from(payments).where(where);
  if (!payment) return undefined;
  const [given] = await tx
    .select({
      amountNano: sumOf(refunds.amountNano),
      taxNano: sumOf(refunds.taxNano),
      worthNanoUsd: sumOf(refunds.worthNanoUsd),
    })
    .from(refunds)
    .where(and(eq(refunds.paymentId, payment.id), ne(refunds.status, "failed")));
  return { ...payment, refunded: given ?? { amountNano: 0n, taxNano: 0n, worthNanoUsd: 0n } };
}

function sumOf(column: SQLWrapper) {
  return sql<bigint>`coalesce(sum(${column}), 0)`.mapWith(BigInt);
}

function checkAmount({ amountNano, refunded, method, currency }: PaymentRow, wanted: bigint): void {
  if (wanted > amountNano - refunded.amountNano)
    throw new InputError(
      refunded.amountNano === 0n
        ? "A refund cannot be larger than its payment."
        : "Together with what was already refunded, that is more than the payment.",
      "amountNano",
    );
  const stepNano = payableStepNano(currency);
  // All that is left can be sent back by hand as it came, also if it is a part of a cent.
  const isAsItCame = method === "instructions" && wanted === amountNano - refunded.amountNano;
  if (!isAsItCame && wanted % stepNano !== 0n) {
    throw new InputError(
      stepNano === CENT_NANO_USD
        ? "Only whole cents can be refunded in this way."
        : sentence("Only whole amounts of {currency} can be refunded in this way.", {
            currency: currency.toUpperCase(),
          }),
      "amountNano",
    );
  }
}

/**
 * Throws InputError if Stripe cannot be asked. The refund would only wait, and a seller who then makes it in Stripe's
 * dashboard would make it twice: it is requested as soon as a key is set.
 */
async function requireStripe(tx: Tx, sellerId: number): Promise<void> {
  const [seller] = await tx
    .select({ key: sellers.stripeKeyCiphertext })
    .from(sellers)
    .where(eq(sellers.sellerId, sellerId));
  if (!seller?.key)
    throw new InputError("Stripe's key was removed. Set it again, or make the refund in Stripe's dashboard.");
}

async function problemOfPayment(tx: Tx, paymentId: number): Promise<string | null | undefined> {
  const [row] = await tx.select({ problem: payments.problem }).from(payments).where(eq(payments.id, paymentId));
  return row?.problem;
}

const columns = {
  refundId: refunds.id,
  paymentId: refunds.paymentId,
  orderId: refunds.orderId,
  sellerId: refunds.sellerId,
  amountNano: refunds.amountNano,
  origin: refunds.origin,
  taxNano: refunds.taxNano,
  shortfallNanoUsd: refunds.shortfallNanoUsd,
  externalId: refunds.externalId,
  reason: refunds.reason,
  status: refunds.status,
  problem: refunds.problem,
  createdAt: refunds.createdAt,
  // Raw names: Drizzle leaves the table's name out where one table is read.
  isBeforeChange: sql<boolean>`exists (select from sellers s where s.seller_id = refunds.seller_id
    and refunds.created_at < s.updated_at + make_interval(secs => ${CHANGE_SECONDS_MAX}))`,
};

/** A seller's refund. Throws not_found. */
export async function findRefund(
  { db }: { db: Db },
  { sellerId, refundId }: { sellerId: number; refundId: number },
): Promise<Refund> {
  const isIt = and(eq(refunds.id, refundId), eq(refunds.sellerId, sellerId));
  const [row] = isRowId(refundId) ? await db.orm.select(columns).from(refunds).where(isIt) : [];
  if (!row) throw new Refusal("not_found", { message: "There is no such refund." });
  return toRefund(row);
}

/** One refund, which must exist. */
export async function oneRefund(tx: Tx, refundId: number): Promise<Refund> {
  const [row] = await tx.select(columns).from(refunds).where(eq(refunds.id, refundId));
  if (!row) throw new Error("a refund vanished");
  return toRefund(row);
}

function toRefund<Row extends { createdAt: string }>(row: Row): Row {
  return { ...row, createdAt: toIso(row.createdAt) };
}
