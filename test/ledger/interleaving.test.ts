import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import {
  type BatchOutput,
  type Finish,
  type FinishResult,
  type ReserveRequest,
  runBatch,
} from "../../src/ledger/ledger_store.ts";
import { type Sql, sqlState } from "../../src/platform/db.ts";
import { createWorld, type World } from "../world.ts";
import { codeOf, type OpenLedger, openWorldLedger, requestFor, tally } from "./ledger_world.ts";

/**
 * The same requests in any interleaving: two ledgers with their own batching, and the SQL function itself on a connection of
 * its own, all on one database. Which of them is first is nobody's to say, so what is checked is what holds in every order:
 * never oversold, exactly as many granted as are allowed, one end a hold, and books that balance.
 * PROPERTY_SEED repeats a run, PROPERTY_RUNS makes it longer. Source: PAY-9, END-15.
 */

const RUNS = Number(process.env.PROPERTY_RUNS ?? 25);
const SEED = Number(process.env.PROPERTY_SEED ?? Math.floor(Math.random() * 2 ** 31));
const SEARCH_MS_MAX = Math.max(3 * 60_000, RUNS * 2000);
const TEST_TIMEOUT_MS = SEARCH_MS_MAX + 60_000;
/** Postgres's word for a lock that was waited for too long; a slow machine may need a few attempts. */
const LOCK_NOT_AVAILABLE = "55P03";
const ATTEMPTS_MAX = 20;
/** Stands still: a midnight on the way would be a right of its own. */
const NOW_MS = Date.parse("2026-05-10T12:00:00Z");
/** What one request holds of a balance, and what one answer costs. */
const HELD_NANO_USD = 1000n;
const PRICED: Partial<ReserveRequest> = { outputPico: 1000n, capMax: 1000, capMin: 1000 };

let world: World;
let ledgers: OpenLedger[];
let requests = 0;
let runs = 0;
const reached: string[] = [];

beforeAll(async () => {
  world = await createWorld();
  await world.setClock(new Date(NOW_MS).toISOString());
  await world.sql`select make_receipt_months(1)`;
  ledgers = [await openWorldLedger(world), await openWorldLedger(world)];
});
afterAll(async () => {
  await Promise.all(ledgers.map((open) => open.close()));
  await world.close();
});

/** A ledger (0, 1), or the SQL itself, where a lease has ended as soon as it begins (2); and how many milliseconds it dallies. */
const door = fc.record({ door: fc.nat(2), dally: fc.nat(4) });
const request = fc.record({ who: fc.nat(2), at: door });
const end = fc.record({
  hold: fc.nat(60),
  kind: fc.constantFrom("settle" as const, "settle" as const, "release" as const, "reap" as const),
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
  topUps: fc.array(fc.record({ nanoUsd: fc.bigInt({ min: 1n, max: 3000n }), dally: fc.nat(4) }), { maxLength: 4 }),
});
type Plan = typeof plan extends fc.Arbitrary<infer T> ? T : never;
type RequestPlan = Plan["first"][number];
type EndPlan = Plan["ends"][number];

type Customer = { accountId: number; packageKeyId: number; paygKeyId: number };
/** By package; by balance; by package, and then by balance. */
type Customers = [Customer, Customer, Customer];
type Hold = { requestId: string; accountId: number; mode: string };

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

/** Sends a request through its door. Returns its hold, or the code of its refusal. */
async function reserve(customers: Customers, { who, at }: RequestPlan): Promise<Hold | string> {
  const { accountId, packageKeyId, paygKeyId } = customers[who] as Customer;
  const keyId = who === 1 ? paygKeyId : packageKeyId;
  const row = requestFor({ accountId }, { keyId, secret: "" }, { ...PRICED, requestId: newId() });
  await Bun.sleep(at.dally);
  const open = ledgers[at.door];
  if (open !== undefined) {
    const held = open.ledger.reserve(row);
    const code = await codeOf(held);
    return code === "granted" ? held : code;
  }
  const { reserved } = await send(world.sql, { reserves: [row], finishes: [], leaseSeconds: 0 });
  const mode = reserved[0]?.mode;
  return mode ? { requestId: row.requestId, accountId, mode } : String(reserved[0]?.code);
}

