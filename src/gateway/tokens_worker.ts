import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { serveJobs } from "../platform/worker_side.ts";
import { beginsToken, partOfRow } from "./token_starts.ts";
import type { TokenJob, TokensOfPart } from "./tokens.ts";

/**
 * Counts tokens in a worker, within a job's time budget. The tokenizer's time grows with the square of the length of an unbroken
 * word, so it is given short runs, and the clock is checked between them.
 */

/** Maximum length of a run. Each cut adds at most one token. */
const RUN_LENGTH_MAX = 256;

/** So many runs are counted at least, however little time there is. */
const RUNS_MIN = 16;

const GOLDEN_STEP = 0.618;
const STEP_SPREAD = 0.04;

/** Text that looks like a control token is counted as plain text. */
const AS_PLAIN_TEXT = { disallowedSpecial: new Set<string>() };

/**
 * Counts the tokens of `text`, or of as much of it as `budgetMs` allows, and at least of a few runs. Whatever is counted is spread evenly
 * over the text from a random place on, so that all of it counts alike.
 */
export function countInRuns(text: string, budgetMs: number, random: () => number = Math.random): TokensOfPart {
  const endsAt = performance.now() + budgetMs;
  const starts: number[] = [];
  for (let at = 0; at < text.length; at = endOfRun(text, at)) starts.push(at);
  const step = stepOver(starts.length, random);
  let place = Math.floor(random() * starts.length);
  let tokens = 0;
  let chars = 0;
  for (let run = 0; run < starts.length && (run < RUNS_MIN || performance.now() <= endsAt); run++) {
    const start = starts[place] as number;
    const end = endOfRun(text, start);
    tokens += countTokens(text.slice(start, end), AS_PLAIN_TEXT);
    chars += end - start;
    place = (place + step) % starts.length;
  }
  return { tokens, chars };
}

/**
 * The step by which `count` places are visited, each once. Near the golden ratio, where any number of steps are spread evenly; random
 * around it, so that no text can be made for it.
 */
function stepOver(count: number, random: () => number): number {
  let step = Math.max(1, Math.round(count * (GOLDEN_STEP + (random() - 0.5) * STEP_SPREAD)));
  while (commonDivisor(step, count) > 1) step++;
  return step;
}

function commonDivisor(a: number, b: number): number {
  return b === 0 ? a : commonDivisor(b, a % b);
}

/** Where a run ends: where a word or a line begins, and so a token in any case; in a long row, behind whole parts of it. Without such a place, never inside a surrogate pair. */
function endOfRun(text: string, start: number): number {
  const end = start + RUN_LENGTH_MAX;
  if (end >= text.length) return text.length;
  for (let at = end; at > start + RUN_LENGTH_MAX / 2; at--) if (beginsToken(text, at)) return at;
  const part = partOfRow(text, start, end);
  if (part !== undefined) return part;
  const last = text.charCodeAt(end - 1);
  return last >= 0xd800 && last <= 0xdbff ? end - 1 : end;
}

// The first count builds the tokenizer's tables.
countTokens("warm", AS_PLAIN_TEXT);
serveJobs(({ text, budgetMs }: TokenJob) => countInRuns(text, budgetMs));
