import type { Db } from "../../platform/db.ts";
import { type Cell, csvLine } from "./formats.ts";

/** Files that are written page by page as the client reads, so that a slow client keeps neither a snapshot nor a connection open. */

/** A file's pages wait longer for a connection than a page on screen, so that a download that began can finish. */
export const FILE_WAIT_MS_MAX = 10_000;
/** Rows that are read at once. */
export const PAGE_ROWS = 1000;

/** Runs the read of one page. `signal` is aborted when the client is gone. */
export type ReadPage = <T>(page: (deps: { db: Db }) => Promise<T>, signal: AbortSignal) => Promise<T>;
/** The same for the pages of one file. */
export type ReadFile = <T>(page: (deps: { db: Db }) => Promise<T>) => Promise<T>;

/** A file of all rows of a list: one header, and a last line if there are more rows than `rowsMax`. */
type Table<Row> = {
  columns: readonly string[];
  cellsOf: (row: Row) => Cell[];
  /** `after`: the id of the last row before the page; undefined for the first. */
  page: (
    deps: { db: Db },
    page: { after: number | undefined; limit: number },
  ) => Promise<{ rows: Row[]; hasMore: boolean }>;
  idOf: (row: Row) => number;
  rowsMax: number;
  /** What to do about the missing rows. */
  advice?: string;
};

/** The whole table as a stream. Throws what the first page throws. */
export function tableCsv<Row>(read: ReadPage, table: Table<Row>): Promise<ReadableStream<Uint8Array>> {
  return streamPages(read, (readFile) => tablePages(readFile, table));
}

async function* tablePages<Row>(
  read: ReadFile,
  { columns, cellsOf, page, idOf, rowsMax, advice = "" }: Table<Row>,
): AsyncGenerator<string, undefined> {
  let text = csvLine(columns);
  let after: number | undefined;
  for (let written = 0, isMore = true; isMore; ) {
    const { rows, hasMore } = await read((deps) => page(deps, { after, limit: PAGE_ROWS }));
    text += rows.map((row) => csvLine(cellsOf(row))).join("");
    written += rows.length;
    const last = rows.at(-1);
    after = last && idOf(last);
    isMore = hasMore && written < rowsMax;
    if (hasMore && !isMore) text += csvLine([`Cut after ${rowsMax} rows.${advice && ` ${advice}`}`]);
    yield text;
    text = "";
  }
}

/** The pages as a stream. Throws what the first page throws; a later failure aborts the download. */
export async function streamPages(
  read: ReadPage,
  pagesOf: (read: ReadFile) => AsyncGenerator<string, undefined>,
): Promise<ReadableStream<Uint8Array>> {
  const clientGone = new AbortController();
  const pages = pagesOf((page) => read(page, clientGone.signal));
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
