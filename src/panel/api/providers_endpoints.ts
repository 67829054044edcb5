import { t } from "elysia";
import { listRoutesTo } from "../../catalog/routes_store.ts";
import type { Deps } from "../../deps.ts";
import { CATALOG_NAME_CHARS_MAX } from "../../limits.ts";
import {
  addProviderKey,
  createProvider,
  pageOfProviders,
  providerOf,
  removeProviderKey,
  testProvider,
  updateProvider,
  updateProviderKey,
} from "../../operations/providers.ts";
import { readRouteStates } from "../../operations/route_states.ts";
import { IdParam, NO_NUL, whole } from "./fields.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/** Providers and their keys, for admins. */

const PAGE_DEFAULT = 100;
const PAGE_MAX = 500;
/** Routes listed on one provider's page. */
const ROUTES_MAX = 500;

const params = IdParam;
const OF_PROVIDER = { path: { id: "providerId" } } as const;
const OF_KEY = { path: { id: "providerKeyId" } } as const;

export function providersEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get(
      "/admin/providers",
      async ({ query: { after, limit = PAGE_DEFAULT } }) => {
        const { rows, hasMore } = await pageOfProviders(deps, { after, limit });
        return { providers: rows, hasMore };
      },
      {
        query: t.Object({
          /** The last name of the previous page. */
          after: t.Optional(
            t.String({ maxLength: CATALOG_NAME_CHARS_MAX, pattern: NO_NUL, says: "the name of a provider" }),
          ),
          limit: t.Optional(whole(1, PAGE_MAX)),
        }),
      },
    )
    .get(
      "/admin/providers/:id",
      async ({ params: { id } }) => ({ ...(await providerOf(deps, id)), ...(await routesTo(deps, id)) }),
      { params },
    )
    .post("/admin/providers", operate(deps, createProvider), { body: bodyOf(createProvider) })
    .patch("/admin/providers/:id", operate(deps, updateProvider, OF_PROVIDER), {
      params,
      body: bodyOf(updateProvider, "providerId"),
    })
    .post("/admin/providers/:id/test", operate(deps, testProvider, OF_PROVIDER), {
      params,
      body: bodyOf(testProvider, "providerId"),
    })
    .post("/admin/providers/:id/keys", operate(deps, addProviderKey, OF_PROVIDER), {
      params,
      body: bodyOf(addProviderKey, "providerId"),
    })
    .patch("/admin/provider-keys/:id", operate(deps, updateProviderKey, OF_KEY), {
      params,
      body: bodyOf(updateProviderKey, "providerKeyId"),
    })
    .delete("/admin/provider-keys/:id", operate(deps, removeProviderKey, OF_KEY), { params });
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
