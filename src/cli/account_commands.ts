import type { Command } from "commander";
import { Option } from "commander";
import { type Account, activateAccount, addAccount, listAccounts, suspendAccount } from "../accounts/accounts_store.ts";
import {
  addHost,
  findHost,
  type HostRef,
  listHosts,
  type ResellerHost,
  removeHost,
  setHostStatus,
} from "../accounts/hosts_store.ts";
import {
  createKey,
  disableKey,
  enableKey,
  findKey,
  type Key,
  type KeyMode,
  listKeys,
  revokeKey,
  rotateKey,
} from "../accounts/keys_store.ts";
import { hashPassword } from "../accounts/passwords.ts";
import type { Role } from "../accounts/roles.ts";
import { removeTotp } from "../accounts/second_factor_store.ts";
import { setPassword } from "../accounts/sign_in_store.ts";
import { InputError } from "../errors.ts";
import { type Context, does } from "./context.ts";
import { formatUsd } from "./money.ts";
import { accountOf, idOf, integer, list, readSecret } from "./options.ts";
import { facts, type Output, scope, table, yesNo } from "./output.ts";

/** The commands `account`, `key` and `host`. */

const PASSWORD_VARIABLE = "ACCOUNT_PASSWORD";
const OVERLAP_SECONDS_DEFAULT = 86_400;

export function addAccountCommands(program: Command): void {
  const account = program.command("account").description("customers, resellers and admins");
  const passwordOptions = (command: Command) =>
    command
      .option("--password <password>", `the password; better: --password-stdin, or the variable ${PASSWORD_VARIABLE}`)
      .option("--password-stdin", "read the password from standard input");

  type Password = { password?: string; passwordStdin?: true };
  const passwordHash = async ({ password, passwordStdin }: Password) => {
    const secret = await readSecret({ given: password, stdin: passwordStdin, variable: PASSWORD_VARIABLE });
    return secret === undefined ? null : await hashPassword(secret);
  };

  does<Password & { role: Role; email: string; name: string; reseller?: string }>(
    passwordOptions(
      account
        .command("add")
        .description("add an account; without a password nobody can sign in to it yet")
        .addOption(
          new Option("--role <role>", "what it may do").choices(["customer", "reseller", "admin"]).default("customer"),
        )
        .requiredOption("--email <address>", "where it signs in; unique within its tenant")
        .requiredOption("--name <name>", "1 to 100 characters")
        .option("--reseller <account>", "the reseller a customer belongs to, by id or address"),
    ),
    { changes: true },
    async (context, { role, email, name, reseller, ...password }) => {
      const resellerId = reseller === undefined ? null : (await accountOf(context, reseller)).accountId;
      return showAccount(
        await addAccount(context, { role, email, name, resellerId, passwordHash: await passwordHash(password) }),
      );
    },
  );

  does<{ role?: Role; reseller?: string; limit: number; before?: number }>(
    account
      .command("list")
      .description("accounts, newest first")
      .addOption(new Option("--role <role>").choices(["customer", "reseller", "admin"]))
      .option("--reseller <account>", "only this reseller's customers")
      .option("--limit <count>", "rows, 1000 at most", integer, 100)
      .option("--before <id>", "older than this account: the last id of the page before", integer),
    {},
    async (context, { role, reseller, limit, before }) => {
      const resellerId = reseller === undefined ? undefined : (await accountOf(context, reseller)).accountId;
      return showAccounts(await listAccounts(context, { role, resellerId, limit, before }));
    },
  );

  does<Password>(
    passwordOptions(
      account.command("password <account>").description("set the password; every session of the account ends"),
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

  does(
    account
      .command("remove-second-factor <account>")
      .description("for who lost it: the password alone signs in; every session of the account ends"),
    { changes: true },
    async (context, _options, [reference]) => {
      const { accountId } = await accountOf(context, reference);
      if (!(await removeTotp(context, accountId))) throw new InputError(`Account ${accountId} has no second factor.`);
      return {
        text: `The second factor of account ${accountId} is removed; its sessions have ended.`,
        json: { accountId, secondFactorRemoved: true },
      };
    },
  );

  does(
    account
      .command("suspend <account>")
      .description("stop its keys and sessions at once; a reseller's customers are stopped with it"),
    { changes: true },
    async (context, _options, [reference]) => setSuspended(context, reference, true),
  );
  does(
    account.command("activate <account>").description("undo a suspension"),
    { changes: true },
    async (context, _options, [reference]) => setSuspended(context, reference, false),
  );
}

async function setSuspended(context: Context, reference: string | undefined, suspended: boolean): Promise<Output> {
  const { accountId } = await accountOf(context, reference);
  await (suspended ? suspendAccount(context, accountId) : activateAccount(context, accountId));
  return showAccount(await accountOf(context, String(accountId)));
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
    ["balance", `${formatUsd(account.balanceNanoUsd)}, ${formatUsd(account.heldNanoUsd)} of it held`],
    ["PAYG", account.paygEnabled ? "enabled" : "disabled"],
    ...(account.role === "reseller"
      ? [["PAYG of customers", account.maySwitchPayg ? "may switch it" : "an admin switches it"] as const]
      : []),
  ]);
  return { text, json: account };
}

