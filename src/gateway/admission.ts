import type { KeySnapshot } from "../accounts/key_snapshots_store.ts";
import type { Requester } from "../catalog/breaker.ts";
import type { Model } from "../catalog/catalog.ts";
import { Refusal } from "../errors.ts";

/**
 * The decisions before the ledger, pure, over what the caches know; the ledger takes those that matter once more, under
 * its lock. The order of refusals is the order of calls in flow.ts: host, key, rate, body, model, entitlement.
 */

/** The host a request came in on. `resellerId` is set for a reseller's domain, null for the service's own. */
export type Host = { name: string; resellerId: number | null };

/** A Host header: a name, perhaps with the dot of the DNS root, and perhaps a port. */
const HOST = /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\.?(?::\d{0,5})?$/i;
const NAME = /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/;

/**
 * The name of the host that a request asks for. `target` is the host of its URL: the runtimes take that from the Host header,
 * and Deno from an absolute target, which wins over a Host header that says otherwise (RFC 9112 §3.2.2; Bun drops the host of
 * an absolute target). The header must be well-formed in any case. Throws host_not_allowed.
 */
export function hostName(header: string | null, target: string): string {
  if (header === null || !HOST.test(header)) throw malformedHost();
  if (NAME.test(target)) return target;
  const isRooted = target.endsWith(".");
  throw unservedHost(isRooted ? "This host is not served here: leave out the dot at the end of its name." : undefined);
}

/** A Host header, or the host of an absolute target, that is missing, given twice, or no host with a port. */
export function malformedHost(): Refusal {
  return new Refusal("host_not_allowed", {
    message: "The request needs one Host header: a host name, and at most a port from 0 to 65535.",
  });
}

export function unservedHost(message = "This host is not served here."): Refusal {
  return new Refusal("host_not_allowed", { message });
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
export function requesterOf({ accountId, tenantId }: Pick<KeySnapshot, "accountId" | "tenantId">): Requester {
  return { accountId, payerId: tenantId > 0 ? tenantId : accountId };
}
