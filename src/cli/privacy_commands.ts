import { writeFile } from "node:fs/promises";
import type { Command } from "commander";
import { eraseAccount, exportAccount } from "../operations/privacy.ts";
import { accountBy, defineOperations } from "./door.ts";

/** The commands `account export` and `account erase`. */

export function addPrivacyCommands(account: Command): void {
  defineOperations<{ to?: string }>(
    account
      .command("export <account>")
      .description("print everything that is kept of the person, as JSON")
      .option("--to <file>", "write it to this file, which only you can read"),
    {},
    async (ask, { to }, [reference = ""]) => {
      const { accountId } = await accountBy(ask, reference);
      const data = await ask(exportAccount, { accountId });
      const text = JSON.stringify(data, null, 2);
      if (to === undefined) return { text, json: data };
      await writeFile(to, `${text}\n`, { mode: 0o600, flag: "wx" });
      return { text: `Written to ${to}.`, json: { accountId, file: to } };
    },
  );
  defineOperations<{ email: string; force?: true }>(
    account
      .command("erase <account>")
      .description("erase the person for good; orders, invoices and the books stay")
      .requiredOption("--email <address>", "the account's e-mail address, as a confirmation")
      .option("--force", "give up its balance, packages and open orders"),
    { changes: true },
    async (ask, { email, force = false }, [reference = ""]) => {
      const { accountId } = await accountBy(ask, reference);
      const erased = await ask(eraseAccount, { accountId, email, force });
      return { text: `Account ${accountId} is erased.`, json: erased };
    },
  );
}
