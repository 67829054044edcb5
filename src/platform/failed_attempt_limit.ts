import { LRUCache } from "lru-cache";
import { RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import type { Log } from "./log.ts";
import { monotonicMs, tooMany } from "./rate_limit.ts";
import { type RedisWithTimeout, redisWithTimeout } from "./redis.ts";

/** An attempt can wait longer than a request: judging a password takes as long. */
const REDIS_BUDGET_MS = 250;
/** Ids of open attempts remembered at once; beyond, those not seen for longest are forgotten. */
const IDS_MAX = 50_000;
/** An attempt that was begun and neither failed nor passed stops counting after this. */
const ATTEMPT_OPEN_MS = 10_000;

export type FailedAttemptLimiter = {
  /** To be called before an attempt is judged. Throws too_many_requests when too many have failed, or are being judged. */
  check(id: string): Promise<void>;
  /** The attempt failed: it counts until its window ends. */
  fail(id: string): Promise<void>;
  /** The attempt succeeded; earlier failures stay. For ids that many people share, as an address. */
  pass(id: string): void;
  /** The attempt succeeded, and earlier failures are forgotten. */
  clear(id: string): Promise<void>;
  close(): void;
};

type FailedAttemptLimiterOptions = {
  redisUrl: string;
  /** Failures in a window that starts with the first. */
  points: number;
  windowSeconds: number;
  /** Keeps the counts of two limiters apart. */
  name: string;
  log: Log;
  now?: () => number;
};

/**
 * Limits failures, as wrong passwords: by id, which the caller prefixes with what it is (`account:7`, `address:::1`).
 * Attempts being judged count too, within this replica, so that guesses made at the same moment do not all pass.
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
    async check(id) {
      // Begun before the question: two checks that wait for Redis at once see each other.
      const others = open.begin(id);
      const { count, msLeft } = await failures.get(id);
      if (count + others < points) return;
      open.end(id);
      throw tooMany(points, count >= points ? msLeft / 1000 : ATTEMPT_OPEN_MS / 1000);
    },
    async fail(id) {
      // Counted before it is let go of, so that no check falls in between.
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

/** Failures by id: in Redis, and in memory for while it is away, so that its absence is no fresh start. */
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

/** The library throws a count that is over its limit. */
function isCount(thrown: unknown): RateLimiterRes {
  if (thrown instanceof RateLimiterRes) return thrown;
  throw thrown;
}

/** Attempts being judged in this process. One that never ends is forgotten after a while. */
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
