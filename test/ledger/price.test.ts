import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Rates, type TokenRates, tokenPricesOf } from "../../src/catalog/rates.ts";
import {
  type Bound,
  capWithin,
  chargeLines,
  chatBound,
  chatCharge,
  type FurtherCounts,
  imageBound,
  imageCharge,
  type PriceParts,
  recompute,
  retailChatCharge,
  sumOfLines,
  withMarkup,
} from "../../src/ledger/price.ts";
import { FURTHER_PARTS } from "../../src/price_parts.ts";
import { holds } from "../property.ts";

/** Source: MON-1, MON-11, MON-12, MON-13, MON-14, MRK-3. */
const RUNS = 5000;
/** The maximum of SQL's bigint, and of a balance. */
const BIGINT_MAX = 2n ** 63n - 1n;
const BALANCE_NANO_USD_MAX = 9_000_000_000_000_000n;

const RATES = { input: 3_000_000, cached_input: 300_000, output: 15_000_000 };
const PRICES = tokenPricesOf(RATES);

test("a charge is tokens × price, rounded up once, on the total, to a nano-USD", () => {
  expect(chatCharge(PRICES, { promptTokens: 812, cachedTokens: 0, completionTokens: 640 })).toBe(
    812n * 3000n + 640n * 15000n,
  );
  const cheap = tokenPricesOf({ input: 1, output: 1 });
  // 1 + 1 pico-USD: two roundings would give two nano-USD.
  expect(chatCharge(cheap, { promptTokens: 1, cachedTokens: 0, completionTokens: 1 })).toBe(1n);
  expect(chatCharge(cheap, { promptTokens: 0, cachedTokens: 0, completionTokens: 0 })).toBe(0n);
});

test("cached input has its own price and is never more than the prompt", () => {
  expect(chatCharge(PRICES, { promptTokens: 100, cachedTokens: 40, completionTokens: 0 })).toBe(
    60n * 3000n + 40n * 300n,
  );
  expect(chatCharge(PRICES, { promptTokens: 100, cachedTokens: 900, completionTokens: 0 })).toBe(100n * 300n);
});

test("the bound covers the charge of any response within it, margin and choices included", () => {
  const bound = chatBound(PRICES, { promptTokens: 100, choices: 2 }, 1500);
  const heldPico = bound.promptPico + 50n * bound.outputPico;
  const charge = chatCharge(PRICES, { promptTokens: 100, cachedTokens: 0, completionTokens: 100 });
  expect(heldPico / 1000n).toBeGreaterThanOrEqual((charge * 3n) / 2n);
});

test("an image costs its price; its bound is the same", () => {
  expect(imageCharge(40_000)).toBe(40_000_000n);
  expect(imageBound(40_000)).toEqual({ promptPico: 40_000_000_000n, outputPico: 0n });
});

test("the margin applies to the prompt and to the output", () => {
  const boundOf = (marginPermille: number) => {
    const { promptPico, outputPico } = chatBound(PRICES, { promptTokens: 140, choices: 1 }, marginPermille);
    return [Number(promptPico) / RATES.input, Number(outputPico) / RATES.output];
  };
  expect(boundOf(1000)).toEqual([140, 1]);
  expect(boundOf(2000)).toEqual([280, 2]);
});

test("a cap is lowered only if its price exceeds the range of SQL's integers", () => {
  const { outputPico } = chatBound(
    tokenPricesOf({ ...RATES, output: 1_000_000_000 }),
    { promptTokens: 0, choices: 128 },
    100_000,
  );
  expect(capWithin({ promptPico: 0n, outputPico }, 2_000_000_000) * Number(outputPico)).toBeLessThanOrEqual(9.1e18);
  expect(capWithin({ promptPico: 0n, outputPico: 15n }, 4096)).toBe(4096);
  expect(capWithin({ promptPico: 0n, outputPico: -1n }, 4096)).toBe(4096);
});

// All prices that an operator may enter, and prompts with as many of the most expensive images as a body can have.
const rate = fc.integer({ min: 0, max: 1_000_000_000 });
const rates: fc.Arbitrary<Rates> = fc
  .record(
    {
      ...{ input: rate, output: rate, cachedShare: fc.double({ min: 0, max: 1, noNaN: true }) },
      ...Object.fromEntries(FURTHER_PARTS.map((part) => [part, rate])),
    },
    { requiredKeys: ["input", "output"] },
  )
  .map(({ cachedShare, ...spec }) =>
    cachedShare === undefined ? spec : { ...spec, cached_input: Math.floor(spec.input * cachedShare) },
  );
