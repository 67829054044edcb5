import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { TransactionSql } from "postgres";
import { addBalance, transferBalance } from "../../src/ledger/balances_store.ts";
import { entitlementOf } from "../../src/ledger/entitlement_store.ts";
import { Escrow } from "../../src/ledger/escrow.ts";
import type { Hold, Ledger } from "../../src/ledger/ledger.ts";
import type { ReserveRequest, ReserveResult } from "../../src/ledger/ledger_store.ts";
import { assignPackage } from "../../src/ledger/packages_store.ts";
import { type Bus, inProcessBus } from "../../src/platform/bus.ts";
import { changing, IdleMoneyError } from "../../src/platform/changes_store.ts";
import type { Db, Tx } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { createWorld, type OfferingSpec, type Person, type TestKey, type World } from "../world.ts";
import {
  codeOf,
  drawn,
  knownAs,
  type OpenLedger,
  openSqlReplica,
  openWorldLedger,
  reapLease,
  requestFor,
  tally,
  usageOf,
} from "./ledger_world.ts";

/**
 * The invariants of escrow (src/ledger/README.md), with three ledgers on one database that draw units and money ahead of
 * requests. Source: PAY-9, QUO-3, MON-2, END-13, ESC-4, REL-6.
 */
/** Long enough to stop a reply on its way. */
const REPLY_MS = 1_000;
/** A balance that pays 1,000 nano-USD for each request. */
const PRICED: Partial<ReserveRequest> = { outputPico: 1000n, capMax: 1000, capMin: 1000 };

let world: World;
let db: Db;
let bus: Bus;
const opened: OpenLedger[] = [];

beforeAll(async () => {
  world = await createWorld();
  db = world.openDb();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map((open) => open.close()));
  // The number of live leases decides how much is drawn ahead.
  for (const { id } of await world.sql`select id::text from leases where not ended`) await reapLease(world, id);
  await world.setClock(null);
  expect(await world.unbalanced()).toEqual([]);
});
afterAll(async () => {
  await db.close();
  await world.close();
});

/** A bus that delivers nothing, as if Redis were frozen. */
const frozenBus = (): Bus => ({ ...inProcessBus(createLog("silent")), publish: async () => {} });

async function openLedgers(
  count: number,
  options: Parameters<typeof openWorldLedger>[1] = {},
  over: Bus | null = inProcessBus(createLog("silent")),
): Promise<OpenLedger[]> {
  bus = over ?? frozenBus();
  const ledgers = await Promise.all(
    Array.from({ length: count }, () => openWorldLedger(world, { ...(over && { bus: over }), ...options })),
  );
  opened.push(...ledgers);
  return ledgers;
}

type Customer = Person & { key: TestKey; packageId: number; mode: "package" | "payg" };

async function addCustomer(spec: OfferingSpec | null, nanoUsd = 0n): Promise<Customer> {
  const person = await world.addCustomer();
  const mode = spec === null ? "payg" : "package";
  const packageId = spec === null ? 0 : await world.givePackage(person, spec);
  if (nanoUsd > 0n) await world.setBalance(person, nanoUsd);
  return { ...person, key: await world.addKey(person, { mode }), packageId, mode };
}

const ask = (customer: Customer, over: Partial<ReserveRequest> = {}) =>
  requestFor(customer, customer.key, { ...PRICED, known: knownAs(customer.mode), ...over });

/** Sequential requests, which stay open. */
async function reserveSome({ ledger }: { ledger: Ledger }, customer: Customer, count: number): Promise<Hold[]> {
  const holds: Hold[] = [];
  for (let i = 0; i < count; i++) holds.push(await ledger.reserve(ask(customer)));
  return holds;
}

/** Sends requests until something is drawn ahead. Returns the open ones. */
async function drawAhead(open: OpenLedger, customer: Customer, count = 6): Promise<Hold[]> {
  const holds = await reserveSome(open, customer, count);
  const { idle_units, idle_nano_usd } = await drawn(world, customer.accountId);
  expect(idle_units + idle_nano_usd).toBeGreaterThan(0);
  return holds;
}

const release = ({ ledger }: OpenLedger, holds: readonly Hold[]) =>
  Promise.all(holds.map((hold) => ledger.release(hold, "provider_failed")));

async function countersOf({ accountId, packageId }: Customer) {
  const [row] = await world.sql`
    select (select units_taken - package_drawn(packages) from packages where id = ${packageId}) as used,
      (select package_drawn(packages) from packages where id = ${packageId}) as held, balance_nano_usd::int as balance,
      (select count(*) from receipts where account_id = ${accountId} and outcome = 'settled')::int as settled
    from balances where account_id = ${accountId}`;
  return { ...row } as { used: number; held: number; balance: number; settled: number };
}

