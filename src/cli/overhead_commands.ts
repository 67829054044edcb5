import type { Command } from "commander";
import { findModel } from "../catalog/models_store.ts";
import { OVERHEAD_PAYERS_MIN, overheadWords } from "../catalog/overhead.ts";
import { listOverheads, resetOverhead } from "../catalog/overhead_store.ts";
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
      .description("show a model, its routes and their overheads: usage beyond what was reserved"),
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
  const price = (microUsd: number | null) => (microUsd === null ? "none" : `${formatPrice(microUsd)} USD`);
  const facts = [
    ["Model", model.id],
    ["Modality", model.modality],
    ["Enabled", yesNo(model.enabled)],
    ["Input, 1 million tokens", price(model.inputMicroUsd)],
    ["Output, 1 million tokens", price(model.outputMicroUsd)],
    ["Tokens of an image", String(model.imageInputTokens)],
    ["Factor for what is reserved", String(model.marginPermille / 1000)],
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
  ].join("\n");
  return { text, json: { model, routes, overheads } };
}
