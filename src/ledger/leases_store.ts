import { sql } from "drizzle-orm";
import { lockAccounts } from "../accounts/locks_store.ts";
import { type Db, LOCK_NOT_AVAILABLE, type Sql, sqlState } from "../platform/db.ts";

/** The SQL of leases and of what their escrows hold, outside of batches; repeated requests; the monthly partitions of receipts. */

/** How many months ahead partitions are looked for. */
const MONTHS_AHEAD_MAX = 24;
/** Empty escrow rows of former days are deleted this many days later: no statement of then can still arrive. */
const EMPTY_KEPT_DAYS = 2;
/** Ended leases are remembered this long after the last of their escrows. */
const LEASES_KEPT_HOURS = 24;

/** Takes a new lease, also if an earlier attempt has. A process that has one may draw. */
export async function takeLease(connection: Sql, leaseId: string, leaseSeconds: number): Promise<void> {
  await connection`
    insert into leases (id, ends_at) values (${leaseId}::text::uuid, clock_timestamp() + make_interval(secs => ${leaseSeconds}))
    on conflict (id) do update set ends_at = excluded.ends_at where not leases.ended`;
}

/** Renews a lease. False: it has ended for good, and the process needs a new one; nobody takes over another's escrows. */
export async function renewLease(connection: Sql, leaseId: string, leaseSeconds: number): Promise<boolean> {
  const rows = await connection`
    update leases set ends_at = clock_timestamp() + make_interval(secs => ${leaseSeconds})
    where id = ${leaseId}::text::uuid and not ended returning 1`;
  return rows.length > 0;
}

/** Ends a lease whose process stops and has nothing drawn any more. */
export async function endLease(connection: Sql, leaseId: string): Promise<void> {
  await connection`
    update leases set ended = true where id = ${leaseId}::text::uuid
      and not exists (select from escrows where lease_id = leases.id and (units > 0 or nano_usd > 0 or tokens > 0))`;
}

/** How many leases run: replicas that may draw. */
export async function liveLeases(connection: Sql): Promise<number> {
  const [row] =
    await connection`select count(*)::int as live from leases where not ended and ends_at > clock_timestamp()`;
  return Number(row?.live);
}

/** What a lease holds: units of packages and nano-USD of the balance, by account. */
export async function drawnBy(
  connection: Sql,
  leaseId: string,
): Promise<{ accountId: number; units: number; nanoUsd: bigint }[]> {
  const rows = await connection`
    select account_id, sum(units) filter (where package_id > 0) as units,
      sum(nano_usd) filter (where package_id = 0 and key_id = 0) as nano_usd
    from escrows where lease_id = ${leaseId}::text::uuid and (units > 0 or tokens > 0 or nano_usd > 0) group by 1`;
  return rows.map((row) => ({
    accountId: Number(row.account_id),
    units: Number(row.units ?? 0),
    nanoUsd: BigInt(row.nano_usd ?? 0),
  }));
}

/**
 * Ends the leases that were not renewed in time. Returns accounts of which ended leases still have escrows, in any order: those that
 * stay locked must not always be the first.
 */
export async function accountsOfEndedLeases(connection: Sql, rowsMax: number): Promise<number[]> {
  await connection`update leases set ended = true where not ended and ends_at <= clock_timestamp()`;
  const rows = await connection`
    select account_id from escrows where lease_id in (select id from leases where ended)
    group by account_id order by random() limit ${rowsMax}`;
  return rows.map((row) => Number(row.account_id));
}

/**
 * Gives back what ended leases hold of an account. Returns how many escrow rows held something; undefined: the account is locked by
 * others, and nothing was done.
 */
export async function reapAccount(connection: Sql, accountId: number): Promise<number | undefined> {
  try {
    const [row] = await connection`select reap_account(${accountId}::bigint) as rows`;
    return Number(row?.rows);
  } catch (error) {
    if (sqlState(error) === LOCK_NOT_AVAILABLE) return undefined;
    throw error;
  }
}

/** Deletes empty escrow rows of former days, and leases that ended long ago. */
export async function pruneLeases(connection: Sql): Promise<void> {
  // Without their accounts' locks: a row that a batch writes is left for the next time, so that neither waits for the other.
  await connection`
    with gone as (
      delete from escrows where (account_id, lease_id, package_id, key_id, day) in (
        select account_id, lease_id, package_id, key_id, day from escrows where units = 0 and tokens = 0 and nano_usd = 0
          and day > '-infinity' and day < (ledger_now() at time zone 'UTC')::date - ${EMPTY_KEPT_DAYS}::int
        for update skip locked)
      returning package_id, used_tokens)
    update packages p set tokens_taken = p.tokens_taken + s.tokens
    from (select package_id, sum(used_tokens)::bigint as tokens from gone group by 1) s where p.id = s.package_id and s.tokens > 0`;
  await connection`
    delete from leases where ended and ends_at < clock_timestamp() - make_interval(hours => ${LEASES_KEPT_HOURS})
      and not exists (select from escrows where lease_id = leases.id)`;
}

/** A request whose replica may have died: which lease it had, and what its receipt will say. */
export type Unsettled = {
  accountId: number;
  requestId: string;
  leaseId: string;
  keyId: number;
  host: string;
};

/**
 * The state of a request whose replica may have died, before a client's retry repeats it. `over`: it costs nothing, and never
 * will: a receipt says so, which a late settlement finds.
 */
export async function closeUnsettled(
  { db }: { db: Db },
  { accountId, requestId, leaseId, keyId, host }: Unsettled,
): Promise<"running" | "settled" | "over"> {
  return await db.orm.transaction(async (tx) => {
    await lockAccounts(tx, [accountId]);
    const rows = await tx.execute(sql`
      select outcome from receipts where request_id = ${requestId}::text::uuid and account_id = ${accountId}
      union all select 'running' from escrows where account_id = ${accountId} and lease_id = ${leaseId}::text::uuid
        and (units > 0 or nano_usd > 0)`);
    const outcomes = rows.map(({ outcome }) => outcome);
    if (outcomes.includes("settled")) return "settled";
    if (outcomes.includes("released")) return "over";
    if (outcomes.length > 0) return "running";
    await tx.execute(sql`
      insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd,
        charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
      values (${requestId}::text::uuid, ${accountId}, ${keyId}, '', ${host}, 'payg', 'released', 'replica_died', 0, 0, 0, 0, 0, 0, 0, 0,
        false, ledger_now(), ledger_now())`);
    return "over";
  });
}

/** Creates the partitions of receipts for the coming months. Returns how many were missing. */
export async function makeReceiptMonths(sql: Sql, monthsAhead: number): Promise<number> {
  const [row] = await sql`select make_receipt_months(${monthsAhead}) as made`;
  return Number(row?.made);
}

/** How many consecutive months after this one have a partition of receipts. */
export async function receiptMonthsAhead({ db }: { db: Db }): Promise<number> {
  const [row] = await db.sql`
    select coalesce(min(n) - 1, ${MONTHS_AHEAD_MAX})::int as months from generate_series(1, ${MONTHS_AHEAD_MAX}) as n
    where to_regclass('receipts_' || to_char(
      date_trunc('month', ledger_now() at time zone 'UTC') + make_interval(months => n), 'YYYY_MM')) is null`;
  return Number(row?.months);
}