function newId(): string {
  const ms = NOW_MS.toString(16).padStart(12, "0");
  return `${ms.slice(0, 8)}-${ms.slice(8)}-7000-8000-${(++requests).toString(16).padStart(12, "0")}`;
}

/** Many at once. */
async function reserveAll(customers: Customers, reserves: readonly RequestPlan[]): Promise<Hold[]> {
  const answers = await Promise.all(reserves.map((one) => reserve(customers, one)));
  reached.push(...answers.map((answer) => (typeof answer === "string" ? answer : `granted by ${answer.mode}`)));
  return answers.filter((answer) => typeof answer !== "string");
}

function finishOf({ requestId, accountId, mode }: Hold, { kind, charge, strict }: Omit<EndPlan, "hold">): Finish {
  const settles = kind === "settle";
  return {
    requestId,
    accountId,
    kind,
    reason: kind === "reap" ? "lease_ended" : settles ? "complete" : "provider_failed",
    promptTokens: 1,
    cachedTokens: 0,
    completionTokens: 1,
    chargeNanoUsd: settles && mode === "payg" ? charge : 0n,
    strict: settles && strict,
    estimated: false,
  };
}

async function finish(sql: Sql, finishes: readonly Finish[]): Promise<FinishResult[]> {
  return (await send(sql, { reserves: [], finishes, leaseSeconds: 60 })).finished;
}

type Rows = { reserves: readonly ReserveRequest[]; finishes: readonly Finish[]; leaseSeconds: number };

/** One batch, sent again as the ledger's lanes do it when it waited for a lock too long. */
async function send(sql: Sql, rows: Rows): Promise<BatchOutput> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await runBatch(sql, true, { ...rows, wait: true, retry: attempt > 1 });
    } catch (error) {
      if (sqlState(error) !== LOCK_NOT_AVAILABLE || attempt >= ATTEMPTS_MAX) throw error;
    }
  }
}

type Ended = { finish: Finish; result: FinishResult };

/** The ends of one group are a batch; all groups at once, each on a connection of its own as far as there are some. */
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
 * A hold ends once: settled, or given back; both, in this order, after the reaper, or when an answer that was refused for its
 * overrun was delivered all the same. All that comes later changes nothing.
 */
function checkEnds(ended: readonly Ended[]): void {
  for (const [requestId, ends] of Map.groupBy(ended, ({ finish }) => finish.requestId)) {
    const outcomes = ends.map(({ finish, result }) => `${finish.kind}: ${result.outcome}`);
    const count = tally(ends.map(({ result }) => result.outcome));
    // A strict refusal is told again to whoever reserves again.
    const givenBack = (count.released ?? 0) + Math.min(count.refused ?? 0, 1);
    const reaped = outcomes.includes("reap: released");
    const delivered =
      outcomes.includes("settle: refused") &&
      ends.some(({ finish, result }) => result.outcome === "settled" && !finish.strict);
    const facts = { requestId, outcomes };
    expect({ ...facts, unknown: count.unknown ?? 0 }).toEqual({ ...facts, unknown: 0 });
    expect({ ...facts, once: (count.settled ?? 0) <= 1 && givenBack <= 1 }).toEqual({ ...facts, once: true });
    // Only an end that found the lease alive may have ended nothing.
    const none = outcomes.every((outcome) => outcome === "reap: alive");
    const all = (count.settled ?? 0) + givenBack;
    const some = all === 1 || (all === 2 && (reaped || delivered));
    expect({ ...facts, ends: none ? all === 0 : some }).toEqual({ ...facts, ends: true });
    // Whoever was told of the settlement was told the same.
    const told = ends.filter(({ result }) => result.outcome === "settled" || result.outcome === "already");
    expect(new Set(told.map(({ result }) => `${result.chargedNanoUsd} ${result.units}`)).size).toBeLessThanOrEqual(1);
  }
}

type Books = { units: number; held: number; balance: bigint; heldNanoUsd: bigint; receipts: number };

