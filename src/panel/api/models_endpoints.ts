import { t } from "elysia";
import { listModels } from "../../catalog/models_store.ts";
import type { Deps } from "../../deps.ts";
import {
  addRoute,
  createModel,
  describeModels,
  EXAMPLE,
  getModel,
  removeRoute,
  setImagePrice,
  setModelPrices,
  updateModel,
  updateRoute,
} from "../../operations/models.ts";
import { IdParam, ModelId, whole } from "./fields.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { signedIn } from "./panel_session.ts";

/**
 * Models, their prices and their routes, for admins. A model is named by the query's `id`.
 */

const PAGE_DEFAULT = 100;
const PAGE_MAX = 500;

const OfModel = { query: t.Object({ id: ModelId }) };
const OF_ROUTE = { path: { id: "routeId" } } as const;

export function modelsEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get(
      "/admin/models",
      async ({ query: { after, limit = PAGE_DEFAULT } }) => {
        const rows = await listModels(deps, { after, limit: limit + 1 });
        const models = await describeModels(deps, rows.slice(0, limit));
        return toJson({ models, hasMore: rows.length > limit, example: EXAMPLE });
      },
      { query: t.Object({ after: t.Optional(ModelId), limit: t.Optional(whole(1, PAGE_MAX)) }) },
    )
    .get("/admin/model", operate(deps, getModel), OfModel)
    .post("/admin/models", operate(deps, createModel), { body: bodyOf(createModel) })
    .patch("/admin/model", operate(deps, updateModel), { ...OfModel, body: bodyOf(updateModel, "id") })
    .put("/admin/model/prices", operate(deps, setModelPrices), { ...OfModel, body: bodyOf(setModelPrices, "id") })
    .put("/admin/model/image-price", operate(deps, setImagePrice), { ...OfModel, body: bodyOf(setImagePrice, "id") })
    .post("/admin/routes", operate(deps, addRoute), { body: bodyOf(addRoute) })
    .patch("/admin/routes/:id", operate(deps, updateRoute, OF_ROUTE), {
      params: IdParam,
      body: bodyOf(updateRoute, "routeId"),
    })
    .delete("/admin/routes/:id", operate(deps, removeRoute, OF_ROUTE), { params: IdParam });
}
