/**
 * Patches a JSON object's top-level fields in its text, so that all the rest goes on byte for byte as it came. The text
 * must be valid JSON (it was parsed before); finding the fields costs one pass that leaps over strings.
 */

const QUOTE = '"'.charCodeAt(0);
const BACKSLASH = "\\".charCodeAt(0);
const COLON = ":".charCodeAt(0);
const COMMA = ",".charCodeAt(0);
const OPEN_OBJECT = "{".charCodeAt(0);
const CLOSE_OBJECT = "}".charCodeAt(0);
const OPEN_LIST = "[".charCodeAt(0);
const CLOSE_LIST = "]".charCodeAt(0);

/** Where a field's value stands: `text.slice(start, end)`; its key begins at `keyStart`. */
export type Span = { keyStart: number; start: number; end: number };

/** Two fields of one name: what was checked might not be what the provider reads. */
export class DuplicateField extends Error {
  override readonly name = "DuplicateField";
  readonly field: string;

  constructor(field: string) {
    super(`the field ${field} stands twice`);
    this.field = field;
  }
}

/** The top-level fields of a JSON object by name; undefined if the text is not a well-formed object at its top. Throws DuplicateField. */
export function topLevelSpans(text: string): Map<string, Span> | undefined {
  const spans = new Map<string, Span>();
  let i = skipSpace(text, 0);
  if (text.charCodeAt(i) !== OPEN_OBJECT) return undefined;
  i = skipSpace(text, i + 1);
  if (text.charCodeAt(i) === CLOSE_OBJECT) return spans;
  for (;;) {
    const keyStart = i;
    if (text.charCodeAt(i) !== QUOTE) return undefined;
    const keyEnd = stringEnd(text, i);
    if (keyEnd < 0) return undefined;
    const raw = text.slice(keyStart + 1, keyEnd - 1);
    const name: string = raw.includes("\\") ? JSON.parse(`"${raw}"`) : raw;
    i = skipSpace(text, keyEnd);
    if (text.charCodeAt(i) !== COLON) return undefined;
    const start = skipSpace(text, i + 1);
    const end = valueEnd(text, start);
    if (end < 0) return undefined;
    if (spans.has(name)) throw new DuplicateField(name);
    spans.set(name, { keyStart, start, end });
    i = skipSpace(text, end);
    const code = text.charCodeAt(i);
    if (code === CLOSE_OBJECT) return skipSpace(text, i + 1) === text.length ? spans : undefined;
    if (code !== COMMA) return undefined;
    i = skipSpace(text, i + 1);
  }
}

/** New raw JSON for a field; null takes the field away. */
export type Edits = ReadonlyMap<string, string | null>;

/** The text with `edits` applied; the very same string when nothing changes. */
export function patch(text: string, spans: ReadonlyMap<string, Span>, edits: Edits): string {
  if (edits.size === 0) return text;
  let patched = "";
  let at = 0;
  for (const cut of cutsOf(text, spans, edits)) {
    patched += text.slice(at, cut.start) + cut.with;
    at = Math.max(at, cut.end);
  }
  return at === 0 && patched === "" ? text : patched + text.slice(at);
}

type Cut = { start: number; end: number; with: string };

/** What is put in the place of what, in order. Cuts overlap only where several fields at the end go: the first of them reaches to the end of all. */
function cutsOf(text: string, spans: ReadonlyMap<string, Span>, edits: Edits): Cut[] {
  const cuts: Cut[] = [];
  let added = "";
  for (const [name, value] of edits) {
    const span = spans.get(name);
    if (span === undefined) {
      if (value !== null) added += `,${JSON.stringify(name)}:${value}`;
    } else if (value === null) {
      cuts.push({ ...cutOf(text, spans, edits, span), with: "" });
    } else if (text.slice(span.start, span.end) !== value) {
      cuts.push({ start: span.start, end: span.end, with: value });
    }
  }
  if (added !== "") {
    const closing = text.lastIndexOf("}");
    const empty = spans.size === 0 || cuts.filter((cut) => cut.with === "").length === spans.size;
    cuts.push({ start: closing, end: closing, with: empty ? added.slice(1) : added });
  }
  return cuts.sort((a, b) => a.start - b.start);
}

/** A field with the comma that belongs to it: the one behind, or for the last field the one behind the last that stays. */
function cutOf(
  text: string,
  spans: ReadonlyMap<string, Span>,
  edits: Edits,
  { keyStart, end }: Span,
): { start: number; end: number } {
  const behind = skipSpace(text, end);
  if (text[behind] === ",") return { start: keyStart, end: skipSpace(text, behind + 1) };
  let start = keyStart;
  for (const [name, span] of spans) if (edits.get(name) !== null) start = span.end;
  return { start, end };
}

export function isSpace(code: number): boolean {
  return code === 32 || code === 10 || code === 13 || code === 9;
}

function skipSpace(text: string, from: number): number {
  let i = from;
  while (isSpace(text.charCodeAt(i))) i++;
  return i;
}

/** The index behind a string that begins at `from`, or −1. */
export function stringEnd(text: string, from: number): number {
  let i = from + 1;
  for (;;) {
    const quote = text.indexOf('"', i);
    if (quote < 0) return -1;
    let slashes = quote;
    while (slashes > i && text.charCodeAt(slashes - 1) === BACKSLASH) slashes--;
    if ((quote - slashes) % 2 === 0) return quote + 1;
    i = quote + 1;
  }
}

/** The index behind a value that begins at `from`, or −1. */
function valueEnd(text: string, from: number): number {
  const first = text.charCodeAt(from);
  if (first === QUOTE) return stringEnd(text, from);
  if (first !== OPEN_OBJECT && first !== OPEN_LIST) {
    let i = from;
    while (i < text.length && !endsValue(text.charCodeAt(i))) i++;
    return i > from ? i : -1;
  }
  let depth = 0;
  let i = from;
  while (i < text.length) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      i = stringEnd(text, i);
      if (i < 0) return -1;
      continue;
    }
    if (code === OPEN_OBJECT || code === OPEN_LIST) depth++;
    else if ((code === CLOSE_OBJECT || code === CLOSE_LIST) && --depth === 0) return i + 1;
    i++;
  }
  return -1;
}

function endsValue(code: number): boolean {
  return code === COMMA || code === CLOSE_OBJECT || code === CLOSE_LIST || isSpace(code);
}
