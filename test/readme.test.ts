import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { configTable } from "../scripts/config_table.ts";
import { ERROR_TABLE } from "../src/errors.ts";

/** Without what the formatter adds to tables. */
const squeeze = (text: string) => text.replace(/ +/g, " ").replace(/ ?-{3,} ?/g, "---");
const readme = squeeze(readFileSync(new URL("../README.md", import.meta.url), "utf8"));

test("the README's configuration table is the code's: every variable, default and unit", () => {
  expect(readme).toContain(squeeze(configTable()));
});

test("the README's error table is the code's: every code with its status and type", () => {
  const rows = [...readme.matchAll(/^\| `(\w+)` \| (\d{3}) \| (\w+) \|/gm)].map(([, code, status, type]) => [
    code,
    Number(status),
    type,
  ]);
  expect(rows).toEqual(Object.entries(ERROR_TABLE).map(([code, [status, type]]) => [code, status, type]));
});

test("the README's scripts exist", () => {
  const { scripts } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
  const named = ["demo", "test", "start", "dev", "check", "cli", "bench:ledger", "test:deno", "db:generate"];
  for (const name of named) {
    expect(readme).toContain(name);
    expect(Object.keys(scripts)).toContain(name);
  }
});
