import type { StaticDecode } from "@sinclair/typebox";
import { type Command, InvalidArgumentError, Option } from "commander";
import { InputError } from "../errors.ts";
import { getMeasured, setMeasured } from "../operations/measured.ts";
import { formatAmount } from "../platform/currencies.ts";
import { defineOperations, sellerBy } from "./door.ts";
import { parseUsd } from "./money.ts";
import { integer, parsedBy, SELLER } from "./options.ts";
import { facts, type Output, table, yesNo } from "./output.ts";
import type { Door } from "./server_door.ts";

/** The command `measured`: prices of made-to-measure packages. Source: MTM-1. */

type Terms = NonNullable<StaticDecode<typeof getMeasured.output>["prices"]>;
type Place = { seller?: string; wholesale?: true };

export function addMeasuredCommands(program: Command): void {
  const measured = program.command("measured").description("prices of made-to-measure packages");
  defineOperations<Place>(
    placed(measured.command("show").description("show the prices of a seller")),
    {},
    async (ask, place) => show((await ask(getMeasured, await placeBy(ask, place))).prices),
  );
  addSet(measured);
}

function placed(command: Command): Command {
  return command
    .option("--seller <reseller>", SELLER)
    .addOption(new Option("--wholesale", "what resellers pay the operator").conflicts("seller"));
}

async function placeBy(ask: Door, { seller, wholesale }: Place) {
  return { ...(await sellerBy(ask, seller)), ...(wholesale && { kind: "wholesale" as const }) };
}

type Set = Place & {
  open?: true;
  close?: true;
  daysMin?: number;
  daysMax?: number;
  dailyMin?: number;
  dailyMax?: number;
  step?: Terms["steps"];
};

function addSet(measured: Command): void {
  defineOperations<Set>(
    placed(measured.command("set").description("set the prices of a seller; what is left out stays"))
      .addOption(new Option("--open", "sell made-to-measure packages").conflicts("close"))
      .option("--close", "stop selling them")
      .option("--days-min <days>", "the shortest package", integer)
      .option("--days-max <days>", "the longest package", integer)
      .option("--daily-min <requests>", "the lowest daily quota", integer)
      .option("--daily-max <requests>", "the highest daily quota", integer)
      .option(
        "--step <from=amount>",
        "price of 1000 requests from a number of requests on, in your currency, as 0=1.50; repeat in ascending order: all steps are replaced",
        step,
      ),
    { changes: true },
    async (ask, { seller, wholesale, open, close, step: steps, ...bounds }) => {
      const place = await placeBy(ask, { ...(seller !== undefined && { seller }), ...(wholesale && { wholesale }) });
      const { prices } = await ask(getMeasured, place);
      const whole = {
        ...{ isOpen: open ?? (close ? false : (prices?.isOpen ?? false)), steps: steps ?? prices?.steps },
        ...boundsOf(bounds, prices),
      };
      if (!isWhole(whole))
        throw new InputError("Nothing is set yet: give --days-min, --days-max, --daily-min, --daily-max and --step.");
      return show((await ask(setMeasured, { ...place, ...whole })).prices);
    },
  );
}

type Bounds = Pick<Set, "daysMin" | "daysMax" | "dailyMin" | "dailyMax">;

function boundsOf({ daysMin, daysMax, dailyMin, dailyMax }: Bounds, set: Terms | null) {
  return {
    daysMin: daysMin ?? set?.daysMin,
    daysMax: daysMax ?? set?.daysMax,
    dailyMin: dailyMin ?? set?.dailyMin,
    dailyMax: dailyMax ?? set?.dailyMax,
  };
}

function isWhole<T extends object>(terms: T): terms is { [Name in keyof T]: NonNullable<T[Name]> } {
  return Object.values(terms).every((value) => value !== undefined);
}

function step(text: string, before: Terms["steps"] = []): Terms["steps"] {
  const [from = "", amount, ...more] = text.split("=");
  if (amount === undefined || more.length > 0)
    throw new InvalidArgumentError("Write the number of requests, =, and the price of 1000: 0=1.50.");
  return [...before, { fromRequests: integer(from), nano: parsedBy(parseUsd)(amount) }];
}

function show(prices: Terms | null): Output {
  if (prices === null) return { text: "No prices are set.", json: { prices } };
  const bounds = facts([
    ["sold", yesNo(prices.isOpen)],
    ["days", `${prices.daysMin} to ${prices.daysMax}`],
    ["requests a day", `${prices.dailyMin} to ${prices.dailyMax}`],
  ]);
  const steps = table(
    ["REQUESTS, FROM", "1000 COST"],
    prices.steps.map(({ fromRequests, nano }) => [String(fromRequests), formatAmount(nano, prices.currency)]),
    "",
  );
  return { text: `${bounds}\n${steps}`, json: { prices } };
}
