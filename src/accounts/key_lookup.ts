import type { Config } from "../config.ts";
import { createBatches } from "../platform/batches.ts";
import type { Bus } from "../platform/bus.ts";
import { type CacheCounters, createCache } from "../platform/cache.ts";
import { digestOfKey } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import { type KeySnapshot, loadKeySnapshots } from "./keys_store.ts";

export type { KeySnapshot } from "./keys_store.ts";

/**
 * Key digest (hex) → snapshot, from memory. Fast, never the authority: the ledger checks key and account again under its
 * lock. An entry is dropped when its account, or the account's reseller, changes. Whatever happens it is read again after its TTL,
 * and no older than TTL + 5 s when it is given out, or the TTL alone while the bus is silent.
 */

const KEYS_MAX = 50_000;
const MISSES_MAX = 10_000;
/** While the bus is silent, what changed elsewhere is noticed within this time. */
const TTL_UNHEALTHY_MS = 1000;
/** While the bus is heard, an entry whose TTL is over is given out for so much longer, while it is read again. */
const STALE_MS = 5_000;

export type KeyLookup = {
  /** The snapshot of a key as a client sends it, at once if it is in memory. What is no key of ours by its form is not looked up. */
  find(secret: string): KeySnapshot | undefined | Promise<KeySnapshot | undefined>;
  /** undefined: not in memory; null: known to be unknown. */
  peek(digestHex: string): KeySnapshot | undefined | null;
  get(digestHex: string): Promise<KeySnapshot | undefined>;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

/** Opens the look-up. `nowMs` is the monotonic clock. */
export function openKeyLookup({
  db,
  bus,
  config,
  nowMs,
}: {
  db: Db;
  bus: Bus;
  config: Pick<Config, "cacheTtlMs">;
  nowMs: () => number;
}): KeyLookup {
  const cache = createCache<KeySnapshot>({
    max: KEYS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: () => (bus.healthy() ? config.cacheTtlMs : Math.min(config.cacheTtlMs, TTL_UNHEALTHY_MS)),
    staleMs: () => (bus.healthy() ? STALE_MS : 0),
    load: createBatches((digests) => loadKeySnapshots({ db }, digests)),
    tagsOf: ({ accountId, tenantId }) => (tenantId > 0 ? [String(accountId), String(tenantId)] : [String(accountId)]),
    now: nowMs,
  });
  bus.subscribe((changes) => {
    const refs = changes.filter(({ kind }) => kind === "account").map(({ ref }) => ref);
    for (const ref of refs) cache.drop(ref);
    // A key that was unknown a moment ago may be the one just created.
    if (refs.length > 0) cache.clearMisses();
  });
  bus.onGap(() => cache.flush());
  return {
    find(secret) {
      const digest = digestOfKey(secret);
      if (digest === undefined) return undefined;
      const known = cache.peek(digest);
      return known === undefined ? cache.get(digest) : (known ?? undefined);
    },
    peek: cache.peek,
    get: cache.get,
    counters: cache.counters,
    close: () => cache.flush(),
  };
}
