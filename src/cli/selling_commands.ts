import type { StaticDecode } from "@sinclair/typebox";
import { type Command, InvalidArgumentError } from "commander";
import { InputError } from "../errors.ts";
import { getSelling, setSelling } from "../operations/selling.ts";
import { decimalUsd, readUsd } from "../platform/usd.ts";
import { defineOperations, sellerBy } from "./door.ts";
import { parsedBy, SELLER } from "./options.ts";
import { facts, type Output, yesNo } from "./output.ts";

/** The command `selling`: the currency in which a seller sells, and its tax. Source: TAX-1, CUR-1. */

export function addSellingCommands(program: Command): void {
  const selling = program.command("selling").description("the currency in which a seller sells, and its tax");
  defineOperations<{ seller?: string }>(
    selling.command("show").description("show the currency and the tax").option("--seller <reseller>", SELLER),
    {},
    async (ask, { seller }) => show(await ask(getSelling, await sellerBy(ask, seller))),
  );
  addSet(selling);
}

type Set = {
  seller?: string;
  currency?: string;
  rate?: bigint;
  country?: string;
  vatNumber?: string;
  packageTax?: number;
  topUpTax?: number;
  withTax?: boolean;
  tax?: boolean;
};

function addSet(selling: Command): void {
  defineOperations<Set>(
    selling
      .command("set")
      .description("change the currency and the tax of later orders; what is left out stays")
      .option("--seller <reseller>", SELLER)
      .option("--currency <code>", "of ISO 4217, as eur; set the prices of packages again after this")
      .option("--rate <amount>", "what one US dollar costs in the currency, as 0.92", parsedBy(rate))
      .option("--country <code>", "the country that the tax is paid to, as DE")
      .option("--vat-number <number>", "of the EU; none: there is none")
      .option("--package-tax <percent>", "from 0 to 100, with up to three decimals", parsedBy(percent))
      .option("--top-up-tax <percent>", "the same of top-ups", parsedBy(percent))
      .option("--with-tax", "prices of packages contain the tax")
      .option("--no-with-tax", "the tax is added to the prices of packages")
      .option("--no-tax", "no tax is charged"),
    { changes: true },
    async (ask, { seller, currency, rate: usdRateNano, country, vatNumber, packageTax, topUpTax, withTax, tax }) => {
      const code = currency?.toLowerCase();
      const set = {
        ...(code !== undefined && { currency: code }),
        ...(usdRateNano !== undefined ? { usdRateNano } : code === "usd" && { usdRateNano: null }),
        ...(country !== undefined && { taxCountry: country.toUpperCase() }),
        ...(vatNumber !== undefined && { vatNumber: vatNumber === "none" ? null : vatNumber }),
        ...(packageTax !== undefined && { packageTax }),
        ...(topUpTax !== undefined && { topUpTax }),
        ...(withTax !== undefined && { pricesWithTax: withTax }),
        ...(tax === false && { taxCountry: null, vatNumber: null, packageTax: 0, topUpTax: 0, pricesWithTax: false }),
      };
      if (Object.keys(set).length === 0) throw new InputError("Give at least one change.");
      return show(await ask(setSelling, { ...(await sellerBy(ask, seller)), ...set }));
    },
  );
}

/** "0.92" → billionths, exactly. */
function rate(text: string): bigint {
  const read = readUsd(text);
  if ("wrong" in read || read.nanoUsd <= 0n)
    throw new InvalidArgumentError("Above 0, with a decimal point and up to nine decimals.");
  return read.nanoUsd;
}

/** "19.6" → thousandths of a percent, exactly. */
function percent(text: string): number {
  const [, whole, decimals = ""] = /^(\d{1,3})(?:\.(\d{1,3}))?$/.exec(text) ?? [];
  if (whole === undefined) throw new InvalidArgumentError("A percentage from 0 to 100, with up to three decimals.");
  return Number(whole + decimals.padEnd(3, "0"));
}

function show(terms: StaticDecode<typeof getSelling.output>): Output {
  const text = facts([
    ["seller", terms.sellerId === 0 ? "the operator" : String(terms.sellerId)],
    ["currency", terms.currency],
    ["one US dollar", terms.usdRateNano === null ? "" : `${decimalUsd(terms.usdRateNano)} ${terms.currency}`],
    ["tax to", terms.taxCountry ?? "none"],
    ["VAT number", terms.vatNumber ?? ""],
    ["tax of packages", `${terms.packageTax / 1000} %`],
    ["tax of top-ups", `${terms.topUpTax / 1000} %`],
    ["prices with tax", yesNo(terms.pricesWithTax)],
  ]);
  return { text, json: terms };
}
