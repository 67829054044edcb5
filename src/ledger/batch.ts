import { setTimeout as sleep } from "node:timers/promises";
import { connect, isOfValues, isPassing, LOCK_NOT_AVAILABLE, READ_ONLY, type Sql, sqlState } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import { within } from "../platform/time_limit.ts";
import type { Escrow } from "./escrow.ts";
import type { Hold, LaneName } from "./ledger.ts";
import {
  type BatchInput,
  type BatchOutput,
  type Draw,
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
 *
 * A batch draws for every account that has a request in it, and for those whose escrow wants a draw (escrow.ts).
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
/** Each attempt on a read-only server needs a new connection. */
const READ_ONLY_DELAY_MS = 200;
/** How long a request waits for a recall before it asks again; the last one repeats. */
const RECALL_DELAYS_MS = [1, 4, 8, 16, 32, 50];
/** How often the timer runs. It rejects rows past their deadline, ends attempts that get no answer, and starts another lane if a batch takes this long. */
const LOOK_EVERY_MS = 50;

/** A row without an answer. */
export class LedgerError extends Error {
  override readonly name = "LedgerError";
  /** A row may have been committed although it failed, unless `full`. */
  readonly kind: "full" | "unreachable" | "bad_row" | "closed";

  constructor(kind: LedgerError["kind"], cause?: unknown) {
    super(`ledger: ${kind}`, { cause });
    this.kind = kind;
  }
}

/** A hold, or the database's refusal. */
export type Reserved = { hold: Hold } | { refused: ReserveResult };

export type Batcher = {
  reserve(request: ReserveRequest): Promise<Reserved>;
  finish(finish: Finish): Promise<FinishResult>;
  /** Draws for an account, though no request asks for it. Rejects as the others do. */
  draw(accountId: number): Promise<void>;
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
  escrow: Escrow;
  /** At most one part in this many of what is left is drawn ahead. */
  share: () => number;
  /** Takes the lease anew, after the database said that it has ended. */
  renewLease: () => Promise<void>;
  log: Log;
  nowMs: () => number;
  /** The machine's clock: the database refuses requests of one that is far off. */
  wallMs: () => number;
  /** Called for each batch. */
  onBatch?: (lane: LaneName, rows: number) => void;
  /** Called when a request waits for what lies unused in escrows of the account. */
  onRecall?: (accountId: number) => void;
};

type Work = { reserve: ReserveRequest } | { finish: Finish } | { draw: true };
type Result = Reserved | FinishResult | undefined;

/** One reservation, one end of a hold, or one draw, and the promise of its answer. */
class Row {
  readonly accountId: number;
  readonly work: Work;
  readonly deadlineMs: number;
  /** How often it found that it has to wait for a recall. */
  recalls = 0;
  /** It has its answer, or was rejected. */
  over = false;
  readonly #open: Set<Row>;
  readonly #waiting: PromiseWithResolvers<Result>;

  /** Stays in `open` until it is over. */
  constructor(accountId: number, work: Work, { deadlineMs, open }: { deadlineMs: number; open: Set<Row> }) {
    this.accountId = accountId;
    this.work = work;
    this.deadlineMs = deadlineMs;
    this.#open = open;
    this.#waiting = Promise.withResolvers();
    open.add(this);
  }

  get answer(): Promise<Result> {
    return this.#waiting.promise;
  }

  resolve(result: Result): void {
    this.#end();
    this.#waiting.resolve(result);
  }

  reject(error: LedgerError): void {
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
  const shared = {
    underWay: new Set<number>(),
    onDone: () => {
      for (const queue of queues) queue.recount();
    },
    onRecall: (row: Row) => {
      options.escrow.recall(row.accountId);
      options.onRecall?.(row.accountId);
      const delayMs = RECALL_DELAYS_MS[Math.min(row.recalls++, RECALL_DELAYS_MS.length - 1)];
      setTimeout(() => free.add(row), delayMs);
    },
  };
  const held: Queue = new Queue(options, { ...shared, name: "held", lanes: 1, waits: true, onHeld });
  const waiting: Queue = new Queue(options, { ...shared, name: "waiting", lanes: WAITING_LANES, waits: true, onHeld });
  const onBusy = (row: Row) => {
    const isHeld = nowMs() < (heldUntilMs.get(row.accountId) ?? 0);
    (isHeld ? held : waiting).add(row);
  };
  const free: Queue = new Queue(options, { ...shared, name: "free", lanes: options.lanes, waits: false, onBusy });
  /** Rows of locked accounts move from one queue to the next. */
  const queues = [free, waiting, held];

  function submit<R extends Result>(accountId: number, work: Work): Promise<R> {
    if (closed) return Promise.reject(new LedgerError("closed"));
    // A settlement is never rejected here: the client has been served.
    if (open.size >= queueMax && "reserve" in work) return Promise.reject(new LedgerError("full"));
    const row = new Row(accountId, work, { deadlineMs: nowMs() + timeoutMs, open });
    free.add(row);
    return row.answer as Promise<R>;
  }

  const timer = setInterval(() => {
    giveUp(open, nowMs());
    for (const queue of queues) queue.look();
  }, LOOK_EVERY_MS);

  return {
    reserve: (request) => submit<Reserved>(request.accountId, { reserve: request }),
    finish: (finish) => submit<FinishResult>(finish.accountId, { finish }),
    draw: async (accountId) => void (await submit(accountId, { draw: true })),
    depth: () => open.size,
    waiting: () => ({ free: free.depth, waiting: waiting.depth, held: held.depth }),
    async close() {
      closed = true;
      // In this order: rows move from each queue to the next, and after a recall back to the first one.
      for (;;) {
        for (const queue of queues) await queue.idle();
        if (open.size === 0) break;
        await sleep(RETRY_DELAY_MS);
      }
      clearInterval(timer);
      await Promise.all(queues.map((queue) => queue.end()));
    },
    abandon() {
      closed = true;
      clearInterval(timer);
      for (const row of open) row.reject(new LedgerError("closed"));
    },
  };
}

/** Rejects late rows, also while an attempt is in flight. If that grants a reservation, the next draw gives it back. */
function giveUp(open: ReadonlySet<Row>, nowMs: number): void {
  for (const row of open) {
    if (nowMs < row.deadlineMs) break; // All have the same time limit: later rows have later deadlines.
    row.reject(new LedgerError("unreachable"));
  }
}

/**
 * `onBusy` takes the rows of locked accounts, `onHeld` those whose lock timed out, `onRecall` those that wait for what lies unused
 * in an escrow.
 */
type QueueOptions = {
  name: LaneName;
  lanes: number;
  waits: boolean;
  underWay: Set<number>;
  onDone: () => void;
  onBusy?: OnRow;
  onHeld?: OnRow;
  onRecall: OnRow;
};

/**
 * Rows, and the lanes that send them. An account is in one batch at a time, over all queues: a second batch would find it locked, and
 * a second draw would not know what the first one brought.
 */
class Queue {
  readonly #nowMs: () => number;
  readonly #name: LaneName;
  readonly #onBatch: BatcherOptions["onBatch"];
  readonly #escrow: Escrow;
  readonly #accountsMax: number;
  /** How many sendable rows start a second lane. */
  readonly #rowsWorth: number;
  readonly #lanes: Lane[];
  readonly #idle: Lane[];
  readonly #runs = new Set<Promise<void>>();
  #rows: Row[] = [];
  /** The accounts of the batches in flight, of all queues. */
  readonly #underWay: Set<number>;
  /** Called when accounts are no longer under way. */
  readonly #onDone: () => void;
  /** How many queued rows are of other accounts, and so can be sent. */
  #ready = 0;
  /** A lane is about to take the next batch. */
  #taking = false;
  #tookMs = 0;

  constructor(options: BatcherOptions, { name, lanes, waits, underWay, onDone, ...others }: QueueOptions) {
    this.#underWay = underWay;
    this.#onDone = onDone;
    this.#nowMs = options.nowMs;
    this.#name = name;
    this.#onBatch = options.onBatch;
    this.#escrow = options.escrow;
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

  /** Called when accounts are no longer under way: rows may have become sendable. */
  recount(): void {
    this.#count();
    if (!this.#taking && this.#idle.length > 0 && this.#isWorthABatch(this.#busy)) this.#begin();
  }

  /** Called by the timer. Starts another lane when a batch in flight takes long. */
  look(): void {
    for (const lane of this.#lanes) lane.look();
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
      if (rows.length > 0) this.#onBatch?.(this.#name, rows.length);
      await lane.carry(rows);
      for (const { accountId } of rows) this.#underWay.delete(accountId);
      this.#onDone();
    } while (this.#isWorthABatch(this.#busy - 1));
    this.#idle.push(lane);
  }

  /** Takes the next batch, in arrival order. */
  #take(): Row[] {
    const accounts = new Set<number>();
    const taken: Row[] = [];
    const left: Row[] = [];
    for (const row of this.#rows) {
      if (row.over || this.#isGranted(row)) continue;
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

  /** A draw since the row was queued may have brought what it needs. */
  #isGranted(row: Row): boolean {
    const hold = "reserve" in row.work ? this.#escrow.grant(row.work.reserve) : undefined;
    if (hold) row.resolve({ hold });
    return hold !== undefined;
  }

  #count(): void {
    this.#ready = 0;
    for (const row of this.#rows) if (!this.#underWay.has(row.accountId)) this.#ready++;
  }
}

type LaneOptions = Pick<QueueOptions, "waits" | "onBusy" | "onHeld" | "onRecall">;

/** A connection that sends batches. */
class Lane {
  readonly #options: BatcherOptions;
  readonly #wait: boolean;
  readonly #onBusy: OnRow | undefined;
  readonly #onHeld: OnRow | undefined;
  readonly #onRecall: OnRow;
  #connection: Sql | undefined;
  /** The attempt in flight: until when its answer is awaited, and what ends the wait. */
  #attemptInFlight: { untilMs: number; fail: (error: SilentServer) => void } | undefined;

  constructor(options: BatcherOptions, { waits, onBusy, onHeld, onRecall }: LaneOptions) {
    this.#options = options;
    this.#wait = waits;
    this.#onBusy = onBusy;
    this.#onHeld = onHeld;
    this.#onRecall = onRecall;
  }

  async end(): Promise<void> {
    await this.#connection?.end({ timeout: 1 });
  }

  /** Called by the timer: the server does not answer. */
  look(): void {
    if (this.#attemptInFlight === undefined || this.#options.nowMs() < this.#attemptInFlight.untilMs) return;
    this.#disconnect();
    this.#attemptInFlight.fail(new SilentServer());
  }

  /** Sends the rows until each has an answer. Ends of holds may be sent twice; draws are numbered. So a lost reply does no harm. */
  async carry(rows: Row[]): Promise<void> {
    const { log } = this.#options;
    let pending = rows;
    for (;;) {
      pending = pending.filter((row) => !row.over);
      if (pending.length === 0) return;
      try {
        pending = await this.#attempt(pending);
      } catch (error) {
        const state = sqlState(error);
        if (!isPassing(error)) return this.#split(pending, error);
        log.warn({ state, rows: pending.length }, "the ledger sends a batch again");
        if (state === LOCK_NOT_AVAILABLE && this.#onHeld) return pending.forEach(this.#onHeld);
        if (state === READ_ONLY) this.#disconnect();
        await sleep(state === READ_ONLY ? READ_ONLY_DELAY_MS : RETRY_DELAY_MS);
      }
    }
  }

  /** The next attempt uses a new connection. */
  #disconnect(): void {
    if (this.#connection) drop(this.#connection);
    this.#connection = undefined;
  }

  /**
   * One bad row must not fail its batch: halves the batch until the row is alone. The end of a hold is bad only if the database rejects
   * its values. With any other error, as of a damaged page or a missing permission, it can succeed later, and goes to the spool.
   */
  async #split(rows: Row[], error: unknown): Promise<void> {
    const [row] = rows;
    if (rows.length === 1 && row !== undefined) {
      this.#options.log.error({ err: error }, "the database rejected a row of the ledger");
      const canSucceed = "finish" in row.work && !isOfValues(error);
      return row.reject(new LedgerError(canSucceed ? "unreachable" : "bad_row", error));
    }
    const middle = Math.ceil(rows.length / 2);
    await this.carry(rows.slice(0, middle));
    await this.carry(rows.slice(middle));
  }

  /** Sends the rows once. Returns those that must be sent again. */
  async #attempt(rows: Row[]): Promise<Row[]> {
    const { escrow, nowMs } = this.#options;
    if (!escrow.isLeased()) await this.#renewLease(rows);
    const sentMs = nowMs();
    const input = this.#inputOf(rows);
    let output: BatchOutput;
    try {
      output = await this.#send(rows, input);
    } catch (error) {
      for (const draw of input.draws) escrow.lost(draw);
      throw error;
    }
    const { leaseId } = input;
    const isTimely = escrow.isTimely({ leaseId, sentMs, sentUnixMs: input.nowUnixMs });
    for (const [i, draw] of input.draws.entries()) {
      const result = output.drawn[i];
      if (result && isTimely) escrow.drawn(draw, result, { sentMs, leaseId });
      else escrow.lost(draw);
    }
    const again = this.#answer(rows, output, isTimely);
    if (output.drawn.some((result) => result?.code === "lease_ended")) {
      escrow.leaseEnded(leaseId);
      await this.#renewLease(rows);
    }
    return again;
  }

  /** The pool may wait for a silent server without end. A lane must not: a ledger that closes waits for its lanes. */
  async #renewLease(rows: readonly Row[]): Promise<void> {
    await within(this.#patienceMs(rows), this.#options.renewLease(), () => new SilentServer());
  }

  /** How long an attempt may wait for the server: at the latest until its last row is rejected. */
  #patienceMs(rows: readonly Row[]): number {
    const { nowMs, timeoutMs } = this.#options;
    const lastMs = Math.max(...rows.map((row) => row.deadlineMs)) - nowMs();
    return Math.min(timeoutMs / 2, Math.max(lastMs, LOOK_EVERY_MS));
  }

  /** What the rows send, and the draws that go with them. */
  #inputOf(rows: readonly Row[]): BatchInput {
    const { escrow, share, wallMs } = this.#options;
    const reserves: ReserveRequest[] = [];
    const finishes: Finish[] = [];
    const tenants = new Map<number, number>();
    for (const { accountId, work } of rows) {
      if ("reserve" in work) {
        reserves.push(work.reserve);
        tenants.set(accountId, work.reserve.tenantId);
      } else if ("finish" in work) {
        finishes.push(work.finish);
        if (!tenants.has(accountId) && escrow.wantsDraw(accountId)) tenants.set(accountId, escrow.tenantOf(accountId));
      } else if (!tenants.has(accountId)) tenants.set(accountId, escrow.tenantOf(accountId));
    }
    const ending = Map.groupBy(finishes, (finish) => finish.accountId);
    const draws: Draw[] = [];
    for (const [accountId, tenantId] of tenants)
      draws.push(escrow.compose(accountId, tenantId, ending.get(accountId) ?? []));
    const idles = finishes.map((finish) => escrow.idleOf(finish));
    const { leaseId } = escrow;
    return { finishes, idles, draws, reserves, leaseId, share: share(), nowUnixMs: wallMs(), wait: this.#wait };
  }

  /** Resolves the rows. Returns those that must be sent again. */
  #answer(rows: Row[], output: BatchOutput, isTimely: boolean): Row[] {
    const { escrow } = this.#options;
    const again: Row[] = [];
    let reserve = 0;
    let finish = 0;
    for (const row of rows) {
      if ("reserve" in row.work) {
        const result = output.reserved[reserve++];
        if (row.over && result?.code === null) escrow.unwanted(row.accountId);
        if (!row.over) this.#answerReserve(row, { request: row.work.reserve, result, isTimely, again });
      } else if ("finish" in row.work) {
        const result = output.finished[finish++];
        if (row.over) continue; // It is in the spool, and will be sent again.
        if (result?.outcome === "busy") this.#passOn(row, again);
        else if (result?.outcome === "recall") this.#onRecall(row);
        else if (result === undefined) row.reject(new LedgerError("bad_row"));
        else {
          // `already`: the answer of the attempt that ended it was lost, and a draw since then may have counted it.
          escrow.ended(row.work.finish, result.outcome === "gone" || result.outcome === "already");
          row.resolve(result);
        }
      } else if (!row.over) row.resolve(undefined);
    }
    return again;
  }

  #answerReserve(
    row: Row,
    {
      request,
      result,
      isTimely,
      again,
    }: {
      request: ReserveRequest;
      result: ReserveResult | undefined;
      isTimely: boolean;
      again: Row[];
    },
  ): void {
    if (result === undefined) row.reject(new LedgerError("bad_row"));
    // Handled too late, what was granted may be somebody else's by now: the next draw gives it back, and asks again.
    else if (result.code === null && !isTimely) again.push(row);
    else if (result.code === null) row.resolve({ hold: this.#options.escrow.granted(request, result) });
    else if (result.code === "busy") this.#passOn(row, again);
    else if (result.code === "recall") this.#onRecall(row);
    else if (result.code === "lease_ended" || result.code === "stale") again.push(row);
    else row.resolve({ refused: result });
  }

  /** A row of a locked account. */
  #passOn(row: Row, again: Row[]): void {
    if (this.#onBusy) this.#onBusy(row);
    else again.push(row);
  }

  /** One attempt. If the server does not answer in time, the next attempt uses a new connection. */
  async #send(rows: readonly Row[], input: BatchInput): Promise<BatchOutput> {
    const { databaseUrl, dbPrepare, nowMs } = this.#options;
    this.#connection ??= connect({ databaseUrl, dbPrepare, fetchTypes: false }, 1);
    const output = runBatch(this.#connection, dbPrepare, input);
    try {
      // No timer of its own: there may be thousands of batches a second.
      return await new Promise<BatchOutput>((resolve, fail) => {
        this.#attemptInFlight = { untilMs: nowMs() + this.#patienceMs(rows), fail };
        output.then(resolve, fail);
      });
    } finally {
      this.#attemptInFlight = undefined;
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
