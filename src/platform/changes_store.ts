import { setTimeout as sleep } from "node:timers/promises";
import { type SQL, sql } from "drizzle-orm";
import { RETRY_AFTER_SECONDS_MAX, Refusal } from "../errors.ts";
import { type Bus, type Change, isChange } from "./bus.ts";
import type { Db, Orm, Sql, Tx } from "./db.ts";
import type { Log } from "./log.ts";
import { createSemaphore } from "./semaphore.ts";
import { within } from "./time_limit.ts";

/** How long what was drawn ahead may be granted, counted from before the draw was sent. Changes of rights wait this long at most. */
export const ESCROW_VALID_MS = 2_000;
/** How long a change waits for money that lies unused in escrows: a replica returns it within a second. */
const IDLE_WAIT_MS_MAX = 3_000;
const RECALL_PAUSE_MS = 20;
const monotonicMs = () => performance.now();
const READ_EVERY_MS = 1000;
/** A read that takes longer counts as an outage; its connection is closed. */
const READ_TIMEOUT_MS = 3000;
/** More distinct changes than this in one read are not delivered one by one: all caches are flushed. */
const READ_MAX = 5000;
/** How long changes are kept. A replica that did not read for half of it flushes its caches: it may have missed some. */
const KEEP_SECONDS = 3600;
/** Rows deleted in one statement. */
const PRUNE_MAX = 10_000;

/**
 * Audit log entries that one account may add within 24 hours, since each is kept for a long time. Admins and the command line are not
 * limited. A change that protects the account has twice the limit, so that an account whose changes are used up, perhaps by a thief,
 * can still revoke a key or be recovered.
 */
const ENTRIES_MAX = { customer: 300, reseller: 5_000 } as const;
const PROTECTING_FACTOR = 2;

/**
 * Transactions that one account changes something in, in one process. Those of the same rows wait for each other's lock, each on a connection of
 * the pool, so that more of them would keep everyone else waiting. Source: ADM-13.
 */
const ACCOUNT_AT_ONCE = 3;
const ACCOUNT_WAITING_MAX = 100;
const PLACE_WAIT_MS_MAX = 10_000;
const PLACE_RETRY_AFTER_SECONDS = 5;
const places = createSemaphore({
  max: 1_000,
  waitingMax: 1_000,
  shareFull: () =>
    new Refusal("too_many_requests", {
      message: `This account makes ${ACCOUNT_AT_ONCE} changes at once, and others of it wait. Try again when they have ended.`,
      limit: ACCOUNT_AT_ONCE,
      retryAfterSeconds: PLACE_RETRY_AFTER_SECONDS,
    }),
  allFull: () => new Refusal("service_unavailable", { retryAfterSeconds: PLACE_RETRY_AFTER_SECONDS }),
});

/** Who makes a change, for the audit log: a person, and the request. */
export type Actor = {
  accountId: number;
  /** The account that they work in, if it is another one: its role sets the limits. */
  worksIn?: number | undefined;
  requestId: string;
  /** The token of the management API that was used. */
  tokenId?: number | undefined;
  /** Leaves the request's place among the readers: transactions that change something have places of their own. */
  leaveRead?: (() => void) | undefined;
  /** Runs at the end of each transaction of the request. If it throws, nothing is written. */
  beforeCommit?: ((tx: Tx) => Promise<void>) | undefined;
};
/** What a change needs. Without `by`, the command line or the service itself makes it. */
export type ChangeDeps = {
  db: Db;
  bus: Bus;
  by?: Actor;
  /** Monotonic clock, ms, by which it waits for replicas. */
  nowMs?: () => number;
};

/** What kind of change it is. */
type ChangeOptions = {
  /** It takes a right away, as revoking a key does, or gives the account back to its owner, as a new password does. */
  protects?: boolean;
  /** Whether it ended a right of a reseller and of its customers, or one of its domains. Asked after the commit. */
  endsTenantRight?: () => boolean;
};

/** Money of the account lies unused in a replica's escrow. `changing` asks for it and tries again. */
export class IdleMoneyError extends Error {
  override readonly name = "IdleMoneyError";
  readonly accountId: number;

  constructor(accountId: number) {
    super(`money of account ${accountId} lies unused in an escrow`);
    this.accountId = accountId;
  }
}

/**
 * Runs `fn` in a transaction and, after the commit, publishes what its triggers wrote to `changes`. Every write to a cached or
 * audited row goes through here. Returns when no replica grants anything any more on what was true before. `fn` may run more than
 * once, each time in a new transaction. Throws what `fn` throws, and too_many_requests if the account has reached its limit of changes
 * per day, or of changes at once; then nothing is written. Source: ADM-13, ESC-4, REL-1.
 */
