import type { Log } from "./log.ts";
import { within } from "./time_limit.ts";

const FLUSH_EVERY_MS = 5_000;
/** Time limit of the last flush, when the replica shuts down. */
const LAST_FLUSH_MS_MAX = 2_000;

/** Thousands of small facts a second, kept in memory and written together. A crash loses them, so no decision may depend on them. */
export type BufferedWrites<K, V> = {
  /** Merges a fact into the entry of its key. Dropped if there are too many entries. */
  note(key: K, fact: V): void;
  /** The entry of a key, which may be changed in place at once, without waiting for anything. */
  entry(key: K): V | undefined;
  /** Writes all entries. Never throws: on failure the entries are kept for the next flush. */
  flush(): Promise<void>;
  /** Writes the remaining entries and stops. */
  stop(): Promise<void>;
};

type BufferedWritesOptions<V> = {
  /** Name in log lines. */
  name: string;
  /** Entries between two flushes. */
  max: number;
  /** Combines two facts of one key. */
  merge: (older: V, newer: V) => V;
  /** May get the same entries again if the reply was lost. */
  write: (entries: V[]) => Promise<void>;
  log: Log;
};

/** Opens a buffer, which is written every few seconds. */
export function createBufferedWrites<K, V>({
  name,
  max,
  merge,
  write,
  log,
}: BufferedWritesOptions<V>): BufferedWrites<K, V> {
  let entries = new Map<K, V>();
  let dropped = 0;
  let failing = false;
  let flushing: Promise<void> | undefined;

  function note(key: K, fact: V): void {
    const known = entries.get(key);
    if (known !== undefined) entries.set(key, merge(known, fact));
    else if (entries.size < max) entries.set(key, fact);
    else dropped++;
  }

  async function flushOnce(): Promise<void> {
    const batch = entries;
    entries = new Map();
    try {
      if (batch.size > 0) await write([...batch.values()]);
      failing = false;
    } catch (error) {
      if (!failing)
        log.warn({ err: error, name }, "buffered entries could not be written; they are kept for the next attempt");
      failing = true;
      const newer = entries;
      entries = batch;
      for (const [key, fact] of newer) note(key, fact);
    }
    if (dropped > 0) log.warn({ name, dropped }, "the buffer was full; entries were dropped");
    dropped = 0;
  }

  const flush = () => (flushing ??= flushOnce().finally(() => (flushing = undefined)));
  const timer = setInterval(() => void flush(), FLUSH_EVERY_MS);

  return {
    note,
    entry: (key) => entries.get(key),
    flush,
    async stop() {
      clearInterval(timer);
      // A flush in progress may have begun before the last fact arrived.
      const last = Promise.resolve(flushing).then(flush);
      await within(LAST_FLUSH_MS_MAX, last).catch((error) =>
        log.warn({ err: error, name }, "the remaining buffered entries are lost"),
      );
    },
  };
}
