import type { Log } from "./log.ts";
import type { Owner } from "./share_limit.ts";

/**
 * Jobs that would block the event loop, one after the other in a worker, with a bounded queue in which accounts take turns. A worker that
 * dies or is stuck is replaced. Its module calls `serveJobs` of `worker_side.ts`.
 */

/** Pause before another worker is started, after one died or failed to start. */
const RESTART_MS = 5_000;
/** A worker that is not ready after this is stuck. */
const START_MS_MAX = 30_000;

/** For jobs that are nobody's. */
const NOBODY: Owner = { accountId: 0, tenantId: 0 };

export type WorkerOptions<Job> = {
  /** For the log. */
  name: string;
  log: Log;
  startWorker: () => Worker;
  /** Maximum number of jobs in the queue, the current one included. */
  queueMax: number;
  /** The most of them that are of one account, and of one tenant; default: all. */
  shares?: { account: number; tenant: number };
  /** What is sent for a job, by how many of its account wait or are done now, itself included, and of how many accounts. */
  toSend?: (job: Job, waiting: WaitingJobs) => Job;
  /** Time limit of one call of `run`, including its time in the queue and the start of the worker. */
  waitMs: number;
  /** A worker that takes longer than this for a job is stuck: it is terminated, and another is started. */
  stuckMs: number;
  /** Started with the first job, which waits for it. Otherwise immediately. */
  isLazy?: boolean;
  /** Jobs wait while a worker that failed is replaced, the one that it had excepted. Otherwise they are not done. */
  waitsForNext?: boolean;
};

export type WaitingJobs = { own: number; accounts: number };

/** Whose a job is, and for how long it waits if not for `waitMs`. */
export type JobOptions = { owner?: Owner; waitMs?: number };

export type WorkerJobs<Job, Result> = {
  /**
   * Runs a job. undefined: it was not done, because the queue or the account's share of it is full, the worker is away or the time is
   * over. Throws what the job throws, as an Error with the same message.
   */
  run(job: Job, options?: JobOptions): Promise<Result | undefined>;
  /** Terminates the worker. Jobs under way return undefined. */
  close(): void;
};

/** The messages to and from the worker. */
export type WorkerJob<Job> = { id: number; job: Job };
export type WorkerReply<Result> = { ready: true } | { id: number; result: Result } | { id: number; error: string };

type Waiting<Job, Result> = {
  sent: WorkerJob<Job>;
  owner: Owner;
  settle: (result: Result | undefined, error?: string) => void;
};

export function createWorkerJobs<Job, Result>(options: WorkerOptions<Job>): WorkerJobs<Job, Result> {
  return new QueuedWorker<Job, Result>(options);
}

