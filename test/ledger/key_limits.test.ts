import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import type { ReserveRequest } from "../../src/ledger/ledger_store.ts";
import { until } from "../platform/own_redis.ts";
import { createWorld, type Person, type TestKey, type World } from "../world.ts";
import {
  codeOf,
  drawn,
  knownAs,
  type OpenLedger,
  openSqlReplica,
  openWorldLedger,
  reapLease,
  refusalOf,
  requestFor,
  stopClock,
  tally,
  usageOf,
} from "./ledger_world.ts";

/**
 * A key's own daily limits of requests and of money of the balance, in the key's time zone. They are counted in key_days, in
 * addition to the account's entitlement. Source: KEY-9.
 */

/** 1,000 pico a token: a cap of 1,000 tokens holds 1,000 nano-USD. */
const PRICED: Partial<ReserveRequest> = { promptPico: 0n, outputPico: 1000n };

let world: World;
let a: OpenLedger;
let b: OpenLedger;

beforeAll(async () => {
  world = await createWorld();
  a = await openWorldLedger(world);
  b = await openWorldLedger(world);
});
afterAll(async () => {
  await a.close();
  await b.close();
  await world.close();
});
beforeEach(() => world.setClock(null));

type Ceilings = { mode?: "package" | "payg"; units?: number; nanoUsd?: number; timeZone?: string };

async function addKey(
  person: Person,
  { mode = "package", units, nanoUsd, timeZone = "UTC" }: Ceilings,
): Promise<TestKey> {
  const key = await world.addKey(person, { mode });
  await world.sql`
    update keys set daily_units_max = ${units ?? null}, daily_spend_max_nano_usd = ${nanoUsd ?? null}, time_zone = ${timeZone}
    where id = ${key.keyId}`;
  return key;
}

/** Sets a key's limits, or removes them. */
async function setLimits({ keyId }: TestKey, { units, nanoUsd }: Ceilings): Promise<void> {
  await world.sql`
    update keys set daily_units_max = ${units ?? null}, daily_spend_max_nano_usd = ${nanoUsd ?? null} where id = ${keyId}`;
}

/** An account with a large package and a balance of 100,000 nano-USD, and a key with daily limits. */
async function customer(ceilings: Ceilings, { dailyLimit = 1000, nanoUsd = 100_000n } = {}) {
  const person = await world.addCustomer();
  if (dailyLimit > 0) await world.givePackage(person, { dailyLimit, days: 5 });
  if (nanoUsd > 0n) await world.setBalance(person, nanoUsd);
  const key = await addKey(person, ceilings);
  return {
    person,
    key,
    ask: (over: Partial<ReserveRequest> = {}) => a.ledger.reserve(requestFor(person, key, { ...PRICED, ...over })),
    days: () => daysOf(key),
  };
}

async function daysOf({ keyId }: TestKey) {
  const rows = await world.sql`
    select d.day::text, units_taken - held.units as used, held.units as held, (taken_nano_usd - held.nano)::int as spent, held.nano as money_held
    from key_days d, lateral (
      select coalesce(sum(units), 0)::int as units, coalesce(sum(nano_usd), 0)::int as nano from escrows e
      where e.key_id = d.key_id and e.day = d.day) held
    where key_id = ${keyId} order by d.day`;
  return rows.map(({ day, ...counts }) => [day, { ...counts }]);
}

async function countsOf(key: TestKey) {
  return (await daysOf(key)).map(([, counts]) => counts);
}

test("402 key_request_limit_exceeded with limit, used, remaining and the key's next midnight; the package is not touched", async () => {
  await stopClock(world, "2026-05-10 23:30:00+00");
  // In Tokyo it is 08:30 on the 11th: the day ends at 15:00 UTC.
  const { person, key, ask } = await customer({ units: 3, timeZone: "Asia/Tokyo" });
  for (let i = 0; i < 3; i++) await ask();
  const refusal = await refusalOf(ask());
  expect(refusal.code).toBe("key_request_limit_exceeded");
  expect(refusal.status).toBe(402);
  expect(refusal.facts).toMatchObject({ limit: 3, used: 3, remaining: 0, resetsAt: "2026-05-11T15:00:00.000Z" });
  expect(await daysOf(key)).toEqual([["2026-05-11", { used: 0, held: 3, spent: 0, money_held: 0 }]]);
  const [row] =
    await world.sql`select package_drawn(packages) as held from packages where account_id = ${person.accountId}`;
  expect(row?.held).toBe(3);
});

