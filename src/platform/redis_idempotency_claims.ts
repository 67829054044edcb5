import { setImmediate } from "node:timers";
import type { Redis } from "ioredis";
import { Refusal } from "../errors.ts";
import { randomToken } from "./crypto.ts";
import {
  type ClaimOptions,
  type Found,
  type IdempotencyClaim,
  type IdempotencyClaims,
  REDIS_LIMITS,
  type Wanted,
} from "./idempotency_claims.ts";
import { connectRedis } from "./redis.ts";

/**
 * IdempotencyClaims in Redis. A claim is a hash: the attempt's token, its request, its content, and the end of its lease, in ms of
 * Redis's clock; none once it was done. Every change is one script, and compares the token: who was taken over changes nothing.
 * What a Redis forgets (a restart without persistence, an eviction) is not claimed any more.
 */

/** Redis answers within this, or the request is refused: it might be served twice. */
const REDIS_BUDGET_MS = 500;
const RENEWALS_A_LEASE = 3;
const RENEWALS_AT_ONCE = 500;
const AWAY = "An Idempotency-Key cannot be looked up right now. Try again.";

/** An attempt of this replica. */
type Attempt = Wanted & { token: string; leaseUntilMs: number };

/** For many replicas. Connects by itself, and again after every loss. */
export function redisIdempotencyClaims(
  redisUrl: string,
  { leaseMs, nowMs, log, limits: given, budgetMs = REDIS_BUDGET_MS }: ClaimOptions,
): IdempotencyClaims {
  const limits = { ...REDIS_LIMITS, ...given };
  const redis = connectRedis(redisUrl, { log, use: "claims" });
  const ask = asking(redis, budgetMs);
  const commands = claimCommands(redis);
  const live = new Set<Attempt>();
  const ending = new Set<Promise<void>>();
  const lives = (attempt: Attempt) => [attempt.token, attempt.requestId, attempt.content, leaseMs, limits.doneKeptMs];

  /** Notes how an attempt ended. Whoever comes after a claim that could not be ended asks the books. */
  async function end(attempt: Attempt, question: () => Promise<unknown>): Promise<void> {
    live.delete(attempt);
    const noted = ask(question).then(
      () => {},
      (err: unknown) => log.warn({ err, requestId: attempt.requestId }, "the end of a claimed request was not noted"),
    );
    ending.add(noted);
    await noted.finally(() => ending.delete(noted));
  }

  const free = (attempt: Attempt) => end(attempt, () => commands.claimFree(nameOf(attempt.id), attempt.token));

  function finish(attempt: Attempt, answer?: Uint8Array): Promise<void> {
    const kept = answer && answer.byteLength <= limits.answerBytesMax ? Buffer.from(answer) : "";
    const { doneKeptMs, answerKeptMs, doneMax, ownerDoneMax, answersBytesMax, ownerAnswersBytesMax } = limits;
    return end(attempt, () =>
      commands.claimFinish(
        nameOf(attempt.id),
        answerNameOf(attempt.id),
        ...["done", "answers"].flatMap((what) => [`tollgate:${what}`, `tollgate:${what}:${attempt.owner}`]),
        ...[attempt.token, attempt.requestId, attempt.content, doneKeptMs, answerKeptMs],
        ...[doneMax, ownerDoneMax, answersBytesMax, ownerAnswersBytesMax, kept],
      ),
    );
  }

  function claimOf(attempt: Attempt): IdempotencyClaim {
    live.add(attempt);
    return {
      alive: () => nowMs() < attempt.leaseUntilMs,
      finish: (answer) => finish(attempt, answer),
      free: () => free(attempt),
    };
  }

  const newAttempt = (wanted: Wanted): Attempt => ({
    ...wanted,
    token: randomToken(12),
    leaseUntilMs: nowMs() + leaseMs,
  });

  async function take(wanted: Wanted): Promise<Found> {
    const attempt = newAttempt(wanted);
    const question = () => commands.claimTakeBuffer(nameOf(wanted.id), answerNameOf(wanted.id), ...lives(attempt));
    // A yes that comes too late has claimed the id for nobody.
    const [state, requestId, content, more] = await orRefuse(
      ask(question, ([late]) => String(late) === "ours" && void free(attempt)),
    );
    const holder = { requestId: String(requestId), content: String(content) };
    switch (String(state)) {
      case "ours":
        return { state: "ours", claim: claimOf(attempt) };
      case "done":
        return { state: "done", ...holder, answer: more ?? undefined };
      case "lapsed": {
        const old: Attempt = { ...attempt, ...holder, token: String(more) };
        return {
          state: "lapsed",
          ...holder,
          lapsed: { takeOver: () => takeOver(wanted, old), finish: () => finish(old) },
        };
      }
      default:
        return { state: "in_flight", ...holder };
    }
  }

  async function takeOver(wanted: Wanted, old: Attempt): Promise<IdempotencyClaim | undefined> {
    const attempt = newAttempt(wanted);
    const question = () => commands.claimTakeOver(nameOf(wanted.id), old.token, ...lives(attempt));
    const taken = await orRefuse(ask(question, (late) => late === 1 && void free(attempt)));
    return taken === 1 ? claimOf(attempt) : undefined;
  }

  async function renew(attempt: Attempt): Promise<void> {
    const sentMs = nowMs();
    const ours = await commands.claimRenew(nameOf(attempt.id), ...lives(attempt));
    attempt.leaseUntilMs = ours === 1 ? sentMs + leaseMs : Number.NEGATIVE_INFINITY;
    if (ours !== 1) live.delete(attempt);
  }

  let renewing = false;
  const renewal = setInterval(async () => {
    if (renewing) return;
    renewing = true;
    const due = [...live];
    for (let i = 0; i < due.length; i += RENEWALS_AT_ONCE) {
      const part = due.slice(i, i + RENEWALS_AT_ONCE).filter((attempt) => live.has(attempt));
      await Promise.allSettled(part.map(renew)); // What was not renewed is no longer ours for sure, and `alive` says so.
    }
    renewing = false;
  }, leaseMs / RENEWALS_A_LEASE);

  return {
    take,
    async close() {
      clearInterval(renewal);
      await Promise.all(ending);
      redis.disconnect();
    },
  };
}

