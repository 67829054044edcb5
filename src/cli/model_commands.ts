import { type Command, Option } from "commander";
import { imagePriceKey, ROUTE_CHOICES, type RouteChoice } from "../catalog/catalog_input.ts";
import { MODALITY_NAMES, type Modality } from "../catalog/modalities.ts";
import { BOUND_NAMES, type BoundsPatch, byBound, MODEL_BOUNDS } from "../catalog/model_bounds.ts";
import { InputError } from "../errors.ts";
import {
  addRoute,
  createModel,
  listModels,
  removeRoute,
  setModelPrices,
  updateModel,
  updateRoute,
} from "../operations/models.ts";
import { defineOperations } from "./door.ts";
import { type FactsGiven, factOption } from "./fact_options.ts";
import { addImport } from "./model_import.ts";
import { addShow, boundOption, modelBy } from "./model_show.ts";
import { formatPrice, parsePrice } from "./money.ts";
import { idOf, integer, list, parsedBy } from "./options.ts";
import { type Output, table, yesNo } from "./output.ts";
import {
  furtherWords,
  imagePricesOf,
  type PriceOptions,
  priceOptions,
  pricesOf,
  TOKEN_PRICE_OPTIONS,
} from "./price_options.ts";
import { providerIdOf, switched } from "./provider_options.ts";
import type { Door } from "./server_door.ts";

/** The command `model`; its `show` is in model_show.ts. */

const STATUSES = ["active", "preview", "deprecated"] as const;
/** Models that are listed: more than anybody has. */
const MODELS_MAX = 10_000;
const HIDES_TOKENS = { yes: true, no: false, unknown: null } as const;

export function addModelCommands(program: Command): void {
  const model = program.command("model").description("models, their prices, and the routes that serve them");
  addShow(model);
  addAdd(model);
  addSet(model);
  addListAndPrice(model);
  addImport(model);
  addRouteCommand(model);
}

type ModelOptions = BoundsPatch & {
  name?: string;
  ownedBy?: string;
  modality?: Modality;
  status?: (typeof STATUSES)[number];
  context?: number;
  defaultCap?: number;
};

function addAdd(model: Command): void {
  defineOperations<ModelOptions & PriceOptions>(
    priceOptions(
      modelOptions(model.command("add <id>").description("add a model; without prices it is sold in packages only")),
    ),
    { changes: true, adds: true },
    async (ask, options, [id = ""]) => {
      // What has no price yet has none to remove.
      const imagePrices = imagePricesOf(options)?.flatMap(({ microUsd, ...image }) =>
        microUsd === null ? [] : [{ ...image, microUsd }],
      );
      await ask(createModel, { id, ...modelFields(options), prices: pricesOf(options), imagePrices });
      return showModel(ask, id);
    },
  );
}

function addSet(model: Command): void {
  defineOperations<
    ModelOptions & {
      enable?: true;
      disable?: true;
      margin?: number;
      hidesTokens?: keyof typeof HIDES_TOKENS;
      routesBy?: RouteChoice;
    }
  >(
    modelOptions(model.command("set <id>").description("change a model, or enable or disable it"))
      .option(
        "--margin <permille>",
        "factor for what is reserved for its requests, in thousandths (default: 1000)",
        integer,
      )
      .addOption(
        new Option(
          "--hides-tokens <word>",
          "whether its usage includes tokens that are not in the text; yes: a stream is read to its end after its client leaves; unknown: learned from answers",
        ).choices(Object.keys(HIDES_TOKENS)),
      )
      .addOption(
        new Option(
          "--routes-by <word>",
          "which route a request is sent to first: lowest priority number, any by weight, lowest cost, or fastest",
        ).choices(ROUTE_CHOICES),
      )
      .addOption(new Option("--enable", "sell it again").conflicts("disable"))
      .option("--disable", "stop selling it"),
    { changes: true },
    async (ask, { enable, disable, margin, hidesTokens, routesBy, ...options }, [id = ""]) => {
      await ask(updateModel, {
        ...{ id, ...modelFields(options) },
        marginPermille: margin,
        hidesTokens: hidesTokens && HIDES_TOKENS[hidesTokens],
        routeChoice: routesBy,
        enabled: switched({ enable, disable }),
      });
      return showModel(ask, id);
    },
  );
}