test("the request limit counts package and pay-as-you-go requests", async () => {
  const { key, ask } = await customer({ units: 3 }, { dailyLimit: 2 });
  expect([(await ask()).mode, (await ask()).mode, (await ask()).mode]).toEqual(["package", "package", "payg"]);
  expect(await codeOf(ask())).toBe("key_request_limit_exceeded");
  expect(await countsOf(key)).toEqual([{ used: 0, held: 3, spent: 0, money_held: 1000 }]);

  const payg = await customer({ mode: "payg", units: 1 });
  await payg.ask();
  expect(await codeOf(payg.ask())).toBe("key_request_limit_exceeded");
});

test("402 key_spend_limit_exceeded counts reserved and charged amounts, with an explicit cap", async () => {
  await stopClock(world, "2026-05-10 12:00:00+00");
  const { key, ask } = await customer({ mode: "payg", nanoUsd: 2500 });
  const hold = await ask();
  await a.ledger.settle(hold, usageOf({ chargeNanoUsd: 700n }));
  await ask();
  // 700 charged and 1,000 held: 800 are left, and the client insists on 1,000.
  const refusal = await refusalOf(ask());
  expect(refusal.code).toBe("key_spend_limit_exceeded");
  expect(refusal.status).toBe(402);
  expect(refusal.facts).toMatchObject({
    limit: 2500,
    used: 1700,
    remaining: 800,
    resetsAt: "2026-05-11T00:00:00.000Z",
  });
  expect((await ask({ capMax: 800, capMin: 800 })).heldNanoUsd).toBe(800n);
  expect(await countsOf(key)).toEqual([{ used: 1, held: 2, spent: 700, money_held: 1800 }]);
});

test("the message says whether the limit is used up, or the request exceeds the rest of it", async () => {
  const requests = await customer({ units: 1 });
  await requests.ask();
  expect(await refusalOf(requests.ask())).toMatchObject({
    message: "The API key has reached its daily request limit.",
    facts: { limit: 1, used: 1, remaining: 0 },
  });
  const tooLarge = await customer({ mode: "payg", nanoUsd: 900 });
  expect(await refusalOf(tooLarge.ask())).toMatchObject({
    message: "This request could cost more than what is left of this key's own spending limit.",
    facts: { limit: 900, used: 0, remaining: 900 },
  });
  const spent = await customer({ mode: "payg", nanoUsd: 1000 });
  await spent.ask();
  expect(await refusalOf(spent.ask())).toMatchObject({
    message: "The API key has reached its spending limit.",
    facts: { limit: 1000, used: 1000, remaining: 0 },
  });
});

test("a default cap is lowered to the rest of the spending limit, but not below the minimum", async () => {
  const { ask } = await customer({ mode: "payg", nanoUsd: 1300 });
  expect(await ask({ capMin: 256 })).toMatchObject({ capTokens: 1000, heldNanoUsd: 1000n });
  expect(await ask({ capMin: 256 })).toMatchObject({ capTokens: 300, heldNanoUsd: 300n });
  expect(await codeOf(ask({ capMin: 256 }))).toBe("key_spend_limit_exceeded");
});

test("what goes back from an escrow leaves the key's count of requests in flight as it is", async () => {
  const { key, person, ask } = await customer({ mode: "payg", units: 1 }, { dailyLimit: 0 });
  await ask();
  const other = await addKey(person, { mode: "payg" });
  const known = knownAs("payg");
  for (let i = 0; i < 6; i++) await a.ledger.reserve(requestFor(person, other, { ...PRICED, known }));
  const idleNano = async () => (await drawn(world, person.accountId)).idle_nano_usd;
  expect(await idleNano()).toBeGreaterThan(0);
  await until(async () => (await idleNano()) === 0);
  expect(await countsOf(key)).toEqual([{ used: 0, held: 1, spent: 0, money_held: 1000 }]);
  expect(await codeOf(ask())).toBe("key_request_limit_exceeded");
});

test("insufficient_balance when less is left of the balance than of the limit, or there is no limit", async () => {
  const { ask } = await customer({ mode: "payg", nanoUsd: 5000 }, { nanoUsd: 600n });
  expect(await codeOf(ask())).toBe("insufficient_balance");
  expect(await ask({ capMin: 256 })).toMatchObject({ capTokens: 600 });
});

