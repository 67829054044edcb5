import type postgres from "postgres";
import { QUERY_CANCELED, type Sql, sqlState } from "../platform/db.ts";

/**
 * Long work in *slices*: short transactions, one after another, so that no statement holds a snapshot, a core or the cache for long
 * while requests are served. How many rows a slice takes depends on how long the last one took.
 */

/** A statement of a slice is cancelled after this; the slice is retried with fewer rows. */
const STATEMENT_MS_MAX = 2_000;
/** What a slice should take: after half of it the next one takes more rows, after twice of it fewer. */
const AIM_MS = 250;
const ROWS_FIRST = 10_000;
const ROWS_MIN = 500;
const ROWS_MAX = 30_000;
/** Attempts at a slice that took too long or met a conflict. */
const TRIES_MAX = 6;
/** Serialization failure, deadlock, cancelled by the time limit. */
const RETRIED = new Set(["40001", "40P01", QUERY_CANCELED]);
/**
 * A time limit, one core, and index scans even where the planner has no statistics yet of a table that is filling. LOCK makes the
 * slices of all replicas run one after another. It takes no snapshot: the slice's own snapshot comes after it, and so sees what
 * the slice before committed.
 */
const BEGINNING = `
  set local statement_timeout = ${STATEMENT_MS_MAX}; set local max_parallel_workers_per_gather = 0; set local jit = off;
  set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off;
  lock table book_closing in exclusive mode`;

export type SliceTx = postgres.TransactionSql;

/** A piece of long work in progress. */
export type Slices = {
  readonly sql: Sql;
  /** Rows that the next slice may read. */
  rows: number;
  /** What is being done, in words, to show progress. */
  doing: string;
  /** Slices so far, the longest in ms, and how many were cancelled by their time limit. */
  done: number;
  longestMs: number;
  cancelled: number;
  /** `performance.now()` after which work that can wait begins no further slice. */
  readonly untilMs: number;
  /** Called after each slice. */
  readonly onSlice: (slices: Slices) => void;
};

export function openSlices(
  sql: Sql,
  { budgetMs = Number.POSITIVE_INFINITY, onSlice = () => {} }: { budgetMs?: number; onSlice?: Slices["onSlice"] } = {},
): Slices {
  const untilMs = performance.now() + budgetMs;
  return { sql, rows: ROWS_FIRST, doing: "", done: 0, longestMs: 0, cancelled: 0, untilMs, onSlice };
}

export const hasTime = ({ untilMs }: Slices): boolean => performance.now() < untilMs;

/**
 * Runs one slice: a repeatable-read transaction that no other slice overlaps. `work` gets how many rows it may read, and runs
 * again if it takes too long or meets a conflict. Throws what Postgres throws after the last attempt.
 */
export async function slice<T>(slices: Slices, work: (tx: SliceTx, rows: number) => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    const startMs = performance.now();
    try {
      const { value } = await slices.sql.begin("isolation level repeatable read", async (tx) => {
        await tx.unsafe(BEGINNING);
        return { value: await work(tx, slices.rows) };
      });
      return value;
    } catch (error) {
      const state = sqlState(error);
      if (state === QUERY_CANCELED) {
        slices.cancelled++;
        slices.rows = Math.max(ROWS_MIN, Math.floor(slices.rows / 4));
      }
      if (tries >= TRIES_MAX || !RETRIED.has(state)) throw error;
    } finally {
      adjust(slices, performance.now() - startMs);
    }
  }
}

function adjust(slices: Slices, tookMs: number): void {
  slices.done++;
  slices.longestMs = Math.max(slices.longestMs, tookMs);
  if (tookMs > AIM_MS * 2) slices.rows = Math.max(ROWS_MIN, Math.floor(slices.rows / 2));
  else if (tookMs < AIM_MS / 2) slices.rows = Math.min(ROWS_MAX, slices.rows * 2);
  slices.onSlice(slices);
}
