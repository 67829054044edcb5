import { cpuMs } from "./cpu.ts";

/**
 * Waits until the bench's own processes have no work left. Stores and gateways continue to work after an answer
 * (checkpoints, vacuum, batches, garbage collection). That work must not count for the contender that is measured next.
 */

/** The processes are quiet when, within one window, they together use less than this share of a core. */
const QUIET_SHARE = 0.08;
/** The kernel counts CPU in steps of 10 ms, so a shorter window is too coarse. */
const WINDOW_MS = 300;
/** Longest wait before one measurement, and the total of a whole run. */
const WAIT_MS_MAX = 5_000;
const RUN_WAIT_MS_MAX = 5 * 60_000;

export type QuietOptions = {
  /** The processes to wait for, each with its children. */
  pids: Readonly<Record<string, number>>;
  say(line: string): void;
  /** CPU that each process has used so far, ms; default: from /proc. */
  read?: typeof cpuMs;
};

export class Quiet {
  readonly #options: QuietOptions;
  #waits = 0;
  #givenUp = 0;
  #leftMs = RUN_WAIT_MS_MAX;

  constructor(options: QuietOptions) {
    this.#options = options;
  }

  /**
   * Resolves when all processes are quiet, or after `msMax`: then it names the busy ones. Without CPU figures it
   * resolves immediately.
   */
  async wait(msMax = WAIT_MS_MAX): Promise<void> {
    if (process.platform !== "linux" && this.#options.read === undefined) return;
    this.#waits++;
    const beganMs = performance.now();
    const lastMs = beganMs + Math.min(msMax, this.#leftMs);
    for (;;) {
      const busy = await this.#busy();
      const now = performance.now();
      if (busy !== undefined && now + WINDOW_MS < lastMs) continue;
      // Every wait takes one window; only the time beyond it counts against the total.
      this.#leftMs = Math.max(0, this.#leftMs - Math.max(0, now - beganMs - WINDOW_MS));
      if (busy === undefined) return;
      this.#givenUp++;
      this.#options.say(`not quiet after ${((now - beganMs) / 1000).toFixed(1)} s: ${busy}; measuring nevertheless`);
      return;
    }
  }

  /** A sentence for the report; undefined: every measurement began quietly. */
  summary(): string | undefined {
    if (this.#givenUp === 0) return undefined;
    return `${this.#givenUp} of ${this.#waits} times, the bench's processes were still busy when a measurement began`;
  }

  /** The CPU of each process in one window; undefined: they are quiet. */
  async #busy(): Promise<string | undefined> {
    const { pids, read = cpuMs } = this.#options;
    const [before, beganMs] = [read(pids), performance.now()];
    await Bun.sleep(WINDOW_MS);
    const after = read(pids);
    const ms = performance.now() - beganMs;
    const shares = Object.keys(pids).map((name) => ({
      name,
      share: ((after[name] ?? 0) - (before[name] ?? 0)) / ms,
    }));
    const total = shares.reduce((sum, { share }) => sum + Math.max(0, share), 0);
    if (total < QUIET_SHARE) return undefined;
    return shares
      .filter(({ share }) => share > 0)
      .sort((a, b) => b.share - a.share)
      .map(({ name, share }) => `${name} ${Math.round(share * 100)} %`)
      .join(", ");
  }
}
