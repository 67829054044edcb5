import { eq } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import type { Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { type payments, refunds } from "../platform/schema_payments.ts";
import { type InvoiceLine, issueInvoice } from "./invoices_store.ts";
import { factsOfOrder, type Method, type Order } from "./orders_store.ts";

/** The invoice and the messages of a payment or refund, written in its transaction. */

/**
 * Called once when the price of an order has arrived. Called in the transaction of the payment, under the accounts'
 * locks. Source: BUY-3, INV-1,
 * MSG-2.
 */
export async function orderPaid(tx: Tx, order: Order, method: Method): Promise<void> {
  const { accountId } = order.account;
  if (order.netNano === null)
    throw new InputError(sentence("Order {orderId} has no price.", { orderId: order.orderId }));
  const { sellerId, orderId, currency, tax, taxNano } = order;
  const lines = [lineOf(order, order.netNano)];
  const invoice = await issueInvoice(tx, {
    sellerId,
    accountId,
    orderId,
    lines,
    currency,
    tax,
    taxNano,
    kind: "invoice",
  });
  await tell(tx, {
    kind: "order_paid",
    accountId,
    data: { ...factsOfOrder(order), invoiceNumber: invoice.number },
    onceKey: `order_paid:${orderId}`,
  });
  // A seller who is paid by instructions has marked the order as paid, and need not be told.
  if (method === "instructions") return;
  await tell(tx, {
    kind: "payment_received",
    accountId,
    data: factsOfOrder(order),
    onceKey: `payment_received:${orderId}`,
  });
}

export type MadeRefund = { refund: RefundRow; payment: Pick<PaymentFacts, "currency" | "problem"> };
type RefundRow = typeof refunds.$inferSelect;
type PaymentFacts = typeof payments.$inferSelect;

/**
 * Called once for each refund, in the transaction that makes it final. A payment with a `problem` did not pay for the
 * order, so no invoice mentions it. Source: BUY-6, INV-1.
 */
export async function refundMade(tx: Tx, order: Order, { refund, payment }: MadeRefund): Promise<void> {
  const { id: refundId, amountNano, taxNano, reason } = refund;
  const { sellerId, orderId, currency, tax } = order;
  const { accountId } = order.account;
  let creditNote: number | null = null;
  if (payment.problem === null) {
    const lines = [lineOf(order, amountNano - taxNano)];
    const note = { sellerId, accountId, orderId, lines, currency, tax, taxNano, kind: "credit_note" } as const;
    creditNote = (await issueInvoice(tx, note)).number;
    await tx.update(refunds).set({ creditNote }).where(eq(refunds.id, refundId));
  }
  // The bank informs the customer who disputed a payment.
  if (refund.origin === "dispute") return;
  await tell(tx, {
    kind: "refund_made",
    accountId,
    data: {
      ...factsOfOrder(order),
      ...{ refundId, refundNano: String(amountNano), currency: payment.currency, reason },
      invoiceNumber: creditNote,
    },
    onceKey: `refund_made:${refundId}`,
  });
}

/** An invoice reverses the credit note of a refund that was not made after all. Source: BUY-10, INV-1. */
export async function refundFailed(
  tx: Tx,
  order: Order,
  { creditNote, amountNano, taxNano }: RefundRow,
): Promise<void> {
  if (creditNote === null) return;
  const { sellerId, orderId, account, reference, currency, tax } = order;
  const text = `Refund that was not made, order ${reference}`;
  await issueInvoice(tx, {
    ...{ sellerId, accountId: account.accountId, orderId, currency, tax, taxNano },
    lines: [{ text, quantity: 1, amountNano: amountNano - taxNano }],
    kind: "invoice",
    takesBack: creditNote,
  });
}

function lineOf({ offering, reference }: Order, amountNano: bigint): InvoiceLine {
  return { text: `${offering?.name ?? "Top-up of the balance"}, order ${reference}`, quantity: 1, amountNano };
}
