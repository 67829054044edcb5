/**
 * One file with the whole database, and back: `bun scripts/backup.ts save FOLDER` and `bun scripts/backup.ts restore FILE`.
 * DATABASE_URL names the database: Postgres itself, not a pooler. It needs Postgres's client programs on the PATH, of the server's
 * version or newer. Replicas may run while it saves; where it restores, the database must be empty. Source: docs/operations.md.
 */
import { spawnSync } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, renameSync, rmSync, statSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { sentenceOf } from "../src/cli/errors.ts";
import { connect } from "../src/platform/db.ts";
import { migrationState } from "../src/platform/migrate.ts";

/** What a client program says is kept up to here. */
const OUTPUT_BYTES_MAX = 64 * 1024 * 1024;
/** Tables without which a file is no backup of this service. */
const TABLES_EXPECTED = ["accounts", "packages", "balances", "balance_entries", "receipts", "book_closing"];
/** In a connection string, what libpq takes from its environment. */
const PARAMETERS: Readonly<Record<string, string>> = { sslmode: "PGSSLMODE", sslrootcert: "PGSSLROOTCERT" };

const USAGE = "Usage: bun scripts/backup.ts save FOLDER | restore FILE";

/** What the person at the keyboard can mend, in one sentence. */
class BackupError extends Error {
  override readonly name = "BackupError";
}

/** Writes the file and returns its path. Throws BackupError; then no file with its final name is there. */
export function save(databaseUrl: string, folder: string, at: Date): string {
  mkdirSync(folder, { recursive: true });
  const path = join(resolve(folder), `tollgate-${at.toISOString().replace(/[-:]|\.\d+/g, "")}.dump`);
  if (existsSync(path)) throw new BackupError(`${path} is there already.`);
  const unfinished = `${path}.part`;
  // Ours alone before the first byte is in it: digests of passwords and keys.
  closeSync(openSync(unfinished, "wx", 0o600));
  try {
    run("pg_dump", ["--format=custom", "--no-owner", "--no-privileges", `--file=${unfinished}`], databaseUrl);
    checkContents(unfinished, databaseUrl);
    renameSync(unfinished, path);
  } finally {
    rmSync(unfinished, { force: true });
  }
  return path;
}

/** Puts a file into an empty database, whole or not at all. Throws BackupError. */
export async function restore(databaseUrl: string, file: string): Promise<{ known: number; applied: number }> {
  if (!existsSync(file)) throw new BackupError(`There is no file ${file}.`);
  checkContents(file, databaseUrl);
  const tables = await countTables(databaseUrl);
  if (tables > 0) throw new BackupError(`The database has ${tables} tables already. Restore into an empty one.`);
  const args = ["--exit-on-error", "--single-transaction", "--no-owner", "--no-privileges"];
  run("pg_restore", [...args, `--dbname=${databaseOf(databaseUrl)}`, file], databaseUrl);
  return migrationState(databaseUrl);
}

/** A file that broke off, or is another service's, is told before anybody relies on it. */
function checkContents(file: string, databaseUrl: string): void {
  const contents = run("pg_restore", ["--list", file], databaseUrl);
  const missing = TABLES_EXPECTED.filter((table) => !new RegExp(` TABLE public ${table} `).test(contents));
  if (missing.length > 0)
    throw new BackupError(`${file} is no backup of this service: it lacks ${missing.join(", ")}.`);
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
    throw new BackupError(`${program} is not on the PATH: install Postgres's client programs, as new as the server.`);
  }
  if (error) throw new BackupError(`${program}: ${error.message}`);
  if (status !== 0) throw new BackupError(`${program} failed: ${stderr.trim().split("\n").slice(0, 5).join(" ")}`);
  return stdout;
}

/** Not as an argument: arguments are for everybody on the machine to read. */
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

async function main([command, place, ...more]: string[]): Promise<void> {
  const databaseUrl = process.env.DATABASE_URL ?? "";
  if (place === undefined || more.length > 0 || !["save", "restore"].includes(command ?? ""))
    throw new BackupError(USAGE);
  if (!URL.canParse(databaseUrl)) throw new BackupError("DATABASE_URL is not set, or is no address.");
  if (command === "save") {
    const path = save(databaseUrl, place, new Date());
    console.log(`${path} (${statSync(path).size} bytes)`);
    return;
  }
  const { known, applied } = await restore(databaseUrl, place);
  console.log(
    applied === known
      ? "Restored. Now: bun run cli doctor --full"
      : `Restored with ${applied} of ${known} migrations. Now: bun run cli migrate, then bun run cli doctor --full`,
  );
}

if (import.meta.main) {
  main(process.argv.slice(2)).catch((error: unknown) => {
    console.error(error instanceof BackupError ? error.message : sentenceOf(error));
    process.exit(1);
  });
}
