import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  allotmentsOf,
  type Grant,
  grantAllotment,
  listAllotments,
  withdrawAllotment,
} from "../../src/ledger/allotments_store.ts";
import { addBalance, transferBalance } from "../../src/ledger/balances_store.ts";
import { assignPackage } from "../../src/ledger/packages_store.ts";
import { type AccountsWorld, createAccountsWorld } from "../accounts/accounts_world.ts";
import type { Person } from "../world.ts";
import { codeOf, tally } from "./ledger_world.ts";

/**
 * Every assigned package is paid for, by the balance or by a piece of an allotment, under any concurrency. Money that moves
 * between accounts is neither created nor lost. Source: RES-1, RES-2, RES-3.
 */

/** Enough connections, so that the calls really are concurrent. */
const AT_ONCE = 25;
const USD = 1_000_000_000n;

let world: AccountsWorld;
let deps: AccountsWorld["deps"];
beforeAll(async () => {
  world = await createAccountsWorld({ connections: AT_ONCE });
  deps = world.deps;
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await world.close();
});

const grant = (reseller: Person, offeringId: number, pieces: number, over: Partial<Grant> = {}) =>
  grantAllotment(deps, {
    resellerId: reseller.accountId,
    offeringId,
    pieces,
    reason: "launch offer",
    actorId: null,
    ...over,
  });
const assign = (person: Person, offeringId: number, payer: Person, fromAllotment = true) =>
  assignPackage(deps, {
    accountId: person.accountId,
    offeringId,
    when: "after",
    payerId: payer.accountId,
    fromAllotment,
    actorId: null,
  });
const topUp = ({ accountId }: Person, nanoUsd: bigint) =>
  addBalance(deps, { accountId, nanoUsd, kind: "top_up", reason: "test", actorId: null });
const balanceOf = async ({ accountId }: Person) => {
  const [row] = await world.sql`select balance_nano_usd::text as nano from balances where account_id = ${accountId}`;
  return BigInt(String(row?.nano));
};
const packagesOf = async ({ accountId }: Person) => {
  const [row] = await world.sql`select count(*)::int as packages from packages where account_id = ${accountId}`;
  return Number(row?.packages);
};
/** The result of each call: "granted", a refusal's code, or the sentence of an InputError. */
const outcomes = async (work: Promise<unknown>[]) =>
  tally(
    await Promise.all(
      work.map((one) => codeOf(one).catch((error: unknown) => (error instanceof Error ? error.message : "?"))),
    ),
  );

async function shopOf({ customers = 1, wholesaleNanoUsd = 4n * USD } = {}) {
  const reseller = await world.addReseller();
  const people = await Promise.all(Array.from({ length: customers }, () => world.addCustomer(reseller.accountId)));
  return { reseller, people, customer: people[0] as Person, offeringId: await world.addOffering({ wholesaleNanoUsd }) };
}

test("a package paid by allotment costs no money, uses the oldest grant, and refers to it", async () => {
  const { reseller, customer, offeringId } = await shopOf();
  const first = await grant(reseller, offeringId, 1);
  const second = await grant(reseller, offeringId, 2);
  expect(await assign(customer, offeringId, reseller)).toMatchObject({
    allotmentId: first.allotmentId,
    paidByAccountId: reseller.accountId,
  });
  expect(await assign(reseller, offeringId, reseller)).toMatchObject({ allotmentId: second.allotmentId });
  expect(await allotmentsOf(deps, reseller.accountId)).toMatchObject([{ offeringId, granted: 3, used: 2, left: 1 }]);
  const { rows, hasMore } = await listAllotments(deps, { resellerId: reseller.accountId, limit: 1 });
  expect({ rows, hasMore }).toMatchObject({ rows: [{ allotmentId: second.allotmentId, left: 1 }], hasMore: true });
  expect(await listAllotments(deps, { resellerId: reseller.accountId, before: second.allotmentId })).toMatchObject({
    rows: [{ allotmentId: first.allotmentId, left: 0, reason: "launch offer" }],
    hasMore: false,
  });
  const entries = await world.sql`select 1 from balance_entries where account_id = ${reseller.accountId}`;
  expect(entries).toHaveLength(0);
});

test("a piece is valid for one reseller and one offering; without a piece nothing is assigned or paid", async () => {
  const { reseller, customer, offeringId } = await shopOf();
  const other = await shopOf();
  await topUp(reseller, 100n * USD);
  await grant(other.reseller, offeringId, 5);
  await grant(reseller, other.offeringId, 5);
  await expect(assign(customer, offeringId, reseller)).rejects.toMatchObject({
    message: expect.stringContaining("allotment"),
    param: "payWith",
  });
  // Without a payer there is no allotment.
  const nobodys = { accountId: customer.accountId, offeringId, when: "now", actorId: null } as const;
  await expect(assignPackage(deps, { ...nobodys, payerId: null, fromAllotment: true })).rejects.toThrow("allotment");
  expect([await packagesOf(customer), await balanceOf(reseller)]).toEqual([0, 100n * USD]);
});

