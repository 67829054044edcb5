import type { Usage } from "../ledger/ledger.ts";
import { toUsd } from "../ledger/price.ts";
import { isRecord } from "../platform/records.ts";
import { withoutCosts } from "./usage_costs.ts";
import { isCount } from "./usage_counts.ts";

/** The usage in answers: the counts that are charged, whatever the provider reported. Source: USE-6, USE-7. */

/** What was counted for the charge. */
export type CountedUsage = Pick<Usage, "promptTokens" | "cachedTokens" | "completionTokens" | "further">;

/** What a client is told of the charge if it asked: `usage: {"include": true}`. */
export type ShownCharge = { mode: "package" | "payg"; chargedNanoUsd: bigint };

/** An answer's charge: what was counted, what the provider reported, and the charge if the client asked for it. */
export type ToShow = { counted: CountedUsage; raw?: unknown; charge?: ShownCharge | undefined };

/** The usage of a chat or of embeddings as JSON. Members of the provider's usage that we do not know pass through, without its costs. */
export function usageShown({ counted, raw, charge }: ToShow): string {
  const { promptTokens, cachedTokens, completionTokens, further } = counted;
  const { prompt_tokens_details: input, completion_tokens_details: output, ...others } = rawOf(raw);
  const inputDetails = detailsOf(input, "cached_tokens", cachedTokens);
  const outputDetails = detailsOf(output, "reasoning_tokens", further?.reasoning ?? 0);
  return JSON.stringify({
    ...others,
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    ...(inputDetails && { prompt_tokens_details: inputDetails }),
    ...(outputDetails && { completion_tokens_details: outputDetails }),
    ...shownCharge(charge),
  });
}

/** `cost` in USD and `mode`, the members of a usage that tell what was charged; nothing if the client did not ask. */
export function shownCharge(charge: ShownCharge | undefined): { cost: number; mode: ShownCharge["mode"] } | undefined {
  return charge && { cost: toUsd(charge.chargedNanoUsd), mode: charge.mode };
}

function rawOf(raw: unknown): Readonly<Record<string, unknown>> {
  const shown = withoutCosts(raw);
  return isRecord(shown) ? shown : {};
}

/** The parts of a count: the provider's as far as they are counts, and the one that was charged. Undefined if there are none. */
function detailsOf(raw: unknown, name: string, count: number): Record<string, unknown> | undefined {
  if (!isRecord(raw)) return count > 0 ? { [name]: count } : undefined;
  const details = Object.fromEntries(
    Object.entries(raw).filter(([, value]) => value === null || isCount(value) || isRecord(value)),
  );
  if (count > 0 || details[name] !== undefined) details[name] = count;
  return details;
}
