import type { Model } from "../catalog/catalog.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { type Entitlement, entitlementOf, hasLeft } from "../ledger/entitlement_store.ts";
import { keyAllowsModel } from "./admission.ts";
import type { Caller } from "./door.ts";
import type { ModelOnWire } from "./response_shapes.ts";

/** GET /models: what a request with this key could really be served with. Source: contract › GET /models, rulings › Which entitlement pays. */
export async function listModels(deps: Deps, caller: Caller): Promise<Response> {
  const models = await servable(deps, caller);
  return Response.json({ object: "list", data: models.map(toWire) }, { headers: { "x-request-id": caller.requestId } });
}

/** GET /models/{id}. Throws model_not_found for one that the list would not show. */
export async function getModel(deps: Deps, caller: Caller, id: string): Promise<Response> {
  const model = (await servable(deps, caller)).find((one) => one.id === id);
  if (model === undefined) throw new Refusal("model_not_found", { param: "model" });
  return Response.json(toWire(model), { headers: { "x-request-id": caller.requestId } });
}

async function servable(deps: Deps, { key }: Caller): Promise<Model[]> {
  const entitlement = await entitlementOf(deps.db.sql, key.accountId);
  return deps.catalog
    .models()
    .filter((model) => keyAllowsModel(key, model.id) && payerOf(entitlement, key.mode, model) !== null);
}

/** What would pay for a request of this model now; null: nothing. A package that is used up counts where nothing else pays. */
export function payerOf(
  { package: state, paygEnabled, balanceNanoUsd }: Entitlement,
  mode: "package" | "payg",
  model: Model,
): "package" | "balance" | null {
  const priced = model.prices !== null || model.imagePrices.size > 0;
  const balance = priced && paygEnabled && balanceNanoUsd > 0n ? "balance" : null;
  if (mode === "payg" || state === null || !(state.modelIds === null || state.modelIds.has(model.id))) return balance;
  return hasLeft(state) ? "package" : (balance ?? "package");
}

function toWire(model: Model): ModelOnWire {
  return {
    id: model.id,
    object: "model",
    created: model.createdUnix,
    owned_by: model.ownedBy,
    name: model.name,
    context_length: model.contextLength,
    status: model.status,
    modality: model.modality,
    ...(model.architecture && { architecture: model.architecture }),
  };
}
