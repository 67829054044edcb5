import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { Glob } from "bun";
import { corpusOf } from "./corpus.ts";
import { INPUTS } from "./inputs.ts";

/** Each input of the list is held by an exchange or a test that is there. Source: DIA-1, STR-15, END-19. */
const ROOT = `${import.meta.dirname}/../..`;

test("every input has what holds it", async () => {
  const exchanges = new Set(
    (await corpusOf()).flatMap(({ file, entries }) => entries.map(({ says }) => `${file} › ${says}`)),
  );
  const files = new Set([...exchanges].map((exchange) => exchange.split(" › ", 1)[0]));
  const isThere = (reference: string) => {
    const [file = "", ...text] = reference.split(" › ");
    if (files.has(file)) return exchanges.has(reference);
    return readFileSync(`${ROOT}/${file}`, "utf8").includes(text.join(" › "));
  };
  const all = INPUTS.flatMap(({ id, inputs }) =>
    inputs.flatMap(({ by }) => by.map((one): [string, string] => [id, one])),
  );
  expect(all.filter(([, reference]) => !isThere(reference))).toEqual([]);
});

test("every group is there once, in its order, and none is missing", () => {
  const counts = { A: 11, B: 10, C: 4, D: 1, E: 1, F: 12 };
  const ids = Object.entries(counts).flatMap(([area, count]) =>
    Array.from({ length: count }, (_, at) => `${area}${at + 1}`),
  );
  expect(INPUTS.map(({ id }) => id)).toEqual(ids);
  for (const { id, inputs } of INPUTS)
    expect([id, new Set(inputs.map(({ input }) => input)).size]).toEqual([id, inputs.length]);
});

test("every file of the corpus is read", async () => {
  const read = (await corpusOf()).map(({ file }) => file);
  expect(read).toEqual([...new Glob("{providers,clients}/*.ts").scanSync({ cwd: import.meta.dirname })].sort());
});
