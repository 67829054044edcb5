import type { Config } from "../config.ts";
import { Refusal } from "../errors.ts";
import type { Bus } from "../platform/bus.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import type { Metrics } from "../platform/metrics.ts";
import { type Answer, type Batcher, LedgerError, openBatcher } from "./batch.ts";
import { openDatabaseClock } from "./database_clock_store.ts";
import { createFinisher, type Finisher, releaseOf, settlementOf } from "./finisher.ts";
import { renewLeases } from "./holds_store.ts";
import type { Hold, Ledger, Settlement } from "./ledger.ts";
import type { Finish, FinishResult, ReserveRequest, ReserveResult } from "./ledger_store.ts";
import { createLiveHolds, type LiveHolds } from "./live_holds.ts";
import { cacheRefusals } from "./refusal_cache.ts";
import { toRefusal, unanswered } from "./refusals.ts";
import type { ReserveLatency } from "./reserve_latency.ts";
import { openSpool } from "./spool.ts";

/**
 * Builds the ledger of one replica. A reservation passes these layers:
 *
 *   refusal_cache.ts   refuses from memory what the database refused a moment ago
 *   this file          measures, keeps the open holds, translates refusals
 *   batch.ts           joins many rows in one transaction
 *   ledger_store.ts    the SQL of a batch
 */

const RENEWALS_PER_STATEMENT = 1000;

type LedgerOptions = {
  config: Pick<
    Config,
    | "databaseUrl"
    | "dbPrepare"
    | "ledgerLanes"
    | "ledgerQueueMax"
    | "ledgerTimeoutMs"
    | "leaseSeconds"
    | "spoolDir"
    | "spoolBytesMax"
  >;
  db: Db;
  log: Log;
  /** The monotonic clock, in ms. */
  nowMs: () => number;
  /** Unix time in ms when the process started. */
  startedMs: number;
  metrics?: Pick<Metrics, "held" | "holdEnded" | "batched" | "shed" | "refusalRemembered">;
  latency?: ReserveLatency;
  /** Tells when a cached refusal no longer holds. Without it no refusals are cached. */
  bus?: Pick<Bus, "subscribe" | "onGap">;
};

/** The parts that the functions of this file share. */
type Parts = LedgerOptions & { batcher: Batcher; finisher: Finisher; live: LiveHolds };

/** Opens the ledger. Its spool may hold settlements from before a restart: call `replaySpool` before admitting work. */
export async function openLedger(options: LedgerOptions): Promise<Ledger> {
  const { config, db, log, nowMs, startedMs, metrics, bus } = options;
  const spool = await openSpool({ directory: config.spoolDir, bytesMax: config.spoolBytesMax, startedMs, log });
  const batcher = openBatcher({
    databaseUrl: config.databaseUrl,
    dbPrepare: config.dbPrepare,
    lanes: config.ledgerLanes,
    queueMax: config.ledgerQueueMax,
    timeoutMs: config.ledgerTimeoutMs,
    leaseSeconds: config.leaseSeconds,
    log,
    nowMs,
    ...(metrics && { onBatch: metrics.batched }),
    onUnwanted: (request) => void releaseUnanswered(parts, request),
  });
  const finisher = createFinisher({ batcher, spool, log });
  const live = createLiveHolds({ leaseMs: config.leaseSeconds * 1000, nowMs });
  const parts: Parts = { ...options, batcher, finisher, live };

  const ledger: Ledger = {
    reserve: (request) => reserve(parts, request),
    alive: live.alive,
    settle: (hold, usage, end) => settle(parts, hold, usage, end),
    release: async (hold, reason) => ({ spooled: (await end(parts, hold, releaseOf(hold, reason))) === "spooled" }),
    async reap(requestId, accountId) {
      const { result } = await batcher.finish({ ...releaseOf({ requestId, accountId }, "lease_ended"), kind: "reap" });
      return result.outcome === "released";
    },
    replaySpool: finisher.replay,
    renewLeases: () => renewDueLeases(parts),
    ready: () => spool.ready(),
    status: () => ({ holds: live.count(), queued: batcher.depth(), spoolEmpty: spool.empty() }),
    waiting: batcher.waiting,
    spooled: () => spool.waiting(),
    aside: () => spool.aside(),
    async close() {
      await batcher.close();
      // Rows that the closed lanes rejected are still being written to the spool.
      await finisher.idle();
    },
    async abandon() {
      batcher.abandon();
      await finisher.idle();
    },
  };
  return bus ? cacheRefusals(ledger, { bus, clock: openDatabaseClock({ db, log, nowMs }), nowMs, metrics }) : ledger;
}

async function reserve(parts: Parts, request: ReserveRequest): Promise<Hold> {
  const { batcher, live, log, latency, metrics, nowMs } = parts;
  const startMs = nowMs();
  let answer: Answer<ReserveResult>;
  try {
    answer = await batcher.reserve(request);
  } catch (error) {
    // The reservation may have been committed. If its answer still arrives, `onUnwanted` releases it again.
    if (error instanceof LedgerError && error.sent) void releaseUnanswered(parts, request);
    if (error instanceof LedgerError && error.kind === "full") metrics?.shed("ledger_queue");
    if (error instanceof LedgerError && error.kind === "unreachable") metrics?.shed("ledger_timeout");
    throw unanswered(error);
  } finally {
    // Failed reservations count too: one that timed out was slow.
    const tookMs = nowMs() - startMs;
    latency?.note(tookMs);
    metrics?.held(tookMs);
  }
  const { code, mode, heldNanoUsd, capTokens } = answer.result;
  if (code !== null || mode === null) throw toRefusal(answer.result, log);
  return live.add(request, { mode, heldNanoUsd, capTokens }, answer.firstSentMs);
}

/** Releases what a reservation without an answer may have reserved. */
async function releaseUnanswered({ batcher, log }: Parts, request: ReserveRequest): Promise<void> {
  try {
    await batcher.finish(releaseOf(request, "reserve_timed_out"));
  } catch (error) {
    log.warn(
      { err: error, requestId: request.requestId },
      "a reservation without an answer waits for its lease to end",
    );
  }
}

async function settle(
  parts: Parts,
  ...[hold, usage, { strict = false, reason = "complete" } = {}]: Parameters<Ledger["settle"]>
): Promise<Settlement> {
  const row = settlementOf(hold, usage, { strict, reason });
  const result = await end(parts, hold, row);
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

/** Ends a hold, charged or not. Throws if it was ended before. */
async function end(
  { finisher, live, metrics, nowMs }: Parts,
  hold: Hold,
  row: Finish,
): Promise<FinishResult | "spooled"> {
  const startMs = nowMs();
  live.end(hold);
  let spooled = false;
  try {
    const result = await finisher.finish(row);
    spooled = result === "spooled";
    return result;
  } finally {
    live.delete(hold.requestId);
    metrics?.holdEnded(row.kind === "settle" ? "settle" : "release", nowMs() - startMs, spooled);
  }
}

async function renewDueLeases({ config, db, live, nowMs }: Parts): Promise<void> {
  const due = live.due();
  for (let i = 0; i < due.length; i += RENEWALS_PER_STATEMENT) {
    const ids = due.slice(i, i + RENEWALS_PER_STATEMENT).map(({ requestId }) => requestId);
    const sentMs = nowMs();
    const renewed = await renewLeases(db.sql, ids, config.leaseSeconds);
    for (const requestId of ids) if (renewed.has(requestId)) live.renew(requestId, sentMs);
  }
}
