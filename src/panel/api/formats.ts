/** How answers are written: money as text in JSON, and lines of CSV. */

/** A value as JSON carries it: a bigint (nano-USD) becomes a string of digits. */
export type AsJson<T> = T extends bigint
  ? string
  : T extends readonly (infer Item)[]
    ? AsJson<Item>[]
    : T extends object
      ? { [Key in keyof T]: AsJson<T[Key]> }
      : T;

/** Converts amounts to text, because a JSON number would round them. */
export function toJson<T>(value: T): AsJson<T> {
  return JSON.parse(JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? String(inner) : inner)));
}

/** An amount in dollars may be negative. */
const DECIMAL = /^-?\d+(?:\.\d+)?$/;

export type Cell = string | number | bigint | boolean | null;

/** One line of CSV, with its CRLF. Source: RFC 4180. */
export function csvLine(cells: readonly Cell[]): string {
  return `${cells.map(cellText).join(",")}\r\n`;
}

/** What a spreadsheet runs as a formula: text that begins with one of these signs, also of full width. */
const FORMULA = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|^[\t\r]/;
/**
 * The same where a spreadsheet may begin another cell within a text. With a decimal comma it divides lines at semicolons, and then it also
 * divides what stands in quotes.
 */
const LATER_FORMULA = /[;\t\r\n](?=[ \u00a0]*[=+\-@\uff1d\uff0b\uff0d\uff20])/g;

/** Numbers as they are, also as text. Other text that a spreadsheet would run as a formula gets an apostrophe in front. */
function cellText(cell: Cell): string {
  if (cell === null) return "";
  if (typeof cell !== "string" || DECIMAL.test(cell)) return String(cell);
  const safe = (FORMULA.test(cell) ? `'${cell}` : cell).replace(LATER_FORMULA, "$&'");
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
