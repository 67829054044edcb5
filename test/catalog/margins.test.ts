import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { losing, lossWords, lowestMargin, marginsOf, marginWords, readMargins } from "../../src/catalog/margins.ts";
import { addModel, listModels, setImagePrice, setPrices } from "../../src/catalog/models_store.ts";
import { packagedPriceList } from "../../src/catalog/price_list.ts";
import { addProvider } from "../../src/catalog/providers_store.ts";
import { openRouteStats } from "../../src/catalog/route_stats.ts";
import { addRoute, listRoutes, updateRoute } from "../../src/catalog/routes_store.ts";
import { reportedCostOf } from "../../src/gateway/usage_costs.ts";
import { type CatalogWorld, createCatalogWorld } from "./catalog_world.ts";

/** What is left of a model's price after what its routes cost. Source: PRV-27. */

let world: CatalogWorld;
let deps: CatalogWorld["deps"];
beforeAll(async () => {
  world = await createCatalogWorld();
  ({ deps } = world);
});
afterAll(() => world.close());

const LOCAL = "http://127.0.0.1:9000/v1";
let names = 0;
/** A model with a price and a route. In USD a million tokens. */
async function modelWith(
  price: { input: number; output: number } | null,
  cost: { input: number; output: number } | null,
  { baseUrl = LOCAL, upstreamModel = "up" } = {},
) {
  const id = `model-${++names}`;
  await addModel(deps, { id });
  const micro = (usd: number) => Math.round(usd * 1e6);
  if (price) await setPrices(deps, id, { inputMicroUsd: micro(price.input), outputMicroUsd: micro(price.output) });
  const providerId = await addProvider(deps, {
    name: `provider-${names}`,
    baseUrl: LOCAL,
    apiKey: "sk-canary-0123456789",
  });
  // A provider with a public name can only be added where the name is found.
  await deps.db.sql`update providers set base_url = ${baseUrl} where id = ${providerId}`;
  const routeId = await addRoute(deps, { modelId: id, providerId, upstreamModel });
  if (cost)
    await updateRoute(deps, routeId, { costInputMicroUsd: micro(cost.input), costOutputMicroUsd: micro(cost.output) });
  return { id, routeId };
}
async function marginsFor(id: string) {
  const models = (await listModels(deps)).filter((model) => model.id === id);
  return (await readMargins(deps, models)).get(id) ?? [];
}

describe("a cost that is set on the route", () => {
  test("leaves a part of the price: three input tokens for each output token", async () => {
    const { id, routeId } = await modelWith({ input: 5, output: 25 }, { input: 3, output: 15 });
    const margins = await marginsFor(id);
    expect(margins).toMatchObject([{ routeId, margins: [{ source: "set", permille: 400, dearer: [], times: 0 }] }]);
    expect([lowestMargin(margins), losing(margins)]).toEqual([400, []]);
    expect(marginWords(margins[0]?.margins[0])).toBe("40% (set)");
  });

  test("of ten times the price is a loss, in each part that costs more; also if only the output does", async () => {
    const ten = await marginsFor((await modelWith({ input: 3, output: 15 }, { input: 30, output: 150 })).id);
    const [loss] = losing(ten);
    expect(loss?.margin).toEqual({ source: "set", permille: -9_000, dearer: ["input", "output"], times: 10 });
    expect(loss && lossWords(loss.margin)).toBe("costs 10 times the price of input, output, as its cost is set");
    const output = await marginsFor((await modelWith({ input: 30, output: 15 }, { input: 3, output: 18 })).id);
    expect(losing(output)[0]?.margin).toMatchObject({ permille: 742, dearer: ["output"], times: 1.2 });
    const free = await marginsFor((await modelWith({ input: 0, output: 0 }, { input: 3, output: 0 })).id);
    expect(losing(free)[0]?.margin).toMatchObject({ permille: null, dearer: ["input"], times: 1_000 });
  });

  test("of an image is compared with its lowest price", async () => {
    const { id, routeId } = await modelWith(null, null);
    await setImagePrice(deps, { modelId: id, size: "1024x1024", microUsd: 40_000 });
    await setImagePrice(deps, { modelId: id, size: "512x512", microUsd: 10_000 });
    await updateRoute(deps, routeId, { costImageMicroUsd: 20_000 });
    expect(losing(await marginsFor(id))[0]?.margin).toMatchObject({ permille: -1_000, dearer: ["image"], times: 2 });
  });
});

