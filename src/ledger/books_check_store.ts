import { type Static, Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import type postgres from "postgres";
import { toIso } from "../accounts/checks.ts";
import { type Sql, sqlState } from "../platform/db.ts";

/**
 * The SQL of the books' check. It reads what the ledger writes all the time, so it is kept short: each statement has a
 * time limit and one core at most, and no snapshot is held from one view to the next.
 */

/** One view is counted within this, or not at all. */
const VIEW_MS_MAX = 30_000;
/** Whoever asks for a check while another one runs waits for it so long. */
const LOCK_WAIT_MS_MAX = 300_000;
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

/** How many rows break an invariant; null: they were not counted within the time limit. */
const Result = Type.Object({ name: Type.String(), rows: Type.Union([Type.Integer(), Type.Null()]) });
const Results = Type.Array(Result);
export type InvariantResult = Static<typeof Result>;
export type BookCheck = { checkedAt: string; tookMs: number; results: InvariantResult[] };

type Tx = postgres.TransactionSql;

/** Counts the rows that break each invariant, and stores nothing. */
export async function countBroken(sql: Sql): Promise<InvariantResult[]> {
  return await sql.begin(async (tx) => {
    await limit(tx, VIEW_MS_MAX);
    return await countEach(tx);
  });
}

/** Checks and stores, unless another replica is at it, or the last check is younger than `everySeconds`: then undefined. */
export async function checkIfDue(sql: Sql, everySeconds: number): Promise<BookCheck | undefined> {
  return await sql.begin(async (tx) => {
    await limit(tx, VIEW_MS_MAX);
    const [mine] = await tx`
      select pg_try_advisory_xact_lock(hashtextextended('tollgate.books_check', 0)) as locked`;
    if (mine?.locked !== true) return undefined;
    const young = await tx`
      select 1 from book_checks where checked_at > clock_timestamp() - make_interval(secs => ${everySeconds}) limit 1`;
    return young.length > 0 ? undefined : await checkAndStore(tx);
  });
}

/** Checks and stores now; if another check runs, waits for that one, whose result is as good. */
export async function checkNow(sql: Sql): Promise<BookCheck> {
  return await sql.begin(async (tx) => {
    // First of all: what is stored after this moment was asked for by somebody else.
    const [asked] = await tx`select clock_timestamp()::text as at`;
    await limit(tx, LOCK_WAIT_MS_MAX);
    await tx`select pg_advisory_xact_lock(hashtextextended('tollgate.books_check', 0))`;
    const [other] = await tx`
      select checked_at::text as checked_at, took_ms, results from book_checks
      where checked_at > ${String(asked?.at)}::text::timestamptz order by id desc limit 1`;
    if (other) return toCheck(other);
    await limit(tx, VIEW_MS_MAX);
    return await checkAndStore(tx);
  });
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
      const [row] = await inner`
        select coalesce(sum(shortfall_nano_usd), 0)::text as losses from receipts
        where shortfall_nano_usd > 0
          and request_id >= (select request_id_floor(clock_timestamp() - make_interval(days => ${LOSSES_DAYS})))`;
      return BigInt(String(row?.losses));
    });
  });
}

async function checkAndStore(tx: Tx): Promise<BookCheck> {
  const [begun] = await tx`select clock_timestamp()::text as at`;
  const results = await countEach(tx);
  const [stored] = await tx`
    insert into book_checks (took_ms, results)
    values (extract(epoch from clock_timestamp() - ${String(begun?.at)}::text::timestamptz) * 1000,
      ${JSON.stringify(results)}::text::jsonb)
    returning checked_at::text as checked_at, took_ms, results`;
  await tx`delete from book_checks where id in (select id from book_checks order by id desc offset ${KEPT})`;
  if (!stored) throw new Error("a check of the books was not stored");
  return toCheck(stored);
}

async function countEach(tx: Tx): Promise<InvariantResult[]> {
  const results: InvariantResult[] = [];
  for (const { name } of INVARIANTS) {
    const rows = await inTime(tx, async (inner) => {
      const [counted] = await inner`select count(*)::int as rows from ${inner(name)}`;
      return Number(counted?.rows);
    });
    results.push({ name, rows });
  }
  return results;
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