test("a grant has 1 to 100,000 pieces of an offering for sale and belongs to a reseller", async () => {
  const { reseller, customer, offeringId } = await shopOf();
  for (const pieces of [0, -1, 1.5, 100_001, Number.NaN])
    await expect(grant(reseller, offeringId, pieces)).rejects.toThrow("1 to 100000");
  await expect(grant(customer, offeringId, 1)).rejects.toThrow("no such reseller");
  await expect(grant({ accountId: 999_999 }, offeringId, 1)).rejects.toThrow("no such reseller");
  await expect(grant(reseller, 999_999, 1)).rejects.toThrow("no such offering");
  await world.sql`update offerings set enabled = false where id = ${offeringId}`;
  await expect(grant(reseller, offeringId, 1)).rejects.toThrow("no such offering");
  await expect(grant(reseller, offeringId, 1, { reason: "two\nlines" })).rejects.toThrow("reason");
  expect(await allotmentsOf(deps, reseller.accountId)).toEqual([]);
});

test("unused pieces can be withdrawn once, under the reseller's lock", async () => {
  const { reseller, customer, offeringId } = await shopOf();
  const { allotmentId } = await grant(reseller, offeringId, 5);
  await assign(customer, offeringId, reseller);
  const lock = `select lock_accounts(array[${reseller.accountId}]::bigint[])`;
  expect(await world.whileLocked(lock, () => withdrawAllotment(deps, allotmentId))).toMatchObject({
    withdrawn: 4,
    allotment: { granted: 1, used: 1, left: 0 },
  });
  await expect(withdrawAllotment(deps, allotmentId)).rejects.toThrow("withdrawn before");
  await expect(assign(customer, offeringId, reseller)).rejects.toThrow("allotment");
  await expect(withdrawAllotment(deps, 999_999)).rejects.toMatchObject({ code: "not_found" });
  await expect(withdrawAllotment(deps, Number.NaN)).rejects.toMatchObject({ code: "not_found" });
});

test("50 concurrent assignments on a balance for 10: exactly 10 succeed and are paid", async () => {
  const { reseller, people, offeringId } = await shopOf({ customers: 5 });
  await topUp(reseller, 43n * USD);
  const work = Array.from({ length: 50 }, (_, i) => assign(people[i % 5] as Person, offeringId, reseller, false));
  expect(await outcomes(work)).toEqual({ granted: 10, insufficient_balance: 40 });
  expect(await balanceOf(reseller)).toBe(3n * USD);
  expect((await Promise.all(people.map(packagesOf))).reduce((sum, n) => sum + n)).toBe(10);
  const entries =
    await world.sql`select amount_nano_usd::text as nano, package_id from balance_entries where account_id = ${reseller.accountId} and kind = 'wholesale'`;
  expect(entries.map(({ nano }) => nano)).toEqual(Array.from({ length: 10 }, () => "-4000000000"));
  expect(new Set(entries.map(({ package_id }) => package_id)).size).toBe(10);
});

test("50 concurrent assignments on an allotment of 10: exactly 10 succeed, and no money moves", async () => {
  const { reseller, people, offeringId } = await shopOf({ customers: 5 });
  await topUp(reseller, 500n * USD);
  await grant(reseller, offeringId, 4);
  await grant(reseller, offeringId, 6);
  const work = Array.from({ length: 50 }, (_, i) => assign(people[i % 5] as Person, offeringId, reseller));
  const refused = "No piece of this offering is left in the reseller's allotment.";
  expect(await outcomes(work)).toEqual({ granted: 10, [refused]: 40 });
  expect(await allotmentsOf(deps, reseller.accountId)).toMatchObject([{ granted: 10, used: 10, left: 0 }]);
  expect(await balanceOf(reseller)).toBe(500n * USD);
});

test("withdrawn during 50 concurrent assignments: every piece is either assigned or withdrawn", async () => {
  for (let round = 0; round < 5; round++) {
    const { reseller, people, offeringId } = await shopOf({ customers: 5 });
    const { allotmentId } = await grant(reseller, offeringId, 40);
    const some = (many: number) =>
      Array.from({ length: many }, (_, i) => assign(people[i % 5] as Person, offeringId, reseller));
    const before = some(15);
    const withdrawing = withdrawAllotment(deps, allotmentId);
    const [{ withdrawn }, { granted = 0 }] = await Promise.all([withdrawing, outcomes([...before, ...some(35)])]);
    expect(withdrawn).toBeGreaterThan(0);
    expect(granted + withdrawn).toBe(40);
    expect(await allotmentsOf(deps, reseller.accountId)).toMatchObject([{ granted, used: granted, left: 0 }]);
    expect((await Promise.all(people.map(packagesOf))).reduce((sum, n) => sum + n)).toBe(granted);
  }
});

