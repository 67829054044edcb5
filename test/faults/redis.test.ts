import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { revokeKey } from "../../src/accounts/keys_store.ts";
import { redisBus } from "../../src/platform/bus.ts";
import type { Db } from "../../src/platform/db.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { type OwnRedis, ownRedis, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import type { ReplicaProcess } from "../replica.ts";
import { startTcpProxy, type TcpProxy } from "../tcp_proxy.ts";
import { behave, booksAtRest, callsOf } from "./fault_shop.ts";

/**
 * Redis has hints and rates, never the truth. If it is dead, frozen, slow or loses data, money stays exact, a revoked
 * key gets no metered answer, and lists catch up through the database's table of changes. One of the two replicas
 * reaches its Redis through a proxy.
 * Source: REL-9.
 */
/** Otherwise an entry of a cache lives so long: nothing is refused because it has grown old. */
const CACHE_TTL_MS = 3_600_000;
let redis: OwnRedis;
let proxy: TcpProxy;
let shop: Shop;
let behind: ReplicaProcess;
let db: Db;

beforeAll(async () => {
  redis = await ownRedis();
  proxy = await startTcpProxy(redis.url);
  shop = await openShop({
    redisUrl: redis.url,
    env: { CACHE_TTL_MS: String(CACHE_TTL_MS) },
  });
  behind = await shop.start({ REDIS_URL: proxy.url });
  db = shop.world.openDb();
});
afterEach(async () => {
  proxy.mend();
  redis.thaw();
});
afterAll(async () => {
  try {
    await booksAtRest(shop);
  } finally {
    await db.close();
    await behind.kill();
    await shop.close();
    await proxy.close();
    await redis.stop();
  }
});

const origins = () => [shop.origin, behind.origin];

type Fault = { name: string; begin(): Promise<void> | void; end?(): Promise<void> | void };
const FAULTS: Fault[] = [
  { name: "killed", begin: () => redis.stop(), end: () => redis.start() },
  { name: "frozen", begin: () => redis.freeze() },
  { name: "slow by 200 ms for one of them", begin: () => proxy.latency(200) },
  { name: "silent to one of them", begin: () => proxy.hang() },
  { name: "resetting one of them", begin: () => proxy.reset() },
];

for (const { name, begin, end } of FAULTS) {
  test(`Redis ${name} under load: both replicas together serve exactly the quota`, async () => {
    const [one, other] = [await shop.customer({ dailyLimit: 30, days: 2 }), await shop.customer({ dailyLimit: 30 })];
    const mark = behave(shop, { tokens: 5, delayMs: 20 });
    const ask = ({ secret }: { secret: string }, i: number) =>
      shop.chat(secret, { stream: i % 4 < 2, ...mark }, { origin: origins()[i % 2] ?? "" });
    const half = (from: number) =>
      [one, other].flatMap((buyer) => Array.from({ length: 30 }, (_, i) => ask(buyer, from + i)));
    const first = half(0);
    await begin();
    try {
      const answers = await Promise.all([...first, ...half(30)]);
      for (const answer of answers) if (answer.status !== 200) expectRefusal(answer, "daily_quota_exceeded");
      expect(answers.filter(({ status }) => status === 200)).toHaveLength(60);
      expect(callsOf(shop, mark)).toBe(60);
      for (const { accountId } of [one, other])
        expect(await shop.counters(accountId)).toMatchObject({ usage: 30, units: 30, holds: 0 });
    } finally {
      await end?.();
    }
  });
}

/** Both replicas have served this key, and have it in memory. */
async function knownKey() {
  const customer = await shop.customer();
  for (const origin of origins()) {
    expect((await shop.chat(customer.secret, {}, { origin })).status).toBe(200);
    expect((await shop.call("/v1/models", { secret: customer.secret, origin })).status).toBe(200);
  }
  return customer;
}

/** From now on the key gets no metered answer, and `/models` is refused soon. */
async function expectRevoked({ secret }: { secret: string }): Promise<void> {
  const calls = shop.provider.callCount();
  for (const stream of [false, true])
    for (const origin of origins()) expectRefusal(await shop.chat(secret, { stream }, { origin }), "invalid_api_key");
  expect(shop.provider.callCount()).toBe(calls);
  const models = (origin: string) => shop.call("/v1/models", { secret, origin });
  for (const origin of origins()) await until(async () => (await models(origin)).status === 401);
}

async function revokeOverBus(customer: { accountId: number; keyId: number }): Promise<void> {
  const bus = redisBus(redis.url, quietLog().log);
  try {
    await until(() => bus.healthy());
    await revokeKey({ db, bus }, customer);
  } finally {
    bus.close();
  }
}

for (const [name, begin] of [
  ["slow by 200 ms", () => proxy.latency(200)],
  ["silent", () => proxy.hang()],
] as const) {
  test(`Redis ${name}: a revoked key gets no metered answer from any replica, immediately, and later none from /models`, async () => {
    const customer = await knownKey();
    begin();
    await revokeOverBus(customer);
    await expectRevoked(customer);
  });
}

test("a message lost because the subscribers were disconnected at that moment: a revoked key gets no metered answer", async () => {
  const customer = await knownKey();
  const bus = redisBus(redis.url, quietLog().log);
  try {
    await until(() => bus.healthy());
    proxy.cut();
    await revokeKey({ db, bus }, customer);
    proxy.mend();
    await expectRevoked(customer);
  } finally {
    bus.close();
  }
});

test("a message never published, as when a replica dies between commit and publish: a revoked key gets no metered answer", async () => {
  const customer = await knownKey();
  await shop.world.sql`update keys set status = 'revoked' where id = ${customer.keyId}`;
  await expectRevoked(customer);
});
