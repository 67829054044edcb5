import { type SQL, sql } from "drizzle-orm";
import { Refusal } from "../errors.ts";
import { type Bus, type Change, isChange } from "./bus.ts";
import type { Db, Orm, Sql, Tx } from "./db.ts";
import type { Log } from "./log.ts";
import { within } from "./time_limit.ts";

const READ_EVERY_MS = 1000;
/** A read that takes longer counts as an outage; its connection is closed. */
const READ_TIMEOUT_MS = 3000;
/** More distinct changes than this in one read are not delivered one by one: all caches are flushed. */
const READ_MAX = 5000;
/** How long changes are kept. A replica that missed more flushes its caches. */
const KEEP_SECONDS = 3600;
/** Rows deleted in one statement. */
const PRUNE_MAX = 10_000;

/**
 * Audit log entries that one account may add within 24 hours, since each is kept for a long time. Admins and the command line are not
 * limited. A change that takes rights away has twice the limit, so that an account that has used up its changes can still revoke a
 * key.
 */
const ENTRIES_MAX = { customer: 300, reseller: 5_000 } as const;
const PROTECTING_FACTOR = 2;
/** OpenAI's older SDKs ignore longer values. Source: API-12. */
const RETRY_AFTER_SECONDS_MAX = 59;

/** Who makes a change, for the audit log: an account, and the request. */
export type Actor = { accountId: number; requestId: string };
/** What a change needs. Without `by`, the command line or the service itself makes it. */
export type ChangeDeps = { db: Db; bus: Bus; by?: Actor };

/**
 * Runs `fn` in a transaction and, after the commit, publishes what its triggers wrote to `changes`. Every write to a cached or
 * audited row goes through here. `protects`: the change takes a right away, as revoking a key does. Throws what `fn` throws, and
 * too_many_requests if the account has reached its limit of changes per day; then nothing is written.
 */
export async function changing<T>(
  deps: ChangeDeps,
  fn: (tx: TransactionOf<Orm>) => Promise<T>,
  { protects = false }: { protects?: boolean } = {},
): Promise<T> {
  let changes: Change[] = [];
  const result = await deps.db.orm.transaction(async (tx) => {
    if (deps.by) await admitActor(tx, deps.by, protects ? PROTECTING_FACTOR : 1);
    const value = await fn(tx);
    changes = await ownChanges(tx);
    return value;
  });
  await deps.bus.publish(changes);
  return result;
}

type TransactionOf<T extends Orm> = Parameters<Parameters<T["transaction"]>[0]>[0];

/**
 * Sets the actor for this transaction, which `note_audit` reads. Throws too_many_requests. All replicas count the same rows; concurrent
 * changes do not see each other, so that slightly more than the limit may pass.
 */
async function admitActor(tx: Tx, { accountId, requestId }: Actor, factor: number): Promise<void> {
  /** Seconds until the entry that reached the limit is 24 hours old; null: the limit is not reached. */
  const secondsLeft = (most: number): SQL => sql`(
    select extract(epoch from created_at + interval '24 hours' - clock_timestamp())::float8 from audit_entries
    where actor_id = ${accountId}::bigint order by id desc offset ${most * factor - 1} limit 1)`;
  const [row] = await tx.execute<{ role: string | null; seconds: number | null; until: string | null }>(sql`
    select role, seconds, to_char(clock_timestamp() at time zone 'UTC' + make_interval(secs => seconds), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as until
    from (
      select role, set_config('tollgate.actor_id', ${String(accountId)}, true), set_config('tollgate.request_id', ${requestId}, true),
        case role when 'customer' then ${secondsLeft(ENTRIES_MAX.customer)} when 'reseller' then ${secondsLeft(ENTRIES_MAX.reseller)} end as seconds
      from (select) as one left join accounts on id = ${accountId}::bigint offset 0) as actor`);
  const { role, seconds = null, until = null } = row ?? {};
  if (seconds === null || seconds <= 0) return;
  const limit = factor * (role === "reseller" ? ENTRIES_MAX.reseller : ENTRIES_MAX.customer);
  throw new Refusal("too_many_requests", {
    message: `This account has made ${limit} changes within 24 hours, which is the limit. The next change is possible at ${until}.`,
    limit,
    resetsAt: until,
    retryAfterSeconds: Math.min(Math.ceil(seconds), RETRY_AFTER_SECONDS_MAX),
  });
}

