import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { check } from "../../src/books/check.ts";
import { foldAll } from "../../src/books/folding_store.ts";
import { openSlices } from "../../src/books/short_transactions_store.ts";
import { listUnpriced } from "../../src/books/unpriced_store.ts";
import { setImagePrice, setPrices } from "../../src/catalog/models_store.ts";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { ownName } from "../../src/gateway/end_users.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import type { ChangeDeps } from "../../src/platform/changes_store.ts";
import type { Db } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { until } from "../platform/own_redis.ts";
import { SEED } from "../property.ts";
import { randomOf } from "../random.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { closeBalanced } from "./checks.ts";
import { chatBody, embeddingBody, imageBody, openShop, type Shop } from "./shop.ts";

/**
 * Every charge can be computed again from its receipt and the price version that it names. Here this is done by arithmetic that
 * shares no code with the service: it lays the tokens of a request out one by one. Source: IMP-6, MON-11, MON-12, MON-13, MON-17.
 */
const REQUESTS = 200;

let shop: Shop;
let deps: ChangeDeps & { db: Db };

const RATES = { input: 3_000_001, output: 15_000_003 };
const FURTHER = {
  ...{ cache_write: 3_750_001, cache_write_1h: 6_000_007, reasoning: 20_000_011, audio_input: 40_000_013 },
  ...{ audio_output: 80_000_017, image_input: 5_000_019, image_output: 30_000_023, request: 1_234 },
};
const TIERS = [
  { above_input_tokens: 1_000, input: 4_000_001, output: 16_000_003, cached_input: 400_009 },
  { above_input_tokens: 20_000, input: 6_000_001, output: 22_500_003, cache_write: 7_500_001 },
];
const CHAT_MODELS = ["chat-a", "vendor/chat-b", "chat-two-routes"];
/** Sent to a provider's own /responses. */
const OWN_MODEL = "chat-own";
const ownModel = { id: OWN_MODEL, defaultCapTokens: 1000, routes: [{ provider: "first", ownResponses: true }] };
const EMBEDDING_MODEL = "embed-a";

beforeAll(async () => {
  shop = await openShop({ models: [ownModel] });
  // The replica learns of changes from the table of changes.
  deps = { db: shop.world.openDb(), bus: inProcessBus(createLog("silent")) };
  const base = { inputMicroUsd: RATES.input, outputMicroUsd: RATES.output };
  for (const model of ["vendor/chat-b", OWN_MODEL])
    await setPrices(deps, model, { ...base, cachedInputMicroUsd: 300_005, further: { ...FURTHER, tiers: TIERS } });
  await setPrices(deps, EMBEDDING_MODEL, {
    inputMicroUsd: 130_007,
    cachedInputMicroUsd: 65_003,
    outputMicroUsd: 0,
    further: { request: 57, tiers: [{ above_input_tokens: 1_000, input: 140_009, output: 0 }] },
  });
  await setPrices(deps, "chat-two-routes", { ...base, further: { audio_output: 80_000_017, tiers: TIERS } });
  await setImagePrice(deps, { modelId: "image-a", size: "1024x1024", quality: "high", microUsd: 170_001 });
  await setImagePrice(deps, { modelId: "vendor/chat-b", size: "1024x1024", quality: "standard", microUsd: 33_333 });
  await settledPrices();
});
afterEach(() => shop.provider.reset());
afterAll(async () => {
  await closeBalanced(shop);
  await deps.db.close();
});

/** Waits until the replica charges by the latest price versions. */
async function settledPrices(): Promise<void> {
  const payer = await shop.payer(10n ** 12n);
  for (const model of [...CHAT_MODELS, OWN_MODEL, EMBEDDING_MODEL])
    await until(async () => {
      if (model === EMBEDDING_MODEL) await shop.call("/v1/embeddings", { secret: payer.secret, body: embeddingBody() });
      else await shop.call("/v1/responses", { secret: payer.secret, body: { model, input: "Hello" } });
      const [row] = await shop.world.sql`
        select price_version_id = (select max(id) from price_versions where model_id = ${model}) as latest
        from receipts where model_id = ${model} and outcome = 'settled' order by request_id desc limit 1`;
      return row?.latest === true;
    });
}

type Random = (max: number) => number;

