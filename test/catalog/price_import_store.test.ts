import { afterAll, beforeAll, expect, test } from "bun:test";
import { addModel, listModels, setPrices } from "../../src/catalog/models_store.ts";
import type { ImportItem, ImportRequest } from "../../src/catalog/price_diff.ts";
import { readMarkup } from "../../src/catalog/price_import.ts";
import { applyImport, previewImport } from "../../src/catalog/price_import_store.ts";
import { type PriceList, parsePriceList } from "../../src/catalog/price_list.ts";
import { addProvider } from "../../src/catalog/providers_store.ts";
import { addRoute } from "../../src/catalog/routes_store.ts";
import { InputError } from "../../src/errors.ts";
import { type CatalogWorld, createCatalogWorld } from "./catalog_world.ts";
import { rejectionOf } from "./sockets.ts";

/** What a price list would change in the catalog, and that exactly this is applied. Source: IMP-3, IMP-4, IMP-5. */

let world: CatalogWorld;
let deps: CatalogWorld["deps"];
let changes: CatalogWorld["changes"];
beforeAll(async () => {
  world = await createCatalogWorld();
  ({ deps, changes } = world);
});
afterAll(() => world.close());

let names = 0;
const newId = (what = "m") => `${what}-${++names}`;
const listedModel = (id: string, over: Record<string, unknown> = {}) => ({
  id,
  match: { or: [{ equals: id }, { starts_with: `${id}-20` }] },
  prices: { input_mtok: 2.5, cache_read_mtok: 1.25, output_mtok: 10 },
  ...over,
});
const listOf = (models: unknown[], more: unknown[] = []): Promise<PriceList> =>
  parsePriceList(JSON.stringify([{ id: "acme", name: "Acme", models }, ...more]), "prices.json");

const asked = (over: Partial<ImportRequest> = {}): ImportRequest => ({ providers: ["acme"], markup: 2_000n, ...over });
const rowOf = async (id: string) => (await listModels(deps)).find((model) => model.id === id);
const versionsOf = async (id: string) =>
  (await world.sql`select prices from price_versions where model_id = ${id} order by id`).map(({ prices }) => prices);

/** The item of a model; the other models of this file's database are not of interest. */
async function itemOf(list: PriceList, id: string, over: Partial<ImportRequest> = {}): Promise<ImportItem> {
  const { items } = await previewImport(deps, list, asked({ models: [id], ...over }));
  expect(items).toHaveLength(1);
  return items[0] as ImportItem;
}

const apply = (list: PriceList, items: readonly ImportItem[], over: Partial<ImportRequest> = {}) =>
  applyImport(deps, list, { ...asked(over), confirmed: items });

const paramOf = async (promise: Promise<unknown>) => {
  const thrown = await rejectionOf(promise);
  expect(thrown).toBeInstanceOf(InputError);
  return (thrown as InputError).param;
};

test("a comparison shows each old and new price and changes nothing; applying it writes one price version", async () => {
  const id = newId();
  await addModel(deps, { id, contextLength: 8_000, prices: { inputMicroUsd: 3_000_000, outputMicroUsd: 15_000_000 } });
  const list = await listOf([listedModel(id, { context_window: 128_000, deprecated: true })]);
  const before = [await rowOf(id), await versionsOf(id)];
  const item = await itemOf(list, id);
  expect(item).toMatchObject({
    ...{ modelId: id, listed: `acme/${id}`, kind: "changed", notes: [], reason: null },
    changes: [
      { label: "Output", unit: "per_million", from: 15_000_000, to: 12_000_000 },
      { label: "Cached input", unit: "per_million", from: null, to: 1_500_000 },
      { label: "Context", unit: "tokens", from: 8_000, to: 128_000 },
      { label: "Status", unit: "text", from: "active", to: "deprecated" },
    ],
  });
  expect([await rowOf(id), await versionsOf(id)]).toEqual(before);

  changes.length = 0;
  expect(await apply(list, [item])).toEqual({ added: [], changed: [id] });
  expect(changes).toContainEqual({ kind: "catalog", ref: id });
  expect(await rowOf(id)).toMatchObject({
    ...{ inputMicroUsd: 3_000_000, cachedInputMicroUsd: 1_500_000, outputMicroUsd: 12_000_000 },
    ...{ contextLength: 128_000, status: "deprecated", enabled: true },
  });
  expect(await versionsOf(id)).toEqual([
    { tokens: { input: 3_000_000, cached_input: 3_000_000, output: 15_000_000 } },
    { tokens: { input: 3_000_000, cached_input: 1_500_000, output: 12_000_000 } },
  ]);
  expect(await itemOf(list, id)).toMatchObject({ kind: "unchanged", changes: [] });
});

