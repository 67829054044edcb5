import { type Account, type AccountFilter, listAccounts } from "../../accounts/accounts_store.ts";
import { type ReadPage, tableCsv } from "./csv_stream.ts";
import type { Cell } from "./formats.ts";

/** People as CSV: UTC, raw units, one header, newest account first. */

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
  return tableCsv(read, {
    columns: COLUMNS,
    cellsOf,
    page: (deps, { after, limit }) =>
      listAccounts(deps, { ...filter, limit, ...(after !== undefined && { before: after }) }),
    idOf: ({ accountId }) => accountId,
    rowsMax: ROWS_MAX,
    advice: "Use a filter for the others.",
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
