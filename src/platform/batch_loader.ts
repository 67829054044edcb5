import { setTimeout as sleep } from "node:timers/promises";
import { Refusal } from "../errors.ts";
import { within } from "./time_limit.ts";

/** Default for concurrent reads: lookups use no more of the pool. */
const READS_MAX = 2;
/** Keys in one read. */
const KEYS_MAX = 256;
/** A read that takes longer has met a silent server: its lookups fail, and the next read may start. */
const READ_MS_MAX = 5_000;

/**
 * Combines concurrent lookups into few reads. Lookups that arrive during a read are combined in the next one, so that a flood of
 * unknown keys neither exhausts the pool nor delays valid keys for long. A single lookup is read immediately, unless the last read
 * began less than `pauseMs` ago (default: 0). Rejects as its read does, and with service_unavailable if that takes too long. The
 * caller limits how many lookups wait.
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
    // The first read includes every lookup of this turn of the event loop.
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
