import type { Config } from "../config.ts";
import { Refusal } from "../errors.ts";
import type { Bus, Change } from "../platform/bus.ts";
import type { DatabaseClock } from "../platform/database_clock_store.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import type { Metrics } from "../platform/metrics.ts";
import { within } from "../platform/time_limit.ts";
import { type Batcher, LedgerError, openBatcher, type Reserved } from "./batch.ts";
import { Escrow } from "./escrow.ts";
import { createFinisher, type Finisher, releaseOf, settlementOf } from "./finisher.ts";
import { drawnBy, endLease, liveLeases, renewLease, takeLease } from "./leases_store.ts";
import type { Hold, Ledger, Settlement, Unpaid } from "./ledger.ts";
import type { EndReason, Finish, ReserveRequest } from "./ledger_store.ts";
import { toRefusal, unanswered } from "./refusals.ts";
import type { ReserveLatency } from "./reserve_latency.ts";
import { openSpool, type Spool } from "./spool.ts";

/**
 * Builds the ledger of one replica. A reservation passes these layers:
 *
 *   this file          measures, keeps the open holds, translates refusals
 *   escrow.ts          grants from memory what was drawn ahead, refuses what the database refused a moment ago; the rest goes on
 *   batch.ts           joins many rows in one transaction
 *   ledger_store.ts    the SQL of a batch
 */

/** How long a replica that starts waits for its lease. It takes one later, before it grants anything. */
const FIRST_LEASE_MS_MAX = 5_000;
/** How long a ledger that closes waits for the end of its lease. */
const END_LEASE_MS_MAX = 1_000;
/** How often accounts are looked for whose idle units are due for renewal or return. */
const DUE_EVERY_MS = 100;

type LedgerOptions = {
  config: Pick<
    Config,
    | "databaseUrl"
    | "dbPrepare"
    | "ledgerLanes"
    | "ledgerQueueMax"
    | "ledgerTimeoutMs"
    | "leaseSeconds"
    | "escrowUnitsMax"
    | "escrowShare"
    | "spoolDir"
    | "spoolBytesMax"
  >;
  db: Db;
  log: Log;
  /** The monotonic clock, in ms. */
  nowMs: () => number;
  /** The machine's clock: Unix time in ms. */
  wallMs: () => number;
  /** Unix time in ms when the process started. */
  startedMs: number;
  metrics?: Pick<Metrics, "held" | "holdEnded" | "batched" | "shed" | "refusalRemembered">;
  latency?: ReserveLatency;
  /** Tells when a refusal no longer holds, and when an account's rights change. Without it no refusals are remembered. */
  bus?: Pick<Bus, "publish" | "subscribe" | "onGap">;
  /** Says when a refusal's reset comes. Without it no refusals are remembered. */
  clock?: Pick<DatabaseClock, "earliestMs">;
};

/** The parts that the functions of this file share. */
type Parts = LedgerOptions & {
  escrow: Escrow;
  batcher: Batcher;
  finisher: Finisher;
  /** Open holds by request id, and whether their end is on its way. */
  open: Map<string, { reservedMs: number; isEnding: boolean }>;
  onUnpaid: ((unpaid: Unpaid) => void)[];
  /** Accounts for which a draw was submitted. */
  drawing: Set<number>;
  replicas: number;
  renewing: Promise<void> | undefined;
};

