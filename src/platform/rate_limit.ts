import { Refusal } from "../errors.ts";
import type { Log } from "./log.ts";
import type { ShedReason, TimeLimit } from "./metrics.ts";
import {
  type ConfiguredLimits,
  isFull,
  isOver,
  type LimitState,
  type RequestLimits,
  Tallies,
  type Tally,
  tightest,
  tooManyAtOnce,
  tooManyRequests,
} from "./rate_tallies.ts";
import { type RedisWithTimeout, redisWithTimeout } from "./redis.ts";
import { type Question, RedisRateCounts } from "./redis_rate_counts.ts";
import type { Owner } from "./share_limit.ts";
import { type Counters, TokenReservation } from "./token_limit.ts";

/** Longest wait for Redis; after that the replica decides by its own counts. */
const REDIS_BUDGET_MS = 30;
const MINUTE_MS = 60_000;
/** Slots that their replica has not confirmed for this long are free again: the replica has died. */
const SLOT_LEASE_MS = 60_000;
const HEARTBEAT_MS = 1000;

export type RateLimiter = {
  /** Begins to count a request of an id such as `key:7`. `limits`: what was set for it, beyond what is configured. Refuses nothing. */
  begin(id: string, owner?: Owner, limits?: RequestLimits | null): LimitedRequest;
  /** Counts a request that is not metered. Throws too_many_requests, with the seconds until the minute ends, but less than a minute. */
  take(id: string, owner?: Owner): Promise<void>;
  close(): void;
};

type RateLimiterOptions = ConfiguredLimits & {
  /** Empty: counted in this process only. */
  redisUrl: string;
  log: Log;
  /** Monotonic clock, ms. */
  now?: () => number;
  /** Longest wait for Redis. */
  budgetMs?: number;
  slotLeaseMs?: number;
  minuteMs?: number;
  /** How often replicas report that they share the limits. */
  heartbeatMs?: number;
  onShed?: (reason: ShedReason) => void;
  onTimeOut?: (limit: TimeLimit) => void;
};

const NOBODY: Owner = { accountId: 0, tenantId: 0 };

/**
 * The rate limits (requests and tokens per minute) and the concurrency limits of an id, of its account, of its tenant, and of the
 * account's use of a model. A minute begins with its first request. All replicas share the counts through Redis, in one call for all
 * limits. Far below all limits, a replica admits by itself and reports afterwards. Each replica also counts by itself, and decides by
 * that while Redis is away. Source: ADM-1, ADM-2, ADM-10, LIM-2.
 */
export function createRateLimiter(options: RateLimiterOptions): RateLimiter {
  const { redisUrl, log, now = monotonicMs, onShed, onTimeOut, ...configured } = options;
  const { budgetMs = REDIS_BUDGET_MS, slotLeaseMs = SLOT_LEASE_MS } = options;
  const { minuteMs = MINUTE_MS, heartbeatMs = HEARTBEAT_MS } = options;
  const tallies = new Tallies(configured, minuteMs);
  let redis: RedisWithTimeout | undefined;
  let shared: RedisRateCounts | undefined;
  if (redisUrl !== "") {
    const onLate = () => onTimeOut?.("rate_redis");
    redis = redisWithTimeout(redisUrl, { log, use: "rate limiter", budgetMs, now, onLate });
    shared = new RedisRateCounts(redis, { minuteMs, slotLeaseMs, heartbeatMs, now }, tallies.busy);
  }
  const counters: Counters = { tallies, shared, now, onShed };
  const begin = (id: string, owner = NOBODY, limits: RequestLimits | null = null) =>
    new LimitedRequest(counters, { id, owner, limits });
  return {
    begin,
    take: async (id, owner) => await begin(id, owner).take(),
    close() {
      shared?.close();
      redis?.close();
    },
  };
}

/** One request, as its limits count it. */
export class LimitedRequest {
  readonly #counters: Counters;
  readonly #owner: Owner;
  readonly #limits: RequestLimits | null;
  /** Those of requests: of the id, its account, its tenant, and later of the model. */
  readonly #tallies: Tally[];
  /** Those of tokens. */
  readonly #tokenTallies: readonly Tally[];
  #modelTokens: Tally | undefined;
  /** Those in which it has a slot. */
  #slots: readonly Tally[] = NONE;
  #reservation: TokenReservation | undefined;

