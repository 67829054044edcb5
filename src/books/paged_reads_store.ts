import { type SQL, sql } from "drizzle-orm";
import { type Db, QUERY_CANCELED, sqlState } from "../platform/db.ts";

/**
 * Lists that are read along an index, in chunks: a chunk is as many rows as one statement reads quickly, whether or not they pass
 * the filter. A page that runs out of time ends where it is and says where to continue, even if no row has passed the filter.
 */

/** Rows that the first chunk of a filtered list reads; each chunk reads twice as many as the one before, up to the maximum. */
const CHUNK_ROWS_FIRST = 1_000;
const CHUNK_ROWS_MAX = 10_000;
/** A page begins no further chunk after this. */
const PAGE_MS_MAX = 1_000;
/** Time limit of a statement, and the time after a page's beginning by which its last statement must end. */
const STATEMENT_MS_MAX = 2_000;

export type Chunk<Row, Cursor> = {
  /** Rows that pass the filter, up to one more than the page holds. */
  rows: Row[];
  /** How many rows were read, and the position of the last one. */
  read: number;
  last: Cursor;
};

export type ChunkLimits = { rowsMax: number; statementMsMax: number };

export type PagedList<Row, Cursor> = {
  /** Rows of a page. */
  size: number;
  /** False: every row that is read is shown. */
  isFiltered: boolean;
  /** The page begins after this position; undefined: at the beginning of the list. */
  after: Cursor | undefined;
  pageMsMax?: number | undefined;
  chunk(after: Cursor | undefined, limits: ChunkLimits): Promise<Chunk<Row, Cursor>>;
  cursorOf(row: Row): Cursor;
};

export type PageRead<Row, Cursor> = {
  /** At most `size` rows. */
  rows: Row[];
  /** Where the next page begins; null: the list ends here. */
  next: Cursor | null;
};

/**
 * Reads chunks until the page is full, its time is up, or the list ends. Throws what `chunk` throws; a statement that exceeds its
 * time limit is an error only if it was the page's first.
 */
export async function readPage<Row, Cursor>(list: PagedList<Row, Cursor>): Promise<PageRead<Row, Cursor>> {
  const { size, isFiltered, pageMsMax = PAGE_MS_MAX } = list;
  const startedMs = performance.now();
  const tookMs = () => performance.now() - startedMs;
  const rows: Row[] = [];
  let rowsMax = isFiltered ? CHUNK_ROWS_FIRST : size + 1;
  let reached: Cursor | undefined;
  for (;;) {
    let chunk: Chunk<Row, Cursor>;
    try {
      chunk = await list.chunk(reached ?? list.after, { rowsMax, statementMsMax: STATEMENT_MS_MAX - tookMs() });
    } catch (error) {
      if (reached !== undefined && sqlState(error) === QUERY_CANCELED) return { rows, next: reached };
      throw error;
    }
    rows.push(...chunk.rows);
    const last = rows[size - 1];
    if (rows.length > size && last !== undefined) return { rows: rows.slice(0, size), next: list.cursorOf(last) };
    if (chunk.read < rowsMax) return { rows, next: null };
    reached = chunk.last;
    if (tookMs() >= pageMsMax) return { rows, next: reached };
    rowsMax = Math.min(2 * rowsMax, CHUNK_ROWS_MAX);
  }
}

/**
 * Runs a query along the index whose order it asks for, so that it costs what it shows. The planner has poor statistics of a
 * month that is being written, and would otherwise sort all rows of an account or read the requests of all accounts: so sorts and
 * scans of other kinds are discouraged, and the query's bounds and order fit no other index. Throws an error after `statementMsMax`.
 */
export async function readAlongIndex(
  { orm }: Db,
  query: SQL,
  statementMsMax = STATEMENT_MS_MAX,
): Promise<Record<string, unknown>[]> {
  const ms = String(Math.max(1, Math.round(statementMsMax)));
  return orm.transaction(async (tx) => {
    // Without jit: the planner rates discouraged sorts as so expensive that it would compile them.
    await tx.execute(sql`
      select set_config('enable_sort', 'off', true), set_config('enable_bitmapscan', 'off', true),
        set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true), set_config('statement_timeout', ${ms}, true)`);
    return tx.execute<Record<string, unknown>>(query);
  });
}
