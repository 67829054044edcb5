import type { Config } from "../config.ts";
import type { Bus } from "../platform/bus.ts";
import { type CacheCounters, createCache } from "../platform/cache.ts";
import type { Db } from "../platform/db.ts";
import { loadBrand, type StoredBrand } from "./brands_store.ts";
import { LOGO_TYPE } from "./pictures.ts";

/** How a host's pages look, from memory. Dropped when the reseller or its brand changes, and in any case after the TTL. */

/** A brand is some kilobytes; at its worst, noise in both logos, half a megabyte. */
const BRANDS_MAX = 200;
const MISSES_MAX = 100;
/** While the bus is silent, what changed elsewhere is noticed within this time. */
const TTL_UNHEALTHY_MS = 1000;
/** The service's own; the build brings its looks. */
const OWN_VERSION = "own";

/** `css` sets the accent's variables, or is empty; `support` is an e-mail address or a URL; `icon` is a PNG. */
export type Brand = {
  name: string;
  support: string | null;
  css: string;
  version: string;
  logoLight: Uint8Array | null;
  logoDark: Uint8Array | null;
  logoType: string;
  icon: Uint8Array | null;
};

export type BrandLookup = {
  /** The brand of a reseller's hosts; null: of the service's own. Throws service_unavailable. */
  get(resellerId: number | null): Promise<Brand>;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

/** Opens the look-up. `nowMs` is the monotonic clock. */
export function openBrandLookup({
  db,
  bus,
  config,
  nowMs,
}: {
  db: Db;
  bus: Bus;
  config: Pick<Config, "brandName" | "brandSupport" | "cacheTtlMs">;
  nowMs: () => number;
}): BrandLookup {
  const own: Brand = {
    name: config.brandName,
    support: config.brandSupport === "" ? null : config.brandSupport,
    css: "",
    version: OWN_VERSION,
    logoLight: null,
    logoDark: null,
    logoType: LOGO_TYPE,
    icon: null,
  };
  const cache = createCache<{ resellerId: number; brand: Brand }>({
    max: BRANDS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: () => (bus.healthy() ? config.cacheTtlMs : Math.min(config.cacheTtlMs, TTL_UNHEALTHY_MS)),
    load: async (resellerId) => {
      const stored = await loadBrand({ db }, Number(resellerId));
      return stored && { resellerId: stored.resellerId, brand: toBrand(stored) };
    },
    tagsOf: ({ resellerId }) => [String(resellerId)],
    now: nowMs,
  });
  bus.subscribe((changes) => {
    const refs = changes.filter(({ kind }) => kind === "account").map(({ ref }) => ref);
    for (const ref of refs) cache.drop(ref);
    if (refs.length > 0) cache.clearMisses();
  });
  bus.onGap(() => cache.flush());
  return {
    async get(resellerId) {
      if (resellerId === null) return own;
      const found = await cache.get(String(resellerId));
      // Never the service's own in its place: that would name the operator.
      if (found === undefined) throw new Error(`a host belongs to ${resellerId}, who is no reseller`);
      return found.brand;
    },
    counters: cache.counters,
    close: () => cache.flush(),
  };
}

function toBrand({ name, support, css, version, logoLight, logoDark, icon }: StoredBrand): Brand {
  return { name, support, css, version, logoLight, logoDark, logoType: LOGO_TYPE, icon };
}
