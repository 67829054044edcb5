import type postgres from "postgres";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";

/**
 * Refused requests, counted per minute by key, code and model, for their owners; and all requests that ended with an error, summed by
 * code and model, for figures (`error_sums`). For display only: a replica that dies loses what it counted in the last seconds.
 */

const KEPT_DAYS = 7;
/** Rows deleted in one statement. */
const PRUNE_MAX = 100_000;
/** Rows of one account that are searched for its latest refusals. */
const LOOKED_THROUGH_MAX = 5_000;
const MINUTE_MS = 60_000;
/** The last minute of the year 9999: ISO 8601 writes later years differently. */
const MINUTE_MAX_MS = 253_402_300_740_000;

/** A count of refusals of one minute, account, key, code and model. */
export type RefusalCount = {
  accountId: number;
  /** 0: no key was chosen yet. */
  keyId: number;
  code: string;
  /** "": no model of the catalog. */
  modelId: string;
  host: string;
  /** ISO 8601, from the last request's id. */
  minute: string;
  count: number;
  lastRequestId: string;
};

/** `isListed`: it is listed for its owner. false: its receipt says more, so that only the sums of errors have it. */
export type ErrorCount = RefusalCount & { isListed: boolean };

/** Adds counts to the existing ones, in one transaction. */
export async function addRefusals({ db }: { db: Db }, counts: readonly ErrorCount[]): Promise<void> {
  await db.sql.begin(async (tx) => {
    await addListed(
      tx,
      counts.filter(({ isListed }) => isListed),
    );
    await addErrors(tx, counts);
  });
}

async function addListed(tx: postgres.TransactionSql, counts: readonly RefusalCount[]): Promise<void> {
  if (counts.length === 0) return;
  const column = <T>(pick: (count: RefusalCount) => T) => counts.map(pick);
  // Sorted, so that two replicas do not deadlock.
  await tx`
    insert into refusal_counts as c (account_id, minute, key_id, code, model_id, count, last_request_id, host)
    select * from unnest(${column((c) => c.accountId)}::bigint[], ${column((c) => c.minute)}::text[]::timestamptz[],
      ${column((c) => c.keyId)}::bigint[], ${column((c) => c.code)}::text[], ${column((c) => c.modelId)}::text[],
      ${column((c) => c.count)}::int[], ${column((c) => c.lastRequestId)}::text[]::uuid[], ${column((c) => c.host)}::text[])
    order by 1, 2, 3, 4, 5
    on conflict (account_id, minute, key_id, code, model_id) do update set
      count = c.count + excluded.count, last_request_id = greatest(c.last_request_id, excluded.last_request_id),
      host = case when excluded.last_request_id > c.last_request_id then excluded.host else c.host end`;
}

/** Errors of an account also count for everyone (0), and for its reseller's customers (the negative id). Source: MON-26. */
async function addErrors(tx: postgres.TransactionSql, counts: readonly RefusalCount[]): Promise<void> {
  const column = <T>(pick: (count: RefusalCount) => T) => counts.map(pick);
  await tx`
    with noted as (
      select * from unnest(${column((c) => c.accountId)}::bigint[], ${column((c) => c.minute)}::text[]::timestamptz[],
        ${column((c) => c.code)}::text[], ${column((c) => c.modelId)}::text[], ${column((c) => c.count)}::int[])
        as c(account_id, minute, code, model_id, requests))
    insert into error_sums as s (account_id, span, begins, code, model_id, requests)
    select scopes.id, spans.length, span_begins(spans.length, minute), code, model_id, sum(requests)
    from noted join accounts a on a.id = noted.account_id
      cross join lateral (select a.id union all select 0 union all select -a.reseller_id where a.reseller_id is not null) as scopes(id)
      cross join (values (15), (1440)) as spans(length)
    group by 1, 2, 3, 4, 5 order by 1, 2, 3, 4, 5
    on conflict (account_id, span, begins, code, model_id) do update set requests = s.requests + excluded.requests`;
}

