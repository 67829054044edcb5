import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Refusal } from "../../src/errors.ts";
import { Escrow } from "../../src/ledger/escrow.ts";
import type { Hold, Ledger } from "../../src/ledger/ledger.ts";
import type { ReserveRequest } from "../../src/ledger/ledger_store.ts";
import { watchChanges } from "../../src/ledger/open_ledger.ts";
import { type Change, inProcessBus } from "../../src/platform/bus.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { openDatabaseClock } from "../../src/platform/database_clock_store.ts";
import { createLog } from "../../src/platform/log.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { holds } from "../property.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { createWorld, type OfferingSpec, type Person, type TestKey, type World } from "../world.ts";
import { codeOf, drawn, type OpenLedger, openWorldLedger, requestFor, tally, usageOf } from "./ledger_world.ts";

/** The real ledger on a real database. Only the memory of refusals before it is the test's, with its own clock. */
const now = () => performance.now();
let world: World;
let opened: OpenLedger;

beforeAll(async () => {
  world = await createWorld();
  opened = await openWorldLedger(world);
});
afterAll(async () => {
  try {
    await world.setClock(null);
    await opened.close();
    expect(await drawn(world)).toMatchObject({ units: 0, nano_usd: 0 });
    expect(await world.unbalanced()).toEqual([]);
  } finally {
    await world.close();
  }
});

type Memory = Awaited<ReturnType<typeof openMemory>>;

/** A ledger behind a memory of refusals, a clock that the test sets, and a count of the calls to the ledger. */
async function openMemory({ ledger, db }: Pick<OpenLedger, "ledger" | "db"> = opened) {
  const log = createLog("silent");
  const bus = inProcessBus(log);
  const seen = { asked: 0, decided: 0, remembered: 0, shed: 0 };
  let atMs = 1_000_000;
  let onTheirWay = Promise.resolve();
  const nowMs = () => atMs;
  async function ask(request: ReserveRequest): Promise<Hold> {
    seen.asked++;
    const answer = ledger.reserve(request);
    await answer.catch(() => {});
    seen.decided++;
    await onTheirWay;
    return answer;
  }
  const clock = openDatabaseClock({ db, log, nowMs, wallMs: nowMs });
  await until(() => clock.earliestMs("2000-01-01T00:00:00Z") !== Number.NEGATIVE_INFINITY);
  const escrow = new Escrow({ leaseMs: 1_000, unitsMax: 0, nowMs, wallMs: nowMs });
  watchChanges(escrow, bus, () => {});
  const metrics = { refusalRemembered: () => void seen.remembered++, shed: () => void seen.shed++ };
  const asking = { ask, clock, nowMs, metrics };
  const told = <R>(hold: Hold, end: Promise<R>) => end.finally(() => escrow.invalidateRefusals(hold.accountId));
  return {
    reserve: (request: ReserveRequest) => escrow.refusalsOf(request).reserve(request, asking),
    settle: (...end: Parameters<Ledger["settle"]>) => told(end[0], ledger.settle(...end)),
    release: (...end: Parameters<Ledger["release"]>) => told(end[0], ledger.release(...end)),
    replaySpool: () => ledger.replaySpool().finally(() => escrow.invalidateRefusals()),
    bus,
    seen,
    pass(ms: number) {
      atMs += ms;
    },
    tell: (kind: Change["kind"], ref: string | number) => bus.deliver([{ kind, ref: String(ref) }]),
    /** From now on the ledger decides, and its answers are held back until the function is called. */
    holdAnswers(): () => void {
      const { promise, resolve } = Promise.withResolvers<void>();
      onTheirWay = promise;
      return resolve;
    },
    /** The number of calls to the ledger for this. */
    async asks(work: () => Promise<unknown>): Promise<number> {
      const before = seen.asked;
      await work();
      return seen.asked - before;
    },
  };
}

type Buyer = Person & { key: TestKey };

