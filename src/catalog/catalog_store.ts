import { and, asc, desc, eq, gt, inArray, type SQL, sql } from "drizzle-orm";
import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { encrypt } from "../platform/crypto.ts";
import { type Db, type Orm, sqlState, type Tx } from "../platform/db.ts";
import { imagePrices, models, providers, routes } from "../platform/schema.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import {
  checkImagePrice,
  checkModel,
  checkModelId,
  checkPrices,
  checkProvider,
  checkRoute,
  imagePriceKey,
  isModelId,
  MARGIN_PERMILLE_MAX,
  type ModelInput,
  type ModelPatch,
  type PricesInput,
  type ProviderInput,
  type ProviderPatch,
  QUALITY_DEFAULT,
  type RouteInput,
  type RoutePatch,
} from "./catalog_input.ts";
import { assertCallable, GuardError } from "./guard.ts";

/**
 * All SQL of the catalog. Every writing function is one transaction and publishes its change once that has committed;
 * each throws InputError with a sentence when what it was given does not fit.
 */

/** SQLSTATEs. */
const UNIQUE_VIOLATION = "23505";
const FOREIGN_KEY_VIOLATION = "23503";

type ReadDeps = { db: Db };
type WriteDeps = ChangeDeps;
type ProviderDeps = WriteDeps & { config: Pick<Config, "secretKey" | "providerAllowPrivate"> };

const modelColumns = {
  id: models.id,
  name: models.name,
  ownedBy: models.ownedBy,
  contextLength: models.contextLength,
  status: models.status,
  modality: models.modality,
  architecture: models.architecture,
  createdUnix: sql<number>`extract(epoch from ${models.createdAt})::bigint`.mapWith(Number),
  inputMicroUsd: models.inputMicroUsd,
  cachedInputMicroUsd: models.cachedInputMicroUsd,
  outputMicroUsd: models.outputMicroUsd,
  defaultCapTokens: models.defaultCapTokens,
  imageInputTokens: models.imageInputTokens,
  marginPermille: models.marginPermille,
};
const routeColumns = {
  id: routes.id,
  modelId: routes.modelId,
  providerId: routes.providerId,
  upstreamModel: routes.upstreamModel,
  priority: routes.priority,
  weight: routes.weight,
  capField: routes.capField,
  streamOptions: routes.streamOptions,
  allowedParams: routes.allowedParams,
};

/** A size's plain price stands before those of its other qualities. */
const imagePriceOrder = [
  asc(imagePrices.modelId),
  asc(imagePrices.size),
  desc(eq(imagePrices.quality, QUALITY_DEFAULT)),
  asc(imagePrices.quality),
];

export type CatalogRows = Awaited<ReturnType<typeof loadCatalog>>;
export type ProviderRow = CatalogRows["providers"][number];

/** Everything enabled, as of one moment. */
export async function loadCatalog(orm: Orm) {
  const read = async (tx: Tx) => ({
    models: await tx.select(modelColumns).from(models).where(eq(models.enabled, true)).orderBy(asc(models.id)),
    imagePrices: await tx
      .select()
      .from(imagePrices)
      .orderBy(...imagePriceOrder),
    providers: await tx
      .select({
        id: providers.id,
        name: providers.name,
        baseUrl: providers.baseUrl,
        keyCiphertext: providers.keyCiphertext,
      })
      .from(providers)
      .where(eq(providers.enabled, true)),
    routes: await tx
      .select(routeColumns)
      .from(routes)
      .where(eq(routes.enabled, true))
      .orderBy(asc(routes.priority), asc(routes.id)),
  });
  // One snapshot for all four, so that no route is read without its provider.
  return await orm.transaction(read, { isolationLevel: "repeatable read", accessMode: "read only" });
}

/** Which rows of a list: those behind `after`, at most `limit`. */
export type Page = { after?: string | undefined; limit: number };

/** Models, disabled ones included, by id: all of them, or a page. */
export async function listModels({ db }: ReadDeps, page?: Page) {
  return await selectModels(db.orm, page?.after === undefined ? undefined : gt(models.id, page.after), page?.limit);
}

