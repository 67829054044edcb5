import { randomBytes } from "node:crypto";
import { connect } from "../src/platform/db.ts";
import { migrate } from "../src/platform/migrate.ts";

export type TestDatabase = {
  url: string;
  /** Ends what is still connected, and removes the database. */
  drop(): Promise<void>;
};

/** A fresh database with the schema, on the server of DATABASE_URL. */
export async function createTestDatabase(): Promise<TestDatabase> {
  const server = process.env.DATABASE_URL;
  if (!server) throw new Error("DATABASE_URL is not set: tests need a Postgres where they may create databases");
  const name = `tollgate_test_${randomBytes(6).toString("hex")}`;
  await runOn(server, `create database ${name}`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  await migrate(url.href);
  return { url: url.href, drop: () => runOn(server, `drop database if exists ${name} with (force)`) };
}

async function runOn(databaseUrl: string, statement: string): Promise<void> {
  const client = connect({ databaseUrl, dbPrepare: false }, 1);
  try {
    await client.unsafe(statement);
  } finally {
    await client.end({ timeout: 5 });
  }
}
