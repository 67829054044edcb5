/**
 * The settings of a model that bound how many input tokens a request may use beyond its text, of which each byte counts as
 * a token. The defaults, in the table, are above what any known provider reports (decision 421). This file imports nothing,
 * so that the browser can load it. How they add up: `gateway/prompt.ts`, `gateway/media_tokens.ts`. Source: MON-3, MON-8.
 */

/** By property: the range, as in the CHECK of the table, and the words of the panel, of which the CLI's help is made. */
export const MODEL_BOUNDS = {
  requestTokens: {
    ...{ min: 0, max: 1_000_000, unit: "tokens", label: /*i18n*/ "Added to a request" },
    hint: /*i18n*/ "The most that a provider adds to a request, such as its instructions for tools.",
  },
  messageTokens: {
    ...{ min: 0, max: 10_000, unit: "tokens", label: /*i18n*/ "Added to a message" },
    hint: /*i18n*/ "The most that the chat format adds to a message.",
  },
  imageBaseTokens: {
    ...{ min: 0, max: 1_000_000, unit: "tokens", label: /*i18n*/ "Image, base" },
    hint: /*i18n*/ "What an image in a prompt counts as, without its tiles.",
  },
  imageTileTokens: {
    ...{ min: 0, max: 1_000_000, unit: "tokens", label: /*i18n*/ "Image, each tile" },
    hint: /*i18n*/ "What each tile of an image counts as.",
  },
  imageTilePixels: {
    ...{ min: 8, max: 100_000, unit: "pixels", label: /*i18n*/ "Image, tile size" },
    hint: /*i18n*/ "Width and height of a tile.",
  },
  imageMostTokens: {
    ...{ min: 0, max: 10_000_000, unit: "tokens", label: /*i18n*/ "Image, at most" },
    hint: /*i18n*/ "The most for an image, and what an image of unknown size counts as.",
  },
  fileMostTokens: {
    ...{ min: 0, max: 100_000_000, unit: "tokens", label: /*i18n*/ "Files, at most" },
    hint: /*i18n*/ "The most for all files, audio, video and hosted tools of a request; the context length, if it is lower.",
  },
} as const;

export type BoundName = keyof typeof MODEL_BOUNDS;
export type ModelBounds = { readonly [Name in BoundName]: number };
export type BoundsPatch = { [Name in BoundName]?: number | undefined };
/** In the order in which they are shown. */
export const BOUND_NAMES = Object.keys(MODEL_BOUNDS) as BoundName[];

/** An object with a property for each bound. */
export function byBound<T>(of: (name: BoundName) => T): Record<BoundName, T> {
  return Object.fromEntries(BOUND_NAMES.map((name) => [name, of(name)])) as Record<BoundName, T>;
}
