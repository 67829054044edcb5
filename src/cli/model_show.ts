import type { Command } from "commander";
import { adviceWords, type BoundAdvice } from "../catalog/bound_advice.ts";
import { lossWords, marginWords } from "../catalog/margins.ts";
import { BOUND_NAMES, MODEL_BOUNDS } from "../catalog/model_bounds.ts";
import type { Percentiles, RouteReport } from "../catalog/route_sums.ts";
import { getModel } from "../operations/models.ts";
import { defineOperations, orNone } from "./door.ts";
import { formatPrice } from "./money.ts";
import { type Output, table, yesNo } from "./output.ts";
import type { Door } from "./server_door.ts";

/** The command `model show`. */

export function addShow(model: Command): void {
  defineOperations(
    model
      .command("show <id>")
      .description("show a model, its bounds, its routes, and how they did in the last 24 hours"),
    {},
    async (ask, _, [id = ""]) => showModel(await modelBy(ask, id)),
  );
}

/** Throws InputError if there is none. */
export const modelBy = (ask: Door, id: string) => orNone(ask(getModel, { id }), `There is no model ${id}.`);

function showModel({ advice, losing, reports, routes, ...model }: Awaited<ReturnType<typeof modelBy>>): Output {
  const price = (microUsd: number | undefined) => (microUsd === undefined ? "none" : `${formatPrice(microUsd)} USD`);
  const facts = [
    ["Model", model.id],
    ["Modality", model.modality],
    ["Enabled", yesNo(model.enabled)],
    ["Input, 1 million tokens", price(model.prices?.inputMicroUsd)],
    ["Output, 1 million tokens", price(model.prices?.outputMicroUsd)],
    ...BOUND_NAMES.map((name) => [MODEL_BOUNDS[name].label, `${model[name]} ${MODEL_BOUNDS[name].unit}`] as const),
    ["Factor for what is reserved", String(model.marginPermille / 1000)],
    ["Routes chosen by", model.routeChoice],
  ] as const;
  const routeRows = routes.map(({ id, providerName, upstreamModel, enabled, marginPermille, marginSource }) => [
    `${id}: ${providerName}/${upstreamModel}`,
    yesNo(enabled),
    marginWords(marginSource === null ? undefined : { permille: marginPermille, source: marginSource }),
  ]);
  const text = [
    ...facts.map(([name, value]) => `${name}: ${value}`),
    ...advice.flatMap((one) => ["", adviceWords(one), ...commandFor(model.id, one)]),
    "",
    table(["ROUTE", "ENABLED", "MARGIN"], routeRows, "No routes."),
    ...losing.map((loss) => `WARNING: ${loss.route} ${lossWords(loss)}.`),
    "",
    table(
      ["ROUTE", "REQUESTS, 24 H", "ERRORS", "FIRST EVENT, P50 P95", "WHOLE ANSWER, P50 P95", "INPUT FROM CACHE"],
      routes.map(({ id }) => reportRow(id, reports)),
      "No routes.",
    ),
  ].join("\n");
  return { text, json: { model, advice, losing, routes, reports } };
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
