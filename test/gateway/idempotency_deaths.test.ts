import { afterAll, beforeAll, expect, test } from "bun:test";
import { Redis } from "ioredis";
import { type Service, startRedis } from "../../scripts/services.ts";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { type Buyer, behave, callsOf, closeAtRest, receiptsOf, withReplica } from "../faults/fault_shop.ts";
import { ownRedis, sleep, until } from "../platform/own_redis.ts";
import { isFrozen, type ReplicaProcess } from "../replica.ts";
import { expectRefusal } from "./checks.ts";
import { expectConflict, isFirst, isReplay } from "./idempotent_answers.ts";
import { type Answer, openShop, type Shop } from "./shop.ts";

/**
 * A replica dies or freezes with a request that has an Idempotency-Key, and its client retries on another one: served and
 * charged at most once. Each test has its own replica to lose. Source: END-13, IDE-1.
 */
const LEASE_SECONDS = 3;
const POLL_MS = 200;
/** Long enough to lock the account while its request is in flight. */
const IN_FLIGHT_MS = 2_500;
const IN_FLIGHT_MS_MAX = 60_000;

let redis: Service;
let spy: Redis;
let shop: Shop;

beforeAll(async () => {
  redis = await startRedis();
  spy = new Redis(redis.url);
  // The shop's own replica is the one that survives.
  shop = await openShop({ redisUrl: redis.url, env: { LEASE_SECONDS: String(LEASE_SECONDS) } });
});
afterAll(() =>
  closeAtRest(shop, async () => {
    spy.disconnect();
    await redis.stop();
  }),
);

/** One request with an Idempotency-Key: its customer, its key, its body, and the number of provider calls for it. */
async function order(buying: Promise<Buyer>, over: Record<string, unknown> = {}, behaviour: Behaviour = {}) {
  const buyer = await buying;
  const mark = behave(shop, behaviour);
  const headers = { "idempotency-key": `order-${mark.seed}` };
  return {
    ...buyer,
    /** Sends the request to this replica, optionally with additional fields. */
    ask: (origin = shop.origin, more: Record<string, unknown> = {}) =>
      shop.chat(buyer.secret, { ...mark, ...over, ...more }, { origin, headers }),
    calls: () => callsOf(shop, mark),
    counters: () => shop.counters(buyer.accountId),
    countersAtRest: () => shop.countersAtRest(buyer.accountId),
  };
}
type Order = Awaited<ReturnType<typeof order>>;

/**
 * Sends the request to a replica that dies or freezes at this failpoint, then runs `rest` with its response, if there is one.
 */
function dying(
  failpoint: string,
  { ask }: Order,
  rest: (victim: ReplicaProcess, answer: Promise<Answer | undefined>) => Promise<void>,
): Promise<void> {
  const start = () => shop.start({ FAILPOINTS: failpoint });
  return withReplica(start, async (victim) => {
    const answer = ask(victim.origin).then(
      (got): Answer | undefined => got,
      () => undefined,
    );
    if (failpoint.endsWith("kill")) {
      await until(() => victim.process.signalCode === "SIGKILL");
      expect(await answer).toBeUndefined();
    } else {
      await until(() => isFrozen(victim));
    }
    await rest(victim, answer);
  });
}

/** The survivor's first answer that is not "in flight". */
async function settledAnswer({ ask }: Order): Promise<Answer> {
  const endsAt = performance.now() + IN_FLIGHT_MS_MAX;
  while (performance.now() < endsAt) {
    const answer = await ask();
    if (answer.status !== 409 || !answer.headers.has("retry-after")) return answer;
    expectConflict(answer, { inFlight: true });
    await sleep(POLL_MS);
  }
  throw new Error("in flight for ever");
}

/** Whether Redis has a claim of this request that is not done: of a replica that serves it, or that died. */
async function isClaimOpen(requestId: string): Promise<boolean> {
  for (const name of await spy.keys("tollgate:claim:*")) {
    const [request, lease] = await spy.hmget(name, "request", "lease");
    if (request === requestId) return lease !== null;
  }
  throw new Error("the request has no claim");
}

