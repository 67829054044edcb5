import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  addBalance,
  assignPackage,
  checkInvariants,
  endPackage,
  findPackage,
  listPackages,
  receiptMonthsAhead,
  setPayg,
  usage,
} from "../../src/ledger/books_store.ts";
import type { Change } from "../../src/platform/bus.ts";
import type { Person } from "../world.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

const assign = (
  { accountId }: Person,
  offeringId: number,
  { when = "now" as "now" | "after", payer = null as Person | null } = {},
) => assignPackage(world.deps, { accountId, offeringId, when, payerId: payer?.accountId ?? null, actorId: null });
const topUp = ({ accountId }: Person, nanoUsd: bigint) =>
  addBalance(world.deps, { accountId, nanoUsd, kind: "top_up", reason: "test", actorId: null });

test("assigned now it takes over and says what was dropped, assigned after it queues; the change is published", async () => {
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

test("402 insufficient_balance: the payer's balance is short, nothing is assigned; ten at once spend it exactly", async () => {
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
  const [clock] = await world.sql`select (extract(epoch from clock_timestamp()) * 1000)::bigint as ms`;
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
  const find = async (query: Parameters<typeof usage>[1]) => {
    const { rows, hasMore } = await usage(world.deps, { accountId: person.accountId, ...query });
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
  expect((await usage(world.deps, {})).rows).toHaveLength(6);
  const [newest] = (await usage(world.deps, { accountId: person.accountId, limit: 1 })).rows;
  expect(newest).toMatchObject({
    promptTokens: 1,
    completionTokens: 2,
    chargedNanoUsd: 0n,
    mode: "payg",
    createdAt: at(0),
  });
});

test("the invariants are seven and hold; a tampered counter shows", async () => {
  const results = await checkInvariants(world.deps);
  expect(results.length).toBeGreaterThanOrEqual(7);
  expect(results.filter(({ rows }) => rows > 0)).toEqual([]);
  const person = await world.addCustomer();
  await world.sql`update balances set balance_nano_usd = 5 where account_id = ${person.accountId}`;
  expect((await checkInvariants(world.deps)).filter(({ rows }) => rows > 0)).toEqual([
    { name: "inv_balance_entries", rows: 1 },
  ]);
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
