import { afterAll, beforeAll, expect, test } from "bun:test";
import { Webhook } from "standardwebhooks";
import { behave } from "../faults/fault_shop.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { openReceiver } from "../messages/post.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { type Management, managementOf, UNKNOWN_ID } from "./management_client.ts";

/** Models, routes, providers and webhooks by programs. Source: MGT-1, MGT-3, MGT-6, PRV-9, MSG-9. */

let shop: Shop;
let receiver: Awaited<ReturnType<typeof openReceiver>>;
let admin: Management;
let reseller: Person;
let seller: Management;

beforeAll(async () => {
  receiver = await openReceiver();
  shop = await openShop({ redisUrl: "", env: { MESSAGES_ALLOW_PRIVATE: receiver.hostPort } });
  admin = await managementOf(shop, await shop.world.addAdmin(), "admin", { name: "terraform" });
  reseller = await shop.world.addReseller("ai.ours.test");
  seller = await managementOf(shop, reseller, "reseller");
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
  await receiver.close();
});

/** A provider at the shop's fake one, under another name. */
async function addProvider(name: string): Promise<number> {
  const { baseUrl, apiKey } = shop.provider;
  const { status, json, text } = await admin.post("/providers", { name, baseUrl, apiKey });
  expect(status, text).toBe(200);
  expect(text).not.toContain(apiKey);
  return json.id;
}

test("a model, its provider, route and prices are made by a program, and a customer is served and charged by them", async () => {
  const providerId = await addProvider("made");
  const id = "acme/made-1";
  const { json: made } = await admin.post("/models", {
    ...{ id, contextLength: 8192, defaultCapTokens: 100 },
    prices: { inputMicroUsd: 1_000_000, outputMicroUsd: 2_000_000 },
  });
  expect(made).toMatchObject({ id, prices: { inputMicroUsd: 1_000_000, outputMicroUsd: 2_000_000 }, routes: [] });
  const { json: route } = await admin.post("/routes", { modelId: id, providerId, upstreamModel: "up" });
  const payer = await shop.payer(1_000_000_000n);
  const mark = behave(shop, { usage: { prompt_tokens: 10, completion_tokens: 5 } });
  await until(async () => (await shop.chat(payer.secret, { model: id, ...mark })).status === 200);
  const [used] = await shop.world
    .sql`select charged_nano_usd from receipts where account_id = ${payer.accountId} and outcome = 'settled'`;
  // 10 tokens at 1 USD and 5 at 2 USD per million.
  expect(Number(used?.charged_nano_usd)).toBe(20_000);

  const priced = await admin.call("PUT", "/model/prices", { id, prices: null });
  expect(priced.json).toMatchObject({ prices: null, exampleNanoUsd: null });
  expect((await admin.call("PATCH", `/routes/${route.id}`, { weight: 5 })).json).toEqual({ id: route.id });
  const { json: shown } = await admin.get(`/model?id=${encodeURIComponent(id)}`);
  expect(shown.routes).toMatchObject([{ id: route.id, providerId, upstreamModel: "up", weight: 5 }]);
  expect((await admin.call("DELETE", `/routes/${route.id}`)).status).toBe(200);
  expect((await admin.get(`/model?id=${encodeURIComponent(id)}`)).json.routes).toEqual([]);
});

test("all models are listed once, page by page, and so are providers with names of any letters", async () => {
  await addProvider("提供者 ✓");
  for (const [path, name] of [
    ["/models", "id"],
    ["/providers", "name"],
  ] as const) {
    const listed: string[] = [];
    let cursor: string | null = null;
    do {
      const after: string = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
      const { json, text } = await admin.get(`${path}?limit=2${after}`);
      expect(json.data.length, text).toBeLessThanOrEqual(2);
      listed.push(...json.data.map((row: Record<string, string>) => row[name]));
      cursor = json.nextCursor;
    } while (cursor !== null);
    const { sql } = shop.world;
    const all = path === "/models" ? await sql`select id as name from models` : await sql`select name from providers`;
    expect(listed.toSorted()).toEqual(all.map((row) => String(row.name)).toSorted());
  }
});

test("a provider's keys are added, changed and removed, and no answer has one", async () => {
  const providerId = await addProvider("keys");
  const secret = "sk-second-of-the-provider";
  const added = await admin.post(`/providers/${providerId}/keys`, { name: "second", apiKey: secret, weight: 3 });
  const key = added.json.keys.find(({ name }: { name: string }) => name === "second");
  expect(key).toMatchObject({ weight: 3, enabled: true, state: "active" });
  const changed = await admin.call("PATCH", `/provider_keys/${key.id}`, { enabled: false });
  expect(changed.json.keys.find(({ id }: { id: number }) => id === key.id)).toMatchObject({ enabled: false });
  const removed = await admin.call("DELETE", `/provider_keys/${key.id}`);
  expect(removed.json.keys).toHaveLength(1);
  for (const { text } of [added, changed, removed, await admin.get(`/providers/${providerId}`)])
    expect(text).not.toContain(secret);
  const [entry] = await shop.world.sql`
    select t.name from audit_entries a join api_tokens t on t.id = a.token_id where a.subject = 'provider_keys' order by a.id desc limit 1`;
  expect(entry?.name).toBe("terraform");
});

