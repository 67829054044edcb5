import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import { releaseOf, settlementOf } from "../../src/ledger/finisher.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import type { Finish, FinishResult, ReserveRequest } from "../../src/ledger/ledger_store.ts";
import { type Bus, inProcessBus } from "../../src/platform/bus.ts";
import { type Sql, sqlState } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { until } from "../platform/own_redis.ts";
import { holds, TIMES } from "../property.ts";
import { createWorld, type World } from "../world.ts";
import {
  codeOf,
  drawn,
  knownAs,
  type OpenLedger,
  openSqlReplica,
  openWorldLedger,
  reapLease,
  requestFor,
  returnIdle,
  type SqlReplica,
  tally,
  usageOf,
} from "./ledger_world.ts";

/**
 * The same requests in any interleaving: two ledgers, each with its own batches and its own escrow, and a replica that calls the
 * SQL directly and may die, all on one database. Their order is not determined, so the test checks what holds in every order:
 * never oversold, exactly as many granted as are allowed, one end per request, and books that balance.
 * Source: PAY-9, END-15.
 */

const RUNS = 25;
const SEARCH_MS_MAX = 3 * 60_000 * TIMES;
const TEST_TIMEOUT_MS = SEARCH_MS_MAX + 60_000;
/** Postgres's error code for a lock time-out; a slow machine may need a few attempts. */
const LOCK_NOT_AVAILABLE = "55P03";
const ATTEMPTS_MAX = 20;
/** The clock stands still: a midnight during the test would add units. */
const NOW_MS = Date.parse("2026-05-10T12:00:00Z");
/** The amount that one request holds of a balance, and the cost of one answer. */
const HELD_NANO_USD = 1000n;
const PRICED: Partial<ReserveRequest> = { outputPico: 1000n, capMax: 1000, capMin: 1000 };

let world: World;
let bus: Bus;
let ledgers: OpenLedger[];
let sqlReplica: SqlReplica;
let requests = 0;
let runs = 0;
const reached: string[] = [];

beforeAll(async () => {
  world = await createWorld();
  await world.setClock(new Date(NOW_MS).toISOString());
  await world.sql`select make_receipt_months(1)`;
  bus = inProcessBus(createLog("silent"));
  // One draws much ahead, the other little.
  ledgers = [
    await openWorldLedger(world, { bus, escrowShare: 1 }),
    await openWorldLedger(world, { bus, escrowUnitsMax: 3, escrowShare: 2 }),
  ];
});
afterAll(async () => {
  await Promise.all(ledgers.map((open) => open.close()));
  await world.close();
});

/** A ledger (0, 1) or the SQL (2), and the delay in milliseconds. */
const request = fc.record({ who: fc.nat(2), replica: fc.nat(2), afterMs: fc.nat(4) });
const end = fc.record({
  hold: fc.nat(60),
  settles: fc.constantFrom(true, true, false),
  charge: fc.constantFrom(0n, 400n, 1000n, 1300n),
  strict: fc.boolean(),
  /** Ends of one group are one batch. */
  group: fc.nat(7),
});
const plan = fc.record({
  dailyLimit: fc.integer({ min: 1, max: 12 }),
  totalLimit: fc.integer({ min: 1, max: 15 }),
  carryover: fc.boolean(),
  /** Requests that the balance pays for. */
  affordable: fc.integer({ min: 0, max: 12 }),
  first: fc.array(request, { minLength: 1, maxLength: 60, size: "max" }),
  ends: fc.array(end, { maxLength: 60, size: "max" }),
  meanwhile: fc.array(request, { maxLength: 30, size: "max" }),
  topUps: fc.array(fc.record({ nanoUsd: fc.bigInt({ min: 1n, max: 3000n }), afterMs: fc.nat(4) }), { maxLength: 4 }),
  /** Milliseconds until the lease of the SQL's replica ends. */
  diesAfterMs: fc.option(fc.nat(6)),
});
type Plan = typeof plan extends fc.Arbitrary<infer T> ? T : never;
type RequestPlan = Plan["first"][number];
type EndPlan = Plan["ends"][number];

type Customer = { accountId: number; packageKeyId: number; paygKeyId: number };
/** Paid by package; by balance; by package and then by balance. */
type Customers = [Customer, Customer, Customer];

