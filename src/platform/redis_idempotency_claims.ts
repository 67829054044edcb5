import { setImmediate } from "node:timers";
import type { Redis } from "ioredis";
import { Refusal } from "../errors.ts";
import { randomToken } from "./crypto.ts";
import type {
  ClaimLimits,
  ClaimOptions,
  Found,
  IdempotencyClaim,
  IdempotencyClaims,
  Wanted,
} from "./idempotency_claims.ts";
import { REDIS_LIMITS } from "./idempotency_claims.ts";
import type { Log } from "./log.ts";
import { connectRedis } from "./redis.ts";

/**
 * Idempotency claims in Redis. A claim is a hash: the attempt's token, its request id, the digest of its content, and the end of its
 * lease in ms of Redis's clock; no lease once the request was done. Every change is one script that compares the token: an attempt
 * that was taken over changes nothing. A claim that Redis forgets (a restart without persistence, an eviction) is gone.
 *
 * A script that claims says until when its caller waits, by Redis's clock, and claims nothing after that. So a script that waits somewhere, as in
 * the socket of a connection that was closed while Redis was frozen, or in a proxy, leaves no claim that nobody knows of.
 */

/** If Redis takes longer to answer, the request is refused: served without a claim, it might be served twice. */
const REDIS_BUDGET_MS = 500;
const RENEWALS_A_LEASE = 3;
const RENEWALS_AT_ONCE = 500;
/** The answer of a script whose caller waits no longer. */
const LATE = 2;
/** Attempts whose script got no answer, of which it is not known whether it ran. Beyond this number the oldest lapse with their leases. */
const UNANSWERED_MAX = 20_000;
const AWAY = "An Idempotency-Key cannot be looked up right now. Try again.";

/** An attempt of this replica. `waitsUntilMs`: after that its script claims nothing. */
type Attempt = Wanted & { token: string; leaseUntilMs: number; waitsUntilMs: number };

/** For many replicas. Connects by itself, and reconnects after every loss. */
export function redisIdempotencyClaims(redisUrl: string, options: ClaimOptions): IdempotencyClaims {
  return new RedisClaims(connectRedis(redisUrl, { log: options.log, use: "claims" }), options);
}

class RedisClaims implements IdempotencyClaims {
  readonly #redis: Redis;
  readonly #commands: ClaimCommands;
  readonly #ask: Ask;
  readonly #log: Log;
  readonly #leaseMs: number;
  readonly #nowMs: () => number;
  readonly #limits: ClaimLimits;
  readonly #budgetMs: number;
  /** Redis's clock less this process's, in ms, at the least; undefined: not known since the connection began. */
  #offsetMs: number | undefined;
  /** Attempts whose lease is renewed. */
  readonly #live = new Set<Attempt>();
  /** Attempts that were given up without an answer. If Redis runs their scripts after all, nobody would free them. */
  readonly #unanswered = new Set<Attempt>();
  /** Ends of attempts that Redis has not confirmed. */
  readonly #ending = new Set<Promise<void>>();
  readonly #renewal: ReturnType<typeof setInterval>;
  #isRenewing = false;

  constructor(redis: Redis, { leaseMs, nowMs, log, limits, budgetMs = REDIS_BUDGET_MS }: ClaimOptions) {
    this.#redis = redis;
    this.#commands = claimCommands(redis);
    this.#ask = asking(redis, budgetMs);
    this.#budgetMs = budgetMs;
    this.#log = log;
    this.#leaseMs = leaseMs;
    this.#nowMs = nowMs;
    this.#limits = { ...REDIS_LIMITS, ...limits };
    this.#renewal = setInterval(() => void this.#renewAll(), leaseMs / RENEWALS_A_LEASE);
    redis.on("ready", () => {
      // It may be another server, with another clock.
      this.#offsetMs = undefined;
      this.#freeUnanswered();
    });
  }