/** One model, disabled or not. */
export async function findModel({ db }: ReadDeps, id: string) {
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

/** Prices of images: of one model, of some, or of all. */
export async function listImagePrices({ db }: ReadDeps, modelId?: string | readonly string[]) {
  return await db.orm
    .select()
    .from(imagePrices)
    .where(modelId === undefined ? undefined : inArray(imagePrices.modelId, [modelId].flat()))
    .orderBy(...imagePriceOrder);
}

const providerColumns = {
  id: providers.id,
  name: providers.name,
  baseUrl: providers.baseUrl,
  enabled: providers.enabled,
};

/** Providers by name, without their keys: all of them, or a page (`after` is a name). */
export async function listProviders({ db }: ReadDeps, page?: Page) {
  const query = db.orm
    .select({
      ...providerColumns,
      /** How many routes lead to it, disabled ones included. */
      routes: sql<number>`(select count(*)::int from routes where routes.provider_id = providers.id)`,
    })
    .from(providers)
    .where(page?.after === undefined ? undefined : gt(providers.name, page.after))
    .orderBy(asc(providers.name));
  return await (page === undefined ? query : query.limit(page.limit));
}

/** One provider, disabled or not, with its encrypted key. */
export async function findProvider({ db }: ReadDeps, id: number) {
  const [row] = await db.orm
    .select({ ...providerColumns, keyCiphertext: providers.keyCiphertext })
    .from(providers)
    .where(eq(providers.id, id));
  return row;
}

/** Routes with their provider: of one model, of some, or of all. */
export async function listRoutes({ db }: ReadDeps, modelId?: string | readonly string[]) {
  return await selectRoutes(db.orm, modelId === undefined ? undefined : inArray(routes.modelId, [modelId].flat()));
}

/** The first `limit` routes that lead to a provider, by model. */
export async function listRoutesTo({ db }: ReadDeps, { providerId, limit }: { providerId: number; limit: number }) {
  return await selectRoutes(db.orm, eq(routes.providerId, providerId)).limit(limit);
}

function selectRoutes(tx: Tx, where: SQL | undefined) {
  return tx
    .select({
      ...routeColumns,
      enabled: routes.enabled,
      providerName: providers.name,
      providerEnabled: providers.enabled,
    })
    .from(routes)
    .innerJoin(providers, eq(providers.id, routes.providerId))
    .where(where)
    .orderBy(asc(routes.modelId), asc(routes.priority), asc(routes.id))
    .$dynamic();
}

/** Adds a model, with its prices if they are given. */
export async function addModel(
  deps: WriteDeps,
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
    if (added.length === 0) throw new InputError(`The model ${id} exists already.`, "id");
    if (images.length > 0) await tx.insert(imagePrices).values(images);
  });
}

/** Changes the given fields of a model. */
export async function updateModel(deps: WriteDeps, id: string, patch: ModelPatch): Promise<void> {
  checkModelId(id);
  const values = changed(checkModel(patch));
  await changing(deps, async (tx) => {
    const rows = await tx.update(models).set(values).where(eq(models.id, id)).returning({ id: models.id });
    if (rows.length === 0) throw noModel(id);
  });
}

/** Sets a model's token prices; null: it is sold by package only. */
export async function setPrices(deps: WriteDeps, modelId: string, prices: PricesInput | null): Promise<void> {
  checkModelId(modelId);
  const values = checkPrices(prices);
  await changing(deps, async (tx) => {
    const rows = await tx.update(models).set(values).where(eq(models.id, modelId)).returning({ id: models.id });
    if (rows.length === 0) throw noModel(modelId);
  });
}

/** What one image costs; `quality` left out: the default one's. */
export type ImagePriceInput = { modelId: string; size: string; quality?: string | undefined; microUsd: number | null };

/** Sets what one image of a size and quality costs; null removes the price. */
export async function setImagePrice(
  deps: WriteDeps,
  { modelId, size, quality, microUsd }: ImagePriceInput,
): Promise<void> {
  const checked = checkImagePrice(imagePriceKey(size, quality), microUsd ?? 0);
  const price = { ...checked, modelId: checkModelId(modelId) };
  const { modelId: byModel, size: bySize, quality: byQuality } = imagePrices;
  await saying({ [FOREIGN_KEY_VIOLATION]: noModel(modelId) }, () =>
    changing(deps, async (tx) => {
      if (microUsd === null) {
        await tx
          .delete(imagePrices)
          .where(and(eq(byModel, modelId), eq(bySize, price.size), eq(byQuality, price.quality)));
      } else {
        await tx
          .insert(imagePrices)
          .values(price)
          .onConflictDoUpdate({ target: [byModel, bySize, byQuality], set: { microUsd: price.microUsd } });
      }
    }),
  );
}

/**
 * Raises a model's margin after a provider overran its bound: the greater of old and new, at most 100,000. Returns
 * whether it rose. Source: rulings › Money.
 */
export async function raiseMargin(deps: WriteDeps, modelId: string, permille: number): Promise<boolean> {
  // A ratio of a provider's numbers: anything may come of it.
  if (!(permille > 0)) return false;
  const wanted = Math.ceil(Math.min(permille, MARGIN_PERMILLE_MAX));
  return await changing(deps, async (tx) => {
    const rows = await tx
      .update(models)
      .set({ marginPermille: wanted })
      .where(and(eq(models.id, modelId), sql`${models.marginPermille} < ${wanted}`))
      .returning({ id: models.id });
    return rows.length > 0;
  });
}

/**
 * Adds a provider, its key encrypted, and returns its id. The base URL must be callable at this moment. Throws
 * service_unavailable where the database has another SECRET_KEY.
 */
