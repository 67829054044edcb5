import type { KeySnapshot } from "../accounts/keys_store.ts";
import type { Asker } from "../catalog/breaker.ts";
import type { Model } from "../catalog/catalog.ts";
import { Refusal } from "../errors.ts";

/**
 * The decisions before the ledger, pure, over what the caches know; the ledger takes those that matter once more, under
 * its lock. The order of refusals is the order of calls in flow.ts: host, key, rate, body, model, entitlement.
 */

/** The host a request came in on. `resellerId` is set for a reseller's domain, null for the service's own. */
export type Host = { name: string; resellerId: number | null };

/**
 * The name in a Host header, without its port. Throws host_not_allowed for one that is missing, doubled, malformed, or
 * another than the request's own target: the runtimes let an absolute target and a Host header disagree.
 */
export function hostName(header: string | null, target: string): string {
  const match = header === null ? null : /^([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)(?::\d{1,5})?$/i.exec(header);
  if (match?.[1] === undefined || match[1].toLowerCase() !== target.toLowerCase())
    throw new Refusal("host_not_allowed");
  return match[1].toLowerCase();
}

/** Checks that a key that was found may act now, on this host. Throws invalid_api_key, host_not_allowed. */
export function admitKey(key: KeySnapshot | undefined, host: Host, nowUnixMs: number): KeySnapshot {
  if (
    key === undefined ||
    key.status !== "enabled" ||
    key.accountStatus !== "active" ||
    key.tenantStatus !== "active" ||
    (key.expiresAtMs !== null && key.expiresAtMs <= nowUnixMs)
  ) {
    throw new Refusal("invalid_api_key");
  }
  if (!keyAllowsHost(key, host)) throw new Refusal("host_not_allowed");
  return key;
}

/** A key without a list works on the service's own hosts and on its reseller's domains; a list only narrows that. */
export function keyAllowsHost(key: KeySnapshot, host: Host): boolean {
  if (host.resellerId !== null && host.resellerId !== key.tenantId) return false;
  return key.hosts === null || key.hosts.has(host.name);
}

/**
 * The model a request names, if the key may name it. Throws model_not_found (a model outside the key's scope is hidden)
 * or invalid_request for the wrong modality.
 */
export function admitModel(model: Model | undefined, key: KeySnapshot, wants: "text" | "image"): Model {
  if (model === undefined || !keyAllowsModel(key, model.id)) throw new Refusal("model_not_found", { param: "model" });
  const serves = model.modality === "multimodal" || model.modality === wants;
  if (!serves) {
    throw new Refusal("invalid_request", {
      message: `The model does not serve ${wants === "text" ? "chat" : "images"}.`,
      param: "model",
    });
  }
  return model;
}

export function keyAllowsModel(key: Pick<KeySnapshot, "modelIds">, modelId: string): boolean {
  return key.modelIds === null || key.modelIds.has(modelId);
}

/** Whose request it is, for what is learned of routes: a reseller answers for its customers. */
export function askerOf({ accountId, tenantId }: Pick<KeySnapshot, "accountId" | "tenantId">): Asker {
  return { accountId, payerId: tenantId > 0 ? tenantId : accountId };
}