  async take(wanted: Wanted): Promise<Found> {
    const attempt = this.#newAttempt(wanted);
    const names = [nameOf(wanted.id), answerNameOf(wanted.id)];
    const send = async () => {
      const deadline = await this.#deadlineOf(attempt);
      return await this.#commands.claimTakeBuffer(...names, ...this.#fieldsOf(attempt), deadline);
    };
    const question = async () => {
      const answer = await send();
      if (String(answer[0]) !== "late") return answer;
      // If this attempt still waits, Redis's clock was set, or this process was blocked when it read it.
      this.#offsetMs = undefined;
      return await send();
    };
    const [state, requestId, servedBy, content, more] = await this.#claiming(
      attempt,
      question,
      ([late]) => String(late) === "ours",
    );
    const holder = { requestId: String(requestId), servedBy: String(servedBy), content: String(content) };
    switch (String(state)) {
      case "ours":
        return { state: "ours", claim: this.#claimOf(attempt) };
      case "late":
        throw new Refusal("service_unavailable", { message: AWAY });
      case "done":
        return { state: "done", ...holder, answer: more ?? undefined };
      case "lapsed": {
        const old: Attempt = { ...attempt, ...holder, token: String(more) };
        const lapsed = { takeOver: () => this.#takeOver(wanted, old), finish: () => this.#finish(old) };
        return { state: "lapsed", ...holder, lapsed };
      }
      default:
        return { state: "in_flight", ...holder };
    }
  }

  async close(): Promise<void> {
    clearInterval(this.#renewal);
    await Promise.all(this.#ending);
    this.#redis.disconnect();
  }

  async #takeOver(wanted: Wanted, old: Attempt): Promise<IdempotencyClaim | undefined> {
    const attempt = this.#newAttempt(wanted);
    const question = async () => {
      const deadline = await this.#deadlineOf(attempt);
      return await this.#commands.claimTakeOver(nameOf(wanted.id), old.token, ...this.#fieldsOf(attempt), deadline);
    };
    const taken = await this.#claiming(attempt, question, (late) => late === 1);
    return taken === 1 ? this.#claimOf(attempt) : undefined;
  }

  /**
   * The answer to a script that claims. Throws service_unavailable if there is none in time: then the attempt is given up, and what it
   * has claimed belongs to nobody. It is freed when the answer comes, or when the connection is back and its script claims nothing any more.
   */
  async #claiming<T>(attempt: Attempt, question: () => Promise<T>, hasClaimed: (answer: T) => boolean): Promise<T> {
    const freeLate = (answer: T) => {
      this.#unanswered.delete(attempt);
      if (hasClaimed(answer)) void this.#free(attempt);
    };
    try {
      return await this.#ask(question, freeLate);
    } catch {
      const [oldest] = this.#unanswered;
      if (oldest && this.#unanswered.size >= UNANSWERED_MAX) this.#unanswered.delete(oldest);
      this.#unanswered.add(attempt);
      throw new Refusal("service_unavailable", { message: AWAY });
    }
  }

  #freeUnanswered(): void {
    for (const attempt of this.#unanswered) {
      const waitMs = attempt.waitsUntilMs - this.#nowMs();
      if (waitMs > 0) setTimeout(() => void this.#free(attempt), waitMs).unref();
      else void this.#free(attempt);
    }
    this.#unanswered.clear();
  }

  /** The end of an attempt's wait by Redis's clock: never later than by this process's. */
  async #deadlineOf({ waitsUntilMs }: Attempt): Promise<string> {
    this.#offsetMs ??= await this.#learnOffset();
    return (waitsUntilMs + this.#offsetMs).toFixed(0);
  }

  /** What Redis's clock is ahead of this process's, less the time that the answer took. */
  async #learnOffset(): Promise<number> {
    const [seconds = 0, micros = 0] = await this.#redis.time();
    return Number(seconds) * 1000 + Math.floor(Number(micros) / 1000) - this.#nowMs();
  }

  #newAttempt(wanted: Wanted): Attempt {
    const nowMs = this.#nowMs();
    const [leaseUntilMs, waitsUntilMs] = [nowMs + this.#leaseMs, nowMs + this.#budgetMs];
    return { ...wanted, token: randomToken(12), leaseUntilMs, waitsUntilMs };
  }

  /** The arguments of the script `write`. */
  #fieldsOf({ token, requestId, servedBy, content }: Attempt): Argument[] {
    return [token, requestId, servedBy, content, this.#leaseMs, this.#limits.doneKeptMs];
  }

  #claimOf(attempt: Attempt): IdempotencyClaim {
    this.#live.add(attempt);
    return {
      alive: () => this.#nowMs() < attempt.leaseUntilMs,
      finish: (answer) => this.#finish(attempt, answer),
      free: () => this.#free(attempt),
    };
  }

