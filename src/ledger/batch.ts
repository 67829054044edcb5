import { connect, isPassing, type Sql, sqlState } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import {
  type BatchOutput,
  type Finish,
  type FinishResult,
  type ReserveRequest,
  type ReserveResult,
  runBatch,
} from "./ledger_store.ts";

/**
 * Group commit. While a batch is in flight, new rows queue; the next batch takes all of them: one round trip, one commit.
 * There is no timer: an idle queue sends immediately, a busy one forms batches by itself.
 *
 * A lane is a connection that sends one batch at a time. Usually one lane sends everything, because a batch is expensive and
 * each further row of it is almost free. More lanes start when enough rows wait, or when a batch takes long.
 * Rows of a locked account move to the `waiting` lanes, so that they delay no other account. Rows of an account that stays
 * locked move on to the `held` lane.
 */

/** Limits of a batch: Postgres' lock table is finite, and a batch must be short. */
const ACCOUNTS_MAX = 128;
const ROWS_MAX = 512;
/** A second lane starts when this many rows wait. */
const ROWS_WORTH_A_LANE = 16;
const WAITING_LANES = 2;
/** After a lock timeout, the rows of the account go to the `held` lane for this long. */
const HELD_MS = 10_000;
/** How many such accounts are remembered. */
const HELD_MAX = 1_000;
const RETRY_DELAY_MS = 25;
/** How often the timer runs. It rejects rows past their deadline, and starts another lane if a batch takes this long. */
const LOOK_EVERY_MS = 50;
/** SQLSTATE of a lock timeout. */
const LOCK_NOT_AVAILABLE = "55P03";

/**
 * The queues: `free` for accounts that nobody has locked, `waiting` for accounts that are locked, `held` for
 * accounts that stay locked. The values are a metrics label.
 */
export type LaneName = "free" | "waiting" | "held";

/** A row without an answer. */
export class LedgerError extends Error {
  override readonly name = "LedgerError";
  readonly kind: "full" | "unreachable" | "bad_row" | "closed";
  /** The row was sent: it may have been committed. */
  readonly sent: boolean;

  constructor(kind: LedgerError["kind"], sent: boolean, cause?: unknown) {
    super(`ledger: ${kind}`, { cause });
    this.kind = kind;
    this.sent = sent;
  }
}

/** `firstSentMs`: when the row was first sent, by the monotonic clock. Its lease counts from then. */
export type Answer<R> = { result: R; firstSentMs: number };

export type Batcher = {
  reserve(request: ReserveRequest): Promise<Answer<ReserveResult>>;
  finish(finish: Finish): Promise<Answer<FinishResult>>;
  /** Rows waiting or in flight. */
  depth(): number;
  /** Rows waiting, by lane. */
  waiting(): Record<LaneName, number>;
  /** Rejects new rows and waits for those in flight. */
  close(): Promise<void>;
  /** Rejects new rows and all others. */
  abandon(): void;
};

type BatcherOptions = {
  databaseUrl: string;
  dbPrepare: boolean;
  /** Concurrent batches at most, not counting those that wait for a lock. */
  lanes: number;
  queueMax: number;
  /** The longest time from submission to answer. One attempt may take half of it. */
  timeoutMs: number;
  leaseSeconds: number;
  log: Log;
  nowMs: () => number;
  /** Called for each batch. */
  onBatch?: (lane: LaneName, rows: number) => void;
  /** Called for each grant whose answer arrived after its row was rejected. */
  onUnwanted?: (request: ReserveRequest) => void;
};

type Work = { reserve: ReserveRequest } | { finish: Finish };
type AnyAnswer = Answer<ReserveResult | FinishResult>;

/** One reservation or one end of a hold, and the promise of its answer. */
class Row {
  readonly accountId: number;
  readonly work: Work;
  readonly deadlineMs: number;
  firstSentMs: number | undefined;
  /** It has its answer, or was rejected. */
  over = false;
  givenUp = false;
  readonly #open: Set<Row>;
  readonly #waiting: PromiseWithResolvers<AnyAnswer>;

  /** Stays in `open` until it is over. */
  constructor(accountId: number, work: Work, { deadlineMs, open }: { deadlineMs: number; open: Set<Row> }) {
    this.accountId = accountId;
    this.work = work;
    this.deadlineMs = deadlineMs;
    this.#open = open;
    this.#waiting = Promise.withResolvers();
    open.add(this);
  }

  get answer(): Promise<AnyAnswer> {
    return this.#waiting.promise;
  }

  resolve(answer: AnyAnswer): void {
    this.#end();
    this.#waiting.resolve(answer);
  }

