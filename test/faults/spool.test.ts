import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { startLedgerJobs } from "../../src/ledger/jobs.ts";
import { reapAccount } from "../../src/ledger/leases_store.ts";
import type { Hold } from "../../src/ledger/ledger.ts";
import type { Finish } from "../../src/ledger/ledger_store.ts";
import { openSpool, type Spool } from "../../src/ledger/spool.ts";
import { createLog } from "../../src/platform/log.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { openWorldLedger, requestFor, usageOf } from "../ledger/ledger_world.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { FROM_SOURCE, type ReplicaProcess, startReplicaProcess } from "../replica.ts";
import { startTcpProxy, type TcpProxy } from "../tcp_proxy.ts";
import {
  behave,
  behaveHeld,
  callsOf,
  closeAtRest,
  flowing,
  HELD_NANO_USD,
  HELD_USAGE,
  hasMark,
  type Mark,
  type OpenCall,
  openCall,
  type Purse,
  receiptsOf,
  withReplica,
} from "./fault_shop.ts";

/**
 * Waiting settlements: above the limit, on a full disk, twice, and together with other ends of their holds. None is
 * lost, and none is applied twice. Source: END-14, REL-6.
 */
const SPOOL_BYTES_MAX = 1024;
/** The size of the tiny disk. */
const DISK_BYTES = 32 * 1024;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ env: { LEASE_SECONDS: "4", LEDGER_TIMEOUT_MS: "10000" } });
});
afterAll(() => closeAtRest(shop));

/** The ids in the spool of this folder. */
function spooledIn(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith(".spool"))
    .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n"))
    .filter(Boolean)
    .map((line) => JSON.parse(line).requestId);
}

const readiness = async (origin: string) => {
  const { status, json } = await shop.call("/readyz", { origin });
  return status === 200 ? "ready" : String(json.reason);
};

/** Opens streams that end once `open` is called; half are paid by a package, half by a balance. */
async function openStreams(origin: string, count: number) {
  const customer = await shop.customer({ dailyLimit: 1000 });
  const payer = await shop.payer(BigInt(count) * HELD_NANO_USD);
  for (const { secret } of [customer, payer])
    await until(async () => (await shop.call("/v1/models", { secret, origin })).status === 200);
  const { mark, open } = behaveHeld(shop, { tokens: 10, usage: HELD_USAGE });
  const calls = Array.from({ length: count }, (_, i) =>
    openCall(origin, i % 2 === 0 ? customer.secret : payer.secret, { stream: true, ...mark }),
  );
  await flowing(calls);
  return { customer, payer, calls, mark, open };
}

/** New work is refused, before it reaches a provider. */
async function expectShed({ secret }: { secret: string }, origin: string): Promise<void> {
  const mark = behave(shop, { tokens: 5 });
  for (const stream of [false, true])
    expectRefusal(await shop.chat(secret, { stream, ...mark }, { origin }), "service_unavailable");
  expect(callsOf(shop, mark)).toBe(0);
}

const callsWith = (mark: Mark) =>
  shop.provider.calls().filter(({ generation, body }) => generation && hasMark(body, mark));

const complete = (call: OpenCall) => call.got().endsWith("data: [DONE]\n\n");

/** Each of the streams has one usage record, and was charged in full. */
async function expectAllTaken({ customer, payer, calls }: Awaited<ReturnType<typeof openStreams>>): Promise<void> {
  const half = calls.length / 2;
  await until(async () => (await shop.counters(customer.accountId)).usage === half);
  await until(async () => (await shop.counters(payer.accountId)).usage === half);
  expect(await shop.counters(customer.accountId)).toMatchObject({ units: half, holds: 0, released: 0 });
  const balance = Number(BigInt(half) * HELD_NANO_USD);
  expect(await shop.counters(payer.accountId)).toMatchObject({ balance, holds: 0, released: 0 });
  for (const receipt of await receiptsOf(shop, payer.accountId))
    expect(receipt).toMatchObject({ charged: Number(HELD_NANO_USD), shortfall: 0 });
}

