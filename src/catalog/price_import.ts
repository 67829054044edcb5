import { InputError } from "../errors.ts";
import { MARKUP_PERCENT, PRICE_MICRO_USD, PRICE_TIERS_MAX } from "../limits.ts";
import { PARTS, PRICE_PARTS, type PricePart } from "../price_parts.ts";
import type { ListedModel, ListedPrices } from "./price_list.ts";
import type { Rates, TokenRates } from "./rates.ts";

/**
 * Converts listed prices to prices of a model, with the operator's markup. Pure, and exact: decimal text and integers,
 * no floating point. A price that a model cannot have is returned by name, never dropped silently. Source: IMP-2,
 * IMP-3.
 */

/** Percent with at most two decimals, which parts of 10,000 hold exactly. */
const MARKUP = /^(\d{1,4})(?:\.(\d{1,2}))?$/;
/** Parts of 10,000 in a whole, and in one percent. */
const WHOLE = 10_000n;
const PERCENT = 100n;
/** Significant digits that a double holds exactly. Further digits are noise of its binary form: 0.18000000000000002. */
const FAITHFUL_DIGITS = 15;
const MICRO_DIGITS = 6;

/** The prices of a model that a list can set. `request`: micro-USD per request. */
export type ModelPrices = { tokens?: TokenRates; request?: number };

/** Parts by the names of a price list. */
const PART_OF: ReadonlyMap<string, PricePart> = new Map(PARTS.map((part) => [PRICE_PARTS[part].listed, part]));
/** USD for a thousand requests. */
const REQUESTS_PRICE = "requests_kcount";
const REQUESTS = 1_000n;

/** What is added to listed prices, in parts of 10,000. */
export type Markup = bigint;

/** "20", "12.5" → a markup in percent. Throws InputError. */
export function readMarkup(percent: string): Markup {
  const [, whole, decimals = ""] = MARKUP.exec(percent.trim()) ?? [];
  const markup = whole === undefined ? -1n : BigInt(whole + decimals.padEnd(2, "0"));
  if (markup < 0n || markup > BigInt(MARKUP_PERCENT.max) * PERCENT)
    throw new InputError(
      "A markup is a percentage from 0 to 1,000 with at most two decimals, as in 20 or 12.5.",
      "markup",
    );
  return markup;
}

/** The prices of a model and the deviations from the list; or why it has no usable prices. */
export type Mapped = { prices: ModelPrices; notes: string[] } | { reason: string };

/** Maps a listed model. `day` is today in UTC, as 2026-01-31: lists have changes of prices in advance. */
export function mapPrices(listed: ListedModel, { markup, day }: { markup: Markup; day: string }): Mapped {
  const versions = Array.isArray(listed.prices) ? listed.prices : [{ prices: listed.prices }];
  if (versions.some(({ constraint }) => constraint && "start_time" in constraint))
    return { reason: "Its prices depend on the time of day." };
  const starts = (constraint: (typeof versions)[number]["constraint"]) =>
    constraint && "start_date" in constraint ? constraint.start_date : "";
  const valid = versions.findLast(({ constraint }) => starts(constraint) <= day);
  if (valid === undefined) return { reason: "Its prices are not valid yet." };
  const next = versions.map(({ constraint }) => starts(constraint)).find((date) => date > day);
  const mapped = mapValid(valid.prices, { markup, isEmbedding: isEmbedding(listed) });
  if (next !== undefined && "notes" in mapped)
    mapped.notes.push(`Its prices change on ${next}: import them again then`);
  return mapped;
}

/** Embedding models. The list does not mark them, but has no price for their output. */
export function isEmbedding({ id, name = "" }: Pick<ListedModel, "id" | "name">): boolean {
  return /embed/i.test(`${id} ${name}`);
}