/** Opens the ledger. Its spool may hold settlements from before a restart: call `replaySpool` before admitting work. */
export async function openLedger(options: LedgerOptions): Promise<Ledger> {
  const { config, log, nowMs, startedMs, metrics, bus, wallMs } = options;
  const spool = await openSpool({ directory: config.spoolDir, bytesMax: config.spoolBytesMax, startedMs, log });
  const leaseMs = config.leaseSeconds * 1000;
  const escrow = new Escrow({ leaseMs, unitsMax: config.escrowUnitsMax, nowMs, wallMs });
  const batcher = openBatcher({
    databaseUrl: config.databaseUrl,
    dbPrepare: config.dbPrepare,
    lanes: config.ledgerLanes,
    queueMax: config.ledgerQueueMax,
    timeoutMs: config.ledgerTimeoutMs,
    escrow,
    share: () => config.escrowShare * parts.replicas,
    renewLease: () => renew(parts),
    log,
    nowMs,
    wallMs,
    ...(metrics && { onBatch: metrics.batched }),
    onRecall: (accountId) => void bus?.publish([{ kind: "escrow", ref: String(accountId) }]),
  });
  const onEnded = (row: Finish, tookMs: number, isSpooled: boolean) => ended(parts, row, tookMs, isSpooled);
  const onUnpaid = (unpaid: Unpaid) => parts.onUnpaid.forEach((listener) => void listener(unpaid));
  const finisher = createFinisher({ batcher, escrow, spool, log, nowMs, onUnpaid, onEnded });
  const parts: Parts = {
    ...options,
    escrow,
    batcher,
    finisher,
    open: new Map(),
    onUnpaid: [],
    drawing: new Set(),
    replicas: 1,
    renewing: undefined,
  };
  await within(FIRST_LEASE_MS_MAX, renew(parts)).catch((err) => log.warn({ err }, "the ledger has no lease yet"));
  const timer = setInterval(() => drawDue(parts), DUE_EVERY_MS);
  if (bus) watchChanges(escrow, bus, () => drawDue(parts));

  return {
    grant: (request) => grant(parts, request),
    reserve: reserver(parts),
    alive: ({ leaseId }) => escrow.isAlive(leaseId),
    isOpen: ({ requestId }) => parts.open.get(requestId)?.isEnding === false,
    settle: (hold, usage, end) => settle(parts, hold, usage, end),
    release: (hold, reason) => release(parts, hold, reason),
    onUnpaid: (listener) => void parts.onUnpaid.push(listener),
    replaySpool: () => finisher.replay().finally(() => escrow.invalidateRefusals()),
    leaseId: () => escrow.leaseId,
    renewLease: () => renew(parts),
    reconcile: () => reconcile(parts),
    ready: () => spool.ready(),
    status: () => ({ ...openHolds(parts), queued: batcher.depth(), spoolEmpty: spool.empty() }),
    waiting: batcher.waiting,
    spooled: () => spool.waiting(),
    aside: () => spool.aside() + finisher.notSetAside(),
    async close() {
      clearInterval(timer);
      await close(parts, spool);
    },
    async abandon() {
      clearInterval(timer);
      batcher.abandon();
      await finisher.idle();
    },
  };
}

async function close(parts: Parts, spool: Spool): Promise<void> {
  const { batcher, db, escrow, finisher, log } = parts;
  await Promise.all(escrow.close().map((accountId) => draw(parts, accountId)));
  await batcher.close();
  // Rows that the closed lanes rejected are still being written to the spool.
  await finisher.idle();
  // If it cannot be ended now, it ends by itself.
  if (spool.empty())
    await within(END_LEASE_MS_MAX, endLease(db.sql, escrow.leaseId)).catch((err) =>
      log.warn({ err }, "the lease was not ended"),
    );
}

function openHolds({ open, nowMs }: Parts): { holds: number; oldestHoldMs: number | null } {
  const [oldest] = open.values(); // A Map keeps insertion order.
  return { holds: open.size, oldestHoldMs: oldest === undefined ? null : Math.round(nowMs() - oldest.reservedMs) };
}

/** Renews the lease, or takes a new one. Callers at the same time share one attempt. */
function renew(parts: Parts): Promise<void> {
  parts.renewing ??= renewOnce(parts).finally(() => {
    parts.renewing = undefined;
  });
  return parts.renewing;
}

async function renewOnce(parts: Parts): Promise<void> {
  const { config, db, escrow, log, nowMs } = parts;
  for (;;) {
    const { leaseId } = escrow;
    const sentMs = nowMs();
    if (!escrow.isLeaseTaken) await takeLease(db.sql, leaseId, config.leaseSeconds);
    else if (!(await renewLease(db.sql, leaseId, config.leaseSeconds))) {
      log.warn({ leaseId }, "the lease of this replica had ended; it takes a new one");
      escrow.leaseEnded(leaseId);
      continue;
    }
    escrow.leaseRenewed(leaseId, sentMs);
    parts.replicas = Math.max(1, await liveLeases(db.sql));
    return;
  }
}

/** Rights of an account have changed: what is idle is renewed at once, and refusals are asked anew. A recall: it goes back. */
export function watchChanges(escrow: Escrow, bus: Pick<Bus, "subscribe" | "onGap">, onChange: () => void): void {
  bus.subscribe((changes) => {
    const refsOf = (wanted: Change["kind"]) =>
      changes.filter(({ kind }) => kind === wanted).map(({ ref }) => Number(ref));
    escrow.accountsChanged(new Set(refsOf("account")));
    for (const accountId of refsOf("escrow")) escrow.recall(accountId);
    // A change of a model may concern any account.
    if (changes.some(({ kind }) => kind === "catalog")) escrow.invalidateRefusals();
    onChange();
  });
  bus.onGap(() => {
    escrow.allChanged();
    onChange();
  });
}

/** Draws for every account whose escrow needs it. */
function drawDue(parts: Parts): void {
  for (const accountId of parts.escrow.due()) if (!parts.drawing.has(accountId)) void draw(parts, accountId);
}

