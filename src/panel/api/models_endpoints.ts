import { Type } from "@sinclair/typebox";
import { type Static, t } from "elysia";
import { adviceOf } from "../../catalog/bound_advice.ts";
import { readBoundUses } from "../../catalog/bound_uses_store.ts";
import { imagePriceKey, QUALITY_CHARS_MAX } from "../../catalog/catalog_input.ts";
import { losing, lossOf, lowestMargin, readMargins } from "../../catalog/margins.ts";
import { MODALITY_NAMES, type Modality } from "../../catalog/modalities.ts";
import { byBound } from "../../catalog/model_bounds.ts";
import {
  addModel,
  findModel,
  listImagePrices,
  listModels,
  setImagePrice,
  setPrices,
  updateModel,
} from "../../catalog/models_store.ts";
import { PARAM_CHARS_MAX, ROUTE_PARAMS_MAX } from "../../catalog/route_params.ts";
import { addRoute, listRoutes, removeRoute, updateRoute } from "../../catalog/routes_store.ts";
import { pricesOfColumns } from "../../catalog/token_prices.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { chatCharge, imageCharge } from "../../ledger/price.ts";
import { CATALOG_NAME_CHARS_MAX, MODEL_ID_CHARS_MAX } from "../../limits.ts";
import { readRouteStates } from "./breakers.ts";
import { FactsFields } from "./facts_fields.ts";
import { IdInBody, IdParam, orNull, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { type Person, signedIn } from "./panel_session.ts";

/**
 * Models, their prices and their routes, for admins. A model is named by the query's `id`, not in the path: ids contain slashes,
 * which proxies and clients encode differently in a path.
 */

const PAGE_DEFAULT = 100;
const PAGE_MAX = 500;
const IMAGE_PRICES_MAX = 40;
/** The request whose cost is shown beside a price per million tokens. */
const EXAMPLE = { promptTokens: 1000, cachedTokens: 0, completionTokens: 500 };

const ModelId = t.String({ minLength: 1, maxLength: MODEL_ID_CHARS_MAX });
const Name = t.String({ maxLength: CATALOG_NAME_CHARS_MAX });
const OfModel = { query: t.Object({ id: ModelId }) };

const OneModality = Type.Unsafe<Modality>(Type.Union(MODALITY_NAMES.map((name) => Type.Literal(name))));
const modelFields = {
  name: t.Optional(Name),
  ownedBy: t.Optional(Name),
  contextLength: t.Optional(orNull(Type.Integer())),
  status: t.Optional(t.Union([t.Literal("active"), t.Literal("preview"), t.Literal("deprecated")])),
  modality: t.Optional(OneModality),
  architecture: t.Optional(orNull(t.Record(t.String(), t.Unknown()))),
  enabled: t.Optional(t.Boolean()),
  defaultCapTokens: t.Optional(Type.Integer()),
  ...byBound(() => t.Optional(Type.Integer())),
  marginPermille: t.Optional(Type.Integer()),
  hidesTokens: t.Optional(orNull(t.Boolean())),
  routeChoice: t.Optional(t.Union([t.Literal("order"), t.Literal("weight"), t.Literal("price"), t.Literal("latency")])),
};
/**
 * Micro-USD per million tokens; null: available with a package only. `further`: FurtherPrices of catalog/rates.ts, which
 * `checkPrices` checks, so that an unknown name is refused. It replaces all further prices; if absent, there are none.
 */
const Prices = t.Union([
  t.Object({
    inputMicroUsd: Type.Integer(),
    cachedInputMicroUsd: t.Optional(orNull(Type.Integer())),
    outputMicroUsd: Type.Integer(),
    further: t.Optional(orNull(t.Record(t.String(), t.Unknown()))),
  }),
  t.Null(),
]);
const ImageSize = t.Union([
  t.Literal("512x512"),
  t.Literal("1024x1024"),
  t.Literal("1024x1536"),
  t.Literal("1536x1024"),
]);
const Quality = t.String({ minLength: 1, maxLength: QUALITY_CHARS_MAX });
const NewModel = t.Object({
  id: ModelId,
  ...modelFields,
  prices: t.Optional(Prices),
  /** Micro-USD per image. */
  imagePrices: t.Optional(
    t.Array(t.Object({ size: ImageSize, quality: t.Optional(Quality), microUsd: Type.Integer() }), {
      maxItems: IMAGE_PRICES_MAX,
    }),
  ),
});

const Params = t.Array(t.String({ minLength: 1, maxLength: PARAM_CHARS_MAX }), { maxItems: ROUTE_PARAMS_MAX });
const routeFields = {
  upstreamModel: t.Optional(Name),
  priority: t.Optional(Type.Integer()),
  weight: t.Optional(Type.Integer()),
  facts: t.Optional(FactsFields),
  ownResponses: t.Optional(t.Boolean()),
  allowedParams: t.Optional(Params),
  droppedParams: t.Optional(Params),
  costInputMicroUsd: t.Optional(orNull(Type.Integer())),
  costOutputMicroUsd: t.Optional(orNull(Type.Integer())),
  costImageMicroUsd: t.Optional(orNull(Type.Integer())),
  enabled: t.Optional(t.Boolean()),
};
const NewRoute = t.Object({
  modelId: ModelId,
  providerId: IdInBody,
  ...routeFields,
});

export function modelsEndpoints(deps: Deps) {
  return signedIn(deps, "admin")
    .get("/admin/models", ({ query }) => pageOfModels(deps, query), {
      query: t.Object({
        after: t.Optional(ModelId),
        limit: t.Optional(whole(1, PAGE_MAX)),
      }),
    })
    .get("/admin/model", ({ query }) => oneModel(deps, query.id), OfModel)
    .post(
      "/admin/models",
      async ({ person, body, request }) => {
        await once(deps, { person, request }, () => createModel(deps, person, body));
        return await oneModel(deps, body.id);
      },
      { body: NewModel },
    )
    .patch(
      "/admin/model",
      async ({ person, query: { id }, body }) => {
        await updateModel({ ...deps, by: person.by }, id, body);
        return await oneModel(deps, id);
      },
      { ...OfModel, body: t.Object(modelFields) },
    )
    .put(
      "/admin/model/prices",
      async ({ person, query: { id }, body: { prices } }) => {
        await setPrices({ ...deps, by: person.by }, id, prices);
        return await oneModel(deps, id);
      },
      { ...OfModel, body: t.Object({ prices: Prices }) },
    )
    .put(
      "/admin/model/image-price",
      async ({ person, query: { id }, body }) => {
        await setImagePrice({ ...deps, by: person.by }, { modelId: id, ...body });
        return await oneModel(deps, id);
      },
      {
        ...OfModel,
        body: t.Object({
          size: ImageSize,
          quality: t.Optional(Quality),
          microUsd: orNull(Type.Integer()),
        }),
      },
    )
    .use(routeEndpoints(deps));
}

/** Routes of models: a model at a provider. */
function routeEndpoints(deps: Deps) {
  const params = IdParam;
  return signedIn(deps, "admin")
    .post(
      "/admin/routes",
      async ({ person, body, request }) => ({
        id: await once(deps, { person, request }, () => addRoute({ ...deps, by: person.by }, body)),
      }),
      { body: NewRoute },
    )
    .patch(
      "/admin/routes/:id",
      async ({ person, params: { id }, body }) => {
        await updateRoute({ ...deps, by: person.by }, id, body);
        return { id };
      },
      { params, body: t.Object(routeFields) },
    )
    .delete(
      "/admin/routes/:id",
      async ({ person, params: { id } }) => {
        await removeRoute({ ...deps, by: person.by }, id);
        return { id };
      },
      { params },
    );
}

async function createModel(
  deps: Deps,
  { by }: Person,
  { imagePrices = [], prices = null, ...fields }: Static<typeof NewModel>,
): Promise<void> {
  const byKey = imagePrices.map(({ size, quality, microUsd }) => [imagePriceKey(size, quality), microUsd]);
  await addModel({ ...deps, by }, { ...fields, prices, imagePrices: Object.fromEntries(byKey) });
}

async function pageOfModels(deps: Deps, { after, limit = PAGE_DEFAULT }: { after?: string; limit?: number }) {
  const rows = await listModels(deps, { after, limit: limit + 1 });
  const models = await describe(deps, rows.slice(0, limit));
  return toJson({ models, hasMore: rows.length > limit, example: EXAMPLE });
}

async function oneModel(deps: Deps, id: string) {
  const row = await findModel(deps, id);
  const [model] = row ? await describe(deps, [row]) : [];
  if (!model) throw new Refusal("not_found", { message: "There is no such model." });
  const advice = row ? adviceOf(row, (await readBoundUses(deps, [row])).get(id) ?? []) : [];
  return toJson({ ...model, advice, example: EXAMPLE });
}

type ModelRow = NonNullable<Awaited<ReturnType<typeof findModel>>>;

/** Models with their prices, their routes and the state of each. */
async function describe(deps: Deps, rows: ModelRow[]) {
  const ids = rows.map(({ id }) => id);
  const images = await listImagePrices(deps, ids);
  const routes = await listRoutes(deps, ids);
  const stateOf = await readRouteStates(
    deps,
    routes.map(({ id }) => id),
  );
  const allMargins = await readMargins(deps, rows);
  return rows.map((row) => {
    const margins = allMargins.get(row.id) ?? [];
    const { createdUnix, inputMicroUsd, cachedInputMicroUsd, outputMicroUsd, furtherPrices: _, ...model } = row;
    const { tokens = null, further = {} } = pricesOfColumns(row) ?? {};
    const isPriced = tokens !== null && inputMicroUsd !== null && outputMicroUsd !== null;
    return {
      ...model,
      createdAt: new Date(createdUnix * 1000).toISOString(),
      prices: isPriced ? { inputMicroUsd, cachedInputMicroUsd, outputMicroUsd, further } : null,
      /** The cost of the example, computed by the function that charges requests. */
      exampleNanoUsd: tokens && chatCharge(tokens, EXAMPLE),
      imagePrices: images
        .filter(({ modelId }) => modelId === model.id)
        .map(({ size, quality, microUsd }) => ({ size, quality, microUsd, chargeNanoUsd: imageCharge(microUsd) })),
      /** What is left of its price, in thousandths, by its dearest route; null: not known. */
      lowestMarginPermille: lowestMargin(margins),
      losing: losing(margins).map(lossOf),
      /** Of the routes that were called in the last 24 hours. */
      reports: routes.filter(({ modelId }) => modelId === model.id).flatMap(({ id }) => stateOf(id).report ?? []),
      routes: routes
        .filter(({ modelId }) => modelId === model.id)
        .map(({ modelId: _, baseUrl: __, ...route }) => ({
          ...route,
          health: stateOf(route.id).health,
          breaker: stateOf(route.id).breaker,
          /** null: not known, or the route is off. */
          marginPermille: lowestMargin(margins.filter(({ routeId }) => routeId === route.id)),
        })),
    };
  });
}
