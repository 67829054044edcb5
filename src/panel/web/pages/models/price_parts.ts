import type { Receipt } from "../usage/receipts.ts";

/** The parts of a price in words, for receipts and for the admin's pages. */

type Part = NonNullable<Receipt["lines"]>[number]["part"];

export const PART_NAMES: Readonly<Record<Part, string>> = {
  input: "Input",
  cached_input: "Cached input",
  cache_write: "Cache write",
  cache_write_1h: "Cache write, 1 hour",
  audio_input: "Audio input",
  image_input: "Image input",
  output: "Output",
  reasoning: "Reasoning",
  audio_output: "Audio output",
  image_output: "Image output",
  image: "Image",
  request: "Request",
};

/** Sorts sizes of images, as in "1024x1536", from the smallest; what is no size comes first. */
export function bySize(a: string, b: string): number {
  return areaOf(a) - areaOf(b) || a.localeCompare(b);
}

function areaOf(size: string): number {
  const [, width, height] = /^(\d+)x(\d+)/.exec(size) ?? [];
  return Number(width ?? 0) * Number(height ?? 0);
}

/** The parts that have a price of their own only if one is set, in the order in which pages show them. */
export const FURTHER_PARTS = [
  "cache_write",
  "cache_write_1h",
  "audio_input",
  "image_input",
  "reasoning",
  "audio_output",
  "image_output",
] as const;
