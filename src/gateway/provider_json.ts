import { topLevelSpans } from "../http/json_spans.ts";
import { DuplicateField, type Span } from "../http/json_text.ts";
import { isRecord } from "../platform/records.ts";

/**
 * JSON as providers write it. Python's `json.dumps` writes NaN and infinities, which JSON does not have: they become null. A text in which a
 * member stands twice is refused: its client might read the other one. Source: STR-13.
 */

/** An object, its text, and where its members stand there. */
export type JsonObject = { value: Record<string, unknown>; spans: Map<string, Span>; text: string };

/** Strings, which stay, and the words that are no JSON. */
const STRING_OR_NO_NUMBER = /"(?:[^"\\]|\\.)*"|-?\b(?:NaN|Infinity)\b/g;

/**
 * Parses a JSON object, with the places of its fields; the only one of a list counts. Returns undefined if the text is none, or has a field
 * twice.
 */
export function parseObject(text: string): JsonObject | undefined {
  const parsed = parsedOf(text) ?? parsedOf(withoutNonNumbers(text));
  if (parsed === undefined) return undefined;
  const value = onlyOf(parsed.value);
  if (!isRecord(value)) return undefined;
  const own = value === parsed.value ? parsed.text : JSON.stringify(value);
  const spans = spansOf(own);
  return spans && { value, spans, text: own };
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

/** undefined: the text has no such word. */
function withoutNonNumbers(text: string): string | undefined {
  if (!text.includes("NaN") && !text.includes("Infinity")) return undefined;
  return text.replace(STRING_OR_NO_NUMBER, (found) => (found.startsWith('"') ? found : "null"));
}

/** undefined: a member stands twice. */
function spansOf(text: string): Map<string, Span> | undefined {
  try {
    return topLevelSpans(text);
  } catch (error) {
    if (error instanceof DuplicateField) return undefined;
    throw error;
  }
}
