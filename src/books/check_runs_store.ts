import { setTimeout as sleep } from "node:timers/promises";
import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import type postgres from "postgres";
import type { Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type CheckOptions, check } from "./check.ts";
import { foldAll } from "./folding_store.ts";
import { InvariantResult, invariantOf } from "./invariants.ts";
import { openSlices } from "./short_transactions_store.ts";

/** Runs of the check: one at a time over all replicas, each with its result stored in `book_checks`. */

/** A check that takes longer reports the remaining invariants as not checked. */
const CHECK_MS_MAX = 300_000;
/** Longest time of folding between checks. */
const FOLD_MS_MAX = 10_000;
/** How long a check waits for another one to end. */
const LOCK_WAIT_MS_MAX = 300_000;
const LOCK_EVERY_MS = 200;
/** Results that are kept. */
const KEPT = 200;

const Results = Type.Array(InvariantResult);
export type CheckRun = { checkedAt: string; tookMs: number; results: InvariantResult[] };

type Tx = postgres.TransactionSql;

/**
 * Checks and stores the result, unless another replica is checking or the last check is younger than `everySeconds`: then it
 * only folds new rows, and returns undefined. `sql` needs at least two connections.
 */
export async function checkIfDue(sql: Sql, everySeconds: number, options: CheckOptions = {}) {
  return await sql.begin(async (guard): Promise<CheckRun | undefined> => {
    if (!(await tryLock(guard))) return undefined;
    const young = await guard`
      select 1 from book_checks where checked_at > clock_timestamp() - make_interval(secs => ${everySeconds}) limit 1`;
    if (young.length === 0) return await checkAndStore(sql, guard, options);
    await foldAll(openSlices(sql, { budgetMs: FOLD_MS_MAX }));
    return undefined;
  });
}

/**
 * Checks and stores the result. If another check runs, waits for it and returns its result instead (unless `full`).
 * `sql` needs at least two connections. Throws an error if the other check takes too long.
 */
export async function checkNow(sql: Sql, options: CheckOptions = {}): Promise<CheckRun> {
  return await sql.begin(async (guard) => {
    // Read before waiting: a result stored after this moment is as new as the one asked for.
    const [asked] = await guard`select clock_timestamp()::text as at`;
    await lock(guard);
    const [other] = await guard`
      select checked_at::text as checked_at, took_ms, results from book_checks
      where checked_at > ${String(asked?.at)}::text::timestamptz order by id desc limit 1`;
    return other && !options.full ? toRun(other) : await checkAndStore(sql, guard, options);
  });
}

/**
 * The lock belongs to a transaction that stays idle while the slices run beside it. It has no snapshot, so it keeps no dead
 * rows alive. The operator's time limit on idle transactions must not end it.
 */
async function tryLock(guard: Tx): Promise<boolean> {
  const [row] = await guard`
    select pg_try_advisory_xact_lock(hashtextextended('tollgate.books_check', 0)) as locked,
      set_config('idle_in_transaction_session_timeout', '0', true)`;
  return row?.locked === true;
}

/** Polls: a statement that waited for the lock would hold its snapshot meanwhile. */
async function lock(guard: Tx): Promise<void> {
  for (let waitedMs = 0; !(await tryLock(guard)); waitedMs += LOCK_EVERY_MS) {
    if (waitedMs >= LOCK_WAIT_MS_MAX) throw new Error("another check of the books is still running");
    await sleep(LOCK_EVERY_MS);
  }
}

async function checkAndStore(sql: Sql, guard: Tx, options: CheckOptions): Promise<CheckRun> {
  const [begun] = await guard`select clock_timestamp()::text as at`;
  const budgetMs = options.full ? Number.POSITIVE_INFINITY : CHECK_MS_MAX;
  const results = await check(openSlices(sql, { budgetMs, onSlice: options.onSlice }), options);
  const [stored] = await guard`
    insert into book_checks (took_ms, results)
    values (extract(epoch from clock_timestamp() - ${String(begun?.at)}::text::timestamptz) * 1000,
      ${JSON.stringify(results)}::text::jsonb)
    returning checked_at::text as checked_at, took_ms, results`;
  await guard`delete from book_checks where id in (select id from book_checks order by id desc offset ${KEPT})`;
  if (!stored) throw new Error("the result of a check of the books was not stored");
  return toRun(stored);
}

/** The last checks, newest first. */
export async function lastChecks(sql: Sql, rowsMax: number): Promise<CheckRun[]> {
  const rows = await sql`
    select checked_at::text as checked_at, took_ms, results from book_checks order by id desc limit ${rowsMax}`;
  return rows.map(toRun);
}

function toRun(row: Record<string, unknown>): CheckRun {
  const { results } = row;
  if (!Value.Check(Results, results)) throw new Error("a stored check of the books has an unknown format");
  return { checkedAt: toIso(String(row.checked_at)), tookMs: Number(row.took_ms), results };
}

export type ExplainedCheck = Omit<CheckRun, "results"> & { results: (InvariantResult & { says: string })[] };

/** A check with what each invariant means; "" for an invariant that only another release knows. */
export function explain({ results, ...run }: CheckRun): ExplainedCheck {
  return { ...run, results: results.map((result) => ({ ...result, says: invariantOf(result.name)?.says ?? "" })) };
}
