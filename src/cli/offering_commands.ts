import { type Command, Option } from "commander";
import { InputError } from "../errors.ts";
import { REQUEST_BOUNDS_DEFAULT as DEFAULTS, type RequestBounds } from "../limits.ts";
import {
  createOffering,
  listOfferings,
  type PricedOffering,
  removePrice,
  setOnSale,
  setRetailPrice,
} from "../operations/offerings.ts";
import { formatAmount } from "../platform/currencies.ts";
import { defineOperations, offeringBy } from "./door.ts";
import { givenLimits, type LimitOptions, limitOptions, limitsText } from "./limit_options.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { integer, list, parsedBy } from "./options.ts";
import { facts, type Output, scope, table, yesNo } from "./output.ts";

/** The command `offering`. */

const BELOW_WHOLESALE = "confirms a retail price below the wholesale price";

export function addOfferingCommands(program: Command): void {
  const offering = program.command("offering").description("packages that can be sold");
  addAdd(offering);
  addList(offering);
  addEnableAndDisable(offering);
  addPrice(offering);
}

type AddOptions = LimitOptions & {
  name: string;
  kind: "daily" | "custom";
  daily: number;
  days?: number;
  total?: number;
  carryover?: true;
  tokens?: number;
  choices?: number;
  inputs?: number;
  promptTokens?: number;
  outputTokens?: number;
  model?: string[];
  timeZone?: string;
  wholesale: bigint;
  retail?: bigint;
  belowWholesale?: true;
};

function addAdd(offering: Command): void {
  defineOperations<AddOptions>(
    limitOptions(
      offering
        .command("add")
        .description("add an offering: daily (1 day, 100 to 2000 requests) or custom (1 to 30 days, any daily quota)")
        .requiredOption("--name <name>", "unique, 1 to 100 characters")
        .addOption(new Option("--kind <kind>").choices(["daily", "custom"]).makeOptionMandatory())
        .requiredOption("--daily <requests>", "daily quota, in requests", integer)
        .option("--days <days>", "how many days it lasts (default: 1)", integer)
        .option("--total <requests>", "total quota, in requests (default: daily quota x days)", integer)
        .option("--carryover", "unused daily quota stays usable on later days")
        .option("--tokens <tokens>", "total tokens (default: no limit)", integer)
        .option("--choices <count>", `choices (n) in one request at most (default: ${DEFAULTS.choices})`, integer)
        .option("--inputs <count>", `inputs of one embeddings request at most (default: ${DEFAULTS.inputs})`, integer)
        .option(
          "--prompt-tokens <tokens>",
          `prompt of one request at most (default: ${DEFAULTS.promptTokens})`,
          integer,
        )
        .option("--output-tokens <tokens>", "output of one request at most (default: the model's own)", integer)
        .option("--model <id>", "a model that it includes; repeat for more (default: all)", list)
        .option("--time-zone <zone>", "time zone of its days (default: BILLING_TIMEZONE)")
        .requiredOption("--wholesale <usd>", "wholesale price: what a reseller pays", parsedBy(parseUsd))
        .option(
          "--retail <amount>",
          "retail price: what your own customers pay, in your currency (default: on request)",
          parsedBy(parseUsd),
        )
        .option("--below-wholesale", BELOW_WHOLESALE),
      { models: true },
    ),
    { adds: true },
    async (ask, options) => {
      const { name, kind, days, carryover, wholesale, retail, belowWholesale } = options;
      const { daily, total, tokens, choices, inputs, promptTokens, outputTokens, model, timeZone, ...limits } = options;
      const added = await ask(createOffering, {
        ...{ name, kind, days, carryover, timeZone, belowWholesale },
        dailyLimit: daily,
        totalLimit: total,
        tokenLimit: tokens,
        limits: givenLimits(limits),
        requestBounds: { choices, inputs, promptTokens, outputTokens },
        modelIds: model,
        wholesaleNanoUsd: wholesale,
        priceNano: retail,
      });
      return showOffering(await offeringBy(ask, String(added.offeringId)));
    },
  );
}