async function orRefuse<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch {
    throw new Refusal("service_unavailable", { message: AWAY });
  }
}

/** What Redis answers, within the budget. An answer that comes after that is given to `late`. */
type Ask = <T>(question: () => Promise<T>, late?: (answer: T) => void) => Promise<T>;

function asking(redis: Redis, budgetMs: number): Ask {
  // A replica that has just started is still connecting: that is no reason to refuse.
  const begun = new Promise<void>((resolve) => {
    redis.once("ready", resolve);
    redis.once("close", resolve);
  });
  return (question, late) =>
    new Promise((resolve, reject) => {
      let answered = false;
      let over = false;
      const timer = setTimeout(() => {
        // If it was this process that stood still, the answer lies in the socket: let it be read first.
        setImmediate(() => {
          over = !answered;
          reject(new Error(`Redis did not answer within ${budgetMs} ms`));
        });
      }, budgetMs);
      begun
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
/** ARGV from `first` on: token, request, content, lease in ms, how long the hash is kept in ms. */
const write = (first: number) => `
redis.call('HSET', KEYS[1], 'token', ARGV[${first}], 'request', ARGV[${first + 1}], 'content', ARGV[${first + 2}],
  'lease', string.format('%.0f', now + ARGV[${first + 3}]))
redis.call('PEXPIRE', KEYS[1], ARGV[${first + 4}])`;

/** KEYS: claim, answer. ARGV: as `write`. Returns the state, and of who has it the request, the content, and its answer or token. */
const TAKE = `${NOW}
local c = redis.call('HMGET', KEYS[1], 'token', 'request', 'content', 'lease')
if not c[1] then
  redis.call('DEL', KEYS[2])${write(1)}
  return {'ours'}
end
if not c[4] then return {'done', c[2], c[3], c[3] == ARGV[3] and redis.call('GET', KEYS[2])} end
if tonumber(c[4]) > now then return {'in_flight', c[2], c[3]} end
return {'lapsed', c[2], c[3], c[1]}`;

/** KEYS: claim. ARGV: the token that lapsed, then as `write`. Returns 1 if it is still so, or was freed. */
const TAKE_OVER = `${NOW}
local c = redis.call('HMGET', KEYS[1], 'token', 'lease')
if c[1] and (c[1] ~= ARGV[1] or not c[2] or tonumber(c[2]) > now) then return 0 end${write(2)}
return 1`;

/** KEYS: claim. ARGV: as `write`. IdempotencyClaims again what Redis has forgotten. Returns 0 if it is another's, or done. */
const RENEW = `${NOW}
local c = redis.call('HMGET', KEYS[1], 'token', 'lease')
if c[1] and (c[1] ~= ARGV[1] or not c[2]) then return 0 end${write(1)}
return 1`;

/**
 * KEYS: claim, answer, then how many are done and how many bytes of answers are kept, of all and of the owner. ARGV: token, request,
 * content, ms that it is known to be done, ms that its answer is kept, the limits of KEYS 3 to 6, the answer.
 */
const FINISH = `${NOW}
local token = redis.call('HGET', KEYS[1], 'token')
if token and token ~= ARGV[1] then return 0 end

-- Counted in windows as long as a thing is kept: what stands in this one and the one before is all there can be.
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

local answerKeptMs = tonumber(ARGV[5])
local doneKeptMs = tonumber(ARGV[4])
if not counted(3, 6, doneKeptMs, 1) then doneKeptMs = math.min(doneKeptMs, answerKeptMs) end
redis.call('HSET', KEYS[1], 'token', ARGV[1], 'request', ARGV[2], 'content', ARGV[3])
redis.call('HDEL', KEYS[1], 'lease')
redis.call('PEXPIRE', KEYS[1], doneKeptMs)
if #ARGV[10] > 0 and counted(5, 8, answerKeptMs, #ARGV[10]) then
  redis.call('SET', KEYS[2], ARGV[10], 'PX', answerKeptMs)
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
