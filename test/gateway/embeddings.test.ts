import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { COUNTING } from "../replica.ts";
import { closeBalanced, endFaults, expectRefusal, withoutEffect } from "./checks.ts";
import { gaugeOf } from "./metrics_reader.ts";
import { embeddingBody, openShop, PRICES, type Shop } from "./shop.ts";

/**
 * Embeddings: the forms of the input and of the answer, its order, the limits, and what is charged. What all metered endpoints have in
 * common is in metered_endpoints.test.ts. Source: EMB-1, EMB-2, EMB-3, EMB-4, EMB-5.
 */
const BALANCE = 1_000_000_000;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ env: COUNTING });
});
afterEach(() => endFaults(shop, embed));
afterAll(() => closeBalanced(shop));

const embed = (secret: string, over: Record<string, unknown> = {}) =>
  shop.call("/v1/embeddings", { secret, body: embeddingBody(over) });
const sentBody = () => JSON.parse(shop.provider.lastCall()?.body ?? "{}");
const numbersOf = (base64: string) => [...new Float32Array(new Uint8Array(Buffer.from(base64, "base64")).buffer)];
/** An answer of a provider. */
const answerOf = (data: unknown, more: object = { usage: { prompt_tokens: 5, total_tokens: 5 } }) => ({
  body: JSON.stringify({ object: "list", data, model: "theirs", ...more }),
});
const item = (embedding: unknown, index: unknown = 0) => ({ object: "embedding", index, embedding });

describe("the input", () => {
  test.each([
    ["a text", "A toll gate", 1],
    ["a text of one space", " ", 1],
    ["texts", ["A toll gate", "A road", "été 🚦"], 3],
    ["token ids", [1, 2, 3, 0], 1],
    ["arrays of token ids", [[1, 2], [3], [2 ** 31 - 1]], 3],
    ["2,048 texts", Array.from({ length: 2_048 }, (_, i) => `text ${i}`), 2_048],
    ["8,192 token ids", Array.from({ length: 8_192 }, (_, i) => i), 1],
    ["300,000 token ids", Array.from({ length: 40 }, () => Array.from({ length: 7_500 }, (_, i) => i)), 40],
  ])("%s is sent on unchanged, and each input gets its embedding", async (_, input, count) => {
    const { secret, accountId } = await shop.customer({ requestBounds: { inputs: 2_048 } });
    const { status, json } = await embed(secret, { input, dimensions: 8 });
    expect(status).toBe(200);
    expect(sentBody()).toEqual({ model: "up-embed-a", input, dimensions: 8, encoding_format: "base64" });
    expect(Object.keys(json)).toEqual(["object", "data", "model", "usage"]);
    expect(json).toMatchObject({ object: "list", model: "embed-a" });
    expect(json.data).toHaveLength(count);
    for (const [index, one] of json.data.entries()) {
      expect(one).toEqual({ object: "embedding", index, embedding: expect.any(Array) });
      expect(one.embedding).toHaveLength(8);
    }
    expect(json.usage.total_tokens).toBe(json.usage.prompt_tokens);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
  });

  // The others are in test/http/body_cases.ts.
  test.each<[what: string, over: Record<string, unknown>, param: string]>([
    ["300,001 token ids", { input: [...Array(40).fill(Array(7_500).fill(1)), [1]] }, "input"],
    ["500,000 token ids", { input: Array(100).fill(Array(5_000).fill(1)) }, "input.79"],
    ["a text of more than 1 MiB", { input: ["x", "é".repeat(524_289)] }, "input.1"],
  ])("%s: 400 with its param; nothing is charged, nothing sent", async (_, over, param) => {
    const { secret } = await shop.payer(BigInt(BALANCE));
    await withoutEffect(shop, async () => expectRefusal(await embed(secret, over), "invalid_request", { param }));
  });

  test("only embeddings may have more numbers than the value limit of other bodies", async () => {
    const { secret } = await shop.payer(BigInt(BALANCE));
    await withoutEffect(shop, async () => {
      const { status, json } = await shop.chat(secret, { x: Array(100_001).fill(1) });
      expect({ status, param: json.error.param }).toEqual({ status: 400, param: "x" });
    });
  });

  test("an embedding model serves neither chat nor images", async () => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () => {
      const chat = await shop.chat(secret, { model: "embed-a" });
      expectRefusal(chat, "invalid_request", { param: "model" });
      expect(chat.json.error.message).toBe("The model does not serve chat.");
      const body = { model: "embed-a", prompt: "A toll gate" };
      const image = await shop.call("/v1/images/generations", { secret, body });
      expectRefusal(image, "invalid_request", { param: "model" });
    });
  });
});

