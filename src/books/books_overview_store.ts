import type postgres from "postgres";
import { type ReplicaStatus, recentReplicas } from "../ledger/replicas_store.ts";
import { type Db, QUERY_CANCELED, type Sql, sqlState } from "../platform/db.ts";
import { type ExplainedCheck, explain, lastChecks } from "./check_runs_store.ts";
import type { InvariantName } from "./invariants.ts";
import { countFindings } from "./invariants.ts";
import { listUnpriced, type UnpricedCount } from "./unpriced_store.ts";
import { IS_FOLDED, UNFOLDED_RECORDS } from "./usage_rollups_store.ts";

/** What the admin's page "Books" shows: the last checks, open holds, losses, and whether settlements wait in a spool. */

const HISTORY_MAX = 20;
/** How long the page waits for the rows that break an invariant. */
const ROWS_MS_MAX = 10_000;
const LOSSES_MS_MAX = 2_000;
const LOSSES_DAYS = 30;
/** A replica without a heartbeat for this long has died, or stands still: the requests it reported last are not running. */
const SILENT_MS = 10_000;

type Tx = postgres.TransactionSql;

export type BooksOverview = {
  /** The last check, each invariant with what it means; null: there was none yet. */
  last: ExplainedCheck | null;
  /** The last checks, newest first: how many invariants were broken, and how many could not be checked in time. */
  history: { checkedAt: string; tookMs: number; broken: number; uncounted: number }[];
  holds: OpenHolds;
  /** Replicas seen recently whose spool has settlements to replay. */
  spoolsWaiting: number;
  /** What requests of the last 30 days cost beyond what could be charged; null: it takes too long to add up for a page. */
  lossesNanoUsd: bigint | null;
  /** What providers report and models have no price for. */
  unpriced: UnpricedCount[];
  /** When any replica last looked for expired leases. */
  reapedAt: string | null;
};

/** Whether every unit and cent is accounted for. */
export async function readBooksOverview({ db }: { db: Db }): Promise<BooksOverview> {
  const checks = await lastChecks(db.sql, HISTORY_MAX);
  const replicas = await recentReplicas(db.sql);
  const reaped = replicas.flatMap(({ status }) => status?.reapedAt ?? []);
  const [last] = checks;
  return {
    last: last ? explain(last) : null,
    history: checks.map(({ checkedAt, tookMs, results }) => ({ checkedAt, tookMs, ...countFindings(results) })),
    holds: openHolds(replicas.flatMap(({ ageMs, status }) => (ageMs < SILENT_MS && status ? [status] : []))),
    spoolsWaiting: replicas.filter(({ status }) => status?.spoolEmpty === false).length,
    lossesNanoUsd: await recentLosses(db.sql),
    unpriced: await listUnpriced(db.sql),
    reapedAt: reaped.sort().at(-1) ?? null,
  };
}

/** The first rows that break an invariant. Each column is text: a wrong sum may be outside the range of any number. */
export async function brokenRows(
  sql: Sql,
  name: InvariantName,
  rowsMax: number,
): Promise<Record<string, string | null>[]> {
  return await sql.begin(async (tx) => {
    await limit(tx, ROWS_MS_MAX);
    const rows = await tx`
      select (select json_object_agg(key, value) from json_each_text(row_to_json(broken))) as columns
      from (select * from ${tx(name)} limit ${rowsMax}) as broken`;
    return rows.map((row) => row.columns);
  });
}

type OpenHolds = { alive: number; oldestAgeMs: number | null };

/** How many requests are running in all replicas, and the age of the oldest, as of their last heartbeats. */
function openHolds(statuses: readonly ReplicaStatus[]): OpenHolds {
  const ages = statuses.flatMap(({ oldestHoldMs }) => oldestHoldMs ?? []);
  return {
    alive: statuses.reduce((sum, { holds }) => sum + holds, 0),
    oldestAgeMs: ages.length === 0 ? null : Math.max(...ages),
  };
}

/** What requests of the last 30 days cost beyond what could be charged; null: it took too long to add up. */
async function recentLosses(sql: Sql): Promise<bigint | null> {
  return await sql.begin(async (tx) => {
    await limit(tx, LOSSES_MS_MAX);
    return await nullIfLate(tx, async (inner) => {
      // Without jit: the planner rates discouraged scans as so expensive that it would compile them.
      await inner`
        select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`;
      const [row] = await inner`
        with since as materialized (
          select request_id_floor(clock_timestamp() - make_interval(days => ${LOSSES_DAYS}::int)) as id)
        select ((select coalesce(sum(nano_usd), 0) from book_sums
            where kind = 'losses' and id = 0 and day > (select request_day(id) from since))
          + (select coalesce(sum(shortfall_nano_usd), 0) from receipts
            where shortfall_nano_usd > 0 and outcome = 'settled' and request_id >= (select id from since)
              and ${inner.unsafe(IS_FOLDED)}
              and request_id < (select request_id_floor((request_day(id) + 1)::timestamp at time zone 'UTC') from since))
          + (select coalesce(sum(shortfall_nano_usd), 0) from ${inner.unsafe(UNFOLDED_RECORDS)} unfolded
            where shortfall_nano_usd > 0 and request_id >= (select id from since))
          -- Answers that were refused. They are rare, are in no sum, and may yet be settled.
          + (select coalesce(sum(shortfall_nano_usd), 0) from receipts
            where shortfall_nano_usd > 0 and outcome = 'released' and request_id >= (select id from since)))::text as losses`;
      return BigInt(String(row?.losses));
    });
  });
}

/** The result of `read`, or null if it exceeds the statement's time limit. The transaction stays usable. */
async function nullIfLate<T>(tx: Tx, read: (inner: Tx) => Promise<T>): Promise<T | null> {
  try {
    const { value } = await tx.savepoint(async (inner) => ({ value: await read(inner) }));
    return value;
  } catch (error) {
    if (sqlState(error) === QUERY_CANCELED) return null;
    throw error;
  }
}

/** For the rest of the transaction: a time limit on each statement, and no parallel workers, which would take more cores. */
async function limit(tx: Tx, statementMs: number): Promise<void> {
  await tx`
    select set_config('statement_timeout', ${String(statementMs)}, true),
      set_config('max_parallel_workers_per_gather', '0', true)`;
}
