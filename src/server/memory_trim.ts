const SAMPLE_EVERY_MS = 5_000;
/** Fewer requests at once leave no memory behind that is worth a collection. */
const PEAK_MIN = 100;
/** A peak is over when at most this fraction of its requests is left. */
const LEFT_FRACTION_MAX = 0.1;
/** The first collection runs finalizers; the second finds what those freed. */
const COLLECTIONS = 2;

/**
 * Calls `giveBack` when a peak of work is over. Neither the collector nor the allocator does anything in an idle process, so
 * a replica would keep the memory of its busiest minute. Measured by `bun run soak`.
 */
export function trimMemory({ inFlight, giveBack }: { inFlight: () => number; giveBack: () => void }): {
  close(): void;
} {
  let peak = 0;
  let due = 0;
  const timer = setInterval(() => {
    const now = inFlight();
    peak = Math.max(peak, now);
    if (peak >= PEAK_MIN && now <= peak * LEFT_FRACTION_MAX) {
      peak = now;
      due = COLLECTIONS;
    }
    if (due === 0) return;
    due--;
    giveBack();
  }, SAMPLE_EVERY_MS);
  return { close: () => clearInterval(timer) };
}
