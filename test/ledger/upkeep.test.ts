import { afterAll, beforeAll, expect, test } from "bun:test";
import { appendFile, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { startLedgerJobs } from "../../src/ledger/jobs.ts";
import { runBatch } from "../../src/ledger/ledger_store.ts";
import { createLog } from "../../src/platform/log.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { createWorld, type OfferingSpec, type World } from "../world.ts";
import { askFor, codeOf, type OpenLedger, openWorldLedger, usageOf } from "./ledger_world.ts";

/** Leases, the reaper, late settlements and the spool. Source: rulings › Who pays when something breaks. */

/** Nobody listens there: a database that is away. */
const NOWHERE = "postgres://nobody@127.0.0.1:1/none";

let world: World;
let open: OpenLedger;

beforeAll(async () => {
  world = await createWorld();
  open = await openWorldLedger(world, { leaseSeconds: 2 });
});
afterAll(async () => {
  await open.close();
  await world.close();
});

async function customer(spec: OfferingSpec = { dailyLimit: 2, days: 2 }) {
  const person = await world.addCustomer();
  const key = await world.addKey(person);
  const packageId = await world.givePackage(person, spec);
  return {
    ...person,
    packageId,
    ask: () => askFor(person, key),
    async counters() {
      const [row] = await world.sql`select units_used, units_held from packages where id = ${packageId}`;
      return { ...row };
    },
  };
}

async function receiptOf(requestId: string) {
  const [row] = await world.sql`
    select outcome, reason, units, charged_nano_usd::int as charged, shortfall_nano_usd::int as shortfall, prompt_tokens
    from receipts where request_id = ${requestId}`;
  return row && { ...row };
}

function startJobs(nowMs = () => performance.now()) {
  return startLedgerJobs({
    ledger: open.ledger,
    db: open.db,
    log: createLog("silent"),
    replicaId: crypto.randomUUID(),
    leaseSeconds: 2,
    nowMs,
  });
}

/** Ends the lease of a hold as time would. */
const endLease = (requestId: string) =>
  world.sql`update holds set lease_ends_at = clock_timestamp() where request_id = ${requestId}`;

test("a hold whose replica died is released by the reaper once its lease ended, and not before", async () => {
  const { ask, counters } = await customer();
  const hold = await open.ledger.reserve(ask());
  expect(await open.ledger.reap(hold.requestId, hold.accountId)).toBe(false);
  await endLease(hold.requestId);
  expect(await open.ledger.reap(hold.requestId, hold.accountId)).toBe(true);
  expect(await receiptOf(hold.requestId)).toMatchObject({ outcome: "released", reason: "lease_ended", units: 0 });
  expect(await counters()).toEqual({ units_used: 0, units_held: 0 });
});

test("a replica knows by its own clock when a lease has run out: then it dispatches nothing", async () => {
  let now = 0;
  const paused = await openWorldLedger(world, { leaseSeconds: 2, nowMs: () => now });
  const hold = await paused.ledger.reserve((await customer()).ask());
  now = 1999;
  expect(paused.ledger.alive(hold)).toBe(true);
  now = 2000;
  expect(paused.ledger.alive(hold)).toBe(false);
  await paused.ledger.release(hold, "not_dispatched");
  await paused.close();
});

test("a hold that is still at work is renewed by name, so that the reaper leaves it alone", async () => {
  const { ask } = await customer();
  const hold = await open.ledger.reserve(ask());
  const jobs = startJobs();
  await Bun.sleep(3500);
  expect(await receiptOf(hold.requestId)).toBeUndefined();
  expect(open.ledger.alive(hold)).toBe(true);
  await open.ledger.settle(hold, usageOf());
  await jobs.stop();
});

test("the reaper waits until it has seen the database up for a whole lease", async () => {
  const { ask } = await customer();
  const [dead] = (
    await runBatch(open.db.sql, true, { asks: [ask()], finishes: [], wait: true, retry: false, leaseSeconds: 60 })
  ).reserved;
  expect(dead?.code).toBeNull();
  const [row] = await world.sql`select request_id from holds order by request_id desc limit 1`;
  await endLease(row?.request_id);
  const jobs = startJobs();
  await Bun.sleep(1500);
  expect(await receiptOf(row?.request_id)).toBeUndefined();
  await Bun.sleep(2500);
  expect(await receiptOf(row?.request_id)).toMatchObject({ reason: "lease_ended" });
  await jobs.stop();
});

test("a settlement after the reaper writes its record and takes the unit if it is still there", async () => {
  const { ask, counters } = await customer();
  const hold = await open.ledger.reserve(ask());
  await endLease(hold.requestId);
  await open.ledger.reap(hold.requestId, hold.accountId);
  await open.ledger.settle(hold, usageOf({ promptTokens: 7 }));
  expect(await receiptOf(hold.requestId)).toMatchObject({
    outcome: "settled",
    reason: "late",
    units: 1,
    prompt_tokens: 7,
  });
  expect(await counters()).toEqual({ units_used: 1, units_held: 0 });
});

test("a settlement after the reaper, with the unit gone to another request, records units 0", async () => {
  const { ask, counters } = await customer({ dailyLimit: 1, days: 2, carryover: true });
  const late = await open.ledger.reserve(ask());
  await endLease(late.requestId);
  await open.ledger.reap(late.requestId, late.accountId);
  await open.ledger.settle(await open.ledger.reserve(ask()), usageOf());
  await open.ledger.settle(late, usageOf());
  expect(await receiptOf(late.requestId)).toMatchObject({ outcome: "settled", reason: "late", units: 0 });
  expect(await counters()).toEqual({ units_used: 1, units_held: 0 });
});

test("a late charge takes what the balance still has; the rest is a recorded loss", async () => {
  const person = await world.addCustomer();
  const key = await world.addKey(person, { mode: "payg" });
  await world.setBalance(person, 1000n);
  const hold = await open.ledger.reserve(askFor(person, key, { outputPico: 1000n }));
  await endLease(hold.requestId);
  await open.ledger.reap(hold.requestId, hold.accountId);
  await open.ledger.settle(
    await open.ledger.reserve(askFor(person, key, { outputPico: 1000n })),
    usageOf({ chargeNanoUsd: 600n }),
  );
  await open.ledger.settle(hold, usageOf({ chargeNanoUsd: 900n }));
  expect(await receiptOf(hold.requestId)).toMatchObject({ reason: "late", charged: 400, shortfall: 500 });
});

test("database away: a reserve is refused with service_unavailable within its time", async () => {
  const away = await openWorldLedger(world, { databaseUrl: NOWHERE, timeoutMs: 300 });
  const startMs = performance.now();
  expect(await codeOf(away.ledger.reserve((await customer()).ask()))).toBe("service_unavailable");
  expect(performance.now() - startMs).toBeLessThan(2000);
  await away.close();
});

test("database away after dispatch: the settlement is spooled, replayed by the next life of the replica, and only once", async () => {
  const { ask, counters } = await customer();
  // A hold of the real database, in the hands of a ledger whose database is gone.
  const hold = await open.ledger.reserve(ask());
  const away = await openWorldLedger(world, { databaseUrl: NOWHERE, timeoutMs: 200, spool: "crashed" });
  const finish = {
    requestId: hold.requestId,
    accountId: hold.accountId,
    kind: "settle",
    reason: "complete",
    promptTokens: 5,
    cachedTokens: 0,
  } as const;
  const line = `${JSON.stringify({ ...finish, completionTokens: 6, chargeNanoUsd: "0", strict: false, estimated: false })}\n`;
  expect(away.ledger.status().spoolEmpty).toBe(true);
  await away.close();
  // The file as a crash leaves it: the settlement twice, and a line torn in the middle.
  const directory = join(world.spoolDir, "crashed");
  await appendFile(join(directory, "000000000000001-000000.spool"), `${line}${line}{"requestId":"01`);

  const next = await openWorldLedger(world, { spool: "crashed" });
  expect(next.ledger.status().spoolEmpty).toBe(false);
  expect(await next.ledger.replaySpool()).toBe(2);
  expect(next.ledger.status().spoolEmpty).toBe(true);
  expect(await counters()).toEqual({ units_used: 1, units_held: 0 });
  expect(await receiptOf(hold.requestId)).toMatchObject({ outcome: "settled", prompt_tokens: 5 });
  await next.close();
});

test("a live ledger whose database goes away spools what it settles, with fsync, before it says so", async () => {
  const { ask, counters } = await customer();
  const proxy = await startTcpProxy(world.url);
  const ledger = await openWorldLedger(world, { databaseUrl: proxy.url, timeoutMs: 400, spool: "live" });
  const hold = await ledger.ledger.reserve(ask());
  proxy.cut();
  const settlement = await ledger.ledger.settle(hold, usageOf({ promptTokens: 9 }));
  expect(settlement.spooled).toBe(true);
  const [file] = await readdir(join(world.spoolDir, "live"));
  expect(await readFile(join(world.spoolDir, "live", String(file)), "utf8")).toContain(hold.requestId);
  proxy.mend();
  expect(await ledger.ledger.replaySpool()).toBe(1);
  expect(await counters()).toEqual({ units_used: 1, units_held: 0 });
  await ledger.close();
  await proxy.close();
});

test("a COMMIT whose reply is lost: the same request is answered once more, and held once", async () => {
  const { ask, counters } = await customer();
  const proxy = await startTcpProxy(world.url);
  const ledger = await openWorldLedger(world, { databaseUrl: proxy.url, timeoutMs: 2000, spool: "lost" });
  await ledger.ledger.release(await ledger.ledger.reserve(ask()), "not_dispatched");
  proxy.dropReplies();
  const asking = ledger.ledger.reserve(ask());
  await Bun.sleep(300);
  expect(await counters()).toEqual({ units_used: 0, units_held: 1 });
  proxy.mend();
  const hold = await asking;
  expect(await counters()).toEqual({ units_used: 0, units_held: 1 });
  await ledger.ledger.release(hold, "not_dispatched");
  await ledger.close();
  await proxy.close();
});

test("coming months' partitions are made ahead, and making them again makes none", async () => {
  const [months] = await world.sql`select count(*)::int as n from pg_inherits where inhparent = 'receipts'::regclass`;
  expect(months?.n).toBe(5);
  const [again] = await world.sql`select make_receipt_months(3) as made`;
  expect(again?.made).toBe(0);
  const [ahead] = await world.sql`select make_receipt_months(5) as made`;
  expect(ahead?.made).toBe(2);
});

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
});
