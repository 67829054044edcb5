import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readMigrationFiles } from "drizzle-orm/migrator";
import postgres from "postgres";
import { createTestDatabase, type TestDatabase } from "../database.ts";
import { closeBalanced } from "../gateway/checks.ts";
import { openShop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { restoreData } from "./recorded_data.ts";
import { dataFileOf, MIGRATIONS, type Migration, migrationsOf, readReleases } from "./releases.ts";
import { schemaText } from "./schema_text.ts";
import { customersOf, recordTrade, startLoad } from "./trade.ts";

/**
 * Upgrades: under load, killed half way, and from what the last release has recorded. The next release is a copy of this one with one more
 * migration, NEXT, which changes tables that every request writes to: so this release plays the one before. Source: REL-10.
 */

const SLOW_MS = 10 * 60_000;
/** Places between the statements of a whole schema at which a migration is killed, besides the first and the last. */
const PLACES = 6;
const repository = join(import.meta.dirname, "..", "..");

/** As a migration of a minor version may be: it only adds. */
const NEXT = [
  "ALTER TABLE accounts ADD COLUMN next_note text",
  "ALTER TABLE balances ADD COLUMN next_sum bigint DEFAULT 0 NOT NULL",
  "ALTER TABLE packages ADD COLUMN next_kind text DEFAULT 'plain' NOT NULL",
  "ALTER TABLE receipts ADD COLUMN next_note text DEFAULT ''",
  "CREATE TABLE next_things (id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, account_id bigint NOT NULL REFERENCES accounts(id))",
  "CREATE INDEX next_things_account ON next_things (account_id)",
  "CREATE FUNCTION next_count() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM next_things $$",
];

let folder: string;
let next: string;
const databases: TestDatabase[] = [];
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-upgrade-`));
  next = nextRelease(join(folder, "next"));
});
afterAll(async () => {
  for (const database of databases) await database.drop();
  rmSync(folder, { recursive: true, force: true });
});

/** This release with one more migration. */
function nextRelease(place: string): string {
  for (const path of ["src", "drizzle", "patches", "scripts", "package.json", "bunfig.toml", "tsconfig.json"])
    cpSync(join(repository, path), join(place, path), { recursive: true });
  symlinkSync(join(repository, "node_modules"), join(place, "node_modules"));
  writeFileSync(join(place, "drizzle", "9999_next.sql"), NEXT.join(";\n--> statement-breakpoint\n"));
  const journal = join(place, "drizzle", "meta", "_journal.json");
  const { entries, ...rest } = JSON.parse(readFileSync(journal, "utf8"));
  const last = entries.at(-1);
  entries.push({ ...last, idx: last.idx + 1, when: last.when + 1, tag: "9999_next" });
  writeFileSync(journal, JSON.stringify({ ...rest, entries }));
  return place;
}

async function emptyDatabase(): Promise<string> {
  const database = await createTestDatabase();
  databases.push(database);
  await withSql(database.url, (sql) =>
    sql.unsafe("drop schema public cascade; drop schema drizzle cascade; create schema public"),
  );
  return database.url;
}

async function withSql<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 1, onnotice: () => {} });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

type Migrating = { process: ChildProcess; ended: Promise<{ code: number | null; output: string }> };

/** `cli migrate` of a release. */
function startMigrate(release: string, url: string): Migrating {
  const child = spawn(process.execPath, [join(release, "src/cli.ts"), "migrate", "--json"], {
    env: { PATH: process.env.PATH ?? "", DATABASE_URL: url },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (output += text));
  return { process: child, ended: new Promise((done) => child.once("close", (code) => done({ code, output }))) };
}

async function migrateWith(release: string, url: string): Promise<void> {
  expect(await startMigrate(release, url).ended).toEqual({ code: 0, output: expect.stringContaining("applied") });
}

/** Makes Postgres stop behind the n-th statement that changes the schema, until whoever sent it is gone. 0: counts only. */
async function stopBehind(sql: postgres.Sql, statement: number): Promise<void> {
  await sql.unsafe(`
    create schema if not exists stops; create sequence if not exists stops.statements; select setval('stops.statements', 1, false);
    create or replace function stops.stop() returns event_trigger language plpgsql as $$
    begin
      if nextval('stops.statements') = ${statement} then perform pg_sleep(600); end if;
    end $$;
    drop event trigger if exists stops_behind; create event trigger stops_behind on ddl_command_end execute function stops.stop()`);
}

async function stopNowhere(sql: postgres.Sql): Promise<void> {
  await sql.unsafe("drop event trigger if exists stops_behind; drop schema if exists stops cascade");
}

/** Kills a migration with SIGKILL behind a statement, and waits until Postgres has taken it back. */
async function killBehind(sql: postgres.Sql, statement: number, { release, url }: { release: string; url: string }) {
  await stopBehind(sql, statement);
  const { process: child, ended } = startMigrate(release, url);
  const stopped = () =>
    sql`select 1 from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`;
  let isOver = false;
  void ended.then(() => (isOver = true));
  await until(async () => isOver || (await stopped()).length === 1);
  expect(isOver).toBe(false);
  child.kill("SIGKILL");
  await ended;
  await until(async () => (await stopped()).length === 0);
  await stopNowhere(sql);
}

/** A connection that is gone is noticed at once, and not at the next statement. */
async function noticeGoneClients(url: string): Promise<void> {
  const name = new URL(url).pathname.slice(1);
  await withSql(url, (sql) => sql.unsafe(`alter database ${name} set client_connection_check_interval = '50ms'`));
}

test(
  "a migration of an empty database, killed at any place, leaves nothing; the next run makes the whole schema",
  async () => {
    const [url, fresh] = [await emptyDatabase(), await emptyDatabase()];
    await noticeGoneClients(url);
    const statements = await withSql(fresh, async (sql) => {
      await stopBehind(sql, 0);
      await migrateWith(repository, fresh);
      const [row] = await sql`select last_value::int as count from stops.statements`;
      await stopNowhere(sql);
      return Number(row?.count);
    });
    expect(statements).toBeGreaterThan(100);
    const places = Array.from({ length: PLACES + 2 }, (_, i) => 1 + Math.floor((i * (statements - 1)) / (PLACES + 1)));
    await withSql(url, async (sql) => {
      for (const place of places) {
        await killBehind(sql, place, { release: repository, url });
        expect(await schemaText(sql)).toEqual([]);
        expect(await sql`select 1 from pg_namespace where nspname = 'drizzle'`).toHaveLength(0);
      }
      await migrateWith(repository, url);
      expect(await schemaText(sql)).toEqual(await withSql(fresh, schemaText));
    });
  },
  SLOW_MS,
);

test(
  "an upgrade under load: killed behind each statement and then made, replicas of both releases beside each other; no request fails",
  async () => {
    const shop = await openShop({ replicas: 2, redisUrl: "" });
    await noticeGoneClients(shop.world.url);
    const { url } = shop.world;
    const fresh: ReplicaProcess[] = [];
    const load = startLoad(shop, await customersOf(shop));
    try {
      await load.goesOn();
      const before = await withSql(url, schemaText);
      await withSql(url, async (sql) => {
        for (let statement = 1; statement <= NEXT.length; statement++) {
          await killBehind(sql, statement, { release: next, url });
          expect(await schemaText(sql)).toEqual(before);
          await load.goesOn();
        }
      });
      await migrateWith(next, url);
      // The replicas of the release before go on, on the new schema, and cannot be started again.
      await load.goesOn();
      const again = await shop.start().then(
        async (replica) => {
          await replica.kill();
          return "it started";
        },
        (error: Error) => error.message,
      );
      expect(again).toContain("start the newer release that made them");
      for (const old of shop.replicas) {
        const replica = await shop.start({}, [process.execPath, join(next, "src/main.ts")]);
        fresh.push(replica);
        load.use(replica.origin);
        await load.goesOn();
        load.leave(old.origin);
        expect(await old.stop()).toBe(0);
        await load.goesOn();
      }
      const { answers, failures } = await load.end();
      expect(failures).toEqual([]);
      expect(shop.provider.callCount()).toBe(answers);
      // The shop of the tests has other defaults than a new database.
      const added = (after: string[], from: string[]) => after.filter((line) => !from.includes(line));
      const expected = added(await schemaOf(next), await schemaOf(repository));
      expect(expected.length).toBeGreaterThan(NEXT.length);
      expect(added(await withSql(url, schemaText), before)).toEqual(expected);
    } finally {
      await load.end();
      await closeBalanced(shop, async () => void (await Promise.all(fresh.map((replica) => replica.stop()))));
    }
  },
  SLOW_MS,
);

test(
  "from the recorded data of the release before: every row is there after the upgrade, the books balance, and the schema is that of a new database",
  async () => {
    const { base, release } = await releaseBefore();
    const url = await emptyDatabase();
    await withSql(url, async (sql) => {
      await makeSchema(sql, base.migrations);
      await restoreData(sql, base.data);
      const before = await rowCounts(sql);
      expect(before.receipts).toBeGreaterThan(0);
      await migrateWith(release, url);
      expect(await rowCounts(sql)).toMatchObject(before);
      const views = await sql`
        select table_name as name from information_schema.views where table_schema = 'public' and starts_with(table_name, 'inv_')`;
      expect(views.length).toBeGreaterThan(8);
      for (const { name } of views) expect([name, await sql.unsafe(`select * from ${name}`)]).toEqual([name, []]);
      expect(await schemaText(sql)).toEqual(await schemaOf(release));
    });
  },
  SLOW_MS,
);

type Base = { migrations: readonly Migration[]; data: Uint8Array };

/** The last release and this one; before there is a release: this one, recorded now, and the next. */
async function releaseBefore(): Promise<{ base: Base; release: string }> {
  const last = readReleases().at(-1);
  if (last !== undefined) {
    const data = new Uint8Array(readFileSync(dataFileOf(last.version)));
    return { base: { migrations: last.migrations, data }, release: repository };
  }
  return { base: { migrations: migrationsOf(), data: await recordTrade() }, release: next };
}

/** The first migrations of this release, as their own release made them. */
async function makeSchema(sql: postgres.Sql, migrations: readonly Migration[]): Promise<void> {
  await sql.unsafe(`create schema if not exists drizzle;
    create table drizzle.__drizzle_migrations (id serial primary key, hash text not null, created_at bigint)`);
  for (const { sql: statements, hash, folderMillis } of readMigrationFiles({ migrationsFolder: MIGRATIONS }).slice(
    0,
    migrations.length,
  )) {
    for (const statement of statements) await sql.unsafe(statement);
    await sql`insert into drizzle.__drizzle_migrations (hash, created_at) values (${hash}, ${folderMillis})`;
  }
}

async function schemaOf(release: string): Promise<string[]> {
  const url = await emptyDatabase();
  await migrateWith(release, url);
  return withSql(url, schemaText);
}

async function rowCounts(sql: postgres.Sql): Promise<Record<string, number>> {
  const counts = [
    "accounts",
    "keys",
    "packages",
    "balances",
    "balance_entries",
    "receipts",
    "models",
    "audit_entries",
  ].map((table) => `(select count(*)::int from ${table}) as ${table}`);
  const [row] = await sql.unsafe(`select ${counts.join(", ")}`);
  return Object.fromEntries(Object.entries(row ?? {}).map(([name, count]) => [name, Number(count)]));
}