describe("encoding_format is always honored", () => {
  const VECTORS = [
    [1, -0.5, 0.25, 1e-30],
    [0, 3.4e38, -1.25, 2],
  ];
  const base64 = VECTORS.map((numbers) => Buffer.from(Float32Array.from(numbers).buffer).toString("base64"));
  const inLines = (text: string) =>
    `${text.slice(0, 6)}\r\n${text.slice(6)}\n`.replaceAll("+", "-").replaceAll("/", "_");
  const floats = VECTORS.map((numbers) => [...Float32Array.from(numbers)]);

  for (const [sent, data] of [
    ["floats", VECTORS.map(item)],
    ["base64", base64.map(item)],
    ["base64 without padding", base64.map((text, i) => item(text.replace(/=+$/, ""), i))],
    ["the opposite order", VECTORS.map(item).reverse()],
    ["no index", VECTORS.map((embedding) => ({ embedding }))],
    ["the index 0 in all", VECTORS.map((embedding) => item(embedding, 0))],
    ["indexes from 1", VECTORS.map((embedding, i) => item(embedding, i + 1))],
    ["base64 with line breaks and the letters of URLs", base64.map((text, i) => item(inLines(text), i))],
  ] as const) {
    test(`the provider sends ${sent}`, async () => {
      const { secret } = await shop.customer();
      for (const asked of [{}, { encoding_format: null }, { encoding_format: "float" }]) {
        shop.provider.next(answerOf(data));
        const { json } = await embed(secret, { input: ["a", "b"], ...asked });
        expect(json.data.map((one: { index: number }) => one.index)).toEqual([0, 1]);
        for (const [i, one] of json.data.entries())
          expect([...Float32Array.from(one.embedding)]).toEqual(floats[i] as number[]);
      }
      shop.provider.next(answerOf(data));
      const { json } = await embed(secret, { input: ["a", "b"], encoding_format: "base64" });
      expect(json.data).toEqual(base64.map(item));
    });
  }

  test("base64 encodes the same numbers as little-endian float32", async () => {
    const { secret } = await shop.customer();
    const [one, other] = [await embed(secret), await embed(secret, { encoding_format: "base64" })];
    expect(numbersOf(other.json.data[0].embedding)).toEqual(one.json.data[0].embedding);
    const first = Buffer.from(other.json.data[0].embedding, "base64").readFloatLE(0);
    expect(first).toBe(one.json.data[0].embedding[0]);
  });
});

describe("an answer that is not an embedding for each input: 503, released, nothing charged", () => {
  const vector = [1, 2];
  test.each<[string, object]>([
    ["fewer embeddings than inputs", answerOf([item(vector)])],
    ["more embeddings than inputs", answerOf([item(vector), item(vector, 1), item(vector, 2)])],
    ["an index below zero", answerOf([item(vector), item(vector, -1)])],
    ["an index that no input has", answerOf([item(vector), item(vector, 2)])],
    ["an index with a fraction", answerOf([item(vector), item(vector, 0.5)])],
    ["an index that is a word", answerOf([item(vector), item(vector, "one")])],
    ["no data", answerOf(undefined)],
    ["data of numbers", answerOf([1, 2])],
    ["an empty embedding", answerOf([item(vector), item([], 1)])],
    ["no embedding", answerOf([item(vector), item(null, 1)])],
    ["a number that is null", answerOf([item(vector), item([1, null], 1)])],
    ["a number that float32 does not have", answerOf([item(vector), item([1, 1e39], 1)])],
    ["a text among numbers", answerOf([item(vector), item([1, "2"], 1)])],
    ["base64 of 3 bytes", answerOf([item("AAAA"), item("AAAA", 1)])],
    ["base64 of infinity", answerOf([item("AACAfw=="), item("AACAfw==", 1)])],
    ["text that is not base64", answerOf([item("AAAA AAA="), item("AAAA AAA=", 1)])],
    ["embeddings of different dimensions", answerOf([item(vector), item([1], 1)])],
    ["an error", { status: 500 }],
    ["no JSON", { html: true }],
    ["a list", { body: "[]" }],
    ["an answer that breaks off", { cutAfterBytes: 50 }],
    ["an answer above the limit", { giantLineBytes: 65 * 1024 * 1024 }],
  ])("%s", async (_, behaviour) => {
    const { secret, accountId } = await shop.payer(BigInt(BALANCE));
    shop.provider.next(behaviour);
    expectRefusal(await embed(secret, { input: ["a", "b"] }), "provider_unavailable");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, balance: BALANCE });
  });
});

