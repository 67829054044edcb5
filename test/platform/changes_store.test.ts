import { afterAll, afterEach, expect, test } from "bun:test";
import { eq } from "drizzle-orm";
import postgres from "postgres";
import type { Refusal } from "../../src/errors.ts";
import type { Bus, Change } from "../../src/platform/bus.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { changing, pruneChanges, startChangeReader } from "../../src/platform/changes_store.ts";
import { connect, openDb } from "../../src/platform/db.ts";
import { accounts } from "../../src/platform/schema_accounts.ts";
import { createTestDatabase } from "../database.ts";
import { startTcpProxy } from "../tcp_proxy.ts";
import { until } from "./own_redis.ts";
import { quietLog } from "./quiet_log.ts";

const database = await createTestDatabase();
const db = openDb({ databaseUrl: database.url, dbPrepare: true, dbPoolMax: 4 });
const open: { close(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of open.splice(0)) await one.close();
});
afterAll(async () => {
  await db.close();
  await database.drop();
});

/** A reader that reads when the test says so, with the changes that it delivered. */
function reader(url = database.url, everyMs = 0) {
  const { log, lines } = quietLog();
  const told: Change[] = [];
  const state = { told, gaps: 0, servers: 0, lines };
  const one = startChangeReader({
    connect: () => connect({ databaseUrl: url, dbPrepare: true }, 1),
    onChanges: (changes) => void told.push(...changes),
    onGap: () => void state.gaps++,
    onNewServer: () => void state.servers++,
    log,
    everyMs,
  });
  open.push(one);
  return Object.assign(state, { read: one.read, healthy: one.healthy });
}
let made = 0;
const account = () => ({ role: "customer" as const, email: `a${++made}@example.com`, name: "A" });
const note = (sql: postgres.Sql | postgres.TransactionSql, ref: string) =>
  sql`insert into changes (kind, ref) values ('account', ${ref})`;
const refs = (changes: Change[]) => changes.map(({ ref }) => ref);

test("changes of a transaction are published after its commit, each once", async () => {
  const bus = inProcessBus(quietLog().log);
  const seen: { changes: readonly Change[]; committed: number }[] = [];
  const publish: Bus["publish"] = async (changes) => {
    const [row] =
      await db.sql`select count(*)::int as n from accounts where id = any(${changes.map(({ ref }) => Number(ref))})`;
    seen.push({ changes, committed: row?.n });
  };
  const id = await changing({ db, bus: { ...bus, publish } }, async (tx) => {
    const [row] = await tx.insert(accounts).values(account()).returning({ id: accounts.id });
    await tx.update(accounts).set({ name: "B" });
    return row?.id;
  });
  const ref = String(id);
  // The person who begins an account is its first member.
  const changes: Change[] = [
    { kind: "account", ref },
    { kind: "session", ref },
  ];
  expect(seen).toEqual([{ changes, committed: 1 }]);
});

test("a transaction that fails publishes nothing", async () => {
  const bus = inProcessBus(quietLog().log);
  let published = 0;
  bus.subscribe(() => void published++);
  const failing = changing({ db, bus }, async (tx) => {
    await tx.insert(accounts).values(account());
    throw new Error("no");
  });
  expect(failing).rejects.toThrow("no");
  await failing.catch(() => {});
  expect(published).toBe(0);
});

test("a transaction that changed nothing cached publishes nothing", async () => {
  const bus = inProcessBus(quietLog().log);
  let published = 0;
  bus.subscribe(() => void published++);
  expect(await changing({ db, bus }, async () => 7)).toBe(7);
  expect(published).toBe(0);
});