async function addBuyer(spec: OfferingSpec | null, mode: "package" | "payg" = "package"): Promise<Buyer> {
  const person = await world.addCustomer();
  if (spec !== null) await world.givePackage(person, spec);
  return { ...person, key: await world.addKey(person, { mode }) };
}

async function addPayer(nanoUsd: bigint): Promise<Buyer> {
  const payer = await addBuyer(null, "payg");
  await world.setBalance(payer, nanoUsd);
  return payer;
}

const reserve = (memory: Memory, { key, ...buyer }: Buyer, over: Partial<ReserveRequest> = {}) =>
  memory.reserve(requestFor(buyer, key, over));
/** The refusal code of a request of the buyer, or "granted". */
const code = (memory: Memory, buyer: Buyer, over: Partial<ReserveRequest> = {}) => codeOf(reserve(memory, buyer, over));
const many = <T>(count: number, one: (i: number) => Promise<T>) =>
  Promise.all(Array.from({ length: count }, (_, i) => one(i)));

/** A buyer without a package who has just been refused, and the memory with that refusal. */
async function refusedOnce(memory: Memory): Promise<Buyer> {
  const buyer = await addBuyer(null);
  expect(await code(memory, buyer)).toBe("package_required");
  expect(await memory.asks(() => code(memory, buyer))).toBe(0);
  return buyer;
}

/** A buyer whose one unit of today is held, and who was refused another. */
async function exhausted(memory: Memory): Promise<{ buyer: Buyer; hold: Hold }> {
  const buyer = await addBuyer({ dailyLimit: 1, days: 5 });
  const hold = await reserve(memory, buyer);
  expect(await code(memory, buyer)).toBe("daily_quota_exceeded");
  expect(await memory.asks(() => code(memory, buyer))).toBe(0);
  return { buyer, hold };
}

describe("a recent refusal", () => {
  test("is refused from memory with the ledger's own refusal, for 250 ms", async () => {
    const memory = await openMemory();
    const { buyer, hold } = await exhausted(memory);
    await memory.settle(hold, usageOf());
    const [told, remembered] = await many(2, () => factsOf(reserve(memory, buyer)));
    expect(told).toMatchObject({ code: "daily_quota_exceeded", limit: 1, used: 1, remaining: 0 });
    expect(remembered).toEqual(told);
    memory.pass(249);
    expect(await memory.asks(() => code(memory, buyer))).toBe(0);
    memory.pass(1);
    expect(await memory.asks(() => code(memory, buyer))).toBe(1);
  });

  test("costs one row per 250 ms: 2,000 requests in a second, five rows", async () => {
    const memory = await openMemory();
    const buyer = await refusedOnce(memory);
    const rows = await memory.asks(async () => {
      for (let i = 0; i < 200; i++) {
        expect(tally(await many(10, () => code(memory, buyer)))).toEqual({ package_required: 10 });
        memory.pass(5);
      }
    });
    expect(rows).toBe(4 - 1);
    expect(memory.seen.remembered).toBe(2_000 + 1 - rows);
  });

  test("is a different question with another key, model or host, or without a price", async () => {
    const memory = await openMemory();
    const buyer = await refusedOnce(memory);
    const others: [Buyer, Partial<ReserveRequest>][] = [
      [{ ...buyer, key: await world.addKey(buyer) }, {}],
      [buyer, { modelId: "model-b" }],
      [buyer, { host: "alias.example.com" }],
      [buyer, { outputPico: 1n }],
    ];
    for (const [other, over] of others) {
      expect(await memory.asks(() => code(memory, other, over))).toBe(1);
      expect(await memory.asks(() => code(memory, other, over))).toBe(0);
    }
  });

  test("is kept for the last 32 questions of an account", async () => {
    const memory = await openMemory();
    const buyer = await addBuyer(null);
    const askedOf = (i: number) => memory.asks(() => code(memory, buyer, { modelId: `model-${i}` }));
    for (let i = 0; i <= 32; i++) expect(await askedOf(i)).toBe(1);
    expect(await askedOf(32)).toBe(0);
    expect(await askedOf(1)).toBe(0);
    expect(await askedOf(0)).toBe(1);
  });
});

