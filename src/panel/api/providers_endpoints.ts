import { t } from "elysia";
import {
  addProviderKey,
  type ListedKey,
  listProviderKeys,
  removeProviderKey,
  updateProviderKey,
} from "../../catalog/provider_keys_store.ts";
import { addProvider, findProvider, listProviders, updateProvider } from "../../catalog/providers_store.ts";
import { worstHealth } from "../../catalog/route_health.ts";
import { listRoutes, listRoutesTo } from "../../catalog/routes_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import {
  CATALOG_NAME_CHARS_MAX,
  MODEL_ID_CHARS_MAX,
  PROVIDER_KEY_CHARS_MAX,
  PROVIDER_URL_CHARS_MAX,
  ROUTE_WEIGHT,
} from "../../limits.ts";
import { readRouteStates } from "./breakers.ts";
import { DialectField, FactsFields } from "./facts_fields.ts";
import { IdInBody, IdParam, NO_NUL, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { signedIn } from "./panel_session.ts";

/** Providers and their keys, for admins. A key can be set, and is never returned, not even in part. */

const PAGE_DEFAULT = 100;
const PAGE_MAX = 500;
/** Routes listed on one provider's page. */
const ROUTES_MAX = 500;

const params = IdParam;
const Name = t.String({ maxLength: CATALOG_NAME_CHARS_MAX });
const BaseUrl = t.String({ maxLength: PROVIDER_URL_CHARS_MAX });
const ApiKey = t.String({ maxLength: PROVIDER_KEY_CHARS_MAX });
const Weight = t.Integer({ minimum: ROUTE_WEIGHT.min, maximum: ROUTE_WEIGHT.max });

export function providersEndpoints(deps: Deps) {
  return signedIn(deps, "admin").use(ownEndpoints(deps)).use(keyEndpoints(deps));
}

function ownEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/providers", ({ query }) => pageOfProviders(deps, query), {
      query: t.Object({
        /** The last name of the previous page. */
        after: t.Optional(
          t.String({ maxLength: CATALOG_NAME_CHARS_MAX, pattern: NO_NUL, says: "the name of a provider" }),
        ),
        limit: t.Optional(whole(1, PAGE_MAX)),
      }),
    })
    .get(
      "/admin/providers/:id",
      async ({ params: { id } }) => ({ ...(await oneProvider(deps, id)), ...(await routesTo(deps, id)) }),
      { params },
    )
    .post(
      "/admin/providers",
      async ({ person, body, request }) => {
        const id = await once(deps, { person, request }, () => addProvider({ ...deps, by: person.by }, body));
        return await oneProvider(deps, id);
      },
      {
        body: t.Object({
          ...{ name: Name, baseUrl: BaseUrl, apiKey: ApiKey },
          ...{ dialect: t.Optional(DialectField), facts: t.Optional(FactsFields), enabled: t.Optional(t.Boolean()) },
        }),
      },
    )
    .patch(
      "/admin/providers/:id",
      async ({ person, params: { id }, body }) => {
        await updateProvider({ ...deps, by: person.by }, id, body);
        return await oneProvider(deps, id);
      },
      {
        params,
        body: t.Object({
          name: t.Optional(Name),
          baseUrl: t.Optional(BaseUrl),
          apiKey: t.Optional(ApiKey),
          dialect: t.Optional(DialectField),
          facts: t.Optional(FactsFields),
          enabled: t.Optional(t.Boolean()),
        }),
      },
    )
    .post(
      "/admin/providers/:id/test",
      ({ params: { id }, body }) =>
        deps.providerTests.run(id, { modelId: body.model, keyId: body.keyId, probe: body.probe }),
      {
        params,
        body: t.Object({
          model: t.Optional(t.String({ minLength: 1, maxLength: MODEL_ID_CHARS_MAX })),
          /** Whether its facts are probed. */
          probe: t.Optional(t.Boolean()),
          /** Default: the first key. */
          keyId: t.Optional(IdInBody),
        }),
      },
    );
}

/** Each answers the provider with all its keys. */
function keyEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .post(
      "/admin/providers/:id/keys",
      async ({ person, params: { id }, body, request }) => {
        await once(deps, { person, request }, () => addProviderKey({ ...deps, by: person.by }, id, body));
        return await oneProvider(deps, id);
      },
      {
        params,
        body: t.Object({ name: Name, apiKey: ApiKey, weight: t.Optional(Weight), enabled: t.Optional(t.Boolean()) }),
      },
    )
    .patch(
      "/admin/provider-keys/:id",
      async ({ person, params: { id }, body }) =>
        await oneProvider(deps, await updateProviderKey({ ...deps, by: person.by }, id, body)),
      {
        params,
        body: t.Object({
          name: t.Optional(Name),
          apiKey: t.Optional(ApiKey),
          weight: t.Optional(Weight),
          enabled: t.Optional(t.Boolean()),
        }),
      },
    )
    .delete(
      "/admin/provider-keys/:id",
      async ({ person, params: { id } }) =>
        await oneProvider(deps, await removeProviderKey({ ...deps, by: person.by }, id)),
      { params },
    );
}

async function pageOfProviders(deps: Deps, { after, limit = PAGE_DEFAULT }: { after?: string; limit?: number }) {
  const rows = await listProviders(deps, { after, limit: limit + 1 });
  const shown = rows.slice(0, limit);
  const [routes, stateOf] = [await listRoutes(deps), await readRouteStates(deps)];
  const keys = await listProviderKeys(
    deps,
    shown.map(({ id }) => id),
  );
  const routesOf = (providerId: number) => {
    const states = routes
      .filter((route) => route.providerId === providerId && route.enabled)
      .map(({ id }) => stateOf(id));
    return {
      /** Routes that some replica skips for now, because they failed. */
      openBreakers: states.filter(({ breaker }) => breaker.open).length,
      health: worstHealth(states.map(({ health }) => health)),
    };
  };
  const providers = shown.map((row) => ({
    ...row,
    apiKey: "stored" as const,
    /** Enabled keys that are cooling or quarantined. */
    restingKeys: keys.filter((key) => key.providerId === row.id && isResting(key)).length,
    ...routesOf(row.id),
  }));
  return { providers, hasMore: rows.length > limit };
}

async function oneProvider(deps: Deps, id: number) {
  const row = await findProvider(deps, id);
  if (!row) throw new Refusal("not_found");
  return { ...row, apiKey: "stored" as const, keys: await listProviderKeys(deps, [id]) };
}

function isResting({ enabled, state }: ListedKey): boolean {
  return enabled && state !== "active";
}

/** The routes that lead to a provider. */
async function routesTo(deps: Deps, providerId: number) {
  const rows = await listRoutesTo(deps, { providerId, limit: ROUTES_MAX + 1 });
  const shown = rows.slice(0, ROUTES_MAX);
  const stateOf = await readRouteStates(
    deps,
    shown.map(({ id }) => id),
  );
  const routes = shown.map(({ id, modelId, upstreamModel, enabled }) => ({
    id,
    modelId,
    upstreamModel,
    enabled,
    health: stateOf(id).health,
    breaker: stateOf(id).breaker,
  }));
  return { routes, hasMoreRoutes: rows.length > ROUTES_MAX };
}
