import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "bun:test";
import { randomBytes } from "node:crypto";
import { type Catalog, openCatalog } from "../../src/catalog/catalog.ts";
import { USUAL_FACTS } from "../../src/catalog/dialects.ts";
import { addModel, setImagePrice, setPrices, updateModel } from "../../src/catalog/models_store.ts";
import { addProvider, updateProvider } from "../../src/catalog/providers_store.ts";
import { addRoute, updateRoute } from "../../src/catalog/routes_store.ts";
import { type Change, inProcessBus } from "../../src/platform/bus.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { openDb } from "../../src/platform/db.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { type CatalogWorld, createCatalogWorld } from "./catalog_world.ts";
import { rejectionOf } from "./sockets.ts";

const BASE_URL = "http://127.0.0.1:9000/v1";

let world: CatalogWorld;
let deps: CatalogWorld["deps"];
const open: Catalog[] = [];
beforeAll(async () => {
  world = await createCatalogWorld();
  deps = world.deps;
});
beforeEach(async () => {
  await world.sql`truncate models, image_prices, providers, routes cascade`;
});
afterEach(() => {
  for (const catalog of open.splice(0)) catalog.close();
});
afterAll(() => world.close());

/** Opens a catalog on a separate bus, which gets only the test's messages. */
async function openQuiet(fields: Partial<CatalogWorld["deps"]> = {}) {
  const { log, lines } = quietLog();
  const bus = inProcessBus(log);
  const catalog = await openCatalog({ ...deps, bus, log, ...fields });
  open.push(catalog);
  const tell = (kind: Change["kind"]) => bus.deliver([{ kind, ref: "x" }]);
  return { catalog, lines, tell, gap: () => bus.gap() };
}

