import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type AddressInfo, createServer, type Server } from "node:net";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, PRICES, type Shop } from "../gateway/shop.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";

/**
 * The admin's catalog: offerings, models with prices and routes, providers with a test.
 * Source: PAY-8, MON-1, PRV-7, PAN-10.
 */

const SLOW_MS = 60_000;
/** Speaks no TLS and no HTTP: hangs up at the first byte. */
let deaf: Server;
let shop: Shop;
let admin: PanelSession;

beforeAll(async () => {
  deaf = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", () => socket.end("no\r\n\r\n"));
  });
  await new Promise<void>((resolve) => deaf.listen(0, "127.0.0.1", resolve));
  shop = await openShop({ env: { BILLING_TIMEZONE: "Europe/Berlin" } });
  admin = await signInTo(shop, await shop.world.addAdmin());
}, SLOW_MS);
afterAll(async () => {
  await shop.close();
  deaf.close();
}, SLOW_MS);

let made = 0;
const newName = (what: string) => `${what} ${++made}`;
const idOf = (name: string) =>
  shop.world.sql`select id from providers where name = ${name}`.then(([row]) => Number(row?.id));

/** What the audit log says of a row: who, and what became of it. */
async function auditOf(subject: string, subjectId: string) {
  const rows = await shop.world.sql`
    select action, actor_id::int as actor, request_id is not null as request, before, after from audit_entries
    where subject = ${subject} and subject_id = ${subjectId} order by id`;
  return rows.map((row) => ({ ...row }));
}

const offering = (over: Record<string, unknown> = {}) => ({
  name: newName("Offer"),
  kind: "custom",
  days: 7,
  dailyLimit: 500,
  carryover: true,
  wholesaleNanoUsd: "4200000001",
  ...over,
});

describe("who may", () => {
  const doors: [method: "get" | "post" | "patch" | "put" | "delete", path: string][] = [
    ["get", "/admin/offerings"],
    ["post", "/admin/offerings"],
    ["patch", "/admin/offerings/1"],
    ["get", "/admin/models"],
    ["get", "/admin/model?id=chat-a"],
    ["post", "/admin/models"],
    ["patch", "/admin/model?id=chat-a"],
    ["put", "/admin/model/prices?id=chat-a"],
    ["put", "/admin/model/image-price?id=image-a"],
    ["post", "/admin/routes"],
    ["patch", "/admin/routes/1"],
    ["delete", "/admin/routes/1"],
    ["delete", "/admin/routes/1/overhead"],
    ["get", "/admin/providers"],
    ["get", "/admin/providers/1"],
    ["post", "/admin/providers"],
    ["patch", "/admin/providers/1"],
    ["post", "/admin/providers/1/test"],
  ];

  test("customers and resellers get the same 404 as for an address that is not there; strangers 401", async () => {
    const before = await auditOf("routes", "1");
    for (const person of [await shop.world.addCustomer(), await shop.world.addReseller()]) {
      const session = await signInTo(shop, person);
      for (const [method, path] of doors) expectRefusal(await session[method](path), "not_found");
    }
    for (const [method, path] of doors) {
      const body = method === "get" || method === "delete" ? undefined : {};
      const answer = await shop.call(`/api/panel${path}`, {
        host: admin.host,
        method: method.toUpperCase(),
        ...(body && { body }),
      });
      expectRefusal(answer, "session_required");
    }
    expect(await auditOf("routes", "1")).toEqual(before);
  });

  test("while an admin looks at somebody's panel, the admin's pages are not there and nothing can be changed", async () => {
    const viewer = await signInTo(shop, await shop.world.addAdmin());
    const customer = await shop.world.addCustomer();
    await shop.world.sql`
      update sessions set viewing_account_id = ${customer.accountId} where account_id = ${viewer.accountId}`;
    expectRefusal(await viewer.get("/admin/models"), "not_found");
    const wanted = offering();
    expect((await viewer.post("/admin/offerings", wanted)).json.error.code).toBe("read_only");
    const [row] = await shop.world.sql`select count(*)::int as n from offerings where name = ${wanted.name}`;
    expect(row?.n).toBe(0);
  });

  test("a change without the page's token, or from another origin, is refused", async () => {
    const headers = { cookie: admin.cookie, origin: `http://${admin.host}` };
    const body = { enabled: false };
    const call = (more: Record<string, string>) =>
      shop.call("/api/panel/admin/model?id=chat-a", {
        host: admin.host,
        method: "PATCH",
        body,
        headers: { ...headers, ...more },
      });
    const refused = [await call({}), await call({ origin: "http://evil.test", "x-csrf-token": admin.csrf })];
    for (const answer of refused) expect([answer.status, answer.json.error.code]).toEqual([403, "csrf_failed"]);
    expect((await admin.get("/admin/model?id=chat-a")).json.enabled).toBe(true);
  });
});

