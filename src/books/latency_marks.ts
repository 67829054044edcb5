import { BUCKETS, percentileMs } from "../platform/durations.ts";

/**
 * Percentiles of the rollups' histograms. A histogram is one number, the sum of its durations' marks (`duration_mark` in
 * drizzle/0005_books.sql), which has twelve decimal digits for each bucket. Pure. Source: MON-25.
 */

const A_BUCKET = 10n ** 12n;

/**
 * The durations, in ms, that half of the requests, and 95 in a hundred, did not exceed. How many requests are in a bucket is exact;
 * a duration is the middle of its bucket, which is at most a tenth off.
 */
export type Percentiles = { p50Ms: number; p95Ms: number };

/** null: no duration was counted. */
export function percentilesOf(marks: bigint): Percentiles | null {
  const buckets: number[] = [];
  for (let left = marks; left > 0n && buckets.length < BUCKETS; left /= A_BUCKET) buckets.push(Number(left % A_BUCKET));
  const [p50Ms, p95Ms] = [percentileMs(buckets, 0.5), percentileMs(buckets, 0.95)];
  return p50Ms === null || p95Ms === null ? null : { p50Ms, p95Ms };
}
