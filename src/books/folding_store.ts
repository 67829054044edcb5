import type { Sql } from "../platform/db.ts";
import { arrayOf } from "../platform/row_literals.ts";
import { recountDropped } from "./recount_store.ts";
import { hasTime, type Slices, type SliceTx, slice } from "./short_transactions_store.ts";
import { advanced, type Snapshot, toSnapshot, toText } from "./snapshots.ts";
import { UNPRICED } from "./unpriced_store.ts";
import { addToRollups, USED_COLUMNS, usedOfTaken } from "./usage_rollups_store.ts";

/**
 * Folding: receipts and balance transactions are added to sums (`book_sums`, and the usage rollups), each row exactly
 * once, in slices.
 *
 * What is folded is described by one snapshot (`book_closing.folded`): every row whose transaction that snapshot sees,
 * and no other. A slice takes rows that its own snapshot sees and that one does not, as many as it may read, adds them
 * to the sums and advances the stored snapshot, all in one transaction: a crash undoes both. Slices run one after
 * another.
 *
 * No clock is involved. A transaction that stays open is listed in the snapshot until it ends, and is then found by its
 * id, whatever it wrote. A late settlement gives its receipt the id of its own transaction; before that, the receipt
 * was released and had added nothing.
 *
 * To add a kind of sums, add it to `moves` and fold everything anew (`foldAnew`). Months whose receipts were dropped lack it.
 */

/** The columns of a settled receipt, and of a balance transaction, that the sums depend on, hashed to one number. */
export const RECEIPT_HASH = `hash_record_extended(row(request_id, account_id, key_id, package_id, day, key_day, mode, reason, units,
  charged_nano_usd, charged_tokens, shortfall_nano_usd, model_id, host, prompt_tokens, cached_tokens, completion_tokens,
  price_version_id, further_counts, reported_usage, markup_basis_points, cost_nano_usd, route_id, first_ms, provider_cost_nano_usd,
  created_at, finished_at), 0)`;
/** The kind of the sums of what resellers earned, by reseller and UTC day of the request's end. Source: MRK-6. */
export const EARNING = "earning";
export const ENTRY_HASH = "hash_record_extended(row(id, account_id, amount_nano_usd, kind, request_id), 0)";
/**
 * Rows are hashed in pieces: 65,536 ids of balance transactions; 16 seconds of receipts (`receipts_piece` in the
 * migration).
 */
export const ENTRY_PIECE_BITS = 16;
/** Folding a row costs as much as reading this many: it adds to five rows of the rollups. */
const READS_A_FOLD = 4;
/**
 * The most rows that one batch of the ledger writes. A slice can fold it whole; otherwise the batch would have to be
 * split.
 */
const BATCH_ROWS = 1_100;

/** Folds until nothing is left (true) or the time is up (false). Throws what Postgres throws. */
export async function foldAll(slices: Slices): Promise<boolean> {
  do {
    if (await foldOnce(slices)) return true;
  } while (hasTime(slices));
  return false;
}

/**
 * Runs `work` in a slice whose snapshot has nothing left to fold, so that the sums cover all rows it sees. Folds new
 * rows first, in slices. Throws FoldingBehindError if rows arrive faster than they can be folded in time, or what
 * Postgres throws.
 */
export async function whenAllFolded<T>(slices: Slices, work: (tx: SliceTx) => Promise<T>): Promise<T> {
  do {
    let result: { value: T } | undefined;
    const rested = await foldOnce(slices, async (tx) => {
      result = { value: await work(tx) };
    });
    if (rested && result) return result.value;
  } while (hasTime(slices));
  throw new FoldingBehindError("rows arrive faster than they can be folded");
}

/** Not everything could be folded in time. */
export class FoldingBehindError extends Error {}

/**
 * Resets the sums, so that everything is folded again from the first row: the sums no longer match the rows. Each step
 * may be repeated, so a crash does no harm. What was dropped is counted again from its seal.
 */
export async function foldAnew(slices: Slices): Promise<void> {
  // Rows restored from another server may have transaction ids that this one has not reached yet.
  while (await restampFuture(slices));
  await slice(slices, async (tx) => {
    await tx`truncate book_sums, usage_sums, usage_holders, usage_crossings`;
    await tx`
      update book_closing set folded = '3:3:', receipts_to = -1, entries_to = -1, usage_to = 0, usage_days_to = 'infinity',
        server = (${serverId(tx)})`;
    await tx`update receipt_seals set recounted_to = -1 where dropped_at is not null`;
  });
  await recountDropped(slices);
}

