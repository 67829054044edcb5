import { Value } from "@sinclair/typebox/value";
import { InputError, sentence } from "../errors.ts";
import { MODEL_CONTEXT_TOKENS, PRICE_MICRO_USD, PRICE_TIERS_MAX } from "../limits.ts";
import { FURTHER_PARTS } from "../price_parts.ts";
import { checkInteger, type PricesInput } from "./catalog_input.ts";
import { FurtherPrices, type Rates, type TierRates, type TokenPrices, tokenPricesOf } from "./rates.ts";

/** A model's token prices in the table: checked when an operator enters them, and read for use. Pure. */

type BaseColumns = {
  inputMicroUsd: number | null;
  cachedInputMicroUsd: number | null;
  outputMicroUsd: number | null;
};
type PriceColumns = BaseColumns & { furtherPrices: FurtherPrices };
/** As read from the table: the further prices are not checked yet. */
export type ColumnsRead = BaseColumns & { furtherPrices: unknown };
export type ModelPrices = { tokens: TokenPrices; further: FurtherPrices };

/**
 * The token prices in a model's columns; null: none. undefined: they cannot be read, because they bypassed
 * `checkPrices`.
 */
export function pricesOfColumns(columns: ColumnsRead): ModelPrices | null | undefined {
  const { inputMicroUsd: input, cachedInputMicroUsd, outputMicroUsd: output, furtherPrices } = columns;
  if (input === null || output === null) return null;
  if (!Value.Check(FurtherPrices, furtherPrices)) return undefined;
  const { request, ...further } = furtherPrices;
  const tokens = { input, output, cached_input: cachedInputMicroUsd ?? input, ...further };
  return { tokens: tokenPricesOf(tokens, request), further: furtherPrices };
}

/** The columns for what an operator entered; null: the model is sold by package only. Throws InputError. Source: MON-16. */
export function checkPrices(prices: PricesInput | null): PriceColumns {
  if (prices === null)
    return { inputMicroUsd: null, cachedInputMicroUsd: null, outputMicroUsd: null, furtherPrices: {} };
  const inputMicroUsd = checkInteger(prices.inputMicroUsd, "inputMicroUsd", PRICE_MICRO_USD);
  const outputMicroUsd = checkInteger(prices.outputMicroUsd, "outputMicroUsd", PRICE_MICRO_USD);
  const cached = prices.cachedInputMicroUsd ?? null;
  const cachedInputMicroUsd =
    cached === null ? null : checkInteger(cached, "cachedInputMicroUsd", { min: 0, max: inputMicroUsd });
  return { inputMicroUsd, cachedInputMicroUsd, outputMicroUsd, furtherPrices: checkFurther(prices.further ?? {}) };
}

function checkFurther({ tiers, request, ...rates }: Readonly<Record<string, unknown>>): FurtherPrices {
  const further: FurtherPrices = checkFurtherRates(rates, "further");
  const checked = checkTiers(tiers);
  if (checked.length > 0) further.tiers = checked;
  if (isGiven(request)) further.request = checkInteger(request, "further.request", PRICE_MICRO_USD);
  return further;
}

/** Ascending tiers cannot overlap: each ends where the next one begins. */
function checkTiers(tiers: unknown): TierRates[] {
  if (!isGiven(tiers)) return [];
  if (!Array.isArray(tiers) || tiers.length > PRICE_TIERS_MAX)
    throw new InputError(
      sentence("The further.tiers must be a list of at most {priceTiersMax} tiers.", {
        priceTiersMax: PRICE_TIERS_MAX,
      }),
      "further.tiers",
    );
  let least = MODEL_CONTEXT_TOKENS.min;
  return tiers.map((tier: unknown, i) => {
    const at = `further.tiers.${i}`;
    if (typeof tier !== "object" || tier === null || Array.isArray(tier))
      throw new InputError(
        sentence("The {at} must be an object with above_input_tokens, input and output.", { at }),
        at,
      );
    const {
      above_input_tokens: given,
      input,
      output,
      cached_input,
      ...further
    } = { ...tier } as Record<string, unknown>;
    const above_input_tokens = checkInteger(given, `${at}.above_input_tokens`, MODEL_CONTEXT_TOKENS);
    if (above_input_tokens < least)
      throw new InputError(
        sentence("The {at}.above_input_tokens must be above that of the tier before it: tiers ascend.", { at }),
        `${at}.above_input_tokens`,
      );
    least = above_input_tokens + 1;
    const rates: Rates = {
      input: checkInteger(input, `${at}.input`, PRICE_MICRO_USD),
      output: checkInteger(output, `${at}.output`, PRICE_MICRO_USD),
      ...checkFurtherRates(further, at),
    };
    if (isGiven(cached_input))
      rates.cached_input = checkInteger(cached_input, `${at}.cached_input`, { min: 0, max: rates.input });
    return { above_input_tokens, ...rates };
  });
}

/** The given rates of further parts. A part without a rate costs the dearest of its kind: `rates.ts`. */
function checkFurtherRates(rates: Readonly<Record<string, unknown>>, at: string): FurtherPrices {
  const checked: FurtherPrices = {};
  for (const part of FURTHER_PARTS)
    if (isGiven(rates[part])) checked[part] = checkInteger(rates[part], `${at}.${part}`, PRICE_MICRO_USD);
  const unknown = Object.keys(rates).find((name) => !FURTHER_PARTS.some((part) => part === name));
  if (unknown !== undefined)
    throw new InputError(
      sentence("There is no price named {unknown}.", { unknown: JSON.stringify(unknown.slice(0, 100)) }),
      at,
    );
  return checked;
}

function isGiven(value: unknown): boolean {
  return value !== undefined && value !== null;
}
