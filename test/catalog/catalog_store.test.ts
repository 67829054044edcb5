import { afterAll, beforeAll, expect, test } from "bun:test";
import type { ModelInput, RouteInput } from "../../src/catalog/catalog_input.ts";
import { loadCatalog } from "../../src/catalog/catalog_store.ts";
import { USUAL_FACTS } from "../../src/catalog/dialects.ts";
import {
  addModel,
  changePrices,
  listImagePrices,
  listModels,
  noteHidesTokens,
  setImagePrice,
  setPrices,
  updateModel,
} from "../../src/catalog/models_store.ts";
import { addProvider, listProviders, updateProvider } from "../../src/catalog/providers_store.ts";
import { addRoute, listRoutes, removeRoute, updateRoute } from "../../src/catalog/routes_store.ts";
import { InputError } from "../../src/errors.ts";
import { decrypt } from "../../src/platform/crypto.ts";
import { type CatalogWorld, createCatalogWorld } from "./catalog_world.ts";
import { rejectionOf } from "./sockets.ts";

const BASE_URL = "http://127.0.0.1:9000/v1";
const KEY = "sk-canary-0123456789";

let world: CatalogWorld;
let deps: CatalogWorld["deps"];
let changes: CatalogWorld["changes"];
beforeAll(async () => {
  world = await createCatalogWorld();
  ({ deps, changes } = world);
});
afterAll(() => world.close());

let names = 0;
const newModel = async (fields: Partial<ModelInput> = {}): Promise<string> => {
  const id = `model-${++names}`;
  await addModel(deps, { id, ...fields });
  return id;
};
const newProvider = () => addProvider(deps, { name: `provider-${++names}`, baseUrl: BASE_URL, apiKey: KEY });
const modelRow = async (id: string) => (await listModels(deps)).find((model) => model.id === id);

async function paramOf(promise: Promise<unknown>): Promise<string | null> {
  const thrown = await rejectionOf(promise);
  expect(thrown).toBeInstanceOf(InputError);
  expect((thrown as InputError).message).toMatch(/^[A-Z].*\.$/);
  return (thrown as InputError).param;
}

test("a model has sensible defaults, and no price until it is given one", async () => {
  const id = await newModel();
  expect(await modelRow(id)).toMatchObject({
    name: id,
    ownedBy: "tollgate",
    contextLength: null,
    status: "active",
    modality: "text",
    enabled: true,
    inputMicroUsd: null,
    outputMicroUsd: null,
    defaultCapTokens: 4096,
    marginPermille: 1000,
  });
});

test("prices are set and removed together", async () => {
  const id = await newModel({ prices: { inputMicroUsd: 500_000, outputMicroUsd: 1_500_000 } });
  expect(await modelRow(id)).toMatchObject({
    inputMicroUsd: 500_000,
    cachedInputMicroUsd: null,
    outputMicroUsd: 1_500_000,
  });
  await setPrices(deps, id, { inputMicroUsd: 400_000, cachedInputMicroUsd: 40_000, outputMicroUsd: 1_000_000_000 });
  expect(await modelRow(id)).toMatchObject({
    inputMicroUsd: 400_000,
    cachedInputMicroUsd: 40_000,
    outputMicroUsd: 1_000_000_000,
  });
  await setPrices(deps, id, null);
  expect(await modelRow(id)).toMatchObject({ inputMicroUsd: null, cachedInputMicroUsd: null, outputMicroUsd: null });
});

