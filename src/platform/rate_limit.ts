import { LRUCache } from "lru-cache";
import { Refusal } from "../errors.ts";
import type { Log } from "./log.ts";
import type { ShedReason, TimeLimit } from "./metrics.ts";
import { budgetedRedis } from "./redis_budget.ts";
import { createSharedRates, type SharedRate } from "./shared_rates.ts";

/** Redis answers within this, or the replica decides by what it knows itself. */
const REDIS_BUDGET_MS = 30;
const WINDOW_MS = 60_000;
/** Ids remembered at once, beside those with requests under way; beyond, those not seen for longest are forgotten. */
const IDS_MAX = 50_000;
/** Slots that a replica has not confirmed for this long are free again: it died. */
const SLOT_LEASE_MS = 60_000;
/** What a client is told to wait for a slot; nobody knows when one comes free. */
const SLOT_RETRY_AFTER_SECONDS = 1;

export type RateLimiter = {
  /** Counts a request. Throws too_many_requests, with the seconds until the id's minute ends. */
  take(id: string): Promise<void>;
  /**
   * Counts a request and takes a slot for while it is under way. Throws too_many_requests. What it returns gives the slot
   * back, throws nothing, and may be called twice.
   */
  enter(id: string): Promise<() => void>;
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
  slotLeaseMs?: number;
  onShed?: (reason: ShedReason) => void;
  onTimeOut?: (limit: TimeLimit) => void;
};

/**
 * Limits by id, as `key:7`: requests a minute, which begins with the first, and requests under way. Shared by all replicas
 * through Redis; each counts by itself too, and goes by that while Redis is away. Source: rulings › Errors.
 */
export function createRateLimiter({
  redisUrl,
  perMinute,
  inFlight,
  log,
  now = monotonicMs,
  budgetMs = REDIS_BUDGET_MS,
  slotLeaseMs = SLOT_LEASE_MS,
  onShed,
  onTimeOut,
}: RateLimiterOptions): RateLimiter {
  const onLate = () => onTimeOut?.("rate_redis");
  const redis =
    redisUrl === "" ? undefined : budgetedRedis(redisUrl, { log, use: "rate limiter", budgetMs, now, onLate });
  const tallies = createTallies();
  const limits = { perMinute, minuteMs: WINDOW_MS, inFlight, slotLeaseMs };
  const shared = redis && createSharedRates(redis, limits, tallies.busy);

  /** Counts here, and asks Redis; what Redis says goes. */
  async function admit(id: string, entering: boolean): Promise<() => void> {
    const nowMs = now();
    const tally = tallies.of(id, nowMs);
    const isOver = ++tally.count > perMinute;
    // A flood of what is refused does not reach Redis.
    if (tally.refusedUntilMs > nowMs) throw overRate(tally, tally.refusedUntilMs);
    let overUntilMs = isOver ? tally.endsAtMs : undefined;

    // Without a slot left here a request counts as asked for all the same.
    const wants = entering && tally.slots < inFlight;
    let hasSlot = wants;
    // Taken before Redis is asked: what this replica says it has is never less than what it may come to have.
    if (wants) tallies.takeSlot(tally);
    const question = shared?.question(tally);
    if (question) {
      const place = wants ? question.wanting++ : question.others++;
      if (await question.answered) {
        const isInMinute = (wants ? place : question.wanting + place) < question.passed;
        overUntilMs = isInMinute ? undefined : now() + question.msLeft;
        hasSlot = wants && place < question.entered;
      }
    }

    if (overUntilMs === undefined && hasSlot === entering) return entering ? leaving(tally) : nothing;
    if (wants) giveBack(tally);
    throw overUntilMs === undefined ? full() : overRate(tally, overUntilMs);
  }

  function leaving(tally: Tally): () => void {
    let left = false;
    return () => {
      if (left) return;
      left = true;
      giveBack(tally);
    };
  }

  function giveBack(tally: Tally): void {
    tallies.giveBackSlot(tally);
    shared?.changed(tally);
  }

  function overRate(tally: Tally, untilMs: number): Refusal {
    tally.refusedUntilMs = untilMs;
    onShed?.("rate");
    return tooMany(perMinute, (untilMs - now()) / 1000);
  }

  function full(): Refusal {
    onShed?.("in_flight_per_key");
    return tooMany(inFlight, SLOT_RETRY_AFTER_SECONDS);
  }

  return {
    async take(id) {
      await admit(id, false);
    },
    enter: (id) => admit(id, true),
    close() {
      shared?.close();
      redis?.close();
    },
  };
}

export function tooMany(limit: number, seconds: number): Refusal {
  return new Refusal("too_many_requests", { limit, retryAfterSeconds: Math.max(1, Math.ceil(seconds)) });
}

export const monotonicMs = () => performance.now();

const nothing = () => {};

/** What this replica knows of an id. */
type Tally = SharedRate & {
  id: string;
  /** Requests here in the minute that ends then. */
  count: number;
  endsAtMs: number;
  /** Over its limit until then. */
  refusedUntilMs: number;
};

function createTallies() {
  const recent = new LRUCache<string, Tally>({ max: IDS_MAX });
  /** Those with slots are not forgotten. */
  const busy = new Map<string, Tally>();

  function newTally(id: string): Tally {
    const [minuteKey, slotsKey] = [`tollgate:minute:${id}`, `tollgate:in-flight:${id}`];
    const never = Number.NEGATIVE_INFINITY;
    return { id, minuteKey, slotsKey, slots: 0, question: undefined, count: 0, endsAtMs: never, refusedUntilMs: never };
  }

  return {
    busy,
    /** With the minute that runs at `nowMs`. */
    of(id: string, nowMs: number): Tally {
      let tally = recent.get(id);
      if (tally === undefined) {
        tally = busy.get(id) ?? newTally(id);
        recent.set(id, tally);
      }
      if (tally.endsAtMs <= nowMs) {
        tally.count = 0;
        tally.endsAtMs = nowMs + WINDOW_MS;
      }
      return tally;
    },
    takeSlot(tally: Tally): void {
      if (tally.slots++ === 0) busy.set(tally.id, tally);
    },
    giveBackSlot(tally: Tally): void {
      if (--tally.slots === 0) busy.delete(tally.id);
    },
  };
}
