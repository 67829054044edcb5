import { afterAll, afterEach } from "bun:test";
import { Redis } from "ioredis";
import { ownRedis } from "./own_redis.ts";

/**
 * A test file's own Redis, and `spy`, which looks into it. After each test, what the test put into `open` is closed, and Redis is
 * empty again.
 */
export async function watchedRedis() {
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
  return { redis, spy, open };
}
