import { readFileSync, writeFileSync } from "node:fs";
import { COMPLETION_PARAMETERS } from "../src/gateway/completions.ts";
import {
  CHAT_PARAMETERS,
  EMBEDDING_PARAMETERS,
  IMAGE_PARAMETERS,
  type ParameterGroup,
} from "../src/gateway/parameters.ts";
import { RERANK_PARAMETERS } from "../src/gateway/rerank.ts";
import { OWN_RESPONSES_GROUPS } from "../src/gateway/responses/own_parameters.ts";

/**
 * The tables of parameters that are sent to providers, generated from the code. `bun scripts/parameters_table.ts` writes them
 * between the markers of docs/api.md.
 */

const PAGE = `${import.meta.dirname}/../docs/api.md`;

type Groups = readonly Pick<ParameterGroup, "title" | "names" | "condition">[];
/** The tables, by the names in their markers. `responses`: of providers that have /responses of their own. */
const TABLES = {
  chat: CHAT_PARAMETERS.groups,
  completion: COMPLETION_PARAMETERS.groups,
  image: IMAGE_PARAMETERS.groups,
  responses: OWN_RESPONSES_GROUPS,
  embedding: EMBEDDING_PARAMETERS.groups,
  rerank: RERANK_PARAMETERS.groups,
} as const satisfies Record<string, Groups>;
export const PARAMETER_TABLES = Object.keys(TABLES) as (keyof typeof TABLES)[];

/** One table as Markdown. */
export function parametersTable(kind: keyof typeof TABLES): string {
  const groups: Groups = TABLES[kind];
  const rows = groups.map(
    ({ title, names, condition }) =>
      `| ${title} | ${names.map((name) => `\`${name}\``).join(" ")} | ${condition ?? ""} |`,
  );
  return ["| what | parameters | sent on if it is |", "| --- | --- | --- |", ...rows].join("\n");
}

if (import.meta.main) {
  let page = readFileSync(PAGE, "utf8");
  for (const kind of PARAMETER_TABLES) {
    const marked = new RegExp(`(<!-- parameters of ${kind} -->\\n\\n)[^]*?(<!-- end -->)`);
    page = page.replace(marked, (_, before: string, after: string) => `${before}${parametersTable(kind)}\n\n${after}`);
  }
  writeFileSync(PAGE, page);
}
