/**
 * Requests at a fixed rate, whether or not earlier ones are answered: an open loop. Pure: the clock is passed in.
 *
 * A client that waits for an answer before it sends the next request also stops when the server stops, and so measures one slow answer
 * where hundreds of people would have waited ("coordinated omission"). Here every request has the time at which it should have started,
 * and its latency counts from there, also if no connection was free.
 */

/** Requests are due in steps of this: timers are no finer. Those of one step are due at its beginning. */
export const STEP_MS = 1;

export class Pace {
  readonly #perSecond: number;
  readonly #startMs: number;
  #taken = 0;

  constructor({ perSecond, startMs }: { perSecond: number; startMs: number }) {
    this.#perSecond = perSecond;
    this.#startMs = startMs;
  }

  /** When the next request is due. */
  get nextMs(): number {
    const steps = Math.floor((this.#taken * 1000) / this.#perSecond / STEP_MS);
    return this.#startMs + steps * STEP_MS;
  }

  /** The intended start of the next request, which is then taken; undefined: it is not due yet. */
  take(nowMs: number): number | undefined {
    const dueMs = this.nextMs;
    if (nowMs < dueMs) return undefined;
    this.#taken++;
    return dueMs;
  }
}

/** Of all requests that should have started within the measured time, this fraction is answered when it ends. */
const CARRIED_SHARE_MIN = 0.98;

/**
 * What is measured at a fixed rate: the requests that should have started from `fromMs` on, and before `toMs`. `planMs`: how long the
 * provider takes for an answer by its plan.
 */
export class Window {
  readonly fromMs: number;
  readonly toMs: number;
  readonly #planMs: number;
  #due = 0;
  #inTime = 0;

  constructor({ fromMs, toMs, planMs }: { fromMs: number; toMs: number; planMs: number }) {
    this.fromMs = fromMs;
    this.toMs = toMs;
    this.#planMs = planMs;
  }

  /** Whether a request with this intended start counts. */
  has(intendedMs: number): boolean {
    return intendedMs >= this.fromMs && intendedMs < this.toMs;
  }

  sent(intendedMs: number): void {
    if (this.has(intendedMs)) this.#due++;
  }

  answered(intendedMs: number, endedMs: number): void {
    if (this.has(intendedMs) && endedMs <= this.toMs + this.#planMs) this.#inTime++;
  }

  /** Whether the server kept up: otherwise requests pile up, and their latencies say only how long was measured. */
  get isCarried(): boolean {
    return this.#due > 0 && this.#inTime >= this.#due * CARRIED_SHARE_MIN;
  }
}
