/** A reseller's markups in memory: basis points by model; one is 0.01 %. Source: MRK-1. */
export type Markups = ReadonlyMap<string, number>;

/** The entry for every model that has none of its own. */
export const EVERY_MODEL = "";
/** Resellers whose markups are shared; beyond, sharing begins anew. */
const SHARED_MAX = 1_000;

const shared = new Map<number, { text: string; markups: Markups }>();

/** The markup on a model, in basis points; 0: none. */
export function markupFor(markups: Markups | null, modelId: string): number {
  return markups === null ? 0 : (markups.get(modelId) ?? markups.get(EVERY_MODEL) ?? 0);
}

/** The markups of JSON text from the database. The keys of a reseller's customers share one object, as long as it does not change. */
export function sharedMarkups(resellerId: number, text: string): Markups {
  const known = shared.get(resellerId);
  if (known?.text === text) return known.markups;
  const markups = new Map(Object.entries(JSON.parse(text) as Record<string, number>));
  if (shared.size >= SHARED_MAX) shared.clear();
  shared.set(resellerId, { text, markups });
  return markups;
}
