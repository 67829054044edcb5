import { codeAndStrings } from "./source_text.ts";

/**
 * Assertions of tests that depend on how fast or how busy the machine is: about measured time, processor time or resident memory. What
 * is recognised: such a reading within an assertion, and a comparison of a name to which the difference of two readings was given.
 */

/** Each returns something else on each machine. */
const MEASURED = /\bperformance\.now\b|\bhrtime\b|\bmemoryUsage\b|\brss\b|\bheapUsed\b|\b(?:cpu|resource)Usage\b/;
const READING = /\bperformance\.now\(\)|\bDate\.now\(\)|\bhrtime\b[^;]*?\)|\bmemoryUsage\b/.source;
/** `Date.now()` alone is an instant like any other; a difference with it is a time that passed. */
const PASSED = new RegExp(`(?:${READING})[^;,{}]*?\\s-\\s|\\s-\\s[^;,{}]*?(?:${READING})`);
/** `name = …` and `name: …`, up to the end of the expression. */
const GIVEN = /\b([A-Za-z_]\w*)\s*(?:=(?![=>])|:)\s*((?:\([^()]*\)\s*=>\s*)?[^;,{}]*)/g;
/** Names of measured time, whoever measured it. */
const SPOKEN = ["took", "tookMs", "elapsed", "elapsedMs"];
const COMPARES = /\.(?:toBeLessThan|toBeGreaterThan|toBeWithin|toBeCloseTo)/;

/** The assertions of this source text, each in one line. */
export function clockedAssertions(text: string): string[] {
  const { code } = codeAndStrings(text);
  const names = new Set(SPOKEN);
  for (const [, name = "", value = ""] of code.matchAll(GIVEN)) if (PASSED.test(value)) names.add(name);
  const named = new RegExp(`\\b(?:${[...names].join("|")})\\b`);
  return assertionsOf(code).filter(
    (assertion) =>
      MEASURED.test(assertion) || PASSED.test(assertion) || (COMPARES.test(assertion) && named.test(assertion)),
  );
}

/** What takes a time limit behind what it waits for; and, alone, the limit of a file's tests. */
const WAITS = /\b(?:until|untilWithin|waitForCalls|waitForEnd|waitForAborted|setDefaultTimeout)\s*\(/g;
/** Far longer than a machine needs that stands still for some seconds, or does ten things at once. */
const WAIT_MS_MIN = 60_000;

/** Waits of this source text whose limit is a number below WAIT_MS_MIN, each in one line. */
export function shortWaits(text: string): string[] {
  const { code } = codeAndStrings(text);
  return [...code.matchAll(WAITS)].flatMap(({ index, 0: opening }) => {
    const wait = code.slice(index, closingOf(code, index + opening.length - 1)).replace(/\s+/g, " ");
    const [, limit] = /(?:,|^setDefaultTimeout\() ?([\d_]+),? ?\)$/.exec(wait) ?? [];
    return limit !== undefined && Number(limit.replaceAll("_", "")) < WAIT_MS_MIN ? [wait] : [];
  });
}

/** `expect(…)` with its matcher. */
function assertionsOf(code: string): string[] {
  return [...code.matchAll(/\bexpect\s*\(/g)].map(({ index, 0: opening }) => {
    let end = closingOf(code, index + opening.length - 1);
    for (;;) {
      const further = /^\s*\.\s*\w+/.exec(code.slice(end));
      if (further === null) break;
      end += further[0].length;
      if (code[end] === "(") end = closingOf(code, end);
    }
    return code.slice(index, end).replace(/\s+/g, " ");
  });
}

/** Behind the bracket that closes the one at `at`. */
function closingOf(code: string, at: number): number {
  let depth = 0;
  for (let i = at; i < code.length; i++) {
    if (code[i] === "(") depth++;
    else if (code[i] === ")" && --depth === 0) return i + 1;
  }
  return code.length;
}
