import { expect, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { boundsKey } from "../../src/catalog/bound_advice.ts";
import { cli, cliProcess, json, provider, refused, SECRET_KEY, SLOW_MS, startCliWorld, world } from "./cli_world.ts";

/** Models, their prices and routes; and `model import`. Source of the imports: IMP-1, IMP-3, IMP-4, IMP-5. */

startCliWorld();

test.concurrent(
  "prices in USD are stored exactly; a route names its provider",
  async () => {
    const added = await json(
      "model add chat-1 --input 0.15 --cached-input 0.075 --output 0.6 --image 1024x1024=0.04 --modality multimodal",
    );
    expect(added.models[0]).toMatchObject({
      id: "chat-1",
      prices: { inputMicroUsd: 150_000, cachedInputMicroUsd: 75_000, outputMicroUsd: 600_000 },
      imagePrices: [{ size: "1024x1024", quality: "standard", microUsd: 40_000 }],
    });
    const better = await json("model price chat-1 --image 1024x1024/high=0.17");
    expect(better.models[0].imagePrices[1]).toMatchObject({ size: "1024x1024", quality: "high", microUsd: 170_000 });
    expect(await refused("model price chat-1 --image 1024x1024/High=0.17")).toContain("1024x1024/high");
    await json(`provider add --name upstream --url ${provider.url}/v1 --key ${provider.apiKey}`, {
      env: { SECRET_KEY },
    });
    await changesFacts();
    const routed = await json("model route chat-1 --provider upstream --upstream sim-chat --priority 2");
    expect(routed.models[0].routes).toMatchObject([
      { providerName: "upstream", upstreamModel: "sim-chat", priority: 2, weight: 1, facts: {} },
    ]);
    expect((await cli("model list")).out).toMatch(
      /chat-1\s+multimodal\s+active\s+yes\s+\$0\.15\s+\$0\.075\s+\$0\.60\s+1024x1024 \$0\.04, 1024x1024\/high \$0\.17/,
    );
    const tiered = await json(
      "model price chat-1 --input 0.15 --cached-input 0.075 --output 0.6 --cache-write 0.2 --request 0.001 --tier 200000:input=0.3,output=1.2,cached-input=0.1",
    );
    const tier = { above_input_tokens: 200_000, input: 300_000, output: 1_200_000, cached_input: 100_000 };
    expect(tiered.models[0].prices.further).toEqual({ cache_write: 200_000, tiers: [tier], request: 1_000 });
    expect((await cli("model list")).out).toContain(
      "cache_write $0.20, above 200000: input $0.30 output $1.20 cached_input $0.10, request $0.001",
    );
    expect(await refused("model price chat-1 --input 1 --output 1 --tier 9:input=1,output=1,inptu=1")).toContain(
      "inptu",
    );
    expect((await cli("model price chat-1 --input 1 --output 1 --tier 9:input=1,input=2,output=1")).err).toContain(
      "twice",
    );
    const plain = await json("model price chat-1 --input 0.15 --cached-input 0.075 --output 0.6");
    expect(plain.models[0].prices.further).toEqual({});
    const routeId = routed.models[0].routes[0].id;
    await probesFacts();
    const allowed = await json(`model route chat-1 --change ${routeId} --allow-param documents,reasoning.max_tokens`);
    expect(allowed.models[0].routes).toMatchObject([
      { priority: 2, facts: {}, allowedParams: ["documents", "reasoning.max_tokens"] },
    ]);
    expect((await cli("model list")).out).toContain(`${routeId}: upstream/sim-chat + documents reasoning.max_tokens`);
    const factual = await json(`model route chat-1 --change ${routeId} --fact capField=max_completion_tokens`);
    expect(factual.models[0].routes[0]).toMatchObject({
      facts: { capField: "max_completion_tokens" },
      takes: { capField: "max_completion_tokens", developerRole: "system" },
    });
    for (const [wrong, says] of [
      ["capField=limit", "max_tokens, max_completion_tokens"],
      ["mood=good", "mood"],
      ["droppedParams=seed", "droppedParams"],
      ["contentForm=text", "contradict"],
      ["firstTokenSeconds=0", "1 to 3600"],
    ] as const)
      expect(await refused(`model route chat-1 --change ${routeId} --fact ${wrong}`)).toContain(says);
    const reset = await json(`model route chat-1 --change ${routeId} --fact capField=default`);
    expect(reset.models[0].routes[0]).toMatchObject({ facts: {}, takes: { capField: "max_tokens" } });
    expect(await refused(`model route chat-1 --change ${routeId} --allow-param n_predict`)).toContain("n_predict");
    const none = await json(`model route chat-1 --change ${routeId} --allow-param none`);
    expect(none.models[0].routes[0].allowedParams).toEqual([]);
    const less = await json(
      `model route chat-1 --change ${routeId} --drop-param reasoning_effort,seed --allow-param documents`,
    );
    expect(less.models[0].routes[0]).toMatchObject({
      allowedParams: ["documents"],
      droppedParams: ["reasoning_effort", "seed"],
    });
    expect((await cli("model list")).out).toContain(
      `${routeId}: upstream/sim-chat + documents - reasoning_effort seed`,
    );
    for (const name of ["max_tokens", "messages", "stream_options", "documents"])
      expect(await refused(`model route chat-1 --change ${routeId} --drop-param ${name}`)).toMatch(
        /cannot (both )?.*drop/,
      );
    const all = await json(`model route chat-1 --change ${routeId} --drop-param none --allow-param none`);
    expect(all.models[0].routes[0]).toMatchObject({ allowedParams: [], droppedParams: [] });
    const priced = await json("model price chat-1 --package-only --image 1024x1024=none --image 1024x1024/high=none");
    expect(priced.models[0]).toMatchObject({ prices: null, imagePrices: [] });
    expect(await refused("model price chat-1 --input 1")).toContain("both --input and --output");
    expect(await refused("receipt 12")).toContain("X-Request-Id");
    expect(await refused("receipt 0190a5b2-6c1e-7d3f-8a4b-5c6d7e8f9a0b")).toContain("No request here has this id");
    expect((await cli("model price chat-1 --input 0.0000001 --output 1")).err).toContain("at most 6 decimals");
    expect((await cli("model price chat-1 --input 1.250 --output 4")).err).toContain("write 1250 or 1.25.");
    expect(await refused("model set chat-1 --image-most-tokens -1")).toContain("imageMostTokens");
    const bounds = "--request-tokens 12 --message-tokens 4 --image-base-tokens 85 --image-tile-tokens 170";
    await json(`model set chat-1 ${bounds} --image-tile-pixels 256 --image-most-tokens 1445 --file-most-tokens 9000`);
    const { model } = await json("model show chat-1");
    expect(model).toMatchObject({ requestTokens: 12, messageTokens: 4, imageBaseTokens: 85, imageTileTokens: 170 });
    expect(model).toMatchObject({ imageTilePixels: 256, imageMostTokens: 1445, fileMostTokens: 9000 });
    const key = boundsKey(model);
    await world.sql`insert into bound_uses values ('chat-1', now()::date, 'images', ${key}, 12400, 0, 610)`;
    const shown = (await cli("model show chat-1")).out;
    expect(shown).toContain("Image, at most: 1445 tokens");
    expect(shown).toContain("12,400 requests that were mostly images used at most 61% of what was reserved.");
    expect(shown).toContain("model set chat-1 --image-base-tokens 64 --image-tile-tokens 127 --image-most-tokens 1078");
    expect(await refused("model show chat-9")).toContain("no model chat-9");
    const removed = await json(`model route chat-1 --remove ${routed.models[0].routes[0].id}`);
    expect(removed.models[0].routes).toEqual([]);
    expect(await json("model set chat-1 --disable")).toMatchObject({ models: [{ enabled: false }] });
    for (const [word, hidesTokens] of [
      ["yes", true],
      ["no", false],
      ["unknown", null],
    ] as const)
      expect(await json(`model set chat-1 --hides-tokens ${word}`)).toMatchObject({ models: [{ hidesTokens }] });
    expect(await refused("model route chat-2 --provider upstream")).toContain("no model chat-2");
  },
  SLOW_MS,
);

test.concurrent(
  "model price sets everything that it is given, or refuses it and changes nothing",
  async () => {
    const { models } = await json("model add priced-1 --input 3 --output 15 --image 512x512=0.02");
    for (const [given, says] of [
      ["--input 9 --output 45 --image 1024x1024=0.04 --image 1024x=0.05", "size must be one of"],
      ["--input 9 --output 45 --image 1024x1024=0.04 --image 1024x1024/standard=0.05", "1024x1024 stands twice"],
      ["--input 9 --output 45 --image 512x512=none --image 1024x1024/High=0.17", "1024x1024/high"],
    ] as const)
      expect(await refused(`model price priced-1 ${given}`)).toContain(says);
    for (const [given, says] of [
      ["--input 9 --output 45 --tier 200000:input=6,output=22.5:cached-input=0.6", "one colon"],
      ["--input 9 --output 45 --tier 200000:input=6,output=22.5=7", "one colon"],
      ["--image 1024x1024=0.04=9", "1024x1024=0.04"],
      ["--image 1024x1024", "1024x1024=0.04"],
    ] as const)
      expect(await cli(`model price priced-1 ${given}`)).toMatchObject({ code: 2, err: expect.stringContaining(says) });
    const { models: all } = await json("model list");
    expect(models[0]).toMatchObject(all.find(({ id }: { id: string }) => id === "priced-1"));
    expect(await refused("model price absent-1 --image 512x512=none")).toContain("no model absent-1");
    const changed = await json(
      "model price priced-1 --input 9 --output 45 --image 512x512=none --image 1024x1024=0.04",
    );
    expect(changed.models[0]).toMatchObject({
      prices: { inputMicroUsd: 9_000_000 },
      imagePrices: [{ size: "1024x1024", microUsd: 40_000 }],
    });
    await json("model set priced-1 --disable");
  },
  SLOW_MS,
);

/** The dialect and the facts of the provider `upstream`: set, shown, refused, and as its dialect says again. */
async function changesFacts(): Promise<void> {
  const env = { env: { SECRET_KEY } };
  const shown = async () => (await json("provider show upstream")).provider;
  expect(await shown()).toMatchObject({ dialect: "generic", takes: { capField: "max_tokens", streamOptions: "sent" } });
  await json("provider set upstream --dialect mistral --fact firstTokenSeconds=90 --fact droppedParams=seed,user", env);
  const { dialect, takes, facts } = await shown();
  expect([dialect, takes.streamOptions, takes.firstTokenSeconds, takes.droppedParams]).toEqual([
    "mistral",
    "left_out",
    90,
    ["seed", "user"],
  ]);
  expect(facts.find(({ fact }: { fact: string }) => fact === "streamOptions").from).toContain("github.com");
  expect((await cli("provider show upstream")).out).toMatch(
    /Mistral \(mistral\)[\s\S]+firstTokenSeconds\s+90\s+set here/,
  );
  expect(await refused("provider set upstream --dialect klingon", env)).toContain("generic, openai");
  expect(await refused("provider set upstream --fact mood=good", env)).toContain("mood");
  expect(await refused("provider set upstream --fact usage=asked", env)).toContain("contradict");
  expect(await refused("provider set upstream --fact droppedParams=messages", env)).toContain("messages");
  expect((await cli("provider set upstream --fact capField", env)).err).toContain("capField=max_completion_tokens");
  await json(
    "provider set upstream --dialect generic --fact firstTokenSeconds=default --fact droppedParams=default",
    env,
  );
  expect((await shown()).takes).toMatchObject({ streamOptions: "sent", firstTokenSeconds: null, droppedParams: [] });
  expect(await refused("provider test --apply", env)).toContain("Name the provider");
}

/** A probe of the provider `upstream`, which takes everything. */
async function probesFacts(): Promise<void> {
  const env = { env: { SECRET_KEY } };
  await json("provider set upstream --fact embeddings=float", env);
  const probed = await json("provider test upstream --probe", env);
  expect(probed.providers[0].probe).toMatchObject({ proposed: {}, unknown: [] });
  expect((await cli("provider test upstream --apply", env)).out).toContain("its facts hold");
  await json("provider set upstream --fact embeddings=default", env);
}

const run = (args: string, stdin = "") => cli(`model ${args}`, { stdin });
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

    const { code, out } = await cliProcess(`model ${command}`, { stdin: "y\n" });
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
