import { type BufferedWrites, createBufferedWrites } from "../platform/buffered_writes.ts";
import type { Db } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";
import {
  BOUND_PARTS,
  type BoundedModel,
  type BoundUse,
  boundsKey,
  type ModelUses,
  partOf,
  type ReservedParts,
} from "./bound_advice.ts";
import { addBoundUses } from "./bound_uses_store.ts";

/**
 * Counts how much of the reserved tokens answers used: for each model and part, the number of answers and the most that one used. Each
 * replica keeps this in memory and adds it in Postgres every few seconds (`buffered_writes.ts`). A replica that dies loses what it has not
 * added yet. It only suggests other bounds to an operator; no decision depends on it. Source: MON-8.
 */

/** Models in memory between two writes. */
const MODELS_MAX = 5_000;
/** A larger share is counted as this. */
const PERMILLE_MAX = 100_000_000;

/** An answer whose tokens the provider reported, and what was reserved for it, without the margin. */
export type BoundedAnswer = {
  prompt: ReservedParts & { textTokens: number };
  /** The output limit that the provider was sent, of all choices together; null: none. */
  capTokens: number | null;
  used: { promptTokens: number; completionTokens: number };
};

export type BoundUses = {
  note(model: BoundedModel & { readonly id: string }, answer: BoundedAnswer): void;
} & Pick<BufferedWrites<object, ModelUses>, "flush" | "stop">;

/** Opens the counts of this replica. */
export function openBoundUses({ db, log }: { db: Db; log: Log }): BoundUses {
  // By the model of the catalog's snapshot: one with other bounds is another object.
  const buffer = createBufferedWrites<object, ModelUses>({
    name: "uses of bounds",
    max: MODELS_MAX,
    merge: addUses,
    write: (uses) => addBoundUses({ db }, uses),
    log,
  });

  function usesOf(model: BoundedModel & { readonly id: string }): ModelUses {
    const known = buffer.entry(model);
    if (known !== undefined) return known;
    const parts = BOUND_PARTS.map((part): BoundUse => ({ part, requests: 0, overruns: 0, mostPermille: 0 }));
    const uses = { modelId: model.id, key: boundsKey(model), parts };
    buffer.note(model, uses);
    return uses;
  }

  return {
    note(model, { prompt, capTokens, used }) {
      const { parts } = usesOf(model);
      const reservedTokens = prompt.textTokens + prompt.overheadTokens + prompt.imageTokens + prompt.fileTokens;
      const permille = shareOf(used.promptTokens, reservedTokens, model.marginPermille);
      add(parts, partOf(prompt, { reservedTokens, permille }), permille);
      const ofOutput = capTokens === null ? 0 : shareOf(used.completionTokens, capTokens, model.marginPermille);
      if (ofOutput > 1_000) add(parts, "output", ofOutput);
    },
    flush: buffer.flush,
    stop: buffer.stop,
  };
}

function add(parts: readonly BoundUse[], part: BoundUse["part"], permille: number): void {
  const use = parts[BOUND_PARTS.indexOf(part)];
  if (use === undefined) return;
  use.requests += 1;
  if (permille > 1_000) use.overruns += 1;
  use.mostPermille = Math.max(use.mostPermille, permille);
}

function shareOf(used: number, reserved: number, marginPermille: number): number {
  return Math.min(PERMILLE_MAX, Math.ceil((used * 1_000_000) / (Math.max(1, reserved) * marginPermille)));
}

function addUses(uses: ModelUses, more: ModelUses): ModelUses {
  for (const [i, use] of uses.parts.entries()) {
    const other = more.parts[i];
    if (other === undefined) continue;
    use.requests += other.requests;
    use.overruns += other.overruns;
    use.mostPermille = Math.max(use.mostPermille, other.mostPermille);
  }
  return uses;
}
