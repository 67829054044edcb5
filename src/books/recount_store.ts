import { type Slices, type SliceTx, slice } from "./short_transactions_store.ts";
import { addToRollups, COUNTS } from "./usage_rollups_store.ts";

/**
 * What the books keep of months whose receipts were dropped, counted again after all sums were reset (`foldAnew`). A cursor in
 * the row of the month says how far it is, and advances in the same transaction: a crash loses nothing and counts nothing twice.
 */

/** Months that are not counted again begin here: their sums come first, then their accounts one after another. */
const SUMS_FIRST = -1;
/** Accounts of one slice. */
const ACCOUNTS_MAX = 200;
/** A slice has at least one account, or the sums of a month, however many rows these have. No request waits for it. */
const STATEMENT_MS_MAX = 60_000;

/** Counts until nothing is left. Throws what Postgres throws. */
export async function recountDropped(slices: Slices): Promise<void> {
  while (await slice(slices, recountOnce));
}

/** False: nothing was left. */
async function recountOnce(tx: SliceTx, rowsMax: number): Promise<boolean> {
  const [next] = await tx`
    select month::text as month, recounted_to::float8 as recounted_to from receipt_seals
    where recounted_to is not null order by month limit 1`;
  if (next === undefined) return false;
  const month = String(next.month);
  await tx`select set_config('statement_timeout', ${String(STATEMENT_MS_MAX)}, true)`;
  const to = next.recounted_to === SUMS_FIRST ? await addSums(tx, month) : await addUsage(tx, month, rowsMax);
  await tx`update receipt_seals set recounted_to = ${to}::text::bigint where month = ${month}::text::date`;
  return true;
}

async function addSums(tx: SliceTx, month: string): Promise<string> {
  await tx`
    insert into book_sums as s (kind, id, day, rows, units, tokens, nano_usd)
    select kind, id, day, rows, units, tokens, nano_usd from sealed_sums where month = ${month}::text::date
    on conflict (kind, id, day) do update set rows = s.rows + excluded.rows, units = s.units + excluded.units,
      tokens = s.tokens + excluded.tokens, nano_usd = s.nano_usd + excluded.nano_usd`;
  return "0";
}

/** The last of the accounts that were counted; null: it was the month's last. */
async function addUsage(tx: SliceTx, month: string, rowsMax: number): Promise<string | null> {
  const [next] = await tx`
    with sizes as (
      select account_id, sum(count(*)) over (order by account_id) - count(*) as before from sealed_usage
      where month = ${month}::text::date
        and account_id > (select recounted_to from receipt_seals where month = ${month}::text::date)
      group by account_id order by account_id limit ${ACCOUNTS_MAX})
    select max(account_id)::text as last from sizes where before < ${Math.ceil(rowsMax / 5)}`;
  if (typeof next?.last !== "string") return null;
  const counts = tx.unsafe(COUNTS);
  const of = (columns: string) => tx`
    select ${tx.unsafe(columns)}, ${counts} from sealed_usage
    where month = ${month}::text::date and account_id <= ${next.last}::text::bigint
      and account_id > (select recounted_to from receipt_seals where month = ${month}::text::date)`;
  await tx`
    with used as materialized (${of("account_id, key_id, begins, kind_id")} and ends = 'infinity'),
    crossings as materialized (${of("account_id, begins, ends, kind_id")} and ends < 'infinity'),
    ${addToRollups(tx)}
    select 1`;
  return String(next.last);
}
