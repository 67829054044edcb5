import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { digestOfVoucher, newVoucherCode } from "../../src/commerce/voucher_codes.ts";
import { redeemVoucher } from "../../src/commerce/voucher_redemption_store.ts";
import {
  createBatch,
  disableBatch,
  findBatch,
  listBatches,
  listUses,
  type NewBatch,
  pruneVouchers,
} from "../../src/commerce/vouchers_store.ts";
import { addBalance } from "../../src/ledger/balances_store.ts";
import { type AccountsWorld, createAccountsWorld } from "../accounts/accounts_world.ts";
import type { Person } from "../world.ts";

/** Vouchers: made once, redeemed exactly as often as they have uses, and paid for by their seller. Source: VOU-1, VOU-2, VOU-3, VOU-4, VOU-5, VOU-7. */

/** Enough connections, so that the calls really are concurrent. */
const AT_ONCE = 40;
const USD = 1_000_000_000n;
const SLOW_MS = 180_000;
const UNKNOWN = "unknown";

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

const later = (days = 30) => new Date(world.unixMs() + days * 86_400_000).toISOString();
const create = (over: Partial<NewBatch> = {}) =>
  createBatch(deps, {
    sellerId: 0,
    name: "spring",
    offeringId: null,
    amountNanoUsd: 5n * USD,
    codes: 1,
    usesPerCode: 1,
    endsAt: later(),
    ...over,
  });
const codeOf = async (over: Partial<NewBatch> = {}) => {
  const { batch, codes } = await create(over);
  return { batch, code: String(codes[0]?.code), voucherId: Number(codes[0]?.voucherId) };
};
/** Tries again after a lock time-out, as a person does after a 503. */
async function redeem({ accountId }: Person, code: string): Promise<Awaited<ReturnType<typeof redeemVoucher>>> {
  try {
    return await redeemVoucher(deps, { accountId, code });
  } catch (error) {
    if (!(error instanceof Error) || !error.message.startsWith("Failed query")) throw error;
    return redeem({ accountId }, code);
  }
}
const balanceOf = async ({ accountId }: Person) => {
  const [row] = await world.sql`select balance_nano_usd::text as nano from balances where account_id = ${accountId}`;
  return BigInt(String(row?.nano));
};
const packagesOf = async ({ accountId }: Person) =>
  (await world.sql`select id from packages where account_id = ${accountId}`).length;
const customers = (many: number, resellerId?: number) =>
  Promise.all(Array.from({ length: many }, () => world.addCustomer(resellerId)));
/** The number of redemptions, and of each refusal. */
async function outcomes(work: readonly Promise<unknown>[]): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for (const ended of await Promise.allSettled(work)) {
    const name =
      ended.status === "rejected" ? String(ended.reason.message) : ended.value === UNKNOWN ? UNKNOWN : "redeemed";
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}
const REDEEMED = "This voucher has already been redeemed.";
const stays = "The voucher is valid, but cannot be redeemed right now. It stays unused.";

describe("codes", () => {
  test("a code has 20 characters without look-alikes, and only its digest is stored", async () => {
    const { codes } = await create({ codes: 50 });
    expect(new Set(codes.map(({ code }) => code)).size).toBe(50);
    for (const { code } of codes) expect(code).toMatch(/^(?:[0-9A-HJKMNP-TV-Z]{4}-){4}[0-9A-HJKMNP-TV-Z]{4}$/);
    const dump = JSON.stringify(await world.sql`select v.*, encode(digest, 'hex') as hex from vouchers v`);
    const audit = JSON.stringify(await world.sql`select * from audit_entries`);
    for (const { code } of codes) {
      for (const form of [code, code.replaceAll("-", "")]) {
        expect(dump).not.toContain(form);
        expect(audit).not.toContain(form);
      }
    }
  });

  test("case, spaces, hyphens of any kind, look-alikes and full-width letters do not matter", () => {
    for (let i = 0; i < 50; i++) {
      const { code, digest } = newVoucherCode();
      const plain = code.replaceAll("-", "");
      for (const typed of [
        plain,
        code.toLowerCase(),
        `  ${[...plain].join(" ")}\n`,
        code.replaceAll("-", "–"),
        code.replaceAll("-", " - "),
        code.replaceAll("-", "\u00a0"),
        `\u200b${code}\u200e`,
        code.replaceAll("1", "l").replaceAll("0", "o"),
        code.replaceAll("1", "I").replaceAll("0", "O"),
        [...plain].map((char) => String.fromCodePoint(char.charCodeAt(0) + 0xfee0)).join(""),
      ])
        expect(digestOfVoucher(typed)?.equals(digest)).toBe(true);
    }
  });

  test("any text that is not a code gets the answer of an unknown code", async () => {
    const { code } = await codeOf();
    const person = await world.addCustomer();
    for (const typed of [
      "",
      " ",
      "-",
      code.slice(1),
      `${code}0`,
      "U".repeat(20),
      "x".repeat(10_000),
      "\0",
      "' or 1=1 --",
    ])
      expect(await redeem(person, typed)).toBe(UNKNOWN);
    expect(await balanceOf(person)).toBe(0n);
  });
});

