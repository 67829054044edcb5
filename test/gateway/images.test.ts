import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, endFaults, expectRefusal, withoutEffect } from "./checks.ts";
import { imageBody, openShop, PRICES, type Shop } from "./shop.ts";

/**
 * Images: `response_format` is honored whatever the provider returns. Source: API-7, END-4, IMG-1, IMG-2, IMG-4.
 */
let shop: Shop;

beforeAll(async () => {
  shop = await openShop();
});
afterEach(() => endFaults(shop, image));
afterAll(() => closeBalanced(shop));

const image = (secret: string, over: Record<string, unknown> = {}) =>
  shop.call("/v1/images/generations", { secret, body: imageBody(over) });
const PNG = /^iVBORw0KGgo/;
const WEBP = Buffer.from("RIFF\x04\x00\x00\x00WEBPVP8 >>>???").toString("base64");

describe("response_format is always honored", () => {
  for (const imageReturn of ["url", "b64", "both"] as const) {
    test(`b64_json, the provider returns ${imageReturn}`, async () => {
      const { secret, accountId } = await shop.customer();
      shop.provider.next({ imageReturn });
      const { status, json } = await image(secret, { response_format: "b64_json" });
      expect(status).toBe(200);
      expect(json.data.length).toBe(1);
      expect(json.data[0].b64_json).toMatch(PNG);
      expect(json.data[0]).not.toHaveProperty("url");
      expect(json.data[0].revised_prompt).toBeString();
      expect(json.created).toBeInteger();
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
    });

    for (const asked of [{ response_format: "url" }, {}, { response_format: null }]) {
      test(`${JSON.stringify(asked)}: a URL, the provider returns ${imageReturn}`, async () => {
        const { secret } = await shop.customer();
        shop.provider.next({ imageReturn });
        const { status, json } = await image(secret, asked);
        expect(status).toBe(200);
        const [item] = json.data;
        expect(item).not.toHaveProperty("b64_json");
        const bytes = Buffer.from(await (await fetch(item.url)).arrayBuffer());
        expect(bytes.toString("base64")).toMatch(PNG);
        if (imageReturn === "b64") expect(item.url).toStartWith("data:image/png;base64,");
        else expect(item.url).toStartWith(`${shop.origin}/v1/images/files/`);
      });
    }
  }

  test("a data URL from the provider is decoded; nothing is fetched", async () => {
    const { secret } = await shop.customer();
    shop.provider.next({ imageReturn: "url", imageUrl: `data:image/webp;base64,${WEBP}` });
    const { json } = await image(secret, { response_format: "b64_json" });
    expect(json.data[0].b64_json).toBe(WEBP);
    expect(shop.provider.counters().calls).toBe(1);
  });
});

describe("base64 of the provider's is sent on as strict base64 of an image", () => {
  const inLines = `${WEBP.slice(0, 20)}\r\n${WEBP.slice(20)}\n`;
  const forUrls = WEBP.replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
  const address = () => `http://127.0.0.1:${shop.provider.port}`;
  test.each<[string, object]>([
    ["base64", { b64_json: WEBP }],
    ["a data URL in b64_json", { b64_json: `data:image/webp;base64,${WEBP}` }],
    ["a data URL that says another type", { b64_json: `data:image/png;base64,${WEBP}` }],
    ["a data URL with a parameter", { url: `data:image/webp;charset=utf-8;base64,${inLines}` }],
    ["line breaks", { b64_json: inLines }],
    ["the letters of URLs, without padding", { b64_json: forUrls }],
    ["base64 in url", { url: WEBP }],
    ["empty beside a data URL", { b64_json: "", url: `data:image/webp;base64,${forUrls}` }],
  ])("%s", async (_, data) => {
    expect(WEBP).toMatch(/[+/]/);
    const { secret } = await shop.customer();
    for (const [format, expected] of [
      ["b64_json", { b64_json: WEBP }],
      ["url", { url: `data:image/webp;base64,${WEBP}` }],
    ] as const) {
      shop.provider.next({ body: JSON.stringify({ created: 1_763_856_000_123, data: [data] }) });
      const { json } = await image(secret, { response_format: format });
      expect(json).toMatchObject({ created: 1_763_856_000, data: [expected] });
    }
  });

  test("an address in b64_json is an address", async () => {
    const { secret } = await shop.customer();
    shop.provider.next({ body: JSON.stringify({ data: [{ b64_json: `${address()}/x.png` }] }) });
    const { json } = await image(secret, { response_format: "url" });
    expect(json.data[0].url).toStartWith(`${shop.origin}/v1/images/files/`);
  });

  test.each([
    ["text", "Sorry, I cannot draw this."],
    ["base64 of something else", Buffer.from("<html>no image</html>").toString("base64")],
    ["a data URL of something else", `data:image/png;base64,${Buffer.from("no image").toString("base64")}`],
    ["a data URL without base64", "data:image/svg+xml,<svg/>"],
    ["a cut character", WEBP.slice(0, 29)],
    ["padding in the middle", `${WEBP.slice(0, 8)}==${WEBP.slice(8)}`],
  ])("%s is no image: 503, nothing charged", async (_, b64_json) => {
    const { secret, accountId } = await shop.payer(1_000_000_000n);
    shop.provider.next({ body: JSON.stringify({ created: 1, data: [{ b64_json }] }) });
    expectRefusal(await image(secret), "provider_unavailable");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, balance: 1_000_000_000 });
  });
});

