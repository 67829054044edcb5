import { readFileSync, writeFileSync } from "node:fs";
import { PERSONAL_TABLES } from "../src/messages/personal_tables_store.ts";
import { KEPT } from "../src/retention.ts";

/** Prints the tables of what is kept, and of what is of a person. `--write` writes them to docs/retention.md. */

const DOCUMENT = new URL("../docs/retention.md", import.meta.url);
const MARKED = {
  kept: /(<!-- kept -->\n)[\s\S]*?(<!-- end -->)/,
  personal: /(<!-- personal -->\n)[\s\S]*?(<!-- end -->)/,
};

/** The table as Markdown, without padding. */
export function retentionTable(): string {
  const rows = Object.values(KEPT).map(({ what, howLong }) => `| ${what} | ${howLong} |`);
  return ["| what | how long |", "|---|---|", ...rows].join("\n");
}

/** What is exported of a person, and what an erasure does, as Markdown without padding. */
export function personalTable(): string {
  const rows = PERSONAL_TABLES.map(
    ({ table, exported, says }) => `| \`${table}\` | ${exported === null ? "no" : "yes"} | ${says} |`,
  );
  return ["| table | exported | on erasure |", "|---|---|---|", ...rows].join("\n");
}

if (import.meta.main) {
  if (process.argv.includes("--write")) {
    const put = (document: string, marked: RegExp, table: string) =>
      document.replace(marked, (_, begin, end) => `${begin}\n${table}\n\n${end}`);
    const document = put(readFileSync(DOCUMENT, "utf8"), MARKED.kept, retentionTable());
    writeFileSync(DOCUMENT, put(document, MARKED.personal, personalTable()));
  } else console.log(`${retentionTable()}\n\n${personalTable()}`);
}