/** A report in one of the shapes of providers, with counts that may exceed their whole, and prompts of every tier. */
function usageOf(random: Random): Record<string, unknown> {
  const prompt = [random(200), 900 + random(200), 19_000 + random(3_000)][random(3)] ?? 1;
  const completion = random(800);
  const some = (max: number) => (random(2) === 0 ? 0 : random(max + 5));
  const usage = { prompt_tokens: prompt, completion_tokens: completion };
  switch (random(5)) {
    case 0:
      return usage;
    case 1:
      return {
        ...usage,
        prompt_tokens_details: {
          ...{ cached_tokens: some(prompt), cache_write_tokens: some(prompt) },
          ...{ audio_tokens: some(99), image_tokens: some(99) },
        },
        completion_tokens_details: {
          ...{ reasoning_tokens: some(completion), audio_tokens: some(99), image_tokens: some(99) },
        },
      };
    case 2:
      return { ...usage, prompt_cache_hit_tokens: some(prompt) };
    case 3:
      return {
        ...usage,
        cache_creation: { ephemeral_5m_input_tokens: some(prompt), ephemeral_1h_input_tokens: some(prompt) },
        cache_read_input_tokens: some(prompt),
      };
    default:
      return { ...usage, total_tokens: prompt + completion + some(500) };
  }
}

/** A request: its path, its body, and whether it is streamed. */
type Asked = { path: string; body: Record<string, unknown>; stream: boolean };
const ENDPOINTS = ["chat", "responses", "own responses", "embeddings", "images"] as const;

function askedOf(
  { endpoint, stream }: { endpoint: (typeof ENDPOINTS)[number]; stream: boolean },
  random: Random,
): Asked {
  const model = CHAT_MODELS[random(CHAT_MODELS.length)];
  switch (endpoint) {
    case "chat":
      return { path: "/v1/chat/completions", body: chatBody({ model, stream, max_tokens: 50 }), stream };
    case "responses":
    case "own responses": {
      const fields = { input: "Tell me about tolls.", stream, max_output_tokens: 50 };
      return {
        path: "/v1/responses",
        body: { ...fields, model: endpoint === "responses" ? model : OWN_MODEL },
        stream,
      };
    }
    case "embeddings":
      return { path: "/v1/embeddings", body: embeddingBody(), stream: false };
    case "images":
      return {
        path: "/v1/images/generations",
        body: imageBody([{ quality: "high" }, { model: "vendor/chat-b" }, {}][random(3)]),
        stream: false,
      };
  }
}

const BEHAVIOURS = 6;
/** Endpoints, whole or streamed, with each behaviour. */
const SITUATIONS = ENDPOINTS.length * 2 * BEHAVIOURS;
const PAYERS = 10;
/** A piece of an answer's text, in the events of chat and of responses. */
const SOME_TEXT = /"(?:content|delta)":"[^"]/;

/** What the provider does: mostly it answers; otherwise it breaks off, reports nothing, or reports while it writes slowly, and is left. */
function behaviourOf(
  which: number,
  { stream, path }: Asked,
  random: Random,
): { behaviour: Behaviour; leaves: boolean } {
  const usage = usageOf(random);
  switch (which) {
    case 0:
      return { behaviour: stream ? { usage, cutAfterChunks: 2 } : { usage, cutAfterBytes: 60 }, leaves: false };
    case 1:
      return { behaviour: { omitUsage: true }, leaves: false };
    case 2:
      return {
        behaviour: stream ? { usage, usageIn: "every", tokens: 40, chunkDelayMs: 10 } : { usage, delayMs: 200 },
        leaves: !path.includes("images"),
      };
    default:
      return { behaviour: { usage }, leaves: false };
  }
}

type Payer = { secret: string; accountId: number };