test("an image has one price per size and quality, which can be replaced and removed", async () => {
  const modelId = await newModel({ imagePrices: { "512x512": 10_000 } });
  await setImagePrice(deps, { modelId, size: "512x512", microUsd: 20_000 });
  await setImagePrice(deps, { modelId, size: "1024x1024", microUsd: 40_000 });
  await setImagePrice(deps, { modelId, size: "512x512", quality: "high", microUsd: 90_000 });
  await setImagePrice(deps, { modelId, size: "512x512", quality: "high", microUsd: 80_000 });
  expect(await listImagePrices(deps, modelId)).toEqual([
    { modelId, size: "1024x1024", quality: "standard", microUsd: 40_000 },
    { modelId, size: "512x512", quality: "standard", microUsd: 20_000 },
    { modelId, size: "512x512", quality: "high", microUsd: 80_000 },
  ]);
  await setImagePrice(deps, { modelId, size: "512x512", microUsd: null });
  expect((await listImagePrices(deps, modelId)).map(({ size, quality }) => `${size} ${quality}`)).toEqual([
    "1024x1024 standard",
    "512x512 high",
  ]);
});

test("prices of tokens and images are changed together, or not at all", async () => {
  const id = await newModel({
    prices: { inputMicroUsd: 5, outputMicroUsd: 6 },
    imagePrices: { "512x512": 10_000 },
  });
  const state = async () => ({ ...(await modelRow(id)), images: await listImagePrices(deps, id) });
  const before = await state();
  const prices = { inputMicroUsd: 7, outputMicroUsd: 8 };
  expect(await paramOf(changePrices(deps, id, { prices, imagePrices: { "512x512": null, "1024x1024": -1 } }))).toBe(
    "microUsd",
  );
  expect(await paramOf(changePrices(deps, id, { prices, imagePrices: { "512x512": null, "1024x": 1 } }))).toBe("size");
  expect(await state()).toEqual(before);
  await changePrices(deps, id, { prices, imagePrices: { "512x512": null, "1024x1024/high": 9 } });
  expect(await state()).toMatchObject({
    ...prices,
    images: [{ size: "1024x1024", quality: "high", microUsd: 9 }],
  });
  const versions = await world.sql`select prices from price_versions where model_id = ${id} order by id`;
  expect(versions.map((row) => row.prices)).toMatchObject([{ tokens: { input: 5 } }, { tokens: { input: 7 } }]);
});

test("only the given fields of a model change", async () => {
  const id = await newModel({ name: "Old", contextLength: 8000 });
  await updateModel(deps, id, { name: "New", enabled: false });
  expect(await modelRow(id)).toMatchObject({ name: "New", contextLength: 8000, enabled: false });
  await updateModel(deps, id, { contextLength: null });
  expect(await modelRow(id)).toMatchObject({ contextLength: null });
});

test("unknown input fields do not reach the row", async () => {
  const patch = { name: "N", id: "stolen", createdAt: "2001-01-01T00:00:00Z", inputMicroUsd: 1 };
  const id = await newModel();
  await updateModel(deps, id, patch);
  expect(await modelRow(id)).toMatchObject({ id, inputMicroUsd: null });
  expect((await modelRow(id))?.createdUnix).toBeGreaterThan(1_600_000_000);
});

test("hidden tokens of a model are recorded once, and never override an admin's setting", async () => {
  const id = await newModel();
  const hides = async () => (await modelRow(id))?.hidesTokens;
  expect(await hides()).toBeNull();
  expect([await noteHidesTokens(deps, id), await noteHidesTokens(deps, id), await hides()]).toEqual([
    true,
    false,
    true,
  ]);
  await updateModel(deps, id, { hidesTokens: false });
  expect([await noteHidesTokens(deps, id), await hides()]).toEqual([false, false]);
  // Reset: learned again.
  await updateModel(deps, id, { hidesTokens: null });
  expect([await noteHidesTokens(deps, id), await hides()]).toEqual([true, true]);
  expect(await noteHidesTokens(deps, "no-such-model")).toBe(false);
});

