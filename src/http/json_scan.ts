import { LONG_DIGITS } from "./json_quirks.ts";
import { CODES, DuplicateField, endsPrimitive, isSpace, type Span, stringEnd, unescapedName } from "./json_text.ts";

/**
 * Checks the JSON of a request against limits before it is parsed, because a parser needs a hundred times a body's bytes for
 * many small values. One pass that skips strings and stops at the first limit.
 */

const { BACKSLASH, CLOSE_LIST, CLOSE_OBJECT, COLON, COMMA, OPEN_LIST, OPEN_OBJECT, QUOTE } = CODES;

/** Values in a body, including objects and lists. Ten thousand messages with tool calls have this many. */
export const VALUES_MAX = 100_000;
/** Levels of a body. Deeper JSON has no use in this API, and costs every parser after ours. */
export const DEPTH_MAX = 64;
/** Up to this many names of an object are compared with each other; above it, a set is built. */
const COMPARED_NAMES_MAX = 8;

type Found = { hasLong: boolean };

/** Objects and lists are nested deeper than DEPTH_MAX. */
export class TooDeep extends Error {
  override readonly name = "TooDeep";
}

/** The text has more than VALUES_MAX values. */
export class TooManyValues extends Error {
  override readonly name = "TooManyValues";
  /** Path of the largest object or list, as in `messages.0.content`; "" for the whole body. */
  readonly path: string;

  constructor(path: string) {
    super("the text has too many values");
    this.path = path;
  }
}

// State of the current scan, allocated once: a scan is synchronous. By level (the whole body is level 1): whether it is an
// object, how many commas it has had, and where its names begin among the names of all open objects.
const isObject = new Uint8Array(DEPTH_MAX + 2);
const sizes = new Int32Array(DEPTH_MAX + 2);
const firstNames = new Int32Array(DEPTH_MAX + 2);
/** By level: the names of an object that has more than COMPARED_NAMES_MAX names, or an escaped one. */
const nameSets: (Set<string> | undefined)[] = new Array(DEPTH_MAX + 2).fill(undefined);
/** Positions of the names of all open objects, without quotes; those of the innermost object come last. */
const nameStarts = new Int32Array(VALUES_MAX + 1);
const nameEnds = new Int32Array(VALUES_MAX + 1);

/**
 * The top-level fields of a JSON object by name. Throws TooDeep, TooManyValues, and DuplicateField for a name that is repeated
 * in an object of any level, also if it is escaped. Invalid JSON is not always noticed: the result is meaningful only for text
 * that parses. The first `numbersMax` numbers are not counted as values: a parser needs only 8 bytes for a number in a list. `found` tells
 * whether there may be an integer that a double does not have.
 */
export function scanObject(text: string, numbersMax = 0, found: Found = { hasLong: false }): Map<string, Span> {
  try {
    return scan(text, numbersMax, found);
  } finally {
    nameSets.fill(undefined); // The names would keep the whole text in memory.
  }
}