type Folded =
  | { step: "restored" }
  | { step: "uncounted" }
  | { step: "oversized"; by: string }
  | { step: "folded"; whole: boolean };

/** Runs one slice. True: nothing was left to fold, and `work` ran in it. */
async function foldOnce(slices: Slices, work?: (tx: SliceTx) => Promise<void>): Promise<boolean> {
  const rowsBefore = slices.rows;
  const folded = await slice(slices, async (tx, rows): Promise<Folded> => {
    const state = await stateOf(tx);
    if (state.isRestored) return { step: "restored" };
    // A crash has left months of dropped receipts that are not counted again.
    if (state.isUncounted) return { step: "uncounted" };
    const part = await partOf(tx, state, foldedAtOnce(rows));
    if (part.oversized !== undefined) return { step: "oversized", by: part.oversized };
    if (part.rows > 0) await foldPart(tx, part);
    await tx`update book_closing set folded = ${part.folded}::text::pg_snapshot where folded::text <> ${part.folded}`;
    if (part.whole) await work?.(tx);
    return { step: "folded", whole: part.whole };
  });
  if (folded.step === "folded" && !folded.whole) return false;
  if (folded.step === "restored") await foldAnew(slices);
  if (folded.step === "uncounted") await recountDropped(slices);
  // Together with their transactions these rows are no more than a slice like this one folds.
  const rowsMax = Math.ceil(foldedAtOnce(Math.min(slices.rows, rowsBefore)) / 2);
  if (folded.step === "oversized")
    for (const table of ["receipts", "balance_entries"] as const) {
      while (await restamp(slices, table, { by: folded.by, rowsMax }));
    }
  // A slice with little to do is fast, which is no reason to make the next one larger.
  slices.rows = Math.min(slices.rows, rowsBefore);
  return folded.step === "folded";
}

/** The most rows that a slice folds if it may read `rows`. */
const foldedAtOnce = (rows: number): number => Math.max(Math.ceil(rows / READS_A_FOLD), Math.min(3 * rows, BATCH_ROWS));

type State = { folded: Snapshot; seen: Snapshot; isRestored: boolean; isUncounted: boolean };

/** What is folded, what this slice sees, and whether the database was restored on another server. */
async function stateOf(tx: SliceTx): Promise<State> {
  const [row] = await tx`
    select folded::text as folded, server, (${serverId(tx)}) as here, pg_current_snapshot()::text as seen,
      exists(select from receipt_seals where recounted_to is not null) as is_uncounted
    from book_closing`;
  const [folded, seen] = [toSnapshot(row?.folded), toSnapshot(row?.seen)];
  // The sums are of another server, or of transaction ids that this one has not reached: the database was restored
  // from a copy.
  const isRestored = row?.server !== row?.here || folded.xmax > seen.xmax;
  return { folded, seen, isRestored, isUncounted: row?.is_uncounted === true };
}

export const serverId = (sql: SliceTx | Sql) => sql`select system_identifier::text from pg_control_system()`;

/** The rows of a slice: written by a transaction of `ended`, or by one from `from` to before `upto`. */
type Part = {
  ended: string;
  from: string;
  upto: string;
  /** The snapshot of what is folded after this slice. */
  folded: string;
  /** How many rows there are, at least one if any. */
  rows: number;
  /** Nothing is left to fold after this slice. */
  whole: boolean;
  /** Set instead if this transaction alone wrote more rows than a slice folds. */
  oversized?: string;
};

