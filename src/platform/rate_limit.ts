import { LRUCache } from "lru-cache";
import { Refusal } from "../errors.ts";
import type { Log } from "./log.ts";
import type { ShedReason, TimeLimit } from "./metrics.ts";
import { type RedisWithTimeout, redisWithTimeout } from "./redis.ts";
import { type Question, type RedisRateCount, RedisRateCounts } from "./redis_rate_counts.ts";
import type { Owner } from "./share_limit.ts";

/** Longest wait for Redis; after that the replica decides by its own counts. */
const REDIS_BUDGET_MS = 30;
const WINDOW_MS = 60_000;
/** Ids remembered, besides those with requests in flight; beyond that, the least recently used are forgotten. */
const IDS_MAX = 50_000;
/** Slots that their replica has not confirmed for this long are free again: the replica has died. */
const SLOT_LEASE_MS = 60_000;
/** `Retry-After` when all slots are taken: nobody knows when one becomes free. */
const SLOT_RETRY_AFTER_SECONDS = 1;

export type RateLimiter = {
  /**
   * Counts a request to the id, and to its owner's account and tenant. Throws too_many_requests, with the seconds until the minute
   * ends.
   */
  take(id: string, owner?: Owner): Promise<void>;
  /**
   * Counts a request, and takes one of the id's slots while it is in flight. Throws too_many_requests. The function it returns
   * releases the slot; it throws nothing and is idempotent.
   */
  enter(id: string, owner?: Owner): Promise<() => void>;
  close(): void;
};

type RateLimiterOptions = {
  /** Empty: counted in this process only. */
  redisUrl: string;
  /** Requests of one id, per minute and in flight. */
  perMinute: number;
  inFlight: number;
  /** Requests of all ids of an account, and of a tenant. */
  accountPerMinute: number;
  tenantPerMinute: number;
  log: Log;
  /** Monotonic clock, ms. */
  now?: () => number;
  /** Longest wait for Redis. */
  budgetMs?: number;
  slotLeaseMs?: number;
  onShed?: (reason: ShedReason) => void;
  onTimeOut?: (limit: TimeLimit) => void;
};

const NOBODY: Owner = { accountId: 0, tenantId: 0 };

/**
 * The rate limits (requests per minute of an id such as `key:7`, of its account and of its tenant) and the concurrency limit of an
 * id. A minute begins with its first request. All replicas share the counts through Redis, in one call for all three; each replica
 * also counts by itself, and decides by that while Redis is away. Source: ADM-1, ADM-2.
 */
export function createRateLimiter(options: RateLimiterOptions): RateLimiter {
  return new Limiter(options);
}

class Limiter implements RateLimiter {
  readonly #inFlight: number;
  readonly #now: () => number;
  readonly #onShed: ((reason: ShedReason) => void) | undefined;
  readonly #tallies: ReturnType<typeof createTallies>;
  readonly #redis: RedisWithTimeout | undefined;
  readonly #shared: RedisRateCounts | undefined;

  constructor({ redisUrl, inFlight, log, now = monotonicMs, onShed, onTimeOut, ...options }: RateLimiterOptions) {
    const { budgetMs = REDIS_BUDGET_MS, slotLeaseMs = SLOT_LEASE_MS, ...perMinute } = options;
    this.#inFlight = inFlight;
    this.#now = now;
    this.#onShed = onShed;
    this.#tallies = createTallies(perMinute);
    if (redisUrl === "") return;
    const onLate = () => onTimeOut?.("rate_redis");
    this.#redis = redisWithTimeout(redisUrl, { log, use: "rate limiter", budgetMs, now, onLate });
    this.#shared = new RedisRateCounts(this.#redis, { minuteMs: WINDOW_MS, inFlight, slotLeaseMs }, this.#tallies.busy);
  }

  async take(id: string, owner = NOBODY): Promise<void> {
    await this.#admit(id, false, owner);
  }

  enter(id: string, owner = NOBODY): Promise<() => void> {
    return this.#admit(id, true, owner);
  }

  close(): void {
    this.#shared?.close();
    this.#redis?.close();
  }

  /** Counts in this replica, then asks Redis, whose answer decides. */
  async #admit(id: string, entering: boolean, owner: Owner): Promise<() => void> {
    const counts: Count[] = [];
    for (const tally of this.#tallies.of(id, owner, this.#now())) counts.push(this.#count(tally));
    const [own] = counts as [Count];
    // A request that finds no slot here still counts towards the minute.
    const wants = entering && own.tally.slots < this.#inFlight;
    let hasSlot = wants;
    // Taken before Redis is asked, so that this replica never reports fewer slots than it may come to have.
    if (wants) this.#tallies.takeSlot(own.tally);
    if (this.#shared) {
      // All are asked before the first answer is awaited: they go in one call.
      for (const one of counts) ask(one, this.#shared.question(one.tally), wants && one === own);
      for (const one of counts) {
        const { question, place } = one;
        if (question === undefined || !(await question.answered)) continue;
        const wantsSlot = wants && one === own;
        const isInMinute = (wantsSlot ? place : question.wanting + place) < question.passed;
        one.overUntilMs = isInMinute ? undefined : this.#now() + question.msLeft;
        if (wantsSlot) hasSlot = place < question.entered;
      }
    }

    const over = counts.find(({ overUntilMs }) => overUntilMs !== undefined);
    if (over === undefined && hasSlot === entering) return entering ? this.#releaseOf(own.tally) : nothing;
    if (wants) this.#release(own.tally);
    throw over === undefined ? this.#noSlot() : this.#overRate(over.tally, over.overUntilMs);
  }

  /**
   * Counts a request in this replica. Throws too_many_requests if the tally is known to be over its limit: a flood of refused
   * requests does not reach Redis.
   */
  #count(tally: Tally): Count {
    const isOver = ++tally.count > tally.kind.perMinute;
    if (tally.refusedUntilMs > this.#now()) throw this.#overRate(tally, tally.refusedUntilMs);
    return { tally, overUntilMs: isOver ? tally.endsAtMs : undefined, question: undefined, place: 0 };
  }

  #releaseOf(tally: Tally): () => void {
    let released = false;
    return () => {
      if (released) return;
      released = true;
      this.#release(tally);
    };
  }

