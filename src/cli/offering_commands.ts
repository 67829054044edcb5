import { type Command, Option } from "commander";
import {
  addOffering,
  findOffering,
  listOfferings,
  type Offering,
  setOfferingEnabled,
} from "../accounts/offerings_store.ts";
import { InputError } from "../errors.ts";
import { type Context, defineCommand } from "./context.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { integer, list, parsedBy } from "./options.ts";
import { facts, type Output, scope, table, yesNo } from "./output.ts";

/** The command `offering`. */

export function addOfferingCommands(program: Command): void {
  const offering = program.command("offering").description("packages that can be sold");
  addAdd(offering);
  addList(offering);
  addEnableAndDisable(offering);
}

function addAdd(offering: Command): void {
  defineCommand<{
    name: string;
    kind: "daily" | "custom";
    daily: number;
    days?: number;
    total?: number;
    carryover?: true;
    tokens?: number;
    model?: string[];
    timeZone?: string;
    wholesale: bigint;
  }>(
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
      .option("--model <id>", "a model that it includes; repeat for more (default: all)", list)
      .option("--time-zone <zone>", "time zone of its days (default: BILLING_TIMEZONE)")
      .requiredOption("--wholesale <usd>", "wholesale price: what a reseller pays", parsedBy(parseUsd)),
    {},
    async (context, { name, kind, daily, days, total, carryover, tokens, model, timeZone, wholesale }) =>
      showOffering(
        await addOffering(context, {
          name,
          kind,
          days,
          dailyLimit: daily,
          totalLimit: total,
          carryover,
          tokenLimit: tokens,
          modelIds: model,
          timeZone: timeZone ?? context.config.billingTimeZone,
          wholesaleNanoUsd: wholesale,
        }),
      ),
  );
}

function addList(offering: Command): void {
  defineCommand(offering.command("list").description("list offerings, newest first"), {}, async (context) => {
    const rows = await listOfferings(context);
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
    defineCommand(
      offering.command(`${name} <offering>`).description(description),
      {},
      async (context, _options, [reference]) => {
        const { offeringId } = await offeringOf(context, reference);
        await setOfferingEnabled(context, { offeringId, enabled });
        return showOffering(await offeringOf(context, String(offeringId)));
      },
    );
  }
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

function showOffering(offering: Offering): Output {
  const text = facts([
    ["offering", String(offering.offeringId)],
    ["name", offering.name],
    [
      "quota",
      `${offering.dailyLimit} a day for ${offering.days} days${offering.carryover ? ", carryover" : ""}, ${offering.totalLimit} in total`,
    ],
    ["tokens", offering.tokenLimit === null ? "no limit" : String(offering.tokenLimit)],
    ["models", scope(offering.modelIds)],
    ["time zone", offering.timeZone],
    ["wholesale", formatUsd(offering.wholesaleNanoUsd)],
    ["on sale", yesNo(offering.enabled)],
  ]);
  return { text, json: offering };
}
