import type { Config } from "../config.ts";
import type { Bus } from "../platform/bus.ts";
import { type CacheCounters, createCache } from "../platform/cache.ts";
import type { Db } from "../platform/db.ts";
import { type HostConfig, isHostName, ownHosts } from "./host_names.ts";
import { loadActiveHost } from "./hosts_store.ts";

/** Active reseller domains, from memory. Dropped when the domain or its reseller changes, and in any case after the TTL. */

const HOSTS_MAX = 20_000;
const MISSES_MAX = 10_000;
/** While the bus is silent, what changed elsewhere is noticed within this time. */
const TTL_UNHEALTHY_MS = 1000;

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
    load: (host) => loadActiveHost({ db }, host),
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