/** One request to any of the metered endpoints: whole, broken off, left, or beyond what its payer has. */
async function request(random: Random, payers: { rich: Payer; packaged: Payer }): Promise<void> {
  // In each situation somebody who can pay comes first.
  const payer = sent < SITUATIONS ? PAYERS - 1 : random(PAYERS);
  const poor = payer === 1 ? await shop.payer(20_000_000n) : payers.rich;
  const { secret, accountId } = payer === 0 ? payers.packaged : poor;
  // Each endpoint occurs in each situation; the rest is random.
  const place = sent++;
  const endpoint = ENDPOINTS[place % ENDPOINTS.length] ?? "chat";
  const stream = Math.floor(place / ENDPOINTS.length) % 2 === 0;
  const asked = askedOf({ endpoint, stream }, random);
  const name = `${endpoint}${asked.stream ? ", stream" : ""}`;
  const { behaviour, leaves } = behaviourOf(Math.floor(place / ENDPOINTS.length / 2) % BEHAVIOURS, asked, random);
  // Requests run concurrently: the provider identifies each by its mark.
  const user = `request ${place}`;
  const body = { ...asked.body, user };
  const mark = ownName({ secretKey: Buffer.from(TEST_SECRET_KEY, "base64"), accountId }, user);
  shop.provider.when(({ body: received }) => received.includes(`"${mark}"`), behaviour);
  if (!leaves) {
    const { headers } = await shop.call(asked.path, { secret, body });
    endpointOf.set(headers.get("x-request-id"), name);
    return;
  }
  const leaving = new AbortController();
  const headers = { authorization: `Bearer ${secret}`, "content-type": "application/json" };
  const options = { method: "POST", headers, body: JSON.stringify(body), signal: leaving.signal };
  const answer = fetch(`${shop.origin}${asked.path}`, options);
  // The client leaves a whole answer while it waits, and a stream after some of its text.
  if (asked.stream) {
    endpointOf.set((await answer).headers.get("x-request-id"), `${name}, left`);
    const pieces = (await answer).body?.pipeThrough(new TextDecoderStream()) ?? [];
    let text = "";
    for await (const piece of pieces) {
      text += piece;
      if (SOME_TEXT.test(text)) break;
    }
  } else await Promise.race([answer, Bun.sleep(100)]);
  leaving.abort();
  await answer.catch(() => {}); // It was aborted here.
}
let sent = 0;
/** By request id. The id of a whole answer that was left is not known. */
const endpointOf = new Map<string | null, string>();

type Prices = { tokens?: Record<string, unknown>; images?: Record<string, number>; request?: number };

/** The cost of a receipt's counts by a price version: each token is listed, priced by its label, and the sum is rounded up. */
function computedAgain(row: Record<string, unknown>, prices: Prices): bigint {
  const further = (row.further_counts ?? {}) as Record<string, number | string>;
  const micro = 1_000_000n;
  const up = (pico: bigint) => pico / 1000n + (pico % 1000n > 0n ? 1n : 0n);
  if (further.image !== undefined) return up(BigInt(prices.images?.[String(further.image)] ?? -1) * micro);
  const prompt = Number(row.prompt_tokens);
  let rates = prices.tokens as Record<string, number>;
  for (const tier of (prices.tokens?.tiers ?? []) as Record<string, number>[])
    if (prompt > Number(tier.above_input_tokens)) rates = tier;
  const dearest = (...names: string[]) => names.map((name) => rates[name] ?? 0).sort((a, b) => b - a)[0] ?? 0;
  const text = ["input", "cached_input", "cache_write", "cache_write_1h"];
  const unpriced: Record<string, number> = {
    cached_input: dearest("input"),
    reasoning: dearest("output"),
    cache_write: dearest(...text),
    cache_write_1h: dearest(...text),
    audio_input: dearest(...text, "audio_input", "image_input"),
    image_input: dearest(...text, "audio_input", "image_input"),
    audio_output: dearest("output", "reasoning", "audio_output", "image_output"),
    image_output: dearest("output", "reasoning", "audio_output", "image_output"),
  };
  const layOut = (whole: number, labels: string[], rest: string) => {
    const tokens = labels.flatMap((label) => {
      const count = label === "cached_input" ? row.cached_tokens : further[label];
      return new Array<string>(Number(count ?? 0)).fill(label);
    });
    while (tokens.length < whole) tokens.push(rest);
    return tokens.slice(0, whole);
  };
  const input = layOut(
    prompt,
    ["cache_write_1h", "cache_write", "audio_input", "image_input", "cached_input"],
    "input",
  );
  const output = layOut(Number(row.completion_tokens), ["audio_output", "image_output", "reasoning"], "output");
  let pico = BigInt(prices.request ?? 0) * micro;
  for (const label of [...input, ...output]) pico += BigInt(rates[label] ?? unpriced[label] ?? -1);
  return up(pico);
}

