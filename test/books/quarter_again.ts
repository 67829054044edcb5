/**
 * A quarter of trade, computed again from what people did and what providers reported. It imports nothing of the service, shares no
 * arithmetic with it, and reads none of its amounts. Amounts are billionths: of US dollars (`Usd`), or of the seller's currency.
 * Source: MON-21, MON-23, MRK-2, MRK-5, TAX-1, TAX-2, TAX-4, CUR-2, MTM-2, REN-3.
 */

/** How a seller sells from a moment on. Tax rates are percent. */
export type Terms = {
  fromMs: number;
  /** Billionths that can be paid: a cent, or a whole yen. */
  step: bigint;
  /** Billionths of the currency for a US dollar. */
  rate: bigint;
  packageTax: bigint;
  topUpTax: bigint;
  included: boolean;
};

export type Seller = {
  id: number;
  terms: Terms[] /** Hundredths of a percent on the operator's prices. */;
  markup: bigint;
};

/** Something that was paid. */
export type Sale = {
  orderId: number | null;
  accountId: number;
  seller: Seller;
  atMs: number;
  /** A package for a price in the seller's currency, or a credit in US dollars. */
  bought: { packagePrice: bigint; wholesaleUsd: bigint; requests: bigint } | { creditUsd: bigint };
  fromBalance: boolean;
  /** Of what was paid. */
  refunded: { amount: bigint; atMs: number } | null;
};

export type Request = {
  accountId: number;
  seller: Seller;
  atMs: number;
  /** Of the package that served it. */
  sale: Sale | null;
  /** Tokens with their prices in micro-USD for a million, or one image's price in micro-USD. */
  used: { input: bigint; output: bigint; inputPrice: bigint; outputPrice: bigint } | { imagePrice: bigint };
};

type Amounts = { net: bigint; tax: bigint; total: bigint; worthUsd: bigint };

const BILLION = 1_000_000_000n;

export function termsAt({ terms }: Seller, atMs: number): Terms {
  const found = terms.filter(({ fromMs }) => fromMs <= atMs).at(-1);
  if (found === undefined) throw new Error("nothing is sold yet");
  return found;
}

/** What a sale costs by the terms of its moment. */
export function amountsOf({ seller, atMs, bought }: Pick<Sale, "seller" | "atMs" | "bought">): Amounts {
  const { step, rate, packageTax, topUpTax, included } = termsAt(seller, atMs);
  if ("creditUsd" in bought) {
    const steps = ceiling(bought.creditUsd * rate, BILLION * step);
    const net = steps * step;
    const tax = nearest(net * topUpTax, 100n * step) * step;
    return { net, tax, total: net + tax, worthUsd: bought.creditUsd };
  }
  const price = bought.packagePrice;
  const net = included ? nearest(price * 100n, (100n + packageTax) * step) * step : price;
  const tax = included ? price - net : nearest(net * packageTax, 100n * step) * step;
  return { net, tax, total: net + tax, worthUsd: (net * BILLION) / rate };
}

/** What a refund of a sale contains. */
export function refundOf(sale: Sale): { amount: bigint; tax: bigint; worthUsd: bigint } {
  if (sale.refunded === null) return { amount: 0n, tax: 0n, worthUsd: 0n };
  const { tax, total, worthUsd } = amountsOf(sale);
  const { step } = termsAt(sale.seller, sale.atMs);
  const { amount } = sale.refunded;
  return { amount, tax: nearest(tax * amount, total * step) * step, worthUsd: (worthUsd * amount) / total };
}

/** What a request costs at the operator's prices, and with the seller's markup: in whole nano-USD, each rounded up once. */
export function chargeOf({ seller, used }: Request): { cost: bigint; retail: bigint } {
  const thousandths =
    "imagePrice" in used ? used.imagePrice * 1_000_000n : used.input * used.inputPrice + used.output * used.outputPrice;
  return { cost: ceiling(thousandths, 1_000n), retail: ceiling(thousandths * (10_000n + seller.markup), 10_000_000n) };
}

export type Span = { fromMs: number; toMs: number };
const isIn = ({ fromMs, toMs }: Span, atMs: number) => atMs >= fromMs && atMs < toMs;

export type Figures = { requests: number; revenue: bigint; cost: bigint };