describe("making a batch", () => {
  test("bad input is refused with its field, and no voucher is made", async () => {
    const offeringId = await world.addOffering();
    const before = (await listBatches(deps, { sellerId: 0 })).rows.length;
    for (const [over, param] of [
      [{ amountNanoUsd: 0n }, "amountNanoUsd"],
      [{ amountNanoUsd: -5n * USD }, "amountNanoUsd"],
      [{ amountNanoUsd: 9_000_001n * USD }, "amountNanoUsd"],
      [{ amountNanoUsd: 1n }, "amountNanoUsd"],
      [{ amountNanoUsd: null }, "offeringId"],
      [{ offeringId }, "offeringId"],
      [{ offeringId: 999_999, amountNanoUsd: null }, "offeringId"],
      [{ offeringId: Number.NaN, amountNanoUsd: null }, "offeringId"],
      [{ codes: 0 }, "codes"],
      [{ codes: 10_001 }, "codes"],
      [{ codes: 1.5 }, "codes"],
      [{ usesPerCode: 0 }, "usesPerCode"],
      [{ usesPerCode: 100_001 }, "usesPerCode"],
      [{ endsAt: later(-1) }, "endsAt"],
      [{ endsAt: later(365 * 6) }, "endsAt"],
      [{ endsAt: "soon" }, "endsAt"],
      [{ name: " " }, "name"],
      [{ name: "x".repeat(10_000) }, "name"],
      [{ name: "two\nlines" }, "name"],
      [{ name: "nul\0" }, "name"],
      [{ payWith: "balance" }, "payWith"],
    ] as [Partial<NewBatch>, string][])
      await expect(create(over)).rejects.toMatchObject({ name: "InputError", param });
    const reseller = (await world.addReseller()).accountId;
    await expect(create({ sellerId: reseller, payWith: "operator" })).rejects.toMatchObject({ param: "payWith" });
    await expect(create({ sellerId: reseller, payWith: "allotment" })).rejects.toMatchObject({ param: "payWith" });
    expect((await listBatches(deps, { sellerId: 0 })).rows.length).toBe(before);
  });

  test(
    "ten thousand codes are made in one batch, all different, in the order of their ids",
    async () => {
      const { batch, codes } = await create({ codes: 10_000 });
      expect(batch).toMatchObject({ codes: 10_000, used: 0, left: 10_000, state: "active" });
      expect(new Set(codes.map(({ code }) => code)).size).toBe(10_000);
      const ids = codes.map(({ voucherId }) => voucherId);
      expect(ids).toEqual([...ids].sort((a, b) => a - b));
      expect(ids[0]).toBeGreaterThan(0);
    },
    SLOW_MS,
  );
});

