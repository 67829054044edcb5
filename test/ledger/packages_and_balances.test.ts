import { afterAll, beforeAll, expect, test } from "bun:test";
import { listBalanceTransactions } from "../../src/books/balance_transactions_store.ts";
import { listUsageRecords } from "../../src/books/usage_records_store.ts";
import { addBalance, setPayg } from "../../src/ledger/balances_store.ts";
import { holdingsOf, previewAssignment } from "../../src/ledger/holdings_store.ts";
import { receiptMonthsAhead } from "../../src/ledger/leases_store.ts";
import { assignPackage, endPackage, findPackage, listPackages, payerOf } from "../../src/ledger/packages_store.ts";
import type { Change } from "../../src/platform/bus.ts";
import { type AccountsWorld, createAccountsWorld } from "../accounts/accounts_world.ts";
import type { Person } from "../world.ts";

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await world.close();
});

const assign = (
  { accountId }: Person,
  offeringId: number,
  { when = "now" as "now" | "after", payer = null as Person | null } = {},
) => assignPackage(world.deps, { accountId, offeringId, when, payerId: payer?.accountId ?? null, actorId: null });
const topUp = ({ accountId }: Person, nanoUsd: bigint) =>
  addBalance(world.deps, { accountId, nanoUsd, kind: "top_up", reason: "test", actorId: null });

test("assigned `now` it starts and returns the dropped rest; assigned `after` it queues; the change is published", async () => {
  const person = await world.addCustomer();
  const offeringId = await world.addOffering({ days: 2, dailyLimit: 100 });
  const told: Change[] = [];
  world.deps.bus.subscribe((changes) => void told.push(...changes));
  const first = await assign(person, offeringId);
  expect(first).toMatchObject({ state: "active", totalLimit: 200, paidByAccountId: null });
  expect(told).toContainEqual({ kind: "account", ref: String(person.accountId) });
  const queued = await assign(person, offeringId, { when: "after" });
  expect(queued).toMatchObject({ state: "queued", startsAt: first.endsAt });
  const second = await assign(person, offeringId);
  expect(await findPackage(world.deps, first.packageId)).toMatchObject({
    state: "ended",
    endedEarly: "replaced",
    unitsDropped: 200,
  });
  expect((await listPackages(world.deps, person.accountId)).map(({ packageId, state }) => [packageId, state])).toEqual([
    [queued.packageId, "queued"],
    [second.packageId, "active"],
    [first.packageId, "ended"],
  ]);
  expect(await endPackage(world.deps, { ...person, packageId: second.packageId })).toMatchObject({
    state: "ended",
    endedEarly: "ended",
  });
  expect(await findPackage(world.deps, queued.packageId)).toMatchObject({ state: "active" });
  await expect(endPackage(world.deps, { ...person, packageId: second.packageId })).rejects.toThrow("no such package");
  await expect(endPackage(world.deps, { ...(await world.addCustomer()), packageId: queued.packageId })).rejects.toThrow(
    "no such package",
  );
});

test("when a queued package is ended, those behind it move up to the end of the active one", async () => {
  const person = await world.addCustomer();
  const offeringId = await world.addOffering({ days: 2 });
  const active = await assign(person, offeringId);
  const next = await assign(person, offeringId, { when: "after" });
  const last = await assign(person, offeringId, { when: "after" });
  await endPackage(world.deps, { ...person, packageId: next.packageId });
  const { startsAt, endsAt } = active;
  expect(await findPackage(world.deps, active.packageId)).toMatchObject({ state: "active", startsAt, endsAt });
  expect(await findPackage(world.deps, last.packageId)).toMatchObject({
    state: "queued",
    startsAt: endsAt,
    endsAt: next.endsAt,
  });
});