test("of an account's changes three run at once and 100 wait: while it waits for a lock, others change over the same connections", async () => {
  const own = openDb({ databaseUrl: database.url, dbPrepare: true, dbPoolMax: 4, lockMsMax: 600_000 });
  const holder = connect({ databaseUrl: database.url, dbPrepare: true }, 1);
  open.push(own, { close: () => holder.end() });
  const [one = 0, other = 0] = (await own.orm.insert(accounts).values([account(), account()]).returning()).map(
    (row) => row.id,
  );
  const change = (accountId: number) =>
    changing(
      { db: own, bus: inProcessBus(quietLog().log), by: { accountId, requestId: crypto.randomUUID() } },
      async (tx) => void (await tx.update(accounts).set({ name: "B" }).where(eq(accounts.id, accountId))),
    );
  await holder`begin`;
  await holder`select from accounts where id = ${one} for update`;
  const codes: string[] = [];
  const all = Array.from({ length: 110 }, () => change(one).catch((error: Refusal) => void codes.push(error.code)));
  // What does not wait is refused before anything is read.
  await new Promise(setImmediate);
  expect(codes).toEqual(Array(7).fill("too_many_requests"));
  const waiting = async () =>
    (
      await db.sql`
      select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`
    ).length;
  await until(async () => (await waiting()) === 3);
  await change(other);
  expect(await waiting()).toBe(3);
  await holder`rollback`;
  await Promise.all(all);
});

test("the reader delivers only changes made after its start", async () => {
  await note(db.sql, "before");
  const { told, read } = reader();
  await read();
  await note(db.sql, "after");
  await read();
  expect(refs(told)).toEqual(["after"]);
});

test("a transaction that commits late is delivered exactly once, and so are those that committed before it", async () => {
  const slow = postgres(database.url, { max: 1 });
  const { told, read } = reader();
  await read();
  let commit: () => void = () => {};
  const begun = Promise.withResolvers<void>();
  const transaction = slow.begin(async (tx) => {
    await note(tx, "slow");
    begun.resolve();
    await new Promise<void>((resolve) => (commit = resolve));
  });
  await begun.promise;
  await note(db.sql, "fast1");
  await read();
  await note(db.sql, "fast2");
  await read();
  await read();
  expect(refs(told)).toEqual(["fast1", "fast2"]);
  commit();
  await transaction;
  await read();
  await read();
  await note(db.sql, "fast3");
  await read();
  expect(refs(told)).toEqual(["fast1", "fast2", "slow", "fast3"]);
  await slow.end();
});

test("a transaction that was open when the reader started is delivered when it commits", async () => {
  const slow = postgres(database.url, { max: 1 });
  const begun = Promise.withResolvers<void>();
  let commit: () => void = () => {};
  const transaction = slow.begin(async (tx) => {
    await note(tx, "older");
    begun.resolve();
    await new Promise<void>((resolve) => (commit = resolve));
  });
  await begun.promise;
  const { told, read } = reader();
  await read();
  commit();
  await transaction;
  await read();
  await read();
  expect(refs(told)).toEqual(["older"]);
  await slow.end();
});

test("a transaction that rolled back is never delivered", async () => {
  const { told, read } = reader();
  await read();
  await db.sql
    .begin(async (tx) => {
      await note(tx, "gone");
      throw new Error("back");
    })
    .catch(() => {});
  await read();
  expect(told).toEqual([]);
});

test("1,000 transactions from eight connections: each is delivered once", async () => {
  const writers = postgres(database.url, { max: 8 });
  const { told, read } = reader();
  await read();
  let writing = true;
  const all = Promise.all(Array.from({ length: 1000 }, (_, i) => note(writers, `many${i}`))).then(
    () => (writing = false),
  );
  while (writing) await read();
  await all;
  await read();
  expect(refs(told).sort()).toEqual(Array.from({ length: 1000 }, (_, i) => `many${i}`).sort());
  await writers.end();
});

test("too many changes for single delivery are a gap", async () => {
  const state = reader();
  await state.read();
  const gaps = state.gaps;
  await db.sql`insert into changes (kind, ref) select 'account', 'bulk' || n from generate_series(1, 6000) n`;
  await state.read();
  expect(state.gaps).toBe(gaps + 1);
  expect(state.told).toEqual([]);
});