const tokenRates: fc.Arbitrary<TokenRates> = fc
  .tuple(rates, fc.array(fc.tuple(fc.integer({ min: 1, max: 2_000_000 }), rates), { maxLength: 4 }))
  .map(([base, tiers]) => {
    const ascending = new Map(tiers.sort(([a], [b]) => a - b));
    return { ...base, tiers: [...ascending].map(([above, tier]) => ({ above_input_tokens: above, ...tier })) };
  });
const parts: fc.Arbitrary<PriceParts & { tokens: TokenRates }> = fc.record(
  { tokens: tokenRates, request: rate },
  { requiredKeys: ["tokens"] },
);
/** Each kind may be reported or not, with any count, even above the total. */
const further: fc.Arbitrary<FurtherCounts | undefined> = fc.option(
  fc.record(Object.fromEntries(FURTHER_PARTS.map((part) => [part, fc.integer({ min: 1, max: 3_000_000 })])), {
    requiredKeys: [],
  }),
  { nil: undefined },
);
const pricesOf = ({ tokens, request }: PriceParts & { tokens: TokenRates }) => tokenPricesOf(tokens, request);
const NO_MARGIN = 1000;
const marginPermille = fc.integer({ min: 1000, max: 100_000 });
const choices = fc.integer({ min: 1, max: 128 });
const capTokens = fc.integer({ min: 1, max: 2_000_000_000 });
const tokens = fc.oneof(fc.nat(10_000), fc.nat(30_000_000), fc.integer({ min: 0, max: 500_000_000_000 }));
const part = fc.double({ min: 0, max: 1, noNaN: true });

/** The amount that ledger_draw holds for a bound and a cap. */
function heldNanoUsd({ promptPico, outputPico }: Bound, cap: number): bigint {
  return (promptPico + BigInt(cap) * outputPico + 999n) / 1000n;
}

function check<T>(arbitrary: fc.Arbitrary<T>, rule: (value: T) => void): void {
  holds(fc.property(arbitrary, rule), { numRuns: RUNS });
}

test("a bound with a markup covers the charge with it, to the nano-USD", () => {
  const prices = tokenPricesOf({ input: 1000, output: 1 });
  const heldAndCharge = (promptTokens: number, cap: number) => {
    const bound = withMarkup(chatBound(prices, { promptTokens, choices: 1 }, NO_MARGIN), 1);
    const counts = { promptTokens, cachedTokens: 0, completionTokens: cap };
    return [heldNanoUsd(bound, cap), retailChatCharge(prices, counts, 1).chargeNanoUsd];
  };
  // 0.1 pico-USD above a whole nano-USD.
  expect(heldAndCharge(1, 0)).toEqual([2n, 2n]);
  // An output token costs 1.0001 pico-USD, and reserves 2.
  expect(heldAndCharge(0, 10_000)).toEqual([20n, 11n]);
});

test("any response within its bound costs at most the reserved amount, at any price, tier, margin, markup and number of choices", () => {
  const answers = fc.record({
    ...{
      parts,
      further,
      marginPermille,
      choices,
      markup: fc.nat(100_000),
      capTokens: fc.nat(1_000_000),
      hasMedia: fc.boolean(),
    },
    ...{ promptTokens: fc.oneof(fc.nat(3_000_000), fc.nat(30_000_000)) },
    ...{ promptPart: part, cachedPart: part, completionPart: part },
  });
  check(answers, ({ parts, further, hasMedia, marginPermille, choices, promptTokens, ...rest }) => {
    const prices = pricesOf(parts);
    const tokens = { promptTokens, choices, hasMedia };
    const bound = withMarkup(chatBound(prices, tokens, marginPermille), rest.markup);
    const cap = capWithin(bound, rest.capTokens);
    const prompt = Math.floor(promptTokens * rest.promptPart);
    // A provider counts no audio or images in a prompt that has only text.
    const { audio_input: _, image_input: __, ...ofText } = further ?? {};
    const counts = {
      promptTokens: prompt,
      cachedTokens: Math.floor(prompt * rest.cachedPart),
      completionTokens: Math.floor(cap * choices * rest.completionPart),
      further: hasMedia ? further : ofText,
    };
    const { chargeNanoUsd: charge } = retailChatCharge(prices, counts, rest.markup);
    // What a balance can pay at all: beyond it the bound is cut, and no balance covers it.
    const held = heldNanoUsd(bound, cap);
    if (held <= BALANCE_NANO_USD_MAX) expect(charge).toBeLessThanOrEqual(held);
  });
});