async function until(isSo: () => boolean): Promise<void> {
  const deadline = performance.now() + 30_000;
  while (!isSo()) {
    if (performance.now() > deadline) throw new Error("waited 30 s in vain");
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

async function seed(): Promise<{ providerId: number; routeId: number }> {
  await addModel(deps, {
    id: "m1",
    name: "One",
    contextLength: 8000,
    prices: { inputMicroUsd: 500, outputMicroUsd: 1500 },
    architecture: { family: "x" },
  });
  const providerId = await addProvider(deps, { name: "acme", baseUrl: `${BASE_URL}/`, apiKey: "sk-canary-0123456789" });
  const routeId = await addRoute(deps, { modelId: "m1", providerId, upstreamModel: "up-1", weight: 3 });
  return { providerId, routeId };
}

test("a model has its prices, image prices and routes; its provider's key is not printed with it", async () => {
  const { providerId, routeId } = await seed();
  await setImagePrice(deps, { modelId: "m1", size: "512x512", microUsd: 10_000 });
  const { catalog } = await openQuiet();
  const model = catalog.model("m1");
  expect(model).toMatchObject({
    id: "m1",
    name: "One",
    ownedBy: "tollgate",
    contextLength: 8000,
    status: "active",
    modality: "text",
    architecture: { family: "x" },
    prices: { requestMicroUsd: 0, tiers: [{ rates: { input: 500, cached_input: 500, output: 1500 } }] },
    defaultCapTokens: 4096,
    imageMostTokens: 50_000,
    marginPermille: 1000,
  });
  const [row] =
    await world.sql`select floor(extract(epoch from created_at))::int as unix from models where id = ${model?.id ?? ""}`;
  expect(model?.createdUnix).toBe(Number(row?.unix));
  expect(model?.imagePrices.get("512x512")).toBe(10_000);
  const [route] = model?.routes ?? [];
  expect(route).toMatchObject({
    id: routeId,
    providerId,
    providerName: "acme",
    baseUrl: BASE_URL,
    upstreamModel: "up-1",
    priority: 0,
    weight: 3,
    facts: USUAL_FACTS,
    ownResponses: false,
    allowedParams: new Set(),
    droppedParams: new Set(),
  });
  expect(route?.keyed[0]?.apiKey.reveal()).toBe("sk-canary-0123456789");
  expect(JSON.stringify(model) + Bun.inspect(model)).not.toContain("sk-canary");
});

test("a model allows what any of its routes allows, and drops what all of them drop", async () => {
  const { providerId, routeId } = await seed();
  await updateRoute(deps, routeId, { allowedParams: ["documents"], droppedParams: ["seed", "stop"] });
  const { catalog } = await openQuiet();
  const rules = () => {
    const { allowedParams, droppedParams } = catalog.model("m1") ?? {};
    return [[...(allowedParams ?? [])], [...(droppedParams ?? [])]];
  };
  expect(rules()).toEqual([["documents"], ["seed", "stop"]]);
  const fields = { upstreamModel: "up-2", allowedParams: ["plugins"], droppedParams: ["stop", "user"] };
  await addRoute(deps, { modelId: "m1", providerId, ...fields });
  await catalog.reload();
  expect(rules()).toEqual([["documents", "plugins"], ["stop"]]);
  await addRoute(deps, { modelId: "m1", providerId, upstreamModel: "up-3" });
  await catalog.reload();
  expect(rules()).toEqual([["documents", "plugins"], []]);
});

test("a model without prices has none; an unknown one is undefined", async () => {
  await addModel(deps, { id: "bare" });
  const { catalog } = await openQuiet();
  expect(catalog.model("bare")).toMatchObject({ prices: null, routes: [] });
  expect(catalog.model("absent")).toBeUndefined();
  expect(catalog.model("__proto__")).toBeUndefined();
});

test("models are listed oldest first; disabled models, routes and providers are left out", async () => {
  const { providerId, routeId } = await seed();
  await addModel(deps, { id: "a0" });
  await addModel(deps, { id: "z9", enabled: false });
  const { catalog } = await openQuiet();
  expect(catalog.models().map(({ id }) => id)).toEqual(["m1", "a0"]);
  await updateRoute(deps, routeId, { enabled: false });
  await catalog.reload();
  expect(catalog.model("m1")?.routes).toEqual([]);
  await updateRoute(deps, routeId, { enabled: true });
  await updateProvider(deps, providerId, { enabled: false });
  await catalog.reload();
  expect(catalog.model("m1")?.routes).toEqual([]);
});

test("a committed change of the catalog is soon in use; changes of other tables cause no load", async () => {
  await seed();
  const catalog = await openCatalog(deps);
  open.push(catalog);
  await setPrices(deps, "m1", { inputMicroUsd: 7, outputMicroUsd: 8 });
  await until(() => catalog.model("m1")?.prices?.tiers[0].rates.input === 7);
  const { catalog: quiet, tell } = await openQuiet();
  const before = quiet.models();
  tell("account");
  tell("session");
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(quiet.models()).toBe(before);
});

test("after a gap in the messages everything is reloaded", async () => {
  await seed();
  const { catalog, gap } = await openQuiet();
  await updateModel(deps, "m1", { name: "Two" });
  gap();
  await until(() => catalog.model("m1")?.name === "Two");
});

test("a snapshot in use does not change", async () => {
  await seed();
  const { catalog } = await openQuiet();
  const [model, models] = [catalog.model("m1"), catalog.models()];
  await updateModel(deps, "m1", { name: "Two" });
  await catalog.reload();
  expect([model?.name, models[0]?.name, catalog.model("m1")?.name]).toEqual(["One", "One", "Two"]);
  expect(() => Object.assign(model ?? {}, { name: "mine" })).toThrow();
});

test("a hundred concurrent changes cause at most two loads, and the last change is seen", async () => {
  await seed();
  const { catalog, tell, lines } = await openQuiet();
  const loads = () => lines.filter(({ message }) => message === "the catalog is loaded").length;
  expect(loads()).toBe(1);
  // The load under way may have read before this change: only the one after it must have.
  const first = catalog.reload();
  await updateModel(deps, "m1", { name: "Last" });
  for (let i = 0; i < 100; i++) tell("catalog");
  await first;
  await catalog.reload();
  expect(catalog.model("m1")?.name).toBe("Last");
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(loads()).toBeLessThanOrEqual(4);
});

test("reload resolves only with a load that began after it was called", async () => {
  await seed();
  const { catalog } = await openQuiet();
  for (let i = 0; i < 30; i++) {
    const overtaken = catalog.reload();
    await updateModel(deps, "m1", { name: `v${i}` });
    await catalog.reload();
    expect(catalog.model("m1")?.name).toBe(`v${i}`);
    await overtaken;
  }
});

test("a failed reload keeps the old snapshot, is logged and retried until it succeeds", async () => {
  await seed();
  const proxy = await startTcpProxy(world.url);
  const db = openDb({ databaseUrl: proxy.url, dbPrepare: true, dbPoolMax: 2 });
  try {
    const { catalog, lines } = await openQuiet({ db });
    await updateModel(deps, "m1", { name: "Two" });
    proxy.cut();
    await rejectionOf(catalog.reload());
    expect(lines.some(({ level }) => level === "error")).toBe(true);
    expect(catalog.model("m1")?.name).toBe("One");
    proxy.mend();
    await until(() => catalog.model("m1")?.name === "Two");
  } finally {
    db.reset(); // Broken connections would delay its close.
    await db.close();
    await proxy.close();
  }
});

test("opening the catalog fails if the first load fails", async () => {
  const db = openDb({ databaseUrl: world.url.replace(/[^/]+$/, "absent"), dbPrepare: true, dbPoolMax: 1 });
  const { log } = quietLog();
  await rejectionOf(openCatalog({ ...deps, db, log }));
  await db.close();
});

test("a provider whose key was encrypted with another SECRET_KEY is left out and logged; the others serve", async () => {
  await seed();
  const lost = await addProvider(deps, { name: "lost", baseUrl: BASE_URL, apiKey: "sk-x-123456" });
  // As after a lost key. The stores cannot create this state.
  const ciphertext = encrypt(randomBytes(32), "sk-x-123456");
  await world.sql`update provider_keys set key_ciphertext = ${ciphertext} where provider_id = ${lost}`;
  await addRoute(deps, { modelId: "m1", providerId: lost });
  const { catalog, lines } = await openQuiet();
  expect(catalog.model("m1")?.routes.map(({ providerName }) => providerName)).toEqual(["acme"]);
  expect(lines.some(({ level, provider }) => level === "error" && provider === "lost")).toBe(true);
});

test("a closed catalog loads no more", async () => {
  await seed();
  const { catalog, gap } = await openQuiet();
  catalog.close();
  await updateModel(deps, "m1", { name: "Two" });
  gap();
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(catalog.model("m1")?.name).toBe("One");
});
