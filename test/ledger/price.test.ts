import { expect, test } from "bun:test";
import fc from "fast-check";
import { type Bound, capWithin, chatBound, chatCharge, imageBound, imageCharge } from "../../src/ledger/price.ts";

/** Source: MON-1. */

const SEED = Number(process.env.PROPERTY_SEED ?? Math.floor(Math.random() * 2 ** 31));
const RUNS = 5000;
/** What SQL's bigint holds, and the most that a balance may. */
const BIGINT_MAX = 2n ** 63n - 1n;
const BALANCE_NANO_USD_MAX = 9_000_000_000_000_000n;

const PRICES = { inputMicroUsd: 3_000_000, cachedInputMicroUsd: 300_000, outputMicroUsd: 15_000_000 };

test("a charge is tokens × price, rounded up once, on the total, to a nano-USD", () => {
  expect(chatCharge(PRICES, { promptTokens: 812, cachedTokens: 0, completionTokens: 640 })).toBe(
    812n * 3000n + 640n * 15000n,
  );
  const cheap = { inputMicroUsd: 1, cachedInputMicroUsd: null, outputMicroUsd: 1 };
  // 1 + 1 pico-USD: two roundings would make two nano-USD of it.
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
  const bound = chatBound(
    PRICES,
    { textTokens: 60, fixedTokens: 40, choices: 2 },
    { marginPermille: 1500, factorPermille: 1000 },
  );
  const heldPico = bound.promptPico + 50n * bound.outputPico;
  const charge = chatCharge(PRICES, { promptTokens: 100, cachedTokens: 0, completionTokens: 100 });
  expect(heldPico / 1000n).toBeGreaterThanOrEqual((charge * 3n) / 2n);
});

test("an image costs its price; its bound is the same", () => {
  expect(imageCharge(40_000)).toBe(40_000_000n);
  expect(imageBound(40_000)).toEqual({ promptPico: 40_000_000_000n, outputPico: 0n });
});

test("the factor applies to text and output, the margin to everything; of both the greater applies", () => {
  const tokens = { textTokens: 100, fixedTokens: 40, choices: 1 };
  const boundOf = (marginPermille: number, factorPermille: number) => {
    const { promptPico, outputPico } = chatBound(PRICES, tokens, { marginPermille, factorPermille });
    return [Number(promptPico) / PRICES.inputMicroUsd, Number(outputPico) / PRICES.outputMicroUsd];
  };
  expect(boundOf(1000, 1000)).toEqual([140, 1]);
  expect(boundOf(1000, 2000)).toEqual([240, 2]);
  expect(boundOf(2000, 1000)).toEqual([280, 2]);
  expect(boundOf(2000, 3000)).toEqual([380, 3]);
});

test("a cap is lowered only if its price exceeds the range of SQL's integers", () => {
  const { outputPico } = chatBound(
    { ...PRICES, outputMicroUsd: 1_000_000_000 },
    { textTokens: 0, fixedTokens: 0, choices: 128 },
    { marginPermille: 100_000, factorPermille: 1000 },
  );
  expect(capWithin({ promptPico: 0n, outputPico }, 2_000_000_000) * Number(outputPico)).toBeLessThanOrEqual(9.1e18);
  expect(capWithin({ promptPico: 0n, outputPico: 15n }, 4096)).toBe(4096);
  expect(capWithin({ promptPico: 0n, outputPico: -1n }, 4096)).toBe(4096);
});

// All that the tables allow, and prompts of a body full of the dearest images.
const prices = fc
  .record({
    inputMicroUsd: fc.integer({ min: 0, max: 1_000_000_000 }),
    cachedShare: fc.option(fc.double({ min: 0, max: 1, noNaN: true })),
    outputMicroUsd: fc.integer({ min: 0, max: 1_000_000_000 }),
  })
  .map(({ cachedShare, ...spec }) => ({
    ...spec,
    cachedInputMicroUsd: cachedShare === null ? null : Math.floor(spec.inputMicroUsd * cachedShare),
  }));