async function openAccounts({ dailyLimit, totalLimit, carryover, affordable }: Plan): Promise<Customers> {
  const offeringId = await world.addOffering({ days: 3, dailyLimit, totalLimit, carryover });
  const open = async (hasPackage: boolean, hasBalance: boolean): Promise<Customer> => {
    const person = await world.addCustomer();
    const [byPackage, byBalance] = [await world.addKey(person), await world.addKey(person, { mode: "payg" })];
    if (hasPackage) await world.assign(person, offeringId);
    if (hasBalance) await world.setBalance(person, BigInt(affordable) * HELD_NANO_USD);
    return { ...person, packageKeyId: byPackage.keyId, paygKeyId: byBalance.keyId };
  };
  return [await open(true, false), await open(false, true), await open(true, true)];
}

/** Sends a request to its replica. Returns its hold, or the code of its refusal. */
async function reserve(customers: Customers, { who, replica, afterMs }: RequestPlan): Promise<Hold | string> {
  const { accountId, packageKeyId, paygKeyId } = customers[who] as Customer;
  const keyId = who === 1 ? paygKeyId : packageKeyId;
  const known = knownAs(who === 1 ? "payg" : "package");
  const row = requestFor({ accountId }, { keyId, secret: "" }, { ...PRICED, known });
  requests++;
  await Bun.sleep(afterMs);
  const open = ledgers[replica];
  if (open !== undefined) {
    const reserving = open.ledger.reserve(row);
    const code = await codeOf(reserving);
    return code === "granted" ? reserving : code;
  }
  for (const from = sqlReplica; ; await Bun.sleep(2)) {
    const [result] = await patiently(() => from.reserve([row]));
    if (result === undefined) throw new Error("no answer");
    if (result.code === null) return from.holdOf(row, result);
    // Another request of this replica was first, with a higher number.
    if (result.code === "stale") continue;
    if (result.code !== "recall") return result.code;
    await bus.publish([{ kind: "escrow", ref: String(accountId) }]);
  }
}

/** Concurrent requests. */
async function reserveAll(customers: Customers, reserves: readonly RequestPlan[]): Promise<Hold[]> {
  const answers = await Promise.all(reserves.map((one) => reserve(customers, one)));
  reached.push(...answers.map((answer) => (typeof answer === "string" ? answer : `granted by ${answer.mode}`)));
  return answers.filter((answer) => typeof answer !== "string");
}

function finishOf(hold: Hold, { settles, charge, strict }: Pick<EndPlan, "settles" | "charge" | "strict">): Finish {
  if (!settles) return releaseOf(hold, "provider_failed");
  const usage = usageOf({ promptTokens: 1, completionTokens: 1, chargeNanoUsd: hold.mode === "payg" ? charge : 0n });
  return settlementOf(hold, usage, { strict, reason: "complete" });
}

const release = (hold: Hold) => releaseOf(hold, "not_dispatched");

/** Ends of requests of any replica; each names its lease. Ends that wait for idle money are sent again. */
async function finish(sql: Sql, finishes: readonly Finish[]): Promise<FinishResult[]> {
  const results: FinishResult[] = [];
  for (let left = [...finishes.keys()]; left.length > 0; ) {
    const rows = left.map((i) => finishes[i] as Finish);
    const answers = await patiently(() => sqlReplica.finish(rows, { sql }));
    for (const [n, i] of left.entries()) results[i] = answers[n] as FinishResult;
    left = left.filter((i) => results[i]?.outcome === "recall");
    if (left.length > 0) await bus.publish(rows.map(({ accountId }) => ({ kind: "escrow", ref: String(accountId) })));
  }
  return results;
}

/** One batch. After a lock time-out it is sent again, as the ledger's lanes do it. */
async function patiently<T>(send: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await send();
    } catch (error) {
      if (sqlState(error) !== LOCK_NOT_AVAILABLE || attempt >= ATTEMPTS_MAX) throw error;
    }
  }
}

type Ended = { finish: Finish; result: FinishResult };

/** The ends of one group are a batch. All groups run concurrently, each on a separate connection if one is free. */
async function endAll(holds: readonly Hold[], ends: readonly EndPlan[]): Promise<Ended[]> {
  if (holds.length === 0) return [];
  const groups = Map.groupBy(ends, ({ group }) => group);
  const connections = [world.sql, ...ledgers.map(({ db }) => db.sql)];
  const ended = await Promise.all(
    [...groups].map(async ([group, rows]) => {
      const finishes = rows.map((row) => finishOf(holds[row.hold % holds.length] as Hold, row));
      const results = await finish(connections[group % connections.length] as Sql, finishes);
      return finishes.map((row, i) => ({ finish: row, result: results[i] as FinishResult }));
    }),
  );
  return ended.flat();
}

/**
 * A request ends once: settled or released. Both occur, in this order, only when an answer that was refused for its overrun was
 * delivered anyway. Later ends change nothing. `deadLease`: units and money drawn under it were returned at some moment.
 */
