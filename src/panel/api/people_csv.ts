import { type Account, type AccountFilter, listAccounts } from "../../accounts/accounts_store.ts";
import { type ReadPage, streamTable } from "./csv_stream.ts";
import type { Cell } from "./formats.ts";

/** People as CSV: UTC, raw units, one header, newest account first. */

const PAGE_ROWS = 1000;
/** Rows of one file; a last line says if there are more. */
const ROWS_MAX = 100_000;

const COLUMNS = [
  "account_id",
  "role",
  "reseller_id",
  "name",
  "email",
  "status",
  "package",
  "balance_nano_usd",
  "reserved_nano_usd",
  "pays_from_balance",
  "created_at",
];

/** The whole file as a stream. Throws what the first page throws. */
export function peopleCsv(read: ReadPage, filter: AccountFilter): Promise<ReadableStream<Uint8Array>> {
  return streamTable(read, {
    columns: COLUMNS,
    list: (deps, before: number | undefined) =>
      listAccounts(deps, { ...filter, limit: PAGE_ROWS, ...(before !== undefined && { before }) }),
    keyOf: ({ accountId }) => accountId,
    cellsOf,
    rowsMax: ROWS_MAX,
    cut: `Cut after ${ROWS_MAX} rows. Use a filter for the others.`,
  });
}

function cellsOf(row: Account): Cell[] {
  return [
    row.accountId,
    row.role,
    row.resellerId,
    row.name,
    row.email,
    row.status === "active" && !row.hasPassword ? "invited" : row.status,
    row.packageName,
    row.balanceNanoUsd,
    row.heldNanoUsd,
    row.paygEnabled,
    row.createdAt,
  ];
}
