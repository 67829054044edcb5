import type { StaticDecode } from "@sinclair/typebox";
import { type Command, Option } from "commander";
import { listAllRequests } from "../operations/usage.ts";
import { accountBy, defineOperations } from "./door.ts";
import { formatUsd } from "./money.ts";
import { idOf, integer } from "./options.ts";
import { type Output, table } from "./output.ts";

/** The command `usage`: finished requests. Source: USE-9. */

type UsageOptions = {
  account?: string;
  key?: string;
  model?: string;
  host?: string;
  route?: string;
  outcome?: "charged" | "released";
  since?: string;
  until?: string;
  limit: number;
  after?: string;
};
type Listed = StaticDecode<typeof listAllRequests.output>;
type Row = Listed["rows"][number];

export function addUsageCommand(program: Command): void {
  defineOperations<UsageOptions>(
    program
      .command("usage")
      .description("list finished requests, newest first")
      .option("--account <account>", "only of this account, by id or e-mail address")
      .option("--key <id>", "only with this key")
      .option("--model <id>", "only of this model")
      .option("--host <host>", "only on this host")
      .option("--route <id>", "only through this route")
      .addOption(
        new Option("--outcome <outcome>", "charged, or released: ended without a charge (default: charged)").choices([
          "charged",
          "released",
        ]),
      )
      .option("--since <time>", "from this time, as in 2030-01-31 or 2030-01-31T12:00:00Z")
      .option("--until <time>", "before this time")
      .option("--limit <count>", "number of rows, at most 1000", integer, 100)
      .option("--after <request-id>", "only requests older than this one: the last id of the previous page"),
    {},
    async (ask, { account, key, model, host, route, outcome, since, until, limit, after }) =>
      shown(
        await ask(listAllRequests, {
          ...(account !== undefined && { accountId: (await accountBy(ask, account)).accountId }),
          ...(key !== undefined && { keyId: idOf(key, "key's id") }),
          ...(route !== undefined && { routeId: idOf(route, "route's id") }),
          ...{ modelId: model, host, outcome, start: since, end: until, limit, before: after },
        }),
      ),
  );
}

function shown({ rows, hasMore }: Listed): Output {
  const lines = table(
    ["TIME", "REQUEST", "ACCOUNT", "KEY", "MODEL", "HOST", "BILLING", "FIRST", "WHOLE", "IN", "OUT", "COST", "END"],
    rows.map((row) => [
      row.createdAt,
      row.requestId,
      String(row.accountId),
      String(row.keyId),
      row.modelId,
      row.host,
      row.mode,
      row.firstMs === null ? "" : `${row.firstMs} ms`,
      `${row.durationMs} ms`,
      String(row.promptTokens),
      String(row.completionTokens),
      costOf(row),
      row.estimated ? `${row.reason}, estimated` : row.reason,
    ]),
    "No requests.",
  );
  const text = hasMore ? `${lines}\nThere may be more: --after ${rows.at(-1)?.requestId}` : lines;
  return { text, json: { usage: rows, hasMore } };
}

function costOf({ outcome, mode, chargedNanoUsd, units }: Row): string {
  if (outcome === "released") return "none";
  if (mode === "payg") return formatUsd(chargedNanoUsd);
  return units === 1 ? "1 request" : `${units} requests`;
}
