import { LRUCache } from "lru-cache";
import type { Db } from "../platform/db.ts";
import { nextTurn } from "../platform/runtime.ts";
import { PARTS, type PricePart } from "../price_parts.ts";
import { listImagePrices } from "./models_store.ts";
import { mapPrices, readMarkup } from "./price_import.ts";
import { readDay } from "./price_import_store.ts";
import { type PriceList, packagedPriceList } from "./price_list.ts";

import { readRouteStats } from "./route_stats_store.ts";
import type { RouteSums } from "./route_sums.ts";
import { listRoutes } from "./routes_store.ts";
import { type ColumnsRead, pricesOfColumns } from "./token_prices.ts";

/**
 * What is left of a model's price after what its routes cost the operator. A cost is known from the route's setting, from the provider's
 * answers of the last 24 hours, or from the packaged price list. Of an unknown one nothing is said. Source: PRV-27.
 */

/** Input tokens for each output token when prices and costs are compared as one number. */
const INPUT_FOR_OUTPUT = 3;
const ALL_PERMILLE = 1_000;
/** What providers report is a sum of floating-point numbers: a cost is not above a price by less. */
const NOISE_PERMILLE = 5;
/** A cost where the price is 0 is shown as this many times it. */
const TIMES_MAX = 1_000;
const NO_MARKUP = readMarkup("0");
/** Names in the cache of look-ups, and look-ups before others get their turn. */
const FOUND_MAX = 5_000;
const LOOKUPS_A_TURN = 20;

/** How the cost is known, best first: reported with the answers, set on the route, listed for the provider's model. */
export const COST_SOURCES = ["reported", "set", "listed"] as const;
export type CostSource = (typeof COST_SOURCES)[number];

/** What may cost more than its price; `answers`: those of the last 24 hours together. */
export const DEARER_PARTS = [...PARTS, "image", "answers"] as const;

export type Margin = {
  source: CostSource;
  /** What is left of the price, in thousandths of it: negative if the cost is higher. null: there is no price to compare. */
  permille: number | null;
  /** What costs more than its price. */
  dearer: (typeof DEARER_PARTS)[number][];
  /** The highest cost of one of them, as a multiple of its price. */
  times: number;
};

export type RouteMargins = {
  routeId: number;
  providerName: string;
  upstreamModel: string;
  /** By how they are known, best first; empty: the cost is not known. */
  margins: Margin[];
};

type PricedModel = ColumnsRead & { id: string };
type CostedRoute = Awaited<ReturnType<typeof listRoutes>>[number];

/** The margins of the enabled routes of some models, by model. */
export async function readMargins(
  { db }: { db: Db },
  models: readonly PricedModel[],
): Promise<Map<string, RouteMargins[]>> {
  const ids = models.map(({ id }) => id);
  const routes = (await listRoutes({ db }, ids)).filter(({ enabled, providerEnabled }) => enabled && providerEnabled);
  const routesOf = Map.groupBy(routes, ({ modelId }) => modelId);
  const imagesOf = Map.groupBy(await listImagePrices({ db }, ids), ({ modelId }) => modelId);
  const routeIds = routes.map(({ id }) => id);
  const statsOf = Map.groupBy(await readRouteStats({ db }, "day", routeIds), ({ routeId }) => routeId);
  const listed = await listedCosts(routes, await readDay(db.orm));
  return new Map(
    models.map((model) => {
      const imageMicroUsd = Math.min(...(imagesOf.get(model.id) ?? []).map(({ microUsd }) => microUsd));
      const margins = (routesOf.get(model.id) ?? []).map((route) =>
        marginsOf(model, route, { imageMicroUsd, stats: statsOf.get(route.id) ?? [], listed: listed.get(route.id) }),
      );
      return [model.id, margins];
    }),
  );
}

type Known = {
  /** The lowest price of an image; Infinity: none. */
  imageMicroUsd: number;
  /** Of the route. */
  stats: readonly RouteSums[];
  listed: Costs | undefined;
};

/** The margins of one route. Exported for tests. */
export function marginsOf(
  model: PricedModel,
  route: CostedRoute,
  { imageMicroUsd, stats, listed }: Known,
): RouteMargins {
  const prices = pricesOfColumns(model)?.tokens.tiers[0].rates;
  const { id: routeId, providerName, upstreamModel, costInputMicroUsd, costOutputMicroUsd, costImageMicroUsd } = route;
  const margins: Margin[] = [];
  const reported = reportedMargin(stats);
  if (reported !== undefined) margins.push(reported);
  if (costInputMicroUsd !== null && costOutputMicroUsd !== null)
    margins.push(tokenMargin("set", { input: costInputMicroUsd, output: costOutputMicroUsd }, prices));
  if (costImageMicroUsd !== null && Number.isFinite(imageMicroUsd))
    margins.push(marginOf("set", [["image", costImageMicroUsd, imageMicroUsd]], [costImageMicroUsd, imageMicroUsd]));
  if (listed !== undefined) margins.push(tokenMargin("listed", listed, prices));
  return { routeId, providerName, upstreamModel, margins };
}

type Costs = Partial<Record<PricePart, number>> & { input: number; output: number };

