import { expect, test } from "bun:test";
import { createRateLimiter, type LimitedRequest } from "../../src/platform/rate_limit.ts";
import type { RequestLimits } from "../../src/platform/rate_tallies.ts";
import { sleep, until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";
import { steppedClock, untilBeaten } from "./stepped_clock.ts";
import { watchedRedis } from "./watched_redis.ts";

/** Tokens a minute: reserved before a request, and corrected after it. Source: LIM-4. */
const { redis, spy, open } = await watchedRedis();

const HEARTBEAT_MS = 500;
/** The replicas' own clock. Redis has its own. */
const clock = steppedClock();
const WIDE = { perMinute: 1_000_000, inFlight: 1_000_000, accountPerMinute: 1_000_000, tenantPerMinute: 1_000_000 };
const OWNER = { accountId: 1, tenantId: 0 };

type Options = Partial<Parameters<typeof createRateLimiter>[0]>;
function limiterOf(options: Options = {}) {
  const { log } = quietLog();
  const limiter = createRateLimiter({
    ...WIDE,
    ...{ redisUrl: redis.url, budgetMs: 30_000, heartbeatMs: HEARTBEAT_MS, now: clock.now, log },
    ...options,
  });
  open.push(limiter);
  return limiter;
}
type Limiter = ReturnType<typeof limiterOf>;

async function replicas(count: number, options: Options = {}): Promise<Limiter[]> {
  const some = Array.from({ length: count }, () => limiterOf(options));
  await untilBeaten(spy, count);
  clock.pass(3 * HEARTBEAT_MS);
  await untilBeaten(spy, count);
  return some;
}

/** The account may use so many tokens a minute. */
function tokens(tokensPerMinute: number): RequestLimits {
  return { key: null, account: { requestsPerMinute: null, tokensPerMinute, requestsAtOnce: null }, models: new Map() };
}

/** The request, or undefined if it was refused. */
async function reserved(limiter: Limiter, limits: RequestLimits, amount: number): Promise<LimitedRequest | undefined> {
  const request = limiter.begin("key:1", OWNER, limits);
  try {
    await request.enterModel("any", amount);
    return request;
  } catch (error) {
    expect(error).toMatchObject({ code: "too_many_requests" });
    return undefined;
  }
}
const counted = async () => Number(await spy.get("tollgate:minute:tokens:account:1"));

for (const count of [1, 3]) {
  test(`${count} replicas reserve at most 1 % above the limit, for any amounts, and refuse nothing that fits`, async () => {
    const some = await replicas(count);
    const limits = tokens(100_000);
    let sum = 0;
    let smallestRefused = Number.POSITIVE_INFINITY;
    for (let burst = 0; burst < 60; burst++) {
      const amounts = Array.from({ length: 30 }, () => 1 + Math.floor(Math.random() * 200));
      await Promise.all(
        amounts.map(async (amount, i) => {
          const request = await reserved(some[i % count] as Limiter, limits, amount);
          if (request === undefined) smallestRefused = Math.min(smallestRefused, amount);
          else sum += amount;
        }),
      );
      await sleep(burst % 3 === 0 ? 30 : 1);
    }
    expect(sum).toBeLessThanOrEqual(101_000);
    expect(sum + smallestRefused).toBeGreaterThan(100_000);
    await until(async () => (await counted()) === sum);
  });
}

test("unused tokens are returned on all replicas; tokens used beyond the reservation count", async () => {
  const [a, b] = (await replicas(2)) as [Limiter, Limiter];
  const limits = tokens(1_000);
  const first = await reserved(a, limits, 900);
  expect(await reserved(b, limits, 200)).toBeUndefined();
  first?.release(100);
  first?.release(100);
  await until(async () => (await counted()) === 100);
  const second = await reserved(b, limits, 200);
  expect(second?.tokens()).toMatchObject({ limit: 1_000, remaining: 700 });
  second?.release(850);
  await until(async () => (await counted()) === 950);
  expect(await reserved(a, limits, 51)).toBeUndefined();
  expect(await reserved(a, limits, 50)).toBeDefined();
});

test("a request that ends in a later minute returns nothing to it; tokens used beyond its reservation count in it", async () => {
  for (const redisUrl of [redis.url, ""]) {
    const one = limiterOf({ redisUrl });
    const limits = tokens(1_000);
    if (redisUrl !== "") await untilBeaten(spy, 1);
    const less = await reserved(one, limits, 600);
    const more = await reserved(one, limits, 300);
    // The minute ends, by both clocks.
    await spy.del("tollgate:minute:tokens:account:1");
    clock.pass(60_000);
    less?.release(0);
    more?.release(700);
    await until(() => one.begin("key:1", OWNER, limits).tokens()?.remaining === 600);
    expect(await reserved(one, limits, 601)).toBeUndefined();
    expect(await reserved(one, limits, 600)).toBeDefined();
    one.close();
    await spy.flushall();
  }
});

test("a second, lower bound of the same request lowers its reservation; a higher one does not raise it", async () => {
  const [one] = (await replicas(1)) as [Limiter];
  const limits = tokens(1_000);
  const request = await reserved(one, limits, 800);
  await request?.enterModel("any", 300);
  expect(request?.tokens()?.remaining).toBe(700);
  await request?.enterModel("any", 900);
  expect(request?.tokens()?.remaining).toBe(700);
  request?.release(0);
  expect(request?.tokens()?.remaining).toBe(1_000);
});

test("a refusal by one limit takes nothing from the others", async () => {
  const [one] = (await replicas(1)) as [Limiter];
  const limits = tokens(1_000);
  const models = new Map([["tight", { requestsPerMinute: null, tokensPerMinute: 100, requestsAtOnce: null }]]);
  const request = one.begin("key:1", OWNER, { ...limits, models });
  await request.enterModel("tight", 80);
  const refused = one.begin("key:1", OWNER, { ...limits, models });
  const refusal = await Promise.resolve(refused.enterModel("tight", 80)).catch((error: unknown) => error);
  expect(refusal).toMatchObject({ code: "too_many_requests", facts: { limit: 100, remaining: 20 } });
  await until(async () => (await counted()) === 80);
  expect(one.begin("key:1", OWNER, limits).tokens()?.remaining).toBe(920);
});

test("each replica counts its own tokens without Redis, or while it is away", async () => {
  const alone = limiterOf({ redisUrl: "" });
  const limits = tokens(1_000);
  expect(await reserved(alone, limits, 700)).toBeDefined();
  expect(await reserved(alone, limits, 301)).toBeUndefined();
  expect(await reserved(alone, limits, 300)).toBeDefined();
  const [one] = (await replicas(1, { budgetMs: 30 })) as [Limiter];
  expect(await reserved(one, limits, 400)).toBeDefined();
  redis.freeze();
  try {
    expect(await reserved(one, limits, 601)).toBeUndefined();
    expect(await reserved(one, limits, 600)).toBeDefined();
    expect(await reserved(one, limits, 1)).toBeUndefined();
  } finally {
    redis.thaw();
  }
});

test("a raised limit applies immediately to requests that it had refused", async () => {
  const [one] = (await replicas(1)) as [Limiter];
  const set = (requestsPerMinute: number) => ({ requestsPerMinute, tokensPerMinute: null, requestsAtOnce: null });
  const enter = async (limit: number) => {
    const request = one.begin("key:1", OWNER, { key: set(limit), account: null, models: new Map() });
    await request.enter();
    return request.requests();
  };
  await enter(1);
  await expect(enter(1)).rejects.toThrow("may send 1 requests a minute");
  expect(await enter(10)).toMatchObject({ limit: 10 });
  await expect(enter(1)).rejects.toThrow("may send 1 requests a minute");
});

test("the limit of which the least remains is shown: of the key or the account, never the tenant's", async () => {
  const limits = { perMinute: 100, accountPerMinute: 100, tenantPerMinute: 50 };
  const limiter = limiterOf({ redisUrl: "", ...limits });
  const shownTo = async (key: string, accountId: number) => {
    const request = limiter.begin(key, { accountId, tenantId: 9 });
    await request.enter();
    return request.requests();
  };
  expect(await shownTo("key:1", 1)).toMatchObject({ limit: 100, remaining: 99 });
  expect(await shownTo("key:2", 1)).toMatchObject({ limit: 100, remaining: 98 });
  expect(await shownTo("key:3", 2)).toMatchObject({ limit: 100, remaining: 99 });
});
