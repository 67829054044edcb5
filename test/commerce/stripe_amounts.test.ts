import { expect, test } from "bun:test";
import { fromStripe, toStripe } from "../../src/commerce/stripe_amounts.ts";
import { payableStepNano } from "../../src/platform/currencies.ts";

/** Amounts by Stripe's documentation, "Supported currencies". Source: BUY-3, BUY-6. */

const UNIT = 1_000_000_000n;

const CASES: [what: string, currencies: string, five: number, step: bigint][] = [
  ["with two decimals", "usd eur gbp chf cad aud huf twd pln brl", 500, UNIT / 100n],
  ["that have no decimals and are written with two", "isk ugx", 500, UNIT],
  ["without decimals", "bif clp djf gnf jpy kmf krw mga pyg rwf vnd vuv xaf xof xpf", 5, UNIT],
  ["with three decimals, of which the last is 0", "bhd jod kwd omr tnd", 5_000, UNIT / 100n],
];

test.each(CASES)("five units of a currency %s", (_, currencies, five, step) => {
  for (const currency of currencies.split(" ")) {
    expect([currency, fromStripe(five, currency)]).toEqual([currency, 5n * UNIT]);
    expect([currency, toStripe(5n * UNIT, currency)]).toEqual([currency, five]);
    expect([currency, payableStepNano(currency)]).toEqual([currency, step]);
  }
});