describe("redeeming", () => {
  test("the operator's amount is added to the balance, and the transaction names the voucher", async () => {
    const person = await world.addCustomer();
    const { code, voucherId, batch } = await codeOf();
    expect(await redeem(person, code)).toEqual({ voucherId, package: null, amountNanoUsd: 5n * USD });
    expect(await balanceOf(person)).toBe(5n * USD);
    const [entry] = await world.sql`select kind, reason from balance_entries where account_id = ${person.accountId}`;
    expect(entry).toEqual({ kind: "top_up", reason: `voucher ${voucherId}` });
    expect(await findBatch(deps, batch)).toMatchObject({ used: 1, left: 0, state: "used_up" });
    expect((await listUses(deps, batch)).rows).toMatchObject([
      { voucherId, suffix: code.slice(-4), account: { accountId: person.accountId } },
    ]);
  });

  test("a package follows those that the account has, and no package is dropped", async () => {
    const person = await world.addCustomer();
    const offeringId = await world.addOffering({ days: 7 });
    await world.assign(person, offeringId);
    const { code } = await codeOf({ offeringId, amountNanoUsd: null });
    expect(await redeem(person, code)).toMatchObject({ package: { offeringId, state: "queued" } });
    expect(await packagesOf(person)).toBe(2);
    const other = await world.addCustomer();
    const second = await codeOf({ offeringId, amountNanoUsd: null });
    expect(await redeem(other, second.code)).toMatchObject({ package: { state: "active" } });
  });

  test("a reseller pays at redemption, by transfer, wholesale price or allotment; its transaction names the voucher", async () => {
    const reseller = await world.addReseller();
    const sellerId = reseller.accountId;
    const [one, two, three] = await customers(3, sellerId);
    await addBalance(deps, { accountId: sellerId, nanoUsd: 20n * USD, kind: "top_up", reason: "test", actorId: null });
    const offeringId = await world.addOffering({ wholesaleNanoUsd: 4n * USD });
    const amount = await codeOf({ sellerId });
    const wholesale = await codeOf({ sellerId, offeringId, amountNanoUsd: null });
    const piece = await codeOf({ sellerId, offeringId, amountNanoUsd: null, payWith: "allotment" });
    expect(await balanceOf(reseller)).toBe(20n * USD);
    await redeem(one as Person, amount.code);
    await redeem(two as Person, wholesale.code);
    expect(await balanceOf(reseller)).toBe(11n * USD);
    expect(await balanceOf(one as Person)).toBe(5n * USD);
    await world.sql`insert into allotments (reseller_id, offering_id, granted) values (${sellerId}, ${offeringId}, 1)`;
    await redeem(three as Person, piece.code);
    expect(await balanceOf(reseller)).toBe(11n * USD);
    const reasons = await world.sql`
      select kind, reason from balance_entries where account_id = ${sellerId} and amount_nano_usd < 0 order by id`;
    expect(reasons.map(({ kind, reason }) => [kind, reason])).toEqual([
      ["transfer", `voucher ${amount.voucherId}`],
      ["wholesale", `voucher ${wholesale.voucherId}`],
    ]);
  });

  test("a code that its seller cannot pay for stays unused and reveals no balance; the seller sees why", async () => {
    const reseller = await world.addReseller();
    const sellerId = reseller.accountId;
    const person = await world.addCustomer(sellerId);
    await addBalance(deps, { accountId: sellerId, nanoUsd: 3n * USD, kind: "top_up", reason: "test", actorId: null });
    const offeringId = await world.addOffering({ wholesaleNanoUsd: 4n * USD });
    const amount = await codeOf({ sellerId });
    const wholesale = await codeOf({ sellerId, offeringId, amountNanoUsd: null });
    const piece = await codeOf({ sellerId, offeringId, amountNanoUsd: null, payWith: "allotment" });
    for (const { code } of [amount, wholesale, piece])
      await expect(redeem(person, code)).rejects.toMatchObject({
        name: "InputError",
        param: "code",
        message: expect.stringContaining(stays),
      });
    expect(await findBatch(deps, amount.batch)).toMatchObject({ used: 0, problem: { why: "balance", count: 1 } });
    expect(await findBatch(deps, piece.batch)).toMatchObject({ used: 0, problem: { why: "allotment", count: 1 } });
    await world.sql`update offerings set enabled = false where id = ${offeringId}`;
    await expect(redeem(person, wholesale.code)).rejects.toThrow(stays);
    expect(await findBatch(deps, wholesale.batch)).toMatchObject({ problem: { why: "offering", count: 2 } });
    expect([await balanceOf(person), await packagesOf(person)]).toEqual([0n, 0]);
    await addBalance(deps, { accountId: sellerId, nanoUsd: 2n * USD, kind: "top_up", reason: "test", actorId: null });
    await redeem(person, amount.code);
    expect([await balanceOf(person), await balanceOf(reseller)]).toEqual([5n * USD, 0n]);
  });

  test("a code works only for the customers of its seller; for all others it is unknown", async () => {
    const [acme, rival] = [await world.addReseller(), await world.addReseller()];
    await addBalance(deps, {
      accountId: acme.accountId,
      nanoUsd: USD * 50n,
      kind: "top_up",
      reason: "t",
      actorId: null,
    });
    const [ours, theirs, house] = [
      await world.addCustomer(acme.accountId),
      await world.addCustomer(rival.accountId),
      await world.addCustomer(),
    ];
    const { code } = await codeOf({ sellerId: acme.accountId, usesPerCode: 10 });
    for (const person of [theirs, house, acme, rival]) expect(await redeem(person, code)).toBe(UNKNOWN);
    expect(await redeem(ours, code)).toMatchObject({ amountNanoUsd: 5n * USD });
    const operators = await codeOf({ usesPerCode: 10 });
    expect(await redeem(ours, operators.code)).toBe(UNKNOWN);
    // Resellers are customers of the operator.
    expect(await redeem(rival, operators.code)).toMatchObject({ amountNanoUsd: 5n * USD });
    expect(await redeemVoucher(deps, { accountId: 999_999, code })).toBe(UNKNOWN);
  });

  test("expired and disabled codes are refused with the reason; redeemed packages and amounts stay", async () => {
    const [one, two] = await customers(2);
    const { code, batch } = await codeOf({ usesPerCode: 5 });
    await redeem(one as Person, code);
    await world.setClock(later(31));
    await expect(redeem(two as Person, code)).rejects.toMatchObject({
      message: expect.stringContaining("ended on"),
      param: "code",
    });
    await world.setClock(null);
    await disableBatch(deps, batch);
    await expect(redeem(two as Person, code)).rejects.toThrow("withdrawn by its seller");
    await expect(disableBatch(deps, batch)).rejects.toThrow("already revoked");
    expect(await balanceOf(one as Person)).toBe(5n * USD);
    expect(await balanceOf(two as Person)).toBe(0n);
    await expect(disableBatch(deps, { ...batch, sellerId: 7 })).rejects.toMatchObject({ code: "not_found" });
    await expect(findBatch(deps, { sellerId: 0, batchId: Number.NaN })).rejects.toMatchObject({ code: "not_found" });
  });

  test("an amount that would raise a balance above its limit is refused, and the code stays unused", async () => {
    const person = await world.addCustomer();
    const { code, batch } = await codeOf({ amountNanoUsd: 9_000_000n * USD, usesPerCode: 2 });
    await world.setBalance(person, USD);
    await expect(redeem(person, code)).rejects.toMatchObject({
      param: "code",
      message: expect.stringContaining("9,000,000"),
    });
    expect(await findBatch(deps, batch)).toMatchObject({ used: 0, problem: null });
  });
});

