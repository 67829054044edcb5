import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import process from "node:process";
import { type Service, startRedis } from "../../scripts/services.ts";
import { createKey, revokeKey } from "../../src/accounts/keys_store.ts";
import { type Bus, redisBus } from "../../src/platform/bus.ts";
import type { Db } from "../../src/platform/db.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import type { OfferingSpec } from "../world.ts";
import { closeBalanced, expectRefusal, tally } from "./checks.ts";
import { openRawClient } from "./raw_client.ts";
import { type Answer, eventsOf, openShop, type Shop } from "./shop.ts";

/** Two replicas, each a process, on one database: both apply the same quotas, balances and revocations. */
/** Of the replica that is killed. The others have the default: a busy machine must not end theirs. */
const LEASE_SECONDS = 3;
let redis: Service;
let shop: Shop;
let db: Db;
let bus: Bus;

beforeAll(async () => {
  redis = await startRedis();
  shop = await openShop({ replicas: 2, redisUrl: redis.url });
  db = shop.world.openDb();
  bus = redisBus(redis.url, quietLog().log);
});
afterEach(() => {
  shop.provider.reset();
});
afterAll(() => closeBalanced(shop, bus.close, db.close, redis.stop));

type Buyer = { accountId: number; secret: string };

/** The first replicas, as they were opened. */
const origins = () => shop.replicas.map(({ origin }) => origin);
const onBoth = (secret: string, over: Record<string, unknown> = {}) =>
  Promise.all(origins().map((origin) => shop.chat(secret, over, { origin })));

/** Restarts a killed Redis on the same port. */
async function restartRedis(): Promise<void> {
  const { port } = redis;
  await redis.stop();
  redis = await startRedis({ port });
  await until(() => bus.healthy());
}

describe("200 concurrent requests through both replicas for 100 units: exactly 100 provider calls, usage records and refusals", () => {
  // 20 bytes of text, 16 tokens around it, 10 tokens of output: the provider uses exactly what was reserved.
  const HELD = { prompt_tokens: 36, completion_tokens: 10 };
  const HELD_NANO_USD = 36n * 3_000n + 10n * 15_000n;

  async function race(buyer: { secret: string; accountId: number }, code: string): Promise<void> {
    shop.provider.always({ usage: HELD, tokens: 10, delayMs: 100 });
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, i) =>
        shop.chat(buyer.secret, { stream: i % 4 < 2, max_tokens: 10 }, { origin: origins()[i % 2] as string }),
      ),
    );
    expect(tally(answers)).toEqual({ served: 100, [`402 ${code}`]: 100 });
    for (const { status, text, headers } of answers) {
      if (status === 200 && headers.get("content-type")?.startsWith("text/event-stream"))
        expect(eventsOf(text).at(-1)).toBe("[DONE]");
    }
    expect(shop.provider.callCount()).toBe(100);
    expect(await shop.counters(buyer.accountId)).toMatchObject({ usage: 100, released: 0, holds: 0 });
  }

  const packages: [string, OfferingSpec, string][] = [
    ["daily", { dailyLimit: 100, days: 5 }, "daily_quota_exceeded"],
    ["total", { dailyLimit: 1000, totalLimit: 100, days: 5 }, "package_quota_exceeded"],
    ["carryover", { dailyLimit: 100, days: 5, carryover: true }, "carryover_quota_exceeded"],
  ];
  test.each(packages)("%s", async (_, spec, code) => {
    const customer = await shop.customer(spec);
    await race(customer, code);
    expect((await shop.counters(customer.accountId)).units).toBe(100);
  });

  test("balance", async () => {
    const payer = await shop.payer(100n * HELD_NANO_USD);
    await race(payer, "insufficient_balance");
    expect((await shop.counters(payer.accountId)).balance).toBe(0);
  });
});

