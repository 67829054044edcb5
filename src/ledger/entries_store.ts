import { sql } from "drizzle-orm";
import { toIso } from "../accounts/checks.ts";
import type { Db } from "../platform/db.ts";

/** A balance's entries, as a bank shows them: newest first, each with the balance after it. */

const PAGE_MAX = 100;
/** Above every id. */
const NO_ID = "9223372036854775807";

export const ENTRY_KINDS = ["top_up", "charge", "wholesale", "transfer", "correction"] as const;
export type EntryKind = (typeof ENTRY_KINDS)[number];

export type Entry = {
  entryId: number;
  kind: EntryKind;
  amountNanoUsd: bigint;
  /** Right after this entry, entries of all kinds counted. */
  balanceAfterNanoUsd: bigint;
  reason: string | null;
  /** Of money that was moved: from whom it came, or to whom it went. */
  counterpart: { accountId: number; name: string } | null;
  /** Of a package that was paid for: its name, and who got it. */
  package: { name: string; holder: { accountId: number; name: string } } | null;
  requestId: string | null;
  /** Who did it; null: a request, or the service's command line. */
  actor: { accountId: number; name: string; role: "customer" | "reseller" | "admin" } | null;
  createdAt: string;
};

export type EntriesQuery = {
  accountId: number;
  kind?: EntryKind;
  /** The last id of the page before. */
  before?: number;
  limit?: number;
};

/**
 * Entries of one account. An account's entries are written under its lock, so their ids are in the order of what happened, and
 * the balance after one is the balance now less all that came later. The page's rows part what came later into spans of the
 * index, each summed once; one statement, so that the balance and its entries are of one moment.
 */
export async function listEntries(
  { db }: { db: Db },
  { accountId, kind, before, limit = PAGE_MAX }: EntriesQuery,
): Promise<{ rows: Entry[]; hasMore: boolean }> {
  const size = Math.min(Math.max(limit, 1), PAGE_MAX);
  const rows = await db.orm.execute<Record<string, unknown>>(sql`
    with page as materialized (
      select *, coalesce(lag(id) over (order by id desc), ${NO_ID}::text::bigint) as newer_id from (
        select id, kind, amount_nano_usd, reason, request_id, package_id, counterpart_id, actor_id, created_at
        from balance_entries
        where account_id = ${accountId}::bigint and id < ${before ?? NO_ID}::text::bigint
          and ${kind === undefined ? sql`true` : sql`kind = ${kind}`}
        order by id desc limit ${size + 1}) as newest
    )
    select page.*, b.balance_nano_usd - sum(later.nano_usd) over (order by page.id desc) as balance_after,
      a.name as actor_name, a.role as actor_role, c.name as counterpart_name,
      p.name as package_name, h.id as holder_id, h.name as holder_name
    from page
    join balances b on b.account_id = ${accountId}::bigint
    cross join lateral (
      select coalesce(sum(amount_nano_usd), 0) as nano_usd from balance_entries e
      where e.account_id = ${accountId}::bigint and e.id > page.id and e.id <= page.newer_id) as later
    left join accounts a on a.id = page.actor_id
    left join accounts c on c.id = page.counterpart_id
    left join packages p on p.id = page.package_id
    left join accounts h on h.id = p.account_id
    order by page.id desc`);
  return { rows: rows.slice(0, size).map(toEntry), hasMore: rows.length > size };
}

function toEntry(row: Record<string, unknown>): Entry {
  const role = row.actor_role;
  const kind = ENTRY_KINDS.find((one) => one === row.kind);
  if (!kind) throw new Error(`a balance entry of kind ${row.kind}`);
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
    requestId: row.request_id === null ? null : String(row.request_id),
    actor:
      role === "customer" || role === "reseller" || role === "admin"
        ? { accountId: Number(row.actor_id), name: String(row.actor_name), role }
        : null,
    createdAt: toIso(String(row.created_at)),
  };
}