async function booksOf({ accountId }: Customer): Promise<Books> {
  const [row] = await world.sql`
    select coalesce((select sum(units_used) from packages where account_id = b.account_id), 0)::int as units,
      coalesce((select sum(units_held) from packages where account_id = b.account_id), 0)::int as held,
      balance_nano_usd::text as balance, held_nano_usd::text as held_nano_usd,
      (select count(*) from receipts where account_id = b.account_id)::int as receipts
    from balances b where account_id = ${accountId}`;
  const { units, held, balance, held_nano_usd, receipts } = row ?? {};
  return { units, held, balance: BigInt(balance), heldNanoUsd: BigInt(held_nano_usd), receipts };
}

async function play(plan: Plan): Promise<void> {
  runs++;
  const customers = await openAccounts(plan);
  const units = Math.min(plan.dailyLimit, plan.totalLimit);

  // Nothing is given back: exactly as many are granted as are asked for, or allowed.
  const holds = await reserveAll(customers, plan.first);
  for (const [who, allowed] of [units, plan.affordable, units + plan.affordable].entries()) {
    const asked = plan.first.filter((one) => one.who === who).length;
    const granted = holds.filter(({ accountId }) => accountId === customers[who]?.accountId).length;
    expect({ who, granted }).toEqual({ who, granted: Math.min(asked, allowed) });
  }

  // Everything at once: holds end, some more than once and in more than one way, money comes, others ask.
  const [ended, more] = await Promise.all([
    endAll(holds, plan.ends),
    reserveAll(customers, plan.meanwhile),
    ...plan.topUps.map(async ({ nanoUsd, dally }) => {
      await Bun.sleep(dally);
      await world.sql`select add_balance(${customers[1].accountId}, ${String(nanoUsd)}, 'top_up', null, null)`;
    }),
  ]);
  checkEnds(ended);
  reached.push(...ended.map(({ finish, result }) => `${finish.kind}: ${result.outcome}`));

  // Told once more, they change nothing.
  const before = await Promise.all(customers.map(booksOf));
  const over = ended.filter(({ result }) => result.outcome !== "alive").map(({ finish }) => finish);
  const again = await finish(world.sql, over);
  expect(again.map(({ outcome }) => outcome).filter((outcome) => !REPEATED.has(outcome))).toEqual([]);
  expect(await Promise.all(customers.map(booksOf))).toEqual(before);

  await checkRest(customers, { plan, ended, units });
  await finish(
    world.sql,
    [...holds, ...more].map((hold) => finishOf(hold, { kind: "release", charge: 0n, strict: false, group: 0 })),
  );
}

const REPEATED = new Set<string>(["already", "gone", "refused"]);

type Rest = { plan: Plan; ended: readonly Ended[]; units: number };

/** What is left is what nobody took: whoever reserves one after the other gets exactly that. */
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
    const reserves = Array.from({ length: byPackage + byBalance + 3 }, () => ({ who, at: { door: 2, dally: 0 } }));
    const rest: Hold[] = [];
    for (const one of reserves) {
      const answer = await reserve(customers, one);
      if (typeof answer !== "string") rest.push(answer);
    }
    expect({ who, rest: tally(rest.map(({ mode }) => mode)) }).toEqual({
      who,
      rest: { ...(byPackage > 0 && { package: byPackage }), ...(byBalance > 0 && { payg: byBalance }) },
    });
    const give = rest.map((hold) => finishOf(hold, { kind: "release", charge: 0n, strict: false, group: 0 }));
    await finish(world.sql, give);
  }
}

test(
  "in any interleaving: never oversold, exactly what is allowed, one end a hold, and what is told twice counts once",
  async () => {
    console.log(`interleaving: PROPERTY_SEED=${SEED}`);
    await fc.assert(fc.asyncProperty(plan, play), {
      seed: SEED,
      numRuns: RUNS,
      interruptAfterTimeLimit: SEARCH_MS_MAX,
      markInterruptAsFailure: true,
    });
    console.log(`interleaving: ${runs} runs, ${requests} requests`, tally(reached));
  },
  TEST_TIMEOUT_MS,
);

test("the books balance after all of this, and no hold is left", async () => {
  expect(await world.unbalanced()).toEqual([]);
  expect(await world.sql`select request_id from holds`).toHaveLength(0);
});
