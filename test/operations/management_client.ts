import type { Role } from "../../src/accounts/roles.ts";
import { scopesFor } from "../../src/accounts/scopes.ts";
import { createToken } from "../../src/accounts/tokens_store.ts";
import { routeOf, type SERVED } from "../../src/operations/management_api.ts";
import { descriptionOf } from "../../src/operations/management_document.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { createLog } from "../../src/platform/log.ts";
import type { Answer, CallOptions, Shop } from "../gateway/shop.ts";
import { PANEL } from "../panel/panel_client.ts";

/** Calls the management API over HTTP, with tokens of its accounts. */

export const UNKNOWN_ID = 999_999_999;

export type Management = {
  tokenId: number;
  secret: string;
  call(method: string, path: string, body?: unknown, options?: CallOptions): Promise<Answer>;
  get(path: string): Promise<Answer>;
  /** With a key of its own unless the headers have one. */
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
};

type Wanted = { scopes?: readonly string[]; networks?: string[]; expiresAt?: string; name?: string };

/** Makes a token of an account, with all scopes of its role unless others are wanted. */
export async function managementOf(
  shop: Shop,
  { accountId }: { accountId: number },
  role: Role,
  { scopes = scopesFor(role), networks, expiresAt, name = "program" }: Wanted = {},
): Promise<Management> {
  const db = shop.world.openDb(1);
  const bus = inProcessBus(createLog("silent"));
  const wanted = { accountId, name, scopes, networks: networks ?? null, expiresAt: expiresAt ?? null };
  const { secret, token } = await createToken({ db, bus }, wanted);
  await db.close();
  return managementWith(shop, secret, token.tokenId);
}

/** The management API with a secret. */
export function managementWith(shop: Shop, secret: string, tokenId = 0): Management {
  const call: Management["call"] = (method, path, body, options = {}) =>
    shop.call(`/api/v1${path}`, { secret, host: PANEL, method, ...(body !== undefined && { body }), ...options });
  return {
    tokenId,
    secret,
    call,
    get: (path) => call("GET", path),
    post: (path, body = {}, headers = {}) =>
      call("POST", path, body, { headers: { "idempotency-key": crypto.randomUUID(), ...headers } }),
  };
}

/** A well-formed request for an operation, with these ids in its path, and in its query or body. */
export function requestFor(operation: (typeof SERVED)[number], ids: Record<string, number | string>) {
  const { method, path, names } = routeOf(operation);
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => String(ids[name] ?? UNKNOWN_ID));
  const { body } = descriptionOf(operation);
  const named = Object.fromEntries(
    Object.keys(operation.input.properties).flatMap((name) =>
      !names.includes(name) && ids[name] !== undefined && name !== "offeringId" ? [[name, ids[name]]] : [],
    ),
  );
  const query = body === undefined ? new URLSearchParams(Object.entries(named).map(([k, v]) => [k, String(v)])) : "";
  return {
    method: method.toUpperCase(),
    path: `${filled}${String(query) === "" ? "" : `?${query}`}`,
    body: body === undefined ? undefined : { ...body.example, ...named },
    /** The same as the input of the operation. */
    input: { ...Object.fromEntries(names.map((name) => [name, ids[name] ?? UNKNOWN_ID])), ...body?.example, ...named },
    hasIds: names.length > 0 || Object.keys(named).length > 0,
  };
}
