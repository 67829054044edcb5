import { setImmediate } from "node:timers";
import type { Redis } from "ioredis";
import { LRUCache } from "lru-cache";
import { RateLimiterRedis, RateLimiterRes } from "rate-limiter-flexible";
import { Refusal } from "../errors.ts";
import { connectRedis } from "./bus.ts";
import { randomToken } from "./crypto.ts";
import type { Log } from "./log.ts";

/** Redis answers within this, or the replica decides by what it knows itself. */
const REDIS_BUDGET_MS = 30;
/** An attempt can wait longer: judging a password takes as long. */
const REDIS_ATTEMPT_BUDGET_MS = 250;
/** After an answer that did not come, Redis is not asked for this long: not every request shall wait the budget out. */
const REDIS_REST_MS = 1000;
/** Ids counted in memory at once, per limiter; beyond, those not seen for longest are forgotten. */
const IDS_MAX = 50_000;
/** A slot that is not renewed for this long is free again: its replica died. */
const SLOT_LEASE_MS = 60_000;
const SLOT_RENEW_EVERY_MS = 20_000;
/** What a client is told to wait for a slot; nobody knows when one comes free. */
const SLOT_RETRY_AFTER_SECONDS = 1;
/** An attempt that was begun and neither failed nor passed stops counting after this. */
const ATTEMPT_OPEN_MS = 10_000;

export type RateLimiter = {
  /** Counts a request. Throws too_many_requests, with the seconds until the key's minute ends. */
  take(keyId: string): Promise<void>;
  /** Takes a slot for a request under way. Throws too_many_requests. What it returns gives it back, throws nothing, and may be called twice. */
  enter(keyId: string): Promise<() => void>;
  close(): void;
};

type RateLimiterOptions = {
  /** Empty: counted in this process alone. */
  redisUrl: string;
  /** Requests. */
  perMinute: number;
  inFlight: number;
  log: Log;
  /** Monotonic, ms. */
  now?: () => number;
  /** What Redis may take to answer. */
  budgetMs?: number;
};

/** Limits per API key, shared by all replicas through Redis; each by itself while Redis is away. Source: rulings › Errors. */
export function createRateLimiter({
  redisUrl,
  perMinute,
  inFlight,
  log,
  now = monotonicMs,
  budgetMs = REDIS_BUDGET_MS,
}: RateLimiterOptions): RateLimiter {
  const shared = redisUrl === "" ? undefined : askRedis(redisUrl, { log, use: "rate limiter", budgetMs, now });
  const minutes = createCounter({
    shared,
    name: "minute",
    points: perMinute,
    windowMs: 60_000,
    remembersRefusals: true,
    now,
  });
  const slots = createSlots({ shared, max: inFlight });
  return {
    async take(keyId) {
      const { count, msLeft } = await minutes.add(keyId);
      if (count > perMinute) throw tooMany(perMinute, msLeft / 1000);
    },
    enter: slots.enter,
    close() {
      slots.close();
      shared?.close();
    },
  };
}

