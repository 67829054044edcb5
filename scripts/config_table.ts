import { VARIABLES } from "../src/config.ts";

/** The documents' table of environment variables, made from the code. `bun scripts/config_table.ts` prints it. */
export function configTable(): string {
  const rows = Object.entries(VARIABLES).map(([name, variable]) => {
    const { default: value, unit = "", what } = variable as { default?: string; unit?: string; what: string };
    const shown = value === undefined ? "**required**" : value === "" ? "" : `\`${value}\``;
    return `| \`${name}\` | ${shown} | ${unit} | ${what} |`;
  });
  return ["| variable | default | unit | what it is |", "|---|---|---|---|", ...rows].join("\n");
}

if (import.meta.main) console.log(configTable());
