import type { api } from "../../api.ts";
import { formatMoney } from "../../format.ts";

/** Payments, as the seller's pages show them. */

export type ListedPayment = NonNullable<Awaited<ReturnType<typeof api.payments.get>>["data"]>["payments"][number];

export type ListedRefund = ListedPayment["refunds"][number];

/** An amount of a payment: dollars, or another currency by its code. */
export function amountOf(amountNano: string, currency: string): string {
  const text = formatMoney(amountNano);
  return currency === "usd" ? text : `${text.replace("$", "")} ${currency.toUpperCase()}`;
}
