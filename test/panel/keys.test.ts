import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { KEY_BUDGETS } from "../../src/limits.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { COUNTING } from "../replica.ts";
import type { Person } from "../world.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";
import { databaseMs, expectSince } from "./stored.ts";

/** Source: KEY-4, KEY-6, PAN-2. */

const ACME = "ai.acme.test";
const BASE = "api.tollgate.test";
const SECRET = /sk-[A-Za-z0-9_-]{20,}/;

let shop: Shop;
let acme: Person;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { ...COUNTING, BILLING_TIMEZONE: "Asia/Tokyo" } });
  acme = await shop.world.addReseller();
  await shop.world.sql`insert into hosts (host, reseller_id, status) values
    (${ACME}, ${acme.accountId}, 'active'), ('old.acme.test', ${acme.accountId}, 'failed')`;
});
afterAll(() => shop.close());

async function customer(spec: Parameters<Shop["world"]["givePackage"]>[1] | null = {}, resellerId?: number) {
  const person = await shop.world.addCustomer(resellerId);
  if (spec !== null) await shop.world.givePackage(person, spec);
  return signInTo(shop, person, resellerId === undefined ? {} : { host: ACME });
}

const newKey = (over: Record<string, unknown> = {}) => ({ name: "ci", mode: "package", ...over });
const rowsOf = async (session: PanelSession) => (await session.get("/keys")).json.rows;

const NOTHING_SPENT = Object.fromEntries(KEY_BUDGETS.map(({ field }) => [field, "0"]));

describe("creating a key", () => {
  test("the secret is returned once, works immediately, and is in no list", async () => {
    const session = await customer();
    const made = await session.post("/keys", newKey());
    expect(made.status).toBe(200);
    expect(made.headers.get("cache-control")).toBe("no-store");
    const { secret, key } = made.json;
    expect(secret).toMatch(SECRET);
    expect((await shop.chat(secret)).status).toBe(200);
    const list = await session.get("/keys");
    expect(list.text).not.toMatch(SECRET);
    expect(list.json.rows).toEqual([
      {
        madeBy: { personId: expect.any(Number), name: expect.any(String), isMember: true },
        keyId: key.keyId,
        name: "ci",
        masked: `${secret.slice(0, 9)}…${secret.slice(-4)}`,
        mode: "package",
        modelIds: null,
        hosts: null,
        status: "enabled",
        expiresAt: null,
        dailyUnitsMax: null,
        dailySpendMaxNanoUsd: null,
        weeklySpendMaxNanoUsd: null,
        monthlySpendMaxNanoUsd: null,
        totalSpendMaxNanoUsd: null,
        totalSpendFrom: null,
        limits: null,
        timeZone: "Asia/Tokyo",
        createdAt: expect.any(String),
        lastUsedAt: list.json.rows[0].lastUsedAt,
        lastHost: list.json.rows[0].lastHost,
        used: null,
        requestsLastDay: 1,
      },
    ]);
  });

  test("all settings can be set; money is a string of digits", async () => {
    const session = await customer();
    const expiresAt = "2027-06-30T12:00:00.000Z";
    const { json } = await session.post(
      "/keys",
      newKey({
        mode: "payg",
        modelIds: ["chat-a"],
        hosts: [BASE],
        expiresAt: "2027-06-30T14:00:00+02:00",
        dailyUnitsMax: 500,
        dailySpendMaxNanoUsd: "9000000000000000",
        weeklySpendMaxNanoUsd: "7",
        monthlySpendMaxNanoUsd: "30",
        totalSpendMaxNanoUsd: "365",
      }),
    );
    expect(json.key).toMatchObject({ mode: "payg", modelIds: ["chat-a"], hosts: [BASE], expiresAt });
    expect(json.key).toMatchObject({ dailyUnitsMax: 500, dailySpendMaxNanoUsd: "9000000000000000" });
    expect(json.key).toMatchObject({
      weeklySpendMaxNanoUsd: "7",
      monthlySpendMaxNanoUsd: "30",
      totalSpendMaxNanoUsd: "365",
    });
    expect(json.key.totalSpendFrom).toMatch(/^\d{4}-\d\d-\d\d$/);
    expect((await rowsOf(session))[0].used).toMatchObject({ units: 0, spentNanoUsd: NOTHING_SPENT });
  });

  test("422 validation_failed names the wrong field; no key is created", async () => {
    const session = await customer();
    const cases: [body: unknown, param: string | null][] = [
      [{}, "name"],
      [newKey({ name: "" }), "name"],
      [newKey({ name: "x".repeat(101) }), "name"],
      [newKey({ name: "x".repeat(5000) }), "name"],
      [newKey({ name: "two\nlines" }), "name"],
      [newKey({ name: "a\0b" }), "name"],
      [newKey({ mode: "free" }), "mode"],
      [newKey({ modelIds: ["nobody"] }), "modelIds"],
      [newKey({ modelIds: [] }), "modelIds"],
      [newKey({ modelIds: ["a\0b"] }), "modelIds"],
      [newKey({ hosts: [ACME] }), "hosts"],
      [newKey({ expiresAt: "tomorrow" }), "expiresAt"],
      [newKey({ expiresAt: "2020-01-01T00:00:00Z" }), "expiresAt"],
      [newKey({ dailyUnitsMax: 0 }), "dailyUnitsMax"],
      [newKey({ dailyUnitsMax: 1.5 }), "dailyUnitsMax"],
      [newKey({ dailyUnitsMax: "five" }), "dailyUnitsMax"],
      [newKey({ dailySpendMaxNanoUsd: "0" }), "dailySpendMaxNanoUsd"],
      [newKey({ dailySpendMaxNanoUsd: "-5" }), "dailySpendMaxNanoUsd"],
      [newKey({ dailySpendMaxNanoUsd: "1e9" }), "dailySpendMaxNanoUsd"],
      [newKey({ dailySpendMaxNanoUsd: 5 }), "dailySpendMaxNanoUsd"],
      [newKey({ dailySpendMaxNanoUsd: "9000000000000001" }), "dailySpendMaxNanoUsd"],
      ...KEY_BUDGETS.map(({ field }): [unknown, string] => [newKey({ [field]: "0" }), field]),
      [newKey({ accountId: acme.accountId }), "accountId"],
      ["[]", null],
      ["{", null],
    ];
    for (const [body, param] of cases) {
      const answer = await session.post("/keys", body);
      expectRefusal(answer, "validation_failed", { param: answer.json.error?.param });
      if (param !== null) expect(String(answer.json.error.param)).toStartWith(param);
    }
    expect(await rowsOf(session)).toEqual([]);
  });
});

