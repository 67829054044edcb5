import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/runtime.ts";
import type { Ledger } from "./ledger.ts";
import { expiredHolds, heartbeat, makeReceiptMonths } from "./ledger_store.ts";

/** The ledger's upkeep in one replica: heartbeat, spool replay, lease renewal, reaper, receipt months. */

const BEAT_MS = 1000;
/** A beat that takes longer has met a silent server. */
const BEAT_MAX_MS = 10_000;
const REAPED_AT_ONCE = 500;
const MONTHS_AHEAD = 3;
const MONTHS_EVERY_MS = 3_600_000;

type JobOptions = {
  ledger: Ledger;
  db: Db;
  log: Log;
  replicaId: string;
  leaseSeconds: number;
  nowMs: () => number;
};

export type LedgerJobs = {
  /** Whether the last beat reached the database. */
  databaseUp(): boolean;
  stop(): Promise<void>;
};

/** Replays the spool, then beats each second until stopped. */
export function startLedgerJobs({ ledger, db, log, replicaId, leaseSeconds, nowMs }: JobOptions): LedgerJobs {
  const leaseMs = leaseSeconds * 1000;
  // A reaper must not mistake its own blindness for other replicas' death: it reaps only after it has seen the database
  // up for a full lease without a gap, so that every living replica has had the chance to renew.
  let upSinceMs: number | undefined;
  let renewedMs = nowMs();
  let monthsMadeMs = Number.NEGATIVE_INFINITY;
  let lastBeatMs = nowMs();
  let stopped = false;
  let wake = () => {};

  async function beat(): Promise<void> {
    if (!ledger.status().spoolEmpty) {
      const replayed = await ledger.replaySpool();
      log.info({ replayed }, "spooled settlements were replayed");
    }
    await heartbeat(db.sql, replicaId);
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
      monthsMadeMs = now;
    }
    if (now - upSinceMs >= leaseMs) await reap();
  }

  async function reap(): Promise<void> {
    const expired = await expiredHolds(db.sql, REAPED_AT_ONCE);
    const results = await Promise.allSettled(
      expired.map(({ requestId, accountId }) => ledger.reap(requestId, accountId)),
    );
    const reaped = results.filter((r) => r.status === "fulfilled" && r.value).length;
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
    databaseUp: () => upSinceMs !== undefined && nowMs() - lastBeatMs < 5 * BEAT_MS,
    async stop() {
      stopped = true;
      wake();
      await loop;
    },
  };
}

class BeatTimeout extends Error {}
