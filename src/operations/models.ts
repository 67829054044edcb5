import { type TSchema, Type } from "@sinclair/typebox";
import { adviceOf, BOUND_PARTS, type BoundAdvice } from "../catalog/bound_advice.ts";
import { readBoundUses } from "../catalog/bound_uses_store.ts";
import { imagePriceKey, QUALITY_CHARS_MAX, ROUTE_CHOICES } from "../catalog/catalog_input.ts";
import { FACT_NAMES } from "../catalog/dialects.ts";
import {
  bestMargin,
  COST_SOURCES,
  DEARER_PARTS,
  losing,
  lossOf,
  lowestMargin,
  type RouteMargins,
  readMargins,
} from "../catalog/margins.ts";
import { MODALITY_NAMES, type Modality } from "../catalog/modalities.ts";
import { byBound } from "../catalog/model_bounds.ts";
import {
  addModel,
  changePrices,
  findModel,
  listImagePrices,
  listModels as readModels,
  setImagePrice as setPriceOfImage,
  updateModel as update,
} from "../catalog/models_store.ts";
import { PARAM_CHARS_MAX, ROUTE_PARAMS_MAX } from "../catalog/route_params.ts";
import { addRoute as add, updateRoute as change, listRoutes, removeRoute as remove } from "../catalog/routes_store.ts";
import { pricesOfColumns } from "../catalog/token_prices.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import { chatCharge, imageCharge } from "../ledger/price.ts";
import { CATALOG_NAME_CHARS_MAX, IMAGE_SIZES, MODEL_ID_CHARS_MAX } from "../limits.ts";
import type { Db } from "../platform/db.ts";
import { Amount, At, orNull, RowId, text } from "./fields.ts";
import { changing, listOperation, operation } from "./operation.ts";
import { readRouteStates } from "./route_states.ts";

/**
 * Models, their prices and their routes, for admins. A model is named by a field and not in the path: ids contain slashes, which proxies and
 * clients encode differently in a path.
 */

const IMAGE_PRICES_MAX = 40;
/** The request whose cost is shown beside a price per million tokens. */
export const EXAMPLE = { promptTokens: 1000, cachedTokens: 0, completionTokens: 500 };

const ModelId = Type.String({ minLength: 1, maxLength: MODEL_ID_CHARS_MAX, description: "The model's id." });
const OfModel = { id: ModelId };
const Name = text(CATALOG_NAME_CHARS_MAX);
const MicroUsd = Type.Integer({ description: "Micro-USD: 1 USD is 1000000." });
const Fraction = orNull(Type.Integer({ description: "What is left of the price, in thousandths; null: not known." }));
const oneOf = <const Word extends string>(words: readonly Word[]) =>
  Type.Unsafe<Word>(Type.Union(words.map((word) => Type.Literal(word))));

const MODEL_FIELDS = {
  name: Type.Optional(Name),
  ownedBy: Type.Optional(Name),
  contextLength: Type.Optional(orNull(Type.Integer())),
  status: Type.Optional(oneOf(["active", "preview", "deprecated"])),
  modality: Type.Optional(oneOf<Modality>(MODALITY_NAMES)),
  architecture: Type.Optional(orNull(Type.Record(Type.String(), Type.Unknown()))),
  enabled: Type.Optional(Type.Boolean()),
  defaultCapTokens: Type.Optional(Type.Integer()),
  ...byBound(() => Type.Optional(Type.Integer())),
  marginPermille: Type.Optional(Type.Integer({ description: "Factor on what is reserved, in thousandths." })),
  hidesTokens: Type.Optional(orNull(Type.Boolean())),
  routeChoice: Type.Optional(oneOf(ROUTE_CHOICES)),
};
/** `further` has the names of `catalog/rates.ts`, which `checkPrices` checks, so that an unknown one is named. */
const Prices = orNull(
  Type.Object(
    {
      inputMicroUsd: Type.Integer(),
      cachedInputMicroUsd: Type.Optional(orNull(Type.Integer())),
      outputMicroUsd: Type.Integer(),
      further: Type.Optional(orNull(Type.Record(Type.String(), Type.Unknown()))),
    },
    {
      additionalProperties: false,
      description: "Micro-USD per million tokens; all of them are replaced. null: the model is sold in packages only.",
    },
  ),
);
const IMAGE = {
  size: oneOf(IMAGE_SIZES),
  quality: Type.Optional(Type.String({ minLength: 1, maxLength: QUALITY_CHARS_MAX })),
};
const imagePrices = <Price extends TSchema>(microUsd: Price) =>
  Type.Optional(
    Type.Array(Type.Object({ ...IMAGE, microUsd }, { additionalProperties: false }), { maxItems: IMAGE_PRICES_MAX }),
  );

