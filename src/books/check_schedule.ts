import type { Config } from "../config.ts";
import { connect, type Sql } from "../platform/db.ts";
import { every } from "../platform/every.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import type { CheckOptions } from "./check.ts";
import { type CheckRun, checkIfDue, checkNow, lastChecks } from "./check_runs_store.ts";
import { closeEarnings, creditEarnings } from "./earnings_store.ts";
import { countFindings } from "./invariants.ts";
import { openSlices } from "./short_transactions_store.ts";
import { NO_UNPRICED_TOKENS, sumUnpricedTokens, type UnpricedTokens } from "./unpriced_store.ts";

/**
 * The books are checked every five minutes, by one replica at a time, and whenever an admin asks. Between checks new rows are
 * folded, so that a check finds little left to fold. Also resellers' earnings: see earnings_store.ts.
 */

const EVERY_SECONDS = 300;
/**
 * How often each replica asks whether a check is due; the database lets one of them do it. New rows are folded as often, since
 * charts read unfolded receipts one by one.
 */
const TICK_MS = 5_000;
/** Closing the earnings of a day waits no longer for new rows to be folded; the next tick goes on. */
const CLOSING_MS_MAX = 60_000;
/** Longer than a check can wait and work: the database server no longer answers. */
const CHECK_MS_MAX = 600_000;
/** One connection holds the lock, the other does the work. */
const CONNECTIONS = 2;

export type BooksCheck = {
  /** Checks now, or waits for the check that runs in any replica. Throws what Postgres throws. */
  now(): Promise<CheckRun>;
  /** The last check that this replica knows of, whoever ran it. */
  last(): LastCheck;
  /** Tokens without a price of their own by kind, of all time, as of the last tick. Source: IMP-6. */
  unpricedTokens(): UnpricedTokens;
  close(): Promise<void>;
};

/** When, in Unix seconds, and what it found. All 0: none is known yet. */
type LastCheck = { checkedUnix: number; broken: number; uncounted: number };

type BooksCheckOptions = {
  config: Pick<Config, "databaseUrl" | "dbPrepare">;
  log: Log;
  everySeconds?: number;
  tickMs?: number;
};

/** Starts the timer. Checks use connections of their own, so that neither the ledger nor the pool waits for them. */
export function startBooksCheck({
  config,
  log,
  everySeconds = EVERY_SECONDS,
  tickMs = TICK_MS,
}: BooksCheckOptions): BooksCheck {
  const connections = checkConnections(config);
  let closed = false;
  let last: LastCheck = { checkedUnix: 0, broken: 0, uncounted: 0 };
  let unpricedTokens = NO_UNPRICED_TOKENS;
  let running: Promise<CheckRun> | undefined;

  const options: CheckOptions = {
    onChanged: (pieces) =>
      log.error(
        { pieces },
        "receipts, entries or their sums were changed by hand after they were folded; everything is folded anew",
      ),
  };

  async function tick(): Promise<void> {
    await connections.run(async (sql) => {
      const run = await checkIfDue(sql, everySeconds, options);
      if (run) logRun(run, log);
      const [newest] = await lastChecks(sql, 1);
      if (newest) last = { checkedUnix: Date.parse(newest.checkedAt) / 1000, ...countFindings(newest.results) };
      unpricedTokens = await sumUnpricedTokens(sql);
      // Last: a reseller that cannot be credited hides nothing of this.
      await closeEarnings(openSlices(sql, { budgetMs: CLOSING_MS_MAX }));
      await creditEarnings(sql);
    });
  }

  async function runNow(): Promise<CheckRun> {
    try {
      const run = await connections.run((sql) => checkNow(sql, options));
      logRun(run, log);
      return run;
    } catch (error) {
      if (!closed) log.warn({ err: error }, "the books could not be checked");
      throw error;
    }
  }

  const failure = "the books could not be checked, or earnings not credited";
  const job = every({ name: "books_check", ms: tickMs, run: tick, log, failure });

  return {
    now: () => (running ??= runNow().finally(() => (running = undefined))),
    last: () => last,
    unpricedTokens: () => unpricedTokens,
    async close() {
      closed = true;
      const ended = job.close();
      await connections.close();
      await Promise.allSettled([ended, running]);
    },
  };
}

/** Opens connections for each piece of work, and closes them after it. */
function checkConnections(config: BooksCheckOptions["config"]) {
  const open = new Set<Sql>();
  return {
    async run<T>(work: (sql: Sql) => Promise<T>): Promise<T> {
      const sql = connect({ ...config, fetchTypes: false }, CONNECTIONS);
      open.add(sql);
      try {
        return await within(CHECK_MS_MAX, work(sql));
      } finally {
        open.delete(sql);
        await sql.end({ timeout: 1 });
      }
    },
    /** Ends the connections that are in use: their work fails. */
    async close(): Promise<void> {
      await Promise.all([...open].map((sql) => sql.end({ timeout: 0 })));
    },
  };
}

function logRun({ results, tookMs }: CheckRun, log: Log): void {
  const broken = results.filter(({ rows }) => rows !== 0);
  if (broken.length > 0) log.error({ broken, tookMs }, "the books do not balance, or could not be counted");
  else log.debug({ tookMs }, "the books balance");
}
