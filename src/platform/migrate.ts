import { fileURLToPath } from "node:url";
import { type MigrationMeta, readMigrationFiles } from "drizzle-orm/migrator";
import { connect, type Sql } from "./db.ts";

const MIGRATIONS = fileURLToPath(new URL("../../drizzle", import.meta.url).href);
/** Any fixed number; used only by migrations. */
const MIGRATION_LOCK = 7_268_045_113;

/** newer: migrated by a later release; foreign: its migrations are not the first ones of this release. */
export type SchemaState = "current" | "older" | "newer" | "foreign";
export type MigrationState = { known: number; applied: number; schema: SchemaState };

/** No migration of this release continues from the schema of the database. */
export class SchemaError extends Error {
  override readonly name = "SchemaError";
}

/**
 * Migrates the schema to this release, in one transaction. Returns the number of migrations before and after. Safe when several start
 * at once: one migrates, the others wait and find nothing to do. Throws SchemaError, with nothing changed.
 */
export async function migrate(databaseUrl: string): Promise<{ before: number; applied: number }> {
  const known = readMigrationFiles({ migrationsFolder: MIGRATIONS });
  const client = connect({ databaseUrl, dbPrepare: false }, 1);
  try {
    // The lock and the migrations share one transaction, which also works through a connection pooler.
    return await client.begin(async (tx) => {
      // The role's time limits are meant for requests; a migration may take minutes.
      await tx.unsafe(`set local statement_timeout = 0; set local lock_timeout = 0;
        set local idle_in_transaction_session_timeout = 0`);
      await tx`select pg_advisory_xact_lock(${MIGRATION_LOCK})`;
      await tx.unsafe(`create schema if not exists drizzle;
        create table if not exists drizzle.__drizzle_migrations (id serial primary key, hash text not null, created_at bigint)`);
      const before = await hashesIn(tx);
      const state = stateOf(known, before);
      if (state.schema === "newer" || state.schema === "foreign") throw new SchemaError(schemaSentence(state));
      for (const { sql: statements, hash, folderMillis } of known.slice(before.length)) {
        for (const statement of statements) await tx.unsafe(statement);
        await tx`insert into drizzle.__drizzle_migrations (hash, created_at) values (${hash}, ${folderMillis})`;
      }
      return { before: before.length, applied: known.length };
    });
  } finally {
    await client.end({ timeout: 5 });
  }
}

/** How many migrations the code knows and how many the database has had. */
export async function migrationState(databaseUrl: string): Promise<MigrationState> {
  const known = readMigrationFiles({ migrationsFolder: MIGRATIONS });
  const client = connect({ databaseUrl, dbPrepare: false }, 1);
  try {
    const [table] = await client`select to_regclass('drizzle.__drizzle_migrations') as name`;
    const applied = table?.name ? await hashesIn(client) : [];
    return stateOf(known, applied);
  } finally {
    await client.end({ timeout: 5 });
  }
}

/** What is wrong with a schema that is not current, and what to do about it. */
export function schemaSentence({ known, applied, schema }: MigrationState): string {
  if (schema === "newer")
    return `The database has ${applied} migrations and this release knows ${known}: start the newer release that made them.`;
  if (schema === "foreign")
    return "The database was migrated by something else than a release of this service: name another, or restore a backup of this one.";
  return `The database has ${applied} of ${known} migrations. Run: bun run cli migrate`;
}

async function hashesIn(sql: Pick<Sql, "unsafe">): Promise<string[]> {
  const rows = await sql.unsafe("select hash from drizzle.__drizzle_migrations order by id");
  return rows.map(({ hash }) => String(hash));
}

/** Migrations are only appended, never edited: those of an older release are the first ones of this release. */
function stateOf(known: readonly MigrationMeta[], applied: readonly string[]): MigrationState {
  const counts = { known: known.length, applied: applied.length };
  if (known.some(({ hash }, place) => place < applied.length && applied[place] !== hash))
    return { ...counts, schema: "foreign" };
  if (counts.applied === counts.known) return { ...counts, schema: "current" };
  return { ...counts, schema: counts.applied < counts.known ? "older" : "newer" };
}