test("an import has its own entry in the audit log, besides those of the models", async () => {
  const [one, two] = [newId(), newId()];
  const [admin] = await world.sql`
    insert into accounts (role, email, name) values ('admin', 'ann@example.com', 'Ann') returning id`;
  const by = { accountId: Number(admin?.id), requestId: crypto.randomUUID() };
  await addModel(deps, { id: one });
  const list = await listOf([listedModel(one), listedModel(two)]);
  const { items } = await previewImport(deps, list, asked({ models: [one, two] }));
  await applyImport({ ...deps, by }, list, { ...asked(), confirmed: items });
  const entries = await world.sql`
    select action, subject, subject_id, actor_id::int as actor, after from audit_entries where request_id = ${by.requestId} order by id`;
  const actor = by.accountId;
  expect(entries.map(({ subject, subject_id }) => `${subject} ${subject_id}`).sort()).toEqual(
    [`models ${one}`, `models ${two}`, `models ${two}`, "price_imports prices.json"].sort(),
  );
  expect(entries.find(({ subject }) => subject === "price_imports")).toEqual({
    ...{ action: "changed", subject: "price_imports", subject_id: "prices.json", actor },
    after: { source: "prices.json", providers: ["acme"], markup_percent: 20, added: [two], changed: [one] },
  });
});

test("an import in which another person has changed a shown price is refused as a whole", async () => {
  const [kept, other] = [newId(), newId()];
  for (const id of [kept, other]) await addModel(deps, { id });
  const list = await listOf([listedModel(kept), listedModel(other)]);
  const { items } = await previewImport(deps, list, asked({ models: [kept, other] }));
  await setPrices(deps, other, { inputMicroUsd: 7, outputMicroUsd: 8 });
  expect(await paramOf(apply(list, items))).toBe("confirmed");
  expect(await rowOf(kept)).toMatchObject({ inputMicroUsd: null });
  expect(await rowOf(other)).toMatchObject({ inputMicroUsd: 7, outputMicroUsd: 8 });
  // Shown anew, it is applied.
  const again = (await previewImport(deps, list, asked({ models: [kept, other] }))).items;
  expect(await apply(list, again)).toEqual({ added: [], changed: [kept, other] });
  expect(await rowOf(other)).toMatchObject({ inputMicroUsd: 3_000_000 });
});

test("a comparison with another markup, list or model than the confirmed one is not applied", async () => {
  const [id, other] = [newId(), newId()];
  for (const each of [id, other]) await addModel(deps, { id: each });
  const list = await listOf([listedModel(id), listedModel(other)]);
  const dearer = await listOf([listedModel(id, { prices: { input_mtok: 2.500001, output_mtok: 10 } })]);
  const item = await itemOf(list, id);
  for (const refused of [
    () => apply(list, [item], { markup: 2_001n }),
    () => apply(dearer, [item]),
    () => apply(list, [{ ...item, modelId: other }]),
    () => apply(list, [{ ...item, digest: "0".repeat(32) }]),
    () => apply(list, [item, item]),
    () => apply(list, []),
  ])
    expect(await paramOf(refused())).toBe("confirmed");
  expect([await rowOf(id), await rowOf(other)]).toMatchObject([{ inputMicroUsd: null }, { inputMicroUsd: null }]);
});