const Params = Type.Array(Type.String({ minLength: 1, maxLength: PARAM_CHARS_MAX }), { maxItems: ROUTE_PARAMS_MAX });
const Cost = Type.Optional(orNull(MicroUsd));
/** Facts of a dialect that are set, by name; `checkFacts` checks them, so that an unknown name is named. */
export const Facts = Type.Record(Type.String({ maxLength: 60 }), Type.Unknown(), {
  maxProperties: 2 * FACT_NAMES.length,
  description: "Facts that differ from the dialect, by name; null: as the dialect says.",
});
const ROUTE_FIELDS = {
  upstreamModel: Type.Optional(Name),
  priority: Type.Optional(Type.Integer()),
  weight: Type.Optional(Type.Integer()),
  facts: Type.Optional(Facts),
  ownResponses: Type.Optional(Type.Boolean()),
  allowedParams: Type.Optional(Params),
  droppedParams: Type.Optional(Params),
  costInputMicroUsd: Cost,
  costOutputMicroUsd: Cost,
  costImageMicroUsd: Cost,
  enabled: Type.Optional(Type.Boolean()),
};

/** Of a route, over all replicas. */
export const RouteStateShape = {
  health: Type.String({ description: "answers, degraded, failing or untested: by the last 24 hours." }),
  breaker: Type.Object({
    open: Type.Boolean({ description: "Some replica skips the route for now." }),
    dueInMs: Type.Integer(),
    forAll: Type.Boolean(),
    trouble: orNull(Type.String()),
    leftOutBy: Type.Integer(),
    replicas: Type.Integer(),
  }),
};
const RouteShape = Type.Object(
  {
    id: RowId,
    providerId: RowId,
    providerName: Type.String(),
    upstreamModel: Type.String(),
    priority: Type.Integer(),
    weight: Type.Integer(),
    ownResponses: Type.Boolean(),
    facts: Type.Record(Type.String(), Type.Unknown(), { description: "Set on the route; others are its provider's." }),
    takes: Type.Record(Type.String(), Type.Unknown(), { description: "All facts, as they hold for the route." }),
    allowedParams: Type.Array(Type.String()),
    droppedParams: Type.Array(Type.String()),
    costInputMicroUsd: orNull(Type.Integer()),
    costOutputMicroUsd: orNull(Type.Integer()),
    costImageMicroUsd: orNull(Type.Integer()),
    enabled: Type.Boolean(),
    marginPermille: Fraction,
    marginSource: orNull(oneOf(COST_SOURCES)),
    ...RouteStateShape,
  },
  { title: "Route" },
);
const MODEL = {
  id: Type.String(),
  name: Type.String(),
  ownedBy: Type.String(),
  contextLength: orNull(Type.Integer()),
  status: Type.String(),
  modality: Type.String(),
  enabled: Type.Boolean(),
  defaultCapTokens: Type.Integer(),
  ...byBound(() => Type.Integer()),
  marginPermille: Type.Integer(),
  hidesTokens: orNull(Type.Boolean()),
  routeChoice: Type.String(),
  createdAt: At,
  prices: orNull(
    Type.Object({
      inputMicroUsd: Type.Integer(),
      cachedInputMicroUsd: orNull(Type.Integer()),
      outputMicroUsd: Type.Integer(),
      further: Type.Record(Type.String(), Type.Unknown()),
    }),
  ),
  exampleNanoUsd: orNull(Amount),
  imagePrices: Type.Array(
    Type.Object({ size: Type.String(), quality: Type.String(), microUsd: Type.Integer(), chargeNanoUsd: Amount }),
  ),
  lowestMarginPermille: Fraction,
  routes: Type.Array(RouteShape),
};
const ModelShape = Type.Object(MODEL, { title: "Model" });
const Times = orNull(Type.Object({ p50Ms: Type.Number(), p95Ms: Type.Number() }));
const ModelDetails = Type.Object(
  {
    ...MODEL,
    advice: Type.Array(
      Type.Object({
        part: oneOf(BOUND_PARTS),
        requests: Type.Integer(),
        overruns: Type.Integer({ description: "Requests that used more than was reserved." }),
        mostPermille: Type.Integer({ description: "The most that one used of what was reserved." }),
        change: Type.Unsafe<BoundAdvice["change"]>(
          Type.Record(Type.String(), Type.Integer(), { description: "Bounds that would fit; empty: they fit." }),
        ),
      }),
      { description: "What the requests of 30 days say of the bounds." },
    ),
    losing: Type.Array(
      Type.Object({
        routeId: RowId,
        route: Type.String({ description: "Its provider and the provider's model." }),
        source: oneOf(COST_SOURCES),
        dearer: Type.Array(oneOf(DEARER_PARTS), { description: "What costs more than its price." }),
        times: Type.Number({ description: "The highest cost of one of them, as a multiple of its price." }),
      }),
      { description: "Routes that cost more than the price." },
    ),
    reports: Type.Array(
      Type.Object({
        routeId: RowId,
        requests: Type.Integer(),
        errors: Type.Integer(),
        inputTokens: Type.Integer(),
        cachedTokens: Type.Integer(),
        firstEvent: Times,
        wholeAnswer: Times,
      }),
      { description: "Of the routes that were called in the last 24 hours." },
    ),
  },
  { title: "ModelDetails" },
);