async function ownChanges(tx: Tx): Promise<Change[]> {
  const rows: unknown[] = await tx.execute(
    sql`select distinct kind, ref from changes where xid = pg_current_xact_id_if_assigned()`,
  );
  return rows.filter(isChange);
}

export type ChangeReader = {
  /** Reads once, as the timer does every second. Never throws. */
  read(): Promise<void>;
  /** False from the first failed read until one succeeds. */
  healthy(): boolean;
  close(): Promise<void>;
};

type ChangeReaderOptions = {
  /** Opens the reader's own client with one connection, so that closing a silent one does not affect the pool. */
  connect: () => Sql;
  onChanges: (changes: readonly Change[]) => void;
  /** Changes may have been missed: everything cached must be dropped. */
  onGap: () => void;
  log: Log;
  /** 0: no timer; the caller calls `read`. */
  everyMs?: number;
};

/**
 * Reads the table `changes` every second, which repairs lost messages and crashes between commit and publish. Starts from now. Each
 * committed row is delivered exactly once: not by its id, which a slow transaction may take early and commit late, but by whether
 * its transaction was visible to the snapshot of the previous read.
 */
export function startChangeReader({
  connect,
  onChanges,
  onGap,
  log,
  everyMs = READ_EVERY_MS,
}: ChangeReaderOptions): ChangeReader {
  let client: Sql | undefined;
  let last: { snapshot: string; server: string } | undefined;
  let failing = false;
  let closed = false;
  let reading: Promise<void> | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  async function readOnce(): Promise<void> {
    try {
      client ??= connect();
      const found = await within(READ_TIMEOUT_MS, readSince(client, last?.snapshot));
      if (closed) return;
      // Changes before the first read, or during an outage, were not seen.
      const gap = last === undefined || found.server !== last.server;
      last = { snapshot: found.snapshot, server: found.server };
      if (failing) log.info("the changes table can be read again");
      failing = false;
      if (gap || found.changes === "too many") onGap();
      else if (found.changes.length > 0) onChanges(found.changes);
    } catch (error) {
      if (closed) return;
      if (!failing) log.error({ err: error }, "the changes table cannot be read; retrying every second");
      failing = true;
      // The next server may be another one, with its own transaction ids.
      last = undefined;
      client?.end({ timeout: 0 }).catch(() => {});
      client = undefined;
    }
  }

  // One at a time: two concurrent reads would deliver a row twice.
  const read = () => (reading ??= readOnce().finally(() => (reading = undefined)));

  async function tick(): Promise<void> {
    await read();
    if (!closed) timer = setTimeout(tick, everyMs);
  }
  if (everyMs > 0) void tick();

  return {
    read,
    healthy: () => !failing,
    async close() {
      closed = true;
      clearTimeout(timer);
      await client?.end({ timeout: 0 });
    },
  };
}

/** Deletes changes older than KEEP_SECONDS; returns how many. Called by a job. */
export async function pruneChanges(db: Db): Promise<number> {
  const deleted = await db.sql`
    delete from changes where id in (
      select id from changes where created_at < clock_timestamp() - make_interval(secs => ${KEEP_SECONDS}) order by id limit ${PRUNE_MAX})
    returning 1`;
  return deleted.length;
}

type Found = {
  /** The snapshot of this read: everything it could see. */
  snapshot: string;
  /** Differs when another server has taken over, or this one was restarted. */
  server: string;
  changes: Change[] | "too many";
};

/** The changes committed after `since`; none without `since`. One statement, hence one snapshot. */
async function readSince(client: Sql, since: string | undefined): Promise<Found> {
  const [row] = await client`
    select pg_current_snapshot()::text as snapshot,
      pg_postmaster_start_time()::text as server,
      coalesce((
        select json_agg(found) from (
          select kind, ref from changes
          where xid >= pg_snapshot_xmin(${since ?? null}::pg_snapshot) and not pg_visible_in_snapshot(xid, ${since ?? null}::pg_snapshot)
          group by kind, ref limit ${READ_MAX + 1}
        ) as found
      ), '[]') as changes`;
  const changes: unknown = row?.changes;
  if (typeof row?.snapshot !== "string" || typeof row.server !== "string" || !Array.isArray(changes))
    throw new Error("the changes table returned an unexpected result");
  return {
    snapshot: row.snapshot,
    server: row.server,
    changes: changes.length > READ_MAX ? "too many" : changes.filter(isChange),
  };
}