  #release(tally: Tally): void {
    this.#tallies.releaseSlot(tally);
    this.#shared?.changed(tally);
  }

  #overRate(tally: Tally, untilMs = 0): Refusal {
    tally.refusedUntilMs = untilMs;
    this.#onShed?.(tally.kind.reason);
    return tooMany(tally.kind.perMinute, (untilMs - this.#now()) / 1000, tally.kind.message);
  }

  #noSlot(): Refusal {
    this.#onShed?.("in_flight_per_key");
    return tooMany(this.#inFlight, SLOT_RETRY_AFTER_SECONDS);
  }
}

/** One request in one tally. */
type Count = {
  tally: Tally;
  /** Set if the request is over the tally's limit: when the minute ends. */
  overUntilMs: number | undefined;
  /** The question it is part of, and its position among those that want a slot, or among the others. */
  question: Question | undefined;
  place: number;
};

function ask(count: Count, question: Question, wantsSlot: boolean): void {
  count.question = question;
  count.place = wantsSlot ? question.wanting++ : question.others++;
}

export function tooMany(limit: number, seconds: number, message?: string): Refusal {
  const retryAfterSeconds = Math.max(1, Math.ceil(seconds));
  return new Refusal("too_many_requests", { limit, retryAfterSeconds, ...(message !== undefined && { message }) });
}

export const monotonicMs = () => performance.now();

const nothing = () => {};

/** A rate limit, and how its refusal is reported. */
type Kind = { perMinute: number; reason: ShedReason; message: string };

/** This replica's counts of an id, an account or a tenant. */
type Tally = RedisRateCount & {
  id: string;
  kind: Kind;
  /** Requests in the minute that ends at `endsAtMs`. */
  count: number;
  endsAtMs: number;
  /** Known to be over its limit until then. */
  refusedUntilMs: number;
};

type PerMinute = { perMinute: number; accountPerMinute: number; tenantPerMinute: number };

function createTallies({ perMinute, accountPerMinute, tenantPerMinute }: PerMinute) {
  const again = "Slow down and try again.";
  const kinds = {
    id: { perMinute, reason: "rate", message: `Too many requests. ${again}` },
    account: {
      perMinute: accountPerMinute,
      reason: "rate_per_account",
      message: `This account makes too many requests. ${again}`,
    },
    // The message does not reveal the reseller to its customers.
    tenant: {
      perMinute: tenantPerMinute,
      reason: "rate_per_tenant",
      message: `This service gets too many requests. ${again}`,
    },
  } as const satisfies Record<string, Kind>;
  const recent = new LRUCache<string, Tally>({ max: IDS_MAX });
  /** Tallies with slots, which must not be forgotten. */
  const busy = new Map<string, Tally>();

  function newTally(id: string, kind: Kind): Tally {
    const minuteKey = `tollgate:minute:${id}`;
    // Accounts and tenants have no slots: their concurrency is limited by share_limit.ts.
    const slotsKey = kind === kinds.id ? `tollgate:in-flight:${id}` : undefined;
    const { perMinute } = kind;
    const never = Number.NEGATIVE_INFINITY;
    const shared = { minuteKey, slotsKey, perMinute, slots: 0, question: undefined };
    return { ...shared, id, kind, count: 0, endsAtMs: never, refusedUntilMs: never };
  }

  /** The tally, with its minute begun anew if it has ended. */
  function tallyOf(id: string, kind: Kind, nowMs: number): Tally {
    let tally = recent.get(id);
    if (tally === undefined) {
      tally = busy.get(id) ?? newTally(id, kind);
      recent.set(id, tally);
    }
    if (tally.endsAtMs <= nowMs) {
      tally.count = 0;
      tally.endsAtMs = nowMs + WINDOW_MS;
    }
    return tally;
  }

  return {
    busy,
    /** The tally of the id, then those of its account and its tenant. */
    of(id: string, { accountId, tenantId }: Owner, nowMs: number): Tally[] {
      const tallies = [tallyOf(id, kinds.id, nowMs)];
      if (accountId !== 0) tallies.push(tallyOf(`account:${accountId}`, kinds.account, nowMs));
      if (tenantId !== 0) tallies.push(tallyOf(`tenant:${tenantId}`, kinds.tenant, nowMs));
      return tallies;
    },
    takeSlot(tally: Tally): void {
      if (tally.slots++ === 0) busy.set(tally.id, tally);
    },
    releaseSlot(tally: Tally): void {
      if (--tally.slots === 0) busy.delete(tally.id);
    },
  };
}
