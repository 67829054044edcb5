import { afterAll, afterEach, expect, setDefaultTimeout, test } from "bun:test";
import { Redis } from "ioredis";
import type { Refusal } from "../../src/errors.ts";
import { createAttemptLimiter, createRateLimiter } from "../../src/platform/rate_limit.ts";
import { ownRedis, sleep, until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";

setDefaultTimeout(30_000);
const redis = await ownRedis();
const spy = new Redis(redis.url, { retryStrategy: () => 50 });
spy.on("error", () => {});
const open: { close(): void }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) one.close();
  await spy.flushall();
});
afterAll(async () => {
  spy.disconnect();
  await redis.stop();
});

type Limits = { perMinute?: number; inFlight?: number; redisUrl?: string; now?: () => number; budgetMs?: number };
/** For rules about counting: a busy machine's Redis is not to be taken for one that is away. */
const patient = { budgetMs: 1000 };

/** A replica's limiter, once it has found its Redis. */
async function limiter({ redisUrl = redis.url, ...limits }: Limits = {}) {
  const { log, lines } = quietLog();
  const before = await clients();
  const one = createRateLimiter({ redisUrl, perMinute: 5, inFlight: 3, log, ...limits });
  open.push(one);
  if (redisUrl !== "") await until(async () => (await clients()) > before);
  await sleep(20);
  return Object.assign(one, { lines });
}
const clients = async () => String(await spy.client("LIST")).split("name=tollgate:").length;

/** How many of `n` asked for at once were granted. */
async function granted(n: number, ask: () => Promise<unknown>): Promise<number> {
  const results = await Promise.allSettled(Array.from({ length: n }, ask));
  for (const result of results)
    if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "too_many_requests" });
  return results.filter((result) => result.status === "fulfilled").length;
}
const refusalOf = (promise: Promise<unknown>): Promise<Refusal> =>
  promise.then(
    () => expect.unreachable(),
    (error) => error,
  );

test("429 too_many_requests: two replicas share a key's minute; another key has its own", async () => {
  const [a, b] = [await limiter(patient), await limiter(patient)];
  const results = [await granted(20, () => a.take("1")), await granted(20, () => b.take("1"))];
  expect(results).toEqual([5, 0]);
  const refusal = await refusalOf(b.take("1"));
  expect(refusal.facts.limit).toBe(5);
  expect(refusal.facts.retryAfterSeconds).toBeGreaterThanOrEqual(1);
  expect(refusal.facts.retryAfterSeconds).toBeLessThanOrEqual(60);
  await a.take("2");
});

test("without Redis a key's minute ends a minute after its first request", async () => {
  let nowMs = 0;
  const one = await limiter({ redisUrl: "", now: () => nowMs });
  expect(await granted(20, () => one.take("1"))).toBe(5);
  nowMs = 45_500;
  expect((await refusalOf(one.take("1"))).facts.retryAfterSeconds).toBe(15);
  nowMs = 60_000;
  expect(await granted(20, () => one.take("1"))).toBe(5);
});

for (const redisUrl of [redis.url, ""]) {
  test(`429: a key's requests under way ${redisUrl ? "over two replicas" : "without Redis"}; a slot given back is free, twice is once`, async () => {
    const a = await limiter({ redisUrl, ...patient });
    const b = redisUrl ? await limiter({ redisUrl, ...patient }) : a;
    const leave = await a.enter("1");
    await b.enter("1");
    expect(await granted(10, () => b.enter("1"))).toBe(1);
    expect((await refusalOf(a.enter("1"))).facts).toMatchObject({ limit: 3, retryAfterSeconds: 1 });
    leave();
    leave();
    await sleep(20);
    expect(await granted(10, () => b.enter("1"))).toBe(1);
    await b.enter("2");
  });
}

test("many at once over two replicas: exactly the limit enters", async () => {
  const [a, b] = [await limiter({ inFlight: 50, ...patient }), await limiter({ inFlight: 50, ...patient })];
  const results = await Promise.all([granted(200, () => a.enter("1")), granted(200, () => b.enter("1"))]);
  expect((results[0] ?? 0) + (results[1] ?? 0)).toBe(50);
});

test("slots of a replica that died are free when their lease ends", async () => {
  const a = await limiter(patient);
  await a.enter("1");
  const [slot] = await spy.zrange("tollgate:slots:1", "0", "-1");
  await spy.zadd("tollgate:slots:1", 1, slot ?? ""); // As if its lease had ended long ago.
  const b = await limiter(patient);
  expect(await granted(10, () => b.enter("1"))).toBe(3);
  const ttl = await spy.pttl("tollgate:slots:1");
  expect(ttl).toBeGreaterThan(50_000);
});

