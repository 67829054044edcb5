import type { FurtherCounts, TokenCounts } from "../ledger/price.ts";
import { isRecord } from "../platform/records.ts";
import { FURTHER_PARTS, MEDIA_PARTS, type MediaPart, OUTPUT_PARTS, PRICE_PARTS } from "../price_parts.ts";

/**
 * What providers report of an answer's usage, as counts with names of our own: the only place that knows how providers report.
 *
 *   OpenAI       prompt_tokens_details, completion_tokens_details; everything is a part of the two counts
 *   OpenRouter   the same, with cache_write_tokens and image_tokens
 *   LiteLLM      the same, with cache_creation_tokens; Anthropic's counts beside it
 *   Anthropic    input_tokens, output_tokens; the cache's tokens are beside them, or a part of prompt_tokens
 *   Bedrock      the same in camel case
 *   Gemini       promptTokenCount, candidatesTokenCount; thoughts and the prompts of tools are beside them, parts are lists by modality
 *   DeepSeek     prompt_cache_hit_tokens; Moonshot: cached_tokens, and in a stream all of it in the last choice
 *   xAI          reasoning beside the completion tokens: only total_tokens has it
 *
 * Source: MON-15, MON-18.
 */

/** Larger counts are no counts. */
const COUNT_MAX = 2_000_000_000;
/** Members that are read of one object. Providers send about twenty. */
const MEMBERS_MAX = 100;
/** A fraction below this is an error of rounding. */
const FRACTION_MIN = 1e-6;

/** What a member counts. */
type Meaning =
  | "prompt"
  /** The prompt without what the cache read and wrote, unless the total says otherwise. */
  | "promptBesideCache"
  /** Added to the prompt. */
  | "promptMore"
  | "completion"
  /** Reasoning that is added to the completion. */
  | "completionMore"
  | "total"
  | "cached"
  | "cacheRead"
  | "cacheWritten"
  /** Written to the cache, as a part of the prompt. */
  | "cacheWrittenPart"
  | "cacheWritten5m"
  | "cacheWritten1h"
  | "reasoning"
  | MediaPart;

type Names = { readonly [name: string]: Meaning | Names };

const INPUT_DETAILS: Names = {
  cached_tokens: "cached",
  cache_write_tokens: "cacheWrittenPart",
  cache_creation_tokens: "cacheWrittenPart",
  ...mediaDetails("input"),
  cache_creation_token_details: {
    ephemeral_5m_input_tokens: "cacheWritten5m",
    ephemeral_1h_input_tokens: "cacheWritten1h",
  },
};
const OUTPUT_DETAILS: Names = {
  reasoning_tokens: "reasoning",
  ...mediaDetails("output"),
};

/** The names of media in the details of a side: as OpenAI has them, and in a list by modality. */
function mediaDetails(side: "input" | "output"): Names {
  const parts = MEDIA_PARTS.filter((part) => PRICE_PARTS[part].side === side);
  return Object.fromEntries(
    parts.flatMap((part) => {
      const { reported, modality } = PRICE_PARTS[part];
      return [...reported.map((path) => path.split(".").at(-1) ?? path), modality].map((name) => [name, part]);
    }),
  );
}

