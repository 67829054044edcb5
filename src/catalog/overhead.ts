import type { Overhead } from "../platform/schema_catalog.ts";

/**
 * The *overhead* of a route: how far its answers exceeded the bounds that were reserved for requests. It has a
 * constant, a part per image, and a factor on text and output. Pure. Where it is stored and how it fades:
 * overhead_store.ts.
 * Source: MON-8.
 */

export type { Overhead } from "../platform/schema_catalog.ts";

/** No overhead: nothing beyond the bound. */
export const NO_OVERHEAD: Overhead = Object.freeze({ constantTokens: 0, imageTokens: 0, factorPermille: 1000 });
/**
 * The most that is reserved for all accounts, whatever was reported. The most expensive image of any model is some
 * 50,000 tokens today.
 */
export const OVERHEAD_MAX: Overhead = Object.freeze({
  constantTokens: 16_384,
  imageTokens: 65_536,
  factorPermille: 4_000,
});
/** The most that is learned for one account from its own requests. The table has the same limits as CHECKs. */
export const OWN_OVERHEAD_MAX: Overhead = Object.freeze({
  constantTokens: 262_144,
  imageTokens: 262_144,
  factorPermille: 100_000,
});
/** Payers who must have seen an overhead before it applies to everybody, with the smallest of their largest values. */
export const OVERHEAD_PAYERS_MIN = 3;
/**
 * An excess over a text or output cap of at least this many tokens counts as a factor; over a shorter one as a
 * constant.
 */
const FACTOR_FROM_TOKENS = 4_096;
const PERMILLE = 1000;

/** The token bounds that were reserved for a request. */
export type HeldTokens = {
  /** Bound of the text, including what each message adds. */
  textTokens: number;
  images: number;
  /** The model's setting for one image. */
  imageInputTokens: number;
  /** The cap times the number of choices. */
  outputTokens: number;
};
type UsedTokens = { promptTokens: number; completionTokens: number };

/**
 * The overhead that would have covered an answer that cost more than its hold; undefined if its tokens do not explain
 * it. `known` is the overhead that was in the hold. Each excess is attributed to one part: of a prompt with images to
 * the images, of a long text or cap to the factor, any other to the constant.
 */
export function overheadShown(
  held: HeldTokens,
  used: UsedTokens,
  { known, prices }: { known: Overhead; prices: { inputMicroUsd: number; outputMicroUsd: number } },
): Overhead | undefined {
  const { textTokens, images, imageInputTokens, outputTokens } = held;
  const shown = { ...NO_OVERHEAD };
  const text = Math.ceil((textTokens * known.factorPermille) / PERMILLE);
  const beyondText = Math.max(0, used.promptTokens - text - images * imageInputTokens);
  const isShort = images === 0 && textTokens < FACTOR_FROM_TOKENS;
  // The known constant comes first; only the rest is attributed to images or a factor.
  shown.constantTokens = isShort ? beyondText : Math.min(beyondText, known.constantTokens);
  const rest = beyondText - shown.constantTokens;
  if (images > 0) shown.imageTokens = Math.ceil(rest / images);
  else if (rest > 0) shown.factorPermille = permilleOf(text + rest, textTokens);

  const beyondCap = used.completionTokens - Math.ceil((outputTokens * known.factorPermille) / PERMILLE);
  if (beyondCap > 0) {
    if (outputTokens >= FACTOR_FROM_TOKENS || prices.inputMicroUsd === 0) {
      shown.factorPermille = Math.max(shown.factorPermille, permilleOf(used.completionTokens, outputTokens));
    } else {
      // The constant is in input tokens: this many cost as much as the output beyond the cap.
      shown.constantTokens += Math.ceil((beyondCap * prices.outputMicroUsd) / prices.inputMicroUsd);
    }
  }
  const overhead = within(shown, OWN_OVERHEAD_MAX);
  return isNone(overhead) ? undefined : overhead;
}

/** The greater value of each part. */
export function greaterOverhead(a: Overhead, b: Overhead): Overhead {
  if (a === b || isNone(b)) return a;
  return {
    constantTokens: Math.max(a.constantTokens, b.constantTokens),
    imageTokens: Math.max(a.imageTokens, b.imageTokens),
    factorPermille: Math.max(a.factorPermille, b.factorPermille),
  };
}

export function isNone({ constantTokens, imageTokens, factorPermille }: Overhead): boolean {
  return constantTokens <= 0 && imageTokens <= 0 && factorPermille <= PERMILLE;
}

/** As text for an operator: "400 tokens a request, 34787 an image, × 1.2". */
export function overheadWords({ constantTokens, imageTokens, factorPermille }: Overhead): string {
  const parts = [
    ...(constantTokens > 0 ? [`${constantTokens} tokens a request`] : []),
    ...(imageTokens > 0 ? [`${imageTokens} tokens an image`] : []),
    ...(factorPermille > PERMILLE ? [`text and output × ${factorPermille / PERMILLE}`] : []),
  ];
  return parts.join(", ") || "nothing";
}

/** Limits each part to between none and its maximum. A provider may report any number. */
export function within(overhead: Overhead, most: Overhead): Overhead {
  const between = (value: number, least: number, max: number) => (value > least ? Math.min(value, max) : least);
  return {
    constantTokens: between(overhead.constantTokens, 0, most.constantTokens),
    imageTokens: between(overhead.imageTokens, 0, most.imageTokens),
    factorPermille: between(overhead.factorPermille, PERMILLE, most.factorPermille),
  };
}

function permilleOf(used: number, bound: number): number {
  return Math.ceil((used * PERMILLE) / Math.max(1, bound));
}
