import { readFileSync, writeFileSync } from "node:fs";
import { KEPT } from "../src/retention.ts";

/** Prints the table of `src/retention.ts`. `--write` writes it to docs/retention.md. */

const DOCUMENT = new URL("../docs/retention.md", import.meta.url);
const MARKED = /(<!-- kept -->\n)[\s\S]*(<!-- end -->)/;

/** The table as Markdown, without padding. */
export function retentionTable(): string {
  const rows = Object.values(KEPT).map(({ what, howLong }) => `| ${what} | ${howLong} |`);
  return ["| what | how long |", "|---|---|", ...rows].join("\n");
}

if (import.meta.main) {
  if (process.argv.includes("--write")) {
    const document = readFileSync(DOCUMENT, "utf8");
    writeFileSync(
      DOCUMENT,
      document.replace(MARKED, (_, begin, end) => `${begin}\n${retentionTable()}\n\n${end}`),
    );
  } else console.log(retentionTable());
}