async function partOf(tx: SliceTx, { folded, seen }: State, rowsMax: number): Promise<Part> {
  const open = new Set(seen.open);
  const ended = folded.open.filter((id) => !open.has(id));
  const from = String(folded.xmax);
  const ids = (table: "receipts" | "balance_entries") => tx`
    (select r.written_in from (select unnest(${arrayOf(ended)}::text::xid8[]) as id order by 1) ended
      cross join lateral (select written_in from ${tx(table)} where written_in = ended.id limit ${rowsMax + 1}) r)
    union all (select written_in from ${tx(table)} where written_in >= ${from}::text::xid8 order by written_in limit ${rowsMax + 1})`;
  // Sorted by the table's column: unqualified, it would be the text, in which 1000 precedes 999.
  const [row] = await tx`
    with ids as materialized (${ids("receipts")} union all ${ids("balance_entries")})
    select (select count(*)::int from ids) as rows, (select written_in::text from ids order by ids.written_in limit 1) as first,
      (select written_in::text from ids order by ids.written_in offset ${rowsMax} limit 1) as over`;
  const over = row?.over === null ? undefined : BigInt(String(row?.over));
  const rows = Number(row?.rows);
  const taken = over === undefined ? ended : ended.filter((id) => id < over);
  const after = advanced(folded, seen, over);
  return {
    ended: arrayOf(taken),
    from,
    upto: String(after.xmax),
    folded: toText(after),
    rows,
    whole: over === undefined,
    ...(over !== undefined && String(over) === row?.first && { oversized: String(over) }),
  };
}

/** The columns of receipts that `moves` and the rollups read. */
export const TAKEN_COLUMNS = `request_id, coalesce(day, '-infinity') as day, key_day, outcome = 'settled' as settled, charged_tokens,
  is_uncounted(outcome, key_day, reason, units, charged_nano_usd) as uncounted, shortfall_nano_usd, price_version_id, reported_usage,
  ${USED_COLUMNS}`;

/** Adds the rows of a slice to the sums, and puts the counters to check on `book_due`. */
async function foldPart(tx: SliceTx, part: Part): Promise<void> {
  const of = (columns: string, table: string) => tx`
    select ${tx.unsafe(columns)} from ${tx(table)} where written_in = any(${part.ended}::text::xid8[])
    union all select ${tx.unsafe(columns)} from ${tx(table)}
      where written_in >= ${part.from}::text::xid8 and written_in < ${part.upto}::text::xid8`;
  await tx`
    with taken as materialized (${of(`${TAKEN_COLUMNS}, ${RECEIPT_HASH} as hash`, "receipts")}),
    entries as materialized (${of(`id, account_id, amount_nano_usd, kind, request_id, ${ENTRY_HASH} as hash`, "balance_entries")}),
    moves (kind, id, day, rows, units, tokens, nano_usd, digest) as materialized (${moves(tx)}),
    summed as (
      insert into book_sums as s (kind, id, day, rows, units, tokens, nano_usd, digest) select * from moves
      on conflict (kind, id, day) do update set rows = s.rows + excluded.rows, units = s.units + excluded.units,
        tokens = s.tokens + excluded.tokens, nano_usd = s.nano_usd + excluded.nano_usd, digest = s.digest + excluded.digest
    ),
    charges as (
      insert into book_due (kind, id, request_id) ${unequalCharges(tx)} on conflict do nothing
    ),
    ${usedOfTaken(tx)},
    ${addToRollups(tx)}
    insert into book_due (kind, id, day)
    select distinct kind, id, case when kind = 'key' then day else '-infinity' end from moves where kind in ('package', 'key', 'account')
    on conflict do nothing`;
}

/**
 * The rows of a slice, summed by kind. A release adds nothing, but its counter must be checked: it gave a hold back.
 */
function moves(tx: SliceTx) {
  return tx`
    ${receiptMoves(tx)}
    union all
    select 'account', account_id, '-infinity', sum(n), 0, 0, sum(nano), 0
    from (select account_id, count(*) as n, sum(amount_nano_usd) as nano from entries group by 1
      union all select account_id, 0, 0 from taken where mode = 'payg' group by 1) a group by account_id
    union all
    select 'receipts', receipts_piece(request_id), '-infinity', count(*), 0, 0, 0, sum(hash) from taken where settled group by 2
    union all
    select 'entries', id >> ${tx.unsafe(String(ENTRY_PIECE_BITS))}, '-infinity', count(*), 0, 0, 0, sum(hash) from entries group by 2`;
}

