import { modelComponent } from "../catalog/answer_counts.ts";
import { ANSWER_DAYS_MAX, readAnswerDays, readRecentAnswers, type Summed } from "../catalog/answer_sums_store.ts";
import type { Catalog } from "../catalog/catalog.ts";
import { INCIDENTS_OPEN_MAX } from "../limits.ts";
import type { Bus } from "../platform/bus.ts";
import { openCachedLookup } from "../platform/cached_lookup.ts";
import type { Clock } from "../platform/clock.ts";
import type { Db } from "../platform/db.ts";
import { shownIncidents } from "./incidents_store.ts";
import type { PricesPublicLookup } from "./prices_public_lookup.ts";
import { OPERATOR } from "./sellers_store.ts";
import { SERVICES } from "./status_components.ts";
import { listComponents, type StatusPage, type Sums, statusPage } from "./status_page.ts";

/**
 * Status pages of sellers, from memory: anyone may ask. A change of the seller's incidents or of the operator's drops a page; otherwise it is
 * put together again after half a minute. The sums are those of every brand, and are read once a minute. Source: STA-2, STA-7.
 */

const FRESH_MS = 30_000;
/** For as long an older page is shown while it is put together again. */
const STALE_MS = 60_000;
const SUMS_FRESH_MS = 60_000;
const PAGES_MAX = 500;
/** Models that a page names; the others are shown as one. */
const MODELS_MAX = 100;
/** Models in the sums. */
const SUMMED_MAX = 2_000;
/** Incidents on a page: every open one of the seller and the operator; and for how long after their end. */
const INCIDENTS_MAX = 2 * INCIDENTS_OPEN_MAX;
const INCIDENTS_DAYS = 30;

export type StatusLookup = {
  /** The page of a seller's hosts; 0: the operator's. Throws service_unavailable. */
  get(sellerId: number): Promise<StatusPage>;
  close(): void;
};

type Options = {
  db: Db;
  bus: Bus;
  clock: Clock;
  catalog: Pick<Catalog, "models">;
  pricesPublic: Pick<PricesPublicLookup, "get">;
};

/** Opens the lookup. */
export function openStatusLookup({ db, bus, clock, catalog, pricesPublic }: Options): StatusLookup {
  const readSums = sumsReader({ db, clock });

  async function load(sellerId: number): Promise<StatusPage> {
    const isPublic = await pricesPublic.get(sellerId);
    const sold = catalog
      .models()
      .filter(({ status, prices, imagePrices }) => status !== "deprecated" && (prices !== null || imagePrices.size > 0))
      .slice(0, SUMMED_MAX);
    const listed = listComponents(sold, isPublic ? MODELS_MAX : 0);
    const summed: Summed = [
      ...SERVICES.map((id) => [id, id] as const),
      ...listed.flatMap(({ id, modelIds }) => modelIds.map((modelId) => [modelComponent(modelId), id] as const)),
    ];
    const [sums, incidents] = await Promise.all([
      readSums(isPublic ? "named" : "together", summed),
      shownIncidents({ db }, { sellerIds: [OPERATOR, sellerId], days: INCIDENTS_DAYS, max: INCIDENTS_MAX }),
    ]);
    return statusPage({ listed, sums, incidents, sellerId, nowMs: clock.unixMs(), days: ANSWER_DAYS_MAX });
  }

  const pages = openCachedLookup<{ sellerId: number; page: StatusPage }>({
    bus,
    nowMs: clock.nowMs,
    max: PAGES_MAX,
    missesMax: 1,
    ttlMs: FRESH_MS,
    // Nobody waits for the sums of many models.
    serveStaleMs: STALE_MS,
    load: async (key) => ({ sellerId: Number(key), page: await load(Number(key)) }),
    kinds: ["account"],
    tagsOf: ({ sellerId }) => [`account:${sellerId}`, `account:${OPERATOR}`],
  });
  return {
    async get(sellerId) {
      const found = await pages.get(String(sellerId));
      if (found === undefined) throw new Error("a page was not loaded");
      return found.page;
    },
    close: pages.close,
  };
}

/** Reads the sums of all brands that show models alike, once a minute. */
function sumsReader({ db, clock }: Pick<Options, "db" | "clock">) {
  const known = new Map<"named" | "together", { readMs: number; sums: Promise<Sums> }>();
  return (kind: "named" | "together", summed: Summed): Promise<Sums> => {
    const before = known.get(kind);
    if (before !== undefined && clock.nowMs() - before.readMs < SUMS_FRESH_MS) return before.sums;
    const sums = Promise.all([readAnswerDays({ db }, summed, ANSWER_DAYS_MAX), readRecentAnswers({ db }, summed)]).then(
      ([days, recent]) => ({ days, recent }),
    );
    const read = { readMs: clock.nowMs(), sums };
    known.set(kind, read);
    // A failure is not kept.
    sums.catch(() => known.get(kind) === read && known.delete(kind));
    return sums;
  };
}
