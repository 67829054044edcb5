import type { Log } from "../platform/log.ts";

const TICK_MS = 100;
/** One late tick is a pause, of the machine or of a collection; so many in a row are more work than there is time for. */
const LATE_TICKS = 2;
/** So many times the limit: it is no longer the work of a few that keeps it late. */
const FAR_TOO_LATE = 4;

/** `"behind"`: whoever has work here gives it no more. `"overwhelmed"`: it takes no new work at all. */
export type Lateness = "none" | "behind" | "overwhelmed";

/** How far this process is behind its own clock. */
export type LagWatch = {
  /** How late the last tick was, ms. */
  lagMs(): number;
  /** Whether the process keeps up. After late ticks it does again once a tick comes in time. */
  lateness(): Lateness;
  close(): void;
};

/** Watches the event loop with one timer. `nowMs` is a monotonic clock; what is late by more than `maxMs` is too late. */
export function watchLag({ nowMs, maxMs, log }: { nowMs: () => number; maxMs: number; log: Log }): LagWatch {
  let lagMs = 0;
  let late = 0;
  let dueMs = nowMs() + TICK_MS;
  // Armed anew by each tick, not an interval: that would catch up, and find itself in time in between.
  let timer = setTimeout(tick, TICK_MS);

  function tick(): void {
    const now = nowMs();
    lagMs = Math.max(0, now - dueMs);
    const before = late;
    late = lagMs > maxMs ? late + 1 : 0;
    if (late === LATE_TICKS)
      log.warn({ lagMs: Math.round(lagMs) }, "the process does not keep up: new work is refused");
    if (late === 0 && before >= LATE_TICKS) log.info("the process keeps up again");
    dueMs = now + TICK_MS;
    timer = setTimeout(tick, TICK_MS);
  }

  return {
    lagMs: () => lagMs,
    lateness() {
      if (late < LATE_TICKS) return "none";
      return lagMs > FAR_TOO_LATE * maxMs ? "overwhelmed" : "behind";
    },
    close: () => clearTimeout(timer),
  };
}
