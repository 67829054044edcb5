import { and, eq, ne, sql } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import { MARKED_UP_MODELS_MAX, MARKUP_BASIS_POINTS } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Tx } from "../platform/db.ts";
import { markups } from "../platform/schema_markups.ts";
import { checkInteger } from "./input_checks.ts";
import { lockResellerRow } from "./locks_store.ts";
import { EVERY_MODEL, type Markups } from "./markups.ts";
import { checkModelIds } from "./model_scope_store.ts";

/** What resellers add to the operator's balance prices. A change reaches requests as any change of a key does. Source: MRK-1. */

export type MarkupChange = {
  resellerId: number;
  /** null: every model that has no markup of its own. */
  modelId: string | null;
  /** null removes it: a model then has the markup of every model, and that one is 0. */
  basisPoints: number | null;
};

/** Sets a markup, and returns all of the reseller. Callers check permissions. Throws InputError. */
export async function setMarkup(
  deps: ChangeDeps,
  { resellerId, modelId, basisPoints }: MarkupChange,
): Promise<Markups> {
  if (basisPoints !== null) checkInteger(basisPoints, { param: "basisPoints", ...MARKUP_BASIS_POINTS });
  return changing(deps, async (tx) => {
    await lockResellerRow(tx, resellerId);
    const model = modelId ?? EVERY_MODEL;
    if (basisPoints === null) {
      await tx.delete(markups).where(and(eq(markups.resellerId, resellerId), eq(markups.modelId, model)));
      return markupsOf(tx, resellerId);
    }
    if (modelId !== null) await checkModel(tx, { resellerId, modelId });
    await tx
      .insert(markups)
      .values({ resellerId, modelId: model, basisPoints })
      .onConflictDoUpdate({
        target: [markups.resellerId, markups.modelId],
        set: { basisPoints, updatedAt: sql`clock_timestamp()` },
        setWhere: ne(markups.basisPoints, basisPoints),
      });
    return markupsOf(tx, resellerId);
  });
}

/** The markups of a reseller, by model. */
export async function markupsOf(tx: Tx, resellerId: number): Promise<Markups> {
  const rows = await tx
    .select({ modelId: markups.modelId, basisPoints: markups.basisPoints })
    .from(markups)
    .where(eq(markups.resellerId, resellerId))
    .orderBy(markups.modelId);
  return new Map(rows.map(({ modelId, basisPoints }) => [modelId, basisPoints]));
}

async function checkModel(tx: Tx, { resellerId, modelId }: { resellerId: number; modelId: string }): Promise<void> {
  if (modelId === EVERY_MODEL) throw new InputError("Name a model.", "modelId");
  await checkModelIds(tx, [modelId], "modelId");
  const known = await markupsOf(tx, resellerId);
  const models = [...known.keys()].filter((id) => id !== EVERY_MODEL);
  if (models.length >= MARKED_UP_MODELS_MAX && !known.has(modelId))
    throw new InputError(
      sentence("At most {markedUpModelsMax} models can have a markup of their own.", {
        markedUpModelsMax: MARKED_UP_MODELS_MAX,
      }),
      "modelId",
    );
}
