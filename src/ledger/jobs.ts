import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { runtimeName, within } from "../platform/runtime.ts";
import type { Ledger } from "./ledger.ts";
import { forgetReplicas, heartbeat, leave, type ReplicaStatus } from "./replicas_store.ts";
import { expiredHolds, makeReceiptMonths } from "./upkeep_store.ts";

/** The ledger's upkeep in one replica: heartbeat, spool replay, lease renewal, reaper, receipt months. */

const BEAT_MS = 1000;
/** A heartbeat that takes longer counts as an unanswered one. */
const BEAT_MAX_MS = 10_000;
const REAPED_AT_ONCE = 500;
const MONTHS_AHEAD = 3;
const MONTHS_EVERY_MS = 3_600_000;
/** How long a replica that shuts down waits for its replay. */
const LAST_REPLAY_MS_MAX = 5000;
/** How long a replica that shuts down waits for the deletion of its row. */
const LEAVE_MS_MAX = 1000;

type JobOptions = {
  ledger: Ledger;
  db: Db;
  log: Log;
  replicaId: string;
  version: string;
  /** The part of the replica's status that the ledger does not know. */
  health: () => Pick<ReplicaStatus, "inFlight" | "ledgerP99Ms" | "draining" | "busHealthy">;
  leaseSeconds: number;
  nowMs: () => number;
};

export type LedgerJobs = {
  /** Whether the last heartbeat reached the database. */
  databaseUp(): boolean;
  /** `found`: ended leases at the last look. `reaped`: holds released since the start. */
  reaper(): { found: number; reaped: number };
  stop(): Promise<void>;
};

/** Starts the heartbeat: now, and then every second until stopped. */
export function startLedgerJobs({
  ledger,
  db,
  log,
  replicaId,
  version,
  health,
  leaseSeconds,
  nowMs,
}: JobOptions): LedgerJobs {
  const leaseMs = leaseSeconds * 1000;
  // After an outage, leases have ended because nobody could renew them. So reap only after the database was up for a full
  // lease without a gap: by then every living replica has renewed its leases.
  let upSinceMs: number | undefined;
  let renewedMs = nowMs();
  let monthsMadeMs = Number.NEGATIVE_INFINITY;
  let lastBeatMs = nowMs();
  let reapedAt: string | null = null;
  const reaper = { found: 0, reaped: 0 };
  let replaying: Promise<void> | undefined;
  let stopped = false;
  let wake = () => {};

  const databaseUp = () => upSinceMs !== undefined && nowMs() - lastBeatMs < 5 * BEAT_MS;
  const statusNow = (): ReplicaStatus => ({
    ...ledger.status(),
    ...health(),
    reapedAt,
    databaseUp: databaseUp(),
    runtime: runtimeName,
  });

  async function beat(): Promise<void> {
    // First: other replicas and the panel must see this one even if its spool waits for the database.
    const seenAt = await heartbeat(db.sql, { id: replicaId, version, status: statusNow() });
    // Not awaited: leases must be renewed during a long replay.
    if (!ledger.status().spoolEmpty) replaying ??= replay();
    const now = nowMs();
    // A pause of this process counts as a gap.
    if (upSinceMs === undefined || now - lastBeatMs > 5 * BEAT_MS) upSinceMs = now;
    lastBeatMs = now;
    if (now - renewedMs >= leaseMs / 3) {
      renewedMs = now;
      await ledger.renewLeases();
    }
    if (now - monthsMadeMs >= MONTHS_EVERY_MS) {
      await makeReceiptMonths(db.sql, MONTHS_AHEAD);
      await forgetReplicas(db.sql);
      monthsMadeMs = now;
    }
    // Only with an empty spool: it may hold settlements of holds whose lease has ended.
    if (now - upSinceMs >= leaseMs && ledger.status().spoolEmpty) {
      await reap();
      reapedAt = seenAt;
    }
  }

  async function replay(): Promise<void> {
    try {
      const replayed = await ledger.replaySpool();
      log.info({ replayed }, "replayed the spool");
    } catch (err) {
      log.warn({ err }, "the spool was not replayed completely; the rest is tried again");
    } finally {
      replaying = undefined;
    }
  }

  async function reap(): Promise<void> {
    const expired = await expiredHolds(db.sql, REAPED_AT_ONCE);
    reaper.found = expired.length;
    const results = await Promise.allSettled(
      expired.map(({ requestId, accountId }) => ledger.reap(requestId, accountId)),
    );
    const reaped = results.filter((r) => r.status === "fulfilled" && r.value).length;
    reaper.reaped += reaped;
    if (reaped > 0) log.warn({ reaped }, "released holds whose lease had ended");
  }

  const loop = (async () => {
    while (!stopped) {
      try {
        await within(BEAT_MAX_MS, beat(), () => new BeatTimeout());
      } catch (error) {
        if (upSinceMs !== undefined) log.error({ err: error }, "the database does not answer");
        upSinceMs = undefined;
        if (error instanceof BeatTimeout) db.reset();
      }
      await new Promise<void>((resolve) => {
        wake = resolve;
        setTimeout(resolve, BEAT_MS);
      });
    }
  })();

  return {
    databaseUp,
    reaper: () => reaper,
    async stop() {
      stopped = true;
      wake();
      await loop;
      await within(LAST_REPLAY_MS_MAX, replaying ?? Promise.resolve()).catch((err) =>
        log.warn({ err }, "the spool is not empty; the rest is replayed after the next start"),
      );
      await within(LEAVE_MS_MAX, leave(db.sql, replicaId)).catch((err) =>
        log.warn({ err }, "the replica's row was not deleted: the replica will look as if it had crashed"),
      );
    },
  };
}

class BeatTimeout extends Error {}
