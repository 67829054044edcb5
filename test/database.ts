import { createHash, randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { Glob } from "bun";
import { connect, type Sql } from "../src/platform/db.ts";
import { migrate } from "../src/platform/migrate.ts";

export type TestDatabase = {
  url: string;
  /** Ends remaining connections, and removes the database. */
  drop(): Promise<void>;
};

const MIGRATIONS = new URL("../drizzle/", import.meta.url).pathname;
const TEMPLATE_PREFIX = "tollgate_template_";
/** Any fixed number: one process at a time makes the template. */
const TEMPLATE_LOCK = 5_318_008_442;
/** Of Postgres: the template does not exist. */
const NO_SUCH_DATABASE = "3D000";

/** A fresh database with the schema, on the server of DATABASE_URL: a copy of a template that is migrated once per server. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const server = process.env.DATABASE_URL;
  if (!server) throw new Error("DATABASE_URL is not set: tests need a Postgres where they may create databases");
  const name = randomName();
  await runOn(server, async (client) => {
    const template = templateName();
    const copy = () => client.unsafe(`create database ${name} template ${template}`);
    await copy().catch(async (error) => {
      if (error?.code !== NO_SUCH_DATABASE) throw error;
      await makeTemplate(client, server, template);
      await copy();
    });
  });
  const drop = () =>
    runOn(server, async (client) => void (await client.unsafe(`drop database if exists ${name} with (force)`)));
  return { url: databaseAt(server, name), drop };
}

/** The name changes with the migrations, so that a template is never out of date. */
function templateName(): string {
  const hash = createHash("sha256");
  for (const file of [...new Glob("**/*").scanSync({ cwd: MIGRATIONS })].sort())
    hash.update(`${file}\0`).update(readFileSync(`${MIGRATIONS}${file}`));
  return `${TEMPLATE_PREFIX}${hash.digest("hex").slice(0, 16)}`;
}

/** Gets its name when it is complete: a copy that finds the name finds all of the schema. */
async function makeTemplate(client: Sql, server: string, template: string): Promise<void> {
  await client`select pg_advisory_lock(${TEMPLATE_LOCK})`;
  const templates = await client`select datname from pg_database where starts_with(datname, ${TEMPLATE_PREFIX})`;
  if (templates.some(({ datname }) => datname === template)) return;
  for (const { datname } of templates) await client.unsafe(`drop database if exists ${datname}`);
  const name = randomName();
  await client.unsafe(`create database ${name}`);
  await migrate(databaseAt(server, name));
  await client.unsafe(`alter database ${name} rename to ${template}`);
}

function randomName(): string {
  return `tollgate_test_${randomBytes(6).toString("hex")}`;
}

function databaseAt(server: string, name: string): string {
  const url = new URL(server);
  url.pathname = `/${name}`;
  return url.href;
}

async function runOn(databaseUrl: string, work: (client: Sql) => Promise<void>): Promise<void> {
  const client = connect({ databaseUrl, dbPrepare: false }, 1);
  try {
    await work(client);
  } finally {
    // Ends the session, and with it the lock.
    await client.end({ timeout: 5 });
  }
}
