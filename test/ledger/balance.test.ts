import { afterAll, beforeAll, expect, test } from "bun:test";
import type { ReserveRequest } from "../../src/ledger/ledger_store.ts";
import { createWorld, type World } from "../world.ts";
import { codeOf, type OpenLedger, openWorldLedger, reapLease, requestFor, usageOf } from "./ledger_world.ts";

/** Source: PAY-1, PAY-3, MON-2, MON-6, MON-7. */

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

/** 1,000 pico a token, both ways: a cap of 1,000 tokens holds 1,000 nano-USD. */
const PRICED: Partial<ReserveRequest> = { promptPico: 0n, outputPico: 1000n };

async function customer(nanoUsd: bigint | null, mode: "package" | "payg" = "payg") {
  const person = await world.addCustomer();
  const key = await world.addKey(person, { mode });
  if (nanoUsd !== null) await world.setBalance(person, nanoUsd);
  return {
    person,
    ask: (over?: Partial<ReserveRequest>) => open.ledger.reserve(requestFor(person, key, { ...PRICED, ...over })),
    async balance() {
      const [row] =
        await world.sql`select balance_nano_usd, held_nano_usd from balances where account_id = ${person.accountId}`;
      return [Number(row?.balance_nano_usd), Number(row?.held_nano_usd)];
    },
  };
}

test("a hold reserves the bound from the available balance; settling releases the difference", async () => {
  const { ask, balance } = await customer(5000n);
  const hold = await ask();
  expect(hold).toMatchObject({ mode: "payg", heldNanoUsd: 1000n, capTokens: 1000 });
  expect(await balance()).toEqual([5000, 1000]);
  await open.ledger.settle(hold, usageOf({ chargeNanoUsd: 300n }));
  expect(await balance()).toEqual([4700, 0]);
});

test("a released hold costs nothing", async () => {
  const { ask, balance } = await customer(5000n);
  await open.ledger.release(await ask(), "provider_failed");
  expect(await balance()).toEqual([5000, 0]);
});

test("insufficient_balance when the balance does not cover the client's cap; a default cap is lowered to the minimum at most", async () => {
  const { ask } = await customer(600n);
  expect(await codeOf(ask({ capMax: 1000, capMin: 1000 }))).toBe("insufficient_balance");
  expect(await codeOf(ask({ capMax: 1000, capMin: 700 }))).toBe("insufficient_balance");
  const hold = await ask({ capMax: 1000, capMin: 256, promptPico: 100_000n });
  expect(hold).toMatchObject({ capTokens: 500, heldNanoUsd: 600n });
});

test("mode payg: package_required while payg is disabled, insufficient_balance when enabled and empty, payg_pricing_unavailable without a price", async () => {
  expect(await codeOf((await customer(null)).ask())).toBe("package_required");
  const { person, ask } = await customer(null);
  await world.sql`select set_payg(${person.accountId}, true)`;
  expect(await codeOf(ask())).toBe("insufficient_balance");
  await world.setBalance(person, 5000n);
  expect(await codeOf(ask({ outputPico: -1n }))).toBe("payg_pricing_unavailable");
});

test("mode package: the package first, then the balance; the package's own refusal while payg is disabled or the balance is empty", async () => {
  const { person, ask } = await customer(null, "package");
  await world.givePackage(person, { dailyLimit: 1, days: 2 });
  expect((await ask()).mode).toBe("package");
  expect(await codeOf(ask())).toBe("daily_quota_exceeded");
  await world.sql`select set_payg(${person.accountId}, true)`;
  expect(await codeOf(ask())).toBe("daily_quota_exceeded");
  await world.setBalance(person, 1500n);
  expect((await ask()).mode).toBe("payg");
  // The balance is above zero, but the rest is held: it was chosen, and does not suffice.
  expect(await codeOf(ask())).toBe("insufficient_balance");
});