describe("never oversold", () => {
  test.each([
    { escrowUnitsMax: 256, escrowShare: 8 },
    { escrowUnitsMax: 256, escrowShare: 1 },
    { escrowUnitsMax: 4, escrowShare: 1 },
    { escrowUnitsMax: 0, escrowShare: 8 },
  ])(
    "500 concurrent requests on three ledgers for 50 units: exactly 50 are granted, the others get 402 (%o)",
    async (options) => {
      for (const withBus of [true, false]) {
        const ledgers = await openLedgers(3, options, withBus ? undefined : null);
        const units = await addCustomer({ dailyLimit: 50, days: 5 });
        const money = await addCustomer(null, 50_000n);
        const burst = (customer: Customer) =>
          Promise.all(
            Array.from({ length: 500 }, (_, i) => codeOf((ledgers[i % 3] as OpenLedger).ledger.reserve(ask(customer)))),
          );
        expect(tally(await burst(units))).toEqual({ granted: 50, daily_quota_exceeded: 450 });
        expect(tally(await burst(money))).toEqual({ granted: 50, insufficient_balance: 450 });
      }
    },
  );

  test.each([true, false])(
    "calls, units, receipts and answers agree while requests settle and fail and others arrive (bus: %p)",
    async (withBus) => {
      const ledgers = await openLedgers(3, { escrowShare: 2 }, withBus ? undefined : null);
      const limit = 150;
      const customer = await addCustomer({ dailyLimit: limit, days: 5, carryover: true });
      const seen = { settled: 0, failed: 0 };
      const worker = async (n: number) => {
        const { ledger } = ledgers[n % 3] as OpenLedger;
        for (let i = n; ; i++) {
          let hold: Hold;
          try {
            hold = await ledger.reserve(ask(customer));
          } catch (error) {
            return error instanceof Error && "code" in error ? String(error.code) : "failed";
          }
          await sleep(i % 5);
          if (i % 4 === 0) {
            await ledger.release(hold, "provider_failed");
            seen.failed++;
          } else {
            await ledger.settle(hold, usageOf());
            seen.settled++;
          }
        }
      };
      // A worker stops at 402. The next round uses the units that others release later.
      const codes: string[] = [];
      while ((await countersOf(customer)).used < limit)
        codes.push(...(await Promise.all(Array.from({ length: 24 }, (_, n) => worker(n)))));
      expect(Object.keys(tally(codes))).toEqual(["carryover_quota_exceeded"]);
      const { used, settled } = await countersOf(customer);
      expect([used, settled, seen.settled]).toEqual([limit, limit, limit]);
    },
  );
});

describe("no false refusal and no false charge while units lie unused in another replica", () => {
  test.each([true, false])("units are called back: no 402, and the balance pays nothing (bus: %p)", async (withBus) => {
    const [a, b] = (await openLedgers(2, { escrowShare: 1 }, withBus ? undefined : null)) as [OpenLedger, OpenLedger];
    for (let round = 0; round < 5; round++) {
      const customer = await addCustomer({ dailyLimit: 20, days: 5 }, 100_000n);
      const holds = await drawAhead(a, customer);
      const rest = await Promise.all(Array.from({ length: 14 }, () => b.ledger.reserve(ask(customer))));
      expect([...holds, ...rest].map(({ mode }) => mode)).toEqual(Array(20).fill("package"));
      // Now the units are used up, and the balance does pay.
      const next = await b.ledger.reserve(ask(customer));
      expect(next.mode).toBe("payg");
      await release(a, holds);
      await release(b, [...rest, next]);
    }
  });

  test("money is called back: no 402, no lower output cap, and an overrun is no loss", async () => {
    const [a, b] = (await openLedgers(2, { escrowShare: 1 })) as [OpenLedger, OpenLedger];
    const customer = await addCustomer(null, 20_000n);
    const holds = await drawAhead(a, customer);
    const rest = await Promise.all(Array.from({ length: 14 }, () => b.ledger.reserve(ask(customer, { capMin: 1 }))));
    expect(rest.map(({ capTokens }) => capTokens)).toEqual(Array(14).fill(1000));
    expect(await codeOf(b.ledger.reserve(ask(customer)))).toBe("insufficient_balance");
    await release(a, holds);
    await release(b, rest);

    const second = await addCustomer(null, 20_000n);
    const open = await drawAhead(a, second);
    const own = await b.ledger.reserve(ask(second));
    expect(await b.ledger.settle(own, usageOf({ chargeNanoUsd: 14_000n }))).toMatchObject({ shortfallNanoUsd: 0n });
    await release(a, open);
  });

  test.each(["package", "payg"] as const)(
    "a late settlement gets idle units and money of another replica: no free unit, and no loss (%s)",
    async (mode) => {
      const [late, other] = (await openLedgers(2, { escrowShare: 1 })) as [OpenLedger, OpenLedger];
      const customer = await addCustomer(mode === "package" ? { dailyLimit: 8, days: 5 } : null, 8_000n);
      const [hold] = (await reserveSome(late, customer, 1)) as [Hold];
      await reapLease(world, late.ledger.leaseId());
      const open = await drawAhead(other, customer);
      const { units, nano_usd } = await drawn(world, customer.accountId);
      // The other units are in use: only idle ones are left.
      const third = await openSqlReplica(world);
      const rest = Array.from({ length: 8 - units - nano_usd / 1_000 }, () => ask(customer));
      expect((await third.reserve(rest)).filter(({ code }) => code !== null)).toEqual([]);
      const chargeNanoUsd = mode === "package" ? 0n : 1_000n;
      expect(await late.ledger.settle(hold, usageOf({ chargeNanoUsd }))).toMatchObject({
        chargedNanoUsd: chargeNanoUsd,
      });
      const [receipt] = await world.sql`
        select units, charged_nano_usd::int as charged, reason from receipts where request_id = ${hold.requestId}`;
      expect({ ...receipt }).toEqual({
        units: mode === "package" ? 1 : 0,
        charged: Number(chargeNanoUsd),
        reason: "late",
      });
      await release(other, open);
      await reapLease(world, third.leaseId);
    },
  );

  test("their holder is dead: 503, not 402, and no charge, until its lease has ended; then they are granted", async () => {
    const [dead] = (await openLedgers(1, { escrowShare: 1 }, null)) as [OpenLedger];
    const [alive] = (await openLedgers(1, { timeoutMs: 1_500 }, null)) as [OpenLedger];
    const customer = await addCustomer({ dailyLimit: 12, days: 5 }, 100_000n);
    await drawAhead(dead, customer);
    await dead.ledger.abandon();
    const { units, idle_units } = await drawn(world, customer.accountId);
    const own = await reserveSome(alive, customer, 12 - units);
    expect(await codeOf(alive.ledger.reserve(ask(customer)))).toBe("service_unavailable");
    await reapLease(world, dead.ledger.leaseId());
    own.push(...(await reserveSome(alive, customer, units)));
    expect(own.map(({ mode }) => mode)).toEqual(Array(12).fill("package"));
    expect(idle_units).toBeGreaterThan(0);
    await release(alive, own);
  });

  test.each([true, false])(
    "a correction, a transfer and an assignment get money that lies unused in a replica (bus: %p)",
    async (withBus) => {
      const [a] = (await openLedgers(1, { escrowShare: 1 }, withBus ? undefined : null)) as [OpenLedger];
      // By this clock, which stands still, they wait for it as long as it takes.
      const deps = { db, bus, nowMs: () => 0 };
      const offeringId = await world.addOffering({ wholesaleNanoUsd: 19_000n });
      for (const take of [
        ({ accountId }: Customer) =>
          addBalance(deps, { accountId, nanoUsd: -19_000n, kind: "correction", reason: null, actorId: null }),
        async ({ accountId }: Customer) =>
          transferBalance(deps, {
            ...{ fromId: accountId, toId: (await world.addCustomer()).accountId },
            ...{ nanoUsd: 19_000n, reason: null, actorId: null },
          }),
        async ({ accountId: payerId }: Customer) =>
          assignPackage(deps, { ...(await world.addCustomer()), offeringId, when: "now", payerId, actorId: null }),
      ]) {
        const customer = await addCustomer(null, 20_000n);
        await release(a, await drawAhead(a, customer));
        await take(customer);
        expect((await countersOf(customer)).balance).toBe(1_000);
      }
    },
  );
});

