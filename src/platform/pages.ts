/** Lists are read a page at a time, and a row more than the page has: it says whether there are more. */

export type Page<Row> = { rows: Row[]; hasMore: boolean };

/** How many rows the page has: what was asked for, from 1 to `max`. */
export function pageSize(limit: number, max: number): number {
  return Math.min(Math.max(limit, 1), max);
}

/** The page, of up to `size + 1` rows that were read. */
export function pageOf<Row>(read: readonly Row[], size: number): Page<Row> {
  return { rows: read.slice(0, size), hasMore: read.length > size };
}