test("an overrun that the balance covers is charged beyond the hold", async () => {
  const { ask, balance } = await customer(5000n);
  const settlement = await open.ledger.settle(await ask(), usageOf({ chargeNanoUsd: 1400n }));
  expect(settlement).toMatchObject({ chargedNanoUsd: 1400n, shortfallNanoUsd: 0n });
  expect(await balance()).toEqual([3600, 0]);
});

test("an overrun that the balance does not cover: an answer that was not sent is refused and costs nothing; a streamed one costs the hold, and the whole rest is the operator's loss", async () => {
  const unsent = await customer(1200n);
  expect(
    await codeOf(open.ledger.settle(await unsent.ask(), usageOf({ chargeNanoUsd: 1400n }), { strict: true })),
  ).toBe("insufficient_balance");
  expect(await unsent.balance()).toEqual([1200, 0]);

  const streamed = await customer(1200n);
  const settlement = await open.ledger.settle(await streamed.ask(), usageOf({ chargeNanoUsd: 1400n }));
  expect(settlement).toMatchObject({ chargedNanoUsd: 1000n, shortfallNanoUsd: 400n });
  expect(await streamed.balance()).toEqual([200, 0]);
});

test("a streamed overrun of a thousand times the hold leaves the rest of the balance alone", async () => {
  const { ask, balance } = await customer(900_000n);
  const settlement = await open.ledger.settle(await ask(), usageOf({ chargeNanoUsd: 1_000_000n }));
  expect(settlement).toMatchObject({ chargedNanoUsd: 1000n, shortfallNanoUsd: 999_000n });
  expect(await balance()).toEqual([899_000, 0]);
});

test("a late settlement takes no more than its hold was, unless the balance covers the whole charge, and is never refused", async () => {
  for (const [balanceNano, charged, strict] of [
    [5000n, 1000n, false],
    [5000n, 1000n, true],
    [9000n, 7000n, false],
    [700n, 700n, false],
  ] as const) {
    const { person, ask, balance } = await customer(1000n);
    const hold = await ask();
    await reapLease(world, hold.leaseId);
    await world.sql`select add_balance(${person.accountId}, ${String(balanceNano - 1000n)}, 'correction', 'test', null)`;
    expect(await open.ledger.settle(hold, usageOf({ chargeNanoUsd: 7000n }), { strict })).toMatchObject({
      chargedNanoUsd: charged,
      shortfallNanoUsd: 7000n - charged,
    });
    expect(await balance()).toEqual([Number(balanceNano - charged), 0]);
  }
});

test("every change of a balance appends a transaction, and a correction cannot take reserved money", async () => {
  const { person, ask } = await customer(2000n);
  const hold = await ask();
  const [taken] =
    await world.sql`select code, balance from add_balance(${person.accountId}, -1500, 'correction', 'too much', null)`;
  expect({ ...taken }).toEqual({ code: "refused", balance: null });
  await open.ledger.settle(hold, usageOf({ chargeNanoUsd: 10n }));
  const rows =
    await world.sql`select amount_nano_usd, kind, request_id from balance_entries where account_id = ${person.accountId} order by id`;
  expect(rows.map((row) => [Number(row.amount_nano_usd), row.kind, row.request_id])).toEqual([
    [2000, "top_up", null],
    [-10, "charge", hold.requestId],
  ]);
});

test("a reseller's assignment is paid from its balance in the same transaction, or refused with insufficient_balance and nothing written", async () => {
  const reseller = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  const offering = await world.addOffering({ wholesaleNanoUsd: 700n });
  expect((await world.assign(person, offering, "now", reseller)).code).toBe("insufficient_balance");
  expect(await world.sql`select id from packages where account_id = ${person.accountId}`).toHaveLength(0);
  await world.setBalance(reseller, 1000n);
  expect((await world.assign(person, offering, "now", reseller)).code).toBeNull();
  const [row] = await world.sql`select balance_nano_usd from balances where account_id = ${reseller.accountId}`;
  expect(Number(row?.balance_nano_usd)).toBe(300);
});

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
});