/** Every name that a provider gives to a count. Of several names for one count, the largest value counts. */
const NAMES: Names = {
  prompt_tokens: "prompt",
  promptTokens: "prompt",
  promptTokenCount: "prompt",
  prompt_token_count: "prompt",
  prompt_eval_count: "prompt",
  inputTokenCount: "prompt",
  input_tokens: "promptBesideCache",
  inputTokens: "promptBesideCache",
  toolUsePromptTokenCount: "promptMore",
  tool_use_prompt_token_count: "promptMore",
  completion_tokens: "completion",
  completionTokens: "completion",
  output_tokens: "completion",
  outputTokens: "completion",
  outputTokenCount: "completion",
  candidatesTokenCount: "completion",
  candidates_token_count: "completion",
  eval_count: "completion",
  thoughtsTokenCount: "completionMore",
  thoughts_token_count: "completionMore",
  total_tokens: "total",
  totalTokens: "total",
  totalTokenCount: "total",
  total_token_count: "total",
  cached_tokens: "cached",
  prompt_cache_hit_tokens: "cached",
  cachedContentTokenCount: "cached",
  cached_content_token_count: "cached",
  cache_read_input_tokens: "cacheRead",
  cacheReadInputTokens: "cacheRead",
  cacheReadInputTokenCount: "cacheRead",
  cache_creation_input_tokens: "cacheWritten",
  cacheWriteInputTokens: "cacheWritten",
  cacheWriteInputTokenCount: "cacheWritten",
  cache_creation: { ephemeral_5m_input_tokens: "cacheWritten5m", ephemeral_1h_input_tokens: "cacheWritten1h" },
  reasoning_tokens: "reasoning",
  prompt_tokens_details: INPUT_DETAILS,
  input_tokens_details: INPUT_DETAILS,
  completion_tokens_details: OUTPUT_DETAILS,
  output_tokens_details: OUTPUT_DETAILS,
  promptTokensDetails: INPUT_DETAILS,
  candidatesTokensDetails: OUTPUT_DETAILS,
  candidates_tokens_details: OUTPUT_DETAILS,
  billed_units: { input_tokens: "prompt", output_tokens: "completion" },
};

type NameMap = ReadonlyMap<string, Meaning | NameMap>;
const NAME_MAP = mapOf(NAMES);

function mapOf(names: Names): NameMap {
  return new Map(
    Object.entries(names).map(([name, meaning]) => [name, typeof meaning === "string" ? meaning : mapOf(meaning)]),
  );
}

/**
 * Token counts as a provider reports them: each part is within its whole. A count of zero was not reported, or is none.
 * `totalTokens`: the only count that was reported.
 */
export type ReportedUsage = TokenCounts & { totalTokens?: number };

/** An answer whose usage is counted: as the provider reports it, or else from the text. */
export type AnswerToCount = {
  usage: ReportedUsage | undefined;
  /** The provider's usage object, unchanged. */
  rawUsage?: unknown;
  /** The completion text, or a sample of it. */
  completionText: string;
  /** The length of the whole completion text, if `completionText` is only a sample. */
  completionChars?: number;
  /** The client left in the middle: `usage` is what was reported last, the text what was relayed. The larger counts are used. */
  isPart?: boolean;
  /** `usage` is only in part what the provider reported. */
  isEstimated?: boolean;
};

type Fields = Readonly<Record<string, unknown>>;
/** By meaning, what was found; undefined: nothing. */
type Found = { [M in Meaning]?: number };

/** The counts of a provider's usage object; undefined if it counts no tokens. */
export function reportedUsageOf(usage: unknown): ReportedUsage | undefined {
  if (!isRecord(usage)) return undefined;
  const found: Found = {};
  collect(usage, NAME_MAP, found);
  const { promptBesideCache, total, promptMore = 0, completionMore = 0 } = found;
  const prompt = found.prompt ?? promptBesideCache;
  if (prompt === undefined && found.completion === undefined && total === undefined) return undefined;
  const read = found.cacheRead ?? 0;
  const written = found.cacheWritten ?? 0;
  const own = { prompt: Math.max(prompt ?? 0, promptBesideCache ?? 0), completion: found.completion ?? 0 };
  const beside = promptMore + (isBeside(found, own, read + written) ? read + written : 0);
  const promptOwn = own.prompt || (own.completion > 0 ? missing(total, own.completion + completionMore + beside) : 0);
  const completion = own.completion || (promptOwn > 0 ? missing(total, promptOwn + beside + completionMore) : 0);
  const reasoning = Math.max(found.reasoning ?? 0, completionMore);
  const known = promptOwn + beside + completion + completionMore;
  // Tokens that only the total has are output that nobody sees, and so is more reasoning than completion.
  const all = completion + completionMore;
  const hidden = known > 0 ? missing(total, known) || (reasoning > all ? reasoning : 0) : 0;
  const promptTokens = Math.min(promptOwn + beside, COUNT_MAX);
  const cached = found.cached || read;
  return {
    promptTokens,
    cachedTokens: Math.min(cached, promptTokens),
    completionTokens: Math.min(all + hidden, COUNT_MAX),
    further: furtherOf(found, Math.max(reasoning, hidden)),
    ...(known === 0 && total !== undefined && total > 0 && { totalTokens: total }),
  };
}