describe("an answer that is on its way", () => {
  test("is shared by the requests of the next 250 ms: one row for all of them", async () => {
    const memory = await openMemory();
    const buyer = await refusedOnce(memory);
    memory.pass(250);
    const letGo = memory.holdAnswers();
    const rows = await memory.asks(async () => {
      const early = many(50, () => code(memory, buyer));
      memory.pass(249);
      const late = many(50, () => code(memory, buyer));
      memory.pass(1);
      const later = many(50, () => code(memory, buyer));
      letGo();
      for (const codes of await Promise.all([early, late, later]))
        expect(tally(codes)).toEqual({ package_required: 50 });
    });
    expect(rows).toBe(2);
  });

  test("is not shared if it is a grant: all waiting requests ask by themselves, and all that is left is granted", async () => {
    const memory = await openMemory();
    const buyer = await refusedOnce(memory);
    // This replica gets no notification.
    await world.givePackage(buyer, { dailyLimit: 7, days: 5 });
    memory.pass(250);
    const holds: Hold[] = [];
    const rows = await memory.asks(async () => {
      const codes = await many(20, () => codeOf(reserve(memory, buyer).then((hold) => void holds.push(hold))));
      expect(tally(codes)).toEqual({ granted: 7, daily_quota_exceeded: 13 });
    });
    expect(rows).toBe(20);
    for (const hold of holds) await memory.release(hold, "not_dispatched");
  });

  test("refuses waiting requests with 503 if the database is away; the next request asks again", async () => {
    const proxy = await startTcpProxy(world.url);
    const away = await openWorldLedger(world, { databaseUrl: proxy.url, timeoutMs: 1_000 });
    try {
      const memory = await openMemory(away);
      const buyer = await refusedOnce(memory);
      memory.pass(250);
      proxy.hang();
      // They waited once, not once for the other request and once for themselves.
      expect(await memory.asks(() => many(20, () => code(memory, buyer)))).toBe(1);
      expect(memory.seen).toMatchObject({ remembered: 1, shed: 19 });
      proxy.mend();
      expect(
        await memory.asks(() => until(async () => (await code(memory, buyer)) === "package_required")),
      ).toBeGreaterThan(0);
    } finally {
      await away.close();
      await proxy.close();
    }
  });
});