  constructor(counters: Counters, { id, owner, limits }: { id: string; owner: Owner; limits: RequestLimits | null }) {
    const nowMs = counters.now();
    this.#counters = counters;
    this.#owner = owner;
    this.#limits = limits;
    this.#tallies = counters.tallies.of(id, owner, { limits, nowMs });
    this.#tokenTallies = limits === null ? NONE : counters.tallies.tokensOf(id, owner, { limits, nowMs });
  }

  /** Counts it. Throws too_many_requests. Returns a promise only if Redis has to be asked. */
  take(): void | Promise<void> {
    return this.#admit(this.#tallies, false);
  }

  /** Counts it, and takes a slot of each concurrency limit. Throws too_many_requests. Returns a promise only if Redis has to be asked. */
  enter(): void | Promise<void> {
    return this.#admit(this.#tallies, true);
  }

  /**
   * Counts it to the account's limits for the model, and reserves the most tokens that it may use. Called again, it only lowers the
   * reserved tokens. Throws too_many_requests. Returns a promise only if such limits were set. Source: LIM-3, LIM-4.
   */
  enterModel(modelId: string, tokens: number): void | Promise<void> {
    if (this.#limits === null) return undefined;
    if (this.#reservation !== undefined) return this.#reservation.lower(tokens);
    this.#reservation = new TokenReservation(this.#counters);
    return this.#enterLimited({ modelId, tokens, limits: this.#limits, reservation: this.#reservation });
  }

  async #enterLimited({
    modelId,
    tokens,
    limits,
    reservation,
  }: {
    modelId: string;
    tokens: number;
    limits: RequestLimits;
    reservation: TokenReservation;
  }): Promise<void> {
    const { tallies, now } = this.#counters;
    const ofModel = limits.models.get(modelId);
    if (ofModel !== undefined) {
      const wanted = { modelId, limits: ofModel, nowMs: now() };
      const { requests, tokens: modelTokens } = tallies.ofModel(this.#owner.accountId, wanted);
      this.#modelTokens = modelTokens;
      if (requests !== undefined) {
        this.#tallies.push(requests);
        await this.#admit([requests], true);
      }
    }
    const limiting = this.#modelTokens === undefined ? this.#tokenTallies : [...this.#tokenTallies, this.#modelTokens];
    if (limiting.length > 0) await reservation.reserve(limiting, tokens);
  }

  /** The lowest limit of tokens a minute that applies to it, with the model's; undefined: none was set. */
  minuteTokens(modelId: string): number | undefined {
    if (this.#limits === null) return undefined;
    let lowest = this.#limits.models.get(modelId)?.tokensPerMinute ?? undefined;
    for (const { perMinute } of this.#tokenTallies) lowest = Math.min(perMinute, lowest ?? perMinute);
    return lowest;
  }

  /** Releases its slots, and replaces the reserved tokens by the used ones. Throws nothing; idempotent. */
  release(tokensUsed: number): void {
    const slots = this.#slots;
    this.#slots = NONE;
    for (const tally of slots) this.#releaseSlot(tally);
    this.#reservation?.settle(tokensUsed);
  }

  /** Of the limits of requests a minute, the one of which the least remains, as far as this replica knows. Source: LIM-5. */
  requests(): LimitState | undefined {
    return tightest(this.#tallies, this.#counters.now());
  }

  /** The same of tokens a minute; undefined: none is set. */
  tokens(): LimitState | undefined {
    if (this.#limits === null) return undefined;
    const all = this.#modelTokens === undefined ? this.#tokenTallies : [...this.#tokenTallies, this.#modelTokens];
    return tightest(all, this.#counters.now());
  }

  #admit(tallies: readonly Tally[], entering: boolean): void | Promise<void> {
    const { shared, now } = this.#counters;
    const nowMs = now();
    for (const tally of tallies) this.#count(tally, nowMs);
    if (shared === undefined) {
      const over = tallies.find(isOver);
      if (over !== undefined) throw this.#overRate(over, over.endsAtMs);
      const full = entering ? tallies.find(isFull) : undefined;
      if (full !== undefined) throw this.#noSlot(full);
    } else {
      for (const tally of tallies) {
        if (entering && !shared.hasFreeSlots(tally, nowMs)) return this.#ask(shared, tallies, entering);
        if (!shared.isFarBelow(tally, 1, nowMs)) return this.#ask(shared, tallies, entering);
      }
      for (const tally of tallies) shared.admitted(tally, 1, nowMs);
    }
    if (entering) for (const tally of tallies) if (tally.atOnce !== null) this.#takeSlot(tally);
  }

  /** Asks Redis, whose answer decides. */
  async #ask(shared: RedisRateCounts, tallies: readonly Tally[], entering: boolean): Promise<void> {
    const counts = tallies.map((tally) => newCount(tally, entering && tally.atOnce !== null));
    // Taken before Redis is asked, so that this replica never reports fewer slots than it may come to have.
    for (const { tally, asksSlot } of counts) if (asksSlot) this.#counters.tallies.takeSlot(tally);
    // All are asked before the first answer is awaited: they go in one call.
    for (const one of counts) ask(one, shared.question(one.tally));
    for (const one of counts) {
      const { question, place, asksSlot } = one;
      if (question === undefined || !(await question.answered)) continue;
      const isInMinute = (asksSlot ? place : question.wanting + place) < question.passed;
      one.overUntilMs = isInMinute ? undefined : question.minuteEndsMs;
      if (asksSlot) one.hasSlot = place < question.entered;
    }
    const over = counts.find(({ overUntilMs }) => overUntilMs !== undefined);
    const full = counts.find(({ needsSlot, hasSlot }) => needsSlot && !hasSlot);
    const taken = counts.filter(({ asksSlot }) => asksSlot).map(({ tally }) => tally);
    if (over === undefined && full === undefined) {
      this.#slots = [...this.#slots, ...taken];
      return;
    }
    for (const tally of taken) this.#releaseSlot(tally);
    throw over === undefined ? this.#noSlot((full as Count).tally) : this.#overRate(over.tally, over.overUntilMs);
  }

  /**
   * Counts a request in this replica. Throws too_many_requests if the tally is known to be over its limit: a flood of refused
   * requests does not reach Redis.
   */
  #count(tally: Tally, nowMs: number): void {
    tally.count++;
    if (tally.refusedUntilMs > nowMs) throw this.#overRate(tally, tally.refusedUntilMs);
  }

  #takeSlot(tally: Tally): void {
    this.#counters.tallies.takeSlot(tally);
    this.#slots = this.#slots === NONE ? [tally] : [...this.#slots, tally];
  }

  #releaseSlot(tally: Tally): void {
    this.#counters.tallies.releaseSlot(tally);
    this.#counters.shared?.released(tally);
  }

  #overRate(tally: Tally, untilMs = 0): Refusal {
    tally.refusedUntilMs = untilMs;
    const { onShed, now } = this.#counters;
    onShed?.(tally.kind.rateReason);
    return tooManyRequests(tally, (untilMs - now()) / 1000);
  }

