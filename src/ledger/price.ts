import { type Static, Type } from "@sinclair/typebox";
import {
  byFurtherPart,
  hasOwnRate,
  ratesFor,
  type TokenPrices,
  TokenRates,
  tierFor,
  tokenPricesOf,
} from "../catalog/rates.ts";
import { INPUT_PARTS, OUTPUT_PARTS, type PricePart } from "../price_parts.ts";

/**
 * Money arithmetic, pure. A price in micro-USD per million tokens is the same number in pico-USD a token, so a sum of
 * tokens × price is exact in pico-USD. The total is rounded up once, to nano-USD. What a part without a price of its own
 * costs: `catalog/rates.ts`. Source: MON-1, MON-13.
 */

const PICO_PER_NANO = 1000n;
const PICO_PER_MICRO = 1_000_000n;
const PERMILLE = 1000n;
const PERMILLE_NUMBER = 1000;
const NANO_PER_USD = 1e9;
/** One is 0.01 %. */
const BASIS_POINTS = 10_000n;
/** Pico-USD in a basis point of a micro-USD; as many 10⁻¹⁸ USD in a basis point of a pico-USD. */
const PER_BASIS_POINT = 100n;
/** 9.1 million dollars: more than the largest balance, and it fits SQL's bigint. */
const HOLD_PICO_MAX = 9_100_000_000_000_000_000n;

/** What a request used, as its receipt keeps it. The further counts are parts of the prompt and of the completion. */
export type TokenCounts = {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  further?: FurtherCounts | undefined;
};
/**
 * What `receipts.further_counts` has: counts above zero beyond prompt, cached and completion tokens; of an image the key of its
 * price (a size, or a size and quality: `1024x1024/high`).
 */
export const FurtherCounts = Type.Object({
  ...byFurtherPart(Type.Integer({ minimum: 1 })),
  image: Type.Optional(Type.String()),
});
export type FurtherCounts = Static<typeof FurtherCounts>;

const MicroUsd = Type.Integer({ minimum: 0 });
/**
 * All prices of a model at one moment, as in `price_versions`: of tokens, in micro-USD per million; of an image by its key (a
 * size, or a size and quality: `1024x1024/high`) and of a request charged by tokens, in micro-USD. A missing part has no price.
 * Written by `prices_of` in drizzle/0004_prices_changes_audit.sql.
 */
export const PriceParts = Type.Object({
  tokens: Type.Optional(TokenRates),
  images: Type.Optional(Type.Record(Type.String(), MicroUsd)),
  request: Type.Optional(MicroUsd),
});
export type PriceParts = Static<typeof PriceParts>;

/** One part of a charge: `count` × `microUsd`. Exact in pico-USD. */
export type ChargeLine = {
  part: PricePart | "image" | "request";
  count: number;
  /** Micro-USD per million tokens, per image or per request. */
  microUsd: number;
  picoUsd: bigint;
};

/**
 * The parts of a charge by tokens; parts that count nothing are left out. Their sum, rounded up once, is the charge. Each token of
 * the prompt and of the completion is in exactly one line. Source: MON-13.
 */
export function chargeLines(prices: TokenPrices, counts: TokenCounts): ChargeLine[] {
  const { promptTokens, cachedTokens, completionTokens, further } = counts;
  const { rates } = tierFor(prices, promptTokens);
  const lines: ChargeLine[] = [];
  let input = promptTokens;
  for (const part of INPUT_PARTS) {
    const count = Math.min((part === "cached_input" ? cachedTokens : further?.[part]) ?? 0, input);
    if (count > 0) lines.push(tokenLine(part, count, rates[part]));
    input -= count;
  }
  // The ordinary tokens of a side come first.
  if (input > 0) lines.unshift(tokenLine("input", input, rates.input));
  const outputAt = lines.length;
  let output = completionTokens;
  for (const part of OUTPUT_PARTS) {
    const count = Math.min(further?.[part] ?? 0, output);
    if (count > 0) lines.push(tokenLine(part, count, rates[part]));
    output -= count;
  }
  if (output > 0) lines.splice(outputAt, 0, tokenLine("output", output, rates.output));
  if (prices.requestMicroUsd > 0) lines.push(oneLine("request", prices.requestMicroUsd));
  return lines;
}