test("a provider's key is encrypted at rest, in no list, and replaced by a new one", async () => {
  const id = await newProvider();
  const stored = async () =>
    (await loadCatalog(deps.db.orm)).providerKeys.find(({ providerId }) => providerId === id)?.keyCiphertext ??
    Buffer.alloc(0);
  expect((await stored()).includes(KEY)).toBe(false);
  expect(decrypt(deps.config.secretKey, await stored())).toBe(KEY);
  expect(JSON.stringify(await listProviders(deps))).not.toContain("iphertext");
  await updateProvider(deps, id, { apiKey: "sk-second-key" });
  expect(decrypt(deps.config.secretKey, await stored())).toBe("sk-second-key");
});

test("a provider on a private address is refused unless host and port are allowed, when added and when changed", async () => {
  const id = await newProvider();
  for (const baseUrl of [
    "http://127.0.0.1:9002/v1",
    "http://localhost:9000/v1",
    "http://169.254.169.254/",
    "http://[::1]:9000",
    "ftp://127.0.0.1:9000",
    "http://a:b@127.0.0.1:9000",
    `${BASE_URL}#x`,
    "nonsense",
  ]) {
    expect(await paramOf(addProvider(deps, { name: `p${++names}`, baseUrl, apiKey: KEY }))).toBe("baseUrl");
    expect(await paramOf(updateProvider(deps, id, { baseUrl }))).toBe("baseUrl");
  }
  expect((await listProviders(deps)).find((provider) => provider.id === id)?.baseUrl).toBe(BASE_URL);
});

test("a base URL at another origin needs a new key; another path at the same origin does not", async () => {
  const id = await newProvider();
  const elsewhere = BASE_URL.replace("9000", "9001");
  expect(await paramOf(updateProvider(deps, id, { baseUrl: elsewhere }))).toBe("apiKey");
  await updateProvider(deps, id, { baseUrl: `${BASE_URL}/more` });
  await updateProvider(deps, id, { baseUrl: elsewhere, apiKey: "sk-elsewhere" });
  expect((await listProviders(deps)).find((provider) => provider.id === id)?.baseUrl).toBe(elsewhere);
});

test("a route's upstream name is the model's id by default", async () => {
  const [modelId, providerId] = [await newModel(), await newProvider()];
  const id = await addRoute(deps, { modelId, providerId });
  expect(await listRoutes(deps, modelId)).toMatchObject([
    {
      id,
      modelId,
      providerId,
      upstreamModel: modelId,
      priority: 0,
      weight: 1,
      facts: {},
      takes: USUAL_FACTS,
      allowedParams: [],
      droppedParams: [],
      enabled: true,
    },
  ]);
  await updateRoute(deps, id, {
    priority: 2,
    weight: 9,
    facts: { capField: "max_completion_tokens", streamOptions: "left_out", usage: "none" },
    allowedParams: ["reasoning.max_tokens", " documents", "documents"],
    droppedParams: ["tools.function.strict", " seed", "seed", "reasoning.effort"],
    enabled: false,
  });
  expect(await listRoutes(deps, modelId)).toMatchObject([
    {
      priority: 2,
      weight: 9,
      facts: { capField: "max_completion_tokens", streamOptions: "left_out", usage: "none" },
      enabled: false,
    },
  ]);
  expect((await listRoutes(deps, modelId))[0]).toMatchObject({
    allowedParams: ["documents", "reasoning.max_tokens"],
    droppedParams: ["reasoning.effort", "seed", "tools.function.strict"],
  });
  await removeRoute(deps, id);
  expect(await listRoutes(deps, modelId)).toEqual([]);
});

