import { sqlState } from "../platform/db.ts";

/**
 * Lists that are read along an index in slices: as many rows as one statement reads in a moment, whatever passes the filter. A
 * page whose time is over stops where it is and says where to go on, also when nothing has passed the filter so far.
 */

/** Rows that the first slice of a filtered list reads; each reads twice as many as the one before, up to the most. */
const SLICE_ROWS_FIRST = 1_000;
const SLICE_ROWS_MAX = 10_000;
/** A page begins no further slice after this. */
const PAGE_MS_MAX = 1_000;
/** What a statement of a list may take, and how long after its page's beginning it may end. */
export const STATEMENT_MS_MAX = 2_000;
/** Postgres ended the statement: its time was over, or nobody wants it any more. */
const QUERY_CANCELED = "57014";

export type Slice<Row, Cursor> = {
  /** Those that pass the filter, up to one more than a page has. */
  rows: Row[];
  /** How many rows were read for them, and where the last one stands. */
  read: number;
  last: Cursor;
};

export type SliceAsked = { rowsMax: number; statementMsMax: number };

export type List<Row, Cursor> = {
  /** Rows of a page. */
  size: number;
  /** False: every row that is read is shown. */
  isFiltered: boolean;
  /** Where the page begins: behind this; undefined: at the list's beginning. */
  after: Cursor | undefined;
  pageMsMax?: number | undefined;
  slice(after: Cursor | undefined, asked: SliceAsked): Promise<Slice<Row, Cursor>>;
  cursorOf(row: Row): Cursor;
};

export type Walked<Row, Cursor> = {
  /** At most as many as a page has. */
  rows: Row[];
  /** Everything before it has been read; null: there is no more. */
  next: Cursor | null;
};

/**
 * Reads a list until a page is full, its time is over, or the list ends. Throws what `slice` throws; of a statement whose time
 * is over only where not even the first slice could be read.
 */
export async function walk<Row, Cursor>(list: List<Row, Cursor>): Promise<Walked<Row, Cursor>> {
  const { size, isFiltered, pageMsMax = PAGE_MS_MAX } = list;
  const startedMs = performance.now();
  const tookMs = () => performance.now() - startedMs;
  const rows: Row[] = [];
  let rowsMax = isFiltered ? SLICE_ROWS_FIRST : size + 1;
  let reached: Cursor | undefined;
  for (;;) {
    let slice: Slice<Row, Cursor>;
    try {
      slice = await list.slice(reached ?? list.after, { rowsMax, statementMsMax: STATEMENT_MS_MAX - tookMs() });
    } catch (error) {
      if (reached !== undefined && sqlState(error) === QUERY_CANCELED) return { rows, next: reached };
      throw error;
    }
    rows.push(...slice.rows);
    const last = rows[size - 1];
    if (rows.length > size && last !== undefined) return { rows: rows.slice(0, size), next: list.cursorOf(last) };
    if (slice.read < rowsMax) return { rows, next: null };
    reached = slice.last;
    if (tookMs() >= pageMsMax) return { rows, next: reached };
    rowsMax = Math.min(2 * rowsMax, SLICE_ROWS_MAX);
  }
}
