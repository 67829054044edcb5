import type { Db } from "../../platform/db.ts";
import { type Cell, csvLine } from "./formats.ts";

/** A file that is written page by page as the client reads, so that a slow client keeps neither a snapshot nor a connection open. */

/** A file's pages wait longer for a connection than a page on screen, so that a download that began can finish. */
export const FILE_WAIT_MS_MAX = 10_000;

/** Runs the read of one page. `signal` is aborted when the client is gone. */
export type ReadPage = <T>(page: (deps: { db: Db }) => Promise<T>, signal: AbortSignal) => Promise<T>;

type Table<Row, Key> = {
  columns: readonly string[];
  /** The page after the row with this key; undefined: the first page. */
  list: (deps: { db: Db }, after: Key | undefined) => Promise<{ rows: Row[]; hasMore: boolean }>;
  keyOf: (row: Row) => Key;
  cellsOf: (row: Row) => Cell[];
  /** Rows of one file. */
  rowsMax: number;
  /** The last line of a file that has no more of them. */
  cut: string;
};

/** A table as CSV: one header, then its rows. Throws what the first page throws. */
export async function streamTable<Row, Key>(
  read: ReadPage,
  table: Table<Row, Key>,
): Promise<ReadableStream<Uint8Array>> {
  const clientGone = new AbortController();
  return await streamPages(
    linesOf((page) => read(page, clientGone.signal), table),
    clientGone,
  );
}

async function* linesOf<Row, Key>(
  read: <T>(page: (deps: { db: Db }) => Promise<T>) => Promise<T>,
  { columns, list, keyOf, cellsOf, rowsMax, cut }: Table<Row, Key>,
): AsyncGenerator<string, undefined> {
  let text = csvLine(columns);
  let after: Key | undefined;
  for (let written = 0, isMore = true; isMore; ) {
    const { rows, hasMore } = await read((deps) => list(deps, after));
    text += rows.map((row) => csvLine(cellsOf(row))).join("");
    written += rows.length;
    const last = rows.at(-1);
    after = last && keyOf(last);
    isMore = hasMore && written < rowsMax;
    if (hasMore && !isMore) text += csvLine([cut]);
    yield text;
    text = "";
  }
}

/** The pages as a stream. Throws what the first page throws; a later failure aborts the download. `clientGone` is aborted with it. */
export async function streamPages(
  pages: AsyncGenerator<string, undefined>,
  clientGone: AbortController,
): Promise<ReadableStream<Uint8Array>> {
  const encoder = new TextEncoder();
  const first = await pages.next();
  let text: string | undefined = first.done ? undefined : first.value;
  return new ReadableStream({
    async pull(controller) {
      if (text === undefined) return controller.close();
      controller.enqueue(encoder.encode(text));
      const next = await pages.next();
      text = next.done ? undefined : next.value;
    },
    async cancel() {
      clientGone.abort();
      await pages.return(undefined);
    },
  });
}

/** The response that a browser saves under this name. */
export function csvResponse(csv: ReadableStream<Uint8Array>, fileName: string): Response {
  return new Response(csv, {
    headers: {
      "content-type": "text/csv; charset=utf-8",
      "content-disposition": `attachment; filename="${fileName}"`,
    },
  });
}
