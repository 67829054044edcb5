import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectRefusal, withoutEffect } from "../gateway/checks.ts";
import { chatBody, eventsOf, imageBody, openShop, type Shop } from "../gateway/shop.ts";
import type { OfferingSpec, Person } from "../world.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";

/**
 * Chat and images in the panel: which key and host they use, and the order of refusals. What they accept and charge:
 * same_rules_as_api.test.ts. Source: ERR-9, ERR-10, KEY-7, ACC-1.
 */

const BASE = "api.tollgate.test";
const ACME = "ai.acme.test";
const PANEL = "panel.tollgate.test";
const CHAT = "/ai/chat";
const IMAGE = "/ai/image";

let shop: Shop;
let acme: Person;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  acme = await shop.world.addReseller(ACME);
});
afterAll(() => shop.close());

/** A customer with a package (none if null), and without a key. */
async function addPerson(spec: OfferingSpec | null = {}, resellerId?: number): Promise<Person> {
  const person = await shop.world.addCustomer(resellerId);
  if (spec !== null) await shop.world.givePackage(person, spec);
  return person;
}

/** The same with a key, signed in. */
async function open(spec: OfferingSpec | null = {}) {
  const person = await addPerson(spec);
  const { keyId } = await shop.world.addKey(person);
  return { person, keyId, session: await signInTo(shop, person) };
}

async function lastReceipt({ accountId }: Person) {
  const [row] = await shop.world.sql<{ key: number; host: string; mode: string }[]>`
    select key_id::int as key, host, mode from receipts where account_id = ${accountId} order by request_id desc limit 1`;
  if (row === undefined) throw new Error("the account has no receipt");
  return row;
}

