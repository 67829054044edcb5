import type { ShedReason } from "./metrics.ts";
import { endOf, type Tallies, type Tally, tooManyTokens, usedOf } from "./rate_tallies.ts";
import type { RedisRateCounts } from "./redis_rate_counts.ts";

/** What counting needs: the tallies of this replica, and those that all replicas share; undefined: it counts alone. */
export type Counters = {
  tallies: Tallies;
  shared: RedisRateCounts | undefined;
  /** Monotonic clock, ms. */
  now: () => number;
  onShed: ((reason: ShedReason) => void) | undefined;
};

/** Tokens reserved in one tally, and the minute they are in: by this replica's count, and by Redis's; 0: Redis did not count them. */
type Reserved = { tally: Tally; tokens: number; endsAtMs: number; minute: number };

/**
 * The tokens of one request: reserved in every tally that limits them before the provider is called, and corrected when it is known how
 * many were used. Source: LIM-4.
 */
export class TokenReservation {
  readonly #counters: Counters;
  #reserved: Reserved[] = [];

  constructor(counters: Counters) {
    this.#counters = counters;
  }

  /**
   * Reserves the tokens in all tallies, or in none. A request reserves at most a whole limit: one that may use more needs a minute in
   * which nothing else was used. Throws too_many_requests.
   */
  async reserve(tallies: readonly Tally[], tokens: number): Promise<void> {
    const { shared, now } = this.#counters;
    const nowMs = now();
    const wanted = tallies.map((tally) => ({ tally, tokens: Math.min(tokens, tally.perMinute) }));
    for (const { tally } of wanted) this.#counters.tallies.renew(tally, nowMs);
    if (shared === undefined) {
      const full = wanted.find((one) => !fitsHere(one));
      if (full !== undefined) throw this.#refused(full.tally, full.tokens);
      this.#reserved = wanted.map((one) => this.#counted(one, false));
    } else if (wanted.every((one) => shared.isFarBelow(one.tally, one.tokens, nowMs))) {
      for (const one of wanted) shared.admitted(one.tally, one.tokens, nowMs);
      this.#reserved = wanted.map((one) => this.#counted(one, true));
    } else {
      await this.#ask(shared, wanted);
    }
  }

  /** Asks Redis, whose answer decides. */
  async #ask(shared: RedisRateCounts, wanted: readonly { tally: Tally; tokens: number }[]): Promise<void> {
    // All are asked before the first answer is awaited: they go in one call.
    const asked = wanted.map((one) => ({ ...one, question: shared.tokenQuestion(one.tally, one.tokens, true) }));
    let full: { tally: Tally; tokens: number } | undefined;
    for (const { question, ...one } of asked) {
      const isAnswered = await question.answered;
      // Redis may not answer: then this replica's own count decides.
      if (isAnswered ? question.passed === one.tokens : fitsHere(one))
        this.#reserved.push(this.#counted(one, isAnswered));
      else full ??= one;
    }
    if (full === undefined) return;
    this.settle(0);
    throw this.#refused(full.tally, full.tokens);
  }

  /** Corrects what is reserved: a request that is reserved again may use fewer tokens than was thought. */
  lower(tokens: number): void {
    for (const one of this.#reserved) {
      const next = Math.min(tokens, one.tokens);
      this.#correct(one, next - one.tokens);
      one.tokens = next;
    }
  }

  /**
   * Replaces what was reserved by what was used. Tokens that were not used are given back if their minute still runs. Tokens beyond
   * the reservation count in the minute in which the request ends. Idempotent.
   */
  settle(used: number): void {
    for (const one of this.#reserved) this.#correct(one, used - one.tokens);
    this.#reserved = [];
  }

  #counted({ tally, tokens }: { tally: Tally; tokens: number }, isShared: boolean): Reserved {
    tally.count += tokens;
    return { tally, tokens, endsAtMs: tally.endsAtMs, minute: isShared ? tally.minute : 0 };
  }

  #correct({ tally, endsAtMs, minute }: Reserved, tokens: number): void {
    if (tokens === 0) return;
    const { shared, now, tallies } = this.#counters;
    const nowMs = now();
    tallies.renew(tally, nowMs);
    if (tally.endsAtMs === endsAtMs || tokens > 0) tally.count += tokens;
    if (shared === undefined) return;
    if (minute !== 0 && tally.minute === minute && nowMs < tally.minuteEndsMs) shared.admitted(tally, tokens, nowMs);
    else if (tokens > 0) shared.tokenQuestion(tally, tokens, false);
  }

  #refused(tally: Tally, wanted: number): Error {
    const { now, onShed } = this.#counters;
    const nowMs = now();
    onShed?.(tally.kind.rateReason);
    const seconds = (endOf(tally, nowMs) - nowMs) / 1000;
    return tooManyTokens(tally, { wanted, used: usedOf(tally, nowMs), seconds });
  }
}

/** Whether the tokens are within the limit by this replica's own count. */
function fitsHere({ tally, tokens }: { tally: Tally; tokens: number }): boolean {
  return tally.count + tokens <= tally.perMinute;
}
