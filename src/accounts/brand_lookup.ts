import type { Config } from "../config.ts";
import { type LanguageTag, languageTag } from "../languages/languages.ts";
import type { Bus } from "../platform/bus.ts";
import type { CacheCounters } from "../platform/cache.ts";
import { openCachedLookup } from "../platform/cached_lookup.ts";
import type { Db } from "../platform/db.ts";
import { loadBrand, type StoredBrand } from "./brands_store.ts";
import { LOGO_TYPE } from "./pictures.ts";

/**
 * Brands by reseller, from memory: how a host's pages look. A change of the reseller drops the entry; a change of its brand counts as
 * one. What else does: cached_lookup.ts.
 */

/** A brand takes a few kilobytes; at worst, with two noisy logos, half a megabyte. */
const BRANDS_MAX = 200;
const MISSES_MAX = 100;
/** Version of the service's own brand, whose looks are part of the build. */
const OWN_VERSION = "own";

/** `css` sets the accent's CSS variables, or is empty; `support` is an e-mail address or a URL; `icon` is a PNG. */
export type Brand = {
  name: string;
  support: string | null;
  /** Of readers who chose none; null: that of their browser. */
  language: LanguageTag | null;
  css: string;
  version: string;
  logoLight: Uint8Array | null;
  logoDark: Uint8Array | null;
  logoType: string;
  icon: Uint8Array | null;
};

export type BrandLookup = {
  /** The brand of a reseller's hosts; null: the service's own. Throws service_unavailable. */
  get(resellerId: number | null): Promise<Brand>;
  readonly counters: Readonly<CacheCounters>;
  close(): void;
};

type BrandLookupOptions = {
  db: Db;
  bus: Bus;
  config: Pick<Config, "brandName" | "brandSupport" | "brandLanguage" | "cacheTtlMs">;
  /** Monotonic clock. */
  nowMs: () => number;
};

/** Opens the lookup. */
export function openBrandLookup({ db, bus, config, nowMs }: BrandLookupOptions): BrandLookup {
  const own: Brand = {
    name: config.brandName,
    support: config.brandSupport === "" ? null : config.brandSupport,
    language: languageTag(config.brandLanguage) ?? null,
    css: "",
    version: OWN_VERSION,
    logoLight: null,
    logoDark: null,
    logoType: LOGO_TYPE,
    icon: null,
  };
  const { get, counters, close } = openCachedLookup<{ resellerId: number; brand: Brand }>({
    bus,
    nowMs,
    max: BRANDS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: config.cacheTtlMs,
    load: async (resellerId) => {
      const stored = await loadBrand({ db }, Number(resellerId));
      return stored && { resellerId: stored.resellerId, brand: toBrand(stored) };
    },
    kinds: ["account"],
    tagsOf: ({ resellerId }) => [`account:${resellerId}`],
  });
  return {
    async get(resellerId) {
      if (resellerId === null) return own;
      const found = await get(String(resellerId));
      // The service's own brand is no substitute: it would reveal the operator.
      if (found === undefined) throw new Error(`account ${resellerId} has a host but is not a reseller`);
      return found.brand;
    },
    counters,
    close,
  };
}

function toBrand({ name, support, language, css, version, logoLight, logoDark, icon }: StoredBrand): Brand {
  return { name, support, language, css, version, logoLight, logoDark, logoType: LOGO_TYPE, icon };
}