test.concurrent("over SPOOL_BYTES_MAX the replica is not ready and refuses new work; requests in flight are still spooled, and applied once", async () => {
  const proxy = await startTcpProxy(shop.world.url);
  const folder = join(shop.world.spoolDir, "over");
  const start = () =>
    shop.start({
      DATABASE_URL: proxy.url,
      SPOOL_DIR: folder,
      SPOOL_BYTES_MAX: String(SPOOL_BYTES_MAX),
      LEASE_SECONDS: "60",
    });
  await withReplica(start, async ({ origin }) => {
    const streams = await openStreams(origin, 12);
    proxy.cut();
    streams.open();
    await Promise.all(streams.calls.map(({ ended }) => ended));
    expect(streams.calls.filter(complete)).toHaveLength(12);
    // All twelve are there, although some came when the limit was already exceeded.
    expect(new Set(spooledIn(folder)).size).toBe(12);
    expect(await readiness(origin)).toBe("spool_full");
    await expectShed(streams.customer, origin);
    proxy.mend();
    await expectAllTaken(streams);
    await until(async () => (await readiness(origin)) === "ready");
    expect(spooledIn(folder)).toEqual([]);
    expect((await shop.chat(streams.customer.secret, {}, { origin })).status).toBe(200);
  }).finally(proxy.close);
});

/** Whether a process can have its own disk here. */
const canMount =
  spawnSync("unshare", ["-Urm", "sh", "-c", "mount -t tmpfs none /tmp"], { timeout: 10_000 }).status === 0;

if (!canMount)
  console.log(
    "Left out: a spool on a disk that is really full needs `unshare -Urm` and tmpfs, which this machine refuses.",
  );
