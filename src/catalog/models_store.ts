import { and, asc, eq, gt, inArray, isNull, type SQL, sql } from "drizzle-orm";
import { ExistsError, InputError, sentence } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { imagePrices, models } from "../platform/schema_catalog.ts";
import {
  checkImagePrice,
  checkModel,
  checkModelId,
  imagePriceKey,
  isModelId,
  type ModelInput,
  type ModelPatch,
  type PricesInput,
} from "./catalog_input.ts";
import { givenFields, imagePriceOrder, modelColumns, type RowPage } from "./catalog_store.ts";
import { checkPrices } from "./token_prices.ts";

/** Models and their prices, as an operator lists and changes them. */

/** Models by id, disabled ones included: all of them, or a page. */
export async function listModels({ db }: { db: Db }, page?: RowPage) {
  return await selectModels(db.orm, page?.after === undefined ? undefined : gt(models.id, page.after), page?.limit);
}

/** A model, disabled or not; undefined if there is none. */
export async function findModel({ db }: { db: Db }, id: string) {
  return isModelId(id) ? (await selectModels(db.orm, eq(models.id, id)))[0] : undefined;
}

async function selectModels(tx: Tx, where: SQL | undefined, limit?: number) {
  const query = tx
    .select({ ...modelColumns, enabled: models.enabled })
    .from(models)
    .where(where)
    .orderBy(asc(models.id));
  return await (limit === undefined ? query : query.limit(limit));
}

/**
 * The position of each model among all models, enabled or not: 0 is the first that was added. Models are never removed,
 * so positions do not change. Unknown ids are omitted.
 */
export async function modelPlaces({ db }: { db: Db }, ids: readonly string[]): Promise<Map<string, number>> {
  if (ids.length === 0) return new Map();
  const rows = await db.orm.execute<{ id: string; place: number }>(sql`
    select id, place from (select id, (row_number() over (order by created_at, id) - 1)::int as place from models) as m
    where id in ${ids}`);
  return new Map(rows.map(({ id, place }) => [id, Number(place)]));
}

/** Image prices of one model, of some, or of all. */
export async function listImagePrices({ db }: { db: Db }, modelId?: string | readonly string[]) {
  return await db.orm
    .select()
    .from(imagePrices)
    .where(modelId === undefined ? undefined : inArray(imagePrices.modelId, [modelId].flat()))
    .orderBy(...imagePriceOrder);
}

/** Adds a model, with prices if given. */
export async function addModel(
  deps: ChangeDeps,
  { id, prices = null, imagePrices: byKey = {}, ...rest }: ModelInput,
): Promise<void> {
  const { name = id, ownedBy = "tollgate", ...checked } = checkModel(rest);
  const values = { ...checked, ...checkPrices(prices), id: checkModelId(id), name, ownedBy };
  const images = Object.entries(byKey).map(([key, microUsd]) => ({
    ...checkImagePrice(key, microUsd),
    modelId: id,
  }));
  await changing(deps, async (tx) => {
    const added = await tx.insert(models).values(values).onConflictDoNothing().returning({ id: models.id });
    if (added.length === 0) throw new ExistsError(sentence("The model {id} exists already.", { id }), "id");
    if (images.length > 0) await tx.insert(imagePrices).values(images);
  });
}

/** Changes the given fields of a model. */
export async function updateModel(deps: ChangeDeps, id: string, patch: ModelPatch): Promise<void> {
  checkModelId(id);
  const values = givenFields(checkModel(patch));
  await changing(deps, async (tx) => {
    const rows = await tx.update(models).set(values).where(eq(models.id, id)).returning({ id: models.id });
    if (rows.length === 0) throw noModel(id);
  });
}

/** Replaces all token prices of a model, the further ones included; null: it is sold by package only. */
export async function setPrices(deps: ChangeDeps, modelId: string, prices: PricesInput | null): Promise<void> {
  await changePrices(deps, modelId, { prices });
}

/** The price of one image. Without `quality`: of the default quality. */
export type ImagePriceInput = { modelId: string; size: string; quality?: string | undefined; microUsd: number | null };

/** Sets the price of one image of a size and quality; null removes it. */
export async function setImagePrice(
  deps: ChangeDeps,
  { modelId, size, quality, microUsd }: ImagePriceInput,
): Promise<void> {
  await changePrices(deps, modelId, { imagePrices: { [imagePriceKey(size, quality)]: microUsd } });
}

/**
 * `prices`: all token prices, as `setPrices` takes them; absent: they stay. `imagePrices`: by size, or size and quality, as
 * `imagePriceKey` writes them; null removes one. Others stay.
 */
export type PriceChange = {
  prices?: PricesInput | null | undefined;
  imagePrices?: Readonly<Record<string, number | null>>;
};

/** Changes prices of a model: all that are given, or none if one of them is refused. */
export async function changePrices(
  deps: ChangeDeps,
  modelId: string,
  { prices, imagePrices: byKey = {} }: PriceChange,
): Promise<void> {
  checkModelId(modelId);
  const values = prices === undefined ? undefined : checkPrices(prices);
  const images = Object.entries(byKey).map(([key, microUsd]) => ({
    price: { ...checkImagePrice(key, microUsd ?? 0), modelId },
    isRemoved: microUsd === null,
  }));
  await changing(deps, async (tx) => {
    const isModel = eq(models.id, modelId);
    const [known] = await tx.select({ id: models.id }).from(models).where(isModel).for("no key update");
    if (!known) throw noModel(modelId);
    if (values !== undefined) await tx.update(models).set(values).where(isModel);
    for (const { price, isRemoved } of images) await (isRemoved ? deleteImagePrice : upsertImagePrice)(tx, price);
  });
}

type ImagePrice = typeof imagePrices.$inferSelect;

async function deleteImagePrice(tx: Tx, { modelId, size, quality }: ImagePrice): Promise<void> {
  const { modelId: byModel, size: bySize, quality: byQuality } = imagePrices;
  await tx.delete(imagePrices).where(and(eq(byModel, modelId), eq(bySize, size), eq(byQuality, quality)));
}

async function upsertImagePrice(tx: Tx, price: ImagePrice): Promise<void> {
  const { modelId: byModel, size: bySize, quality: byQuality } = imagePrices;
  await tx
    .insert(imagePrices)
    .values(price)
    .onConflictDoUpdate({ target: [byModel, bySize, byQuality], set: { microUsd: price.microUsd } });
}

/**
 * Records that a model hides tokens, unless it is already known whether it does. Returns whether it was recorded.
 * Source: END-6.
 */
export async function noteHidesTokens(deps: ChangeDeps, modelId: string): Promise<boolean> {
  return await changing(deps, async (tx) => {
    const rows = await tx
      .update(models)
      .set({ hidesTokens: true })
      .where(and(eq(models.id, modelId), isNull(models.hidesTokens)))
      .returning({ id: models.id });
    return rows.length > 0;
  });
}

function noModel(id: string): InputError {
  return new InputError(sentence("There is no model {id}.", { id }), "modelId");
}
