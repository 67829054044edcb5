import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { closeBalanced, expectRefusal } from "../gateway/checks.ts";
import { type Answer, imageBody, openShop, PRICES, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { signInTo } from "./panel_client.ts";
import { untilRefused } from "./stored.ts";

/** Receipts in the panel: what a request cost, and why. Source: USE-3, PAN-4. */

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
});
afterAll(() => closeBalanced(shop));

const idOf = (answer: Answer) => answer.headers.get("x-request-id") ?? "";

const pricedPart = ({ part, count, pricePicoUsd }: Record<string, unknown>) => [
  part,
  count,
  Number(BigInt(String(pricePicoUsd)) / 1_000_000n),
];

describe("a receipt", () => {
  test("of a request paid by balance has the amounts reserved, charged and released, and each part at its price", async () => {
    const payer = await shop.payer(1_000_000_000n);
    const session = await signInTo(shop, payer);
    const id = idOf(await shop.chat(payer.secret, { max_tokens: 1000 }));
    const { json } = await session.get(`/receipts/${id.toUpperCase()}`);
    expect(json).toMatchObject({ requestId: id, status: "settled", reason: "complete", mode: "payg", package: null });
    expect(json.keyMasked).toMatch(/^sk-.*….{4}$/);
    const charged = BigInt(json.chargedNanoUsd);
    expect(BigInt(json.heldNanoUsd) - charged).toBe(BigInt(json.givenBackNanoUsd));
    expect(charged).toBeGreaterThan(0n);
    expect(BigInt(json.givenBackNanoUsd)).toBeGreaterThan(0n);
    expect(json.lines.map(pricedPart)).toEqual([
      ["input", json.promptTokens, PRICES.inputMicroUsd],
      ["output", json.completionTokens, PRICES.outputMicroUsd],
    ]);
    const atto = json.lines.reduce(
      (sum: bigint, line: { amountAttoUsd: string }) => sum + BigInt(line.amountAttoUsd),
      0n,
    );
    expect((atto + 999_999_999n) / 1_000_000_000n).toBe(charged);
    expect(Date.parse(json.pricesFrom)).toBeLessThan(Date.parse(json.createdAt));

    await shop.world.sql`update receipts set charged_nano_usd = charged_nano_usd - 1 where request_id = ${id}`;
    // The prices do not add up to the charge, so no parts are shown.
    expect((await session.get(`/receipts/${id}`)).json.lines).toBeNull();
    await shop.world.sql`update receipts set charged_nano_usd = charged_nano_usd + 1 where request_id = ${id}`;
  });

  test("of an image has one image at its price", async () => {
    const payer = await shop.payer(1_000_000_000n);
    const answer = await shop.call("/v1/images/generations", { secret: payer.secret, body: imageBody() });
    const { json } = await (await signInTo(shop, payer)).get(`/receipts/${idOf(answer)}`);
    expect(json.lines).toEqual([
      {
        part: "image",
        count: 1,
        hasOwnPrice: true,
        pricePicoUsd: String(PRICES.imageMicroUsd * 1_000_000),
        amountAttoUsd: String(BigInt(PRICES.imageMicroUsd) * 10n ** 12n),
      },
    ]);
    expect(json.chargedNanoUsd).toBe(String(PRICES.imageMicroUsd * 1000));
  });

  test("a request is charged and shown at the prices at which it was reserved, also when they change during it", async () => {
    const model = "chat-repriced";
    const admin = await signInTo(shop, await shop.world.addAdmin());
    const payer = await shop.payer(1_000_000_000n);
    const session = await signInTo(shop, payer);
    const [provider] = (await admin.get("/admin/providers")).json.providers;
    const old = { inputMicroUsd: 1_000_000, cachedInputMicroUsd: 250_000, outputMicroUsd: 3_000_000 };
    const next = { inputMicroUsd: 2_000_000, cachedInputMicroUsd: null, outputMicroUsd: 7_000_000 };
    expect((await admin.post("/admin/models", { id: model, prices: old })).status).toBe(200);
    const routed = await admin.post("/admin/routes", { modelId: model, providerId: provider.id, upstreamModel: "m" });
    expect(routed.status).toBe(200);
    const usage = { prompt_tokens: 30, completion_tokens: 7, prompt_tokens_details: { cached_tokens: 10 } };
    const ask = () => shop.chat(payer.secret, { model, max_tokens: 100 });
    const receipt = async (answer: Answer) => (await session.get(`/receipts/${idOf(answer)}`)).json;
    const parts = ({ lines }: { lines: Record<string, unknown>[] }) => lines.map(pricedPart);

    // The replica learns of the model a moment later.
    await until(async () => (await ask()).status === 200);
    shop.provider.next({ usage });
    const before = await ask();
    // Reserved at the old prices, settled under the new ones.
    const { held, open } = shop.provider.gate({ usage });
    shop.provider.next(held);
    const under = ask();
    await until(async () => (await shop.counters(payer.accountId)).holds === 1);
    expect((await admin.put(`/admin/model/prices?id=${model}`, { prices: next })).status).toBe(200);
    open();
    const between = await under;
    shop.provider.next({ usage });
    const after = await ask();

    for (const answer of [before, between]) {
      const found = await receipt(answer);
      expect(parts(found)).toEqual([
        ["input", 20, old.inputMicroUsd],
        ["cached_input", 10, old.cachedInputMicroUsd],
        ["output", 7, old.outputMicroUsd],
      ]);
      expect(found.chargedNanoUsd).toBe(String((20 * 1_000_000 + 10 * 250_000 + 7 * 3_000_000) / 1000));
    }
    const found = await receipt(after);
    expect(parts(found)).toEqual([
      ["input", 20, next.inputMicroUsd],
      ["cached_input", 10, next.inputMicroUsd],
      ["output", 7, next.outputMicroUsd],
    ]);
    expect(found.chargedNanoUsd).toBe(String((30 * 2_000_000 + 7 * 7_000_000) / 1000));
    expect(Date.parse(found.pricesFrom)).toBeGreaterThan(Date.parse((await receipt(between)).pricesFrom));
  });

  test("an image is shown at the price at which it was charged, also when that changes or is removed", async () => {
    const admin = await signInTo(shop, await shop.world.addAdmin());
    const payer = await shop.payer(1_000_000_000n);
    const answer = await shop.call("/v1/images/generations", { secret: payer.secret, body: imageBody() });
    expect(answer.status).toBe(200);
    const price = (microUsd: number | null) =>
      admin.put("/admin/model/image-price?id=image-a", { size: "1024x1024", microUsd });
    const session = await signInTo(shop, payer);
    const lines = async () => (await session.get(`/receipts/${idOf(answer)}`)).json.lines;
    const kept = await lines();
    expect(kept).toMatchObject([{ part: "image", count: 1, pricePicoUsd: String(PRICES.imageMicroUsd * 1_000_000) }]);
    for (const changed of [PRICES.imageMicroUsd * 2, null]) {
      expect((await price(changed)).status).toBe(200);
      expect(await lines()).toEqual(kept);
    }
    expect((await price(PRICES.imageMicroUsd)).status).toBe(200);
  });

  test("an admin sees everything that the provider reported, others only how their tokens divide", async () => {
    const person = await shop.customer();
    const usage = {
      prompt_tokens: 30,
      completion_tokens: 7,
      completion_tokens_details: { reasoning_tokens: 5 },
      cost: 0.002,
      cost_in_credits: 2,
    };
    shop.provider.next({ usage });
    const id = idOf(await shop.chat(person.secret));
    const own = await (await signInTo(shop, person)).get(`/receipts/${id}`);
    expect(own.json.reportedUsage).toEqual({ "completion_tokens_details.reasoning_tokens": 5 });
    expect(own.text).not.toContain("cost");
    const admin = await signInTo(shop, await shop.world.addAdmin());
    expect((await admin.get(`/receipts/${id}?accountId=${person.accountId}`)).json.reportedUsage).toEqual({
      "completion_tokens_details.reasoning_tokens": 5,
      cost: "0.002",
      cost_in_credits: 2,
    });
  });

  test("names the route that answered, how soon, and what it costs the operator: for admins only", async () => {
    const admin = await signInTo(shop, await shop.world.addAdmin());
    const [payer, packaged] = [await shop.payer(1_000_000_000n), await shop.customer()];
    const usage = { prompt_tokens: 31, completion_tokens: 7 };
    const price = 31 * PRICES.inputMicroUsd + 7 * PRICES.outputMicroUsd;
    const routes = await shop.world.sql`select id from routes where model_id = 'chat-two-routes' order by priority, id`;
    const [first, second] = routes.map(({ id }) => Number(id));
    const answerOf = async ({ accountId }: { accountId: number }, id: string) =>
      (await admin.get(`/receipts/${id}?accountId=${accountId}`)).json.answeredBy;
    const ask = async (who: typeof payer | typeof packaged, over: Record<string, unknown> = {}) => {
      shop.provider.next({ usage });
      return idOf(await shop.chat(who.secret, { model: "chat-two-routes", ...over }));
    };
    // Without costs of its own, a route costs what the model does, whoever pays.
    for (const who of [payer, packaged]) {
      const id = await ask(who);
      expect(await answerOf(who, id)).toEqual({
        ...{ routeId: first, provider: expect.any(String), firstMs: expect.any(Number) },
        providerCostNanoUsd: String(price / 1000),
      });
      expect((await (await signInTo(shop, who)).get(`/receipts/${id}`)).json.answeredBy).toBeNull();
    }
    // Costs of its own: rounded up once.
    const costs = { costInputMicroUsd: 100_001, costOutputMicroUsd: 3 };
    expect((await admin.patch(`/admin/routes/${first}`, costs)).status).toBe(200);
    const own = String(Math.ceil((31 * 100_001 + 7 * 3) / 1000));
    for (const stream of [false, true])
      await until(async () => (await answerOf(packaged, await ask(packaged, { stream }))).providerCostNanoUsd === own);

    // One began to, and nobody can say what it charges; or another route answered.
    const broken = idOf(
      await shop.brokenOff({ cutAfterChunks: 8 }, (onText) =>
        shop.chat(payer.secret, { model: "chat-two-routes", stream: true }, { onText }),
      ),
    );
    await until(async () => (await answerOf(payer, broken)) !== undefined);
    expect(await answerOf(payer, broken)).toMatchObject({ routeId: first, providerCostNanoUsd: null });
    shop.provider.next({ status: 503 });
    const failedOver = idOf(await shop.chat(payer.secret, { model: "chat-two-routes" }));
    expect(await answerOf(payer, failedOver)).toMatchObject({ routeId: second });
    shop.provider.next({ status: 503 });
    expect(await answerOf(payer, idOf(await shop.chat(payer.secret)))).toBeNull();

    const image = idOf(await shop.call("/v1/images/generations", { secret: packaged.secret, body: imageBody() }));
    expect((await answerOf(packaged, image)).providerCostNanoUsd).toBe(String(PRICES.imageMicroUsd * 1000));
  });

  test("of a request paid by package has the package, its day, and the usage of that day and in total", async () => {
    const person = await shop.customer({ dailyLimit: 500, days: 7, carryover: true, timeZone: "Asia/Tokyo" });
    const session = await signInTo(shop, person);
    await shop.chat(person.secret);
    const { json } = await session.get(`/receipts/${idOf(await shop.chat(person.secret))}`);
    expect(json).toMatchObject({ status: "settled", mode: "package", units: 1, chargedNanoUsd: "0", lines: null });
    expect(json.package).toEqual({
      packageId: expect.any(Number),
      name: expect.any(String),
      carryover: true,
      timeZone: "Asia/Tokyo",
      day: expect.stringMatching(/^\d{4}-\d{2}-\d{2}$/),
      dayUnits: 2,
      dailyLimit: 500,
      totalUnits: 2,
      totalLimit: 3500,
    });
  });

  test("is shown for a released and for a refused request", async () => {
    const payer = await shop.payer(1_000_000_000n);
    const session = await signInTo(shop, payer);

    shop.provider.next({ status: 503 });
    const failed = (await session.get(`/receipts/${idOf(await shop.chat(payer.secret))}`)).json;
    expect(failed).toMatchObject({ status: "released", reason: "provider_failed", chargedNanoUsd: "0", lines: null });
    expect(failed.givenBackNanoUsd).toBe(failed.heldNanoUsd);

    const refused = await shop.chat(payer.secret, { max_tokens: 1_000_000_000 });
    await untilRefused(shop, payer.accountId, 2);
    expect((await session.get(`/receipts/${idOf(refused)}`)).json).toEqual({
      accountId: payer.accountId,
      requestId: idOf(refused),
      status: "refused",
      code: "insufficient_balance",
      count: 1,
      minute: expect.stringMatching(/:00\.000Z$/),
      keyId: payer.keyId,
      keyName: "key",
      modelId: "chat-a",
      host: "localhost",
    });
  });

  test("404 for another account's request, an unknown and a malformed id", async () => {
    const session = await signInTo(shop, await shop.customer());
    for (const id of [crypto.randomUUID(), "ffffffff-ffff-7fff-8fff-ffffffffffff", "1", "x", "%00"])
      expectRefusal(await session.get(`/receipts/${id}`), "not_found");
  });
});