else
  describe("a full disk", () => {
    type Full = {
      replica: ReplicaProcess;
      proxy: TcpProxy;
      folder: string;
      origin: string;
      fill(): void;
      free(): void;
    };

    /** A replica whose spool is a tmpfs of a few pages, in its own mount namespace. */
    async function onTinyDisk(name: string, work: (full: Full) => Promise<void>): Promise<void> {
      const mountPoint = join(shop.world.spoolDir, name);
      mkdirSync(mountPoint);
      const proxy = await startTcpProxy(shop.world.url);
      const mounted = `mount -t tmpfs -o size=${DISK_BYTES} none "$0" && exec "$@"`;
      const start = () =>
        startReplicaProcess(
          {
            DATABASE_URL: proxy.url,
            REDIS_URL: process.env.REDIS_URL ?? "",
            SPOOL_DIR: join(mountPoint, "spool"),
            PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port}`,
            LEDGER_TIMEOUT_MS: "10000",
            LEASE_SECONDS: "60",
            DRAIN_SECONDS: "2",
          },
          ["unshare", "-Urm", "sh", "-c", mounted, mountPoint, ...FROM_SOURCE],
        );
      await withReplica(start, (replica) => work(fullDisk(replica, proxy, mountPoint))).finally(proxy.close);
    }

    function fullDisk(replica: ReplicaProcess, proxy: TcpProxy, mountPoint: string): Full {
      // The process's own view of the mount.
      const seen = `/proc/${replica.process.pid}/root${mountPoint}`;
      const filler = join(seen, "filler");
      return {
        replica,
        proxy,
        origin: replica.origin,
        folder: join(seen, "spool"),
        fill() {
          try {
            for (;;) writeFileSync(filler, "x".repeat(1024), { flag: "a" });
          } catch (error) {
            expect(String(error)).toContain("ENOSPC");
          }
        },
        free: () => rmSync(filler),
      };
    }

    test.concurrent("settlements and their clients wait in memory; they are written once there is room, and applied once", () =>
      onTinyDisk("full-then-room", async ({ origin, proxy, folder, fill, free }) => {
        const streams = await openStreams(origin, 8);
        fill();
        proxy.cut();
        streams.open();
        await until(async () => (await readiness(origin)) === "spool_full");
        // The provider has ended all of them, and the replica has answered later requests.
        for (const { id } of callsWith(streams.mark)) await shop.provider.waitForEnd(id);
        for (let i = 0; i < 5; i++) expect(await readiness(origin)).toBe("spool_full");
        // No client is told that its answer is complete while its settlement is not written.
        expect(streams.calls.filter(complete)).toEqual([]);
        free();
        await Promise.all(streams.calls.map(({ ended }) => ended));
        expect(streams.calls.filter(complete)).toHaveLength(8);
        expect(new Set(spooledIn(folder)).size).toBe(8);
        expect(await readiness(origin)).toBe("database_unreachable");
        proxy.mend();
        await expectAllTaken(streams);
        await until(async () => (await readiness(origin)) === "ready");
      }));

    test.concurrent("if Postgres is back first, settlements are applied from memory; the replica is ready once the disk can be written", () =>
      onTinyDisk("full-then-database", async ({ origin, proxy, fill, free }) => {
        const streams = await openStreams(origin, 8);
        fill();
        proxy.cut();
        streams.open();
        await until(async () => (await readiness(origin)) === "spool_full");
        proxy.mend();
        await expectAllTaken(streams);
        await Promise.all(streams.calls.map(({ ended }) => ended));
        expect(streams.calls.filter(complete)).toHaveLength(8);
        expect(await readiness(origin)).toBe("spool_full");
        await expectShed(streams.customer, origin);
        free();
        await until(async () => (await readiness(origin)) === "ready");
        expect((await shop.chat(streams.customer.secret, {}, { origin })).status).toBe(200);
      }));

    test.concurrent("full of waiting settlements, it gets its room from the replay", () =>
      onTinyDisk("full-of-itself", async ({ origin, proxy, folder, fill }) => {
        const [first, second] = await Promise.all([openStreams(origin, 8), openStreams(origin, 8)]);
        proxy.cut();
        first.open();
        await Promise.all(first.calls.map(({ ended }) => ended));
        // The second eight end when no page is left.
        fill();
        second.open();
        expect(spooledIn(folder).length).toBeGreaterThanOrEqual(8);
        proxy.mend();
        await expectAllTaken(first);
        await expectAllTaken(second);
      }));

    test.concurrent("a SIGTERM with settlements that could not be written ends the process with an exit code other than 0", () =>
      onTinyDisk("full-at-the-end", async ({ replica, origin, proxy, fill }) => {
        const streams = await openStreams(origin, 4);
        fill();
        proxy.cut();
        streams.open();
        await until(async () => (await readiness(origin)) === "spool_full");
        const exited = await Promise.race([replica.stop(), sleep(120_000).then(() => "still running")]);
        expect(exited).toBe(1);
        expect(streams.calls.filter(complete)).toEqual([]);
        // The replica's lease is a minute; the books must come to rest before that.
        await shop.world.sql`update leases set ends_at = clock_timestamp() where id in (select lease_id from escrows
          where account_id in (${streams.customer.accountId}, ${streams.payer.accountId}))`;
      }));
  });

/** A settlement as a replica's spool has it. */
function lineOf({ mode, heldNanoUsd, ...drawn }: Hold, over: Partial<Record<keyof Finish, unknown>> = {}): string {
  const finish = { ...drawn, heldNanoUsd: String(heldNanoUsd), settles: true, reason: "complete", strict: false };
  const usage = { promptTokens: 10, cachedTokens: 0, completionTokens: 20, chargeNanoUsd: "0", estimated: false };
  return `${JSON.stringify({ ...finish, ...usage, reportedUsage: null, ...over })}\n`;
}

/** A replica's spool as an earlier process left it. */
function leaveSpool(name: string, lines: string[]): void {
  mkdirSync(join(shop.world.spoolDir, name));
  writeFileSync(join(shop.world.spoolDir, name, "000000000000001-000000.spool"), lines.join(""));
}

describe("a hold has one end, whatever ends it, and however often", () => {
  const HOLDS = 30;
  const CHARGE = 1_000n;

  /** Two ledgers, as in two replicas, with holds in the first. */
  async function twoLedgers(
    purse: Purse,
    lines: (hold: Hold) => string[],
    work: (sides: { a: Side; b: Side; holds: Hold[]; accountId: number }) => Promise<void>,
  ): Promise<void> {
    const name = `races-${crypto.randomUUID()}`;
    const person = await shop.world.addCustomer();
    const key = await shop.world.addKey(person, { mode: purse === "package" ? "package" : "payg" });
    if (purse === "package") await shop.world.givePackage(person, { dailyLimit: HOLDS });
    else await shop.world.setBalance(person, CHARGE * BigInt(HOLDS));
    const a = await openWorldLedger(shop.world);
    // Each holds exactly what it will be charged.
    const price = purse === "package" ? {} : { promptPico: 0n, outputPico: CHARGE * 1000n, capMax: 1, capMin: 1 };
    const asks = Array.from({ length: HOLDS }, () => a.ledger.reserve(requestFor(person, key, price)));
    const holds = await Promise.all(asks);
    leaveSpool(name, holds.flatMap(lines));
    const b = await openWorldLedger(shop.world, { spool: name });
    try {
      await work({ a, b, holds, accountId: person.accountId });
      expect(b.ledger.status().spoolEmpty).toBe(true);
    } finally {
      await a.close();
      await b.close();
    }
  }
  type Side = Awaited<ReturnType<typeof openWorldLedger>>;

  for (const purse of ["package", "balance"] as const) {
    const charge = purse === "package" ? {} : { chargeNanoUsd: CHARGE };
    const spooledCharge = purse === "package" ? {} : { chargeNanoUsd: String(CHARGE) };

    /** Of `count` settled holds. */
    async function expectSettled(accountId: number, count: number): Promise<void> {
      const receipts = await receiptsOf(shop, accountId);
      expect(receipts).toHaveLength(HOLDS);
      expect(new Set(receipts.map(({ requestId }) => requestId)).size).toBe(HOLDS);
      const settled = receipts.filter(({ outcome }) => outcome === "settled");
      expect(settled).toHaveLength(count);
      for (const { units, charged, shortfall } of settled)
        expect({ units, charged, shortfall }).toEqual(
          purse === "package"
            ? { units: 1, charged: 0, shortfall: 0 }
            : { units: 0, charged: Number(CHARGE), shortfall: 0 },
        );
      const left = { units: count, balance: (HOLDS - count) * Number(CHARGE) };
      const { units, balance, holds } = await shop.counters(accountId);
      expect(holds).toBe(0);
      expect(purse === "package" ? units : balance).toBe(purse === "package" ? left.units : left.balance);
    }

    test(`${purse}: a settlement that is twice in a spool and once in the ledger with the hold counts once`, () =>
      twoLedgers(
        purse,
        (hold) => [lineOf(hold, spooledCharge), lineOf(hold, spooledCharge)],
        async ({ a, b, holds, accountId }) => {
          const [replayed] = await Promise.all([
            b.ledger.replaySpool(),
            ...holds.map((hold) => a.ledger.settle(hold, usageOf(charge))),
          ]);
          expect(replayed).toBe(2 * HOLDS);
          await expectSettled(accountId, HOLDS);
        },
      ));

    test(`${purse}: the first of a concurrent settlement and release decides`, () =>
      twoLedgers(
        purse,
        (hold) => [lineOf(hold, { settles: false, reason: "ended_by_us" })],
        async ({ a, b, holds, accountId }) => {
          await Promise.all([b.ledger.replaySpool(), ...holds.map((hold) => a.ledger.settle(hold, usageOf(charge)))]);
          const settled = (await receiptsOf(shop, accountId)).filter(({ outcome }) => outcome === "settled");
          await expectSettled(accountId, settled.length);
        },
      ));

    test(`${purse}: a settlement concurrent with the reaper is written once, whichever is first`, () =>
      twoLedgers(
        purse,
        () => [],
        async ({ a, b, holds, accountId }) => {
          await b.ledger.replaySpool();
          await shop.world.sql`update leases set ended = true where id = ${a.ledger.leaseId()}`;
          await Promise.all([
            ...holds.slice(0, HOLDS / 2).map((hold) => a.ledger.settle(hold, usageOf(charge))),
            reapAccount(b.db.sql, accountId),
            ...holds.slice(HOLDS / 2).map((hold) => a.ledger.settle(hold, usageOf(charge))),
          ]);
          await expectSettled(accountId, HOLDS);
        },
      ));
  }
});

test.each(["Postgres was away", "the reply to its refusal was lost"])(
  "an overrun that was not refused in time because %s is a loss and no refusal, since its answer was delivered",
  async (why) => {
    const proxy = await startTcpProxy(shop.world.url);
    const { ledger, close } = await openWorldLedger(shop.world, { databaseUrl: proxy.url, timeoutMs: 2_000 });
    const person = await shop.world.addCustomer();
    const key = await shop.world.addKey(person, { mode: "payg" });
    await shop.world.setBalance(person, 1_000n);
    const price = { promptPico: 0n, outputPico: 600_000n, capMax: 1, capMin: 1 };
    const hold = await ledger.reserve(requestFor(person, key, price));
    const away = why === "Postgres was away" ? Promise.resolve() : proxy.dropNextReply();
    const settling = ledger.settle(hold, usageOf({ chargeNanoUsd: 1_500n }), { strict: true });
    await away;
    proxy.cut();
    expect((await settling).spooled).toBe(true);
    const refused = why === "Postgres was away" ? [] : [{ outcome: "released", reason: "overrun_refused" }];
    expect(await receiptsOf(shop, person.accountId)).toMatchObject(refused);
    // The last attempt ends when the row is given up.
    await sleep(300);
    proxy.mend();
    expect(await ledger.replaySpool()).toBe(1);
    const receipts = await receiptsOf(shop, person.accountId);
    expect(receipts).toMatchObject([{ outcome: "settled", charged: 600, shortfall: 900 }]);
    // If the refusal was on its way to Postgres when the connection was cut, it may still have been written.
    expect(refused.length > 0 ? ["late"] : ["complete", "late"]).toContain(receipts[0]?.reason ?? "");
    expect(await shop.counters(person.accountId)).toMatchObject({ usage: 1, balance: 400, holds: 0 });
    await close();
    await proxy.close();
  },
);

describe("the replay", () => {
  const log = createLog("silent");
  let folders = 0;
  const opened = async (lines: string[]): Promise<Spool> => {
    const name = `replay-${++folders}`;
    leaveSpool(name, lines);
    const directory = join(shop.world.spoolDir, name);
    return openSpool({ directory, bytesMax: SPOOL_BYTES_MAX, startedMs: Date.now(), log });
  };
  const holdOf = (i: number) => ({ requestId: crypto.randomUUID(), accountId: i, heldNanoUsd: 0n }) as Hold;

  test("continues past lines that the ledger cannot apply now, and keeps them", async () => {
    const spool = await opened(Array.from({ length: 700 }, (_, i) => lineOf(holdOf(i))));
    const taken: number[] = [];
    let lockHeld = true;
    const apply = async ({ accountId }: Finish) => {
      if (lockHeld && accountId === 3) throw new Error("its account is locked");
      taken.push(accountId);
    };
    expect(await spool.replay(apply).catch((error: Error) => error.message)).toBe("its account is locked");
    expect(taken).toHaveLength(699);
    expect(spool.empty()).toBe(false);
    lockHeld = false;
    await spool.replay(apply);
    expect(taken).toContain(3);
    expect(spool.empty()).toBe(true);
  });

  test("stops when the ledger applies no line any more", async () => {
    const spool = await opened(Array.from({ length: 3_000 }, (_, i) => lineOf(holdOf(i))));
    let tried = 0;
    const apply = async () => {
      tried++;
      throw new Error("away");
    };
    expect(await spool.replay(apply).catch((error: Error) => error.message)).toBe("away");
    expect(tried).toBe(1_500);
    expect(spool.waiting().settlements).toBe(3_000);
  });

  test("does not delay the heartbeat or the replica's lease; nothing is reaped meanwhile", async () => {
    const { ledger, db, close } = await openWorldLedger(shop.world, { leaseSeconds: 2 });
    const person = await shop.customer({ dailyLimit: 2 });
    const hold = await ledger.reserve(requestFor(person, person));
    const dead = await openWorldLedger(shop.world, { leaseSeconds: 600 });
    await dead.ledger.reserve(requestFor(person, person));
    await shop.world.sql`update leases set ends_at = clock_timestamp() where id = ${dead.ledger.leaseId()}`;
    const endless = Promise.withResolvers<number>();
    const jobs = startLedgerJobs({
      ledger: {
        ...ledger,
        status: () => ({ ...ledger.status(), spoolEmpty: false }),
        replaySpool: () => endless.promise,
      },
      db,
      log,
      replicaId: crypto.randomUUID(),
      version: "1.2.3",
      health: () => ({ inFlight: 0, ledgerP99Ms: null, draining: false, busHealthy: true }),
      leaseSeconds: 2,
      nowMs: () => performance.now(),
    });
    const leaseEndsAt = async () => {
      const [row] = await shop.world.sql`select ends_at::text as at from leases where id = ${ledger.leaseId()}`;
      return String(row?.at);
    };
    for (let renewed = 0; renewed < 4; renewed++) {
      const before = await leaseEndsAt();
      await until(async () => (await leaseEndsAt()) !== before);
    }
    expect(ledger.alive(hold)).toBe(true);
    expect(jobs.databaseUp()).toBe(true);
    expect(jobs.reaper()).toEqual({ found: 0, reaped: 0 });
    endless.resolve(0);
    await ledger.settle(hold, usageOf());
    await jobs.stop();
    await close();
    await dead.ledger.abandon();
    await dead.db.close();
  });
});
