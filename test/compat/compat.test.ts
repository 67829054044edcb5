import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { closeBalanced } from "../gateway/checks.ts";
import { openCompatShop } from "./compat_shop.ts";
import { corpusOf } from "./corpus.ts";
import { type Entry, problemsOf } from "./form.ts";
import { expectRead } from "./reads.ts";
import { type Run, routesOf, runsOf } from "./runs.ts";

/**
 * The corpus: each entry is one exchange of a real replica with a provider that answers as those of the world do. See README.md. Source:
 * END-2, END-3, PRV-8.
 */
const corpus = await corpusOf();
const runs = corpus.flatMap(({ file, entries }) => entries.flatMap((entry) => runsOf(file, entry)));
let shop: Awaited<ReturnType<typeof openCompatShop>>;

beforeAll(async () => {
  shop = await openCompatShop(runs);
});
afterAll(() => closeBalanced(shop, shop.stopProvider));

test("every entry has its right value", () => {
  const problems = corpus.flatMap(({ file, entries }) =>
    entries.flatMap((entry) => problemsOf(entry).map((problem) => `${file}, "${entry.says}": ${problem}`)),
  );
  expect(problems).toEqual([]);
  for (const { file, entries } of corpus)
    expect([file, new Set(entries.map(({ says }) => says)).size]).toEqual([file, entries.length]);
});

test.each<[string, Partial<Entry>]>([
  ["it has no `charged`", { client: { text: "a" } }],
  ["it has no `client`", { charged: "nothing" }],
  ["`client` does not say what is read", { client: {}, charged: "nothing" }],
  ["an error charges nothing", { client: { error: "invalid_request" }, charged: { tokens: [1, 1] } }],
  ["`json` and `events` are those of one path: set `only`", { client: { json: {} }, charged: "nothing" }],
])("an entry without its right value is refused: %s", (problem, over) => {
  const provider = { json: {} };
  expect(problemsOf({ says: "a", source: "b", request: {}, provider, ...over })).toEqual([problem]);
});

describe.each(corpus.map(({ file }) => [file]))("%s", (file) => {
  test.each(runs.filter((run) => run.file === file).map((run): [string, Run] => [run.name, run]))(
    "%s",
    async (_, run) => {
      const { answer, asked, receipt } = await shop.run(run);
      expectRead(run, answer);
      expect(asked.map(({ route }) => route)).toEqual(routesOf(run.entry).map((_, route) => route));
      for (const { route, text, body } of asked) {
        const { got, gotText = [] } = routesOf(run.entry)[route] ?? {};
        expectGot(body, got);
        for (const part of gotText) expect(text).toContain(part);
      }
      const { charged } = run.entry;
      expect(receipt).toEqual(charged === "nothing" ? { units: 0 } : { units: run.units, tokens: [...charged.tokens] });
    },
  );
});

/** The fields that a provider must have got; those that are undefined it must not have got. */
function expectGot(body: Record<string, unknown>, got: Readonly<Record<string, unknown>> = {}): void {
  const names = Object.keys(got);
  const absent = names.filter((name) => got[name] === undefined);
  expect(absent.filter((name) => name in body)).toEqual([]);
  expect(body).toMatchObject(
    Object.fromEntries(names.filter((name) => !absent.includes(name)).map((name) => [name, got[name]])),
  );
}
