import type { Command } from "commander";
import { InputError } from "../errors.ts";
import { setPayg, setPaygRight } from "../operations/accounts.ts";
import { changeBalance } from "../operations/balances.ts";
import { accountBy, defineOperations } from "./door.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { facts } from "./output.ts";

/** The commands `payg` and `balance`. */

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
