import { LRUCache } from "lru-cache";
import { Refusal } from "../errors.ts";
import type { Log } from "./log.ts";
import type { ShedReason, TimeLimit } from "./metrics.ts";
import { redisWithTimeout } from "./redis.ts";
import { createRedisRateCounts, type Question, type RedisRateCount } from "./redis_rate_counts.ts";
import type { Owner } from "./share_limit.ts";

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
  /**
   * Counts a request, to the id and to its account and tenant, if an owner is named. Throws too_many_requests, with the seconds
   * until the minute ends.
   */
  take(id: string, owner?: Owner): Promise<void>;
  /**
   * Counts a request, and takes one of the id's slots for while it is in flight. Throws too_many_requests. What it returns gives
   * the slot back, throws nothing, and may be called twice.
   */
  enter(id: string, owner?: Owner): Promise<() => void>;
  close(): void;
};

type RateLimiterOptions = {
  /** Empty: counted in this process alone. */
  redisUrl: string;
  /** Requests, of one id. */
  perMinute: number;
  inFlight: number;
  /** Requests, of all ids of an account, and of a tenant. */
  accountPerMinute: number;
  tenantPerMinute: number;
  log: Log;
  /** Monotonic, ms. */
  now?: () => number;
  /** What Redis may take to answer. */
  budgetMs?: number;
  slotLeaseMs?: number;
  onShed?: (reason: ShedReason) => void;
  onTimeOut?: (limit: TimeLimit) => void;
};

const NOBODY: Owner = { accountId: 0, tenantId: 0 };

/**
 * Limits by id, as `key:7`: requests a minute, which begins with the first, and requests in flight. Limits accounts and tenants
 * by requests a minute. Shared by all replicas through Redis, in one call for all three; each replica counts by itself too, and
 * goes by that while Redis is away. Source: rulings › Errors.
 */
export function createRateLimiter({
  redisUrl,
  perMinute,
  inFlight,
  accountPerMinute,
  tenantPerMinute,
  log,
  now = monotonicMs,
  budgetMs = REDIS_BUDGET_MS,
  slotLeaseMs = SLOT_LEASE_MS,
  onShed,
  onTimeOut,
}: RateLimiterOptions): RateLimiter {
  const onLate = () => onTimeOut?.("rate_redis");
  const redis =
    redisUrl === "" ? undefined : redisWithTimeout(redisUrl, { log, use: "rate limiter", budgetMs, now, onLate });
  const tallies = createTallies({ perMinute, accountPerMinute, tenantPerMinute });
  const shared = redis && createRedisRateCounts(redis, { minuteMs: WINDOW_MS, inFlight, slotLeaseMs }, tallies.busy);

  /** Counts here, and asks Redis; what Redis says goes. */
  async function admit(id: string, entering: boolean, owner: Owner): Promise<() => void> {
    const counts = tallies.of(id, owner, now()).map(count);
    const [own] = counts as [Count];
    // Without a slot left here a request counts as asked for all the same.
    const wants = entering && own.tally.slots < inFlight;
    let hasSlot = wants;
    // Taken before Redis is asked: what this replica says it has is never less than what it may come to have.
    if (wants) tallies.takeSlot(own.tally);
    if (shared) {
      // All before the first answer is waited for: they go in one call.
      for (const one of counts) ask(one, shared.question(one.tally), wants && one === own);
      for (const one of counts) {
        const { question, place } = one;
        if (question === undefined || !(await question.answered)) continue;
        const wantsSlot = wants && one === own;
        const isInMinute = (wantsSlot ? place : question.wanting + place) < question.passed;
        one.overUntilMs = isInMinute ? undefined : now() + question.msLeft;
        if (wantsSlot) hasSlot = place < question.entered;
      }
    }

    const over = counts.find(({ overUntilMs }) => overUntilMs !== undefined);
    if (over === undefined && hasSlot === entering) return entering ? leaving(own.tally) : nothing;
    if (wants) giveBack(own.tally);
    throw over === undefined ? full() : overRate(over.tally, over.overUntilMs);
  }

  /** Counts a request here. Throws too_many_requests where a tally is known to be over: a flood of what is refused does not reach Redis. */
  function count(tally: Tally): Count {
    const isOver = ++tally.count > tally.kind.perMinute;
    if (tally.refusedUntilMs > now()) throw overRate(tally, tally.refusedUntilMs);
    return { tally, overUntilMs: isOver ? tally.endsAtMs : undefined, question: undefined, place: 0 };
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

  function overRate(tally: Tally, untilMs = 0): Refusal {
    tally.refusedUntilMs = untilMs;
    onShed?.(tally.kind.reason);
    return tooMany(tally.kind.perMinute, (untilMs - now()) / 1000, tally.kind.message);
  }

  function full(): Refusal {
    onShed?.("in_flight_per_key");
    return tooMany(inFlight, SLOT_RETRY_AFTER_SECONDS);
  }

  return {
    async take(id, owner = NOBODY) {
      await admit(id, false, owner);
    },
    enter: (id, owner = NOBODY) => admit(id, true, owner),
    close() {
      shared?.close();
      redis?.close();
    },
  };
}

/** One request in one tally. */
type Count = {
  tally: Tally;
  /** It is over the tally's limit, until then. */
  overUntilMs: number | undefined;
  /** Where it was asked for, and the how manieth of those who want a slot, or of the others. */
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

/** What is limited by requests a minute, and how that is said. */
type Kind = { perMinute: number; reason: ShedReason; message: string };

/** What this replica knows of an id, an account or a tenant. */
type Tally = RedisRateCount & {
  id: string;
  kind: Kind;
  /** Requests here in the minute that ends then. */
  count: number;
  endsAtMs: number;
  /** Over its limit until then. */
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
    // Its customers are not told of their reseller.
    tenant: {
      perMinute: tenantPerMinute,
      reason: "rate_per_tenant",
      message: `This service gets too many requests. ${again}`,
    },
  } as const satisfies Record<string, Kind>;
  const recent = new LRUCache<string, Tally>({ max: IDS_MAX });
  /** Those with slots are not forgotten. */
  const busy = new Map<string, Tally>();

  function newTally(id: string, kind: Kind): Tally {
    const minuteKey = `tollgate:minute:${id}`;
    // Slots of accounts and tenants are shares of a replica: see shares.ts.
    const slotsKey = kind === kinds.id ? `tollgate:in-flight:${id}` : undefined;
    const { perMinute } = kind;
    const never = Number.NEGATIVE_INFINITY;
    const shared = { minuteKey, slotsKey, perMinute, slots: 0, question: undefined };
    return { ...shared, id, kind, count: 0, endsAtMs: never, refusedUntilMs: never };
  }

  /** With the minute that runs at `nowMs`. */
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
    /** That of the id, then those of its account and its tenant. */
    of(id: string, { accountId, tenantId }: Owner, nowMs: number): Tally[] {
      const tallies = [tallyOf(id, kinds.id, nowMs)];
      if (accountId !== 0) tallies.push(tallyOf(`account:${accountId}`, kinds.account, nowMs));
      if (tenantId !== 0) tallies.push(tallyOf(`tenant:${tenantId}`, kinds.tenant, nowMs));
      return tallies;
    },
    takeSlot(tally: Tally): void {
      if (tally.slots++ === 0) busy.set(tally.id, tally);
    },
    giveBackSlot(tally: Tally): void {
      if (--tally.slots === 0) busy.delete(tally.id);
    },
  };
}