describe("offerings", () => {
  test("an offering is added in the service's zone, listed with its active packages, and taken off sale; the audit log says who", async () => {
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
    // The second one waits its turn: it is not active yet.
    expect(await listed()).toMatchObject({ activePackages: 1, enabled: true, wholesaleNanoUsd: "4200000001" });
    expect((await admin.patch(`/admin/offerings/${added.offeringId}`, { enabled: false })).json).toEqual({
      offeringId: added.offeringId,
      enabled: false,
    });
    expect(await listed()).toMatchObject({ activePackages: 1, enabled: false });
    const by = { actor: admin.accountId, request: true };
    expect(await auditOf("offerings", String(added.offeringId))).toMatchObject([
      { action: "added", ...by, after: { name: wanted.name } },
      { action: "changed", ...by, before: { enabled: true }, after: { enabled: false } },
    ]);
  });

  test("a double click adds one offering; a form that failed may be sent again", async () => {
    const wanted = offering();
    const headers = { "idempotency-key": crypto.randomUUID() };
    expect((await admin.post("/admin/offerings", { ...wanted, dailyLimit: 0 }, headers)).status).toBe(422);
    const answers = await Promise.all([1, 2].map(() => admin.post("/admin/offerings", wanted, headers)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    const [row] = await shop.world.sql`select count(*)::int as n from offerings where name = ${wanted.name}`;
    expect(row?.n).toBe(1);
  });

  test("422 names the field of a bad offering; script text in a name is text", async () => {
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
  test("the list shows prices, images, routes and breakers, and a worked example by the arithmetic that charges", async () => {
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

  test("the list comes in pages, by id", async () => {
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

  test("an id with slashes is found, written with / or %2F; one that can be no id is unknown", async () => {
    for (const id of ["vendor/chat-b", "vendor%2Fchat-b"])
      expect((await admin.get(`/admin/model?id=${id}`)).json.id).toBe("vendor/chat-b");
    for (const id of ["vendor%252Fchat-b", "nobody", "%00", "vendor/%2e%2e/chat-b", "%F0%9F%9A%A7"])
      expectRefusal(await admin.get(`/admin/model?id=${id}`), "not_found");
    expectRefusal(await admin.get(`/admin/model?id=${"a".repeat(129)}`), "validation_failed", { param: "id" });
    expectRefusal(await admin.get("/admin/model"), "validation_failed", { param: "id" });
  });

  test("a model is added whole, changed field by field, priced, unpriced; requests follow at once; the audit log says who", async () => {
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
    const unpriced = await admin.put(`/admin/model/prices?id=${encodeURIComponent(id)}`, { prices: null });
    expect(unpriced.json).toMatchObject({ prices: null, exampleNanoUsd: null });

    const { secret } = await shop.customer();
    const route = await admin.post("/admin/routes", {
      modelId: id,
      providerId: await idOf("first"),
      upstreamModel: "up",
    });
    const until = performance.now() + 5000;
    let status = 0;
    while (status !== 200 && performance.now() < until) status = (await shop.chat(secret, { model: id })).status;
    expect(status).toBe(200);
    expect((await find(id)).routes).toMatchObject([{ id: route.json.id, upstreamModel: "up", capField: "max_tokens" }]);

    const audited = await auditOf("models", id);
    expect(audited.map(({ action, actor, request }) => ({ action, actor, request }))).toEqual(
      ["added", "changed", "changed", "changed"].map((action) => ({ action, actor: admin.accountId, request: true })),
    );
    const imagePrices = await auditOf("image_prices", id);
    expect(imagePrices).toHaveLength(4);
    for (const { before, after } of imagePrices) {
      expect((after ?? before).size).toMatch(/^\d+x\d+$/);
      expect((after ?? before).quality).toMatch(/^(?:standard|high)$/);
    }
  });

  test("422 names the field of a bad model or price, and nothing changes", async () => {
    const before = await find("chat-a");
    const prices = (over: Record<string, unknown>) =>
      admin.put("/admin/model/prices?id=chat-a", {
        prices: { inputMicroUsd: 1, cachedInputMicroUsd: null, outputMicroUsd: 1, ...over },
      });
    for (const [over, param] of [
      [{ inputMicroUsd: -1 }, "inputMicroUsd"],
      [{ outputMicroUsd: -1 }, "outputMicroUsd"],
      [{ outputMicroUsd: 1_000_000_001 }, "outputMicroUsd"],
      // A cached price above the full one could overrun a hold.
      [{ cachedInputMicroUsd: 2 }, "cachedInputMicroUsd"],
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

  test("routes are added once, changed, removed; what exists already or does not exist is told in a sentence", async () => {
    const [first, second] = [await idOf("first"), await idOf("second")];
    const wanted = { modelId: "chat-a", providerId: second, upstreamModel: "spare", priority: 5, weight: 3 };
    const headers = { "idempotency-key": crypto.randomUUID() };
    const answers = await Promise.all([1, 2].map(() => admin.post("/admin/routes", wanted, headers)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409]);
    const { id } = answers.find(({ status }) => status === 200)?.json ?? {};
    expectRefusal(await admin.post("/admin/routes", wanted), "validation_failed", { param: "upstreamModel" });
    for (const [over, param] of [
      [{ modelId: "nobody" }, "modelId"],
      [{ modelId: "%00" }, "id"],
      [{ providerId: 999_999 }, "modelId"],
      [{ providerId: 0 }, "providerId"],
      [{ weight: 0 }, "weight"],
      [{ priority: 1001 }, "priority"],
      [{ upstreamModel: "a\nb" }, "upstreamModel"],
      [{ capField: "limit" }, "capField"],
      [{ allowedParams: ["max_output_tokens"] }, "allowedParams"],
      [{ allowedParams: ["a b"] }, "allowedParams"],
      [{ allowedParams: "documents" }, "allowedParams"],
    ] as const)
      expectRefusal(await admin.post("/admin/routes", { ...wanted, providerId: first, ...over }), "validation_failed", {
        param,
      });
    const change = { enabled: false, weight: 9, allowedParams: ["documents"] };
    expect((await admin.patch(`/admin/routes/${id}`, change)).json).toEqual({ id });
    expect((await find("chat-a")).routes[1]).toMatchObject({ id, ...change, providerName: "second" });
    expect((await admin.delete(`/admin/routes/${id}`)).json).toEqual({ id });
    expectRefusal(await admin.delete(`/admin/routes/${id}`), "validation_failed", { param: "routeId" });
    expectRefusal(await admin.patch("/admin/routes/0", { weight: 2 }), "not_found");
    expect((await auditOf("routes", String(id))).map(({ action, actor }) => ({ action, actor }))).toEqual(
      ["added", "changed", "removed"].map((action) => ({ action, actor: admin.accountId })),
    );
  });
});

describe("providers", () => {
  const KEY = "sk-provider-secret-0123456789";

  test("a key goes in and never comes out: not in an answer, not in the audit log; a new one replaces it", async () => {
    const name = newName("Provider");
    const added = await admin.post("/admin/providers", { name, baseUrl: `${shop.second.baseUrl}/`, apiKey: KEY });
    expect(added.json).toEqual({
      id: expect.any(Number),
      name,
      baseUrl: shop.second.baseUrl,
      enabled: true,
      apiKey: "stored",
    });
    const { id } = added.json;
    const stored = async () =>
      (await shop.world.sql`select key_ciphertext from providers where id = ${id}`)[0]?.key_ciphertext;
    const before = await stored();
    const changed = await admin.patch(`/admin/providers/${id}`, { apiKey: `${KEY}-2`, enabled: false });
    expect(changed.json).toMatchObject({ enabled: false, apiKey: "stored" });
    expect(await stored()).not.toEqual(before);
    const list = await admin.get("/admin/providers");
    expect(list.json.providers.find((one: { id: number }) => one.id === id)).toMatchObject({
      routes: 0,
      openBreakers: 0,
    });
    expect(list.json.providers.find((one: { name: string }) => one.name === "second").routes).toBeGreaterThan(0);
    const audit = await auditOf("providers", String(id));
    expect(audit.map(({ action, actor }) => ({ action, actor }))).toEqual(
      ["added", "changed"].map((action) => ({ action, actor: admin.accountId })),
    );
    for (const text of [added.text, changed.text, list.text, JSON.stringify(audit)]) {
      expect(text).not.toContain("sk-provider");
      expect(text).not.toContain(KEY.slice(-4));
      expect(text).not.toMatch(/ciphertext":"(?!\(hidden\))/);
    }
    const paged = (await admin.get(`/admin/providers?limit=1&after=${encodeURIComponent(name)}`)).json;
    expect(paged).toMatchObject({ providers: [{ name: "first" }], hasMore: true });
  });

  test("one provider is shown with the models that use it; a route names its provider and whether that is on", async () => {
    const id = await idOf("second");
    const { apiKey, routes, hasMoreRoutes } = (await admin.get(`/admin/providers/${id}`)).json;
    expect({ apiKey, hasMoreRoutes }).toEqual({ apiKey: "stored", hasMoreRoutes: false });
    const stored = await shop.world.sql`
      select id::int, model_id from routes where provider_id = ${id} order by model_id, priority, id`;
    expect(routes.map((route: { id: number; modelId: string }) => [route.id, route.modelId])).toEqual(
      stored.map((row) => [row.id, row.model_id]),
    );
    expect(routes[0]).toMatchObject({ enabled: true, breaker: { open: false, dueInMs: 0 } });
    await admin.patch(`/admin/providers/${id}`, { enabled: false });
    const model = (await admin.get("/admin/model?id=chat-two-routes")).json;
    await admin.patch(`/admin/providers/${id}`, { enabled: true });
    expect(model.routes).toMatchObject([
      { providerName: "first", providerEnabled: true },
      { providerName: "second", providerEnabled: false },
    ]);
    for (const unknown of ["999999", "0", "x"])
      expectRefusal(await admin.get(`/admin/providers/${unknown}`), "not_found");
  });

  test("422: a private address with the guard's own sentence, a name that exists, a key with a space, texts too long", async () => {
    const good = () => ({ name: newName("Provider"), baseUrl: shop.second.baseUrl, apiKey: KEY });
    const guarded = await admin.post("/admin/providers", { ...good(), baseUrl: "http://10.0.0.1/v1" });
    expectRefusal(guarded, "validation_failed", { param: "baseUrl" });
    expect(guarded.json.error.message).toBe(
      "The provider's base URL leads to 10.0.0.1, which is not a public address (private).",
    );
    for (const [over, param] of [
      [{ name: "first" }, "name"],
      [{ name: "x".repeat(201) }, "name"],
      [{ name: "a\u0000" }, "name"],
      [{ baseUrl: "http://169.254.169.254/latest" }, "baseUrl"],
      [{ baseUrl: "http://localhost:1/v1" }, "baseUrl"],
      [{ baseUrl: "ftp://example.com" }, "baseUrl"],
      [{ baseUrl: "https://user:pass@example.com" }, "baseUrl"],
      [{ baseUrl: `https://example.com/${"x".repeat(500)}` }, "baseUrl"],
      [{ apiKey: "has space" }, "apiKey"],
      [{ apiKey: "x".repeat(4001) }, "apiKey"],
      [{ apiKey: "" }, "apiKey"],
    ] as const) {
      const answer = await admin.post("/admin/providers", { ...good(), ...over });
      expectRefusal(answer, "validation_failed", { param });
      expect(answer.text).not.toContain("has space");
    }
    const firstId = await idOf("first");
    expectRefusal(await admin.patch(`/admin/providers/${firstId}`, { name: "second" }), "validation_failed", {
      param: "name",
    });
    expectRefusal(
      await admin.patch(`/admin/providers/${firstId}`, { baseUrl: "http://[::1]/v1" }),
      "validation_failed",
      {
        param: "baseUrl",
      },
    );
    expectRefusal(await admin.patch("/admin/providers/999999", { enabled: true }), "validation_failed", {
      param: "providerId",
    });
    for (const id of ["x", "0", "-1", "9".repeat(25)]) {
      expectRefusal(await admin.get(`/admin/providers/${id}`), "not_found");
      expectRefusal(await admin.patch(`/admin/providers/${id}`, { enabled: true }), "not_found");
      expectRefusal(await admin.post(`/admin/providers/${id}/test`), "not_found");
    }
  });

  test("the test says the latency and how many models, and asks a route's model for one token", async () => {
    const id = await idOf("first");
    const plain = (await admin.post(`/admin/providers/${id}/test`)).json;
    expect(plain).toEqual({
      ok: true,
      tookMs: expect.any(Number),
      models: expect.any(Number),
      // The simulated provider takes any model, and lists its own.
      unlisted: expect.arrayContaining(["up-chat-a", "up-image-a"]),
      chatTookMs: null,
      kind: null,
      problem: null,
    });
    expect(plain.models).toBeGreaterThan(0);
    const calls = shop.provider.callCount();
    const chat = (await admin.post(`/admin/providers/${id}/test`, { model: "vendor/chat-b" })).json;
    expect(chat).toMatchObject({ ok: true, chatTookMs: expect.any(Number) });
    expect(shop.provider.callCount()).toBe(calls + 1);
    const sent = JSON.parse(shop.provider.lastCall()?.body ?? "");
    expect(sent).toMatchObject({ model: "up-vendor/chat-b", max_tokens: 1 });
    // Nobody is charged for it.
    const [receipts] = await shop.world.sql`select count(*)::int as n from receipts where model_id = 'vendor/chat-b'`;
    expect(receipts?.n).toBe(0);
  });

  test("the test says the exact failure, where it is, and never the key", async () => {
    const add = async (baseUrl: string, apiKey = KEY) => {
      const name = newName("Provider");
      await admin.post("/admin/providers", { name, baseUrl: shop.second.baseUrl, apiKey });
      // As a name that leads elsewhere since it was added.
      await shop.world.sql`update providers set base_url = ${baseUrl} where name = ${name}`;
      return (await admin.post(`/admin/providers/${await idOf(name)}/test`)).json;
    };
    const wrongKey = await add(shop.second.baseUrl);
    expect(wrongKey).toMatchObject({ ok: false, kind: "credentials" });
    expect(wrongKey.problem).toContain("401");
    expect(JSON.stringify(wrongKey)).not.toContain("sk-provider");
    expect(await add("https://nobody.invalid/v1")).toMatchObject({
      kind: "dns",
      problem: expect.stringContaining("cannot be looked up"),
    });
    expect(await add("http://192.168.0.1/v1")).toMatchObject({
      kind: "address",
      problem: expect.stringContaining("not a public address"),
    });
    const port = new URL(shop.provider.baseUrl).port;
    expect(await add(`https://127.0.0.1:${port}/v1`)).toMatchObject({
      kind: "tls",
      problem: expect.stringContaining("TLS"),
    });
    expect(await add(`http://127.0.0.1:${port}/elsewhere`, shop.provider.apiKey)).toMatchObject({
      ok: false,
      kind: "unknown_model",
      problem: expect.stringContaining("404"),
    });
    const deafPort = (deaf.address() as AddressInfo).port;
    const away = await shop.start({ PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${deafPort},127.0.0.1:9`, LOG_LEVEL: "info" });
    try {
      const elsewhere = await signInTo(shop, await shop.world.addAdmin(), { origin: away.origin });
      const id = await idOf("second");
      await shop.world.sql`update providers set base_url = 'http://127.0.0.1:9/v1' where id = ${id}`;
      expect((await elsewhere.post(`/admin/providers/${id}/test`)).json).toMatchObject({
        kind: "connect",
        problem: expect.stringContaining("ECONNREFUSED"),
      });
      await shop.world.sql`update providers set base_url = ${`http://127.0.0.1:${deafPort}/v1`} where id = ${id}`;
      expect((await elsewhere.post(`/admin/providers/${id}/test`)).json).toMatchObject({ ok: false, models: 0 });
      await shop.world.sql`update providers set base_url = ${shop.second.baseUrl} where id = ${id}`;
    } finally {
      await away.kill();
    }
  });

  test("a chat that fails is told apart from the list of models that answered", async () => {
    const id = await idOf("first");
    shop.provider.next({ status: 500 });
    const failed = (await admin.post(`/admin/providers/${id}/test`, { model: "chat-a" })).json;
    expect(failed).toMatchObject({
      ok: false,
      chatTookMs: null,
      kind: "status",
      problem: expect.stringContaining("500"),
    });
    expect(failed.models).toBeGreaterThan(0);
    shop.provider.next({ status: 400 });
    expect((await admin.post(`/admin/providers/${id}/test`, { model: "chat-a" })).json.kind).toBe("rejected");
    for (const [model, param] of [
      ["nobody", "model"],
      ["image-a", "model"],
      ["%00", "model"],
      ["", "model"],
    ] as const)
      expectRefusal(await admin.post(`/admin/providers/${id}/test`, { model }), "validation_failed", { param });
    const secondId = await idOf("second");
    expectRefusal(await admin.post(`/admin/providers/${secondId}/test`, { model: "chat-a" }), "validation_failed", {
      param: "model",
    });
    expectRefusal(await admin.post("/admin/providers/999999/test"), "not_found");
  });

  test("one test of a provider at a time: the same is shared, another is refused with 429", async () => {
    const id = await idOf("first");
    shop.provider.next({ delayMs: 700 });
    const calls = shop.provider.callCount();
    const path = `/admin/providers/${id}/test`;
    const same = [1, 2].map(() => admin.post(path, { model: "chat-a" }));
    await shop.provider.waitForCalls(calls + 1);
    expectRefusal(await admin.post(path), "too_many_requests");
    const [one, two] = await Promise.all(same);
    expect(one?.json).toEqual(two?.json);
    expect(one?.json.chatTookMs).toBeGreaterThanOrEqual(600);
    expect(shop.provider.callCount()).toBe(calls + 1);
    expect((await admin.post(path)).json.ok).toBe(true);
  });

  test("a provider whose key was stored under another SECRET_KEY says so", async () => {
    const name = newName("Provider");
    const { id } = (await admin.post("/admin/providers", { name, baseUrl: shop.second.baseUrl, apiKey: KEY })).json;
    await shop.world.sql`update providers set key_ciphertext = '\\x00' where id = ${id}`;
    expect((await admin.post(`/admin/providers/${id}/test`)).json).toMatchObject({
      ok: false,
      kind: "key",
      problem: expect.stringContaining("SECRET_KEY"),
    });
  });

  test("what overruns taught about a route is shown with its model, and reset by an admin with an entry in the audit log", async () => {
    const [route] = (await find("chat-a")).routes;
    expect(route.overhead).toBeNull();
    for (const accountId of [1, 2, 3])
      await shop.world.sql`
        insert into route_overheads (account_id, route_id, payer_id, constant_tokens, image_tokens, factor_permille, first_at, last_at, decayed_at)
        values (${accountId}, ${route.id}, ${accountId}, ${accountId * 100}, 0, 1500, now(), now(), now())`;
    expect((await find("chat-a")).routes[0].overhead).toMatchObject({
      overhead: { constantTokens: 100, imageTokens: 0, factorPermille: 1500 },
      largest: { constantTokens: 300 },
      accounts: 3,
      payers: 3,
      firstAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
    });
    expect((await admin.delete(`/admin/routes/${route.id}/overhead`)).json).toEqual({ id: route.id });
    expect((await find("chat-a")).routes[0].overhead).toBeNull();
    expectRefusal(await admin.delete("/admin/routes/999999/overhead"), "validation_failed", { param: "routeId" });
    const entry = (await auditOf("routes", String(route.id))).at(-1);
    expect(entry).toMatchObject({ action: "changed", actor: admin.accountId });
  });

  test("why a route refused requests is shown at its model, until it serves one", async () => {
    const { secret } = await shop.customer();
    const body = JSON.stringify({ error: { message: "Insufficient Balance", code: "invalid_request_error" } });
    shop.provider.next({ status: 402, body });
    expect((await shop.chat(secret)).status).toBe(400);
    expect((await find("chat-a")).routes[0].breaker).toEqual({
      open: false,
      dueInMs: 0,
      forAll: false,
      trouble: "no_credit",
    });
    expect((await shop.chat(secret)).status).toBe(200);
    expect((await find("chat-a")).routes[0].breaker.trouble).toBeNull();
  });

  test("a route whose breaker opened is shown as open, at its model, at its provider and on the landing page", async () => {
    const { secret } = await shop.customer();
    for (let i = 0; i < 5; i++) {
      shop.provider.next({ status: 500 });
      expect((await shop.chat(secret, { model: "vendor/chat-b" })).status).toBe(503);
    }
    const [route] = (await admin.get("/admin/model?id=vendor/chat-b")).json.routes;
    expect(route.breaker.open).toBe(true);
    expect(route.breaker.dueInMs).toBeGreaterThan(0);
    const providers = (await admin.get("/admin/providers")).json.providers;
    expect(providers.find((one: { name: string }) => one.name === "first").openBreakers).toBe(1);
    expect((await admin.get("/admin/overview")).json.providersFailing).toEqual([{ name: "first", routes: 1 }]);
  });
});
