import type { StaticDecode } from "@sinclair/typebox";
import { type Command, Option } from "commander";
import { getFigures } from "../operations/usage.ts";
import { accountBy, defineOperations } from "./door.ts";
import { formatUsd } from "./money.ts";
import { type Output, table } from "./output.ts";

/** The command `figures`: usage revenue, cost and margin of a period. Source: MON-24. */

const CHOICES = ["model", "route", "host", "hour", "day", "month", "key", "account", "reseller"] as const;
type FiguresOptions = { account?: string; reseller?: string; by?: By; since?: string; until?: string };
type By = (typeof CHOICES)[number];
type Shown = StaticDecode<typeof getFigures.output>;

export function addFiguresCommand(program: Command): void {
  defineOperations<FiguresOptions>(
    program
      .command("figures")
      .description("show usage revenue, cost and margin of a period, beside the period before it")
      .option("--account <account>", "only of this account, by id or e-mail address")
      .option("--reseller <reseller>", "only of this reseller's customers")
      .addOption(new Option("--by <what>", "a line for each").choices(CHOICES))
      .option("--since <time>", "from this time, as in 2030-01-31 or 2030-01-31T12:00:00Z (default: 30 days ago)")
      .option("--until <time>", "before this time (default: now)"),
    {},
    async (ask, { account, reseller, by, since, until }) =>
      show(
        await ask(getFigures, {
          ...(account !== undefined && { accountId: (await accountBy(ask, account)).accountId }),
          ...(reseller !== undefined && { resellerId: (await accountBy(ask, reseller)).accountId }),
          ...(by !== undefined && { by }),
          ...(since !== undefined && { start: since }),
          ...(until !== undefined && { end: until }),
        }),
        by,
      ),
  );
}

function show(figures: Shown, by: FiguresOptions["by"]): Output {
  const { total, before, lines, hasMore, errors } = figures;
  const rows = lines.map((line) => rowOf(by === undefined ? "" : nameOf(by, line), line));
  const figured = table(
    ["", "REQUESTS", "TOKENS", "USAGE REVENUE", "COST", "MARGIN", "COST UNKNOWN", "FIRST P50/P95", "WHOLE P50/P95"],
    [...rows, rowOf("total", total), rowOf("period before", before)],
    "",
  );
  const failed = errors.map(({ code, requests }) => [code, String(requests)]);
  const all = failed.length === 0 ? figured : `${figured}\n\n${table(["ERROR", "REQUESTS"], failed, "")}`;
  const more = hasMore ? "\nThere are more lines than are shown; the total has them all." : "";
  return { text: `From ${figures.from} to ${figures.to}\n\n${all}${more}`, json: figures };
}

function nameOf(by: By, line: Shown["lines"][number]): string {
  const { modelId, routeId, host, hour, day, month, keyId, accountId } = line;
  if (by === "route") return `route ${routeId ?? "unknown"}`;
  return modelId ?? host ?? hour ?? day ?? month ?? `${by} ${keyId ?? accountId}`;
}

/** "120/340 ms"; "-" if nothing was measured. */
const tookOf = (of: Shown["total"]["firstEvent"]) => (of === null ? "-" : `${of.p50Ms}/${of.p95Ms} ms`);

function rowOf(name: string, of: Shown["total"]): string[] {
  const money = [of.usageRevenueNanoUsd, of.costNanoUsd, of.marginNanoUsd].map((nanoUsd) => formatUsd(nanoUsd));
  // A reseller knows what it pays for each request.
  const unknown = of.costUnknown === null ? "-" : String(of.costUnknown);
  return [
    name,
    String(of.requests),
    String(of.promptTokens + of.completionTokens),
    ...money,
    unknown,
    tookOf(of.firstEvent),
    tookOf(of.wholeAnswer),
  ];
}