describe("a refusal is invalidated immediately", () => {
  const news: [string, (memory: Memory, buyer: Buyer) => void][] = [
    ["the account has changed", (memory, { accountId }) => memory.tell("account", accountId)],
    ["a model has changed", (memory) => memory.tell("catalog", "model-a")],
    ["changes may have been missed", (memory) => memory.bus.gap()],
  ];
  for (const [name, happen] of news) {
    test(`when ${name}, also while the answer is on its way`, async () => {
      const memory = await openMemory();
      const buyer = await refusedOnce(memory);
      happen(memory, buyer);
      const letGo = memory.holdAnswers();
      const before = code(memory, buyer);
      happen(memory, buyer);
      const after = code(memory, buyer);
      expect(memory.seen.asked).toBe(3);
      letGo();
      expect([await before, await after]).toEqual(["package_required", "package_required"]);
    });
  }

  test("when the account's reseller has changed; not for another account, or for a session", async () => {
    const memory = await openMemory();
    const reseller = await world.addReseller();
    const customer = await world.addCustomer(reseller.accountId);
    const buyer = { ...customer, key: await world.addKey(customer) };
    const askedOf = () => memory.asks(() => code(memory, buyer, { tenantId: reseller.accountId }));
    expect(await askedOf()).toBe(1);
    memory.tell("account", buyer.accountId + 1_000);
    memory.tell("session", buyer.accountId);
    expect(await askedOf()).toBe(0);
    memory.tell("account", reseller.accountId);
    expect(await askedOf()).toBe(1);
  });

  test("when a hold was released here: the next request gets its unit", async () => {
    const memory = await openMemory();
    const { buyer, hold } = await exhausted(memory);
    await memory.release(hold, "provider_failed");
    const next = await reserve(memory, buyer);
    await memory.settle(next, usageOf());
    expect(await code(memory, buyer)).toBe("daily_quota_exceeded");
  });

  test("when a hold was settled here: the next request can use the rest of its amount", async () => {
    const memory = await openMemory();
    const payer = await addPayer(1_500n);
    const over = { promptPico: 1_000_000n, outputPico: 0n };
    const hold = await reserve(memory, payer, over);
    expect(await code(memory, payer, over)).toBe("insufficient_balance");
    await memory.settle(hold, usageOf({ chargeNanoUsd: 400n }));
    const next = await reserve(memory, payer, over);
    await memory.settle(next, usageOf({ chargeNanoUsd: 1_000n }));
  });

  test("when a strict settlement was refused, or the spool was replayed", async () => {
    const memory = await openMemory();
    const payer = await addPayer(1_500n);
    const over = { promptPico: 1_000_000n, outputPico: 0n };
    const refuse = async () => expect(await code(memory, payer, over)).toBe("insufficient_balance");
    const hold = await reserve(memory, payer, over);
    await refuse();
    expect(await codeOf(memory.settle(hold, usageOf({ chargeNanoUsd: 9_000n }), { strict: true }))).toBe(
      "insufficient_balance",
    );
    const again = await reserve(memory, payer, over);
    await refuse();
    expect(await memory.asks(refuse)).toBe(0);
    await memory.replaySpool();
    expect(await memory.asks(refuse)).toBe(1);
    await memory.release(again, "not_dispatched");
  });

  test("when a hold ended while an older refusal was on its way: that is not remembered", async () => {
    const memory = await openMemory();
    const buyer = await addBuyer({ dailyLimit: 1, days: 5 });
    const hold = await reserve(memory, buyer);
    const letGo = memory.holdAnswers();
    const refused = code(memory, buyer);
    await until(() => memory.seen.decided === 2);
    await memory.release(hold, "provider_failed");
    letGo();
    expect(await refused).toBe("daily_quota_exceeded");
    await memory.release(await reserve(memory, buyer), "not_dispatched");
  });
});

describe("when the quota resets", () => {
  const BEFORE = "2031-03-01T23:59:59.900Z";
  const AFTER = "2031-03-02T00:00:00.005Z";
  const idThen = () => ({ requestId: newRequestId(Date.parse(BEFORE)) });

  /** Just before midnight: today's only unit was used, and another was refused. */
  async function beforeMidnight(): Promise<{ memory: Memory; buyer: Buyer }> {
    await world.setClock(BEFORE);
    await world.sql`select make_receipt_months(0)`;
    const memory = await openMemory();
    const buyer = await addBuyer({ dailyLimit: 1, days: 5 });
    await memory.settle(await reserve(memory, buyer, idThen()), usageOf());
    expect(await code(memory, buyer, idThen())).toBe("daily_quota_exceeded");
    return { memory, buyer };
  }

  test("later requests are not refused from memory, though the refusal is not 250 ms old", async () => {
    const { memory, buyer } = await beforeMidnight();
    memory.pass(98);
    expect(await memory.asks(() => code(memory, buyer, idThen()))).toBe(0);
    memory.pass(1); // Read to the millisecond: it may be midnight.
    await world.setClock(AFTER);
    await memory.settle(await reserve(memory, buyer, idThen()), usageOf());
  });

  test("and not by an answer that was on its way", async () => {
    const { memory, buyer } = await beforeMidnight();
    memory.tell("account", buyer.accountId);
    const letGo = memory.holdAnswers();
    const yesterday = code(memory, buyer, idThen());
    await until(() => memory.seen.decided === 3);
    memory.pass(105);
    await world.setClock(AFTER);
    const today = reserve(memory, buyer, idThen());
    letGo();
    expect(await yesterday).toBe("daily_quota_exceeded");
    await memory.settle(await today, usageOf());
  });

  test("no refusal with a reset is remembered while the database's clock is unknown", async () => {
    await world.setClock(null);
    const { log, lines } = quietLog();
    const closed = world.openDb();
    await closed.close();
    const clock = openDatabaseClock({ db: closed, log, nowMs: now, wallMs: now });
    expect(clock.earliestMs(BEFORE)).toBe(Number.NEGATIVE_INFINITY);
    await until(() => lines.some(({ message }) => message === "could not read the database's clock"));
    expect(clock.earliestMs(BEFORE)).toBe(Number.NEGATIVE_INFINITY);
  });
});

