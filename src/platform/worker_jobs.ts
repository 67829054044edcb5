import type { Log } from "./log.ts";

/**
 * Jobs that would block the event loop, one after the other in a worker, with a bounded queue. A worker that dies or is stuck is replaced.
 * Its module calls `serveJobs` of `worker_side.ts`.
 */

/** Pause before another worker is started, after one died or failed to start. */
const RESTART_MS = 5_000;
/** A worker that is not ready after this is stuck. */
const START_MS_MAX = 30_000;

export type WorkerOptions = {
  /** For the log. */
  name: string;
  log: Log;
  startWorker: () => Worker;
  /** Maximum number of jobs in the queue, the current one included. */
  queueMax: number;
  /** Time limit of one call of `run`, including its time in the queue. */
  waitMs: number;
  /** A worker that takes longer than this for a job is stuck: it is terminated, and another is started. */
  stuckMs: number;
  /** Started with the first job, which waits for it. Otherwise immediately, and nothing is queued until it is ready. */
  isLazy?: boolean;
};

export type WorkerJobs<Job, Result> = {
  /**
   * Runs a job. undefined: it was not done, because the queue is full, the worker is away or the time is over. Throws what the job
   * throws, as an Error with the same message.
   */
  run(job: Job): Promise<Result | undefined>;
  /** Terminates the worker. Jobs under way return undefined. */
  close(): void;
};

/** The messages to and from the worker. */
export type WorkerJob<Job> = { id: number; job: Job };
export type WorkerReply<Result> = { ready: true } | { id: number; result: Result } | { id: number; error: string };

type Waiting<Job, Result> = {
  sent: WorkerJob<Job>;
  settle: (result: Result | undefined, error?: string) => void;
};

export function createWorkerJobs<Job, Result>(options: WorkerOptions): WorkerJobs<Job, Result> {
  return new QueuedWorker<Job, Result>(options);
}

class QueuedWorker<Job, Result> implements WorkerJobs<Job, Result> {
  readonly #options: WorkerOptions;
  /** The worker has the first job; the others wait. */
  #queue: Waiting<Job, Result>[] = [];
  #worker: Worker | undefined;
  #isReady = false;
  #isClosed = false;
  #lastId = 0;
  #stuckTimer: ReturnType<typeof setTimeout> | undefined;
  #restartTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: WorkerOptions) {
    this.#options = options;
    if (!options.isLazy) this.#start();
  }

  async run(job: Job): Promise<Result | undefined> {
    const { isLazy = false, queueMax, waitMs } = this.#options;
    if (this.#isClosed || this.#queue.length >= queueMax || !(this.#isReady || isLazy)) return undefined;
    if (!this.#worker) {
      if (this.#restartTimer !== undefined) return undefined;
      this.#start();
    }
    return await new Promise((resolve, reject) => {
      const waiting: Waiting<Job, Result> = {
        sent: { id: ++this.#lastId, job },
        settle(result, error) {
          clearTimeout(timer);
          if (error === undefined) resolve(result);
          else reject(new Error(error));
        },
      };
      const timer = setTimeout(() => {
        // A job that the worker has not started is not worth its time any more.
        this.#queue = this.#queue.filter((other, place) => (place === 0 && this.#isReady) || other !== waiting);
        resolve(undefined);
      }, waitMs);
      this.#queue.push(waiting);
      if (this.#isReady && this.#queue.length === 1) this.#sendFirst();
    });
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#restartTimer);
    this.#terminate();
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
      const first = this.#queue[0];
      if (first?.sent.id !== reply.id) return;
      clearTimeout(this.#stuckTimer);
      this.#queue.shift();
      if ("error" in reply) first.settle(undefined, reply.error);
      else first.settle(reply.result);
    }
    this.#sendFirst();
  }

  #sendFirst(): void {
    const first = this.#queue[0];
    if (!first || !this.#worker) return;
    this.#stuckTimer = setTimeout(() => this.#lose("stuck"), this.#options.stuckMs);
    this.#worker.postMessage(first.sent);
  }

  /** The worker died, failed to start or is stuck. No waiting job is done. */
  #lose(why: string): void {
    const { log, name, isLazy } = this.#options;
    log.error({ why, worker: name }, "a worker failed; its jobs are not done until another one is ready");
    this.#terminate();
    if (this.#isClosed) return;
    this.#restartTimer = setTimeout(() => {
      this.#restartTimer = undefined;
      if (!isLazy) this.#start();
    }, RESTART_MS);
  }

  #terminate(): void {
    clearTimeout(this.#stuckTimer);
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#isReady = false;
    for (const waiting of this.#queue) waiting.settle(undefined);
    this.#queue = [];
  }
}