describe("a cost of the packaged price list", () => {
  const OPENAI = { baseUrl: "https://api.openai.com/v1", upstreamModel: "gpt-4o-mini" };

  test("is found by the provider's base URL and the model's name there", async () => {
    const list = await packagedPriceList();
    const at = (baseUrl: string) => list.providerAt(baseUrl);
    expect([at("https://api.openai.com/v1"), at("https://openrouter.ai/api/v1"), at("http://10.0.0.1/v1")]).toEqual([
      "openai",
      "openrouter",
      undefined,
    ]);
    expect(at("https://evil.example/?https://api.openai.com")).toBeUndefined();
    const same = await marginsFor((await modelWith({ input: 0.3, output: 1.2 }, null, OPENAI)).id);
    expect(same[0]?.margins).toEqual([{ source: "listed", permille: 500, dearer: [], times: 0 }]);
  });

  test("above the price is a loss, though nothing was set on the route", async () => {
    const margins = await marginsFor((await modelWith({ input: 0.015, output: 0.06 }, null, OPENAI)).id);
    expect(losing(margins)[0]?.margin).toMatchObject({
      source: "listed",
      dearer: expect.arrayContaining(["input", "output"]),
      times: 10,
    });
  });

  test("is not known for a model or provider that the list does not have", async () => {
    const unknown = await marginsFor((await modelWith({ input: 1, output: 1 }, null)).id);
    expect([unknown[0]?.margins, lowestMargin(unknown), marginWords(undefined)]).toEqual([[], null, "not known"]);
  });
});

describe("a cost that the provider reports", () => {
  test("of the last 24 hours comes first, and is a loss if it is above what these answers cost by the model's prices", async () => {
    const { id, routeId } = await modelWith({ input: 5, output: 25 }, { input: 3, output: 15 });
    const stats = openRouteStats(deps);
    stats.cost(routeId, "whole", { costNanoUsd: 700, pricedNanoUsd: 1_000 });
    stats.cost(routeId, "stream", { costNanoUsd: 200, pricedNanoUsd: 1_000 });
    await stats.flush();
    expect((await marginsFor(id))[0]?.margins.map(({ source, permille }) => [source, permille])).toEqual([
      ["reported", 550],
      ["set", 400],
    ]);
    stats.cost(routeId, "stream", { costNanoUsd: 30_000, pricedNanoUsd: 1_000 });
    await stats.stop();
    const [loss] = losing(await marginsFor(id));
    expect(loss && lossWords(loss.margin)).toBe(
      "costs 10.3 times the price of answers, as its answers of 24 hours report",
    );
  });

  test("at the price itself is none, whatever is rounded", async () => {
    const { id } = await modelWith({ input: 5, output: 25 }, null);
    const [model] = (await listModels(deps)).filter((one) => one.id === id);
    const [route] = await listRoutes(deps, id);
    if (model === undefined || route === undefined) throw new Error("they were just added");
    const sums = { routeId: route.id, kind: "whole" as const, requests: 1, errors: 0, inputTokens: 0, cachedTokens: 0 };
    const stats = [{ ...sums, costNanoUsd: 1_001, pricedNanoUsd: 1_000, durations: new Uint32Array() }];
    const known = { imageMicroUsd: Infinity, stats, listed: undefined };
    expect(losing([marginsOf(model, route, known)])).toEqual([]);
  });

  test("is read as OpenRouter, DeepInfra and xAI report it", () => {
    const of = (usage: unknown) => reportedCostOf(usage);
    expect(of({ cost: 0.00014 })).toBeCloseTo(140_000, 3);
    expect(of({ estimated_cost: 0.002 })).toBeCloseTo(2_000_000, 3);
    expect(of({ cost_in_usd_ticks: 37_756_000 })).toBeCloseTo(3_775_600, 3);
    expect(of({ cost: 0.01, is_byok: true, cost_details: { upstream_inference_cost: 0.19 } })).toBeCloseTo(2e8, 3);
    expect([of({}), of(null), of({ cost: "1" }), of({ cost: -1 }), of({ cost: Number.NaN })]).toEqual(
      Array(5).fill(undefined),
    );
  });
});
