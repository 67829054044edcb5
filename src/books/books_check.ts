import type { Config } from "../config.ts";
import { recentReplicas } from "../ledger/replicas_store.ts";
import { connect, type Db, type Sql } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import {
  type BookCheck,
  type CheckOptions,
  checkIfDue,
  checkNow,
  type HoldsAlive,
  holdsAlive,
  type InvariantResult,
  invariantOf,
  lastChecks,
  recentLosses,
} from "./books_check_store.ts";

/**
 * The books are checked every five minutes, by one replica at a time, and whenever an admin asks. Between checks the closing
 * goes on, so that a check finds little to fold.
 */

const EVERY_SECONDS = 300;
/**
 * Each replica asks so often whether a check is due; the database says to which. As often what has come is folded: charts
 * read the rest one by one.
 */
const TICK_MS = 5_000;
/** Longer than a check waits and works: the server has gone silent. */
const CHECK_MS_MAX = 600_000;
const HISTORY_MAX = 20;
/** One holds the lock, the other does the work. */
const CONNECTIONS = 2;

export type BooksCheck = {
  /** Checks now, or waits for the check under way, in whatever replica. Throws what Postgres throws. */
  now(): Promise<BookCheck>;
  /** What is known here of the last check, by whatever replica: when, in Unix seconds, and what it found. All 0: not known yet. */
  last(): LastCheck;
  close(): Promise<void>;
};

type LastCheck = { checkedUnix: number; broken: number; uncounted: number };

type BooksCheckOptions = {
  config: Pick<Config, "databaseUrl" | "dbPrepare">;
  log: Log;
  everySeconds?: number;
  tickMs?: number;
};

/** Begins the ticks. A check has connections of its own, as long as it takes: neither the lanes nor the pool wait for it. */
export function startBooksCheck({
  config,
  log,
  everySeconds = EVERY_SECONDS,
  tickMs = TICK_MS,
}: BooksCheckOptions): BooksCheck {
  let closed = false;
  let failing = false;
  const open = new Set<Sql>();
  let last: LastCheck = { checkedUnix: 0, broken: 0, uncounted: 0 };
  let running: Promise<BookCheck> | undefined;
  let ticking: Promise<void> | undefined;

  async function onConnections<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
    const sql = connect({ ...config, fetchTypes: false }, CONNECTIONS);
    open.add(sql);
    try {
      return await within(CHECK_MS_MAX, work(sql));
    } finally {
      open.delete(sql);
      await sql.end({ timeout: 1 });
    }
  }

  const options: CheckOptions = {
    onChanged: (pieces) =>
      log.error(
        { pieces },
        "receipts, entries or their sums were changed by hand after they were folded; they are folded anew",
      ),
  };

  async function tick(): Promise<void> {
    try {
      const [check, newest] = await onConnections(async (sql) => {
        const checked = await checkIfDue(sql, everySeconds, options);
        return [checked, (await lastChecks(sql, 1))[0]] as const;
      });
      if (newest) last = { checkedUnix: Date.parse(newest.checkedAt) / 1000, ...sumUp(newest.results) };
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
      running ??= onConnections((sql) => checkNow(sql, options))
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
    last: () => last,
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
