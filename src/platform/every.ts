import type { Log } from "./log.ts";

/**
 * Work that a replica repeats: one run at a time, with a pause after each. A run that throws or hangs delays nothing but its own next
 * run. Its outage is logged once, and `/metrics` has its runs, failures and last success.
 */

/** The jobs of a replica, as their metrics name them. */
export const JOB_NAMES = [
  "books_check",
  "domain_checks",
  "identity_proofs",
  "key_states",
  "losses",
  "messages",
  "payments",
  "pruning",
  "receipt_export",
  "receipt_seals",
  "route_speeds",
] as const;
export type JobName = (typeof JOB_NAMES)[number];

/** A pause is shortened at random by at most this fraction, so that replicas that started together do not stay together. */
const JITTER = 0.1;
/** How long `close` waits for a run, unless the job says otherwise. */
const CLOSE_MS_MAX = 2_500;

export type Job = {
  /** Starts no more runs. Resolves when the present one has ended, or after `closeMs`. */
  close(): Promise<void>;
};

export type Timer = {
  /** Calls `run` once, after `ms`. Returns what cancels that. */
  after(ms: number, run: () => void): () => void;
};

export type JobOptions = {
  name: JobName;
  /** The pause between two runs. */
  ms: number;
  run: () => unknown;
  log: Log;
  /** What did not work, for the log: "messages could not be delivered". */
  failure: string;
  /** A run that takes longer has failed, and the next may begin beside it. Only for work that may overlap with a late run of itself. */
  timeoutMs?: number;
  closeMs?: number;
  /** The first run begins at once, and not after a pause. */
  isNow?: boolean;
  timer?: Timer;
  /** 0 to 1. */
  random?: () => number;
};

type State = { runs: number; failures: number; succeededMs: number };
/** Of this process. A job has an entry from its start on. */
const states = new Map<JobName, State>();

/** Repeats a job until it is closed. */
export function every(options: JobOptions): Job {
  const { name, ms, log, failure, closeMs = CLOSE_MS_MAX, isNow = false } = options;
  const { timer = SYSTEM_TIMER, random = Math.random } = options;
  const state = { runs: 0, failures: 0, succeededMs: performance.now() };
  states.set(name, state);
  let isClosed = false;
  let isFailing = false;
  let running: Promise<void> = Promise.resolve();
  let cancel = () => {};

  async function once(): Promise<void> {
    state.runs++;
    try {
      await inTime(options, timer);
      isFailing = false;
      state.succeededMs = performance.now();
    } catch (err) {
      state.failures++;
      // At shutdown its connections are closed under it.
      if (!isFailing && !isClosed) log.warn({ err, job: name }, `${failure}; it is tried again`);
      isFailing = true;
    }
  }

  function next(): void {
    if (isClosed) return;
    cancel = timer.after(ms * (1 - JITTER * random()), begin);
  }
  function begin(): void {
    running = once().finally(next);
  }

  if (isNow) begin();
  else next();
  return {
    async close() {
      isClosed = true;
      cancel();
      await before(closeMs, running, timer).catch((err) =>
        log.warn({ err, job: name }, "a job had not ended at shutdown"),
      );
    },
  };
}

/** One run. Rejects if it throws, or takes too long. */
async function inTime({ run, timeoutMs }: JobOptions, timer: Timer): Promise<void> {
  const running = Promise.resolve().then(run);
  await (timeoutMs === undefined ? running : before(timeoutMs, running, timer));
}

async function before(ms: number, running: Promise<unknown>, timer: Timer): Promise<void> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = timer.after(ms, () => reject(new Error(`no end within ${ms} ms`)));
  });
  await Promise.race([running, late]).finally(() => cancel());
}

const SYSTEM_TIMER: Timer = {
  after(ms, run) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};

/** A figure of each job that this process has started; 0 for others. */
export function jobFigures(figure: "runs" | "failures" | "successAgeSeconds"): Record<JobName, number> {
  const now = performance.now();
  const of = ({ runs, failures, succeededMs }: State) =>
    ({ runs, failures, successAgeSeconds: (now - succeededMs) / 1000 })[figure];
  const figures = JOB_NAMES.map((name): [JobName, number] => {
    const state = states.get(name);
    return [name, state === undefined ? 0 : of(state)];
  });
  return Object.fromEntries(figures) as Record<JobName, number>;
}
