import { eq } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { type payments, refunds } from "../platform/schema_payments.ts";
import { type InvoiceLine, issueInvoice } from "./invoices_store.ts";
import { factsOfOrder, type Method, type Order } from "./orders_store.ts";

/** What else happens in the transaction that marks an order paid, or gives money back. */

/**
 * An order was paid: its price arrived, once. Called in the transaction of the payment, under the accounts' locks. Source: BUY-3, INV-1,
 * MSG-2.
 */
export async function orderPaid(tx: Tx, order: Order, method: Method): Promise<void> {
  const { accountId } = order.account;
  if (order.priceNanoUsd === null) throw new InputError(`Order ${order.orderId} has no price.`);
  const { sellerId, orderId } = order;
  const lines = [lineOf(order, order.priceNanoUsd)];
  const invoice = await issueInvoice(tx, { sellerId, accountId, orderId, lines, kind: "invoice" });
  await tell(tx, {
    kind: "order_paid",
    accountId,
    data: { ...factsOfOrder(order), invoiceNumber: invoice.number },
    onceKey: `order_paid:${orderId}`,
  });
  // Who is paid by instructions has marked the order as paid, and knows it.
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
 * Money was given back. Called once for each refund, in the transaction that makes it final. A payment with a `problem` did not pay for the
 * order, so no invoice says anything of it. Source: BUY-6, INV-1.
 */
export async function refundMade(tx: Tx, order: Order, { refund, payment }: MadeRefund): Promise<void> {
  const { id: refundId, amountNano, reason } = refund;
  const { sellerId, orderId } = order;
  const { accountId } = order.account;
  let creditNote: number | null = null;
  if (payment.problem === null) {
    const lines = [lineOf(order, amountNano)];
    creditNote = (await issueInvoice(tx, { sellerId, accountId, orderId, lines, kind: "credit_note" })).number;
    await tx.update(refunds).set({ creditNote }).where(eq(refunds.id, refundId));
  }
  // Who disputed a payment hears from its bank.
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

/** A refund that had a credit note was not made after all: an invoice takes the credit note back. Source: BUY-10, INV-1. */
export async function refundFailed(tx: Tx, order: Order, { creditNote, amountNano }: RefundRow): Promise<void> {
  if (creditNote === null) return;
  const { sellerId, orderId, account, reference } = order;
  const text = `Refund that was not made, order ${reference}`;
  await issueInvoice(tx, {
    ...{ sellerId, accountId: account.accountId, orderId },
    lines: [{ text, quantity: 1, amountNanoUsd: amountNano }],
    kind: "invoice",
    takesBack: creditNote,
  });
}

function lineOf({ offering, reference }: Order, amountNanoUsd: bigint): InvoiceLine {
  return { text: `${offering?.name ?? "Top-up of the balance"}, order ${reference}`, quantity: 1, amountNanoUsd };
}
