import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type AddressInfo, createServer, type Server } from "node:net";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";
import { auditOf } from "./stored.ts";

/** Providers, their keys, their test, and what is learned about their routes. Source: PRV-7, PAN-10. */

/** Closes every connection at the first byte. */
let deaf: Server;
let shop: Shop;
let admin: PanelSession;

beforeAll(async () => {
  deaf = createServer((socket) => {
    socket.on("error", () => {});
    socket.on("data", () => socket.end("no\r\n\r\n"));
  });
  await new Promise<void>((resolve) => deaf.listen(0, "127.0.0.1", resolve));
  shop = await openShop();
  admin = await signInTo(shop, await shop.world.addAdmin());
});
afterAll(async () => {
  await shop.close();
  deaf.close();
});

let made = 0;
const newName = (what: string) => `${what} ${++made}`;
const idOf = (name: string) =>
  shop.world.sql`select id from providers where name = ${name}`.then(([row]) => Number(row?.id));

describe("providers", () => {
  const KEY = "sk-provider-secret-0123456789";
  /** A key without failures, as the panel gets it. */
  const ACTIVE_KEY = {
    id: expect.any(Number),
    weight: 1,
    enabled: true,
    state: "active",
    since: expect.stringMatching(/Z$/),
    until: null,
    why: null,
    models: [],
    forAll: false,
    probedAt: null,
  };

  test("a provider's key is in no response and not in the audit log; a new key replaces it", async () => {
    const name = newName("Provider");
    const added = await admin.post("/admin/providers", { name, baseUrl: `${shop.second.baseUrl}/`, apiKey: KEY });
    expect(added.json).toEqual({
      id: expect.any(Number),
      name,
      baseUrl: shop.second.baseUrl,
      enabled: true,
      keys: [{ ...ACTIVE_KEY, providerId: added.json.id, name: "default" }],
      dialect: "generic",
      facts: {},
      takes: expect.objectContaining({ capField: "max_tokens", developerRole: "system" }),
      dialectTakes: expect.objectContaining({ capField: "max_tokens", developerRole: "system" }),
    });
    const { id } = added.json;
    const stored = async () =>
      (await shop.world.sql`select key_ciphertext from provider_keys where provider_id = ${id}`)[0]?.key_ciphertext;
    const before = await stored();
    const changed = await admin.patch(`/admin/providers/${id}`, { apiKey: `${KEY}-2`, enabled: false });
    expect(changed.json).toMatchObject({ enabled: false });
    expect(changed.text).not.toContain(KEY);
    expect(await stored()).not.toEqual(before);
    const list = await admin.get("/admin/providers");
    expect(list.json.providers.find((one: { id: number }) => one.id === id)).toMatchObject({
      routes: 0,
      openBreakers: 0,
    });
    expect(list.json.providers.find((one: { name: string }) => one.name === "second").routes).toBeGreaterThan(0);
    const audit = await auditOf(shop, "providers", String(id));
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

  test("keys are added, renamed, weighted, disabled, replaced and removed; no key is shown, and the last one cannot be removed", async () => {
    const added = await admin.post("/admin/providers", {
      name: newName("Pool"),
      baseUrl: shop.second.baseUrl,
      apiKey: KEY,
    });
    const { id } = added.json;
    const keys = `/admin/providers/${id}/keys`;
    const two = await admin.post(keys, { name: "two", apiKey: `${KEY}-2`, weight: 3 });
    const [first, second] = two.json.keys.map((key: { id: number }) => key.id);
    expect(two.json.keys).toEqual([
      { ...ACTIVE_KEY, providerId: id, name: "default" },
      { ...ACTIVE_KEY, providerId: id, name: "two", weight: 3 },
    ]);
    const wrong = [
      [{ name: "two", apiKey: KEY }, "name"],
      [{ name: "", apiKey: KEY }, "name"],
      [{ name: "x", apiKey: "a b" }, "apiKey"],
      [{ name: "x", apiKey: KEY, weight: 0 }, "weight"],
      [{ name: "x" }, "apiKey"],
    ] as const;
    for (const [body, param] of wrong) expectRefusal(await admin.post(keys, body), "validation_failed", { param });
    expectRefusal(await admin.patch(`/admin/provider-keys/${second}`, { name: "default" }), "validation_failed", {
      param: "name",
    });
    expectRefusal(await admin.patch(`/admin/provider-keys/${second}`, {}), "validation_failed");
    // With several keys the request must name one.
    expectRefusal(await admin.patch(`/admin/providers/${id}`, { apiKey: KEY }), "validation_failed", {
      param: "apiKey",
    });
    const elsewhere = { baseUrl: shop.provider.baseUrl, apiKey: KEY };
    expectRefusal(await admin.patch(`/admin/providers/${id}`, elsewhere), "validation_failed", { param: "apiKey" });

    await shop.world.sql`
      update provider_keys set state = 'quarantined', until = now() + interval '1 hour', why = 'credentials', failures = 4, met_payer_id = 7 where id = ${second}`;
    await shop.world
      .sql`insert into provider_key_pauses values (${second}, 'gpt', now(), now() + interval '1 minute', 7, 7)`;
    const resting = (await admin.get(`/admin/providers/${id}`)).json.keys[1];
    expect(resting).toMatchObject({ state: "quarantined", why: "credentials", forAll: false });
    expect(
      (await admin.get("/admin/providers")).json.providers.find((one: { id: number }) => one.id === id),
    ).toMatchObject({
      keys: 2,
      restingKeys: 1,
    });
    const replaced = await admin.patch(`/admin/provider-keys/${second}`, {
      apiKey: `${KEY}-3`,
      name: "new",
      weight: 5,
      enabled: false,
    });
    expect(replaced.json.keys[1]).toEqual({ ...ACTIVE_KEY, providerId: id, name: "new", weight: 5, enabled: false });

    expectRefusal(await admin.delete("/admin/provider-keys/999999"), "validation_failed", { param: "keyId" });
    expectRefusal(await admin.patch("/admin/provider-keys/0", { weight: 2 }), "not_found");
    expect((await admin.delete(`/admin/provider-keys/${first}`)).json.keys).toMatchObject([{ name: "new" }]);
    expectRefusal(await admin.delete(`/admin/provider-keys/${second}`), "validation_failed", { param: "keyId" });
    const audit = await auditOf(shop, "provider_keys", String(second));
    expect(audit.map(({ action, actor }) => [action, actor])).toEqual([
      ["added", admin.accountId],
      ["changed", admin.accountId],
    ]);
    for (const text of [two.text, replaced.text, JSON.stringify(audit)]) {
      expect(text).not.toContain("sk-provider");
      expect(text).not.toMatch(/ciphertext":"(?!\(hidden\))/);
    }
  });

  test("a provider is shown with its routes; a route has its provider's name and whether it is enabled", async () => {
    const id = await idOf("second");
    const { routes, hasMoreRoutes, ...shown } = (await admin.get(`/admin/providers/${id}`)).json;
    expect(hasMoreRoutes).toBe(false);
    expect(shown).not.toHaveProperty("apiKey");
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

  test("a private address gets 422 with the guard's message; a taken name, a key with a space and texts that are too long get 422", async () => {
    const good = () => ({ name: newName("Provider"), baseUrl: shop.second.baseUrl, apiKey: KEY });
    const guarded = await admin.post("/admin/providers", { ...good(), baseUrl: "http://10.0.0.1/v1" });
    expectRefusal(guarded, "validation_failed", { param: "baseUrl" });
    expect(guarded.json.error.message).toBe(
      "The provider's base URL leads to 10.0.0.1, which is not a public address (private). If it is yours, add 10.0.0.1:80 to PROVIDER_ALLOW_PRIVATE.",
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

  test("a provider's test returns its latency and number of models, and asks a chosen model for one token", async () => {
    const id = await idOf("first");
    const plain = (await admin.post(`/admin/providers/${id}/test`)).json;
    expect(plain).toEqual({
      ok: true,
      tookMs: expect.any(Number),
      models: expect.any(Number),
      // The simulated provider serves any model, and lists its own.
      unlisted: expect.arrayContaining(["up-chat-a", "up-image-a"]),
      chatTookMs: null,
      kind: null,
      problem: null,
      probe: null,
    });
    expect(plain.models).toBeGreaterThan(0);
    const calls = shop.provider.callCount();
    const chat = (await admin.post(`/admin/providers/${id}/test`, { model: "vendor/chat-b" })).json;
    expect(chat).toMatchObject({ ok: true, chatTookMs: expect.any(Number) });
    expect(shop.provider.callCount()).toBe(calls + 1);
    const sent = JSON.parse(shop.provider.lastCall()?.body ?? "");
    expect(sent).toMatchObject({ model: "up-vendor/chat-b", max_tokens: 1 });
    const embedded = (await admin.post(`/admin/providers/${id}/test`, { model: "embed-a" })).json;
    expect(embedded).toMatchObject({ ok: true, chatTookMs: expect.any(Number), problem: null });
    expect(shop.provider.lastCall()).toMatchObject({ path: "/v1/embeddings" });
    // Nobody is charged.
    const [receipts] = await shop.world.sql`select count(*)::int as n from receipts where model_id = 'vendor/chat-b'`;
    expect(receipts?.n).toBe(0);
  });

  test("a provider's test names the exact failure, and never contains the key", async () => {
    const add = async (baseUrl: string, apiKey = KEY) => {
      const name = newName("Provider");
      await admin.post("/admin/providers", { name, baseUrl: shop.second.baseUrl, apiKey });
      // As if its name had since changed its address.
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

  test("a failed chat is reported apart from the list of models that answered", async () => {
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

  test("one test of a provider runs at a time: callers of the same test share it, another test gets 429", async () => {
    const id = await idOf("first");
    const { held, open } = shop.provider.gate();
    shop.provider.next(held);
    const calls = shop.provider.callCount();
    const path = `/admin/providers/${id}/test`;
    const same = [1, 2].map(() => admin.post(path, { model: "chat-a" }));
    await shop.provider.waitForCalls(calls + 1);
    expectRefusal(await admin.post(path), "too_many_requests");
    open();
    const [one, two] = await Promise.all(same);
    expect(one?.json).toEqual(two?.json);
    expect(one?.json.chatTookMs).toBeGreaterThan(0);
    expect(shop.provider.callCount()).toBe(calls + 1);
    expect((await admin.post(path)).json.ok).toBe(true);
  });

  test("a key that was encrypted with another SECRET_KEY fails the test with that reason", async () => {
    const name = newName("Provider");
    const { id } = (await admin.post("/admin/providers", { name, baseUrl: shop.second.baseUrl, apiKey: KEY })).json;
    await shop.world.sql`update provider_keys set key_ciphertext = '\\x00' where provider_id = ${id}`;
    expect((await admin.post(`/admin/providers/${id}/test`)).json).toMatchObject({
      ok: false,
      kind: "key",
      problem: expect.stringContaining("SECRET_KEY"),
    });
  });
});

describe("data that is learned about a route", () => {
  const find = async (id: string) => (await admin.get(`/admin/model?id=${encodeURIComponent(id)}`)).json;

  test("a model shows why its route refused requests, until the route serves one", async () => {
    // A replica reports every second.
    const { secret } = await shop.customer();
    const body = JSON.stringify({ error: { message: "Insufficient Balance", code: "invalid_request_error" } });
    shop.provider.next({ status: 402, body });
    expect((await shop.chat(secret)).status).toBe(400);
    const trouble = async () => (await find("chat-a")).routes[0].breaker.trouble;
    await until(async () => (await trouble()) === "no_credit");
    expect((await find("chat-a")).routes[0].breaker).toEqual({
      ...{ open: false, dueInMs: 0, forAll: false, trouble: "no_credit", leftOutBy: 0, replicas: expect.any(Number) },
    });
    expect((await shop.chat(secret)).status).toBe(200);
    await until(async () => (await trouble()) === null);
  });

  test("an open breaker is shown on its model, its provider and the overview", async () => {
    const { secret } = await shop.customer();
    for (let i = 0; i < 5; i++) {
      shop.provider.next({ status: 500 });
      expect((await shop.chat(secret, { model: "vendor/chat-b" })).status).toBe(503);
    }
    // It closes again after a second; what the replica reports is as old as its last heartbeat.
    await until(async () => {
      const [route] = (await admin.get("/admin/model?id=vendor/chat-b")).json.routes;
      return route.breaker.open && route.breaker.dueInMs > 0 && route.breaker.leftOutBy === 1;
    });
  });

  test("a breaker that another replica alone has open is shown everywhere", async () => {
    const [{ id } = { id: 0 }] = (await admin.get("/admin/model?id=chat-a")).json.routes;
    const status = {
      ...{ holds: 0, oldestHoldMs: null, queued: 0, spoolEmpty: true, inFlight: 0, ledgerP99Ms: null, reapedAt: null },
      ...{ draining: false, busHealthy: true, databaseUp: true, runtime: "bun" },
      routes: [{ routeId: id, dueInMs: 4_000, forAll: true, trouble: null }],
    };
    // It reported a moment ago, and reports for an hour.
    await shop.world.sql`
      insert into replicas (id, version, status, seen_at)
      values ('01a00000-0000-7000-8000-000000000000', '1', ${JSON.stringify(status)}::text::jsonb, clock_timestamp() + interval '1 hour')`;
    const [route] = (await admin.get("/admin/model?id=chat-a")).json.routes;
    expect(route.breaker).toMatchObject({ open: true, dueInMs: 4_000, forAll: true, leftOutBy: 1 });
    expect(route.breaker.replicas).toBeGreaterThan(1);
    const list = (await admin.get("/admin/routes")).json.routes;
    expect(list.find((one: { id: number }) => one.id === id).breaker.open).toBe(true);
    const providers = (await admin.get("/admin/providers")).json.providers;
    expect(providers.find((one: { name: string }) => one.name === "first").openBreakers).toBeGreaterThan(0);
    const { failing } = (await admin.get("/admin/overview")).json.providers;
    expect(failing.map(({ name }: { name: string }) => name)).toContain("first");
    await shop.world.sql`delete from replicas where id = '01a00000-0000-7000-8000-000000000000'`;
  });

  test("a route is untested until it is called, and failing when half of its requests fail", async () => {
    const name = newName("Provider");
    const added = await admin.post("/admin/providers", { name, baseUrl: shop.second.baseUrl, apiKey: "sk-provider" });
    const providerId = added.json.id;
    const { id } = (await admin.post("/admin/routes", { modelId: "chat-a", providerId })).json;
    const state = async () => {
      const { routes } = await find("chat-a");
      const listed = (await admin.get("/admin/routes")).json.routes.find((one: { id: number }) => one.id === id);
      const provider = (await admin.get(`/admin/providers/${providerId}`)).json.routes[0];
      const own = routes.find((one: { id: number }) => one.id === id).health;
      return [own, listed.health, provider.health];
    };
    expect(await state()).toEqual(["untested", "untested", "untested"]);
    const sums = (errors: number) => shop.world.sql`
      insert into route_stats (route_id, kind, span, begins, requests, errors, input_tokens, cached_tokens, cost_nano_usd, priced_nano_usd, durations)
      values (${id}, 'whole', 60, date_trunc('hour', now()), 2, ${errors}, 0, 0, 0, 0, array_fill(0, array[1]))
      on conflict (route_id, span, begins, kind) do update set errors = excluded.errors`;
    await sums(0);
    expect(await state()).toEqual(["answers", "answers", "answers"]);
    await sums(1);
    expect(await state()).toEqual(["failing", "failing", "failing"]);
    const { failing } = (await admin.get("/admin/overview")).json.providers;
    expect(failing).toContainEqual({ name, routes: 1 });
    await admin.delete(`/admin/routes/${id}`);
  });
});
