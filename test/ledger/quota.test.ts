import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { Refusal } from "../../src/errors.ts";
import { entitlementOf, hasLeft } from "../../src/ledger/entitlement_store.ts";
import { holdingsOf } from "../../src/ledger/holdings_store.ts";
import type { ReserveRequest } from "../../src/ledger/ledger_store.ts";
import { createWorld, type OfferingSpec, type World } from "../world.ts";
import { codeOf, type OpenLedger, openWorldLedger, reapLease, requestFor, tally, usageOf } from "./ledger_world.ts";

/** Source: KEY-8, PAY-2, PAY-3, PAY-9, QUO-3, QUO-4, QUO-5, QUO-6, QUO-7, QUO-8, QUO-9, QUO-10, REL-1. */

let world: World;
let open: OpenLedger;

beforeAll(async () => {
  world = await createWorld();
  open = await openWorldLedger(world);
});
afterAll(async () => {
  await open.close();
  await world.close();
});
beforeEach(() => world.setClock(null));

async function customer(spec?: OfferingSpec) {
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  const packageId = spec ? await world.givePackage(person, spec) : 0;
  return {
    person,
    key,
    packageId,
    ask: (over?: Partial<ReserveRequest>) => open.ledger.reserve(requestFor(person, key, over)),
  };
}

async function refusalOf(promise: Promise<unknown>): Promise<Refusal> {
  const error = await promise.then(
    () => undefined,
    (thrown) => thrown,
  );
  if (!(error instanceof Refusal)) throw new Error(`expected a refusal, got ${error}`);
  return error;
}

test("402 daily_quota_exceeded when a standard package's day is used up, with limit, used, remaining and resets_at", async () => {
  await world.setClock("2026-05-10 12:00:00+00");
  const { ask } = await customer({ dailyLimit: 3, days: 5 });
  for (let i = 0; i < 3; i++) await ask();
  const refusal = await refusalOf(ask());
  expect(refusal.code).toBe("daily_quota_exceeded");
  expect(refusal.status).toBe(402);
  expect(refusal.facts).toMatchObject({ limit: 3, used: 3, remaining: 0, resetsAt: "2026-05-11T00:00:00.000Z" });
});

test("the next day of a standard package counts from zero; unused units of the day before are lost", async () => {
  await world.setClock("2026-05-10 23:59:00+00");
  const { ask } = await customer({ dailyLimit: 2, days: 5 });
  await ask();
  await world.setClock("2026-05-11 00:00:30+00");
  const codes = [];
  for (let i = 0; i < 4; i++) codes.push(await codeOf(ask()));
  expect(codes).toEqual(["granted", "granted", "daily_quota_exceeded", "daily_quota_exceeded"]);
});

test("carryover keeps unused units; carryover_quota_exceeded when all accumulated units are used", async () => {
  await world.setClock("2026-05-10 12:00:00+00");
  const { ask } = await customer({ dailyLimit: 2, days: 3, carryover: true });
  await ask();
  await world.setClock("2026-05-12 12:00:00+00");
  const codes = [];
  for (let i = 0; i < 6; i++) codes.push(await codeOf(ask()));
  expect(tally(codes)).toEqual({ granted: 5, carryover_quota_exceeded: 1 });
  const refusal = await refusalOf(ask());
  expect(refusal.facts).toMatchObject({ limit: 6, used: 6, remaining: 0, resetsAt: null });
});

test("carryover: a late settlement takes a unit only if every day since has room for it", async () => {
  await world.setClock("2026-05-10 12:00:00+00");
  await world.sql`select make_receipt_months(0)`;
  const { ask, packageId } = await customer({ dailyLimit: 1, days: 3, carryover: true });
  const late = await ask();
  await reapLease(world, late.leaseId);
  await world.setClock("2026-05-11 12:00:00+00");
  for (let i = 0; i < 2; i++) await open.ledger.settle(await ask(), usageOf());
  // The package has one unit left, but only from the third day on.
  await open.ledger.settle(late, usageOf());
  const days =
    await world.sql`select day::text, units_taken from package_days where package_id = ${packageId} order by day`;
  expect(days.map(({ day, units_taken }) => [day, units_taken])).toEqual([
    ["2026-05-10", 0],
    ["2026-05-11", 2],
  ]);
  await world.setClock("2026-05-12 12:00:00+00");
  expect(await codeOf(ask())).toBe("granted");
});

test("package_quota_exceeded when only the total is used up; the daily code when both are", async () => {
  const total = await customer({ dailyLimit: 10, totalLimit: 3, days: 5 });
  for (let i = 0; i < 3; i++) await total.ask();
  const refusal = await refusalOf(total.ask());
  expect(refusal.code).toBe("package_quota_exceeded");
  expect(refusal.facts).toMatchObject({ limit: 3, used: 3, remaining: 0, resetsAt: null });

  const both = await customer({ dailyLimit: 3, totalLimit: 3, days: 5 });
  for (let i = 0; i < 3; i++) await both.ask();
  expect((await refusalOf(both.ask())).code).toBe("daily_quota_exceeded");

  const carried = await customer({ dailyLimit: 3, totalLimit: 3, days: 5, carryover: true });
  for (let i = 0; i < 3; i++) await carried.ask();
  expect((await refusalOf(carried.ask())).code).toBe("carryover_quota_exceeded");
});

