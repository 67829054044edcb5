import { LRUCache } from "lru-cache";
import { RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import type { Log } from "./log.ts";
import { monotonicMs, tooMany } from "./rate_limit.ts";
import { type RedisWithTimeout, redisWithTimeout } from "./redis.ts";

/** Longer than for a request: checking a password takes as long. */
const REDIS_BUDGET_MS = 250;
/** Ids remembered; beyond that, the least recently used are forgotten. */
const IDS_MAX = 50_000;
/** An attempt that neither failed nor passed stops counting after this. */
const ATTEMPT_OPEN_MS = 10_000;

export type FailedAttemptLimiter = {
  /**
   * Call before an attempt is checked. `max`: of this kind of attempts, in place of `points`. Throws too_many_requests if as many have
   * failed or are being checked.
   */
  check(id: string, max?: number): Promise<void>;
  /** The attempt failed. It counts until its window ends. */
  fail(id: string): Promise<void>;
  /** The attempt succeeded; earlier failures still count. For ids that several people share, such as an address. */
  pass(id: string): void;
  /** The attempt succeeded; earlier failures are deleted. */
  clear(id: string): Promise<void>;
  close(): void;
};

type FailedAttemptLimiterOptions = {
  redisUrl: string;
  /** Failures allowed in a window, which starts with the first failure. */
  points: number;
  windowSeconds: number;
  /** Prefix of the counts in Redis. */
  name: string;
  log: Log;
  now?: () => number;
};

/**
 * Limits failed attempts, such as wrong passwords, by an id with a prefix (`account:7`, `address:::1`). Attempts being checked in this
 * replica count too, so that concurrent guesses do not all pass.
 */
export function createFailedAttemptLimiter({
  redisUrl,
  points,
  windowSeconds,
  name,
  log,
  now = monotonicMs,
}: FailedAttemptLimiterOptions): FailedAttemptLimiter {
  const shared =
    redisUrl === "" ? undefined : redisWithTimeout(redisUrl, { log, use: name, budgetMs: REDIS_BUDGET_MS, now });
  const memory = createWindows(windowSeconds * 1000, now);
  const failures = createFailures({ shared, memory, name, points, windowSeconds });
  const open = createOpenAttempts(now);
  return {
    async check(id, max = points) {
      // Begun before Redis is asked, so that two concurrent checks see each other.
      const others = open.begin(id);
      const { count, msLeft } = await failures.get(id);
      if (count + others < max) return;
      open.end(id);
      throw tooMany(max, count >= max ? msLeft / 1000 : ATTEMPT_OPEN_MS / 1000);
    },
    async fail(id) {
      // Counted before it is ended, so that no check happens in between.
      await failures.add(id);
      open.end(id);
    },
    pass: open.end,
    async clear(id) {
      open.end(id);
      await failures.remove(id);
    },
    close: () => shared?.close(),
  };
}

type Failures = {
  add(id: string): Promise<void>;
  get(id: string): Promise<Count>;
  remove(id: string): Promise<void>;
};

/** Failures by id, in Redis and in memory: an outage of Redis does not reset the counts. */
function createFailures({
  shared,
  memory,
  name,
  points,
  windowSeconds,
}: {
  shared: RedisWithTimeout | undefined;
  memory: ReturnType<typeof createWindows>;
  name: string;
  points: number;
  windowSeconds: number;
}): Failures {
  const limiter =
    shared &&
    new RateLimiterRedis({
      storeClient: shared.redis,
      keyPrefix: `tollgate:${name}`,
      points,
      duration: windowSeconds,
    });
  return {
    async add(id) {
      memory.add(id);
      await shared?.ask(async () => limiter?.consume(id).catch(isCount));
    },
    async get(id) {
      const answer = await shared?.ask(async () => (await limiter?.get(id)) ?? null);
      if (answer === undefined) return memory.get(id);
      return answer === null ? { count: 0, msLeft: 0 } : { count: answer.consumedPoints, msLeft: answer.msBeforeNext };
    },
    async remove(id) {
      memory.remove(id);
      await shared?.ask(async () => limiter?.delete(id));
    },
  };
}

/** `msLeft`: until the count's window ends; 0: no window is open. */
type Count = { count: number; msLeft: number };

/** Fixed-window counters in memory: an id's window starts with its first count. `now` is the monotonic clock, ms. */
function createWindows(windowMs: number, now: () => number) {
  const windows = new LRUCache<string, { count: number; endsAt: number }>({ max: IDS_MAX });
  const live = (id: string) => {
    const window = windows.get(id);
    return window !== undefined && window.endsAt > now() ? window : undefined;
  };
  return {
    add(id: string): Count {
      let window = live(id);
      if (!window) {
        window = { count: 0, endsAt: now() + windowMs };
        windows.set(id, window);
      }
      window.count++;
      return { count: window.count, msLeft: window.endsAt - now() };
    },
    get(id: string): Count {
      const window = live(id);
      return window ? { count: window.count, msLeft: window.endsAt - now() } : { count: 0, msLeft: 0 };
    },
    remove: (id: string) => void windows.delete(id),
  };
}

/** The library throws the count when it is over the limit. */
function isCount(thrown: unknown): RateLimiterRes {
  if (thrown instanceof RateLimiterRes) return thrown;
  throw thrown;
}

/** Attempts being checked in this process. One that never ends is forgotten after ATTEMPT_OPEN_MS. */
function createOpenAttempts(now: () => number) {
  const begunAt = new LRUCache<string, number[]>({ max: IDS_MAX });
  const live = (id: string) => (begunAt.get(id) ?? []).filter((at) => now() - at < ATTEMPT_OPEN_MS);
  return {
    /** Returns how many others are open. */
    begin(id: string): number {
      const others = live(id);
      begunAt.set(id, [...others, now()]);
      return others.length;
    },
    end(id: string): void {
      const left = live(id).slice(1);
      if (left.length > 0) begunAt.set(id, left);
      else begunAt.delete(id);
    },
  };
}
