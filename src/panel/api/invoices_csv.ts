import { numberText } from "../../commerce/invoice_titles.ts";
import { type Invoice, invoicesOfMonth } from "../../commerce/invoices_store.ts";
import { decimalUsd } from "../../platform/usd.ts";
import { type ReadPage, tableCsv } from "./csv_stream.ts";
import type { Cell } from "./formats.ts";

/** A seller's invoices of a month as CSV: one header, in the order in which they were issued. */

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
  "tax",
  "tax_percent",
  "reverse_charge",
  "buyer_vat_number",
];

type MonthFilter = { sellerId: number; month: string; timeZone: string };

/** The whole file as a stream. Throws what the first page throws. */
export function invoicesCsv(read: ReadPage, filter: MonthFilter): Promise<ReadableStream<Uint8Array>> {
  return tableCsv(read, {
    columns: COLUMNS,
    cellsOf,
    page: (deps, page) => invoicesOfMonth(deps, { ...filter, ...page }),
    idOf: ({ invoiceId }) => invoiceId,
    rowsMax: ROWS_MAX,
  });
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
    decimalUsd(row.kind === "credit_note" ? -row.totalNano : row.totalNano),
    row.currency.toUpperCase(),
    decimalUsd(row.kind === "credit_note" ? -row.taxNano : row.taxNano),
    row.tax === null ? null : row.tax.rate / 1000,
    row.tax === null ? null : row.tax.reverseCharge ? "yes" : "no",
    row.tax?.buyerVatNumber ?? null,
  ];
}
