import { type Static, Type } from "@sinclair/typebox";

/**
 * Money arithmetic, pure. A price in micro-USD per million tokens is the same number in pico-USD a token, so a sum of
 * tokens × price is exact in pico-USD. The total is rounded up once, to nano-USD. Source: MON-1.
 */

const PICO_PER_NANO = 1000n;
const PICO_PER_MICRO = 1_000_000n;
const PERMILLE = 1000n;
const NANO_PER_USD = 1e9;
/** 9.1 million dollars: more than the largest balance, and it fits SQL's bigint. */
const HOLD_PICO_MAX = 9_100_000_000_000_000_000n;

/** Prices in micro-USD per million tokens; `cachedInputMicroUsd` null means the input price. */
export type TokenPrices = { inputMicroUsd: number; cachedInputMicroUsd: number | null; outputMicroUsd: number };
export type TokenCounts = { promptTokens: number; cachedTokens: number; completionTokens: number };

const MicroUsd = Type.Integer({ minimum: 0 });
/**
 * All prices of a model at one moment, as in `price_versions`: micro-USD per million tokens, or per image by size. A missing
 * part has no price. Written by `prices_of` in drizzle/0004_prices_changes_audit.sql.
 */
export const PriceParts = Type.Object({
  tokens: Type.Optional(Type.Object({ input: MicroUsd, cached_input: MicroUsd, output: MicroUsd })),
  images: Type.Optional(Type.Record(Type.String(), MicroUsd)),
});
export type PriceParts = Static<typeof PriceParts>;

/** The charge of a chat response, in nano-USD, rounded up once. */
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

/** Nano-USD as a double in USD, for API responses. */
export function toUsd(nanoUsd: bigint): number {
  return Number(nanoUsd) / NANO_PER_USD;
}

/** What to reserve, in pico-USD: for the whole prompt, and per output token. Margin and factor included. */
export type Bound = { promptPico: bigint; outputPico: bigint };

/** `marginPermille`: the operator's margin on everything. `factorPermille`: the route's overhead on text and output. */
type OnTop = { marginPermille: number; factorPermille: number };

/**
 * The upper bound of a chat request. `textTokens` of its prompt depend on the text, `fixedTokens` do not. Each of `choices` may
 * fill the output cap. The prompt's part is limited to what SQL's bigint can hold, above any balance: a package may still
 * serve the request.
 */
export function chatBound(
  { inputMicroUsd, outputMicroUsd }: TokenPrices,
  { textTokens, fixedTokens, choices }: { textTokens: number; fixedTokens: number; choices: number },
  { marginPermille, factorPermille }: OnTop,
): Bound {
  // Not both: the operator's margin may cover the same overhead that was learned since.
  const permille = Math.max(marginPermille, factorPermille);
  const promptPico =
    withMargin(BigInt(textTokens) * BigInt(inputMicroUsd), permille) +
    withMargin(BigInt(fixedTokens) * BigInt(inputMicroUsd), marginPermille);
  return {
    promptPico: min(promptPico, HOLD_PICO_MAX),
    outputPico: withMargin(BigInt(outputMicroUsd) * BigInt(choices), permille),
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

/** The bound of a model without a price. `ledger_reserve` refuses it if the balance would have to pay. */
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