test("a duplicate or missing row is refused with one sentence", async () => {
  const [modelId, providerId] = [await newModel(), await newProvider()];
  const routeId = await addRoute(deps, { modelId, providerId });
  const otherId = await addRoute(deps, { modelId, providerId, upstreamModel: "other" });
  const second = await newProvider();
  const [{ name = "" } = {}] = await listProviders(deps);
  expect(await paramOf(addModel(deps, { id: modelId }))).toBe("id");
  expect(await paramOf(addRoute(deps, { modelId, providerId }))).toBe("upstreamModel");
  expect(await paramOf(updateRoute(deps, otherId, { upstreamModel: modelId }))).toBe("upstreamModel");
  expect(await paramOf(addProvider(deps, { name, baseUrl: BASE_URL, apiKey: KEY }))).toBe("name");
  expect(await paramOf(updateProvider(deps, second, { name }))).toBe("name");
  expect(await paramOf(addRoute(deps, { modelId: "absent", providerId }))).toBe("modelId");
  expect(await paramOf(addRoute(deps, { modelId, providerId: 999_999 }))).toBe("modelId");
  expect(await paramOf(updateModel(deps, "absent", { name: "x" }))).toBe("modelId");
  expect(await paramOf(setPrices(deps, "absent", null))).toBe("modelId");
  expect(await paramOf(setImagePrice(deps, { modelId: "absent", size: "512x512", microUsd: 1 }))).toBe("modelId");
  expect(await paramOf(setImagePrice(deps, { modelId: "absent", size: "512x512", microUsd: null }))).toBe("modelId");
  expect(await paramOf(updateProvider(deps, 999_999, { enabled: false }))).toBe("providerId");
  await removeRoute(deps, routeId);
  expect(await paramOf(removeRoute(deps, routeId))).toBe("routeId");
  expect(await paramOf(updateModel(deps, modelId, {}))).toBeNull();
});

const TIER = { above_input_tokens: 100, input: 1, output: 1 };
/** Further prices that are refused, and the field that the error names. Source: MON-16. */
const FURTHER_WRONG: [string, object][] = [
  ...[-1, 0.5, Number.NaN, 1e30, 1_000_000_001, "1", true, {}].map((cache_write): [string, object] => [
    "further.cache_write",
    { cache_write },
  ]),
  ["further.request", { request: -1 }],
  ["further", { cache_writes: 1 }],
  ["further", { input: 1 }],
  ["further", { unknown: 1 }],
  ["further.tiers", { tiers: {} }],
  ["further.tiers", { tiers: Array.from({ length: 9 }, (_, i) => ({ ...TIER, above_input_tokens: i + 1 })) }],
  ["further.tiers.0", { tiers: [null] }],
  ["further.tiers.0", { tiers: [[TIER]] }],
  ["further.tiers.0", { tiers: [{ ...TIER, tiers: [] }] }],
  ["further.tiers.0.above_input_tokens", { tiers: [{ ...TIER, above_input_tokens: 0 }] }],
  ["further.tiers.0.above_input_tokens", { tiers: [{ input: 1, output: 1 }] }],
  ["further.tiers.0.input", { tiers: [{ ...TIER, input: -1 }] }],
  ["further.tiers.0.output", { tiers: [{ above_input_tokens: 1, input: 1 }] }],
  ["further.tiers.0.cached_input", { tiers: [{ ...TIER, cached_input: 2 }] }],
  ["further.tiers.0.reasoning", { tiers: [{ ...TIER, reasoning: 1.5 }] }],
  // The same tier twice, and one that does not ascend: they would overlap.
  ["further.tiers.1.above_input_tokens", { tiers: [TIER, TIER] }],
  ["further.tiers.1.above_input_tokens", { tiers: [TIER, { ...TIER, above_input_tokens: 99 }] }],
];

