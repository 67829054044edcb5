import type { Metrics } from "../platform/metrics.ts";
import type { Ledger } from "./ledger.ts";

/**
 * How long reserves took in the last minute: a histogram a second, in one array of fixed size, so that noting one costs
 * no memory and ten thousand a second are counted as exactly as ten.
 */

const SECONDS = 60;
/** The first bucket ends here, each further one a tenth later: up to 18 s, and at most a tenth too high. */
const FIRST_MS = 0.1;
const GROWTH = 1.1;
const BUCKETS = 128;

export type Latency = {
  note(tookMs: number): void;
  /** What 99 of 100 stayed below, in ms; null: there was none in the last minute. */
  p99Ms(): number | null;
};

/** `nowMs` is a monotonic clock. */
export function createLatency(nowMs: () => number): Latency {
  const counts = new Uint32Array(SECONDS * BUCKETS);
  /** Which second a row of `counts` is of. */
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

type Timing = {
  latency: Latency;
  metrics: Pick<Metrics, "held" | "holdEnded">;
  nowMs: () => number;
};

/** The same ledger, with every reserve and every end timed, whatever its answer: one that timed out was slow too. */
export function timed(ledger: Ledger, { latency, metrics, nowMs }: Timing): Ledger {
  return {
    ...ledger,
    async reserve(ask) {
      const askedMs = nowMs();
      try {
        return await ledger.reserve(ask);
      } finally {
        const tookMs = nowMs() - askedMs;
        latency.note(tookMs);
        metrics.held(tookMs);
      }
    },
    async settle(hold, usage, end) {
      const askedMs = nowMs();
      let spooled = false;
      try {
        const settlement = await ledger.settle(hold, usage, end);
        spooled = settlement.spooled;
        return settlement;
      } finally {
        metrics.holdEnded("settle", nowMs() - askedMs, spooled);
      }
    },
    async release(hold, reason) {
      const askedMs = nowMs();
      let spooled = false;
      try {
        const released = await ledger.release(hold, reason);
        spooled = released.spooled;
        return released;
      } finally {
        metrics.holdEnded("release", nowMs() - askedMs, spooled);
      }
    },
  };
}