test("asking the replicas for money, and a batch that writes their rows: neither waits for the other in a circle", async () => {
  const customer = await addCustomer(null, 20_000n);
  const leases = [(await openSqlReplica(world)).leaseId, (await openSqlReplica(world)).leaseId];
  for (const leaseId of leases)
    await world.sql`
      insert into escrows (account_id, lease_id, package_id, key_id, day, draw_number, units, tokens, nano_usd, idle_units,
        idle_nano_usd, epoch, tenant_epoch)
      values (${customer.accountId}, ${leaseId}, 0, 0, '-infinity', 0, 0, 0, 1000, 0, 1000, 0, 0)`;
  await world.sql`update balances set held_nano_usd = 2000 where account_id = ${customer.accountId}`;
  const write = (batch: TransactionSql, leaseId: string | undefined) =>
    batch`update escrows set draw_number = 1 where account_id = ${customer.accountId} and lease_id = ${leaseId ?? ""}`;
  let tries = 0;
  let asking: Promise<void> | undefined;
  await world.sql.begin(async (batch) => {
    await batch`select lock_accounts(array[${customer.accountId}]::bigint[])`;
    await write(batch, leases[1]);
    asking = changing({ db, bus: frozenBus() }, async () => {
      if (++tries === 1) throw new IdleMoneyError(customer.accountId);
    });
    await sleep(300);
    await write(batch, leases[0]);
  });
  await asking;
  const marked = await world.sql`select 1 from escrows where account_id = ${customer.accountId} and recalled`;
  expect([tries, marked.length]).toEqual([2, 2]);
  for (const leaseId of leases) await reapLease(world, leaseId);
});

