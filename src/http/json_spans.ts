import { CODES, DuplicateField, endsPrimitive, type Span, skipSpace, stringEnd } from "./json_text.ts";

/**
 * Changes top-level fields of a JSON object in its text, so that everything else stays byte for byte. The text must be valid
 * JSON (it was parsed before). Finding the fields takes one pass that skips strings.
 */

const { CLOSE_LIST, CLOSE_OBJECT, COLON, COMMA, OPEN_LIST, OPEN_OBJECT, QUOTE } = CODES;

/** The top-level fields of a JSON object by name; undefined if the text is not an object. Throws DuplicateField. */
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

/** By field name: its new raw JSON, or null to remove the field. */
export type Edits = ReadonlyMap<string, string | null>;

/** The text with `edits` applied; the same string if nothing changes. */
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

/** What to replace, in order. Cuts overlap only if several fields at the end are removed: the first then covers all of them. */
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

/** A field with the comma to remove: the one after it, or for the last fields the one after the last field that stays. */
function cutOf(
  text: string,
  spans: ReadonlyMap<string, Span>,
  edits: Edits,
  { keyStart, end }: Span,
): { start: number; end: number } {
  const after = skipSpace(text, end);
  if (text[after] === ",") return { start: keyStart, end: skipSpace(text, after + 1) };
  let start = keyStart;
  for (const [name, span] of spans) if (edits.get(name) !== null) start = span.end;
  return { start, end };
}

/** The index after the value that begins at `from`, or −1. */
function valueEnd(text: string, from: number): number {
  const first = text.charCodeAt(from);
  if (first === QUOTE) return stringEnd(text, from);
  if (first !== OPEN_OBJECT && first !== OPEN_LIST) {
    let i = from;
    while (i < text.length && !endsPrimitive(text.charCodeAt(i))) i++;
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
