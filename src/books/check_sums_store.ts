import { ENTRY_HASH, ENTRY_PIECE_BITS, RECEIPT_HASH } from "./folding_store.ts";
import type { CounterKind, CounterRef } from "./invariants.ts";
import { hasTime, type Slices, type SliceTx, slice } from "./short_transactions_store.ts";
import { ID_MIN } from "./usage_records_store.ts";

/**
 * The closed sums against the rows that were folded into them: hashes of whole pieces, in a sweep over everything, and the sums
 * of one package, key day or balance, recounted before a counter is reported as broken.
 */

/** Rows that are read past the last piece, where there should be none. */
const PAST_END_MAX = 1_000;
/** Request ids of a package are not older than the package, except for the difference between clocks. */
const CLOCKS_APART = "1 day";

type Swept = "receipts" | "entries";

/**
 * Rereads folded rows piece by piece, from where the last sweep ended. Returns how many pieces no longer match their hash:
 * their rows were changed, removed or inserted by hand. Reads about `rowsMax` rows, or up to the end.
 */
export async function sweepSums(slices: Slices, table: Swept, rowsMax: number): Promise<number> {
  let [changed, read] = [0, 0];
  for (;;) {
    const found = await slice(slices, (tx, rows) => sweepOnce(tx, table, rows));
    changed += found.changed;
    read += found.rows;
    if (found.ended || read >= rowsMax || !hasTime(slices)) return changed;
  }
}

async function sweepOnce(tx: SliceTx, table: Swept, rowsMax: number) {
  const cursor = tx(`${table}_to`);
  const [piece] = await tx`
    select folded::text as folded, ${cursor}::text as since, (
      select max(id)::text from (
        select id, sum(rows) over (order by id) - rows as before from (
          select id, rows from book_sums where kind = ${table} and id > c.${cursor} order by id limit ${rowsMax}) s) so_far
      where before < ${rowsMax}) as upto
    from book_closing c`;
  const [since, folded] = [String(piece?.since), String(piece?.folded)];
  // Undefined past the last piece: no folded row may be there either.
  const upto = typeof piece?.upto === "string" ? piece.upto : undefined;
  const [found] = await tx`
    with is_now as (
      select piece as id, count(*) as rows, sum(hash) as digest from (${foldedRows(tx, table, { since, upto, folded })}) r group by 1
    ), was as (
      select id, rows, digest from book_sums where kind = ${table} and id > ${since}::text::bigint
        and id <= ${upto ?? null}::text::bigint
    )
    select count(*) filter (where is_now.rows is distinct from was.rows or is_now.digest is distinct from was.digest)::int as changed,
      coalesce(sum(is_now.rows), 0)::int as rows
    from is_now full join was on was.id = is_now.id`;
  const ended = upto === undefined;
  await tx`update book_closing set ${cursor} = ${ended ? "-1" : upto}::text::bigint`;
  return { changed: Number(found?.changed), rows: Number(found?.rows), ended };
}

/** The folded rows of the pieces after `since`, up to `upto`; a few of them if there is no `upto`. */
function foldedRows(
  tx: SliceTx,
  table: Swept,
  { since, upto, folded }: { since: string; upto: string | undefined; folded: string },
) {
  const first = tx`${since}::text::bigint + 1`;
  const after = tx`${upto ?? null}::text::bigint + 1`;
  const bits = tx.unsafe(String(ENTRY_PIECE_BITS));
  const rows =
    table === "receipts"
      ? tx`select receipts_piece(request_id) as piece, ${tx.unsafe(RECEIPT_HASH)} as hash from receipts
          where outcome = 'settled' and request_id >= receipts_piece_floor(${first})
            ${upto === undefined ? tx`` : tx`and request_id < receipts_piece_floor(${after})`}`
      : tx`select id >> ${bits} as piece, ${tx.unsafe(ENTRY_HASH)} as hash from balance_entries
          where id >= (${first}) << ${bits} ${upto === undefined ? tx`` : tx`and id < (${after}) << ${bits}`}`;
  return tx`${rows} and pg_visible_in_snapshot(written_in, ${folded}::text::pg_snapshot)
    ${upto === undefined ? tx`limit ${PAST_END_MAX}` : tx``}`;
}

type Sums = { units: bigint; tokens: bigint; nanoUsd: bigint };

/**
 * Whether the closed sums of a package, a key day or a balance match its rows. If they do not, rows were changed after they
 * were folded. Of a key or a package that does not exist nothing can be recounted: true.
 */