describe("a change of rights: no request is granted by the former state once the change has returned", () => {
  const CHANGES: [what: string, change: (tx: Tx, customer: Customer) => Promise<unknown>][] = [
    ["key disabled", (tx, { key }) => run(tx, `update keys set status = 'disabled' where id = ${key.keyId}`)],
    ["key revoked", (tx, { key }) => run(tx, `update keys set status = 'revoked' where id = ${key.keyId}`)],
    [
      "key for other models",
      (tx, { key }) => run(tx, `update keys set model_ids = '{model-b}' where id = ${key.keyId}`),
    ],
    ["key for other hosts", (tx, { key }) => run(tx, `update keys set hosts = '{b.example}' where id = ${key.keyId}`)],
    [
      "account suspended",
      (tx, { accountId }) => run(tx, `update accounts set status = 'suspended' where id = ${accountId}`),
    ],
    ["package ended", (tx, { accountId, packageId }) => run(tx, `select end_package(${accountId}, ${packageId})`)],
    ["pay-as-you-go off", (tx, { accountId }) => run(tx, `select set_payg(${accountId}, false)`)],
  ];
  const run = (tx: Tx, text: string) => tx.execute(text);

  async function endWhileBusy(
    ledgers: readonly OpenLedger[],
    { customer, change }: { customer: Customer; change: (tx: Tx, customer: Customer) => Promise<unknown> },
  ): Promise<{ before: number; after: number }> {
    const [row] = await world.sql`select epoch::int from epochs where account_id = ${customer.accountId}`;
    // The entry of a cache that gets no invalidations.
    const known = { mode: customer.mode, epoch: Number(row?.epoch ?? 0), tenantEpoch: 0 };
    let [isOver, isDone, before, late, after] = [false, false, 0, 0, 0];
    const hammer = async (open: OpenLedger) => {
      while (!isDone) {
        const isLate = isOver;
        const reserving = open.ledger.reserve(ask(customer, { known }));
        if ((await codeOf(reserving)) === "granted") {
          if (isLate) after++;
          else before++;
          await open.ledger.release(await reserving, "provider_failed");
        }
        if (isLate) late++;
        await sleep(1);
      }
    };
    const hammers = ledgers.map(hammer);
    await until(() => before > 5);
    await changing({ db, bus }, async (tx) => {
      await run(tx, `select lock_accounts(array[${customer.accountId}]::bigint[])`);
      await change(tx, customer);
    });
    isOver = true;
    await until(() => late >= 5 * ledgers.length);
    isDone = true;
    await Promise.all(hammers);
    return { before, after };
  }

  test.each(CHANGES)("%s, with the bus and without, twenty times each", async (what, change) => {
    for (const withBus of [true, false]) {
      const ledgers = await openLedgers(2, {}, withBus ? undefined : null);
      const isMoney = what === "pay-as-you-go off";
      const customers = await Promise.all(
        Array.from({ length: 20 }, () =>
          isMoney ? addCustomer(null, 1_000_000_000n) : addCustomer({ dailyLimit: 1_000_000 }),
        ),
      );
      const results = await Promise.all(customers.map((customer) => endWhileBusy(ledgers, { customer, change })));
      expect(results.filter(({ before }) => before === 0)).toEqual([]);
      expect(results.filter(({ after }) => after > 0)).toEqual([]);
    }
  });

  test("a package that was replaced grants nothing any more", async () => {
    const [a] = (await openLedgers(1, {}, null)) as [OpenLedger];
    const customer = await addCustomer({ dailyLimit: 1_000_000 });
    const offeringId = await world.addOffering({ dailyLimit: 1_000_000 });
    const holds = await drawAhead(a, customer);
    const order = { accountId: customer.accountId, offeringId, when: "now", payerId: null, actorId: null } as const;
    const { packageId } = await assignPackage({ db, bus }, order);
    const after = await reserveSome(a, customer, 5);
    expect(after.map((hold) => hold.packageId)).toEqual(Array(5).fill(packageId));
    await release(a, [...holds, ...after]);
  });
});

test("a change that ends a right of a reseller returns when nothing is granted by the former state, though no replica hears of it", async () => {
  const [a] = (await openLedgers(1, {}, null)) as [OpenLedger];
  const { accountId: tenantId } = await world.addReseller();
  const person = await world.addCustomer(tenantId);
  const packageId = await world.givePackage(person, { dailyLimit: 100_000 });
  const customer: Customer = { ...person, key: await world.addKey(person), packageId, mode: "package" };
  const [row] = await world.sql`select epoch::int from epochs where account_id = ${tenantId}`;
  const known = { ...knownAs("package"), tenantEpoch: Number(row?.epoch) } as ReserveRequest["known"];
  const here = () => a.ledger.reserve(ask(customer, { tenantId, known }));
  const holds: Hold[] = [];
  for (let i = 0; i < 6; i++) holds.push(await here());
  expect((await drawn(world, customer.accountId)).idle_units).toBeGreaterThan(0);
  const suspend = (tx: Tx) => tx.execute(`update accounts set status = 'suspended' where id = ${tenantId}`);
  await changing({ db, bus }, suspend, { endsTenantRight: () => true });
  expect(await codeOf(here())).toBe("invalid_api_key");
  await release(a, holds);
});

