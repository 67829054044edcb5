import { afterAll, beforeAll, expect, test } from "bun:test";
import { setTimeout as sleep } from "node:timers/promises";
import { connect, isPassing, openDb } from "../../src/platform/db.ts";
import { createWorld, type World } from "../world.ts";
import { until } from "./own_redis.ts";

/** The driver when Postgres disappears during a query. It is patched: patches/postgres@3.4.9.patch. */

let world: World;

beforeAll(async () => {
  world = await createWorld();
});
afterAll(() => world.close());

test.each(["idle", "active"])(
  "a connection that is lost in a transaction, %s, fails it, and the process goes on",
  async (when) => {
    const db = openDb({ databaseUrl: world.url, dbPrepare: true, dbPoolMax: 1 });
    try {
      const lost = db.sql.begin(async (tx) => {
        const [row] = await tx`select pg_backend_pid() as pid`;
        const asleep = when === "active" ? tx`select pg_sleep(60)`.catch(() => {}) : undefined;
        await world.sql`select pg_terminate_backend(${Number(row?.pid)})`;
        await asleep;
        await sleep(200);
        await tx`select 1`;
      });
      const error = await lost.then(
        () => undefined,
        (thrown: unknown) => thrown,
      );
      expect(isPassing(error)).toBe(true);
      // An unhandled rejection would end the process in one of the next turns.
      await sleep(100);
      // Every connection of the pool still works.
      const all = await Promise.all(Array.from({ length: 8 }, () => db.sql`select 1 as one, pg_sleep(0.05)`));
      expect(all.map(([row]) => row?.one)).toEqual(Array.from({ length: 8 }, () => 1));
    } finally {
      await db.close();
    }
  },
);

test("an error of the connection or the name server passes, an error of a statement does not", () => {
  const passes = (code: string) => isPassing(Object.assign(new Error("failed"), { code }));
  const passing = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EAI_FAIL", "CONNECT_TIMEOUT", "57P01", "08006", "53300"];
  expect(passing.filter((code) => !passes(code))).toEqual([]);
  expect(["23505", "22003", "42501", "XX001", "P0001", "CERT_HAS_EXPIRED"].filter(passes)).toEqual([]);
});

test.each([
  ["the connection is lost", "case when i = 500 then pg_terminate_backend(pg_backend_pid()) end"],
  ["the statement fails", "1 / (500 - i)"],
])("after an answer that broke off where %s, the next one has its own rows alone", async (_, breaks) => {
  // As the ledger's lanes are configured.
  const sql = connect({ databaseUrl: world.url, dbPrepare: true, fetchTypes: false }, 1);
  try {
    // Large enough that its first rows are sent before it breaks.
    const broken = sql.unsafe(`select i, repeat('x', 1000), ${breaks} from generate_series(1, 1000) as i`);
    expect(await broken.catch((error: Error) => error)).toBeInstanceOf(Error);
    const next = await sql`select i from generate_series(1, 3) as i`.values();
    expect([...next].map((row) => row?.[0])).toEqual([1, 2, 3]);
  } finally {
    await sql.end();
  }
});

test("queries, those that wait for a connection, and transactions are counted while they run; fragments are not", async () => {
  const db = openDb({ databaseUrl: world.url, dbPrepare: true, dbPoolMax: 2 });
  try {
    expect(db.underWay()).toBe(0);
    const never = db.sql`select 1 as one where ${db.sql`true`}`;
    expect(db.underWay()).toBe(0);
    let all: Promise<unknown>[] = [];
    await world.sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(4711)`; // They wait for it.
      all = [
        ...Array.from({ length: 3 }, () => db.sql`select pg_advisory_xact_lock(4711) ${db.sql`where true`}`),
        db.sql.unsafe("select pg_advisory_xact_lock(4711)"),
        db.orm.transaction((other) => other.execute("select pg_advisory_xact_lock(4711)")),
      ].map(async (query) => await query);
      await until(() => db.underWay() === 5);
    });
    await Promise.all(all);
    expect(db.underWay()).toBe(0);
    await expect(db.sql`select 1 / 0`.execute()).rejects.toThrow("division by zero");
    await expect(db.sql.begin((tx) => tx`select 1 / 0`)).rejects.toThrow("division by zero");
    expect(db.underWay()).toBe(0);
    expect((await never)[0]?.one).toBe(1);
  } finally {
    await db.close();
  }
});
