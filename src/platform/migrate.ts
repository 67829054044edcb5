import { fileURLToPath } from "node:url";
import { sql } from "drizzle-orm";
import { readMigrationFiles } from "drizzle-orm/migrator";
import { drizzle } from "drizzle-orm/postgres-js";
import { migrate as runMigrations } from "drizzle-orm/postgres-js/migrator";
import { connect } from "./db.ts";

const MIGRATIONS = fileURLToPath(new URL("../../drizzle", import.meta.url));
/** Any fixed number: only migrations take this lock. */
const MIGRATION_LOCK = 7_268_045_113;

/** Brings the schema up to date. Safe when many replicas start at once: one migrates, the others wait. */
export async function migrate(databaseUrl: string): Promise<void> {
  const client = connect({ databaseUrl, dbPrepare: false }, 1);
  try {
    const orm = drizzle(client);
    // A session lock, since the migrator opens its own transaction; the connection ends right after.
    await orm.execute(sql`select pg_advisory_lock(${MIGRATION_LOCK})`);
    await runMigrations(orm, { migrationsFolder: MIGRATIONS });
  } finally {
    await client.end({ timeout: 5 });
  }
}

/** How many migrations the code knows and how many the database has had. */
export async function migrationState(databaseUrl: string): Promise<{ known: number; applied: number }> {
  const known = readMigrationFiles({ migrationsFolder: MIGRATIONS });
  const client = connect({ databaseUrl, dbPrepare: false }, 1);
  try {
    const [table] = await client`select to_regclass('drizzle.__drizzle_migrations') as name`;
    if (!table?.name) return { known: known.length, applied: 0 };
    const [row] = await client`select count(*)::int as applied from drizzle.__drizzle_migrations`;
    return { known: known.length, applied: Number(row?.applied) };
  } finally {
    await client.end({ timeout: 5 });
  }
}
