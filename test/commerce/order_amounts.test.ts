import { describe, expect, test } from "bun:test";
import {
  packageAmounts,
  priceWorth,
  refundShare,
  type SellingTerms,
  topUpAmounts,
} from "../../src/commerce/order_amounts.ts";
import { taxText } from "../../src/commerce/tax_words.ts";
import { checkVatNumber, countryOfVat } from "../../src/commerce/vat_numbers.ts";
import { CURRENCIES, decimalAmount, decimalsOf, formatAmount } from "../../src/platform/currencies.ts";
import { randomOf } from "../random.ts";

/**
 * What orders cost, by the definition of each rule: nothing here computes as the code does.
 * Source: TAX-1, TAX-2, TAX-3, TAX-4, CUR-1, CUR-2.
 */

const UNIT = 1_000_000_000n;
/** What can be paid, in billionths. */
const STEPS: Readonly<Record<string, bigint>> = {
  ...{ usd: UNIT / 100n, eur: UNIT / 100n, jpy: UNIT, isk: UNIT, kwd: UNIT / 100n, mga: UNIT, huf: UNIT / 100n },
};
const ROUNDS = 4_000;

const { next: random } = randomOf(11);
const whole = (min: number, max: number) => min + Math.floor(random() * (max - min + 1));
const oneOf = <T>(all: readonly T[]): T => all[whole(0, all.length - 1)] as T;

function randomTerms(): SellingTerms {
  const currency = oneOf(Object.keys(STEPS));
  return {
    currency,
    usdRateNano: currency === "usd" ? null : BigInt(whole(10_000_000, 2_000_000_000)) * BigInt(oneOf([1, 7, 100])),
    taxCountry: "DE",
    packageTax: oneOf([0, 1, 5_500, 19_000, 20_000, 21_125, 100_000]),
    topUpTax: oneOf([0, 7_000, 20_000, 100_000]),
    pricesWithTax: oneOf([true, false]),
    reverseCharge: oneOf([true, false, false]),
  };
}

/** Whether `amount` is `exact / scale`, rounded half up to a multiple of `step`: no other multiple is nearer. */
function isNearest(amount: bigint, { exact, scale, step }: { exact: bigint; scale: bigint; step: bigint }): boolean {
  const off = amount * scale - exact;
  return amount % step === 0n && -2n * off < step * scale && 2n * off <= step * scale;
}

