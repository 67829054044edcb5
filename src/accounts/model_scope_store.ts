import { inArray } from "drizzle-orm";
import { InputError, sentence } from "../errors.ts";
import type { Tx } from "../platform/db.ts";
import { models } from "../platform/schema_catalog.ts";

/** Throws InputError if a list names a model that is not in the catalog. null means all models. `param`: the field of the list. */
export async function checkModelIds(tx: Tx, modelIds: readonly string[] | null, param = "modelIds"): Promise<void> {
  if (modelIds === null) return;
  const rows = await tx
    .select({ id: models.id })
    .from(models)
    .where(inArray(models.id, [...modelIds]));
  const known = new Set(rows.map(({ id }) => id));
  const unknown = modelIds.find((id) => !known.has(id));
  if (unknown !== undefined) throw new InputError(sentence("There is no model {unknown}.", { unknown }), param);
}
