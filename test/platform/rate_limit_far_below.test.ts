import { expect, test } from "bun:test";
import fc from "fast-check";
import { Refusal } from "../../src/errors.ts";
import { createRateLimiter } from "../../src/platform/rate_limit.ts";
import type { Owner } from "../../src/platform/share_limit.ts";
import { holds } from "../property.ts";
import { sleep, until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";
import { steppedClock, untilBeaten } from "./stepped_clock.ts";
import { watchedRedis } from "./watched_redis.ts";

/** Far below a limit, replicas admit by themselves and report afterwards. Source: ADM-10. */
const { redis, spy, open } = await watchedRedis();

/** Replicas trust their count of each other after three of these. A replica that reports nothing for six is no longer counted. */
const HEARTBEAT_MS = 500;
const TRUSTED_MS = 3 * HEARTBEAT_MS;
/** The replicas' own clock. Redis has its own. */
const clock = steppedClock();
type Limits = Partial<Omit<Parameters<typeof createRateLimiter>[0], "log">>;
const WIDE = { perMinute: 1_000_000, inFlight: 1_000_000, accountPerMinute: 1_000_000, tenantPerMinute: 1_000_000 };

/** `count` replicas that have counted each other. */
async function replicas(count: number, limits: Limits): Promise<Replica[]> {
  const { log } = quietLog();
  const options = {
    ...WIDE,
    redisUrl: redis.url,
    budgetMs: 30_000,
    heartbeatMs: HEARTBEAT_MS,
    now: clock.now,
    log,
    ...limits,
  };
  const some = Array.from({ length: count }, () => {
    const limiter = createRateLimiter(options);
    open.push(limiter);
    const replica: Replica = {
      unasked: 0,
      enter(id, owner) {
        const request = limiter.begin(id, owner);
        const entered = request.enter();
        const release = () => request.release(0);
        if (entered instanceof Promise) return entered.then(() => release);
        replica.unasked++;
        return release;
      },
    };
    return replica;
  });
  await untilBeaten(spy, count);
  clock.pass(TRUSTED_MS);
  await untilBeaten(spy, count);
  return some;
}
/** `unasked`: requests that were admitted without asking. */
type Replica = { enter(id: string, owner?: Owner): Release | Promise<Release>; unasked: number };
type Release = () => void;

/** True: admitted. */
async function isAdmitted(ask: () => unknown): Promise<boolean> {
  try {
    await ask();
    return true;
  } catch (error) {
    expect(error).toMatchObject({ code: "too_many_requests" });
    return false;
  }
}

/** How many of `n` at once were admitted. */
async function admitted(n: number, ask: () => unknown): Promise<number> {
  const results = await Promise.all(Array.from({ length: n }, () => isAdmitted(ask)));
  return results.filter(Boolean).length;
}

/** How often Redis was told a count. */
const counts = async () => Number(/cmdstat_incrby:calls=(\d+)/.exec(await spy.info("commandstats"))?.[1] ?? 0);

test("far below all limits a request is admitted without a call to Redis, and reported within a moment", async () => {
  const [one] = await replicas(1, {});
  const owner = { accountId: 1, tenantId: 2 };
  await one?.enter("1", owner);
  const before = await counts();
  const releases = await Promise.all(Array.from({ length: 100 }, () => one?.enter("1", owner)));
  expect(one?.unasked).toBe(100);
  await until(async () => (await spy.get("tollgate:minute:1")) === "101");
  // One report of the id, the account and the tenant.
  expect((await counts()) - before).toBe(3);
  expect(await spy.mget("tollgate:minute:account:1", "tollgate:minute:tenant:2")).toEqual(["101", "101"]);
  expect(await spy.hvals("tollgate:in-flight:1")).toEqual([expect.stringMatching(/^101 /)]);
  for (const release of releases) release?.();
  await until(async () => (await spy.hvals("tollgate:in-flight:1"))[0]?.startsWith("1 ") === true);
});

test("Redis is always asked if the limit is below 100 times the number of replicas", async () => {
  for (const [count, perMinute] of [
    [1, 99],
    [3, 299],
  ] as const) {
    const some = await replicas(count, { perMinute });
    let total = 0;
    // One after the other: each knows the last count of Redis, and asks all the same.
    for (let i = 0; i < 12; i++) total += await admitted(1, () => some[i % count]?.enter("1"));
    const results = await Promise.all(some.map((one) => admitted(150, () => one.enter("1"))));
    for (const n of results) total += n;
    expect(total).toBe(perMinute);
    expect(some.map(({ unasked }) => unasked)).toEqual(Array(count).fill(0));
    for (const one of open.splice(0)) one.close();
    await spy.flushall();
  }
});

for (const count of [1, 3]) {
  test(`bursts at ${count} replicas get the whole limit, and at most 1 % more`, async () => {
    const some = await replicas(count, { perMinute: 1000 });
    let total = 0;
    for (let burst = 0; burst < 40; burst++) {
      const results = await Promise.all(some.map((one) => admitted(10 + burst, () => one.enter("1"))));
      for (const n of results) total += n;
      await sleep(burst % 3 === 0 ? 60 : 2);
    }
    expect(total).toBeGreaterThanOrEqual(1000);
    expect(total).toBeLessThanOrEqual(1010);
    for (const { unasked } of some) expect(unasked).toBeGreaterThan(0);
  });
}

test("a key just below its limit is never refused; above it, only the excess is refused", async () => {
  const some = await replicas(3, { perMinute: 600 });
  let total = 0;
  for (let i = 0; i < 599; i++) {
    total += await admitted(1, () => some[i % 3]?.enter("1"));
    if (i % 20 === 0) await sleep(10);
  }
  expect(total).toBe(599);
  await until(async () => (await spy.get("tollgate:minute:1")) === "599"); // All is reported: now the count is exact.
  expect(await admitted(30, () => some[0]?.enter("1"))).toBe(1);
});

test("unreported requests of a minute do not count in the next, which has the whole limit", async () => {
  const some = await replicas(3, { perMinute: 1000 });
  for (const one of some) await one.enter("1");
  const before = await spy.get("tollgate:minute:1");
  const unreported = await Promise.all(some.map((one) => admitted(3, () => one.enter("1"))));
  expect([unreported, some.map(({ unasked }) => unasked)]).toEqual([
    [3, 3, 3],
    [3, 3, 3],
  ]);
  expect([before, await spy.get("tollgate:minute:1")]).toEqual(["3", "3"]);
  // The minute ends, by both clocks.
  await spy.del("tollgate:minute:1");
  clock.pass(60_000);
  const results = await Promise.all(some.map((one) => admitted(400, () => one.enter("1"))));
  const total = results.reduce((sum, n) => sum + n);
  expect(total).toBeGreaterThanOrEqual(1000);
  expect(total).toBeLessThanOrEqual(1010);
});

test("a report of a minute that has ended is not counted in the next minute", async () => {
  const [one, other] = await replicas(2, {});
  await one?.enter("1");
  for (let i = 0; i < 3; i++) await one?.enter("1");
  expect(one?.unasked).toBe(3);
  const endsAtUnixMs = await spy.pexpiretime("tollgate:minute:1");
  await spy.del("tollgate:minute:1");
  await until(() => Date.now() > endsAtUnixMs - 60_000 + 2);
  await other?.enter("1");
  // The report says how many slots the replica has, too.
  await until(async () => (await spy.hvals("tollgate:in-flight:1")).some((slots) => slots.startsWith("4 ")));
  expect(await spy.get("tollgate:minute:1")).toBe("1");
});

test("slots over three replicas never exceed the limit by more than 1 %, and all are released", async () => {
  const some = await replicas(3, { inFlight: 300 });
  let now = 0;
  let most = 0;
  let refused = 0;
  const visit = async (i: number) => {
    for (let round = 0; round < 12; round++) {
      try {
        const release = await some[(i + round) % 3]?.enter("1");
        most = Math.max(most, ++now);
        await sleep(Math.random() * 60);
        now--;
        release?.();
      } catch {
        refused++;
      }
      await sleep(Math.random() * 30);
    }
  };
  await Promise.all(Array.from({ length: 60 }, (_, i) => visit(i)));
  expect(refused).toBe(0);
  for (const { unasked } of some) expect(unasked).toBeGreaterThan(0);
  await Promise.all(Array.from({ length: 600 }, (_, i) => visit(i)));
  expect(refused).toBeGreaterThan(0);
  expect(most).toBeGreaterThanOrEqual(295);
  expect(most).toBeLessThanOrEqual(303);
  await until(async () => (await spy.exists("tollgate:in-flight:1")) === 0);
});

test("while Redis is frozen, a replica admits by its own counts, at most 1 % of the limit without asking", async () => {
  const [one] = await replicas(1, { perMinute: 1000, budgetMs: 1_500 });
  for (let i = 0; i < 500; i++) await one?.enter("1");
  await until(async () => (await spy.get("tollgate:minute:1")) === "500");
  const unasked = one?.unasked ?? 0;
  redis.freeze();
  try {
    let total = 0;
    for (let burst = 0; burst < 10; burst++) {
      total += await admitted(100, () => one?.enter("1"));
      await sleep(20);
    }
    expect(total).toBe(500);
    expect((one?.unasked ?? 0) - unasked).toBeLessThanOrEqual(10);
  } finally {
    redis.thaw();
  }
});

test("unreported requests are lost if Redis is killed and restarted, and none is refused because of it", async () => {
  const [one] = await replicas(1, { perMinute: 1000 });
  for (let i = 0; i < 300; i++) await one?.enter("1");
  await redis.stop();
  expect(await admitted(100, () => one?.enter("1"))).toBe(100);
  await redis.start();
  clock.pass(TRUSTED_MS); // It asks Redis again.
  await until(async () => (await spy.zcard("tollgate:limiters").catch(() => 0)) === 1);
  let total = 0;
  for (let burst = 0; burst < 11; burst++) total += await admitted(100, () => one?.enter("1"));
  expect(total).toBeGreaterThanOrEqual(1000);
  expect(total).toBeLessThanOrEqual(1010);
});

test("a new replica always asks Redis until all others count it; one that ended is no longer counted", async () => {
  const [first] = await replicas(1, {});
  await first?.enter("1");
  expect(first?.enter("1")).not.toBeInstanceOf(Promise);
  const { log } = quietLog();
  const options = { redisUrl: redis.url, budgetMs: 30_000, heartbeatMs: HEARTBEAT_MS, now: clock.now, log };
  const second = createRateLimiter({ ...WIDE, ...options });
  open.push(second);
  await untilBeaten(spy, 2);
  clock.pass(TRUSTED_MS - 1);
  await untilBeaten(spy, 2);
  // The first replica may still use the count that it read before.
  for (let i = 0; i < 10; i++) {
    const entered = second.begin("2").enter();
    expect(entered).toBeInstanceOf(Promise);
    await entered;
  }
  clock.pass(1);
  expect(second.begin("2").enter()).not.toBeInstanceOf(Promise);
  second.close();
  await until(async () => (await spy.zcard("tollgate:limiters")) === 1);
});

test("a key, an account and a tenant get their whole limit, and at most 1 % more, for any arrivals at up to three replicas", async () => {
  const limits = { perMinute: 350, accountPerMinute: 700, tenantPerMinute: 1800 };
  const bursts = fc.array(
    fc.record({
      replica: fc.nat(2),
      key: fc.nat(5),
      size: fc.integer({ min: 1, max: 120 }),
      pauseMs: fc.constantFrom(0, 0, 1, 5, 55),
    }),
    { minLength: 10, maxLength: 60 },
  );
  const some = await replicas(3, limits);
  let run = 0;
  await holds(
    fc.asyncProperty(fc.integer({ min: 1, max: 3 }), bursts, async (count, sequence) => {
      run++;
      const totals = new Map<string, { limit: number; asked: number; admitted: number; refused: number }>();
      const totalOf = (id: string, limit: number) =>
        totals.getOrInsertComputed(id, () => ({ limit, asked: 0, admitted: 0, refused: 0 }));
      const visit = async (replica: number, key: number) => {
        // Two keys an account, three accounts a tenant.
        const accountId = run * 10 + (key >> 1) + 1;
        const id = `run${run}:${key}`;
        const mine = [totalOf(id, 350), totalOf(`account${accountId}`, 700), totalOf("tenant", 1800)];
        for (const total of mine) total.asked++;
        try {
          (await some[replica % count]?.enter(id, { accountId, tenantId: run }))?.();
          for (const total of mine) total.admitted++;
        } catch (error) {
          for (const total of mine) if (error instanceof Refusal && total.limit === error.facts.limit) total.refused++;
        }
      };
      const visits: Promise<void>[] = [];
      for (const { replica, key, size, pauseMs } of sequence) {
        for (let i = 0; i < size; i++) visits.push(visit(replica, key));
        if (pauseMs > 0) await sleep(pauseMs);
      }
      await Promise.all(visits);
      for (const { limit, asked, admitted, refused } of totals.values()) {
        expect(admitted).toBeLessThanOrEqual(Math.floor(limit * 1.01));
        // A request that another of the three limits refused counts too.
        if (refused > 0) expect(asked - refused).toBeGreaterThanOrEqual(limit);
      }
    }),
    { numRuns: 25, endOnFailure: true },
  );
  for (const { unasked } of some) expect(unasked).toBeGreaterThan(0);
});
