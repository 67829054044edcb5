import { type Static, Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import type postgres from "postgres";
import { type Sql, sqlState } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { BehindError, closeUp, openAnew, sweep } from "./closing_store.ts";
import {
  type Broken,
  brokenAllotments,
  compareDue,
  comparePassing,
  doubledRequests,
  walkFromStart,
} from "./comparing_store.ts";
import { brokenCharges, sumsAreExact } from "./recount_store.ts";
import { IS_FOLDED, TAIL } from "./rollups_store.ts";
import { walkRollups } from "./rollups_walk_store.ts";
import { openSlices, type Slices } from "./slices_store.ts";

/**
 * The check of the books. It says what the views `inv_*` would say, without reading all that was ever written:
 *
 * - Every receipt and every entry is folded once into closed sums, which a walk over all pieces proves to be those of the rows
 *   that are there (`closing_store.ts`). A charge and its entry are compared as they are folded, and a folded row that was
 *   changed since changes the hash of its piece: where all pieces are what was folded, `inv_charges` is empty but for the
 *   requests on the list of what is due, which are counted from their entries.
 * - Every counter is compared with the closed sums and the live holds, in a snapshot at which nothing was left to fold
 *   (`comparing_store.ts`): the same sums over the same rows as in the views, hence the same answer. The ledger changes no
 *   counter without a hold, a receipt or an entry, and each of them puts it on the list of what is due.
 * - `inv_bounds`, `inv_balance_held`, `inv_hold_and_receipt` and `inv_allotments` read nothing that grows with requests.
 *
 * So after a check that finds nothing, what the ledger has written breaks no invariant. What was changed past the ledger, by
 * hand or by a disk, is found by the walks over all pieces and all counters, which each check takes a part of: 1,000,000 receipts
 * and entries, 20,000 packages, 80,000 balances and days of keys. The whole, where it is no more than that, in every check;
 * ten million receipts within the hour. The rollups of usage, which nothing is decided by, are compared with the receipts of
 * 250,000 requests in each check.
 *
 * A counter is called broken after its sums were counted from the rows again. Each statement has a limit of two seconds and
 * one core.
 */

/** A check that has not come to its end by then says what it did not count. */
const CHECK_MS_MAX = 300_000;
/** Between checks the closing goes on for at most so long. */
const FOLD_MS_MAX = 10_000;
/** What one check reads again of what was folded, and compares again of what did not change. */
const SWEPT_ROWS_MAX = 1_000_000;
const ROLLUPS_ROWS_MAX = 250_000;
const WALK_SLICES_MAX = 40;
/** Broken counters whose sums are counted from the rows before they are called so. */
const RECOUNTED_MAX = 20;
/** Whoever asks for a check while another one runs waits for it so long. */
const LOCK_WAIT_MS_MAX = 300_000;
const LOCK_EVERY_MS = 200;
/** What a page waits for. */
const READ_MS_MAX = 10_000;
const LOSSES_MS_MAX = 2_000;
const LOSSES_DAYS = 30;
const KEPT = 200;
const QUERY_CANCELED = "57014";

/** Every invariant of the books: a view of that name, empty always, and what it says. The ledger's README has the same table. */
export const INVARIANTS = [
  { name: "inv_package_units", says: "A package's counters are its live holds and its settled receipts." },
  { name: "inv_package_days", says: "So are the counters of each of its days." },
  { name: "inv_balance_entries", says: "A balance is the sum of its entries." },
  { name: "inv_balance_held", says: "What is held of a balance is the sum of its live holds." },
  { name: "inv_bounds", says: "Nothing is below zero or above its limit; carryover is never ahead of its days." },
  { name: "inv_hold_and_receipt", says: "No request is both alive and finished." },
  { name: "inv_charges", says: "Every charge has its entry; what was released, or paid by a package, cost nothing." },
  { name: "inv_key_days", says: "What a key counts on a day is its live holds and its receipts of that day." },
  {
    name: "inv_allotments",
    says: "The used pieces of a grant are the packages taken from it, never more than granted.",
  },
] as const;
export type InvariantName = (typeof INVARIANTS)[number]["name"];

/** The invariant of that name; undefined for any other text. */
export function invariantOf(name: string): { name: InvariantName; says: string } | undefined {
  return INVARIANTS.find((invariant) => invariant.name === name);
}

/** They need no closed sums. */
const WITHOUT_SUMS = new Set(["inv_hold_and_receipt", "inv_allotments"]);

/** How many rows break an invariant; null: they were not counted within the time limit. */
const Result = Type.Object({ name: Type.String(), rows: Type.Union([Type.Integer(), Type.Null()]) });
const Results = Type.Array(Result);
export type InvariantResult = Static<typeof Result>;
export type BookCheck = { checkedAt: string; tookMs: number; results: InvariantResult[] };

type Tx = postgres.TransactionSql;

export type CheckOptions = {
  /** Walks over everything, however long that takes. */
  full?: boolean;
  /** After each slice: for whoever shows how it goes. */
  onSlice?: Slices["onSlice"];
  /** So many pieces are no longer what was folded: rows, or their sums, were changed by hand. All is folded anew. */
  onChanged?: (pieces: number) => void;
};

/**
 * Checks and stores, unless another replica is at it, or the last check is younger than `everySeconds`: then it only folds
 * what has come, and returns undefined. `sql` has two connections at least.
 */
export async function checkIfDue(sql: Sql, everySeconds: number, options: CheckOptions = {}) {
  return await sql.begin(async (guard): Promise<BookCheck | undefined> => {
    if (!(await tryLock(guard))) return undefined;
    const young = await guard`
      select 1 from book_checks where checked_at > clock_timestamp() - make_interval(secs => ${everySeconds}) limit 1`;
    if (young.length === 0) return await checkAndStore(sql, guard, options);
    await closeUp(openSlices(sql, { budgetMs: FOLD_MS_MAX }));
    return undefined;
  });
}

/** Checks and stores now; if another check runs, waits for that one, whose result is as good. `sql` has two connections at least. */
export async function checkNow(sql: Sql, options: CheckOptions = {}): Promise<BookCheck> {
  return await sql.begin(async (guard) => {
    // First of all: what is stored after this moment was asked for by somebody else.
    const [asked] = await guard`select clock_timestamp()::text as at`;
    await lock(guard);
    const [other] = await guard`
      select checked_at::text as checked_at, took_ms, results from book_checks
      where checked_at > ${String(asked?.at)}::text::timestamptz order by id desc limit 1`;
    return other && !options.full ? toCheck(other) : await checkAndStore(sql, guard, options);
  });
}

/**
 * Held by a transaction that is idle while the slices run beside it: it has no snapshot that would keep dead rows alive. A limit
 * that the operator's role sets on idle transactions is not meant for this one.
 */
async function tryLock(guard: Tx): Promise<boolean> {
  const [row] = await guard`
    select pg_try_advisory_xact_lock(hashtextextended('tollgate.books_check', 0)) as locked,
      set_config('idle_in_transaction_session_timeout', '0', true)`;
  return row?.locked === true;
}

/** Asks again and again: a statement that waited would hold its snapshot as long. */
async function lock(guard: Tx): Promise<void> {
  for (let waitedMs = 0; !(await tryLock(guard)); waitedMs += LOCK_EVERY_MS) {
    if (waitedMs >= LOCK_WAIT_MS_MAX) throw new Error("another check of the books has not come to its end");
    await new Promise((resolve) => setTimeout(resolve, LOCK_EVERY_MS));
  }
}

/** The last checks, newest first. */
export async function lastChecks(sql: Sql, rowsMax: number): Promise<BookCheck[]> {
  const rows = await sql`
    select checked_at::text as checked_at, took_ms, results from book_checks order by id desc limit ${rowsMax}`;
  return rows.map(toCheck);
}

/** The first rows that break an invariant, column by column as text: a sum that is wrong may be past every number's range. */
export async function brokenRows(
  sql: Sql,
  name: InvariantName,
  rowsMax: number,
): Promise<Record<string, string | null>[]> {
  return await sql.begin(async (tx) => {
    await limit(tx, READ_MS_MAX);
    const rows = await tx`
      select (select json_object_agg(key, value) from json_each_text(row_to_json(broken))) as columns
      from (select * from ${tx(name)} limit ${rowsMax}) as broken`;
    return rows.map((row) => row.columns);
  });
}

export type HoldsAlive = { alive: number; oldestAgeMs: number | null };

/** How many requests are under way over all replicas, and since when the oldest is. */
export async function holdsAlive(sql: Sql): Promise<HoldsAlive> {
  // Request ids carry their time: the smallest is the oldest, and the primary key finds it.
  const [row] = await sql`
    select (select count(*) from holds)::int as alive,
      (select extract(epoch from clock_timestamp() - created_at) * 1000 from holds order by request_id limit 1)::float8 as age_ms`;
  const ageMs = row?.age_ms;
  return {
    alive: Number(row?.alive),
    oldestAgeMs: typeof ageMs === "number" ? Math.max(0, Math.round(ageMs)) : null,
  };
}

/** What requests of the last 30 days cost beyond what could be charged, in nano-USD; null: it took too long to add up. */
export async function recentLosses(sql: Sql): Promise<bigint | null> {
  return await sql.begin(async (tx) => {
    await limit(tx, LOSSES_MS_MAX);
    return await inTime(tx, async (inner) => {
      // Without jit: what the planner was told to avoid counts as dear, and would be worth a compiler.
      await inner`
        select set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true), set_config('jit', 'off', true)`;
      const [row] = await inner`
        with since as materialized (
          select request_id_floor(clock_timestamp() - make_interval(days => ${LOSSES_DAYS}::int)) as id)
        select ((select coalesce(sum(nano_usd), 0) from book_sums
            where kind = 'losses' and id = 0 and day > (select request_day(id) from since))
          + (select coalesce(sum(shortfall_nano_usd), 0) from receipts
            where shortfall_nano_usd > 0 and request_id >= (select id from since) and ${inner.unsafe(IS_FOLDED)}
              and request_id < (select request_id_floor((request_day(id) + 1)::timestamp at time zone 'UTC') from since))
          + (select coalesce(sum(shortfall_nano_usd), 0) from ${inner.unsafe(TAIL)} tail
            where shortfall_nano_usd > 0 and request_id >= (select id from since)))::text as losses`;
      return BigInt(String(row?.losses));
    });
  });
}

async function checkAndStore(sql: Sql, guard: Tx, options: CheckOptions): Promise<BookCheck> {
  const [begun] = await guard`select clock_timestamp()::text as at`;
  const budgetMs = options.full ? Number.POSITIVE_INFINITY : CHECK_MS_MAX;
  const results = await check(openSlices(sql, { budgetMs, onSlice: options.onSlice }), options);
  const [stored] = await guard`
    insert into book_checks (took_ms, results)
    values (extract(epoch from clock_timestamp() - ${String(begun?.at)}::text::timestamptz) * 1000,
      ${JSON.stringify(results)}::text::jsonb)
    returning checked_at::text as checked_at, took_ms, results`;
  await guard`delete from book_checks where id in (select id from book_checks order by id desc offset ${KEPT})`;
  if (!stored) throw new Error("a check of the books was not stored");
  return toCheck(stored);
}

/** Counts the rows that break each invariant, in slices, and stores no result. Throws what Postgres throws. */
export async function check(
  slices: Slices,
  { full = false, onChanged }: CheckOptions = {},
): Promise<InvariantResult[]> {
  let behind = false;
  const broken: Broken[] = [];
  try {
    broken.push(...(await checkSums(slices, full, onChanged)));
  } catch (error) {
    if (!(error instanceof BehindError)) throw error;
    behind = true;
  }
  slices.doing = "looking at holds and grants";
  broken.push(...(await doubledRequests(slices)), ...(await brokenAllotments(slices)));
  return INVARIANTS.map(({ name }) => {
    const refs = new Set(broken.filter((row) => row.name === name).map(({ ref }) => ref));
    return { name, rows: behind && !WITHOUT_SUMS.has(name) ? null : refs.size };
  });
}

/** Throws BehindError when the closing does not come to the last row in time. */
async function checkSums(slices: Slices, full: boolean, onChanged?: (pieces: number) => void): Promise<Broken[]> {
  if (full) await walkFromStart(slices);
  await closing(slices);
  slices.doing = "reading folded rows again";
  const rowsMax = full ? Number.POSITIVE_INFINITY : SWEPT_ROWS_MAX;
  const swept = (await sweep(slices, "receipts", rowsMax)) + (await sweep(slices, "entries", rowsMax));
  slices.doing = "comparing rollups with their receipts";
  const changed = swept + (await walkRollups(slices, full ? rowsMax : ROLLUPS_ROWS_MAX));
  if (changed > 0) {
    onChanged?.(changed);
    await openAnew(slices);
    await closing(slices);
  }
  const walkMax = full ? Number.POSITIVE_INFINITY : WALK_SLICES_MAX;
  const broken = await compareAll(slices, walkMax);
  if (changed > 0 || (await areExact(slices, broken))) return broken;
  onChanged?.(1);
  await openAnew(slices);
  await closing(slices);
  return await compareAll(slices, walkMax);
}

async function closing(slices: Slices): Promise<void> {
  slices.doing = "folding receipts and entries";
  if (!(await closeUp(slices))) throw new BehindError("the closing goes on with the next check");
}

async function compareAll(slices: Slices, slicesMax: number): Promise<Broken[]> {
  slices.doing = "comparing counters";
  return [
    ...(await compareDue(slices)),
    ...(await comparePassing(slices, slicesMax)),
    ...(await brokenCharges(slices)),
  ];
}

async function areExact(slices: Slices, broken: readonly Broken[]): Promise<boolean> {
  slices.doing = "counting what is broken again";
  for (const { of } of broken.slice(0, RECOUNTED_MAX))
    if (of && !(await sumsAreExact(slices, of.kind, of))) return false;
  return true;
}

/** What `read` brings, or null where it takes longer than the statement's limit. The transaction goes on. */
async function inTime<T>(tx: Tx, read: (inner: Tx) => Promise<T>): Promise<T | null> {
  try {
    const { value } = await tx.savepoint(async (inner) => ({ value: await read(inner) }));
    return value;
  } catch (error) {
    if (sqlState(error) === QUERY_CANCELED) return null;
    throw error;
  }
}

/** For the rest of the transaction: a time limit on each statement, and no helpers that would take more than one core. */
async function limit(tx: Tx, statementMs: number): Promise<void> {
  await tx`
    select set_config('statement_timeout', ${String(statementMs)}, true),
      set_config('max_parallel_workers_per_gather', '0', true)`;
}

function toCheck(row: Record<string, unknown>): BookCheck {
  const { results } = row;
  if (!Value.Check(Results, results)) throw new Error("a check of the books is stored in another form");
  return { checkedAt: toIso(String(row.checked_at)), tookMs: Number(row.took_ms), results };
}