function showAccounts({ rows, hasMore }: { rows: Account[]; hasMore: boolean }): Output {
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
    "There are no accounts.",
  );
  return { text: withMore(lines, hasMore, `--before ${rows.at(-1)?.accountId}`), json: { accounts: rows, hasMore } };
}

function withMore(lines: string, hasMore: boolean, next: string): string {
  return hasMore ? `${lines}\nThere are more: ${next}` : lines;
}

export function addKeyCommands(program: Command): void {
  const key = program.command("key").description("API keys");

  does<{ account: string; name: string; mode: KeyMode; model?: string[]; host?: string[]; expires?: string }>(
    key
      .command("add")
      .description("create a key; it is shown in full this once")
      .requiredOption("--account <account>", "whose key, by id or address")
      .requiredOption("--name <name>", "1 to 100 characters")
      .addOption(new Option("--mode <mode>", "what pays").choices(["package", "payg"]).default("package"))
      .option("--model <id>", "a model it may name; again for more (default: all)", list)
      .option("--host <host>", "a host it may be used on; again for more (default: all)", list)
      .option("--expires <time>", "when it ends, as 2030-01-31T00:00:00Z (default: never)"),
    { changes: true },
    async (context, { account, name, mode, model = null, host = null, expires = null }) => {
      const { accountId } = await accountOf(context, account);
      const { secret, key: created } = await createKey(context, {
        accountId,
        name,
        mode,
        modelIds: model,
        hosts: host,
        expiresAt: expires,
      });
      return { text: `${secret}\n\n${ONCE}\n\n${keyFacts(created)}`, json: { secret, ...created } };
    },
  );

  does<{ account?: string; limit: number; before?: number }>(
    key
      .command("list")
      .description("keys, newest first")
      .option("--account <account>", "only this account's, by id or address")
      .option("--limit <count>", "rows, 1000 at most", integer, 100)
      .option("--before <id>", "older than this key: the last id of the page before", integer),
    {},
    async (context, { account, limit, before }) => {
      const accountId = account === undefined ? undefined : (await accountOf(context, account)).accountId;
      const { rows, hasMore } = await listKeys(context, { accountId, limit, before });
      const lines = table(
        ["ID", "ACCOUNT", "NAME", "KEY", "MODE", "MODELS", "HOSTS", "STATUS", "EXPIRES"],
        rows.map((row) => [
          String(row.keyId),
          String(row.accountId),
          row.name,
          row.masked,
          row.mode,
          scope(row.modelIds),
          scope(row.hosts),
          row.status,
          row.expiresAt ?? "never",
        ]),
        "There are no keys.",
      );
      return { text: withMore(lines, hasMore, `--before ${rows.at(-1)?.keyId}`), json: { keys: rows, hasMore } };
    },
  );

  const changes = [
    ["revoke", "end a key for good", revokeKey],
    ["disable", "switch a key off until it is enabled again", disableKey],
    ["enable", "switch a disabled key on", enableKey],
  ] as const;
  for (const [name, description, change] of changes) {
    does(
      key.command(`${name} <key-id>`).description(description),
      { changes: true },
      async (context, _options, [id]) => {
        const changed = await change(context, await keyOf(context, id));
        return { text: keyFacts(changed), json: changed };
      },
    );
  }

  does<{ overlap: number }>(
    key
      .command("rotate <key-id>")
      .description("replace a key by a new one with the same settings; it is shown in full this once")
      .option("--overlap <seconds>", "the old key works for this much longer", integer, OVERLAP_SECONDS_DEFAULT),
    { changes: true },
    async (context, { overlap }, [id]) => {
      const {
        secret,
        key: created,
        old,
      } = await rotateKey(context, { ...(await keyOf(context, id)), overlapSeconds: overlap });
      const ends = `The old key ${old.masked} ends at ${old.expiresAt}.`;
      return { text: `${secret}\n\n${ONCE}\n${ends}\n\n${keyFacts(created)}`, json: { secret, ...created, old } };
    },
  );
}

