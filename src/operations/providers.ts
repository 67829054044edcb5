import { type StaticDecode, Type } from "@sinclair/typebox";
import type { DialectName, FactChoice, Facts as ProviderFacts } from "../catalog/dialects.ts";
import { type TestFailureKind, testStoredProvider } from "../catalog/provider_check.ts";
import {
  addProviderKey as addKey,
  type ListedKey,
  listProviderKeys,
  removeProviderKey as removeKey,
  updateProviderKey as updateKey,
} from "../catalog/provider_keys_store.ts";
import {
  addProvider,
  findProvider,
  listProviders as readProviders,
  updateProvider as update,
} from "../catalog/providers_store.ts";
import { worstHealth } from "../catalog/route_health.ts";
import { listRoutes } from "../catalog/routes_store.ts";
import { Refusal } from "../errors.ts";
import {
  CATALOG_NAME_CHARS_MAX,
  MODEL_ID_CHARS_MAX,
  PROVIDER_KEY_CHARS_MAX,
  PROVIDER_URL_CHARS_MAX,
  ROUTE_WEIGHT,
} from "../limits.ts";
import type { Db } from "../platform/db.ts";
import { At, orNull, RowId, text } from "./fields.ts";
import { Facts } from "./models.ts";
import { changing, listOperation, operation } from "./operation.ts";
import { readRouteStates } from "./route_states.ts";

/** Providers and their keys, for admins. A key can be set, and is never returned, not even in part. */

const DIALECT_CHARS_MAX = 60;

const OfProvider = { providerId: RowId };
const OfKey = { providerKeyId: RowId };
const Name = text(CATALOG_NAME_CHARS_MAX);
const ApiKey = Type.String({ maxLength: PROVIDER_KEY_CHARS_MAX });
const PROVIDER_FIELDS = {
  name: Name,
  baseUrl: text(PROVIDER_URL_CHARS_MAX, "Its OpenAI-compatible base URL, as in https://api.example.com/v1."),
  apiKey: ApiKey,
};
const OPTIONAL_FIELDS = {
  dialect: Type.Optional(Type.String({ maxLength: DIALECT_CHARS_MAX })),
  facts: Type.Optional(Facts),
  enabled: Type.Optional(Type.Boolean()),
};
const Weight = Type.Integer({ minimum: ROUTE_WEIGHT.min, maximum: ROUTE_WEIGHT.max });
const KEY_FIELDS = { weight: Type.Optional(Weight), enabled: Type.Optional(Type.Boolean()) };

const AnyFacts = (says: { description: string }) => Type.Record(Type.String(), Type.Unknown(), says);
const PROVIDER = {
  id: RowId,
  name: Type.String(),
  baseUrl: Type.String(),
  dialect: Type.Unsafe<DialectName>(Type.String()),
  enabled: Type.Boolean(),
};
const KeyShape = Type.Object(
  {
    id: RowId,
    name: Type.String(),
    weight: Type.Integer(),
    enabled: Type.Boolean(),
    state: Type.Union([Type.Literal("active"), Type.Literal("cooling"), Type.Literal("quarantined")]),
    since: At,
    until: orNull(At),
    why: orNull(Type.String({ description: "Why it is in quarantine." })),
    models: Type.Array(Type.String(), { description: "The provider's models that it is paused for." }),
    probedAt: orNull(At),
  },
  { title: "ProviderKey" },
);
const ProviderShape = Type.Object(
  {
    ...PROVIDER,
    facts: Type.Unsafe<Partial<ProviderFacts>>(
      AnyFacts({ description: "Facts that are set, where it differs from its dialect." }),
    ),
    takes: Type.Unsafe<ProviderFacts>(AnyFacts({ description: "All facts in force." })),
    keys: Type.Array(KeyShape),
  },
  { title: "Provider" },
);

export type Provider = StaticDecode<typeof ProviderShape>;

export const listProviders = listOperation({
  name: "providers.list",
  says: "Lists the providers by name, with the health of their routes.",
  scope: "providers:read",
  roles: ["admin"],
  route: "GET /providers",
  filter: {},
  before: Type.Optional(text(CATALOG_NAME_CHARS_MAX)),
  item: Type.Object(
    {
      ...PROVIDER,
      routes: Type.Integer(),
      keys: Type.Integer(),
      restingKeys: Type.Integer({ description: "Enabled keys that are cooling or quarantined." }),
      openBreakers: Type.Integer({ description: "Routes that some replica skips for now, because they failed." }),
      health: Type.String({ description: "Of its worst route: answers, degraded, failing or untested." }),
    },
    { title: "ListedProvider" },
  ),
  cursor: ({ name }: { name: string }) => name,
  list: (deps, _call, { before: after, limit }) => pageOfProviders(deps, { after, limit }),
});

export const getProvider = operation({
  name: "providers.get",
  says: "Returns a provider, with its keys but not their secrets.",
  scope: "providers:read",
  roles: ["admin"],
  route: "GET /providers/{providerId}",
  input: OfProvider,
  output: ProviderShape,
  run: (deps, _call, { providerId }) => providerOf(deps, providerId),
});

export const createProvider = operation({
  name: "providers.create",
  says: "Adds a provider with its first key, which is stored encrypted.",
  scope: "providers:write",
  roles: ["admin"],
  route: "POST /providers",
  input: { ...PROVIDER_FIELDS, ...OPTIONAL_FIELDS },
  output: ProviderShape,
  run: async (deps, call, wanted) =>
    providerOf(deps, await addProvider({ ...changing(deps, call), config: deps.config }, wanted)),
});