test("the bound uses the highest rates that apply, and no higher ones: a plain request of a model with three rates holds these", () => {
  const plain = { promptTokens: 100, choices: 1 };
  expect(chatBound(PRICES, plain, NO_MARGIN)).toEqual({ promptPico: 300_000_000n, outputPico: 15_000_000n });
  const media = tokenPricesOf({ ...RATES, cache_write: 3_750_000, audio_input: 40_000_000, reasoning: 20_000_000 });
  expect(chatBound(media, plain, NO_MARGIN)).toEqual({ promptPico: 375_000_000n, outputPico: 20_000_000n });
  const withMedia = chatBound(media, { ...plain, hasMedia: true }, NO_MARGIN);
  expect(withMedia.promptPico).toBe(4_000_000_000n);
  const tiers = [{ above_input_tokens: 99, input: 6_000_000, output: 1 }];
  const tiered = tokenPricesOf({ ...RATES, tiers }, 2_000);
  // The price per request on top; output at the higher rate of the first tier, because fewer tokens than the bound may be reported.
  expect(chatBound(tiered, plain, NO_MARGIN)).toEqual({ promptPico: 2_600_000_000n, outputPico: 15_000_000n });
  expect(chatBound(tiered, { ...plain, promptTokens: 99 }, NO_MARGIN).promptPico).toBe(2_297_000_000n);
});

test("each kind of token costs its own rate, and all other tokens the base rate", () => {
  const tokens = { ...RATES, cache_write: 3_750_000, cache_write_1h: 6_000_000, reasoning: 20_000_000 };
  const media = { audio_input: 40_000_000, image_input: 5_000_000, audio_output: 80_000_000, image_output: 30_000_000 };
  const counts = { promptTokens: 1_000, cachedTokens: 200, completionTokens: 500 };
  const further = {
    cache_write: 100,
    cache_write_1h: 50,
    audio_input: 30,
    image_input: 20,
    reasoning: 300,
    audio_output: 40,
  };
  const lines = chargeLines(tokenPricesOf({ ...tokens, ...media }, 1_000), { ...counts, further });
  expect(lines.map(({ part, count, microUsd }) => [part, count, microUsd])).toEqual([
    ["input", 600, 3_000_000],
    ["cache_write_1h", 50, 6_000_000],
    ["cache_write", 100, 3_750_000],
    ["audio_input", 30, 40_000_000],
    ["image_input", 20, 5_000_000],
    ["cached_input", 200, 300_000],
    ["output", 160, 15_000_000],
    ["audio_output", 40, 80_000_000],
    ["reasoning", 300, 20_000_000],
    ["request", 1, 1_000],
  ]);
  expect(sumOfLines(lines)).toBe(
    300_000n +
      375_000n +
      1_200_000n +
      100_000n +
      60_000n +
      1_800_000n +
      3_200_000n +
      6_000_000n +
      2_400_000n +
      1_000_000n,
  );
});

test("a kind without a price costs the highest rate of its kind, never nothing; cached input and reasoning cost the base rate", () => {
  const counts = { promptTokens: 100, cachedTokens: 0, completionTokens: 100 };
  const priceOf = (rates: Rates, part: (typeof FURTHER_PARTS)[number]) =>
    chargeLines(tokenPricesOf(rates), { ...counts, further: { [part]: 10 } }).find((line) => line.part === part)
      ?.microUsd;
  const bare = { input: 3, output: 15 };
  for (const part of ["cache_write", "cache_write_1h", "audio_input", "image_input"] as const)
    expect(priceOf(bare, part)).toBe(3);
  for (const part of ["reasoning", "audio_output", "image_output"] as const) expect(priceOf(bare, part)).toBe(15);
  expect(priceOf({ ...bare, cache_write: 4 }, "cache_write_1h")).toBe(4);
  expect(priceOf({ ...bare, audio_input: 40 }, "cache_write")).toBe(3);
  expect(priceOf({ ...bare, audio_input: 40 }, "image_input")).toBe(40);
  expect(priceOf({ ...bare, audio_output: 80 }, "image_output")).toBe(80);
  expect(priceOf({ ...bare, audio_output: 80 }, "reasoning")).toBe(15);
  const cached = chargeLines(tokenPricesOf({ ...bare, cache_write: 4 }), { ...counts, cachedTokens: 5 });
  expect(cached.find(({ part }) => part === "cached_input")?.microUsd).toBe(3);
});

