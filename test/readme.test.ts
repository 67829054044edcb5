import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { configTable } from "../scripts/config_table.ts";
import { personalTable, retentionTable } from "../scripts/retention_table.ts";
import { ERROR_TABLE } from "../src/errors.ts";

/** Removes the padding that the formatter adds to tables. */
const squeeze = (text: string) => text.replace(/ +/g, " ").replace(/ ?-{3,} ?/g, "---");
const read = (path: string) => readFileSync(new URL(`../${path}`, import.meta.url), "utf8");
const LINES_MAX = 150;

test("docs/configuration.md has every variable with its default and unit", () => {
  expect(squeeze(read("docs/configuration.md"))).toContain(squeeze(configTable()));
});

test("docs/retention.md has what is kept, as replicas delete by it", () => {
  for (const table of [retentionTable(), personalTable()])
    expect(squeeze(read("docs/retention.md"))).toContain(squeeze(table));
});

test("docs/errors.md has every error code with its status and type", () => {
  const rows = [...squeeze(read("docs/errors.md")).matchAll(/^\| `(\w+)` \| (\d{3}) \| (\w+) \|/gm)].map(
    ([, code, status, type]) => [code, Number(status), type],
  );
  expect(rows).toEqual(Object.entries(ERROR_TABLE).map(([code, [status, type]]) => [code, status, type]));
});

test("the README is short, and every file that it mentions exists", async () => {
  const readme = read("README.md");
  expect(readme.split("\n").length).toBeLessThanOrEqual(LINES_MAX);
  const named = [...readme.matchAll(/`((?:src|drizzle|docs|test|scripts|bench|deploy)\/[\w./-]*\.\w+)`/g)].map(
    ([, path = ""]) => path,
  );
  expect(named.length).toBeGreaterThan(5);
  const missing = [];
  for (const path of named) if (!(await Bun.file(new URL(`../${path}`, import.meta.url)).exists())) missing.push(path);
  expect(missing).toEqual([]);
});

test("every script of package.json is in CONTRIBUTING.md or the README", () => {
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  const guides = read("README.md") + read("CONTRIBUTING.md");
  expect(Object.keys(scripts).filter((name) => !new RegExp(`bun(?:@[\\d.]+)? run ${name}\\b`).test(guides))).toEqual(
    [],
  );
});
