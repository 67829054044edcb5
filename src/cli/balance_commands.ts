import type { Command } from "commander";
import { listUsageRecords, type Page, type UsageRow } from "../books/usage_records_store.ts";
import { InputError } from "../errors.ts";
import { setPayg, setPaygRight } from "../operations/accounts.ts";
import { changeBalance } from "../operations/balances.ts";
import { defineCommand } from "./context.ts";
import { accountBy, defineOperations } from "./door.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { accountOf, integer, list } from "./options.ts";
import { facts, type Output, table } from "./output.ts";

/** The commands `payg`, `balance` and `usage`. */

export function addPaygCommands(program: Command): void {
  const payg = program.command("payg").description("whether an account may use pay-as-you-go");
  for (const [name, enabled] of [
    ["enable", true],
    ["disable", false],
  ] as const) {
    defineOperations(
      payg.command(`${name} <account>`).description(`${name} pay-as-you-go`),
      { changes: true },
      async (ask, _options, [reference]) => {
        const { accountId } = await accountBy(ask, reference);
        await ask(setPayg, { accountId, enabled });
        return {
          text: `Pay-as-you-go of account ${accountId} is ${name}d.`,
          json: { accountId, paygEnabled: enabled },
        };
      },
    );
  }
  for (const [name, description, granted] of [
    ["grant", "let a reseller enable and disable pay-as-you-go for its customers", true],
    ["withdraw", "take that right from a reseller; nothing changes for its customers", false],
  ] as const) {
    defineOperations(
      payg.command(`${name} <reseller>`).description(description),
      { changes: true },
      async (ask, _options, [reference]) => {
        const { accountId } = await accountBy(ask, reference);
        await ask(setPaygRight, { accountId, granted });
        const may = granted ? "may enable and disable" : "may not enable or disable";
        return { text: `Reseller ${accountId} ${may} pay-as-you-go for its customers.`, json: { accountId, granted } };
      },
    );
  }
}

export function addBalanceCommands(program: Command): void {
  const balance = program.command("balance").description("balances, for pay-as-you-go");
  defineOperations<{ reason?: string }>(
    balance
      .command("add <account> <usd>")
      .description("add to a balance; a negative amount is a correction and needs --reason")
      .option("--reason <text>", "reason, recorded with the transaction"),
    { changes: true },
    async (ask, { reason }, [reference, usd = ""]) => {
      const nanoUsd = parseUsd(usd);
      const { accountId } = await accountBy(ask, reference);
      if (nanoUsd < 0n && !reason) throw new InputError("A correction needs a reason: give --reason.");
      const kind = nanoUsd < 0n ? "correction" : "top_up";
      const change = { accountId, kind, amountNanoUsd: nanoUsd, ...(reason !== undefined && { reason }) } as const;
      const { balance } = await ask(changeBalance, change);
      const after = balance.balanceNanoUsd;
      const text = facts([
        ["account", String(accountId)],
        ["added", formatUsd(nanoUsd)],
        ["balance", formatUsd(after)],
      ]);
      return { text, json: { accountId, addedNanoUsd: nanoUsd, balanceNanoUsd: after } };
    },
  );
}

export function addUsageCommand(program: Command): void {
  defineCommand<{
    account?: string;
    model?: string;
    host?: string[];
    since?: string;
    until?: string;
    limit: number;
    after?: string;
  }>(
    program
      .command("usage")
      .description("list usage records, newest first")
      .option("--account <account>", "only of this account, by id or e-mail address")
      .option("--model <id>", "only of this model")
      .option("--host <host>", "only on this host; repeat for more", list)
      .option("--since <time>", "from this time, as in 2030-01-31 or 2030-01-31T12:00:00Z")
      .option("--until <time>", "before this time")
      .option("--limit <count>", "number of rows, at most 1000", integer, 100)
      .option("--after <request-id>", "only records older than this one: the last id of the previous page"),
    {},
    async (context, { account, model, host, since, until, limit, after }) => {
      const accountId = account === undefined ? undefined : (await accountOf(context, account)).accountId;
      return showUsage(
        await listUsageRecords(context, {
          accountId,
          modelId: model,
          hosts: host,
          start: since,
          end: until,
          limit,
          after,
        }),
      );
    },
  );
}

function showUsage({ rows, hasMore, nextAfter }: Page<UsageRow>): Output {
  const lines = table(
    ["TIME", "REQUEST", "ACCOUNT", "KEY", "MODEL", "HOST", "BILLING", "IN", "OUT", "COST", "END"],
    rows.map((row) => [
      row.createdAt,
      row.requestId,
      String(row.accountId),
      String(row.keyId),
      row.modelId,
      row.host,
      row.mode,
      String(row.promptTokens),
      String(row.completionTokens),
      row.mode === "payg" ? formatUsd(row.chargedNanoUsd) : row.units === 1 ? "1 request" : `${row.units} requests`,
      row.estimated ? `${row.reason}, estimated` : row.reason,
    ]),
    "No usage records.",
  );
  const text = hasMore ? `${lines}\nThere may be more: --after ${nextAfter}` : lines;
  return { text, json: { usage: rows, hasMore, nextAfter } };
}
