import { type Db, READ_ONLY, sqlState } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { runtimeName } from "../platform/runtime.ts";
import { within } from "../platform/time_limit.ts";
import { accountsOfEndedLeases, makeReceiptMonths, pruneLeases, reapAccount } from "./leases_store.ts";
import type { Ledger } from "./ledger.ts";
import { forgetReplicas, heartbeat, leave, type ReplicaStatus } from "./replicas_store.ts";

/** The ledger's upkeep in one replica: heartbeat and lease, spool replay, reaper, receipt months. */

const BEAT_MS = 1000;
/** A heartbeat that takes longer counts as an unanswered one. */
const BEAT_MAX_MS = 10_000;
const REAPED_AT_ONCE = 500;
/** How long one beat reaps: the heartbeat and the lease must not wait for it. */
const REAP_MS_MAX = 1_000;
/** How often the escrows in the database are compared with those that this process knows. */
const RECONCILE_EVERY_MS = 10_000;
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
  health: () => Pick<ReplicaStatus, "inFlight" | "ledgerP99Ms" | "draining" | "busHealthy" | "routes">;
  leaseSeconds: number;
  nowMs: () => number;
};

export type LedgerJobs = {
  /** Whether the last heartbeat reached the database. */
  databaseUp(): boolean;
  /** `found`: accounts with escrows of ended leases at the last look. `reaped`: escrows returned since the start. */
  reaper(): { found: number; reaped: number };
  stop(): Promise<void>;
};

/** Starts the heartbeat: now, and then every second until stopped. */
export function startLedgerJobs(options: JobOptions): LedgerJobs {
  const { db, log, replicaId } = options;
  const jobs = new Upkeep(options);
  let stopped = false;
  let wake = () => {};
  const loop = (async () => {
    while (!stopped) {
      await jobs.beat();
      await new Promise<void>((resolve) => {
        wake = resolve;
        setTimeout(resolve, BEAT_MS);
      });
    }
  })();

  return {
    databaseUp: () => jobs.databaseUp(),
    reaper: () => jobs.reaper,
    async stop() {
      stopped = true;
      wake();
      await loop;
      await within(LAST_REPLAY_MS_MAX, jobs.replaying ?? Promise.resolve()).catch((err) =>
        log.warn({ err }, "the spool is not empty; the rest is replayed after the next start"),
      );
      await within(LEAVE_MS_MAX, leave(db.sql, replicaId)).catch((err) =>
        log.warn({ err }, "the replica's row was not deleted: the replica will look as if it had crashed"),
      );
    },
  };
}

class Upkeep {
  readonly reaper = { found: 0, reaped: 0 };
  replaying: Promise<void> | undefined;
  readonly #options: JobOptions;
  readonly #leaseMs: number;
  /**
   * Since when every heartbeat has reached the database; undefined: the last one did not. After an outage, leases have ended
   * because nobody could renew them. So reap only after the database was up for a full lease without a gap: by then every
   * living replica has renewed its lease.
   */
  #upSinceMs: number | undefined;
  /** Since when every replay of the spool has failed; undefined: the last one did not. */
  #replayFailsSinceMs: number | undefined;
  #lastBeatMs: number;
  #reconciledMs: number;
  #monthsMadeMs = Number.NEGATIVE_INFINITY;
  #reapedAt: string | null = null;

  constructor(options: JobOptions) {
    this.#options = options;
    this.#leaseMs = options.leaseSeconds * 1000;
    this.#lastBeatMs = options.nowMs();
    this.#reconciledMs = options.nowMs();
  }

  databaseUp(): boolean {
    return this.#upSinceMs !== undefined && this.#options.nowMs() - this.#lastBeatMs < 5 * BEAT_MS;
  }

  /** One heartbeat and all that is due. Logs errors. */
  async beat(): Promise<void> {
    const { db, log } = this.#options;
    try {
      await within(BEAT_MAX_MS, this.#work(), () => new BeatTimeout());
    } catch (error) {
      if (this.#upSinceMs !== undefined) log.error({ err: error }, "the database does not answer");
      this.#upSinceMs = undefined;
      if (error instanceof BeatTimeout || sqlState(error) === READ_ONLY) db.reset();
    }
  }

  async #work(): Promise<void> {
    const { db, ledger, nowMs, replicaId, version } = this.#options;
    // First: other replicas and the panel must see this one even if its spool waits for the database.
    const seenAt = await heartbeat(db.sql, { id: replicaId, version, status: this.#status() });
    await ledger.renewLease();
    // Not awaited: the lease must be renewed during a long replay.
    if (!ledger.status().spoolEmpty) this.replaying ??= this.#replay();
    const now = nowMs();
    // A pause of this process counts as a gap.
    if (this.#upSinceMs === undefined || now - this.#lastBeatMs > 5 * BEAT_MS) this.#upSinceMs = now;
    this.#lastBeatMs = now;
    if (now - this.#reconciledMs >= RECONCILE_EVERY_MS) {
      this.#reconciledMs = now;
      await ledger.reconcile();
    }
    if (now - this.#monthsMadeMs >= MONTHS_EVERY_MS) {
      await makeReceiptMonths(db.sql, MONTHS_AHEAD);
      await forgetReplicas(db.sql);
      await pruneLeases(db.sql);
      this.#monthsMadeMs = now;
    }
    if (now - this.#upSinceMs >= this.#leaseMs && this.#spoolHadItsTurn(now)) {
      await this.#reap();
      this.#reapedAt = seenAt;
    }
  }

  /**
   * The spool may hold settlements under a lease that has ended: they come before the reaper. But one of them may wait for what the reaper
   * has to return, so the spool has had its turn when replays have failed for a whole lease with the database up.
   */
  #spoolHadItsTurn(now: number): boolean {
    if (this.#options.ledger.status().spoolEmpty) return true;
    if (this.#replayFailsSinceMs === undefined || this.#upSinceMs === undefined) return false;
    return now - Math.max(this.#replayFailsSinceMs, this.#upSinceMs) >= this.#leaseMs;
  }

  #status(): ReplicaStatus {
    return {
      ...this.#options.ledger.status(),
      ...this.#options.health(),
      reapedAt: this.#reapedAt,
      databaseUp: this.databaseUp(),
      runtime: runtimeName,
    };
  }

  async #replay(): Promise<void> {
    const { ledger, log, nowMs } = this.#options;
    try {
      const replayed = await ledger.replaySpool();
      this.#replayFailsSinceMs = undefined;
      log.info({ replayed }, "replayed the spool");
    } catch (err) {
      this.#replayFailsSinceMs ??= nowMs();
      log.warn({ err }, "the spool was not replayed completely; the rest is tried again");
    } finally {
      this.replaying = undefined;
    }
  }

  async #reap(): Promise<void> {
    const { db, log, nowMs } = this.#options;
    const accounts = await accountsOfEndedLeases(db.sql, REAPED_AT_ONCE);
    this.reaper.found = accounts.length;
    let reaped = 0;
    const untilMs = nowMs() + REAP_MS_MAX;
    for (const accountId of accounts) {
      // A locked account has its turn with the next beat.
      reaped += (await reapAccount(db.sql, accountId)) ?? 0;
      if (nowMs() >= untilMs) break;
    }
    this.reaper.reaped += reaped;
    if (reaped > 0) log.warn({ reaped }, "returned what replicas whose lease had ended had drawn");
  }
}

class BeatTimeout extends Error {}