describe("options of a new key", () => {
  test("the operator's customers get the enabled models, the API's own hosts, and the billing modes that can pay now", async () => {
    const { json } = await (await customer()).get("/keys/options");
    expect(json.models).toContainEqual({ id: "image-a", name: "image-a", modality: "image" });
    expect(json.hosts).toEqual([
      { host: BASE, label: "http://api.tollgate.test/v1" },
      { host: "tollgate.test", label: "http://tollgate.test/v1" },
    ]);
    expect(json.modes).toEqual([
      { mode: "package", canPay: true, packageName: expect.any(String) },
      { mode: "payg", canPay: false, packageName: null },
    ]);
    expect(json.timeZone).toBe("Asia/Tokyo");
  });

  test("a reseller's customers get its active domains and no host of the operator; the reseller gets both", async () => {
    const theirs = await (await customer({}, acme.accountId)).get("/keys/options");
    expect(theirs.json.hosts).toEqual([{ host: ACME, label: `http://${ACME}/v1` }]);
    expect(theirs.text).not.toContain("tollgate");
    const own = await (await signInTo(shop, acme)).get("/keys/options");
    expect(own.json.hosts.map(({ host }: { host: string }) => host)).toEqual([BASE, "tollgate.test", ACME]);
  });

  test("a billing mode can pay while its package has requests left or its balance has money", async () => {
    const modes = async (session: PanelSession) =>
      (await session.get("/keys/options")).json.modes.map(({ canPay }: { canPay: boolean }) => canPay);
    const person = await shop.world.addCustomer();
    const session = await signInTo(shop, person);
    expect(await modes(session)).toEqual([false, false]);
    await shop.world.setBalance(person, 1n);
    expect(await modes(session)).toEqual([false, true]);
    await shop.world.givePackage(person, { dailyLimit: 1 });
    expect(await modes(session)).toEqual([true, true]);
    expect((await shop.chat((await shop.world.addKey(person)).secret)).status).toBe(200);
    expect(await modes(session)).toEqual([false, true]);
  });
});

