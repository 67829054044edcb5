import { connect, isPassing, type Sql, sqlState } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import {
  type Ask,
  type BatchOutput,
  type Finish,
  type FinishResult,
  type ReserveResult,
  runBatch,
} from "./ledger_store.ts";

/**
 * Group commit. While a lane's batch is in flight, new rows queue; the next batch takes them all: one round trip, one
 * commit. No timer: an idle lane sends at once, a busy one batches by itself. Rows of an account that somebody else has
 * locked move to a waiting lane, so that one contended account delays nobody.
 */

/** The server's lock table is finite, and a batch should be short. */
const ACCOUNTS_MAX = 128;
const ROWS_MAX = 512;
const WAITING_LANES = 2;
const RETRY_DELAY_MS = 25;

/** Why a row got no answer. */
export class LedgerError extends Error {
  override readonly name = "LedgerError";
  readonly kind: "full" | "unreachable" | "bad_row" | "closed";
  /** The row may have been committed all the same. */
  readonly sent: boolean;

  constructor(kind: LedgerError["kind"], sent: boolean, cause?: unknown) {
    super(`ledger: ${kind}`, { cause });
    this.kind = kind;
    this.sent = sent;
  }
}

/** When a row's first attempt was sent, by the monotonic clock: from then its lease is counted. */
export type Answer<R> = { result: R; firstSentMs: number };

export type Batcher = {
  reserve(ask: Ask): Promise<Answer<ReserveResult>>;
  finish(finish: Finish): Promise<Answer<FinishResult>>;
  /** Rows waiting or under way. */
  depth(): number;
  /** Waits for what is under way, refuses what comes. */
  close(): Promise<void>;
};

type BatcherOptions = {
  databaseUrl: string;
  dbPrepare: boolean;
  lanes: number;
  queueMax: number;
  /** A row's whole wait; one attempt may take half of it. */
  timeoutMs: number;
  leaseSeconds: number;
  log: Log;
  nowMs: () => number;
};

type Row = {
  accountId: number;
  work: { ask: Ask } | { finish: Finish };
  deadlineMs: number;
  firstSentMs: number | undefined;
  resolve(answer: Answer<ReserveResult | FinishResult>): void;
  reject(error: LedgerError): void;
};

/** Opens the lanes. Connections are made on first use. */
export function openBatcher(options: BatcherOptions): Batcher {
  const { nowMs, queueMax, timeoutMs } = options;
  let depth = 0;
  let closed = false;
  const waiting = Array.from({ length: WAITING_LANES }, () => new Lane(options, true));
  const lanes = Array.from({ length: options.lanes }, () => {
    return new Lane(options, false, (row) => waiting[row.accountId % WAITING_LANES]?.add(row));
  });

  function submit<R extends ReserveResult | FinishResult>(accountId: number, work: Row["work"]): Promise<Answer<R>> {
    if (closed) return Promise.reject(new LedgerError("closed", false));
    // A settlement is never turned away: what it pays for has been served.
    if (depth >= queueMax && "ask" in work) return Promise.reject(new LedgerError("full", false));
    depth++;
    const { promise, resolve, reject } = Promise.withResolvers<Answer<R>>();
    const row: Row = {
      accountId,
      work,
      deadlineMs: nowMs() + timeoutMs,
      firstSentMs: undefined,
      resolve: (answer) => {
        depth--;
        resolve(answer as Answer<R>);
      },
      reject: (error) => {
        depth--;
        reject(error);
      },
    };
    lanes[accountId % lanes.length]?.add(row);
    return promise;
  }

  return {
    reserve: (ask) => submit<ReserveResult>(ask.accountId, { ask }),
    finish: (finish) => submit<FinishResult>(finish.accountId, { finish }),
    depth: () => depth,
    async close() {
      closed = true;
      await Promise.all([...lanes, ...waiting].map((lane) => lane.idle()));
      await Promise.all([...lanes, ...waiting].map((lane) => lane.end()));
    },
  };
}

class Lane {
  readonly #options: BatcherOptions;
  readonly #wait: boolean;
  readonly #onBusy: ((row: Row) => void) | undefined;
  #queue: Row[] = [];
  #connection: Sql | undefined;
  #running: Promise<void> | undefined;

  constructor(options: BatcherOptions, wait: boolean, onBusy?: (row: Row) => void) {
    this.#options = options;
    this.#wait = wait;
    this.#onBusy = onBusy;
  }

  add(row: Row): void {
    this.#queue.push(row);
    this.#running ??= this.#run();
  }

