import type { Model } from "../catalog/catalog.ts";
import type { ModelBounds } from "../catalog/model_bounds.ts";
import { imageSizeOf } from "./image_size.ts";

/**
 * The most tokens that the parts of a prompt may cost that are no text, by the settings of the model. Providers count them in ways of
 * their own, and some scale large images down first: then the number of tiles only falls. `detail` is not read: not every provider
 * knows it. Source: MON-3.
 */

/** What a model says about the tokens of a prompt. */
export type PromptBounds = ModelBounds & Pick<Model, "contextLength">;

/** An image, by its `data:` URL; undefined: it is elsewhere, and its size unknown. */
export function imageTokensOf(url: string | undefined, bounds: PromptBounds): number {
  const { imageBaseTokens, imageTileTokens, imageTilePixels, imageMostTokens } = bounds;
  const size = url === undefined ? undefined : imageSizeOf(url);
  if (size === undefined) return imageMostTokens;
  const tiles = Math.ceil(size.width / imageTilePixels) * Math.ceil(size.height / imageTilePixels);
  return Math.min(imageMostTokens, imageBaseTokens + tiles * imageTileTokens);
}

/** All files, audio, video and hosted tools of a request: no prompt that a model has read is longer than its context. */
export function fileTokensOf({ fileMostTokens, contextLength }: PromptBounds): number {
  return Math.min(fileMostTokens, contextLength ?? fileMostTokens);
}