describe("changing and ending a key", () => {
  test("a key is renamed, limited, disabled, enabled and revoked; each change is in the audit log with its actor", async () => {
    const session = await customer();
    const { secret, key } = (await session.post("/keys", newKey())).json;
    const path = `/keys/${key.keyId}`;
    expect((await session.patch(path, { name: "web" })).json).toMatchObject({ name: "web", dailyUnitsMax: null });
    expect((await session.patch(path, { dailyUnitsMax: 1, dailySpendMaxNanoUsd: "5" })).json).toMatchObject({
      dailyUnitsMax: 1,
      dailySpendMaxNanoUsd: "5",
    });
    expect((await session.patch(path, { dailySpendMaxNanoUsd: null })).json).toMatchObject({
      name: "web",
      dailyUnitsMax: 1,
      dailySpendMaxNanoUsd: null,
    });
    expect((await shop.chat(secret)).status).toBe(200);
    expectRefusal(await shop.chat(secret), "key_request_limit_exceeded");
    expect((await rowsOf(session))[0].used).toMatchObject({ units: 1, spentNanoUsd: NOTHING_SPENT });

    expect((await session.post(`${path}/disable`)).json.status).toBe("disabled");
    expectRefusal(await shop.chat(secret), "invalid_api_key");
    expect((await session.post(`${path}/enable`)).json.status).toBe("enabled");
    expect((await session.post(`${path}/revoke`)).json.status).toBe("revoked");
    expect((await session.post(`${path}/revoke`)).json.status).toBe("revoked");
    expectRefusal(await session.post(`${path}/enable`), "validation_failed", { param: "keyId" });
    expectRefusal(await session.patch(path, { name: "x" }), "validation_failed", { param: "keyId" });
    expectRefusal(await shop.chat(secret), "invalid_api_key");

    const log = await shop.world.sql`
      select action, before, after, actor_id::int, request_id is not null as by_request from audit_entries
      where subject = 'keys' and subject_id = ${String(key.keyId)} order by id`;
    expect(log.map(({ action, before, after }) => [action, before, after]).slice(1)).toEqual([
      ["changed", { name: "ci" }, { name: "web" }],
      ["changed", null, { daily_units_max: 1, daily_spend_max_nano_usd: 5 }],
      ["changed", { daily_spend_max_nano_usd: 5 }, null],
      ["changed", { status: "enabled" }, { status: "disabled" }],
      ["changed", { status: "disabled" }, { status: "enabled" }],
      ["changed", { status: "enabled" }, { status: "revoked" }],
    ]);
    for (const row of log) expect(row).toMatchObject({ actor_id: session.accountId, by_request: true });
    expect(JSON.stringify(log)).not.toContain(secret.slice(9, -4));
  });

  test("its models and hosts can be changed: the next request outside of them is refused", async () => {
    const session = await customer({}, acme.accountId);
    const { secret, key } = (await session.post("/keys", newKey({ modelIds: ["chat-a"] }))).json;
    const path = `/keys/${key.keyId}`;
    const chat = () => shop.chat(secret, {}, { host: ACME });
    expect((await chat()).status).toBe(200);
    expect((await session.patch(path, { modelIds: ["vendor/chat-b"] })).json).toMatchObject({
      name: "ci",
      modelIds: ["vendor/chat-b"],
      hosts: null,
    });
    expectRefusal(await chat(), "model_not_found", { param: "model" });
    expect((await session.patch(path, { modelIds: null })).json).toMatchObject({ modelIds: null });
    expect((await chat()).status).toBe(200);
    expect((await session.patch(path, { hosts: [BASE] })).json).toMatchObject({ hosts: [BASE] });
    expectRefusal(await chat(), "host_not_allowed");
    expect((await session.patch(path, { hosts: [BASE, ACME] })).json).toMatchObject({ hosts: [BASE, ACME] });
    expect((await chat()).status).toBe(200);

    const cases: [body: object, param: string][] = [
      [{ modelIds: [] }, "modelIds"],
      [{ modelIds: ["nobody"] }, "modelIds"],
      [{ modelIds: ["a\0b"] }, "modelIds.0"],
      [{ modelIds: "chat-a" }, "modelIds"],
      [{ modelIds: Array.from({ length: 201 }, (_, i) => `m${i}`) }, "modelIds"],
      [{ hosts: [] }, "hosts"],
      [{ hosts: ["ai.other.test"] }, "hosts"],
      [{ hosts: Array.from({ length: 51 }, (_, i) => `h${i}.test`) }, "hosts"],
      [{ mode: "payg" }, "mode"],
    ];
    for (const [body, param] of cases) expectRefusal(await session.patch(path, body), "validation_failed", { param });
    expect((await rowsOf(session))[0]).toMatchObject({ modelIds: null, hosts: [BASE, ACME] });
  });

  test("a domain that is gone may stay in a key's hosts, and cannot be added again", async () => {
    const { sql } = shop.world;
    const session = await customer({}, acme.accountId);
    await sql`insert into hosts (host, reseller_id, status) values ('brief.acme.test', ${acme.accountId}, 'active')`;
    const { key } = (await session.post("/keys", newKey({ hosts: [ACME, "brief.acme.test"] }))).json;
    await sql`update hosts set status = 'removed' where host = 'brief.acme.test'`;
    const path = `/keys/${key.keyId}`;
    expect((await session.patch(path, { hosts: ["brief.acme.test"] })).json).toMatchObject({
      hosts: ["brief.acme.test"],
    });
    expect((await session.patch(path, { hosts: [ACME] })).json).toMatchObject({ hosts: [ACME] });
    expectRefusal(await session.patch(path, { hosts: ["brief.acme.test"] }), "validation_failed", { param: "hosts" });
  });

  test("a limit says when its period begins anew: at midnight, on Monday, on the first, in the key's time zone", async () => {
    const session = await customer();
    await session.post("/keys", newKey({ weeklySpendMaxNanoUsd: "7" }));
    const nowMs = await databaseMs(shop);
    const { day, week, month } = (await rowsOf(session))[0].used.resetsAt;
    /** Tokyo has no daylight saving. */
    const there = (iso: string) => new Date(Date.parse(iso) + 9 * 3_600_000);
    for (const iso of [day, week, month]) {
      expect(there(iso).toISOString()).toEndWith("T00:00:00.000Z");
      expect(Date.parse(iso)).toBeGreaterThan(nowMs);
    }
    const days = (iso: string) => (Date.parse(iso) - nowMs) / 86_400_000;
    expect(days(day)).toBeLessThanOrEqual(1);
    expect(days(week)).toBeLessThanOrEqual(7);
    expect(days(month)).toBeLessThanOrEqual(31);
    expect(there(week).getUTCDay()).toBe(1);
    expect(there(month).getUTCDate()).toBe(1);
  });

  test("a rotation gives a new secret with the same settings; the old secret works during the overlap", async () => {
    const session = await customer();
    const first = (await session.post("/keys", newKey({ modelIds: ["chat-a"], dailyUnitsMax: 50 }))).json;
    const path = `/keys/${first.key.keyId}/rotate`;
    const rotated = (await session.post(path, { overlapSeconds: 86_400 })).json;
    expect(rotated.secret).toMatch(SECRET);
    expect(rotated.key).toMatchObject({ name: "ci", modelIds: ["chat-a"], dailyUnitsMax: 50, status: "enabled" });
    expect(rotated.old).toMatchObject({ keyId: first.key.keyId, status: "enabled", expiresAt: expect.any(String) });
    for (const secret of [first.secret, rotated.secret]) expect((await shop.chat(secret)).status).toBe(200);
    const next = (await session.post(`/keys/${rotated.key.keyId}/rotate`, { overlapSeconds: 0 })).json;
    expectRefusal(await shop.chat(rotated.secret), "invalid_api_key");
    expect((await shop.chat(next.secret)).status).toBe(200);
    for (const overlapSeconds of [-1, 30 * 86_400 + 1])
      expectRefusal(await session.post(`/keys/${next.key.keyId}/rotate`, { overlapSeconds }), "validation_failed", {
        param: "overlapSeconds",
      });
    expectRefusal(await session.post(`/keys/${rotated.key.keyId}/rotate`, { overlapSeconds: 0 }), "validation_failed", {
      param: "keyId",
    });
  });

  test("another account's key (also for its reseller and admins), an unknown id and a malformed id get 404, and nothing changes", async () => {
    const theirs = await customer({}, acme.accountId);
    const { key, secret } = (await theirs.post("/keys", newKey())).json;
    const sessions = [await customer(), await signInTo(shop, acme), await signInTo(shop, await shop.world.addAdmin())];
    for (const session of sessions) {
      for (const id of [key.keyId, 999_999, 0, -1, "x", "9".repeat(20)]) {
        const answers = [
          await session.patch(`/keys/${id}`, { name: "mine" }),
          await session.post(`/keys/${id}/disable`),
          await session.post(`/keys/${id}/enable`),
          await session.post(`/keys/${id}/revoke`),
          await session.post(`/keys/${id}/rotate`, { overlapSeconds: 0 }),
        ];
        for (const answer of answers) expectRefusal(answer, "not_found");
      }
      expect((await rowsOf(session)).map(({ keyId }: { keyId: number }) => keyId)).not.toContain(key.keyId);
    }
    expect((await shop.chat(secret, {}, { host: ACME })).status).toBe(200);
  });
});

