import { and, desc, eq, isNotNull, lt, sql } from "drizzle-orm";
import { Refusal } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { type Db, sqlState, type Tx, UNIQUE_VIOLATION } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { orders } from "../platform/schema_offerings.ts";
import { payments, refunds, WAITS_FOR_SELLER } from "../platform/schema_payments.ts";
import { smaller, TOTAL_NANO_MAX } from "./order_amounts.ts";
import { fulfilPaidIn, lockOrderOf, markPaid } from "./order_fulfilment_store.ts";
import { type Method, type Order, oneOrder } from "./orders_store.ts";

/** Payments that Stripe or a shop reports: each is recorded once, and compared with its order. Source: BUY-2, BUY-3. */

const PAGE_MAX = 100;
/** Longest id that a payment provider may give. */
export const EXTERNAL_ID_CHARS_MAX = 255;
const REFERENCE = /^[0-9A-F]{12}$/;

export type PaymentProblem = NonNullable<(typeof payments.$inferSelect)["problem"]>;

export type Payment = {
  paymentId: number;
  orderId: number;
  method: Method;
  externalId: string;
  currency: string;
  /** Billionths of the currency. */
  amountNano: bigint;
  /** Why it does not pay for its order; null: it does. */
  problem: PaymentProblem | null;
  /** Refunded part of it. */
  refundedNano: bigint;
  /** Its order is of a package. */
  isPackage: boolean;
  createdAt: string;
};

/** What a payment provider reports. `sellerId`: the seller whose secret signed the report. */
export type Received = {
  sellerId: number;
  reference: string;
  method: "stripe" | "shop";
  externalId: string;
  currency: string;
  amountNano: bigint;
  /** It is worth nothing: see `test_money.ts`. */
  isTest?: boolean;
};

/** `unknown`: the seller has no such order. `known`: it was reported before, and nothing changed. */
export type Receipt = {
  outcome: "unknown" | "known" | "recorded";
  order: Order | null;
  problem: PaymentProblem | null;
};

type ReceiveDeps = ChangeDeps & { failpoint?: (name: "after_paid") => void };

/**
 * Records a payment, and fulfils its order in the same transaction if possible. A repeated report changes nothing, also a concurrent one,
 * and one for another order. A payment that does not match its order is kept, so that its seller can refund it. Throws temporary
 * errors: then the provider reports it again.
 * Source: BUY-2, BUY-3, BUY-4.
 */
export async function receivePayment(deps: ReceiveDeps, received: Received): Promise<Receipt> {
  const orderId = await orderOf(deps.db.orm, received);
  if (orderId === undefined) return { outcome: "unknown", order: null, problem: null };
  const record = (fulfilling?: ReceiveDeps) => changing(deps, (tx) => receiveIn(tx, orderId, received, fulfilling));
  try {
    return await record(deps);
  } catch (error) {
    // It was reported for another order at the same time, and is recorded now.
    if (sqlState(error) === UNIQUE_VIOLATION) return await record(deps);
    if (!(error instanceof Refusal) || error.code !== "service_unavailable") throw error;
    // A replica holds unused money of the payer and does not return it. The payment is recorded, and the order is fulfilled later.
    return await record();
  }
}

/** `fulfilling`: also fulfils the order. */
async function receiveIn(
  tx: Tx,
  orderId: number,
  received: Received,
  fulfilling?: Pick<ReceiveDeps, "failpoint">,
): Promise<Receipt> {
  const order = await lockOrderOf(tx, orderId);
  if (await isRecorded(tx, received)) return { outcome: "known", order, problem: null };
  const { method, externalId, currency } = received;
  const amountNano = smaller(received.amountNano, TOTAL_NANO_MAX);
  const problem = problemOf(order, received);
  const payment = { method, externalId, currency, amountNano, problem };
  if (problem !== null) {
    const { sellerId, account } = order;
    await tx.insert(payments).values({ ...payment, orderId, sellerId, accountId: account.accountId });
    return { outcome: "recorded", order, problem };
  }
  await markPaid(tx, order, payment);
  fulfilling?.failpoint?.("after_paid");
  const paid = await oneOrder(tx, eq(orders.id, orderId));
  return { outcome: "recorded", order: fulfilling ? await fulfilPaidIn(tx, paid) : paid, problem };
}

