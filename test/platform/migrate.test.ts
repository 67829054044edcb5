import { afterAll, beforeAll, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { fileURLToPath } from "node:url";
import postgres from "postgres";
import { migrate, migrationState } from "../../src/platform/migrate.ts";
import { startReplicaProcess } from "../replica.ts";
import { until } from "./own_redis.ts";

/** The schema is migrated once, by the first process; no process works on another release's schema. */
const CLI = fileURLToPath(new URL("../../src/cli.ts", import.meta.url));
const AT_ONCE = 6;
/** As in migrate.ts. */
const MIGRATION_LOCK = 7_268_045_113;

let admin: postgres.Sql;
let known: number;
const databases: string[] = [];
beforeAll(async () => {
  admin = postgres(process.env.DATABASE_URL ?? "", { max: 1, onnotice: () => {} });
  ({ known } = await migrationState(await emptyDatabase()));
});
afterAll(async () => {
  for (const name of databases) await admin.unsafe(`drop database if exists ${name} with (force)`);
  await admin.end({ timeout: 5 });
});

async function emptyDatabase(): Promise<string> {
  const name = `tollgate_migrate_${randomBytes(6).toString("hex")}`;
  await admin.unsafe(`create database ${name}`);
  databases.push(name);
  const url = new URL(process.env.DATABASE_URL ?? "");
  url.pathname = `/${name}`;
  return url.href;
}

async function withSql<T>(url: string, work: (sql: postgres.Sql) => Promise<T>): Promise<T> {
  const sql = postgres(url, { max: 2, onnotice: () => {} });
  try {
    return await work(sql);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

const query = (url: string, statement: string) => withSql(url, (sql) => sql.unsafe(statement));

/** `cli migrate --json`, in a separate process. */
function runMigrate(databaseUrl: string): Promise<{ code: number | null; out: string; err: string }> {
  const child = spawn(process.execPath, [CLI, "migrate", "--json"], {
    env: { PATH: process.env.PATH ?? "", DATABASE_URL: databaseUrl },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let out = "";
  let err = "";
  child.stdout.on("data", (text) => {
    out += text;
  });
  child.stderr.on("data", (text) => {
    err += text;
  });
  return new Promise((resolve) => child.once("close", (code) => resolve({ code, out, err })));
}

/** Starts a replica that must not start. Returns its exit code and its output. */
async function refusedStart(databaseUrl: string): Promise<string> {
  const started = await startReplicaProcess({ DATABASE_URL: databaseUrl, REDIS_URL: "", SPOOL_DIR: "" }).then(
    async (replica) => {
      await replica.kill();
      return "it started";
    },
    (error: Error) => error.message,
  );
  expect(started).toStartWith("the replica exited with 1:\n");
  const said = started.trim().split("\n").slice(1);
  expect(said).toHaveLength(1);
  return said[0] as string;
}

test(`${AT_ONCE} concurrent migrations of an empty database: one migrates, the others wait and have nothing to do`, async () => {
  const url = await emptyDatabase();
  expect(await refusedStart(url)).toBe(`The database has 0 of ${known} migrations. Run: bun run cli migrate`);
  const runs = await Promise.all(Array.from({ length: AT_ONCE }, () => runMigrate(url)));
  expect(runs.map(({ code, err }) => [code, err])).toEqual(runs.map(() => [0, ""]));
  const told = runs.map(({ out }) => JSON.parse(out)).sort((a, b) => a.before - b.before);
  expect(told).toEqual([
    { before: 0, applied: known },
    ...Array.from({ length: AT_ONCE - 1 }, () => ({ before: known, applied: known })),
  ]);
  expect(await migrationState(url)).toEqual({ known, applied: known, schema: "current" });
  const replica = await startReplicaProcess({ DATABASE_URL: url, REDIS_URL: "" });
  expect(await replica.stop()).toBe(0);
});

test("a failed migration changes nothing, and the next run does everything", async () => {
  const url = await emptyDatabase();
  // In the last migration, so that all others ran before it fails.
  await query(url, "create table inv_package_units ()");
  await expect(migrate(url)).rejects.toThrow(/inv_package_units/);
  const tables = await query(url, "select tablename from pg_tables where schemaname in ('public', 'drizzle')");
  expect(tables.map(({ tablename }) => tablename)).toEqual(["inv_package_units"]);
  expect(await migrationState(url)).toEqual({ known, applied: 0, schema: "older" });
  await query(url, "drop table inv_package_units");
  expect(await migrate(url)).toEqual({ before: 0, applied: known });
});

test("a migration waits for another one longer than the role's time limit for requests", async () => {
  const url = await emptyDatabase();
  const name = new URL(url).pathname.slice(1);
  for (const limit of ["statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"])
    await admin.unsafe(`alter database ${name} set ${limit} = '1500ms'`);
  await withSql(url, async (sql) => {
    const { promise: freed, resolve: free } = Promise.withResolvers<void>();
    const { promise: held, resolve: hold } = Promise.withResolvers<void>();
    const other = sql.begin(async (tx) => {
      await tx`select set_config('idle_in_transaction_session_timeout', '0', true), pg_advisory_xact_lock(${MIGRATION_LOCK})`;
      hold();
      await freed;
    });
    await Promise.race([held, other]);
    const waits = () =>
      admin`select 1 from pg_locks where locktype = 'advisory' and not granted
        and database = (select oid from pg_database where datname = ${name})`;
    const migrating = migrate(url);
    const ended = migrating.then(
      () => true,
      () => true,
    );
    await until(async () => (await waits()).length === 1);
    expect(await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 3000, false))])).toBe(false);
    free();
    await other;
    expect(await migrating).toEqual({ before: 0, applied: known });
  });
});

const LAST = "(select max(id) from drizzle.__drizzle_migrations)";

test.each([
  {
    schema: "older",
    by: `delete from drizzle.__drizzle_migrations where id = ${LAST}`,
    says: () => `The database has ${known - 1} of ${known} migrations. Run: bun run cli migrate`,
  },
  {
    schema: "newer",
    by: "insert into drizzle.__drizzle_migrations (hash, created_at) values ('of a later release', 9e12)",
    says: () =>
      `The database has ${known + 1} migrations and this release knows ${known}: start the newer release that made them.`,
  },
  {
    schema: "foreign",
    by: `update drizzle.__drizzle_migrations set hash = 'of another program' where id = ${LAST}`,
    says: () =>
      "The database was migrated by something else than a release of this service: name another, or restore a backup of this one.",
  },
])(
  "a replica does not start on a schema that is $schema; it says so and exits with 1",
  async ({ schema, by, says }) => {
    const url = await emptyDatabase();
    await migrate(url);
    await query(url, by);
    expect(await migrationState(url)).toMatchObject({ known, schema });
    expect(await refusedStart(url)).toBe(says());
    if (schema === "older") return;
    // Nor does this release change a schema that it does not know.
    const rows = await query(url, "select * from drizzle.__drizzle_migrations order by id");
    expect(await runMigrate(url)).toEqual({ code: 1, out: "", err: `${says()}\n` });
    expect(await query(url, "select * from drizzle.__drizzle_migrations order by id")).toEqual(rows);
  },
);
