import { listHosts } from "../../accounts/hosts_store.ts";
import { findKey, listShownKeys, type ShownKey } from "../../accounts/keys_store.ts";
import { appliedLimits } from "../../accounts/rate_limits.ts";
import { accountLimits } from "../../accounts/rate_limits_store.ts";
import { requestsByKey } from "../../books/usage_sums_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { entitlementOf, hasLeft } from "../../ledger/entitlement_store.ts";
import { createKey, disableKey, enableKey, revokeKey, rotateKey, updateKey } from "../../operations/keys.ts";
import { isPassing } from "../../platform/db.ts";
import type { RateLimits } from "../../platform/rate_tallies.ts";
import { IdParam } from "./fields.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { longRead, type Person, signedIn } from "./panel_session.ts";

/** The person's own API keys: list, create, edit, disable, rotate, revoke. */

export function keysEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/keys", async ({ person, request: { signal } }) => toJson(await keysOf(deps, person, signal)))
    .get("/keys/options", async ({ person }) => toJson(await optionsOf(deps, person)))
    .post("/keys", operate(deps, createKey, { add: ({ person: { accountId } }) => ({ accountId }) }), {
      body: bodyOf(createKey, "accountId"),
    })
    .use(keyEndpoints(deps));
}

/** Changes of one key. */
function keyEndpoints(deps: Deps) {
  const params = IdParam;
  const ofOwn = { path: { id: "keyId" }, add: requireOwnKey(deps) } as const;
  return signedIn(deps)
    .patch("/keys/:id", operate(deps, updateKey, ofOwn), { params, body: bodyOf(updateKey, "keyId") })
    .post("/keys/:id/disable", operate(deps, disableKey, ofOwn), { params })
    .post("/keys/:id/enable", operate(deps, enableKey, ofOwn), { params })
    .post("/keys/:id/revoke", operate(deps, revokeKey, ofOwn), { params })
    .post("/keys/:id/rotate", operate(deps, rotateKey, ofOwn), { params, body: bodyOf(rotateKey, "keyId") });
}

/** An admin's page changes no other account's keys. Throws not_found, also for those. */
function requireOwnKey(deps: Deps) {
  return async ({ person: { accountId }, params }: { person: Person; params: Record<string, unknown> }) => {
    if (!(await findKey(deps, { keyId: Number(params.id), accountId }))) throw new Refusal("not_found");
    return {};
  };
}

type KeyRow = Omit<ShownKey, "accountId"> & {
  /** Usage records of the last 24 hours; null: not counted. */
  requestsLastDay: number | null;
};

type KeysPage = {
  rows: KeyRow[];
  /** The limits of the whole account; null: none was set. A key may have at most these. */
  accountLimits: RateLimits | null;
};

async function keysOf(deps: Deps, person: Person, signal: AbortSignal): Promise<KeysPage> {
  const { accountId } = person;
  const [keys, requests, limits] = await Promise.all([
    listShownKeys(deps, accountId),
    countedRequests(deps, person, signal),
    accountLimits(deps, accountId),
  ]);
  const requestsOf = (keyId: number) => (requests === null ? null : (requests.get(keyId) ?? 0));
  const rows = keys.map(({ accountId: _, ...key }) => ({ ...key, requestsLastDay: requestsOf(key.keyId) }));
  return { rows, accountLimits: appliedLimits(limits) };
}

/** Usage records of the last 24 hours by key id. null if they cannot be counted: the list of keys must still load. */
async function countedRequests(deps: Deps, person: Person, signal: AbortSignal): Promise<Map<number, number> | null> {
  try {
    return await longRead(deps, { person, signal }, (reading) => requestsByKey(reading, person.accountId));
  } catch (error) {
    if (error instanceof Refusal || isPassing(error)) return null;
    throw error;
  }
}

/** The models and hosts that a new key can be limited to, and the billing modes that can pay now. */
async function optionsOf(deps: Deps, person: Person) {
  const [entitlement, hosts] = await Promise.all([
    entitlementOf(deps.db.sql, person.accountId),
    hostOptions(deps, person),
  ]);
  const { package: state, paygEnabled, balanceNanoUsd, heldNanoUsd } = entitlement;
  return {
    models: deps.catalog.models().map(({ id, name, modality }) => ({ id, name, modality })),
    hosts,
    modes: [
      { mode: "package" as const, canPay: state !== null && hasLeft(state), packageName: state?.name ?? null },
      { mode: "payg" as const, canPay: paygEnabled && balanceNanoUsd > heldNanoUsd, packageName: null },
    ],
    /** The time zone of the daily limits. */
    timeZone: deps.config.billingTimeZone,
  };
}

/** The service's own API hosts and the reseller's active domains. Customers of a reseller see only its domains. */
async function hostOptions(deps: Deps, { role, tenantId }: Person): Promise<{ host: string; label: string }[]> {
  const { baseUrl, aliasUrl } = deps.config;
  const own = role === "customer" && tenantId !== 0 ? [] : [baseUrl, aliasUrl].filter((url) => url !== "");
  const domains = tenantId === 0 ? [] : await listHosts(deps, { resellerId: tenantId });
  return [
    ...own.map((url) => ({ host: new URL(url).hostname, label: url })),
    ...domains
      .filter(({ status }) => status === "active")
      .map(({ host }) => ({ host, label: `${new URL(baseUrl).protocol}//${host}/v1` })),
  ];
}
