import { expect, test } from "bun:test";
import {
  capWithin,
  chatBound,
  chatCharge,
  imageBound,
  imageCharge,
  marginAfterOverrun,
} from "../../src/ledger/price.ts";

/** Source: rulings › Money. */

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

test("cached input has its own price, and is never more than the prompt", () => {
  expect(chatCharge(PRICES, { promptTokens: 100, cachedTokens: 40, completionTokens: 0 })).toBe(
    60n * 3000n + 40n * 300n,
  );
  expect(chatCharge(PRICES, { promptTokens: 100, cachedTokens: 900, completionTokens: 0 })).toBe(100n * 300n);
});

test("the bound covers the charge of any answer within it, margin and choices included", () => {
  const bound = chatBound(PRICES, { promptTokens: 100, choices: 2 }, 1500);
  const heldPico = bound.promptPico + 50n * bound.outputPico;
  const charge = chatCharge(PRICES, { promptTokens: 100, cachedTokens: 0, completionTokens: 100 });
  expect(heldPico / 1000n).toBeGreaterThanOrEqual((charge * 3n) / 2n);
});

test("an image costs its price; its bound is the same", () => {
  expect(imageCharge(40_000)).toBe(40_000_000n);
  expect(imageBound(40_000)).toEqual({ promptPico: 40_000_000_000n, outputPico: 0n });
});

test("an overrun raises the margin to the ratio seen, rounded up", () => {
  expect(marginAfterOverrun(1000, 1000n, 1401n)).toBe(1401);
  expect(marginAfterOverrun(1200, 1000n, 2000n)).toBe(2400);
  expect(marginAfterOverrun(1000, 3n, 4n)).toBe(1334);
});

test("a cap is lowered only where its price leaves the range of the ledger's integers", () => {
  const { outputPico } = chatBound(
    { ...PRICES, outputMicroUsd: 1_000_000_000 },
    { promptTokens: 0, choices: 128 },
    100_000,
  );
  expect(capWithin({ promptPico: 0n, outputPico }, 2_000_000_000) * Number(outputPico)).toBeLessThanOrEqual(4e18);
  expect(capWithin({ promptPico: 0n, outputPico: 15n }, 4096)).toBe(4096);
  expect(capWithin({ promptPico: 0n, outputPico: -1n }, 4096)).toBe(4096);
});
