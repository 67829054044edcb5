import { keepIntegers, quirksOf } from "../http/json_quirks.ts";
import { topLevelSpans } from "../http/json_spans.ts";
import type { Span } from "../http/json_text.ts";
import { isRecord } from "../platform/records.ts";

/**
 * JSON as providers write it. Python's `json.dumps` writes NaN and infinities, which JSON does not have: they become null. Some servers put
 * byte order marks in front. Of a member that stands twice the last counts, and it is sent on once: a client might read the first. Source:
 * STR-13, STR-14.
 */

/** An object, its text, and where its members stand there. */
export type JsonObject = { value: Record<string, unknown>; spans: Map<string, Span>; text: string };

const BYTE_ORDER_MARKS = /^\uFEFF+/;
const DONE = "[DONE]";
/** With white space behind it. */
const DONE_CHARS_MAX = 16;
/** Strings, which stay, and the words that are no JSON. */
const STRING_OR_NO_NUMBER = /"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g;

/** JSON in a text in JSON is read so deep. */
const TEXTS_MAX = 3;

/** Parses a JSON object, with the places of its fields; the only one of a list counts, and JSON in a text. Returns undefined if the text is none. */
export function parseObject(text: string, texts = 0): JsonObject | undefined {
  const parsed = parsedOf(text) ?? parsedOf(cleaned(text));
  if (parsed === undefined) return undefined;
  if (typeof parsed.value === "string") return texts < TEXTS_MAX ? parseObject(parsed.value, texts + 1) : undefined;
  const value = onlyOf(parsed.value);
  if (!isRecord(value)) return undefined;
  const { repeats, hasLong } = quirksOf(parsed.text);
  if (hasLong) keepIntegers(parsed.value, parsed.text);
  const own = value === parsed.value && !repeats ? parsed.text : JSON.stringify(value);
  const spans = topLevelSpans(own);
  return spans && { value, spans, text: own };
}

/** Parses the JSON of a whole answer. Throws SyntaxError. */
export function parseAnswer(text: string): unknown {
  const parsed = parsedOf(text) ?? parsedOf(cleaned(text));
  return parsed === undefined ? JSON.parse(text) : opened(parsed.value);
}

/** The only entry of a list, and what stands as JSON in a text. Anything else is returned as it is. */
export function opened(value: unknown, texts = 0): unknown {
  const only = onlyOf(value);
  if (typeof only !== "string" || texts === TEXTS_MAX || !/^\s{0,9}["{[]/.test(only)) return only;
  const inner = parseObject(only)?.value ?? parsedOf(only)?.value;
  return inner === undefined ? only : opened(inner, texts + 1);
}

/** Where the entries of an answer stand: members that have their list, or an answer in which it is, and members of an entry. */
export type ListPlaces = { lists: readonly string[]; entry: readonly string[] };

/** The name of an entry in an object that has them by their numbers. */
const NUMBER = /^\d{1,6}$/;
/** Answers in answers are searched so deep. */
const LEVELS_MAX = 6;

/** The list of an answer's entries, in whichever member it is, or without one, or its only entry; undefined: there is none. Source: STR-15. */
export function listIn(value: unknown, places: ListPlaces, levels = LEVELS_MAX): readonly unknown[] | undefined {
  const only = opened(value);
  if (Array.isArray(only)) return only;
  if (!isRecord(only) || levels === 0) return undefined;
  const { lists, entry } = places;
  for (const name of lists) {
    const list = listIn(only[name], places, levels - 1);
    if (list !== undefined) return list;
  }
  if (entry.some((name) => (only[name] ?? "") !== "")) return [only];
  const members = Object.entries(only);
  if (members.length > 0 && members.every(([name]) => NUMBER.test(name))) return Object.values(only);
  for (const [name, member] of members) {
    const inner = lists.includes(name) ? undefined : opened(member);
    const list = isRecord(inner) ? listIn(inner, places, levels - 1) : undefined;
    if (list !== undefined) return list;
  }
  return undefined;
}

/** The only entry of a list: Gemini reports errors in one. Anything else is returned as it is. */
export function onlyOf(value: unknown): unknown {
  return Array.isArray(value) && value.length === 1 && isRecord(value[0]) ? value[0] : value;
}

function parsedOf(text: string | undefined): { value: unknown; text: string } | undefined {
  if (text === undefined) return undefined;
  try {
    return { value: JSON.parse(text), text };
  } catch {
    return undefined;
  }
}

/** The text without the end of a stream, which some gateways write behind a whole answer. */
function withoutDone(text: string): string {
  const at = text.lastIndexOf(DONE);
  if (at < 0 || text.length - at > DONE_CHARS_MAX) return text;
  return text
    .slice(0, at)
    .trimEnd()
    .replace(/data:$/, "");
}

/** The text without what is no JSON; undefined: it has nothing of that. */
function cleaned(text: string): string | undefined {
  const own = withoutDone(text.replace(BYTE_ORDER_MARKS, ""));
  if (!own.includes("NaN") && !own.includes("Infinity")) return own === text ? undefined : own;
  return own.replace(STRING_OR_NO_NUMBER, (found) => (found.startsWith('"') ? found : "null"));
}