describe("units drawn ahead are units of their day, for the models of their package and the domains of its reseller", () => {
  test("a request by what was known before a domain was switched off gets none of them", async () => {
    const [a] = (await openLedgers(1)) as [OpenLedger];
    const host = "off.example.com";
    const { accountId: tenantId } = await world.addReseller(host);
    const epochOf = async () => {
      const [row] = await world.sql`select epoch::int from epochs where account_id = ${tenantId}`;
      return row?.epoch as number;
    };
    const before = { mode: "package", epoch: Number.MAX_SAFE_INTEGER, tenantEpoch: await epochOf() } as const;
    await world.sql`update hosts set status = 'suspended' where host = ${host}`;
    const person = await world.addCustomer(tenantId);
    const packageId = await world.givePackage(person, { dailyLimit: 100_000 });
    const customer: Customer = { ...person, key: await world.addKey(person), packageId, mode: "package" };
    const here = (over: Partial<ReserveRequest> = {}) => a.ledger.reserve(ask(customer, { tenantId, ...over }));
    const holds: Hold[] = [];
    for (let i = 0; i < 6; i++) holds.push(await here());
    expect((await drawn(world, customer.accountId)).idle_units).toBeGreaterThan(0);
    expect(await codeOf(here({ host, ownHost: false, known: before }))).toBe("host_not_allowed");
    await release(a, holds);
  });

  test("a model that the package does not have gets none of them", async () => {
    const [a] = (await openLedgers(1)) as [OpenLedger];
    const customer = await addCustomer({ dailyLimit: 100_000, modelIds: ["model-a"] });
    const holds = await drawAhead(a, customer);
    expect(await codeOf(a.ledger.reserve(ask(customer, { modelId: "model-b" })))).toBe("model_not_in_package");
    holds.push(await a.ledger.reserve(ask(customer)));
    await release(a, holds);
  });

  test("after the package's midnight a request gets a unit of the new day", async () => {
    const [a] = (await openLedgers(1)) as [OpenLedger];
    await world.setClock("2031-05-10 23:59:59.7+00");
    const customer = await addCustomer({ dailyLimit: 100_000 });
    const holds = await drawAhead(a, customer);
    await world.setClock("2031-05-11 00:00:00.1+00");
    await sleep(400);
    holds.push(await a.ledger.reserve(ask(customer)));
    expect(holds.map(({ day }) => day)).toEqual([...Array(6).fill("2031-05-10"), "2031-05-11"]);
    await world.sql`select make_receipt_months(0)`;
    await release(a, holds);
  });
});

describe("units and money drawn ahead are valid for two seconds", () => {
  test("the database is away: requests are granted for at most two seconds, then 503", async () => {
    const proxy = await startTcpProxy(world.url);
    // Both clocks of the replica stand still while it draws and grants. Then two seconds have passed, and they run.
    let passedMs = 0;
    let isRunning = false;
    const [startMs, startUnixMs] = [performance.now(), Date.now()];
    const [a] = (await openLedgers(
      1,
      {
        databaseUrl: proxy.url,
        timeoutMs: 900,
        nowMs: () => (isRunning ? performance.now() + 2_000 : startMs + passedMs),
        wallMs: () => (isRunning ? Date.now() + 2_000 : startUnixMs + passedMs),
      },
      null,
    )) as [OpenLedger];
    const customer = await addCustomer({ dailyLimit: 100_000 });
    const holds = await drawAhead(a, customer, 50);
    proxy.cut();
    for (const ms of [0, 1_000, 1_999]) {
      passedMs = ms;
      holds.push(await a.ledger.reserve(ask(customer)));
    }
    isRunning = true;
    expect(await codeOf(a.ledger.reserve(ask(customer)))).toBe("service_unavailable");
    proxy.mend();
    await release(a, holds);
    await a.ledger.replaySpool();
    await a.close();
    opened.length = 0;
    await proxy.close();
  });

  test("a machine that was suspended grants nothing from its escrow", async () => {
    const proxy = await startTcpProxy(world.url);
    let jumpMs = 0;
    const [a] = (await openLedgers(
      1,
      { databaseUrl: proxy.url, timeoutMs: 1_000, wallMs: () => Date.now() + jumpMs },
      null,
    )) as [OpenLedger];
    const customer = await addCustomer({ dailyLimit: 100_000 });
    const holds = await drawAhead(a, customer, 20);
    proxy.cut();
    holds.push(await a.ledger.reserve(ask(customer)));
    jumpMs = 1_500;
    expect(await codeOf(a.ledger.reserve(ask(customer)))).toBe("service_unavailable");
    proxy.mend();
    holds.push(await a.ledger.reserve(ask(customer)));
    await release(a, holds);
    await a.close();
    opened.length = 0;
    await proxy.close();
  });

  test.each([false, true])(
    "at the day's end: units of yesterday are not granted today, and go back (carryover: %p)",
    async (carryover) => {
      // Both clocks run: the database's and the replica's.
      const shiftMs = Math.round(Date.parse("2026-05-10T23:59:55Z") - Date.now());
      const wallMs = () => Date.now() + shiftMs;
      await world.sql.unsafe(`create or replace function ledger_now() returns timestamptz language sql volatile as
        $$ select clock_timestamp() + interval '${shiftMs} milliseconds' $$`);
      const [a] = (await openLedgers(1, { wallMs, escrowShare: 1 }, null)) as [OpenLedger];
      const customer = await addCustomer({ dailyLimit: 30, days: 5, carryover });
      const holds = await drawAhead(a, customer, 10);
      expect(new Set(holds.map(({ day }) => day))).toEqual(new Set(["2026-05-10"]));
      await until(() => wallMs() > Date.parse("2026-05-11T00:00:00.005Z"));
      const today = await Promise.all(
        Array.from({ length: carryover ? 50 : 30 }, () => a.ledger.reserve(ask(customer))),
      );
      expect(new Set(today.map(({ day }) => day))).toEqual(new Set(["2026-05-11"]));
      expect(await codeOf(a.ledger.reserve(ask(customer)))).toBe(
        carryover ? "carryover_quota_exceeded" : "daily_quota_exceeded",
      );
      const days = await world.sql`
      select day::text, units_taken from package_days where package_id = ${customer.packageId} order by 1`;
      expect(days.map((row) => ({ ...row }))).toEqual([
        { day: "2026-05-10", units_taken: 10 },
        { day: "2026-05-11", units_taken: carryover ? 50 : 30 },
      ]);
      await release(a, [...holds, ...today]);
    },
  );
});

