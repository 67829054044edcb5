import { Elysia } from "elysia";
import { markupFor } from "../../accounts/markups.ts";
import { markupsOf } from "../../accounts/markups_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import type { FullRates, Tier } from "../../catalog/rates.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { networkOf } from "../../http/client_address.ts";
import { panelHostOf } from "../../http/host.ts";
import { refuseRepeated } from "../../http/query.ts";
import { factsOf } from "../../http/request_facts.ts";
import { retailPrice } from "../../ledger/price.ts";
import { INPUT_PARTS, OUTPUT_PARTS, type PricePart } from "../../price_parts.ts";
import { toJson } from "./formats.ts";
import { cookieName, visitorOf } from "./session_auth.ts";

/**
 * The models and what the viewer pays for them. Without a session only where the host's seller made its prices public.
 * Source: RTL-5, RTL-6.
 */

export function modelPricesEndpoints(deps: Deps) {
  const name = cookieName(deps);
  return new Elysia({ normalize: false })
    .onBeforeHandle(({ request, set }) => {
      set.headers["x-request-id"] = factsOf(request).requestId;
      set.headers["cache-control"] = "no-store";
    })
    .get("/model-prices", async ({ request, cookie }) => {
      refuseRepeated(factsOf(request).url.searchParams);
      const sellerId = await sellerFor(deps, request, cookie[name]?.value);
      const models = deps.catalog.models().filter(({ status }) => status !== "deprecated");
      const markups = sellerId === OPERATOR ? null : await markupsOf(deps.db.orm, sellerId);
      return toJson({ models: models.map((model) => viewOf(model, markupFor(markups, model.id))) });
    });
}

/** The seller whose prices the visitor pays. Throws host_not_allowed, session_required, too_many_requests. */
async function sellerFor(deps: Deps, request: Request, token: unknown): Promise<number> {
  const { resellerId } = await panelHostOf(deps, request);
  const { peerAddress } = factsOf(request);
  try {
    const { session } = await visitorOf(deps, request, token);
    await deps.limiter.take(`panel:${session.accountId}`);
    const { role, tenantId } = session.viewing ?? session;
    // A reseller is a customer of the operator.
    return role === "customer" ? tenantId : OPERATOR;
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "session_required") throw error;
    await deps.limiter.take(`model-prices:${networkOf(peerAddress())}`);
    const sellerId = resellerId ?? OPERATOR;
    if (!(await deps.pricesPublic.get(sellerId))) throw error;
    return sellerId;
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
