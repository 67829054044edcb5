import type { Bus, Change } from "./bus.ts";
import { type CacheCounters, createCache } from "./cache.ts";

/**
 * What every request needs from Postgres (API keys, hosts, brands, sessions), cached in the replica's memory. A cached value is
 * never the authority: the ledger checks key, account, tenant and host again under its lock.
 *
 * What invalidates an entry:
 *
 * | what happens                                | effect                                                          | after                |
 * | ------------------------------------------- | --------------------------------------------------------------- | -------------------- |
 * | a commit in this replica, by `changing`     | entries with a tag of a change are dropped                      | before it returns    |
 * | the same in another replica, by Redis       | the same                                                        | some milliseconds    |
 * | the table `changes`, read by every replica  | the same; covers a lost message, a crash before publishing, psql | 1 s                  |
 * | changes may have been missed (`bus.onGap`)  | everything is dropped                                           | 3 s                  |
 * | age                                         | the entry is read again                                         | see `ttlMs` below    |
 * | its value changes with time, as when a package begins | the entry is read again                             | at that time         |
 * | too many entries                            | the least recently used is dropped                              | at once              |
 *
 * - Triggers on the tables write `changes`; so no writer has to remember to invalidate. Each row is a kind and a ref. A change
 *   drops the entries that have the tag `kind:ref`, as in `account:7`.
 * - A change of one of the lookup's kinds also drops all negative entries ("there is no such row"): the row may exist now.
 * - A load that began before an invalidation answers its callers and is not cached (generation check in cache.ts).
 * - Changes may have been missed when Redis was lost or is back, when no heartbeat came through it for 3 s, when the table
 *   `changes` could not be read, and when it had more changes than one read takes (changes_store.ts).
 */

/** Lifetime of an entry while the bus is silent: changes elsewhere are noticed within this time. */
const TTL_UNHEALTHY_MS = 1_000;

export type CachedLookup<V> = {
  /** The value; null: known not to exist; undefined: not cached, use `get`. Synchronous. */
  peek(key: string): V | null | undefined;
  /**
   * The value, loaded if it is not cached; undefined: it does not exist. Concurrent callers of one key share a load. Throws
   * service_unavailable when the load takes longer than a look-up may (time_limit.ts) or too many are under way, and what `load` throws.
   */
  get(key: string): Promise<V | undefined>;
  /** Drops the entries that have this tag, in this replica. */
  drop(tag: string): void;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

type CachedLookupOptions<V> = {
  bus: Bus;
  /** Monotonic clock. */
  nowMs: () => number;
  /** Entries that exist, and negative entries. */
  max: number;
  missesMax: number;
  /** Lifetime of an entry while the bus is healthy. */
  ttlMs: number;
  /**
   * While the bus is healthy, an expired entry is still served for this long while it is read again, so that a slow database does not
   * delay requests whose entry is cached. Default: 0.
   */
  serveStaleMs?: number;
  load: (key: string) => Promise<V | undefined>;
  /** How long a value may be used at most after it was read, in ms: until a time changes it. Default: no such limit. */
  goodMsOf?: (value: V) => number;
  /** The kinds of changes that concern this lookup. Others are ignored. */
  kinds: readonly Change["kind"][];
  /** The changes that invalidate this value, each as `kind:ref`. Other tags are for `drop`. */
  tagsOf: (value: V) => readonly string[];
};

/** Opens a lookup and subscribes it to the bus. */
export function openCachedLookup<V extends object>({
  bus,
  nowMs,
  max,
  missesMax,
  ttlMs,
  serveStaleMs = 0,
  load,
  goodMsOf,
  kinds,
  tagsOf,
}: CachedLookupOptions<V>): CachedLookup<V> {
  const cache = createCache<V>({
    max,
    missesMax,
    ttlMs: () => (bus.healthy() ? ttlMs : Math.min(ttlMs, TTL_UNHEALTHY_MS)),
    staleMs: () => (bus.healthy() ? serveStaleMs : 0),
    load,
    goodMsOf,
    tagsOf,
    now: nowMs,
  });
  bus.subscribe((changes) => {
    const relevant = changes.filter(({ kind }) => kinds.includes(kind));
    for (const { kind, ref } of relevant) cache.drop(`${kind}:${ref}`);
    if (relevant.length > 0) cache.clearMisses();
  });
  bus.onGap(cache.flush);
  return { peek: cache.peek, get: cache.get, drop: cache.drop, counters: cache.counters, close: cache.flush };
}
