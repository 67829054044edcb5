import { adviceOf, adviceWords } from "../catalog/bound_advice.ts";
import { readBoundUses } from "../catalog/bound_uses_store.ts";
import { listModels } from "../catalog/models_store.ts";
import type { Context } from "./context.ts";
import type { Finding, Found } from "./doctor_findings.ts";
import { commandFor } from "./model_show.ts";

/** What `doctor` says about the money of models: bounds that are too low, and routes that cost more than their price. */

/** Findings of one kind. */
const SHOWN_MAX = 50;

/** Models whose answers used more than was reserved: they lose money until a bound or a route is corrected. */
export async function checkBounds(context: Context): Promise<Found | Finding[]> {
  const models = (await listModels(context)).filter(({ enabled }) => enabled);
  const uses = await readBoundUses(context, models);
  const advice = models.flatMap((model) =>
    adviceOf(model, uses.get(model.id) ?? []).map((one) => ({ ...one, modelId: model.id })),
  );
  const overruns = advice.filter((one) => one.overruns > 0);
  const lower = new Set(advice.filter((one) => commandFor(one.modelId, one).length > 0).map(({ modelId }) => modelId));
  if (overruns.length > 0)
    return overruns.slice(0, SHOWN_MAX).map((one) => ({
      what: `bounds ${one.modelId}`,
      state: "warning" as const,
      detail: adviceWords(one),
      advice: commandFor(one.modelId, one)[0] ?? "Check the prices and --cap-field of its routes.",
    }));
  const detail = "no answer used more than was reserved for it";
  return {
    state: "ok",
    detail: lower.size === 0 ? detail : `${detail}; model show has lower bounds for ${lower.size} models`,
  };
}