test("key_spend_limit_exceeded, not insufficient_balance, when the balance suffices with what another replica has drawn ahead", async () => {
  const { ask, person } = await customer({ mode: "payg", nanoUsd: 100 }, { dailyLimit: 0, nanoUsd: 1000n });
  const other = await addKey(person, { mode: "payg" });
  const small = { ...PRICED, capMax: 10, capMin: 10, known: knownAs("payg") };
  for (let i = 0; i < 4; i++) await b.ledger.reserve(requestFor(person, other, small));
  const { nano_usd, idle_nano_usd } = await drawn(world, person.accountId);
  expect(idle_nano_usd).toBeGreaterThan(10);
  // More than is available now, less than is neither spent nor in use.
  const capMax = 1000 - nano_usd + 5;
  expect(await refusalOf(ask({ capMax, capMin: capMax }))).toMatchObject({
    code: "key_spend_limit_exceeded",
    facts: { limit: 100, used: 0, remaining: 100 },
  });
});

test("402, not 500, for a prompt that costs more than the balance, at any output price", async () => {
  for (const ceilings of [{ nanoUsd: 1000 }, {}]) {
    const { ask } = await customer({ mode: "payg", ...ceilings }, { nanoUsd: 2000n });
    for (const outputPico of [0n, 1n, 1000n]) {
      const code = await codeOf(ask({ promptPico: 20_000_000_000_000_000n, outputPico, capMin: 256 }));
      expect(code).toBe("insufficient_balance");
    }
  }
});

test("a release frees the request and the money; a settlement frees the unused part of the reservation", async () => {
  const { key, ask } = await customer({ mode: "payg", units: 1, nanoUsd: 1000 });
  await a.ledger.release(await ask(), "provider_failed");
  expect(await countsOf(key)).toEqual([{ used: 0, held: 0, spent: 0, money_held: 0 }]);
  await a.ledger.settle(await ask(), usageOf({ chargeNanoUsd: 400n }));
  expect(await countsOf(key)).toEqual([{ used: 1, held: 0, spent: 400, money_held: 0 }]);
  expect(await codeOf(ask())).toBe("key_request_limit_exceeded");
});

test("an overrun is charged beyond the spending limit; then every request is refused", async () => {
  const { key, ask } = await customer({ mode: "payg", nanoUsd: 1000 });
  await a.ledger.settle(await ask(), usageOf({ chargeNanoUsd: 1600n }));
  expect(await countsOf(key)).toEqual([{ used: 1, held: 0, spent: 1600, money_held: 0 }]);
  const refusal = await refusalOf(ask({ capMin: 256 }));
  expect(refusal.code).toBe("key_spend_limit_exceeded");
  expect(refusal.facts).toMatchObject({ limit: 1000, used: 1600, remaining: 0 });
});

test("a response refused for its overrun does not count for the limits", async () => {
  const { key, ask } = await customer({ mode: "payg", units: 5, nanoUsd: 5000 }, { nanoUsd: 1200n });
  const settling = a.ledger.settle(await ask(), usageOf({ chargeNanoUsd: 1400n }), { strict: true });
  expect(await codeOf(settling)).toBe("insufficient_balance");
  expect(await countsOf(key)).toEqual([{ used: 0, held: 0, spent: 0, money_held: 0 }]);
});

test("200 concurrent requests on two replicas against a limit of 100: exactly 100 are granted, by requests and by money", async () => {
  for (const [ceilings, code] of [
    [{ units: 100 }, "key_request_limit_exceeded"],
    [{ mode: "payg", units: 100 }, "key_request_limit_exceeded"],
    [{ mode: "payg", nanoUsd: 100_000 }, "key_spend_limit_exceeded"],
  ] as const) {
    const { person, key } = await customer(ceilings, { nanoUsd: 1_000_000n });
    const codes = await Promise.all(
      Array.from({ length: 200 }, (_, i) => codeOf((i % 2 ? a : b).ledger.reserve(requestFor(person, key, PRICED)))),
    );
    expect(tally(codes)).toEqual({ granted: 100, [code]: 100 });
  }
});

test("two keys of one account in one batch have their own limits, and a third has none", async () => {
  const person = await world.addCustomer();
  await world.givePackage(person, { dailyLimit: 1000 });
  const [two, three, endless] = [
    await addKey(person, { units: 2 }),
    await addKey(person, { units: 3 }),
    await addKey(person, {}),
  ];
  const asks = [two, three, endless].flatMap((key) => Array.from({ length: 5 }, () => requestFor(person, key)));
  // Mixed, so that the keys take turns within the batch.
  asks.sort((x, y) => x.requestId.slice(-4).localeCompare(y.requestId.slice(-4)));
  const reserved = await (await openSqlReplica(world)).reserve(asks);
  const codes = (key: TestKey) =>
    tally(reserved.flatMap(({ code }, i) => (asks[i]?.keyId === key.keyId ? [code ?? "granted"] : [])));
  expect(codes(two)).toEqual({ granted: 2, key_request_limit_exceeded: 3 });
  expect(codes(three)).toEqual({ granted: 3, key_request_limit_exceeded: 2 });
  expect(codes(endless)).toEqual({ granted: 5 });
});