  /** Resolves when nothing is queued or under way. */
  async idle(): Promise<void> {
    while (this.#running) await this.#running;
  }

  async end(): Promise<void> {
    await this.#connection?.end({ timeout: 1 });
  }

  async #run(): Promise<void> {
    // Lets everything that arrives in this turn of the event loop into the first batch.
    await Promise.resolve();
    while (this.#queue.length > 0) await this.#attempt(this.#take());
    this.#running = undefined;
  }

  /** The next batch, in arrival order. A waiting lane takes one account at a time. */
  #take(): Row[] {
    const accounts = new Set<number>();
    const accountsMax = this.#wait ? 1 : ACCOUNTS_MAX;
    const taken: Row[] = [];
    const left: Row[] = [];
    for (const row of this.#queue) {
      const fits = taken.length < ROWS_MAX && (accounts.has(row.accountId) || accounts.size < accountsMax);
      if (fits) accounts.add(row.accountId);
      (fits ? taken : left).push(row);
    }
    this.#queue = left;
    return taken;
  }

  /** Sends the rows until each has its answer. Same ids on every attempt, so that a lost reply changes nothing. */
  async #attempt(rows: Row[]): Promise<void> {
    const { log } = this.#options;
    let pending = rows;
    for (;;) {
      pending = this.#dropOverdue(pending);
      if (pending.length === 0) return;
      try {
        pending = this.#answer(pending, await this.#send(pending));
      } catch (error) {
        const state = sqlState(error);
        if (state.startsWith("22") || state.startsWith("23")) return this.#split(pending, error);
        if (!isPassing(error)) {
          log.error({ err: error, rows: pending.length }, "ledger batch failed");
          for (const row of pending) row.reject(new LedgerError("bad_row", false, error));
          return;
        }
        log.warn({ state, rows: pending.length }, "ledger batch is sent again");
        await sleep(RETRY_DELAY_MS);
      }
    }
  }

  /** One bad row must not fail its batch: halves, until it stands alone. */
  async #split(rows: Row[], error: unknown): Promise<void> {
    if (rows.length === 1) {
      this.#options.log.error({ err: error }, "the ledger refused a row");
      rows[0]?.reject(new LedgerError("bad_row", false, error));
      return;
    }
    const middle = Math.ceil(rows.length / 2);
    await this.#attempt(rows.slice(0, middle));
    await this.#attempt(rows.slice(middle));
  }

  #dropOverdue(rows: Row[]): Row[] {
    const now = this.#options.nowMs();
    return rows.filter((row) => {
      if (now < row.deadlineMs) return true;
      row.reject(new LedgerError("unreachable", row.firstSentMs !== undefined));
      return false;
    });
  }

  /** Hands out the answers; returns the rows that have to come again. */
  #answer(rows: Row[], output: BatchOutput): Row[] {
    const again: Row[] = [];
    let ask = 0;
    let finish = 0;
    for (const row of rows) {
      const result = "ask" in row.work ? output.reserved[ask++] : output.finished[finish++];
      const busy = result !== undefined && ("code" in result ? result.code === "busy" : result.outcome === "busy");
      if (result === undefined) row.reject(new LedgerError("bad_row", true));
      else if (!busy) row.resolve({ result, firstSentMs: row.firstSentMs ?? 0 });
      else if (this.#onBusy) this.#onBusy(row);
      else again.push(row);
    }
    return again;
  }

  /** One attempt. A server that stays silent would be waited for without end: then the connection is thrown away. */
  async #send(rows: Row[]): Promise<BatchOutput> {
    const { databaseUrl, dbPrepare, leaseSeconds, nowMs, timeoutMs } = this.#options;
    // A row that was sent before may have been committed then, its reply lost: the ledger looks for it first.
    const retry = rows.some((row) => row.firstSentMs !== undefined);
    const sentMs = nowMs();
    for (const row of rows) row.firstSentMs ??= sentMs;
    this.#connection ??= connect({ databaseUrl, dbPrepare, fetchTypes: false }, 1);
    const connection = this.#connection;
    const asks: Ask[] = [];
    const finishes: Finish[] = [];
    for (const { work } of rows) "ask" in work ? asks.push(work.ask) : finishes.push(work.finish);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        this.#connection = undefined;
        // Not waited for: it may never answer. Its rows come again with the same ids.
        connection.end({ timeout: 0 }).catch(() => {});
        reject(new SilentServer());
      }, timeoutMs / 2);
    });
    try {
      return await Promise.race([
        runBatch(connection, dbPrepare, { asks, finishes, wait: this.#wait, retry, leaseSeconds }),
        silence,
      ]);
    } finally {
      clearTimeout(timer);
    }
  }
}

class SilentServer extends Error {
  readonly code = "08SLN";
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