const transfer = (from: Person, to: Person, nanoUsd: bigint) =>
  transferBalance(deps, { fromId: from.accountId, toId: to.accountId, nanoUsd, reason: "test", actorId: null });

test("a transfer writes two transactions of the same amount; reserved money and more than the balance cannot be moved", async () => {
  const { reseller, customer } = await shopOf();
  await topUp(reseller, 10n * USD);
  await transfer(reseller, customer, 4n * USD);
  expect([await balanceOf(reseller), await balanceOf(customer)]).toEqual([6n * USD, 4n * USD]);
  const entries = await world.sql`
    select account_id, amount_nano_usd::text as nano, kind, reason from balance_entries
    where account_id in (${reseller.accountId}, ${customer.accountId}) and kind = 'transfer' order by id`;
  expect(entries.map((row) => [Number(row.account_id), row.nano, row.reason])).toEqual([
    [reseller.accountId, "-4000000000", "test"],
    [customer.accountId, "4000000000", "test"],
  ]);
  await expect(transfer(reseller, customer, 6n * USD + 1n)).rejects.toMatchObject({
    code: "insufficient_balance",
    facts: { remaining: Number(6n * USD) },
  });
  await world.sql`
    insert into escrows (account_id, lease_id, package_id, key_id, day, draw_number, units, tokens, nano_usd, idle_units,
      idle_nano_usd, epoch, tenant_epoch)
    values (${reseller.accountId}, gen_random_uuid(), 0, 0, '-infinity', 1, 0, 0, 5000000000, 0, 0, 0, 0)`;
  await world.sql`update balances set held_nano_usd = 5000000000 where account_id = ${reseller.accountId}`;
  await expect(transfer(reseller, customer, 2n * USD)).rejects.toMatchObject({ facts: { remaining: Number(USD) } });
  await transfer(reseller, customer, USD);
});

test("a transfer needs an amount above zero, two existing accounts, and a result within the largest balance", async () => {
  const { reseller, customer } = await shopOf();
  await topUp(reseller, 10n * USD);
  for (const nanoUsd of [0n, -1n]) await expect(transfer(reseller, customer, nanoUsd)).rejects.toThrow("above zero");
  await expect(transfer(reseller, customer, 10n ** 17n)).rejects.toThrow("at most $9,000,000");
  await expect(transfer(reseller, reseller, 1n)).rejects.toThrow("no such account");
  await expect(transfer(reseller, { accountId: 999_999 }, 1n)).rejects.toThrow("no such account");
  await expect(transfer({ accountId: 999_999 }, reseller, 1n)).rejects.toThrow("no such account");
  await expect(
    world.sql`select transfer_balance(${reseller.accountId}, ${customer.accountId}, -5, 'x', null)`,
  ).rejects.toThrow("above zero");
  await topUp(customer, 8_999_999n * USD);
  await expect(transfer(reseller, customer, 2n * USD)).rejects.toThrow("at most $9,000,000");
  expect(await balanceOf(reseller)).toBe(10n * USD);
});

test("100 concurrent transfers in both directions do not deadlock, and the sum stays the same", async () => {
  const [one, two] = [await world.addReseller(), await world.addReseller()];
  await topUp(one, 20n * USD);
  await topUp(two, 20n * USD);
  const work = Array.from({ length: 100 }, (_, i) =>
    i % 2 === 0 ? transfer(one, two, BigInt(i + 1) * (USD / 10n)) : transfer(two, one, BigInt(i) * (USD / 7n)),
  );
  const ended = await outcomes(work);
  expect(Object.keys(ended).filter((code) => code !== "granted" && code !== "insufficient_balance")).toEqual([]);
  expect(ended.granted).toBeGreaterThan(0);
  expect((await balanceOf(one)) + (await balanceOf(two))).toBe(40n * USD);
});

test("concurrent assignments, transfers and withdrawals of one reseller do not deadlock", async () => {
  const { reseller, people, offeringId } = await shopOf({ customers: 5 });
  await topUp(reseller, 1000n * USD);
  const grants = await Promise.all([1, 2, 3].map(() => grant(reseller, offeringId, 5)));
  const work: Promise<unknown>[] = people.flatMap((person) => [
    assign(person, offeringId, reseller),
    assign(person, offeringId, reseller, false),
    transfer(reseller, person, USD),
    assign(reseller, offeringId, reseller),
  ]);
  work.push(...grants.map(({ allotmentId }) => withdrawAllotment(deps, allotmentId)));
  const codes = Object.keys(await outcomes(work));
  expect(codes.filter((code) => !/^granted$|allotment|pieces/.test(code))).toEqual([]);
});
