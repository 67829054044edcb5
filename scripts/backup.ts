/**
 * Saves the whole database to one file, and restores it: `bun scripts/backup.ts save FOLDER`, `bun scripts/backup.ts restore FILE`.
 * DATABASE_URL must be Postgres itself, not a pooler. Postgres's client programs must be on the PATH, in the server's version or
 * newer. Replicas may run during `save`. `restore` needs an empty database. Source: docs/operations.md.
 */
import { spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { sentenceOf } from "../src/cli/errors.ts";
import { connect } from "../src/platform/db.ts";
import { migrationState } from "../src/platform/migrate.ts";

/** Limit of a client program's output. */
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
/** More ids than were given between the backup and the restore. */
const IDS_SKIPPED = 1_000_000;
/** Tables that every backup of this service contains. */
const TABLES_EXPECTED = ["accounts", "packages", "balances", "balance_entries", "receipts", "book_closing"];
/** Parameters of a connection string, and the environment variables by which libpq takes them. */
const PARAMETERS: Readonly<Record<string, string>> = { sslmode: "PGSSLMODE", sslrootcert: "PGSSLROOTCERT" };

const USAGE = "Usage: bun scripts/backup.ts save FOLDER | restore FILE";

/** A problem that the operator can fix, in one sentence. */
class BackupError extends Error {
  override readonly name = "BackupError";
}

/** Writes the file and returns its path. Throws BackupError, and then leaves no file. */
export function save(databaseUrl: string, folder: string, at: Date): string {
  mkdirSync(folder, { recursive: true });
  const path = join(resolve(folder), `tollgate-${at.toISOString().replace(/[-:]|\.\d+/g, "")}.dump`);
  if (existsSync(path)) throw new BackupError(`${path} already exists.`);
  const unfinished = `${path}.part`;
  // Readable by the owner only, from the first byte: it has digests of passwords and keys.
  closeSync(openSync(unfinished, "wx", 0o600));
  try {
    // Stored responses live for hours, and are what customers wrote: no copy of them is kept.
    const left = "--exclude-table-data=stored_responses*";
    run("pg_dump", ["--format=custom", "--no-owner", "--no-privileges", left, `--file=${unfinished}`], databaseUrl);
    checkContents(unfinished, databaseUrl);
    renameSync(unfinished, path);
  } finally {
    rmSync(unfinished, { force: true });
  }
  return path;
}

/** Restores a file into an empty database, completely or not at all. Throws BackupError. */
export async function restore(databaseUrl: string, file: string): Promise<{ known: number; applied: number }> {
  if (!existsSync(file)) throw new BackupError(`The file ${file} does not exist.`);
  checkContents(file, databaseUrl);
  const tables = await countTables(databaseUrl);
  if (tables > 0) throw new BackupError(`The database already has ${tables} tables. Restore into an empty one.`);
  const args = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges"];
  run("pg_restore", [...args, `--dbname=${databaseOf(databaseUrl)}`, file], databaseUrl);
  await skipIds(databaseUrl);
  return migrationState(databaseUrl);
}

/** Detects a truncated file, or one of another service, before anyone relies on it. Throws BackupError. */
function checkContents(file: string, databaseUrl: string): void {
  const contents = run("pg_restore", ["--list", file], databaseUrl);
  const missing = TABLES_EXPECTED.filter((table) => !new RegExp(` TABLE public ${table} `).test(contents));
  if (missing.length > 0)
    throw new BackupError(`${file} is not a backup of this service: it lacks ${missing.join(", ")}.`);
}

/**
 * What happened after the backup is lost, but the spools of replicas still name its accounts, keys and packages. If their ids were
 * given again, somebody would get another customer's usage.
 */
async function skipIds(databaseUrl: string): Promise<void> {
  const sql = connect({ databaseUrl, dbPrepare: false }, 1);
  try {
    await sql`
      select setval(format('%I.%I', schemaname, sequencename), coalesce(last_value, 0) + ${IDS_SKIPPED}::int)
      from pg_sequences where schemaname = 'public'`;
  } finally {
    await sql.end({ timeout: 5 });
  }
}

async function countTables(databaseUrl: string): Promise<number> {
  const sql = connect({ databaseUrl, dbPrepare: false }, 1);
  try {
    const [row] = await sql`
      select count(*)::int as tables from pg_class c join pg_namespace n on n.oid = c.relnamespace
      where c.relkind in ('r', 'p') and n.nspname in ('public', 'drizzle')`;
    return Number(row?.tables);
  } finally {
    await sql.end({ timeout: 5 });
  }
}

/** Runs a client program and returns what it prints. Throws BackupError. */
function run(program: string, args: string[], databaseUrl: string): string {
  const env = { ...process.env, ...clientEnvironment(databaseUrl) };
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    env,
    encoding: "utf8",
    maxBuffer: OUTPUT_BYTES_MAX,
    stdio: ["ignore", "pipe", "pipe"],
  });
  if (error && "code" in error && error.code === "ENOENT") {
    throw new BackupError(
      `${program} is not on the PATH: install Postgres's client programs, in the server's version or newer.`,
    );
  }
  if (error) throw new BackupError(`${program}: ${error.message}`);
  if (status !== 0) throw new BackupError(`${program} failed: ${stderr.trim().split("\n").slice(0, 5).join(" ")}`);
  return stdout;
}

/** The connection as environment variables. Arguments would show the password to every user of the machine. */
function clientEnvironment(databaseUrl: string): Record<string, string> {
  const url = new URL(databaseUrl);
  const env: Record<string, string> = {
    PGHOST: url.hostname.replace(/^\[|\]$/g, ""),
    PGPORT: url.port || "5432",
    PGDATABASE: databaseOf(databaseUrl),
    PGUSER: decodeURIComponent(url.username),
    PGPASSWORD: decodeURIComponent(url.password),
  };
  for (const [name, variable] of Object.entries(PARAMETERS)) {
    const value = url.searchParams.get(name);
    if (value !== null) env[variable] = value;
  }
  return Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ""));
}

function databaseOf(databaseUrl: string): string {
  return decodeURIComponent(new URL(databaseUrl).pathname.slice(1));
}

async function main([command, target, ...more]: string[]): Promise<void> {
  const databaseUrl = process.env.DATABASE_URL ?? "";
  if (target === undefined || more.length > 0 || !["save", "restore"].includes(command ?? ""))
    throw new BackupError(USAGE);
  if (!URL.canParse(databaseUrl)) throw new BackupError("DATABASE_URL is not set, or is not a URL.");
  if (command === "save") {
    const path = save(databaseUrl, target, new Date());
    console.log(`${path} (${statSync(path).size} bytes)`);
    return;
  }
  const { known, applied } = await restore(databaseUrl, target);
  console.log(
    applied === known
      ? "Restored. Next: bun run cli doctor --full"
      : `Restored with ${applied} of ${known} migrations. Next: bun run cli migrate, then bun run cli doctor --full`,
  );
}

if (import.meta.main) {
  main(process.argv.slice(2)).catch((error: unknown) => {
    console.error(error instanceof BackupError ? error.message : sentenceOf(error));
    process.exit(1);
  });
}
