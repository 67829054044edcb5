import { adviceOf, adviceWords } from "../catalog/bound_advice.ts";
import { readBoundUses } from "../catalog/bound_uses_store.ts";
import { losing, lossWords, lowestMargin, readMargins } from "../catalog/margins.ts";
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

/** What is left of each model's price. A route that costs more than the price is a warning of its own. */
export async function checkMargins(context: Context): Promise<Finding[]> {
  const models = (await listModels(context)).filter(({ enabled }) => enabled);
  const margins = await readMargins(context, models);
  const routesOf = (id: string) => margins.get(id) ?? [];
  const losses = models.flatMap(({ id }) => losing(routesOf(id)).map((route) => ({ ...route, modelId: id })));
  const known = models.flatMap(({ id }) => {
    const lowest = lowestMargin(routesOf(id));
    return lowest === null ? [] : [`${id} ${lowest / 10}%`];
  });
  const unknown = models.filter(({ id }) => lowestMargin(routesOf(id)) === null).map(({ id }) => id);
  return [
    ...losses.slice(0, SHOWN_MAX).map(({ modelId, providerName, upstreamModel, margin }) => ({
      what: `margin ${modelId}`,
      state: "warning" as const,
      detail: `its route ${providerName}/${upstreamModel} ${lossWords(margin)}`,
      advice: `Raise the price (bun run cli model price ${modelId}), correct the route's --cost-input and --cost-output, or switch the route off.`,
    })),
    {
      what: "margins",
      state: "ok",
      detail: [
        known.length === 0 ? "no cost is known" : known.slice(0, SHOWN_MAX).join(", "),
        ...(unknown.length === 0
          ? []
          : [`not known: ${unknown.slice(0, SHOWN_MAX).join(", ")} (model route … --cost-input)`]),
      ].join("; "),
    },
  ];
}