export const listModels = listOperation({
  name: "models.list",
  says: "Lists all models by id, with their prices and routes.",
  scope: "models:read",
  roles: ["admin"],
  route: "GET /models",
  filter: {},
  before: Type.Optional(Type.String({ maxLength: MODEL_ID_CHARS_MAX })),
  item: ModelShape,
  cursor: ({ id }: { id: string }) => id,
  async list(deps, _call, { before: after, limit }) {
    const rows = await readModels(deps, { after, limit: limit + 1 });
    return { rows: await describeModels(deps, rows.slice(0, limit)), hasMore: rows.length > limit };
  },
});

export const getModel = operation({
  name: "models.get",
  says: "Returns a model, with its prices and routes, and what the last requests say of them.",
  scope: "models:read",
  roles: ["admin"],
  route: "GET /model",
  input: OfModel,
  output: ModelDetails,
  run: (deps, _call, { id }) => modelOf(deps, id),
});

export const createModel = operation({
  name: "models.create",
  says: "Adds a model. Without prices it is sold in packages only; without a route it is not served.",
  scope: "models:write",
  roles: ["admin"],
  route: "POST /models",
  input: {
    ...OfModel,
    ...MODEL_FIELDS,
    prices: Type.Optional(Prices),
    imagePrices: imagePrices(MicroUsd),
  },
  output: ModelShape,
  async run(deps, call, { imagePrices: images, prices = null, ...fields }) {
    await addModel(changing(deps, call), { ...fields, prices, imagePrices: byKey(images) });
    return modelOf(deps, fields.id);
  },
});

export const updateModel = operation({
  name: "models.update",
  says: "Changes a model. What is left out stays.",
  scope: "models:write",
  roles: ["admin"],
  route: "PATCH /model",
  input: { ...OfModel, ...MODEL_FIELDS },
  output: ModelShape,
  async run(deps, call, { id, ...patch }) {
    await update(changing(deps, call), id, patch);
    return modelOf(deps, id);
  },
});

