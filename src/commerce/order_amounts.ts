import { payableStepNano } from "../platform/currencies.ts";

/**
 * What an order costs: price, tax and total in the seller's currency, and what the price is worth in US dollars. Pure; the browser computes
 * with it too. Amounts are billionths of a currency. Source: TAX-1, TAX-2, CUR-2.
 */

/** Thousandths of a percent in 100 %. */
export const TAX_UNIT = 100_000;
/** One unit of a currency in billionths. */
export const ONE_NANO = 1_000_000_000n;
/** The largest total of an order, in billionths of its currency: what a payment can have. */
export const TOTAL_NANO_MAX = 900_000_000_000_000_000n;

/** The largest price that a seller can set: with a tax of 100 % it is the largest total. */
export const PRICE_NANO_MAX = TOTAL_NANO_MAX / 2n;

/** How a seller sells to a buyer on this day. */
export type SellingTerms = {
  /** In lower case, as in `usd`. */
  currency: string;
  /** Billionths of the currency for one US dollar; null: it is the US dollar. */
  usdRateNano: bigint | null;
  /** ISO 3166-1, in upper case; null: no tax is charged. */
  taxCountry: string | null;
  /** Thousandths of a percent, by what is sold. */
  packageTax: number;
  topUpTax: number;
  /** Prices of packages contain the tax. The amount of a top-up never does. */
  pricesWithTax: boolean;
  /** The buyer is a business of another country of the EU, and owes the tax there itself. */
  reverseCharge: boolean;
};

export type OrderAmounts = {
  currency: string;
  netNano: bigint;
  taxNano: bigint;
  /** net + tax: what is paid. */
  totalNano: bigint;
  /** The net price in US dollars, rounded down; of a top-up, exactly what is credited. */
  priceNanoUsd: bigint;
};

/** What a package costs whose price the seller has set to `priceNano` of its currency. */
export function packageAmounts(terms: SellingTerms, priceNano: bigint): OrderAmounts {
  const { currency, packageTax, pricesWithTax, reverseCharge } = terms;
  const step = payableStepNano(currency);
  const rate = BigInt(packageTax);
  const unit = BigInt(TAX_UNIT);
  const netNano = pricesWithTax ? rounded(priceNano * unit, unit + rate, step) : priceNano;
  const fullTax = pricesWithTax ? priceNano - netNano : rounded(netNano * rate, unit, step);
  const taxNano = reverseCharge ? 0n : fullTax;
  return { currency, netNano, taxNano, totalNano: netNano + taxNano, priceNanoUsd: worthNanoUsd(terms, netNano) };
}

/**
 * What a top-up costs that credits exactly `creditNanoUsd`: the seller's rate of exchange, then the tax on top. The net amount is rounded up:
 * the buyer chooses the credit, and would choose one that is rounded down.
 */
export function topUpAmounts(terms: SellingTerms, creditNanoUsd: bigint): OrderAmounts {
  const { currency, usdRateNano, topUpTax, reverseCharge } = terms;
  const step = payableStepNano(currency);
  const netNano = usdRateNano === null ? creditNanoUsd : roundedUp(creditNanoUsd * usdRateNano, ONE_NANO, step);
  const taxNano = reverseCharge ? 0n : rounded(netNano * BigInt(topUpTax), BigInt(TAX_UNIT), step);
  return { currency, netNano, taxNano, totalNano: netNano + taxNano, priceNanoUsd: creditNanoUsd };
}

/** A net amount of the seller's currency in US dollars, rounded down to the nano-USD. */
export function worthNanoUsd({ usdRateNano }: Pick<SellingTerms, "usdRateNano">, netNano: bigint): bigint {
  return usdRateNano === null ? netNano : (netNano * ONE_NANO) / usdRateNano;
}

/** What a price that a seller has set is worth in US dollars without tax. As `price_worth` in SQL. */
export function priceWorth(terms: Omit<SellingTerms, "reverseCharge">, priceNano: bigint): bigint {
  const { pricesWithTax, packageTax, usdRateNano } = terms;
  const unit = BigInt(TAX_UNIT);
  const whole = pricesWithTax ? unit + BigInt(packageTax) : unit;
  return (priceNano * unit * ONE_NANO) / (whole * (usdRateNano ?? ONE_NANO));
}

type Whole = { totalNano: bigint; taxNano: bigint; priceNanoUsd: bigint; currency: string };
/** What was refunded of it before: sums over refunds that did not fail. */
type Before = { amountNano: bigint; taxNano: bigint; worthNanoUsd: bigint };

/**
 * The tax in a refund, and what the rest is worth in US dollars: in proportion, as a part of everything refunded until then. So all refunds of
 * an order together have exactly its tax and its worth, and none has more of either than is left. Source: TAX-4.
 */
export function refundShare(
  whole: Whole,
  before: Before,
  amountNano: bigint,
): { taxNano: bigint; worthNanoUsd: bigint } {
  const refunded = before.amountNano + amountNano;
  const netLeft = whole.totalNano - whole.taxNano - (before.amountNano - before.taxNano);
  const tax = rounded(whole.taxNano * refunded, whole.totalNano, payableStepNano(whole.currency)) - before.taxNano;
  const least = amountNano > netLeft ? amountNano - netLeft : 0n;
  const taxNano = between(tax, least, smaller(amountNano, whole.taxNano - before.taxNano));
  const worth = (whole.priceNanoUsd * refunded) / whole.totalNano - before.worthNanoUsd;
  return { taxNano, worthNanoUsd: between(worth, 0n, whole.priceNanoUsd - before.worthNanoUsd) };
}

/** `numerator / denominator`, rounded half up to a multiple of `step`. */
function rounded(numerator: bigint, denominator: bigint, step: bigint): bigint {
  const unit = denominator * step;
  return ((2n * numerator + unit) / (2n * unit)) * step;
}

function roundedUp(numerator: bigint, denominator: bigint, step: bigint): bigint {
  const unit = denominator * step;
  return ((numerator + unit - 1n) / unit) * step;
}

function between(value: bigint, min: bigint, max: bigint): bigint {
  return value < min ? min : smaller(value, max);
}

export function smaller(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}
