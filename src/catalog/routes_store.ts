import { asc, eq, inArray, type SQL } from "drizzle-orm";
import { ExistsError, InputError, sentence } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { providers, routes } from "../platform/schema_catalog.ts";
import { checkModelId, checkRoute, type RouteInput, type RoutePatch } from "./catalog_input.ts";
import {
  CHECK_VIOLATION,
  FOREIGN_KEY_VIOLATION,
  givenFields,
  refusing,
  routeColumns,
  UNIQUE_VIOLATION,
} from "./catalog_store.ts";
import { shownFacts, withoutNulls } from "./facts_input.ts";
import { changedFacts, checkFactsAgree } from "./facts_store.ts";

/** Routes (a model at a provider), as an operator lists and changes them. */

/** Routes with their provider: of one model, of some, or of all. */
export async function listRoutes({ db }: { db: Db }, modelId?: string | readonly string[]) {
  const rows = await selectRoutes(
    db.orm,
    modelId === undefined ? undefined : inArray(routes.modelId, [modelId].flat()),
  );
  return rows.map(shown);
}

/** The first `limit` routes of a provider, by model. */
export async function listRoutesTo({ db }: { db: Db }, { providerId, limit }: { providerId: number; limit: number }) {
  return (await selectRoutes(db.orm, eq(routes.providerId, providerId)).limit(limit)).map(shown);
}

function selectRoutes(tx: Tx, where: SQL | undefined) {
  return tx
    .select({
      ...routeColumns,
      enabled: routes.enabled,
      providerName: providers.name,
      providerEnabled: providers.enabled,
      baseUrl: providers.baseUrl,
      dialect: providers.dialect,
      providerFacts: providers.facts,
    })
    .from(routes)
    .innerJoin(providers, eq(providers.id, routes.providerId))
    .where(where)
    .orderBy(asc(routes.modelId), asc(routes.priority), asc(routes.id))
    .$dynamic();
}

/** A row with its facts, and with those of its provider. */
function shown<R extends { dialect: string; providerFacts: unknown; facts: unknown }>({ providerFacts, ...row }: R) {
  const { dialect, own, providerTakes, takes } = shownFacts(row.dialect, providerFacts, row.facts);
  return { ...row, dialect, facts: own, providerTakes, takes };
}

/** Adds a route and returns its id. */
export async function addRoute(deps: ChangeDeps, { modelId, providerId, ...rest }: RouteInput): Promise<number> {
  checkModelId(modelId);
  const { upstreamModel = modelId, ...checked } = checkRoute(rest);
  const values = { ...checked, facts: withoutNulls(checked.facts ?? {}), modelId, providerId, upstreamModel };
  const missing = new InputError(
    sentence("There is no model {modelId}, or no provider {providerId}.", { modelId, providerId }),
    "modelId",
  );
  return await refusing({ [FOREIGN_KEY_VIOLATION]: missing, [CHECK_VIOLATION]: contradiction() }, () =>
    changing(deps, async (tx) => {
      const [added] = await tx.insert(routes).values(values).onConflictDoNothing().returning({ id: routes.id });
      if (!added) throw routeExists();
      await checkFactsAgree(tx, providerId);
      return added.id;
    }),
  );
}

/** Changes the given fields of a route. */
export async function updateRoute(deps: ChangeDeps, id: number, patch: RoutePatch): Promise<void> {
  const { facts, ...rest } = givenFields(checkRoute(patch));
  const values = { ...rest, ...(facts !== undefined && { facts: changedFacts(routes.facts, facts) }) };
  await refusing({ [UNIQUE_VIOLATION]: routeExists(), [CHECK_VIOLATION]: contradiction() }, () =>
    changing(deps, async (tx) => {
      const [changed] = await tx
        .update(routes)
        .set(values)
        .where(eq(routes.id, id))
        .returning({ providerId: routes.providerId });
      if (!changed) throw noRoute();
      if (facts !== undefined) await checkFactsAgree(tx, changed.providerId);
    }),
  );
}

export async function removeRoute(deps: ChangeDeps, id: number): Promise<void> {
  await changing(deps, async (tx) => {
    const rows = await tx.delete(routes).where(eq(routes.id, id)).returning({ id: routes.id });
    if (rows.length === 0) throw noRoute();
  });
}

function noRoute(): InputError {
  return new InputError("There is no such route.", "routeId");
}

/** All other checks of the table are made before. */
function contradiction(): InputError {
  return new InputError("A route cannot both allow and drop a parameter.", "droppedParams");
}

function routeExists(): InputError {
  return new ExistsError("This model has that route already.", "upstreamModel");
}