describe("amounts", () => {
  const NANO = 1_000n;

  test("402 insufficient_balance applies to the same and larger amounts, each with its own amount; smaller ones ask the ledger", async () => {
    const memory = await openMemory();
    const payer = await addPayer(1_000n);
    const told = (promptPico: bigint) => factsOf(reserve(memory, payer, { promptPico, outputPico: 0n }));
    expect(await told(5_000n * NANO)).toMatchObject({ code: "insufficient_balance", limit: 5_000, remaining: 1_000 });
    expect(
      await memory.asks(async () => {
        expect(await told(5_000n * NANO)).toMatchObject({ limit: 5_000, remaining: 1_000 });
        expect(await told(7_000n * NANO)).toMatchObject({ limit: 7_000, remaining: 1_000 });
      }),
    ).toBe(0);
    expect(await memory.asks(() => told(2_000n * NANO))).toBe(1);
    expect(await memory.asks(() => told(3_000n * NANO))).toBe(0);
    const hold = await reserve(memory, payer, { promptPico: 1_000n * NANO, outputPico: 0n });
    await memory.release(hold, "not_dispatched");
  });

  test("in any order of requests, the answers from memory are those of the ledger", async () => {
    const buyers = await openBuyers();
    let remembered = 0;
    const anAsk = fc.record({
      buyer: fc.nat(buyers.length - 1),
      modelId: fc.constantFrom("model-a", "model-b"),
      promptPico: fc.bigInt(0n, 3_000_000n),
      outputPico: fc.constantFrom(-1n, 0n, 900n, 40_000n),
      capMax: fc.integer({ min: 0, max: 60 }),
      capMin: fc.integer({ min: 0, max: 60 }),
    });
    await holds(
      fc.asyncProperty(fc.array(anAsk, { minLength: 10, maxLength: 40 }), async (asks) => {
        const memory = await openMemory();
        for (const { buyer: at, capMin, ...wanted } of asks) {
          const buyer = buyers[at] as Buyer;
          const over = { ...wanted, capMin: Math.min(capMin, wanted.capMax) };
          const [says, would] = [await outcome(memory, buyer, over), await outcome(opened.ledger, buyer, over)];
          expect(says).toEqual(would);
        }
        remembered += memory.seen.remembered;
      }),
      { numRuns: 30 },
    );
    expect(remembered).toBeGreaterThan(30);
  });

  /** Of `usageOf()`. */
  const USED_TOKENS = 30;

  /** One account for each reason of a refusal. */
  async function openBuyers(): Promise<Buyer[]> {
    const used = async (spec: OfferingSpec) => {
      const buyer = await addBuyer(spec);
      const first = requestFor(buyer, buyer.key, { promptTokens: USED_TOKENS });
      await opened.ledger.settle(await opened.ledger.reserve(first), usageOf());
      return buyer;
    };
    const fallsBack = await used({ dailyLimit: 1, days: 5 });
    await world.setBalance(fallsBack, 1_500n);
    const limited = await addPayer(1_000_000_000n);
    await world.sql`update keys set daily_spend_max_nano_usd = 1500 where id = ${limited.key.keyId}`;
    const counted = await addBuyer({});
    await world.sql`update keys set daily_units_max = 1 where id = ${counted.key.keyId}`;
    await opened.ledger.settle(await opened.ledger.reserve(requestFor(counted, counted.key)), usageOf());
    return [
      await addBuyer(null),
      await addPayer(1_500n),
      await used({ dailyLimit: 1, days: 5 }),
      await used({ dailyLimit: 1, days: 5, carryover: true }),
      await used({ dailyLimit: 5, totalLimit: 1 }),
      await used({ dailyLimit: 5, tokenLimit: USED_TOKENS }),
      await used({ dailyLimit: 5, tokenLimit: USED_TOKENS + 50 }),
      await addBuyer({ modelIds: ["model-b"] }),
      fallsBack,
      limited,
      counted,
    ];
  }
});

