import { type Static, type TSchema, Type } from "@sinclair/typebox";
import { byPart, FURTHER_PARTS, factsOf, PARTS, type PricePart } from "../price_parts.ts";

/**
 * The rates of a model: the prices of the parts of a prompt and an answer (`price_parts.ts`), and what a part without one costs.
 * In micro-USD per million tokens, which is the same number in pico-USD per token. Pure. What a request costs by them:
 * `ledger/price.ts`.
 * Source: MON-11, MON-12.
 */

/** One optional field for each further part: of rates here, of counts in `ledger/price.ts`. */
export function byFurtherPart<Schema extends TSchema>(schema: Schema) {
  return byPart(FURTHER_PARTS, () => Type.Optional(schema));
}

const MicroUsd = Type.Integer({ minimum: 0 });
const furtherRates = byFurtherPart(MicroUsd);
const rates = { input: MicroUsd, output: MicroUsd, cached_input: Type.Optional(MicroUsd), ...furtherRates };
/** The prices of a model's tokens, by part. */
export const Rates = Type.Object(rates);
export type Rates = Static<typeof Rates>;
/** Rates of requests with more input tokens than `above_input_tokens`. They replace all rates of the whole request. */
const TierRates = Type.Object({ above_input_tokens: Type.Integer({ minimum: 1 }), ...rates });
export type TierRates = Static<typeof TierRates>;
const tiers = Type.Optional(Type.Array(TierRates));
/** The token prices of a price version: rates, and tiers in ascending order. */
export const TokenRates = Type.Object({ ...rates, tiers });
export type TokenRates = Static<typeof TokenRates>;
/** What `models.further_prices` has: all prices but those that have columns. `request` is micro-USD per request. */
export const FurtherPrices = Type.Object({ ...furtherRates, tiers, request: Type.Optional(MicroUsd) });
export type FurtherPrices = Static<typeof FurtherPrices>;

const ANY_INPUT = PARTS.filter((part) => factsOf(part).side === "input");
const TEXT_INPUT = ANY_INPUT.filter((part) => factsOf(part).without !== "dearest");
const ANY_OUTPUT = PARTS.filter((part) => factsOf(part).side === "output");

/** Every rate is set. */
export type FullRates = Readonly<Record<PricePart, number>>;
/** The highest rates that a request may be charged: of input without media, of any input, of any output. */
export type DearestRates = { readonly textInput: number; readonly anyInput: number; readonly output: number };
export type Tier = {
  /** −1 for the first tier, which applies to every request. */
  readonly aboveInputTokens: number;
  readonly rates: FullRates;
  /**
   * The highest rates of this tier and all tiers below it, because the token count of a reserved request is not yet
   * known.
   */
  readonly held: DearestRates;
};
/** The token prices of a model, ready for use: the first tier is for any prompt, the others ascend. */
export type TokenPrices = { readonly requestMicroUsd: number; readonly tiers: readonly [Tier, ...Tier[]] };

/** The prices of a price version, or of the catalog, ready for use. */
export function tokenPricesOf(tokens: TokenRates, requestMicroUsd = 0): TokenPrices {
  const first = { aboveInputTokens: -1, rates: fullRates(tokens), held: dearestOf(tokens) };
  const tiers: [Tier, ...Tier[]] = [first];
  let held: DearestRates = first.held;
  for (const tier of tokens.tiers ?? []) {
    held = dearerOf(held, dearestOf(tier));
    tiers.push({ aboveInputTokens: tier.above_input_tokens, rates: fullRates(tier), held });
  }
  return { requestMicroUsd, tiers };
}

/** The last tier whose threshold is below `inputTokens`. */
export function tierFor({ tiers }: TokenPrices, inputTokens: number): Tier {
  for (let i = tiers.length - 1; i > 0; i--) {
    const tier = tiers[i];
    if (tier !== undefined && inputTokens > tier.aboveInputTokens) return tier;
  }
  return tiers[0];
}

/** The rates as they were entered that apply to a request with `inputTokens`: those of its tier. */
export function ratesFor({ tiers = [], ...rates }: TokenRates, inputTokens: number): Rates {
  return tiers.findLast(({ above_input_tokens }) => inputTokens > above_input_tokens) ?? rates;
}

/**
 * Whether a part has a price of its own in these rates. Cached input and reasoning need none: they are ordinary input and output
 * that some providers price differently.
 */
export function hasOwnRate(rates: Rates, part: PricePart): boolean {
  return rates[part] !== undefined || factsOf(part).without === "ordinary";
}

/** What each part costs: its own price, or what `PRICE_PARTS` says of parts without one. */
function fullRates(rates: Rates): FullRates {
  const { textInput, anyInput, output } = dearestOf(rates);
  return byPart(PARTS, (part) => {
    const { side, without } = factsOf(part);
    const dearest = without === "dearest_text" ? textInput : side === "input" ? anyInput : output;
    return rates[part] ?? (without === "ordinary" ? rates[side] : dearest);
  });
}

function dearestOf(rates: Rates): DearestRates {
  const dearest = (parts: readonly PricePart[]) => Math.max(...parts.map((part) => rates[part] ?? 0));
  return { textInput: dearest(TEXT_INPUT), anyInput: dearest(ANY_INPUT), output: dearest(ANY_OUTPUT) };
}

function dearerOf(a: DearestRates, b: DearestRates): DearestRates {
  return {
    textInput: Math.max(a.textInput, b.textInput),
    anyInput: Math.max(a.anyInput, b.anyInput),
    output: Math.max(a.output, b.output),
  };
}
