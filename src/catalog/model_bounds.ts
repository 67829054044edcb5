/**
 * The settings of a model that bound how many input tokens a request may use beyond its text, of which each byte counts as
 * a token. The defaults, in the table, are above what any known provider reports (decision 421). This file imports nothing,
 * so that the browser can load it. How they add up: `gateway/prompt.ts`, `gateway/media_tokens.ts`. Source: MON-3, MON-8.
 */

/** By property: the range, as in the CHECK of the table, and the words of the panel and of the CLI's help. */
export const MODEL_BOUNDS = {
  requestTokens: {
    ...{ min: 0, max: 1_000_000, unit: "tokens", label: "Added to a request" },
    hint: "the most that a provider adds to a request, such as its instructions for tools",
  },
  messageTokens: {
    ...{ min: 0, max: 10_000, unit: "tokens", label: "Added to a message" },
    hint: "the most that the chat format adds to a message",
  },
  imageBaseTokens: {
    ...{ min: 0, max: 1_000_000, unit: "tokens", label: "Image, base" },
    hint: "what an image in a prompt counts as, without its tiles",
  },
  imageTileTokens: {
    ...{ min: 0, max: 1_000_000, unit: "tokens", label: "Image, each tile" },
    hint: "what each tile of an image counts as",
  },
  imageTilePixels: {
    ...{ min: 8, max: 100_000, unit: "pixels", label: "Image, tile size" },
    hint: "width and height of a tile",
  },
  imageMostTokens: {
    ...{ min: 0, max: 10_000_000, unit: "tokens", label: "Image, at most" },
    hint: "the most for an image, and what an image of unknown size counts as",
  },
  fileMostTokens: {
    ...{ min: 0, max: 100_000_000, unit: "tokens", label: "Files, at most" },
    hint: "the most for all files, audio, video and hosted tools of a request; the context length, if it is lower",
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
