import type { Log } from "../platform/log.ts";
import { createWorkerJobs, type WorkerJobs } from "../platform/worker_jobs.ts";

/** Of a longer text only the beginning is counted, in characters. Source: MON-4. */
const COUNTED_CHARS_MAX = 32 * 1024;
/** Time limit of one job, measured inside the worker. */
const JOB_MS = 50;
/** Time limit of one call of `count`, including its time in the queue. */
const WAIT_MS = 100;
/** A worker that takes longer than this for a job is stuck: it is terminated, and another is started. */
const STUCK_MS = 1000;
/** Maximum number of jobs in the queue, the current one included. Beyond it texts are estimated immediately. */
const QUEUE_MAX = 64;
/** Bytes of UTF-8 per token, for estimates of a text of which nothing was counted. */
const BYTES_PER_TOKEN = 4;

export type TokenCount = {
  tokens: number;
  /** False: an estimate, from the beginning of the text or only from its length. */
  exact: boolean;
};

/** What a job has counted: the tokens of the first `chars` characters. */
export type TokensOfBeginning = { tokens: number; chars: number };

export type TokenCounter = {
  /**
   * Counts the tokens of a text by o200k_base. If there is no time for all of it, the rest counts at the rate of its beginning. Never
   * throws, and never takes longer than 100 ms.
   */
  count(text: string): Promise<TokenCount>;
  /** Terminates the worker. Counts under way return estimates. */
  close(): void;
};

export type TokenJob = { text: string; budgetMs: number };

/** Makes a counter with a worker, which starts immediately. Until its tables are loaded, texts are estimated. */
export function createTokenCounter(log: Log, startWorker: () => Worker = newWorker): TokenCounter {
  const jobs = createWorkerJobs<TokenJob, TokensOfBeginning>({
    ...{ name: "tokens", log, startWorker },
    ...{ queueMax: QUEUE_MAX, waitMs: WAIT_MS, stuckMs: STUCK_MS },
  });
  return {
    async count(text) {
      if (text === "") return { tokens: 0, exact: true };
      const { tokens, chars } = await counted(jobs, text.slice(0, COUNTED_CHARS_MAX));
      if (chars === 0) return { tokens: Math.ceil(Buffer.byteLength(text) / BYTES_PER_TOKEN), exact: false };
      return { tokens: Math.ceil((tokens * text.length) / chars), exact: chars === text.length };
    },
    close: jobs.close.bind(jobs),
  };
}

/** Nothing, if the tokenizer is not ready, too busy or fails. */
async function counted(jobs: WorkerJobs<TokenJob, TokensOfBeginning>, text: string): Promise<TokensOfBeginning> {
  const nothing = { tokens: 0, chars: 0 };
  try {
    return (await jobs.run({ text, budgetMs: JOB_MS })) ?? nothing;
  } catch {
    return nothing;
  }
}

function newWorker(): Worker {
  return new Worker(new URL("./tokens_worker.ts", import.meta.url), { type: "module" });
}
