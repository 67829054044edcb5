const LOOK_EVERY_MS = 5_000;
/** Fewer requests at once leave nothing behind that is worth a collection. */
const PEAK_MIN = 100;
/** A peak is over when no more than this share of it is left. */
const LEFT_SHARE_MAX = 0.1;
/** What the first collection frees has finalizers, and what those free is found by the next. */
const COLLECTIONS = 2;

/**
 * Calls `giveBack` when a peak of work is over. Neither the collector nor the allocator does anything for a process that
 * has nothing to do, so a replica would keep what its busiest minute took. Measured by `bun run soak`.
 */
export function watchPeak({ inFlight, giveBack }: { inFlight: () => number; giveBack: () => void }): {
  close(): void;
} {
  let peak = 0;
  let due = 0;
  const timer = setInterval(() => {
    const now = inFlight();
    peak = Math.max(peak, now);
    if (peak >= PEAK_MIN && now <= peak * LEFT_SHARE_MAX) {
      peak = now;
      due = COLLECTIONS;
    }
    if (due === 0) return;
    due--;
    giveBack();
  }, LOOK_EVERY_MS);
  return { close: () => clearInterval(timer) };
}