test("402 insufficient_balance: if the payer's balance is short, nothing is assigned; ten concurrent assignments spend it exactly", async () => {
  const reseller = await world.addReseller();
  const customer = await world.addCustomer(reseller.accountId);
  const offeringId = await world.addOffering({ wholesaleNanoUsd: 4_000_000_000n });
  await expect(assign(customer, offeringId, { payer: reseller })).rejects.toMatchObject({
    code: "insufficient_balance",
    facts: { remaining: 0 },
  });
  expect(await listPackages(world.deps, customer.accountId)).toEqual([]);
  await topUp(reseller, 13_000_000_000n);
  const results = await Promise.allSettled(
    Array.from({ length: 10 }, () => assign(customer, offeringId, { payer: reseller, when: "after" })),
  );
  expect(results.filter(({ status }) => status === "fulfilled")).toHaveLength(3);
  expect(
    await addBalance(world.deps, {
      ...reseller,
      nanoUsd: -1_000_000_000n,
      kind: "correction",
      reason: null,
      actorId: null,
    }),
  ).toBe(0n);
});

test("an offering that is absent or off sale cannot be assigned", async () => {
  const person = await world.addCustomer();
  const offeringId = await world.addOffering();
  await world.sql`update offerings set enabled = false where id = ${offeringId}`;
  await expect(assign(person, offeringId)).rejects.toThrow("for sale");
  await expect(assign(person, 999_999)).rejects.toThrow("for sale");
  await expect(assign({ accountId: 999_999 }, await world.addOffering())).rejects.toThrow("no such account");
});

test("a balance is exact, never negative, at most nine million dollars, and the sum of its entries", async () => {
  const person = await world.addCustomer();
  expect(await topUp(person, 1n)).toBe(1n);
  expect(await topUp(person, 8_999_999_999_999_999n)).toBe(9_000_000_000_000_000n);
  await expect(topUp(person, 1n)).rejects.toThrow("at most $9,000,000");
  await expect(topUp(person, 10n ** 17n)).rejects.toThrow("at most $9,000,000");
  await expect(topUp(person, 0n)).rejects.toThrow("above zero");
  await expect(topUp(person, -1n)).rejects.toThrow("above zero");
  const correct = (nanoUsd: bigint, reason: string | null = null) =>
    addBalance(world.deps, { ...person, nanoUsd, kind: "correction", reason, actorId: null });
  expect(await correct(-9_000_000_000_000_000n)).toBe(0n);
  await expect(correct(-1n)).rejects.toThrow("smaller than that");
  await expect(correct(1n, "two\nlines")).rejects.toThrow("reason");
  await expect(topUp({ accountId: 999_999 }, 1n)).rejects.toThrow("no such account");
  expect(await world.unbalanced()).toEqual([]);
});

test("switching PAYG and ending a package wait for the batch that holds the account's lock", async () => {
  const person = await world.addCustomer();
  const packageId = await world.givePackage(person);
  const lock = `select lock_accounts(array[${person.accountId}]::bigint[])`;
  await world.whileLocked(lock, () => setPayg(world.deps, person.accountId, false));
  await world.whileLocked(lock, () => endPackage(world.deps, { ...person, packageId }));
  await expect(setPayg(world.deps, 999_999, true)).rejects.toThrow("no such account");
});

