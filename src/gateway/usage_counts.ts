import type { FurtherCounts, TokenCounts } from "../ledger/price.ts";
import { isRecord } from "../platform/records.ts";
import { MEDIA_PARTS, type MediaPart, PRICE_PARTS } from "../price_parts.ts";

/**
 * What a provider's usage object says, as counts with names of our own. Where it stands: `usage_reports.ts`.
 *
 *   OpenAI       prompt_tokens_details, completion_tokens_details; everything is a part of the two counts
 *   OpenRouter   the same, with cache_write_tokens and image_tokens
 *   LiteLLM      the same, with cache_creation_tokens; Anthropic's counts beside it
 *   Anthropic    input_tokens, output_tokens; the cache's tokens are beside them, or a part of prompt_tokens
 *   Bedrock      the same in camel case
 *   Gemini       promptTokenCount, candidatesTokenCount; thoughts and the prompts of tools are beside them, parts are lists by modality
 *   DeepSeek     prompt_cache_hit_tokens; Moonshot: cached_tokens, and in a stream all of it in the last choice
 *   xAI          reasoning beside the completion tokens: only total_tokens has it
 *   Cohere       billed_units, which it bills, beside tokens, which has its own preamble too
 *   llama.cpp    timings: prompt_n is the prompt without what the cache had, cache_n; older builds do not say what that was
 *   TGI          details: input_length, generated_tokens
 *
 * Source: MON-15, MON-18.
 */

/** Larger counts are no counts. */
export const COUNT_MAX = 2_000_000_000;
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
  /** The prompt without what the cache had. It says how long the prompt is only beside `cacheReused`. */
  | "promptProcessed"
  | "cacheReused"
  /** The prompt's tokens beside a count of the answer's. Alone it may be the length of anything. */
  | "inputLength"
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
  input_length: "inputLength",
  prompt_n: "promptProcessed",
  cache_n: "cacheReused",
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
  predicted_n: "completion",
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

/**
 * What of a stream its usage is of. `firstShare`: the last report says no more than an earlier one, which had this share of the text, from 0
 * to 1. "part": text came behind the last report.
 */
export type UsageCoverage = "whole" | "part" | { firstShare: number };

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
  /** What of the answer `usage` is of. Default: "whole". */
  coverage?: UsageCoverage;
};

type Fields = Readonly<Record<string, unknown>>;
/** By meaning, what was found; undefined: nothing. */
type Found = { [M in Meaning]?: number };