test("a request that is granted from money drawn ahead holds its amount rounded up, as the database does", async () => {
  const [a] = (await openLedgers(1)) as [OpenLedger];
  const customer = await addCustomer(null, 1_000_000_000n);
  const holds = await drawAhead(a, customer);
  for (const known of [knownAs("payg"), null]) {
    const hold = await a.ledger.reserve(
      ask(customer, { known, promptPico: 1_000n, outputPico: 1n, capMax: 1, capMin: 1 }),
    );
    expect(hold.heldNanoUsd).toBe(2n);
    holds.push(hold);
  }
  await release(a, holds);
});

test("/balance shows requests in flight as reserved, and not the amounts drawn ahead", async () => {
  const [a] = (await openLedgers(1)) as [OpenLedger];
  const units = await addCustomer({ dailyLimit: 1000, days: 5 });
  const money = await addCustomer(null, 1_000_000n);
  const [unitHolds, moneyHolds] = [await drawAhead(a, units), await drawAhead(a, money)];
  const shown = async () => {
    const [{ package: shownPackage }, balance] = [
      await entitlementOf(db.sql, units.accountId),
      await entitlementOf(db.sql, money.accountId),
    ];
    return [shownPackage?.usedToday, 1000 - (shownPackage?.dailyRemaining ?? 0), Number(balance.heldNanoUsd) / 1000];
  };
  // Requests that were granted from memory are shown with the next draw.
  for (const figure of await shown()) expect(figure).toBeLessThanOrEqual(6);
  await until(async () => (await shown()).every((figure) => figure === 6));
  await release(a, [...unitHolds, ...moneyHolds]);
});

test("a quiet account's unused units go back by themselves; those of an open request stay", async () => {
  const [a] = (await openLedgers(1, {}, null)) as [OpenLedger];
  const customer = await addCustomer({ dailyLimit: 1000 });
  const holds = await drawAhead(a, customer);
  await until(async () => (await drawn(world, customer.accountId)).idle_units === 0);
  expect((await drawn(world, customer.accountId)).units).toBe(6);
  await release(a, holds);
});

test("a ledger that closes returns all that it does not use, and ends its lease", async () => {
  const open = await openWorldLedger(world);
  const [units, money] = [await addCustomer({ dailyLimit: 1000 }), await addCustomer(null, 1_000_000n)];
  await release(open, await drawAhead(open, units));
  await release(open, await drawAhead(open, money));
  const leaseId = open.ledger.leaseId();
  await open.close();
  for (const { accountId } of [units, money])
    expect(await drawn(world, accountId)).toEqual({ units: 0, idle_units: 0, nano_usd: 0, idle_nano_usd: 0 });
  expect((await world.sql`select ended from leases where id = ${leaseId}`)[0]?.ended).toBe(true);
});

test("units that were drawn under a ledger's lease and that it does not know of go back", async () => {
  const [a] = (await openLedgers(1, {}, null)) as [OpenLedger];
  const [unknown, known] = [await addCustomer({ dailyLimit: 10 }), await addCustomer({ dailyLimit: 10 })];
  const open = await a.ledger.reserve(ask(known, { known: null }));
  for (const { accountId, packageId } of [unknown, known]) {
    await world.sql`
      insert into escrows (account_id, lease_id, package_id, key_id, day, draw_number, units, tokens, nano_usd, idle_units,
        idle_nano_usd, epoch, tenant_epoch)
      values (${accountId}, ${a.ledger.leaseId()}, ${packageId}, 0, current_date, 0, 3, 0, 0, 0, 0, 0, 0)
      on conflict (account_id, lease_id, package_id, key_id, day) do update set units = escrows.units + 3`;
    await world.sql`update packages set units_taken = units_taken + 3 where id = ${packageId}`;
    await world.sql`
      insert into package_days (package_id, day, units_taken, units_max) values (${packageId}, current_date, 3, 10)
      on conflict (package_id, day) do update set units_taken = package_days.units_taken + 3`;
  }
  // An account with requests is not forgotten after one quiet round: an end may be in transit.
  await a.ledger.reconcile();
  await a.ledger.reconcile();
  expect([(await countersOf(unknown)).held, (await countersOf(known)).held]).toEqual([0, 1]);
  await release(a, [open]);
});