test("usage: settled requests only, newest first, paged, by account, host, model and time", async () => {
  const [person, other] = [await world.addCustomer(), await world.addCustomer()];
  const [clock] = await world.sql`select floor(extract(epoch from clock_timestamp()) * 1000)::bigint as ms`;
  const nowMs = Number(clock?.ms);
  const record = async (
    { accountId }: Person,
    minutesAgo: number,
    { host = "a.example", model = "chat-1", outcome = "settled" } = {},
  ) => {
    const hex = (nowMs - minutesAgo * 60_000).toString(16).padStart(12, "0");
    const id = `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-${String(accountId).padStart(12, "0")}`;
    await world.sql`insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd, charged_nano_usd,
        shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
      values (${id}, ${accountId}, 1, ${model}, ${host}, 'payg', ${outcome}, 'complete', 0, 0, 0, 0, 1, 0, 2, 0, false,
        to_timestamp(${nowMs - minutesAgo * 60_000}::float8 / 1000), to_timestamp(${nowMs - minutesAgo * 60_000}::float8 / 1000))`;
    return id;
  };
  const ids: string[] = [];
  for (let minute = 0; minute < 5; minute++)
    ids.push(
      await record(person, minute, {
        host: minute % 2 ? "b.example" : "a.example",
        model: minute === 4 ? "chat-2" : "chat-1",
      }),
    );
  await record(other, 1);
  await record(person, 10, { outcome: "released" });
  const find = async (query: Parameters<typeof listUsageRecords>[1]) => {
    const { rows, hasMore } = await listUsageRecords(world.deps, { accountId: person.accountId, ...query });
    return { found: rows.map(({ requestId }) => ids.indexOf(requestId)), hasMore };
  };
  const at = (minutesAgo: number) => new Date(nowMs - minutesAgo * 60_000).toISOString();
  expect(await find({})).toEqual({ found: [0, 1, 2, 3, 4], hasMore: false });
  expect(await find({ limit: 2 })).toEqual({ found: [0, 1], hasMore: true });
  expect(await find({ limit: 3, after: ids[1] ?? "" })).toEqual({ found: [2, 3, 4], hasMore: false });
  expect(await find({ hosts: ["b.example"] })).toEqual({ found: [1, 3], hasMore: false });
  expect(await find({ hosts: [] })).toEqual({ found: [], hasMore: false });
  expect(await find({ hosts: null, modelId: "chat-2" })).toEqual({ found: [4], hasMore: false });
  expect(await find({ start: at(3), end: at(1) })).toEqual({ found: [2, 3], hasMore: false });
  expect(await find({ start: "0000-01-01", end: "9999-12-31" })).toEqual({ found: [0, 1, 2, 3, 4], hasMore: false });
  await expect(find({ start: "yesterday" })).rejects.toThrow("ISO 8601");
  await expect(find({ after: "'" })).rejects.toThrow("not a request id");
  expect((await listUsageRecords(world.deps, {})).rows).toHaveLength(6);
  const [newest] = (await listUsageRecords(world.deps, { accountId: person.accountId, limit: 1 })).rows;
  expect(newest).toMatchObject({
    promptTokens: 1,
    completionTokens: 2,
    chargedNanoUsd: 0n,
    mode: "payg",
    createdAt: at(0),
  });
});

test("the payer is the operator for its own people, and a reseller for itself and its customers, unless another is chosen", () => {
  const house = { accountId: 1, role: "customer", resellerId: null } as const;
  const reseller = { accountId: 2, role: "reseller", resellerId: null } as const;
  const customer = { accountId: 3, role: "customer", resellerId: 2 } as const;
  const admin = { accountId: 4, role: "admin", resellerId: null } as const;
  const operator = { payerId: null, fromAllotment: false };
  for (const owner of [house, admin]) {
    expect(payerOf(owner, undefined)).toEqual(operator);
    expect(payerOf(owner, "operator")).toEqual(operator);
    for (const payWith of ["balance", "allotment"] as const)
      expect(() => payerOf(owner, payWith)).toThrow("no reseller");
  }
  for (const owner of [reseller, customer]) {
    expect(payerOf(owner, undefined)).toEqual({ payerId: 2, fromAllotment: false });
    expect(payerOf(owner, "balance")).toEqual({ payerId: 2, fromAllotment: false });
    expect(payerOf(owner, "allotment")).toEqual({ payerId: 2, fromAllotment: true });
    expect(payerOf(owner, "operator")).toEqual(operator);
  }
});

