import { setImmediate } from "node:timers";
import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { randomToken } from "./crypto.ts";
import type { RedisWithTimeout } from "./redis.ts";

/** Ids that one call to Redis is about. */
const BATCH_MAX = 256;
/** Between two calls: each costs more than what it asks for. */
const PAUSE_MS = 1;
/** A slot given back is told of by the next call, or by one of its own after this. */
const GIVE_BACK_MS = 5;
const RENEWALS_A_LEASE = 3;

/** An id's part in what replicas share. */
export type RedisRateCount = {
  minuteKey: string;
  /** Undefined: it has no slots. */
  slotsKey: string | undefined;
  /** Requests. */
  perMinute: number;
  /** Slots that are taken or asked for here. */
  slots: number;
  /** Not sent yet. */
  question: Question | undefined;
};

/** All who ask for one id in one call. Those who want a slot stand in front. */
export type Question = {
  rate: RedisRateCount;
  wanting: number;
  others: number;
  /** False where Redis does not answer. */
  answered: Promise<boolean>;
  /** The answer: so many are within the minute, so many of those who want a slot have one, and the minute ends in `msLeft`. */
  passed: number;
  entered: number;
  msLeft: number;
};
type Batch = { questions: Question[]; answered: Promise<boolean>; resolve: (answered: boolean) => void };

type Limits = { minuteMs: number; inFlight: number; slotLeaseMs: number };

/**
 * Rates that all replicas count in Redis. Who comes in one turn of the event loop, or while a call is under way, is asked for
 * in one call, each id once: most of a call's cost is in sending it. A replica says how many slots of an id it has, not which
 * came or went: what was lost, or answered too late, is put right by what it says next, or by the end of its lease. All goes
 * over one connection, so that nothing overtakes. `busy`: what has slots.
 */
export function createRedisRateCounts(
  shared: RedisWithTimeout,
  limits: Limits,
  busy: ReadonlyMap<string, RedisRateCount>,
) {
  const { minuteMs, inFlight, slotLeaseMs } = limits;
  const commands = commandsOf(shared.redis);
  const replica = randomToken(9);
  const waiting: Batch[] = [];
  let isRunning = false;
  /** Of these slots came free. */
  const untold = new Set<RedisRateCount>();
  let telling: ReturnType<typeof setTimeout> | undefined;
  const renewal = setInterval(() => tell([...busy.values()]), slotLeaseMs / RENEWALS_A_LEASE);

  function question(rate: RedisRateCount): Question {
    if (rate.question) return rate.question;
    let batch = waiting.at(-1);
    if (batch === undefined || batch.questions.length === BATCH_MAX) {
      const { promise: answered, resolve } = Promise.withResolvers<boolean>();
      batch = { questions: [], answered, resolve };
      waiting.push(batch);
    }
    const { answered } = batch;
    // Only what is refused is answered.
    const [passed, entered] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    rate.question = { rate, wanting: 0, others: 0, answered, passed, entered, msLeft: 0 };
    batch.questions.push(rate.question);
    if (!isRunning) {
      isRunning = true;
      setImmediate(() => void run());
    }
    return rate.question;
  }

  async function run(): Promise<void> {
    for (let batch = waiting.shift(); batch; batch = waiting.shift()) {
      // Who is refused has given its slot back before the next call says how many there are.
      const pause = sleep(PAUSE_MS);
      const { questions } = batch;
      const rates = questions.map(({ rate }) => rate);
      for (const rate of rates) untold.delete(rate);
      for (const rate of untold) {
        if (rates.length === BATCH_MAX) break;
        untold.delete(rate);
        if (!rate.question) rates.push(rate);
      }
      const sent = argumentsOf(rates);
      for (const { rate } of questions) rate.question = undefined;
      const refusals = await shared.ask(() => commands.admit(2 * rates.length, ...sent));
      if (refusals) readRefusals(questions, refusals);
      // It may have been heard all the same, and have granted less than this replica now does by itself.
      else for (const rate of rates) if (rate.slotsKey !== undefined) changed(rate);
      batch.resolve(refusals !== undefined);
      await pause;
    }
    isRunning = false;
  }

  function changed(rate: RedisRateCount): void {
    untold.add(rate);
    telling ??= setTimeout(tellChanges, GIVE_BACK_MS);
  }

  function tellChanges(): void {
    telling = undefined;
    tell([...untold]);
    untold.clear();
  }

  function tell(rates: readonly RedisRateCount[]): void {
    // What waits to be asked for is told of with that.
    const told = rates.filter(({ question }) => !question);
    for (let i = 0; i < told.length; i += BATCH_MAX) {
      const some = told.slice(i, i + BATCH_MAX);
      shared.tell(() => commands.admit(2 * some.length, ...argumentsOf(some)));
    }
  }

  /** Keys and arguments of a call. */
  function argumentsOf(rates: readonly RedisRateCount[]): (string | number)[] {
    const sent: (string | number)[] = [];
    const counts: number[] = [];
    for (const { minuteKey, slotsKey, perMinute, slots, question } of rates) {
      const wanting = question?.wanting ?? 0;
      sent.push(minuteKey, slotsKey ?? minuteKey);
      counts.push(perMinute, wanting + (question?.others ?? 0), wanting, slotsKey === undefined ? -1 : slots - wanting);
    }
    // In one: ioredis takes longer over each argument than over a number in it.
    sent.push(minuteMs, inFlight, slotLeaseMs, replica, JSON.stringify(counts));
    return sent;
  }

  return {
    /** Where to count oneself in, to be asked for in a coming call. */
    question,
    /** Slots came free: it is told soon. */
    changed,
    close() {
      clearInterval(renewal);
      clearTimeout(telling);
      tellChanges();
    },
  };
}

function readRefusals(questions: readonly Question[], refusals: readonly number[]): void {
  for (let i = 0; i < refusals.length; i += 4) {
    const [which = 0, passed = 0, entered = 0, msLeft = 0] = refusals.slice(i, i + 4);
    const question = questions[which];
    if (question) Object.assign(question, { passed, entered, msLeft });
  }
}

/**
 * KEYS: of each id its minute, and its slots: a hash of how many each replica has, and until when, in ms of Redis's clock.
 * ARGV: the minute in ms, the limit of slots and their lease, the replica, then as JSON of each id its limit a minute, how many
 * requests ask, how many of these want a slot, and how many slots the replica has besides; −1: the id has no slots. Answers with the refusals alone: which id, how many requests are within the minute, how many took
 * a slot, ms until the minute ends.
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
