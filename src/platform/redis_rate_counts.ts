import { setImmediate } from "node:timers";
import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { randomToken } from "./crypto.ts";
import type { RedisWithTimeout } from "./redis.ts";

/** Ids in one call to Redis. */
const BATCH_MAX = 256;
/** Between two calls: sending a call costs more than the ids in it. */
const PAUSE_MS = 1;
/** A released slot is reported with the next call, or after this by a call of its own. */
const REPORT_MS = 5;
const RENEWALS_A_LEASE = 3;

/** What this replica reports of one id. */
export type RedisRateCount = {
  minuteKey: string;
  /** Undefined: the id has no slots. */
  slotsKey: string | undefined;
  /** Limit of requests. */
  perMinute: number;
  /** Slots taken or asked for in this replica. */
  slots: number;
  /** Not sent yet. */
  question: Question | undefined;
};

/** The requests that ask for one id in one call. Those that want a slot come first. */
export type Question = {
  rate: RedisRateCount;
  wanting: number;
  others: number;
  /** False: Redis did not answer. */
  answered: Promise<boolean>;
  /** The answer: requests within the minute, slots granted, and ms until the minute ends. */
  passed: number;
  entered: number;
  msLeft: number;
};
type Batch = { questions: Question[]; answered: Promise<boolean>; resolve: (answered: boolean) => void };

type Limits = { minuteMs: number; inFlight: number; slotLeaseMs: number };

/**
 * Counts of requests per minute, and of slots for concurrent requests, that all replicas share in Redis. The rate limiter decides
 * by them.
 *
 * Requests that arrive in one turn of the event loop, or during a call, are sent in one call, each id once. A replica reports how
 * many slots of an id it has, not which it took or released: a lost or late message is corrected by the next report, or by the end
 * of the lease. All calls use one connection, so that none overtakes another.
 */
export class RedisRateCounts {
  readonly #redis: RedisWithTimeout;
  readonly #limits: Limits;
  readonly #commands: Commands;
  readonly #replica = randomToken(9);
  readonly #waiting: Batch[] = [];
  #isRunning = false;
  /** Ids with slots released since the last report. */
  readonly #unreported = new Set<RedisRateCount>();
  #reporting: ReturnType<typeof setTimeout> | undefined;
  readonly #renewal: ReturnType<typeof setInterval>;

  /** `busy`: the ids that have slots. Their leases are renewed. */
  constructor(redis: RedisWithTimeout, limits: Limits, busy: ReadonlyMap<string, RedisRateCount>) {
    this.#redis = redis;
    this.#limits = limits;
    this.#commands = commandsOf(redis.redis);
    this.#renewal = setInterval(() => this.#report([...busy.values()]), limits.slotLeaseMs / RENEWALS_A_LEASE);
  }

  /** The id's question in the next call: the caller adds itself to its `wanting` or `others`. */
  question(rate: RedisRateCount): Question {
    if (rate.question) return rate.question;
    const batch = this.#openBatch();
    // Redis answers with refusals only.
    const [passed, entered] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    rate.question = { rate, wanting: 0, others: 0, answered: batch.answered, passed, entered, msLeft: 0 };
    batch.questions.push(rate.question);
    if (!this.#isRunning) {
      this.#isRunning = true;
      setImmediate(() => void this.#run());
    }
    return rate.question;
  }

  /** Slots of the id were released: reports it soon. */
  changed(rate: RedisRateCount): void {
    this.#unreported.add(rate);
    this.#reporting ??= setTimeout(() => this.#reportChanges(), REPORT_MS);
  }

  close(): void {
    clearInterval(this.#renewal);
    clearTimeout(this.#reporting);
    this.#reportChanges();
  }

  #openBatch(): Batch {
    const last = this.#waiting.at(-1);
    if (last !== undefined && last.questions.length < BATCH_MAX) return last;
    const { promise: answered, resolve } = Promise.withResolvers<boolean>();
    const batch: Batch = { questions: [], answered, resolve };
    this.#waiting.push(batch);
    return batch;
  }

  async #run(): Promise<void> {
    for (let batch = this.#waiting.shift(); batch; batch = this.#waiting.shift()) {
      // Lets refused requests release their slots before the next call reports how many there are.
      const pause = sleep(PAUSE_MS);
      const { questions } = batch;
      const rates = this.#withUnreported(questions.map(({ rate }) => rate));
      const sent = this.#argumentsOf(rates);
      for (const { rate } of questions) rate.question = undefined;
      const refusals = await this.#redis.ask(() => this.#commands.admit(2 * rates.length, ...sent));
      if (refusals) readRefusals(questions, refusals);
      // Redis may have received it all the same, and granted fewer slots than this replica now takes by itself.
      else for (const rate of rates) if (rate.slotsKey !== undefined) this.changed(rate);
      batch.resolve(refusals !== undefined);
      await pause;
    }
    this.#isRunning = false;
  }

  /** Adds unreported ids to a call, as far as there is room. */
  #withUnreported(rates: RedisRateCount[]): RedisRateCount[] {
    for (const rate of rates) this.#unreported.delete(rate);
    for (const rate of this.#unreported) {
      if (rates.length === BATCH_MAX) break;
      this.#unreported.delete(rate);
      if (!rate.question) rates.push(rate);
    }
    return rates;
  }