/** The parts of the charge of one image. */
function imageLines(microUsd: number): ChargeLine[] {
  return [oneLine("image", microUsd)];
}

/**
 * What counts cost by a price version: the same lines that were charged, at the operator's prices, whether each part has a price of its
 * own there, and their sum with and without the markup. null: the version has no price for what was used. Source: MON-17, MRK-4.
 */
export function recompute(
  { tokens, images = {}, request }: PriceParts,
  counts: TokenCounts,
  markupBasisPoints = 0,
): Recomputed | null {
  const image = counts.further?.image;
  if (image !== undefined) {
    const microUsd = images[image];
    if (microUsd === undefined) return null;
    const lines = imageLines(microUsd).map((line) => ({ ...line, hasOwnPrice: true }));
    return recomputed(lines, markupBasisPoints);
  }
  if (tokens === undefined) return null;
  const priced = ratesFor(tokens, counts.promptTokens);
  const lines = chargeLines(tokenPricesOf(tokens, request), counts).map((line) => ({
    ...line,
    hasOwnPrice: line.part === "request" || line.part === "image" || hasOwnRate(priced, line.part),
  }));
  return recomputed(lines, markupBasisPoints);
}

export type RecomputedLine = ChargeLine & { hasOwnPrice: boolean };
/** `nanoUsd`: the charge. `costNanoUsd`: the operator's price; the same without a markup. */
export type Recomputed = { lines: RecomputedLine[]; nanoUsd: bigint; costNanoUsd: bigint };

function recomputed(lines: RecomputedLine[], markupBasisPoints: number): Recomputed {
  const picoUsd = picoOf(lines);
  return { lines, nanoUsd: retailNano(picoUsd, markupBasisPoints), costNanoUsd: picoToNano(picoUsd) };
}

/** The sum of a charge's parts in nano-USD, rounded up once. */
export function sumOfLines(lines: readonly ChargeLine[]): bigint {
  return picoToNano(picoOf(lines));
}

function picoOf(lines: readonly ChargeLine[]): bigint {
  let pico = 0n;
  for (const { picoUsd } of lines) pico += picoUsd;
  return pico;
}

/** What a request costs its payer, and what of it is the operator's price; undefined: all of it, there is no markup. */
export type Charge = { chargeNanoUsd: bigint; costNanoUsd?: bigint };

/** The operator's price of a response by its tokens, in nano-USD, rounded up once. */
export function chatCharge(prices: TokenPrices, counts: TokenCounts): bigint {
  return sumOfLines(chargeLines(prices, counts));
}

/** The operator's price of one image, in nano-USD. */
export function imageCharge(microUsd: number): bigint {
  return sumOfLines(imageLines(microUsd));
}

/** The charge of a response by its tokens. Source: MRK-2. */
export function retailChatCharge(prices: TokenPrices, counts: TokenCounts, markupBasisPoints: number): Charge {
  return chargeWith(markupBasisPoints, picoOf(chargeLines(prices, counts)));
}

/** The charge of one image. Source: MRK-2. */
export function retailImageCharge(microUsd: number, markupBasisPoints: number): Charge {
  return chargeWith(markupBasisPoints, picoOf(imageLines(microUsd)));
}

/** Both amounts come from the exact sum and are rounded up once, so the charge is never below the operator's price. Source: MRK-2. */
function chargeWith(markupBasisPoints: number, picoUsd: bigint): Charge {
  const costNanoUsd = picoToNano(picoUsd);
  if (markupBasisPoints === 0) return { chargeNanoUsd: costNanoUsd };
  return { chargeNanoUsd: retailNano(picoUsd, markupBasisPoints), costNanoUsd };
}

/** The sum of a charge's parts in pico-USD with a markup, in nano-USD, rounded up once. */
function retailNano(picoUsd: bigint, markupBasisPoints: number): bigint {
  return ceilDiv(picoUsd * (BASIS_POINTS + BigInt(markupBasisPoints)), BASIS_POINTS * PICO_PER_NANO);
}

/** A price in micro-USD with a markup, in pico-USD, exact. */
export function retailPrice(microUsd: number, markupBasisPoints: number): bigint {
  return BigInt(microUsd) * PER_BASIS_POINT * (BASIS_POINTS + BigInt(markupBasisPoints));
}

