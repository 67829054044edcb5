import { setImmediate } from "node:timers";
import { setTimeout as sleep } from "node:timers/promises";
import type { Redis } from "ioredis";
import { randomToken } from "./crypto.ts";
import type { RedisWithTimeout } from "./redis.ts";
import { ReplicaCount } from "./replica_count.ts";

/** Ids in one call to Redis. */
const BATCH_MAX = 256;
/** Between two calls: sending a call costs more than the ids in it. */
const PAUSE_MS = 1;
/** What must not wait: a slot that is released near the limit, and half of the requests that may be uncounted. */
const REPORT_SOON_MS = 5;
/** What else this replica admitted and released. Each id costs Redis as much as a request that asks. */
const REPORT_MS = 500;
const RENEWALS_A_LEASE = 3;
/** Ids whose slots are not known to be counted right. Those beyond end with their lease. */
const UNCONFIRMED_MAX = 20_000;
/** Below this fraction of a limit, a replica may admit without asking. */
const FAR_BELOW = 0.8;
/** The replicas' requests that Redis has not counted are at most one in this many of the limit, all together. */
const ONE_IN = 100;

/** The counts of one id: this replica's, and what Redis said last. */
export type RedisRateCount = {
  readonly minuteKey: string;
  readonly slotsKey: string;
  /** Limit of requests, or of tokens. */
  perMinute: number;
  /** Limit of slots; null: the id has none. */
  atOnce: number | null;
  /** Slots taken or asked for in this replica. */
  slots: number;
  /** The question that further requests join; it is not sent yet. */
  question: Question | undefined;
  /** Requests or tokens in the minute, of all replicas, that Redis has counted. */
  counted: number;
  /** When the minute ends, in ms of Redis's clock, which tells one minute from the next; 0 if there is none. */
  minute: number;
  /** When the minute ends, in ms of this process's clock: never too late. Until then `counted` is known. */
  minuteEndsMs: number;
  /**
   * What was admitted here in the minute and is not sent to Redis, and what is sent but not confirmed. Below zero if more was given
   * back.
   */
  unsent: number;
  sent: number;
  /** Slots of this replica that Redis counts, at least. */
  slotsReported: number;
  slotsOfOthers: number;
  /** The last call that reported slots. */
  reportedBy: Call | undefined;
};

/**
 * What is asked of one id in one call: how many requests want a slot, how many others there are, or how many tokens. Requests that want
 * a slot come first. Requests are counted even if they are refused.
 */
export type Question = {
  rate: RedisRateCount;
  wanting: number;
  others: number;
  /** Nothing is counted unless all of it is within the limit. */
  mustFit: boolean;
  /** False: Redis did not answer. */
  answered: Promise<boolean>;
  /** The answer: what is within the minute, slots granted, and when the minute ends, by this process's clock: never too late. */
  passed: number;
  entered: number;
  minuteEndsMs: number;
};
type Batch = { questions: Question[]; answered: Promise<boolean>; resolve: (answered: boolean) => void };
/** What a call says of one id: a report, with a question or without. */
type Entry = { readonly rate: RedisRateCount; readonly question: Question | undefined };
/** One call to Redis: what is sent of each id. The lists have the same order. */
type Call = {
  sentMs: number;
  entries: readonly Entry[];
  admitted: number[];
  slots: number[];
};

type Options = { minuteMs: number; slotLeaseMs: number; heartbeatMs: number; now: () => number };

/** A count of which nothing is known yet. */
export function newRedisRateCount({
  id,
  ...limits
}: { id: string } & Pick<RedisRateCount, "perMinute" | "atOnce">): RedisRateCount {
  return {
    ...{ minuteKey: `tollgate:minute:${id}`, slotsKey: `tollgate:in-flight:${id}` },
    ...limits,
    ...{ slots: 0, question: undefined, counted: 0, minute: 0, minuteEndsMs: Number.NEGATIVE_INFINITY },
    ...{ unsent: 0, sent: 0, slotsReported: 0, slotsOfOthers: 0, reportedBy: undefined },
  };
}

/**
 * Counts of requests and tokens per minute, and of slots for concurrent requests, that all replicas share in Redis. The rate limiter
 * decides by them.
 *
 * Far below a limit, a replica admits without asking, and reports afterwards. What Redis has not counted yet is bounded: at most 1 %
 * of the limit over all replicas, so that a limit below 100 times the replicas is always asked for. Near the limit, Redis decides.
 * Source: ADM-10.
 *
 * Requests that ask in one turn of the event loop, or during a call, are sent in one call, each id once. A replica reports how
 * many slots of an id it has, not which it took or released: a lost or late message is corrected by the next report, or by the end
 * of the lease. All calls use one connection, so that none overtakes another.
 */
