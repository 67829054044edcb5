import { type Command, Option } from "commander";
import { findOffering, listOfferings, type Offering, setOfferingEnabled } from "../accounts/offerings_store.ts";
import {
  addPricedOffering,
  listRetailPrices,
  removeRetailPrice,
  setRetailPrice,
} from "../commerce/retail_prices_store.ts";
import { OPERATOR } from "../commerce/sellers_store.ts";
import { InputError } from "../errors.ts";
import { REQUEST_BOUNDS_DEFAULT as DEFAULTS, type RequestBounds } from "../limits.ts";
import { type Context, defineCommand } from "./context.ts";
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
  defineCommand<AddOptions>(
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
        .option("--retail <usd>", "retail price: what your own customers pay (default: on request)", parsedBy(parseUsd))
        .option("--below-wholesale", BELOW_WHOLESALE),
      { models: true },
    ),
    { adds: true },
    async (
      context,
      {
        daily,
        total,
        tokens,
        choices,
        inputs,
        promptTokens,
        outputTokens,
        model,
        timeZone,
        wholesale,
        retail,
        belowWholesale,
        name,
        kind,
        days,
        carryover,
        ...limits
      },
    ) => {
      const wanted = {
        name,
        kind,
        days,
        dailyLimit: daily,
        totalLimit: total,
        carryover,
        tokenLimit: tokens,
        limits: givenLimits(limits),
        requestBounds: { choices, inputs, promptTokens, outputTokens },
        modelIds: model,
        timeZone: timeZone ?? context.config.billingTimeZone,
        wholesaleNanoUsd: wholesale,
      };
      const added = await addPricedOffering(context, wanted, retailOf({ retail, belowWholesale }));
      return await showOffering(context, added);
    },
  );
}

function retailOf({ retail, belowWholesale }: { retail?: bigint | undefined; belowWholesale?: true | undefined }) {
  return retail === undefined ? null : { priceNanoUsd: retail, belowWholesale: belowWholesale === true };
}

function addList(offering: Command): void {
  defineCommand(offering.command("list").description("list offerings, newest first"), {}, async (context) => {
    const rows = await listOfferings(context);
    const prices = await listRetailPrices(context, OPERATOR);
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
        retailText(prices.get(row.offeringId)?.priceNanoUsd),
        yesNo(row.enabled),
      ]),
      "No offerings.",
    );
    const json = rows.map((row) => ({ ...row, retailNanoUsd: prices.get(row.offeringId)?.priceNanoUsd ?? null }));
    return { text, json: { offerings: json } };
  });
}

function addEnableAndDisable(offering: Command): void {
  for (const [name, enabled, description] of [
    ["enable", true, "sell an offering again"],
    ["disable", false, "stop selling an offering; sold packages stay"],
  ] as const) {
    defineCommand(
      offering.command(`${name} <offering>`).description(description),
      {},
      async (context, _options, [reference]) => {
        const { offeringId } = await offeringOf(context, reference);
        await setOfferingEnabled(context, { offeringId, enabled });
        return await showOffering(context, await offeringOf(context, String(offeringId)));
      },
    );
  }
}

/** The operator's retail price. A reseller sets its own on its page. */
function addPrice(offering: Command): void {
  defineCommand<{ retail?: bigint; none?: true; belowWholesale?: true }>(
    offering
      .command("price <offering>")
      .description("set what your own customers pay for an offering, or remove the price")
      .option("--retail <usd>", "retail price, in whole cents", parsedBy(parseUsd))
      .option("--none", "without a price: customers ask for it, if you have priced nothing else")
      .option("--below-wholesale", BELOW_WHOLESALE),
    {},
    async (context, { retail, none, belowWholesale }, [reference]) => {
      if ((retail === undefined) === (none === undefined)) throw new InputError("Give --retail or --none.");
      const found = await offeringOf(context, reference);
      const price = { sellerId: OPERATOR, offeringId: found.offeringId };
      if (retail === undefined) await removeRetailPrice(context, price);
      else await setRetailPrice(context, { ...price, priceNanoUsd: retail, belowWholesale: belowWholesale === true });
      return await showOffering(context, found);
    },
  );
}

/** The offering with this id or name. Throws InputError. */
export async function offeringOf(context: Context, reference = ""): Promise<Offering> {
  const byName = await findOffering(context, { name: reference });
  const offering =
    byName ??
    (/^\d{1,15}$/.test(reference) ? await findOffering(context, { offeringId: Number(reference) }) : undefined);
  if (!offering) throw new InputError(`There is no offering ${JSON.stringify(reference)}.`);
  return offering;
}

async function showOffering(context: Context, offering: Offering): Promise<Output> {
  const retail = (await listRetailPrices(context, OPERATOR)).get(offering.offeringId)?.priceNanoUsd;
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
    ["retail", retailText(retail)],
    ["on sale", yesNo(offering.enabled)],
  ]);
  return { text, json: { ...offering, retailNanoUsd: retail ?? null } };
}

/** What one request may ask for. */
function boundsText({ choices, inputs, promptTokens, outputTokens }: RequestBounds): string {
  const output = outputTokens === null ? "output as the model gives" : `${outputTokens} output tokens`;
  return `${choices} choices, ${inputs} inputs, ${promptTokens} prompt tokens, ${output}`;
}

function retailText(nanoUsd: bigint | undefined): string {
  return nanoUsd === undefined ? "on request" : formatUsd(nanoUsd);
}