export async function changing<T>(
  deps: ChangeDeps,
  fn: (tx: TransactionOf<Orm>) => Promise<T>,
  options: ChangeOptions = {},
): Promise<T> {
  const { nowMs = monotonicMs } = deps;
  const startMs = nowMs();
  for (;;) {
    try {
      return await changeOnce(deps, fn, options);
    } catch (error) {
      if (!(error instanceof IdleMoneyError)) throw error;
      if (nowMs() - startMs > IDLE_WAIT_MS_MAX) throw new Refusal("service_unavailable", { retryAfterSeconds: 1 });
      await recallMoney(deps, error.accountId);
    }
  }
}

async function changeOnce<T>(
  deps: ChangeDeps,
  fn: (tx: TransactionOf<Orm>) => Promise<T>,
  { protects = false, endsTenantRight }: ChangeOptions,
): Promise<T> {
  let changes: Change[] = [];
  const result = await inTurn(deps.by, () =>
    deps.db.orm.transaction(async (tx) => {
      if (deps.by) await admitActor(tx, deps.by, protects ? PROTECTING_FACTOR : 1);
      const value = await fn(tx);
      await deps.by?.beforeCommit?.(tx);
      changes = await ownChanges(tx);
      return value;
    }),
  );
  const { nowMs = monotonicMs } = deps;
  const committedMs = nowMs();
  await deps.bus.publish(changes);
  // Draws of customers do not lock their tenant: one that read the former state may commit later. It is valid no longer than this.
  if (endsTenantRight?.() && changes.length > 0) await sleep(committedMs + ESCROW_VALID_MS - nowMs());
  else await waitForDraws(deps.db, changes, { untilMs: committedMs + ESCROW_VALID_MS, nowMs });
  return result;
}

/** Runs a transaction when it is its account's turn. Throws what `work` throws, too_many_requests, service_unavailable. */
async function inTurn<T>(by: Actor | undefined, work: () => Promise<T>): Promise<T> {
  if (by === undefined) return await work();
  by.leaveRead?.();
  const share = { id: String(by.worksIn ?? by.accountId), atOnceMax: ACCOUNT_AT_ONCE, waitingMax: ACCOUNT_WAITING_MAX };
  const leave = await places.enter([share], { waitMsMax: PLACE_WAIT_MS_MAX });
  try {
    return await work();
  } finally {
    leave();
  }
}

/**
 * Returns when every replica has drawn anew for the changed accounts, or what it had drawn before has run out. Never throws: the change
 * is committed, and without an answer of the database the second is certain.
 */
async function waitForDraws(
  db: Db,
  changes: readonly Change[],
  { untilMs, nowMs }: { untilMs: number; nowMs: () => number },
): Promise<void> {
  const ids = changes.filter(({ kind }) => kind === "account").map(({ ref }) => ref);
  for (let pauseMs = 2; ids.length > 0 && nowMs() < untilMs; pauseMs = Math.min(pauseMs * 2, 50)) {
    const isDone = await within(untilMs - nowMs(), areDrawnAnew(db, ids)).catch(() => false);
    if (isDone) return;
    await sleep(Math.min(pauseMs, untilMs - nowMs()));
  }
}

async function areDrawnAnew(db: Db, accountIds: readonly string[]): Promise<boolean> {
  const old = await db.sql`
    select 1 from escrows join epochs using (account_id)
    where account_id = any(${`{${accountIds.join(",")}}`}::text::bigint[]) and escrows.epoch < epochs.epoch
      and (idle_units > 0 or idle_nano_usd > 0) limit 1`;
  return old.length === 0;
}

/** Asks the replicas for what they have drawn of a balance and do not use. */
async function recallMoney({ db, bus }: ChangeDeps, accountId: number): Promise<void> {
  await db.orm.transaction(async (tx) => {
    await tx.execute(sql`select lock_accounts(array[${accountId}]::bigint[])`);
    await tx.execute(sql`select recall_idle(${accountId}::bigint, 0, null, false)`);
  });
  await bus.publish([{ kind: "escrow", ref: String(accountId) }]);
  await sleep(RECALL_PAUSE_MS);
}

type TransactionOf<T extends Orm> = Parameters<Parameters<T["transaction"]>[0]>[0];

/**
 * Sets the actor for this transaction, which `note_audit` reads. Throws too_many_requests. All replicas count the same rows; concurrent
 * changes do not see each other, so that slightly more than the limit may pass.
 */
