import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { reportedUsageOf } from "../src/gateway/usage_counts.ts";
import { FURTHER_PARTS, factsOf, INPUT_PARTS, OUTPUT_PARTS, UNPRICED_PARTS } from "../src/price_parts.ts";

/** The SQL computes charges a second time, so it has the parts of a price a second time. Source: MON-12, MON-13, IMP-6. */

const migrations = join(import.meta.dirname, "..", "drizzle");

/** The newest definition of a function. */
function bodyOf(name: string): string {
  const texts = readdirSync(migrations)
    .filter((file) => file.endsWith(".sql"))
    .sort()
    .map((file) => readFileSync(join(migrations, file), "utf8"));
  const found = texts.flatMap((text) => [
    ...text.matchAll(new RegExp(`CREATE (?:OR REPLACE )?FUNCTION ${name}\\(.*?\\$\\$(.*?)\\$\\$`, "gs")),
  ]);
  return found.at(-1)?.[1] ?? "";
}

test("the SQL finds counts without a price where the table says that reports have them", () => {
  const inSql = [...bodyOf("unpriced_counts").matchAll(/\('([\w.]+)', '(\w+)'\)/g)].map(([, path, part]) => [
    path,
    part,
  ]);
  const inTable = UNPRICED_PARTS.flatMap((part) => (factsOf(part).reported ?? []).map((path) => [path, part]));
  expect(inSql.toSorted()).toEqual(inTable.toSorted());
});

test("the SQL charges all parts, cut in the order of the table", () => {
  const inSql = [...bodyOf("charge_of").matchAll(/\('(?:in|out)', \d+, \w+, (?:\(p_further ->> '(\w+)'\)|p_cached)/g)];
  const named = inSql.map(([, part = "cached_input"]) => part);
  expect(named).toEqual([...INPUT_PARTS, ...OUTPUT_PARTS]);
  expect(named.toSorted()).toEqual([...FURTHER_PARTS, "cached_input"].toSorted());
});

test("what is found without a price in a report is counted as the same part for the charge", () => {
  for (const part of UNPRICED_PARTS)
    for (const path of factsOf(part).reported ?? []) {
      const [name = "", inner] = path.split(".");
      const report = { prompt_tokens: 100, completion_tokens: 100, [name]: inner === undefined ? 7 : { [inner]: 7 } };
      expect(reportedUsageOf(report)?.further, path).toEqual({ [part]: 7 });
    }
});
