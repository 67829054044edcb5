import { readFileSync, writeFileSync } from "node:fs";
import { PARAMETER_GROUPS, type ParameterGroup, type RequestKind } from "../src/gateway/parameters.ts";
import { OWN_RESPONSES_GROUPS } from "../src/gateway/responses/own_parameters.ts";

/**
 * The tables of parameters that are sent to providers, generated from the code. `bun scripts/parameters_table.ts` writes them
 * between the markers of docs/api.md.
 */

const PAGE = `${import.meta.dirname}/../docs/api.md`;

type Table = RequestKind | "responses";

/** One table as Markdown. `responses`: of providers that have /responses of their own. */
export function parametersTable(kind: Table): string {
  const groups: readonly Pick<ParameterGroup, "title" | "names" | "condition">[] =
    kind === "responses" ? OWN_RESPONSES_GROUPS : PARAMETER_GROUPS[kind];
  const rows = groups.map(
    ({ title, names, condition }) =>
      `| ${title} | ${names.map((name) => `\`${name}\``).join(" ")} | ${condition ?? ""} |`,
  );
  return ["| what | parameters | sent on if it is |", "| --- | --- | --- |", ...rows].join("\n");
}

if (import.meta.main) {
  let page = readFileSync(PAGE, "utf8");
  for (const kind of ["chat", "image", "responses", "embedding"] as const) {
    const marked = new RegExp(`(<!-- parameters of ${kind} -->\\n\\n)[^]*?(<!-- end -->)`);
    page = page.replace(marked, (_, before: string, after: string) => `${before}${parametersTable(kind)}\n\n${after}`);
  }
  writeFileSync(PAGE, page);
}
