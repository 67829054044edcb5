import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { listLosses } from "../../src/accounts/losses_store.ts";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import type { Db } from "../../src/platform/db.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, endFaults, expectRefusal } from "./checks.ts";
import { ask, METERED_MODELS, METERED_ROWS, type MeteredRow } from "./metered_endpoints.ts";
import { imageBody, openShop, type Shop } from "./shop.ts";

/**
 * Work that nobody pays: a request that a time limit ended is not asked of another route once its provider was working, and its time counts
 * as a loss of its account. Source: END-18, PRV-3, LOS-1, LOS-2, LOS-3.
 */
const LIMIT_MS = 1_500;
/** Together they take more than the minute that an account may take. */
const ATTACKS = 90;
/** More than is read of one event. */
const GIANT_EVENT = `data: {"x":"${"x".repeat(9 * 1024 * 1024)}"}\n\n`;
let shop: Shop;
let db: Db;
/** The second replica, which waits long for a first event. */
let other: ReplicaProcess;
/** One whose limits no machine is too slow for. */
let patient: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop({
    redisUrl: "",
    env: {
      ...{ PROVIDER_TOTAL_MS: String(LIMIT_MS), PROVIDER_FIRST_BYTE_MS: String(LIMIT_MS), PROVIDER_IDLE_MS: "300" },
      UNPAID_ACCOUNT_MINUTES: "1",
    },
    models: METERED_MODELS,
  });
  const long = { PROVIDER_TOTAL_MS: "120000", PROVIDER_FIRST_BYTE_MS: "120000" };
  other = await shop.start(long);
  patient = await shop.start({ ...long, PROVIDER_IDLE_MS: "120000" });
  db = shop.world.openDb();
});
afterEach(async () => {
  shop.second.reset();
  for (const row of METERED_ROWS) await endFaults(shop, (secret) => ask(shop, row, { secret, model: "two-routes" }));
});
afterAll(() => closeBalanced(shop, other.kill, patient.kill, db.close));

const lossOf = async (accountId: number) =>
  (await listLosses({ db }, { holderId: accountId, limit: 10 })).find(({ holder }) => holder === "account");

/** Expects that this request was released, was asked of one route, and that its time counts as a loss. */
async function expectUnpaid(accountId: number, ms: number, reason = "timed_out"): Promise<void> {
  await until(async () => (await shop.counters(accountId)).released === 1);
  const [receipt] = await shop.world.sql`select reason, charged_nano_usd from receipts where account_id = ${accountId}`;
  expect(receipt).toEqual({ reason, charged_nano_usd: "0" });
  expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 0]);
  await until(async () => (await lossOf(accountId)) !== undefined);
  const loss = await lossOf(accountId);
  expect(loss).toMatchObject({ kind: "provider_time", times: 1 });
  expect(Number(loss?.amount)).toBeGreaterThanOrEqual(ms);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 0, holds: 0, units: 0 });
}

const isWhole = ({ stream }: MeteredRow) => stream === null;
const named = (rows: readonly MeteredRow[]) => rows.map((row) => [row.name, row] as const);

describe.each(named(METERED_ROWS.filter(isWhole)))("%s: a whole answer beyond the time limit", (_, row) => {
  test.each<[string, Behaviour]>([
    ["nothing of it came", { hang: "headers" }],
    ["its headers came", { hang: "first_byte" }],
    ["a part of it came", { hang: "mid_stream" }],
  ])("is not asked of another route, and its time is a loss: %s", async (_, behaviour) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.always(behaviour);
    const answer = await ask(shop, row, { secret, model: "two-routes" });
    expectRefusal(answer, "provider_unavailable");
    expect(answer.headers.get("x-should-retry")).toBe("false");
    await expectUnpaid(accountId, LIMIT_MS - 100);
  });
});

