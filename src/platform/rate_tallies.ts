import { LRUCache } from "lru-cache";
import { RETRY_AFTER_SECONDS_MAX, Refusal } from "../errors.ts";
import type { ShedReason } from "./metrics.ts";
import { newRedisRateCount, type RedisRateCount } from "./redis_rate_counts.ts";
import type { Owner } from "./share_limit.ts";

/** What the rate limiter counts, by holder: which limit applies to whom, and how a refusal says so. */

/** Ids remembered, besides those with requests in flight; beyond that, the least recently used are forgotten. */
const IDS_MAX = 50_000;
/** `Retry-After` when all slots are taken: nobody knows when one becomes free. */
const SLOT_RETRY_AFTER_SECONDS = 1;
/** A limit that is never reached. A finite number, because it is sent to Redis as JSON. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER;

/** The limits of one holder: a key, an account, or an account's use of one model. null: none of that kind. Source: LIM-1. */
export type LimitSet = {
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly requestsAtOnce: number | null;
};

/** Limits as they are set and shown: of an offering, an account, or a key. A key has none for single models. */
export type RateLimits = LimitSet & { readonly models: Readonly<Record<string, LimitSet>> };

/** All limits that were set for the requests of a key. Source: LIM-2. */
export type RequestLimits = {
  readonly key: LimitSet | null;
  readonly account: LimitSet | null;
  /** The account's limits for single models, by model id. */
  readonly models: ReadonlyMap<string, LimitSet>;
};

/** A kind of limit: what it counts, its configured value, and how its refusal is reported. */
export type Kind = {
  holder: "key" | "person" | "account" | "model" | "tenant";
  perMinute: number;
  atOnce: number;
  /** Of too many requests or tokens a minute, and of too many requests at once. */
  rateReason: ShedReason;
  slotReason: ShedReason;
};

/** This replica's counts of one holder: of requests and their slots, or of tokens. */
export type Tally = RedisRateCount & {
  id: string;
  kind: Kind;
  /** The name in a refusal, as in "This account". */
  whose: string;
  /** Requests or tokens in the minute that ends at `endsAtMs`. */
  count: number;
  endsAtMs: number;
  /** Known to be over its limit until then. */
  refusedUntilMs: number;
};

export type ConfiguredLimits = {
  /** Requests of one id, per minute and in flight. */
  perMinute: number;
  inFlight: number;
  /** Requests of all ids of an account, and of a tenant. */
  accountPerMinute: number;
  tenantPerMinute: number;
};

/** The tallies of this replica. */
export class Tallies {
  /** Tallies with slots, which must not be forgotten. */
  readonly busy = new Map<string, Tally>();
  readonly #recent = new LRUCache<string, Tally>({ max: IDS_MAX });
  readonly #minuteMs: number;
  readonly #kinds: ReturnType<typeof kindsOf>;

  constructor(configured: ConfiguredLimits, minuteMs: number) {
    this.#minuteMs = minuteMs;
    this.#kinds = kindsOf(configured);
  }

