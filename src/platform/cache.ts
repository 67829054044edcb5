import { LRUCache } from "lru-cache";
import { Refusal } from "../errors.ts";
import { inTime } from "./time_limit.ts";

/** Loads in progress, over all keys; further ones are refused. */
const LOADS_MAX = 4096;
/** Dropped tags that are remembered while loads are in progress; beyond that, every load in progress counts as outdated. */
const RECENT_DROPS_MAX = 10_000;

export type Cache<V> = {
  /** The value; null: known not to exist; undefined: not cached, use `get`. Synchronous. */
  peek(key: string): V | null | undefined;
  /**
   * The value, loaded if it is not cached; undefined: it does not exist. Callers of one key share a load. Throws what `load` throws,
   * and service_unavailable when too many loads are in progress or this one takes longer than `loadTimeoutMs`.
   */
  get(key: string): Promise<V | undefined>;
  /** Drops every entry with this tag, and the result of a load in progress if it turns out to have the tag. */
  drop(tag: string): void;
  flush(): void;
  /** Drops the negative entries: something new may exist. */
  clearMisses(): void;
  readonly counters: Readonly<CacheCounters>;
};

/** `drops` counts entries, not calls. */
export type CacheCounters = { hits: number; misses: number; drops: number };

type CacheOptions<V> = {
  max: number;
  missesMax: number;
  /** Lifetime of an entry. Read at every access, so that a shorter one applies to existing entries too. */
  ttlMs: () => number;
  /** How long an expired entry is still served while it is read again. A dropped entry is not. Read at every access; default: 0. */
  staleMs?: () => number;
  load: (key: string) => Promise<V | undefined>;
  /** How long a value may be used at most after it was read, in ms, also if its lifetime is longer. Default: no such limit. */
  goodMsOf?: ((value: V) => number) | undefined;
  tagsOf: (value: V) => readonly string[];
  /** Monotonic clock, ms. */
  now: () => number;
  /** Longest wait of a caller; by default that of all look-ups. The load itself goes on. */
  loadTimeoutMs?: number;
};

/**
 * A bounded cache of database rows with tags, by which they are dropped. A dropped value never comes back: a load that began before
 * an invalidation answers those who asked before it, and is not cached.
 */
export function createCache<V extends object>(options: CacheOptions<V>): Cache<V> {
  const { ttlMs, staleMs = () => 0, goodMsOf, load, tagsOf, now, loadTimeoutMs } = options;
  const counters: CacheCounters = { hits: 0, misses: 0, drops: 0 };
  const store = createStore<V>(options);
  const loads = createLoads<V>();

  const isFresh = ({ at, goodMs = Infinity }: Aged, beyondMs = 0) => now() - at < Math.min(goodMs, ttlMs() + beyondMs);

  function peek(key: string): V | null | undefined {
    const entry = store.entries.get(key);
    if (entry !== undefined && (isFresh(entry) || isServedStale(key, entry))) {
      counters.hits++;
      return entry.value;
    }
    const miss = store.misses.get(key);
    if (miss !== undefined && isFresh(miss)) {
      counters.hits++;
      return null;
    }
    return undefined;
  }

  /** Whether an expired entry is still served. If so, it is read again. */
  function isServedStale(key: string, entry: Entry<V>): boolean {
    if (!isFresh(entry, staleMs())) return false;
    // A failed load is retried at the next access, and reported once the entry is no longer served.
    if (!loads.isUnderWay(key) && loads.hasRoom()) loads.start(key, () => fill(key)).catch(() => {});
    return true;
  }

  async function get(key: string): Promise<V | undefined> {
    const known = peek(key);
    if (known !== undefined) return known ?? undefined;
    counters.misses++;
    const promise = loads.joinable(key) ?? loads.start(key, () => fill(key));
    return inTime(promise, loadTimeoutMs);
  }

  async function fill(key: string): Promise<V | undefined> {
    const begun = loads.generation();
    // The age counts from before the read: the value is at least that old.
    const at = now();
    const value = await load(key);
    if (value === undefined) {
      if (!loads.isMissOutdated(begun)) store.putMiss(key, at);
      return undefined;
    }
    const tags = tagsOf(value);
    if (!loads.isOutdated(begun, tags)) store.put(key, { value, at, goodMs: goodMsOf?.(value), tags });
    return value;
  }

  return {
    peek,
    get,
    drop(tag) {
      loads.outdate(tag);
      counters.drops += store.drop(tag);
    },
    flush() {
      loads.outdateAll();
      counters.drops += store.flush();
    },
    clearMisses() {
      loads.outdateMisses();
      counters.drops += store.clearMisses();
    },
    counters,
  };
}

