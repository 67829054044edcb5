/**
 * The parts of a prompt and of an answer that may have prices of their own: all that is true for each, once. Prices, price lists, counts of
 * usage, metrics and the command line follow from this table; a test compares the SQL with it. This file imports nothing, so that the
 * browser can load it. Source: MON-11, MON-12, MON-15.
 */

type PartFacts = {
  side: "input" | "output";
  /** On pages. */
  label: string;
  /** What a million of costs the price, in words. */
  tokens: string;
  /** Its price in a price list. */
  listed: string;
  /** Has a column of its own in `models`. The prices of others are in `further_prices`, if an operator sets them. */
  hasColumn?: true;
  /**
   * What a token costs if the part has no price: as the ordinary tokens of its side, the dearest text of the prompt, or the dearest of its
   * side, so that no part is charged less than it may have cost the operator. Undefined: it always has a price.
   */
  without?: "ordinary" | "dearest_text" | "dearest";
  /**
   * If the reported parts of a side are more than the whole, later ones are cut first. Undefined: the ordinary tokens, which are what the
   * others leave.
   */
  place?: number;
  /** Where the report of a receipt has its count, if a price for it may be missing: `unpriced_counts` in SQL. */
  reported?: readonly string[];
  /** Its name in lists of counts by modality. */
  modality?: string;
};

/** In the order in which prices are shown and compared. */
export const PRICE_PARTS = {
  input: { side: "input", label: /*i18n*/ "Input", tokens: "input tokens", listed: "input_mtok", hasColumn: true },
  output: { side: "output", label: /*i18n*/ "Output", tokens: "output tokens", listed: "output_mtok", hasColumn: true },
  cached_input: {
    side: "input",
    label: /*i18n*/ "Cached input",
    tokens: "cached input tokens",
    listed: "cache_read_mtok",
    hasColumn: true,
    without: "ordinary",
    place: 5,
  },
  cache_write: {
    side: "input",
    label: /*i18n*/ "Cache write",
    tokens: "tokens written to the provider's cache",
    listed: "cache_write_mtok",
    without: "dearest_text",
    place: 2,
    reported: [
      "cache_creation_input_tokens",
      "prompt_tokens_details.cache_creation_tokens",
      "prompt_tokens_details.cache_write_tokens",
    ],
  },
  cache_write_1h: {
    side: "input",
    label: /*i18n*/ "Cache write, 1 hour",
    tokens: "tokens written to it for an hour",
    listed: "cache_write_1h_mtok",
    without: "dearest_text",
    place: 1,
    reported: ["cache_creation.ephemeral_1h_input_tokens"],
  },
  reasoning: {
    side: "output",
    label: /*i18n*/ "Reasoning",
    tokens: "reasoning tokens",
    listed: "output_reasoning_mtok",
    without: "ordinary",
    place: 3,
  },
  audio_input: {
    side: "input",
    label: /*i18n*/ "Audio input",
    tokens: "audio tokens in the prompt",
    listed: "input_audio_mtok",
    without: "dearest",
    place: 3,
    reported: ["prompt_tokens_details.audio_tokens"],
    modality: "AUDIO",
  },
  audio_output: {
    side: "output",
    label: /*i18n*/ "Audio output",
    tokens: "audio tokens in the answer",
    listed: "output_audio_mtok",
    without: "dearest",
    place: 1,
    reported: ["completion_tokens_details.audio_tokens"],
    modality: "AUDIO",
  },
  image_input: {
    side: "input",
    label: /*i18n*/ "Image input",
    tokens: "image tokens in the prompt",
    listed: "input_image_mtok",
    without: "dearest",
    place: 4,
    reported: ["prompt_tokens_details.image_tokens"],
    modality: "IMAGE",
  },
  image_output: {
    side: "output",
    label: /*i18n*/ "Image output",
    tokens: "image tokens in the answer",
    listed: "output_image_mtok",
    without: "dearest",
    place: 2,
    reported: ["completion_tokens_details.image_tokens"],
    modality: "IMAGE",
  },
} as const satisfies Readonly<Record<string, PartFacts>>;

type Facts = typeof PRICE_PARTS;
export type PricePart = keyof Facts;
type PartsWith<Fact> = { [Part in PricePart]: Facts[Part] extends Fact ? Part : never }[PricePart];
export type FurtherPart = Exclude<PricePart, PartsWith<{ hasColumn: true }>>;
export type UnpricedPart = PartsWith<{ without: "dearest_text" | "dearest" }>;
export type MediaPart = PartsWith<{ modality: string }>;

export const PARTS = Object.keys(PRICE_PARTS) as readonly PricePart[];
/** What the table says of a part. */
export const factsOf = (part: PricePart): PartFacts => PRICE_PARTS[part];

const isFurther = (part: PricePart): part is FurtherPart => factsOf(part).hasColumn === undefined;
const isMedia = (part: PricePart): part is MediaPart => factsOf(part).modality !== undefined;
const isDearest = (part: PricePart): part is UnpricedPart => factsOf(part).without?.startsWith("dearest") ?? false;

/** Those whose price is set only if an operator enters one beside the prices that have columns. */
export const FURTHER_PARTS = PARTS.filter(isFurther);
/** Those that a provider may report although the model has no price for them: they cost the dearest that there is. */
export const UNPRICED_PARTS = PARTS.filter(isDearest);
export const MEDIA_PARTS = PARTS.filter(isMedia);
/** The parts of the prompt, without the ordinary tokens: those at the end are cut first. */
export const INPUT_PARTS = placed("input").filter((part) => part === "cached_input" || isFurther(part));
/** The same for the completion. */
export const OUTPUT_PARTS = placed("output").filter(isFurther);

function placed(side: "input" | "output"): PricePart[] {
  const placeOf = (part: PricePart) => factsOf(part).place ?? 0;
  return PARTS.filter((part) => factsOf(part).side === side && placeOf(part) > 0).sort(
    (a, b) => placeOf(a) - placeOf(b),
  );
}

/** A record with an entry for each of these parts. */
export function byPart<Part extends PricePart, T>(parts: readonly Part[], of: (part: Part) => T): Record<Part, T> {
  return Object.fromEntries(parts.map((part) => [part, of(part)])) as Record<Part, T>;
}