/** A draw that fails is tried again while it is due. */
async function draw({ batcher, drawing, log }: Parts, accountId: number): Promise<void> {
  drawing.add(accountId);
  try {
    await batcher.draw(accountId);
  } catch (err) {
    log.debug({ err, accountId }, "a draw failed");
  } finally {
    drawing.delete(accountId);
  }
}

async function reconcile(parts: Parts): Promise<void> {
  const { db, escrow } = parts;
  const { leaseId } = escrow;
  const drawn = await drawnBy(db.sql, leaseId);
  if (leaseId !== escrow.leaseId) return;
  const due = drawn.filter(({ accountId, ...amounts }) => escrow.compare(accountId, amounts));
  await Promise.all(due.map(({ accountId }) => draw(parts, accountId)));
}

function grant(parts: Parts, request: ReserveRequest): Hold | undefined {
  const { escrow, latency, metrics } = parts;
  const hold = escrow.grant(request);
  if (hold === undefined) return undefined;
  latency?.note(0);
  metrics?.held(0);
  return opened(parts, hold);
}

/** Reserves from what was drawn ahead, or in the database, unless that refused it a moment ago. */
function reserver(parts: Parts): Ledger["reserve"] {
  const { bus, clock, escrow, metrics, nowMs } = parts;
  const ask = (request: ReserveRequest) => reserve(parts, request);
  if (bus === undefined || clock === undefined) return async (request) => grant(parts, request) ?? (await ask(request));
  const asking = { ask, clock, nowMs, metrics };
  return async (request) => grant(parts, request) ?? (await escrow.refusalsOf(request).reserve(request, asking));
}

async function reserve(parts: Parts, request: ReserveRequest): Promise<Hold> {
  const reserved = await reserveInDatabase(parts, request);
  if ("refused" in reserved) throw toRefusal(reserved.refused, parts.log);
  return opened(parts, reserved.hold);
}

function opened({ open, nowMs }: Parts, hold: Hold): Hold {
  open.set(hold.requestId, { reservedMs: nowMs(), isEnding: false });
  return hold;
}

async function reserveInDatabase(
  { batcher, latency, metrics, nowMs }: Parts,
  request: ReserveRequest,
): Promise<Reserved> {
  const startMs = nowMs();
  try {
    return await batcher.reserve(request);
  } catch (error) {
    if (error instanceof LedgerError && error.kind === "full") metrics?.shed("ledger_queue");
    if (error instanceof LedgerError && error.kind === "unreachable") metrics?.shed("ledger_timeout");
    throw unanswered(error);
  } finally {
    // Failed reservations count too: one that timed out was slow.
    const tookMs = nowMs() - startMs;
    latency?.note(tookMs);
    metrics?.held(tookMs);
  }
}

async function settle(
  parts: Parts,
  ...[hold, usage, { strict = false, reason = "complete" } = {}]: Parameters<Ledger["settle"]>
): Promise<Settlement> {
  const row = settlementOf(hold, usage, { strict, reason });
  noteEnding(parts, hold);
  const result = await parts.finisher.finish(row);
  if (result === "spooled") return { chargedNanoUsd: 0n, shortfallNanoUsd: 0n, spooled: true };
  // The lease ended, and a retry with the same Idempotency-Key took its place: that request sends the response.
  if (strict && result.outcome === "gone") throw new Refusal("service_unavailable", { retryAfterSeconds: 1 });
  if (result.outcome === "refused") {
    throw new Refusal("insufficient_balance", {
      message: "The answer cost more than the balance covers. Nothing was charged.",
      limit: Number(row.chargeNanoUsd),
    });
  }
  return { chargedNanoUsd: result.chargedNanoUsd, shortfallNanoUsd: result.shortfallNanoUsd, spooled: false };
}

async function release(parts: Parts, hold: Hold, reason: EndReason): Promise<{ spooled: boolean }> {
  noteEnding(parts, hold);
  return { spooled: (await parts.finisher.finish(releaseOf(hold, reason))) === "spooled" };
}

/** Throws if the hold was ended before: that is a bug of the caller and must be noticed. */
function noteEnding({ open }: Parts, { requestId }: Hold): void {
  const known = open.get(requestId);
  if (known === undefined || known.isEnding) throw new Error(`hold ${requestId} was ended twice`);
  known.isEnding = true;
}

function ended({ open, escrow, metrics }: Parts, row: Finish, tookMs: number, isSpooled: boolean): void {
  open.delete(row.requestId);
  metrics?.holdEnded(row.settles ? "settle" : "release", tookMs, isSpooled);
  escrow.invalidateRefusals(row.accountId);
}