export async function sumsMatchRows(slices: Slices, kind: CounterKind, of: CounterRef): Promise<boolean> {
  const closed = await slice(slices, async (tx) => {
    const [row] = await tx`
      select folded::text as folded, ${accountOf(tx, kind, of)} as account_id, ${startOf(tx, kind, of)} as first,
        s.units::text, s.tokens::text, s.nano_usd::text
      from book_closing, (
        select coalesce(sum(units), 0) as units, coalesce(sum(tokens), 0) as tokens, coalesce(sum(nano_usd), 0) as nano_usd
        from book_sums where kind = ${kind} and id = ${of.id}::text::bigint and (kind <> 'key' or day = ${of.day}::text::date)) s`;
    return row ?? {};
  });
  if (closed.account_id === null) return true;
  const accountId = String(closed.account_id);
  const folded = String(closed.folded);
  const left = toSums(closed);
  subtract(left, await slice(slices, (tx) => sumDropped(tx, kind, of)));
  for (let after: string | undefined = String(closed.first); after !== undefined; ) {
    const from: string = after;
    const page = await slice(slices, (tx, rows) =>
      kind === "account"
        ? sumTransactions(tx, { accountId, from, folded, rows })
        : sumReceipts(tx, { kind, of, accountId, from, folded, rows }),
    );
    subtract(left, page.sums);
    after = page.last;
  }
  return left.units === 0n && left.tokens === 0n && left.nanoUsd === 0n;
}

function subtract(left: Sums, part: Sums): void {
  for (const name of ["units", "tokens", "nanoUsd"] as const) left[name] -= part[name];
}

/** What was kept of dropped receipts. */
async function sumDropped(tx: SliceTx, kind: CounterKind, of: CounterRef): Promise<Sums> {
  const [row] = await tx`
    select coalesce(sum(units), 0)::text as units, coalesce(sum(tokens), 0)::text as tokens, coalesce(sum(nano_usd), 0)::text as nano_usd
    from dropped_sums where kind = ${kind} and id = ${of.id}::text::bigint and (kind <> 'key' or day = ${of.day}::text::date)`;
  return toSums(row ?? {});
}

/** Rows of an account after `from`, at most `rows`; those that the snapshot `folded` sees are summed. */
type PageOf = { accountId: string; from: string; folded: string; rows: number };
type SummedPage = { sums: Sums; last: string | undefined };

async function sumTransactions(tx: SliceTx, { accountId, from, folded, rows }: PageOf): Promise<SummedPage> {
  const [row] = await tx`
    with page as materialized (
      select id, amount_nano_usd, written_in from balance_entries
      where account_id = ${accountId}::text::bigint and id > ${from}::text::bigint order by account_id, id limit ${rows})
    select (select max(id)::text from page) as last, '0' as units, '0' as tokens,
      coalesce(sum(amount_nano_usd), 0)::text as nano_usd
    from page where pg_visible_in_snapshot(written_in, ${folded}::text::pg_snapshot)`;
  return toPage(row ?? {});
}

async function sumReceipts(
  tx: SliceTx,
  { kind, of, accountId, from, folded, rows }: PageOf & { kind: "package" | "key"; of: CounterRef },
): Promise<SummedPage> {
  const sums =
    kind === "package"
      ? tx`coalesce(sum(units), 0)::text as units, coalesce(sum(charged_tokens), 0)::text as tokens, '0' as nano_usd`
      : tx`count(*)::text as units, '0' as tokens, coalesce(sum(charged_nano_usd), 0)::text as nano_usd`;
  const isCounted =
    kind === "package"
      ? tx`package_id = ${of.id}::text::bigint`
      : tx`key_id = ${of.id}::text::bigint and key_day = ${of.day}::text::date`;
  const [row] = await tx`
    with page as materialized (
      select request_id, package_id, units, charged_tokens, charged_nano_usd, key_id, key_day, written_in from receipts
      where outcome = 'settled' and account_id = ${accountId}::text::bigint
        and (account_id, request_id) > (${accountId}::text::bigint, ${from}::text::uuid) and request_id > ${from}::text::uuid
      order by account_id, request_id limit ${rows})
    select (select request_id::text from page order by page.request_id desc limit 1) as last, ${sums}
    from page where pg_visible_in_snapshot(written_in, ${folded}::text::pg_snapshot) and ${isCounted}`;
  return toPage(row ?? {});
}

function accountOf(tx: SliceTx, kind: CounterKind, { id }: CounterRef) {
  if (kind === "account") return tx`${id}::text`;
  return kind === "package"
    ? tx`(select account_id::text from packages where id = ${id}::text::bigint)`
    : tx`(select account_id::text from keys where id = ${id}::text::bigint)`;
}

/** The id after which the rows of a counter begin. */
function startOf(tx: SliceTx, kind: CounterKind, { id }: CounterRef) {
  if (kind === "account") return tx`'0'`;
  if (kind === "key") return tx`${ID_MIN}::text`;
  return tx`coalesce((
    select request_id_floor(least(starts_at, created_at) - ${CLOCKS_APART}::text::interval)::text from packages
    where id = ${id}::text::bigint), ${ID_MIN})`;
}

function toPage(row: Record<string, unknown>): SummedPage {
  return { sums: toSums(row), last: row.last === null ? undefined : String(row.last) };
}

function toSums(row: Record<string, unknown>): Sums {
  return {
    units: BigInt(String(row.units)),
    tokens: BigInt(String(row.tokens)),
    nanoUsd: BigInt(String(row.nano_usd)),
  };
}
