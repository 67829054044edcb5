import type { ReactNode } from "react";
import { type OrderAmounts, packageAmounts, type SellingTerms } from "../../../commerce/order_amounts.ts";
import { taxText } from "../../../commerce/tax_words.ts";
import { decimalAmount, formatAmount } from "../../../platform/currencies.ts";

/** Prices, their tax and their currency, as the pages of buyers and sellers show them. */

/** Terms as an answer has them. */
export type AnsweredTerms = Omit<SellingTerms, "usdRateNano" | "reverseCharge"> & {
  usdRateNano: string | null;
  reverseCharge?: boolean;
};

/** In US dollars, without tax: while the terms are loaded. */
const PLAIN: SellingTerms = {
  currency: "usd",
  usdRateNano: null,
  taxCountry: null,
  packageTax: 0,
  topUpTax: 0,
  pricesWithTax: false,
  reverseCharge: false,
};

export function toTerms(answered: AnsweredTerms | undefined): SellingTerms {
  if (answered === undefined) return PLAIN;
  const { usdRateNano, reverseCharge = false } = answered;
  return { ...answered, reverseCharge, usdRateNano: usdRateNano === null ? null : BigInt(usdRateNano) };
}

/** The price of a package as it is advertised, and what is said of its tax. `note` is null without tax. */
export function advertised(terms: SellingTerms, priceNano: string): { price: string; note: string | null } {
  const amounts = packageAmounts(terms, BigInt(priceNano));
  const net = formatAmount(amounts.netNano, terms.currency);
  if (terms.taxCountry === null) return { price: net, note: null };
  if (terms.reverseCharge) return { price: net, note: "without VAT: reverse charge" };
  const tax = taxText({ country: terms.taxCountry, rate: terms.packageTax });
  return terms.pricesWithTax
    ? { price: formatAmount(amounts.totalNano, terms.currency), note: `with ${tax}` }
    : { price: net, note: `plus ${tax}` };
}

/** What is paid, with its parts: "$120.00 ($100.00 + VAT 20 %: $20.00)". */
export function amountsText(terms: SellingTerms, kind: "package" | "top_up", amounts: OrderAmounts): string {
  const { currency, netNano, taxNano, totalNano } = amounts;
  const total = formatAmount(totalNano, currency);
  if (terms.taxCountry === null) return total;
  if (terms.reverseCharge) return `${total} without VAT: reverse charge`;
  const rate = kind === "package" ? terms.packageTax : terms.topUpTax;
  const tax = taxText({ country: terms.taxCountry, rate });
  return `${total} (${formatAmount(netNano, currency)} + ${tax}: ${formatAmount(taxNano, currency)})`;
}

/** "1 US dollar = 0.92 EUR"; null: it is sold in US dollars. */
export function rateText({ currency, usdRateNano }: Pick<SellingTerms, "currency" | "usdRateNano">): string | null {
  if (usdRateNano === null) return null;
  return `1 US dollar = ${decimalAmount(usdRateNano, currency)} ${currency.toUpperCase()}`;
}

/** The sign before an amount: "$", "€", "KWD". */
export function currencySign(currency: string): string {
  const options = { style: "currency", currency, currencyDisplay: "narrowSymbol" } as const;
  const parts = new Intl.NumberFormat("en-US", options).formatToParts(0);
  return parts.find(({ type }) => type === "currency")?.value ?? currency.toUpperCase();
}

type PricedOrder = {
  currency: string;
  netNano: string | null;
  taxNano: string;
  totalNano: string | null;
  usdRateNano: string | null;
  tax: { country: string; rate: number; reverseCharge: boolean; buyerVatNumber: string | null } | null;
};

/** What an order costs, as facts: its price, its tax and the total, as they were when it was placed. */
export function priceFacts(order: PricedOrder): (readonly [string, ReactNode])[] {
  const { currency, netNano, taxNano, totalNano, usdRateNano, tax } = order;
  if (netNano === null || totalNano === null) return [["Price", "Not set. The seller will tell you."]];
  const total = formatAmount(totalNano, currency);
  const rate = rateText({ currency, usdRateNano: usdRateNano === null ? null : BigInt(usdRateNano) });
  const exchange = rate === null ? [] : [["Exchange rate", rate] as const];
  if (tax === null) return [["Price", total], ...exchange];
  return [
    ["Price", formatAmount(netNano, currency)],
    tax.reverseCharge
      ? ["VAT", `Reverse charge: you owe it yourself, with VAT number ${tax.buyerVatNumber}`]
      : [taxText(tax), formatAmount(taxNano, currency)],
    ["Total", <strong key="total">{total}</strong>],
    ...exchange,
  ];
}