class QueuedWorker<Job, Result> implements WorkerJobs<Job, Result> {
  readonly #options: WorkerOptions<Job>;
  /** The job that the worker has. */
  #current: Waiting<Job, Result> | undefined;
  /** Those that wait, by account; the account whose turn is next comes first. */
  readonly #turns = new Map<number, Waiting<Job, Result>[]>();
  /** Jobs of each account, and of each tenant under its negative id; the current one included. */
  readonly #held = new Map<number, number>();
  #size = 0;
  #worker: Worker | undefined;
  #isReady = false;
  #isClosed = false;
  #lastId = 0;
  #stuckTimer: ReturnType<typeof setTimeout> | undefined;
  #restartTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: WorkerOptions<Job>) {
    this.#options = options;
    if (!options.isLazy) this.#start();
  }

  async run(job: Job, { owner = NOBODY, waitMs = this.#options.waitMs }: JobOptions = {}): Promise<Result | undefined> {
    if (this.#isClosed || !this.#hasRoom(owner)) return undefined;
    if (this.#restartTimer !== undefined && !this.#options.waitsForNext) return undefined;
    if (!this.#worker && this.#restartTimer === undefined) this.#start();
    if (!this.#worker && !this.#options.waitsForNext) return undefined;
    return await new Promise((resolve, reject) => {
      const waiting: Waiting<Job, Result> = {
        sent: { id: ++this.#lastId, job },
        owner,
        settle(result, error) {
          clearTimeout(timer);
          if (error === undefined) resolve(result);
          else reject(new Error(error));
        },
      };
      const timer = setTimeout(() => {
        // A job that the worker has not started is not worth its time any more.
        if (waiting !== this.#current) this.#remove(waiting);
        resolve(undefined);
      }, waitMs);
      this.#add(waiting);
      if (this.#isReady && this.#current === undefined) this.#sendNext();
    });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#restartTimer);
    this.#terminate();
    this.#endWaiting();
  }

  #hasRoom({ accountId, tenantId }: Owner): boolean {
    const { queueMax, shares = { account: queueMax, tenant: queueMax } } = this.#options;
    const held = (id: number) => (id === 0 ? 0 : (this.#held.get(id) ?? 0));
    return this.#size < queueMax && held(accountId) < shares.account && held(-tenantId) < shares.tenant;
  }

  #add(waiting: Waiting<Job, Result>): void {
    const { accountId } = waiting.owner;
    const own = this.#turns.get(accountId);
    if (own === undefined) this.#turns.set(accountId, [waiting]);
    else own.push(waiting);
    this.#count(waiting.owner, 1);
  }

  /** Removes a job that waits. */
  #remove(waiting: Waiting<Job, Result>): void {
    const { accountId } = waiting.owner;
    const left = this.#turns.get(accountId)?.filter((other) => other !== waiting) ?? [];
    if (left.length === 0) this.#turns.delete(accountId);
    else this.#turns.set(accountId, left);
    this.#count(waiting.owner, -1);
  }

  #count({ accountId, tenantId }: Owner, change: number): void {
    this.#size += change;
    for (const id of [accountId, -tenantId]) {
      const held = (this.#held.get(id) ?? 0) + change;
      if (held === 0) this.#held.delete(id);
      else this.#held.set(id, held);
    }
  }

  #start(): void {
    this.#restartTimer = undefined;
    try {
      const started = this.#options.startWorker();
      this.#worker = started;
      this.#stuckTimer = setTimeout(() => this.#lose("not ready"), START_MS_MAX);
      started.addEventListener("message", ({ data }: MessageEvent<WorkerReply<Result>>) => {
        if (this.#worker === started) this.#onReply(data);
      });
      started.addEventListener("error", (event) => {
        event.preventDefault(); // On Deno it would end the process.
        if (this.#worker === started) this.#lose(event.message);
      });
    } catch (error) {
      this.#lose(error instanceof Error ? error.message : "error");
    }
  }

  #onReply(reply: WorkerReply<Result>): void {
    if ("ready" in reply) {
      clearTimeout(this.#stuckTimer);
      this.#isReady = true;
    } else {
      const done = this.#current;
      if (done?.sent.id !== reply.id) return;
      clearTimeout(this.#stuckTimer);
      this.#current = undefined;
      this.#count(done.owner, -1);
      if ("error" in reply) done.settle(undefined, reply.error);
      else done.settle(reply.result);
    }
    this.#sendNext();
  }

  /** Sends the first job of the account whose turn it is, which is then the last account. */
  #sendNext(): void {
    const [turn] = this.#turns;
    if (turn === undefined || !this.#worker) return;
    const [accountId, own] = turn;
    const next = own.shift();
    this.#turns.delete(accountId);
    if (own.length > 0) this.#turns.set(accountId, own);
    if (next === undefined) return;
    const { stuckMs, toSend = (job: Job) => job } = this.#options;
    const { id, job } = next.sent;
    this.#current = next;
    this.#stuckTimer = setTimeout(() => this.#lose("stuck"), stuckMs);
    const accounts = this.#turns.size + (own.length > 0 ? 0 : 1);
    this.#worker.postMessage({ id, job: toSend(job, { own: own.length + 1, accounts }) } satisfies WorkerJob<Job>);
  }

  /** The worker died, failed to start or is stuck. The job that it had is not done. */
  #lose(why: string): void {
    const { log, name, isLazy, waitsForNext } = this.#options;
    log.error({ why, worker: name }, "a worker failed; its jobs are not done until another one is ready");
    this.#terminate();
    if (!waitsForNext) this.#endWaiting();
    if (this.#isClosed) return;
    this.#restartTimer = setTimeout(() => {
      this.#restartTimer = undefined;
      if (!isLazy || this.#size > 0) this.#start();
    }, RESTART_MS);
  }

  #terminate(): void {
    clearTimeout(this.#stuckTimer);
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#isReady = false;
    const lost = this.#current;
    if (lost === undefined) return;
    this.#current = undefined;
    this.#count(lost.owner, -1);
    lost.settle(undefined);
  }

  /** No job that waits is done. */
  #endWaiting(): void {
    const ended = [...this.#turns.values()].flat();
    this.#turns.clear();
    this.#held.clear();
    this.#size = 0;
    for (const waiting of ended) waiting.settle(undefined);
  }
}