async function admitActor(tx: Tx, { accountId, worksIn, tokenId, requestId }: Actor, factor: number): Promise<void> {
  /** Seconds until the entry that reached the limit is 24 hours old; null: the limit is not reached. */
  const secondsLeft = (most: number): SQL => sql`(
    select extract(epoch from created_at + interval '24 hours' - clock_timestamp())::float8 from audit_entries
    where actor_id = ${accountId}::bigint order by id desc offset ${most * factor - 1} limit 1)`;
  const [row] = await tx.execute<{ role: string | null; seconds: number | null; until: string | null }>(sql`
    select role, seconds, to_char(clock_timestamp() at time zone 'UTC' + make_interval(secs => seconds), 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as until
    from (
      select role, set_config('tollgate.actor_id', ${String(accountId)}, true), set_config('tollgate.request_id', ${requestId}, true),
        set_config('tollgate.token_id', ${String(tokenId ?? "")}, true),
        case role when 'customer' then ${secondsLeft(ENTRIES_MAX.customer)} when 'reseller' then ${secondsLeft(ENTRIES_MAX.reseller)} end as seconds
      from (select) as one left join accounts on id = ${worksIn ?? accountId}::bigint offset 0) as actor`);
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
  /** Another server has answered than before, as after a failover or a restart. Called before `onGap`. */
  onNewServer?: () => void;
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
  onNewServer,
  log,
  everyMs = READ_EVERY_MS,
}: ChangeReaderOptions): ChangeReader {
  let client: Sql | undefined;
  let last: Seen | undefined;
  let server: string | undefined;
  let failing = false;
  let closed = false;
  let reading: Promise<void> | undefined;
  let timer: ReturnType<typeof setTimeout> | undefined;

  async function readOnce(): Promise<void> {
    try {
      client ??= connect();
      const { seen, changes, isGap } = await within(READ_TIMEOUT_MS, readSince(client, last));
      if (closed) return;
      last = seen;
      if (failing) log.info("the changes table can be read again");
      failing = false;
      if (server !== undefined && seen.server !== server) onNewServer?.();
      server = seen.server;
      if (isGap) onGap();
      else if (changes.length > 0) onChanges(changes);
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

/** What a read has seen. */
type Seen = {
  snapshot: string;
  /** Differs when another server has taken over, or this one was restarted. */
  server: string;
  /** When it began, by the database's clock. */
  readAt: string;
};

/** `isGap`: changes may have been missed, or are too many to be delivered one by one. */
type Found = { seen: Seen; changes: Change[]; isGap: boolean };

/**
 * The changes committed after the read that saw `last`; without it, none and a gap. One statement, hence one snapshot. Rows restored from
 * another server may have transaction ids that this one has not reached: no snapshot sees them, and each read would deliver them. Throws if the
 * server is read-only: a standby may be far behind, and keeps this connection when another server is the primary.
 */
async function readSince(client: Sql, last: Seen | undefined): Promise<Found> {
  const since = last?.snapshot ?? null;
  const [row] = await client`
    select pg_current_snapshot()::text as snapshot,
      pg_postmaster_start_time()::text as server,
      statement_timestamp()::text as "readAt",
      statement_timestamp() - ${last?.readAt ?? null}::text::timestamptz > make_interval(secs => ${KEEP_SECONDS / 2}) as "isLate",
      current_setting('transaction_read_only') = 'on' as "isReadOnly",
      coalesce((
        select json_agg(found) from (
          select kind, ref from changes
          where xid >= pg_snapshot_xmin(${since}::pg_snapshot) and not pg_visible_in_snapshot(xid, ${since}::pg_snapshot)
            and xid < pg_snapshot_xmax(pg_current_snapshot())
          group by kind, ref limit ${READ_MAX + 1}
        ) as found
      ), '[]') as changes`;
  if (row?.isReadOnly === true) throw new Error("the server is read-only");
  const { snapshot, server, readAt, changes }: Record<string, unknown> = row ?? {};
  if (
    typeof snapshot !== "string" ||
    typeof server !== "string" ||
    typeof readAt !== "string" ||
    !Array.isArray(changes)
  )
    throw new Error("the changes table returned an unexpected result");
  // Changes before the first read, on another server, or pruned since the last read were not seen.
  const isGap = server !== last?.server || row?.isLate === true || changes.length > READ_MAX;
  return { seen: { snapshot, server, readAt }, changes: changes.filter(isChange), isGap };
}
