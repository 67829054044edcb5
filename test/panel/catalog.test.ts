import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { boundsKey } from "../../src/catalog/bound_advice.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, PRICES, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { ok, type PanelSession, signInTo } from "./panel_client.ts";
import { auditOf } from "./stored.ts";

/** The admin's catalog: offerings, and models with prices and routes. Source: PAY-8, MON-1, PAN-10. */

const SLOW_MS = 60_000;
let shop: Shop;
let admin: PanelSession;

beforeAll(async () => {
  shop = await openShop({ env: { BILLING_TIMEZONE: "Europe/Berlin" } });
  admin = await signInTo(shop, await shop.world.addAdmin());
});
afterAll(() => shop.close());

let made = 0;
const newName = (what: string) => `${what} ${++made}`;
const idOf = (name: string) =>
  shop.world.sql`select id from providers where name = ${name}`.then(([row]) => Number(row?.id));

const offering = (over: Record<string, unknown> = {}) => ({
  name: newName("Offer"),
  kind: "custom",
  days: 7,
  dailyLimit: 500,
  carryover: true,
  wholesaleNanoUsd: "4200000001",
  ...over,
});

describe("offerings", () => {
  test("an offering is added in the service's time zone, listed with its active packages, and taken off sale; the audit log names the actor", async () => {
    const wanted = offering();
    const added = (await admin.post("/admin/offerings", wanted)).json;
    expect(added).toMatchObject({ ...wanted, totalLimit: 3500, timeZone: "Europe/Berlin", enabled: true });
    expect((await admin.get("/admin/offerings")).json.timeZone).toBe("Europe/Berlin");
    const customer = await shop.world.addCustomer();
    await shop.world.assign(customer, added.offeringId);
    await shop.world.assign(customer, added.offeringId, "after");
    const listed = async () =>
      (await admin.get("/admin/offerings")).json.offerings.find(
        (one: { offeringId: number }) => one.offeringId === added.offeringId,
      );
    // The second package is queued, not active.
    expect(await listed()).toMatchObject({ activePackages: 1, enabled: true, wholesaleNanoUsd: "4200000001" });
    expect((await admin.patch(`/admin/offerings/${added.offeringId}`, { enabled: false })).json).toEqual({
      offeringId: added.offeringId,
      enabled: false,
    });
    expect(await listed()).toMatchObject({ activePackages: 1, enabled: false });
    const by = { actor: admin.accountId, request: true };
    expect(await auditOf(shop, "offerings", String(added.offeringId))).toMatchObject([
      { action: "added", ...by, after: { name: wanted.name } },
      { action: "changed", ...by, before: { enabled: true }, after: { enabled: false } },
    ]);
  });

  test("422 validation_failed names the wrong field of an offering; HTML in a name stays text", async () => {
    const taken = offering({ name: "<script>alert(1)</script>" });
    expect((await admin.post("/admin/offerings", taken)).json.name).toBe("<script>alert(1)</script>");
    const cases: [over: Record<string, unknown>, param: string][] = [
      [{ name: taken.name }, "name"],
      [{ name: "x".repeat(101) }, "name"],
      [{ name: "x".repeat(1000) }, "name"],
      [{ name: "line\nbreak" }, "name"],
      [{ name: "nul\0" }, "name"],
      [{ kind: "weekly" }, "kind"],
      [{ kind: "daily" }, "days"],
      [{ dailyLimit: -1 }, "dailyLimit"],
      [{ dailyLimit: "5" }, "dailyLimit"],
      [{ days: 31 }, "days"],
      [{ tokenLimit: 0 }, "tokenLimit"],
      [{ modelIds: ["nobody"] }, "modelIds"],
      [{ timeZone: "Mars/Olympus" }, "timeZone"],
      [{ wholesaleNanoUsd: "-1" }, "wholesaleNanoUsd"],
      [{ wholesaleNanoUsd: 5 }, "wholesaleNanoUsd"],
      [{ wholesaleNanoUsd: "9000000000000001" }, "wholesaleNanoUsd"],
    ];
    for (const [over, param] of cases)
      expectRefusal(await admin.post("/admin/offerings", offering(over)), "validation_failed", { param });
    expect((await admin.post("/admin/offerings", offering({ enabled: false }))).status).toBe(422);
    for (const id of ["999999", "0", "x", "1e30", "9".repeat(30)])
      expectRefusal(await admin.patch(`/admin/offerings/${id}`, { enabled: true }), "not_found");
  });
});