export const setModelPrices = operation({
  name: "models.prices",
  says: "Sets what a model's tokens and images cost, all at once. What is left out stays; an image's price of null is removed.",
  scope: "models:write",
  roles: ["admin"],
  route: "PUT /model/prices",
  input: { ...OfModel, prices: Type.Optional(Prices), imagePrices: imagePrices(orNull(MicroUsd)) },
  output: ModelShape,
  async run(deps, call, { id, prices, imagePrices: images }) {
    if (prices === undefined && images === undefined) throw new InputError("Give prices or imagePrices.", "prices");
    await changePrices(changing(deps, call), id, { prices, imagePrices: byKey(images) });
    return modelOf(deps, id);
  },
});

export const setImagePrice = operation({
  name: "models.image_price",
  says: "Sets what a model's image of one size and quality costs; null removes the price.",
  scope: "models:write",
  roles: ["admin"],
  route: "PUT /model/image_price",
  input: { ...OfModel, ...IMAGE, microUsd: orNull(MicroUsd) },
  output: ModelShape,
  async run(deps, call, { id, ...price }) {
    await setPriceOfImage(changing(deps, call), { modelId: id, ...price });
    return modelOf(deps, id);
  },
});

export const addRoute = operation({
  name: "routes.create",
  says: "Adds a route: a model at a provider.",
  scope: "models:write",
  roles: ["admin"],
  route: "POST /routes",
  input: { modelId: ModelId, providerId: RowId, ...ROUTE_FIELDS },
  output: Type.Object({ id: RowId }, { title: "NewRoute" }),
  run: async (deps, call, wanted) => ({ id: await add(changing(deps, call), wanted) }),
});

export const updateRoute = operation({
  name: "routes.update",
  says: "Changes a route. What is left out stays.",
  scope: "models:write",
  roles: ["admin"],
  route: "PATCH /routes/{routeId}",
  input: { routeId: RowId, ...ROUTE_FIELDS },
  output: Type.Object({ id: RowId }),
  async run(deps, call, { routeId, ...patch }) {
    await change(changing(deps, call), routeId, patch);
    return { id: routeId };
  },
});

export const removeRoute = operation({
  name: "routes.remove",
  says: "Removes a route. Requests that it serves now are served to their end.",
  scope: "models:write",
  roles: ["admin"],
  route: "DELETE /routes/{routeId}",
  input: { routeId: RowId },
  output: Type.Object({ id: RowId }),
  async run(deps, call, { routeId }) {
    await remove(changing(deps, call), routeId);
    return { id: routeId };
  },
});

/** Prices of images by size and quality. Throws InputError if one stands twice. */
function byKey<Price>(
  images: readonly { size: string; quality?: string; microUsd: Price }[] = [],
): Record<string, Price> {
  const prices = new Map<string, Price>();
  for (const { size, quality, microUsd } of images) {
    const key = imagePriceKey(size, quality);
    if (prices.has(key)) throw new InputError(sentence("The price of {key} stands twice.", { key }), "imagePrices");
    prices.set(key, microUsd);
  }
  return Object.fromEntries(prices);
}

type ModelRow = NonNullable<Awaited<ReturnType<typeof findModel>>>;

/** A model, and what its requests say of its bounds. Throws not_found. */
async function modelOf(deps: { db: Db }, id: string) {
  const row = await findModel(deps, id);
  const [model] = row ? await describeModels(deps, [row]) : [];
  if (!row || !model) throw new Refusal("not_found", { message: "There is no such model." });
  const advice = adviceOf(row, (await readBoundUses(deps, [row])).get(id) ?? []);
  return { ...model, advice, example: EXAMPLE };
}

/** Models with their prices, their routes and the state of each. */
export async function describeModels(deps: { db: Db }, rows: ModelRow[]) {
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
          ...marginOf(margins.find(({ routeId }) => routeId === route.id)),
        })),
    };
  });
}

/** null: not known, or the route is off. */
function marginOf(route: RouteMargins | undefined) {
  const best = route && bestMargin(route);
  return { marginPermille: best?.permille ?? null, marginSource: best?.source ?? null };
}