test("accounts with and without key limits in one batch do not affect each other", async () => {
  const capped = await customer({ units: 1 });
  const free = await customer({});
  const asks = [capped, free, capped, free].map(({ person, key }) => requestFor(person, key));
  const reserved = await (await openSqlReplica(world)).reserve(asks);
  expect(reserved.map(({ code }) => code)).toEqual([null, null, "key_request_limit_exceeded", null]);
});

test("the next day in the key's time zone counts from zero; a hold of yesterday still counts for yesterday", async () => {
  await stopClock(world, "2026-05-10 21:59:00+00");
  const { key, ask } = await customer({ mode: "payg", units: 1, nanoUsd: 1000, timeZone: "Europe/Berlin" });
  const late = await ask();
  expect(await codeOf(ask())).toBe("key_request_limit_exceeded");
  await stopClock(world, "2026-05-10 22:00:30+00");
  await ask();
  await a.ledger.settle(late, usageOf({ chargeNanoUsd: 200n }));
  expect(await daysOf(key)).toEqual([
    ["2026-05-10", { used: 1, held: 0, spent: 200, money_held: 0 }],
    ["2026-05-11", { used: 0, held: 1, spent: 0, money_held: 1000 }],
  ]);
});

test("a late settlement counts for the day of its reservation", async () => {
  const { key, ask } = await customer({ mode: "payg", units: 1, nanoUsd: 1000 });
  const hold = await ask();
  await reapLease(world, hold.leaseId);
  expect(await countsOf(key)).toEqual([{ used: 0, held: 0, spent: 0, money_held: 0 }]);
  await a.ledger.settle(hold, usageOf({ chargeNanoUsd: 300n }));
  expect(await countsOf(key)).toEqual([{ used: 1, held: 0, spent: 300, money_held: 0 }]);
  expect(await codeOf(ask())).toBe("key_request_limit_exceeded");
});

test("late settlements take no more than their key has left of the day: requests, and money of the balance", async () => {
  for (const mode of ["package", "payg"] as const) {
    const { person, key, ask } = await customer({ mode, units: 2, nanoUsd: 1000 });
    const frozen = [await ask({ capMax: 50 }), await ask({ capMax: 50 })];
    await reapLease(world, frozen[0]?.leaseId ?? "");
    await a.ledger.renewLease();
    // Another replica serves the key's two requests meanwhile.
    for (const hold of [await ask({ capMax: 50 }), await ask({ capMax: 50 })])
      await a.ledger.settle(hold, usageOf({ chargeNanoUsd: mode === "payg" ? 400n : 0n }));
    const before = await countsOf(key);
    for (const hold of frozen) {
      const settled = await a.ledger.settle(hold, usageOf({ chargeNanoUsd: mode === "payg" ? 300n : 0n }));
      expect(settled.chargedNanoUsd).toBe(0n);
      expect(settled.shortfallNanoUsd).toBe(mode === "payg" ? 300n : 0n);
    }
    expect(await countsOf(key)).toEqual(before);
    const receipts = await world.sql`select units, key_day, charged_nano_usd::int as charged from receipts
      where account_id = ${person.accountId} and reason = 'late'`;
    expect([...receipts]).toEqual(frozen.map(() => ({ units: 0, key_day: null, charged: 0 })));
  }
});

test("a late settlement takes what is left of its key's spending limit; the rest is a loss", async () => {
  const { key, ask } = await customer({ mode: "payg", units: 5, nanoUsd: 1000 });
  const frozen = await ask({ capMax: 50 });
  await reapLease(world, frozen.leaseId);
  await a.ledger.renewLease();
  await a.ledger.settle(await ask({ capMax: 50 }), usageOf({ chargeNanoUsd: 800n }));
  expect(await a.ledger.settle(frozen, usageOf({ chargeNanoUsd: 300n }))).toMatchObject({
    ...{ chargedNanoUsd: 200n, shortfallNanoUsd: 100n },
  });
  expect(await countsOf(key)).toEqual([{ used: 2, held: 0, spent: 1000, money_held: 0 }]);
});