test("an account that a ledger knows of only from its rows: its first request tells the tenant, whose suspension counts", async () => {
  const [a] = (await openLedgers(1, {}, null)) as [OpenLedger];
  const reseller = await world.addReseller();
  const person = await world.addCustomer(reseller.accountId);
  const customer: Customer = {
    ...{ ...person, mode: "package", key: await world.addKey(person) },
    packageId: await world.givePackage(person),
  };
  await world.sql`
    insert into escrows (account_id, lease_id, package_id, key_id, day, draw_number, units, tokens, nano_usd, idle_units,
      idle_nano_usd, epoch, tenant_epoch)
    values (${person.accountId}, ${a.ledger.leaseId()}, ${customer.packageId}, 0, current_date, 0, 1, 0, 0, 0, 0, 0, 0)`;
  await world.sql`update packages set units_taken = 1 where id = ${customer.packageId}`;
  await world.sql`
    insert into package_days (package_id, day, units_taken, units_max) values (${customer.packageId}, current_date, 1, 10)`;
  await a.ledger.reconcile();
  await world.sql`update accounts set status = 'suspended' where id = ${reseller.accountId}`;
  const over = { tenantId: reseller.accountId, known: null };
  expect(await codeOf(a.ledger.reserve(ask(customer, over)))).toBe("invalid_api_key");
});

test("a draw whose answer is lost: the request is granted once, and the units of the lost answer are returned", async () => {
  const proxy = await startTcpProxy(world.url);
  const [a] = (await openLedgers(1, { databaseUrl: proxy.url, escrowShare: 1 }, null)) as [OpenLedger];
  const customer = await addCustomer({ dailyLimit: 100 });
  const holds = await reserveSome(a, customer, 2);
  const lost = proxy.dropNextReply();
  const more = Array.from({ length: 30 }, () => a.ledger.reserve(ask(customer)));
  await lost;
  holds.push(...(await Promise.all(more)));
  await until(async () => (await drawn(world, customer.accountId)).units === 32);
  const codes = await Promise.all(Array.from({ length: 80 }, () => codeOf(a.ledger.reserve(ask(customer)))));
  expect(tally(codes)).toEqual({ granted: 68, daily_quota_exceeded: 12 });
  await a.close();
  opened.length = 0;
  await reapLease(world, a.ledger.leaseId());
  await proxy.close();
});

test("a unit that was granted under a lease that ended before the answer was read is not used: another replica may have it", async () => {
  const proxy = await startTcpProxy(world.url);
  const [a] = (await openLedgers(1, { databaseUrl: proxy.url, escrowUnitsMax: 0 }, null)) as [OpenLedger];
  const other = await openSqlReplica(world);
  const [first, customer] = [await addCustomer({ dailyLimit: 1 }), await addCustomer({ dailyLimit: 1 })];
  // It connects, so that the next answer is that of a batch.
  await release(a, await reserveSome(a, first, 1));
  const leaseId = a.ledger.leaseId();
  proxy.latency(REPLY_MS);
  const late = codeOf(a.ledger.reserve(ask(customer)));
  await until(async () => (await drawn(world, customer.accountId)).units === 1);
  proxy.hang();
  await reapLease(world, leaseId);
  await a.ledger.renewLease();
  expect(a.ledger.leaseId()).not.toBe(leaseId);
  const request = ask(customer);
  const [granted] = (await other.reserve([request])) as [ReserveResult];
  expect(granted.code).toBeNull();
  proxy.mend();
  expect(await late).toBe("daily_quota_exceeded");
  await a.ledger.reconcile();
  expect(await countersOf(customer)).toMatchObject({ used: 0, held: 1 });
  await a.close();
  opened.length = 0;
  await proxy.close();
});

test("a draw that runs late, after the next one, has no effect", async () => {
  const customer = await addCustomer({ dailyLimit: 10 });
  const replica = await openSqlReplica(world);
  const [first, second] = [replica.draws([ask(customer)]), replica.draws([ask(customer)])];
  expect((await replica.batch({ reserves: [ask(customer)], draws: second })).reserved[0]?.code).toBeNull();
  const late = await replica.batch({ reserves: [ask(customer)], draws: first });
  expect([late.reserved[0]?.code, late.drawn[0]?.code]).toEqual(["stale", "stale"]);
  expect((await countersOf(customer)).held).toBe(1);
});

test("the ends of requests that were granted from memory: sent twice, late, or under an ended lease", async () => {
  const [a] = (await openLedgers(1, {}, null)) as [OpenLedger];
  const customer = await addCustomer({ dailyLimit: 100 });
  const holds = await drawAhead(a, customer, 10);
  const [settled, late, released] = holds as [Hold, Hold, Hold];
  await a.ledger.settle(settled, usageOf());
  await expect(a.ledger.settle(settled, usageOf())).rejects.toThrow("ended twice");
  await reapLease(world, a.ledger.leaseId());
  expect(await countersOf(customer)).toMatchObject({ used: 1, held: 0 });
  expect(a.ledger.alive(late)).toBe(true);
  // The next draw's answer says that the lease has ended; the request continues under a new one.
  const next = await a.ledger.reserve(ask(customer, { known: null }));
  expect(a.ledger.alive(late)).toBe(false);
  expect(a.ledger.alive(next)).toBe(true);
  await a.ledger.settle(late, usageOf());
  await a.ledger.release(released, "provider_failed");
  expect(await countersOf(customer)).toMatchObject({ used: 2, held: 1, settled: 2 });
  await release(a, [next, ...holds.slice(3)]);
});

