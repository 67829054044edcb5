import type { Config } from "../config.ts";
import { Refusal } from "../errors.ts";
import { type Db, openDb, whileWanted } from "./db.ts";
import type { Log } from "./log.ts";
import type { ShedReason, TimeLimit } from "./metrics.ts";
import { createSemaphore, type Share } from "./semaphore.ts";
import { within } from "./time_limit.ts";

/**
 * Slow reads: filtered lists, charts, statements, files. They have their own connections, so that key lookups, leases and heartbeats
 * never wait for them. Each account and each tenant has a share of these connections. Each read has a time limit, after which the
 * server cancels it.
 */

/** Connections, and so concurrent reads. */
export const LONG_READS_MAX = 4;
const ACCOUNT_MAX = 2;
const TENANT_MAX = 3;
/** Waiting reads: a page of the panel makes three or four at once. */
const ACCOUNT_WAITING_MAX = 8;
const TENANT_WAITING_MAX = 64;
const WAITING_MAX = 256;
const WAIT_MS_MAX = 2_000;
/** A read that takes longer is cancelled. */
const READ_MS_MAX = 3_000;
/** A cancelled read that does not end within this has met a silent server. */
const END_MS_MAX = 2_000;
const RETRY_AFTER_SECONDS = 1;

/**
 * Who reads, and whether through the API or the panel. Each has its own shares, so that abuse of a leaked key does not lock the key's
 * owner out of the panel.
 */
export type Reader = { side: "api" | "panel"; accountId: number /** 0: no tenant. */; tenantId: number };

type ReadOptions = {
  /** Aborted when the client has left. */
  signal?: AbortSignal | undefined;
  readMsMax?: number;
  waitMsMax?: number;
};

export type LongReads = {
  /**
   * Runs `work` with a database for slow reads. Throws what `work` throws, too_many_requests if the reader's share is used up, and
   * service_unavailable if all connections are used or the read was cancelled at its time limit.
   */
  run<T>(reader: Reader, options: ReadOptions, work: (deps: { db: Db }) => Promise<T>): Promise<T>;
  underWay(): number;
  /** Replaces the connections: after a failover they may be to a standby, where a read succeeds and is out of date. Reads in progress fail. */
  reconnect(): void;
  close(): Promise<void>;
};

type LongReadsOptions = {
  config: Pick<Config, "databaseUrl" | "dbPrepare">;
  log: Log;
  onShed?: (reason: ShedReason) => void;
  onTimeOut?: (limit: TimeLimit) => void;
};

/** Opens the pool; connects on first use. */
export function openLongReads({ config, log, onShed, onTimeOut }: LongReadsOptions): LongReads {
  const db = openDb({ databaseUrl: config.databaseUrl, dbPrepare: config.dbPrepare, dbPoolMax: LONG_READS_MAX });
  const places = createSemaphore({
    max: LONG_READS_MAX,
    waitingMax: WAITING_MAX,
    shareFull: () => shed(tooMany()),
    allFull: () => shed(new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS })),
  });

  function shed(refusal: Refusal): Refusal {
    onShed?.("long_reads");
    return refusal;
  }

  /** Releases the connection when the read has ended. */
  async function leaveAfter(reading: Promise<unknown>, leave: () => void): Promise<void> {
    const ended = reading.then(
      () => {},
      () => {}, // `run` has already thrown it.
    );
    try {
      await within(END_MS_MAX, ended);
    } catch (err) {
      log.warn({ err }, "a long read does not end; its connections are replaced");
      db.reset();
    }
    leave();
  }

  const read: LongReads["run"] = async (reader, { signal, readMsMax = READ_MS_MAX, waitMsMax = WAIT_MS_MAX }, work) => {
    const leave = await places.enter(sharesOf(reader), { waitMsMax, signal });
    const unwanted = new AbortController();
    const abandon = () => unwanted.abort();
    signal?.addEventListener("abort", abandon, { once: true });
    const reading = work({ db: whileWanted(db, { signal: unwanted.signal, statementMsMax: readMsMax }) });
    try {
      return await within(readMsMax, reading, late);
    } finally {
      signal?.removeEventListener("abort", abandon);
      unwanted.abort();
      void leaveAfter(reading, leave);
    }
  };

  function late(): Refusal {
    onTimeOut?.("long_read");
    return new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
  }

  return {
    async run(reader, { signal, ...options }, work) {
      try {
        return await read(reader, { signal, ...options }, work);
      } catch (error) {
        // The client has left: nobody gets this answer.
        throw signal?.aborted ? new Refusal("service_unavailable") : error;
      }
    },
    underWay: places.taken,
    reconnect: () => db.reset(),
    close: () => db.close(),
  };
}

function sharesOf({ side, accountId, tenantId }: Reader): Share[] {
  const account = { id: `${side}:account:${accountId}`, atOnceMax: ACCOUNT_MAX, waitingMax: ACCOUNT_WAITING_MAX };
  const tenant = { id: `${side}:tenant:${tenantId}`, atOnceMax: TENANT_MAX, waitingMax: TENANT_WAITING_MAX };
  return tenantId === 0 ? [account] : [account, tenant];
}

function tooMany(): Refusal {
  return new Refusal("too_many_requests", {
    message: "This account has too many lists and reports in progress. Try again in a moment.",
    limit: ACCOUNT_MAX,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}
