import { LRUCache } from "lru-cache";
import { Refusal } from "../errors.ts";
import { LOOK_UP_MS_MAX, within } from "./time_limit.ts";

/** Loads under way at once, over all keys; one more is refused. */
const LOADS_MAX = 4096;
/** Tags dropped while loads are under way that are remembered one by one; beyond, every load under way counts as overtaken. */
const RECENT_DROPS_MAX = 10_000;

export type Cache<V> = {
  /** The value; null: known to be unknown; undefined: not here, ask `get`. Makes no promise, unless an entry's life is over. */
  peek(key: string): V | null | undefined;
  /**
   * The value, loaded if need be; undefined: there is none. Callers of one key share a load. Throws what `load` throws,
   * and service_unavailable when too many loads are under way or this one does not end.
   */
  get(key: string): Promise<V | undefined>;
  /** Forgets every entry with this tag, and what is being loaded if it turns out to have it. */
  drop(tag: string): void;
  flush(): void;
  /** Forgets what is known to be unknown: something new may exist. */
  clearMisses(): void;
  readonly counters: Readonly<CacheCounters>;
};

/** `drops` counts entries, not calls. */
export type CacheCounters = { hits: number; misses: number; drops: number };

type CacheOptions<V> = {
  max: number;
  missesMax: number;
  /** Longest life of an entry; asked on every look, so that it also shortens the life of what is there. */
  ttlMs: () => number;
  /**
   * For so long beyond its life an entry is still given out, while it is read again: a database that is slow for a moment holds
   * up nobody whose entry is here. What an invalidation dropped is gone at once, all the same. Asked on every look; default: 0.
   */
  staleMs?: () => number;
  load: (key: string) => Promise<V | undefined>;
  tagsOf: (value: V) => readonly string[];
  /** Monotonic, ms. */
  now: () => number;
  loadTimeoutMs?: number;
};

/**
 * A bounded cache of what the database says. It may lag but never revives: whatever was being read when an invalidation
 * came is handed to who asked before, and not kept.
 */
export function createCache<V extends object>(options: CacheOptions<V>): Cache<V> {
  const { ttlMs, staleMs = () => 0, load, tagsOf, now, loadTimeoutMs = LOOK_UP_MS_MAX } = options;
  const counters: CacheCounters = { hits: 0, misses: 0, drops: 0 };
  const tagIndex = createTagIndex();
  const entries = new LRUCache<string, Entry<V>>({
    max: options.max,
    dispose: (entry, key) => tagIndex.remove(key, entry.tags),
  });
  // Apart from the entries, so that garbage cannot push them out.
  const misses = new LRUCache<string, { at: number }>({ max: options.missesMax });
  const loads = createLoads<V>();

  const isFresh = (entry: { at: number }, beyondMs = 0) => now() - entry.at < ttlMs() + beyondMs;

  function peek(key: string): V | null | undefined {
    const entry = entries.get(key);
    if (entry !== undefined && (isFresh(entry) || isStillGiven(key, entry))) {
      counters.hits++;
      return entry.value;
    }
    const miss = misses.get(key);
    if (miss !== undefined && isFresh(miss)) {
      counters.hits++;
      return null;
    }
    return undefined;
  }

  /** Whether an entry whose life is over is given out once more; it is read again meanwhile. */
  function isStillGiven(key: string, entry: Entry<V>): boolean {
    if (!isFresh(entry, staleMs())) return false;
    // One that fails is begun again by the next look, and told of once the entry is given out no more.
    if (!loads.isUnderWay(key) && loads.hasRoom()) loads.start(key, () => fill(key)).catch(() => {});
    return true;
  }

  async function get(key: string): Promise<V | undefined> {
    const known = peek(key);
    if (known !== undefined) return known ?? undefined;
    counters.misses++;
    const promise = loads.joinable(key) ?? loads.start(key, () => fill(key));
    return within(loadTimeoutMs, promise, () => new Refusal("service_unavailable"));
  }

  async function fill(key: string): Promise<V | undefined> {
    const begun = loads.moment();
    // The age counts from before the read: what was read is at least that old.
    const at = now();
    const value = await load(key);
    if (value === undefined) {
      if (!loads.overtakenAtAll(begun)) {
        entries.delete(key);
        misses.set(key, { at });
      }
      return undefined;
    }
    const tags = tagsOf(value);
    if (!loads.overtaken(begun, tags)) {
      misses.delete(key);
      entries.set(key, { value, at, tags });
      tagIndex.add(key, tags);
    }
    return value;
  }

  return {
    peek,
    get,
    drop(tag) {
      loads.overtake(tag);
      for (const key of tagIndex.keysOf(tag)) if (entries.delete(key)) counters.drops++;
    },
    flush() {
      loads.overtakeAll();
      counters.drops += entries.size + misses.size;
      entries.clear();
      misses.clear();
    },
    clearMisses() {
      loads.overtakeMisses();
      counters.drops += misses.size;
      misses.clear();
    },
    counters,
  };
}

type Entry<V> = { value: V; at: number; tags: readonly string[] };

/** Which keys carry a tag. */
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

/** Loads under way, and which invalidations overtook them. A moment is the count of invalidations so far. */
function createLoads<V>() {
  const underWay = new Map<string, { begun: number; promise: Promise<V | undefined> }>();
  const recentDrops = new Map<string, number>();
  let running = 0;
  let invalidations = 0;
  /** Loads begun before these are overtaken whatever their tags, or if they find nothing. */
  let all = 0;
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
    moment: () => invalidations,
    isUnderWay: (key: string) => underWay.has(key),
    hasRoom: () => running < LOADS_MAX,
    /** A load that may be shared: one that began before the last invalidation might hand on what that invalidation ended. */
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
    overtake(tag: string): void {
      invalidations++;
      empty = invalidations;
      if (running === 0) return;
      if (recentDrops.size >= RECENT_DROPS_MAX) {
        all = invalidations;
        recentDrops.clear();
      }
      recentDrops.set(tag, invalidations);
    },
    overtakeMisses(): void {
      empty = ++invalidations;
    },
    overtakeAll(): void {
      all = ++invalidations;
    },
    overtaken: (begun: number, tags: readonly string[]) =>
      begun < all || tags.some((tag) => begun < (recentDrops.get(tag) ?? 0)),
    overtakenAtAll: (begun: number) => begun < all || begun < empty,
  };
}