for (const stream of [false, true]) {
  const kind = stream ? "stream" : "JSON";

  test.concurrent(`${kind}, SIGKILL between settle and reply: a retry gets 409 that names the first request; charged once, provider called once`, async () => {
    const wanted = await order(shop.customer(), { stream });
    await dying("after_settle=kill", wanted, async () => {
      const answer = await settledAnswer(wanted);
      const [receipt] = await receiptsOf(shop, wanted.accountId);
      expect(receipt?.outcome).toBe("settled");
      const first = String(receipt?.requestId);
      expectConflict(answer, { inFlight: false, first });
      // From now on the ledger is not asked, and another body is still a mismatch.
      expectConflict(await wanted.ask(), { inFlight: false, first });
      expectRefusal(await wanted.ask(shop.origin, { n: 1 }), "idempotency_mismatch");
      expect(wanted.calls()).toBe(1);
      expect(await receiptsOf(shop, wanted.accountId)).toEqual([receipt as NonNullable<typeof receipt>]);
      expect(await wanted.countersAtRest()).toMatchObject({ usage: 1, units: 1, released: 0 });
    });
  });

  test.concurrent(`${kind}, SIGKILL before the provider was called: a retry is served once the hold is released; charged once`, async () => {
    const wanted = await order(shop.customer(), { stream });
    await dying("after_reserve=kill", wanted, async () => {
      expect(isFirst(await settledAnswer(wanted))).toBe(true);
      expect(wanted.calls()).toBe(1);
      expect(await wanted.countersAtRest()).toMatchObject({ usage: 1, units: 1, released: 1 });
    });
  });
}

test.concurrent("SIGKILL between settle and reply: another body is a mismatch, also when it finds the claim of the dead replica first", async () => {
  const wanted = await order(shop.customer());
  await dying("after_settle=kill", wanted, async () => {
    const [receipt] = await receiptsOf(shop, wanted.accountId);
    const first = String(receipt?.requestId);
    await until(async () => {
      expectRefusal(await wanted.ask(shop.origin, { n: 1 }), "idempotency_mismatch");
      return !(await isClaimOpen(first));
    });
    expectConflict(await wanted.ask(), { inFlight: false, first });
    expect(wanted.calls()).toBe(1);
    expect(await wanted.countersAtRest()).toMatchObject({ usage: 1, units: 1, released: 0 });
  });
});

test.concurrent("SIGKILL before the reserve: the ledger has nothing, and a retry is served, also with another body", async () => {
  const wanted = await order(shop.customer());
  await dying("before_reserve=kill", wanted, async () => {
    let served: Answer | undefined;
    await until(async () => {
      served = await wanted.ask(shop.origin, { n: 1 });
      if (served.status !== 200) expectRefusal(served, "idempotency_mismatch");
      return served.status === 200;
    });
    expect(isFirst(served as Answer)).toBe(true);
    expect(wanted.calls()).toBe(1);
    // Nobody can tell that it had not reserved: a receipt without a unit says that it will never be charged.
    const [first, ...others] = await receiptsOf(shop, wanted.accountId);
    expect(first).toMatchObject({ outcome: "released", reason: "replica_died", units: 0 });
    expect(others).toHaveLength(1);
    expect(await wanted.countersAtRest()).toMatchObject({ usage: 1, units: 1, released: 1 });
  });
});

test.concurrent("SIGKILL after the provider answered: a retry is served again, charged once", async () => {
  const wanted = await order(shop.payer(1_000_000_000n));
  await dying("before_settle=kill", wanted, async () => {
    expect(isFirst(await settledAnswer(wanted))).toBe(true);
    // Released by the reaper, once the lease has ended.
    expect(await wanted.countersAtRest()).toMatchObject({ usage: 1, released: 1 });
  });
});

