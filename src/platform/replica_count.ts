import type { Redis } from "ioredis";
import type { RedisWithTimeout } from "./redis.ts";

/** A count is used until this many heartbeats after the one that read it was sent. */
const TRUSTED_HEARTBEATS = 3;
/** A replica that ended is counted for this many heartbeats more. Longer than others use a count that lacks it. */
const LEASE_HEARTBEATS = 6;

export type ReplicaCountOptions = { replica: string; heartbeatMs: number; now: () => number };

/**
 * How many replicas share the rate limits in this Redis. Each replica reports itself every `heartbeatMs`.
 *
 * No two replicas use counts that leave out one another: a replica uses no count until the others, which may have read theirs before
 * it was there, have read a new one or stopped using theirs.
 */
export class ReplicaCount {
  readonly #redis: RedisWithTimeout;
  readonly #options: ReplicaCountOptions;
  readonly #commands: Commands;
  readonly #timer: ReturnType<typeof setInterval>;
  #count = Number.POSITIVE_INFINITY;
  #usedFromMs = Number.POSITIVE_INFINITY;
  #usedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(redis: RedisWithTimeout, options: ReplicaCountOptions) {
    this.#redis = redis;
    this.#options = options;
    this.#commands = commandsOf(redis.redis);
    this.#timer = setInterval(() => void this.#beat(), options.heartbeatMs);
  }

  /** The number of replicas; infinite while it is unknown. */
  at(nowMs: number): number {
    return nowMs >= this.#usedFromMs && nowMs < this.#usedUntilMs ? this.#count : Number.POSITIVE_INFINITY;
  }

  /** Redis did not answer: the count is unknown until the next heartbeat is answered. */
  forget(): void {
    this.#usedUntilMs = Number.NEGATIVE_INFINITY;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  async #beat(): Promise<void> {
    const { replica, heartbeatMs, now } = this.#options;
    const sentMs = now();
    const leaseMs = LEASE_HEARTBEATS * heartbeatMs;
    const answer = await this.#redis.ask(() => this.#commands.heartbeat(1, "tollgate:limiters", replica, leaseMs));
    if (answer === undefined) {
      this.forget();
      return;
    }
    const [count, isNew] = answer;
    const trustedMs = TRUSTED_HEARTBEATS * heartbeatMs;
    if (isNew === 1) this.#usedFromMs = now() + trustedMs;
    this.#count = count;
    this.#usedUntilMs = sentMs + trustedMs;
  }
}

/**
 * KEYS: the replicas, sorted by when their lease ends. ARGV: this replica, its lease in ms. Returns how many there are, and 1 if this
 * one was not among them.
 */
const HEARTBEAT = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local added = redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return { redis.call('ZCARD', KEYS[1]), added }`;
type Commands = { heartbeat(keys: number, ...keysAndArguments: (string | number)[]): Promise<[number, number]> };

function commandsOf(redis: Redis): Commands {
  redis.defineCommand("heartbeat", { lua: HEARTBEAT });
  return redis as Redis & Commands;
}
