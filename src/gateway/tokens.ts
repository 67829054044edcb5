import type { Log } from "../platform/log.ts";
import { createWorkerJobs, type WorkerJobs } from "../platform/worker_jobs.ts";
import { Written } from "./written.ts";

/** Of a longer text a sample is counted, in characters. Source: MON-4. */
const COUNTED_CHARS_MAX = 32 * 1024;
/** Time limit of one job, measured inside the worker. */
const JOB_MS = 50;
/** Time limit of one call of `count`, including its time in the queue. */
const WAIT_MS = 100;
/** A worker that takes longer than this for a job is stuck: it is terminated, and another is started. */
const STUCK_MS = 1000;
/** Maximum number of jobs in the queue, the current one included. Beyond it texts are estimated immediately. */
const QUEUE_MAX = 64;
/**
 * Tokens of a UTF-16 unit, for estimates of a text of which nothing was counted: by its kind, up to the last unit of each. Near the
 * higher ones of what o200k has: which texts are not counted may be chosen by who floods the queue.
 */
const ROUGH_TOKENS: readonly { upTo: number; tokens: number }[] = [
  { upTo: 0x7f, tokens: 0.3 }, // ASCII: English has 0.2, code 0.3, digits 0.35.
  { upTo: 0x7ff, tokens: 0.6 }, // Latin with accents, Greek, Cyrillic, Hebrew, Arabic.
  { upTo: 0x2fff, tokens: 2 }, // Scripts of South and Southeast Asia, Amharic.
  { upTo: 0x9fff, tokens: 1 }, // Chinese and Japanese.
  { upTo: 0xabff, tokens: 3 }, // Yi, Vai.
  { upTo: 0xd7ff, tokens: 1 }, // Korean.
  { upTo: 0xdfff, tokens: 1.5 }, // Half of an emoji.
  { upTo: 0xffff, tokens: 1.5 },
];

export type TokenCount = {
  tokens: number;
  /** False: an estimate, from a part of the text or only from its characters. */
  exact: boolean;
};

/** What a job has counted: the tokens of `chars` characters, of any places of the text. */
export type TokensOfPart = { tokens: number; chars: number };

export type TokenCounter = {
  /**
   * Counts the tokens of a text by o200k_base. If there is no time for all of it, the rest counts at the rate of what was counted, which
   * is from random places: no order of a text makes it count less. Never
   * throws, and never takes longer than 100 ms.
   */
  count(text: string): Promise<TokenCount>;
  /** Terminates the worker. Counts under way return estimates. */
  close(): void;
};

/** Times in ms, as JOB_MS, WAIT_MS and STUCK_MS above. */
export type TokenLimits = { jobMs: number; waitMs: number; stuckMs: number };
const LIMITS: TokenLimits = { jobMs: JOB_MS, waitMs: WAIT_MS, stuckMs: STUCK_MS };

export type TokenJob = { text: string; budgetMs: number };

/** Makes a counter with a worker, which starts immediately. Until its tables are loaded, texts are estimated. */
export function createTokenCounter(
  log: Log,
  startWorker: () => Worker = newWorker,
  { jobMs, waitMs, stuckMs }: TokenLimits = LIMITS,
): TokenCounter {
  const jobs = createWorkerJobs<TokenJob, TokensOfPart>({
    ...{ name: "tokens", log, startWorker },
    ...{ queueMax: QUEUE_MAX, waitMs, stuckMs },
  });
  return {
    async count(text) {
      if (text === "") return { tokens: 0, exact: true };
      const sample = sampleOf(text);
      const { tokens, chars } = await counted(jobs, { text: sample, budgetMs: jobMs });
      const share = text.length / (chars || sample.length);
      return { tokens: Math.ceil((chars === 0 ? roughTokens(sample) : tokens) * share), exact: chars === text.length };
    },
    close: jobs.close.bind(jobs),
  };
}

/** At most COUNTED_CHARS_MAX characters of a longer text, from places all over it. */
function sampleOf(text: string): string {
  if (text.length <= COUNTED_CHARS_MAX) return text;
  const written = new Written();
  written.add(text, text.length);
  return written.soFar.text.slice(0, COUNTED_CHARS_MAX);
}

function roughTokens(text: string): number {
  let tokens = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    tokens += ROUGH_TOKENS.find(({ upTo }) => unit <= upTo)?.tokens ?? 1;
  }
  return tokens;
}

/** Nothing, if the tokenizer is not ready, too busy or fails. */
async function counted(jobs: WorkerJobs<TokenJob, TokensOfPart>, job: TokenJob): Promise<TokensOfPart> {
  const nothing = { tokens: 0, chars: 0 };
  try {
    return (await jobs.run(job)) ?? nothing;
  } catch {
    return nothing;
  }
}

function newWorker(): Worker {
  return new Worker(new URL("./tokens_worker.ts", import.meta.url), { type: "module" });
}
