import { readFileSync, writeFileSync } from "node:fs";
import { PARAMETER_GROUPS, type RequestKind } from "../src/gateway/parameters.ts";

/**
 * The tables of parameters that are sent to providers, for docs/api.md, made from the code. `bun scripts/parameters_table.ts`
 * writes them into the page, between its markers.
 */

const PAGE = `${import.meta.dirname}/../docs/api.md`;

/** One table as Markdown. */
export function parametersTable(kind: RequestKind): string {
  const rows = PARAMETER_GROUPS[kind].map(
    ({ title, names, condition }) =>
      `| ${title} | ${names.map((name) => `\`${name}\``).join(" ")} | ${condition ?? ""} |`,
  );
  return ["| what | parameters | sent on if it is |", "| --- | --- | --- |", ...rows].join("\n");
}

if (import.meta.main) {
  let page = readFileSync(PAGE, "utf8");
  for (const kind of ["chat", "image"] as const) {
    const marked = new RegExp(`(<!-- parameters of ${kind} -->\\n\\n)[^]*?(<!-- end -->)`);
    page = page.replace(marked, (_, before: string, after: string) => `${before}${parametersTable(kind)}\n\n${after}`);
  }
  writeFileSync(PAGE, page);
}