/** Usage revenue and cost of a span: as the operator has them, of all or of one reseller's customers; and as that reseller has them. */
export function figuresOf(requests: readonly Request[], span: Span, resellerId?: number) {
  const operator: Figures = { requests: 0, revenue: 0n, cost: 0n };
  const reseller: Figures = { requests: 0, revenue: 0n, cost: 0n };
  for (const request of requests) {
    if (!isIn(span, request.atMs) || (resellerId !== undefined && request.seller.id !== resellerId)) continue;
    const { cost, retail } = chargeOf(request);
    let [toOperator, toSeller] = [request.seller.id === 0 ? retail : cost, retail];
    if (request.sale !== null) {
      if (!("packagePrice" in request.sale.bought)) throw new Error("a top-up serves no request");
      const { wholesaleUsd, requests: units } = request.sale.bought;
      toSeller = amountsOf(request.sale).worthUsd / units;
      toOperator = request.seller.id === 0 ? toSeller : wholesaleUsd / units;
    }
    operator.requests++;
    operator.revenue += toOperator;
    operator.cost += cost;
    reseller.requests++;
    reseller.revenue += toSeller;
    reseller.cost += toOperator;
  }
  return { operator, reseller };
}

/** A reseller's sales of a span, without what its markup earns. */
export function salesOf(sales: readonly Sale[], span: Span, sellerId: number) {
  const sums = { orders: 0, revenue: 0n, cost: 0n, topUps: 0n };
  for (const sale of sales) {
    if (sale.seller.id !== sellerId || !isIn(span, sale.atMs)) continue;
    sums.orders++;
    const { worthUsd } = amountsOf(sale);
    if ("creditUsd" in sale.bought) sums.topUps += worthUsd - refundOf(sale).worthUsd;
    else {
      sums.revenue += worthUsd - refundOf(sale).worthUsd;
      sums.cost += sale.bought.wholesaleUsd;
    }
  }
  return sums;
}

/** Earnings of a reseller's markup by requests that balances paid. */
export function earnedOf(requests: readonly Request[], span: Span, sellerId: number): bigint {
  let sum = 0n;
  for (const request of requests) {
    if (request.seller.id !== sellerId || request.sale !== null || !isIn(span, request.atMs)) continue;
    const { cost, retail } = chargeOf(request);
    sum += retail - cost;
  }
  return sum;
}

/** The balance of a customer after everything. */
export function customerBalance(accountId: number, sales: readonly Sale[], requests: readonly Request[]): bigint {
  let balance = 0n;
  for (const sale of sales) {
    if (sale.accountId !== accountId) continue;
    if ("creditUsd" in sale.bought) balance += sale.bought.creditUsd - refundOf(sale).worthUsd;
    else if (sale.fromBalance) balance -= amountsOf(sale).worthUsd;
  }
  for (const request of requests)
    if (request.accountId === accountId && request.sale === null) balance -= chargeOf(request).retail;
  return balance;
}

/** The balance of a reseller after everything, with earnings of all days credited. */
export function resellerBalance(
  start: bigint,
  sellerId: number,
  sales: readonly Sale[],
  requests: readonly Request[],
): bigint {
  let balance = start;
  for (const sale of sales) {
    if (sale.seller.id !== sellerId) continue;
    if ("creditUsd" in sale.bought) balance -= sale.bought.creditUsd - refundOf(sale).worthUsd;
    else balance += (sale.fromBalance ? amountsOf(sale).worthUsd : 0n) - sale.bought.wholesaleUsd;
  }
  return balance + earnedOf(requests, { fromMs: 0, toMs: Number.MAX_SAFE_INTEGER }, sellerId);
}

/** Invoices less credit notes of a seller in a span: totals and the tax in them. */
export function invoicedOf(sales: readonly Sale[], span: Span, sellerId: number): { total: bigint; tax: bigint } {
  const sums = { total: 0n, tax: 0n };
  for (const sale of sales) {
    if (sale.seller.id !== sellerId || sale.fromBalance) continue;
    if (isIn(span, sale.atMs)) {
      const { total, tax } = amountsOf(sale);
      sums.total += total;
      sums.tax += tax;
    }
    if (sale.refunded !== null && isIn(span, sale.refunded.atMs)) {
      const { amount, tax } = refundOf(sale);
      sums.total -= amount;
      sums.tax -= tax;
    }
  }
  return sums;
}

/** The price of a made-to-measure package: of the last step that its requests reach, in whole `unit`s, rounded up. */
export function measuredPrice(
  steps: readonly { from: bigint; perThousand: bigint }[],
  requests: bigint,
  unit: bigint,
): bigint {
  const reached = steps.filter(({ from }) => from <= requests).at(-1);
  if (reached === undefined) throw new Error("no step begins at 0");
  return ceiling(requests * reached.perThousand, 1_000n * unit) * unit;
}

function ceiling(a: bigint, b: bigint): bigint {
  return a % b === 0n ? a / b : a / b + 1n;
}

function nearest(a: bigint, b: bigint): bigint {
  return a % b < b - (a % b) ? a / b : a / b + 1n;
}