  /** The tally of an id, as in `key:7`, and those of its account and its tenant. */
  of(id: string, { accountId, tenantId }: Owner, { limits, nowMs }: { limits: RequestLimits | null; nowMs: number }) {
    const { key, person, account, tenant } = this.#kinds;
    const own = this.#tally(id, id.startsWith("key:") ? key : person, nowMs);
    limitRequests(own, limits === null ? null : limits.key);
    const tallies: Tally[] = [own];
    if (accountId !== 0) {
      const tally = this.#tally(`account:${accountId}`, account, nowMs);
      limitRequests(tally, limits === null ? null : limits.account);
      tallies.push(tally);
    }
    if (tenantId !== 0) tallies.push(this.#tally(`tenant:${tenantId}`, tenant, nowMs));
    return tallies;
  }

  /** The tallies of the tokens of an id and of its account: of those that have such a limit. */
  tokensOf(id: string, { accountId }: Owner, { limits, nowMs }: { limits: RequestLimits; nowMs: number }): Tally[] {
    const { keyTokens, accountTokens } = this.#kinds;
    const tallies: Tally[] = [];
    const add = (tally: Tally, tokens: number) => {
      tally.perMinute = tokens;
      tallies.push(tally);
    };
    const [ofKey, ofAccount] = [limits.key?.tokensPerMinute, limits.account?.tokensPerMinute];
    if (typeof ofKey === "number") add(this.#tally(`tokens:${id}`, keyTokens, nowMs), ofKey);
    if (typeof ofAccount === "number") {
      add(this.#tally(`tokens:account:${accountId}`, accountTokens, nowMs), ofAccount);
    }
    return tallies;
  }

  /** The tallies of an account's use of a model: of its requests and of its tokens, if they are limited. */
  ofModel(
    accountId: number,
    { modelId, limits, nowMs }: { modelId: string; limits: LimitSet; nowMs: number },
  ): { requests: Tally | undefined; tokens: Tally | undefined } {
    const id = `model:${accountId}:${modelId}`;
    const { model, modelTokens } = this.#kinds;
    const { requestsPerMinute, tokensPerMinute, requestsAtOnce } = limits;
    const hasRequests = requestsPerMinute !== null || requestsAtOnce !== null;
    const requests = hasRequests ? this.#tally(id, model, nowMs, modelId) : undefined;
    if (requests !== undefined) limitRequests(requests, limits);
    const tokens = tokensPerMinute === null ? undefined : this.#tally(`tokens:${id}`, modelTokens, nowMs, modelId);
    if (tokens !== undefined) tokens.perMinute = tokensPerMinute ?? NO_LIMIT;
    return { requests, tokens };
  }

  /** Begins a tally's minute anew if it has ended. */
  renew(tally: Tally, nowMs: number): void {
    if (tally.endsAtMs > nowMs) return;
    tally.count = 0;
    tally.endsAtMs = nowMs + this.#minuteMs;
  }

  takeSlot(tally: Tally): void {
    if (tally.slots++ === 0) this.busy.set(tally.id, tally);
  }

  releaseSlot(tally: Tally): void {
    if (--tally.slots === 0) this.busy.delete(tally.id);
  }

  #tally(id: string, kind: Kind, nowMs: number, modelId = ""): Tally {
    let tally = this.#recent.get(id);
    if (tally === undefined) {
      tally = this.busy.get(id) ?? newTally(id, kind, modelId);
      this.#recent.set(id, tally);
    }
    this.renew(tally, nowMs);
    return tally;
  }
}

/** Requests and tokens are counted apart, so that a holder has a tally of each. */
function kindsOf({ perMinute, inFlight, accountPerMinute, tenantPerMinute }: ConfiguredLimits) {
  const unlimited = { perMinute: NO_LIMIT, atOnce: NO_LIMIT };
  const ofKey = { rateReason: "rate", slotReason: "in_flight_per_key", perMinute, atOnce: inFlight } as const;
  const ofModel = { holder: "model", ...unlimited } as const;
  return {
    key: { holder: "key", ...ofKey },
    person: { holder: "person", ...ofKey },
    account: {
      holder: "account",
      ...{ rateReason: "rate_per_account", slotReason: "at_once_per_account" },
      ...{ perMinute: accountPerMinute, atOnce: NO_LIMIT },
    },
    // How many requests a tenant has at once is limited by share_limit.ts.
    tenant: {
      holder: "tenant",
      ...{ rateReason: "rate_per_tenant", slotReason: "in_flight_per_tenant" },
      ...{ perMinute: tenantPerMinute, atOnce: NO_LIMIT },
    },
    model: { ...ofModel, rateReason: "rate_per_model", slotReason: "at_once_per_model" },
    keyTokens: { holder: "key", rateReason: "tokens_per_key", slotReason: "in_flight_per_key", ...unlimited },
    accountTokens: {
      holder: "account",
      ...{ rateReason: "tokens_per_account", slotReason: "at_once_per_account" },
      ...unlimited,
    },
    modelTokens: { ...ofModel, rateReason: "tokens_per_model", slotReason: "at_once_per_model" },
  } as const satisfies Record<string, Kind>;
}

function newTally(id: string, kind: Kind, modelId: string): Tally {
  const { perMinute, atOnce } = kind;
  const never = Number.NEGATIVE_INFINITY;
  const shared = newRedisRateCount({ id, perMinute, atOnce: atOnce === NO_LIMIT ? null : atOnce });
  return { ...shared, id, kind, whose: whoseOf(kind, modelId), count: 0, endsAtMs: never, refusedUntilMs: never };
}

function whoseOf({ holder }: Kind, modelId: string): string {
  if (holder === "key") return "This API key";
  if (holder === "account") return "This account";
  if (holder === "model") return `This account, with the model ${modelId},`;
  // The message does not reveal the reseller to its customers.
  return holder === "tenant" ? "This service" : "You";
}

/** Sets the limits of a tally of requests: the configured ones, and what was set for its holder, whichever is lower. */
function limitRequests(tally: Tally, set: LimitSet | null): void {
  const { kind } = tally;
  const perMinute = Math.min(kind.perMinute, set?.requestsPerMinute ?? NO_LIMIT);
  const atOnce = Math.min(kind.atOnce, set?.requestsAtOnce ?? NO_LIMIT);
  // What was refused by another limit may be granted by this one.
  if (tally.perMinute !== perMinute) tally.refusedUntilMs = Number.NEGATIVE_INFINITY;
  tally.perMinute = perMinute;
  tally.atOnce = atOnce === NO_LIMIT ? null : atOnce;
}

export function isOver({ count, perMinute }: Tally): boolean {
  return count > perMinute;
}

export function isFull({ slots, atOnce }: Tally): boolean {
  return atOnce !== null && slots >= atOnce;
}

/** The refusal of one request too many in a minute that lasts `seconds` more. */
export function tooManyRequests({ whose, perMinute }: Tally, seconds: number): Refusal {
  const message =
    whose === "This service"
      ? "This service gets too many requests. Slow down and try again."
      : `${whose} may send ${perMinute} requests a minute. Slow down and try again.`;
  return tooMany(perMinute, seconds, message);
}

/** The refusal of tokens that do not fit in the minute. `wanted`: what the request may use; `used`: what is used or reserved. */
export function tooManyTokens(
  { whose, perMinute }: Tally,
  { wanted, used, seconds }: { wanted: number; used: number; seconds: number },
): Refusal {
  const remaining = Math.max(0, perMinute - used);
  const message =
    `${whose} may use ${perMinute} tokens a minute. ${remaining} are left, and this request may use ${wanted}. ` +
    "Try again later, or lower max_tokens.";
  return tooMany(perMinute, seconds, message, remaining);
}

/** The refusal of one request too many at once. */
export function tooManyAtOnce({ whose, atOnce }: Tally): Refusal {
  const limit = atOnce ?? 0;
  const message = `${whose} may have ${limit} ${limit === 1 ? "request" : "requests"} at once. Try again when one has ended.`;
  return tooMany(limit, SLOT_RETRY_AFTER_SECONDS, message);
}

function tooMany(limit: number, seconds: number, message: string, remaining?: number): Refusal {
  const retryAfterSeconds = Math.max(1, Math.min(RETRY_AFTER_SECONDS_MAX, Math.ceil(seconds)));
  return new Refusal("too_many_requests", {
    ...{ limit, retryAfterSeconds, message },
    ...(remaining !== undefined && { remaining }),
  });
}

/** How much of a limit is used, and when its minute ends: what the headers of an answer say. */
export type LimitState = { limit: number; remaining: number; resetsInMs: number };

/** Of the limits that apply, the one of which the least remains; undefined: none applies. A tenant's is not shown to customers. */
export function tightest(tallies: readonly Tally[], nowMs: number): LimitState | undefined {
  let state: LimitState | undefined;
  for (const tally of tallies) {
    const { perMinute, kind } = tally;
    if (perMinute === NO_LIMIT || kind.holder === "tenant") continue;
    const remaining = Math.max(0, perMinute - usedOf(tally, nowMs));
    const isTighter = state === undefined || remaining < state.remaining;
    if (isTighter) state = { limit: perMinute, remaining, resetsInMs: Math.max(0, endOf(tally, nowMs) - nowMs) };
  }
  return state;
}

/** What is used of a tally's minute: as Redis counted it last and this replica since, or as this replica counted alone. */
export function usedOf(tally: Tally, nowMs: number): number {
  if (nowMs < tally.minuteEndsMs) return tally.counted + tally.unsent + tally.sent;
  return nowMs < tally.endsAtMs ? tally.count : 0;
}

/** When the tally's minute ends. */
export function endOf({ minuteEndsMs, endsAtMs }: Tally, nowMs: number): number {
  return nowMs < minuteEndsMs ? minuteEndsMs : endsAtMs;
}
