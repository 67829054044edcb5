import { DuplicateField, isSpace, type Span, stringEnd } from "./json_spans.ts";

/**
 * Looks at the JSON of a request before it is parsed: a parser spends a hundred times a body's bytes on many small values. One
 * pass, which leaps over strings and stops at the first limit.
 */

/** Values of a body, objects and lists included. Ten thousand messages with tool calls have as many. */
export const VALUES_MAX = 100_000;
/** Deeper JSON has no use in this API and costs every parser behind us. */
export const DEPTH_MAX = 64;
/** Up to so many names of an object are compared with each other; a set is built for more. */
const COMPARED_NAMES_MAX = 8;

const QUOTE = '"'.charCodeAt(0);
const BACKSLASH = "\\".charCodeAt(0);
const COLON = ":".charCodeAt(0);
const COMMA = ",".charCodeAt(0);
const OPEN_OBJECT = "{".charCodeAt(0);
const CLOSE_OBJECT = "}".charCodeAt(0);
const OPEN_LIST = "[".charCodeAt(0);
const CLOSE_LIST = "]".charCodeAt(0);

/** Objects and lists are nested deeper than DEPTH_MAX. */
export class TooDeep extends Error {
  override readonly name = "TooDeep";
}

/** The text has more than VALUES_MAX values. */
export class TooManyValues extends Error {
  override readonly name = "TooManyValues";
  /** The largest object or list, as in `messages.0.content`; "" for the whole. */
  readonly path: string;

  constructor(path: string) {
    super("the text has too many values");
    this.path = path;
  }
}

// The state of the scan that runs; nothing interrupts it. By level, the whole being level 1: whether an object is open
// there, how many commas it has had, and where its names begin among those of all open objects.
const isObject = new Uint8Array(DEPTH_MAX + 2);
const sizes = new Int32Array(DEPTH_MAX + 2);
const firstNames = new Int32Array(DEPTH_MAX + 2);
/** By level: the names of an object that has more than COMPARED_NAMES_MAX, or an escaped one. */
const nameSets: (Set<string> | undefined)[] = new Array(DEPTH_MAX + 2).fill(undefined);
/** The names of all open objects, the innermost object's last: where they stand in the text, without quotes. */
const nameStarts = new Int32Array(VALUES_MAX + 1);
const nameEnds = new Int32Array(VALUES_MAX + 1);

/**
 * The top-level fields of a JSON object by name. Throws DuplicateField for a name that stands twice in an object of any level,
 * however it is escaped; TooDeep; TooManyValues. It does not notice every text that is not valid JSON: the result means
 * something only for a text that can be parsed.
 */
export function scanObject(text: string): Map<string, Span> {
  try {
    return scan(text);
  } finally {
    nameSets.fill(undefined); // Their names would keep the text in memory.
  }
}

function scan(text: string): Map<string, Span> {
  const spans = new Map<string, Span>();
  const { length } = text;
  let i = 0;
  let depth = 0;
  let values = 0;
  /** Names of open objects. */
  let names = 0;
  let atName = false;
  /** The top-level field that is being read. */
  let name = "";
  let keyStart = -1;
  let start = 0;
  /** The index behind the last value. */
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
      values++;
      end = primitiveEnd(text, i);
      i = end;
    }
    if (values > VALUES_MAX || names > VALUES_MAX) throw new TooManyValues(pathOfLargest(text, depth));
  }
  return spans;
}

/** The index behind a number, true, false or null, which begins at `from`. */
function primitiveEnd(text: string, from: number): number {
  let i = from + 1;
  for (; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === COMMA || code === CLOSE_OBJECT || code === CLOSE_LIST || isSpace(code)) break;
  }
  return i;
}

/** Throws DuplicateField if the name at `index`, the last one, stands in its object already. */
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

/** Whether two names that are not escaped are the same. From their ends: names in a row often begin alike. */
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
  const raw = text.slice(nameStarts[index], nameEnds[index]);
  if (!raw.includes("\\")) return raw;
  try {
    return JSON.parse(`"${raw}"`);
  } catch {
    return raw; // The whole text is not valid then, and the parser will say so.
  }
}

function duplicate(text: string, depth: number, index: number): DuplicateField {
  firstNames[depth + 1] = index + 1;
  return new DuplicateField(pathAt(text, depth));
}

/** Of the objects and lists that are open. */
function pathOfLargest(text: string, depth: number): string {
  let largest = 1;
  for (let level = 2; level <= depth; level++) if ((sizes[level] ?? 0) > (sizes[largest] ?? 0)) largest = level;
  return pathAt(text, largest - 1);
}

/** Names and indexes down to what is being read at a level; the next level has been opened, or its first name is set. */
function pathAt(text: string, depth: number): string {
  const path: (string | number)[] = [];
  for (let level = 1; level <= depth; level++)
    path.push(isObject[level] === 1 ? nameAt(text, (firstNames[level + 1] ?? 0) - 1) : (sizes[level] ?? 0));
  return path.join(".");
}