test("Postgres down: nothing is thrown, one line is logged, and a gap is delivered when it is back", async () => {
  const proxy = await startTcpProxy(database.url);
  const state = reader(proxy.url);
  await state.read();
  const gaps = state.gaps;
  proxy.cut();
  for (let i = 0; i < 3; i++) await state.read();
  expect(state.healthy()).toBe(false);
  expect(state.lines.filter(({ level }) => level === "error").length).toBe(1);
  proxy.mend();
  await note(db.sql, "while away");
  await until(async () => {
    await state.read();
    return state.healthy();
  });
  expect(state.gaps).toBe(gaps + 1);
  await note(db.sql, "later");
  await state.read();
  expect(refs(state.told)).toEqual(["later"]);
  await state.read();
  await proxy.close();
});

test("Postgres silent: the read is abandoned and its connection closed", async () => {
  const proxy = await startTcpProxy(database.url);
  const state = reader(proxy.url);
  await state.read();
  proxy.dropReplies();
  // It stays silent until this read has ended.
  await state.read();
  expect(state.healthy()).toBe(false);
  proxy.mend();
  await state.read();
  expect(state.healthy()).toBe(true);
  expect(state.servers).toBe(0); // The same one.
  await proxy.close();
});

test("a read-only server, as a standby is, counts as an outage: the next read is on a new connection, and a gap", async () => {
  const name = new URL(database.url).pathname.slice(1);
  const state = reader();
  await db.sql.unsafe(`alter database ${name} set default_transaction_read_only = on`);
  await state.read();
  expect(state.healthy()).toBe(false);
  await db.sql.unsafe(`alter database ${name} reset default_transaction_read_only`);
  await state.read();
  expect(state.healthy()).toBe(true);
  expect(state.gaps).toBe(1);
});

test("rows of another server's transactions, as after a restore, are not delivered; later changes are, once", async () => {
  const { told, read } = reader();
  await read();
  await db.sql`
    insert into changes (kind, ref, xid)
    values ('account', 'restored', (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000000)::text::xid8)`;
  await read();
  await note(db.sql, "after the restore");
  await read();
  await read();
  expect(refs(told)).toEqual(["after the restore"]);
});

test("a reader that has not read for more than half of what is kept reports a gap", async () => {
  await db.sql.unsafe(`
    create schema later;
    create table later.by (span interval not null);
    insert into later.by values ('0');
    create function later.statement_timestamp() returns timestamptz language sql
      as 'select pg_catalog.statement_timestamp() + span from later.by'`);
  const url = new URL(database.url);
  url.searchParams.set("search_path", "later, pg_catalog, public");
  const state = reader(url.href);
  await state.read();
  await db.sql`update later.by set span = '29 minutes'`;
  await state.read();
  expect(state.gaps).toBe(1);
  await db.sql`update later.by set span = '60 minutes'`;
  await state.read();
  expect(state.gaps).toBe(2);
  await note(db.sql, "after the pause");
  await state.read();
  expect(state).toMatchObject({ gaps: 2, told: [{ ref: "after the pause" }] });
});

test("another server than at the last read is a gap, though no read has failed", async () => {
  await db.sql.unsafe(`
    create schema moved;
    create table moved.server (started timestamptz not null);
    insert into moved.server values ('2026-01-01');
    create function moved.pg_postmaster_start_time() returns timestamptz language sql as 'select started from moved.server'`);
  const url = new URL(database.url);
  url.searchParams.set("search_path", "moved, pg_catalog, public");
  const state = reader(url.href);
  for (let i = 0; i < 2; i++) await state.read();
  expect(state.gaps).toBe(1);
  await db.sql`update moved.server set started = '2026-01-02'`;
  for (let i = 0; i < 2; i++) await state.read();
  expect([state.gaps, state.healthy()]).toEqual([2, true]);
});

test("the reader reads about once a second", async () => {
  const state = reader(database.url, 100);
  await until(() => state.gaps === 1);
  await note(db.sql, "by timer");
  await until(() => state.told.length === 1);
});

test("changes older than an hour are pruned", async () => {
  await db.sql`insert into changes (kind, ref, created_at) values ('account', 'old', now() - interval '61 minutes'), ('account', 'young', now() - interval '59 minutes')`;
  expect(await pruneChanges(db)).toBe(1);
  const rows = await db.sql`select ref from changes where ref in ('old', 'young')`;
  expect(rows.map((row) => row.ref)).toEqual(["young"]);
});
