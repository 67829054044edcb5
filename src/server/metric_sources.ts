import { statfs } from "node:fs/promises";
import type { Deps } from "../deps.ts";
import type { LedgerJobs } from "../ledger/jobs.ts";
import type { CacheCounters } from "../platform/cache.ts";
import { jobFigures } from "../platform/every.ts";
import { LONG_READS_MAX } from "../platform/long_reads.ts";
import type { MetricSources } from "../platform/metrics.ts";

/** Values that are read from the parts of a replica whenever /metrics is scraped. */
export function metricSources(deps: Deps, jobs: LedgerJobs): MetricSources {
  const { config, gate, bodies, ledger, booksCheck } = deps;
  const counted = (name: keyof CacheCounters) => () => ({
    keys: deps.keys.counters[name],
    hosts: deps.hosts.counters[name],
    brands: deps.brands.counters[name],
    sessions: deps.sessions.counters[name],
  });
  return {
    in_flight_requests: gate.inFlight,
    body_reads: bodies.reading,
    body_bytes: bodies.bytes,
    answer_bytes: () => deps.answerMemory.held,
    open_streams: deps.relays.count,
    streams_read_on: deps.relays.readOn,
    live_holds: () => ledger.status().holds,
    expired_holds: () => jobs.reaper().found,
    holds_reaped_total: () => jobs.reaper().reaped,
    ledger_queue_rows: () => ledger.status().queued,
    ledger_lane_rows: ledger.waiting,
    spool_bytes: () => ledger.spooled().bytes,
    spool_settlements: () => ledger.spooled().settlements,
    spool_aside_settlements: () => ledger.aside(),
    spool_disk_free_bytes: () => freeBytes(config.spoolDir),
    event_loop_lag_seconds: () => deps.lag.lagMs() / 1000,
    draining: () => Number(gate.draining()),
    ready: () => Number(!gate.draining() && ledger.ready() && jobs.databaseUp()),
    database_up: () => Number(jobs.databaseUp()),
    bus_up: () => Number(deps.bus.healthy()),
    redis_takes_writes: () => Number(deps.bus.takesWrites()),
    pool_queries: deps.db.underWay,
    long_reads: deps.longReads.underWay,
    breakers: deps.breakers.states,
    provider_keys: () => deps.keyStates.pool.states(),
    losses_stopped: deps.losses.stopped,
    books_broken: () => booksCheck.last().broken,
    books_uncounted: () => booksCheck.last().uncounted,
    books_checked_timestamp_seconds: () => booksCheck.last().checkedUnix,
    messages_waiting: () => deps.messages.status().waiting,
    messages_oldest_seconds: () => deps.messages.status().oldestSeconds,
    messages_failed: () => deps.messages.status().failed,
    mail_servers_down: () => deps.messages.status().serversDown,
    receipt_export_receipts: () => deps.receiptExport?.status().receipts ?? 0,
    receipt_export_oldest_seconds: () => deps.receiptExport?.status().oldestSeconds ?? 0,
    receipt_export_failures: () => deps.receiptExport?.status().failures ?? 0,
    unpriced_tokens_total: () => booksCheck.unpricedTokens(),
    job_success_age_seconds: () => jobFigures("successAgeSeconds"),
    job_runs_total: () => jobFigures("runs"),
    job_failures_total: () => jobFigures("failures"),
    cache_hits_total: counted("hits"),
    cache_misses_total: counted("misses"),
    cache_drops_total: counted("drops"),
    cap: () => ({
      in_flight_requests: config.inFlightMax,
      body_reads: config.bodyReadsMax,
      body_bytes: config.bodyMemoryMax,
      answer_bytes: config.answerMemoryMax,
      ledger_queue_rows: config.ledgerQueueMax,
      spool_bytes: config.spoolBytesMax,
      event_loop_lag_seconds: config.eventLoopLagMaxMs / 1000,
      pool_queries: config.dbPoolMax,
      long_reads: LONG_READS_MAX,
    }),
  };
}

/** Free bytes on the disk of a folder for users other than root; 0 if they cannot be read, so that the alert fires. */
async function freeBytes(folder: string): Promise<number> {
  try {
    const { bavail, bsize } = await statfs(folder);
    return bavail * bsize;
  } catch {
    return 0;
  }
}
