import { afterAll, beforeAll, expect, test } from "bun:test";
import { loadCatalog } from "../../src/catalog/catalog_store.ts";
import { addModel, setImagePrice, setPrices, updateModel } from "../../src/catalog/models_store.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import type { Db } from "../../src/platform/db.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { createWorld, type World } from "../world.ts";
import { openWorldLedger, reapLease, requestFor, usageOf } from "./ledger_world.ts";

/** Prices are kept as they change, and a receipt names those it was charged by. Source: MON-10. */

let world: World;
let db: Db;
let deps: Parameters<typeof setPrices>[0];
beforeAll(async () => {
  world = await createWorld();
  db = world.openDb();
  deps = { db, bus: inProcessBus(quietLog().log) };
});
afterAll(async () => {
  await db.close();
  await world.close();
});

const PRICES = { inputMicroUsd: 3_000_000, outputMicroUsd: 15_000_000 };
const TOKENS = { input: 3_000_000, cached_input: 3_000_000, output: 15_000_000 };

async function versionsOf(modelId: string) {
  const rows = await world.sql`
    select id::int, prices, valid_from > now() - interval '1 hour' as recent from price_versions
    where model_id = ${modelId} order by id`;
  return rows.map((row) => ({ ...row }));
}
const pricesOf = async (modelId: string) => (await versionsOf(modelId)).map((row) => row.prices);

test("each change of a model's prices adds a version; other changes add none", async () => {
  await addModel(deps, { id: "a", prices: PRICES, imagePrices: { "512x512": 20_000 } });
  expect(await versionsOf("a")).toEqual([
    { id: expect.any(Number), prices: { tokens: TOKENS, images: { "512x512": 20_000 } }, recent: true },
  ]);
  await updateModel(deps, "a", { name: "Another name" });
  await setPrices(deps, "a", { ...PRICES, cachedInputMicroUsd: 3_000_000 });
  expect(await versionsOf("a")).toHaveLength(1);
  await setPrices(deps, "a", { ...PRICES, cachedInputMicroUsd: 300_000 });
  await setImagePrice(deps, { modelId: "a", size: "512x512", microUsd: 30_000 });
  await setImagePrice(deps, { modelId: "a", size: "1024x1024", microUsd: 40_000 });
  await setImagePrice(deps, { modelId: "a", size: "512x512", microUsd: null });
  await setPrices(deps, "a", null);
  const cached = { ...TOKENS, cached_input: 300_000 };
  expect((await pricesOf("a")).slice(1)).toEqual([
    { tokens: cached, images: { "512x512": 20_000 } },
    { tokens: cached, images: { "512x512": 30_000 } },
    { tokens: cached, images: { "512x512": 30_000, "1024x1024": 40_000 } },
    { tokens: cached, images: { "1024x1024": 40_000 } },
    { images: { "1024x1024": 40_000 } },
  ]);
});

test("a version has every further price, its tiers and the price per request; one change of them is one version", async () => {
  const tier = { above_input_tokens: 200_000, input: 6_000_000, output: 22_500_000, cache_write: 7_500_000 };
  const further = { cache_write: 3_750_000, reasoning: 20_000_000, tiers: [tier], request: 1_000 };
  await addModel(deps, { id: "further", prices: { ...PRICES, further } });
  await setPrices(deps, "further", { ...PRICES, further });
  await setPrices(deps, "further", { ...PRICES, further: { audio_input: null, image_output: 0 } });
  await setPrices(deps, "further", PRICES);
  const { request, ...rates } = further;
  expect(await pricesOf("further")).toEqual([
    { tokens: { ...TOKENS, ...rates }, request },
    { tokens: { ...TOKENS, image_output: 0 } },
    { tokens: TOKENS },
  ]);
});

test("a change made directly in SQL adds a version too, and several in one transaction add one", async () => {
  await world.sql`insert into models (id, name, owned_by, input_micro_usd, output_micro_usd) values ('b', 'B', 'x', 1, 2)`;
  await world.sql.begin(async (tx) => {
    await tx`update models set input_micro_usd = 5 where id = 'b'`;
    await tx`update models set output_micro_usd = 6 where id = 'b'`;
    await tx`insert into image_prices (model_id, size, micro_usd) values ('b', '512x512', 7)`;
  });
  expect(await pricesOf("b")).toEqual([
    { tokens: { input: 1, cached_input: 1, output: 2 } },
    { tokens: { input: 5, cached_input: 5, output: 6 }, images: { "512x512": 7 } },
  ]);
});

test("after two concurrent changes of different prices the last version has both", async () => {
  await addModel(deps, { id: "c", prices: PRICES, imagePrices: { "512x512": 1 } });
  for (let i = 2; i < 12; i++) {
    await Promise.all([
      setPrices(deps, "c", { ...PRICES, inputMicroUsd: i }),
      setImagePrice(deps, { modelId: "c", size: "512x512", microUsd: i }),
    ]);
    expect((await pricesOf("c")).at(-1)).toEqual({
      tokens: { ...TOKENS, input: i, cached_input: i },
      images: { "512x512": i },
    });
  }
});

test("a version cannot be changed or deleted", async () => {
  const before = await world.sql`select count(*)::int as n from price_versions`;
  for (const change of [
    "update price_versions set prices = '{}'",
    "delete from price_versions",
    "truncate price_versions",
  ])
    await expect(world.sql.unsafe(change)).rejects.toThrow("never changed");
  await world.sql`delete from image_prices where model_id = 'b'`;
  await world.sql`delete from models where id = 'b'`;
  const after = await world.sql`select count(*)::int as n from price_versions`;
  expect(after[0]?.n).toBe(before[0]?.n + 1);
});

test("the catalog has each model's present version", async () => {
  await addModel(deps, { id: "d", prices: PRICES });
  await setPrices(deps, "d", { ...PRICES, inputMicroUsd: 4_000_000 });
  const [, latest] = await versionsOf("d");
  const { models } = await loadCatalog(db.orm);
  expect(models.find(({ id }) => id === "d")).toMatchObject({ inputMicroUsd: 4_000_000, priceVersionId: latest?.id });
});

test("a hold and its receipt refer to the version of the reservation, also after the reaper and a late settlement", async () => {
  const open = await openWorldLedger(world);
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  await world.givePackage(person);
  // Requests of one batch that differ in nothing else.
  const holds = await Promise.all(
    [7, 7, 8, null, 9].map((priceVersionId) => open.ledger.reserve(requestFor(person, key, { priceVersionId }))),
  );
  expect(holds.map(({ priceVersionId }) => priceVersionId)).toEqual([7, 7, 8, null, 9]);
  const [, , late, ...others] = holds as [Hold, Hold, Hold, Hold, Hold];
  await Promise.all(others.map((hold) => open.ledger.settle(hold, usageOf())));
  await reapLease(world, late.leaseId);
  await open.ledger.settle(late, usageOf());
  const rows = await world.sql`
    select reason, price_version_id::int as id from receipts where account_id = ${person.accountId} order by id nulls first`;
  expect(rows.map((row) => ({ ...row }))).toEqual([
    { reason: "complete", id: null },
    { reason: "late", id: 8 },
    { reason: "complete", id: 9 },
  ]);
  await open.close();
});
