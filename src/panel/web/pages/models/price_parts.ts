import { t } from "@lingui/core/macro";
import type { Receipt } from "../usage/receipts.ts";

/** The parts of a price in words, for receipts and for the admin's pages. */

type Part = NonNullable<Receipt["lines"]>[number]["part"];

export const PART_NAMES: Readonly<Record<Part, string>> = {
  input: t`Input`,
  cached_input: t`Cached input`,
  cache_write: t`Cache write`,
  cache_write_1h: t`Cache write, 1 hour`,
  audio_input: t`Audio input`,
  image_input: t`Image input`,
  output: t`Output`,
  reasoning: t`Reasoning`,
  audio_output: t`Audio output`,
  image_output: t`Image output`,
  image: t`Image`,
  request: t`Request`,
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