  reject(error: LedgerError): void {
    this.givenUp = true;
    this.#end();
    this.#waiting.reject(error);
  }

  #end(): void {
    this.over = true;
    this.#open.delete(this);
  }
}

type OnRow = (row: Row) => void;

/** Opens the lanes. Each connects on first use. */
export function openBatcher(options: BatcherOptions): Batcher {
  const { nowMs, queueMax, timeoutMs } = options;
  const open = new Set<Row>();
  let closed = false;
  const heldUntilMs = new Map<number, number>();
  const onHeld = (row: Row) => {
    if (heldUntilMs.size >= HELD_MAX) heldUntilMs.clear();
    heldUntilMs.set(row.accountId, nowMs() + HELD_MS);
    held.add(row);
  };
  const held: Queue = new Queue(options, { name: "held", lanes: 1, waits: true, onHeld });
  const waiting = new Queue(options, { name: "waiting", lanes: WAITING_LANES, waits: true, onHeld });
  const onBusy = (row: Row) => {
    const isHeld = nowMs() < (heldUntilMs.get(row.accountId) ?? 0);
    (isHeld ? held : waiting).add(row);
  };
  const free = new Queue(options, { name: "free", lanes: options.lanes, waits: false, onBusy });
  /** Rows move from one queue to a later one, never back. */
  const queues = [free, waiting, held];

  function submit<R extends ReserveResult | FinishResult>(accountId: number, work: Work): Promise<Answer<R>> {
    if (closed) return Promise.reject(new LedgerError("closed", false));
    // A settlement is never rejected here: the client has been served.
    if (open.size >= queueMax && "reserve" in work) return Promise.reject(new LedgerError("full", false));
    const row = new Row(accountId, work, { deadlineMs: nowMs() + timeoutMs, open });
    free.add(row);
    return row.answer as Promise<Answer<R>>;
  }

  const timer = setInterval(() => {
    giveUp();
    for (const queue of queues) queue.look();
  }, LOOK_EVERY_MS);

  // Rows are rejected on time even while an attempt is in flight. If that grants a reservation, `onUnwanted` is called.
  function giveUp(): void {
    const now = nowMs();
    for (const row of open) {
      if (now < row.deadlineMs) break; // All have the same time limit: later rows have later deadlines.
      row.reject(new LedgerError("unreachable", row.firstSentMs !== undefined));
    }
  }

  return {
    reserve: (request) => submit<ReserveResult>(request.accountId, { reserve: request }),
    finish: (finish) => submit<FinishResult>(finish.accountId, { finish }),
    depth: () => open.size,
    waiting: () => ({ free: free.depth, waiting: waiting.depth, held: held.depth }),
    async close() {
      closed = true;
      // In this order: rows move from each queue to the next.
      for (const queue of queues) await queue.idle();
      clearInterval(timer);
      await Promise.all(queues.map((queue) => queue.end()));
    },
    abandon() {
      closed = true;
      clearInterval(timer);
      for (const row of open) row.reject(new LedgerError("closed", true));
    },
  };
}

/** `onBusy` takes the rows of locked accounts, `onHeld` those whose lock timed out. */
type QueueOptions = { name: LaneName; lanes: number; waits: boolean; onBusy?: OnRow; onHeld?: OnRow };

/** Rows, and the lanes that send them. An account is in one batch at a time: a second batch would find it locked. */
class Queue {
  readonly #nowMs: () => number;
  readonly #name: LaneName;
  readonly #onBatch: BatcherOptions["onBatch"];
  readonly #accountsMax: number;
  /** How many sendable rows start a second lane. */
  readonly #rowsWorth: number;
  readonly #lanes: Lane[];
  readonly #idle: Lane[];
  readonly #runs = new Set<Promise<void>>();
  #rows: Row[] = [];
  /** The accounts of the batches in flight. */
  readonly #underWay = new Set<number>();
  /** How many queued rows are of other accounts, and so can be sent. */
  #ready = 0;
  /** A lane is about to take the next batch. */
  #taking = false;
  #tookMs = 0;

  constructor(options: BatcherOptions, { name, lanes, waits, ...others }: QueueOptions) {
    this.#nowMs = options.nowMs;
    this.#name = name;
    this.#onBatch = options.onBatch;
    // A batch that waits for locks has one account, so that no account waits for another's lock.
    this.#accountsMax = waits ? 1 : ACCOUNTS_MAX;
    this.#rowsWorth = waits ? 1 : ROWS_WORTH_A_LANE;
    this.#lanes = Array.from({ length: lanes }, () => new Lane(options, { waits, ...others }));
    this.#idle = [...this.#lanes];
  }