test("the second of two people who confirm the same comparison concurrently is told that it was applied", async () => {
  const [id, added] = [newId(), newId()];
  await addModel(deps, { id });
  const list = await listOf([listedModel(id), listedModel(added)]);
  const { items } = await previewImport(deps, list, asked({ models: [id, added] }));
  const results = await Promise.allSettled([apply(list, items), apply(list, items), apply(list, items)]);
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  for (const result of results) if (result.status === "rejected") expect(result.reason).toBeInstanceOf(InputError);
  // The first is that of the model without a price.
  expect(await versionsOf(id)).toHaveLength(2);
  expect(await versionsOf(added)).toHaveLength(1);
});

test("a new model is added disabled, with its listed name, context length and status", async () => {
  const id = newId("vendor/model");
  const list = await listOf([listedModel(id, { name: "Model One", context_window: 200_000 })]);
  const item = await itemOf(list, id);
  expect(item).toMatchObject({
    kind: "new",
    changes: expect.arrayContaining([{ label: "Context", unit: "tokens", from: null, to: 200_000 }]),
  });
  expect(await apply(list, [item])).toEqual({ added: [id], changed: [] });
  expect(await rowOf(id)).toMatchObject({
    ...{
      name: "Model One",
      ownedBy: "tollgate",
      enabled: false,
      status: "active",
      modality: "text",
      contextLength: 200_000,
    },
    ...{ inputMicroUsd: 3_000_000, cachedInputMicroUsd: 1_500_000, outputMicroUsd: 12_000_000 },
  });
});

test("a model is found by its names at providers before its own id; two possible models are not guessed", async () => {
  const [cheap, dear] = [newId("listed"), newId("listed")];
  const list = await listOf([
    listedModel(cheap, { prices: { input_mtok: 1, output_mtok: 1 } }),
    listedModel(dear, { prices: { input_mtok: 9, output_mtok: 9 } }),
  ]);
  const providerId = await addProvider(deps, { name: newId("p"), baseUrl: "http://127.0.0.1:9000/v1", apiKey: "sk-x" });
  // The operator's own name for it, and a dated name at the provider.
  const own = newId("fast");
  await addModel(deps, { id: own });
  await addRoute(deps, { modelId: own, providerId, upstreamModel: `${cheap}-2026-01-31` });
  expect(await itemOf(list, own)).toMatchObject({ kind: "changed", listed: `acme/${cheap}` });
  // Its id is that of one listed model, and it is served by another one.
  await addModel(deps, { id: dear });
  await addRoute(deps, { modelId: dear, providerId, upstreamModel: cheap });
  expect(await itemOf(list, dear)).toMatchObject({ listed: `acme/${cheap}` });
  await addRoute(deps, { modelId: own, providerId, upstreamModel: dear });
  expect(await itemOf(list, own)).toMatchObject({
    ...{ kind: "unmapped", listed: null },
    reason: `It may be one of several: acme/${cheap}, acme/${dear}.`,
  });
});

test("by default the comparison has the models that are in both the catalog and the list; with --new, also the list's others", async () => {
  const fresh = await createCatalogWorld();
  try {
    for (const id of ["known", "elsewhere"]) await addModel(fresh.deps, { id });
    const list = await listOf([listedModel("known"), listedModel("other"), listedModel("~odd")]);
    const show = async (over: Partial<ImportRequest>) => {
      const { items, newModels } = await previewImport(fresh.deps, list, asked(over));
      return [...items.map(({ modelId, kind }) => `${kind} ${modelId}`), newModels];
    };
    expect(await show({})).toEqual(["changed known", 2]);
    expect(await show({ addsNew: true })).toEqual(["new other", "changed known", "unmapped ~odd", 2]);
    expect(await show({ models: ["elsewhere", "other", "nobody"] })).toEqual([
      "new other",
      "unmapped elsewhere",
      "unmapped nobody",
      2,
    ]);
  } finally {
    await fresh.close();
  }
});

