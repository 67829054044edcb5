import { expect, test } from "bun:test";
import type { Refusal } from "../../src/errors.ts";
import { createFailedAttemptLimiter } from "../../src/platform/failed_attempt_limit.ts";
import { sleep, until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";
import { watchedRedis } from "./watched_redis.ts";

const { redis, spy, open } = await watchedRedis();

const clients = async () => String(await spy.client("LIST")).split("name=tollgate:").length;

/** How many of `n` concurrent attempts were allowed. */
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

async function attempts(redisUrl: string, now?: () => number) {
  const { log } = quietLog();
  const before = await clients();
  const one = createFailedAttemptLimiter({
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

  test(`a success deletes the account's failures and keeps the address's, ${where}`, async () => {
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

  test(`of 200 concurrent guesses ten are checked, ${where}`, async () => {
    const one = await attempts(redisUrl);
    const judged = await granted(200, async () => {
      await one.check("account:1");
      await sleep(50);
      await one.fail("account:1");
    });
    expect(judged).toBe(10);
    expect((await refusalOf(one.check("account:1"))).code).toBe("too_many_requests");
  });

  test(`right passwords from one address are not counted, ${where}`, async () => {
    const one = await attempts(redisUrl);
    for (let i = 0; i < 50; i++) {
      await one.check("address:1");
      one.pass("address:1");
    }
  });
}

test("an attempt that never ended stops counting after its time limit", async () => {
  let nowMs = 0;
  const one = await attempts("", () => nowMs);
  for (let i = 0; i < 10; i++) await one.check("account:1");
  expect((await refusalOf(one.check("account:1"))).facts.retryAfterSeconds).toBe(10);
  nowMs = 10_000;
  await one.check("account:1");
});
