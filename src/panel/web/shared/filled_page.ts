/** Fills a page of a filtered list: the server returns fewer rows when it reaches its time limit. */

/** Requests for one page. After that, the person decides whether to load more. */
const PARTS_MAX = 20;

/** Part of a page: its rows, and the cursor of the next part; null at the end of the list. */
type Part<Row, Cursor> = { rows: Row[]; next: Cursor | null };

/** Requests parts until the page has `size` rows or the list ends. Throws what `ask` throws. */
export async function filledPage<Row, Cursor>(
  size: number,
  first: Cursor,
  ask: (cursor: Cursor, size: number) => Promise<Part<Row, Cursor>>,
): Promise<Part<Row, Cursor>> {
  const rows: Row[] = [];
  let next: Cursor | null = first;
  for (let parts = 0; parts < PARTS_MAX && rows.length < size && next !== null; parts++) {
    const part: Part<Row, Cursor> = await ask(next, size - rows.length);
    rows.push(...part.rows);
    next = part.next;
  }
  return { rows, next };
}
