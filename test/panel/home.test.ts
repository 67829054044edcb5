import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { chatBody, imageBody, openShop, PRICES, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { OfferingSpec, Person } from "../world.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";
import { databaseMs, expectSince, untilRefused } from "./stored.ts";

/** Source: PAY-7, QUO-5, QUO-7, PAN-1. */

const ACME = "ai.acme.test";

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
});
afterAll(() => shop.close());

const homeOf = async (session: PanelSession) => (await session.get("/home")).json;
const kindsOf = async (session: PanelSession) =>
  (await homeOf(session)).notices.map(({ kind }: { kind: string }) => kind);

/** A customer, signed in, with a package unless null. */
async function open(
  spec: OfferingSpec | null = {},
): Promise<{ person: Person; session: PanelSession; packageId: number }> {
  const person = await shop.world.addCustomer();
  const packageId = spec === null ? 0 : await shop.world.givePackage(person, spec);
  return { person, packageId, session: await signInTo(shop, person) };
}

/** Moves a package into the past by whole days. */
const begunDaysAgo = (packageId: number, days: number) =>
  shop.world.sql`
    update packages set starts_at = starts_at - make_interval(days => ${days}), ends_at = ends_at - make_interval(days => ${days}),
      first_day = first_day - ${days}::int where id = ${packageId}`;

describe("the rest of a package or balance", () => {
  test("a standard package shows the rest of today, the time of the reset, and the day's number", async () => {
    const { person, session, packageId } = await open({ dailyLimit: 500, days: 30, timeZone: "Europe/Berlin" });
    await begunDaysAgo(packageId, 6);
    const { secret } = await shop.world.addKey(person);
    for (let i = 0; i < 2; i++) expect((await shop.chat(secret)).status).toBe(200);
    const askedMs = await databaseMs(shop);
    const home = await homeOf(session);
    const [row] = await shop.world.sql`
      select name, starts_at, ends_at,
        (((clock_timestamp() at time zone time_zone)::date + 1)::timestamp at time zone time_zone) as midnight
      from packages where id = ${packageId}`;
    expect(home.package).toEqual({
      packageId,
      name: row?.name,
      startsAt: row?.starts_at.toISOString(),
      endsAt: row?.ends_at.toISOString(),
      timeZone: "Europe/Berlin",
      days: 30,
      daysBegun: 7,
      dailyLimit: 500,
      granted: 500,
      used: 2,
      usedToday: 2,
      availableNow: 498,
      availableAtReset: 500,
      tokensRemaining: null,
      resetsAt: row?.midnight.toISOString(),
      totalLimit: 15_000,
      totalUsed: 2,
      carryover: false,
      tokenLimit: null,
      tokensUsed: expect.any(Number),
    });
    expect(home.next).toBeNull();
    expect(home.notices).toEqual([]);
    expect(home.refusals).toEqual([]);
    await expectSince(shop, home.serverTime, askedMs);
  });

  test("a carryover package shows the days so far times the daily quota, minus what was used; its last day has no reset", async () => {
    const { person, session, packageId } = await open({ dailyLimit: 500, days: 7, carryover: true });
    await begunDaysAgo(packageId, 3);
    expect((await shop.chat((await shop.world.addKey(person)).secret)).status).toBe(200);
    expect((await homeOf(session)).package).toMatchObject({
      carryover: true,
      daysBegun: 4,
      granted: 2000,
      used: 1,
      availableNow: 1999,
      usedToday: 1,
      resetsAt: expect.any(String),
    });
    await begunDaysAgo(packageId, 3);
    expect((await homeOf(session)).package).toMatchObject({ daysBegun: 7, availableNow: 3499, resetsAt: null });
  });

  test("the reserved amount is shown next to the available one", async () => {
    const payer = await shop.payer(1_000_000_000n);
    const session = await signInTo(shop, payer);
    const { held, open: answer } = shop.provider.gate();
    shop.provider.next(held);
    const calling = shop.chat(payer.secret, { max_tokens: 1000 });
    await until(async () => (await homeOf(session)).balance.heldNanoUsd !== "0");
    const { balance } = await homeOf(session);
    expect(balance).toMatchObject({ balanceNanoUsd: "1000000000", paygEnabled: true });
    expect(BigInt(balance.heldNanoUsd)).toBeGreaterThan(0n);
    expect(BigInt(balance.freeNanoUsd) + BigInt(balance.heldNanoUsd)).toBe(1_000_000_000n);
    answer();
    expect((await calling).status).toBe(200);
    expect((await homeOf(session)).package).toBeNull();
  });

  test("`next` is the first of the queued packages", async () => {
    const { person, session, packageId } = await open({ days: 2 });
    const offering = await shop.world.addOffering({ dailyLimit: 70, days: 3, carryover: true, timeZone: "Asia/Tokyo" });
    const { packageId: nextId } = await shop.world.assign(person, offering, "after");
    await shop.world.assign(person, await shop.world.addOffering(), "after");
    const { next, package: active } = await homeOf(session);
    expect(active.packageId).toBe(packageId);
    expect(next).toMatchObject({
      packageId: nextId,
      dailyLimit: 70,
      days: 3,
      carryover: true,
      timeZone: "Asia/Tokyo",
      startsAt: active.endsAt,
    });
  });
});