const ONCE = "This is the only time the key is shown. Keep it on a server, never in a browser or an app.";

/** A key is known by its id alone; whose it is, is looked up. */
async function keyOf(context: Context, id: string | undefined): Promise<{ accountId: number; keyId: number }> {
  const keyId = idOf(id, "key's id");
  const key = await findKey(context, { keyId });
  if (!key) throw new InputError(`There is no key ${keyId}.`);
  return { accountId: key.accountId, keyId };
}

function keyFacts(key: Key): string {
  return facts([
    ["key", `${key.keyId} (${key.masked})`],
    ["account", String(key.accountId)],
    ["name", key.name],
    ["mode", key.mode],
    ["models", scope(key.modelIds)],
    ["hosts", scope(key.hosts)],
    ["status", key.status],
    ["expires", key.expiresAt ?? "never"],
  ]);
}

export function addHostCommands(program: Command): void {
  const host = program.command("host").description("resellers' own domains");

  does<{ reseller: string }>(
    host
      .command("add <domain>")
      .description("add a reseller's subdomain, active at once: point its A record at this service first")
      .requiredOption("--reseller <account>", "whose domain, by id or address"),
    { changes: true },
    async (context, { reseller }, [domain = ""]) => {
      const { accountId } = await accountOf(context, reseller);
      return showHost(await addHost(context, { host: domain, resellerId: accountId, status: "active" }));
    },
  );

  does<{ reseller?: string }>(
    host.command("list").description("domains by name").option("--reseller <account>", "only this reseller's"),
    {},
    async (context, { reseller }) => {
      const resellerId = reseller === undefined ? undefined : (await accountOf(context, reseller)).accountId;
      const rows = await listHosts(context, { resellerId });
      const text = table(
        ["DOMAIN", "RESELLER", "STATUS", "ADDED", "CHECKED", "NEXT CHECK"],
        rows.map((row) => [
          row.host,
          String(row.resellerId),
          row.status,
          row.createdAt,
          row.checkedAt ?? "never",
          row.nextCheckAt ?? (row.byHand ? "none: set by hand" : "none"),
        ]),
        "There are no domains.",
      );
      return { text, json: { hosts: rows } };
    },
  );

  const ofOne = (command: Command) =>
    command.option("--reseller <account>", "whose, where several have added the domain; by id or address");
  type OfOne = { reseller?: string };

  does<OfOne>(
    ofOne(host.command("suspend <domain>").description("stop answering on a domain at once, until it is activated")),
    { changes: true },
    async (context, { reseller }, [domain = ""]) =>
      showHost(await setHostStatus(context, { ...(await hostOf(context, domain, reseller)), status: "suspended" })),
  );
  does<OfOne>(
    ofOne(host.command("activate <domain>").description("answer on a domain, whatever its check says")),
    { changes: true },
    async (context, { reseller }, [domain = ""]) =>
      showHost(await setHostStatus(context, { ...(await hostOf(context, domain, reseller)), status: "active" })),
  );
  does<OfOne>(
    ofOne(host.command("remove <domain>").description("take a domain from its reseller, at once")),
    { changes: true },
    async (context, { reseller }, [domain = ""]) => {
      const ref = await hostOf(context, domain, reseller);
      if (!(await removeHost(context, ref, true))) throw new InputError("There is no such domain.");
      return { text: `${ref.host} is removed.`, json: { ...ref, status: "removed" } };
    },
  );
}

/** The living domain of that name: the named reseller's, the active one, or the only one. Throws InputError. */
async function hostOf(context: Context, domain: string, reseller: string | undefined): Promise<HostRef> {
  const resellerId = reseller === undefined ? undefined : (await accountOf(context, reseller)).accountId;
  const found = await findHost(context, { host: domain, ...(resellerId !== undefined && { resellerId }) });
  if (found) return { host: found.host, resellerId: found.resellerId };
  const claims = (await listHosts(context)).filter(({ host }) => host === domain);
  throw new InputError(
    claims.length > 1 && resellerId === undefined
      ? "Several resellers have added this domain, and none has it active: say whose with --reseller."
      : "There is no such domain.",
  );
}

function showHost(host: ResellerHost): Output {
  const text = facts([
    ["domain", host.host],
    ["reseller", String(host.resellerId)],
    ["status", host.status],
  ]);
  return { text, json: host };
}
