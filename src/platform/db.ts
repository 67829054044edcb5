import { type SQL, sql as statement } from "drizzle-orm";
import { drizzle, type PostgresJsDatabase } from "drizzle-orm/postgres-js";
import postgres from "postgres";

/** Longest wait for a connection. */
const CONNECT_TIMEOUT_SECONDS = 5;
/** Longest pause between reconnects. The client's default pauses grow to 20 s, longer than most outages. */
const RECONNECT_SECONDS_MAX = 1;
/** Longest wait of a transaction for one lock, unless the pool has its own. */
const LOCK_MS_MAX = 1500;
const lockTimeout = (ms: number) => statement`set local lock_timeout = ${statement.raw(String(ms))}`;

export type Sql = postgres.Sql;
export type Orm = PostgresJsDatabase;
/** A transaction, or a plain Orm. */
export type Tx = Parameters<Parameters<Orm["transaction"]>[0]>[0] | Orm;

/** The connection pool for everything except the ledger's batches, which have their own connections. */
export type Db = {
  readonly sql: Sql;
  readonly orm: Orm;
  /** Replaces the pool. For a silent server, which postgres.js would wait for without end, and for one that is read-only. */
  reset(): void;
  /** Queries and transactions in progress. Those beyond the pool's size wait for a connection. */
  underWay(): number;
  close(): Promise<void>;
};

/** postgres.js was installed without `patches/`. */
export class DriverError extends Error {
  override readonly name = "DriverError";
}

type ConnectOptions = { databaseUrl: string; dbPrepare: boolean; fetchTypes?: boolean };

/** Opens the pool; connects on first use. */
export function openDb(options: ConnectOptions & { dbPoolMax: number; lockMsMax?: number }): Db {
  const settings = lockTimeout(options.lockMsMax ?? LOCK_MS_MAX);
  const count = { underWay: 0 };
  let current = open();
  function open() {
    const sql = counted(connect(options, options.dbPoolMax), count);
    return { sql, orm: impatient(drizzle(sql, { casing: "snake_case" }), settings) };
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
      silent.end({ timeout: 0 }).catch(() => {}); // It may never answer.
    },
    underWay: () => count.underWay,
    close: () => current.sql.end({ timeout: 5 }),
  };
}

/** Counts queries in progress: postgres.js does not report how many of its connections are busy. */
function counted(sql: Sql, count: { underWay: number }): Sql {
  const end = () => void count.underWay--;
  const watched = <T>(query: T): T => {
    onBegin(query, (begun, start) => {
      count.underWay++;
      // Not the query's own `then`, which would start it.
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
 * Makes transactions fail with 55P03 (a passing error) when a lock is held for too long: a waiting transaction occupies a connection
 * of the pool. `settings`: the statement that sets the limit.
 */
function impatient(orm: Orm, settings: SQL): Orm {
  const begin = orm.transaction.bind(orm);
  orm.transaction = (work, config) =>
    begin(async (tx) => {
      await tx.execute(settings);
      return await work(tx);
    }, config);
  return orm;
}

/**
 * The same database for a read that may be cancelled. When `signal` is aborted, the running statement is cancelled on the server, and
 * no other starts. In transactions the server also cancels a statement after `statementMsMax`: the replica may have died.
 */
export function whileWanted(db: Db, { signal, statementMsMax }: { signal: AbortSignal; statementMsMax: number }): Db {
  const sql = abortable(db.sql, signal);
  const settings = statement`
    select set_config('lock_timeout', ${String(LOCK_MS_MAX)}, true), set_config('statement_timeout', ${String(statementMsMax)}, true)`;
  const orm = impatient(drizzle(sql, { casing: "snake_case" }), settings);
  return { sql, orm, reset: db.reset, underWay: db.underWay, close: db.close };
}

type Cancellable = Promise<unknown> & { reject(reason: unknown): void; canceller(query: unknown): Promise<void> };

/** The same client until `signal` is aborted. A query's own `cancel()` does not report when it has reached the server. */
function abortable(client: Sql, signal: AbortSignal): Sql {
  const running = new Set<Cancellable>();
  const cancelling: Promise<void>[] = [];
  signal.addEventListener(
    "abort",
    () => {
      // If a cancellation does not reach the server, the time limit there ends the statement.
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
        // A late cancellation would hit the next user of this connection.
        await Promise.all(cancelling);
      }
    });
  };
  return proxied(client, watched, begin);
}

type Work = (tx: postgres.TransactionSql) => unknown;

/** Passes every query of a client, or of a transaction, through `watched`. */
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

/** Calls `begun` instead of starting a query, when the query is awaited (postgres.js calls its `handler`). Fragments never start. */
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
 * Whether an error is a temporary problem of the database: deadlock, serialization, resources, shutdown, a lock held too long, a
 * connection lost or refused, a name server that does not answer, a read-only server (a standby after a failover), or a rejected login (a
 * password being changed, a database being restored). drizzle wraps the errors of postgres.js.
 */
export function isPassing(error: unknown): boolean {
  return /^(40P01|40001|53...|57P0.|57014|55P03|08...|25006|28...|3D000|CONN\w*|CONNECT_TIMEOUT|E[A-Z]{3,}|EAI_[A-Z]+)$/.test(
    sqlState(error),
  );
}

/** Whether Postgres rejected a value, or a constraint did: the same statement fails each time. */
export function isOfValues(error: unknown): boolean {
  return /^2[23]...$/.test(sqlState(error));
}

/** The state of the error of a row that breaks a unique index. */
export const UNIQUE_VIOLATION = "23505";

/** The state of an error of a statement that was cancelled: its time limit is over. */
export const QUERY_CANCELED = "57014";

/** The state of an error of a statement that waited too long for a lock. */
export const LOCK_NOT_AVAILABLE = "55P03";

/** The state of an error of a write to a server that is read-only, as a standby is. The connection stays there: it must be replaced. */
export const READ_ONLY = "25006";

/** The SQLSTATE of an error, or the code of a connection error; "": another error. */
export function sqlState(error: unknown): string {
  if (!(error instanceof Error)) return "";
  if ("code" in error && typeof error.code === "string") return error.code;
  return error.cause === undefined ? "" : sqlState(error.cause);
}

/**
 * A separate client with `max` connections. bigint columns are returned as strings. Without prepared statements each query waits for
 * the previous one: an unprepared query is first described and then run, and a pooler could give the connection to somebody else in
 * between. Throws DriverError.
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
 * Throws DriverError for a postgres.js without `patches/`. Unpatched, a transaction on a lost connection waits forever, and its next
 * statements run on another connection.
 */
function checkDriver(): void {
  if ("isPatched" in postgres) return;
  throw new DriverError("postgres.js is installed without its patch. Run: bun install --frozen-lockfile");
}
