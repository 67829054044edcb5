import { t } from "@lingui/core/macro";
import type { CostSource, Margin } from "../../../../catalog/margins.ts";
import { formatCount, formatList } from "../../format.ts";
import { PART_NAMES } from "./price_parts.ts";

/** What a route that costs more than its price is said to cost, by how the cost is known. */

export type Loss = Pick<Margin, "source" | "dearer" | "times"> & { route: string };

export function lossText(loss: Loss): string {
  return TEXTS[loss.source](loss);
}

const TEXTS: Readonly<Record<CostSource, (loss: Loss) => string>> = {
  reported: ({ route, times }) =>
    t`The answers of the route ${route} have cost ${{ times: formatCount(times) }} times their price in the last 24 hours, as its provider reports.`,
  set: (loss) => {
    const { route, times } = loss;
    return t`The route ${route} costs ${{ times: formatCount(times) }} times its price, as its cost is set: ${{ parts: partsOf(loss) }}.`;
  },
  listed: (loss) => {
    const { route, times } = loss;
    return t`The route ${route} costs ${{ times: formatCount(times) }} times its price, as the price list has it: ${{ parts: partsOf(loss) }}.`;
  },
};

/** The answers together are named by the text of what is reported. */
function partsOf({ dearer }: Loss): string {
  return formatList(dearer.flatMap((part) => (part === "answers" ? [] : [PART_NAMES[part]])));
}