export class RedisRateCounts {
  readonly #redis: RedisWithTimeout;
  readonly #options: Options;
  readonly #commands: Commands;
  readonly #replica = randomToken(9);
  readonly #replicas: ReplicaCount;
  readonly #waiting: Batch[] = [];
  #isRunning = false;
  /** Ids with slots whose last call had no answer. If Redis runs it after all, from a closed connection, it counts slots that nobody has. */
  readonly #unconfirmed = new Set<RedisRateCount>();
  readonly #soon: Reports;
  readonly #later: Reports;
  readonly #renewal: ReturnType<typeof setInterval>;

  /** `busy`: the ids that have slots. Their leases are renewed. */
  constructor(redis: RedisWithTimeout, options: Options, busy: ReadonlyMap<string, RedisRateCount>) {
    this.#redis = redis;
    this.#options = options;
    this.#commands = commandsOf(redis.redis);
    const { heartbeatMs, now, slotLeaseMs } = options;
    this.#replicas = new ReplicaCount(redis, { replica: this.#replica, heartbeatMs, now });
    this.#soon = new Reports(REPORT_SOON_MS, (rates) => this.#report(rates));
    this.#later = new Reports(REPORT_MS, (rates) => this.#report(rates));
    this.#renewal = setInterval(() => this.#report([...busy.values()]), slotLeaseMs / RENEWALS_A_LEASE);
    // By now Redis has read what the closed connection had sent: it reads that before it answers a new one.
    redis.redis.on("ready", () => this.#report([...this.#unconfirmed]));
  }

  /** Whether this replica may count one more request, or so many tokens, to the id without asking. */
  isFarBelow(rate: RedisRateCount, amount: number, nowMs: number): boolean {
    const uncounted = rate.unsent + rate.sent + amount;
    return (
      nowMs < rate.minuteEndsMs &&
      rate.counted + uncounted - 1 < FAR_BELOW * rate.perMinute &&
      uncounted * this.#replicas.at(nowMs) * ONE_IN <= rate.perMinute
    );
  }

  /** Whether this replica may take one more slot of the id without asking; true if it has no slots. */
  hasFreeSlots(rate: RedisRateCount, nowMs: number): boolean {
    if (rate.atOnce === null) return true;
    const uncounted = rate.slots + 1 - rate.slotsReported;
    return (
      areSlotsFarBelow(rate, rate.atOnce) &&
      (uncounted <= 0 || uncounted * this.#replicas.at(nowMs) * ONE_IN <= rate.atOnce)
    );
  }

  /**
   * The id admitted a request, or so many tokens, without asking; below zero: tokens are given back. Reported before the next one
   * would have to ask, if possible.
   */
  admitted(rate: RedisRateCount, amount: number, nowMs: number): void {
    rate.unsent += amount;
    const mayWait = 2 * Math.abs(rate.unsent + rate.sent) * this.#replicas.at(nowMs) * ONE_IN < rate.perMinute;
    (mayWait ? this.#later : this.#soon).add(rate);
  }

  /** The id's question in the next call: the caller adds itself to its `wanting` or `others`. */
  question(rate: RedisRateCount): Question {
    rate.question ??= this.#asked(rate, 0, false);
    return rate.question;
  }

  /** A question of its own, for tokens. `mustFit`: they are counted only if the limit allows; otherwise they were used already. */
  tokenQuestion(rate: RedisRateCount, tokens: number, mustFit: boolean): Question {
    return this.#asked(rate, tokens, mustFit);
  }

  /** A slot of the id was released. It counts until it is reported: up to 1 % of the limit may wait, far below the limit. */
  released(rate: RedisRateCount): void {
    const { atOnce, slotsReported, slots } = rate;
    const mayWait = atOnce === null || ((slotsReported - slots) * ONE_IN <= atOnce && areSlotsFarBelow(rate, atOnce));
    (mayWait ? this.#later : this.#soon).add(rate);
  }

  close(): void {
    clearInterval(this.#renewal);
    this.#replicas.close();
    this.#tell([...new Set([...this.#soon.take(), ...this.#later.take()])]);
  }

  #asked(rate: RedisRateCount, others: number, mustFit: boolean): Question {
    const batch = this.#openBatch();
    const question = {
      rate,
      wanting: 0,
      others,
      mustFit,
      answered: batch.answered,
      passed: 0,
      entered: 0,
      minuteEndsMs: 0,
    };
    batch.questions.push(question);
    if (!this.#isRunning) {
      this.#isRunning = true;
      setImmediate(() => void this.#run());
    }
    return question;
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
      const entries: Entry[] = batch.questions.map((question) => ({ rate: question.rate, question }));
      for (const { rate } of entries) this.#soon.delete(rate);
      const reported = this.#soon.take(BATCH_MAX - entries.length).filter(({ question }) => question === undefined);
      const isAnswered = await this.#ask(this.#callOf([...entries, ...reported.map(reportOf)]));
      // Redis may have received it all the same, and granted fewer slots than this replica now takes by itself.
      if (!isAnswered) for (const { rate } of entries) if (rate.atOnce !== null) this.#soon.add(rate);
      batch.resolve(isAnswered);
      await pause;
    }
    this.#isRunning = false;
  }

  #report(rates: readonly RedisRateCount[]): void {
    for (const some of callableOf(rates)) {
      void this.#ask(this.#callOf(some.map(reportOf))).then((isAnswered) => {
        // A Redis that is late reads it when it can.
        if (!isAnswered) this.#tell(some.filter(({ atOnce }) => atOnce !== null));
      });
    }
  }

  /** Reports without waiting for an answer. */
  #tell(rates: readonly RedisRateCount[]): void {
    for (const some of callableOf(rates)) {
      const call = this.#callOf(some.map(reportOf));
      finish(call);
      this.#redis.tell(() => this.#send(call));
    }
  }

