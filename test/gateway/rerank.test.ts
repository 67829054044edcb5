import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { COUNTING } from "../replica.ts";
import type { ModelSpec } from "../world.ts";
import { closeBalanced, endFaults, expectRefusal, withoutEffect } from "./checks.ts";
import { openShop, type Shop } from "./shop.ts";

/**
 * Reranking: what is sent, the forms of providers' answers, and what is charged. What all metered endpoints have in common is in
 * metered_endpoints.test.ts. Source: API-17.
 */
const DOCUMENTS = ["A bird sings", "A toll gate bars a road", "A road with a toll"];
/** Micro-USD per million tokens, and per request. */
const [INPUT, REQUEST] = [2_000_000, 500];
let shop: Shop;

beforeAll(async () => {
  const model = (id: string, inputMicroUsd: number, furtherPrices: object): ModelSpec => ({
    ...{ id, modality: "rerank", inputMicroUsd, outputMicroUsd: 0, furtherPrices, routes: [{ provider: "first" }] },
  });
  shop = await openShop({
    env: COUNTING,
    models: [model("rank-a", INPUT, {}), model("rank-by-request", 0, { request: REQUEST })],
  });
});
afterEach(() => endFaults(shop, rerank));
afterAll(() => closeBalanced(shop));

const rerank = (secret: string, over: Record<string, unknown> = {}) =>
  shop.call("/v1/rerank", {
    secret,
    body: { model: "rank-a", query: "toll gate road", documents: DOCUMENTS, ...over },
  });
const sentBody = () => JSON.parse(shop.provider.lastCall()?.body ?? "{}");
const placesOf = (results: { index: number }[]) => results.map(({ index }) => index);

describe("the request", () => {
  test("documents are sent as texts; the results have the client's model, the most relevant first", async () => {
    const { secret, accountId } = await shop.customer();
    const documents = [DOCUMENTS[0], { text: DOCUMENTS[1], title: "not sent" }, DOCUMENTS[2]];
    const { status, json, headers } = await rerank(secret, { documents, return_documents: true, rank_fields: ["x"] });
    expect(status).toBe(200);
    expect(shop.provider.lastCall()?.path).toBe("/v1/rerank");
    expect(sentBody()).toEqual({ model: "up-rank-a", query: "toll gate road", documents: DOCUMENTS });
    expect(headers.get("x-dropped-params")).toBe("rank_fields");
    expect(Object.keys(json)).toEqual(["object", "model", "results", "usage"]);
    expect(json).toMatchObject({ object: "list", model: "rank-a" });
    expect(json.results[0]).toEqual({
      index: 1,
      relevance_score: expect.any(Number),
      document: { text: DOCUMENTS[1] },
    });
    const scores = json.results.map(({ relevance_score }: { relevance_score: number }) => relevance_score);
    expect(scores).toEqual(scores.toSorted((a: number, b: number) => b - a));
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
  });

  test("top_n is sent on, and bounds the results also if the provider ignores it", async () => {
    const { secret } = await shop.customer();
    expect(placesOf((await rerank(secret, { top_n: 1 })).json.results)).toEqual([1]);
    expect(sentBody().top_n).toBe(1);
    const all = [0, 1, 2].map((index) => ({ index, relevance_score: index }));
    shop.provider.next({ body: JSON.stringify({ results: all, usage: { total_tokens: 9 } }) });
    expect(placesOf((await rerank(secret, { top_n: 2 })).json.results)).toEqual([2, 1]);
    expect(placesOf((await rerank(secret, { top_n: 99 })).json.results)).toHaveLength(3);
  });

  test.each<[what: string, over: Record<string, unknown>, param: string]>([
    ["no documents", { documents: [] }, "documents"],
    ["1,001 documents", { documents: Array(1_001).fill("x") }, "documents"],
    ["an empty query", { query: "" }, "query"],
    ["top_n of 0", { top_n: 0 }, "top_n"],
  ])("%s is refused by name", async (_, over, param) => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () => expectRefusal(await rerank(secret, over), "invalid_request", { param }));
  });
});

describe("answers of providers", () => {
  const usage = { total_tokens: 12 };
  const row = (index: number, score: number, name = "relevance_score") => ({ index, [name]: score });
  test.each<[provider: string, answer: unknown]>([
    ["Jina and vLLM", { model: "m", usage, results: [row(2, 0.9), row(0, 0.1), row(1, 0.5)] }],
    ["Voyage", { object: "list", data: [row(2, 0.9), row(1, 0.5), row(0, 0.1)], usage }],
    ["text-embeddings-inference", [row(0, 0.1, "score"), row(1, 0.5, "score"), row(2, 0.9, "score")]],
    [
      "Cohere",
      { id: "r", results: [row(2, 0.9), row(1, 0.5), row(0, 0.1)], meta: { billed_units: { search_units: 1 } } },
    ],
  ])("%s: read, and in order", async (_, answer) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ body: JSON.stringify(answer) });
    const { status, json } = await rerank(secret);
    expect(status).toBe(200);
    expect(json.results).toEqual([row(2, 0.9), row(1, 0.5), row(0, 0.1)]);
    expect(json.usage.prompt_tokens).toBeGreaterThan(0);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0 });
  });

  test.each<[what: string, answer: unknown]>([
    ["no results", { usage }],
    ["fewer than were asked for", { results: [row(0, 1)] }],
    ["a document that was not sent", { results: [row(0, 1), row(1, 1), row(3, 1)] }],
    ["a document twice", { results: [row(0, 1), row(1, 1), row(1, 1)] }],
    ["no score", { results: [{ index: 0 }, { index: 1 }, { index: 2 }] }],
    ["an error with status 200", { error: { message: "boom", type: "server_error" } }],
  ])("%s: 503, and nothing is charged", async (_, answer) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ body: JSON.stringify(answer) });
    expectRefusal(await rerank(secret), "provider_unavailable");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, holds: 0, units: 0 });
  });
});

describe("the charge", () => {
  const balance = async (model: string, answer?: object) => {
    const { secret, accountId } = await shop.payer(1_000_000_000n);
    if (answer) shop.provider.next({ body: JSON.stringify(answer) });
    const { status, json } = await rerank(secret, { model, usage: { include: true } });
    expect(status).toBe(200);
    const [receipt] = await shop.world.sql`
      select charged_nano_usd::int as charged, prompt_tokens, estimated from receipts where account_id = ${accountId}`;
    expect(json.usage.cost).toBe((receipt?.charged ?? 0) / 1e9);
    return receipt;
  };
  const results = [0, 1, 2].map((index) => ({ index, relevance_score: index }));

  test("is for the tokens that the provider reports", async () => {
    expect(await balance("rank-a", { results, usage: { total_tokens: 40 } })).toEqual({
      ...{ charged: (40 * INPUT) / 1000, prompt_tokens: 40, estimated: false },
    });
  });

  test("is for the query with each document, where it reports none", async () => {
    const { prompt_tokens: tokens, ...receipt } = (await balance("rank-a", { results })) ?? {};
    expect(receipt).toEqual({ charged: (tokens * INPUT) / 1000, estimated: true });
    // Three times the query's three words, and twelve words of documents.
    expect(tokens).toBeGreaterThanOrEqual(21);
  });

  test("is the price of a request, if the model has one", async () => {
    expect(await balance("rank-by-request")).toMatchObject({ charged: REQUEST * 1000 });
  });
});