test("a preview shows the effect of the assignment, and changes nothing", async () => {
  const reseller = await world.addReseller();
  const customer = await world.addCustomer(reseller.accountId);
  const terms = { days: 3, dailyLimit: 100, timeZone: "Europe/Berlin", wholesaleNanoUsd: 4_000_000_000n };
  const offeringId = await world.addOffering(terms);
  await topUp(reseller, 10_000_000_000n);
  await world.setClock("2026-10-24T12:00:00Z"); // The clocks go back in the night after: three days are 73 hours.
  const preview = (when: "now" | "after", over: Partial<Parameters<typeof previewAssignment>[1]> = {}) =>
    previewAssignment(world.deps, { ...customer, offeringId, when, payerId: reseller.accountId, ...over });
  const told = {
    startsAt: "2026-10-24T12:00:00.000Z",
    endsAt: "2026-10-27T13:00:00.000Z",
    dropped: null,
    before: null,
  };
  for (const when of ["now", "after"] as const) expect(await preview(when)).toMatchObject(told);
  const first = await assign(customer, offeringId, { payer: reseller });
  expect(first).toMatchObject({ startsAt: told.startsAt, endsAt: told.endsAt });
  const [counted] =
    await world.sql`select count(*)::int as packages from packages where account_id = ${customer.accountId}`;
  expect(counted?.packages).toBe(1);

  await world.setClock("2026-10-25T12:00:00Z");
  await world.sql`update packages set units_taken = 20 where id = ${first.packageId}`;
  const takesOver = await preview("now");
  expect(takesOver).toMatchObject({
    startsAt: "2026-10-25T12:00:00.000Z",
    dropped: { packageId: first.packageId, unitsLeft: 280 },
    before: { packageId: first.packageId },
    after: { days: 3, dailyLimit: 100, totalLimit: 300, timeZone: "Europe/Berlin" },
    costNanoUsd: 4_000_000_000n,
    payer: { ...reseller, freeNanoUsd: 6_000_000_000n, balanceAfterNanoUsd: 2_000_000_000n },
    allotmentLeftAfter: null,
    enough: true,
  });
  expect(await preview("after")).toMatchObject({
    startsAt: first.endsAt,
    dropped: null,
    before: { packageId: first.packageId },
  });
  const second = await assign(customer, offeringId, { payer: reseller });
  expect(second).toMatchObject({ startsAt: takesOver.startsAt, endsAt: takesOver.endsAt });
  expect(await findPackage(world.deps, first.packageId)).toMatchObject({ unitsDropped: 280 });

  expect(await preview("after")).toMatchObject({ payer: { balanceAfterNanoUsd: -2_000_000_000n }, enough: false });
  await world.sql`insert into allotments (reseller_id, offering_id, granted) values (${reseller.accountId}, ${offeringId}, 2)`;
  expect(await preview("after", { fromAllotment: true })).toMatchObject({
    costNanoUsd: 0n,
    allotmentLeftAfter: 1,
    enough: true,
  });
  expect(await preview("now", { payerId: null })).toMatchObject({ costNanoUsd: 0n, payer: null, enough: true });
  await world.sql`update offerings set enabled = false where id = ${offeringId}`;
  await expect(preview("now")).rejects.toThrow("for sale");
  await expect(preview("now", { accountId: Number.NaN })).rejects.toThrow("no such account");
  await world.sql`update packages set units_taken = 0 where id = ${first.packageId}`;
  await world.setClock(null);
});

test("an active package shows what it grants now, by its own midnight; a queued or ended one grants nothing", async () => {
  const person = await world.addCustomer();
  const use = async (packageId: number, day: string, units: number) => {
    await world.sql`insert into package_days (package_id, day, units_taken, units_max) values (${packageId}, ${day}, ${units}, 1000)`;
    await world.sql`update packages set units_taken = units_taken + ${units} where id = ${packageId}`;
  };
  const allowance = async () =>
    (await holdingsOf(world.deps, person.accountId)).packages.find(({ state }) => state === "active")?.allowance;
  await world.setClock("2026-06-01T12:00:00Z");
  const standard = await world.givePackage(person, { days: 3, dailyLimit: 100, timeZone: "Europe/Berlin" });
  expect(await allowance()).toEqual({
    availableNow: 100,
    usedToday: 0,
    totalLeft: 300,
    resetsAt: "2026-06-01T22:00:00.000Z",
    availableAtReset: 100,
  });
  await use(standard, "2026-06-01", 30);
  expect(await allowance()).toMatchObject({ availableNow: 70, usedToday: 30, totalLeft: 270 });
  await world.setClock("2026-06-01T22:00:00Z");
  expect(await allowance()).toMatchObject({ availableNow: 100, usedToday: 0, resetsAt: "2026-06-02T22:00:00.000Z" });
  await world.setClock("2026-06-04T09:00:00Z"); // Its fourth date, and its last hour.
  expect(await allowance()).toMatchObject({ availableNow: 100, resetsAt: null });

  await world.setClock("2026-07-01T12:00:00Z");
  const saved = await world.givePackage(person, { days: 3, dailyLimit: 100, carryover: true });
  await use(saved, "2026-07-01", 30);
  await world.setClock("2026-07-02T12:00:00Z");
  expect(await allowance()).toEqual({
    availableNow: 170,
    usedToday: 0,
    totalLeft: 270,
    resetsAt: "2026-07-03T00:00:00.000Z",
    availableAtReset: 100,
  });
  await world.setClock("2026-07-03T12:00:00Z"); // All its days have begun: nothing more is granted.
  expect(await allowance()).toMatchObject({ availableNow: 270, resetsAt: null });
  const queued = await world.assign(person, await world.addOffering(), "after");
  const { packages, balance } = await holdingsOf(world.deps, person.accountId);
  expect(packages.map(({ packageId, state, allowance: now }) => [packageId, state, now !== null])).toEqual([
    [queued.packageId, "queued", false],
    [saved, "active", true],
    [standard, "ended", false],
  ]);
  expect(balance).toEqual({ balanceNanoUsd: 0n, heldNanoUsd: 0n, freeNanoUsd: 0n, paygEnabled: false });
  await world.sql`update packages set units_taken = 0 where account_id = ${person.accountId}`;
  await world.sql`delete from package_days where package_id in (${standard}, ${saved})`;
  await world.setClock(null);
});