  #noSlot(tally: Tally): Refusal {
    this.#counters.onShed?.(tally.kind.slotReason);
    return tooManyAtOnce(tally);
  }
}

const NONE: readonly Tally[] = [];

/** One request in one tally, for which Redis is asked. */
type Count = {
  tally: Tally;
  /** Whether the tally has slots, and whether this replica may still ask for one: a request that finds none counts all the same. */
  needsSlot: boolean;
  asksSlot: boolean;
  hasSlot: boolean;
  /** Set if the request is over the tally's limit: when the minute ends. */
  overUntilMs: number | undefined;
  /** The question it is part of, and its position among those that want a slot, or among the others. */
  question: Question | undefined;
  place: number;
};

/** Redis may not answer: then this replica's own count decides. */
function newCount(tally: Tally, needsSlot: boolean): Count {
  const asksSlot = needsSlot && !isFull(tally);
  const overUntilMs = isOver(tally) ? tally.endsAtMs : undefined;
  return { tally, needsSlot, asksSlot, hasSlot: asksSlot, overUntilMs, question: undefined, place: 0 };
}

function ask(count: Count, question: Question): void {
  count.question = question;
  count.place = count.asksSlot ? question.wanting++ : question.others++;
}

/** The refusal of attempts that have a limit of their own. */
export function tooMany(limit: number, seconds: number): Refusal {
  const retryAfterSeconds = Math.max(1, Math.ceil(seconds));
  return new Refusal("too_many_requests", { limit, retryAfterSeconds });
}

export const monotonicMs = () => performance.now();
