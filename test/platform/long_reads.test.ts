import { afterAll, beforeAll, expect, test } from "bun:test";
import { Refusal } from "../../src/errors.ts";
import type { Db } from "../../src/platform/db.ts";
import { type LongReads, openLongReads } from "../../src/platform/long_reads.ts";
import { startTcpProxy, type TcpProxy } from "../tcp_proxy.ts";
import { createWorld, type World } from "../world.ts";
import { sleep, until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";

/** A long read ends on the server too: at its time limit, when its client leaves, and when the server is silent. */

let world: World;
let proxy: TcpProxy;
let reads: LongReads;
const logged = quietLog();
const READER = { side: "api", accountId: 1, tenantId: 0 } as const;

beforeAll(async () => {
  world = await createWorld();
  proxy = await startTcpProxy(world.url);
  reads = openLongReads({ config: { databaseUrl: proxy.url, dbPrepare: true }, log: logged.log });
});
afterAll(async () => {
  proxy.mend();
  await reads.close();
  await proxy.close();
  await world.close();
});

type Sleep = (deps: { db: Db }) => Promise<unknown>;
/** Sleeps in the database for ten minutes, in each way that a store can query. */
const SLEEPS: [string, Sleep][] = [
  ["in a transaction", ({ db }) => db.orm.transaction((tx) => tx.execute("select pg_sleep(600)"))],
  ["in a transaction of the driver's", ({ db }) => db.sql.begin((tx) => tx`select pg_sleep(600)`)],
  ["a plain statement", ({ db }) => db.orm.execute("select pg_sleep(600)")],
  ["a plain statement of the driver's", async ({ db }) => await db.sql`select pg_sleep(600)`],
];

async function asleep(): Promise<number> {
  const [row] = await world.sql`
    select count(*)::int as n from pg_stat_activity where state = 'active' and query like '%pg_sleep(600)%' and pid <> pg_backend_pid()`;
  return Number(row?.n);
}

const codeOf = (reading: Promise<unknown>) =>
  reading.then(
    () => "read",
    (error: unknown) => (error instanceof Refusal ? error.code : String(error)),
  );

test.each(SLEEPS)("503 at the time limit, and the server has stopped: %s", async (_, work) => {
  expect(await codeOf(reads.run(READER, { readMsMax: 300 }, work))).toBe("service_unavailable");
  await until(async () => (await asleep()) === 0 && reads.underWay() === 0);
});

test.each(SLEEPS)("a read whose client left is cancelled, and its slot is free: %s", async (_, work) => {
  const client = new AbortController();
  const reading = codeOf(reads.run(READER, { signal: client.signal, readMsMax: 60_000 }, work));
  await until(async () => (await asleep()) === 1);
  client.abort();
  expect(await reading).toBe("service_unavailable");
  await until(async () => (await asleep()) === 0 && reads.underWay() === 0);
});

test("after the client left no further statement begins", async () => {
  const client = new AbortController();
  let second: unknown;
  const reading = reads.run(READER, { signal: client.signal }, async ({ db }) => {
    await db.orm.execute("select 1");
    client.abort();
    second = await db.orm.transaction((tx) => tx.execute("select 1")).catch((error: unknown) => error);
    throw second;
  });
  expect(await codeOf(reading)).toBe("service_unavailable");
  expect(second).toBeInstanceOf(Error);
});

test("a cancellation affects only its own read, not the next ones on its connection", async () => {
  const outcomes: string[] = [];
  for (let i = 0; i < 60; i++) {
    const client = new AbortController();
    const cancelled = codeOf(
      reads.run(READER, { signal: client.signal }, ({ db }) =>
        db.orm.transaction((tx) => tx.execute("select pg_sleep(0.005)")),
      ),
    );
    // About when it ends by itself.
    await sleep(i % 12);
    client.abort();
    const next = codeOf(
      reads.run({ ...READER, accountId: 2 }, {}, ({ db }) =>
        db.orm.transaction((tx) => tx.execute("select pg_sleep(0.005)")),
      ),
    );
    await cancelled;
    outcomes.push(await next);
  }
  expect(new Set(outcomes)).toEqual(new Set(["read"]));
});

test("an error of the read itself is thrown unchanged", async () => {
  const failing = reads.run(READER, {}, async () => {
    throw new RangeError("its own");
  });
  await expect(failing).rejects.toThrow("its own");
  expect(reads.underWay()).toBe(0);
});

test("a silent server: 503 in time; when it is back, reads use new connections", async () => {
  const one: Sleep = ({ db }) => db.orm.transaction((tx) => tx.execute("select 1"));
  expect(await codeOf(reads.run(READER, {}, one))).toBe("read");
  proxy.hang();
  expect(await codeOf(reads.run(READER, { readMsMax: 300 }, one))).toBe("service_unavailable");
  await until(() => reads.underWay() === 0);
  expect(logged.lines.some(({ message }) => String(message).startsWith("a long read does not end"))).toBe(true);
  proxy.mend();
  await until(async () => (await codeOf(reads.run(READER, {}, one))) === "read");
});
