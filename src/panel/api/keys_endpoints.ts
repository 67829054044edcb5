import { t } from "elysia";
import { listHosts } from "../../accounts/hosts_store.ts";
import { findKey, listShownKeys, type ShownKey } from "../../accounts/keys_store.ts";
import { appliedLimits } from "../../accounts/rate_limits.ts";
import { accountLimits } from "../../accounts/rate_limits_store.ts";
import { requestsByKey } from "../../books/usage_sums_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { entitlementOf, hasLeft } from "../../ledger/entitlement_store.ts";
import { HOST_CHARS_MAX, KEY_BUDGETS, type KeyBudgetField } from "../../limits.ts";
import { createKey, disableKey, enableKey, revokeKey, rotateKey, updateKey } from "../../operations/keys.ts";
import { perform } from "../../operations/operation.ts";
import { isPassing } from "../../platform/db.ts";
import type { RateLimits } from "../../platform/rate_tallies.ts";
import { BillingMode, IdParam, KeyLimits, NanoUsd, orNull } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { callBy, longRead, type Person, signedIn } from "./panel_session.ts";

/** The person's own API keys: list, create, edit, disable, rotate, revoke. */

const Name = t.String({ maxLength: 400 });
const Budget = t.Optional(orNull(NanoUsd));
/** A key's own limits; null: no limit. */
const OWN_LIMITS = {
  dailyUnitsMax: t.Optional(orNull(t.Integer())),
  dailySpendMaxNanoUsd: Budget,
  weeklySpendMaxNanoUsd: Budget,
  monthlySpendMaxNanoUsd: Budget,
  totalSpendMaxNanoUsd: Budget,
};
const NewKeyBody = t.Object({
  name: Name,
  mode: BillingMode,
  modelIds: t.Optional(orNull(t.Array(t.String({ maxLength: 200 }), { maxItems: 200 }))),
  hosts: t.Optional(orNull(t.Array(t.String({ maxLength: HOST_CHARS_MAX }), { maxItems: 50 }))),
  expiresAt: t.Optional(orNull(t.String({ maxLength: 40 }))),
  limits: t.Optional(KeyLimits),
  ...OWN_LIMITS,
});

export function keysEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/keys", async ({ person, request: { signal } }) => toJson(await keysOf(deps, person, signal)))
    .get("/keys/options", async ({ person }) => toJson(await optionsOf(deps, person)))
    .post(
      "/keys",
      async ({ person, body, request }) => {
        const key = { ...withAmounts(body), accountId: person.accountId };
        const call = callBy(deps, { person, request });
        return toJson(await once(deps, { person, request }, () => perform(deps, createKey, call, key)));
      },
      { body: NewKeyBody },
    )
    .use(keyEndpoints(deps));
}

/** Changes of one key. */
function keyEndpoints(deps: Deps) {
  const ofKey = { params: IdParam };
  return signedIn(deps)
    .patch(
      "/keys/:id",
      async ({ person, params, body, request }) =>
        toJson(
          await perform(deps, updateKey, callBy(deps, { person, request }), {
            ...withAmounts(body),
            ...(await ownKey(deps, person, params.id)),
          }),
        ),
      { ...ofKey, body: t.Object({ name: t.Optional(Name), limits: t.Optional(KeyLimits), ...OWN_LIMITS }) },
    )
    .post(
      "/keys/:id/disable",
      async ({ person, params, request }) =>
        toJson(
          await perform(deps, disableKey, callBy(deps, { person, request }), await ownKey(deps, person, params.id)),
        ),
      ofKey,
    )
    .post(
      "/keys/:id/enable",
      async ({ person, params, request }) =>
        toJson(
          await perform(deps, enableKey, callBy(deps, { person, request }), await ownKey(deps, person, params.id)),
        ),
      ofKey,
    )
    .post(
      "/keys/:id/revoke",
      async ({ person, params, request }) =>
        toJson(
          await perform(deps, revokeKey, callBy(deps, { person, request }), await ownKey(deps, person, params.id)),
        ),
      ofKey,
    )
    .post(
      "/keys/:id/rotate",
      async ({ person, params, body, request }) => {
        const key = { ...body, ...(await ownKey(deps, person, params.id)) };
        const call = callBy(deps, { person, request });
        return toJson(await once(deps, { person, request }, () => perform(deps, rotateKey, call, key)));
      },
      { ...ofKey, body: t.Object({ overlapSeconds: t.Integer() }) },
    );
}

/** The id of a key of the person: an admin's page changes no other account's keys. Throws not_found, also for those. */
async function ownKey(deps: Deps, { accountId }: Person, keyId: number): Promise<{ keyId: number }> {
  if (!(await findKey(deps, { keyId, accountId }))) throw new Refusal("not_found");
  return { keyId };
}

/** The amounts as bigint. */
function withAmounts<Body extends Partial<Record<KeyBudgetField, string | null>>>(body: Body) {
  const amounts: Partial<Record<KeyBudgetField, bigint | null>> = {};
  for (const { field } of KEY_BUDGETS) {
    const typed = body[field];
    if (typed !== undefined) amounts[field] = typed === null ? null : BigInt(typed);
  }
  return { ...body, ...amounts } as Omit<Body, KeyBudgetField> & typeof amounts;
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