/** The counts of a provider's usage object; undefined if it counts no tokens. `isNamed`: as `meaningOf`. */
export function reportedUsageOf(usage: unknown, isNamed = true): ReportedUsage | undefined {
  if (!isRecord(usage)) return undefined;
  const found: Found = {};
  collect(usage, NAME_MAP, found, isNamed);
  addOfServers(found);
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

/** The prompt as llama.cpp and TGI report it. */
function addOfServers(found: Found): void {
  const { promptProcessed, cacheReused, inputLength, completion } = found;
  if (promptProcessed !== undefined && cacheReused !== undefined) {
    found.prompt ??= promptProcessed + cacheReused;
    found.cached ??= cacheReused;
  }
  if (completion !== undefined) found.prompt ??= inputLength;
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
function collect(object: Fields, names: NameMap, found: Found, isNamed = false): void {
  let members = 0;
  for (const name in object) {
    if (++members > MEMBERS_MAX) return;
    const meaning = names.get(name) ?? (names === NAME_MAP ? meaningOf(name, isNamed) : undefined);
    if (meaning === undefined) continue;
    const value = object[name];
    if (typeof meaning !== "string") {
      if (isRecord(value)) collect(value, meaning, found);
      else if (Array.isArray(value)) collect(byName(value) ?? {}, meaning, found);
      continue;
    }
    const count = countIn(isRecord(value) ? ofObject(value) : value);
    if (count !== undefined) found[meaning] = Math.max(found[meaning] ?? 0, count);
  }
}

/** The count in an object: of its tokens, or an integer of 64 bits in its halves, as Protocol Buffers have it in JavaScript. */
function ofObject({ tokens, count, total, low, high }: Fields): unknown {
  return tokens ?? count ?? total ?? (high === 0 ? low : undefined);
}

/** Members of an entry of a list that name what it counts, and those with the count. */
const ENTRY_NAMES = ["modality", "type", "name", "kind", "unit"];
const ENTRY_COUNTS = ["tokenCount", "token_count", "tokens", "count", "value", "amount", "quantity"];

/** A list of counts by what each counts, as Gemini has them by modality; undefined if it is none. */
export function byName(list: readonly unknown[]): Fields | undefined {
  const entries = list
    .slice(0, MEMBERS_MAX)
    .filter(isRecord)
    .map((entry): [unknown, unknown] => [firstOf(entry, ENTRY_NAMES), firstOf(entry, ENTRY_COUNTS)])
    .filter(([name, count]) => typeof name === "string" && count !== undefined);
  return entries.length > 0 ? Object.fromEntries(entries) : undefined;
}

function firstOf(entry: Fields, names: readonly string[]): unknown {
  return names.map((name) => entry[name]).find((one) => one !== undefined);
}

/** Words of a name that say nothing of what is counted. */
const FILLING: ReadonlySet<string> = new Set(["num", "n", "number", "of", "count", "counts", "used", "native"]);
const TOKEN: ReadonlySet<string> = new Set(["token", "tokens"]);
/** What the other words of a name count, if it has no further one. */
const BY_WORDS: ReadonlyMap<string, Meaning> = new Map([
  ...["prompt", "input", "in", "input text", "prompt text", "evaluated"].map((word) => [word, "prompt"] as const),
  ...["completion", "output", "out", "generated", "response", "predicted"].map((word) => [word, "completion"] as const),
  ...["total", "all", ""].map((word) => [word, "total"] as const),
  ...["total prompt", "total input"].map((words) => [words, "prompt"] as const),
  ...["total completion", "total output"].map((words) => [words, "completion"] as const),
  ...["cached", "cached prompt", "cached input", "prompt cached", "input cached"].map(
    (words) => [words, "cached"] as const,
  ),
  ...["reasoning", "thinking"].map((word) => [word, "reasoning"] as const),
]);
const WORD = /[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+/g;
const NAME_CHARS_MAX = 60;
/** Names whose meaning is remembered. They are a provider's, so there may be any number of them. */
const NAMES_KNOWN_MAX = 2_000;
const known = { named: new Map<string, Meaning | null>(), bare: new Map<string, Meaning | null>() };

/**
 * What a member counts whose name is not in the table, by its words. `isNamed`: it stands in a member whose name says that it counts tokens,
 * so `input` does too; elsewhere the word `tokens` is needed.
 */
export function meaningOf(name: string, isNamed: boolean): Meaning | undefined {
  const exact = NAMES[name];
  if (typeof exact === "string") return exact;
  const cache = isNamed ? known.named : known.bare;
  const before = cache.get(name);
  if (before !== undefined) return before ?? undefined;
  if (cache.size >= NAMES_KNOWN_MAX) cache.clear();
  const meaning = name.length > NAME_CHARS_MAX ? undefined : byWords(name, isNamed);
  cache.set(name, meaning ?? null);
  return meaning;
}

function byWords(name: string, isNamed: boolean): Meaning | undefined {
  const words = (name.match(WORD) ?? []).map((word) => word.toLowerCase()).filter((word) => !FILLING.has(word));
  const others = words.filter((word) => !TOKEN.has(word));
  const saysTokens = others.length < words.length;
  return saysTokens || (isNamed && others.length > 0) ? BY_WORDS.get(others.join(" ")) : undefined;
}

/** A number as a text: its thousands may be set apart, as programs write numbers for people, and it may have an exponent. */
const NUMBER = /^\s{0,9}\+?(?:\d{1,10}|\d{1,3}(?:,\d{3}){1,3})(?:\.\d{1,20})?(?:e[+-]?\d{1,2})?\s{0,9}$/i;

/** A count as a number or its text; fractions are rounded up. Undefined if it is none. */
function countIn(value: unknown): number | undefined {
  if (isCount(value)) return value;
  const number = typeof value === "string" && NUMBER.test(value) ? Number(value.replaceAll(",", "")) : value;
  if (typeof number !== "number" || !(number >= 0)) return undefined;
  const count = Math.ceil(number - FRACTION_MIN);
  return isCount(count) ? count + 0 : undefined;
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