function scan(text: string, numbersMax: number, found: Found): Map<string, Span> {
  const spans = new Map<string, Span>();
  const { length } = text;
  let i = 0;
  let depth = 0;
  let values = 0;
  let numbersLeft = numbersMax;
  /** Number of names of open objects. */
  let names = 0;
  let atName = false;
  /** The current top-level field. */
  let name = "";
  let keyStart = -1;
  let start = 0;
  /** The index after the last value. */
  let end = 0;
  while (i < length) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      end = stringEnd(text, i);
      if (end < 0) break;
      if (atName) {
        atName = false;
        nameStarts[names] = i + 1;
        nameEnds[names] = end - 1;
        checkName(text, depth, names++);
        if (depth === 1) {
          name = nameAt(text, names - 1);
          keyStart = i;
        }
      } else values++;
      i = end;
    } else if (code === COMMA) {
      sizes[depth] = (sizes[depth] ?? 0) + 1;
      atName = isObject[depth] === 1;
      if (depth === 1 && keyStart >= 0) spans.set(name, { keyStart, start, end });
      i++;
    } else if (code === COLON) {
      i++;
      while (i < length && isSpace(text.charCodeAt(i))) i++;
      if (depth === 1) start = i;
    } else if (code === OPEN_OBJECT || code === OPEN_LIST) {
      if (++depth > DEPTH_MAX) throw new TooDeep("the text has too many levels");
      values++;
      atName = code === OPEN_OBJECT;
      isObject[depth] = atName ? 1 : 0;
      sizes[depth] = 0;
      firstNames[depth] = names;
      i++;
    } else if (code === CLOSE_OBJECT || code === CLOSE_LIST) {
      if (depth === 0) break;
      if (depth === 1 && keyStart >= 0) spans.set(name, { keyStart, start, end });
      nameSets[depth] = undefined;
      names = firstNames[depth] ?? 0;
      depth--;
      atName = false;
      end = ++i;
    } else if (isSpace(code)) i++;
    else {
      // Also true, false and null: they cost a parser no more.
      if (numbersLeft > 0) numbersLeft--;
      else values++;
      end = primitiveEnd(text, i);
      if (end - i >= LONG_DIGITS) found.hasLong = true;
      i = end;
    }
    if (values > VALUES_MAX || names > VALUES_MAX) throw new TooManyValues(pathOfLargest(text, depth));
  }
  return spans;
}

/** The index after the number, true, false or null that begins at `from`. */
function primitiveEnd(text: string, from: number): number {
  let i = from + 1;
  while (i < text.length && !endsPrimitive(text.charCodeAt(i))) i++;
  return i;
}

/** Throws DuplicateField if the last name, at `index`, is already in its object. */
function checkName(text: string, depth: number, index: number): void {
  const first = firstNames[depth] ?? 0;
  let set = nameSets[depth];
  if (set === undefined && index - first < COMPARED_NAMES_MAX && !isEscaped(text, index)) {
    for (let other = first; other < index; other++)
      if (areSame(text, other, index)) throw duplicate(text, depth, index);
    return;
  }
  if (set === undefined) {
    set = new Set();
    for (let other = first; other < index; other++) set.add(nameAt(text, other));
    nameSets[depth] = set;
  }
  const name = nameAt(text, index);
  if (set.has(name)) throw duplicate(text, depth, index);
  set.add(name);
}

/** Whether two unescaped names are equal. Compares from the end, because consecutive names often begin alike. */
function areSame(text: string, one: number, other: number): boolean {
  const start = nameStarts[one] ?? 0;
  let i = nameEnds[one] ?? 0;
  let j = nameEnds[other] ?? 0;
  if (i - start !== j - (nameStarts[other] ?? 0)) return false;
  while (i > start) if (text.charCodeAt(--i) !== text.charCodeAt(--j)) return false;
  return true;
}

function isEscaped(text: string, index: number): boolean {
  const end = nameEnds[index] ?? 0;
  for (let i = nameStarts[index] ?? 0; i < end; i++) if (text.charCodeAt(i) === BACKSLASH) return true;
  return false;
}

function nameAt(text: string, index: number): string {
  return unescapedName(text.slice(nameStarts[index], nameEnds[index]));
}

function duplicate(text: string, depth: number, index: number): DuplicateField {
  firstNames[depth + 1] = index + 1;
  return new DuplicateField(pathAt(text, depth));
}

/** Path of the largest object or list that is open. */
function pathOfLargest(text: string, depth: number): string {
  let largest = 1;
  for (let level = 2; level <= depth; level++) if ((sizes[level] ?? 0) > (sizes[largest] ?? 0)) largest = level;
  return pathAt(text, largest - 1);
}

/** Names and indexes down to the current value at level `depth`. Level `depth + 1` must be open, or its first name set. */
function pathAt(text: string, depth: number): string {
  const path: (string | number)[] = [];
  for (let level = 1; level <= depth; level++)
    path.push(isObject[level] === 1 ? nameAt(text, (firstNames[level + 1] ?? 0) - 1) : (sizes[level] ?? 0));
  return path.join(".");
}
