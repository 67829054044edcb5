import type { Command } from "commander";
import { isLossKind, LOSS_KINDS, lossBoundsOf } from "../accounts/losses.ts";
import { forgetHour, type HolderLosses, listLosses } from "../accounts/losses_store.ts";
import { InputError } from "../errors.ts";
import { defineCommand } from "./context.ts";
import { accountOf, integer } from "./options.ts";
import { table, withMore, yesNo } from "./output.ts";

/** The command `account losses`. */

export function addLossesCommand(account: Command): void {
  defineCommand<{ limit: number; forget?: true }>(
    account
      .command("losses [account]")
      .description("show what nobody paid, by account and by reseller with its customers, and who is refused for it")
      .option("--limit <count>", "number of rows, at most 1000", integer, 100)
      .option("--forget", "end the hour of this account: it is no longer refused"),
    {},
    async (context, { limit, forget }, [reference]) => {
      const holderId = reference === undefined ? undefined : (await accountOf(context, reference)).accountId;
      if (forget) {
        if (holderId === undefined) throw new InputError("Name the account whose hour is to be ended.");
        await forgetHour(context, holderId);
      }
      const found = await listLosses(context, { holderId, limit: limit + 1 });
      const bounds = lossBoundsOf(context.config);
      const rows = found.slice(0, limit).map((losses) => ({ ...losses, stopped: isStopped(losses, bounds) }));
      const lines = table(
        ["WHO", "ID", "KIND", "THIS HOUR", "UNTIL", "REFUSED", "IN ALL", "REQUESTS", "LAST"],
        rows.map(({ holder, holderId: id, kind, hourAmount, hourEndsAt, stopped, amount, times, lastAt }) => [
          ...[holder === "account" ? "account" : "reseller", String(id), kind, shown(kind, hourAmount)],
          ...[hourEndsAt ?? "", yesNo(stopped), shown(kind, amount), String(times), lastAt],
        ]),
        "Everything was paid.",
      );
      return { text: withMore(lines, found.length > limit, "--limit"), json: { losses: rows } };
    },
  );
}

function isStopped({ kind, holder, hourAmount }: HolderLosses, bounds: ReturnType<typeof lossBoundsOf>): boolean {
  return isLossKind(kind) && hourAmount >= bounds[kind][holder];
}

/** The amount in the unit of its kind. */
function shown(kind: string, amount: bigint): string {
  return isLossKind(kind) ? LOSS_KINDS[kind].shown(amount) : String(amount);
}
