const SAMPLE_EVERY_MS = 5_000;
/** Fewer requests at once leave no memory behind that is worth a collection. */
const PEAK_MIN = 100;
/** A peak is over when at most this fraction of its requests is left. */
const LEFT_FRACTION_MAX = 0.1;
/** The first collection runs finalizers; the second finds what those freed. */
const COLLECTIONS = 2;

type Trimmed = {
  /** Requests in flight. */
  inFlight: () => number;
  /** The most of them since the last call: a wave may begin and end between two samples. */
  takePeak: () => number;
  giveBack: () => void;
};

/**
 * Calls `giveBack` when a peak of work is over. Neither the collector nor the allocator does anything in an idle process, so
 * a replica would keep the memory of its busiest minute. Measured by `bun run soak`.
 */
export function trimMemory({ inFlight, takePeak, giveBack }: Trimmed): { close(): void } {
  let peak = 0;
  let due = 0;
  const timer = setInterval(() => {
    const now = inFlight();
    peak = Math.max(peak, takePeak());
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