test("last use is shown soon after a request, with its host and its time", async () => {
  const session = await customer({}, acme.accountId);
  const { secret } = (await session.post("/keys", newKey())).json;
  expect((await rowsOf(session))[0]).toMatchObject({ lastUsedAt: null, lastHost: null });
  const beganMs = await databaseMs(shop);
  expect((await shop.chat(secret, {}, { host: ACME })).status).toBe(200);
  await until(async () => (await rowsOf(session))[0].lastUsedAt !== null);
  const [row] = await rowsOf(session);
  expect(row.lastHost).toBe(ACME);
  await expectSince(shop, row.lastUsedAt, beganMs);
});

test("the list counts each key's settled requests of 24 hours", async () => {
  const session = await customer();
  const [one, two] = [
    (await session.post("/keys", newKey())).json,
    (await session.post("/keys", newKey({ name: "two" }))).json,
  ];
  for (let i = 0; i < 3; i++) expect((await shop.chat(one.secret)).status).toBe(200);
  shop.provider.next({ status: 400, body: JSON.stringify({ error: { message: "Not that.", param: null } }) });
  expect((await shop.chat(two.secret)).status).toBe(400);
  const rows = await rowsOf(session);
  expect(rows.map((row: { name: string; requestsLastDay: number }) => [row.name, row.requestsLastDay])).toEqual([
    ["two", 0],
    ["ci", 3],
  ]);
});

test("a daily spending limit is returned in USD, and does not refuse a long text whose tokens fit", async () => {
  const session = await customer(null);
  await shop.world.setBalance(session, 1_000_000_000n);
  const { secret } = (await session.post("/keys", newKey({ mode: "payg", dailySpendMaxNanoUsd: "5000000" }))).json;
  const of = (words: number) => ({ max_tokens: 1, messages: [{ role: "user", content: "toll gate ".repeat(words) }] });
  // 3,000 bytes would be 9,000,000 nano-USD of prompt; as tokens they are about a fifth of that.
  expect((await shop.chat(secret, of(300))).status).toBe(200);
  const refused = await shop.chat(secret, of(3000));
  expect(refused.status).toBe(402);
  expect(refused.json.error).toMatchObject({ code: "key_spend_limit_exceeded", limit: 0.005 });
  expect(refused.json.error.remaining).toBeLessThan(0.005);
  expect(refused.json.error.resets_at).toMatch(/T15:00:00\.000Z$/);
});