/** The sums of receipts that stay when the receipts are dropped. */
export function receiptMoves(tx: SliceTx) {
  return tx`
    select 'package', package_id, day, count(*), sum(units), sum(charged_tokens), 0, 0
    from taken where package_id is not null group by package_id, day
    union all
    select 'key', key_id, key_day, count(*), count(*) filter (where settled), 0, coalesce(sum(charged_nano_usd) filter (where settled), 0), 0
    from taken where key_day is not null group by key_id, key_day
    union all
    select 'uncounted', key_id, (taken.created_at at time zone keys.time_zone)::date, count(*), 0, 0, sum(charged_nano_usd), 0
    from taken join keys on keys.id = key_id where uncounted group by 2, 3
    union all
    select 'losses', 0, request_day(request_id), count(*), 0, 0, sum(shortfall_nano_usd), 0
    from taken where settled and shortfall_nano_usd > 0 group by 3
    union all
    select ${EARNING}, a.reseller_id, (finished_at at time zone 'UTC')::date, count(*), 0, 0, sum(charged_nano_usd - cost_nano_usd), 0
    from taken join accounts a on a.id = account_id
    where settled and charged_nano_usd > cost_nano_usd and a.reseller_id is not null group by 2, 3
    union all
    select ${UNPRICED} || counted.kind, price_version_id, request_day(request_id), count(*), 0, sum(counted.tokens), 0, 0
    from taken join price_versions v on v.id = price_version_id
      cross join lateral unpriced_counts(reported_usage, rates_for(v.prices, prompt_tokens)) counted
    where settled and taken.mode = 'payg' and reported_usage is not null group by 1, 2, 3`;
}

/**
 * Requests that `inv_charges` would contain if this slice were all there is. A charge and its balance transaction are
 * written in one database transaction, so they are folded in one slice: if they are not, all transactions of the
 * request must be compared.
 */
function unequalCharges(tx: SliceTx) {
  return tx`
    select 'charge', coalesce(r.account_id, e.account_id), coalesce(r.request_id, e.request_id)
    from (select request_id, min(account_id) as account_id, -sum(amount_nano_usd) as total from entries
      where kind = 'charge' and request_id >= receipts_kept_from() group by 1) e
    full join (select * from taken where charged_nano_usd <> 0) r on r.request_id = e.request_id
    where r.charged_nano_usd is distinct from e.total or (r.charged_nano_usd > 0 and (r.mode = 'package' or not r.settled))`;
}

/**
 * Gives rows of one large transaction the id of a new one, at most `rowsMax` at once, unless they are folded. Receipts
 * take their balance transactions along, so that a charge is folded with them. False: there were none.
 */
async function restamp(
  slices: Slices,
  table: "receipts" | "balance_entries",
  { by, rowsMax }: { by: string; rowsMax: number },
): Promise<boolean> {
  return await slice(slices, async (tx, rows) => {
    const key = tx(table === "receipts" ? "request_id" : "id");
    const entries = tx`, entries as (
      update balance_entries set written_in = default
      where written_in = ${by}::text::xid8 and request_id in (select request_id from again))`;
    const [written] = await tx`
      with again as (
        update ${tx(table)} set written_in = default
        where ${key} = any(array(
          select ${key} from ${tx(table)}
          where written_in = ${by}::text::xid8
            and not pg_visible_in_snapshot(${by}::text::xid8, (select folded from book_closing))
          limit ${Math.min(rows, rowsMax)}))
        returning ${key}
      )${table === "receipts" ? entries : tx``}
      select count(*)::int as n from again`;
    return Number(written?.n) > 0;
  });
}

/**
 * Gives rows with transaction ids that this server has not reached the id of a new one: whole transactions, about as
 * many rows as a slice folds. False: there were none.
 */
async function restampFuture(slices: Slices): Promise<boolean> {
  return await slice(slices, async (tx, rows) => {
    const rowsMax = foldedAtOnce(rows);
    const next = tx`pg_snapshot_xmax(pg_current_snapshot())`;
    const ids = (table: string) =>
      tx`(select written_in from ${tx(table)} where written_in >= ${next} order by written_in limit ${rowsMax})`;
    const [last] = await tx`
      select written_in::text as id from (
        select written_in from (${ids("receipts")} union all ${ids("balance_entries")}) both_tables
        order by written_in limit ${rowsMax}) piece
      order by written_in desc limit 1`;
    if (!last) return false;
    for (const table of ["receipts", "balance_entries"])
      await tx`
        update ${tx(table)} set written_in = default where written_in >= ${next} and written_in <= ${String(last.id)}::text::xid8`;
    return true;
  });
}
