import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { runtimeName } from "../platform/runtime.ts";
import { within } from "../platform/time_limit.ts";
import type { Ledger } from "./ledger.ts";
import { expiredHolds, makeReceiptMonths } from "./ledger_store.ts";
import { forgetReplicas, heartbeat, leave, type ReplicaStatus } from "./replicas_store.ts";

/** The ledger's upkeep in one replica: heartbeat, spool replay, lease renewal, reaper, receipt months. */

const BEAT_MS = 1000;
/** A beat that takes longer has met a silent server. */
const BEAT_MAX_MS = 10_000;
const REAPED_AT_ONCE = 500;
const MONTHS_AHEAD = 3;
const MONTHS_EVERY_MS = 3_600_000;
/** A replica that ends goes on replaying its spool for this long. */
const LAST_REPLAY_MS_MAX = 5000;
/** A replica that ends says so, but does not wait for a database that is away. */
const LEAVE_MS_MAX = 1000;

type JobOptions = {
  ledger: Ledger;
  db: Db;
  log: Log;
  replicaId: string;
  version: string;
  /** How the replica is, beside what the ledger and its jobs know. */
  health: () => Pick<ReplicaStatus, "inFlight" | "ledgerP99Ms" | "draining" | "busHealthy">;
  leaseSeconds: number;
  nowMs: () => number;
};

export type LedgerJobs = {
  /** Whether the last beat reached the database. */
  databaseUp(): boolean;
  /** Holds past their lease that the reaper found when it looked last, and all that it has given back. */
  reaper(): { found: number; reaped: number };
  stop(): Promise<void>;
};

/** Beats at once, and then each second until stopped. */
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
  // A reaper must not mistake its own blindness for other replicas' death: it reaps only after it has seen the database
  // up for a full lease without a gap, so that every living replica has had the chance to renew.
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
    // First, so that a replica whose spool waits for the ledger's lanes is seen, and says so.
    const seenAt = await heartbeat(db.sql, { id: replicaId, version, status: statusNow() });
    // Beside the beat: while a long spool is replayed, living holds must not lose their leases.
    if (!ledger.status().spoolEmpty) replaying ??= replay();
    const now = nowMs();
    // A pause of this process is a gap too.
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
    // Of the holds whose lease has ended, some may be settled in our own spool.
    if (now - upSinceMs >= leaseMs && ledger.status().spoolEmpty) {
      await reap();
      reapedAt = seenAt;
    }
  }

  async function replay(): Promise<void> {
    try {
      const replayed = await ledger.replaySpool();
      log.info({ replayed }, "spooled settlements were replayed");
    } catch (err) {
      log.warn({ err }, "what is left in the spool is tried again");
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
    if (reaped > 0) log.warn({ reaped }, "holds of a dead replica were released");
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
        log.warn({ err }, "the spool is not empty yet: its rest waits for the next start"),
      );
      await within(LEAVE_MS_MAX, leave(db.sql, replicaId)).catch((err) =>
        log.warn({ err }, "the replica's row stays: it will look as if it had crashed"),
      );
    },
  };
}

class BeatTimeout extends Error {}