describe("what an order costs", () => {
  test("of a package: net and tax are the total, the tax is that of the net price, and the price as it was set is one of them", () => {
    for (let round = 0; round < ROUNDS; round++) {
      const terms = randomTerms();
      const step = STEPS[terms.currency] ?? 0n;
      const price = BigInt(whole(1, 9_999)) * step;
      const got = packageAmounts(terms, price);
      const case_ = JSON.stringify({ ...terms, usdRateNano: String(terms.usdRateNano), price: String(price) });
      expect([case_, got.netNano + got.taxNano]).toEqual([case_, got.totalNano]);
      expect([case_, got.netNano > 0n, got.netNano % step, got.taxNano % step]).toEqual([case_, true, 0n, 0n]);
      const rate = BigInt(terms.packageTax);
      if (terms.reverseCharge) expect([case_, got.taxNano]).toEqual([case_, 0n]);
      else if (terms.pricesWithTax) expect([case_, got.totalNano]).toEqual([case_, price]);
      else
        expect([case_, isNearest(got.taxNano, { exact: price * rate, scale: 100_000n, step })]).toEqual([case_, true]);
      if (!terms.pricesWithTax) expect([case_, got.netNano]).toEqual([case_, price]);
      else {
        const net = { exact: price * 100_000n, scale: 100_000n + rate, step };
        expect([case_, isNearest(got.netNano, net)]).toEqual([case_, true]);
      }
      const worth = terms.usdRateNano === null ? got.netNano * UNIT : got.priceNanoUsd * terms.usdRateNano;
      const left = got.netNano * UNIT - worth;
      expect([case_, left >= 0n && left < (terms.usdRateNano ?? UNIT)]).toEqual([case_, true]);
    }
  });

  test("of a top-up: it credits its amount exactly, whichever way prices of packages are shown, and the tax is on top", () => {
    for (let round = 0; round < ROUNDS; round++) {
      const terms = randomTerms();
      const credit = (BigInt(whole(100, 900_000)) * UNIT) / 100n;
      const got = topUpAmounts(terms, credit);
      const other = topUpAmounts({ ...terms, pricesWithTax: !terms.pricesWithTax }, credit);
      expect(got).toEqual(other);
      expect(got.priceNanoUsd).toBe(credit);
      const step = STEPS[terms.currency] ?? 0n;
      // The buyer chooses the credit: no amount of it may be cheaper than its worth.
      const over = got.netNano * UNIT - credit * (terms.usdRateNano ?? UNIT);
      expect([got.netNano % step, over >= 0n, over < step * UNIT]).toEqual([0n, true, true]);
      const tax = { exact: got.netNano * BigInt(terms.topUpTax), scale: 100_000n, step };
      expect(terms.reverseCharge ? got.taxNano === 0n : isNearest(got.taxNano, tax)).toBe(true);
      expect(got.netNano + got.taxNano).toBe(got.totalNano);
    }
  });

  test.each([
    ["$100 with 20 % on top", { topUpTax: 20_000 }, "$120.00", "$20.00"],
    ["€92 with 20 % on top", { topUpTax: 20_000, currency: "eur", usdRateNano: 920_000_000n }, "€110.40", "€18.40"],
    [
      "in a currency without decimals",
      { topUpTax: 10_000, currency: "jpy", usdRateNano: 151_333_333_333n },
      "¥16,647",
      "¥1,513",
    ],
    ["with three decimals", { topUpTax: 5_000, currency: "kwd", usdRateNano: 307_123_456n }, "KWD 32.260", "KWD 1.540"],
    ["at 100 %", { topUpTax: 100_000 }, "$200.00", "$100.00"],
    ["at 0 %", {}, "$100.00", "$0.00"],
    ["by reverse charge", { topUpTax: 20_000, reverseCharge: true }, "$100.00", "$0.00"],
  ])("of a top-up of $100 %s", (_, changes, total, tax) => {
    const plain = { currency: "usd", usdRateNano: null, packageTax: 0, topUpTax: 0, pricesWithTax: false };
    const terms: SellingTerms = { ...plain, taxCountry: "AT", reverseCharge: false, ...changes };
    const got = topUpAmounts(terms, 100n * UNIT);
    expect([formatAmount(got.totalNano, terms.currency), formatAmount(got.taxNano, terms.currency)]).toEqual([
      total,
      tax,
    ]);
    expect(got.priceNanoUsd).toBe(100n * UNIT);
  });

  test("what a set price is worth is compared with the wholesale price without its tax", () => {
    const terms = { taxCountry: "AT", packageTax: 20_000, topUpTax: 0, currency: "eur", usdRateNano: 800_000_000n };
    expect(priceWorth({ ...terms, pricesWithTax: true }, 12n * UNIT)).toBe(12_500_000_000n);
    expect(priceWorth({ ...terms, pricesWithTax: false }, 12n * UNIT)).toBe(15n * UNIT);
  });
});

test("refunds in parts, also when some fail, have exactly the tax and the worth of the order in the end, and never more of either", () => {
  for (let round = 0; round < ROUNDS; round++) {
    const terms = { ...randomTerms(), reverseCharge: false };
    const step = STEPS[terms.currency] ?? 0n;
    const order = topUpAmounts(terms, (BigInt(whole(100, 50_000)) * UNIT) / 100n);
    // An order cannot cost nothing.
    if (order.netNano === 0n) continue;
    const live: { amountNano: bigint; taxNano: bigint; worthNanoUsd: bigint }[] = [];
    const sums = () =>
      live.reduce(
        (sum, one) => ({
          amountNano: sum.amountNano + one.amountNano,
          taxNano: sum.taxNano + one.taxNano,
          worthNanoUsd: sum.worthNanoUsd + one.worthNanoUsd,
        }),
        { amountNano: 0n, taxNano: 0n, worthNanoUsd: 0n },
      );
    let hasFailed = false;
    while (sums().amountNano < order.totalNano) {
      const left = order.totalNano - sums().amountNano;
      const steps = Number(left / step);
      const amountNano = random() < 0.3 ? left : BigInt(whole(1, Math.max(1, Math.ceil(steps / 3)))) * step;
      const share = refundShare(order, sums(), amountNano);
      live.push({ amountNano, ...share });
      const now = sums();
      const said = JSON.stringify({ ...order, now, share }, (_, value) =>
        typeof value === "bigint" ? `${value}` : value,
      );
      expect([said, share.taxNano >= 0n && share.taxNano <= amountNano]).toEqual([said, true]);
      expect([said, share.worthNanoUsd >= 0n && now.worthNanoUsd <= order.priceNanoUsd]).toEqual([said, true]);
      expect([said, now.taxNano <= order.taxNano]).toEqual([said, true]);
      expect([said, now.amountNano - now.taxNano <= order.netNano]).toEqual([said, true]);
      const proportion = { exact: order.taxNano * now.amountNano, scale: order.totalNano, step };
      expect([said, hasFailed || isNearest(now.taxNano, proportion)]).toEqual([said, true]);
      if (random() < 0.1 && now.amountNano < order.totalNano) {
        live.splice(whole(0, live.length - 1), 1);
        hasFailed = true;
      }
    }
    expect(sums()).toEqual({
      ...{ amountNano: order.totalNano, taxNano: order.taxNano, worthNanoUsd: order.priceNanoUsd },
    });
  }
});