describe("races", () => {
  test(
    "one of 200 people who redeem a code concurrently gets it",
    async () => {
      const people = await customers(200);
      const { code, batch } = await codeOf();
      expect(await outcomes(people.map((person) => redeem(person, code)))).toEqual({ redeemed: 1, [REDEEMED]: 199 });
      const sums = await Promise.all(people.map(balanceOf));
      expect(sums.reduce((sum, each) => sum + each)).toBe(5n * USD);
      expect(await findBatch(deps, batch)).toMatchObject({ used: 1, left: 0 });
    },
    SLOW_MS,
  );

  test(
    "exactly 30 of 200 customers who redeem a code for 30 concurrently get a package, and the reseller pays for 30",
    async () => {
      const reseller = await world.addReseller();
      const sellerId = reseller.accountId;
      const people = await customers(200, sellerId);
      await addBalance(deps, { accountId: sellerId, nanoUsd: 1000n * USD, kind: "top_up", reason: "t", actorId: null });
      const offeringId = await world.addOffering({ wholesaleNanoUsd: 4n * USD });
      const { code, batch } = await codeOf({ sellerId, offeringId, amountNanoUsd: null, usesPerCode: 30 });
      expect(await outcomes(people.map((person) => redeem(person, code)))).toEqual({ redeemed: 30, [REDEEMED]: 170 });
      expect((await Promise.all(people.map(packagesOf))).reduce((sum, n) => sum + n)).toBe(30);
      expect(await balanceOf(reseller)).toBe(880n * USD);
      expect(await findBatch(deps, batch)).toMatchObject({ used: 30, left: 0 });
    },
    SLOW_MS,
  );

  test(
    "50 concurrent attempts of one account with a code for many redeem it once",
    async () => {
      const person = await world.addCustomer();
      const { code } = await codeOf({ usesPerCode: 100 });
      const ended = await outcomes(Array.from({ length: 50 }, () => redeem(person, code)));
      expect(ended).toEqual({ redeemed: 1, "You have already redeemed this voucher.": 49 });
      expect(await balanceOf(person)).toBe(5n * USD);
    },
    SLOW_MS,
  );

  test(
    "exactly 10 of 100 codes are redeemed on a balance for 10, and the others stay unused",
    async () => {
      const reseller = await world.addReseller();
      const sellerId = reseller.accountId;
      const people = await customers(100, sellerId);
      await addBalance(deps, { accountId: sellerId, nanoUsd: 52n * USD, kind: "top_up", reason: "t", actorId: null });
      const { codes, batch } = await create({ sellerId, codes: 100 });
      const ended = await outcomes(people.map((person, i) => redeem(person, String(codes[i]?.code))));
      expect(ended.redeemed).toBe(10);
      expect(Object.keys(ended).filter((name) => name !== "redeemed" && !name.startsWith(stays))).toEqual([]);
      expect(await balanceOf(reseller)).toBe(2n * USD);
      expect(await findBatch(deps, batch)).toMatchObject({
        used: 10,
        left: 90,
        problem: { why: "balance", count: 90 },
      });
    },
    SLOW_MS,
  );

  test(
    "nothing is redeemed once the disabling of a code has returned, while 60 redeem it",
    async () => {
      const people = await customers(80);
      const { code, batch } = await codeOf({ usesPerCode: 1000 });
      const first = people.slice(0, 60).map((person) => redeem(person, code));
      const [ended] = await Promise.all([outcomes(first), disableBatch(deps, batch)]);
      const late = await outcomes(people.slice(60).map((person) => redeem(person, code)));
      expect(late).toEqual({ "This voucher was withdrawn by its seller.": 20 });
      const sums = await Promise.all(people.map(balanceOf));
      expect(sums.reduce((sum, each) => sum + each)).toBe(BigInt(ended.redeemed ?? 0) * 5n * USD);
      expect(await findBatch(deps, batch)).toMatchObject({ used: ended.redeemed ?? 0, state: "disabled" });
    },
    SLOW_MS,
  );
});

