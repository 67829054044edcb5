import { numberText } from "../../commerce/invoice_pdf.ts";
import { type Invoice, invoicesOfMonth } from "../../commerce/invoices_store.ts";
import type { Db } from "../../platform/db.ts";
import { decimalUsd } from "../../platform/usd.ts";
import { streamPages } from "./csv_stream.ts";
import { type Cell, csvLine } from "./formats.ts";
import type { ReadPage } from "./usage_csv.ts";

/** A seller's invoices of a month as CSV: one header, in the order in which they were issued. */

const PAGE_ROWS = 1000;
/**
 * Rows of one file; a last line says if there are more. A month cannot be divided, so the limit is above what one
 * seller can issue.
 */
const ROWS_MAX = 1_000_000;

const COLUMNS = [
  "number",
  "kind",
  "issued_at",
  "order",
  "corrects_number",
  "customer_id",
  "buyer",
  "buyer_email",
  "buyer_tax_number",
  "total",
  "currency",
];

type MonthFilter = { sellerId: number; month: string; timeZone: string };

/** The whole file as a stream. Throws what the first page throws. */
export async function invoicesCsv(read: ReadPage, filter: MonthFilter): Promise<ReadableStream<Uint8Array>> {
  const clientGone = new AbortController();
  return await streamPages(
    pagesOf((page) => read(page, clientGone.signal), filter),
    clientGone,
  );
}

async function* pagesOf(
  read: <T>(page: (deps: { db: Db }) => Promise<T>) => Promise<T>,
  filter: MonthFilter,
): AsyncGenerator<string, undefined> {
  let text = csvLine(COLUMNS);
  let after: number | undefined;
  for (let written = 0, isMore = true; isMore; ) {
    const page = { ...filter, after, limit: PAGE_ROWS };
    const { rows, hasMore } = await read((deps) => invoicesOfMonth(deps, page));
    text += rows.map((row) => csvLine(cellsOf(row))).join("");
    written += rows.length;
    after = rows.at(-1)?.invoiceId;
    isMore = hasMore && written < ROWS_MAX;
    if (hasMore && !isMore) text += csvLine([`Cut after ${ROWS_MAX} rows.`]);
    yield text;
    text = "";
  }
}

/** Credit notes have negative totals, so that the column can be summed. */
function cellsOf(row: Invoice): Cell[] {
  return [
    numberText(row.number),
    row.kind,
    row.issuedAt,
    row.reference,
    row.correctsNumber === null ? null : numberText(row.correctsNumber),
    row.accountId,
    row.buyer.name,
    row.buyer.email,
    row.buyer.taxNumber,
    decimalUsd(row.kind === "credit_note" ? -row.totalNanoUsd : row.totalNanoUsd),
    "USD",
  ];
}