test("Redis frozen: answers come within some 30 ms and are counted here; thawed, Redis counts again", async () => {
  const one = await limiter();
  await one.take("warm");
  redis.freeze();
  try {
    const startedAt = performance.now();
    expect(await granted(8, () => one.take("1"))).toBe(5);
    expect(performance.now() - startedAt).toBeLessThan(80);
    const againAt = performance.now();
    expect(await granted(4, () => one.enter("1"))).toBe(3);
    expect(performance.now() - againAt).toBeLessThan(10); // It is not asked anew by each.
    await sleep(3500);
    const laterAt = performance.now();
    await one.take("2");
    expect(performance.now() - laterAt).toBeLessThan(80);
  } finally {
    redis.thaw();
  }
  await until(async () => {
    await one.take(`probe${Math.random()}`).catch(() => {});
    return (await spy.keys("tollgate:minute:probe*")).length > 0;
  }, 10_000);
  expect(
    one.lines.filter(({ message }) => message === "Redis does not answer in time; this replica decides by itself")
      .length,
  ).toBeLessThanOrEqual(2);
});

test("Redis killed: every answer is immediate; started again, it is used without a restart", async () => {
  const one = await limiter();
  const leave = await one.enter("1");
  await redis.stop();
  const startedAt = performance.now();
  expect(await granted(8, () => one.take("1"))).toBe(5);
  expect(await granted(8, () => one.enter("1"))).toBe(2);
  expect(performance.now() - startedAt).toBeLessThan(60);
  leave();
  await redis.start();
  await until(async () => {
    await one.take("back").catch(() => {});
    return (await spy.keys("tollgate:minute:back")).length > 0;
  }, 10_000);
  const other = await limiter(patient);
  expect(await granted(8, () => other.take("9"))).toBe(5);
  expect(await granted(8, () => one.take("9"))).toBe(0);
});

test("Redis lost in the middle of a minute: what this replica had granted still counts", async () => {
  const one = await limiter();
  await Promise.all([one.take("1"), one.take("1"), one.take("1")]);
  redis.freeze();
  try {
    expect(await granted(8, () => one.take("1"))).toBe(2);
  } finally {
    redis.thaw();
  }
});

test("this process standing still is not taken for Redis being away", async () => {
  const one = await limiter();
  const taken = one.take("1");
  const until = performance.now() + 100;
  while (performance.now() < until);
  await taken;
  expect(await spy.get("tollgate:minute:1")).toBe("1");
  expect(one.lines.filter(({ level }) => level === "warn")).toEqual([]);
});

test("a Redis that cannot run what is asked is as good as away", async () => {
  const one = await limiter();
  await spy.set("tollgate:minute:1", "not a number");
  expect(await granted(8, () => one.take("1"))).toBe(5);
});

async function attempts(redisUrl: string, now?: () => number) {
  const { log } = quietLog();
  const before = await clients();
  const one = createAttemptLimiter({
    redisUrl,
    points: 10,
    windowSeconds: 900,
    name: "sign-in",
    log,
    ...(now && { now }),
  });
  open.push(one);
  if (redisUrl !== "") await until(async () => (await clients()) > before);
  await sleep(20);
  return one;
}

for (const redisUrl of [redis.url, ""]) {
  const where = redisUrl ? "in Redis" : "in memory";

  test(`ten failures in 15 minutes, then 429, ${where}`, async () => {
    const one = await attempts(redisUrl);
    for (let i = 0; i < 10; i++) {
      await one.check("account:1");
      await one.fail("account:1");
    }
    const refusal = await refusalOf(one.check("account:1"));
    expect(refusal.facts.limit).toBe(10);
    expect(refusal.facts.retryAfterSeconds).toBeGreaterThan(880);
    await one.check("account:2");
  });

  test(`a success clears the account's failures and leaves the address's, ${where}`, async () => {
    const one = await attempts(redisUrl);
    for (let i = 0; i < 9; i++) {
      for (const id of ["account:1", "address:1"]) {
        await one.check(id);
        await one.fail(id);
      }
    }
    await one.check("account:1");
    await one.check("address:1");
    await one.clear("account:1");
    one.pass("address:1");
    for (let i = 0; i < 10; i++) {
      await one.check("account:1");
      await one.fail("account:1");
    }
    await one.check("address:1");
    await one.fail("address:1");
    expect((await refusalOf(one.check("address:1"))).code).toBe("too_many_requests");
  });

  test(`200 guesses at the same moment: ten are judged, ${where}`, async () => {
    const one = await attempts(redisUrl);
    const judged = await granted(200, async () => {
      await one.check("account:1");
      await sleep(50);
      await one.fail("account:1");
    });
    expect(judged).toBe(10);
    expect((await refusalOf(one.check("account:1"))).code).toBe("too_many_requests");
  });

  test(`many right passwords from one address are not counted, ${where}`, async () => {
    const one = await attempts(redisUrl);
    for (let i = 0; i < 50; i++) {
      await one.check("address:1");
      one.pass("address:1");
    }
  });
}

test("an attempt that was never ended stops counting after a while", async () => {
  let nowMs = 0;
  const one = await attempts("", () => nowMs);
  for (let i = 0; i < 10; i++) await one.check("account:1");
  expect((await refusalOf(one.check("account:1"))).facts.retryAfterSeconds).toBe(10);
  nowMs = 10_000;
  await one.check("account:1");
});