test("a tier's rates replace those of the whole request once its input tokens are above the number", () => {
  const tiers = [
    { above_input_tokens: 100, input: 20, output: 200 },
    { above_input_tokens: 1_000, input: 30, output: 300, cached_input: 3 },
  ];
  const prices = tokenPricesOf({ input: 10, output: 100, cached_input: 1, tiers });
  const ratesAt = (promptTokens: number) =>
    chargeLines(prices, { promptTokens, cachedTokens: 1, completionTokens: 1 }).map(({ microUsd }) => microUsd);
  expect(ratesAt(100)).toEqual([10, 1, 100]);
  // Without its own cached price, a tier's cached input costs as much as its input: nothing is inherited.
  expect(ratesAt(101)).toEqual([20, 20, 200]);
  expect(ratesAt(1_000)).toEqual([20, 20, 200]);
  expect(ratesAt(1_001)).toEqual([30, 3, 300]);
});

test("a receipt's counts and price version give the same charge again, and the kinds without their own price", () => {
  const tokens = { input: 3, output: 15, audio_input: 40 };
  const counts = { promptTokens: 100, cachedTokens: 10, completionTokens: 50 };
  const again = recompute(
    { tokens, request: 7 },
    { ...counts, further: { cache_write: 5, audio_input: 1, reasoning: 9 } },
  );
  expect(again?.lines.filter(({ hasOwnPrice }) => !hasOwnPrice).map(({ part }) => part)).toEqual(["cache_write"]);
  expect(again?.nanoUsd).toBe(7_000n + 2n);
  const images = { "1024x1024/high": 40_000 };
  expect(recompute({ images }, { ...counts, further: { image: "1024x1024/high" } })?.nanoUsd).toBe(40_000_000n);
  expect(recompute({ images }, { ...counts, further: { image: "1024x1024" } })).toBeNull();
  expect(recompute({ images }, counts)).toBeNull();
});

const counts = fc.record({ promptTokens: tokens, cachedTokens: tokens, completionTokens: tokens, further });

test("a charge is rounded up once: never below the exact sum, never a whole nano-USD above it", () => {
  check(fc.record({ parts, counts }), ({ parts, counts }) => {
    const lines = chargeLines(pricesOf(parts), counts);
    const exact = lines.reduce((pico, { count, microUsd, part }) => {
      return pico + BigInt(count) * BigInt(microUsd) * (part === "request" ? 1_000_000n : 1n);
    }, 0n);
    const above = chatCharge(pricesOf(parts), counts) * 1000n - exact;
    expect(above >= 0n && above < 1000n).toBe(true);
    expect(recompute(parts, counts)?.nanoUsd).toBe(chatCharge(pricesOf(parts), counts));
  });
});

test("every token is charged exactly once: the lines of input are the prompt, those of output the completion", () => {
  check(fc.record({ parts, counts }), ({ parts, counts }) => {
    const sums = { in: 0, out: 0 };
    for (const { part, count } of chargeLines(pricesOf(parts), counts)) {
      expect(count).toBeGreaterThan(0);
      if (part === "request") continue;
      sums[part === "output" || part === "reasoning" || part.endsWith("_output") ? "out" : "in"] += count;
    }
    expect(sums).toEqual({ in: counts.promptTokens, out: counts.completionTokens });
  });
});

test("every bound fits SQL's integers, and a limited one is above any balance", () => {
  const asked = fc.record({
    ...{ parts, marginPermille, choices, promptTokens: tokens, capTokens },
  });
  check(asked, ({ parts, marginPermille, choices, promptTokens, capTokens }) => {
    const prices = pricesOf(parts);
    const bound = chatBound(prices, { promptTokens, choices }, marginPermille);
    const cap = capWithin(bound, capTokens);
    expect(cap >= 0 && cap <= capTokens).toBe(true);
    expect(bound.promptPico + BigInt(cap) * bound.outputPico + 999n <= BIGINT_MAX).toBe(true);
    // A prompt's part is never cut below what any of its rates would make of it, except to the range of SQL's integers.
    const all = [parts.tokens, ...(parts.tokens.tiers ?? [])];
    const least = Math.min(...all.map(({ input }) => input));
    const leastPico = (BigInt(promptTokens) * BigInt(least) * BigInt(marginPermille) + 999n) / 1000n;
    if (cap < capTokens || bound.promptPico < leastPico || bound.promptPico === 9_100_000_000_000_000_000n)
      expect(heldNanoUsd(bound, cap)).toBeGreaterThan(BALANCE_NANO_USD_MAX);
  });
});