/** A part of a charge in pico-USD with a markup, in 10⁻¹⁸ USD, exact. */
export function retailAmount(picoUsd: bigint, markupBasisPoints: number): bigint {
  return picoUsd * PER_BASIS_POINT * (BASIS_POINTS + BigInt(markupBasisPoints));
}

/** A bound with a markup on it. Source: MRK-3. */
export function withMarkup(bound: Bound, markupBasisPoints: number): Bound {
  if (markupBasisPoints === 0 || bound === UNPRICED) return bound;
  const factor = BASIS_POINTS + BigInt(markupBasisPoints);
  return {
    promptPico: min(ceilDiv(bound.promptPico * factor, BASIS_POINTS), HOLD_PICO_MAX),
    outputPico: ceilDiv(bound.outputPico * factor, BASIS_POINTS),
  };
}

/** Micro-USD per million tokens equals pico-USD per token. */
function tokenLine(part: PricePart, count: number, microUsd: number): ChargeLine {
  return { part, count, microUsd, picoUsd: BigInt(count) * BigInt(microUsd) };
}

function oneLine(part: "image" | "request", microUsd: number): ChargeLine {
  return { part, count: 1, microUsd, picoUsd: BigInt(microUsd) * PICO_PER_MICRO };
}

/** Nano-USD as a double in USD, for API responses. */
export function toUsd(nanoUsd: bigint): number {
  return Number(nanoUsd) / NANO_PER_USD;
}

/** What to reserve, in pico-USD: for the whole prompt, and per output token. The margin is included. */
export type Bound = { promptPico: bigint; outputPico: bigint };

/** The tokens that a request may use. `hasMedia`: its prompt may have more than text, so any input may be reported. */
type BoundTokens = { promptTokens: number; choices: number; hasMedia?: boolean };

/**
 * The upper bound of a chat request, with the operator's margin on all of it. Each of `choices` may fill the output cap. Each token is
 * reserved at the dearest rate that it may be charged at, of the dearest tier that the prompt may reach. The prompt's part, with the
 * price per request, is limited to what SQL's bigint can hold, above any balance: a package may still serve the request.
 * Source: MON-2, MON-14.
 */
export function chatBound(
  prices: TokenPrices,
  { promptTokens, choices, hasMedia = false }: BoundTokens,
  marginPermille: number,
): Bound {
  const { held } = tierFor(prices, Math.ceil((promptTokens * marginPermille) / PERMILLE_NUMBER));
  const inputMicroUsd = BigInt(hasMedia ? held.anyInput : held.textInput);
  const promptPico =
    withMargin(BigInt(promptTokens) * inputMicroUsd, marginPermille) + BigInt(prices.requestMicroUsd) * PICO_PER_MICRO;
  return {
    promptPico: min(promptPico, HOLD_PICO_MAX),
    outputPico: withMargin(BigInt(held.output) * BigInt(choices), marginPermille),
  };
}

/** The output cap, lowered only if the bound would exceed SQL's bigint. Even then it is above any balance. */
export function capWithin({ promptPico, outputPico }: Bound, capTokens: number): number {
  return outputPico <= 0n ? capTokens : Number(min(BigInt(capTokens), (HOLD_PICO_MAX - promptPico) / outputPico));
}

/** The bound of one image is its price. */
export function imageBound(microUsd: number): Bound {
  return { promptPico: BigInt(microUsd) * PICO_PER_MICRO, outputPico: 0n };
}

/** The bound of a model without a price. `ledger_draw` refuses it if the balance would have to pay. */
export const UNPRICED: Bound = { promptPico: 0n, outputPico: -1n };

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

function withMargin(pico: bigint, marginPermille: number): bigint {
  return ceilDiv(pico * BigInt(marginPermille), PERMILLE);
}

function picoToNano(pico: bigint): bigint {
  return ceilDiv(pico, PICO_PER_NANO);
}

/** Rounded up; for a dividend of zero or more. */
function ceilDiv(dividend: bigint, divisor: bigint): bigint {
  return (dividend + divisor - 1n) / divisor;
}