describe("a provider that sends numbers in place of base64", () => {
  const many = (count: number) => Array.from({ length: count }, () => "a");
  /** As long as 3,072 numbers a text would be. */
  const TOO_LARGE = { giantLineBytes: 70 * 1024 * 1024 };

  test("is asked only once for so many that its answer cannot be read: then 400, and fewer are still sent", async () => {
    const { secret, accountId } = await shop.payer(BigInt(BALANCE));
    const before = shop.provider.callCount();
    shop.provider.next(TOO_LARGE);
    expectRefusal(await embed(secret, { input: many(2_048) }), "provider_unavailable");
    for (const over of [{ input: many(2_048) }, { input: many(2_048), encoding_format: "base64" }])
      expectRefusal(await embed(secret, over), "invalid_request");
    expect(shop.provider.callCount()).toBe(before + 1);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 3, holds: 0, balance: BALANCE });
    expect((await embed(secret, { input: many(1_536), encoding_format: "base64" })).status).toBe(200);
  });

  test("the same for requests that say their dimensions, by the numbers of their answers", async () => {
    const { secret } = await shop.payer(BigInt(BALANCE));
    shop.provider.next(TOO_LARGE);
    expectRefusal(await embed(secret, { input: many(1_200), dimensions: 3_072 }), "provider_unavailable");
    expectRefusal(await embed(secret, { input: many(1_800), dimensions: 2_048 }), "invalid_request");
    expect((await embed(secret, { input: many(1_200), dimensions: 64 })).status).toBe(200);
  });

  test("an oversized answer to few embeddings is garbage, and closes nothing", async () => {
    const { secret } = await shop.payer(BigInt(BALANCE));
    shop.provider.next(TOO_LARGE);
    expectRefusal(await embed(secret, { input: many(3) }), "provider_unavailable");
    expect((await embed(secret, { input: many(3) })).status).toBe(200);
  });
});

describe("money", () => {
  const receiptOf = async (accountId: number) => {
    const [receipt] = await shop.world.sql`select * from receipts where account_id = ${accountId}`;
    return receipt;
  };
  const price = PRICES.inputMicroUsd / 1000;

  test("the reported tokens are charged at the input price; the client sees them", async () => {
    const { secret, accountId } = await shop.payer(BigInt(BALANCE));
    shop.provider.next({ usage: { prompt_tokens: 7 } });
    const { json } = await embed(secret);
    expect(json.usage).toEqual({ prompt_tokens: 7, completion_tokens: 0, total_tokens: 7 });
    expect(await receiptOf(accountId)).toMatchObject({
      prompt_tokens: 7,
      completion_tokens: 0,
      estimated: false,
      charged_nano_usd: String(7 * price),
    });
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, balance: BALANCE - 7 * price });
  });

  test("a provider may report only the total", async () => {
    const { secret, accountId } = await shop.payer(BigInt(BALANCE));
    shop.provider.next(answerOf([item([1])], { usage: { total_tokens: 9 } }));
    expect((await embed(secret)).json.usage).toEqual({ prompt_tokens: 9, completion_tokens: 0, total_tokens: 9 });
    expect(await receiptOf(accountId)).toMatchObject({ prompt_tokens: 9, estimated: false });
  });

  test.each<[what: string, behaviour: object]>([
    ["no usage", { omitUsage: true }],
    ["a usage of zero", { usage: { prompt_tokens: 0, total_tokens: 0 } }],
    ["a usage that is not a count", { usage: { prompt_tokens: "five", total_tokens: null } }],
  ])("%s: the input is counted, and the receipt says that it is estimated", async (_, behaviour) => {
    for (const [input, tokens] of [
      ["A toll gate at dawn", 5],
      [["A toll gate", "at dawn"], 5],
      [[[1, 2, 3], [4]], 4],
      [[9, 9, 9], 3],
    ] as const) {
      const { secret, accountId } = await shop.payer(BigInt(BALANCE));
      shop.provider.next(behaviour);
      const { json } = await embed(secret, { input });
      expect(Math.abs(json.usage.prompt_tokens - tokens)).toBeLessThanOrEqual(typeof input[0] === "string" ? 1 : 0);
      expect(json.usage.total_tokens).toBe(json.usage.prompt_tokens);
      expect(await receiptOf(accountId)).toMatchObject({ prompt_tokens: json.usage.prompt_tokens, estimated: true });
    }
  });

  test("the hold bounds the tokens: a balance below the bound gets 402, and an answer within the bound is always paid", async () => {
    const ids = Array.from({ length: 1_000 }, (_, i) => i);
    const short = await shop.payer(BigInt(1_000 * price - 1));
    await withoutEffect(shop, async () =>
      expectRefusal(await embed(short.secret, { input: ids }), "insufficient_balance"),
    );
    // Up to 8 tokens are reserved for each input, and as many for the request.
    const enough = await shop.payer(BigInt(1_016 * price));
    expect((await embed(enough.secret, { input: ids })).status).toBe(200);
    expect(await shop.counters(enough.accountId)).toMatchObject({ usage: 1, holds: 0, balance: 16 * price });
  });

  test("a token allowance is charged with the tokens of the input, and reserves no output", async () => {
    const { secret, accountId } = await shop.customer({ tokenLimit: 100 });
    expect((await embed(secret, { input: [1, 2, 3] })).status).toBe(200);
    const [row] = await shop.world.sql`select tokens_taken::int as used from packages where account_id = ${accountId}`;
    expect(row).toEqual({ used: 3 });
    // A request that may use more than what is left is refused.
    const refuse = async () =>
      expectRefusal(await embed(secret, { input: Array(98).fill(1) }), "package_quota_exceeded");
    await withoutEffect(shop, refuse);
    expect((await embed(secret, { input: Array(60).fill(1) })).status).toBe(200);
  });
});

