/** Lines of CSV for people's spreadsheets. Source: RFC 4180. */

export type Cell = string | number | bigint | boolean | null;

/** One line with its end. */
export function csvLine(cells: readonly Cell[]): string {
  return `${cells.map(toText).join(",")}\r\n`;
}

/** Numbers as they are. Text that a spreadsheet would read as a formula gets an apostrophe before it. */
function toText(cell: Cell): string {
  if (cell === null) return "";
  if (typeof cell !== "string") return String(cell);
  const safe = /^\s*[=+\-@]|^[\t\r]/.test(cell) ? `'${cell}` : cell;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