function checkEnds(ended: readonly Ended[], deadLease: string | null): void {
  for (const [requestId, ends] of Map.groupBy(ended, ({ finish }) => finish.requestId)) {
    const outcomes = ends.map(({ finish, result }) => `${kindOf(finish)}: ${result.outcome}`);
    const count = tally(ends.map(({ result }) => result.outcome));
    // Each strict settlement gets the strict refusal again.
    const released = (count.released ?? 0) + Math.min(count.refused ?? 0, 1);
    const delivered =
      outcomes.includes("settle: refused") &&
      ends.some(({ finish, result }) => result.outcome === "settled" && !finish.strict);
    const facts = { requestId, outcomes };
    expect({ ...facts, once: (count.settled ?? 0) <= 1 && released <= 1 }).toEqual({ ...facts, once: true });
    // A release that finds nothing: the reaper was first.
    const reaped = ends[0]?.finish.leaseId === deadLease && outcomes.every((outcome) => outcome === "release: gone");
    const all = (count.settled ?? 0) + released;
    expect({ ...facts, ends: all === 1 || (all === 2 && delivered) || (all === 0 && reaped) }).toEqual({
      ...facts,
      ends: true,
    });
    // All answers about the settlement are equal.
    const told = ends.filter(({ result }) => result.outcome === "settled" || result.outcome === "already");
    expect(new Set(told.map(({ result }) => `${result.chargedNanoUsd} ${result.units}`)).size).toBeLessThanOrEqual(1);
  }
}

const kindOf = ({ settles }: Finish) => (settles ? "settle" : "release");

type Books = { units: number; held: number; balance: bigint; heldNanoUsd: bigint; receipts: number };

/**
 * What requests hold, without what lies idle: a renewal that was under way while idle units were returned may have drawn ahead once
 * more, and a request gets that too.
 */
async function booksOf({ accountId }: Pick<Customer, "accountId">): Promise<Books> {
  const [row] = await world.sql`
    with idle as (
      select coalesce(sum(idle_units), 0) as units, coalesce(sum(idle_nano_usd), 0) as nano_usd from escrows where account_id = ${accountId})
    select coalesce((select sum(units_taken - package_drawn(packages)) from packages where account_id = b.account_id), 0)::int as units,
      (coalesce((select sum(package_drawn(packages)) from packages where account_id = b.account_id), 0) - (select units from idle))::int as held,
      balance_nano_usd::text as balance, (held_nano_usd - (select nano_usd from idle))::text as held_nano_usd,
      (select count(*) from receipts where account_id = b.account_id)::int as receipts
    from balances b where account_id = ${accountId}`;
  const { units, held, balance, held_nano_usd, receipts } = row ?? {};
  return { units, held, balance: BigInt(balance), heldNanoUsd: BigInt(held_nano_usd), receipts };
}

async function play(plan: Plan): Promise<void> {
  runs++;
  const customers = await openAccounts(plan);
  sqlReplica = await openSqlReplica(world);
  const units = Math.min(plan.dailyLimit, plan.totalLimit);

  // Nothing is returned: exactly as many are granted as are requested, or allowed.
  const holds = await reserveAll(customers, plan.first);
  for (const [who, allowed] of [units, plan.affordable, units + plan.affordable].entries()) {
    const asked = plan.first.filter((one) => one.who === who).length;
    const granted = holds.filter(({ accountId }) => accountId === customers[who]?.accountId).length;
    expect({ who, granted }).toEqual({ who, granted: Math.min(asked, allowed) });
  }

  // All of it concurrently: requests end, some repeatedly and in several ways; money is added; new requests arrive; a replica dies.
  const deadLease = plan.diesAfterMs === null ? null : sqlReplica.leaseId;
  const [ended, more] = await Promise.all([
    endAll(holds, plan.ends),
    reserveAll(customers, plan.meanwhile),
    ...plan.topUps.map(async ({ nanoUsd, afterMs }) => {
      await Bun.sleep(afterMs);
      await world.sql`select add_balance(${customers[1].accountId}, ${String(nanoUsd)}, 'top_up', null, null)`;
    }),
    Bun.sleep(plan.diesAfterMs ?? 0).then(async () => {
      if (deadLease === null) return;
      const heir = await openSqlReplica(world);
      sqlReplica = heir;
      await reapLease(world, deadLease);
    }),
  ]);
  if (deadLease !== null) await reapLease(world, deadLease);
  // The ends bypassed the ledgers. Until a ledger knows of them, it keeps units in the place of requests that have ended.
  const endedIds = new Set(ended.map(({ finish }) => finish.requestId));
  await Promise.all(holds.filter(({ requestId }) => endedIds.has(requestId)).map(releaseAtHome));
  await returnIdle(world, bus);
  const open = [...holds, ...more].filter(({ requestId }) => !endedIds.has(requestId));
  for (const { accountId } of customers) {
    const own = open.filter((hold) => hold.accountId === accountId && hold.leaseId !== deadLease);
    await onlyHeldFor(own, accountId);
  }
  checkEnds(ended, deadLease);
  reached.push(...ended.map(({ finish, result }) => `${kindOf(finish)}: ${result.outcome}`));

  // Sent again, they change nothing.
  const before = await Promise.all(customers.map(booksOf));
  const again = await finish(
    world.sql,
    ended.map((end) => end.finish),
  );
  expect(again.map(({ outcome }) => outcome).filter((outcome) => !REPEATED.has(outcome))).toEqual([]);
  expect(await Promise.all(customers.map(booksOf))).toEqual(before);

  await checkRest(customers, { plan, ended, units });
  await Promise.all(open.map(releaseAtHome));
  await until(async () => {
    const all = await Promise.all(customers.map(({ accountId }) => drawn(world, accountId)));
    return all.every((amounts) => Object.values(amounts).every((amount) => amount === 0));
  });
}

