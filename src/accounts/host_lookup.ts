import type { Config } from "../config.ts";
import { createBatchLoader } from "../platform/batch_loader.ts";
import type { Bus } from "../platform/bus.ts";
import type { CacheCounters } from "../platform/cache.ts";
import { openCachedLookup } from "../platform/cached_lookup.ts";
import type { Db } from "../platform/db.ts";
import { type HostConfig, isHostName, ownHosts } from "./host_names.ts";
import { loadActiveHosts } from "./hosts_store.ts";

/**
 * Active reseller domains by host name, from memory. A change of the domain or of its reseller drops the entry. What else does:
 * cached_lookup.ts.
 */

const HOSTS_MAX = 20_000;
const MISSES_MAX = 10_000;
const SERVE_STALE_MS = 5_000;
/** Between two reads of uncached names: anybody can send any Host header, so at most 50 reads a second. */
const READ_PAUSE_MS = 20;

/** An active domain. `tenantEpoch`: the epoch of its reseller when this was read. */
export type ActiveHost = { resellerId: number; tenantEpoch: number };

export type HostLookup = {
  /** Whether the host is the service's own: API, alias, panel, or a local one where those are allowed. */
  isOwn(host: string): boolean;
  /** undefined: not cached; null: known not to be an active domain. */
  peek(host: string): ActiveHost | undefined | null;
  get(host: string): Promise<ActiveHost | undefined>;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

type HostLookupOptions = {
  db: Db;
  bus: Bus;
  config: HostConfig & Pick<Config, "cacheTtlMs">;
  /** Monotonic clock. */
  nowMs: () => number;
};

/** Opens the lookup. Its hosts are in lower case and without a port. */
export function openHostLookup({ db, bus, config, nowMs }: HostLookupOptions): HostLookup {
  const own = ownHosts(config);
  const { peek, get, counters, close } = openCachedLookup<ActiveHost & { host: string }>({
    bus,
    nowMs,
    max: HOSTS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: config.cacheTtlMs,
    serveStaleMs: SERVE_STALE_MS,
    load: createBatchLoader((names) => loadActiveHosts({ db }, names), { readsMax: 1, pauseMs: READ_PAUSE_MS }),
    kinds: ["account"],
    tagsOf: ({ resellerId }) => [`account:${resellerId}`],
  });
  return {
    isOwn: (host) => own.has(host),
    // A Host header can be any text: only host names are looked up.
    peek: (host) => (isHostName(host) ? peek(host) : null),
    get: async (host) => (isHostName(host) ? get(host) : undefined),
    counters,
    close,
  };
}