export type AttemptLimiter = {
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

type AttemptLimiterOptions = {
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
export function createAttemptLimiter({
  redisUrl,
  points,
  windowSeconds,
  name,
  log,
  now = monotonicMs,
}: AttemptLimiterOptions): AttemptLimiter {
  const budgetMs = REDIS_ATTEMPT_BUDGET_MS;
  const shared = redisUrl === "" ? undefined : askRedis(redisUrl, { log, use: name, budgetMs, now });
  const failures = createCounter({
    shared,
    name,
    points,
    windowMs: windowSeconds * 1000,
    remembersRefusals: false,
    now,
  });
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

function tooMany(limit: number, seconds: number): Refusal {
  return new Refusal("too_many_requests", { limit, retryAfterSeconds: Math.max(1, Math.ceil(seconds)) });
}

const monotonicMs = () => performance.now();

type SharedRedis = {
  redis: Redis;
  /** The answer, or undefined when Redis is away or too slow. Never throws; a RateLimiterRes that is thrown is an answer. */
  ask<T>(question: () => Promise<T>): Promise<T | RateLimiterRes | undefined>;
  /** Sends what needs no answer. */
  tell(send: () => Promise<unknown>): void;
  close(): void;
};

/** Redis within a budget: whoever asks goes on after `budgetMs`, with or without it. */
function askRedis(
  redisUrl: string,
  { log, use, budgetMs, now }: { log: Log; use: string; budgetMs: number; now: () => number },
): SharedRedis {
  const redis = connectRedis(redisUrl, { log, use });
  let restUntilMs = Number.NEGATIVE_INFINITY;
  let isAway = false;
  const away = (why: string) => {
    restUntilMs = now() + REDIS_REST_MS;
    if (!isAway) log.warn({ use, why }, "Redis does not answer in time; this replica decides by itself");
    isAway = true;
  };
  const present = () => {
    if (isAway) log.info({ use }, "Redis answers in time");
    isAway = false;
  };
  return {
    redis,
    ask(question) {
      if (redis.status !== "ready" || now() < restUntilMs) return Promise.resolve(undefined);
      return new Promise((resolve) => {
        let answered = false;
        const timer = setTimeout(() => {
          // If it was this process that stood still, the answer lies in the socket: let it be read first.
          setImmediate(() => {
            if (!answered) away("late");
            resolve(undefined);
          });
        }, budgetMs);
        question().then(
          (answer) => {
            answered = true;
            clearTimeout(timer);
            present();
            resolve(answer);
          },
          (error: unknown) => {
            answered = true;
            clearTimeout(timer);
            if (error instanceof RateLimiterRes) return resolve(error);
            away(error instanceof Error ? error.message : "error");
            resolve(undefined);
          },
        );
      });
    },
    tell(send) {
      if (redis.status === "ready") send().catch(() => {}); // The lease ends what is not given back.
    },
    close: () => redis.disconnect(),
  };
}

type Count = { count: number; msLeft: number };
type Counter = {
  add(id: string): Promise<Count>;
  get(id: string): Promise<Count>;
  remove(id: string): Promise<void>;
};

/**
 * Counts ids in fixed windows that start with an id's first count: in Redis, and in memory for while it is away, so that
 * its absence is no fresh start.
 */
function createCounter({
  shared,
  name,
  points,
  windowMs,
  remembersRefusals,
  now,
}: {
  shared: SharedRedis | undefined;
  name: string;
  points: number;
  windowMs: number;
  /** A count above `points` is remembered here until its window ends, and not asked for. Not for counts that are ever removed. */
  remembersRefusals: boolean;
  now: () => number;
}): Counter {
  const memory = createMemoryCounter(windowMs, now);
  if (!shared) return memory;
  const limiter = new RateLimiterRedis({
    storeClient: shared.redis,
    keyPrefix: `tollgate:${name}`,
    points,
    duration: windowMs / 1000,
    inMemoryBlockOnConsumed: remembersRefusals ? points + 1 : 0,
  });
  const countOf = (answer: RateLimiterRes | null): Count => {
    if (answer === null) return { count: 0, msLeft: 0 };
    // From its own memory of refusals the library gives no count.
    return { count: answer.consumedPoints || points + 1, msLeft: answer.msBeforeNext };
  };
  return {
    async add(id) {
      const own = memory.add(id);
      const answer = await shared.ask(() => limiter.consume(id));
      return answer === undefined ? own : countOf(answer);
    },
    async get(id) {
      const answer = await shared.ask(() => limiter.get(id));
      return answer === undefined ? memory.get(id) : countOf(answer);
    },
    async remove(id) {
      await memory.remove(id);
      await shared.ask(() => limiter.delete(id));
    },
  };
}

function createMemoryCounter(windowMs: number, now: () => number): Counter {
  const windows = new LRUCache<string, { count: number; endsAt: number }>({ max: IDS_MAX });
  const live = (id: string) => {
    const window = windows.get(id);
    return window !== undefined && window.endsAt > now() ? window : undefined;
  };
  return {
    async add(id) {
      const window = live(id) ?? { count: 0, endsAt: now() + windowMs };
      window.count++;
      windows.set(id, window);
      return { count: window.count, msLeft: window.endsAt - now() };
    },
    async get(id) {
      const window = live(id);
      return window ? { count: window.count, msLeft: window.endsAt - now() } : { count: 0, msLeft: 0 };
    },
    async remove(id) {
      windows.delete(id);
    },
  };
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

/** KEYS[1]: the key's slots, by the end of their lease in ms of Redis's clock. */
const SLOT_ENTER = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[1]) then return 0 end
redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1`;
/** Adds what is missing, so that a Redis which lost its memory knows the slots again. */
const SLOT_RENEW = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
for i = 2, #ARGV do redis.call('ZADD', KEYS[1], now + tonumber(ARGV[1]), ARGV[i]) end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
return 1`;
type SlotCommands = {
  slotEnter(key: string, max: number, leaseMs: number, slot: string): Promise<number>;
  slotRenew(key: string, leaseMs: number, ...slots: string[]): Promise<number>;
};

/** Requests under way, per key: a leased slot each. This process's own are counted in memory too, and bind while Redis is away. */
function createSlots({ shared, max }: { shared: SharedRedis | undefined; max: number }) {
  const own = new Map<string, Set<string>>();
  const replica = randomToken(9);
  let made = 0;
  const commands = shared ? slotCommands(shared.redis) : undefined;
  const nameOf = (keyId: string) => `tollgate:slots:${keyId}`;

  const renewal = setInterval(() => {
    if (!shared || !commands) return;
    for (const [keyId, slots] of own) shared.tell(() => commands.slotRenew(nameOf(keyId), SLOT_LEASE_MS, ...slots));
  }, SLOT_RENEW_EVERY_MS);

  async function enter(keyId: string): Promise<() => void> {
    const slots = own.get(keyId) ?? new Set<string>();
    if (slots.size >= max) throw tooMany(max, SLOT_RETRY_AFTER_SECONDS);
    const slot = `${replica}:${++made}`;
    // Before the question, so that those who ask at once are counted among each other.
    slots.add(slot);
    own.set(keyId, slots);
    const leave = () => {
      if (!slots.delete(slot)) return;
      if (slots.size === 0 && own.get(keyId) === slots) own.delete(keyId);
      // Also when Redis did not answer: its late yes may have taken the slot.
      shared?.tell(() => shared.redis.zrem(nameOf(keyId), slot));
    };
    if (!shared || !commands) return leave;
    const entered = await shared.ask(() => commands.slotEnter(nameOf(keyId), max, SLOT_LEASE_MS, slot));
    if (entered !== 0) return leave;
    leave();
    throw tooMany(max, SLOT_RETRY_AFTER_SECONDS);
  }

  return { enter, close: () => clearInterval(renewal) };
}

function slotCommands(redis: Redis): SlotCommands {
  redis.defineCommand("slotEnter", { numberOfKeys: 1, lua: SLOT_ENTER });
  redis.defineCommand("slotRenew", { numberOfKeys: 1, lua: SLOT_RENEW });
  return redis as Redis & SlotCommands;
}
