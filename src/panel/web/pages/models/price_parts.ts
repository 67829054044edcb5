import { t } from "@lingui/core/macro";
import { i18n } from "#language";
import { byPart, factsOf, PARTS, FURTHER_PARTS as UNSORTED } from "../../../../price_parts.ts";
import type { Receipt } from "../usage/receipts.ts";

/** The parts of a price in words, for receipts and for the admin's pages. */

type Part = NonNullable<Receipt["lines"]>[number]["part"];

export const PART_NAMES: Readonly<Record<Part, string>> = {
  ...byPart(PARTS, (part) => i18n._(factsOf(part).label)),
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

/** The parts that have a price of their own only if one is set, in the order in which pages show them: those of the input first. */
export const FURTHER_PARTS = (["input", "output"] as const).flatMap((side) =>
  UNSORTED.filter((part) => factsOf(part).side === side),
);
