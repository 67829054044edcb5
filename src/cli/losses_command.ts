import type { Command } from "commander";
import { isLossKind, LOSS_KINDS } from "../accounts/losses.ts";
import { InputError } from "../errors.ts";
import { forgetLosses, listLosses } from "../operations/losses.ts";
import { accountBy, defineOperations } from "./door.ts";
import { integer } from "./options.ts";
import { table, withMore, yesNo } from "./output.ts";

/** The command `account losses`. */

export function addLossesCommand(account: Command): void {
  defineOperations<{ limit: number; forget?: true }>(
    account
      .command("losses [account]")
      .description("show what nobody paid, by account and by reseller with its customers, and who is refused for it")
      .option("--limit <count>", "number of rows, at most 1000", integer, 100)
      .option("--forget", "end the hour of this account: it is no longer refused"),
    { changes: true },
    async (ask, { limit, forget }, [reference]) => {
      const accountId = reference === undefined ? undefined : (await accountBy(ask, reference)).accountId;
      if (forget) {
        if (accountId === undefined) throw new InputError("Name the account whose hour is to be ended.");
        await ask(forgetLosses, { accountId });
      }
      const { rows, hasMore } = await ask(listLosses, { accountId, limit });
      const lines = table(
        ["WHO", "ID", "KIND", "THIS HOUR", "UNTIL", "REFUSED", "IN ALL", "REQUESTS", "LAST"],
        rows.map(({ holder, holderId, kind, hourAmount, hourEndsAt, stopped, amount, times, lastAt }) => [
          ...[holder, String(holderId), kind, shown(kind, hourAmount)],
          ...[hourEndsAt ?? "", yesNo(stopped), shown(kind, amount), String(times), lastAt],
        ]),
        "Everything was paid.",
      );
      return { text: withMore(lines, hasMore, "--limit"), json: { losses: rows } };
    },
  );
}

/** The amount in the unit of its kind. */
function shown(kind: string, amount: bigint): string {
  return isLossKind(kind) ? LOSS_KINDS[kind].shown(amount) : String(amount);
}
