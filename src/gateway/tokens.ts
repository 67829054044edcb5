import type { Log } from "../platform/log.ts";
import { createWorkerJobs, type WorkerJobs } from "../platform/worker_jobs.ts";

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

export type TokenJob = { text: string; budgetMs: number };

/** Makes a counter with a worker, which starts immediately. Until its tables are loaded, texts are estimated. */
export function createTokenCounter(log: Log, startWorker: () => Worker = newWorker): TokenCounter {
  const jobs = createWorkerJobs<TokenJob, number | undefined>({
    ...{ name: "tokens", log, startWorker },
    ...{ queueMax: QUEUE_MAX, waitMs: WAIT_MS, stuckMs: STUCK_MS },
  });
  return {
    async count(text) {
      const bytes = Buffer.byteLength(text);
      if (bytes === 0) return { tokens: 0, exact: true };
      const tokens = bytes > TEXT_BYTES_MAX ? undefined : await counted(jobs, text);
      return tokens === undefined
        ? { tokens: Math.ceil(bytes / BYTES_PER_TOKEN), exact: false }
        : { tokens, exact: true };
    },
    close: jobs.close.bind(jobs),
  };
}

/** undefined: an estimate is used instead, also if the tokenizer fails. */
async function counted(jobs: WorkerJobs<TokenJob, number | undefined>, text: string): Promise<number | undefined> {
  try {
    return await jobs.run({ text, budgetMs: JOB_MS });
  } catch {
    return undefined;
  }
}

function newWorker(): Worker {
  return new Worker(new URL("./tokens_worker.ts", import.meta.url), { type: "module" });
}
