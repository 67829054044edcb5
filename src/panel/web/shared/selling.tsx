import { t } from "@lingui/core/macro";
import type { ReactNode } from "react";
import { i18n, NUMBERS } from "#language";
import { type OrderAmounts, packageAmounts, type SellingTerms } from "../../../commerce/order_amounts.ts";
import { taxWord } from "../../../commerce/tax_words.ts";
import { decimalAmount } from "../../../platform/currencies.ts";
import { formatAmount, formatCount } from "../format.ts";

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

/** "VAT 20 %", "Tax 8.25 %". `rate`: in thousandths of a percent. */
export function taxWords({ country, rate }: { country: string; rate: number }): string {
  return `${i18n._(taxWord(country))} ${formatCount(rate / 1000)} %`;
}

/** The price of a package as it is advertised, and what is said of its tax. `note` is null without tax. */
export function advertised(terms: SellingTerms, priceNano: string): { price: string; note: string | null } {
  const amounts = packageAmounts(terms, BigInt(priceNano));
  const net = formatAmount(amounts.netNano, terms.currency);
  if (terms.taxCountry === null) return { price: net, note: null };
  if (terms.reverseCharge) return { price: net, note: t`without VAT: reverse charge` };
  const tax = taxWords({ country: terms.taxCountry, rate: terms.packageTax });
  return terms.pricesWithTax
    ? { price: formatAmount(amounts.totalNano, terms.currency), note: t`with ${tax}` }
    : { price: net, note: t`plus ${tax}` };
}

/** What is paid, with its parts: "$120.00 ($100.00 + VAT 20 %: $20.00)". */
export function amountsText(terms: SellingTerms, kind: "package" | "top_up", amounts: OrderAmounts): string {
  const { currency, netNano, taxNano, totalNano } = amounts;
  const total = formatAmount(totalNano, currency);
  if (terms.taxCountry === null) return total;
  if (terms.reverseCharge) return t`${total} without VAT: reverse charge`;
  const rate = kind === "package" ? terms.packageTax : terms.topUpTax;
  const tax = taxWords({ country: terms.taxCountry, rate });
  return `${total} (${formatAmount(netNano, currency)} + ${tax}: ${formatAmount(taxNano, currency)})`;
}

/** "1 US dollar = 0.92 EUR"; null: it is sold in US dollars. */
export function rateText({ currency, usdRateNano }: Pick<SellingTerms, "currency" | "usdRateNano">): string | null {
  if (usdRateNano === null) return null;
  return t`1 US dollar = ${{ rate: `${decimalAmount(usdRateNano, currency)} ${currency.toUpperCase()}` }}`;
}

/** The sign before an amount: "$", "€", "KWD". */
export function currencySign(currency: string): string {
  const options = { style: "currency", currency, currencyDisplay: "narrowSymbol" } as const;
  const parts = new Intl.NumberFormat(NUMBERS, options).formatToParts(0);
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
  if (netNano === null || totalNano === null) return [[t`Price`, t`Not set. The seller will tell you.`]];
  const total = formatAmount(totalNano, currency);
  const rate = rateText({ currency, usdRateNano: usdRateNano === null ? null : BigInt(usdRateNano) });
  const exchange = rate === null ? [] : [[t`Exchange rate`, rate] as const];
  if (tax === null) return [[t`Price`, total], ...exchange];
  return [
    [t`Price`, formatAmount(netNano, currency)],
    tax.reverseCharge
      ? [t`VAT`, t`Reverse charge: you owe it yourself, with VAT number ${{ number: tax.buyerVatNumber ?? "" }}`]
      : [taxWords(tax), formatAmount(taxNano, currency)],
    [t`Total`, <strong key="total">{total}</strong>],
    ...exchange,
  ];
}