test("dropped parameters are named; those that the route allows are sent on", async () => {
  const { secret } = await shop.customer();
  const more = { user: "u1", input_type: "query", truncate: "END" };
  const { status, headers } = await embed(secret, more);
  expect({ status, dropped: headers.get("x-dropped-params") }).toEqual({
    status: 200,
    dropped: "input_type, truncate",
  });
  expect(sentBody()).toEqual({
    ...embeddingBody(),
    model: "up-embed-a",
    user: expect.stringMatching(/^[\w-]{43}$/),
    encoding_format: "base64",
  });
});

test("the model is listed with its modality", async () => {
  const { secret } = await shop.customer();
  const { json } = await shop.call("/v1/models/embed-a", { secret });
  expect(json).toMatchObject({ id: "embed-a", object: "model", modality: "embedding" });
});

test("a short request may have a large answer: its expected size takes memory of the account's share, until the answer is sent", async () => {
  const MIB = 1024 * 1024;
  const replica = await shop.start({
    ...{
      INTERNAL_PORT: "0",
      BODY_BYTES_MAX: String(MIB),
      BODY_MEMORY_MAX: String(8 * MIB),
      ACCOUNT_SHARE: "0.375",
      TENANT_SHARE: "0.375",
    },
  });
  const spec = { requestBounds: { inputs: 2_000 } };
  const [{ secret }, neighbour] = [await shop.customer(spec), await shop.customer(spec)];
  // 2,000 × 128 numbers are 1.3 MiB, and an account has 3 MiB. As much as a largest body is counted.
  const body = embeddingBody({ input: Array.from({ length: 2_000 }, () => "x"), dimensions: 128 });
  const send = (by: string) => shop.call("/v1/embeddings", { secret: by, body, origin: replica.origin });
  const { held, open } = shop.provider.gate();
  for (let i = 0; i < 2; i++) shop.provider.next(held);
  const first = [send(secret), send(secret)];
  await shop.provider.waitForCalls(2);
  expectRefusal(await send(secret), "too_many_requests");
  expect(await gaugeOf(replica, "body_bytes")).toBe(2 * (MIB + JSON.stringify(body).length));
  expect((await send(neighbour.secret)).status).toBe(200);
  open();
  expect((await Promise.all(first)).map(({ status }) => status)).toEqual([200, 200]);
  expect(await gaugeOf(replica, "body_bytes")).toBe(0);
  // Numbers as text have four times the bytes of base64.
  for (const [form, bytesANumber] of [
    ["float", 22],
    ["base64", 16 / 3],
  ] as const) {
    const small = { ...body, dimensions: 16, encoding_format: form };
    const calls = shop.provider.callCount();
    const one = shop.provider.gate();
    shop.provider.next(one.held);
    const sending = shop.call("/v1/embeddings", { secret, body: small, origin: replica.origin });
    await shop.provider.waitForCalls(calls + 1);
    const expected = JSON.stringify(small).length + Math.ceil(2_000 * 16 * bytesANumber);
    expect(await gaugeOf(replica, "body_bytes")).toBe(expected);
    one.open();
    expect((await sending).status).toBe(200);
  }
  await replica.stop();
});