test("an end that the spool sends again and again counts once: no unit of an open request goes back", async () => {
  const proxy = await startTcpProxy(world.url);
  const [a] = (await openLedgers(1, { databaseUrl: proxy.url, timeoutMs: 1_500, escrowUnitsMax: 0 }, null)) as [
    OpenLedger,
  ];
  const [customer, locked] = [await addCustomer({ dailyLimit: 2 }), await addCustomer({ dailyLimit: 2 })];
  const [[done, open], [stuck]] = (await Promise.all([reserveSome(a, customer, 2), reserveSome(a, locked, 1)])) as [
    [Hold, Hold],
    [Hold],
  ];
  proxy.cut();
  await Promise.all([a.ledger.settle(done, usageOf()), a.ledger.settle(stuck, usageOf())]);
  proxy.mend();
  await world.sql.begin(async (holder) => {
    await holder`select lock_accounts(array[${locked.accountId}]::bigint[])`;
    // One end of the file cannot be written, so its other end is sent with each replay.
    for (let i = 0; i < 2; i++) await expect(a.ledger.replaySpool()).rejects.toThrow("unreachable");
    expect(await countersOf(customer)).toMatchObject({ used: 1, held: 1 });
    expect(await codeOf(a.ledger.reserve(ask(customer)))).toBe("daily_quota_exceeded");
    expect(await countersOf(customer)).toMatchObject({ used: 1, held: 1 });
  });
  await a.ledger.replaySpool();
  await a.ledger.settle(open, usageOf());
  expect(await countersOf(customer)).toMatchObject({ used: 2, held: 0, settled: 2 });
  expect(await countersOf(locked)).toMatchObject({ used: 1, held: 0, settled: 1 });
  await a.close();
  opened.length = 0;
  await proxy.close();
});

test("a quiet account whose draw is under way is not forgotten: the answer is accounted for", () => {
  let nowMs = 0;
  const escrow = new Escrow({ leaseMs: 600_000, unitsMax: 10, nowMs: () => nowMs, wallMs: () => nowMs });
  escrow.leaseRenewed(escrow.leaseId, nowMs);
  const request = requestFor({ accountId: 7, role: "customer" } as Person, { keyId: 8 } as TestKey, {
    known: { mode: "package", epoch: 0, tenantEpoch: 0 },
  });
  const answered = {
    ...{
      code: null,
      packageId: 9,
      day: "2026-11-23",
      goodMs: 60_000,
      modelIds: null,
      nanoUsd: null,
      epoch: 0,
      tenantEpoch: 0,
    },
    recalled: false,
  };
  const first = escrow.compose(7, 0, []);
  escrow.drawn(first, { ...answered, units: 0, nowUs: 1_000_000 }, { sentMs: nowMs, leaseId: escrow.leaseId });
  nowMs = 11_000;
  const second = escrow.compose(7, 0, []);
  expect(escrow.due()).toEqual([]);
  escrow.drawn(second, { ...answered, units: 1, nowUs: 12_000_000 }, { sentMs: nowMs, leaseId: escrow.leaseId });
  expect(escrow.grant(request)).toMatchObject({ packageId: 9, reservedAtUs: 12_000_000 });
  expect(escrow.compare(7, { units: 1, nanoUsd: 0n })).toBe(false);
});

test("a bulk change costs one pass over the accounts in memory, however many have changed", () => {
  const escrow = new Escrow({ leaseMs: 600_000, unitsMax: 10, nowMs: () => 0, wallMs: () => 0 });
  const accounts = 500;
  for (let id = 1; id <= accounts; id++) escrow.compose(id, 100_000 + (id % 2), []);
  let asked = 0;
  class Counted extends Set<number> {
    override has(id: number): boolean {
      asked++;
      return super.has(id);
    }
  }
  escrow.accountsChanged(new Counted(Array.from({ length: accounts }, (_, i) => i + 1)));
  expect(asked).toBeWithin(accounts, 2 * accounts + 1);
});

test("an answer of the database counts for two seconds and within the lease, by both clocks of the replica", () => {
  const clock = { nowMs: 0, wallMs: 0 };
  const escrow = new Escrow({ leaseMs: 1_500, unitsMax: 10, nowMs: () => clock.nowMs, wallMs: () => clock.wallMs });
  const { leaseId } = escrow;
  escrow.leaseRenewed(leaseId, 0);
  const isTimely = (nowMs: number, wallMs = nowMs) => {
    Object.assign(clock, { nowMs, wallMs });
    return escrow.isTimely({ leaseId, sentMs: 0, sentUnixMs: 0 });
  };
  expect([isTimely(1_499), isTimely(1_500)]).toEqual([true, false]);
  escrow.leaseRenewed(leaseId, 1_499);
  expect([isTimely(1_999), isTimely(2_000)]).toEqual([true, false]);
  // The machine was suspended, or its clock was set, while the answer was on its way.
  expect([isTimely(10, 1_010), isTimely(10, 1_011), isTimely(10, -991)]).toEqual([true, false, false]);
  expect(escrow.isTimely({ leaseId: "another", sentMs: 10, sentUnixMs: 10 })).toBe(false);
});
