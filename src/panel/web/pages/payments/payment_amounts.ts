import type { api } from "../../api.ts";
import { formatAmount, formatMoney } from "../../format.ts";

/** Payments, as the seller's pages show them. */

export type ListedPayment = NonNullable<Awaited<ReturnType<typeof api.payments.get>>["data"]>["payments"][number];

export type ListedRefund = ListedPayment["refunds"][number];

/** An amount of a payment. */
export function amountOf(amountNano: string, currency: string): string {
  return currency === "usd" ? formatMoney(amountNano) : formatAmount(amountNano, currency);
}
