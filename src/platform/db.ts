import { sql as statement } from "drizzle-orm";
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import postgres from "postgres";
import * as schema from "./schema.ts";

/** Waits no longer than this to reach Postgres. */
const CONNECT_TIMEOUT_SECONDS = 5;
/** Postgres is tried again after at most this; the client's own pauses grow to 20 s, which outlasts most outages. */
const RECONNECT_SECONDS_MAX = 1;
/** A transaction waits no longer than this for one lock. */
const LOCK_MS_MAX = 1500;
const LOCK_TIMEOUT = statement`set local lock_timeout = ${statement.raw(String(LOCK_MS_MAX))}`;

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

/** The same client, which counts what is under way: postgres.js does not tell how many of its connections are busy. */
function counted(sql: Sql, count: { underWay: number }): Sql {
  const end = () => void count.underWay--;
  const watched = <T>(query: T): T => {
    onBegin(query, (begun, start) => {
      count.underWay++;
      // Past the query's own `then`, which would begin it.
      Promise.prototype.then.call(begun, end, end);
      start();
    });
    return query;
  };
  const begin = (...args: Parameters<Sql["begin"]>) => {
    count.underWay++;
    return sql.begin(...args).finally(end);
  };
  return proxied(sql, watched, begin);
}

/**
 * Its transactions end with 55P03, which may pass, when a lock is held for long: each keeps a connection of the pool while it
 * waits, and everybody else's requests need those. `settings` is the statement that says so.
 */
function impatient(orm: Orm, settings = LOCK_TIMEOUT): Orm {
  const begin = orm.transaction.bind(orm);
  orm.transaction = (work, config) =>
    begin(async (tx) => {
      await tx.execute(settings);
      return await work(tx);
    }, config);
  return orm;
}

/**
 * The same database for a read that may be given up. Once `signal` is aborted the statement under way is cancelled on the
 * server, and no other begins. The server itself cancels a statement that takes longer than `statementMsMax` in one of
 * its transactions: the replica that asked may have died.
 */
export function whileWanted(db: Db, { signal, statementMsMax }: { signal: AbortSignal; statementMsMax: number }): Db {
  const sql = abortable(db.sql, signal);
  const settings = statement`
    select set_config('lock_timeout', ${String(LOCK_MS_MAX)}, true), set_config('statement_timeout', ${String(statementMsMax)}, true)`;
  const orm = impatient(drizzle(sql, { schema, casing: "snake_case" }), settings);
  return { sql, orm, reset: db.reset, underWay: db.underWay, close: db.close };
}

type Cancellable = Promise<unknown> & { reject(reason: unknown): void; canceller(query: unknown): Promise<void> };

/** The same client for as long as `signal` is not aborted. A query's own `cancel()` does not tell when it has arrived. */
function abortable(client: Sql, signal: AbortSignal): Sql {
  const running = new Set<Cancellable>();
  const cancelling: Promise<void>[] = [];
  signal.addEventListener(
    "abort",
    () => {
      // One that does not reach the server leaves the statement to its time limit there.
      for (const query of running) cancelling.push(query.canceller(query).catch(() => {}));
    },
    { once: true },
  );
  const watched = <T>(query: T): T => {
    onBegin(query, (begun, start) => {
      if (signal.aborted) return begun.reject(signal.reason);
      running.add(begun);
      const end = () => void running.delete(begun);
      Promise.prototype.then.call(begun, end, end);
      start();
    });
    return query;
  };
  const begin = async (...args: [Work] | [options: string, work: Work]) => {
    signal.throwIfAborted();
    const [options, work] = args.length === 1 ? ["", args[0]] : args;
    return await client.begin(options, async (tx) => {
      try {
        return await work(proxied(tx, watched));
      } finally {
        // A cancellation that arrives later would meet whoever is given this connection next.
        await Promise.all(cancelling);
      }
    });
  };
  return proxied(client, watched, begin);
}

type Work = (tx: postgres.TransactionSql) => unknown;

/** A client, or the client of a transaction, whose queries are `watched`. */
function proxied<Client extends postgres.TransactionSql | Sql>(
  client: Client,
  watched: <T>(query: T) => T,
  begin?: unknown,
): Client {
  return new Proxy(client, {
    apply: (target, self, args) => watched(Reflect.apply(target, self, args)),
    get(target, name) {
      if (name === "begin" && begin !== undefined) return begin;
      if (name === "unsafe") return (...args: Parameters<Sql["unsafe"]>) => watched(target.unsafe(...args));
      return Reflect.get(target, name);
    },
  });
}

/** Calls `begun` instead of beginning a query, when somebody waits for it: by a call of its `handler`. Fragments of queries never begin. */
function onBegin(query: unknown, begun: (query: Cancellable, start: () => void) => void): void {
  if (!isCancellable(query)) return;
  const { handler } = query;
  query.handler = (started: unknown) => begun(query, () => handler(started));
}

function isCancellable(query: unknown): query is Cancellable & { handler(query: unknown): void } {
  return (
    query instanceof Promise &&
    "handler" in query &&
    typeof query.handler === "function" &&
    "canceller" in query &&
    typeof query.canceller === "function"
  );
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
