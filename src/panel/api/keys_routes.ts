import { t } from "elysia";
import { listHosts } from "../../accounts/hosts_store.ts";
import {
  createKey,
  disableKey,
  enableKey,
  findKey,
  listShownKeys,
  revokeKey,
  rotateKey,
  type ShownKey,
  updateKey,
} from "../../accounts/keys_store.ts";
import { requestsByKey } from "../../books/usage_sums_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { entitlementOf, hasLeft } from "../../ledger/entitlement_store.ts";
import { isPassing } from "../../platform/db.ts";
import { longRead } from "./long_read.ts";
import { Id, once, type Person, signedIn, toWire } from "./panel_session.ts";

/** One's own keys: who uses them, what they may, and their ends. */

/** What a name may have is checked by its store; this is where nobody has to read on. */
const Name = t.String({ maxLength: 400 });
const OrNull = <T extends Parameters<typeof t.Union>[0][number]>(shape: T) => t.Union([shape, t.Null()]);
/** Nano-USD in digits; JSON's numbers would round them. */
const NanoUsd = t.String({ maxLength: 16, pattern: "^(0|[1-9][0-9]*)$", says: "nano-USD, as a string of digits" });
const CEILINGS = {
  dailyUnitsMax: t.Optional(OrNull(t.Integer())),
  dailySpendMaxNanoUsd: t.Optional(OrNull(NanoUsd)),
};
const NewKeyBody = t.Object({
  name: Name,
  mode: t.Union([t.Literal("package"), t.Literal("payg")]),
  modelIds: t.Optional(OrNull(t.Array(t.String({ maxLength: 200 }), { maxItems: 200 }))),
  hosts: t.Optional(OrNull(t.Array(t.String({ maxLength: 253 }), { maxItems: 50 }))),
  expiresAt: t.Optional(OrNull(t.String({ maxLength: 40 }))),
  ...CEILINGS,
});
type NewKeyBody = typeof NewKeyBody.static;

export function keysRoutes(deps: Deps) {
  return signedIn(deps)
    .get("/keys", async ({ person, request: { signal } }) => toWire(await keysOf(deps, person, signal)))
    .get("/keys/options", async ({ person }) => toWire(await optionsOf(deps, person)))
    .post(
      "/keys",
      async ({ person, body, request }) => toWire(await once(deps, person, request, () => create(deps, person, body))),
      { body: NewKeyBody },
    )
    .use(keyRoutes(deps));
}

/** What is done to one key. */
function keyRoutes(deps: Deps) {
  const ofKey = { params: t.Object({ id: Id }) };
  return signedIn(deps)
    .patch(
      "/keys/:id",
      async ({ person, params, body }) => {
        const { dailySpendMaxNanoUsd: spend, ...change } = body;
        const dailySpendMaxNanoUsd = spend === undefined || spend === null ? spend : BigInt(spend);
        const key = await ownKey(deps, person, params.id);
        return toWire(await updateKey({ ...deps, by: person.by }, key, { ...change, dailySpendMaxNanoUsd }));
      },
      { ...ofKey, body: t.Object({ name: t.Optional(Name), ...CEILINGS }) },
    )
    .post(
      "/keys/:id/disable",
      async ({ person, params }) =>
        toWire(await disableKey({ ...deps, by: person.by }, await ownKey(deps, person, params.id))),
      ofKey,
    )
    .post(
      "/keys/:id/enable",
      async ({ person, params }) =>
        toWire(await enableKey({ ...deps, by: person.by }, await ownKey(deps, person, params.id))),
      ofKey,
    )
    .post(
      "/keys/:id/revoke",
      async ({ person, params }) =>
        toWire(await revokeKey({ ...deps, by: person.by }, await ownKey(deps, person, params.id))),
      ofKey,
    )
    .post(
      "/keys/:id/rotate",
      async ({ person, params, body, request }) => {
        const key = await ownKey(deps, person, params.id);
        const rotate = () => rotateKey({ ...deps, by: person.by }, { ...key, ...body });
        return toWire(await once(deps, person, request, rotate));
      },
      { ...ofKey, body: t.Object({ overlapSeconds: t.Integer() }) },
    );
}

/** Names a key of one's own. Throws not_found: another's reads as one that is not there. */
async function ownKey(deps: Deps, { accountId }: Person, keyId: number): Promise<{ accountId: number; keyId: number }> {
  if (!(await findKey(deps, { keyId, accountId }))) throw new Refusal("not_found");
  return { accountId, keyId };
}

async function create(deps: Deps, person: Person, body: NewKeyBody) {
  const { modelIds = null, hosts = null, expiresAt = null, dailyUnitsMax = null, dailySpendMaxNanoUsd = null } = body;
  return createKey(
    { ...deps, by: person.by },
    {
      accountId: person.accountId,
      name: body.name,
      mode: body.mode,
      modelIds,
      hosts,
      expiresAt,
      dailyUnitsMax,
      dailySpendMaxNanoUsd: dailySpendMaxNanoUsd === null ? null : BigInt(dailySpendMaxNanoUsd),
    },
  );
}

type KeyRow = Omit<ShownKey, "accountId"> & {
  /** Usage records of the last 24 hours; null: they could not be counted. */
  requestsLastDay: number | null;
};

async function keysOf(deps: Deps, person: Person, signal: AbortSignal): Promise<{ rows: KeyRow[] }> {
  const { accountId } = person;
  const [keys, requests] = await Promise.all([listShownKeys(deps, accountId), countedRequests(deps, person, signal)]);
  const requestsOf = (keyId: number) => (requests === null ? null : (requests.get(keyId) ?? 0));
  return { rows: keys.map(({ accountId: _, ...key }) => ({ ...key, requestsLastDay: requestsOf(key.keyId) })) };
}

/** null: they cannot be counted now. A key that is to be revoked must be found all the same. */
async function countedRequests(deps: Deps, person: Person, signal: AbortSignal): Promise<Map<number, number> | null> {
  try {
    return await longRead(deps, { person, signal }, (reading) => requestsByKey(reading, person.accountId));
  } catch (error) {
    if (error instanceof Refusal || isPassing(error)) return null;
    throw error;
  }
}

/** What a new key may name, and what could pay for it now. */
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
    /** Whose days the ceilings count. */
    timeZone: deps.config.billingTimeZone,
  };
}

/** The API's own hosts, but not for a reseller's customers, who know its domains alone; and those domains. */
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