describe("the notices", () => {
  test("are absent while nothing is low, and appear at the account's own thresholds", async () => {
    const { person, session, packageId } = await open({ dailyLimit: 100, days: 10 });
    expect(await kindsOf(session)).toEqual([]);
    const use = (units: number) => shop.world.sql`update packages set units_taken = ${units} where id = ${packageId}`;
    await use(799);
    expect(await kindsOf(session)).toEqual([]);
    await use(800);
    expect((await homeOf(session)).notices).toEqual([
      { kind: "package_low", name: expect.any(String), left: 200, totalLimit: 1000 },
    ]);
    await shop.world
      .sql`update accounts set notice_units_percent = 10, notice_days = 30 where id = ${person.accountId}`;
    expect((await homeOf(session)).notices).toEqual([
      { kind: "package_ending", name: expect.any(String), endsAt: expect.any(String), nextName: null },
    ]);
    await shop.world.sql`update accounts set notice_days = 0 where id = ${person.accountId}`;
    expect(await kindsOf(session)).toEqual([]);
    await use(1000);
    expect(await kindsOf(session)).toEqual(["package_used_up"]);
    await use(0);
  });

  test("say when a used-up daily quota resets; a used-up token allowance has its own notice", async () => {
    const day = await open({ dailyLimit: 1, days: 10 });
    expect((await shop.chat((await shop.world.addKey(day.person)).secret)).status).toBe(200);
    const [notice] = (await homeOf(day.session)).notices;
    expect(notice).toMatchObject({
      kind: "allowance_used_up",
      carryover: false,
      resetsAt: expect.stringMatching(/T00:00:00\.000Z$/),
    });

    const tokens = await open({ dailyLimit: 100, days: 10, tokenLimit: 400 });
    shop.provider.next({ usage: { prompt_tokens: 20, completion_tokens: 400 } });
    expect((await shop.chat((await shop.world.addKey(tokens.person)).secret)).status).toBe(200);
    expect((await homeOf(tokens.session)).notices).toEqual([
      { kind: "tokens_used_up", name: expect.any(String), tokenLimit: 400 },
    ]);
  });

  test("name the last package if none is active and no balance pays, and a balance below its threshold", async () => {
    const { person, session } = await open(null);
    expect((await homeOf(session)).notices).toEqual([
      { kind: "package_none", endedName: null, endedAt: null, endedTimeZone: null, nextStartsAt: null },
    ]);
    const packageId = await shop.world.givePackage(person);
    await shop.world.sql`select end_package(${person.accountId}, ${packageId})`;
    const [ended] = (await homeOf(session)).notices;
    expect(ended).toMatchObject({
      kind: "package_none",
      endedName: expect.any(String),
      endedAt: expect.any(String),
      endedTimeZone: "UTC",
    });
    await shop.world.setBalance(person, 999_999_999n);
    expect((await homeOf(session)).notices).toEqual([
      { kind: "balance_low", freeNanoUsd: "999999999", belowNanoUsd: "1000000000" },
    ]);
    await shop.world.setBalance(person, 1n);
    expect(await kindsOf(session)).toEqual([]);
  });

  test("list the refusals of the last week by code and key, with the data for a remedy", async () => {
    const { person, session } = await open({ dailyLimit: 1 });
    const key = await shop.world.addKey(person);
    await shop.world
      .sql`update keys set name = 'ci', daily_units_max = 2, time_zone = 'Asia/Tokyo' where id = ${key.keyId}`;
    expect((await shop.chat(key.secret)).status).toBe(200);
    const beganMs = await databaseMs(shop);
    const answers = [];
    for (let i = 0; i < 3; i++) answers.push(await shop.chat(key.secret));
    expectRefusal(await session.post("/ai/chat", chatBody({ api_key_id: "999999" })), "no_active_key", {
      param: "api_key_id",
    });
    await untilRefused(shop, person.accountId, 4);
    const { refusals } = await homeOf(session);
    expect(refusals).toEqual([
      {
        code: "no_active_key",
        count: 1,
        at: expect.any(String),
        lastRequestId: expect.any(String),
        modelId: null,
        host: "api.tollgate.test",
        key: null,
      },
      {
        code: "daily_quota_exceeded",
        count: 3,
        at: expect.any(String),
        lastRequestId: answers[2]?.headers.get("x-request-id"),
        modelId: "chat-a",
        host: "localhost",
        key: {
          keyId: key.keyId,
          name: "ci",
          mode: "package",
          dailyUnitsMax: 2,
          dailySpendMaxNanoUsd: null,
          resetsAt: expect.stringMatching(/T15:00:00\.000Z$/),
        },
      },
    ]);
    await expectSince(shop, refusals[1].at, beganMs);
    // Other accounts do not see them, and after a week they are gone.
    expect((await homeOf((await open()).session)).refusals).toEqual([]);
    await shop.world
      .sql`update refusal_counts set minute = minute - interval '8 days' where account_id = ${person.accountId}`;
    expect((await homeOf(session)).refusals).toEqual([]);
  });
});

