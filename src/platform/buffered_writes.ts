import type { Log } from "./log.ts";
import { within } from "./time_limit.ts";

const FLUSH_EVERY_MS = 5_000;
/** The last flush, of a replica that ends, takes no longer. */
const LAST_FLUSH_MS_MAX = 2_000;

/** Small facts by the thousand a second, kept in memory and written together: nothing may be decided by them. */
export type BufferedWrites<K, V> = {
  /** Adds a fact to what is known under its key. What does not fit any more is dropped. */
  note(key: K, fact: V): void;
  /** Writes what is there now. Never throws: what could not be written waits for the next time. */
  flush(): Promise<void>;
  /** Writes the rest, and no more from now on. */
  stop(): Promise<void>;
};

type BufferedWritesOptions<V> = {
  /** For the log. */
  name: string;
  /** Entries between two flushes. */
  max: number;
  /** Two facts of one key as one. */
  merge: (older: V, newer: V) => V;
  /** A lost reply has the same entries come once more. */
  write: (entries: V[]) => Promise<void>;
  log: Log;
};

/** Opens a collector, which writes every few seconds. */
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
      if (!failing) log.warn({ err: error, name }, "what was collected could not be written; it is tried again");
      failing = true;
      const newer = entries;
      entries = batch;
      for (const [key, fact] of newer) note(key, fact);
    }
    if (dropped > 0) log.warn({ name, dropped }, "there was too much to collect: some was dropped");
    dropped = 0;
  }

  const flush = () => (flushing ??= flushOnce().finally(() => (flushing = undefined)));
  const timer = setInterval(() => void flush(), FLUSH_EVERY_MS);

  return {
    note,
    flush,
    async stop() {
      clearInterval(timer);
      // The one under way may have begun before the last fact came.
      const last = Promise.resolve(flushing).then(flush);
      await within(LAST_FLUSH_MS_MAX, last).catch((error) => log.warn({ err: error, name }, "the rest is lost"));
    },
  };
}