function addListAndPrice(model: Command): void {
  defineOperations(model.command("list").description("list models by id, with prices and routes"), {}, async (ask) =>
    shown(await allModels(ask)),
  );

  defineOperations<PriceOptions & { packageOnly?: true }>(
    priceOptions(
      model
        .command("price <id>")
        .description("set the pay-as-you-go prices of a model; all its token prices are replaced"),
    ).addOption(new Option("--package-only", "remove its token prices").conflicts(TOKEN_PRICE_OPTIONS)),
    { changes: true },
    async (ask, { packageOnly, ...options }, [id = ""]) => {
      const prices = packageOnly ? null : pricesOf(options);
      const imagePrices = imagePricesOf(options);
      if (prices === undefined && imagePrices === undefined)
        throw new InputError("Give --input and --output, --image, or --package-only.");
      await ask(setModelPrices, { id, prices, imagePrices });
      return showModel(ask, id);
    },
  );
}

function addRouteCommand(model: Command): void {
  defineOperations<{
    provider?: string;
    upstream?: string;
    priority?: number;
    weight?: number;
    fact?: FactsGiven;
    ownResponses?: boolean;
    allowParam?: string[];
    dropParam?: string[];
    costInput?: number | null;
    costOutput?: number | null;
    costImage?: number | null;
    change?: string;
    remove?: string;
  }>(
    factOption(
      model
        .command("route <id>")
        .description("add, change or remove a route: a model at a provider")
        .option("--provider <name>", "provider that serves it")
        .option("--upstream <model>", "name of the model at the provider (default: the same)")
        .option("--priority <number>", "routes with the lowest number are tried first (default: 0)", integer)
        .option("--weight <number>", "share of requests among routes of the same priority (default: 1)", integer)
        .option("--own-responses", "the provider has /responses for this model: send POST /v1/responses there")
        .option("--no-own-responses", "it has none (the default): translate to chat completions")
        .option(
          "--allow-param <name>",
          "also send this parameter to the provider, as in documents or reasoning.max_tokens; repeat or use commas for more; none: no others",
          list,
        )
        .option(
          "--drop-param <name>",
          "do not send this parameter, because the provider does not take it, as in reasoning_effort; repeat or use commas for more; none: leave nothing out",
          list,
        )
        .option("--cost-input <usd>", "what the provider charges you for 1 million input tokens; none: not known", cost)
        .option("--cost-output <usd>", "the same for 1 million output tokens", cost)
        .option("--cost-image <usd>", "the same for one image", cost)
        .addOption(new Option("--change <route-id>", "change this route").conflicts("provider"))
        .addOption(new Option("--remove <route-id>", "remove this route").conflicts(["provider", "change"])),
      { but: ["droppedParams"] },
    ),
    { changes: true, adds: true },
    async (ask, { provider, change, remove, ...options }, [id = ""]) => {
      const { upstream, priority, weight, fact: facts, ownResponses } = options;
      const { allowParam, dropParam, costInput, costOutput, costImage } = options;
      const fields = {
        ...{ upstreamModel: upstream, priority, weight, facts, ownResponses },
        allowedParams: allowParam?.filter((name) => name.trim() !== "none"),
        droppedParams: dropParam?.filter((name) => name.trim() !== "none"),
        costInputMicroUsd: costInput,
        costOutputMicroUsd: costOutput,
        costImageMicroUsd: costImage,
      };
      if (remove !== undefined) await ask(removeRoute, { routeId: await routeIdOf(ask, id, remove) });
      else if (change !== undefined) await ask(updateRoute, { routeId: await routeIdOf(ask, id, change), ...fields });
      else if (provider !== undefined) {
        const providerId = await providerIdOf(ask, provider);
        await ask(addRoute, { ...fields, modelId: id, providerId });
      } else throw new InputError("Give --provider, or --change or --remove with the id of a route.");
      return showModel(ask, id);
    },
  );
}