describe("VAT numbers", () => {
  const GOOD = `ATU13585627 BE0428759497 BG175074752 CY10259033P CZ25123891 DE136695976 DK13585628 EE100931558 EL094259216 ESA13585625 FI20774740
    FR83404833048 HR33392005961 HU12892312 IE6433435F IT00743110157 LT119511515 LU15027442 LV40003521600 MT11679112 NL004495445B01 PL8567346215
    PT501964843 RO18547290 SE123456789701 SI50223054 SK2022749619`;

  test("of every country of the EU are accepted, and a wrong digit, letter or length is not", async () => {
    const countries = new Set<string>();
    for (const number of GOOD.split(/\s+/)) {
      expect(await checkVatNumber(number)).toBe(number);
      countries.add(countryOfVat(number));
      const at = number.search(/\d/);
      const other = `${number.slice(0, at)}${(Number(number[at]) + 1) % 10}${number.slice(at + 1)}`;
      for (const wrong of [other, number.slice(0, 3), `${number}777`, `${number.slice(0, 2)}${number}`])
        await expect(checkVatNumber(wrong)).rejects.toThrow();
    }
    expect(countries.size).toBe(27);
  });

  test.each([
    ["", null],
    [null, null],
    [" de 136.695-976 ", "DE136695976"],
    // Greece's code as a country is not that of its numbers, and the EU knows only the latter.
    ["GR094259216", "EL094259216"],
  ])("%p is read as %p", async (typed, read) => {
    expect(await checkVatNumber(typed)).toBe(read);
  });

  test.each([
    "DE",
    "136695976",
    "XX123456789",
    "GB980780684",
    "XI123456789",
    "CHE116281710",
    "DE136695976\u0000",
    "D".repeat(300),
  ])("%p is refused", async (typed) => {
    await expect(checkVatNumber(typed)).rejects.toThrow("VAT number");
  });
});

test("amounts are shown with the decimals of their currency, and all that they have", () => {
  const shown = (nano: bigint, currency: string) => [formatAmount(nano, currency), decimalAmount(nano, currency)];
  expect(shown(1_234_500_000_000n, "usd")).toEqual(["$1,234.50", "1234.50"]);
  expect(shown(-92_000_000_000n, "eur")).toEqual(["−€92.00", "-92.00"]);
  expect(shown(1_250n * UNIT, "jpy")).toEqual(["¥1,250", "1250"]);
  expect(shown(1_230_000_000n, "kwd")).toEqual(["KWD 1.230", "1.230"]);
  expect(shown(900_000_000_123_456_789n, "idr")).toEqual(["IDR 900,000,000.123456789", "900000000.123456789"]);
  expect(shown(5n * UNIT, "not one")).toEqual(["¤5.00", "5.00"]);
  expect(CURRENCIES.filter((code) => ![0, 2, 3].includes(decimalsOf(code) ?? -1) || !/^[a-z]{3}$/.test(code))).toEqual(
    [],
  );
  expect(decimalsOf("xyz")).toBeUndefined();
  expect([taxText({ country: "AT", rate: 20_000 }), taxText({ country: "US", rate: 8_875 })]).toEqual([
    "VAT 20 %",
    "Tax 8.875 %",
  ]);
});
