import { CENT_NANO_USD } from "../limits.ts";

/**
 * Amounts of Stripe, which are whole numbers of a currency's smallest unit, and ours, which are billionths of the currency. The lists
 * are those of Stripe's documentation, "Supported currencies": ISK and UGX are written with two decimals, though they have none. What people
 * can pay is in `currencies.ts`.
 */

const WITHOUT_DECIMALS = new Set("bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf".split(" "));
const WITH_THREE_DECIMALS = new Set("bhd jod kwd omr tnd".split(" "));

/** Billionths in Stripe's unit of a currency, as in "usd". */
function unitNanoOf(currency: string): bigint {
  if (WITHOUT_DECIMALS.has(currency)) return 100n * CENT_NANO_USD;
  return WITH_THREE_DECIMALS.has(currency) ? CENT_NANO_USD / 10n : CENT_NANO_USD;
}

export function fromStripe(amount: number, currency: string): bigint {
  return BigInt(amount) * unitNanoOf(currency);
}

/** `amountNano`: a multiple of `payableStepNano`. */
export function toStripe(amountNano: bigint, currency: string): number {
  return Number(amountNano / unitNanoOf(currency));
}