const find = async (id: string) => (await admin.get(`/admin/model?id=${encodeURIComponent(id)}`)).json;

describe("models", () => {
  test("the list has prices, image prices, routes, breakers, and an example cost computed as charges are", async () => {
    const { models, example, hasMore } = (await admin.get("/admin/models")).json;
    expect({ example, hasMore }).toEqual({
      example: { promptTokens: 1000, cachedTokens: 0, completionTokens: 500 },
      hasMore: false,
    });
    const byId = Object.fromEntries(models.map((model: { id: string }) => [model.id, model]));
    expect(byId["chat-a"]).toMatchObject({
      prices: { inputMicroUsd: PRICES.inputMicroUsd, cachedInputMicroUsd: null, outputMicroUsd: PRICES.outputMicroUsd },
      // 1,000 × $3 / M + 500 × $15 / M = $0.0105.
      exampleNanoUsd: "10500000",
      imagePrices: [],
      routes: [
        { providerName: "first", upstreamModel: "up-chat-a", enabled: true, breaker: { open: false, dueInMs: 0 } },
      ],
    });
    expect(byId["chat-unpriced"]).toMatchObject({ prices: null, exampleNanoUsd: null });
    expect(byId["image-a"]).toMatchObject({
      imagePrices: [
        { size: "1024x1024", quality: "standard", microUsd: PRICES.imageMicroUsd, chargeNanoUsd: "40000000" },
      ],
    });
    expect(byId["chat-two-routes"].routes.map(({ providerName }: { providerName: string }) => providerName)).toEqual([
      "first",
      "second",
    ]);
  });

  test("the list is paged by id", async () => {
    const seen: string[] = [];
    for (let after = "", hasMore = true; hasMore; ) {
      const page = (await admin.get(`/admin/models?limit=2${after && `&after=${encodeURIComponent(after)}`}`)).json;
      expect(page.models.length).toBeLessThanOrEqual(2);
      seen.push(...page.models.map(({ id }: { id: string }) => id));
      after = seen.at(-1) ?? "";
      hasMore = page.hasMore;
    }
    const ids = await shop.world.sql`select id from models order by id`;
    expect(seen).toEqual(ids.map(({ id }) => id));
    for (const limit of ["0", "501", "x"])
      expectRefusal(await admin.get(`/admin/models?limit=${limit}`), "validation_failed", { param: "limit" });
  });

  test("an id with slashes is found, whether they are written as / or %2F; a malformed id is not found", async () => {
    for (const id of ["vendor/chat-b", "vendor%2Fchat-b"])
      expect((await admin.get(`/admin/model?id=${id}`)).json.id).toBe("vendor/chat-b");
    for (const id of ["vendor%252Fchat-b", "nobody", "%00", "vendor/%2e%2e/chat-b", "%F0%9F%9A%A7"])
      expectRefusal(await admin.get(`/admin/model?id=${id}`), "not_found");
    expectRefusal(await admin.get(`/admin/model?id=${"a".repeat(129)}`), "validation_failed", { param: "id" });
    expectRefusal(await admin.get("/admin/model"), "validation_failed", { param: "id" });
  });

  test("a model is added, changed field by field, priced and unpriced; its first route serves immediately; the audit log names the actor", async () => {
    const id = "new/vendor/model-1.5:free@x";
    const added = await admin.post("/admin/models", {
      id,
      name: "<b>New</b>",
      modality: "multimodal",
      prices: { inputMicroUsd: 1, cachedInputMicroUsd: 0, outputMicroUsd: 0 },
      imagePrices: [{ size: "512x512", microUsd: 3 }],
    });
    // One picodollar a token: 1,000 of them are one nanodollar.
    expect(added.json).toMatchObject({ id, name: "<b>New</b>", ownedBy: "tollgate", exampleNanoUsd: "1", routes: [] });
    await admin.patch(`/admin/model?id=${encodeURIComponent(id)}`, { contextLength: 8000, status: "preview" });
    const priced = await admin.put(`/admin/model/prices?id=${encodeURIComponent(id)}`, {
      prices: { inputMicroUsd: 7, cachedInputMicroUsd: null, outputMicroUsd: 1 },
    });
    // 7,000 + 500 picodollars, rounded up once.
    expect(priced.json).toMatchObject({
      contextLength: 8000,
      status: "preview",
      modality: "multimodal",
      exampleNanoUsd: "8",
    });
    const images = (body: object) => admin.put(`/admin/model/image-price?id=${encodeURIComponent(id)}`, body);
    expect((await images({ size: "1024x1024", microUsd: 40_000 })).json.imagePrices).toHaveLength(2);
    expect((await images({ size: "512x512", microUsd: null })).json.imagePrices).toEqual([
      { size: "1024x1024", quality: "standard", microUsd: 40_000, chargeNanoUsd: "40000000" },
    ]);
    expect((await images({ size: "1024x1024", quality: "high", microUsd: 90_000 })).json.imagePrices).toEqual([
      { size: "1024x1024", quality: "standard", microUsd: 40_000, chargeNanoUsd: "40000000" },
      { size: "1024x1024", quality: "high", microUsd: 90_000, chargeNanoUsd: "90000000" },
    ]);
    expectRefusal(await images({ size: "1024x1024", quality: "High!", microUsd: 1 }), "validation_failed", {
      param: "quality",
    });
    const further = { cache_write: 9, tiers: [{ above_input_tokens: 100, input: 8, output: 2 }], request: 1 };
    const all = await admin.put(`/admin/model/prices?id=${encodeURIComponent(id)}`, {
      prices: { inputMicroUsd: 7, outputMicroUsd: 1, further },
    });
    // Above 100 tokens: 8,000 + 1,000 picodollars, and 1 microdollar for the request.
    expect(all.json).toMatchObject({ exampleNanoUsd: "1009" });
    expect(all.json.prices.further).toEqual(further);
    const unpriced = await admin.put(`/admin/model/prices?id=${encodeURIComponent(id)}`, { prices: null });
    expect(unpriced.json).toMatchObject({ prices: null, exampleNanoUsd: null });

    const { secret } = await shop.customer();
    const route = await admin.post("/admin/routes", {
      modelId: id,
      providerId: await idOf("first"),
      upstreamModel: "up",
    });
    await until(async () => (await shop.chat(secret, { model: id })).status === 200);
    expect((await find(id)).routes).toMatchObject([
      { id: route.json.id, upstreamModel: "up", takes: { capField: "max_tokens" } },
    ]);

    const audited = await auditOf(shop, "models", id);
    expect(audited.map(({ action, actor, request }) => ({ action, actor, request }))).toEqual(
      ["added", "changed", "changed", "changed", "changed"].map((action) => ({
        action,
        actor: admin.accountId,
        request: true,
      })),
    );
    const imagePrices = await auditOf(shop, "image_prices", id);
    expect(imagePrices).toHaveLength(4);
    for (const { before, after } of imagePrices) {
      expect((after ?? before).size).toMatch(/^\d+x\d+$/);
      expect((after ?? before).quality).toMatch(/^(?:standard|high)$/);
    }
  });

  test("what answers used of what was reserved is shown with the bounds that it suggests, which an admin applies", async () => {
    const before = await find("chat-a");
    expect(before.advice).toEqual([]);
    await shop.world.sql`
      insert into bound_uses values ('chat-a', now()::date, 'overhead', ${boundsKey(before)}, 1000, 0, 500),
        ('chat-a', now()::date, 'images', 'other bounds', 1000, 0, 500)`;
    const { advice } = await find("chat-a");
    const change = { requestTokens: 5, messageTokens: 5 }; // 500 ‰ of 8, over nine tenths, with a tenth of headroom.
    expect(advice).toEqual([{ part: "overhead", requests: 1_000, overruns: 0, mostPermille: 500, change }]);
    expect((await admin.patch("/admin/model?id=chat-a", change)).status).toBe(200);
    expect(await find("chat-a")).toMatchObject({ ...change, advice: [] });
    await admin.patch("/admin/model?id=chat-a", { requestTokens: 8, messageTokens: 8 });
    await shop.world.sql`delete from bound_uses`;
  });

  test("the margin of each model is shown, lowest first, and a route that costs ten times the price is named", async () => {
    const [first, second] = (await find("chat-two-routes")).routes;
    const cost = (input: number, output: number) => ({ costInputMicroUsd: input, costOutputMicroUsd: output });
    expect((await admin.patch(`/admin/routes/${first.id}`, cost(1_500_000, 7_500_000))).status).toBe(200);
    expect(await find("chat-two-routes")).toMatchObject({ lowestMarginPermille: 500, losing: [] });
    expect((await admin.patch(`/admin/routes/${second.id}`, cost(30_000_000, 150_000_000))).status).toBe(200);
    const loss = {
      routeId: second.id,
      route: "second/backup",
      ...{ source: "set", dearer: ["input", "output"], times: 10 },
    };
    const routes = [{ marginPermille: 500 }, { marginPermille: -9_000 }];
    expect(await find("chat-two-routes")).toMatchObject({ lowestMarginPermille: -9_000, losing: [loss], routes });
    const { models, losing } = (await admin.get("/admin/margins")).json;
    expect(models[0]).toEqual({ id: "chat-two-routes", permille: -9_000 });
    expect(models).toContainEqual({ id: "chat-a", permille: null });
    expect(losing).toEqual([{ modelId: "chat-two-routes", ...loss }]);
    // A provider that reports what an answer cost: the price of 1,000 and 100 tokens is 4,500,000 nano-USD.
    const customer = await shop.customer();
    shop.provider.next({ usage: { prompt_tokens: 1_000, completion_tokens: 100, cost: 0.009 } });
    expect((await shop.chat(customer.secret, { model: "vendor/chat-b" })).status).toBe(200);
    await until(async () => (await find("vendor/chat-b")).lowestMarginPermille !== null, SLOW_MS / 2);
    expect((await find("vendor/chat-b")).losing).toMatchObject([{ source: "reported", dearer: ["answers"], times: 2 }]);
  });

  test("422 validation_failed names the wrong field of a model or price, and nothing changes", async () => {
    const before = await find("chat-a");
    const prices = (over: Record<string, unknown>) =>
      admin.put("/admin/model/prices?id=chat-a", {
        prices: { inputMicroUsd: 1, cachedInputMicroUsd: null, outputMicroUsd: 1, ...over },
      });
    for (const [over, param] of [
      [{ inputMicroUsd: -1 }, "inputMicroUsd"],
      [{ outputMicroUsd: -1 }, "outputMicroUsd"],
      [{ outputMicroUsd: 1_000_000_001 }, "outputMicroUsd"],
      // A cached price above the input price could overrun a hold.
      [{ cachedInputMicroUsd: 2 }, "cachedInputMicroUsd"],
      [{ further: { cache_write: -1 } }, "further.cache_write"],
      [{ further: { cache_writes: 1 } }, "further"],
      [{ further: { tiers: [{ above_input_tokens: 9, input: 1 }] } }, "further.tiers.0.output"],
    ] as const)
      expectRefusal(await prices(over), "validation_failed", { param });
    expect((await prices({ inputMicroUsd: 0.5 })).status).toBe(422);
    expect((await prices({ inputMicroUsd: "1" })).status).toBe(422);
    const patch = (body: object) => admin.patch("/admin/model?id=chat-a", body);
    for (const [body, param] of [
      [{ name: "" }, "name"],
      [{ name: "x".repeat(201) }, "name"],
      [{ name: "a\u0000b" }, "name"],
      [{ ownedBy: "a\nb" }, "ownedBy"],
      [{ contextLength: 0 }, "contextLength"],
      [{ status: "gone" }, "status"],
      [{ marginPermille: 999 }, "marginPermille"],
      [{ messageTokens: 10_001 }, "messageTokens"],
      [{ imageTilePixels: 0 }, "imageTilePixels"],
      [{ defaultCapTokens: 1e9 }, "defaultCapTokens"],
      [{ architecture: { text: "x".repeat(5000) } }, "architecture"],
      [{}, null],
    ] as const)
      expectRefusal(await patch(body), "validation_failed", { param });
    expect((await patch({ id: "other" })).status).toBe(422);
    const image = (body: object) => admin.put("/admin/model/image-price?id=image-a", body);
    expectRefusal(await image({ size: "1x1", microUsd: 1 }), "validation_failed", { param: "size" });
    expectRefusal(await image({ size: "512x512", microUsd: -1 }), "validation_failed", { param: "microUsd" });
    for (const id of ["chat-a", "a%2Fb", " a", "", "a".repeat(129), "ä"])
      expectRefusal(await admin.post("/admin/models", { id }), "validation_failed", { param: "id" });
    expectRefusal(await admin.patch("/admin/model?id=nobody", { name: "x" }), "validation_failed", {
      param: "modelId",
    });
    expectRefusal(await admin.patch("/admin/model?id=%00", { name: "x" }), "validation_failed", { param: "id" });
    expectRefusal(await admin.put("/admin/model/prices?id=%00", { prices: null }), "validation_failed", {
      param: "id",
    });
    expect(await find("chat-a")).toEqual(before);
  });

  test("routes are added, changed and removed; 422 for a duplicate, an unknown model or provider, and wrong fields", async () => {
    const [first, second] = [await idOf("first"), await idOf("second")];
    const wanted = { modelId: "chat-a", providerId: second, upstreamModel: "spare", priority: 5, weight: 3 };
    const { id } = ok(await admin.post("/admin/routes", wanted));
    expectRefusal(await admin.post("/admin/routes", wanted), "validation_failed", { param: "upstreamModel" });
    for (const [over, param] of [
      [{ modelId: "nobody" }, "modelId"],
      [{ modelId: "%00" }, "id"],
      [{ providerId: 999_999 }, "modelId"],
      [{ providerId: 0 }, "providerId"],
      [{ weight: 0 }, "weight"],
      [{ priority: 1001 }, "priority"],
      [{ upstreamModel: "a\nb" }, "upstreamModel"],
      [{ facts: { capField: "limit" } }, "facts.capField"],
      [{ facts: { mood: "good" } }, "facts"],
      [{ facts: { droppedParams: ["seed"] } }, "facts"],
      [{ facts: { contentForm: "text" } }, "facts"],
      [{ facts: { firstTokenSeconds: 1.5 } }, "facts.firstTokenSeconds"],
      [{ facts: "none" }, "facts"],
      [{ allowedParams: ["max_output_tokens"] }, "allowedParams"],
      [{ allowedParams: ["a b"] }, "allowedParams"],
      [{ allowedParams: "documents" }, "allowedParams"],
      [{ droppedParams: ["max_tokens"] }, "droppedParams"],
      [{ droppedParams: ["seed", "tools"] }, "droppedParams"],
      [{ droppedParams: ["a b"] }, "droppedParams"],
      [{ droppedParams: "seed" }, "droppedParams"],
      [{ allowedParams: ["documents"], droppedParams: ["documents"] }, "droppedParams"],
    ] as const)
      expectRefusal(await admin.post("/admin/routes", { ...wanted, providerId: first, ...over }), "validation_failed", {
        param,
      });
    const change = { enabled: false, weight: 9, allowedParams: ["documents"], droppedParams: ["reasoning_effort"] };
    expect((await admin.patch(`/admin/routes/${id}`, change)).json).toEqual({ id });
    // Also against what the route has already.
    const against = await admin.patch(`/admin/routes/${id}`, { droppedParams: ["documents"] });
    expectRefusal(against, "validation_failed", { param: "droppedParams" });
    expect((await find("chat-a")).routes[1]).toMatchObject({ id, ...change, providerName: "second" });
    expect((await admin.delete(`/admin/routes/${id}`)).json).toEqual({ id });
    expectRefusal(await admin.delete(`/admin/routes/${id}`), "validation_failed", { param: "routeId" });
    expectRefusal(await admin.patch("/admin/routes/0", { weight: 2 }), "not_found");
    const audited = await auditOf(shop, "routes", String(id));
    expect(audited.map(({ action, actor }) => ({ action, actor }))).toEqual(
      ["added", "changed", "removed"].map((action) => ({ action, actor: admin.accountId })),
    );
    expect(audited[1]).toMatchObject({
      before: { dropped_params: [] },
      after: { dropped_params: ["reasoning_effort"] },
    });
  });
});