describe("the limits of a seller", () => {
  /** A batch of so many codes, made hours ago and ended since, in a row of its own. */
  const hadMade = (sellerId: number, { codes, hours }: { codes: number; hours: number }) => world.sql`
    insert into voucher_batches (seller_id, name, amount_nano_usd, pay_with, codes, uses_per_code, ends_at, created_at)
    select ${sellerId}, 'old', 1, 'balance', ${codes}, 1, made + interval '30 seconds', made
    from (select clock_timestamp() - make_interval(hours => ${hours}) as made) as at`;
  const madeBy = async (sellerId: number) => {
    const [row] = await world.sql`
      select coalesce(sum(codes), 0)::int as codes, (select count(*)::int from vouchers v join voucher_batches b on b.id = v.batch_id
        where b.seller_id = ${sellerId}) as rows from voucher_batches where seller_id = ${sellerId}`;
    return { ...row };
  };
  const seller = async () => (await world.addReseller()).accountId;

  test("100,000 codes within 24 hours, also of batches that have ended: the refusal says how many are left", async () => {
    const sellerId = await seller();
    await hadMade(sellerId, { codes: 500_000, hours: 25 });
    await hadMade(sellerId, { codes: 99_900, hours: 23 });
    await expect(create({ sellerId, codes: 101 })).rejects.toMatchObject({
      param: "codes",
      message: "You can make 100,000 codes within 24 hours. 100 are left.",
    });
    expect((await create({ sellerId, codes: 100 })).codes).toHaveLength(100);
    await expect(create({ sellerId })).rejects.toThrow("You can make 100,000 codes within 24 hours. 0 are left.");
    expect((await create({ sellerId: await seller() })).codes).toHaveLength(1);
  });

  test("1,000,000 codes that are kept, and 200 batches within 24 hours", async () => {
    const [many, batches] = [await seller(), await seller()];
    await hadMade(many, { codes: 999_999, hours: 1_000 });
    await expect(create({ sellerId: many, codes: 2 })).rejects.toThrow(
      "You can have 1,000,000 codes, ended ones included. 1 are left.",
    );
    for (let i = 0; i < 200; i++) await hadMade(batches, { codes: 1, hours: 1 });
    await expect(create({ sellerId: batches })).rejects.toThrow("You have made 200 batches within 24 hours");
  });

  test("hold for concurrent batches, exactly", async () => {
    const sellerId = await seller();
    await hadMade(sellerId, { codes: 98_000, hours: 1 });
    const ended = await Promise.allSettled(Array.from({ length: 10 }, () => create({ sellerId, codes: 1_000 })));
    expect(ended.filter(({ status }) => status === "fulfilled")).toHaveLength(2);
    expect(await madeBy(sellerId)).toEqual({ codes: 100_000, rows: 2_000 });
  });

  test("a batch whose client leaves while it is written is not made, and counts for nothing", async () => {
    const sellerId = await seller();
    const { signal } = new AbortController();
    let looks = 0;
    Object.defineProperty(signal, "aborted", { get: () => ++looks > 2 });
    const wanted = {
      ...{ sellerId, name: "cut", offeringId: null, amountNanoUsd: USD, codes: 10_000 },
      usesPerCode: 1,
    };
    await expect(createBatch(deps, { ...wanted, endsAt: later() }, { signal })).rejects.toMatchObject({
      code: "service_unavailable",
    });
    expect(looks).toBe(3);
    expect(await madeBy(sellerId)).toEqual({ codes: 0, rows: 0 });
  });
});