test("a raised or removed limit applies from the next request on", async () => {
  const { key, ask } = await customer({ units: 1 });
  await ask();
  expect(await codeOf(ask())).toBe("key_request_limit_exceeded");
  await world.sql`update keys set daily_units_max = 2 where id = ${key.keyId}`;
  await ask();
  expect(await codeOf(ask())).toBe("key_request_limit_exceeded");
  await world.sql`update keys set daily_units_max = null where id = ${key.keyId}`;
  await ask();
  // Unlimited keys are not counted.
  expect(await countsOf(key)).toEqual([{ used: 0, held: 2, spent: 0, money_held: 0 }]);
});

test("limits that are set in the middle of a day count what the key has used of it: requests, and money", async () => {
  for (const limits of [{ units: 5 }, { nanoUsd: 1000 }]) {
    const { key, ask, days } = await customer({ mode: "payg" });
    const open = await ask({ capMax: 100 });
    for (let i = 0; i < 3; i++) await a.ledger.settle(await ask({ capMax: 100 }), usageOf({ chargeNanoUsd: 100n }));
    expect(await days()).toEqual([]);
    await setLimits(key, limits);
    // It began when nothing was counted.
    await a.ledger.settle(open, usageOf({ chargeNanoUsd: 100n }));
    if ("units" in limits) {
      for (let i = 0; i < 2; i++) await a.ledger.settle(await ask({ capMax: 100 }), usageOf({ chargeNanoUsd: 100n }));
      expect((await refusalOf(ask())).facts).toMatchObject({ limit: 5, used: 5, remaining: 0 });
    } else {
      await a.ledger.settle(await ask({ capMax: 600 }), usageOf({ chargeNanoUsd: 600n }));
      expect(await codeOf(ask({ capMax: 200 }))).toBe("key_spend_limit_exceeded");
    }
    // Removed and set again: nothing is counted twice, and what was used meanwhile counts.
    await setLimits(key, {});
    await a.ledger.settle(await ask({ capMax: 100 }), usageOf({ chargeNanoUsd: 100n }));
    await setLimits(key, { units: 8, nanoUsd: 100_000 });
    const [counted] =
      await world.sql`select units_taken + units_before as used from key_days where key_id = ${key.keyId}`;
    expect(counted?.used).toBe("units" in limits ? 7 : 6);
  }
});

test("limits that are set later count the key's own day: not the day before, and not what another key used", async () => {
  // The key's day begins at 15:00 UTC.
  const { person, key, ask } = await customer({ mode: "payg", timeZone: "Asia/Tokyo" });
  const other = await addKey(person, { mode: "payg" });
  const settleAt = async (at: string, asking = ask) => {
    await stopClock(world, at);
    await a.ledger.settle(await asking({ capMax: 100 }), usageOf({ chargeNanoUsd: 100n }));
  };
  await settleAt("2026-05-10 14:59:00+00");
  await settleAt("2026-05-10 15:01:00+00");
  await settleAt("2026-05-11 14:00:00+00");
  await settleAt("2026-05-11 14:00:00+00", () =>
    a.ledger.reserve(requestFor(person, other, { ...PRICED, capMax: 100 })),
  );
  await setLimits(key, { units: 3, nanoUsd: 1000 });
  expect(await daysOf(key)).toEqual([["2026-05-11", { used: 0, held: 0, spent: 0, money_held: 0 }]]);
  await ask({ capMax: 100 });
  expect((await refusalOf(ask())).facts).toMatchObject({ limit: 3, used: 3, remaining: 0 });
});

test("a limit of requests that is set in the middle of a day that began without one binds late settlements, too", async () => {
  const { key, ask } = await customer({ mode: "payg", nanoUsd: 100_000 });
  const frozen = [await ask({ capMax: 50 }), await ask({ capMax: 50 })];
  await reapLease(world, frozen[0]?.leaseId ?? "");
  await a.ledger.renewLease();
  await setLimits(key, { units: 2, nanoUsd: 100_000 });
  for (const hold of [await ask({ capMax: 50 }), await ask({ capMax: 50 })])
    await a.ledger.settle(hold, usageOf({ chargeNanoUsd: 50n }));
  for (const hold of frozen)
    expect(await a.ledger.settle(hold, usageOf({ chargeNanoUsd: 50n }))).toMatchObject({ chargedNanoUsd: 0n });
  expect(await countsOf(key)).toEqual([{ used: 2, held: 0, spent: 100, money_held: 0 }]);
});

test("a key without limits writes no row of key_days", async () => {
  const { ask, days } = await customer({});
  await a.ledger.settle(await ask(), usageOf());
  await ask();
  expect(await days()).toEqual([]);
});

test("the books balance after all of this", async () => {
  const views = await world.sql`select table_name from information_schema.views where table_name = 'inv_key_days'`;
  expect(views).toHaveLength(1);
  expect(await world.unbalanced()).toEqual([]);
});
