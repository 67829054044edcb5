import { eq } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import type { LanguageTag } from "../languages/languages.ts";
import { textsIn } from "../languages/server_texts.ts";
import type { Tx } from "../platform/db.ts";
import { tell } from "../platform/outbox_store.ts";
import { type payments, refunds } from "../platform/schema_payments.ts";
import { type InvoiceLine, invoiceLanguage, issueInvoice } from "./invoices_store.ts";
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
  const language = await invoiceLanguage(tx, { sellerId, accountId });
  const lines = [lineOf(language, order, order.netNano)];
  const invoice = await issueInvoice(tx, {
    ...{ sellerId, accountId, orderId, language, lines, currency, tax, taxNano },
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
    const language = await invoiceLanguage(tx, { sellerId, accountId });
    const lines = [lineOf(language, order, amountNano - taxNano)];
    const note = {
      sellerId,
      accountId,
      orderId,
      language,
      lines,
      currency,
      tax,
      taxNano,
      kind: "credit_note",
    } as const;
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
  const { sellerId, orderId, reference, currency, tax } = order;
  const { accountId } = order.account;
  const language = await invoiceLanguage(tx, { sellerId, accountId });
  const i18n = textsIn(language);
  const text = i18n.t("Refund that was not made, order {reference}", { reference });
  await issueInvoice(tx, {
    ...{ sellerId, accountId, orderId, language, currency, tax, taxNano },
    lines: [{ text, quantity: 1, amountNano: amountNano - taxNano }],
    kind: "invoice",
    takesBack: creditNote,
  });
}

function lineOf(language: LanguageTag, { offering, reference }: Order, amountNano: bigint): InvoiceLine {
  const i18n = textsIn(language);
  const text =
    offering === null
      ? i18n.t("Top-up of the balance, order {reference}", { reference })
      : i18n.t("{name}, order {reference}", { name: offering.name, reference });
  return { text, quantity: 1, amountNano };
}