/** What of the total is not among the other counts. */
function missing(total: number | undefined, known: number): number {
  return total === undefined ? 0 : Math.max(0, total - known);
}

/** Whether the cache's tokens are beside the prompt: they cannot be a part of it, or only the total has them, or the name says so. */
function isBeside(
  { total, prompt, completion }: Found,
  own: { prompt: number; completion: number },
  cache: number,
): boolean {
  if (cache === 0) return false;
  if (cache > own.prompt) return true;
  if (completion !== undefined && missing(total, own.prompt + own.completion) >= cache) return true;
  return prompt === undefined && total === undefined;
}

/** Notes the counts of an object by their meaning. */
function collect(object: Fields, names: NameMap, found: Found): void {
  let members = 0;
  for (const name in object) {
    if (++members > MEMBERS_MAX) return;
    const meaning = names.get(name);
    if (meaning === undefined) continue;
    const value = object[name];
    if (typeof meaning !== "string") {
      if (isRecord(value)) collect(value, meaning, found);
      else if (Array.isArray(value)) collect(byModality(value), meaning, found);
      continue;
    }
    const count = countIn(value);
    if (count !== undefined) found[meaning] = Math.max(found[meaning] ?? 0, count);
  }
}

/** Gemini's list of counts, by the modality of each. */
function byModality(list: readonly unknown[]): Fields {
  const entries = list.slice(0, MEMBERS_MAX).filter(isRecord);
  return Object.fromEntries(entries.map((one) => [one.modality, one.tokenCount ?? one.token_count]));
}

/** A count as a number or its text; fractions are rounded up. Undefined if it is none. */
function countIn(value: unknown): number | undefined {
  if (isCount(value)) return value;
  const isText = typeof value === "string" && /^\s{0,9}\d{1,10}(?:\.\d{1,20})?\s{0,9}$/.test(value);
  if (typeof value !== "number" && !isText) return undefined;
  const count = Math.ceil(Number(value) - FRACTION_MIN);
  return Number(value) >= 0 && isCount(count) ? count + 0 : undefined;
}

/** Members of an answer, or of a chunk, that may be or contain the usage; in each choice, and in what it says: `usage`. */
const PLACES: readonly (readonly [string, string?])[] = [
  ["usage"],
  ["usageMetadata"],
  ["usage_metadata"],
  ["x_groq", "usage"],
  ["message", "usage"],
  ["meta"],
  ["amazon-bedrock-invocationMetrics"],
];
/** Those of them that only have a usage: they are not sent on. */
export const USAGE_MEMBERS = ["usageMetadata", "usage_metadata", "amazon-bedrock-invocationMetrics"];
/** Choices that are searched for a usage. */
const CHOICES_MAX = 128;

/**
 * What a provider reports in the course of an answer. A report replaces what was reported before, but no count becomes smaller: some
 * providers end with zeros, or report the prompt first and the completion later. Source: MON-18.
 */
export class UsageReports {
  /** The counts so far; undefined if no tokens were reported. */
  usage: ReportedUsage | undefined;
  /** The last usage object that counts, unchanged; undefined if there was none. */
  raw: unknown;

  /** Reads an answer or a chunk, wherever it has its usage. Returns whether it reports tokens. */
  read(answer: Fields): boolean {
    let reports = false;
    for (const [name, inner] of PLACES) {
      const place = answer[name];
      if (place === undefined || place === null) continue;
      if (this.note(inner === undefined ? place : isRecord(place) ? place[inner] : undefined)) reports = true;
      else if (name === "usage") this.raw ??= place;
    }
    return Array.isArray(answer.choices) ? this.readChoices(answer.choices) || reports : reports;
  }

  /** The same of choices alone. */
  readChoices(choices: readonly unknown[]): boolean {
    let reports = false;
    for (let i = 0; i < choices.length && i < CHOICES_MAX; i++) {
      const choice = choices[i];
      if (!isRecord(choice)) continue;
      for (const place of [choice.usage, usageIn(choice.delta), usageIn(choice.message)])
        if (place !== undefined && this.note(place)) reports = true;
    }
    return reports;
  }