export const updateProvider = operation({
  name: "providers.update",
  says: "Changes a provider; apiKey replaces the key of one that has a single key. What is left out stays.",
  scope: "providers:write",
  roles: ["admin"],
  route: "PATCH /providers/{providerId}",
  input: {
    ...OfProvider,
    name: Type.Optional(PROVIDER_FIELDS.name),
    baseUrl: Type.Optional(PROVIDER_FIELDS.baseUrl),
    apiKey: Type.Optional(ApiKey),
    ...OPTIONAL_FIELDS,
  },
  output: ProviderShape,
  async run(deps, call, { providerId, ...patch }) {
    await update(changing(deps, call), providerId, patch);
    return providerOf(deps, providerId);
  },
});

export const addProviderKey = operation({
  name: "provider_keys.create",
  says: "Adds a key to a provider. It is stored encrypted.",
  scope: "providers:write",
  roles: ["admin"],
  route: "POST /providers/{providerId}/keys",
  input: { ...OfProvider, name: Name, apiKey: ApiKey, ...KEY_FIELDS },
  output: ProviderShape,
  async run(deps, call, { providerId, ...wanted }) {
    await addKey(changing(deps, call), providerId, wanted);
    return providerOf(deps, providerId);
  },
});

export const updateProviderKey = operation({
  name: "provider_keys.update",
  says: "Changes a key of a provider. What is left out stays.",
  scope: "providers:write",
  roles: ["admin"],
  route: "PATCH /provider_keys/{providerKeyId}",
  input: { ...OfKey, name: Type.Optional(Name), apiKey: Type.Optional(ApiKey), ...KEY_FIELDS },
  output: ProviderShape,
  run: async (deps, call, { providerKeyId, ...patch }) =>
    providerOf(deps, await updateKey(changing(deps, call), providerKeyId, patch)),
});

export const removeProviderKey = operation({
  name: "provider_keys.remove",
  says: "Removes a key of a provider.",
  scope: "providers:write",
  roles: ["admin"],
  route: "DELETE /provider_keys/{providerKeyId}",
  input: OfKey,
  output: ProviderShape,
  run: async (deps, call, { providerKeyId }) => providerOf(deps, await removeKey(changing(deps, call), providerKeyId)),
});

const TestShape = Type.Object(
  {
    ok: Type.Boolean(),
    tookMs: Type.Integer({ description: "Until it had listed its models, with look-up and connection." }),
    models: Type.Integer({ description: "How many it lists." }),
    unlisted: Type.Array(Type.String(), {
      description: "Models of its routes that it does not list: requests for them will most likely fail.",
    }),
    chatTookMs: orNull(Type.Integer()),
    probe: orNull(
      Type.Object({
        proposed: Type.Unsafe<Partial<ProviderFacts>>(
          AnyFacts({ description: "Facts that differ from those in force." }),
        ),
        unknown: Type.Array(Type.Unsafe<FactChoice>(Type.String()), {
          description: "Facts that hold in none of their forms.",
        }),
        calls: Type.Integer(),
        recognised: orNull(Type.Unsafe<DialectName>(Type.String())),
      }),
    ),
    kind: orNull(Type.Unsafe<TestFailureKind>(Type.String({ description: "The step that failed." }))),
    problem: orNull(Type.String()),
  },
  { title: "ProviderTest" },
);

export const testProvider = operation({
  name: "providers.test",
  says: "Tests a provider: lists its models, asks a model for one token, and finds out which facts hold. It makes calls that the provider may charge for.",
  scope: "providers:write",
  roles: ["admin"],
  route: "POST /providers/{providerId}/test",
  input: {
    ...OfProvider,
    model: Type.Optional(text(MODEL_ID_CHARS_MAX, "Its first route of this model is asked for one token.")),
    keyId: Type.Optional(RowId),
    probe: Type.Optional(Type.Boolean({ description: "Whether its facts are probed." })),
  },
  output: TestShape,
  run: (deps, call, { providerId, model, ...choice }) =>
    call.callOut("receiver", () => testStoredProvider(deps, providerId, { modelId: model, ...choice })),
});

/** Providers by name with the state of their keys and routes; `after` is a name. */
export async function pageOfProviders(
  deps: { db: Db },
  { after, limit }: { after?: string | undefined; limit: number },
) {
  const rows = await readProviders(deps, { after, limit: limit + 1 });
  const page = rows.slice(0, limit);
  const [routes, stateOf] = [await listRoutes(deps), await readRouteStates(deps)];
  const keys = await listProviderKeys(
    deps,
    page.map(({ id }) => id),
  );
  const routesOf = (providerId: number) => {
    const states = routes
      .filter((route) => route.providerId === providerId && route.enabled)
      .map(({ id }) => stateOf(id));
    return {
      openBreakers: states.filter(({ breaker }) => breaker.open).length,
      health: worstHealth(states.map(({ health }) => health)),
    };
  };
  const shown = page.map((row) => ({
    ...row,
    restingKeys: keys.filter((key) => key.providerId === row.id && isResting(key)).length,
    ...routesOf(row.id),
  }));
  return { rows: shown, hasMore: rows.length > limit };
}

/** A provider with its keys. Throws not_found. */
export async function providerOf(deps: { db: Db }, id: number) {
  const row = await findProvider(deps, id);
  if (!row) throw new Refusal("not_found");
  return { ...row, keys: await listProviderKeys(deps, [id]) };
}

function isResting({ enabled, state }: ListedKey): boolean {
  return enabled && state !== "active";
}