test(`the charges of ${REQUESTS} mixed requests, recomputed from their receipts, are exact to the nano-USD`, async () => {
  console.log(`charges: PROPERTY_SEED=${SEED}`);
  const { whole } = randomOf(SEED);
  const random = (max: number) => whole(0, max - 1);
  // Random requests rarely reach this case: a stream that uses more than its payer has.
  for (const model of CHAT_MODELS) {
    const poor = await shop.payer(80_000_000n);
    shop.provider.next({ usage: { prompt_tokens: 90_000, completion_tokens: 500 } });
    await shop.chat(poor.secret, { model, stream: true });
  }
  for (const model of ["vendor/chat-b", OWN_MODEL]) {
    const poor = await shop.payer(80_000_000n);
    shop.provider.next({ usage: { prompt_tokens: 90_000, completion_tokens: 500 } });
    await shop.call("/v1/responses", { secret: poor.secret, body: { model, input: "Hello", stream: true } });
  }
  const payers = {
    rich: await shop.payer(10n ** 13n),
    packaged: await shop.customer(),
  };
  for (let begun = 0; begun < REQUESTS; begun += 10)
    await Promise.all(Array.from({ length: 10 }, () => request(random, payers)));
  // Answers that were left are settled when the provider has answered.
  await until(async () => (await shop.world.sql`select from escrows where nano_usd > idle_nano_usd`).length === 0);
  const rows = await receipts();
  const byEndpoint: Record<string, number> = {};
  const seen = { charged: 0, image: 0, further: 0, tiered: 0, estimated: 0, released: 0, packaged: 0, shortfall: 0 };
  for (const row of rows) {
    const cost = BigInt(row.charged) + BigInt(row.shortfall);
    if (row.outcome === "released" || row.mode === "package") {
      seen[row.outcome === "released" ? "released" : "packaged"]++;
      expect(row.mode === "package" ? cost : BigInt(row.charged)).toBe(0n);
      continue;
    }
    expect({ id: row.id, cost }).toEqual({ id: row.id, cost: computedAgain(row, row.prices) });
    seen.charged++;
    const endpoint = endpointOf.get(row.id) ?? "whole answers, left";
    byEndpoint[endpoint] = (byEndpoint[endpoint] ?? 0) + 1;
    if (row.further_counts?.image !== undefined) seen.image++;
    else if (row.further_counts !== null) seen.further++;
    if (Number(row.prompt_tokens) > 1_000 && row.model_id !== "chat-a") seen.tiered++;
    if (row.estimated) seen.estimated++;
    if (BigInt(row.shortfall) > 0n) seen.shortfall++;
  }
  console.log(`charges: ${JSON.stringify({ ...seen, ...byEndpoint })}`);
  expect(rows.length).toBeGreaterThanOrEqual(REQUESTS * 0.9);
  const names = [
    ...["chat", "responses", "own responses"].flatMap((name) => [name, `${name}, stream`, `${name}, stream, left`]),
    ...["embeddings", "images", "whole answers, left"],
  ];
  expect(names.filter((name) => byEndpoint[name] === undefined)).toEqual([]);
  for (const [kind, count] of Object.entries(seen)) expect({ kind, some: count > 0 }).toEqual({ kind, some: true });
  expect(await shop.world.sql`select * from inv_prices`).toHaveLength(0);
});

const receipts = () => shop.world.sql`
  select r.request_id::text as id, r.model_id, r.outcome, r.mode, r.charged_nano_usd::text as charged,
    r.shortfall_nano_usd::text as shortfall, r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.further_counts,
    r.estimated, v.prices
  from receipts r left join price_versions v on v.id = r.price_version_id order by r.request_id`;

async function brokenPrices(): Promise<number | null | undefined> {
  const results = await check(openSlices(shop.world.sql));
  return results.find(({ name }) => name === "inv_prices")?.rows;
}

async function cliReceipt(id: string): Promise<{ code: number | null; out: string }> {
  const args = ["src/cli.ts", "receipt", id];
  const child = spawn(process.execPath, args, { env: { ...process.env, DATABASE_URL: shop.world.url } });
  const [out, code] = await Promise.all([
    text(child.stdout),
    new Promise<number | null>((resolve) => child.on("exit", resolve)),
  ]);
  return { code, out };
}

