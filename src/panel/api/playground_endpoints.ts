import { listUsableKeys } from "../../accounts/keys_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import type { Deps } from "../../deps.ts";
import { keyAllowsModel, payerOf } from "../../gateway/models.ts";
import { type Entitlement, entitlementOf } from "../../ledger/entitlement_store.ts";
import { IMAGE_SIZES } from "../../limits.ts";
import { gatewayHost } from "./ai_endpoints.ts";
import { toJson } from "./formats.ts";
import { type Person, signedIn } from "./panel_session.ts";

/** The models and keys that the playground offers. Its calls go to ai_endpoints.ts. */

export function playgroundEndpoints(deps: Deps) {
  return signedIn(deps).get("/playground/models", async ({ person }) => toJson(await playgroundOf(deps, person)));
}

/** The models that the person's usable keys can call now, and those keys. Source: PAY-7. */
async function playgroundOf(deps: Deps, person: Person) {
  const host = gatewayHost(deps, person.host).name;
  const [entitlement, usable] = await Promise.all([
    entitlementOf(deps.db.sql, person.accountId),
    listUsableKeys(deps, { accountId: person.accountId, host }),
  ]);
  const keys = usable.map(({ keyId, name, mode, modelIds }) => ({ keyId, name, mode, modelIds }));
  const scoped = keys.map((key) => ({ ...key, modelIds: key.modelIds && new Set(key.modelIds) }));
  const models = deps.catalog.models().flatMap((model) => {
    // The newest key that can call this model. A call without `api_key_id` would take the newest key of all, which may not.
    const offers = scoped.flatMap((key) => {
      const pays = keyAllowsModel(key, model.id) ? payerOf(entitlement, key.mode, model) : null;
      return pays === null ? [] : [{ keyId: key.keyId, pays }];
    });
    return offers[0] ? [offerOf(model, entitlement, offers[0])] : [];
  });
  return { models, keys };
}

function offerOf(
  { id, name, modality, prices, imagePrices }: Model,
  { package: state }: Entitlement,
  { keyId, pays }: { keyId: number; pays: "package" | "balance" },
) {
  const sizes =
    modality === "text" ? [] : IMAGE_SIZES.map((size) => ({ size, microUsd: imagePrices.get(size) ?? null }));
  return {
    id,
    name,
    modality,
    /** Micro-USD per million tokens. */
    prices,
    /** Micro-USD per image; null: only a package can pay for that size. */
    imageSizes: sizes,
    pays,
    packageName: pays === "package" ? (state?.name ?? null) : null,
    /** To be sent as `api_key_id`. */
    keyId,
  };
}
