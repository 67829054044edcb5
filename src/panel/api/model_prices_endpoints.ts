import { Elysia, t } from "elysia";
import { type Markups, markupFor } from "../../accounts/markups.ts";
import { markupsOf } from "../../accounts/markups_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import { modelHealths } from "../../catalog/model_health.ts";
import type { FullRates, Tier } from "../../catalog/rates.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { networkOf } from "../../http/client_address.ts";
import { apiUrlOf, panelHostOf } from "../../http/host.ts";
import { refuseRepeated } from "../../http/query.ts";
import { factsOf } from "../../http/request_facts.ts";
import { retailPrice } from "../../ledger/price.ts";
import { inTime } from "../../platform/time_limit.ts";
import { INPUT_PARTS, OUTPUT_PARTS, type PricePart } from "../../price_parts.ts";
import { ModelId } from "./fields.ts";
import { toJson } from "./formats.ts";
import { cookieName, visitorOf } from "./session_auth.ts";

/**
 * The models, what the viewer pays for them, and how each did in the last 30 days. Without a session only where the host's seller made its
 * prices public. Source: RTL-5, RTL-6, RTL-10.
 */

export function modelPricesEndpoints(deps: Deps) {
  const name = cookieName(deps);
  const healthOf = modelHealths(deps);
  return new Elysia({ normalize: false })
    .onBeforeHandle(({ request, set }) => {
      set.headers["x-request-id"] = factsOf(request).requestId;
      set.headers["cache-control"] = "no-store";
    })
    .get("/model-prices", async ({ request, cookie }) => {
      refuseRepeated(factsOf(request).url.searchParams);
      const viewer = await viewerOf(deps, request, cookie[name]?.value);
      const markups = await markupsFor(deps, viewer);
      return toJson({ models: shownTo(deps, viewer).map((model) => viewOf(model, markupFor(markups, model.id))) });
    })
    .get(
      "/model-prices/model",
      async ({ request, cookie, query: { id } }) => {
        refuseRepeated(factsOf(request).url.searchParams);
        const viewer = await viewerOf(deps, request, cookie[name]?.value);
        const model = shownTo(deps, viewer).find((each) => each.id === id);
        if (model === undefined) throw new Refusal("not_found");
        const [markups, health] = await Promise.all([markupsFor(deps, viewer), inTime(healthOf(model))]);
        const { baseUrl } = viewer;
        return toJson({ model: viewOf(model, markupFor(markups, model.id)), health, baseUrl });
      },
      { query: t.Object({ id: ModelId }) },
    );
}

type Viewer = {
  sellerId: number;
  isSignedIn: boolean;
  /** Of the API, on the host that the visitor is on. */
  baseUrl: string;
};

/** The models that a visitor can buy. Without a session those with a price only: what a package has is its buyer's to know. */
function shownTo(deps: Deps, { isSignedIn }: Viewer): Model[] {
  return deps.catalog
    .models()
    .filter(
      ({ status, prices, imagePrices }) =>
        status !== "deprecated" && (isSignedIn || prices !== null || imagePrices.size > 0),
    );
}

function markupsFor(deps: Deps, { sellerId }: Viewer): Promise<Markups | null> {
  return sellerId === OPERATOR ? Promise.resolve(null) : markupsOf(deps.db.orm, sellerId);
}

/** Who asks, and whose prices they pay. Throws host_not_allowed, session_required, too_many_requests. */
async function viewerOf(deps: Deps, request: Request, token: unknown): Promise<Viewer> {
  const host = await panelHostOf(deps, request);
  const { peerAddress } = factsOf(request);
  const baseUrl = apiUrlOf(deps, host);
  try {
    const { session } = await visitorOf(deps, request, token);
    await deps.limiter.take(`panel:${session.accountId}`);
    const { role, tenantId } = session.viewing ?? session;
    // A reseller is a customer of the operator.
    return { sellerId: role === "customer" ? tenantId : OPERATOR, isSignedIn: true, baseUrl };
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "session_required") throw error;
    await deps.limiter.take(`model-prices:${networkOf(peerAddress())}`);
    const sellerId = host.resellerId ?? OPERATOR;
    if (!(await deps.pricesPublic.get(sellerId))) throw error;
    return { sellerId, isSignedIn: false, baseUrl };
  }
}

/** As its buyers see it. Prices are pico-USD per million tokens, and per image. `prices` null: only a package pays for it. */
function viewOf(
  { id, name, modality, status, contextLength, createdUnix, prices, imagePrices }: Model,
  markupBasisPoints: number,
) {
  const retail = (microUsd: number) => retailPrice(microUsd, markupBasisPoints);
  return {
    id,
    name,
    modality,
    status,
    contextLength,
    createdAt: new Date(createdUnix * 1000).toISOString(),
    prices: prices && {
      requestPicoUsd: retail(prices.requestMicroUsd),
      tiers: prices.tiers.map((tier) => tierOf(tier, retail)),
    },
    imagePrices: [...imagePrices].map(([size, microUsd]) => ({ size, picoUsd: retail(microUsd) })),
  };
}

function tierOf({ aboveInputTokens, rates }: Tier, retail: (microUsd: number) => bigint) {
  return {
    aboveInputTokens: Math.max(0, aboveInputTokens),
    inputPicoUsd: retail(rates.input),
    cachedInputPicoUsd: retail(rates.cached_input),
    outputPicoUsd: retail(rates.output),
    /** Parts with another price than ordinary input or output. */
    further: furtherOf(rates).map((part) => ({ part, picoUsd: retail(rates[part]) })),
  };
}

function furtherOf(rates: FullRates): PricePart[] {
  const differing = (parts: readonly PricePart[], base: number) =>
    parts.filter((part) => part !== "cached_input" && rates[part] !== base);
  return [...differing(INPUT_PARTS, rates.input), ...differing(OUTPUT_PARTS, rates.output)];
}
