import type { Command } from "commander";
import { findModel } from "../catalog/models_store.ts";
import { OVERHEAD_PAYERS_MIN, overheadWords } from "../catalog/overhead.ts";
import { listOverheads, resetOverhead } from "../catalog/overhead_store.ts";
import { readRouteStats } from "../catalog/route_stats_store.ts";
import { type Percentiles, type RouteReport, reportsOf } from "../catalog/route_sums.ts";
import { listRoutes } from "../catalog/routes_store.ts";
import { InputError } from "../errors.ts";
import { type Context, defineCommand } from "./context.ts";
import { formatPrice } from "./money.ts";
import { idOf } from "./options.ts";
import { type Output, table, yesNo } from "./output.ts";

/** The commands `model show` and `model reset-overhead`. */

export function addOverheadCommands(model: Command): void {
  defineCommand(
    model
      .command("show <id>")
      .description(
        "show a model, its routes, how they did in the last 24 hours, and their overheads: usage beyond what was reserved",
      ),
    {},
    (context, _, [id = ""]) => showModel(context, id),
  );
  defineCommand<{ route?: string }>(
    model
      .command("reset-overhead <id>")
      .description("forget the overheads of its routes")
      .option("--route <route-id>", "only of this route"),
    { changes: true },
    async (context, { route }, [id = ""]) => {
      for (const routeId of await routeIdsOf(context, id, route)) await resetOverhead(context, routeId);
      return await showModel(context, id);
    },
  );
}

/** The ids of a model's routes, or only `route` if given. Throws InputError. */
async function routeIdsOf(context: Context, modelId: string, route: string | undefined): Promise<number[]> {
  if (!(await findModel(context, modelId))) throw new InputError(`There is no model ${modelId}.`);
  const known = (await listRoutes(context, modelId)).map(({ id }) => id);
  if (route === undefined) return known;
  const routeId = idOf(route, "route's id");
  if (!known.includes(routeId)) throw new InputError(`The model ${modelId} has no route ${routeId}.`);
  return [routeId];
}

async function showModel(context: Context, modelId: string): Promise<Output> {
  const model = await findModel(context, modelId);
  if (!model) throw new InputError(`There is no model ${modelId}.`);
  const routes = await listRoutes(context, modelId);
  const routeIds = routes.map(({ id }) => id);
  const overheads = await listOverheads(context, routeIds);
  const reports = reportsOf(await readRouteStats(context, "day", routeIds));
  const price = (microUsd: number | null) => (microUsd === null ? "none" : `${formatPrice(microUsd)} USD`);
  const facts = [
    ["Model", model.id],
    ["Modality", model.modality],
    ["Enabled", yesNo(model.enabled)],
    ["Input, 1 million tokens", price(model.inputMicroUsd)],
    ["Output, 1 million tokens", price(model.outputMicroUsd)],
    ["Tokens of an image", String(model.imageInputTokens)],
    ["Factor for what is reserved", String(model.marginPermille / 1000)],
    ["Routes chosen by", model.routeChoice],
  ] as const;
  const routeRows = routes.map(({ id, providerName, upstreamModel, enabled }) => {
    const known = overheads.find(({ routeId }) => routeId === id);
    return [
      `${id}: ${providerName}/${upstreamModel}`,
      yesNo(enabled),
      known ? overheadWords(known.overhead) : "nothing",
      known ? overheadWords(known.largest) : "nothing",
      known ? `${known.accounts} accounts, ${known.payers} of ${OVERHEAD_PAYERS_MIN} payers` : "",
      known ? `${known.firstAt} to ${known.lastAt}` : "",
    ];
  });
  const headings = ["ROUTE", "ENABLED", "RESERVED ON TOP", "MOST FOR ONE ACCOUNT", "SEEN BY", "WHEN"];
  const text = [
    ...facts.map(([name, value]) => `${name}: ${value}`),
    "",
    table(headings, routeRows, "No routes."),
    "",
    table(
      ["ROUTE", "REQUESTS, 24 H", "ERRORS", "FIRST EVENT, P50 P95", "WHOLE ANSWER, P50 P95", "INPUT FROM CACHE"],
      routes.map(({ id }) => reportRow(id, reports)),
      "No routes.",
    ),
  ].join("\n");
  return { text, json: { model, routes, overheads, reports } };
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
