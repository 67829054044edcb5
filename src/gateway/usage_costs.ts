import { isRecord } from "../platform/records.ts";

/** What a provider's usage says that a request costs the operator. Source: MON-20, PRV-25. */

/** Names by which providers say what a request costs the operator: OpenRouter, DeepInfra, xAI, Vercel. */
const COSTS = /cost|price|pricing|^is_byok$/i;

/** Nano-USD in a dollar, and in a tick of xAI. */
const NANO_PER_USD = 1e9;
const NANO_PER_TICK = 0.1;

/** What a request cost the operator, in nano-USD, as the provider reports it; undefined: it does not. */
export function reportedCostOf(usage: unknown): number | undefined {
  if (!isRecord(usage)) return undefined;
  const { cost, estimated_cost, cost_in_usd_ticks: ticks, cost_details: details } = usage;
  if (isAmount(ticks)) return ticks * NANO_PER_TICK;
  const usd = isAmount(cost) ? cost : estimated_cost;
  if (!isAmount(usd)) return undefined;
  // With a key of one's own at the provider behind OpenRouter, `cost` is only OpenRouter's share.
  const own = usage.is_byok === true && isRecord(details) ? details.upstream_inference_cost : 0;
  return (usd + (isAmount(own) ? own : 0)) * NANO_PER_USD;
}

function isAmount(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

/** A usage object for the customer: without what the operator pays. The object itself if it does not say that. Source: PRV-25. */
export function withoutCosts(usage: unknown): unknown {
  if (!isRecord(usage) || !Object.keys(usage).some((name) => COSTS.test(name))) return usage;
  return Object.fromEntries(Object.entries(usage).filter(([name]) => !COSTS.test(name)));
}
