import type { Log } from "../platform/log.ts";
import type { Owner } from "../platform/share_limit.ts";
import { createWorkerJobs, type WaitingJobs, type WorkerJobs } from "../platform/worker_jobs.ts";
import { roughTokens } from "./rough_tokens.ts";
import { Written } from "./written.ts";

/** Of a longer text a sample is counted, in characters. Source: MON-4. */
export const COUNTED_CHARS_MAX = 32 * 1024;
/** Time limit of one job, measured inside the worker. */
const JOB_MS = 100;
/** What the jobs that wait may take together, in the worker: each account has its part of it, and each of its jobs a part of that. */
const ROUND_MS = 500;
/** How long a count may take, by what waits for it, in its queue and while the worker starts or is replaced. */
const WAITS_MS = {
  /** A client that would be refused otherwise. */
  reservation: 2_000,
  /** The last event of an answer, or the answer. */
  answer: 15_000,
  /** Nobody: the client has left. */
  settlement: 60_000,
} as const;
/** A worker that takes longer than this for a job is stuck: it is terminated, and another is started. */
const STUCK_MS = 5_000;

/** What waits for a count. */
export type TokenWait = keyof typeof WAITS_MS;

export type TokenCount = {
  tokens: number;
  /** False: an estimate, from a part of the text or only from its characters. */
  exact: boolean;
  /** It is an estimate from characters alone. */
  isRough?: true;
};

/** What a job has counted: the tokens of `chars` characters, of any places of the text. */
export type TokensOfPart = { tokens: number; chars: number };

export type TokenCounter = {
  /**
   * Counts the tokens of a text by o200k_base. If there is no time for all of it, the rest counts at the rate of what was counted, which
   * is spread over it: no order of a text makes it count less. If nothing could be counted in time, it is estimated by its kinds of
   * characters (`rough_tokens.ts`). Never throws. Accounts take turns. Source: END-5, ADM-13.
   */
  count(text: string, owner: Owner, wait: TokenWait): Promise<TokenCount>;
  /** Terminates the worker. Counts under way return estimates. */
  close(): void;
};

/** Times in ms, as JOB_MS, WAITS_MS and STUCK_MS above. */
export type TokenLimits = { jobMs: number; waitsMs: Readonly<Record<TokenWait, number>>; stuckMs: number };
const LIMITS: TokenLimits = { jobMs: JOB_MS, waitsMs: WAITS_MS, stuckMs: STUCK_MS };

export type TokenJob = { text: string; budgetMs: number };

export type TokenCounterOptions = {
  log: Log;
  /** The most texts that may wait, of all accounts: two of each request that a replica serves. */
  waitingMax: number;
  startWorker?: () => Worker;
  limits?: TokenLimits;
};

/** Makes a counter with a worker, which starts immediately. */
export function createTokenCounter({
  log,
  waitingMax,
  startWorker = newWorker,
  limits: { jobMs, waitsMs, stuckMs } = LIMITS,
}: TokenCounterOptions): TokenCounter {
  const jobs = createWorkerJobs<TokenJob, TokensOfPart>({
    ...{ name: "tokens", log, startWorker, waitsForNext: true },
    ...{ queueMax: waitingMax, waitMs: waitsMs.answer, stuckMs },
    toSend: (job, waiting) => ({ ...job, budgetMs: Math.min(job.budgetMs, partOfRound(waiting)) }),
  });
  return {
    async count(text, owner, wait) {
      if (text === "") return { tokens: 0, exact: true };
      const job = { text: sampleOf(text), budgetMs: jobMs };
      const { tokens, chars } = await counted(jobs.run(job, { owner, waitMs: waitsMs[wait] }));
      const ofText = (counted: number, of: number) => Math.ceil((counted * text.length) / of);
      if (chars > 0) return { tokens: ofText(tokens, chars), exact: chars === text.length };
      return { tokens: ofText(roughTokens(job.text), job.text.length), exact: false, isRough: true };
    },
    close: jobs.close.bind(jobs),
  };
}

/** The time of a job in a round in which each account has the same: so one with many texts shortens its own, and not those of others. */
function partOfRound({ own, accounts }: WaitingJobs): number {
  return ROUND_MS / accounts / own;
}

/** At most COUNTED_CHARS_MAX characters of a longer text, from places all over it. */
function sampleOf(text: string): string {
  if (text.length <= COUNTED_CHARS_MAX) return text;
  const written = new Written();
  written.add(text, text.length);
  return written.soFar.text.slice(0, COUNTED_CHARS_MAX);
}

/** Nothing, if the tokenizer is away for too long, or fails. */
async function counted(asked: ReturnType<WorkerJobs<TokenJob, TokensOfPart>["run"]>): Promise<TokensOfPart> {
  const nothing = { tokens: 0, chars: 0 };
  try {
    return (await asked) ?? nothing;
  } catch {
    return nothing;
  }
}

function newWorker(): Worker {
  return new Worker(new URL("./tokens_worker.ts", import.meta.url), { type: "module" });
}
