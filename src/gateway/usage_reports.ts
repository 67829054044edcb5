import type { FurtherCounts } from "../ledger/price.ts";
import { isRecord } from "../platform/records.ts";
import { FURTHER_PARTS, OUTPUT_PARTS } from "../price_parts.ts";
import { opened } from "./provider_json.ts";
import {
  byName,
  COUNT_MAX,
  meaningOf,
  type ReportedUsage,
  reportedUsageOf,
  type UsageCoverage,
} from "./usage_counts.ts";

/**
 * Where a provider's usage stands in an answer, and what several reports of one answer say together. Names that are known are read first.
 * Where they say nothing, it is looked for: an object, a list or a text of JSON with counts of tokens, or such counts in the answer
 * itself. Source: MON-18.
 */

type Fields = Readonly<Record<string, unknown>>;

/** Members of an answer, or of a chunk, that may be or contain the usage; in each choice, and in what it says: `usage`. */
const PLACES: readonly (readonly [string, string?])[] = [
  ["usage"],
  ["usageMetadata"],
  ["usage_metadata"],
  ["x_groq", "usage"],
  ["message", "usage"],
  ["delta", "usage"],
  ["meta"],
  ["amazon-bedrock-invocationMetrics"],
];
/** Those of them that only have a usage: they are not sent on. */
export const USAGE_MEMBERS = ["usageMetadata", "usage_metadata", "amazon-bedrock-invocationMetrics"];
/** Members in which a usage may be found, and which say more than that: they are sent on. llama.cpp's clients show its speed. */
export const SENT_ON: ReadonlySet<string> = new Set(["timings"]);
/** Choices that are searched for a usage. */
const CHOICES_MAX = 128;
/** Members of one object that are looked at, and objects in objects. */
const MEMBERS_MAX = 50;
const LEVELS_MAX = 4;
/** Longer lists are the answer's: embeddings, images, scores. */
const LIST_MAX = 8;
/** Members that say something else, although they may count tokens: what a model may use, and what is said. */
const NO_USAGE =
  /limit|quota|remain|budget|max|price|cost|^(?:choices|index|message|delta|text|finish_reason|logprobs|error|id|object|model|created)$/i;
/** A name that says that its object counts tokens. */
const SAYS_TOKENS = /usage|token/i;
/** Whether a member may be a usage, by its name. */
const mayBe = new Map<string, boolean>();
const NAMES_KNOWN_MAX = 2_000;
const NAME_CHARS_MAX = 60;
const NOTHING_FOUND: ReadonlySet<string> = new Set();

/**
 * What a provider reports in the course of an answer. A report replaces what was reported before, but no count becomes smaller: some
 * providers end with zeros, or report the prompt first and the completion later. Source: MON-18.
 */
export class UsageReports {
  /** What stands in known places. */
  readonly #known = new Sum();
  /** What was looked for, once something was found. It counts if nothing stands in a known place. */
  #looked: Sum | undefined;
  #foundIn: Set<string> | undefined;
  /** How much text had come with the last report, and with the last one that counted more of the answer than those before. */
  #lastTextAt = 0;
  #largestTextAt = 0;
  #reportsMarked = 0;
  #outputMarked = 0;

  /** The counts so far; undefined if no tokens were reported. */
  get usage(): ReportedUsage | undefined {
    return this.#counting.usage;
  }

  /** The last usage object that counts, unchanged; undefined if there was none. */
  get raw(): unknown {
    return this.#counting.raw;
  }