test("an invalid value is refused with the name of its field, without a query", async () => {
  const providerId = await newProvider();
  const modelId = await newModel();
  const models: [string, object][] = [
    ["id", { id: "" }],
    ["id", { id: "a b" }],
    ["id", { id: "/x" }],
    ["id", { id: "x".repeat(129) }],
    ["name", { name: " " }],
    ["name", { name: "a\nb" }],
    ["contextLength", { contextLength: 0 }],
    ["contextLength", { contextLength: 1.5 }],
    ["status", { status: "gone" }],
    ["modality", { modality: "smell" }],
    ["defaultCapTokens", { defaultCapTokens: 0 }],
    ["imageBaseTokens", { imageBaseTokens: -1 }],
    ["imageTilePixels", { imageTilePixels: 7 }],
    ["fileMostTokens", { fileMostTokens: 100_000_001 }],
    ["marginPermille", { marginPermille: 999 }],
    ["architecture", { architecture: { a: "\u0000" } }],
    ["architecture", { architecture: { a: "x".repeat(5000) } }],
    ["inputMicroUsd", { prices: { inputMicroUsd: -1, outputMicroUsd: 1 } }],
    ["outputMicroUsd", { prices: { inputMicroUsd: 1, outputMicroUsd: Number.NaN } }],
    ["cachedInputMicroUsd", { prices: { inputMicroUsd: 1, cachedInputMicroUsd: 2, outputMicroUsd: 1 } }],
    ...FURTHER_WRONG.map(([param, further]): [string, object] => [
      param,
      { prices: { inputMicroUsd: 1, outputMicroUsd: 1, further } },
    ]),
    ["size", { imagePrices: { "1x1": 1 } }],
    ["microUsd", { imagePrices: { "512x512": 1e10 } }],
    ["quality", { imagePrices: { "512x512/High": 1 } }],
    ["quality", { imagePrices: { "512x512/high/x": 1 } }],
    ["quality", { imagePrices: { "512x512/": 1 } }],
  ];
  for (const [param, fields] of models) {
    const added = addModel(deps, { id: `model-${++names}`, ...fields } as ModelInput);
    expect([param, fields, await paramOf(added)]).toEqual([param, fields, param]);
  }
  const routes: [string, object][] = [
    ["weight", { weight: 0 }],
    ["weight", { weight: 1001 }],
    ["priority", { priority: 1e6 }],
    ["facts.capField", { facts: { capField: "cap" } }],
    ["upstreamModel", { upstreamModel: "" }],
    ["allowedParams", { allowedParams: [""] }],
    ["allowedParams", { allowedParams: ["Documents"] }],
    ["allowedParams", { allowedParams: ["a.b.c.d"] }],
    ["allowedParams", { allowedParams: ["__proto__"] }],
    ["allowedParams", { allowedParams: ["n_predict"] }],
    ["allowedParams", { allowedParams: ["documents", "stream"] }],
    ["allowedParams", { allowedParams: ["a".repeat(101)] }],
    ["allowedParams", { allowedParams: Array.from({ length: 51 }, (_, i) => `p${i}`) }],
    ["droppedParams", { droppedParams: ["a.b.c.d"] }],
    ["droppedParams", { droppedParams: Array.from({ length: 51 }, (_, i) => `p${i}`) }],
    ["droppedParams", { allowedParams: ["documents", "seed"], droppedParams: ["seed"] }],
    // What the gateway counts by, and what the request is about.
    ...[
      ...[
        "model",
        "messages",
        "input",
        "prompt",
        "instructions",
        "tools",
        "functions",
        "n",
        "size",
        "quality",
        "stream",
      ],
      ...["stream_options", "stream_options.include_usage", "max_tokens", "max_completion_tokens", "max_output_tokens"],
      ...["encoding_format", "dimensions", "messages.content", "messages.tool_calls", "tools.function", "content.text"],
    ].map((name): [string, object] => ["droppedParams", { droppedParams: ["seed", name] }]),
  ];
  for (const [param, fields] of routes)
    expect(await paramOf(addRoute(deps, { modelId, providerId, ...fields } as RouteInput))).toBe(param);
  for (const apiKey of ["", " ", "a b", "ключ", "a\nb"])
    expect(await paramOf(addProvider(deps, { name: `p${++names}`, baseUrl: BASE_URL, apiKey }))).toBe("apiKey");
});

test("every change is published after its commit, and a refused one is not", async () => {
  changes.length = 0;
  const modelId = await newModel();
  expect(changes).toEqual([{ kind: "catalog", ref: modelId }]);
  await rejectionOf(addModel(deps, { id: modelId }));
  expect(changes.length).toBe(1);
});