const marginPermille = fc.integer({ min: 1000, max: 100_000 });
const factorPermille = fc.integer({ min: 1000, max: 100_000 });
const choices = fc.integer({ min: 1, max: 128 });
const capTokens = fc.integer({ min: 1, max: 2_000_000_000 });
const tokens = fc.oneof(fc.nat(10_000), fc.nat(30_000_000), fc.integer({ min: 0, max: 500_000_000_000 }));
const part = fc.double({ min: 0, max: 1, noNaN: true });

/** What ledger_reserve holds for a bound and a cap. */
function heldNanoUsd({ promptPico, outputPico }: Bound, cap: number): bigint {
  return (promptPico + BigInt(cap) * outputPico + 999n) / 1000n;
}

function check<T>(arbitrary: fc.Arbitrary<T>, rule: (value: T) => void): void {
  console.log(`prices: PROPERTY_SEED=${SEED}`);
  fc.assert(fc.property(arbitrary, rule), { seed: SEED, numRuns: RUNS });
}

test("any response within its bound costs at most the reserved amount, at any price, margin and number of choices", () => {
  const answers = fc.record({
    ...{ prices, marginPermille, factorPermille, choices, capTokens: fc.nat(1_000_000) },
    ...{ textTokens: fc.nat(30_000_000), fixedTokens: fc.nat(30_000_000) },
    ...{ promptPart: part, cachedPart: part, completionPart: part },
  });
  check(
    answers,
    ({ prices, marginPermille, factorPermille, choices, textTokens, fixedTokens, capTokens, ...parts }) => {
      const bound = chatBound(prices, { textTokens, fixedTokens, choices }, { marginPermille, factorPermille });
      const cap = capWithin(bound, capTokens);
      const prompt = Math.floor((textTokens + fixedTokens) * parts.promptPart);
      const charge = chatCharge(prices, {
        promptTokens: prompt,
        cachedTokens: Math.floor(prompt * parts.cachedPart),
        completionTokens: Math.floor(cap * choices * parts.completionPart),
      });
      // What a balance can pay at all: beyond it the bound is cut, and no balance covers it.
      const held = heldNanoUsd(bound, cap);
      if (held <= BALANCE_NANO_USD_MAX) expect(charge).toBeLessThanOrEqual(held);
    },
  );
});

test("a charge is rounded up once: never below the exact sum, never a whole nano-USD above it", () => {
  const used = fc.record({ prices, promptTokens: tokens, cachedTokens: tokens, completionTokens: tokens });
  check(used, ({ prices, promptTokens, cachedTokens, completionTokens }) => {
    const cached = Math.min(cachedTokens, promptTokens);
    const lines: [tokens: number, microUsd: number][] = [
      [promptTokens - cached, prices.inputMicroUsd],
      [cached, prices.cachedInputMicroUsd ?? prices.inputMicroUsd],
      [completionTokens, prices.outputMicroUsd],
    ];
    const exact = lines.reduce((pico, [count, microUsd]) => pico + BigInt(count) * BigInt(microUsd), 0n);
    const above = chatCharge(prices, { promptTokens, cachedTokens, completionTokens }) * 1000n - exact;
    expect(above >= 0n && above < 1000n).toBe(true);
  });
});

test("every bound fits SQL's integers, and a limited one is above any balance", () => {
  const asked = fc.record({
    ...{ prices, marginPermille, factorPermille, choices, textTokens: tokens, fixedTokens: tokens, capTokens },
  });
  check(asked, ({ prices, marginPermille, factorPermille, choices, textTokens, fixedTokens, capTokens }) => {
    const bound = chatBound(prices, { textTokens, fixedTokens, choices }, { marginPermille, factorPermille });
    const cap = capWithin(bound, capTokens);
    expect(cap >= 0 && cap <= capTokens).toBe(true);
    expect(bound.promptPico + BigInt(cap) * bound.outputPico + 999n <= BIGINT_MAX).toBe(true);
    const pico = (count: number, permille: number) =>
      (BigInt(count) * BigInt(prices.inputMicroUsd) * BigInt(permille) + 999n) / 1000n;
    const rawPico = pico(textTokens, Math.max(marginPermille, factorPermille)) + pico(fixedTokens, marginPermille);
    if (cap < capTokens || bound.promptPico < rawPico)
      expect(heldNanoUsd(bound, cap)).toBeGreaterThan(BALANCE_NANO_USD_MAX);
  });
});
