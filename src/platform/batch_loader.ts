import { setTimeout as sleep } from "node:timers/promises";
import { Refusal } from "../errors.ts";
import { within } from "./time_limit.ts";

/** Reads under way at once, unless told: what looks up takes no more of the pool. */
const READS_MAX = 2;
/** Keys of one read. */
const KEYS_MAX = 256;
/** A read that takes longer has met a silent server. Those it was for are refused, and the next may try. */
const READ_MS_MAX = 5_000;

/**
 * Look-ups that do not become as many reads. What comes while the reads are under way is read together, so that a flood of
 * keys nobody has neither takes the pool from others nor keeps a good key waiting for long. No timer: a look-up that comes
 * alone is read at once, unless the last read began less than `pauseMs` ago (default: 0, no pause). Each ends as its read ends, with service_unavailable when that takes too long. How many wait is for
 * the caller to limit.
 */
export function createBatchLoader<V>(
  read: (keys: string[]) => Promise<ReadonlyMap<string, V>>,
  { readsMax = READS_MAX, pauseMs = 0 }: { readsMax?: number; pauseMs?: number } = {},
): (key: string) => Promise<V | undefined> {
  const waiting: LookUp<V>[] = [];
  let reads = 0;
  let nextMs = 0;

  async function run(): Promise<void> {
    reads++;
    // Lets everything that arrives in this turn of the event loop into the first read.
    await Promise.resolve();
    while (waiting.length > 0) {
      const earlyMs = nextMs - performance.now();
      if (earlyMs > 0) {
        await sleep(earlyMs);
        continue;
      }
      nextMs = performance.now() + pauseMs;
      const taken = waiting.splice(0, KEYS_MAX);
      try {
        const found = await within(
          READ_MS_MAX,
          read(taken.map(({ key }) => key)),
          () => new Refusal("service_unavailable"),
        );
        for (const { key, resolve } of taken) resolve(found.get(key));
      } catch (error) {
        for (const { reject } of taken) reject(error);
      }
    }
    reads--;
  }

  return (key) => {
    const { promise, resolve, reject } = Promise.withResolvers<V | undefined>();
    waiting.push({ key, resolve, reject });
    if (reads < readsMax) void run();
    return promise;
  };
}

type LookUp<V> = { key: string; resolve(value: V | undefined): void; reject(error: unknown): void };
