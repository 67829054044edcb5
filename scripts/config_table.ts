import { readFileSync, writeFileSync } from "node:fs";
import { VARIABLES } from "../src/config.ts";

/** Prints the table of environment variables in `src/config.ts`. `--write` writes it to docs/configuration.md. */

const DOCUMENT = new URL("../docs/configuration.md", import.meta.url);
const MARKED = /(<!-- variables -->\n)[\s\S]*(<!-- end -->)/;

/** The table as Markdown, without padding. */
export function configTable(): string {
  const rows = Object.entries(VARIABLES).map(([name, variable]) => {
    const { default: value, unit, what } = variable as { default?: string; unit?: string; what: string };
    const shown = value === undefined ? "**required**" : value === "" ? "" : `\`${value}\``;
    return `| \`${name}\` | ${shown} | ${unit ?? ""} | ${what} |`;
  });
  return ["| variable | default | unit | meaning |", "|---|---|---|---|", ...rows].join("\n");
}

if (import.meta.main) {
  if (process.argv.includes("--write")) {
    const document = readFileSync(DOCUMENT, "utf8");
    writeFileSync(
      DOCUMENT,
      document.replace(MARKED, (_, begin, end) => `${begin}\n${configTable()}\n\n${end}`),
    );
  } else console.log(configTable());
}
