import { asc, eq, inArray, sql } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { models, routes } from "../platform/schema_catalog.ts";
import { auditEntries } from "../platform/schema_service.ts";
import { checkModel } from "./catalog_input.ts";
import {
  type Catalog,
  compare,
  countNew,
  type Import,
  type ImportItem,
  type ImportRequest,
  type OwnModel,
  type Write,
} from "./price_diff.ts";
import type { ModelPrices } from "./price_import.ts";
import type { PriceList } from "./price_list.ts";
import { type ColumnsRead, checkPrices, pricesOfColumns } from "./token_prices.ts";

/** Compares the catalog with a price list, and applies what an operator confirmed. Source: IMP-4, IMP-5. */

export type ImportPreview = {
  source: string;
  items: ImportItem[];
  /** Models of the chosen providers that the catalog lacks. */
  newModels: number;
};

/** The changes that an import would make now. Changes nothing. Throws InputError. */
export async function previewImport(
  { db }: { db: Db },
  list: PriceList,
  request: ImportRequest,
): Promise<ImportPreview> {
  const catalog = await readCatalog(db.orm);
  return {
    source: list.source,
    items: compare(list, request, catalog).map(({ item }) => item),
    newModels: countNew(list, request, catalog),
  };
}

/** A model that the operator confirmed, and the digest of the shown item. */
export type Confirmed = { modelId: string; digest: string };
export type Imported = { added: string[]; changed: string[] };

/**
 * Applies the confirmed items, all or none, with an entry in the audit log. Throws InputError if the changes are no
 * longer those that were shown: another person changed a price, or the list has another price today.
 */
export async function applyImport(
  deps: ChangeDeps,
  list: PriceList,
  { confirmed, ...request }: ImportRequest & { confirmed: readonly Confirmed[] },
): Promise<Imported> {
  if (confirmed.length === 0) throw new InputError("Choose at least one model.", "confirmed");
  const ids = [...new Set(confirmed.map(({ modelId }) => modelId))];
  if (ids.length < confirmed.length) throw new InputError("A model can be confirmed once.", "confirmed");
  return await changing(deps, async (tx) => {
    await tx
      .select({ id: models.id })
      .from(models)
      .where(inArray(models.id, ids))
      .orderBy(asc(models.id))
      .for("no key update");
    const imports = new Map(
      compare(list, { ...request, models: ids }, await readCatalog(tx)).map((one) => [one.item.modelId, one]),
    );
    const result: Imported = { added: [], changed: [] };
    for (const { modelId, digest } of confirmed) {
      const one = imports.get(modelId);
      if (!one?.write || one.item.digest !== digest) throw changedSince(modelId);
      await writeModel(tx, one, one.write);
      (one.item.kind === "new" ? result.added : result.changed).push(modelId);
    }
    await tx.insert(auditEntries).values({
      action: "changed",
      subject: "price_imports",
      subjectId: list.source,
      ...(deps.by && { actorId: deps.by.accountId, tokenId: deps.by.tokenId ?? null, requestId: deps.by.requestId }),
      after: {
        source: list.source,
        providers: request.providers,
        markup_percent: Number(request.markup) / 100,
        ...result,
      },
    });
    return result;
  });
}

function changedSince(modelId: string): InputError {
  return new InputError(
    sentence("Nothing was changed: the comparison of {modelId} is no longer what was shown. Look at the new one.", {
      modelId,
    }),
    "confirmed",
  );
}

/** A new model is disabled: it has no route yet. */
async function writeModel(tx: Tx, { item: { modelId, kind } }: Import, write: Write): Promise<void> {
  const { status, contextLength } = checkModel({ status: write.status, contextLength: write.contextLength });
  if (kind === "changed") await tx.update(models).set({ status, contextLength }).where(eq(models.id, modelId));
  else {
    const fields = { ...checkModel({ name: write.name, modality: write.modality }), status, contextLength };
    const values = { ...fields, id: modelId, name: write.name, ownedBy: "tollgate", enabled: false };
    const added = await tx.insert(models).values(values).onConflictDoNothing().returning({ id: models.id });
    if (added.length === 0) throw changedSince(modelId);
  }
  await setModelPrices(tx, modelId, write.prices);
}

/** Sets all prices of a model that a price list can set: all but those of images. */
async function setModelPrices(tx: Tx, modelId: string, prices: ModelPrices): Promise<void> {
  if (prices.tokens === undefined) return;
  await tx.update(models).set(columnsOf(prices)).where(eq(models.id, modelId));
}

/** The columns for these prices. Throws InputError. */
function columnsOf({ tokens, request }: ModelPrices) {
  if (tokens === undefined) return checkPrices(null);
  const { input, output, cached_input = null, ...others } = tokens;
  const further = { ...others, ...(request !== undefined && { request }) };
  return checkPrices({ inputMicroUsd: input, cachedInputMicroUsd: cached_input, outputMicroUsd: output, further });
}

/** Why the tables cannot store a model with these prices: an import of only some of them would charge too little. */
function unstorable(write: Write): string | null {
  if (write.prices.tokens === undefined && write.prices.request !== undefined)
    return "It has a price per request and none per token.";
  try {
    columnsOf(write.prices);
    return null;
  } catch (error) {
    if (error instanceof InputError) return error.message;
    throw error;
  }
}

async function readCatalog(tx: Tx): Promise<Catalog> {
  const upstream = await tx
    .select({ modelId: routes.modelId, name: routes.upstreamModel })
    .from(routes)
    .orderBy(asc(routes.id));
  const upstreamNames = Map.groupBy(upstream, ({ modelId }) => modelId);
  const rows = await tx.select().from(models).orderBy(asc(models.id));
  return {
    models: rows.map(
      ({ id, modality, status, contextLength, ...prices }): OwnModel => ({
        ...{ id, modality, status, contextLength },
        prices: pricesOf(prices),
        upstreamNames: (upstreamNames.get(id) ?? []).map(({ name }) => name),
      }),
    ),
    day: await readDay(tx),
    unstorable,
  };
}

/** The prices that `setModelPrices` sets. */
function pricesOf(columns: ColumnsRead): ModelPrices {
  const { inputMicroUsd: input, cachedInputMicroUsd: cached, outputMicroUsd: output } = columns;
  const further = pricesOfColumns(columns)?.further;
  if (input === null || output === null || further === undefined) return {};
  const { request, ...others } = further;
  const tokens = { input, output, ...(cached !== null && { cached_input: cached }), ...others };
  return { tokens, ...(request !== undefined && { request }) };
}

/** Today in UTC, by the database's clock, as 2026-01-31: lists have changes of prices in advance. */
export async function readDay(tx: Tx): Promise<string> {
  const [now] = await tx.execute<{ day: string }>(
    sql`select (clock_timestamp() at time zone 'UTC')::date::text as day`,
  );
  if (now === undefined) throw new Error("the database did not say what day it is");
  return now.day;
}
