import { type Static, Type } from "@sinclair/typebox";

/**
 * Money arithmetic, pure. A price in micro-USD per million tokens is the same number in pico-USD a token, so a sum of
 * tokens × price is exact in pico-USD; there is one rounding, up, to nano-USD on the total. Source: rulings › Money.
 */

const PICO_PER_NANO = 1000n;
const PICO_PER_MICRO = 1_000_000n;
const PERMILLE = 1000n;
const NANO_PER_USD = 1e9;
/** 9.1 million dollars: more than any balance may hold, and it still fits SQL's bigint. */
const HOLD_PICO_MAX = 9_100_000_000_000_000_000n;

/** Prices in micro-USD per million tokens; `cachedInputMicroUsd` null means the input price. */
export type TokenPrices = { inputMicroUsd: number; cachedInputMicroUsd: number | null; outputMicroUsd: number };
export type TokenCounts = { promptTokens: number; cachedTokens: number; completionTokens: number };

const MicroUsd = Type.Integer({ minimum: 0 });
/**
 * All prices of a model at one moment, as a row of `price_versions` keeps them: micro-USD per million tokens, or an image of a
 * size. A part that is not there has no price. Written by `prices_of` in drizzle/0001_ledger.sql.
 */
export const PriceParts = Type.Object({
  tokens: Type.Optional(Type.Object({ input: MicroUsd, cached_input: MicroUsd, output: MicroUsd })),
  images: Type.Optional(Type.Record(Type.String(), MicroUsd)),
});
export type PriceParts = Static<typeof PriceParts>;

/** The final charge of a chat answer, in nano-USD, rounded up once. */
export function chatCharge(prices: TokenPrices, { promptTokens, cachedTokens, completionTokens }: TokenCounts): bigint {
  const cached = Math.min(cachedTokens, promptTokens);
  const pico =
    BigInt(promptTokens - cached) * BigInt(prices.inputMicroUsd) +
    BigInt(cached) * BigInt(prices.cachedInputMicroUsd ?? prices.inputMicroUsd) +
    BigInt(completionTokens) * BigInt(prices.outputMicroUsd);
  return picoToNano(pico);
}

/** The charge of one image, in nano-USD. */
export function imageCharge(microUsd: number): bigint {
  return picoToNano(BigInt(microUsd) * PICO_PER_MICRO);
}

/** Nano-USD as the API shows money: a double, in USD. */
export function toUsd(nanoUsd: bigint): number {
  return Number(nanoUsd) / NANO_PER_USD;
}

/** What a hold asks for: pico-USD of the whole prompt, and of one output token, margin and factor included. */
export type Bound = { promptPico: bigint; outputPico: bigint };

/** `marginPermille`: what the operator holds on top of everything. `factorPermille`: what the route's overhead multiplies text and output by. */
type OnTop = { marginPermille: number; factorPermille: number };

/**
 * The upper bound of a chat request whose prompt has at most `textTokens` that grow with its text and `fixedTokens` that do
 * not; each of `choices` may fill the output cap. Past what any balance could pay the prompt's part is cut: a package may
 * still serve it, and SQL's integers must hold it.
 */
export function chatBound(
  { inputMicroUsd, outputMicroUsd }: TokenPrices,
  { textTokens, fixedTokens, choices }: { textTokens: number; fixedTokens: number; choices: number },
  { marginPermille, factorPermille }: OnTop,
): Bound {
  // The greater of the two: the operator's margin may well be there because of what has been learned since.
  const permille = Math.max(marginPermille, factorPermille);
  const promptPico =
    withMargin(BigInt(textTokens) * BigInt(inputMicroUsd), permille) +
    withMargin(BigInt(fixedTokens) * BigInt(inputMicroUsd), marginPermille);
  return {
    promptPico: min(promptPico, HOLD_PICO_MAX),
    outputPico: withMargin(BigInt(outputMicroUsd) * BigInt(choices), permille),
  };
}

/** The cap, lowered only where the whole bound would leave the range of SQL's bigint: no balance covers what remains. */
export function capWithin({ promptPico, outputPico }: Bound, capTokens: number): number {
  return outputPico <= 0n ? capTokens : Number(min(BigInt(capTokens), (HOLD_PICO_MAX - promptPico) / outputPico));
}

/** The bound of one image is its price. */
export function imageBound(microUsd: number): Bound {
  return { promptPico: BigInt(microUsd) * PICO_PER_MICRO, outputPico: 0n };
}

/** The bound of a model without a price: the ledger refuses it where the balance would have to pay. */
export const UNPRICED: Bound = { promptPico: 0n, outputPico: -1n };

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

function withMargin(pico: bigint, marginPermille: number): bigint {
  return (pico * BigInt(marginPermille) + PERMILLE - 1n) / PERMILLE;
}

function picoToNano(pico: bigint): bigint {
  return (pico + PICO_PER_NANO - 1n) / PICO_PER_NANO;
}
