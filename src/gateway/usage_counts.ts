import type { FurtherCounts, TokenCounts } from "../ledger/price.ts";

/**
 * A provider's usage object as counts with names of our own: the only place that knows how providers report. All shapes of the
 * chat API, as these providers send it:
 *
 *   OpenAI       prompt_tokens_details, completion_tokens_details; everything is a part of the two counts
 *   OpenRouter   the same, with cache_write_tokens and image_tokens
 *   LiteLLM      the same, with cache_creation_tokens; Anthropic's counts beside it
 *   Anthropic    cache_creation_input_tokens, cache_creation by lifetime, cache_read_input_tokens: a part of the prompt, or beside it
 *   DeepSeek     prompt_cache_hit_tokens
 *   xAI, Gemini  reasoning beside the completion tokens: only total_tokens has it
 *
 * Source: MON-15.
 */

/** Larger counts are no counts. */
const COUNT_MAX = 2_000_000_000;

/** Token counts as a provider reports them: each part is within its whole. */
export type ReportedUsage = TokenCounts;

type Fields = Readonly<Record<string, unknown>>;
const NO_FIELDS: Fields = Object.freeze({});

/** The counts of a provider's usage object; undefined if they are not valid counts. */
export function reportedUsageOf(usage: unknown): ReportedUsage | undefined {
  if (!isFields(usage)) return undefined;
  const { prompt_tokens: prompt, completion_tokens: completion } = usage;
  if (!isCount(prompt) || !isCount(completion)) return undefined;
  const input = isFields(usage.prompt_tokens_details) ? usage.prompt_tokens_details : NO_FIELDS;
  const output = isFields(usage.completion_tokens_details) ? usage.completion_tokens_details : NO_FIELDS;
  const read = countOf(usage.cache_read_input_tokens);
  const written = countOf(usage.cache_creation_input_tokens);
  const reasoning = countOf(output.reasoning_tokens);
  const beyond = isCount(usage.total_tokens) ? Math.max(0, usage.total_tokens - prompt - completion) : 0;
  // Cache tokens that cannot be a part of the prompt, or that only the total has, are beside it.
  const isBeside = read + written > 0 && (read + written > prompt || beyond >= read + written);
  const beside = isBeside ? read + written : 0;
  // Tokens that only the total has are output that nobody sees, and so is more reasoning than completion.
  const hidden = Math.max(0, beyond - beside) || (reasoning > completion ? reasoning : 0);
  const promptTokens = Math.min(prompt + beside, COUNT_MAX);
  const cached = countOf(input.cached_tokens) || countOf(usage.prompt_cache_hit_tokens) || read;
  return {
    promptTokens,
    cachedTokens: Math.min(cached, promptTokens),
    completionTokens: Math.min(completion + hidden, COUNT_MAX),
    further: furtherOf(usage, { input, output, written, reasoning: Math.max(reasoning, hidden) }),
  };
}

/** Members by which providers say what a request costs the operator: OpenRouter, DeepInfra, xAI. */
const COSTS = ["cost", "cost_details", "is_byok", "estimated_cost", "cost_in_usd_ticks"];

/** Nano-USD in a dollar, and in a tick of xAI. */
const NANO_PER_USD = 1e9;
const NANO_PER_TICK = 0.1;

/** What a request cost the operator, in nano-USD, as the provider reports it; undefined: it does not. */
export function reportedCostOf(usage: unknown): number | undefined {
  if (!isFields(usage)) return undefined;
  const { cost, estimated_cost, cost_in_usd_ticks: ticks, cost_details: details } = usage;
  if (isAmount(ticks)) return ticks * NANO_PER_TICK;
  const usd = isAmount(cost) ? cost : estimated_cost;
  if (!isAmount(usd)) return undefined;
  // With a key of one's own at the provider behind OpenRouter, `cost` is only OpenRouter's share.
  const own = usage.is_byok === true && isFields(details) ? details.upstream_inference_cost : 0;
  return (usd + (isAmount(own) ? own : 0)) * NANO_PER_USD;
}

function isAmount(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

/** A usage object for the customer: without what the operator pays. The object itself if it does not say that. Source: PRV-25. */
export function withoutCosts(usage: unknown): unknown {
  if (!isFields(usage) || !COSTS.some((name) => Object.hasOwn(usage, name))) return usage;
  return Object.fromEntries(Object.entries(usage).filter(([name]) => !COSTS.includes(name)));
}

/** The same as JSON; `json` is the usage object as it was received. */
export function jsonWithoutCosts(usage: unknown, json: string): string {
  const shown = withoutCosts(usage);
  return shown === usage ? json : JSON.stringify(shown);
}

/** The further counts; undefined, and nothing allocated, if there are none. */
function furtherOf(
  usage: Fields,
  { input, output, written, reasoning }: { input: Fields; output: Fields; written: number; reasoning: number },
): FurtherCounts | undefined {
  const lifetimes = usage.cache_creation ?? input.cache_creation_token_details;
  const oneHour = isFields(lifetimes) ? countOf(lifetimes.ephemeral_1h_input_tokens) : 0;
  const fiveMinutes = isFields(lifetimes) ? countOf(lifetimes.ephemeral_5m_input_tokens) : 0;
  const allWritten = Math.max(
    written,
    oneHour + fiveMinutes,
    countOf(input.cache_write_tokens),
    countOf(input.cache_creation_tokens),
  );
  const audioInput = countOf(input.audio_tokens);
  const imageInput = countOf(input.image_tokens);
  const audioOutput = countOf(output.audio_tokens);
  const imageOutput = countOf(output.image_tokens);
  if (allWritten + reasoning + audioInput + imageInput + audioOutput + imageOutput === 0) return undefined;
  return {
    ...(allWritten > oneHour && { cache_write: allWritten - oneHour }),
    ...(oneHour > 0 && { cache_write_1h: oneHour }),
    ...(reasoning > 0 && { reasoning }),
    ...(audioInput > 0 && { audio_input: audioInput }),
    ...(audioOutput > 0 && { audio_output: audioOutput }),
    ...(imageInput > 0 && { image_input: imageInput }),
    ...(imageOutput > 0 && { image_output: imageOutput }),
  };
}

/** 0 if it is no count. */
function countOf(value: unknown): number {
  return isCount(value) ? value : 0;
}

export function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= COUNT_MAX;
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
