import { type Command, InvalidArgumentError } from "commander";
import { checkImagePrice, type PricesInput } from "../catalog/catalog_input.ts";
import type { FurtherPrices } from "../catalog/rates.ts";
import { InputError } from "../errors.ts";
import { byPart, FURTHER_PARTS, factsOf, PARTS, PRICE_PARTS, type PricePart } from "../price_parts.ts";
import { formatPrice, parsePrice } from "./money.ts";
import { parsedBy } from "./options.ts";

/** The options of `model add` and `model price` that set prices. `catalog/token_prices.ts` checks the values. */

/** As commander names an option: `--cache-write-1h` is `cacheWrite1h`. */
type OptionOf<Part extends string> = Part extends `${infer First}_${infer Rest}`
  ? `${First}${Capitalize<OptionOf<Rest>>}`
  : Part;
export type PriceOptions = { [Part in PricePart as OptionOf<Part>]?: number } & {
  request?: number;
  tier?: Tier[];
  image?: ImagePrice[];
};
/** `key`: a size, or a size with a quality, as in `1024x1024/high`. */
type ImagePrice = { key: string; microUsd: number | null };
type Tier = Record<string, number>;

/** All options except the prices of images. */
export const TOKEN_PRICE_OPTIONS = [...PARTS.map(optionOf), "request", "tier"];

export function priceOptions(command: Command): Command {
  const price = parsedBy(parsePrice);
  for (const part of PARTS)
    command.option(
      `--${part.replaceAll("_", "-")} <usd>`,
      `price of 1 million ${PRICE_PARTS[part].tokens}${defaultOf(part)}`,
      price,
    );
  return command
    .option(
      "--request <usd>",
      "price of one request, in addition to its tokens; an image costs only its own price",
      price,
    )
    .option(
      "--tier <above:name=usd,…>",
      "prices of requests with more input tokens, as in 200000:input=6,output=22.5,cached-input=0.6; repeat in ascending order",
      tier,
    )
    .option(
      "--image <size=usd>",
      "price of one image: of a size (1024x1024=0.04), of a size and quality (1024x1024/high=0.17), or none (1024x1024=none); repeat for more",
      imagePrice,
    );
}

/** What a part without a price costs, in words; "" if it must have one. */
function defaultOf(part: PricePart): string {
  const { side, without } = factsOf(part);
  if (without === undefined) return "";
  if (without === "ordinary") return ` (default: as --${side})`;
  return ` (default: the highest ${without === "dearest_text" ? "text " : ""}${side} price)`;
}

function optionOf<Part extends PricePart>(part: Part): OptionOf<Part> {
  return part.replace(/_(.)/g, (_, first: string) => first.toUpperCase()) as OptionOf<Part>;
}

/** Undefined if no token price is given. Throws InputError. */
export function pricesOf(options: PriceOptions): PricesInput | undefined {
  const { input, cachedInput, output, request, tier: tiers } = options;
  const further = { ...byPart(FURTHER_PARTS, (part) => options[optionOf(part)]), request, tiers };
  const given = [input, cachedInput, output, ...Object.values(further)];
  if (given.every((option) => option === undefined)) return undefined;
  if (input === undefined || output === undefined) throw new InputError("Give both --input and --output.");
  return { inputMicroUsd: input, cachedInputMicroUsd: cachedInput ?? null, outputMicroUsd: output, further };
}

/** The prices of images; null: removed. Undefined if none is given. Throws InputError. */
export function imagePricesOf({ image }: PriceOptions) {
  return image?.map(({ key, microUsd }) => ({ ...checkImagePrice(key, 0), microUsd }));
}

/** As in "cache_write $3.75, above 200000: input $6.00 output $22.50". */
export function furtherWords({ tiers = [], request, ...rates }: FurtherPrices): string {
  const words = FURTHER_PARTS.flatMap((part) => {
    const microUsd = rates[part];
    return microUsd === undefined ? [] : [`${part} ${formatPrice(microUsd)}`];
  });
  for (const { above_input_tokens, ...of } of tiers) {
    const prices = Object.entries(of).map(([name, microUsd]) => `${name} ${formatPrice(microUsd)}`);
    words.push(`above ${above_input_tokens}: ${prices.join(" ")}`);
  }
  if (request !== undefined) words.push(`request ${formatPrice(request)}`);
  return words.join(", ");
}

function tier(text: string, before: Tier[] = []): Tier[] {
  const [above = "", prices = "", ...more] = text.split(":");
  if (more.length > 0) throw wrongTier();
  const read: Tier = { above_input_tokens: parsedBy(tokens)(above) };
  for (const price of prices.split(",")) {
    const [name = "", usd = "", ...rest] = price.split("=");
    if (rest.length > 0) throw wrongTier();
    const part = name.trim().replaceAll("-", "_");
    if (part in read) throw new InvalidArgumentError(`${name} stands twice.`);
    read[part] = parsedBy(parsePrice)(usd);
  }
  return [...before, read];
}

function wrongTier(): InvalidArgumentError {
  return new InvalidArgumentError("A tier has one colon, and one = for each price: 200000:input=6,output=22.5.");
}

function tokens(text: string): number {
  if (!/^\d{1,9}$/.test(text.trim())) throw new InputError("A tier begins with a number of tokens and a colon.");
  return Number(text);
}

function imagePrice(text: string, before: ImagePrice[] = []): ImagePrice[] {
  const [key = "", usd, ...rest] = text.split("=");
  if (usd === undefined || rest.length > 0)
    throw new InvalidArgumentError("Write the size, =, and the price of one image: 1024x1024=0.04.");
  return [...before, { key, microUsd: usd === "none" ? null : parsedBy(parsePrice)(usd) }];
}