function addList(offering: Command): void {
  defineOperations(offering.command("list").description("list offerings, newest first"), {}, async (ask) => {
    const { offerings: rows } = await ask(listOfferings, {});
    const text = table(
      [
        "ID",
        "NAME",
        "KIND",
        "DAYS",
        "DAILY",
        "TOTAL",
        "CARRYOVER",
        "TOKENS",
        "MODELS",
        "TIME ZONE",
        "WHOLESALE",
        "RETAIL",
        "ON SALE",
      ],
      rows.map((row) => [
        String(row.offeringId),
        row.name,
        row.kind,
        String(row.days),
        String(row.dailyLimit),
        String(row.totalLimit),
        yesNo(row.carryover),
        row.tokenLimit === null ? "" : String(row.tokenLimit),
        scope(row.modelIds),
        row.timeZone,
        formatUsd(row.wholesaleNanoUsd),
        retailText(row),
        yesNo(row.enabled),
      ]),
      "No offerings.",
    );
    return { text, json: { offerings: rows } };
  });
}

function addEnableAndDisable(offering: Command): void {
  for (const [name, enabled, description] of [
    ["enable", true, "sell an offering again"],
    ["disable", false, "stop selling an offering; sold packages stay"],
  ] as const) {
    defineOperations(
      offering.command(`${name} <offering>`).description(description),
      {},
      async (ask, _options, [reference]) => {
        const { offeringId } = await offeringBy(ask, reference);
        await ask(setOnSale, { offeringId, enabled });
        return showOffering(await offeringBy(ask, String(offeringId)));
      },
    );
  }
}

/** The operator's retail price; with a reseller's token, the reseller's. */
function addPrice(offering: Command): void {
  defineOperations<{ retail?: bigint; none?: true; belowWholesale?: true }>(
    offering
      .command("price <offering>")
      .description("set what your own customers pay for an offering, or remove the price")
      .option("--retail <amount>", "retail price, in your currency", parsedBy(parseUsd))
      .option("--none", "without a price: customers ask for it, if you have priced nothing else")
      .option("--below-wholesale", BELOW_WHOLESALE),
    {},
    async (ask, { retail, none, belowWholesale }, [reference]) => {
      if ((retail === undefined) === (none === undefined)) throw new InputError("Give --retail or --none.");
      const { offeringId } = await offeringBy(ask, reference);
      if (retail === undefined) await ask(removePrice, { offeringId });
      else await ask(setRetailPrice, { offeringId, priceNano: retail, belowWholesale });
      return showOffering(await offeringBy(ask, String(offeringId)));
    },
  );
}

function showOffering(offering: PricedOffering): Output {
  const text = facts([
    ["offering", String(offering.offeringId)],
    ["name", offering.name],
    [
      "quota",
      `${offering.dailyLimit} a day for ${offering.days} days${offering.carryover ? ", carryover" : ""}, ${offering.totalLimit} in total`,
    ],
    ["tokens", offering.tokenLimit === null ? "no limit" : String(offering.tokenLimit)],
    ["limits", limitsText(offering.limits)],
    ["one request", boundsText(offering.requestBounds)],
    ["models", scope(offering.modelIds)],
    ["time zone", offering.timeZone],
    ["wholesale", formatUsd(offering.wholesaleNanoUsd)],
    ["retail", retailText(offering)],
    ["on sale", yesNo(offering.enabled)],
  ]);
  return { text, json: offering };
}

/** What one request may ask for. */
function boundsText({ choices, inputs, promptTokens, outputTokens }: RequestBounds): string {
  const output = outputTokens === null ? "output as the model gives" : `${outputTokens} output tokens`;
  return `${choices} choices, ${inputs} inputs, ${promptTokens} prompt tokens, ${output}`;
}

function retailText({ priceNano, currency }: Pick<PricedOffering, "priceNano" | "currency">): string {
  return priceNano === null ? "on request" : formatAmount(priceNano, currency);
}