for (const purse of ["package", "balance"] as const) {
  test.concurrent(`frozen after the provider answered, and resumed after the retry was served, ${purse}: 503, the late settlement charges nothing, and a retry gets the answer`, async () => {
    const wanted = await order(purse === "package" ? shop.customer() : shop.payer(1_000_000_000n));
    await dying("before_settle=freeze", wanted, async (victim, answer) => {
      const served = await settledAnswer(wanted);
      expect(isFirst(served)).toBe(true);
      const books = await wanted.countersAtRest();
      expect(books).toMatchObject({ usage: 1, released: 1 });
      victim.process.kill("SIGCONT");
      // Not a 402: the answer was not lost for lack of balance or package units.
      expectRefusal((await answer) as Answer, "service_unavailable");
      expect(await wanted.counters()).toEqual(books);
      const again = await wanted.ask();
      expect([isReplay(again), again.text]).toEqual([true, served.text]);
    });
  });
}

test.concurrent("frozen before the reserve, and resumed after the retry was served: it reaches no provider and costs nothing", async () => {
  const wanted = await order(shop.customer());
  await dying("before_reserve=freeze", wanted, async (victim, answer) => {
    expect(isFirst(await settledAnswer(wanted))).toBe(true);
    victim.process.kill("SIGCONT");
    expectRefusal((await answer) as Answer, "service_unavailable");
    expect(wanted.calls()).toBe(1);
    expect(await wanted.countersAtRest()).toMatchObject({ usage: 1, units: 1 });
    expect(isReplay(await wanted.ask())).toBe(true);
  });
});

test.concurrent("database down when the request ends: the settlement waits in the spool, the answer is kept, and the request is charged once", async () => {
  const wanted = await order(shop.customer(), {}, { delayMs: IN_FLIGHT_MS });
  const { accountId } = wanted;
  const { promise: unlocked, resolve: unlock } = Promise.withResolvers<void>();
  await withReplica(
    () => shop.start({ LEASE_SECONDS: "60", LEDGER_TIMEOUT_MS: "1800" }),
    async ({ origin }) => {
      const first = wanted.ask(origin);
      await until(() => wanted.calls() === 1);
      const [held] = await shop.world
        .sql`select account_id from escrows where account_id = ${accountId} and units + nano_usd > 0`;
      expect(held).toBeDefined();
      // The account is locked for longer than the ledger waits, which looks to the replica like a database that is down.
      const lock = shop.world.sql.begin(async (tx) => {
        await tx`select lock_accounts(array[${accountId}::bigint])`;
        await unlocked;
      });
      try {
        expect(isFirst(await first)).toBe(true);
        expect((await wanted.counters()).usage).toBe(0);
        expect(isReplay(await wanted.ask())).toBe(true);
      } finally {
        unlock();
        await lock;
      }
      await until(async () => (await wanted.counters()).usage === 1);
      expect(await wanted.countersAtRest()).toMatchObject({ usage: 1, units: 1, released: 0 });
      expect(wanted.calls()).toBe(1);
    },
  );
});

test("after Redis was frozen for longer than its connections live, 40 retries are served, each once", async () => {
  const own = await ownRedis();
  // A claim that is left over would refuse them for an hour.
  const start = () => shop.start({ REDIS_URL: own.url, LEASE_SECONDS: "3600" });
  await withReplica(start, async (replica) => {
    const orders = await Promise.all(
      Array.from({ length: 40 }, () => order(shop.customer(), { max_tokens: 10 }, { tokens: 10 })),
    );
    for (const one of orders.slice(0, 2)) await shop.chat(one.secret, {}, { origin: replica.origin });
    own.freeze();
    try {
      const refused = await Promise.all(orders.map(({ ask }) => ask(replica.origin)));
      for (const answer of refused) expectRefusal(answer, "service_unavailable");
      await sleep(2_500);
    } finally {
      own.thaw();
    }
    for (const one of orders) {
      await until(async () => (await one.ask(replica.origin)).status === 200);
      expect(one.calls()).toBe(1);
    }
  });
  await own.stop();
});