describe("the provider returns no image: 503, released, nothing charged", () => {
  test.each([
    ["data with neither", { imageReturn: "none" as const }],
    ["no data", { imageReturn: "empty" as const }],
    ["an error", { status: 500 }],
    ["no JSON", { html: true }],
    ["JSON of another kind", { body: '{"created":1}' }],
    ["data that is no list of objects", { body: '{"created":1,"data":["x"]}' }],
    ["a cut", { cutAfterBytes: 50 }],
  ])("%s", async (_, behaviour) => {
    const { secret, accountId } = await shop.payer(1_000_000_000n);
    shop.provider.next(behaviour);
    expectRefusal(await image(secret), "provider_unavailable");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, balance: 1_000_000_000 });
  });

  test("a refused prompt is a 400 with the provider's message, released", async () => {
    const { secret, accountId } = await shop.customer();
    const error = {
      message: "Your prompt was rejected by our safety system.",
      type: "invalid_request_error",
      code: "content_policy_violation",
      param: "prompt",
    };
    shop.provider.next({ status: 400, body: JSON.stringify({ error }) });
    const answer = await image(secret);
    expectRefusal(answer, "invalid_request", { param: "prompt" });
    expect(answer.json.error.message).toContain("safety system");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, units: 0 });
  });
});

describe("the guard on fetching", () => {
  /** A server on this machine that is not allowed; it counts its requests. */
  async function startPrivateServer() {
    let visits = 0;
    const server = createServer((_, response) => {
      visits++;
      response.end("private");
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    return { port, visits: () => visits, close: () => new Promise((resolve) => server.close(resolve)) };
  }

  test("private addresses that are not allowed are refused, in any notation", async () => {
    const inside = await startPrivateServer();
    for (const url of [
      `http://127.0.0.1:${inside.port}/x.png`,
      `http://localhost:${inside.port}/x.png`,
      `http://[::ffff:127.0.0.1]:${inside.port}/x.png`,
      `http://2130706433:${inside.port}/x.png`,
    ]) {
      shop.provider.reset();
      const { secret, accountId } = await shop.customer();
      shop.provider.next({ imageReturn: "url", imageUrl: url });
      const answer = await image(secret, { response_format: "b64_json" });
      expectRefusal(answer, "provider_unavailable");
      expect(answer.text).not.toContain(String(inside.port));
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, units: 0 });
    }
    expect(inside.visits()).toBe(0);
    await inside.close();
  });

  test.each([
    "http://169.254.169.254/latest/meta-data/",
    "http://10.0.0.1/x.png",
    "file:///etc/passwd",
    "ftp://example.com/x",
    "http://user:word@example.com/x",
  ])("%s is refused", async (imageUrl) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ imageReturn: "url", imageUrl });
    expectRefusal(await image(secret, { response_format: "b64_json" }), "provider_unavailable");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1 });
  });

  test("a redirect is not followed", async () => {
    const inside = await startPrivateServer();
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ imageReturn: "url" });
    shop.provider.when((call) => call.path.startsWith("/images/"), {
      redirectTo: `http://127.0.0.1:${inside.port}/x.png`,
    });
    expectRefusal(await image(secret, { response_format: "b64_json" }), "provider_unavailable");
    expect(inside.visits()).toBe(0);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1 });
    await inside.close();
  });

  test("an image URL that returns an error or breaks off is not an image", async () => {
    for (const behaviour of [{ status: 404 }, { cutAfterBytes: 10 }]) {
      const { secret, accountId } = await shop.customer();
      shop.provider.reset();
      shop.provider.next({ imageReturn: "url" });
      shop.provider.when((call) => call.path.startsWith("/images/"), behaviour);
      expectRefusal(await image(secret, { response_format: "b64_json" }), "provider_unavailable");
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1 });
    }
  });
});

describe("size and money", () => {
  const sentBody = () => JSON.parse(shop.provider.lastCall()?.body ?? "{}");

  test.each([{}, { size: null }])("without a size, 1024x1024 is requested upstream and charged (%j)", async (over) => {
    const { secret, accountId } = await shop.payer(1_000_000_000n);
    expect((await image(secret, over)).status).toBe(200);
    expect(sentBody()).toEqual({ ...imageBody(), model: "up-image-a", size: "1024x1024" });
    expect(await shop.counters(accountId)).toMatchObject({
      usage: 1,
      holds: 0,
      balance: 1_000_000_000 - PRICES.imageMicroUsd * 1000,
    });
  });

  test("each size has its price: it is reserved and charged; a balance one nano-USD short gets 402, an exact one ends at zero", async () => {
    await shop.world.sql`insert into image_prices (model_id, size, micro_usd) values ('image-a', '512x512', 7000)`;
    const { secret, accountId } = await shop.payer(7_000_000n);
    await until(async () => (await image(secret, { size: "512x512" })).status === 200);
    expect(sentBody().size).toBe("512x512");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, balance: 0 });
    const [receipt] = await shop.world.sql`select * from receipts where account_id = ${accountId}`;
    expect(receipt).toMatchObject({ charged_nano_usd: "7000000", held_nano_usd: "7000000", estimated: false });
    const short = await shop.payer(6_999_999n);
    await withoutEffect(shop, async () =>
      expectRefusal(await image(short.secret, { size: "512x512" }), "insufficient_balance"),
    );
  });

  test("a size without a price takes one unit of a package", async () => {
    const customer = await shop.customer();
    expect((await image(customer.secret, { size: "1536x1024" })).status).toBe(200);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 1, units: 1 });
  });
});