  /** What is to be sent of the ids now. Their questions take no further request. */
  #callOf(entries: readonly Entry[]): Call {
    const call: Call = { sentMs: this.#options.now(), entries, admitted: [], slots: [] };
    for (const { rate, question } of entries) {
      this.#soon.delete(rate);
      this.#later.delete(rate);
      const { unsent } = rate;
      const slots = rate.slots - (question?.wanting ?? 0);
      call.admitted.push(unsent);
      call.slots.push(slots);
      rate.question = undefined;
      rate.sent += unsent;
      rate.unsent = 0;
      rate.slotsReported = Math.min(rate.slotsReported, slots);
      rate.reportedBy = call;
    }
    return call;
  }

  /** False: Redis did not answer. Requests that it may not have counted are not sent again. */
  async #ask(call: Call): Promise<boolean> {
    const answer = await this.#redis.ask(() => this.#send(call));
    finish(call);
    if (answer !== undefined) {
      readAnswer(call, answer);
      for (const { rate } of call.entries) this.#unconfirmed.delete(rate);
    } else {
      this.#replicas.forget();
      // What Redis counts is no longer known.
      for (const { rate } of call.entries) {
        rate.minuteEndsMs = Number.NEGATIVE_INFINITY;
        if (rate.atOnce !== null && this.#unconfirmed.size < UNCONFIRMED_MAX) this.#unconfirmed.add(rate);
      }
    }
    return answer !== undefined;
  }

  #send({ entries, admitted, slots }: Call): Promise<number[]> {
    const { minuteMs, slotLeaseMs } = this.#options;
    const sent: (string | number)[] = [];
    const counts: number[] = [];
    for (const [i, { rate, question }] of entries.entries()) {
      const { minuteKey, slotsKey, perMinute, atOnce, minute } = rate;
      const { wanting = 0, others = 0, mustFit = false } = question ?? {};
      sent.push(minuteKey, slotsKey);
      counts.push(perMinute, admitted[i] ?? 0, minute, wanting + others, mustFit ? 1 : 0);
      counts.push(wanting, atOnce === null ? -1 : (slots[i] ?? 0), atOnce ?? 0);
    }
    // One JSON argument: ioredis takes longer over each argument than over a number in it.
    sent.push(minuteMs, slotLeaseMs, this.#replica, JSON.stringify(counts));
    return this.#commands.admit(2 * entries.length, ...sent);
  }
}

/** The requests of a call are no longer on their way. */
function finish({ entries, admitted }: Call): void {
  for (const [i, { rate }] of entries.entries()) rate.sent -= admitted[i] ?? 0;
}

function reportOf(rate: RedisRateCount): Entry {
  return { rate, question: undefined };
}

function areSlotsFarBelow({ slots, slotsReported, slotsOfOthers }: RedisRateCount, atOnce: number): boolean {
  return slotsOfOthers + Math.max(slots + 1, slotsReported) < FAR_BELOW * atOnce;
}

function readAnswer(call: Call, answer: readonly number[]): void {
  const [nowUnixMs = 0] = answer;
  for (const [i, { rate, question }] of call.entries.entries()) {
    const at = 1 + ANSWER_NUMBERS * i;
    const [passed = 0, entered = 0, counted = 0, minute = 0, slotsOfOthers = 0] = answer.slice(at, at + ANSWER_NUMBERS);
    // Redis read its clock after the call was sent: the minute may end later, not earlier.
    const minuteEndsMs = call.sentMs + minute - nowUnixMs;
    if (question) Object.assign(question, { passed, entered, minuteEndsMs });
    // What was admitted in a minute that has ended does not count in the next.
    if (minute !== rate.minute) rate.unsent = 0;
    rate.counted = counted;
    rate.minute = minute;
    rate.minuteEndsMs = minuteEndsMs;
    rate.slotsOfOthers = slotsOfOthers;
    // A later call may have reported fewer slots.
    if (rate.reportedBy === call) rate.slotsReported = (call.slots[i] ?? 0) + entered;
  }
}

