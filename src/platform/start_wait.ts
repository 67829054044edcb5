import { setTimeout as sleep } from "node:timers/promises";
import { isPassing } from "./db.ts";
import { deadline } from "./deadline.ts";
import type { Log } from "./log.ts";
import { within } from "./time_limit.ts";

/**
 * What a starting replica needs of Postgres it waits for: the server may start later, and a busy one, or another transaction's lock, may
 * take longer than a request could wait.
 */
export type StartWait = {
  /**
   * The result of `work`. `what` is named in the log while it waits. `work` gets a limit for its own waits, in ms, that ends after this one;
   * after a passing error it is done again, until DB_WAIT_SECONDS are over. Throws the last error; with the code CONNECT_TIMEOUT if there was
   * no answer.
   */
  step<T>(what: string, work: (msMax: number) => Promise<T>): Promise<T>;
};

/** Waits after an error double from the first to the longest. */
const PAUSE_MS = { first: 500, longest: 8_000 };
/** One attempt has at least this time, so that 0 seconds mean one attempt. */
const ATTEMPT_MS_MIN = 6_000;
/** By this much the limits of a step's own waits are longer, so that this one ends first and says what it waited for. */
const LATER_MS = 1_000;
/** How often the log says what an attempt waits for. */
const SAY_EVERY_MS = 5_000;

type Options = {
  /** For one step. */
  waitSeconds: number;
  log: Log;
  /** The monotonic clock. */
  nowMs: () => number;
  /** What a person can do about an error. */
  sentenceOf?: (error: unknown) => string | undefined;
};

export function createStartWait({ waitSeconds, log, nowMs, sentenceOf }: Options): StartWait {
  return {
    async step(what, work) {
      const beganMs = nowMs();
      const endsMs = beganMs + waitSeconds * 1000;
      for (let pauseMs = PAUSE_MS.first; ; pauseMs = Math.min(2 * pauseMs, PAUSE_MS.longest)) {
        const msMax = Math.max(ATTEMPT_MS_MIN, endsMs - nowMs());
        const hush = repeatedly(() => {
          log.warn({ what, waitedMs: Math.round(nowMs() - beganMs) }, "Postgres has not answered yet; the start waits");
        });
        try {
          return await within(msMax, work(msMax + LATER_MS), () => noAnswer(what, msMax));
        } catch (err) {
          if (!isPassing(err) || nowMs() + pauseMs > endsMs) throw err;
          log.warn({ err, what, why: sentenceOf?.(err), againInMs: pauseMs }, "Postgres is not reachable yet");
        } finally {
          hush();
        }
        await sleep(pauseMs);
      }
    },
  };
}

/** Calls `say` every SAY_EVERY_MS, until the returned function is called. */
function repeatedly(say: () => void): () => void {
  let stop = deadline(SAY_EVERY_MS, again);
  function again(): void {
    say();
    stop = deadline(SAY_EVERY_MS, again);
  }
  return () => stop();
}

function noAnswer(what: string, msMax: number): Error {
  return Object.assign(new Error(`no answer within ${Math.round(msMax)} ms: ${what}`), { code: "CONNECT_TIMEOUT" });
}
