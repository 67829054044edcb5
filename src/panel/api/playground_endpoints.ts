import { listUsableKeys } from "../../accounts/keys_store.ts";
import { type Markups, markupFor } from "../../accounts/markups.ts";
import { markupsOf } from "../../accounts/markups_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import { MODALITIES } from "../../catalog/modalities.ts";
import type { Deps } from "../../deps.ts";
import { keyAllowsModel, whatPays } from "../../gateway/models.ts";
import { type Entitlement, entitlementOf } from "../../ledger/entitlement_store.ts";
import { retailPrice } from "../../ledger/price.ts";
import { IMAGE_SIZES } from "../../limits.ts";
import { gatewayHost } from "./ai_endpoints.ts";
import { toJson } from "./formats.ts";
import { type Person, signedIn } from "./panel_session.ts";

/** The models and keys of the playground. Its calls go to ai_endpoints.ts. */

export function playgroundEndpoints(deps: Deps) {
  return signedIn(deps).get("/playground/models", async ({ person }) => toJson(await playgroundOf(deps, person)));
}

/** The models that the person's usable keys can call now, and those keys. Source: PAY-7. */
async function playgroundOf(deps: Deps, person: Person) {
  const host = gatewayHost(deps, person.host).name;
  const [markups, entitlement, usable] = await Promise.all([
    person.role === "customer" && person.tenantId !== 0 ? markupsOf(deps.db.orm, person.tenantId) : null,
    entitlementOf(deps.db.sql, person.accountId),
    listUsableKeys(deps, { accountId: person.accountId, host }),
  ]);
  const keys = usable.map(({ keyId, name, mode, modelIds }) => ({ keyId, name, mode, modelIds }));
  const scoped = keys.map((key) => ({ ...key, modelIds: key.modelIds && new Set(key.modelIds) }));
  const models = deps.catalog.models().flatMap((model) => {
    // The newest key that can call this model. A call without `api_key_id` would take the newest key of all, which may not.
    const offers = scoped.flatMap((key) => {
      const pays = keyAllowsModel(key, model.id) ? whatPays(entitlement, key.mode, model) : null;
      return pays === null ? [] : [{ keyId: key.keyId, pays }];
    });
    return offers[0] ? [offerOf({ model, entitlement, markups }, offers[0])] : [];
  });
  return { models, keys };
}

type Offered = { model: Model; entitlement: Entitlement; markups: Markups | null };

function offerOf(
  { model: { id, name, modality, prices, imagePrices }, entitlement: { package: state }, markups }: Offered,
  { keyId, pays }: { keyId: number; pays: "package" | "balance" },
) {
  const basisPoints = markupFor(markups, id);
  const retail = (microUsd: number) => retailPrice(microUsd, basisPoints);
  const imagePrice = (size: string) => {
    const microUsd = imagePrices.get(size);
    return microUsd === undefined ? null : retail(microUsd);
  };
  const sizes = MODALITIES[modality].serves.includes("image")
    ? IMAGE_SIZES.map((size) => ({ size, pricePicoUsd: imagePrice(size) }))
    : [];
  return {
    id,
    name,
    modality,
    /** Retail, in pico-USD per million tokens, of an ordinary request. Source: MRK-8. */
    prices: prices && {
      inputPicoUsd: retail(prices.tiers[0].rates.input),
      cachedInputPicoUsd: retail(prices.tiers[0].rates.cached_input),
      outputPicoUsd: retail(prices.tiers[0].rates.output),
    },
    /** Retail, in pico-USD per image; null: only a package can pay for that size. */
    imageSizes: sizes,
    pays,
    packageName: pays === "package" ? (state?.name ?? null) : null,
    /** To be sent as `api_key_id`. */
    keyId,
  };
}
