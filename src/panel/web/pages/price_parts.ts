import type { Receipt } from "./receipts.ts";

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
