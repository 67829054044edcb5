import type { Config } from "../config.ts";
import { createBatches } from "../platform/batches.ts";
import type { Bus } from "../platform/bus.ts";
import { type CacheCounters, createCache } from "../platform/cache.ts";
import type { Db } from "../platform/db.ts";
import { type HostConfig, isHostName, ownHosts } from "./host_names.ts";
import { loadActiveHosts } from "./hosts_store.ts";

/**
 * Active reseller domains, from memory. Dropped when the domain or its reseller changes; read again after the TTL, as keys are.
 * Anybody can send any Host, before any key: names that are not in memory are read together, and so often at most.
 */

const HOSTS_MAX = 20_000;
const MISSES_MAX = 10_000;
/** From one read of names that are not in memory to the next: 50 reads a second at most, whoever floods. */
const READ_PAUSE_MS = 20;
/** While the bus is silent, what changed elsewhere is noticed within this time. */
const TTL_UNHEALTHY_MS = 1000;
/** While the bus is heard, an entry whose TTL is over is given out for so much longer, while it is read again. */
const STALE_MS = 5_000;

export type HostLookup = {
  /** Whether the service itself answers here: API, alias, panel, or a local host where those are allowed. */
  isOwn(host: string): boolean;
  /** undefined: not in memory; null: known to be no active domain. */
  peek(host: string): { resellerId: number } | undefined | null;
  get(host: string): Promise<{ resellerId: number } | undefined>;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

/** Opens the look-up. `nowMs` is the monotonic clock; hosts are given in lower case, without a port. */
export function openHostLookup({
  db,
  bus,
  config,
  nowMs,
}: {
  db: Db;
  bus: Bus;
  config: HostConfig & Pick<Config, "cacheTtlMs">;
  nowMs: () => number;
}): HostLookup {
  const own = ownHosts(config);
  const cache = createCache<{ host: string; resellerId: number }>({
    max: HOSTS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: () => (bus.healthy() ? config.cacheTtlMs : Math.min(config.cacheTtlMs, TTL_UNHEALTHY_MS)),
    staleMs: () => (bus.healthy() ? STALE_MS : 0),
    load: createBatches((names) => loadActiveHosts({ db }, names), { readsMax: 1, pauseMs: READ_PAUSE_MS }),
    tagsOf: ({ host, resellerId }) => [`host:${host}`, `account:${resellerId}`],
    now: nowMs,
  });
  bus.subscribe((changes) => {
    const relevant = changes.filter(({ kind }) => kind === "host" || kind === "account");
    for (const { kind, ref } of relevant) cache.drop(`${kind}:${ref}`);
    // A domain may have become active, or its reseller again.
    if (relevant.length > 0) cache.clearMisses();
  });
  bus.onGap(() => cache.flush());
  return {
    isOwn: (host) => own.has(host),
    // A Host header is any text: what is no name is not looked up.
    peek: (host) => (isHostName(host) ? cache.peek(host) : null),
    get: async (host) => (isHostName(host) ? cache.get(host) : undefined),
    counters: cache.counters,
    close: () => cache.flush(),
  };
}