/** Waits until exactly what these requests hold is held. */
async function onlyHeldFor(open: readonly Hold[], accountId: number): Promise<void> {
  const held = open.filter(({ mode }) => mode === "package").length;
  const heldNanoUsd = open.reduce((sum, hold) => sum + hold.heldNanoUsd, 0n);
  await until(async () => {
    const books = await booksOf({ accountId });
    return books.held === held && books.heldNanoUsd === heldNanoUsd;
  });
}

/** Sends the end of a hold to the ledger that granted it; the end of a hold of the SQL's replica to the database. */
async function releaseAtHome(hold: Hold): Promise<unknown> {
  const home = ledgers.find(({ ledger }) => ledger.leaseId() === hold.leaseId);
  return home ? home.ledger.release(hold, "not_dispatched") : finish(world.sql, [release(hold)]);
}

const REPEATED = new Set<string>(["already", "gone", "refused"]);

type Rest = { plan: Plan; ended: readonly Ended[]; units: number };

/** The rest is what no request took: sequential requests get exactly that. */
async function checkRest(customers: Customers, { plan, ended, units }: Rest): Promise<void> {
  const topUps = plan.topUps.reduce((total, { nanoUsd }) => total + nanoUsd, 0n);
  const begun = BigInt(plan.affordable) * HELD_NANO_USD;
  for (const [who, customer] of customers.entries()) {
    const books = await booksOf(customer);
    const charged = ended
      .filter(({ finish, result }) => finish.accountId === customer.accountId && result.outcome === "settled")
      .reduce((total, { result }) => total + result.chargedNanoUsd, 0n);
    const balance = (who === 0 ? 0n : begun) + (who === 1 ? topUps : 0n) - charged;
    expect({ who, balance: books.balance }).toEqual({ who, balance });
    const byPackage = who === 1 ? 0 : units - books.units - books.held;
    const byBalance = who === 0 ? 0 : Number((books.balance - books.heldNanoUsd) / HELD_NANO_USD);
    expect({ who, fair: byPackage >= 0 && byBalance >= 0 }).toEqual({ who, fair: true });
    const reserves = Array.from({ length: byPackage + byBalance + 3 }, () => ({ who, replica: 2, afterMs: 0 }));
    const rest: Hold[] = [];
    const refusals: string[] = [];
    for (const one of reserves) {
      const answer = await reserve(customers, one);
      if (typeof answer === "string") refusals.push(answer);
      else rest.push(answer);
    }
    const facts = { who, refusals: tally(refusals) };
    expect({ ...facts, rest: tally(rest.map(({ mode }) => mode)) }).toEqual({
      ...facts,
      rest: { ...(byPackage > 0 && { package: byPackage }), ...(byBalance > 0 && { payg: byBalance }) },
    });
    await finish(world.sql, rest.map(release));
  }
}

test(
  "in any interleaving: never oversold, exactly what is allowed, one end per request, and an end that is sent twice counts once",
  async () => {
    await holds(fc.asyncProperty(plan, play), {
      numRuns: RUNS,
      interruptAfterTimeLimit: SEARCH_MS_MAX,
      markInterruptAsFailure: true,
    });
    console.log(`interleaving: ${runs} runs, ${requests} requests`, tally(reached));
  },
  TEST_TIMEOUT_MS,
);

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
});
