import type { Overhead } from "../platform/schema.ts";
import type { PricesInput } from "./catalog_input.ts";

/**
 * What a route has been seen to use beyond the bounds of requests: a constant, a part per image, and a factor of text and
 * output. Pure. Where it is kept and how it fades: catalog_store.ts. Source: rulings › Money.
 */

export type { Overhead } from "../platform/schema.ts";

/** Nothing beyond the bound. */
export const NO_OVERHEAD: Overhead = Object.freeze({ constantTokens: 0, imageTokens: 0, factorPermille: 1000 });
/** The most that is held for every account, whatever was reported. A model's dearest image is some 50,000 tokens today. */
export const OVERHEAD_MAX: Overhead = Object.freeze({
  constantTokens: 16_384,
  imageTokens: 65_536,
  factorPermille: 4_000,
});
/** The most that one account's own requests teach about that account. The table's CHECKs say the same. */
export const OWN_OVERHEAD_MAX: Overhead = Object.freeze({
  constantTokens: 262_144,
  imageTokens: 262_144,
  factorPermille: 100_000,
});
/** A route's overhead holds for everybody once this many payers have met it: the least of the largest this many. */
export const OVERHEAD_PAYERS_MIN = 3;
/** Text, or an output cap, of at least so many tokens shows a factor; what a shorter one overran by is a constant. */
const FACTOR_FROM_TOKENS = 4_096;
const PERMILLE = 1000;

/** What a request was held for. */
export type HeldTokens = {
  /** Bound of the text, message frames included. */
  textTokens: number;
  images: number;
  /** What the model's settings count for one image. */
  imageInputTokens: number;
  /** The cap, times the choices. */
  outputTokens: number;
};
type UsedTokens = { promptTokens: number; completionTokens: number };

/**
 * The overhead by which an answer that cost more than its hold would have been covered; undefined where its tokens do not
 * say why. `known` is what the hold had on top. Each excess belongs to one part: that of a prompt with images to the images,
 * that of a long text or cap to the factor, any other to the constant.
 */
export function overheadShown(
  held: HeldTokens,
  used: UsedTokens,
  { known, prices }: { known: Overhead; prices: Pick<PricesInput, "inputMicroUsd" | "outputMicroUsd"> },
): Overhead | undefined {
  const { textTokens, images, imageInputTokens, outputTokens } = held;
  const shown = { ...NO_OVERHEAD };
  const text = Math.ceil((textTokens * known.factorPermille) / PERMILLE);
  const beyondText = Math.max(0, used.promptTokens - text - images * imageInputTokens);
  const isShort = images === 0 && textTokens < FACTOR_FROM_TOKENS;
  // A constant that is known accounts for its part of what is put down to images or to a factor.
  shown.constantTokens = isShort ? beyondText : Math.min(beyondText, known.constantTokens);
  const rest = beyondText - shown.constantTokens;
  if (images > 0) shown.imageTokens = Math.ceil(rest / images);
  else if (rest > 0) shown.factorPermille = permilleOf(text + rest, textTokens);

  const beyondCap = used.completionTokens - Math.ceil((outputTokens * known.factorPermille) / PERMILLE);
  if (beyondCap > 0) {
    if (outputTokens >= FACTOR_FROM_TOKENS || prices.inputMicroUsd === 0) {
      shown.factorPermille = Math.max(shown.factorPermille, permilleOf(used.completionTokens, outputTokens));
    } else {
      // The constant is counted in input tokens: so many cost what the output beyond the cap did.
      shown.constantTokens += Math.ceil((beyondCap * prices.outputMicroUsd) / prices.inputMicroUsd);
    }
  }
  const overhead = within(shown, OWN_OVERHEAD_MAX);
  return isNone(overhead) ? undefined : overhead;
}

/** The greater of each part. */
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

/** In words for an operator: "400 tokens a request, 34787 an image, × 1.2". */
export function overheadWords({ constantTokens, imageTokens, factorPermille }: Overhead): string {
  const parts = [
    ...(constantTokens > 0 ? [`${constantTokens} tokens a request`] : []),
    ...(imageTokens > 0 ? [`${imageTokens} tokens an image`] : []),
    ...(factorPermille > PERMILLE ? [`text and output × ${factorPermille / PERMILLE}`] : []),
  ];
  return parts.join(", ") || "nothing";
}

/** Each part between nothing and its most. A provider's numbers may be anything. */
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