test("a one-day package that spans two dates is worth one day", async () => {
  await world.setClock("2026-05-10 20:00:00+00");
  const { ask } = await customer({ kind: "daily", dailyLimit: 100, days: 1 });
  for (let i = 0; i < 60; i++) await ask();
  await world.setClock("2026-05-11 08:00:00+00");
  const codes = await Promise.all(Array.from({ length: 50 }, () => codeOf(ask())));
  expect(tally(codes)).toEqual({ granted: 40, package_quota_exceeded: 10 });
});

test("days follow the package's time zone, through 23- and 25-hour days and a midnight that does not exist", async () => {
  // Berlin's clocks go back on 25 October 2026: that day has 25 hours.
  await world.setClock("2026-10-24 12:00:00+02");
  const berlin = await customer({ dailyLimit: 1, days: 3, timeZone: "Europe/Berlin" });
  await world.setClock("2026-10-24 23:59:00+02");
  await berlin.ask();
  await world.setClock("2026-10-25 00:00:00+02");
  await berlin.ask();
  await world.setClock("2026-10-25 23:30:00+01");
  const refusal = await refusalOf(berlin.ask());
  expect(refusal.facts.resetsAt).toBe("2026-10-25T23:00:00.000Z");
  const [ends] = await world.sql`select ends_at from packages where id = ${berlin.packageId}`;
  expect(ends?.ends_at.toISOString()).toBe("2026-10-27T11:00:00.000Z");

  // In Beirut midnight of 29 March 2026 does not exist: the day begins at 01:00.
  await world.setClock("2026-03-28 12:00:00+02");
  const beirut = await customer({ dailyLimit: 1, days: 3, timeZone: "Asia/Beirut" });
  await beirut.ask();
  const before = await refusalOf(beirut.ask());
  expect(before.facts.resetsAt).toBe("2026-03-28T22:00:00.000Z");
  await world.setClock("2026-03-28 22:00:00+00");
  expect(await codeOf(beirut.ask())).toBe("granted");
});

test("package_required without a package, package_expired once the last one ended, and the same key works under a new one", async () => {
  const { person, ask, packageId } = await customer({ dailyLimit: 5, days: 1 });
  expect(await codeOf((await customer()).ask())).toBe("package_required");
  await world.sql`select end_package(${person.accountId}, ${packageId})`;
  expect(await codeOf(ask())).toBe("package_expired");
  await world.givePackage(person, { dailyLimit: 5, modelIds: ["model-b"] });
  expect(await codeOf(ask())).toBe("model_not_in_package");
  expect(await codeOf(ask({ modelId: "model-b" }))).toBe("granted");
});

test("a release frees the unit of its own day", async () => {
  const { ask } = await customer({ dailyLimit: 1, days: 2 });
  const hold = await ask();
  expect(await codeOf(ask())).toBe("daily_quota_exceeded");
  await open.ledger.release(hold, "provider_failed");
  expect(await codeOf(ask())).toBe("granted");
});

test("a token allowance is never exceeded, and use beyond it is not charged", async () => {
  const { ask, packageId } = await customer({ dailyLimit: 100, tokenLimit: 150 });
  await open.ledger.settle(await ask({ promptTokens: 100 }), usageOf({ promptTokens: 40, completionTokens: 40 }));
  const last = await ask({ promptTokens: 70 });
  await open.ledger.settle(last, usageOf({ promptTokens: 400, completionTokens: 40 }));
  const refusal = await refusalOf(ask({ promptTokens: 1 }));
  expect(refusal.code).toBe("package_quota_exceeded");
  expect(refusal.facts).toMatchObject({ limit: 150, used: 150, remaining: 0 });
  expect(refusal.message).toBe("The package's token allowance is used up.");
  const [row] =
    await world.sql`select tokens_taken::int, package_tokens_spent(id)::int as tokens_used from packages where id = ${packageId}`;
  expect({ ...row }).toEqual({ tokens_taken: 150, tokens_used: 150 });
});

// Source: QUO-9.
test("an output cap that the client did not ask for is lowered to what the token allowance affords, not below its least", async () => {
  const { ask } = await customer({ dailyLimit: 100, tokenLimit: 5000 });
  const wanted = { promptTokens: 100, choices: 1, capMax: 4096, capMin: 256 };
  expect(await ask(wanted)).toMatchObject({ capTokens: 4096, heldTokens: 4196 });
  const two = { ...wanted, choices: 2, promptTokens: 103 };
  expect(await ask(two)).toMatchObject({ capTokens: 350, heldTokens: 803 });
  const refusal = await refusalOf(ask(wanted));
  expect(refusal.facts).toMatchObject({ limit: 5000, used: 4999, remaining: 1, isPassing: true });
  expect(refusal.message).toContain("Running requests have reserved theirs");
});