  /** As `read`, of a chunk that reports one more choice: its completion is added to those before. */
  readMore(chunk: Fields): boolean {
    const before = this.usage;
    this.usage = undefined;
    const reports = this.read(chunk);
    this.usage =
      before === undefined || this.usage === undefined ? (this.usage ?? before) : withMore(before, this.usage);
    return reports;
  }

  /** Notes a usage object. Returns whether it reports tokens. */
  note(raw: unknown): boolean {
    const usage = reportedUsageOf(raw);
    if (usage === undefined) return false;
    const before = this.usage;
    if (before === undefined || sizeOf(usage) >= sizeOf(before)) this.raw = raw;
    this.usage = before === undefined ? usage : neverSmaller(before, usage);
    return true;
  }
}

function usageIn(said: unknown): unknown {
  return isRecord(said) ? said.usage : undefined;
}

function sizeOf({ promptTokens, completionTokens, totalTokens = 0 }: ReportedUsage): number {
  return Math.max(promptTokens + completionTokens, totalTokens);
}

/** The later report, with each count that is smaller in it as it was before. */
function neverSmaller(before: ReportedUsage, now: ReportedUsage): ReportedUsage {
  const { totalTokens: totalBefore = 0, further: furtherBefore } = before;
  const { totalTokens = 0, further = furtherBefore } = now;
  const promptTokens = Math.max(before.promptTokens, now.promptTokens);
  const total =
    promptTokens + before.completionTokens + now.completionTokens > 0 ? 0 : Math.max(totalBefore, totalTokens);
  return {
    promptTokens,
    cachedTokens: Math.min(Math.max(before.cachedTokens, now.cachedTokens), promptTokens),
    completionTokens: Math.max(before.completionTokens, now.completionTokens),
    further: furtherBefore === undefined ? further : largestOf(furtherBefore, further ?? furtherBefore),
    ...(total > 0 && { totalTokens: total }),
  };
}

/** The reports of several choices to one prompt. */
function withMore(before: ReportedUsage, more: ReportedUsage): ReportedUsage {
  const usage = neverSmaller(before, more);
  const further = usage.further && { ...usage.further };
  for (const name of OUTPUT_PARTS) {
    const count = (before.further?.[name] ?? 0) + (more.further?.[name] ?? 0);
    if (further !== undefined && count > 0) further[name] = count;
  }
  const completionTokens = Math.min(before.completionTokens + more.completionTokens, COUNT_MAX);
  return { ...usage, completionTokens, further };
}

function largestOf(before: FurtherCounts, now: FurtherCounts): FurtherCounts {
  const largest: FurtherCounts = { ...before, ...now };
  for (const name of FURTHER_PARTS) {
    const count = Math.max(before[name] ?? 0, now[name] ?? 0);
    if (count > 0) largest[name] = count;
  }
  return largest;
}

/** Members by which providers say what a request costs the operator: OpenRouter, DeepInfra, xAI. */
const COSTS = ["cost", "cost_details", "is_byok", "estimated_cost", "cost_in_usd_ticks"];

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
  if (!isRecord(usage) || !COSTS.some((name) => Object.hasOwn(usage, name))) return usage;
  return Object.fromEntries(Object.entries(usage).filter(([name]) => !COSTS.includes(name)));
}

/** The further counts; undefined, and no object made, if there are none. */
function furtherOf(found: Found, reasoning: number): FurtherCounts | undefined {
  const oneHour = found.cacheWritten1h ?? 0;
  const allWritten = Math.max(
    found.cacheWritten ?? 0,
    found.cacheWrittenPart ?? 0,
    oneHour + (found.cacheWritten5m ?? 0),
  );
  if (allWritten + reasoning === 0 && !MEDIA_PARTS.some((part) => found[part])) return undefined;
  const further: FurtherCounts = {};
  if (allWritten > oneHour) further.cache_write = allWritten - oneHour;
  if (oneHour > 0) further.cache_write_1h = oneHour;
  if (reasoning > 0) further.reasoning = reasoning;
  for (const part of MEDIA_PARTS) {
    const count = found[part] ?? 0;
    if (count > 0) further[part] = count;
  }
  return further;
}

export function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= COUNT_MAX;
}
