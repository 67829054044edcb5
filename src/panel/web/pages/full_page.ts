/** Pages of a list that is read with a filter: the server ends a page early when its time is over. */

/** Parts that are asked for before a person is asked whether to go on. */
const PARTS_MAX = 20;

/** Part of a page: its rows, and where the next one begins; null: the list has ended. */
type Part<Row, Cursor> = { rows: Row[]; next: Cursor | null };

/** Asks for parts until a page has `size` rows, or the list ends. Throws what `ask` throws. */
export async function fullPage<Row, Cursor>(
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
