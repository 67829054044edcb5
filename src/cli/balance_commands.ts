import type { Command } from "commander";
import { setPaygRight } from "../accounts/people_store.ts";
import { type Page, type UsageRow, usage } from "../books/usage_store.ts";
import { InputError } from "../errors.ts";
import { addBalance, setPayg } from "../ledger/packages_and_balances_store.ts";
import { does } from "./context.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { accountOf, integer, list } from "./options.ts";
import { facts, type Output, table } from "./output.ts";

/** The commands `payg`, `balance` and `usage`. */

export function addPaygCommands(program: Command): void {
  const payg = program.command("payg").description("whether an account may pay by its balance");
  for (const [name, enabled] of [
    ["enable", true],
    ["disable", false],
  ] as const) {
    does(
      payg.command(`${name} <account>`).description(`${name} pay-as-you-go`),
      { changes: true },
      async (context, _options, [reference]) => {
        const { accountId } = await accountOf(context, reference);
        await setPayg(context, accountId, enabled);
        return { text: `PAYG of account ${accountId} is ${name}d.`, json: { accountId, paygEnabled: enabled } };
      },
    );
  }
  for (const [name, description, granted] of [
    ["grant", "let a reseller enable and disable it for its own customers", true],
    ["withdraw", "take that right from a reseller; its customers stay as they are", false],
  ] as const) {
    does(
      payg.command(`${name} <reseller>`).description(description),
      { changes: true },
      async (context, _options, [reference]) => {
        const { accountId } = await accountOf(context, reference);
        await setPaygRight(context, accountId, granted);
        const may = granted ? "may enable and disable" : "may not enable or disable";
        return { text: `Reseller ${accountId} ${may} PAYG for its customers.`, json: { accountId, granted } };
      },
    );
  }
}

export function addBalanceCommands(program: Command): void {
  const balance = program.command("balance").description("what an account can spend by pay-as-you-go");
  does<{ reason?: string }>(
    balance
      .command("add <account> <usd>")
      .description("add to a balance; a negative amount is a correction, and must say why")
      .option("--reason <text>", "kept with the entry"),
    { changes: true },
    async (context, { reason }, [reference, usd = ""]) => {
      const nanoUsd = parseUsd(usd);
      const { accountId } = await accountOf(context, reference);
      if (nanoUsd < 0n && !reason) throw new InputError("A correction must say why: give --reason.");
      const kind = nanoUsd < 0n ? "correction" : "top_up";
      const after = await addBalance(context, { accountId, nanoUsd, kind, reason: reason ?? null, actorId: null });
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
  does<{
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
      .description("usage records, newest first")
      .option("--account <account>", "only this account's, by id or address")
      .option("--model <id>", "only of this model")
      .option("--host <host>", "only on this host; again for more", list)
      .option("--since <time>", "from this time on, as 2030-01-31 or 2030-01-31T12:00:00Z")
      .option("--until <time>", "before this time")
      .option("--limit <count>", "rows, 1000 at most", integer, 100)
      .option("--after <request-id>", "older than this record: the last id of the page before"),
    {},
    async (context, { account, model, host, since, until, limit, after }) => {
      const accountId = account === undefined ? undefined : (await accountOf(context, account)).accountId;
      return showUsage(
        await usage(context, { accountId, modelId: model, hosts: host, start: since, end: until, limit, after }),
      );
    },
  );
}

function showUsage({ rows, hasMore, nextAfter }: Page<UsageRow>): Output {
  const lines = table(
    ["TIME", "REQUEST", "ACCOUNT", "KEY", "MODEL", "HOST", "MODE", "IN", "OUT", "COST", "HOW IT ENDED"],
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
    "There are no usage records.",
  );
  const text = hasMore ? `${lines}\nThere may be more: --after ${nextAfter}` : lines;
  return { text, json: { usage: rows, hasMore, nextAfter } };
}