test("a code that is disabled while its redemption waits for a lock is refused", async () => {
  const person = await world.addCustomer();
  const { code, batch } = await codeOf();
  const lock = `select lock_accounts(array[${person.accountId}]::bigint[]);
    update voucher_batches set disabled_at = now() where id = ${batch.batchId}`;
  await expect(world.whileLocked(lock, () => redeem(person, code))).rejects.toThrow("withdrawn by its seller");
  expect(await balanceOf(person)).toBe(0n);
});

test("batches that ended long ago are deleted with their codes; packages and transactions stay", async () => {
  const person = await world.addCustomer();
  const { code, batch } = await codeOf();
  const kept = await codeOf();
  await redeem(person, code);
  await world.sql`update voucher_batches set ends_at = now() - interval '100 days' where id = ${batch.batchId}`;
  expect(await pruneVouchers(deps, 101)).toBe(0);
  expect(await pruneVouchers(deps, 99)).toBe(1);
  await expect(findBatch(deps, batch)).rejects.toMatchObject({ code: "not_found" });
  expect(await findBatch(deps, kept.batch)).toMatchObject({ codes: 1 });
  expect(await world.sql`select 1 from voucher_uses where account_id = ${person.accountId}`).toHaveLength(0);
  expect(await redeem(await world.addCustomer(), code)).toBe(UNKNOWN);
  expect(await balanceOf(person)).toBe(5n * USD);
});
