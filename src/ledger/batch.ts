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
 * Group commit. While a batch is in flight, new rows queue; the next batch takes them all: one round trip, one commit. No
 * timer: an idle queue sends at once, a busy one batches by itself. One lane carries what there is, alone while that is
 * little, since a batch costs much and a further row of it next to nothing; more lanes begin where enough waits to be worth a
 * commit of its own, or where the batch under way takes long. Rows of an account that somebody else has locked move to lanes
 * that wait, so that one contended account delays nobody; those of an account that stays locked move on to a lane of their
 * own, so that they do not keep the merely contended ones waiting either.
 */

/** The server's lock table is finite, and a batch should be short. */
const ACCOUNTS_MAX = 128;
const ROWS_MAX = 512;
/** So many rows are worth a batch of their own beside one that is under way. */
const ROWS_WORTH_A_LANE = 16;
const WAITING_LANES = 2;
/** An account whose lock was waited for in vain counts as held this long, and so many are remembered. */
const HELD_MS = 10_000;
const HELD_MAX = 1_000;
const RETRY_DELAY_MS = 25;
/** How often rows that waited too long are looked for, and from when on a batch under way counts as long. */
const LOOK_EVERY_MS = 50;
/** SQLSTATE of a lock that was waited for too long. */
const LOCK_NOT_AVAILABLE = "55P03";

/**
 * The queues: `free` for accounts that nobody has locked, `waiting` for accounts that are locked, `held` for
 * accounts that stay locked. The values are a metrics label.
 */
export type LaneName = "free" | "waiting" | "held";

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
  reserve(request: ReserveRequest): Promise<Answer<ReserveResult>>;
  finish(finish: Finish): Promise<Answer<FinishResult>>;
  /** Rows waiting or under way. */
  depth(): number;
  /** Rows that wait for a lane. */
  waiting(): Record<LaneName, number>;
  /** Waits for what is under way, refuses what comes. */
  close(): Promise<void>;
  /** Gives up on what is under way, and refuses what comes. */
  abandon(): void;
};

type BatcherOptions = {
  databaseUrl: string;
  dbPrepare: boolean;
  /** At most so many batches at once, beside those that wait for a lock. */
  lanes: number;
  queueMax: number;
  /** A row's whole wait, wherever it waits; one attempt may take half of it. */
  timeoutMs: number;
  leaseSeconds: number;
  log: Log;
  nowMs: () => number;
  /** Told of each batch. */
  onBatch?: (lane: LaneName, rows: number) => void;
  /** Told of each grant whose answer came after its row had been given up: nobody waits for it. */
  onUnwanted?: (request: ReserveRequest) => void;
};

type Work = { reserve: ReserveRequest } | { finish: Finish };
type AnyAnswer = Answer<ReserveResult | FinishResult>;

/** One ask or finish, and who waits for its answer. */
class Row {
  readonly accountId: number;
  readonly work: Work;
  readonly deadlineMs: number;
  firstSentMs: number | undefined;
  /** It has its answer, or was given up. */
  over = false;
  givenUp = false;
  readonly #open: Set<Row>;
  readonly #waiting: PromiseWithResolvers<AnyAnswer>;

  /** One of the `open` until it is over. */
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

/** Opens the lanes. Connections are made on first use. */
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
  /** A row moves from one to a later one, never back. */
  const queues = [free, waiting, held];

  function submit<R extends ReserveResult | FinishResult>(accountId: number, work: Work): Promise<Answer<R>> {
    if (closed) return Promise.reject(new LedgerError("closed", false));
    // A settlement is never turned away: what it pays for has been served.
    if (open.size >= queueMax && "reserve" in work) return Promise.reject(new LedgerError("full", false));
    const row = new Row(accountId, work, { deadlineMs: nowMs() + timeoutMs, open });
    free.add(row);
    return row.answer as Promise<Answer<R>>;
  }

  const timer = setInterval(() => {
    giveUp();
    for (const queue of queues) queue.look();
  }, LOOK_EVERY_MS);

