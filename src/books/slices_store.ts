import type postgres from "postgres";
import { type Sql, sqlState } from "../platform/db.ts";

/**
 * Long reads in slices: short transactions one after another, so that no statement holds a snapshot, a core or the cache for
 * long while requests are served. How many rows a slice takes follows how long the last one took.
 */

/** A statement of a slice is cancelled after this; the slice is tried again with fewer rows. */
export const STATEMENT_MS_MAX = 2_000;
/** A slice aims at this: half of it takes more rows next time, twice of it fewer. */
const AIM_MS = 250;
const ROWS_FIRST = 10_000;
const ROWS_MIN = 500;
const ROWS_MAX = 30_000;
/** A slice that took too long, or met a conflict, is tried again so often. */
const TRIES_MAX = 6;
/** Serialization failure, deadlock, cancelled by its time limit. */
const AGAIN = new Set(["40001", "40P01", "57014"]);
/**
 * A time limit, one core, and indexes whatever the planner's statistics say of a table that fills. And one slice of the books
 * after another: LOCK takes no snapshot, so that the slice's own, which comes after it, sees all that the one before it did.
 */
const BEGINNING = `
  set local statement_timeout = ${STATEMENT_MS_MAX}; set local max_parallel_workers_per_gather = 0; set local jit = off;
  set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_sort = off;
  lock table book_closing in exclusive mode`;

export type SliceTx = postgres.TransactionSql;

/** One long read under way. */
export type Slices = {
  readonly sql: Sql;
  /** Rows that the next slice may read. */
  rows: number;
  /** What the slices are about, in words. */
  doing: string;
  /** What was done so far: slices, how long the longest took, in ms, and how many were cancelled by their time limit. */
  done: number;
  longestMs: number;
  cancelled: number;
  /** `performance.now()` past which no further slice is begun where the rest can wait. */
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

/** Runs one slice of the books' reading in a transaction with one snapshot, alone. Throws what Postgres throws when it fails again and again. */
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
      if (state === "57014") {
        slices.cancelled++;
        slices.rows = Math.max(ROWS_MIN, Math.floor(slices.rows / 4));
      }
      if (tries >= TRIES_MAX || !AGAIN.has(state)) throw error;
    } finally {
      note(slices, performance.now() - startMs);
    }
  }
}

function note(slices: Slices, tookMs: number): void {
  slices.done++;
  slices.longestMs = Math.max(slices.longestMs, tookMs);
  if (tookMs > AIM_MS * 2) slices.rows = Math.max(ROWS_MIN, Math.floor(slices.rows / 2));
  else if (tookMs < AIM_MS / 2) slices.rows = Math.min(ROWS_MAX, slices.rows * 2);
  slices.onSlice(slices);
}
