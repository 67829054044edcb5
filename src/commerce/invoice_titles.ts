import type { I18n } from "@lingui/core";
import type { Invoice } from "./invoices_store.ts";

/** How an invoice, receipt or credit note is called and numbered, in the panel and in its file. Source: INV-4. */

const DIGITS = 5;

/** Without the seller's address the file is a receipt, not an invoice. */
export function titleOf({ kind, seller }: Pick<Invoice, "kind" | "seller">): "Credit note" | "Invoice" | "Receipt" {
  if (kind === "credit_note") return /*i18n*/ "Credit note";
  return seller.name !== null && seller.address !== null ? /*i18n*/ "Invoice" : /*i18n*/ "Receipt";
}

/** The title in a language. */
export function titleIn(i18n: I18n, invoice: Pick<Invoice, "kind" | "seller">): string {
  return i18n.t(titleOf(invoice));
}

/** The number as it is printed: "00042". */
export function numberText(number: number): string {
  return String(number).padStart(DIGITS, "0");
}