test("a mistake is named and changes nothing", async () => {
  const providerId = await addProvider("mistakes");
  const cases: [method: string, path: string, body: object, param: string | null][] = [
    ["POST", "/models", { id: "x y" }, "id"],
    ["POST", "/models", { id: "chat-a" }, "id"],
    ["POST", "/models", { id: "new", contextLenght: 5 }, "contextLenght"],
    ["POST", "/models", { id: "new", prices: { inputMicroUsd: 1 } }, "prices.outputMicroUsd"],
    ["PUT", "/model/prices", { id: "chat-a", prices: { inputMicroUsd: -1, outputMicroUsd: 1 } }, "inputMicroUsd"],
    ["PUT", "/model/image_price", { id: "image-a", size: "1x1", microUsd: 5 }, "size"],
    ["POST", "/routes", { modelId: "nobody", providerId }, "modelId"],
    ["POST", "/routes", { modelId: "chat-a", providerId, costInputMicroUsd: 5 }, "costOutputMicroUsd"],
    ["POST", "/providers", { name: "p", baseUrl: "http://10.0.0.1/v1", apiKey: "k" }, "baseUrl"],
    ["POST", "/providers", { name: "p", baseUrl: shop.provider.baseUrl, apiKey: "k", dialect: "nobody" }, "dialect"],
    ["PATCH", `/providers/${providerId}`, { facts: { nofact: true } }, "facts"],
    ["POST", `/providers/${providerId}/keys`, { name: "k", apiKey: "k", weight: 0 }, "weight"],
  ];
  const rows = () =>
    shop.world.sql`select (select count(*)::int from models) as models, (select count(*)::int from routes) as routes,
      (select count(*)::int from providers) as providers, (select count(*)::int from provider_keys) as keys,
      (select sum(input_micro_usd)::text from models) as prices`;
  const before = await rows();
  for (const [method, path, body, param] of cases) {
    const { status, json, text } = await admin.call(method, path, body);
    expect([400, 409, 422], `${path} ${text}`).toContain(status);
    expect(String(json.error.param), `${path} ${text}`).toStartWith(param ?? "");
  }
  expect(await rows()).toEqual(before);
  for (const path of [`/model?id=nobody`, `/providers/${UNKNOWN_ID}`])
    expectRefusal(await admin.get(path), "not_found");
});

test("a seller's program adds a webhook, tests it, rotates its secret and removes it; another tenant's is unknown", async () => {
  const { json: made } = await seller.post("/webhooks", { url: receiver.url, kinds: ["balance_low"] });
  const { endpointId } = made.endpoint;
  expect((await seller.get("/webhooks")).json.endpoints).toMatchObject([{ endpointId, enabled: true }]);
  expect((await seller.get("/webhooks")).text).not.toContain(made.secret);
  receiver.does.answer = () => ({ status: 204 });
  expect((await seller.post(`/webhooks/${endpointId}/test`)).json).toMatchObject({ ok: true, status: 204 });
  const { json: rotated } = await seller.post(`/webhooks/${endpointId}/rotate`, { overlapHours: 0 });
  receiver.calls.length = 0;
  await seller.post(`/webhooks/${endpointId}/test`);
  const [call] = receiver.calls;
  expect(new Webhook(rotated.secret).verify(call?.body ?? "", call?.headers ?? {})).toMatchObject({ type: "test" });
  expect(() => new Webhook(made.secret).verify(call?.body ?? "", call?.headers ?? {})).toThrow();
  expect((await seller.get(`/webhooks/${endpointId}/deliveries`)).json).toMatchObject({ data: [], hasMore: false });
  const other = await managementOf(shop, await shop.world.addReseller("ai.zebra.test"), "reseller");
  for (const who of [other, admin]) {
    expectRefusal(await who.post(`/webhooks/${endpointId}/test`), "not_found");
    expectRefusal(await who.call("DELETE", `/webhooks/${endpointId}`), "not_found");
    expectRefusal(await who.call("PATCH", `/webhooks/${endpointId}`, { enabled: false }), "not_found");
  }
  const off = await seller.call("PATCH", `/webhooks/${endpointId}`, { enabled: false });
  expect(off.json.endpoint).toMatchObject({ enabled: false });
  expect((await seller.call("DELETE", `/webhooks/${endpointId}`)).json).toEqual({ removed: true });
  expect((await seller.get("/webhooks")).json.endpoints).toEqual([]);
});