test("every price of the list is imported: cache writes, tiers, a price per request, embeddings", async () => {
  const ids = Array.from({ length: 4 }, () => newId());
  const [writes, tiered, perRequest, embedding] = ids as [string, string, string, string];
  // With the markup of 20 %.
  const usual = { input_mtok: 3, output_mtok: 15 };
  const list = await listOf([
    listedModel(writes, { prices: { ...usual, cache_write_mtok: 3.75 } }),
    listedModel(tiered, { prices: { ...usual, input_mtok: { base: 3, tiers: [{ start: 200_000, price: 6 }] } } }),
    listedModel(perRequest, { prices: { ...usual, requests_kcount: 5 } }),
    listedModel(embedding, { name: "Embedding", prices: { input_mtok: 1 } }),
  ]);
  const base = { inputMicroUsd: 3_600_000, outputMicroUsd: 18_000_000, modality: "text" };
  for (const [id, stored] of [
    [writes, { ...base, furtherPrices: { cache_write: 4_500_000, cache_write_1h: 4_500_000 } }],
    [
      tiered,
      { ...base, furtherPrices: { tiers: [{ above_input_tokens: 200_000, input: 7_200_000, output: 18_000_000 }] } },
    ],
    [perRequest, { ...base, furtherPrices: { request: 6_000 } }],
    [embedding, { inputMicroUsd: 1_200_000, outputMicroUsd: 0, modality: "embedding", furtherPrices: {} }],
  ] as const) {
    const item = await itemOf(list, id);
    expect(item).toMatchObject({ kind: "new", listed: `acme/${id}`, reason: null });
    await apply(list, [item]);
    expect(await rowOf(id)).toMatchObject(stored);
    expect(await itemOf(list, id)).toMatchObject({ kind: "unchanged", changes: [] });
  }
});

test("a model with prices that the catalog cannot store is not imported, and the comparison says why", async () => {
  const dearCache = newId();
  const prices = { input_mtok: 3, output_mtok: 15, cache_read_mtok: 4 };
  const list = await listOf([listedModel(dearCache, { prices })]);
  const item = await itemOf(list, dearCache);
  expect(item).toMatchObject({ kind: "unmapped", listed: `acme/${dearCache}`, changes: [] });
  expect(item.reason).toContain("cachedInputMicroUsd");
  expect(await paramOf(apply(list, [item]))).toBe("confirmed");
  expect(await rowOf(dearCache)).toBeUndefined();
});

test("an image model, and a chat model that the list has as an embedding, are not repriced", async () => {
  const [image, chat] = [newId(), newId()];
  await addModel(deps, { id: image, modality: "image", imagePrices: { "1024x1024": 40_000 } });
  await addModel(deps, { id: chat });
  const list = await listOf([listedModel(image), listedModel(chat, { name: "Embed", prices: { input_mtok: 1 } })]);
  expect((await itemOf(list, image)).reason).toBe("It is sold by the image, and the list has prices by the token.");
  expect((await itemOf(list, chat)).reason).toBe("Only one of the two is an embedding model.");
});

test("an unknown provider, none, and too many are refused, and the message names the list's providers", async () => {
  const list = await listOf([listedModel("x")], [{ id: "beta", name: "Beta", models: [] }]);
  const error = await rejectionOf(previewImport(deps, list, asked({ providers: ["acme", "nope"] })));
  expect([(error as InputError).param, (error as InputError).message]).toEqual([
    "providers",
    'The price list has no provider "nope". It has: acme, beta.',
  ]);
  expect(await paramOf(previewImport(deps, list, asked({ providers: [] })))).toBe("providers");
  expect(await paramOf(previewImport(deps, list, asked({ providers: Array(51).fill("acme") })))).toBe("providers");
  const models = Array.from({ length: 2_001 }, (_, n) => `many-${n}`);
  expect(await paramOf(previewImport(deps, list, asked({ models })))).toBe("models");
});

test("a markup is applied to the listed prices, not to the current ones: importing twice changes nothing", async () => {
  const id = newId();
  await addModel(deps, { id });
  const list = await listOf([listedModel(id)]);
  const markup = readMarkup("12.5");
  await apply(list, [await itemOf(list, id, { markup })], { markup });
  expect(await rowOf(id)).toMatchObject({ inputMicroUsd: 2_812_500, outputMicroUsd: 11_250_000 });
  expect(await itemOf(list, id, { markup })).toMatchObject({ kind: "unchanged" });
});