function tokenMargin(
  source: CostSource,
  costs: Costs,
  prices: Readonly<Record<PricePart, number>> | undefined,
): Margin {
  if (prices === undefined) return { source, permille: null, dearer: [], times: 0 };
  const parts = Object.entries(costs).map(([part, cost]) => {
    const name = part as PricePart;
    return [name, cost, prices[name]] as const;
  });
  const together = ({ input, output }: { input: number; output: number }) => INPUT_FOR_OUTPUT * input + output;
  return marginOf(source, parts, [together(costs), together(prices)]);
}

type Compared = readonly [name: Margin["dearer"][number], cost: number, price: number];

function marginOf(source: CostSource, parts: readonly Compared[], [cost, price]: readonly [number, number]): Margin {
  const dearer = parts.filter(([, ofPart, itsPrice]) => ofPart > itsPrice);
  return {
    source,
    permille: price > 0 ? Math.floor(ALL_PERMILLE - (ALL_PERMILLE * cost) / price) : null,
    dearer: dearer.map(([name]) => name),
    times: Math.max(0, ...dearer.map(([, ofPart, itsPrice]) => Math.min(TIMES_MAX, ofPart / itsPrice))),
  };
}

function reportedMargin(sums: readonly RouteSums[]): Margin | undefined {
  const cost = sums.reduce((sum, { costNanoUsd }) => sum + costNanoUsd, 0);
  const price = sums.reduce((sum, { pricedNanoUsd }) => sum + pricedNanoUsd, 0);
  if (cost === 0) return undefined;
  const above = cost * ALL_PERMILLE > price * (ALL_PERMILLE + NOISE_PERMILLE);
  return marginOf("reported", above && price > 0 ? [["answers", cost, price]] : [], [cost, price]);
}

/** What was found in the price list; null: nothing. A name that is not in it takes half a millisecond to look up. */
const found = new LRUCache<string, { costs: Costs | null }>({ max: FOUND_MAX });

/** The listed costs of routes, by route. Others get their turn between the look-ups. */
async function listedCosts(routes: readonly CostedRoute[], day: string): Promise<Map<number, Costs>> {
  const list = await packagedPriceList();
  const costs = new Map<number, Costs>();
  let lookups = 0;
  for (const { id, baseUrl, upstreamModel } of routes) {
    const key = `${day} ${baseUrl} ${upstreamModel}`;
    let known = found.get(key);
    if (known === undefined) {
      known = { costs: lookUp(list, { baseUrl, upstreamModel, day }) };
      found.set(key, known);
      if (++lookups % LOOKUPS_A_TURN === 0) await nextTurn();
    }
    if (known.costs !== null) costs.set(id, known.costs);
  }
  return costs;
}

type Sought = Pick<CostedRoute, "baseUrl" | "upstreamModel"> & { day: string };

function lookUp(list: PriceList, { baseUrl, upstreamModel, day }: Sought): Costs | null {
  const provider = list.providerAt(baseUrl);
  const listed = provider === undefined ? undefined : list.find(provider, upstreamModel);
  const mapped = listed === undefined ? undefined : mapPrices(listed, { markup: NO_MARKUP, day });
  if (mapped === undefined || "reason" in mapped || mapped.prices.tokens === undefined) return null;
  const { tiers: _, ...costs } = mapped.prices.tokens;
  return costs;
}

/** The margin that is known best; undefined: none. */
export function bestMargin({ margins }: RouteMargins): Margin | undefined {
  return margins.find(({ permille }) => permille !== null);
}

/** The lowest margin of a model's routes, in thousandths; null: not known. */
export function lowestMargin(routes: readonly RouteMargins[]): number | null {
  const known = routes.flatMap((route) => bestMargin(route)?.permille ?? []);
  return known.length === 0 ? null : Math.min(...known);
}

/** The routes that cost more than the price, each with the margin that says so. */
export function losing(routes: readonly RouteMargins[]): (RouteMargins & { margin: Margin })[] {
  return routes.flatMap((route) => {
    const margin = route.margins.find(({ dearer }) => dearer.length > 0);
    return margin === undefined ? [] : [{ ...route, margin }];
  });
}

/** A losing route, as APIs show it. */
export function lossOf({ routeId, providerName, upstreamModel, margin }: RouteMargins & { margin: Margin }) {
  const { source, dearer, times } = margin;
  return { routeId, route: `${providerName}/${upstreamModel}`, source, dearer, times: Number(times.toPrecision(3)) };
}

const KNOWN_BY: Readonly<Record<CostSource, string>> = {
  reported: "as its answers of 24 hours report",
  set: "as its cost is set",
  listed: "as the price list has it",
};

/** "costs 10 times the price of input, output, as its cost is set" */
export function lossWords({ source, dearer, times }: Pick<Margin, "source" | "dearer" | "times">): string {
  const parts = dearer.map((part) => part.replaceAll("_", " ")).join(", ");
  return `costs ${Number(times.toPrecision(3))} times the price of ${parts}, ${KNOWN_BY[source]}`;
}

/** "40% (set)" */
export function marginWords(margin: Pick<Margin, "permille" | "source"> | undefined): string {
  if (margin === undefined || margin.permille === null) return "not known";
  return `${margin.permille / 10}% (${margin.source})`;
}