/** Ids that wait for a report. */
class Reports {
  readonly #rates = new Set<RedisRateCount>();
  readonly #afterMs: number;
  readonly #report: (rates: readonly RedisRateCount[]) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(afterMs: number, report: (rates: readonly RedisRateCount[]) => void) {
    this.#afterMs = afterMs;
    this.#report = report;
  }

  add(rate: RedisRateCount): void {
    this.#rates.add(rate);
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.#report(this.take());
    }, this.#afterMs);
  }

  delete(rate: RedisRateCount): void {
    this.#rates.delete(rate);
  }

  /** Removes and returns up to `max` ids. */
  take(max = Number.POSITIVE_INFINITY): RedisRateCount[] {
    const taken: RedisRateCount[] = [];
    for (const rate of this.#rates) {
      if (taken.length >= max) break;
      taken.push(rate);
      this.#rates.delete(rate);
    }
    return taken;
  }
}

/** The ids of each call. An id with a question is reported with it. */
function callableOf(rates: readonly RedisRateCount[]): (readonly RedisRateCount[])[] {
  const reported = rates.filter(({ question }) => question === undefined);
  const calls: (readonly RedisRateCount[])[] = [];
  for (let i = 0; i < reported.length; i += BATCH_MAX) calls.push(reported.slice(i, i + BATCH_MAX));
  return calls;
}

const ANSWER_NUMBERS = 5;
/**
 * KEYS: for each id, the counter of its minute, and the hash of its slots: replica → how many it has, and until when, in ms of
 * Redis's clock. ARGV: the minute in ms, the lease of slots in ms, the replica; then a JSON list with eight numbers for each id: its
 * limit per minute; what the replica admitted without asking (below zero: gave back) and the end of the minute it belongs to; the
 * requests or tokens that ask, and 1 if they are counted only when all are within the limit; how many of them want a slot, the slots
 * the replica has besides (−1: the id has no slots), and their limit.
 *
 * Returns the time in ms, and for each id ANSWER_NUMBERS numbers: what is within the minute and slots granted of what asks, what is
 * counted in the minute, when it ends in ms (0: no minute has begun), and slots of other replicas.
 */
const ADMIT = `
local window, lease, replica = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)

local function count(minute, per_minute, admitted, admitted_until, asked, must_fit)
  local ends = redis.call('PEXPIRETIME', minute)
  if ends ~= admitted_until then admitted = 0 end
  if ends == -2 and asked == 0 then return 0, 0, 0 end
  local counted = redis.call('INCRBY', minute, admitted + asked)
  local passed = math.max(0, math.min(asked, asked - (counted - per_minute)))
  if must_fit and passed < asked then
    passed = 0
    counted = redis.call('DECRBY', minute, asked)
  end
  if ends < 0 then
    ends = now + window
    redis.call('PEXPIREAT', minute, ends)
  end
  return passed, counted, ends
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

local answer = { now }
local counts = cjson.decode(ARGV[4])
for i = 0, #KEYS / 2 - 1 do
  local minute, slots = KEYS[2 * i + 1], KEYS[2 * i + 2]
  local per_minute, admitted, admitted_until, asked, must_fit, wanted, own, slots_max = unpack(counts, 8 * i + 1, 8 * i + 8)
  local passed, counted, ends = count(minute, per_minute, admitted, admitted_until, asked, must_fit == 1)
  local entered, others = math.min(wanted, passed), 0
  if own >= 0 then others = of_others(slots) end
  if entered > 0 then entered = math.max(0, math.min(entered, slots_max - own - others)) end
  if own + entered > 0 then
    redis.call('HSET', slots, replica, string.format('%.0f %.0f', own + entered, now + lease))
    redis.call('PEXPIRE', slots, lease)
  elseif own >= 0 then
    redis.call('HDEL', slots, replica)
  end
  for _, value in ipairs({ passed, entered, counted, ends, others }) do answer[#answer + 1] = value end
end
return answer`;
type Commands = { admit(keys: number, ...keysAndArguments: (string | number)[]): Promise<number[]> };

function commandsOf(redis: Redis): Commands {
  redis.defineCommand("admit", { lua: ADMIT });
  return redis as Redis & Commands;
}
