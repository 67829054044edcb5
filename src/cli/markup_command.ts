import type { StaticDecode } from "@sinclair/typebox";
import { type Command, InvalidArgumentError } from "commander";
import { InputError } from "../errors.ts";
import { MARKUP_BASIS_POINTS } from "../limits.ts";
import { getMarkups, setMarkup } from "../operations/markups.ts";
import { accountBy, defineOperations } from "./door.ts";
import { formatPercent } from "./money.ts";
import { type Output, table } from "./output.ts";

/** The command `account markup`: the markup of a reseller on the operator's balance prices. Source: MRK-1. */

type MarkupOptions = { model?: string; percent?: number | "none" };

export function addMarkupCommand(account: Command): void {
  defineOperations<MarkupOptions>(
    account
      .command("markup <reseller>")
      .description("show or set what a reseller adds to balance prices for its customers")
      .option("--model <id>", "one model, which then no longer has the markup of every model")
      .option("--percent <percent>", "from 0 to 1000, with up to two decimals; none removes it", percent),
    { changes: true },
    async (ask, { model: modelId = null, percent: wanted }, [reference]) => {
      const { accountId: resellerId, role } = await accountBy(ask, reference);
      if (role !== "reseller") throw new InputError(`Account ${resellerId} is no reseller.`);
      if (wanted !== undefined)
        return show(await ask(setMarkup, { resellerId, modelId, basisPoints: wanted === "none" ? null : wanted }));
      if (modelId !== null) throw new InputError("Give the markup of the model: --percent.");
      return show(await ask(getMarkups, { resellerId }));
    },
  );
}

/** "12.5" → basis points, exactly. "none" is not null, because commander would turn null into an empty text. */
function percent(text: string): number | "none" {
  if (text === "none") return text;
  const [, whole, decimals = ""] = /^(\d{1,9})(?:\.(\d{1,2}))?$/.exec(text) ?? [];
  const basisPoints = whole === undefined ? Number.NaN : Number(whole + decimals.padEnd(2, "0"));
  if (basisPoints >= MARKUP_BASIS_POINTS.min && basisPoints <= MARKUP_BASIS_POINTS.max) return basisPoints;
  throw new InvalidArgumentError(
    "A markup is from 0 to 1000 percent, with up to two decimals. Below 0 it would sell below cost.",
  );
}

function show({ resellerId, basisPoints: everyModel, models }: StaticDecode<typeof getMarkups.output>): Output {
  return {
    text: table(
      ["MODEL", "MARKUP"],
      [
        ["every other model", formatPercent(everyModel)],
        ...models.map(({ modelId, basisPoints }) => [modelId, formatPercent(basisPoints)]),
      ],
      "",
    ),
    json: { resellerId, everyModel, models },
  };
}
