import { countTokens } from "gpt-tokenizer/encoding/o200k_base";
import { serveJobs } from "../platform/worker_side.ts";
import type { TokenJob, TokensOfPart } from "./tokens.ts";

/**
 * Counts tokens in a worker, within a job's time budget. The tokenizer's time grows with the square of the length of an unbroken
 * word, so it is given short runs, and the clock is checked between them.
 */

/** Maximum length of a run. Each cut adds at most one token. */
const RUN_LENGTH_MAX = 256;

/** Text that looks like a control token is counted as plain text. */
const AS_PLAIN_TEXT = { disallowedSpecial: new Set<string>() };

/** Counts the tokens of `text`, or of as much of it as `budgetMs` allows: of runs in random order, so that all of it counts alike. */
export function countInRuns(text: string, budgetMs: number, random: () => number = Math.random): TokensOfPart {
  const endsAt = performance.now() + budgetMs;
  const starts: number[] = [];
  for (let at = 0; at < text.length; at = endOfRun(text, at)) starts.push(at);
  let tokens = 0;
  let chars = 0;
  while (starts.length > 0 && performance.now() <= endsAt) {
    const drawn = Math.floor(random() * starts.length);
    const start = starts[drawn] as number;
    // The last takes the place of the drawn one.
    starts[drawn] = starts.at(-1) as number;
    starts.pop();
    const end = endOfRun(text, start);
    tokens += countTokens(text.slice(start, end), AS_PLAIN_TEXT);
    chars += end - start;
  }
  return { tokens, chars };
}

/** Where a run ends: before its last space, where a token would end anyway, and never inside a surrogate pair. */
function endOfRun(text: string, start: number): number {
  const end = start + RUN_LENGTH_MAX;
  if (end >= text.length) return text.length;
  const space = text.lastIndexOf(" ", end - 1);
  if (space > start + RUN_LENGTH_MAX / 2) return space;
  const last = text.charCodeAt(end - 1);
  return last >= 0xd800 && last <= 0xdbff ? end - 1 : end;
}

// The first count builds the tokenizer's tables.
countTokens("warm", AS_PLAIN_TEXT);
serveJobs(({ text, budgetMs }: TokenJob) => countInRuns(text, budgetMs));