  // A row is given up on time even while an attempt that carries it goes on: what that grants, `onUnwanted` is told.
  function giveUp(): void {
    const now = nowMs();
    for (const row of open) {
      if (now < row.deadlineMs) break; // All wait equally long: those behind it came later.
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
      // One after the other: what the first hands on, the next one has by then.
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

/** Who takes the rows of accounts that are busy, or whose lock was waited for in vain. */
type QueueOptions = { name: LaneName; lanes: number; waits: boolean; onBusy?: OnRow; onHeld?: OnRow };

/** Rows, and the lanes that carry them. An account is in one batch at a time: another would find it locked. */
class Queue {
  readonly #nowMs: () => number;
  readonly #name: LaneName;
  readonly #onBatch: BatcherOptions["onBatch"];
  readonly #accountsMax: number;
  /** So many rows that may go make another batch beside one that is under way. */
  readonly #rowsWorth: number;
  readonly #lanes: Lane[];
  readonly #idle: Lane[];
  readonly #runs = new Set<Promise<void>>();
  #rows: Row[] = [];
  /** The accounts of the batches under way. */
  readonly #underWay = new Set<number>();
  /** How many rows here are of other accounts. */
  #ready = 0;
  /** A lane is about to take what there is. */
  #taking = false;
  #tookMs = 0;

  constructor(options: BatcherOptions, { name, lanes, waits, ...others }: QueueOptions) {
    this.#nowMs = options.nowMs;
    this.#name = name;
    this.#onBatch = options.onBatch;
    // A batch that waits for locks takes one account, so that it waits for one.
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

  /** Rows that wait here, with those that have been given up since. */
  get depth(): number {
    return this.#rows.length;
  }

  /** Called every now and then: what is under way for long delays nobody else. */
  look(): void {
    if (this.#ready > 0 && !this.#taking && this.#nowMs() - this.#tookMs >= LOOK_EVERY_MS) this.#begin();
  }

  /** Resolves when nothing is queued or under way. */
  async idle(): Promise<void> {
    while (this.#runs.size > 0) await Promise.all(this.#runs);
  }

  async end(): Promise<void> {
    await Promise.all(this.#lanes.map((lane) => lane.end()));
  }

  /** Lanes with a batch under way. */
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
    // Lets everything that arrives in this turn of the event loop into the batch.
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

  /** The next batch, in arrival order. */
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
    // More than one batch may have come at once.
    if (this.#isWorthABatch(this.#busy)) this.#begin();
    return taken;
  }

  #count(): void {
    this.#ready = 0;
    for (const row of this.#rows) if (!this.#underWay.has(row.accountId)) this.#ready++;
  }
}

/** A connection, and how a batch goes over it. */
class Lane {
  readonly #options: BatcherOptions;
  readonly #wait: boolean;
  readonly #onBusy: OnRow | undefined;
  readonly #onHeld: OnRow | undefined;
  #connection: Sql | undefined;
  /** There is a former connection whose answer may still come: drops it. */
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

  /** Sends the rows until each has its answer. Same ids on every attempt, so that a lost reply changes nothing. */
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
          // An attempt before this one may have been committed, or this one, if it is its answer that nobody understood.
          for (const row of pending) row.reject(new LedgerError("bad_row", true, error));
          return;
        }
        log.warn({ state, rows: pending.length }, "ledger batch is sent again");
        if (state === LOCK_NOT_AVAILABLE && this.#onHeld) return pending.forEach(this.#onHeld);
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
    await this.carry(rows.slice(0, middle));
    await this.carry(rows.slice(middle));
  }

  /** Hands out the answers; returns the rows that have to come again. */
  #answer(rows: Row[], output: BatchOutput): Row[] {
    const again: Row[] = [];
    let reserve = 0;
    let finish = 0;
    for (const row of rows) {
      const result = "reserve" in row.work ? output.reserved[reserve++] : output.finished[finish++];
      if (row.over) {
        this.#tellUnwanted(row, result);
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

  #tellUnwanted({ givenUp, work }: Row, result: ReserveResult | FinishResult | undefined): void {
    const granted = result !== undefined && "mode" in result && result.mode !== null;
    if (givenUp && granted && "reserve" in work) this.#options.onUnwanted?.(work.reserve);
  }

  /**
   * Goes on listening to a connection that was given up on: a server that stood still commits what was sent on it when it goes
   * on. One connection at a time, the first of a silence: the later ones were opened during it, so the server has no batch of
   * theirs.
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
    // No longer than a grant lasts by itself.
    const timer = setTimeout(stop, this.#options.leaseSeconds * 1000);
    this.#stopListening = stop;
    const reserving = rows.filter(({ work }) => "reserve" in work);
    const tellLate = ({ reserved }: BatchOutput) => {
      for (const [i, row] of reserving.entries()) this.#tellUnwanted(row, reserved[i]);
    };
    // It may end without an answer, as when it is dropped: then the lease ends.
    answering.then(tellLate, () => {}).finally(stop);
  }

  /** One attempt. A server that stays silent would be waited for without end: then the next attempt takes a new connection. */
  async #send(rows: Row[]): Promise<BatchOutput> {
    const { databaseUrl, dbPrepare, leaseSeconds, nowMs, timeoutMs } = this.#options;
    // A row that was sent before may have been committed then, its reply lost: the ledger looks for it first.
    const retry = rows.some((row) => row.firstSentMs !== undefined);
    const sentMs = nowMs();
    for (const row of rows) row.firstSentMs ??= sentMs;
    this.#connection ??= connect({ databaseUrl, dbPrepare, fetchTypes: false }, 1);
    const connection = this.#connection;
    const reserves: ReserveRequest[] = [];
    const finishes: Finish[] = [];
    for (const { work } of rows) "reserve" in work ? reserves.push(work.reserve) : finishes.push(work.finish);
    // Nor is anything sent late: once the last of its rows was given up, nobody waits for this attempt.
    const lastMs = Math.max(...rows.map((row) => row.deadlineMs)) - sentMs;
    const patienceMs = Math.min(timeoutMs / 2, Math.max(lastMs, LOOK_EVERY_MS));
    let timer: ReturnType<typeof setTimeout> | undefined;
    const silence = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        this.#connection = undefined;
        // Not waited for: it may never answer. Its rows come again with the same ids.
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

/** Ends a connection without waiting for its server. What it still carries fails. */
function drop(connection: Sql): void {
  connection.end({ timeout: 0 }).catch(() => {});
}

class SilentServer extends Error {
  readonly code = "08SLN";
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