test("the check, the view and `cli receipt` find a charge, a count or a price version that was changed by hand", async () => {
  const payer = await shop.payer(10n ** 12n);
  shop.provider.next({
    usage: {
      ...{ prompt_tokens: 1_500, completion_tokens: 20 },
      prompt_tokens_details: { cached_tokens: 500, cache_write_tokens: 100 },
      completion_tokens_details: { reasoning_tokens: 15 },
    },
  });
  const id = (await shop.chat(payer.secret, { model: "vendor/chat-b" })).headers.get("x-request-id") ?? "";
  const exact = await cliReceipt(id);
  expect(exact.code).toBe(0);
  for (const line of [
    /^input +900 +\$4\.000001\/M +\$0\.0036000009 *$/m,
    /^cached_input +500 +\$0\.400009\/M/m,
    /^cache_write +100 +\$4\.000001\/M +\$0\.0004000001 +no price of its own/m,
    /^output +5 +\$16\.000003\/M/m,
    /^reasoning +15 +\$16\.000003\/M/m,
    /^request +1 +\$0\.001234 /m,
    /Sum, rounded up: .*, as charged\./,
  ])
    expect(exact.out).toMatch(line);
  expect(await brokenPrices()).toBe(0);
  for (const [breaks, repairs] of [
    ["shortfall_nano_usd = shortfall_nano_usd + 1", "shortfall_nano_usd = shortfall_nano_usd - 1"],
    ["completion_tokens = completion_tokens + 1", "completion_tokens = completion_tokens - 1"],
    [`further_counts = further_counts || '{"reasoning": 3}'`, `further_counts = further_counts || '{"reasoning": 15}'`],
    ["price_version_id = price_version_id - 1", "price_version_id = price_version_id + 1"],
  ]) {
    // A count of reasoning matters only if it has its own price.
    const matters = !breaks?.startsWith("further");
    await shop.world.sql.unsafe(`update receipts set ${breaks} where request_id = '${id}'`);
    expect(await shop.world.sql`select request_id::text as id from inv_prices`).toEqual(
      matters ? ([{ id }] as never) : ([] as never),
    );
    expect(await brokenPrices()).toBe(matters ? 1 : 0);
    // It is still found, although the sweep has passed it.
    expect(await brokenPrices()).toBe(matters ? 1 : 0);
    if (breaks?.startsWith("completion")) {
      const wrong = await cliReceipt(id);
      expect({ code: wrong.code, isTold: wrong.out.includes("It was charged") }).toEqual({ code: 1, isTold: true });
    }
    await shop.world.sql.unsafe(`update receipts set ${repairs} where request_id = '${id}'`);
    expect(await brokenPrices()).toBe(0);
  }
});

test("an image costs only the price of its size, even if its model has a price per request", async () => {
  const { accountId, secret } = await shop.payer(10n ** 12n);
  const body = imageBody({ model: "vendor/chat-b" });
  expect((await shop.call("/v1/images/generations", { secret, body })).status).toBe(200);
  const [row] = await shop.world.sql`
    select r.charged_nano_usd::text as charged, v.prices from receipts r join price_versions v on v.id = r.price_version_id
    where account_id = ${accountId}`;
  expect(row).toMatchObject({ charged: "33333000", prices: { request: 1_234 } });
});

test("kinds without a price are listed for the operator until they have one", async () => {
  const payer = await shop.payer(10n ** 12n);
  const model = "chat-unlisted";
  const base = { inputMicroUsd: 1_000_000, outputMicroUsd: 2_000_000 };
  await shop.addModels({ id: model, ...base, routes: [{ provider: "first" }] });
  for (let i = 0; i < 2; i++) {
    shop.provider.next({
      usage: {
        ...{ prompt_tokens: 30, completion_tokens: 20 },
        prompt_tokens_details: { cached_tokens: 5, audio_tokens: 7 },
        completion_tokens_details: { reasoning_tokens: 15 },
      },
    });
    await shop.chat(payer.secret, { model });
  }
  const ofModel = async () => {
    expect(await foldAll(openSlices(shop.world.sql))).toBe(true);
    return (await listUnpriced(shop.world.sql)).filter(({ modelId }) => modelId === model);
  };
  expect(await ofModel()).toMatchObject([{ modelId: model, kind: "audio_input", tokens: 14n, requests: 2 }]);
  await setPrices(deps, model, { ...base, further: { audio_input: 9_000_000 } });
  expect(await ofModel()).toEqual([]);

  // A tier inherits no rate: what only the tier lacks is listed too, once a request has reached it.
  const tier = { above_input_tokens: 1_000, input: 2_000_000, output: 4_000_000 };
  const prices = { image_output: 5_000_000, audio_input: 9_000_000 };
  await setPrices(deps, model, { ...base, further: { ...prices, tiers: [{ ...tier, audio_input: 9_000_000 }] } });
  const latest = async () => {
    const [row] = await shop.world.sql`
      select price_version_id = (select max(id) from price_versions where model_id = ${model}) as is_latest
      from receipts where model_id = ${model} order by request_id desc limit 1`;
    return row?.is_latest === true;
  };
  await until(async () => (await shop.chat(payer.secret, { model })).status === 200 && (await latest()));
  for (const prompt_tokens of [30, 2_000]) {
    const completion_tokens_details = { image_tokens: 11 };
    shop.provider.next({ usage: { prompt_tokens, completion_tokens: 20, completion_tokens_details } });
    await shop.chat(payer.secret, { model });
  }
  expect(await ofModel()).toMatchObject([{ modelId: model, kind: "image_output", tokens: 11n, requests: 1 }]);
  await setPrices(deps, model, { ...base, further: { ...prices, tiers: [{ ...tier, ...prices }] } });
  expect(await ofModel()).toEqual([]);
});
