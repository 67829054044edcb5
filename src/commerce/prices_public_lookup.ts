import type { Config } from "../config.ts";
import type { Bus } from "../platform/bus.ts";
import { openCachedLookup } from "../platform/cached_lookup.ts";
import type { Db } from "../platform/db.ts";
import { arePricesPublic } from "./sellers_store.ts";

/** Whether a seller's prices are public. Answers from memory: anyone may ask, so an answer must not cost a query. */

const SELLERS_MAX = 1_000;
const MISSES_MAX = 1;

export type PricesPublicLookup = {
  /** Throws service_unavailable. */
  get(sellerId: number): Promise<boolean>;
  close(): void;
};

/** Opens the lookup. `nowMs`: monotonic clock. */
export function openPricesPublicLookup({
  db,
  bus,
  config,
  nowMs,
}: {
  db: Db;
  bus: Bus;
  config: Pick<Config, "cacheTtlMs">;
  nowMs: () => number;
}): PricesPublicLookup {
  const { get, close } = openCachedLookup<{ sellerId: number; isPublic: boolean }>({
    bus,
    nowMs,
    max: SELLERS_MAX,
    missesMax: MISSES_MAX,
    ttlMs: config.cacheTtlMs,
    load: async (key) => ({ sellerId: Number(key), isPublic: await arePricesPublic({ db }, Number(key)) }),
    kinds: ["account"],
    tagsOf: ({ sellerId }) => [`account:${sellerId}`],
  });
  return { get: async (sellerId) => (await get(String(sellerId)))?.isPublic === true, close };
}
