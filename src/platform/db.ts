import { sql as statement } from "drizzle-orm";
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import * as schema from "./schema.ts";

/** Waits no longer than this to reach Postgres. */
const CONNECT_TIMEOUT_SECONDS = 5;
/** Postgres is tried again after at most this; the client's own pauses grow to 20 s, which outlasts most outages. */
const RECONNECT_SECONDS_MAX = 1;
/** A transaction waits no longer than this for one lock. */
const LOCK_TIMEOUT = statement`set local lock_timeout = '1500ms'`;

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
  /** Queries and transactions that have been begun and have not ended: what is above the pool's size waits for a connection. */
  underWay(): number;
  close(): Promise<void>;
};

/** postgres.js is loaded without `patches/`. */
export class DriverError extends Error {
  override readonly name = "DriverError";
}

type ConnectOptions = { databaseUrl: string; dbPrepare: boolean; fetchTypes?: boolean };

/** Opens the pool; connects on first use. */
export function openDb(options: ConnectOptions & { dbPoolMax: number }): Db {
  const count = { underWay: 0 };
  let current = open();
  function open() {
    const sql = counted(connect(options, options.dbPoolMax), count);
    return { sql, orm: impatient(drizzle(sql, { schema, casing: "snake_case" })) };
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
    underWay: () => count.underWay,
    close: () => current.sql.end({ timeout: 5 }),
  };
}

/**
 * The same client, which counts what is under way: postgres.js does not tell how many of its connections are busy. A query
 * begins when somebody waits for it, by a call of its `handler`; fragments of queries never do.
 */
function counted(sql: Sql, count: { underWay: number }): Sql {
  const end = () => void count.underWay--;
  const watched = <T>(query: T): T => {
    if (!(query instanceof Promise) || !("handler" in query) || typeof query.handler !== "function") return query;
    const { handler } = query;
    query.handler = (begun: unknown) => {
      count.underWay++;
      // Past the query's own `then`, which would begin it.
      Promise.prototype.then.call(query, end, end);
      handler(begun);
    };
    return query;
  };
  const begin = (...args: Parameters<Sql["begin"]>) => {
    count.underWay++;
    return sql.begin(...args).finally(end);
  };
  return new Proxy(sql, {
    apply: (target, self, args) => watched(Reflect.apply(target, self, args)),
    get(target, name) {
      if (name === "begin") return begin;
      if (name === "unsafe") return (...args: Parameters<Sql["unsafe"]>) => watched(target.unsafe(...args));
      return Reflect.get(target, name);
    },
  });
}

/**
 * Its transactions end with 55P03, which may pass, when a lock is held for long: each keeps a connection of the pool while it
 * waits, and everybody else's requests need those.
 */
function impatient(orm: Orm): Orm {
  const begin = orm.transaction.bind(orm);
  orm.transaction = (work, config) =>
    begin(async (tx) => {
      await tx.execute(LOCK_TIMEOUT);
      return await work(tx);
    }, config);
  return orm;
}

/**
 * Whether an error is the database's trouble and may pass: deadlock, serialization, resources, shutdown, a lock held for
 * long, a connection lost or refused, a server that takes no writes (a standby, after a failover), or that lets us in no
 * more (a password that is being changed, a database that is being restored). drizzle wraps what postgres.js throws.
 */
export function isPassing(error: unknown): boolean {
  return /^(40P01|40001|53...|57P0.|57014|55P03|08...|25006|28...|3D000|CONN\w*|CONNECT_TIMEOUT|E[A-Z]{3,})$/.test(
    sqlState(error),
  );
}

/** The SQLSTATE of an error, or the code of a connection's; "" for what came from elsewhere. */
export function sqlState(error: unknown): string {
  if (!(error instanceof Error)) return "";
  if ("code" in error && typeof error.code === "string") return error.code;
  return error.cause === undefined ? "" : sqlState(error.cause);
}

/**
 * A client of its own with `max` connections. bigint columns come back as strings. Without prepared statements each query waits
 * for the one before it: an unprepared query is described before it is run, and a pooler that takes its connection to Postgres
 * for free in between gives it to others; the answer then comes to nobody. Throws DriverError.
 */
export function connect({ databaseUrl, dbPrepare, fetchTypes = true }: ConnectOptions, max: number): Sql {
  checkDriver();
  return postgres(databaseUrl, {
    max,
    prepare: dbPrepare,
    ...(!dbPrepare && { max_pipeline: 0 }),
    fetch_types: fetchTypes,
    connect_timeout: CONNECT_TIMEOUT_SECONDS,
    backoff: (failures: number) => (0.5 + Math.random() / 2) * Math.min(2 ** failures / 50, RECONNECT_SECONDS_MAX),
    onnotice: () => {},
    connection: { application_name: "tollgate" },
  });
}

/**
 * Throws DriverError for a postgres.js without the changes in `patches/`. Unpatched, it leaves a transaction on a lost connection
 * waiting for ever, and runs what follows on another one.
 */
function checkDriver(): void {
  if ("isPatched" in postgres) return;
  throw new DriverError("postgres.js is installed without its patch. Run: bun install --frozen-lockfile");
}
