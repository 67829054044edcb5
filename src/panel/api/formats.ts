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

/** Numbers as they are, also as text. Other text that a spreadsheet would run as a formula gets an apostrophe in front. */
function cellText(cell: Cell): string {
  if (cell === null) return "";
  if (typeof cell !== "string" || DECIMAL.test(cell)) return String(cell);
  const safe = /^\s*[=+\-@]|^[\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
