import { asc, desc, eq, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import { type Orm, sqlState, type Tx } from "../platform/db.ts";
import { imagePrices, models, providerKeys, providers, routes } from "../platform/schema_catalog.ts";
import { QUALITY_DEFAULT } from "./catalog_input.ts";

/**
 * Loads the catalog that replicas keep in memory. `models_store.ts`, `providers_store.ts` and `routes_store.ts` list and change its
 * parts: each writing function is one transaction, publishes its change after the commit, and throws InputError with a sentence
 * for invalid input.
 */

/** SQLSTATEs. */
export const UNIQUE_VIOLATION = "23505";
export const FOREIGN_KEY_VIOLATION = "23503";
export const CHECK_VIOLATION = "23514";

export const modelColumns = {
  id: models.id,
  name: models.name,
  ownedBy: models.ownedBy,
  contextLength: models.contextLength,
  status: models.status,
  modality: models.modality,
  architecture: models.architecture,
  createdUnix: sql<number>`floor(extract(epoch from ${models.createdAt}))::bigint`.mapWith(Number),
  inputMicroUsd: models.inputMicroUsd,
  cachedInputMicroUsd: models.cachedInputMicroUsd,
  outputMicroUsd: models.outputMicroUsd,
  furtherPrices: models.furtherPrices,
  defaultCapTokens: models.defaultCapTokens,
  requestTokens: models.requestTokens,
  messageTokens: models.messageTokens,
  imageBaseTokens: models.imageBaseTokens,
  imageTileTokens: models.imageTileTokens,
  imageTilePixels: models.imageTilePixels,
  imageMostTokens: models.imageMostTokens,
  fileMostTokens: models.fileMostTokens,
  marginPermille: models.marginPermille,
  hidesTokens: models.hidesTokens,
  routeChoice: models.routeChoice,
};
export const routeColumns = {
  id: routes.id,
  modelId: routes.modelId,
  providerId: routes.providerId,
  upstreamModel: routes.upstreamModel,
  priority: routes.priority,
  weight: routes.weight,
  facts: routes.facts,
  ownResponses: routes.ownResponses,
  allowedParams: routes.allowedParams,
  droppedParams: routes.droppedParams,
  costInputMicroUsd: routes.costInputMicroUsd,
  costOutputMicroUsd: routes.costOutputMicroUsd,
  costImageMicroUsd: routes.costImageMicroUsd,
};

/** The default quality of a size comes before its other qualities. */
export const imagePriceOrder = [
  asc(imagePrices.modelId),
  asc(imagePrices.size),
  desc(eq(imagePrices.quality, QUALITY_DEFAULT)),
  asc(imagePrices.quality),
];

export type CatalogRows = Awaited<ReturnType<typeof loadCatalog>>;

/** Every enabled model, provider and route, from one snapshot. */
export async function loadCatalog(orm: Orm) {
  const read = async (tx: Tx) => ({
    models: await tx
      .select({
        ...modelColumns,
        priceVersionId: sql<number | null>`(
          select id from price_versions where model_id = models.id order by id desc limit 1)`.mapWith(Number),
      })
      .from(models)
      .where(eq(models.enabled, true))
      .orderBy(asc(models.createdAt), asc(models.id)),
    imagePrices: await tx
      .select()
      .from(imagePrices)
      .orderBy(...imagePriceOrder),
    providers: await tx
      .select({
        id: providers.id,
        name: providers.name,
        baseUrl: providers.baseUrl,
        dialect: providers.dialect,
        facts: providers.facts,
      })
      .from(providers)
      .where(eq(providers.enabled, true)),
    providerKeys: await tx
      .select({
        id: providerKeys.id,
        providerId: providerKeys.providerId,
        name: providerKeys.name,
        weight: providerKeys.weight,
        keyCiphertext: providerKeys.keyCiphertext,
      })
      .from(providerKeys)
      .where(eq(providerKeys.enabled, true))
      .orderBy(asc(providerKeys.id)),
    routes: await tx
      .select(routeColumns)
      .from(routes)
      .where(eq(routes.enabled, true))
      .orderBy(asc(routes.priority), asc(routes.id)),
  });
  // One snapshot, so that no route is read without its provider.
  return await orm.transaction(read, { isolationLevel: "repeatable read", accessMode: "read only" });
}

/** A page of a list: the rows after `after`, at most `limit`. */
export type RowPage = { after?: string | undefined; limit: number };

/** The fields of a change that are given. Throws InputError if none is. */
export function givenFields<T extends object>(patch: T): T {
  const entries = Object.entries(patch).filter(([, value]) => value !== undefined);
  if (entries.length === 0) throw new InputError("Nothing to change was given.");
  return Object.fromEntries(entries) as T;
}

/** Runs `fn`; if Postgres rejects it with one of these SQLSTATEs, throws the given error instead. */
export async function refusing<T>(errors: Readonly<Record<string, InputError>>, fn: () => Promise<T>): Promise<T> {
  try {
    return await fn();
  } catch (thrown) {
    throw errors[sqlState(thrown)] ?? thrown;
  }
}
