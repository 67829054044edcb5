import { type Command, Option } from "commander";
import {
  addOffering,
  findOffering,
  listOfferings,
  type Offering,
  setOfferingEnabled,
} from "../accounts/offerings_store.ts";
import { InputError } from "../errors.ts";
import { type Context, does } from "./context.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { integer, list, parsedBy } from "./options.ts";
import { facts, type Output, scope, table, yesNo } from "./output.ts";

/** The command `offering`. */

export function addOfferingCommands(program: Command): void {
  const offering = program.command("offering").description("what can be sold as a package");
  addAdd(offering);
  addList(offering);
  addEnableAndDisable(offering);
}

function addAdd(offering: Command): void {
  does<{
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
      .description(
        "add an offering: daily is 1 day with 100 to 2000 requests, custom 1 to 30 days with a chosen daily count",
      )
      .requiredOption("--name <name>", "unique, 1 to 100 characters")
      .addOption(new Option("--kind <kind>").choices(["daily", "custom"]).makeOptionMandatory())
      .requiredOption("--daily <requests>", "requests a day", integer)
      .option("--days <days>", "how long it runs (default: 1)", integer)
      .option("--total <requests>", "requests over its life (default: daily x days)", integer)
      .option("--carryover", "what is left of a day is kept for the next")
      .option("--tokens <tokens>", "tokens over its life (default: not counted)", integer)
      .option("--model <id>", "a model in its scope; again for more (default: all)", list)
      .option("--time-zone <zone>", "whose midnights part its days (default: BILLING_TIMEZONE)")
      .requiredOption("--wholesale <usd>", "what a reseller pays for it", parsedBy(parseUsd)),
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
  does(offering.command("list").description("offerings, newest first"), {}, async (context) => {
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
      "There are no offerings.",
    );
    return { text, json: { offerings: rows } };
  });
}

function addEnableAndDisable(offering: Command): void {
  for (const [name, enabled, description] of [
    ["enable", true, "put an offering on sale again"],
    ["disable", false, "take an offering off sale; packages that were sold stay"],
  ] as const) {
    does(
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
      "allowance",
      `${offering.dailyLimit} a day for ${offering.days} days${offering.carryover ? ", carryover" : ""}, ${offering.totalLimit} in all`,
    ],
    ["tokens", offering.tokenLimit === null ? "not counted" : String(offering.tokenLimit)],
    ["models", scope(offering.modelIds)],
    ["time zone", offering.timeZone],
    ["wholesale", formatUsd(offering.wholesaleNanoUsd)],
    ["on sale", yesNo(offering.enabled)],
  ]);
  return { text, json: offering };
}