  #reportChanges(): void {
    this.#reporting = undefined;
    this.#report([...this.#unreported]);
    this.#unreported.clear();
  }

  #report(rates: readonly RedisRateCount[]): void {
    // An id with a question is reported with it.
    const reported = rates.filter(({ question }) => !question);
    for (let i = 0; i < reported.length; i += BATCH_MAX) {
      const some = reported.slice(i, i + BATCH_MAX);
      this.#redis.tell(() => this.#commands.admit(2 * some.length, ...this.#argumentsOf(some)));
    }
  }

  /** Keys and arguments of the script. */
  #argumentsOf(rates: readonly RedisRateCount[]): (string | number)[] {
    const { minuteMs, inFlight, slotLeaseMs } = this.#limits;
    const sent: (string | number)[] = [];
    const counts: number[] = [];
    for (const { minuteKey, slotsKey, perMinute, slots, question } of rates) {
      const wanting = question?.wanting ?? 0;
      sent.push(minuteKey, slotsKey ?? minuteKey);
      counts.push(perMinute, wanting + (question?.others ?? 0), wanting, slotsKey === undefined ? -1 : slots - wanting);
    }
    // One JSON argument: ioredis takes longer over each argument than over a number in it.
    sent.push(minuteMs, inFlight, slotLeaseMs, this.#replica, JSON.stringify(counts));
    return sent;
  }
}

function readRefusals(questions: readonly Question[], refusals: readonly number[]): void {
  for (let i = 0; i < refusals.length; i += 4) {
    const [which = 0, passed = 0, entered = 0, msLeft = 0] = refusals.slice(i, i + 4);
    const question = questions[which];
    if (question) Object.assign(question, { passed, entered, msLeft });
  }
}

/**
 * KEYS: for each id, the counter of its minute, and the hash of its slots: replica → how many it has, and until when, in ms of
 * Redis's clock. ARGV: the minute in ms, the limit of slots, their lease in ms, the replica; then a JSON list with four numbers for
 * each id: its limit per minute, requests that ask, how many of those want a slot, and slots the replica has besides (−1: the id
 * has no slots). Returns only the refusals, four numbers each: index of the id, requests within the minute, slots granted, ms until
 * the minute ends.
 */
const ADMIT = `
local window, slots_max = tonumber(ARGV[1]), tonumber(ARGV[2])
local lease, replica = tonumber(ARGV[3]), ARGV[4]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function pass(minute, asked, per_minute)
  local count = redis.call('INCRBY', minute, asked)
  if count == asked then redis.call('PEXPIRE', minute, window) end
  if count <= per_minute then return asked, 0 end
  local left = redis.call('PTTL', minute)
  if left < 0 then
    redis.call('PEXPIRE', minute, window)
    left = window
  end
  return math.max(0, asked - (count - per_minute)), left
end

local function of_others(slots)
  local sum = 0
  local all = redis.call('HGETALL', slots)
  for i = 1, #all, 2 do
    if all[i] ~= replica then
      local taken, ends = string.match(all[i + 1], '^(%d+) (%d+)$')
      if tonumber(ends) > now then sum = sum + taken else redis.call('HDEL', slots, all[i]) end
    end
  end
  return sum
end

local refusals = {}
local counts = cjson.decode(ARGV[5])
for i = 0, #KEYS / 2 - 1 do
  local minute, slots = KEYS[2 * i + 1], KEYS[2 * i + 2]
  local per_minute, asked = counts[4 * i + 1], counts[4 * i + 2]
  local wanted, own = counts[4 * i + 3], counts[4 * i + 4]
  local passed, left = asked, 0
  if asked > 0 then passed, left = pass(minute, asked, per_minute) end
  local entered = math.min(wanted, passed)
  if entered > 0 then entered = math.max(0, math.min(entered, slots_max - own - of_others(slots))) end
  if own + entered > 0 then
    redis.call('HSET', slots, replica, string.format('%.0f %.0f', own + entered, now + lease))
    redis.call('PEXPIRE', slots, lease)
  elseif own >= 0 then
    redis.call('HDEL', slots, replica)
  end
  if passed < asked or entered < wanted then
    for _, value in ipairs({ i, passed, entered, left }) do refusals[#refusals + 1] = value end
  end
end
return refusals`;
type Commands = { admit(keys: number, ...keysAndArguments: (string | number)[]): Promise<number[]> };

function commandsOf(redis: Redis): Commands {
  redis.defineCommand("admit", { lua: ADMIT });
  return redis as Redis & Commands;
}
