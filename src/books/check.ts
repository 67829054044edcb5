import { brokenCharges } from "./check_charges_store.ts";
import { brokenAllotments, compareDueCounters, restartSweeps, sweepCounters } from "./check_counters_store.ts";
import { brokenPayments } from "./check_payments_store.ts";
import { brokenPrices } from "./check_prices_store.ts";
import { sweepRollups } from "./check_rollups_store.ts";
import { sumsMatchRows, sweepSums } from "./check_sums_store.ts";
import { brokenEarnings } from "./earnings_store.ts";
import { FoldingBehindError, foldAll, foldAnew } from "./folding_store.ts";
import { INVARIANTS, type InvariantName, type InvariantResult, type Violation } from "./invariants.ts";
import type { Slices } from "./short_transactions_store.ts";

/**
 * One check of the books. It finds what the views `inv_*` would show, without reading every row that was ever written:
 *
 * - Every receipt and every balance transaction is folded once into closed sums (`folding_store.ts`). A sweep rereads the folded
 *   rows and compares their hashes with those of the sums, so that a row changed later is found (`check_sums_store.ts`).
 * - A charge is compared with its transaction when both are folded. Requests where they differ go on the list `book_due` and
 *   are recounted (`check_charges_store.ts`). If no folded row has changed, `inv_charges` can contain only these.
 * - Every counter is compared with the closed sums plus the open holds, in a snapshot in which everything is folded: the same
 *   sums over the same rows as in the views (`check_counters_store.ts`). The ledger changes no counter without a hold, a receipt
 *   or a balance transaction, and each of these puts the counter on `book_due`.
 * - Every charge is computed again from its receipt and its price version, in a sweep of its own (`check_prices_store.ts`).
 * - `inv_bounds`, `inv_balance_held`, `inv_allotments` and `inv_payments` read nothing that grows with the number of
 *   requests.
 *
 * So a check without findings proves that nothing the ledger wrote breaks an invariant. Changes made past the ledger (by hand, or
 * by a failing disk) are found by the sweeps over all sums and all counters. Each check does a part of them: 1,000,000 receipts
 * and balance transactions, 20,000 packages, 80,000 balances and key days. Where there is no more than that, every check covers
 * everything; ten million receipts take an hour. The usage rollups, and the sums of what keys used before they had limits, are compared with
 * the receipts of 250,000 requests in each check, and 100,000 charges are computed again.
 *
 * A counter is reported as broken only after its sums were recounted from the rows. Each statement is limited to two seconds
 * and one core.
 */

/** Folded rows that one check rereads. */
const SWEPT_ROWS_MAX = 1_000_000;
/** Requests whose rollups one check compares. */
const ROLLUPS_ROWS_MAX = 250_000;
/** Receipts whose charge one check computes again. */
const PRICED_ROWS_MAX = 100_000;
/** Slices of counters of each kind that one check compares though they have not changed. */
const SWEPT_SLICES_MAX = 40;
/** Broken counters whose sums are recounted from the rows before they are reported. */
const RECOUNTED_MAX = 20;

/** These invariants are checked without the closed sums. */
const WITHOUT_SUMS: ReadonlySet<InvariantName> = new Set(["inv_allotments", "inv_prices", "inv_payments"]);

export type CheckOptions = {
  /** Sweep over everything, however long that takes. */
  full?: boolean;
  /** Called after each slice, to show progress. */
  onSlice?: Slices["onSlice"];
  /** Called with the number of sums that no longer match their rows: somebody changed one of them by hand. All is folded anew. */
  onChanged?: (pieces: number) => void;
};

/** Counts the rows that break each invariant. Stores no result. Throws what Postgres throws. */
export async function check(
  slices: Slices,
  { full = false, onChanged }: CheckOptions = {},
): Promise<InvariantResult[]> {
  let isBehind = false;
  const found: Violation[] = [];
  try {
    found.push(...(await checkCounters(slices, full, onChanged)));
  } catch (error) {
    if (!(error instanceof FoldingBehindError)) throw error;
    isBehind = true;
  }
  slices.doing = "checking allotments";
  found.push(...(await brokenAllotments(slices)));
  slices.doing = "checking orders and payments";
  found.push(...(await brokenPayments(slices)));
  slices.doing = "computing charges again";
  found.push(...(await brokenPrices(slices, full ? Number.POSITIVE_INFINITY : PRICED_ROWS_MAX)));
  return INVARIANTS.map(({ name }) => {
    const refs = new Set(found.filter((violation) => violation.name === name).map(({ ref }) => ref));
    return { name, rows: isBehind && !WITHOUT_SUMS.has(name) ? null : refs.size };
  });
}

/** Throws FoldingBehindError if not everything could be folded in time. */
async function checkCounters(
  slices: Slices,
  full: boolean,
  onChanged?: (pieces: number) => void,
): Promise<Violation[]> {
  if (full) await restartSweeps(slices);
  await fold(slices);
  const swept = await sweepFolded(slices, full);
  if (swept > 0) {
    onChanged?.(swept);
    await foldAnew(slices);
    await fold(slices);
  }
  const slicesMax = full ? Number.POSITIVE_INFINITY : SWEPT_SLICES_MAX;
  const found = await compareCounters(slices, slicesMax);
  if (swept > 0 || (await sumsAreExact(slices, found))) return found;
  // The sums were wrong, not the counters.
  onChanged?.(1);
  await foldAnew(slices);
  await fold(slices);
  return await compareCounters(slices, slicesMax);
}

async function fold(slices: Slices): Promise<void> {
  slices.doing = "folding receipts and balance transactions";
  if (!(await foldAll(slices))) throw new FoldingBehindError("not everything was folded in time");
}

/** How many sums and rollups no longer match the rows that were folded into them. */
async function sweepFolded(slices: Slices, full: boolean): Promise<number> {
  const all = Number.POSITIVE_INFINITY;
  slices.doing = "rereading folded rows";
  const rowsMax = full ? all : SWEPT_ROWS_MAX;
  const sums = (await sweepSums(slices, "receipts", rowsMax)) + (await sweepSums(slices, "entries", rowsMax));
  slices.doing = "comparing usage rollups with their receipts";
  return sums + (await sweepRollups(slices, full ? all : ROLLUPS_ROWS_MAX));
}

async function compareCounters(slices: Slices, slicesMax: number): Promise<Violation[]> {
  slices.doing = "comparing counters";
  return [
    ...(await compareDueCounters(slices)),
    ...(await sweepCounters(slices, slicesMax)),
    ...(await brokenCharges(slices)),
    ...(await brokenEarnings(slices)),
  ];
}

/** Whether the sums behind broken counters match their rows, so that the counters are wrong. */
async function sumsAreExact(slices: Slices, found: readonly Violation[]): Promise<boolean> {
  slices.doing = "recounting the sums of broken counters";
  for (const { of } of found.slice(0, RECOUNTED_MAX))
    if (of && !(await sumsMatchRows(slices, of.kind, of))) return false;
  return true;
}