/** Why a payment does not pay for an order that is locked. */
function problemOf(order: Order, { currency, amountNano, isTest }: Received): PaymentProblem | null {
  if (isTest) return "test_money";
  if (order.paidAt !== null) return "paid_twice";
  if (order.status !== "open") return "order_closed";
  if (currency !== order.currency) return "wrong_currency";
  return amountNano === order.totalNano ? null : "wrong_amount";
}

async function isRecorded(tx: Tx, { sellerId, method, externalId }: Received): Promise<boolean> {
  const found = await tx
    .select({ id: payments.id })
    .from(payments)
    .where(and(eq(payments.sellerId, sellerId), eq(payments.method, method), eq(payments.externalId, externalId)));
  return found.length > 0;
}

/** The id of the seller's order of that reference. */
async function orderOf(tx: Tx, { sellerId, reference }: Received): Promise<number | undefined> {
  if (!REFERENCE.test(reference)) return undefined;
  const [row] = await tx
    .select({ id: orders.id })
    .from(orders)
    .where(and(eq(orders.reference, reference), eq(orders.sellerId, sellerId)));
  return row?.id;
}

export type ListedPayment = Payment & { reference: string; accountId: number; name: string };

/**
 * `problems`: those that should be refunded and are not fully refunded. `disputed`: those that were ever disputed. `to_answer`: those whose
 * dispute waits for the seller's answer.
 */
export type PaymentsShown = "all" | "problems" | "disputed" | "to_answer";

/** A seller's payments, newest first. */
export async function listPayments(
  { db }: { db: Db },
  {
    sellerId,
    show = "all",
    before,
    limit = PAGE_MAX,
  }: { sellerId: number; show?: PaymentsShown; before?: number; limit?: number },
): Promise<Page<ListedPayment>> {
  const size = pageSize(limit, PAGE_MAX);
  const rows = await select(db.orm)
    .where(
      and(
        eq(payments.sellerId, sellerId),
        show === "problems"
          ? and(isNotNull(payments.problem), sql`${refundedNano} < ${payments.amountNano}`)
          : undefined,
        show === "to_answer"
          ? sql`exists (select from disputes where payment_id = ${payments.id} and ${sql.raw(WAITS_FOR_SELLER)})`
          : undefined,
        show === "disputed" ? sql`exists (select from disputes where payment_id = ${payments.id})` : undefined,
        before === undefined ? undefined : lt(payments.id, before),
      ),
    )
    .orderBy(desc(payments.id))
    .limit(size + 1);
  return pageOf(rows.map(toPayment), size);
}

/** The sum of a payment's refunds, pending ones included. */
export const refundedNano = sql<bigint>`coalesce((select sum(${refunds.amountNano}) from ${refunds}
  where ${refunds.paymentId} = ${payments.id} and ${refunds.status} <> 'failed'), 0)`.mapWith(BigInt);

function select(tx: Tx) {
  return tx
    .select({
      paymentId: payments.id,
      orderId: payments.orderId,
      reference: orders.reference,
      accountId: payments.accountId,
      name: accounts.name,
      method: payments.method,
      externalId: payments.externalId,
      currency: payments.currency,
      amountNano: payments.amountNano,
      problem: payments.problem,
      refundedNano,
      isPackage: sql<boolean>`${orders.kind} = 'package'`,
      createdAt: payments.createdAt,
    })
    .from(payments)
    .innerJoin(orders, eq(orders.id, payments.orderId))
    .innerJoin(accounts, eq(accounts.id, payments.accountId));
}

function toPayment<Row extends { createdAt: string }>(row: Row): Row {
  return { ...row, createdAt: toIso(row.createdAt) };
}
