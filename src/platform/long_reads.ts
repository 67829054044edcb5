import type { Config } from "../config.ts";
import { Refusal } from "../errors.ts";
import { type Db, openDb, whileWanted } from "./db.ts";
import type { Log } from "./log.ts";
import type { ShedReason, TimeLimit } from "./metrics.ts";
import { createSemaphore, type Share } from "./semaphore.ts";
import { within } from "./time_limit.ts";

/**
 * Reads that may take long: lists behind a filter, charts, statements, files. They have connections of their own, so that
 * look-ups of keys, leases and heartbeats never wait for one of them. No account has more than its share of these, and no
 * tenant; each read has a time limit, after which the server cancels it.
 */

/** Connections, and reads at once. */
export const LONG_READS_MAX = 4;
const ACCOUNT_MAX = 2;
const TENANT_MAX = 3;
/** Reads that wait for a place: a page of the panel asks for three or four at once. */
const ACCOUNT_WAITING_MAX = 8;
const TENANT_WAITING_MAX = 64;
const WAITING_MAX = 256;
const WAIT_MS_MAX = 2_000;
/** A read ends by itself before this; one that does not is cancelled. */
const READ_MS_MAX = 3_000;
/** A read that was cancelled and does not end within this has met a silent server. */
const END_MS_MAX = 2_000;
const RETRY_AFTER_SECONDS = 1;

/**
 * Who reads, and by which door. Each door has its own shares: whoever hammers the API with a key that leaked must not keep the
 * key's owner from the panel.
 */
export type Reader = { door: "api" | "panel"; accountId: number /** 0: of no tenant. */; tenantId: number };

type ReadOptions = {
  /** Aborted when nobody waits for the answer any more. */
  signal?: AbortSignal | undefined;
  readMsMax?: number;
  waitMsMax?: number;
};

export type LongReads = {
  /**
   * Runs `work` with a database that it may keep waiting. Throws what `work` throws, too_many_requests where the reader has its
   * share, service_unavailable where nobody has a place left or the read was cancelled at its time limit.
   */
  run<T>(reader: Reader, options: ReadOptions, work: (deps: { db: Db }) => Promise<T>): Promise<T>;
  underWay(): number;
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

  /** Frees the place when the read has ended. */
  async function leaveAfter(reading: Promise<unknown>, leave: () => void): Promise<void> {
    const ended = reading.then(
      () => {},
      () => {}, // Whoever asked for it has been told.
    );
    try {
      await within(END_MS_MAX, ended);
    } catch (err) {
      log.warn({ err }, "a long read does not end: its connections are opened anew");
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
        // Its reader has left, and nobody is told.
        throw signal?.aborted ? new Refusal("service_unavailable") : error;
      }
    },
    underWay: places.taken,
    close: () => db.close(),
  };
}

function sharesOf({ door, accountId, tenantId }: Reader): Share[] {
  const account = { id: `${door}:account:${accountId}`, atOnceMax: ACCOUNT_MAX, waitingMax: ACCOUNT_WAITING_MAX };
  const tenant = { id: `${door}:tenant:${tenantId}`, atOnceMax: TENANT_MAX, waitingMax: TENANT_WAITING_MAX };
  return tenantId === 0 ? [account] : [account, tenant];
}

function tooMany(): Refusal {
  return new Refusal("too_many_requests", {
    message: "This account has as many lists and reports under way as it may have at once. Try again in a moment.",
    limit: ACCOUNT_MAX,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
}