function mapValid(listed: ListedPrices, given: { markup: Markup; isEmbedding: boolean }): Mapped {
  const { markup } = given;
  const rounded: string[] = [];
  const convert = (usd: number, name: string, units = 1n) => {
    const { microUsd, isExact } = toMicroUsd(usd, { markup, units });
    if (!isExact && !rounded.includes(name)) rounded.push(name);
    return microUsd;
  };
  const ratesAt = (tokens: number) => ratesOf(listed, (name, price) => convert(priceAt(price, tokens), name));
  const base = ratesAt(0);
  const lacking = lacks(base, given.isEmbedding);
  if (lacking !== undefined) return { reason: `${lacking}. It has: ${Object.keys(listed).join(", ") || "nothing"}.` };
  const starts = startsOf(listed);
  // A model has a tier for each number of input tokens above which any of its prices differs.
  if (starts.length > PRICE_TIERS_MAX) return { reason: `It has more than ${PRICE_TIERS_MAX} tiers.` };
  const tiers = starts.map((start) => ({ above_input_tokens: start, ...complete(ratesAt(start + 1)) }));
  const perRequest = listed[REQUESTS_PRICE];
  const prices: ModelPrices = {
    tokens: { ...complete(base), ...(tiers.length > 0 && { tiers }) },
    ...(perRequest !== undefined && { request: convert(priceAt(perRequest, 0), REQUESTS_PRICE, REQUESTS) }),
  };
  if (highest(prices) > PRICE_MICRO_USD.max) return { reason: "A price is above $1,000 per million tokens." };
  const unknown = Object.keys(listed).filter((name) => !PART_OF.has(name) && name !== REQUESTS_PRICE);
  return {
    prices,
    notes: [
      ...unknown.map((name) => `Not imported, because models have no such price: ${name}, ${priceText(listed[name])}`),
      ...(rounded.length > 0 ? [`Rounded up to whole micro-USD: ${rounded.join(", ")}`] : []),
    ],
  };
}

/** Why a model with these rates cannot be sold by the token; undefined if it can. */
function lacks({ input, output }: Partial<Rates>, embeds: boolean): string | undefined {
  if (input === undefined) return "It has no price of input tokens";
  return output === undefined && !embeds ? "It has no price of output tokens" : undefined;
}

function ratesOf(listed: ListedPrices, convert: (name: string, price: ListedPrices[string]) => number): Partial<Rates> {
  const rates: Partial<Rates> = {};
  for (const [name, price] of Object.entries(listed)) {
    const part = PART_OF.get(name);
    if (part !== undefined) rates[part] = convert(name, price);
  }
  return rates;
}

/**
 * Adds the rates that the list implies: an embedding's output costs nothing; a one-hour cache write costs as much as a
 * cache write, because a missing rate would be charged as plain input.
 */
function complete({ input = 0, output = 0, ...others }: Partial<Rates>): Rates {
  const { cache_write, cache_write_1h = cache_write } = others;
  return { input, output, ...others, ...(cache_write_1h !== undefined && { cache_write_1h }) };
}

/** The listed price of a request with this many input tokens. */
function priceAt(price: ListedPrices[string], inputTokens: number): number {
  if (typeof price === "number") return price;
  const reached = price.tiers.filter(({ start }) => inputTokens > start).sort((a, b) => a.start - b.start);
  return reached.at(-1)?.price ?? price.base;
}

/** Every number of input tokens above which a rate of the model differs. */
function startsOf(listed: ListedPrices): number[] {
  const starts = Object.entries(listed).flatMap(([name, price]) =>
    !PART_OF.has(name) || typeof price === "number" ? [] : price.tiers.map(({ start }) => start),
  );
  return [...new Set(starts)].sort((a, b) => a - b);
}

function highest({ tokens, request = 0 }: ModelPrices): number {
  const rates = tokens ? [tokens, ...(tokens.tiers ?? [])].flatMap((of) => PARTS.map((part) => of[part] ?? 0)) : [];
  return Math.max(request, ...rates);
}

/**
 * A price in USD per million tokens (or per `units` pieces) as micro-USD, with the markup. Rounded up once, at the end,
 * so that a price is never below the provider's.
 */
function toMicroUsd(usd: number, { markup, units }: { markup: Markup; units: bigint }) {
  const { digits, exponent } = decimalOf(usd);
  const power = exponent + MICRO_DIGITS;
  const numerator = digits * (WHOLE + markup) * (power > 0 ? 10n ** BigInt(power) : 1n);
  const denominator = WHOLE * units * (power < 0 ? 10n ** BigInt(-power) : 1n);
  return {
    microUsd: Number((numerator + denominator - 1n) / denominator),
    isExact: numerator % denominator === 0n,
  };
}

/** The decimal number that a double was written as: `digits` × 10 ^ `exponent`. */
function decimalOf(value: number): { digits: bigint; exponent: number } {
  const [mantissa = "", exponent = "0"] = value.toExponential(FAITHFUL_DIGITS - 1).split("e");
  return { digits: BigInt(mantissa.replace(".", "")), exponent: Number(exponent) - (FAITHFUL_DIGITS - 1) };
}

function priceText(price: ListedPrices[string] | undefined): string {
  return price === undefined ? "" : typeof price === "number" ? `$${price}` : `from $${price.base}`;
}