/** Deletes refusals older than KEPT_DAYS; returns how many rows. Called by a job. */
export async function pruneRefusals({ db }: { db: Db }): Promise<number> {
  const deleted = await db.sql`
    delete from refusal_counts where ctid = any (array(
      select ctid from refusal_counts where minute < clock_timestamp() - make_interval(days => ${KEPT_DAYS})
      order by minute limit ${PRUNE_MAX}))
    returning 1`;
  return deleted.length;
}

/** Recent refusals of an account with one code and key: how many, and the last one. */
export type RecentRefusal = {
  code: string;
  count: number;
  /** Time of the last one. */
  at: string;
  lastRequestId: string;
  modelId: string | null;
  host: string;
  /** null: no key was chosen yet. */
  key: {
    keyId: number;
    name: string;
    mode: "package" | "payg";
    dailyUnitsMax: number | null;
    /** Only if it has no spending limit of a week, a month or in total. */
    dailySpendMaxNanoUsd: bigint | null;
    /** When its daily limits reset. */
    resetsAt: string;
  } | null;
};

/** Refusals of the last KEPT_DAYS, summed by code and key, latest first. */
export async function recentRefusals({ db }: { db: Db }, accountId: number, limit: number): Promise<RecentRefusal[]> {
  const rows = await db.sql`
    with clock as materialized (select ledger_now() as now)
    select r.*, k.name, k.mode, k.daily_units_max, case when not has_budget(k) then k.daily_spend_max_nano_usd end as daily_spend_max_nano_usd,
      day_begins(((select now from clock) at time zone k.time_zone)::date + 1, k.time_zone) as resets_at
    from (
      select code, key_id, sum(count)::int as count, max(last_request_id::text) as last_request_id,
        (array_agg(model_id order by last_request_id desc))[1] as model_id,
        (array_agg(host order by last_request_id desc))[1] as host
      from (
        select * from refusal_counts
        where (account_id, minute) <= (${accountId}, 'infinity')
          and (account_id, minute) > (${accountId}, (select now - make_interval(days => ${KEPT_DAYS}) from clock))
        order by account_id desc, minute desc limit ${LOOKED_THROUGH_MAX}
      ) as latest
      group by code, key_id order by max(last_request_id::text) desc limit ${limit}
    ) r left join keys k on k.id = r.key_id order by r.last_request_id desc`;
  return rows.map(toRecent);
}

function toRecent(row: Record<string, unknown>): RecentRefusal {
  const lastRequestId = String(row.last_request_id);
  const spend = row.daily_spend_max_nano_usd;
  return {
    code: String(row.code),
    count: Number(row.count),
    at: new Date(msOf(lastRequestId)).toISOString(),
    lastRequestId,
    modelId: String(row.model_id) || null,
    host: String(row.host),
    key:
      typeof row.name !== "string"
        ? null
        : {
            keyId: Number(row.key_id),
            name: row.name,
            mode: row.mode === "payg" ? "payg" : "package",
            dailyUnitsMax: row.daily_units_max === null ? null : Number(row.daily_units_max),
            dailySpendMaxNanoUsd: typeof spend === "string" ? BigInt(spend) : null,
            resetsAt: toIso(String(row.resets_at)),
          },
  };
}

/** The count whose last request has this id. */
export async function findRefusal(
  { db }: { db: Db },
  { accountId, requestId }: { accountId: number; requestId: string },
): Promise<RefusalCount | undefined> {
  const minute = minuteOf(requestId);
  const [row] = await db.sql`
    select key_id, code, model_id, host, count from refusal_counts
    where account_id = ${accountId} and minute = ${minute}::text::timestamptz and last_request_id = ${requestId}::text::uuid`;
  return (
    row && {
      accountId,
      keyId: Number(row.key_id),
      code: String(row.code),
      modelId: String(row.model_id),
      host: String(row.host),
      minute,
      count: Number(row.count),
      lastRequestId: requestId,
    }
  );
}

/** The minute of a request id, in ISO 8601: its refusal is counted under it. */
export function minuteOf(requestId: string): string {
  const ms = msOf(requestId);
  return new Date(Math.min(ms - (ms % MINUTE_MS), MINUTE_MAX_MS)).toISOString();
}

/** A request id (UUIDv7) begins with Unix milliseconds. */
function msOf(requestId: string): number {
  return Number.parseInt(requestId.replaceAll("-", "").slice(0, 12), 16);
}
