/**
 * The p99 latency of reservations over the last minute. One histogram per second in one array of fixed size: noting a
 * latency allocates nothing, and the precision does not depend on the rate.
 */

const SECONDS = 60;
/** Upper bound of the first bucket. Each further one is 10% higher, up to 18 s: results are at most 10% too high. */
const FIRST_MS = 0.1;
const GROWTH = 1.1;
const BUCKETS = 128;

export type ReserveLatency = {
  note(tookMs: number): void;
  /** In ms; null: there were no reservations in the last minute. */
  p99Ms(): number | null;
};

/** `nowMs` is a monotonic clock. */
export function createReserveLatency(nowMs: () => number): ReserveLatency {
  const counts = new Uint32Array(SECONDS * BUCKETS);
  /** The second that each row of `counts` belongs to. */
  const secondOf = new Float64Array(SECONDS).fill(-1);
  const secondNow = () => Math.floor(nowMs() / 1000);

  return {
    note(tookMs) {
      const second = secondNow();
      const row = second % SECONDS;
      if (secondOf[row] !== second) {
        secondOf[row] = second;
        counts.fill(0, row * BUCKETS, (row + 1) * BUCKETS);
      }
      const at = row * BUCKETS + bucketOf(tookMs);
      counts[at] = (counts[at] ?? 0) + 1;
    },

    p99Ms() {
      const oldest = secondNow() - SECONDS;
      const sums = new Float64Array(BUCKETS);
      let total = 0;
      for (let row = 0; row < SECONDS; row++) {
        if ((secondOf[row] ?? -1) <= oldest) continue;
        for (let bucket = 0; bucket < BUCKETS; bucket++) {
          const count = counts[row * BUCKETS + bucket] ?? 0;
          sums[bucket] = (sums[bucket] ?? 0) + count;
          total += count;
        }
      }
      if (total === 0) return null;
      let above = total * 0.99;
      const bucket = sums.findIndex((count) => {
        above -= count;
        return above <= 0;
      });
      return Math.round(FIRST_MS * GROWTH ** bucket * 10) / 10;
    },
  };
}

function bucketOf(tookMs: number): number {
  if (!(tookMs > FIRST_MS)) return 0;
  return Math.min(BUCKETS - 1, Math.ceil(Math.log(tookMs / FIRST_MS) / Math.log(GROWTH)));
}