/** When it was read, and for how long it may be used at most, in ms. */
type Aged = { at: number; goodMs?: number | undefined };
type Entry<V> = Aged & { value: V; tags: readonly string[] };

/** The entries, the negative entries, and the entries' tags. `drop`, `flush` and `clearMisses` return how many they removed. */
function createStore<V>({ max, missesMax }: { max: number; missesMax: number }) {
  const tagIndex = createTagIndex();
  const entries = new LRUCache<string, Entry<V>>({
    max,
    dispose: (entry, key) => tagIndex.remove(key, entry.tags),
  });
  // Kept apart, so that made-up keys cannot evict entries.
  const misses = new LRUCache<string, Aged>({ max: missesMax });

  function clearMisses(): number {
    const { size } = misses;
    misses.clear();
    return size;
  }

  return {
    entries,
    misses,
    put(key: string, entry: Entry<V>): void {
      misses.delete(key);
      entries.set(key, entry);
      tagIndex.add(key, entry.tags);
    },
    putMiss(key: string, at: number): void {
      entries.delete(key);
      misses.set(key, { at });
    },
    drop: (tag: string) => tagIndex.keysOf(tag).filter((key) => entries.delete(key)).length,
    clearMisses,
    flush(): number {
      const { size } = entries;
      entries.clear();
      return size + clearMisses();
    },
  };
}

/** The keys that have a tag. */
function createTagIndex() {
  const keysByTag = new Map<string, Set<string>>();
  return {
    add(key: string, tags: readonly string[]): void {
      for (const tag of tags) {
        const keys = keysByTag.get(tag);
        if (keys) keys.add(key);
        else keysByTag.set(tag, new Set([key]));
      }
    },
    remove(key: string, tags: readonly string[]): void {
      for (const tag of tags) {
        const keys = keysByTag.get(tag);
        if (keys?.delete(key) && keys.size === 0) keysByTag.delete(tag);
      }
    },
    /** A copy: dropping a key changes the index. */
    keysOf: (tag: string): string[] => [...(keysByTag.get(tag) ?? [])],
  };
}

/** Loads in progress, and whether an invalidation has outdated them. A generation is the number of invalidations so far. */
function createLoads<V>() {
  const underWay = new Map<string, { begun: number; promise: Promise<V | undefined> }>();
  const recentDrops = new Map<string, number>();
  let running = 0;
  let invalidations = 0;
  /** Loads begun before this generation are outdated, whatever their tags. */
  let all = 0;
  /** Loads begun before this generation are outdated if they find nothing. */
  let empty = 0;

  async function run(key: string, load: () => Promise<V | undefined>, begun: number): Promise<V | undefined> {
    running++;
    try {
      return await load();
    } finally {
      running--;
      if (underWay.get(key)?.begun === begun) underWay.delete(key);
      if (running === 0) recentDrops.clear();
    }
  }

  return {
    generation: () => invalidations,
    isUnderWay: (key: string) => underWay.has(key),
    hasRoom: () => running < LOADS_MAX,
    /** A load to share: one that began before the last invalidation might return what that invalidation ended. */
    joinable(key: string): Promise<V | undefined> | undefined {
      const load = underWay.get(key);
      return load?.begun === invalidations ? load.promise : undefined;
    },
    start(key: string, load: () => Promise<V | undefined>): Promise<V | undefined> {
      if (running >= LOADS_MAX) throw new Refusal("service_unavailable");
      const begun = invalidations;
      const promise = run(key, load, begun);
      underWay.set(key, { begun, promise });
      return promise;
    },
    outdate(tag: string): void {
      invalidations++;
      empty = invalidations;
      if (running === 0) return;
      if (recentDrops.size >= RECENT_DROPS_MAX) {
        all = invalidations;
        recentDrops.clear();
      }
      recentDrops.set(tag, invalidations);
    },
    outdateMisses(): void {
      empty = ++invalidations;
    },
    outdateAll(): void {
      all = ++invalidations;
    },
    isOutdated: (begun: number, tags: readonly string[]) =>
      begun < all || tags.some((tag) => begun < (recentDrops.get(tag) ?? 0)),
    isMissOutdated: (begun: number) => begun < all || begun < empty,
  };
}
