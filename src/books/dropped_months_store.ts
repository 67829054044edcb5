import { setTimeout as sleep } from "node:timers/promises";
import { LOCK_NOT_AVAILABLE, type Sql, sqlState } from "../platform/db.ts";
import { RECEIPT_HASH, whenAllFolded } from "./folding_store.ts";
import { type MonthProblem, verifyMonth } from "./seal_check_store.ts";
import { type ClosedMonth, firstDay, listClosedMonths, monthFloor, nextMonthFloor } from "./seals_store.ts";
import { hasTime, type Slices, type SliceTx } from "./short_transactions_store.ts";

/**
 * Drops the receipts of sealed months, the oldest first. Before that each month is compared with its seal once more. Its sums and
 * rollups stay as they are; only the hashes of its receipts leave `book_sums`, in the same transaction. Source: RET-4.
 */

/** Attempts at the partition's lock, for which nothing may wait long. */
const TRIES_MAX = 20;
const PAUSE_MS = 250;

export type DropOptions = {
  /** Receipts that the export of receipts has not delivered are not dropped (MSG-15). */
  isExportUsed: boolean;
  /** Of these months only: the last one, as 2030-01. */
  upTo: string;
};

export type Dropped = { months: string[]; stoppedBy: MonthProblem | { month: string; problem: string } | null };

/** The last month that is older than so many whole months; those that are not over count as none. */
export async function lastMonthBefore(sql: Sql, keepMonths: number): Promise<string> {
  const [row] = await sql`
    select to_char(date_trunc('month', ledger_now() at time zone 'UTC') - make_interval(months => ${keepMonths + 1}), 'YYYY-MM') as month`;
  return String(row?.month);
}

/** The sealed months up to one whose receipts are there, the oldest first. */
export function monthsToDrop(closed: readonly ClosedMonth[], upTo: string): ClosedMonth[] {
  return closed.filter(({ month, seal, droppedAt }) => seal !== null && droppedAt === null && month <= upTo);
}

/** Drops the months up to one, and stops at the first one that must not be dropped. Throws what Postgres throws. */
export async function dropMonths(slices: Slices, { isExportUsed, upTo }: DropOptions): Promise<Dropped> {
  const months: string[] = [];
  for (const { month } of monthsToDrop(await listClosedMonths(slices.sql), upTo)) {
    if (!hasTime(slices)) break;
    slices.doing = `comparing ${month} with its seal`;
    const { problems, undelivered } = await verifyMonth(slices, month);
    const [problem] = problems;
    if (problem) return { months, stoppedBy: problem };
    if (isExportUsed && undelivered > 0)
      return {
        months,
        stoppedBy: { month, problem: `${undelivered} receipts are not delivered by the export of receipts yet` },
      };
    slices.doing = `dropping ${month}`;
    if (!(await drop(slices, month)))
      return { months, stoppedBy: { month, problem: "its receipts are being read all the time: try again later" } };
    months.push(month);
  }
  return { months, stoppedBy: null };
}

/** False: the partition's lock was never free. */
async function drop(slices: Slices, month: string): Promise<boolean> {
  for (let tries = 1; ; tries++) {
    try {
      await whenAllFolded(slices, (tx) => dropIn(tx, month));
      return true;
    } catch (error) {
      if (sqlState(error) !== LOCK_NOT_AVAILABLE) throw error;
      if (tries === TRIES_MAX) return false;
      await sleep(PAUSE_MS);
    }
  }
}

async function dropIn(tx: SliceTx, month: string): Promise<void> {
  const day = tx`${firstDay(month)}::text::date`;
  const [open] = await tx`select 1 from receipt_seals where month = ${day} and dropped_at is null`;
  if (open === undefined) return; // Another one has dropped it.
  const [first, end] = [monthFloor(tx, month), nextMonthFloor(tx, month)];
  // The pieces at both ends may have receipts of the neighbours.
  await tx`
    update book_sums s set rows = s.rows - m.rows, digest = s.digest - m.digest from (
      select receipts_piece(request_id) as id, count(*) as rows, sum(${tx.unsafe(RECEIPT_HASH)}) as digest from (
        (select * from receipts where request_id >= ${first} and request_id < receipts_piece_floor(receipts_piece(${first}) + 1) and outcome = 'settled')
        union all
        (select * from receipts where request_id >= receipts_piece_floor(receipts_piece(${end})) and request_id < ${end} and outcome = 'settled')) r
      group by 1) m
    where s.kind = 'receipts' and s.id = m.id`;
  await tx`
    delete from book_sums where kind = 'receipts' and id >= receipts_piece(${first}) and id <= receipts_piece(${end})
      and (rows = 0 or (id > receipts_piece(${first}) and id < receipts_piece(${end})))`;
  await tx`select drop_receipt_month(${day})`;
}