describe("a revoked key", () => {
  async function expectRevoked(disturb: () => Promise<void> | void): Promise<void> {
    const customer = await shop.customer();
    for (const { status } of await onBoth(customer.secret)) expect(status).toBe(200);
    const models = () =>
      Promise.all(origins().map((origin) => shop.call("/v1/models", { secret: customer.secret, origin })));
    for (const { status } of await models()) expect(status).toBe(200);
    await disturb();
    const calls = shop.provider.callCount();
    await revokeKey({ db, bus }, customer);
    for (const stream of [false, true])
      for (const answer of await onBoth(customer.secret, { stream })) expectRefusal(answer, "invalid_api_key");
    expect(shop.provider.callCount()).toBe(calls);
    await until(async () => (await models()).every(({ status }) => status === 401));
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 2, holds: 0 });
  }

  test("is refused by both replicas immediately, also for /models", async () => {
    await expectRevoked(() => {});
  });

  test("is refused immediately for metered requests while Redis is frozen, and for /models after the next poll of changes", async () => {
    try {
      // Redis goes on only afterwards.
      await expectRevoked(() => void process.kill(redis.pid, "SIGSTOP"));
    } finally {
      process.kill(redis.pid, "SIGCONT");
    }
  });

  test("is refused likewise while Redis is down, and immediately everywhere when it is back", async () => {
    await expectRevoked(() => void process.kill(redis.pid, "SIGKILL"));
    await restartRedis();
    await expectRevoked(() => {});
  });

  /** Revokes a key while both replicas serve its requests, and checks the requests that were sent after the call returned. */
  async function revokeUnderLoad(): Promise<void> {
    shop.provider.reset();
    const customer = await shop.customer({ dailyLimit: 100_000 });
    let over = false;
    let isRevoked = false;
    const answers: Answer[] = [];
    const later: Answer[] = [];
    const hammer = async (i: number) => {
      while (!over) {
        const isLater = isRevoked;
        const answer = await shop.chat(customer.secret, { stream: i % 4 < 2 }, { origin: origins()[i % 2] as string });
        answers.push(answer);
        if (isLater) later.push(answer);
      }
    };
    const hammers = Array.from({ length: 24 }, (_, i) => hammer(i));
    await until(() => answers.length > 50);
    await revokeKey({ db, bus }, customer);
    isRevoked = true;
    await until(() => later.length > 48);
    over = true;
    await Promise.all(hammers);
    expect(tally(later)).toEqual({ "401 invalid_api_key": later.length });
    expect(Object.keys(tally(answers)).sort()).toEqual(["401 invalid_api_key", "served"]);
    const { usage, units, released } = await shop.counters(customer.accountId);
    const { served } = tally(answers);
    expect({ usage, units, released, calls: shop.provider.callCount() }).toEqual({
      usage: served as number,
      units: served as number,
      released: 0,
      calls: served as number,
    });
  }

  /** How Redis is disturbed, and mended. Without it, replicas read changes from the database, and what they drew runs out in any case. */
  const STATES = [
    ["up", () => {}, () => {}],
    ["frozen", () => process.kill(redis.pid, "SIGSTOP"), () => process.kill(redis.pid, "SIGCONT")],
    ["gone", () => process.kill(redis.pid, "SIGKILL"), restartRedis],
  ] as const;
  const ROUNDS = Number(process.env.REVOCATIONS ?? 3);

  test.each(STATES)(
    "grants no request that is sent after the revocation has returned, while both replicas are under load and Redis is %s",
    async (_, disturb, mend) => {
      disturb();
      // Redis is mended only afterwards: a revocation does not wait for it.
      try {
        for (let round = 0; round < ROUNDS; round++) await revokeUnderLoad();
      } finally {
        await mend();
      }
    },
  );
});

describe("new entitlements take effect on both", () => {
  const USED_UP = { dailyLimit: 2 };
  const CASES: [string, () => Promise<Buyer>, code: string, change: (buyer: Buyer) => Promise<unknown>][] = [
    ["a package", () => shop.customer(null), "package_required", (buyer) => shop.world.givePackage(buyer)],
    [
      "a further package, after the first was used up",
      async () => {
        const buyer = await shop.customer(USED_UP);
        for (const { status } of await onBoth(buyer.secret)) expect(status).toBe(200);
        return buyer;
      },
      "daily_quota_exceeded",
      (buyer) => shop.world.givePackage(buyer, USED_UP),
    ],
    ["a top-up", () => shop.payer(1n), "insufficient_balance", (buyer) => shop.world.setBalance(buyer, 1_000_000_000n)],
  ];
  test.each(CASES)("%s, after both refused requests", async (_, open, code, change) => {
    const buyer = await open();
    const { usage } = await shop.counters(buyer.accountId);
    for (const answer of await onBoth(buyer.secret)) expectRefusal(answer, code);
    // Written without the panel, so that no replica is notified: for a moment they remember the refusal.
    await change(buyer);
    for (const origin of origins())
      await until(async () => (await shop.chat(buyer.secret, {}, { origin })).status === 200);
    expect((await shop.counters(buyer.accountId)).usage).toBe(usage + 2);
  });

  test("a key", async () => {
    const person = await shop.customer();
    const config = {
      baseUrl: "http://api.tollgate.test/v1",
      aliasUrl: "",
      panelUrl: "",
      allowLocalHosts: true,
      billingTimeZone: "UTC",
    };
    const wanted = {
      accountId: person.accountId,
      name: "new",
      mode: "package" as const,
      modelIds: null,
      hosts: null,
      expiresAt: null,
    };
    const { secret } = await createKey({ db, bus, config }, wanted);
    for (const { status } of await onBoth(secret)) expect(status).toBe(200);
  });
});

test("SIGKILL in the middle of a stream: another replica returns the unit after the lease; no usage record, and the books balance", async () => {
  const victim = await shop.start({ LEASE_SECONDS: String(LEASE_SECONDS) });
  const { secret, accountId } = await shop.customer();
  shop.provider.next({ hang: "mid_stream", cutAfterChunks: 5, tokens: 20 });
  const stream = openRawClient(victim.port, secret);
  await until(() => stream.events() > 0);
  // Longer than a lease: it is renewed while the replica lives.
  await sleep((LEASE_SECONDS + 1) * 1000);
  expect(await shop.counters(accountId)).toMatchObject({ holds: 1, usage: 0, released: 0 });
  await victim.kill();
  await until(stream.closed);
  expect(stream.got()).not.toContain("[DONE]");
  await until(async () => (await shop.counters(accountId)).holds === 0);
  // Only the dead process knew of the request: there is no receipt.
  expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 0, units: 0 });
  const [left] = await shop.world
    .sql`select package_drawn(packages) as held, units_taken from packages where account_id = ${accountId}`;
  expect({ ...left }).toEqual({ held: 0, units_taken: 0 });
  expect(await shop.world.unbalanced()).toEqual([]);
});
