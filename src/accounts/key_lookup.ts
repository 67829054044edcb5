import type { Config } from "../config.ts";
import { createBatchLoader } from "../platform/batch_loader.ts";
import type { Bus } from "../platform/bus.ts";
import type { CacheCounters } from "../platform/cache.ts";
import { openCachedLookup } from "../platform/cached_lookup.ts";
import { digestOfKey } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import { type KeySnapshot, loadKeySnapshots } from "./key_snapshots_store.ts";

/**
 * API keys by their SHA-256 digest (hex), from memory. A change of the key's account, or of the account's reseller, drops the
 * entry; a change of a key counts as a change of its account. What else does: cached_lookup.ts.
 */

const KEYS_MAX = 50_000;
const MISSES_MAX = 10_000;
const SERVE_STALE_MS = 5_000;

export type KeyLookup = {
  /** Looks up a key as a client sends it; synchronous if it is cached. A string that cannot be a key is not looked up. */
  find(secret: string): KeySnapshot | undefined | Promise<KeySnapshot | undefined>;
  /** undefined: not cached; null: known not to exist. */
  peek(digestHex: string): KeySnapshot | undefined | null;
  get(digestHex: string): Promise<KeySnapshot | undefined>;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

type KeyLookupOptions = {
  db: Db;
  bus: Bus;
  config: Pick<Config, "cacheTtlMs">;
  /** Monotonic clock. */
  nowMs: () => number;
};

/** Opens the lookup. */
export function openKeyLookup({ db, bus, config, nowMs }: KeyLookupOptions): KeyLookup {
  const { peek, get, counters, close } = openCachedLookup<KeySnapshot>({
    bus,
    nowMs,
    max: KEYS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: config.cacheTtlMs,
    serveStaleMs: SERVE_STALE_MS,
    load: createBatchLoader((digests) => loadKeySnapshots({ db }, digests)),
    // The next package may have other limits and bounds. Source: QUO-11.
    goodMsOf: ({ packageGoodMs }) => packageGoodMs ?? Infinity,
    kinds: ["account"],
    tagsOf: ({ accountId, tenantId }) =>
      tenantId === 0 ? [`account:${accountId}`] : [`account:${accountId}`, `account:${tenantId}`],
  });
  return {
    find(secret) {
      const digest = digestOfKey(secret);
      if (digest === undefined) return undefined;
      const cached = peek(digest);
      return cached === undefined ? get(digest) : (cached ?? undefined);
    },
    peek,
    get,
    counters,
    close,
  };
}
