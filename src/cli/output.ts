import { paddedUsd } from "./money.ts";

/** The output of a command: text for people, or with --json one document. */
export type Output = { text: string; json: unknown; exitCode?: number };

/** One JSON document. An amount in nano-USD is a string of digits, and a second field has it in USD. */
export function toJson(value: unknown): string {
  return JSON.stringify(plain(value), null, 2);
}

function plain(value: unknown): unknown {
  if (typeof value === "bigint") return String(value);
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, field]) =>
      typeof field === "bigint" && key.endsWith("anoUsd")
        ? [
            [key, String(field)],
            [key.replace(/NanoUsd$/, "Usd").replace(/^nanoUsd$/, "usd"), paddedUsd(field)],
          ]
        : [[key, plain(field)]],
    ),
  );
}

/** Columns under their headings; `nothing` if there are no rows. */
export function table(headings: readonly string[], rows: readonly (readonly string[])[], nothing: string): string {
  if (rows.length === 0) return nothing;
  const lines = [headings, ...rows];
  const widths = headings.map((_, column) => Math.max(...lines.map((line) => width(line[column] ?? ""))));
  return lines
    .map((line) =>
      widths
        .map((size, column) => (line[column] ?? "") + " ".repeat(size - width(line[column] ?? "")))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Named values, one per line. */
export function facts(entries: readonly (readonly [name: string, value: string])[]): string {
  const size = Math.max(...entries.map(([name]) => name.length));
  return entries.map(([name, value]) => `${name.padEnd(size)}  ${value}`).join("\n");
}

/** The lines of a page, and the option that shows the next page if there is one. */
export function withMore(lines: string, hasMore: boolean, next: string): string {
  return hasMore ? `${lines}\nThere are more: ${next}` : lines;
}

/** A list in a cell; null means all. */
export function scope(values: readonly string[] | null): string {
  return values === null ? "all" : values.join(", ");
}

export function yesNo(value: boolean): string {
  return value ? "yes" : "no";
}

function width(text: string): number {
  return [...text].length;
}
