import type { Command } from "commander";
import { adviceOf, adviceWords, type BoundAdvice } from "../catalog/bound_advice.ts";
import { readBoundUses } from "../catalog/bound_uses_store.ts";
import { bestMargin, losing, lossWords, marginWords, readMargins } from "../catalog/margins.ts";
import { BOUND_NAMES, MODEL_BOUNDS } from "../catalog/model_bounds.ts";
import { findModel } from "../catalog/models_store.ts";
import { readRouteStats } from "../catalog/route_stats_store.ts";
import { type Percentiles, type RouteReport, reportsOf } from "../catalog/route_sums.ts";
import { listRoutes } from "../catalog/routes_store.ts";
import { InputError } from "../errors.ts";
import { type Context, defineCommand } from "./context.ts";
import { formatPrice } from "./money.ts";
import { type Output, table, yesNo } from "./output.ts";

/** The command `model show`. */

export function addShow(model: Command): void {
  defineCommand(
    model
      .command("show <id>")
      .description("show a model, its bounds, its routes, and how they did in the last 24 hours"),
    {},
    (context, _, [id = ""]) => showModel(context, id),
  );
}

async function showModel(context: Context, modelId: string): Promise<Output> {
  const model = await findModel(context, modelId);
  if (!model) throw new InputError(`There is no model ${modelId}.`);
  const routes = await listRoutes(context, modelId);
  const routeIds = routes.map(({ id }) => id);
  const advice = adviceOf(model, (await readBoundUses(context, [model])).get(modelId) ?? []);
  const margins = (await readMargins(context, [model])).get(modelId) ?? [];
  const reports = reportsOf(await readRouteStats(context, "day", routeIds));
  const price = (microUsd: number | null) => (microUsd === null ? "none" : `${formatPrice(microUsd)} USD`);
  const facts = [
    ["Model", model.id],
    ["Modality", model.modality],
    ["Enabled", yesNo(model.enabled)],
    ["Input, 1 million tokens", price(model.inputMicroUsd)],
    ["Output, 1 million tokens", price(model.outputMicroUsd)],
    ...BOUND_NAMES.map((name) => [MODEL_BOUNDS[name].label, `${model[name]} ${MODEL_BOUNDS[name].unit}`] as const),
    ["Factor for what is reserved", String(model.marginPermille / 1000)],
    ["Routes chosen by", model.routeChoice],
  ] as const;
  const routeRows = routes.map(({ id, providerName, upstreamModel, enabled }) => [
    `${id}: ${providerName}/${upstreamModel}`,
    yesNo(enabled),
    marginWords(margins.flatMap((one) => (one.routeId === id ? (bestMargin(one) ?? []) : []))[0]),
  ]);
  const losses = losing(margins).map(
    ({ providerName, upstreamModel, margin }) => `WARNING: ${providerName}/${upstreamModel} ${lossWords(margin)}.`,
  );
  const text = [
    ...facts.map(([name, value]) => `${name}: ${value}`),
    ...advice.flatMap((one) => ["", adviceWords(one), ...commandFor(modelId, one)]),
    "",
    table(["ROUTE", "ENABLED", "MARGIN"], routeRows, "No routes."),
    ...losses,
    "",
    table(
      ["ROUTE", "REQUESTS, 24 H", "ERRORS", "FIRST EVENT, P50 P95", "WHOLE ANSWER, P50 P95", "INPUT FROM CACHE"],
      routes.map(({ id }) => reportRow(id, reports)),
      "No routes.",
    ),
  ].join("\n");
  return { text, json: { model, advice, routes, margins, reports } };
}

/** The command that applies an advice, if it suggests anything. */
export function commandFor(modelId: string, { overruns, change }: BoundAdvice): string[] {
  const options = Object.entries(change).map(([name, value]) => `${boundOption(name)} ${value}`);
  if (options.length === 0) return [];
  return [`To ${overruns > 0 ? "raise" : "lower"} the bound: bun run cli model set ${modelId} ${options.join(" ")}`];
}

/** `--image-most-tokens`; `--margin` for the margin. */
export function boundOption(name: string): string {
  if (name === "marginPermille") return "--margin";
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

function reportRow(id: number, reports: readonly RouteReport[]): string[] {
  const report = reports.find(({ routeId }) => routeId === id);
  if (report === undefined) return [String(id), "0", "", "", "", ""];
  const { requests, errors, firstEvent, wholeAnswer, inputTokens, cachedTokens } = report;
  const percent = (part: number, whole: number) => (whole === 0 ? "" : `${((100 * part) / whole).toFixed(1)}%`);
  const times = (of: Percentiles | null) => (of === null ? "" : `${of.p50Ms} ms, ${of.p95Ms} ms`);
  return [
    String(id),
    String(requests),
    percent(errors, requests),
    times(firstEvent),
    times(wholeAnswer),
    percent(cachedTokens, inputTokens),
  ];
}
