import { plural, t } from "@lingui/core/macro";
import { i18n } from "#language";
import {
  BOUND_USES_DAYS,
  type BoundAdvice,
  type BoundedModel,
  type BoundUse,
} from "../../../../catalog/bound_advice.ts";
import { type BoundName, MODEL_BOUNDS } from "../../../../catalog/model_bounds.ts";
import { formatCount } from "../../format.ts";

/** What answers used of what was reserved, and the bounds that this suggests, in words. Pure. */

const ALL_PERMILLE = 1_000;

/** "In 30 days, 12,400 requests that were mostly images used at most 61% of what was reserved." */
export function adviceText(use: BoundUse): string {
  const { part, overruns } = use;
  const used = usedText(use);
  if (overruns === 0 || part === "output") return t`${used}.`;
  return t`${used}; ${plural(overruns, { one: "# used more than that was", other: "# used more than that was" })}.`;
}

function usedText({ part, requests, mostPermille }: BoundUse): string {
  const days = BOUND_USES_DAYS;
  const percent = formatCount(Math.ceil(mostPermille / 10));
  switch (part) {
    case "text":
      return plural(requests, {
        one: `In ${days} days, # request with text used at most ${percent}% of what was reserved`,
        other: `In ${days} days, # requests with text used at most ${percent}% of what was reserved`,
      });
    case "overhead":
      return plural(requests, {
        one: `In ${days} days, # short request used at most ${percent}% of what was reserved`,
        other: `In ${days} days, # short requests used at most ${percent}% of what was reserved`,
      });
    case "images":
      return plural(requests, {
        one: `In ${days} days, # request that was mostly images used at most ${percent}% of what was reserved`,
        other: `In ${days} days, # requests that were mostly images used at most ${percent}% of what was reserved`,
      });
    case "files":
      return plural(requests, {
        one: `In ${days} days, # request that was mostly files used at most ${percent}% of what was reserved`,
        other: `In ${days} days, # requests that were mostly files used at most ${percent}% of what was reserved`,
      });
    case "output":
      return plural(requests, {
        one: `In ${days} days, # answer that was longer than its limit used at most ${percent}% of what was reserved`,
        other: `In ${days} days, # answers that were longer than their limit used at most ${percent}% of what was reserved`,
      });
  }
}

/** "Lower: Image, at most, 50,000 → 34,000."; undefined if nothing should change. */
export function changeText(model: BoundedModel, { overruns, change }: BoundAdvice): string | undefined {
  const changes = Object.entries(change).map(([name, to]) => {
    if (name === "marginPermille") {
      const [before, after] = [formatCount(model.marginPermille / ALL_PERMILLE), formatCount(to / ALL_PERMILLE)];
      return t`factor for what is reserved, ${before} → ${after}`;
    }
    const bound = name as BoundName;
    return `${i18n._(MODEL_BOUNDS[bound].label)}, ${formatCount(model[bound])} → ${formatCount(to)}`;
  });
  if (changes.length === 0) return undefined;
  const list = changes.join("; ");
  return overruns > 0 ? t`Raise: ${list}.` : t`Lower: ${list}.`;
}