test("chat as JSON, chat as a stream and an image return the gateway's responses and are metered", async () => {
  const { person, keyId, session } = await open({ dailyLimit: 10 });
  const whole = await session.post(CHAT, chatBody());
  expect(whole.json).toMatchObject({ object: "chat.completion", model: "chat-a" });
  expect(whole.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  const streamed = await session.post(CHAT, chatBody({ stream: true }));
  expect(streamed.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
  expect(streamed.headers.get("x-accel-buffering")).toBe("no");
  expect(eventsOf(streamed.text).at(-1)).toBe("[DONE]");
  const image = await session.post(IMAGE, imageBody({ response_format: "b64_json" }));
  expect(image.json.data[0].b64_json).toBeTruthy();
  expect(await lastReceipt(person)).toEqual({ key: keyId, host: BASE, mode: "package" });
  expect(await shop.counters(person.accountId)).toMatchObject({ usage: 3, units: 3, holds: 0 });
});

test("an image by URL is on the panel's own host", async () => {
  const { session } = await open({ dailyLimit: 10 });
  const image = await session.post(IMAGE, imageBody());
  const url = new URL(image.json.data[0].url);
  expect(url.origin).toBe(`http://${PANEL}`);
  const shown = await shop.call(url.pathname, { host: PANEL });
  expect([shown.status, shown.headers.get("content-type")]).toEqual([200, "image/png"]);
  expect((await shop.call(url.pathname, { host: BASE })).status).toBe(404);
});

test("a receipt has the base host, or the reseller's domain that the call came from", async () => {
  const customer = await addPerson({}, acme.accountId);
  await shop.world.addKey(customer);
  expect((await (await signInTo(shop, customer, { host: ACME })).post(CHAT, chatBody())).status).toBe(200);
  expect((await lastReceipt(customer)).host).toBe(ACME);
  const direct = await addPerson();
  await shop.world.addKey(direct);
  expect((await (await signInTo(shop, direct, { host: "localhost" })).post(CHAT, chatBody())).status).toBe(200);
  expect((await lastReceipt(direct)).host).toBe(BASE);
});

test("without api_key_id, or with null, the newest usable key pays", async () => {
  const { sql, addKey } = shop.world;
  const person = await addPerson();
  const usable = await addKey(person);
  const disabled = await addKey(person);
  const revoked = await addKey(person);
  await addKey(person, { expiresAt: "2020-01-01T00:00:00Z" });
  await addKey(person, { hosts: ["tollgate.test"] });
  await sql`update keys set status = 'disabled' where id = ${disabled.keyId}`;
  await sql`update keys set status = 'revoked' where id = ${revoked.keyId}`;
  const session = await signInTo(shop, person);
  for (const body of [chatBody(), chatBody({ api_key_id: null })]) {
    expect((await session.post(CHAT, body)).status).toBe(200);
    expect((await lastReceipt(person)).key).toBe(usable.keyId);
  }
  const newest = await addKey(person, { hosts: [BASE] });
  expect((await session.post(CHAT, chatBody())).status).toBe(200);
  expect((await lastReceipt(person)).key).toBe(newest.keyId);
});

test("api_key_id chooses the key and is not sent to the provider", async () => {
  const person = await addPerson();
  const named = await shop.world.addKey(person);
  await shop.world.addKey(person);
  const session = await signInTo(shop, person);
  for (const [path, body] of [
    [CHAT, chatBody()],
    [CHAT, chatBody({ stream: true })],
    [IMAGE, imageBody()],
  ] as const) {
    expect((await session.post(path, { api_key_id: String(named.keyId), ...body })).status).toBe(200);
    expect((await lastReceipt(person)).key).toBe(named.keyId);
    expect(shop.provider.lastCall()?.body).not.toContain("api_key_id");
  }
});

test("422 no_active_key, with one message, for no key, another account's key, an unusable one and a malformed id", async () => {
  const { sql, addKey } = shop.world;
  const person = await addPerson();
  const session = await signInTo(shop, person);
  await withoutEffect(shop, async () => {
    expectRefusal(await session.post(CHAT, chatBody()), "no_active_key");
    expectRefusal(await session.post(IMAGE, imageBody()), "no_active_key");
  });
  const theirs = await shop.customer();
  const disabled = await addKey(person);
  await sql`update keys set status = 'disabled' where id = ${disabled.keyId}`;
  const texts = new Set<string>();
  await withoutEffect(shop, async () => {
    for (const id of [
      String(theirs.keyId),
      String(disabled.keyId),
      "999999",
      "0",
      "-1",
      "1e3",
      "x",
      "",
      "9".repeat(40),
      theirs.secret.slice(0, 40),
    ]) {
      const answer = await session.post(CHAT, chatBody({ api_key_id: id }));
      expectRefusal(answer, "no_active_key", { param: "api_key_id" });
      texts.add(JSON.stringify(answer.json.error));
    }
  });
  expect(texts.size).toBe(1);
});

test("422 validation_failed for a wrong api_key_id, 415 for a body that is not plain JSON", async () => {
  const { session } = await open();
  const plainText = { "content-type": "text/plain" };
  await withoutEffect(shop, async () => {
    for (const path of [CHAT, IMAGE]) {
      const good = path === CHAT ? chatBody() : imageBody();
      for (const api_key_id of ["9".repeat(41), 5, ["1"]])
        expectRefusal(await session.post(path, { ...good, api_key_id }), "validation_failed", { param: "api_key_id" });
      for (const headers of [plainText, { "content-encoding": "gzip" }])
        expectRefusal(await session.post(path, good, headers), "unsupported_media_type");
    }
    const twice = '{"api_key_id": "1", "api_key_id": "2"}';
    expectRefusal(await session.post(CHAT, twice), "validation_failed", { param: "api_key_id" });
  });
});

test("refusals come in order: host, session, CSRF, body, key, model, entitlement", async () => {
  const keyless = await signInTo(shop, await addPerson(null));
  const { session: poor } = await open(null);
  const bad = { model: "nobody", messages: [] };
  const withoutOrigin = { origin: "" };
  const refused = async (
    session: PanelSession,
    { path = CHAT, body, headers = {} }: { path?: string; body: unknown; headers?: Record<string, string> },
    code: string,
    param: string | null = null,
  ) => expectRefusal(await session.post(path, body, headers), code, { param });
  await withoutEffect(shop, async () => {
    expectRefusal(await keyless.call(CHAT, { method: "POST", body: bad, host: "foreign.test" }), "host_not_allowed");
    await refused(keyless, { body: bad, headers: { ...withoutOrigin, cookie: "" } }, "session_required");
    await refused(keyless, { body: "{", headers: withoutOrigin }, "csrf_failed");
    await refused(keyless, { body: "{" }, "validation_failed");
    await refused(keyless, { body: bad }, "validation_failed", "messages");
    await refused(keyless, { path: IMAGE, body: { model: "nobody", prompt: "x" } }, "validation_failed", "prompt");
    await refused(keyless, { body: chatBody({ model: "nobody" }) }, "no_active_key");
    await refused(poor, { body: chatBody({ model: "nobody" }) }, "model_not_found", "model");
    expectRefusal(await poor.post(CHAT, chatBody()), "package_required", { status: 422 });
  });
});
