import { type Account, type AccountFilter, listAccounts } from "../../accounts/accounts_store.ts";
import type { Db } from "../../platform/db.ts";
import { streamPages } from "./csv_stream.ts";
import { type Cell, csvLine } from "./formats.ts";
import type { ReadPage } from "./usage_csv.ts";

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
export async function peopleCsv(read: ReadPage, filter: AccountFilter): Promise<ReadableStream<Uint8Array>> {
  const clientGone = new AbortController();
  return await streamPages(
    pagesOf((page) => read(page, clientGone.signal), filter),
    clientGone,
  );
}

async function* pagesOf(
  read: <T>(page: (deps: { db: Db }) => Promise<T>) => Promise<T>,
  filter: AccountFilter,
): AsyncGenerator<string, undefined> {
  let text = csvLine(COLUMNS);
  let before: number | undefined;
  for (let written = 0, isMore = true; isMore; ) {
    const page = { ...filter, limit: PAGE_ROWS, ...(before !== undefined && { before }) };
    const { rows, hasMore } = await read((deps) => listAccounts(deps, page));
    text += rows.map((row) => csvLine(cellsOf(row))).join("");
    written += rows.length;
    before = rows.at(-1)?.accountId;
    isMore = hasMore && written < ROWS_MAX;
    if (hasMore && !isMore) text += csvLine([`Cut after ${ROWS_MAX} rows. Use a filter for the others.`]);
    yield text;
    text = "";
  }
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
