import { sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { pageSize } from "../platform/pages.ts";
import { type Chunk, type ChunkLimits, readAlongIndex, readPage } from "./paged_reads_store.ts";

/** The transactions of a balance, newest first, each with the balance after it. Table: `balance_entries`. */

const PAGE_MAX = 100;
/** Above every id. */
const NO_ID = "9223372036854775807";
/** A cursor: the id of a transaction, and the balance before it in nano-USD. */
export const TRANSACTIONS_CURSOR = "^[1-9][0-9]{0,15}_[0-9]{1,19}$";

export const TRANSACTION_KINDS = [
  "top_up",
  "charge",
  "wholesale",
  "package",
  "transfer",
  "correction",
  "refund",
  "earning",
] as const;
export type TransactionKind = (typeof TRANSACTION_KINDS)[number];

export type BalanceTransaction = {
  entryId: number;
  kind: TransactionKind;
  amountNanoUsd: bigint;
  /** The balance after this transaction, whatever kinds are listed. */
  balanceAfterNanoUsd: bigint;
  reason: string | null;
  /** The other account of a transfer. */
  counterpart: { accountId: number; name: string } | null;
  /** The package that was paid for, and its holder. */
  package: { name: string; holder: { accountId: number; name: string } } | null;
  /** The order that was topped up for, of its buyer's transaction. */
  orderId: number | null;
  requestId: string | null;
  /** Who did it; null: a request, or the command line. */
  actor: { accountId: number; name: string; role: "customer" | "reseller" | "admin" } | null;
  createdAt: string;
};

export type BalanceTransactionsQuery = {
  accountId: number;
  kind?: TransactionKind;
  /** The `nextBefore` of the previous page. */
  before?: string;
  limit?: number;
  /** The page begins no further chunk after this time. */
  pageMsMax?: number;
};

/**
 * `nextBefore` is the `before` of the next page; null at the end. A page that ran out of time may be empty although the
 * list continues.
 */
export type TransactionsPage = { rows: BalanceTransaction[]; hasMore: boolean; nextBefore: string | null };

/**
 * Transactions of one account. They are written under the account's lock, so their ids are in the order of events, and
 * the balance after one is the current balance minus all later amounts. They never change: so a cursor carries the
 * balance at its position, and a page costs what it shows, however far back it is. Throws InputError.
 */
export async function listBalanceTransactions(
  { db }: { db: Db },
  query: BalanceTransactionsQuery,
): Promise<TransactionsPage> {
  const { accountId, kind, before, limit = PAGE_MAX, pageMsMax } = query;
  const size = pageSize(limit, PAGE_MAX);
  const { rows, next } = await readPage<Record<string, unknown>, Cursor>({
    size,
    isFiltered: kind !== undefined,
    after: before === undefined ? undefined : toCursor(before),
    pageMsMax,
    chunk: (cursor, limits) => readChunk(db, { accountId, kind, size, cursor }, limits),
    cursorOf: (row) => ({
      id: String(row.id),
      balanceNanoUsd: BigInt(String(row.balance_after)) - BigInt(String(row.amount_nano_usd)),
    }),
  });
  const nextBefore = next && `${next.id}_${next.balanceNanoUsd}`;
  return { rows: rows.map(toTransaction), hasMore: nextBefore !== null, nextBefore };
}

type Cursor = { id: string; balanceNanoUsd: bigint };
type Wanted = { accountId: number; kind: TransactionKind | undefined; size: number; cursor: Cursor | undefined };

/**
 * Transactions before the cursor. One statement, so that the balance and the transactions it is counted back from are
 * of one moment.
 */
async function readChunk(
  db: Db,
  { accountId, kind, size, cursor }: Wanted,
  { rowsMax, statementMsMax }: ChunkLimits,
): Promise<Chunk<Record<string, unknown>, Cursor>> {
  const balance =
    cursor === undefined
      ? sql`(select balance_nano_usd from balances where account_id = ${accountId}::bigint)`
      : sql`${String(cursor.balanceNanoUsd)}::text::numeric`;
  const found = await readAlongIndex(
    db,
    sql`
    with chunk as materialized (
      select id, kind, amount_nano_usd, reason, request_id, package_id, counterpart_id, actor_id, created_at
      from balance_entries where account_id = ${accountId}::bigint and id < ${cursor?.id ?? NO_ID}::text::bigint
      order by account_id desc, id desc limit ${rowsMax}
    ), counted as (
      select *, ${balance} - sum(amount_nano_usd) over (order by id desc) + amount_nano_usd as balance_after from chunk
    ), page as materialized (
      select * from counted where ${kind === undefined ? sql`true` : sql`kind = ${kind}`} order by id desc limit ${size + 1}
    )
    select read.*, page.*, a.name as actor_name, a.role as actor_role, c.name as counterpart_name,
      p.name as package_name, h.id as holder_id, h.name as holder_name, o.id as order_id
    from (select count(*)::int as read, min(id)::text as last, (${balance} - sum(amount_nano_usd))::text as balance_left from chunk) read
    left join page on true
    left join accounts a on a.id = page.actor_id
    left join accounts c on c.id = page.counterpart_id
    left join packages p on p.id = page.package_id
    left join accounts h on h.id = p.account_id
    left join orders o on o.entry_id = page.id
    order by page.id desc`,
    statementMsMax,
  );
  const read = Number(found[0]?.read);
  return {
    rows: found.filter(({ id }) => id !== null),
    read,
    last: { id: String(found[0]?.last), balanceNanoUsd: read === 0 ? 0n : BigInt(String(found[0]?.balance_left)) },
  };
}

/** Throws InputError. */
function toCursor(text: string): Cursor {
  if (!new RegExp(TRANSACTIONS_CURSOR).test(text))
    throw new InputError("This is not a cursor of a previous page.", "before");
  const [id = "", balance = ""] = text.split("_");
  return { id, balanceNanoUsd: BigInt(balance) };
}

/** A row of `balance_entries` with the names that it refers to. */
export function toTransaction(row: Record<string, unknown>): BalanceTransaction {
  const role = row.actor_role;
  const kind = TRANSACTION_KINDS.find((one) => one === row.kind);
  if (!kind) throw new Error(`unknown kind of balance transaction: ${row.kind}`);
  return {
    entryId: Number(row.id),
    kind,
    amountNanoUsd: BigInt(String(row.amount_nano_usd)),
    balanceAfterNanoUsd: BigInt(String(row.balance_after)),
    reason: row.reason === null ? null : String(row.reason),
    counterpart:
      row.counterpart_id === null
        ? null
        : { accountId: Number(row.counterpart_id), name: String(row.counterpart_name) },
    package:
      row.holder_id === null
        ? null
        : {
            name: String(row.package_name),
            holder: { accountId: Number(row.holder_id), name: String(row.holder_name) },
          },
    orderId: row.order_id === null ? null : Number(row.order_id),
    requestId: row.request_id === null ? null : String(row.request_id),
    actor:
      role === "customer" || role === "reseller" || role === "admin"
        ? { accountId: Number(row.actor_id), name: String(row.actor_name), role }
        : null,
    createdAt: toIso(String(row.created_at)),
  };
}