  get #counting(): Sum {
    return this.#looked?.usage === undefined || this.#known.hasTokens ? this.#known : this.#looked;
  }

  /** Members of the answer in which a usage was found that was looked for: they are not sent on. */
  get foundIn(): ReadonlySet<string> {
    return this.#foundIn ?? NOTHING_FOUND;
  }

  /** A chunk has the report of an earlier one once more. */
  repeat(): void {
    this.#known.reports++;
  }

  /**
   * Notes how much text there is now that a chunk was read: a report is of the text up to its own chunk. Returns whether the chunk counted
   * any tokens.
   */
  mark(textChars: number): boolean {
    const reports = this.#known.reports + (this.#looked?.reports ?? 0);
    if (reports === this.#reportsMarked) return false;
    this.#reportsMarked = reports;
    this.#lastTextAt = textChars;
    const output = this.usage === undefined ? 0 : outputOf(this.usage);
    if (output > this.#outputMarked) {
      this.#outputMarked = output;
      this.#largestTextAt = textChars;
    }
    return true;
  }

  /** What of an answer with so much text the reports are of. Each chunk must have been marked. Source: MON-15. */
  coverageOf(textChars: number): UsageCoverage {
    if (this.#largestTextAt >= textChars) return "whole";
    return this.#lastTextAt >= textChars ? { firstShare: this.#largestTextAt / textChars } : "part";
  }

  /**
   * Reads an answer or a chunk, wherever it has its usage. `goesOn`: it is a chunk with more behind it; counts so far in a member that is sent
   * on are not read. Returns whether it reports tokens.
   */
  read(answer: Fields, goesOn = false): boolean {
    let reports = false;
    for (const [name, inner] of PLACES) {
      const place = answer[name];
      if (place === undefined || place === null) continue;
      if (this.note(inner === undefined ? place : isRecord(place) ? place[inner] : undefined)) reports = true;
      else if (name === "usage") this.#known.raw ??= place;
    }
    if (Array.isArray(answer.choices) && this.readChoices(answer.choices)) reports = true;
    return (!this.#known.hasTokens && this.#look(answer, goesOn)) || reports;
  }

  /** The same of choices alone. */
  readChoices(choices: readonly unknown[]): boolean {
    let reports = false;
    for (let i = 0; i < choices.length && i < CHOICES_MAX; i++) {
      const choice = choices[i];
      if (!isRecord(choice)) continue;
      for (const place of [choice.usage, usageIn(choice.delta), usageIn(choice.message)])
        if (place !== undefined && this.note(place)) reports = true;
      if (!this.#known.hasTokens && this.#look(choice)) reports = true;
    }
    return reports;
  }

  /** As `read`, of a chunk that reports one more choice: its completion is added to those before. */
  readMore(chunk: Fields): boolean {
    const before = this.#known.usage;
    this.#known.usage = undefined;
    const reports = this.read(chunk);
    const now = this.#known.usage;
    this.#known.usage = before === undefined || now === undefined ? (now ?? before) : withMore(before, now);
    return reports;
  }

  /** Notes what stands in the place of a usage: an object, a list, or JSON in a text. Returns whether it reports tokens. */
  note(place: unknown): boolean {
    return noteIn(this.#known, place, { isNamed: true, levels: 1 });
  }

  /** Made when it is needed: every open stream has its reports, and few have a usage that must be looked for. */
  get #lookedFor(): Sum {
    this.#looked ??= new Sum();
    return this.#looked;
  }

  /** Looks for a usage in an object, under whatever name, and for counts in the object itself. Returns whether it reports tokens. */
  #look(object: Fields, goesOn = false): boolean {
    let reports = false;
    let own: Record<string, unknown> | undefined;
    let members = 0;
    for (const name in object) {
      if (++members > MEMBERS_MAX) break;
      const value = object[name];
      if (isObject(value)) {
        if (!mayHaveUsage(name) || (goesOn && SENT_ON.has(name))) continue;
        if (!noteIn(this.#lookedFor, value, { isNamed: SAYS_TOKENS.test(name), levels: LEVELS_MAX })) continue;
        reports = true;
        if (SENT_ON.has(name)) continue;
        this.#foundIn ??= new Set();
        this.#foundIn.add(name);
      } else if ((typeof value === "number" || typeof value === "string") && meaningOf(name, false) !== undefined) {
        own ??= {};
        own[name] = value;
      }
    }
    return (own !== undefined && this.#lookedFor.note(own, reportedUsageOf(own))) || reports;
  }
}

type Place = { isNamed: boolean; levels: number };

/** Notes a usage in an object, or in the objects in it. Returns whether it reports tokens. */
function noteIn(sum: Sum, value: unknown, { isNamed, levels }: Place): boolean {
  const place = opened(value);
  const counts = Array.isArray(place) ? byName(place) : isRecord(place) ? place : totalIn(place);
  if (counts !== undefined && sum.note(counts, reportedUsageOf(counts, isNamed))) return true;
  if (levels === 0 || typeof place !== "object" || place === null) return false;
  let reports = false;
  for (const [name, inner] of Object.entries(place).slice(0, MEMBERS_MAX)) {
    if (!isObject(inner) || !mayHaveUsage(name)) continue;
    if (noteIn(sum, inner, { isNamed: isNamed || SAYS_TOKENS.test(name), levels: levels - 1 })) reports = true;
  }
  return reports;
}

/** A usage that is nothing but a number. */
function totalIn(usage: unknown): Fields | undefined {
  return typeof usage === "number" ? { total_tokens: usage } : undefined;
}

/** Whether a value is an object, a list of few of them, or a text of one. Lists of many are the answer's. */
function isObject(value: unknown): boolean {
  if (typeof value === "string") return value.startsWith("{") || value.startsWith("[{");
  if (Array.isArray(value)) return value.length <= LIST_MAX && value.some(isRecord);
  return isRecord(value);
}

function mayHaveUsage(name: string): boolean {
  const before = mayBe.get(name);
  if (before !== undefined) return before;
  if (mayBe.size >= NAMES_KNOWN_MAX) mayBe.clear();
  const may = name.length <= NAME_CHARS_MAX && !NO_USAGE.test(name);
  mayBe.set(name, may);
  return may;
}

/** What several reports say together. */
class Sum {
  usage: ReportedUsage | undefined;
  raw: unknown;
  /** How many there were that counted any tokens. */
  reports = 0;

  get hasTokens(): boolean {
    return this.usage !== undefined && sizeOf(this.usage) > 0;
  }

  /** Notes the counts of a usage object. Returns whether there are any. */
  note(raw: unknown, usage: ReportedUsage | undefined): boolean {
    if (usage === undefined) return false;
    const before = this.usage;
    if (sizeOf(usage) > 0) this.reports++;
    if (before === undefined || sizeOf(usage) >= sizeOf(before)) this.raw = raw;
    this.usage = before === undefined ? usage : neverSmaller(before, usage);
    return true;
  }
}

/**
 * What an answer with a list of entries reports of its prompt: beside them or, as Vertex AI and SGLang do, in each of them, and then their
 * sum. A count of zero is none: every input has a token. Source: MON-18.
 */
export function reportOfEntries(answer: Fields, entries: readonly unknown[]): Pick<UsageReports, "usage" | "raw"> {
  const beside = new UsageReports();
  beside.read(Object.fromEntries(Object.entries(answer).filter(([, value]) => !Array.isArray(value))));
  if (promptOf(beside) === 0) {
    const ofEach = entries.map((entry) => (isRecord(entry) ? promptOf(reportsOf(entry)) : 0));
    const sum = ofEach.reduce((tokens, more) => tokens + more, 0);
    if (ofEach.length > 0 && !ofEach.includes(0)) return { usage: ofPrompt(Math.min(sum, COUNT_MAX)), raw: undefined };
    beside.read(answer);
  }
  const { usage, raw } = beside;
  const promptTokens = promptOf(beside);
  return { usage: usage && promptTokens > 0 ? { ...usage, promptTokens } : undefined, raw };
}

function reportsOf(answer: Fields): UsageReports {
  const reports = new UsageReports();
  reports.read(answer);
  return reports;
}

/** Some providers report only the total. */
function promptOf({ usage }: UsageReports): number {
  return usage?.promptTokens || usage?.totalTokens || 0;
}

function ofPrompt(promptTokens: number): ReportedUsage {
  return { promptTokens, cachedTokens: 0, completionTokens: 0, further: undefined };
}

/** Whether an answer reports tokens. */
export function reportsTokens(answer: Fields): boolean {
  const { usage } = reportsOf(answer);
  return usage !== undefined && sizeOf(usage) > 0;
}

function usageIn(said: unknown): unknown {
  return isRecord(said) ? said.usage : undefined;
}

function sizeOf({ promptTokens, completionTokens, totalTokens = 0 }: ReportedUsage): number {
  return Math.max(promptTokens + completionTokens, totalTokens);
}

/** The tokens of the answer, or those of all where it alone is not counted. */
function outputOf({ completionTokens, totalTokens = 0 }: ReportedUsage): number {
  return Math.max(completionTokens, totalTokens);
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
