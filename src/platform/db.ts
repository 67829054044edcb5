import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import * as schema from "./schema.ts";

/** Waits no longer than this to reach Postgres. */
const CONNECT_TIMEOUT_SECONDS = 5;

export type Sql = postgres.Sql;
export type Orm = PostgresJsDatabase<typeof schema>;
/** What a transaction hands to its inner functions; a plain Orm fits too. */
export type Tx = Parameters<Parameters<Orm["transaction"]>[0]>[0] | Orm;

/** The pool for everything but the ledger's batches, which have connections of their own. */
export type Db = {
  readonly sql: Sql;
  readonly orm: Orm;
  /** Throws the pool away and opens another: for a server that went silent, which postgres.js would wait for without end. */
  reset(): void;
  close(): Promise<void>;
};

type ConnectOptions = { databaseUrl: string; dbPrepare: boolean; fetchTypes?: boolean };

/** Opens the pool; connects on first use. */
export function openDb(options: ConnectOptions & { dbPoolMax: number }): Db {
  let current = open();
  function open() {
    const sql = connect(options, options.dbPoolMax);
    return { sql, orm: drizzle(sql, { schema, casing: "snake_case" }) };
  }
  return {
    get sql() {
      return current.sql;
    },
    get orm() {
      return current.orm;
    },
    reset() {
      const silent = current.sql;
      current = open();
      silent.end({ timeout: 0 }).catch(() => {}); // It may never answer; nobody waits for it any more.
    },
    close: () => current.sql.end({ timeout: 5 }),
  };
}

/**
 * Whether an error is the database's trouble and may pass: deadlock, serialization, resources, shutdown, a lock held for
 * long, a connection lost or refused. drizzle wraps what postgres.js throws.
 */
export function isPassing(error: unknown): boolean {
  return /^(40P01|40001|53...|57P0.|57014|55P03|08...|CONN\w*|CONNECT_TIMEOUT|E[A-Z]{3,})$/.test(sqlState(error));
}

/** The SQLSTATE of an error, or the code of a connection's; "" for what came from elsewhere. */
export function sqlState(error: unknown): string {
  if (!(error instanceof Error)) return "";
  if ("code" in error && typeof error.code === "string") return error.code;
  return error.cause === undefined ? "" : sqlState(error.cause);
}

/** A client of its own with `max` connections. bigint columns come back as strings. */
export function connect({ databaseUrl, dbPrepare, fetchTypes = true }: ConnectOptions, max: number): Sql {
  return postgres(databaseUrl, {
    max,
    prepare: dbPrepare,
    fetch_types: fetchTypes,
    connect_timeout: CONNECT_TIMEOUT_SECONDS,
    onnotice: () => {},
    connection: { application_name: "tollgate" },
  });
}