test("a refusal for tokens that running requests hold is not remembered: only requests that wait for it share it", async () => {
  const buyer = await addBuyer({ dailyLimit: 5, tokenLimit: 150 });
  const memory = await openMemory();
  const hold = await reserve(memory, buyer);
  const told = () => factsOf(reserve(memory, buyer));
  expect(await told()).toMatchObject({ code: "package_quota_exceeded", limit: 150, used: 100, remaining: 50 });
  // The request that holds them may be another replica's.
  expect(await memory.asks(told)).toBe(1);
  expect(await memory.asks(() => many(50, told))).toBe(1);
  await memory.settle(hold, usageOf());
  await memory.release(await reserve(memory, buyer), "not_dispatched");
});

test("many concurrent requests on two replicas, most refused, some released: every unit is used once", async () => {
  const UNITS = 60;
  const replicas = await many(2, async () => {
    const clock = openDatabaseClock({ db: opened.db, log: createLog("silent"), nowMs: now, wallMs: now });
    return openWorldLedger(world, { bus: inProcessBus(createLog("silent")), clock });
  });
  const buyer = await addBuyer({ dailyLimit: UNITS, days: 5 });
  let settled = 0;
  let holding = 0;
  try {
    await many(40, async (i) => {
      const { ledger } = replicas[i % 2] as (typeof replicas)[number];
      for (let round = 0; settled < UNITS; round++) {
        if (round > 2_000) throw new Error("what was released is not granted again");
        try {
          const hold = await ledger.reserve(requestFor(buyer, buyer.key));
          expect(++holding + settled).toBeLessThanOrEqual(UNITS);
          await sleep((i * 7 + round * 3) % 11);
          // The amount of a hold is free for others from its end on, and no later.
          holding--;
          if ((i + round) % 3 === 0) await ledger.release(hold, "provider_failed");
          else {
            settled++;
            await ledger.settle(hold, usageOf());
          }
        } catch (error) {
          if (!(error instanceof Refusal)) throw error;
          expect(error.code).toBe("daily_quota_exceeded");
          await sleep(5);
        }
      }
    });
    expect(settled).toBe(UNITS);
  } finally {
    for (const replica of replicas) await replica.close();
  }
});

type Told = { code: string } & Refusal["facts"];

/** The refusal of a request; throws if it was granted. */
async function factsOf(reserved: Promise<Hold>): Promise<Told> {
  const error: unknown = await reserved.then(
    () => new Error("it was granted"),
    (thrown) => thrown,
  );
  if (!(error instanceof Refusal)) throw error;
  return { code: error.code, ...error.facts };
}

/** The answer of a ledger to a request; a hold is released. */
async function outcome(
  ledger: Pick<Ledger, "reserve" | "release">,
  { key, ...buyer }: Buyer,
  over: Partial<ReserveRequest>,
): Promise<unknown> {
  try {
    const hold = await ledger.reserve(requestFor(buyer, key, over));
    await ledger.release(hold, "not_dispatched");
    return { mode: hold.mode, heldNanoUsd: hold.heldNanoUsd, capTokens: hold.capTokens };
  } catch (error) {
    if (error instanceof Refusal) return { code: error.code, ...error.facts };
    throw error;
  }
}
