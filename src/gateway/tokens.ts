import type { Log } from "../platform/log.ts";

/** Longer text is estimated: tokenizers go quadratic on hostile text. Source: rulings › Money. */
const TEXT_BYTES_MAX = 32 * 1024;
/** On the clock of the job itself, inside the worker. */
const JOB_MS = 50;
/** A caller waits no longer than this, its time in the queue included. */
const WAIT_MS = 100;
/** A worker that has not answered a job after this is stuck: it is ended, and another one started. */
const STUCK_MS = 1000;
/** Jobs waiting or under way; one more is estimated at once. */
const QUEUE_MAX = 64;
/** After a worker that died or would not start, none is tried for this long. */
const RESTART_MS = 5000;
/** Bytes of UTF-8 to a token, where nothing better is known. */
const BYTES_PER_TOKEN = 4;

export type TokenCount = {
  tokens: number;
  /** False: an estimate from the length. */
  exact: boolean;
};

export type TokenCounter = {
  /** Tokens of a text by o200k_base, or an estimate. Never throws, never takes longer than 100 ms. */
  count(text: string): Promise<TokenCount>;
  /** Ends the worker; whatever is still counted is estimated. */
  close(): void;
};

/** Between this file and the worker. `tokens` undefined: not counted in time. */
export type TokenJob = { id: number; text: string; budgetMs: number };
export type TokenReply = { id: number; tokens: number | undefined } | { ready: true };

type Waiting = { job: TokenJob; answer: (tokens: number | undefined) => void };

/** Counts in a worker, which starts at once; until its tables are loaded, texts are estimated. */
export function createTokenCounter(log: Log, startWorker: () => Worker = newWorker): TokenCounter {
  /** The first one is at the worker. */
  let queue: Waiting[] = [];
  let worker: Worker | undefined;
  let ready = false;
  let closed = false;
  let lastId = 0;
  let stuck: ReturnType<typeof setTimeout> | undefined;
  let restart: ReturnType<typeof setTimeout> | undefined;

  start();

  function start(): void {
    restart = undefined;
    try {
      const started = startWorker();
      worker = started;
      started.addEventListener("message", ({ data }: MessageEvent<TokenReply>) => {
        if (worker === started) heard(data);
      });
      started.addEventListener("error", (event) => {
        event.preventDefault(); // On Deno it would end the process.
        if (worker === started) lose(event.message);
      });
    } catch (error) {
      lose(error instanceof Error ? error.message : "error");
    }
  }

  function heard(reply: TokenReply): void {
    if ("ready" in reply) {
      ready = true;
      return;
    }
    const first = queue[0];
    if (first?.job.id !== reply.id) return;
    clearTimeout(stuck);
    queue.shift();
    first.answer(reply.tokens);
    sendFirst();
  }

  function sendFirst(): void {
    const first = queue[0];
    if (!first || !worker) return;
    stuck = setTimeout(() => lose("stuck"), STUCK_MS);
    worker.postMessage(first.job);
  }

  /** The worker is gone or good for nothing. Who waits gets an estimate. */
  function lose(why: string): void {
    log.error({ why }, "the token counter's worker is ended; texts are estimated until another one is ready");
    end();
    if (!closed) restart = setTimeout(start, RESTART_MS);
  }

  function end(): void {
    clearTimeout(stuck);
    worker?.terminate();
    worker = undefined;
    ready = false;
    for (const waiting of queue) waiting.answer(undefined);
    queue = [];
  }

  function ask(text: string): Promise<number | undefined> {
    return new Promise((resolve) => {
      const waiting: Waiting = {
        job: { id: ++lastId, text, budgetMs: JOB_MS },
        answer(tokens) {
          clearTimeout(timer);
          resolve(tokens);
        },
      };
      const timer = setTimeout(() => {
        // What the worker has not begun is not worth its time any more.
        queue = queue.filter((other, place) => place === 0 || other !== waiting);
        resolve(undefined);
      }, WAIT_MS);
      queue.push(waiting);
      if (queue.length === 1) sendFirst();
    });
  }

  return {
    async count(text) {
      const bytes = Buffer.byteLength(text);
      if (bytes === 0) return { tokens: 0, exact: true };
      const countable = ready && bytes <= TEXT_BYTES_MAX && queue.length < QUEUE_MAX;
      const tokens = countable ? await ask(text) : undefined;
      return tokens === undefined
        ? { tokens: Math.ceil(bytes / BYTES_PER_TOKEN), exact: false }
        : { tokens, exact: true };
    },
    close() {
      closed = true;
      clearTimeout(restart);
      end();
    },
  };
}

function newWorker(): Worker {
  return new Worker(new URL("./tokens_worker.ts", import.meta.url), { type: "module" });
}