  add(row: Row): void {
    this.#rows.push(row);
    if (!this.#underWay.has(row.accountId)) this.#ready++;
    if (!this.#taking && this.#isWorthABatch(this.#busy)) this.#begin();
  }

  /** Queued rows, including those that were rejected meanwhile. */
  get depth(): number {
    return this.#rows.length;
  }

  /** Called by the timer. Starts another lane when a batch in flight takes long. */
  look(): void {
    if (this.#ready > 0 && !this.#taking && this.#nowMs() - this.#tookMs >= LOOK_EVERY_MS) this.#begin();
  }

  /** Resolves when no row is queued or in flight. */
  async idle(): Promise<void> {
    while (this.#runs.size > 0) await Promise.all(this.#runs);
  }

  async end(): Promise<void> {
    await Promise.all(this.#lanes.map((lane) => lane.end()));
  }

  /** Lanes with a batch in flight. */
  get #busy(): number {
    return this.#lanes.length - this.#idle.length;
  }

  #isWorthABatch(others: number): boolean {
    return this.#ready >= (others === 0 ? 1 : this.#rowsWorth);
  }

  #begin(): void {
    const lane = this.#idle.pop();
    if (lane === undefined) return;
    this.#taking = true;
    const run = this.#run(lane).finally(() => this.#runs.delete(run));
    this.#runs.add(run);
  }

  async #run(lane: Lane): Promise<void> {
    // The batch includes all rows that arrive in this turn of the event loop.
    do {
      await new Promise<void>(setImmediate);
      const rows = this.#take();
      this.#onBatch?.(this.#name, rows.length);
      await lane.carry(rows);
      for (const { accountId } of rows) this.#underWay.delete(accountId);
      this.#count();
    } while (this.#isWorthABatch(this.#busy - 1));
    this.#idle.push(lane);
  }

  /** Takes the next batch, in arrival order. */
  #take(): Row[] {
    const accounts = new Set<number>();
    const taken: Row[] = [];
    const left: Row[] = [];
    for (const row of this.#rows) {
      if (row.over) continue;
      const { accountId } = row;
      const isKnown = accounts.has(accountId);
      const fits =
        taken.length < ROWS_MAX && (isKnown || (accounts.size < this.#accountsMax && !this.#underWay.has(accountId)));
      if (fits && !isKnown) accounts.add(accountId);
      (fits ? taken : left).push(row);
    }
    for (const accountId of accounts) this.#underWay.add(accountId);
    this.#rows = left;
    this.#tookMs = this.#nowMs();
    this.#taking = false;
    this.#count();
    // There may be enough rows for another batch.
    if (this.#isWorthABatch(this.#busy)) this.#begin();
    return taken;
  }

  #count(): void {
    this.#ready = 0;
    for (const row of this.#rows) if (!this.#underWay.has(row.accountId)) this.#ready++;
  }
}

/** A connection that sends batches. */
class Lane {
  readonly #options: BatcherOptions;
  readonly #wait: boolean;
  readonly #onBusy: OnRow | undefined;
  readonly #onHeld: OnRow | undefined;
  #connection: Sql | undefined;
  /** Drops the former connection, if there is one whose answer may still arrive. */
  #stopListening: (() => void) | undefined;

  constructor(options: BatcherOptions, { waits, onBusy, onHeld }: Omit<QueueOptions, "name" | "lanes">) {
    this.#options = options;
    this.#wait = waits;
    this.#onBusy = onBusy;
    this.#onHeld = onHeld;
  }

  async end(): Promise<void> {
    this.#stopListening?.();
    await this.#connection?.end({ timeout: 1 });
  }

  /** Sends the rows until each has an answer. Every attempt has the same ids, so a lost reply does no harm. */
  async carry(rows: Row[]): Promise<void> {
    const { log } = this.#options;
    let pending = rows;
    for (;;) {
      pending = pending.filter((row) => !row.over);
      if (pending.length === 0) return;
      try {
        pending = this.#answer(pending, await this.#send(pending));
      } catch (error) {
        const state = sqlState(error);
        if (state.startsWith("22") || state.startsWith("23")) return this.#split(pending, error);
        if (!isPassing(error)) {
          log.error({ err: error, rows: pending.length }, "ledger batch failed");
          // This attempt or an earlier one may have been committed.
          for (const row of pending) row.reject(new LedgerError("bad_row", true, error));
          return;
        }
        log.warn({ state, rows: pending.length }, "the ledger sends a batch again");
        if (state === LOCK_NOT_AVAILABLE && this.#onHeld) return pending.forEach(this.#onHeld);
        await sleep(RETRY_DELAY_MS);
      }
    }
  }

  /** One bad row must not fail its batch: halves the batch until the row is alone. */
  async #split(rows: Row[], error: unknown): Promise<void> {
    if (rows.length === 1) {
      this.#options.log.error({ err: error }, "the database rejected a row of the ledger");
      rows[0]?.reject(new LedgerError("bad_row", false, error));
      return;
    }
    const middle = Math.ceil(rows.length / 2);
    await this.carry(rows.slice(0, middle));
    await this.carry(rows.slice(middle));
  }

  /** Resolves the rows. Returns those that must be sent again. */
  #answer(rows: Row[], output: BatchOutput): Row[] {
    const again: Row[] = [];
    let reserve = 0;
    let finish = 0;
    for (const row of rows) {
      const result = "reserve" in row.work ? output.reserved[reserve++] : output.finished[finish++];
      if (row.over) {
        this.#reportUnwanted(row, result);
        continue;
      }
      const busy = result !== undefined && ("code" in result ? result.code === "busy" : result.outcome === "busy");
      if (result === undefined) row.reject(new LedgerError("bad_row", true));
      else if (!busy) row.resolve({ result, firstSentMs: row.firstSentMs ?? 0 });
      else if (this.#onBusy) this.#onBusy(row);
      else again.push(row);
    }
    return again;
  }

  #reportUnwanted({ givenUp, work }: Row, result: ReserveResult | FinishResult | undefined): void {
    const granted = result !== undefined && "mode" in result && result.mode !== null;
    if (givenUp && granted && "reserve" in work) this.#options.onUnwanted?.(work.reserve);
  }

  /**
   * Keeps listening to a connection that did not answer in time: a server that paused commits the batch when it resumes. Only
   * to the first one of an outage: connections that were opened during it have delivered no batch to the server.
   */
  #listen(connection: Sql, rows: Row[], answering: Promise<BatchOutput>): void {
    if (this.#stopListening !== undefined) {
      drop(connection);
      return;
    }
    const stop = () => {
      clearTimeout(timer);
      if (this.#stopListening === stop) this.#stopListening = undefined;
      drop(connection);
    };
    // A hold does not live longer than its lease.
    const timer = setTimeout(stop, this.#options.leaseSeconds * 1000);
    this.#stopListening = stop;
    const reserving = rows.filter(({ work }) => "reserve" in work);
    const reportLate = ({ reserved }: BatchOutput) => {
      for (const [i, row] of reserving.entries()) this.#reportUnwanted(row, reserved[i]);
    };
    // Without an answer the reaper releases the holds.
    answering.then(reportLate, () => {}).finally(stop);
  }

  /** One attempt. If the server does not answer in time, the next attempt uses a new connection. */
  async #send(rows: Row[]): Promise<BatchOutput> {
    const { databaseUrl, dbPrepare, leaseSeconds, nowMs, timeoutMs } = this.#options;
    // A row that was sent before may have been committed: `ledger_reserve` then looks for it first.
    const retry = rows.some((row) => row.firstSentMs !== undefined);
    const sentMs = nowMs();
    for (const row of rows) row.firstSentMs ??= sentMs;
    this.#connection ??= connect({ databaseUrl, dbPrepare, fetchTypes: false }, 1);
    const connection = this.#connection;
    const reserves: ReserveRequest[] = [];
    const finishes: Finish[] = [];
    for (const { work } of rows) "reserve" in work ? reserves.push(work.reserve) : finishes.push(work.finish);
    // The attempt ends at the latest when its last row is rejected.
    const lastMs = Math.max(...rows.map((row) => row.deadlineMs)) - sentMs;
    const patienceMs = Math.min(timeoutMs / 2, Math.max(lastMs, LOOK_EVERY_MS));
    let timer: ReturnType<typeof setTimeout> | undefined;
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        this.#connection = undefined;
        // Do not wait for it. Its rows are sent again with the same ids.
        this.#listen(connection, rows, answering);
        reject(new SilentServer());
      }, patienceMs);
    });
    const answering = runBatch(connection, dbPrepare, { reserves, finishes, wait: this.#wait, retry, leaseSeconds });
    try {
      return await Promise.race([answering, silence]);
    } finally {
      clearTimeout(timer);
    }
  }
}

/** Closes a connection without waiting for its server. Its queries fail. */
function drop(connection: Sql): void {
  connection.end({ timeout: 0 }).catch(() => {});
}

class SilentServer extends Error {
  readonly code = "08SLN";
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
