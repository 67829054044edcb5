import { type Command, Option } from "commander";
import type { Account } from "../accounts/accounts_store.ts";
import { removePasskeysOf } from "../accounts/passkeys_store.ts";
import { hashPassword } from "../accounts/passwords.ts";
import type { Role } from "../accounts/roles.ts";
import { removeTotp } from "../accounts/second_factor_store.ts";
import { setPassword } from "../accounts/sign_in_store.ts";
import { InputError } from "../errors.ts";
import {
  createAccount,
  getAccount,
  listAccounts,
  reactivateAccount,
  setLimits,
  suspendAccount,
} from "../operations/accounts.ts";
import type { Page } from "../platform/pages.ts";
import { defineCommand } from "./context.ts";
import { accountBy, defineOperations } from "./door.ts";
import { changedLimits, type LimitChangeOptions, limitChangeOptions, limitsText } from "./limit_options.ts";
import { addLossesCommand } from "./losses_command.ts";
import { addMarkupCommand } from "./markup_command.ts";
import { formatUsd } from "./money.ts";
import { accountOf, integer, readSecret } from "./options.ts";
import { facts, type Output, table, withMore, yesNo } from "./output.ts";
import { addPrivacyCommands } from "./privacy_commands.ts";

/** The command `account`. */

const PASSWORD_VARIABLE = "ACCOUNT_PASSWORD";

export function addAccountCommands(program: Command): void {
  const account = program.command("account").description("customers, resellers and admins");
  addAdd(account);
  addList(account);
  addPassword(account);
  addRemoveSecondFactor(account);
  addSuspendAndActivate(account);
  addLimits(account);
  addLossesCommand(account);
  addMarkupCommand(account);
  addPrivacyCommands(account);
}

function addAdd(account: Command): void {
  defineOperations<Password & { role: Role; email: string; name: string; reseller?: string }>(
    passwordOptions(
      account
        .command("add")
        .description("add an account; it can sign in once it has a password. With --server it gets an invitation")
        .addOption(
          new Option("--role <role>", "what the account is")
            .choices(["customer", "reseller", "admin"])
            .default("customer"),
        )
        .requiredOption("--email <address>", "its sign-in address; unique within its reseller, or within the service")
        .requiredOption("--name <name>", "1 to 100 characters")
        .option("--reseller <account>", "reseller of a customer, by id or e-mail address"),
    ),
    { changes: true, adds: true },
    async (ask, { role, email, name, reseller, ...password }, _, doorWith) => {
      const hash = await passwordHash(password);
      if (hash !== null && doorWith === undefined)
        throw new InputError("A password is set with the database only. The server makes an invitation instead.");
      const resellerId = reseller === undefined ? undefined : (await accountBy(ask, reseller)).accountId;
      const door = doorWith?.({ passwordHash: hash ?? undefined }) ?? ask;
      const { account: added, link } = await door(createAccount, { role, email, name, resellerId });
      const { text, json } = showAccount(added);
      return link === null
        ? { text, json }
        : { text: `${text}\n${facts([["invitation", link.url]])}`, json: { ...Object(json), link } };
    },
  );
}

function addList(account: Command): void {
  defineOperations<{ role?: Role; reseller?: string; limit: number; before?: number }>(
    account
      .command("list")
      .description("list accounts, newest first")
      .addOption(new Option("--role <role>").choices(["customer", "reseller", "admin"]))
      .option("--reseller <account>", "only customers of this reseller")
      .option("--limit <count>", "number of rows, at most 1000", integer, 100)
      .option("--before <id>", "only accounts older than this one: the last id of the previous page", integer),
    {},
    async (ask, { role, reseller, limit, before }) => {
      const resellerId = reseller === undefined ? undefined : (await accountBy(ask, reseller)).accountId;
      return showAccounts(await ask(listAccounts, { role, resellerId, limit, before }));
    },
  );
}

function addPassword(account: Command): void {
  defineCommand<Password>(
    passwordOptions(
      account.command("password <account>").description("set the password; ends every session of the account"),
    ),
    { changes: true },
    async (context, options, [reference]) => {
      const { accountId } = await accountOf(context, reference);
      const hash = await passwordHash(options);
      if (hash === null)
        throw new InputError(`Give the password: --password-stdin, --password, or the variable ${PASSWORD_VARIABLE}.`);
      await setPassword(context, { accountId, passwordHash: hash });
      return {
        text: `The password of account ${accountId} is set; its sessions have ended.`,
        json: { accountId, passwordSet: true },
      };
    },
  );
}

