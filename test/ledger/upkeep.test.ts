import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { appendFile, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import type { TransactionSql } from "postgres";
import { checkIfDue, checkNow, lastChecks } from "../../src/books/check_runs_store.ts";
import { startBooksCheck } from "../../src/books/check_schedule.ts";
import { INVARIANTS } from "../../src/books/invariants.ts";
import { settlementOf } from "../../src/ledger/finisher.ts";
import { startLedgerJobs } from "../../src/ledger/jobs.ts";
import { pruneLeases, reapAccount } from "../../src/ledger/leases_store.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import { heartbeat, recentReplicas } from "../../src/ledger/replicas_store.ts";
import { createReserveLatency } from "../../src/ledger/reserve_latency.ts";
import { connect } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { until } from "../platform/own_redis.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { createWorld, type OfferingSpec, type World } from "../world.ts";
import {
  codeOf,
  type OpenLedger,
  openSqlReplica,
  openWorldLedger,
  reapLease,
  requestFor,
  usageOf,
} from "./ledger_world.ts";

/**
 * Leases, the reaper, late settlements, the spool, heartbeats and the books' check. Source: END-13, END-14, REL-3, REL-6, REL-8.
 */

/** Nothing listens there: an unreachable database. */
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
    ask: () => requestFor(person, key),
    async counters() {
      const [row] =
        await world.sql`select units_taken - package_drawn(packages) as units_used, package_drawn(packages) as units_held from packages where id = ${packageId}`;
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

function startJobs({
  ledger = open.ledger,
  replicaId = crypto.randomUUID() as string,
  nowMs = () => performance.now(),
} = {}) {
  return startLedgerJobs({
    ledger,
    db: open.db,
    log: createLog("silent"),
    replicaId,
    version: "1.2.3",
    health: () => ({ inFlight: 4, ledgerP99Ms: 1.5, draining: false, busHealthy: true }),
    leaseSeconds: 2,
    nowMs,
  });
}

/** Waits for so many heartbeats of the replica. */
async function untilBeaten(id: string, beats: number): Promise<void> {
  const seen = new Set<string>();
  await until(async () => {
    const [row] = await world.sql`select seen_at::text as seen_at from replicas where id = ${id}`;
    if (row !== undefined) seen.add(String(row.seen_at));
    return seen.size > beats;
  });
}

const replica = async (id: string) => (await recentReplicas(open.db.sql)).find((one) => one.id === id);

test("the reaper returns a dead replica's drawn units and money when its lease has ended, and not before; the request has no receipt", async () => {
  const { ask, counters, accountId } = await customer();
  const hold = await open.ledger.reserve(ask());
  expect(await reapAccount(world.sql, accountId)).toBe(0);
  expect(await counters()).toEqual({ units_used: 0, units_held: 1 });
  await reapLease(world, hold.leaseId);
  expect(await receiptOf(hold.requestId)).toBeUndefined();
  expect(await counters()).toEqual({ units_used: 0, units_held: 0 });
  // Its end arrives later: there is nothing to release, and nothing is written.
  await open.ledger.release(hold, "provider_failed");
  expect(await receiptOf(hold.requestId)).toBeUndefined();
  expect(await counters()).toEqual({ units_used: 0, units_held: 0 });
});

test("a replica knows by its own clock when its lease has ended, and then does not dispatch", async () => {
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

test("the lease is renewed, so the reaper does not return what open requests hold", async () => {
  const { ask, counters } = await customer();
  const jobs = startJobs();
  await until(async () => open.ledger.alive({ leaseId: open.ledger.leaseId() } as Hold));
  const hold = await open.ledger.reserve(ask());
  const [lease] = await world.sql`select ends_at::text as ends_at from leases where id = ${hold.leaseId}`;
  const ended = () =>
    world.sql`select 1 where clock_timestamp() > ${String(lease?.ends_at)}::timestamptz + interval '1 second'`;
  await until(async () => (await ended()).length === 1);
  expect(await counters()).toEqual({ units_used: 0, units_held: 1 });
  expect(open.ledger.alive(hold)).toBe(true);
  await open.ledger.settle(hold, usageOf());
  await jobs.stop();
});

test("the reaper waits until it has seen the database up for a whole lease", async () => {
  const { ask, counters } = await customer();
  const dead = await openSqlReplica(world);
  expect((await dead.reserve([ask()]))[0]?.code).toBeNull();
  await world.sql`update leases set ends_at = clock_timestamp() where id = ${dead.leaseId}`;
  let nowMs = 0;
  const id = crypto.randomUUID();
  const jobs = startJobs({ replicaId: id, nowMs: () => nowMs });
  // Several heartbeats, at the end of each of which it may reap.
  await untilBeaten(id, 3);
  nowMs = 1_999;
  await untilBeaten(id, 3);
  expect(await counters()).toEqual({ units_used: 0, units_held: 1 });
  nowMs = 2_000;
  await until(async () => (await counters()).units_held === 0);
  expect(jobs.reaper().reaped).toBeGreaterThan(0);
  await jobs.stop();
});

test("an account that stays locked holds up neither the reaper's other accounts, nor the heartbeat", async () => {
  const dead = await openSqlReplica(world);
  const people = [await customer(), await customer(), await customer()];
  await dead.reserve(people.map(({ ask }) => ask()));
  await world.sql`update leases set ends_at = clock_timestamp() where id = ${dead.leaseId}`;
  const [locked, ...others] = people;
  const id = crypto.randomUUID();
  await world.sql.begin(async (holder) => {
    await holder`select lock_accounts(array[${Number(locked?.accountId)}]::bigint[])`;
    const jobs = startJobs({ replicaId: id });
    const isReaped = async () =>
      (await Promise.all(others.map((one) => one.counters()))).every((c) => c.units_held === 0);
    await until(isReaped);
    await untilBeaten(id, 3);
    expect([jobs.databaseUp(), await locked?.counters()]).toEqual([true, { units_used: 0, units_held: 1 }]);
    await jobs.stop();
  });
  await reapLease(world, dead.leaseId);
});

test("a settlement that waits for money in a dead replica's hands, and the reaper: neither waits for the other for ever", async () => {
  const person = await world.addCustomer();
  const key = await world.addKey(person, { mode: "payg" });
  await world.setBalance(person, 20_000n);
  const ask = () =>
    requestFor(person, key, { outputPico: 1000n, known: { mode: "payg", epoch: 1000, tenantEpoch: 1000 } });
  const dead = await openWorldLedger(world, { escrowShare: 1 });
  for (let i = 0; i < 6; i++) await dead.ledger.reserve(ask());
  await dead.ledger.abandon();
  const alive = await openWorldLedger(world, { leaseSeconds: 2, timeoutMs: 1_200, spool: "waits" });
  const hold = await alive.ledger.reserve(ask());
  expect(await alive.ledger.settle(hold, usageOf({ chargeNanoUsd: 19_000n }))).toMatchObject({ spooled: true });
  await world.sql`update leases set ends_at = clock_timestamp() where id = ${dead.ledger.leaseId()}`;
  const jobs = startJobs({ ledger: alive.ledger });
  await until(async () => alive.ledger.status().spoolEmpty);
  expect(await receiptOf(hold.requestId)).toMatchObject({ outcome: "settled", charged: 19_000, shortfall: 0 });
  await jobs.stop();
  await Promise.all([alive.close(), dead.db.close()]);
});

test("empty rows of former days are deleted without a deadlock with a batch that writes them", async () => {
  const { leaseId } = await openSqlReplica(world);
  const accounts = [(await customer()).accountId, (await customer()).accountId];
  for (const accountId of accounts)
    await world.sql`
      insert into escrows (account_id, lease_id, package_id, key_id, day, draw_number, units, tokens, nano_usd, idle_units,
        idle_nano_usd, epoch, tenant_epoch)
      values (${accountId}, ${leaseId}, 1, 0, current_date - 9, 0, 0, 0, 0, 0, 0, 0, 0)`;
  const write = (sql: TransactionSql, accountId: number | undefined) =>
    sql`update escrows set draw_number = 1 where account_id = ${Number(accountId)} and lease_id = ${leaseId}`;
  await world.sql.begin(async (batch) => {
    await write(batch, accounts[1]);
    const pruning = pruneLeases(open.db.sql);
    await Bun.sleep(300);
    await write(batch, accounts[0]);
    await pruning;
  });
  await pruneLeases(world.sql);
  expect(await world.sql`select 1 from escrows where lease_id = ${leaseId}`).toHaveLength(0);
});

test("a late settlement writes its usage record and takes the unit if it is still available", async () => {
  const { ask, counters } = await customer();
  const hold = await open.ledger.reserve(ask());
  await reapLease(world, hold.leaseId);
  await open.ledger.settle(hold, usageOf({ promptTokens: 7 }));
  expect(await receiptOf(hold.requestId)).toMatchObject({
    outcome: "settled",
    reason: "late",
    units: 1,
    prompt_tokens: 7,
  });
  expect(await counters()).toEqual({ units_used: 1, units_held: 0 });
});

test("a late settlement whose unit was used by another request records 0 units", async () => {
  const { ask, counters } = await customer({ dailyLimit: 1, days: 2, carryover: true });
  const late = await open.ledger.reserve(ask());
  await reapLease(world, late.leaseId);
  await open.ledger.settle(await open.ledger.reserve(ask()), usageOf());
  await open.ledger.settle(late, usageOf());
  expect(await receiptOf(late.requestId)).toMatchObject({ outcome: "settled", reason: "late", units: 0 });
  expect(await counters()).toEqual({ units_used: 1, units_held: 0 });
});

test("a late settlement that gets no unit takes nothing of the package's tokens", async () => {
  const { ask, packageId } = await customer({ dailyLimit: 1, days: 2, carryover: true, tokenLimit: 100 });
  const late = await open.ledger.reserve(ask());
  await reapLease(world, late.leaseId);
  await open.ledger.settle(await open.ledger.reserve(ask()), usageOf({ promptTokens: 5, completionTokens: 5 }));
  await open.ledger.settle(late, usageOf({ promptTokens: 40, completionTokens: 40 }));
  const [row] =
    await world.sql`select tokens_taken::int, package_tokens_spent(id)::int as tokens_used from packages where id = ${packageId}`;
  expect({ ...row }).toEqual({ tokens_taken: 10, tokens_used: 10 });
});

test("a late charge takes the available balance; the rest is recorded as a loss", async () => {
  const person = await world.addCustomer();
  const key = await world.addKey(person, { mode: "payg" });
  await world.setBalance(person, 1000n);
  const hold = await open.ledger.reserve(requestFor(person, key, { outputPico: 1000n }));
  await reapLease(world, hold.leaseId);
  await open.ledger.settle(
    await open.ledger.reserve(requestFor(person, key, { outputPico: 1000n })),
    usageOf({ chargeNanoUsd: 600n }),
  );
  await open.ledger.settle(hold, usageOf({ chargeNanoUsd: 900n }));
  expect(await receiptOf(hold.requestId)).toMatchObject({ reason: "late", charged: 400, shortfall: 500 });
});

test("database away: a reservation is refused with service_unavailable within its time limit", async () => {
  const away = await openWorldLedger(world, { databaseUrl: NOWHERE, timeoutMs: 300 });
  expect(await codeOf(away.ledger.reserve((await customer()).ask()))).toBe("service_unavailable");
  await away.close();
});

test("database away after dispatch: the settlement is spooled, and replayed once after a restart", async () => {
  const { ask, counters } = await customer();
  // A hold of the real database, in a ledger whose database is gone.
  const hold = await open.ledger.reserve(ask());
  const away = await openWorldLedger(world, { databaseUrl: NOWHERE, timeoutMs: 200, spool: "crashed" });
  const { chargeNanoUsd, ...row } = settlementOf(hold, usageOf({ promptTokens: 5 }), {
    strict: false,
    reason: "complete",
  });
  const line = `${JSON.stringify({ ...row, heldNanoUsd: "0", chargeNanoUsd: String(chargeNanoUsd) })}\n`;
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

test("when the database goes away, settlements are spooled with fsync before `settle` resolves", async () => {
  const { ask, counters } = await customer();
  const proxy = await startTcpProxy(world.url);
  const ledger = await openWorldLedger(world, { databaseUrl: proxy.url, timeoutMs: 1_500, spool: "live" });
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

test.each([
  ["takes no writes, as a standby", "set default_transaction_read_only = on", "reset default_transaction_read_only"],
  ["lets nobody in", "nologin", "login"],
])(
  "a server that %s: a reserve is refused as when it is away, a settlement waits in the spool",
  async (_, shut, mend) => {
    const { ask, counters } = await customer();
    const role = `tollgate_upkeep_${process.pid}`;
    await world.sql.unsafe(`create role ${role} superuser login password '${role}'`);
    const url = new URL(world.url);
    url.username = role;
    url.password = role;
    const { ledger, close } = await openWorldLedger(world, { databaseUrl: url.href, timeoutMs: 1_500 });
    const reconnect = () => world.sql`select pg_terminate_backend(pid) from pg_stat_activity where usename = ${role}`;
    try {
      const hold = await ledger.reserve(ask());
      await world.sql.unsafe(`alter role ${role} ${shut}`);
      await reconnect();
      expect(await codeOf(ledger.reserve(ask()))).toBe("service_unavailable");
      expect((await ledger.settle(hold, usageOf())).spooled).toBe(true);
      expect(ledger.spooled().settlements).toBe(1);
      await world.sql.unsafe(`alter role ${role} ${mend}`);
      await reconnect();
      expect(await ledger.replaySpool()).toBe(1);
      expect(await counters()).toEqual({ units_used: 1, units_held: 0 });
    } finally {
      await close();
      await world.sql.unsafe(`drop role ${role}`);
    }
  },
);

test("a lost reply to a COMMIT: the request is sent again and reserved once", async () => {
  const { ask, counters } = await customer();
  const proxy = await startTcpProxy(world.url);
  const ledger = await openWorldLedger(world, { databaseUrl: proxy.url, timeoutMs: 2000, spool: "lost" });
  await ledger.ledger.release(await ledger.ledger.reserve(ask()), "not_dispatched");
  proxy.dropReplies();
  const asking = ledger.ledger.reserve(ask());
  await until(async () => (await counters()).units_held === 1);
  proxy.mend();
  const hold = await asking;
  expect(await counters()).toEqual({ units_used: 0, units_held: 1 });
  await ledger.ledger.release(hold, "not_dispatched");
  await ledger.close();
  await proxy.close();
});

test("partitions of the coming months are created in advance, and only once", async () => {
  const [months] = await world.sql`select count(*)::int as n from pg_inherits where inhparent = 'receipts'::regclass`;
  expect(months?.n).toBe(5);
  const [again] = await world.sql`select make_receipt_months(3) as made`;
  expect(again?.made).toBe(0);
  const [ahead] = await world.sql`select make_receipt_months(5) as made`;
  expect(ahead?.made).toBe(2);
});

test("a replica writes its status every second; one that shuts down deletes its row", async () => {
  const id = crypto.randomUUID();
  const jobs = startJobs({ replicaId: id });
  await until(async () => (await replica(id)) !== undefined);
  const first = await replica(id);
  expect(first).toMatchObject({ version: "1.2.3", status: { reapedAt: null, databaseUp: false } });
  // The reaper starts a full lease after the first heartbeat. The heartbeat after that shows it.
  await until(async () => (await replica(id))?.status?.reapedAt != null);
  const later = await replica(id);
  expect(later?.status).toEqual({
    holds: open.ledger.status().holds,
    oldestHoldMs: expect.any(Number),
    queued: 0,
    spoolEmpty: true,
    inFlight: 4,
    ledgerP99Ms: 1.5,
    reapedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    draining: false,
    busHealthy: true,
    databaseUp: true,
    runtime: "bun",
  });
  expect(later?.startedAt).toBe(String(first?.startedAt));
  expect(Date.parse(String(later?.seenAt)) - Date.parse(String(later?.status?.reapedAt))).toBeGreaterThan(500);
  const [clock] = await world.sql`select clock_timestamp() as now`;
  expect(later?.ageMs).toBeLessThanOrEqual(
    new Date(String(clock?.now)).getTime() + 1000 - Date.parse(String(later?.seenAt)),
  );
  await jobs.stop();
  expect(await replica(id)).toBeUndefined();
});

test("a dead replica is shown for five minutes with its age; one of another release is shown without a status", async () => {
  const id = crypto.randomUUID();
  const status = { ...open.ledger.status(), inFlight: 0, ledgerP99Ms: null, reapedAt: null } as const;
  const rest = { draining: false, busHealthy: true, databaseUp: true, runtime: "bun" } as const;
  await heartbeat(open.db.sql, { id, version: "1", status: { ...status, ...rest } });
  await world.sql`update replicas set seen_at = seen_at - interval '100 seconds' where id = ${id}`;
  const dead = await replica(id);
  const [clock] = await world.sql`select clock_timestamp() as now`;
  expect(dead?.ageMs).toBeGreaterThanOrEqual(100_000);
  expect(dead?.ageMs).toBeLessThanOrEqual(
    new Date(String(clock?.now)).getTime() + 1000 - Date.parse(String(dead?.seenAt)),
  );
  await world.sql`update replicas set status = '{"holds": "many"}' where id = ${id}`;
  expect(await replica(id)).toMatchObject({ version: "1", status: null });
  await world.sql`update replicas set seen_at = seen_at - interval '300 seconds' where id = ${id}`;
  expect(await replica(id)).toBeUndefined();
});

test("a replica whose lanes cannot reach the database is shown, with a spool that is not empty", async () => {
  const { ask } = await customer();
  const proxy = await startTcpProxy(world.url);
  const cut = await openWorldLedger(world, { databaseUrl: proxy.url, timeoutMs: 1_500, spool: "waiting" });
  const hold = await cut.ledger.reserve(ask());
  proxy.cut();
  await cut.ledger.settle(hold, usageOf());
  const id = crypto.randomUUID();
  const jobs = startJobs({ ledger: cut.ledger, replicaId: id });
  await until(async () => (await replica(id))?.status?.spoolEmpty === false);
  proxy.mend();
  await until(async () => (await replica(id))?.status?.spoolEmpty === true);
  await jobs.stop();
  expect(await receiptOf(hold.requestId)).toMatchObject({ outcome: "settled" });
  await cut.close();
  await proxy.close();
});

test("p99 latency is of the last minute, at most 10% too high, and includes failed reservations", async () => {
  let now = 0;
  const latency = createReserveLatency(() => now);
  expect(latency.p99Ms()).toBeNull();
  const note = (count: number, tookMs: number) => {
    for (let i = 0; i < count; i++) latency.note(tookMs);
  };
  const expectNear = (ms: number) => {
    expect(latency.p99Ms()).toBeGreaterThanOrEqual(ms);
    expect(latency.p99Ms()).toBeLessThanOrEqual(ms * 1.11);
  };
  note(98, 2);
  note(2, 300);
  expectNear(300);
  now = 1_000;
  note(1_000_000, 2);
  expectNear(2);
  now = 60_500;
  expectNear(2);
  now = 61_000;
  expect(latency.p99Ms()).toBeNull();
  note(1, 1e9);
  expect(latency.p99Ms()).toBeGreaterThan(10_000);

  now = 200_000;
  const measured = createReserveLatency(() => performance.now());
  const away = await openWorldLedger(world, { databaseUrl: NOWHERE, timeoutMs: 300, latency: measured });
  expect(await codeOf(away.ledger.reserve((await customer()).ask()))).toBe("service_unavailable");
  expect(measured.p99Ms()).toEqual(expect.any(Number));
  await away.close();
});

describe("the books' check", () => {
  /** A check takes two connections; a session that holds a lock is one. */
  const client = (connections = 2) => connect({ databaseUrl: world.url, dbPrepare: true }, connections);
  /** A check that has found the lock taken asks for it again and again, in a transaction. */
  const untilItWaits = () =>
    until(async () => {
      const waiting = await world.sql`
        select 1 from pg_stat_activity where datname = current_database() and state = 'idle in transaction'
          and query like '%pg_try_advisory_xact_lock%'`;
      return waiting.length === 1;
    });
  const stored = async () => Number((await world.sql`select count(*)::int as n from book_checks`)[0]?.n);

  test("checks every invariant view of the database", async () => {
    const views = await world.sql`
      select table_name as name from information_schema.views where table_name like 'inv\\_%' order by 1`;
    expect([...INVARIANTS].map(({ name }) => String(name)).sort()).toEqual(views.map(({ name }) => name));
  });

  test("many concurrent replicas make one check; the next is due when the interval has passed", async () => {
    const clients = Array.from({ length: 5 }, () => client());
    const before = await stored();
    const checks = await Promise.all(clients.map((sql) => checkIfDue(sql, 300)));
    expect(checks.filter((check) => check !== undefined)).toHaveLength(1);
    expect(await Promise.all(clients.map((sql) => checkIfDue(sql, 300)))).toEqual(clients.map(() => undefined));
    expect(await stored()).toBe(before + 1);
    await world.sql`update book_checks set checked_at = checked_at - interval '301 seconds'`;
    expect(await checkIfDue(clients[0] as (typeof clients)[0], 300)).toMatchObject({
      results: INVARIANTS.map(({ name }) => ({ name, rows: 0 })),
    });
    await Promise.all(clients.map((sql) => sql.end()));
  });

  test("requested during another replica's check: returns that result, or checks itself if that fails", async () => {
    const [sql, holder] = [client(), client(1)];
    const lock = () => holder`select pg_advisory_lock(hashtextextended('tollgate.books_check', 0))`;
    const unlock = () => holder`select pg_advisory_unlock_all()`;
    await lock();
    const shared = checkNow(sql);
    await untilItWaits();
    await holder`insert into book_checks (took_ms, results) values (4242, '[]')`;
    await unlock();
    expect(await shared).toMatchObject({ tookMs: 4242, results: [] });
    await lock();
    const own = checkNow(sql);
    await untilItWaits();
    await unlock();
    expect((await own).results).toHaveLength(INVARIANTS.length);
    await Promise.all([sql.end(), holder.end()]);
  });

  test("a replica checks by itself when one is due, and on demand at most one at a time; the last 200 are kept", async () => {
    await world.sql`insert into book_checks (took_ms, results) select 1, '[]' from generate_series(1, 250)`;
    await world.sql`update book_checks set checked_at = checked_at - interval '1 hour'`;
    const config = { databaseUrl: world.url, dbPrepare: true };
    const check = startBooksCheck({ config, log: createLog("silent"), tickMs: 50 });
    const [newest] = await lastChecks(world.sql, 1);
    await until(async () => (await lastChecks(world.sql, 1))[0]?.checkedAt !== newest?.checkedAt);
    expect(await stored()).toBe(200);
    const [one, two] = await Promise.all([check.now(), check.now()]);
    expect(one).toEqual(two);
    expect((await lastChecks(world.sql, 1))[0]).toEqual(one);
    await check.close();
  });

  test("a replica that shuts down does not wait for its check", async () => {
    const holder = client(1);
    await holder`select pg_advisory_lock(hashtextextended('tollgate.books_check', 0))`;
    const config = { databaseUrl: world.url, dbPrepare: true };
    const check = startBooksCheck({ config, log: createLog("silent") });
    const waiting = check.now().catch((error: unknown) => error);
    await untilItWaits();
    // The lock is held until the end of the test.
    await check.close();
    expect(await waiting).toBeInstanceOf(Error);
    await holder.end();
  });

  test("violations are counted, and disappear once repaired", async () => {
    const person = await world.addCustomer();
    const sql = client();
    await world.sql`update balances set balance_nano_usd = 5 where account_id = ${person.accountId}`;
    const broken = (await checkNow(sql)).results.filter(({ rows }) => rows !== 0);
    expect(broken).toEqual([{ name: "inv_balance_entries", rows: 1 }]);
    await world.sql`update balances set balance_nano_usd = 0 where account_id = ${person.accountId}`;
    expect((await checkNow(sql)).results.every(({ rows }) => rows === 0)).toBe(true);
    await sql.end();
  });
});

test("the books balance after all of this", async () => {
  expect(await world.unbalanced()).toEqual([]);
});
