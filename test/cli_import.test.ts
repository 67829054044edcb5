import { afterAll, beforeAll, expect, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { runCli, runCliProcess } from "./cli_process.ts";
import { createWorld, type World } from "./world.ts";

/** `model import`, as an operator runs it. Source: IMP-1, IMP-3, IMP-4, IMP-5. */

const SLOW_MS = 180_000;

let world: World;
beforeAll(async () => {
  world = await createWorld();
});
afterAll(() => world.close());

const optionsOf = (stdin: string) => ({ stdin, env: { DATABASE_URL: world.url } });
const run = (args: string, stdin = "") => runCli(`model ${args}`, optionsOf(stdin));
const inputOf = async (id: string) =>
  (await world.sql`select input_micro_usd::float8 as input from models where id = ${id}`)[0]?.input;

async function listFile(name: string, text: string): Promise<string> {
  const path = join(world.spoolDir, name);
  await writeFile(path, text);
  return path;
}

const MODELS = [
  {
    id: "gpt-x",
    match: { starts_with: "gpt-x" },
    context_window: 128_000,
    prices: { input_mtok: 2.5, output_mtok: 10, web_searches_kcount: 10 },
  },
  { id: "gpt-y", match: { equals: "gpt-y" }, prices: { input_mtok: 1, output_mtok: 4 } },
  { id: "whisper", match: { equals: "whisper" }, prices: { audio_hours: 0.36 } },
];
const textOf = (models: unknown[] = MODELS) => JSON.stringify([{ id: "acme", name: "Acme", models }]);

test(
  "an import of the installed list shows the comparison and asks; only a yes changes something",
  async () => {
    await run("add gpt-4o --input 1 --output 2 --context 1000");
    const command = "import --provider openai --markup 20 --models gpt-4o,gpt-4o-mini,nothing";
    for (const answer of ["", "n\n", "no\n", "maybe\n"]) {
      const { code, out, err } = await run(command, answer);
      expect({ answer, code, err }).toEqual({ answer, code: 0, err: "Apply to 2 models? (y/N) " });
      expect(out).toEndWith("\n\nNothing was changed.\n");
    }
    expect(await inputOf("gpt-4o")).toBe(1_000_000);

    const { code, out } = await runCliProcess(`model ${command}`, optionsOf("y\n"));
    expect(code).toBe(0);
    expect(out).toMatch(
      /^@pydantic\/genai-prices \d+\.\d+\.\d+, plus 20%\n\nNew, disabled until you enable them:\n {2}gpt-4o-mini \(openai\/gpt-4o-mini\)\n/,
    );
    expect(out).toMatch(/\n {4}Input +\$1\.00\/M → \$\d+\.\d+\/M\n/);
    expect(out).toMatch(/\n {4}Context +1,000 → \d+,\d+\n/);
    expect(out).toContain("\n  nothing: The price list has no such model of openai.\n");
    expect(out).toContain("\n    Not imported, because models have no such price: web_searches_kcount, $10\n");
    expect(out).toEndWith(
      "\n\n1 model changed, 1 model added: give them routes with model route, then enable them with model set --enable.\n",
    );
    expect(await inputOf("gpt-4o")).toBeGreaterThan(1_000_000);
    expect((await run(command)).out).toContain("\n\nUnchanged: gpt-4o, gpt-4o-mini\n\nNothing was changed.\n");
  },
  SLOW_MS,
);

test(
  "an import of a file shows with --json without asking, and applies with --yes; the audit log says what was imported",
  async () => {
    const path = await listFile("prices.json", textOf());
    await run("add gpt-x");
    const args = `import --provider acme --file ${path} --json`;
    const shown = JSON.parse((await run(args, "y\n")).out);
    expect(shown).toMatchObject({
      ...{ source: "prices.json", newModels: 2, applied: false, added: [], changed: [] },
      items: [{ modelId: "gpt-x", listed: "acme/gpt-x", kind: "changed" }],
    });
    expect(await inputOf("gpt-x")).toBeNull();
    expect(JSON.parse((await run(`${args} --yes`)).out)).toMatchObject({ applied: true, changed: ["gpt-x"] });
    expect(await inputOf("gpt-x")).toBe(2_500_000);
    const all = await run(`import --provider acme --file ${path} --new`, "yes\n");
    expect(all.out).toContain(
      "\n\nCannot be imported:\n  whisper (acme/whisper): It has no price of input tokens. It has: audio_hours.\n",
    );
    expect(await inputOf("gpt-y")).toBe(1_000_000);
    const entries = await world.sql`
      select actor_id, after -> 'changed' as changed, after -> 'added' as added from audit_entries
      where subject = 'price_imports' and subject_id = 'prices.json' order by id`;
    expect(entries.map((entry) => ({ ...entry }))).toEqual([
      { actor_id: null, changed: ["gpt-x"], added: [] },
      { actor_id: null, changed: [], added: ["gpt-y"] },
    ]);
  },
  SLOW_MS,
);

test(
  "wrong files and options get one sentence and exit code 1, and change nothing",
  async () => {
    const good = await listFile("good.json", textOf());
    const negative = await listFile("negative.json", textOf().replace("2.5", "-2.5"));
    const huge = await listFile("huge.json", " ".repeat(4_000_001));
    const before = await world.sql`select count(*)::int as n from price_versions`;
    for (const [args, sentence] of [
      [`--provider acme --file ${negative} --yes`, "The field 0.models.0.prices.input_mtok must be"],
      [`--provider acme --file ${huge} --yes`, "is larger than 4 MB."],
      [`--provider acme --file ${world.spoolDir}/absent.json`, "cannot be read."],
      [`--provider acme --file ${world.spoolDir}`, "cannot be read."],
      [`--provider nobody --file ${good}`, 'The price list has no provider "nobody". It has: acme.'],
      [`--provider acme --file ${good} --markup -5`, "A markup is a percentage from 0 to 1,000"],
      [`--provider acme --file ${good} --markup 12,5`, "A markup is a percentage from 0 to 1,000"],
      [`--provider acme --file ${good} --models gpt-y --new`, "Give --models or --new, not both."],
      [`--provider , --file ${good}`, "Name 1 to 50 providers of the price list."],
    ] as const) {
      const { code, out, err } = await run(`import ${args}`);
      expect({ args, code, out, err }).toEqual({ args, code: 1, out: "", err: expect.stringContaining(sentence) });
      expect(err.trimEnd().split("\n")).toHaveLength(1);
    }
    expect(await run("import")).toMatchObject({ code: 2, out: "" });
    expect(await world.sql`select count(*)::int as n from price_versions`).toEqual(before);
  },
  SLOW_MS,
);