function passwordOptions(command: Command): Command {
  return command
    .option("--password <password>", `the password; safer: --password-stdin, or the variable ${PASSWORD_VARIABLE}`)
    .option("--password-stdin", "read the password from standard input");
}

type Password = { password?: string; passwordStdin?: true };

async function passwordHash({ password, passwordStdin }: Password): Promise<string | null> {
  const secret = await readSecret({ given: password, stdin: passwordStdin, variable: PASSWORD_VARIABLE });
  return secret === undefined ? null : await hashPassword(secret);
}

function addRemoveSecondFactor(account: Command): void {
  defineCommand(
    account
      .command("remove-second-factor <account>")
      .description(
        "remove a lost second factor, so that the password alone signs in; ends every session of the account",
      )
      .option("--passkeys", "remove the account's passkeys too, such as those of a stolen device"),
    { changes: true },
    async (context, { passkeys }: { passkeys?: true }, [reference]) => {
      const { accountId } = await accountOf(context, reference);
      const removed = await removeTotp(context, accountId);
      const passkeysRemoved = passkeys ? await removePasskeysOf(context, accountId) : 0;
      if (!removed && passkeysRemoved === 0)
        throw new InputError(`Account ${accountId} has no second factor${passkeys ? " and no passkeys" : ""}.`);
      const what = [removed && "the second factor", passkeysRemoved > 0 && `${passkeysRemoved} passkeys`];
      return {
        text: `Removed from account ${accountId}: ${what.filter(Boolean).join(", ")}; its sessions have ended.`,
        json: { accountId, secondFactorRemoved: removed, passkeysRemoved },
      };
    },
  );
}

function addSuspendAndActivate(account: Command): void {
  defineOperations(
    account
      .command("suspend <account>")
      .description("stop its keys and sessions immediately; suspends a reseller's customers with it"),
    { changes: true },
    async (ask, _options, [reference]) =>
      showAccount(await ask(suspendAccount, { accountId: (await accountBy(ask, reference)).accountId })),
  );
  defineOperations(
    account.command("activate <account>").description("end the suspension of an account"),
    { changes: true },
    async (ask, _options, [reference]) =>
      showAccount(await ask(reactivateAccount, { accountId: (await accountBy(ask, reference)).accountId })),
  );
}

function addLimits(account: Command): void {
  defineOperations<LimitChangeOptions>(
    limitChangeOptions(
      account
        .command("limits <account>")
        .description(
          "show the limits of an account over all its keys, or set all of them: one that is left out is removed",
        ),
      { models: true },
    ),
    { changes: true },
    async (ask, options, [reference]) => {
      const { accountId } = await accountBy(ask, reference);
      const own = changedLimits(options);
      const { limits } =
        own === undefined ? await ask(getAccount, { accountId }) : await ask(setLimits, { accountId, limits: own });
      const text = facts([
        ["account", String(accountId)],
        ["its own limits", limitsText(limits.own)],
        ["of its package", limitsText(limits.package)],
        ["of its reseller", limitsText(limits.reseller)],
        ["what applies", limitsText(limits.applied)],
      ]);
      return { text, json: { accountId, limits } };
    },
  );
}

function showAccount(account: Account): Output {
  const text = facts([
    ["account", String(account.accountId)],
    ["role", account.role],
    ["e-mail", account.email],
    ["name", account.name],
    ["reseller", account.resellerId === null ? "none" : String(account.resellerId)],
    ["status", account.status],
    ["password", account.hasPassword ? "set" : "none"],
    ["second factor", account.totpEnabled ? "on" : "off"],
    ["balance", `${formatUsd(account.balanceNanoUsd)}, of which ${formatUsd(account.heldNanoUsd)} reserved`],
    ["pay-as-you-go", account.paygEnabled ? "enabled" : "disabled"],
    ...(account.role === "reseller"
      ? [["pay-as-you-go of customers", account.maySwitchPayg ? "set by the reseller" : "set by an admin"] as const]
      : []),
  ]);
  return { text, json: account };
}

function showAccounts({ rows, hasMore }: Page<Account>): Output {
  const lines = table(
    ["ID", "ROLE", "RESELLER", "E-MAIL", "NAME", "STATUS", "BALANCE", "PAYG"],
    rows.map((row) => [
      String(row.accountId),
      row.role,
      row.resellerId === null ? "" : String(row.resellerId),
      row.email,
      row.name,
      row.status,
      formatUsd(row.balanceNanoUsd),
      yesNo(row.paygEnabled),
    ]),
    "No accounts.",
  );
  return { text: withMore(lines, hasMore, `--before ${rows.at(-1)?.accountId}`), json: { accounts: rows, hasMore } };
}