  #free(attempt: Attempt): Promise<void> {
    return this.#end(attempt, () => this.#commands.claimFree(nameOf(attempt.id), attempt.token));
  }

  #finish(attempt: Attempt, answer?: Uint8Array): Promise<void> {
    const { answerBytesMax, doneKeptMs, answerKeptMs, ...limits } = this.#limits;
    const kept = answer && answer.byteLength <= answerBytesMax ? Buffer.from(answer) : "";
    return this.#end(attempt, () =>
      this.#commands.claimFinish(
        nameOf(attempt.id),
        answerNameOf(attempt.id),
        ...["done", "answers"].flatMap((what) => [`tollgate:${what}`, `tollgate:${what}:${attempt.owner}`]),
        ...[attempt.token, attempt.requestId, attempt.servedBy, attempt.content, doneKeptMs, answerKeptMs],
        ...[limits.doneMax, limits.ownerDoneMax, limits.answersBytesMax, limits.ownerAnswersBytesMax, kept],
      ),
    );
  }

  /** Records how an attempt ended. If Redis cannot be told, the claim lapses, and the next request asks the books. */
  async #end(attempt: Attempt, question: () => Promise<unknown>): Promise<void> {
    this.#live.delete(attempt);
    const recorded = this.#ask(question).then(
      () => {},
      (err: unknown) =>
        this.#log.warn({ err, requestId: attempt.requestId }, "the end of an idempotency claim was not recorded"),
    );
    this.#ending.add(recorded);
    await recorded.finally(() => this.#ending.delete(recorded));
  }

  async #renewAll(): Promise<void> {
    if (this.#isRenewing) return;
    this.#isRenewing = true;
    // Clocks drift apart, and are set.
    this.#offsetMs = await this.#learnOffset().catch(() => undefined);
    const due = [...this.#live];
    for (let i = 0; i < due.length; i += RENEWALS_AT_ONCE) {
      const some = due.slice(i, i + RENEWALS_AT_ONCE).filter((attempt) => this.#live.has(attempt));
      // A claim that was not renewed may not be ours any more: `alive` says so.
      await Promise.allSettled(some.map((attempt) => this.#renew(attempt)));
    }
    this.#isRenewing = false;
  }

  async #renew(attempt: Attempt): Promise<void> {
    const deadline = await this.#deadlineOf({ ...attempt, waitsUntilMs: this.#nowMs() + this.#budgetMs });
    const sentMs = this.#nowMs();
    const ours = await this.#commands.claimRenew(nameOf(attempt.id), ...this.#fieldsOf(attempt), deadline);
    if (ours === LATE) return;
    attempt.leaseUntilMs = ours === 1 ? sentMs + this.#leaseMs : Number.NEGATIVE_INFINITY;
    if (ours !== 1) this.#live.delete(attempt);
  }
}

/** Redis's answer; rejects after the budget. An answer that comes later is passed to `late`. */
type Ask = <T>(question: () => Promise<T>, late?: (answer: T) => void) => Promise<T>;

function asking(redis: Redis, budgetMs: number): Ask {
  // A replica that has just started is still connecting: its first requests wait instead of being refused.
  const connected = new Promise<void>((resolve) => {
    redis.once("ready", resolve);
    redis.once("close", resolve);
  });
  return (question, late) =>
    new Promise((resolve, reject) => {
      let answered = false;
      let over = false;
      const timer = setTimeout(() => {
        // If this process was blocked, the answer may wait in the socket: read it first.
        setImmediate(() => {
          over = !answered;
          reject(new Error(`Redis did not answer within ${budgetMs} ms`));
        });
      }, budgetMs);
      connected
        .then(question)
        .then((answer) => {
          answered = true;
          if (over) late?.(answer);
          else resolve(answer);
        }, reject)
        .finally(() => clearTimeout(timer));
    });
}

const nameOf = (id: string) => `tollgate:claim:${id}`;
const answerNameOf = (id: string) => `tollgate:answer:${id}`;

const NOW = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)`;
/** ARGV from `first` on: token, request id, who serves it, content digest, lease in ms, how long the hash is kept in ms. */
const write = (first: number) => `
redis.call('HSET', KEYS[1], 'token', ARGV[${first}], 'request', ARGV[${first + 1}], 'by', ARGV[${first + 2}],
  'content', ARGV[${first + 3}], 'lease', string.format('%.0f', now + ARGV[${first + 4}]))
redis.call('PEXPIRE', KEYS[1], ARGV[${first + 5}])`;

/** KEYS: claim, answer. ARGV: as `write`, then until when the caller waits. Returns the state, then the holder's request id, who serves it, content, and answer or token. */
const TAKE = `${NOW}
local c = redis.call('HMGET', KEYS[1], 'token', 'request', 'by', 'content', 'lease')
if not c[1] then
  if now > tonumber(ARGV[7]) then return {'late'} end
  redis.call('DEL', KEYS[2])${write(1)}
  return {'ours'}
end
if not c[5] then return {'done', c[2], c[3], c[4], c[4] == ARGV[4] and redis.call('GET', KEYS[2])} end
if tonumber(c[5]) > now then return {'in_flight', c[2], c[3], c[4]} end
return {'lapsed', c[2], c[3], c[4], c[1]}`;

/** KEYS: claim. ARGV: the lapsed token, then as `write`, then until when the caller waits. Returns 1 if that claim is still lapsed or was freed. */
const TAKE_OVER = `${NOW}
if now > tonumber(ARGV[8]) then return 0 end
local c = redis.call('HMGET', KEYS[1], 'token', 'lease')
if c[1] and (c[1] ~= ARGV[1] or not c[2] or tonumber(c[2]) > now) then return 0 end${write(2)}
return 1`;

/**
 * KEYS: claim. ARGV: as `write`, then until when what Redis has forgotten may be claimed again: later it may have been freed. Returns 0 if
 * another attempt has it, or it is done; LATE if nobody has it and it is too late.
 */
const RENEW = `${NOW}
local c = redis.call('HMGET', KEYS[1], 'token', 'lease')
if not c[1] and now > tonumber(ARGV[7]) then return ${LATE} end
if c[1] and (c[1] ~= ARGV[1] or not c[2]) then return 0 end${write(1)}
return 1`;

/**
 * KEYS: claim, answer, then the counts of done requests and of answer bytes, each for all and for the owner. ARGV: token, request id,
 * who serves it, content digest, ms to remember that it was done, ms to keep its answer, the limits of KEYS 3 to 6, the answer.
 */
const FINISH = `${NOW}
local token = redis.call('HGET', KEYS[1], 'token')
if token and token ~= ARGV[1] then return 0 end

-- Counted in windows as long as a record is kept: this window and the one before hold every record there can be.
local function counted(first, max, keptMs, amount)
  local window = math.floor(now / keptMs)
  for i = 0, 1 do
    local used = (redis.call('HGET', KEYS[first + i], window) or 0) + (redis.call('HGET', KEYS[first + i], window - 1) or 0)
    if used + amount > tonumber(ARGV[max + i]) then return false end
  end
  for i = 0, 1 do
    redis.call('HINCRBY', KEYS[first + i], window, amount)
    redis.call('HDEL', KEYS[first + i], window - 2)
    redis.call('PEXPIRE', KEYS[first + i], 2 * keptMs)
  end
  return true
end

local answerKeptMs = tonumber(ARGV[6])
local doneKeptMs = tonumber(ARGV[5])
if not counted(3, 7, doneKeptMs, 1) then doneKeptMs = math.min(doneKeptMs, answerKeptMs) end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'request', ARGV[2], 'by', ARGV[3], 'content', ARGV[4])
redis.call('HDEL', KEYS[1], 'lease')
redis.call('PEXPIRE', KEYS[1], doneKeptMs)
if #ARGV[11] > 0 and counted(5, 9, answerKeptMs, #ARGV[11]) then
  redis.call('SET', KEYS[2], ARGV[11], 'PX', answerKeptMs)
end
return 1`;

/** KEYS: claim. ARGV: token. */
const FREE = `
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])`;

type Argument = string | number | Buffer;
type ClaimCommands = {
  claimTakeBuffer(...keysAndArguments: Argument[]): Promise<(Buffer | null)[]>;
  claimTakeOver(...keysAndArguments: Argument[]): Promise<number>;
  claimRenew(...keysAndArguments: Argument[]): Promise<number>;
  claimFinish(...keysAndArguments: Argument[]): Promise<number>;
  claimFree(...keysAndArguments: Argument[]): Promise<number>;
};

function claimCommands(redis: Redis): ClaimCommands {
  redis.defineCommand("claimTake", { numberOfKeys: 2, lua: TAKE });
  redis.defineCommand("claimTakeOver", { numberOfKeys: 1, lua: TAKE_OVER });
  redis.defineCommand("claimRenew", { numberOfKeys: 1, lua: RENEW });
  redis.defineCommand("claimFinish", { numberOfKeys: 6, lua: FINISH });
  redis.defineCommand("claimFree", { numberOfKeys: 1, lua: FREE });
  return redis as Redis & ClaimCommands;
}