export async function addProvider(deps: ProviderDeps, input: ProviderInput): Promise<number> {
  const { name = "", baseUrl = "", apiKey = "", enabled } = checkProvider(input);
  await checkBaseUrl(baseUrl, deps.config.providerAllowPrivate);
  return await changing(deps, async (tx) => {
    await holdSecretKey(tx, deps.config.secretKey);
    const [added] = await tx
      .insert(providers)
      .values({ name, baseUrl, enabled, keyCiphertext: encrypt(deps.config.secretKey, apiKey) })
      .onConflictDoNothing()
      .returning({ id: providers.id });
    if (!added) throw new InputError(`The provider ${name} exists already.`, "name");
    return added.id;
  });
}

/**
 * Changes the given fields of a provider; a new key replaces the old one. Another service gets no key that was meant for the
 * first. Throws service_unavailable for a new key where the database has another SECRET_KEY.
 */
export async function updateProvider(deps: ProviderDeps, id: number, patch: ProviderPatch): Promise<void> {
  const { apiKey, ...rest } = checkProvider(patch);
  const values = changed({
    ...rest,
    ...(apiKey !== undefined && { keyCiphertext: encrypt(deps.config.secretKey, apiKey) }),
  });
  if (rest.baseUrl !== undefined) await checkBaseUrl(rest.baseUrl, deps.config.providerAllowPrivate);
  await saying({ [UNIQUE_VIOLATION]: new InputError(`The provider ${rest.name} exists already.`, "name") }, () =>
    changing(deps, async (tx) => {
      if (apiKey !== undefined) await holdSecretKey(tx, deps.config.secretKey);
      if (rest.baseUrl !== undefined && apiKey === undefined) await checkSameOrigin(tx, id, rest.baseUrl);
      const rows = await tx.update(providers).set(values).where(eq(providers.id, id)).returning({ id: providers.id });
      if (rows.length === 0) throw new InputError("There is no such provider.", "providerId");
    }),
  );
}

async function checkSameOrigin(tx: Tx, id: number, baseUrl: string): Promise<void> {
  const [known] = await tx
    .select({ baseUrl: providers.baseUrl })
    .from(providers)
    .where(eq(providers.id, id))
    .for("update");
  if (known && new URL(known.baseUrl).origin !== new URL(baseUrl).origin)
    throw new InputError(
      "This is another service: give its key too. The stored one stays with the old address.",
      "apiKey",
    );
}

/** Adds a route and returns its id. */
export async function addRoute(deps: WriteDeps, { modelId, providerId, ...rest }: RouteInput): Promise<number> {
  checkModelId(modelId);
  const { upstreamModel = modelId, ...checked } = checkRoute(rest);
  const values = { ...checked, modelId, providerId, upstreamModel };
  const missing = new InputError(`There is no model ${modelId}, or no provider ${providerId}.`, "modelId");
  return await saying({ [FOREIGN_KEY_VIOLATION]: missing }, () =>
    changing(deps, async (tx) => {
      const [added] = await tx.insert(routes).values(values).onConflictDoNothing().returning({ id: routes.id });
      if (!added) throw routeExists();
      return added.id;
    }),
  );
}

/** Changes the given fields of a route. */
export async function updateRoute(deps: WriteDeps, id: number, patch: RoutePatch): Promise<void> {
  const values = changed(checkRoute(patch));
  await saying({ [UNIQUE_VIOLATION]: routeExists() }, () =>
    changing(deps, async (tx) => {
      const rows = await tx.update(routes).set(values).where(eq(routes.id, id)).returning({ id: routes.id });
      if (rows.length === 0) throw noRoute();
    }),
  );
}

export async function removeRoute(deps: WriteDeps, id: number): Promise<void> {
  await changing(deps, async (tx) => {
    const rows = await tx.delete(routes).where(eq(routes.id, id)).returning({ id: routes.id });
    if (rows.length === 0) throw noRoute();
  });
}

/** The same rule as before each call, so that a wrong address is told to the operator and not to the first customer. */
async function checkBaseUrl(baseUrl: string, allowPrivate: readonly string[]): Promise<void> {
  try {
    const { url } = await assertCallable(baseUrl, { allowPrivate, purpose: "The provider's base URL" });
    if (url.hash !== "") throw new InputError("The provider's base URL must not contain a #.", "baseUrl");
  } catch (thrown) {
    throw thrown instanceof GuardError ? new InputError(thrown.message, "baseUrl") : thrown;
  }
}

/** The fields that are given. Throws when none is. */
function changed<T extends object>(patch: T): T {
  const entries = Object.entries(patch).filter(([, value]) => value !== undefined);
  if (entries.length === 0) throw new InputError("Nothing to change was given.");
  return Object.fromEntries(entries) as T;
}

/** Runs `fn`; where Postgres refuses with one of `sentences`' codes, throws that instead. */
async function saying<T>(sentences: Readonly<Record<string, InputError>>, fn: () => Promise<T>): Promise<T> {
  try {
    return await fn();
  } catch (thrown) {
    throw sentences[sqlState(thrown)] ?? thrown;
  }
}

function noModel(id: string): InputError {
  return new InputError(`There is no model ${id}.`, "modelId");
}

function noRoute(): InputError {
  return new InputError("There is no such route.", "routeId");
}

function routeExists(): InputError {
  return new InputError("This model has that route already.", "upstreamModel");
}