describe.each(named(METERED_ROWS.filter((row) => !isWhole(row))))("%s", (_, row) => {
  test("headers without an event in time: not asked of another route, and its time is a loss", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.always({ hang: "first_byte" });
    expectRefusal(await ask(shop, row, { secret, model: "two-routes" }), "provider_unavailable");
    await expectUnpaid(accountId, LIMIT_MS - 100);
  });

  test("silence in mid-stream: nothing is charged, and its time is a loss", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.always({ tokens: 20, hang: "mid_stream" });
    const answer = await ask(shop, row, { secret, model: "two-routes", origin: other.origin });
    expect(row.stream?.brokenBy(answer).code).toBe("provider_unavailable");
    await expectUnpaid(accountId, 300);
  });

  test("a first event that is too large to be read: not asked of another route, and its time is a loss", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.always({ contentType: "text/event-stream", body: GIANT_EVENT });
    const answer = await ask(shop, row, { secret, model: "two-routes", origin: patient.origin });
    expectRefusal(answer, "provider_unavailable");
    expect(answer.headers.get("x-should-retry")).toBe("false");
    await expectUnpaid(accountId, 1, "provider_failed");
  });

  test("an event in mid-stream that is too large to be read: nothing is charged, and its time is a loss", async () => {
    const { secret, accountId } = await shop.customer();
    // Of a provider's own stream, the events before any text: behind text, only those that repeat it are so large.
    const begun = (row.stream?.finish.sent ?? "").split("\n\n").slice(0, row.ownResponses ? 3 : 1);
    const body = [...begun, GIANT_EVENT].join("\n\n");
    shop.provider.always({ contentType: "text/event-stream", body });
    const answer = await ask(shop, row, { secret, model: "two-routes", origin: patient.origin });
    expect(row.stream?.brokenBy(answer).code).toBe("provider_unavailable");
    await expectUnpaid(accountId, 1, "provider_broke_off");
  });
});

const UNFETCHED: [string, string, string][] = [
  ["an image at an address that does not answer", "http://127.0.0.1:9/x.png", "b64_json"],
  ["an image at an address that may not be called", "http://10.0.0.1/x.png", "url"],
];

test.each(UNFETCHED)(
  "%s was made: it is not asked of another route, and its time is a loss",
  async (_, imageUrl, response_format) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.always({ imageReturn: "url", imageUrl });
    const body = imageBody({ model: "image-two-routes", response_format });
    const answer = await shop.call("/v1/images/generations", { secret, body });
    expectRefusal(answer, "provider_unavailable");
    expect(answer.headers.get("x-should-retry")).toBe("false");
    expect(answer.text).not.toContain(new URL(imageUrl).host);
    await expectUnpaid(accountId, 1, "provider_failed");
  },
);

test("a provider that fails by itself is no loss of the account: 500, a cut stream", async () => {
  const { secret, accountId } = await shop.customer();
  shop.provider.next({ status: 500 });
  expectRefusal(await shop.chat(secret), "provider_unavailable");
  shop.provider.next({ tokens: 20, cutAfterChunks: 5 });
  await shop.chat(secret, { stream: true });
  await until(async () => (await shop.counters(accountId)).released === 2);
  expect(await lossOf(accountId)).toBeUndefined();
});

test("an account that takes too much provider time is refused on every replica, and its neighbours are served", async () => {
  const [attacker, neighbour] = [await shop.customer({ dailyLimit: 10_000 }), await shop.customer()];
  shop.provider.when(({ body }) => body.includes("forever"), { hang: "first_byte" });
  const attack = () => shop.chat(attacker.secret, { messages: [{ role: "user", content: "forever" }] });
  await Promise.all(Array.from({ length: ATTACKS }, attack));
  for (const origin of [shop.origin, other.origin])
    await until(async () => (await shop.chat(attacker.secret, {}, { origin })).status === 429);
  const calls = shop.provider.callCount();
  for (const origin of [shop.origin, other.origin]) {
    const refused = await shop.chat(attacker.secret, {}, { origin });
    expectRefusal(refused, "too_many_requests");
    expect(Number(refused.headers.get("retry-after"))).toBeLessThan(60);
  }
  expect(shop.provider.callCount()).toBe(calls);
  for (const row of METERED_ROWS) expect((await ask(shop, row, { secret: neighbour.secret })).status).toBe(200);
  expect(await shop.counters(attacker.accountId)).toMatchObject({ holds: 0 });
});
