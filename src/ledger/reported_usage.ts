import type { TokenCounts } from "./price.ts";

/**
 * The provider's usage counts beyond those that the ledger knows, for the receipt: numbers only, each under its path in the
 * provider's usage object. Names are neither trusted nor interpreted. They are kept in case something gets a price later.
 */

/** Numbers per receipt. Providers report about twenty. */
export const NAMES_MAX = 32;
const NAME_CHARS_MAX = 100;
/** Nested objects: `prompt_tokens_details.cached_tokens` is on the second level. */
const DEPTH_MAX = 4;
/** Fields that are read, of any type. */
const FIELDS_MAX = 500;
const UNSAFE_IN_NAME = /[^\w.:-]/g;
/** Decimal places of amounts with a fraction, such as the cost that some providers report. They are stored as text. */
const DECIMAL_PLACES = 12;
const DECIMAL_MAX = 1_000_000_000;

/** Integers are numbers; amounts with a fraction are decimal text: "0.00014". */
export type UsageReport = Readonly<Record<string, number | string>>;

/**
 * The numbers above zero in a provider's usage object, as JSON text; null if there are none beyond `known`, the counts that the
 * ledger took from it (undefined: it took none). Names are truncated and cleaned. What exceeds the limits at the top of this
 * file, is below zero, or is no number is left out.
 */
export function reportedUsage(usage: unknown, known: TokenCounts | undefined): string | null {
  if (typeof usage !== "object" || usage === null) return null;
  const found = new Map<string, number | string>();
  collect(usage, "", { found, known, fieldsLeft: FIELDS_MAX, depth: 1 });
  return found.size === 0 ? null : JSON.stringify(Object.fromEntries(found));
}

type Search = {
  found: Map<string, number | string>;
  known: TokenCounts | undefined;
  fieldsLeft: number;
  depth: number;
};

function collect(object: object, path: string, search: Search): void {
  for (const [field, value] of fieldsOf(object)) {
    if (search.found.size >= NAMES_MAX || search.fieldsLeft-- <= 0) return;
    const name = `${path}${field}`.slice(0, NAME_CHARS_MAX).replace(UNSAFE_IN_NAME, "_");
    if (typeof value === "number") {
      const kept = numberOf(value);
      if (kept !== undefined && !isKnown(name, value, search.known) && !search.found.has(name)) {
        search.found.set(name, kept);
      }
    } else if (typeof value === "object" && value !== null && search.depth < DEPTH_MAX) {
      search.depth++;
      collect(value, `${name}.`, search);
      search.depth--;
    }
  }
}

/** The fields one by one, so that a huge object is never listed completely. */
function* fieldsOf(object: object): Generator<[string, unknown]> {
  for (const field in object) yield [field, Reflect.get(object, field)];
}

function numberOf(value: number): number | string | undefined {
  if (!(value > 0)) return undefined;
  if (Number.isSafeInteger(value)) return value;
  if (value > DECIMAL_MAX) return undefined;
  const text = value.toFixed(DECIMAL_PLACES);
  let end = text.length;
  while (text[end - 1] === "0") end--;
  // Rounded to zero: only the point is left of "0.000000000000".
  return text[end - 1] === "." ? undefined : text.slice(0, end);
}

function isKnown(name: string, value: number, known: TokenCounts | undefined): boolean {
  if (known === undefined) return false;
  const { promptTokens, cachedTokens, completionTokens } = known;
  switch (name) {
    case "prompt_tokens":
      return value === promptTokens;
    case "completion_tokens":
      return value === completionTokens;
    case "total_tokens":
      return value === promptTokens + completionTokens;
    case "prompt_tokens_details.cached_tokens":
      return value === cachedTokens;
    default:
      return false;
  }
}
