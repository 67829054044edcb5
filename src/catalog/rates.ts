import { type Static, type TSchema, Type } from "@sinclair/typebox";

/**
 * The rates of a model: the parts of a prompt and an answer that have their own prices, and what any other part costs.
 * In micro-USD per million tokens, which is the same number in pico-USD per token. Pure. What a request costs by them:
 * `ledger/price.ts`.
 * Source: MON-11, MON-12.
 */

/**
 * The parts of the prompt that a provider may report. If their sum exceeds the prompt, those at the end of this list
 * are cut; the rest of the prompt is `input`.
 */
export const INPUT_PARTS = ["cache_write_1h", "cache_write", "audio_input", "image_input", "cached_input"] as const;
/** The same for the completion; the rest of the completion is `output`. */
export const OUTPUT_PARTS = ["audio_output", "image_output", "reasoning"] as const;
/**
 * The parts that have their own price only if an operator sets one; `cached_input`, which has a column, is not among
 * them.
 */
export const FURTHER_PARTS = [
  "cache_write",
  "cache_write_1h",
  "reasoning",
  "audio_input",
  "audio_output",
  "image_input",
  "image_output",
] as const;
export type FurtherPart = (typeof FURTHER_PARTS)[number];
export type TokenPart = "input" | "output" | "cached_input" | FurtherPart;

/** One optional field for each further part: of rates here, of counts in `ledger/price.ts`. */
export function byFurtherPart<Schema extends TSchema>(schema: Schema) {
  const optional = Type.Optional(schema);
  return {
    cache_write: optional,
    cache_write_1h: optional,
    reasoning: optional,
    audio_input: optional,
    audio_output: optional,
    image_input: optional,
    image_output: optional,
  };
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

/** Every rate is set. */
export type FullRates = Readonly<Record<TokenPart, number>>;
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
export function hasOwnRate(rates: Rates, part: TokenPart): boolean {
  return rates[part] !== undefined || part === "cached_input" || part === "reasoning";
}

/**
 * What each part costs. Without its own price, cached input costs as much as input, and reasoning as much as output.
 * Any other part costs the highest rate of its kind: cache writes that of the input without media, media that of all
 * input or all output. So no part is charged less than it may have cost the operator.
 */
function fullRates(rates: Rates): FullRates {
  const { textInput, anyInput, output: anyOutput } = dearestOf(rates);
  return {
    input: rates.input,
    output: rates.output,
    cached_input: rates.cached_input ?? rates.input,
    cache_write: rates.cache_write ?? textInput,
    cache_write_1h: rates.cache_write_1h ?? textInput,
    reasoning: rates.reasoning ?? rates.output,
    audio_input: rates.audio_input ?? anyInput,
    audio_output: rates.audio_output ?? anyOutput,
    image_input: rates.image_input ?? anyInput,
    image_output: rates.image_output ?? anyOutput,
  };
}

function dearestOf(rates: Rates): DearestRates {
  const { input, output, cached_input = 0, cache_write = 0, cache_write_1h = 0, reasoning = 0 } = rates;
  const { audio_input = 0, audio_output = 0, image_input = 0, image_output = 0 } = rates;
  const textInput = Math.max(input, cached_input, cache_write, cache_write_1h);
  return {
    textInput,
    anyInput: Math.max(textInput, audio_input, image_input),
    output: Math.max(output, reasoning, audio_output, image_output),
  };
}

function dearerOf(a: DearestRates, b: DearestRates): DearestRates {
  return {
    textInput: Math.max(a.textInput, b.textInput),
    anyInput: Math.max(a.anyInput, b.anyInput),
    output: Math.max(a.output, b.output),
  };
}
