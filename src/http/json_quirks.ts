import { CODES, isSpace, stringEnd, unescapedName } from "./json_text.ts";

/**
 * What JSON text says and its parsed value does not: that a member stands twice, of which the last counts, and integers that a double does
 * not have. Source: STR-13, STR-14.
 */

const { CLOSE_LIST, CLOSE_OBJECT, COLON, OPEN_LIST, OPEN_OBJECT, QUOTE } = CODES;
const [MINUS, POINT, ZERO, NINE] = ["-", ".", "0", "9"].map((one) => one.charCodeAt(0)) as [
  number,
  number,
  number,
  number,
];
/** Integers with fewer digits are exact. */
export const LONG_DIGITS = 16;
/** Longer ones are no numbers of a program, and stay as they are parsed. */
const KEPT_DIGITS_MAX = 40;
/** Up to this many names of an object are compared with each other; above it, a set is built. */
const COMPARED_NAMES_MAX = 16;
/** Members whose value belongs to the customer's program: arguments of a call, and schemas. */
const PROGRAM_MEMBERS: ReadonlySet<string> = new Set(["arguments", "input", "parameters", "input_schema", "schema"]);

/** `repeats`: an object of any level has a member twice. `hasLong`: there may be an integer that a double does not have. */
export type Quirks = { repeats: boolean; hasLong: boolean };

/**
 * Whether a text says what its parsed value does not. Most servers write JSON as the language does: then writing the value again, which is
 * native, proves that it has nothing else, and is faster than to look through the text.
 */
export function hasQuirks(text: string, value: unknown): boolean {
  if (JSON.stringify(value) === text) return false;
  const { repeats, hasLong } = quirksOf(text);
  return repeats || hasLong;
}

/** Looks through text that parses as JSON, in one pass that skips strings. */
export function quirksOf(text: string): Quirks {
  const quirks = { repeats: false, hasLong: false };
  /** The names of all open objects, the innermost last, and where those of each begin. */
  const names: string[] = [];
  const firsts: number[] = [];
  const sets: (Set<string> | undefined)[] = [];
  for (let i = 0; i < text.length; ) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      const end = stringEnd(text, i);
      if (end < 0) break;
      let after = end;
      while (isSpace(text.charCodeAt(after))) after++;
      if (text.charCodeAt(after) === COLON) {
        const name = unescapedName(text.slice(i + 1, end - 1));
        if (isThere(name, { names, first: firsts.at(-1) ?? 0, sets, depth: firsts.length })) quirks.repeats = true;
        names.push(name);
      }
      i = after;
      continue;
    }
    if (code === MINUS || (code >= ZERO && code <= NINE)) {
      const start = code === MINUS ? i + 1 : i;
      i = start;
      while (text.charCodeAt(i) >= ZERO && text.charCodeAt(i) <= NINE) i++;
      // The digits behind a point are no integer, however many they are: log probabilities have sixteen.
      const isFraction = text.charCodeAt(i) === POINT;
      if (isFraction) while (text.charCodeAt(++i) >= ZERO && text.charCodeAt(i) <= NINE);
      else if (i - start >= LONG_DIGITS) quirks.hasLong = true;
      if (i > start || code === MINUS) continue;
    }
    if (code === OPEN_OBJECT || code === OPEN_LIST) firsts.push(names.length);
    else if (code === CLOSE_OBJECT || code === CLOSE_LIST) {
      sets[firsts.length] = undefined;
      names.length = firsts.pop() ?? 0;
    }
    i++;
  }
  return quirks;
}

type OpenNames = { names: readonly string[]; first: number; sets: (Set<string> | undefined)[]; depth: number };

/** Whether the innermost object has the name. */
function isThere(name: string, { names, first, sets, depth }: OpenNames): boolean {
  let set = sets[depth];
  if (set === undefined && names.length - first <= COMPARED_NAMES_MAX) {
    for (let at = first; at < names.length; at++) if (names[at] === name) return true;
    return false;
  }
  set ??= new Set(names.slice(first));
  sets[depth] = set;
  const isKnown = set.has(name);
  set.add(name);
  return isKnown;
}

/** Of the engines, but not yet of TypeScript's library. */
type SourceJson = {
  parse(text: string, reviver: (name: string, value: unknown, context: { source?: string }) => unknown): unknown;
  rawJSON(text: string): object;
};
const SOURCE_JSON = JSON as unknown as SourceJson;

/**
 * Puts the integers that the text has, and a double does not, into the customer's objects of its parsed value: arguments of calls, and
 * schemas. There `JSON.stringify` writes them as they were. No other number changes: the gateway itself reads those.
 */
export function keepIntegers(value: unknown, text: string): void {
  const exact = SOURCE_JSON.parse(text, (_, one, { source }) => {
    const isLost = typeof one === "number" && source !== undefined && !Number.isSafeInteger(one);
    return isLost && source.length <= KEPT_DIGITS_MAX && /^-?\d+$/.test(source) ? SOURCE_JSON.rawJSON(source) : one;
  });
  graft(value, exact);
}

function graft(value: unknown, exact: unknown): void {
  if (typeof value !== "object" || value === null) return;
  const [own, other] = [value as Record<string, unknown>, exact as Record<string, unknown>];
  for (const name in own) {
    const member = own[name];
    if (typeof member !== "object" || member === null) continue;
    if (PROGRAM_MEMBERS.has(name) && !Array.isArray(member)) own[name] = other[name];
    else graft(member, other[name]);
  }
}