// Source: QUO-9.
test("an output cap that the client asked for is not lowered", async () => {
  const { ask } = await customer({ dailyLimit: 100, tokenLimit: 5000 });
  const wanted = { promptTokens: 100, choices: 1, capMax: 4901, capMin: 4901 };
  expect((await refusalOf(ask(wanted))).facts).toMatchObject({ used: 0, remaining: 5000 });
  expect(await ask({ ...wanted, capMax: 4900, capMin: 4900 })).toMatchObject({ capTokens: 4900, heldTokens: 5000 });
});

test("the message does not mention tokens when the requests are used up", async () => {
  const { ask } = await customer({ dailyLimit: 5, totalLimit: 1, tokenLimit: 1_000_000 });
  await ask();
  const refusal = await refusalOf(ask());
  expect(refusal.facts).toMatchObject({ limit: 1, used: 1, remaining: 0 });
  expect(refusal.message).toBe("The total quota of the package is used up.");
});

test("no reset is announced for a carryover package whose next midnight adds nothing", async () => {
  await world.setClock("2026-05-10 12:00:00+00");
  const { person } = await customer({ dailyLimit: 10, totalLimit: 15, days: 5, carryover: true });
  const seen = async () => {
    const { package: state } = await entitlementOf(open.db.sql, person.accountId);
    const [row] = (await holdingsOf(open, person.accountId)).packages;
    expect(row?.allowance).toMatchObject({ resetsAt: state?.resetsAt, availableAtReset: state?.availableAtReset });
    return [state?.dailyRemaining, state?.availableAtReset, state?.resetsAt];
  };
  expect(await seen()).toEqual([10, 5, "2026-05-11T00:00:00.000Z"]);
  await world.setClock("2026-05-11 12:00:00+00");
  expect(await seen()).toEqual([15, 0, null]);
});

test("reserved tokens count as used, also in the API and the panel", async () => {
  const { person, ask } = await customer({ dailyLimit: 100, tokenLimit: 150 });
  const hold = await ask({ promptTokens: 150 });
  expect(await codeOf(ask())).toBe("package_quota_exceeded");
  const seen = async () => {
    const { package: state } = await entitlementOf(open.db.sql, person.accountId);
    const [row] = (await holdingsOf(open, person.accountId)).packages;
    return [state && hasLeft(state), state?.tokensUsed, row?.tokensUsed, row?.allowance?.resetsAt === null];
  };
  expect(await seen()).toEqual([false, 150, 150, true]);
  await open.ledger.settle(hold, usageOf({ promptTokens: 20, completionTokens: 30 }));
  expect(await seen()).toEqual([true, 50, 50, false]);
  expect(await codeOf(ask())).toBe("granted");
});

test("the ledger itself refuses a revoked, disabled or expired key, whatever a cache says", async () => {
  for (const change of ["status = 'revoked'", "status = 'disabled'", "expires_at = clock_timestamp()"]) {
    const { key, ask } = await customer({ dailyLimit: 5 });
    await world.sql.unsafe(`update keys set ${change} where id = ${key.keyId}`);
    expect(await codeOf(ask())).toBe("invalid_api_key");
  }
});

test("a suspended account, reseller or domain refuses all requests that depend on it", async () => {
  const reseller = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  const key = await world.addKey(person);
  await world.givePackage(person, { dailyLimit: 50 });
  await world.addHost(reseller, "ai.shop.example");
  const ask = () =>
    open.ledger.reserve(
      requestFor(person, key, { tenantId: reseller.accountId, host: "ai.shop.example", ownHost: false }),
    );
  expect(await codeOf(ask())).toBe("granted");
  await world.sql`update hosts set status = 'suspended'`;
  expect(await codeOf(ask())).toBe("host_not_allowed");
  await world.sql`update hosts set status = 'active'`;
  await world.sql`update accounts set status = 'suspended' where id = ${reseller.accountId}`;
  expect(await codeOf(ask())).toBe("invalid_api_key");
  await world.sql`update accounts set status = 'active' where id = ${reseller.accountId}`;
  await world.sql`update accounts set status = 'suspended' where id = ${person.accountId}`;
  expect(await codeOf(ask())).toBe("invalid_api_key");
});

test("a replica whose clock is more than an hour off the database's gets nothing: the months of its request ids may be missing", async () => {
  const { person, key, ask } = await customer({ dailyLimit: 5 });
  for (const hours of [-2, 2]) {
    const skewed = await openWorldLedger(world, { wallMs: () => Date.now() + hours * 3_600_000 });
    expect(await codeOf(skewed.ledger.reserve(requestFor(person, key)))).toBe("service_unavailable");
    await skewed.close();
  }
  await open.ledger.release(await ask(), "not_dispatched");
});

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
});
