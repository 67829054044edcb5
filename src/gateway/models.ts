import type { KeySnapshot } from "../accounts/key_snapshots_store.ts";
import type { Model } from "../catalog/catalog.ts";
import { MODALITIES, SERVICES, type Service } from "../catalog/modalities.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { type Entitlement, entitlementOf, hasLeft } from "../ledger/entitlement_store.ts";
import type { Caller } from "./authenticate.ts";
import type { ModelOnWire } from "./response_shapes.ts";

/** Which models a key may use: the model that a request names, and GET /models. */

/** Characters of an unknown id that an error repeats. */
const ID_CHARS_SHOWN_MAX = 100;
/** An API key that stands in the wrong place: no answer repeats one. Source: KEY-5. */
const KEYS = /sk-[\w-]{8,}/gi;
/** Control characters, halves of pairs, quotes, and what HTML interprets. */
const NOT_IN_IDS = /[^\p{L}\p{M}\p{N} ._:/@+~#,=()[\]-]/gu;

/**
 * The model that a request names. It is recorded whether or not the key may use it. Throws model_not_found, also for a model outside
 * the key's scope, and invalid_request for a model of the wrong modality.
 */
export function requireModel(deps: Deps, { record, key }: Caller, modelId: string, wants: Service): Model {
  const model = deps.catalog.model(modelId);
  record.modelId = model?.id ?? "";
  if (model === undefined || !keyAllowsModel(key, model.id)) throw modelNotFound(modelId);
  if (!MODALITIES[model.modality].serves.includes(wants)) {
    throw new Refusal("invalid_request", {
      message: `The model does not serve ${SERVICES[wants].words}.`,
      param: "model",
    });
  }
  return model;
}

/**
 * The refusal of a model. It names the model as the client wrote it, so that a misspelled setting is seen, without characters that no
 * id has, and without API keys. The text is the same for an unknown model and for one that this key may not see. Source: MOD-2.
 */
export function modelNotFound(id: string): Refusal {
  const shown = id.replace(KEYS, "[secret]").slice(0, ID_CHARS_SHOWN_MAX).replace(NOT_IN_IDS, "\uFFFD");
  const name = id.length > ID_CHARS_SHOWN_MAX ? `${shown}…` : shown;
  return new Refusal("model_not_found", {
    message: `The model '${name}' does not exist, or this API key cannot use it. GET /models lists the models of this key.`,
    param: "model",
  });
}

export function keyAllowsModel(key: Pick<KeySnapshot, "modelIds">, modelId: string): boolean {
  return key.modelIds === null || key.modelIds.has(modelId);
}

/** GET /models: the models that a request with this key can use now. Source: PAY-7. */
export async function listModels(deps: Deps, caller: Caller): Promise<Response> {
  const models = await servable(deps, caller);
  return Response.json({ object: "list", data: models.map(toWire) }, { headers: { "x-request-id": caller.requestId } });
}

/** GET /models/{id}. Throws model_not_found for a model that is not in the list. */
export async function getModel(deps: Deps, caller: Caller, id: string): Promise<Response> {
  const model = (await servable(deps, caller)).find((one) => one.id === id);
  if (model === undefined) throw modelNotFound(id);
  return Response.json(toWire(model), { headers: { "x-request-id": caller.requestId } });
}

async function servable(deps: Deps, { key }: Caller): Promise<Model[]> {
  const entitlement = await entitlementOf(deps.db.sql, key.accountId);
  return deps.catalog
    .models()
    .filter((model) => keyAllowsModel(key, model.id) && whatPays(entitlement, key.mode, model) !== null);
}

/**
 * What would pay for a request with this model now; null if nothing would. A used-up package counts only if the balance cannot
 * pay.
 */
export function whatPays(
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