async function routeIdOf(ask: Door, modelId: string, text: string): Promise<number> {
  const routeId = idOf(text, "route's id");
  const { routes } = await modelBy(ask, modelId);
  if (!routes.some(({ id }) => id === routeId)) throw new InputError(`The model ${modelId} has no route ${routeId}.`);
  return routeId;
}

function modelOptions(command: Command): Command {
  command
    .option("--name <name>", "display name (default: the id)")
    .option("--owned-by <owner>", "owner of the model")
    .addOption(new Option("--modality <modality>", "modality (default: text)").choices(MODALITY_NAMES))
    .addOption(new Option("--status <status>", "status that clients see (default: active)").choices(STATUSES))
    .option("--context <tokens>", "its context length", integer)
    .option("--default-cap <tokens>", "output limit of a pay-as-you-go request that sets none", integer);
  for (const name of BOUND_NAMES) {
    const { hint, unit } = MODEL_BOUNDS[name];
    const words = `${hint.charAt(0).toLowerCase()}${hint.slice(1, -1)}`;
    // Commander calls the option by the bound's name again.
    command.option(`${boundOption(name)} <${unit}>`, words, integer);
  }
  return command;
}

function modelFields({ name, ownedBy, modality, status, context, defaultCap, ...rest }: ModelOptions) {
  return {
    name,
    ownedBy,
    modality,
    status,
    contextLength: context,
    defaultCapTokens: defaultCap,
    ...byBound((bound) => rest[bound]),
  };
}

/** A provider's charge, in micro-USD. */
function cost(text: string): number | null {
  return text === "none" ? null : parsedBy(parsePrice)(text);
}

const allModels = async (ask: Door) => (await ask(listModels, { limit: MODELS_MAX })).rows;
const showModel = async (ask: Door, id: string) => shown([await modelBy(ask, id)]);
type Model = Awaited<ReturnType<typeof allModels>>[number];

function shown(models: readonly Model[]): Output {
  const price = (microUsd: number | null | undefined) => (microUsd == null ? "" : formatPrice(microUsd));
  const text = table(
    ["MODEL", "MODALITY", "STATUS", "ENABLED", "INPUT/M", "CACHED/M", "OUTPUT/M", "FURTHER", "IMAGES", "ROUTES"],
    models.map((model) => [
      model.id,
      model.modality,
      model.status,
      yesNo(model.enabled),
      price(model.prices?.inputMicroUsd),
      price(model.prices?.cachedInputMicroUsd),
      price(model.prices?.outputMicroUsd),
      furtherWords(model.prices?.further ?? {}),
      model.imagePrices
        .map(({ size, quality, microUsd }) => `${imagePriceKey(size, quality)} ${formatPrice(microUsd)}`)
        .join(", "),
      model.routes.map(routeWords).join(", ") || "none",
    ]),
    "No models.",
  );
  return { text, json: { models } };
}

/** As in "3: acme/gpt-x + documents - seed": the parameters after the plus are sent to the provider too, those after the minus are not. */
function routeWords({
  id,
  providerName,
  upstreamModel,
  allowedParams,
  droppedParams,
}: Model["routes"][number]): string {
  const allowed = allowedParams.length > 0 ? ` + ${allowedParams.join(" ")}` : "";
  const dropped = droppedParams.length > 0 ? ` - ${droppedParams.join(" ")}` : "";
  return `${id}: ${providerName}/${upstreamModel}${allowed}${dropped}`;
}