test("of packages that are over the last 20 are shown", async () => {
  const person = await world.addCustomer();
  const offeringId = await world.addOffering();
  for (let i = 0; i < 23; i++) await assign(person, offeringId);
  const { packages } = await holdingsOf(world.deps, person.accountId);
  expect(packages.map(({ state }) => state)).toEqual(["active", ...Array.from({ length: 20 }, () => "ended" as const)]);
});

test("each entry says the balance after it, on every page and under every filter", async () => {
  const [person, other] = [await world.addCustomer(), await world.addCustomer()];
  const admin = await world.addAdmin();
  const sums: bigint[] = [];
  let balance = 0n;
  for (let i = 1; i <= 25; i++) {
    const nanoUsd = i % 5 === 0 ? -BigInt(i) : BigInt(i) * 10n;
    const kind = nanoUsd < 0n ? ("correction" as const) : ("top_up" as const);
    await addBalance(world.deps, {
      ...person,
      nanoUsd,
      kind,
      reason: `no ${i}`,
      actorId: i === 25 ? admin.accountId : null,
    });
    await topUp(other, 1_000_000n);
    balance += nanoUsd;
    sums.unshift(balance);
  }
  const all: { amountNanoUsd: bigint; balanceAfterNanoUsd: bigint; entryId: number }[] = [];
  let before: string | undefined;
  for (let hasMore = true; hasMore; ) {
    const page = await listBalanceTransactions(world.deps, {
      ...person,
      limit: 7,
      ...(before !== undefined && { before }),
    });
    all.push(...page.rows);
    before = page.nextBefore ?? undefined;
    hasMore = page.hasMore;
  }
  expect(all.map(({ balanceAfterNanoUsd }) => balanceAfterNanoUsd)).toEqual(sums);
  const corrections = await listBalanceTransactions(world.deps, { ...person, kind: "correction", limit: 2 });
  expect(corrections).toMatchObject({
    hasMore: true,
    rows: [
      {
        amountNanoUsd: -25n,
        balanceAfterNanoUsd: sums[0] ?? 0n,
        reason: "no 25",
        actor: { ...admin, role: "admin" },
        requestId: null,
      },
      { amountNanoUsd: -20n, balanceAfterNanoUsd: sums[5] ?? 0n, actor: null },
    ],
  });
  const older = corrections.nextBefore ?? "";
  const rest = await listBalanceTransactions(world.deps, { ...person, kind: "correction", before: older });
  expect(rest.rows.map(({ balanceAfterNanoUsd }) => balanceAfterNanoUsd)).toEqual(
    [10, 15, 20].map((i) => sums[i] ?? 0n),
  );
  expect(await listBalanceTransactions(world.deps, await world.addCustomer())).toEqual({
    rows: [],
    hasMore: false,
    nextBefore: null,
  });
});

test("receipt months ahead are counted up to the first gap", async () => {
  expect(await receiptMonthsAhead(world.deps)).toBe(3);
  await world.setClock("2099-12-15T00:00:00Z");
  expect(await receiptMonthsAhead(world.deps)).toBe(0);
  await world.sql`select make_receipt_months(5)`;
  expect(await receiptMonthsAhead(world.deps)).toBe(5);
  await world.sql`drop table receipts_2100_03`;
  expect(await receiptMonthsAhead(world.deps)).toBe(2);
  await world.setClock(null);
});
