import type { Config } from "../config.ts";
import { connect, type Db, type Sql } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/runtime.ts";
import {
  type BookCheck,
  checkIfDue,
  checkNow,
  type HoldsAlive,
  holdsAlive,
  type InvariantResult,
  invariantOf,
  lastChecks,
  recentLosses,
} from "./books_check_store.ts";
import { recentReplicas } from "./replicas_store.ts";

/** The books are checked every five minutes, by one replica at a time, and whenever an admin asks. */

const EVERY_SECONDS = 300;
/** Each replica asks so often whether a check is due; the database says to which. */
const TICK_MS = 15_000;
/** Longer than every view's own limit together: the server has gone silent. */
const CHECK_MS_MAX = 600_000;
const HISTORY_MAX = 20;

export type BooksCheck = {
  /** Checks now, or waits for the check under way, in whatever replica. Throws what Postgres throws. */
  now(): Promise<BookCheck>;
  close(): Promise<void>;
};

type BooksCheckOptions = {
  config: Pick<Config, "databaseUrl" | "dbPrepare">;
  log: Log;
  everySeconds?: number;
  tickMs?: number;
};

/** Begins the ticks. A check has a connection of its own, as long as it takes: neither the lanes nor the pool wait for it. */
export function startBooksCheck({
  config,
  log,
  everySeconds = EVERY_SECONDS,
  tickMs = TICK_MS,
}: BooksCheckOptions): BooksCheck {
  let closed = false;
  let failing = false;
  const open = new Set<Sql>();
  let running: Promise<BookCheck> | undefined;
  let ticking: Promise<void> | undefined;

  async function onConnection<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    const sql = connect({ ...config, fetchTypes: false }, 1);
    open.add(sql);
    try {
      return await within(CHECK_MS_MAX, work(sql));
    } finally {
      open.delete(sql);
      await sql.end({ timeout: 1 });
    }
  }

  async function tick(): Promise<void> {
    try {
      const check = await onConnection((sql) => checkIfDue(sql, everySeconds));
      failing = false;
      if (check) tell(check, log);
    } catch (error) {
      // Once an outage: other jobs say that the database is away.
      if (!closed && !failing) log.warn({ err: error }, "the books could not be checked");
      failing = true;
    }
  }

  const timer = setInterval(() => {
    ticking ??= tick().finally(() => (ticking = undefined));
  }, tickMs);

  return {
    now() {
      running ??= onConnection(checkNow)
        .then(
          (check) => {
            tell(check, log);
            return check;
          },
          (error) => {
            if (!closed) log.warn({ err: error }, "the books could not be checked");
            throw error;
          },
        )
        .finally(() => (running = undefined));
      return running;
    },
    async close() {
      closed = true;
      clearInterval(timer);
      await Promise.all([...open].map((sql) => sql.end({ timeout: 0 })));
      await Promise.allSettled([ticking, running]);
    },
  };
}

function tell({ results, tookMs }: BookCheck, log: Log): void {
  const broken = results.filter(({ rows }) => rows !== 0);
  if (broken.length > 0) log.error({ broken, tookMs }, "the books do not balance, or could not be counted");
  else log.debug({ tookMs }, "the books balance");
}

export type BooksView = {
  /** The last check, each invariant with what it says; null: there was none yet. */
  last: ExplainedCheck | null;
  /** The last checks, newest first: how many invariants were broken, and how many were not counted in time. */
  history: { checkedAt: string; tookMs: number; broken: number; uncounted: number }[];
  holds: HoldsAlive;
  /** Replicas, of those heard of lately, whose settlements wait on disk. */
  spoolsWaiting: number;
  /** What the last 30 days' requests cost beyond what could be charged; null: too many to add up for a page. */
  lossesNanoUsd: bigint | null;
  /** The last time that any replica looked for ended leases. */
  reapedAt: string | null;
};

/** Whether every unit and cent is accounted for. */
export async function readBooks({ db }: { db: Db }): Promise<BooksView> {
  const checks = await lastChecks(db.sql, HISTORY_MAX);
  const replicas = await recentReplicas(db.sql);
  const reaped = replicas.flatMap(({ status }) => status?.reapedAt ?? []);
  const [last] = checks;
  return {
    last: last ? explain(last) : null,
    history: checks.map(({ checkedAt, tookMs, results }) => ({ checkedAt, tookMs, ...sumUp(results) })),
    holds: await holdsAlive(db.sql),
    spoolsWaiting: replicas.filter(({ status }) => status?.spoolEmpty === false).length,
    lossesNanoUsd: await recentLosses(db.sql),
    reapedAt: reaped.sort().at(-1) ?? null,
  };
}

/** How many invariants are broken, and how many were not counted in time. */
export function sumUp(results: BookCheck["results"]): { broken: number; uncounted: number } {
  return {
    broken: results.filter(({ rows }) => rows !== null && rows > 0).length,
    uncounted: results.filter(({ rows }) => rows === null).length,
  };
}

export type ExplainedCheck = Omit<BookCheck, "results"> & { results: (InvariantResult & { says: string })[] };

/** A check with what each invariant says; one of another release has no words here. */
export function explain({ results, ...check }: BookCheck): ExplainedCheck {
  return { ...check, results: results.map((result) => ({ ...result, says: invariantOf(result.name)?.says ?? "" })) };
}
