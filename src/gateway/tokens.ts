import type { Log } from "../platform/log.ts";

/** Longer text is estimated: tokenizers take quadratic time on hostile text. Source: MON-4. */
const TEXT_BYTES_MAX = 32 * 1024;
/** Time limit of one job, measured inside the worker. */
const JOB_MS = 50;
/** Time limit of one call of `count`, including its time in the queue. */
const WAIT_MS = 100;
/** A worker that takes longer than this for a job is stuck: it is terminated, and another is started. */
const STUCK_MS = 1000;
/** Maximum number of jobs in the queue, the current one included. Beyond it texts are estimated immediately. */
const QUEUE_MAX = 64;
/** Pause before another worker is started, after one died or failed to start. */
const RESTART_MS = 5000;
/** Bytes of UTF-8 per token, for estimates. */
const BYTES_PER_TOKEN = 4;

export type TokenCount = {
  tokens: number;
  /** False: an estimate from the length. */
  exact: boolean;
};

export type TokenCounter = {
  /** Counts the tokens of a text by o200k_base, or estimates them. Never throws, and never takes longer than 100 ms. */
  count(text: string): Promise<TokenCount>;
  /** Terminates the worker. Counts under way return estimates. */
  close(): void;
};

/** The messages to and from the worker. `tokens` is undefined if the job took too long. */
export type TokenJob = { id: number; text: string; budgetMs: number };
export type TokenReply = { id: number; tokens: number | undefined } | { ready: true };

type WaitingJob = { job: TokenJob; answer: (tokens: number | undefined) => void };

/** Makes a counter with a worker, which starts immediately. Until its tables are loaded, texts are estimated. */
export function createTokenCounter(log: Log, startWorker: () => Worker = newWorker): TokenCounter {
  return new WorkerTokenCounter(log, startWorker);
}

class WorkerTokenCounter implements TokenCounter {
  readonly #log: Log;
  readonly #startWorker: () => Worker;
  /** The worker has the first job; the others wait. */
  #queue: WaitingJob[] = [];
  #worker: Worker | undefined;
  #isReady = false;
  #isClosed = false;
  #lastId = 0;
  #stuckTimer: ReturnType<typeof setTimeout> | undefined;
  #restartTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(log: Log, startWorker: () => Worker) {
    this.#log = log;
    this.#startWorker = startWorker;
    this.#start();
  }

  async count(text: string): Promise<TokenCount> {
    const bytes = Buffer.byteLength(text);
    if (bytes === 0) return { tokens: 0, exact: true };
    const isCountable = this.#isReady && bytes <= TEXT_BYTES_MAX && this.#queue.length < QUEUE_MAX;
    const tokens = isCountable ? await this.#countInWorker(text) : undefined;
    return tokens === undefined
      ? { tokens: Math.ceil(bytes / BYTES_PER_TOKEN), exact: false }
      : { tokens, exact: true };
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#restartTimer);
    this.#terminate();
  }

  #start(): void {
    try {
      const started = this.#startWorker();
      this.#worker = started;
      started.addEventListener("message", ({ data }: MessageEvent<TokenReply>) => {
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

  #onReply(reply: TokenReply): void {
    if ("ready" in reply) {
      this.#isReady = true;
      return;
    }
    const first = this.#queue[0];
    if (first?.job.id !== reply.id) return;
    clearTimeout(this.#stuckTimer);
    this.#queue.shift();
    first.answer(reply.tokens);
    this.#sendFirst();
  }

  #sendFirst(): void {
    const first = this.#queue[0];
    if (!first || !this.#worker) return;
    this.#stuckTimer = setTimeout(() => this.#lose("stuck"), STUCK_MS);
    this.#worker.postMessage(first.job);
  }

  /** The worker died, failed to start or is stuck. All waiting jobs are estimated. */
  #lose(why: string): void {
    this.#log.error({ why }, "the token counter's worker failed; texts are estimated until another one is ready");
    this.#terminate();
    if (!this.#isClosed) this.#restartTimer = setTimeout(() => this.#start(), RESTART_MS);
  }

  #terminate(): void {
    clearTimeout(this.#stuckTimer);
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#isReady = false;
    for (const waiting of this.#queue) waiting.answer(undefined);
    this.#queue = [];
  }

  #countInWorker(text: string): Promise<number | undefined> {
    return new Promise((resolve) => {
      const waiting: WaitingJob = {
        job: { id: ++this.#lastId, text, budgetMs: JOB_MS },
        answer(tokens) {
          clearTimeout(timer);
          resolve(tokens);
        },
      };
      const timer = setTimeout(() => {
        // A job that the worker has not started is not worth its time any more.
        this.#queue = this.#queue.filter((other, place) => place === 0 || other !== waiting);
        resolve(undefined);
      }, WAIT_MS);
      this.#queue.push(waiting);
      if (this.#queue.length === 1) this.#sendFirst();
    });
  }
}

function newWorker(): Worker {
  return new Worker(new URL("./tokens_worker.ts", import.meta.url), { type: "module" });
}