describe("the playground", () => {
  const picoUsd = (microUsd: number) => String(BigInt(microUsd) * 1_000_000n);
  const offered = async (session: PanelSession) => {
    const { models, keys } = (await session.get("/playground/models")).json;
    return {
      models: models.map(({ id, pays, keyId }: { id: string; pays: string; keyId: number }) => [id, pays, keyId]),
      keys: keys.map(({ keyId }: { keyId: number }) => keyId),
    };
  };

  test("lists a package's models with prices and sizes, each with the newest key that may use it", async () => {
    const { person, session } = await open({ modelIds: ["chat-a", "image-a"] });
    const narrow = await shop.world.addKey(person);
    const key = await shop.world.addKey(person, { modelIds: ["chat-a"] });
    const { json } = await session.get("/playground/models");
    const [row] = await shop.world.sql`select name from packages where account_id = ${person.accountId}`;
    expect(json).toEqual({
      models: [
        {
          id: "chat-a",
          name: "chat-a",
          modality: "text",
          prices: {
            inputPicoUsd: picoUsd(PRICES.inputMicroUsd),
            cachedInputPicoUsd: picoUsd(PRICES.inputMicroUsd),
            outputPicoUsd: picoUsd(PRICES.outputMicroUsd),
          },
          imageSizes: [],
          pays: "package",
          packageName: row?.name,
          keyId: key.keyId,
        },
        {
          id: "image-a",
          name: "image-a",
          modality: "image",
          prices: null,
          imageSizes: [
            { size: "512x512", pricePicoUsd: null },
            { size: "1024x1024", pricePicoUsd: picoUsd(PRICES.imageMicroUsd) },
            { size: "1024x1536", pricePicoUsd: null },
            { size: "1536x1024", pricePicoUsd: null },
          ],
          pays: "package",
          packageName: row?.name,
          keyId: narrow.keyId,
        },
      ],
      keys: [
        { keyId: key.keyId, name: "key", mode: "package", modelIds: ["chat-a"] },
        { keyId: narrow.keyId, name: "key", mode: "package", modelIds: null },
      ],
    });
    for (const { id, keyId } of json.models) {
      const image = id === "image-a";
      const body = { ...(image ? imageBody() : chatBody()), api_key_id: String(keyId) };
      expect((await session.post(image ? "/ai/image" : "/ai/chat", body)).status).toBe(200);
    }
  });

  test("lists the models that GET /models lists for each key, in both billing modes", async () => {
    const { person, session } = await open({ modelIds: ["chat-unpriced"], dailyLimit: 1 });
    const packageKey = await shop.world.addKey(person);
    const listed = async (secret: string) =>
      (await shop.call("/v1/models", { secret })).json.data.map(({ id }: { id: string }) => id);
    expect(await offered(session)).toEqual({
      models: [["chat-unpriced", "package", packageKey.keyId]],
      keys: [packageKey.keyId],
    });
    await shop.world.setBalance(person, 1_000_000n);
    const paygKey = await shop.world.addKey(person, { mode: "payg", modelIds: ["chat-a", "chat-unpriced"] });
    const { models } = await offered(session);
    expect(models.map(([id]: string[]) => id)).toEqual(await listed(packageKey.secret));
    expect(models.filter(([, , keyId]: [string, string, number]) => keyId === paygKey.keyId)).toEqual([
      ["chat-a", "balance", paygKey.keyId],
    ]);
    expect(await listed(paygKey.secret)).toEqual(["chat-a"]);
    expect(models).toContainEqual(["chat-unpriced", "package", packageKey.keyId]);
    expect(models).toContainEqual(["image-a", "balance", packageKey.keyId]);
  });

  test("names the balance as payer once the package is used up, or the package if there is no balance", async () => {
    const { person, session } = await open({ modelIds: ["chat-a"], dailyLimit: 1 });
    const key = await shop.world.addKey(person);
    expect((await shop.chat(key.secret)).status).toBe(200);
    expect((await offered(session)).models).toEqual([["chat-a", "package", key.keyId]]);
    await shop.world.setBalance(person, 1_000_000n);
    expect((await offered(session)).models).toContainEqual(["chat-a", "balance", key.keyId]);
  });

  test("lists no models without a usable key (all disabled, expired, or for another host) or without an entitlement", async () => {
    const { person, session } = await open();
    expect(await offered(session)).toEqual({ models: [], keys: [] });
    const disabled = await shop.world.addKey(person);
    await shop.world.sql`update keys set status = 'disabled' where id = ${disabled.keyId}`;
    await shop.world.addKey(person, { expiresAt: "2020-01-01T00:00:00Z" });
    await shop.world.addKey(person, { hosts: [ACME] });
    expect(await offered(session)).toEqual({ models: [], keys: [] });
    const poor = await open(null);
    const key = await shop.world.addKey(poor.person);
    expect(await offered(poor.session)).toEqual({ models: [], keys: [key.keyId] });
  });
});
