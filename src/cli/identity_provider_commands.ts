import type { StaticDecode } from "@sinclair/typebox";
import { type Command, Option } from "commander";
import { MEMBER_ROLES, type MemberRole } from "../accounts/member_roles.ts";
import { InputError } from "../errors.ts";
import {
  createIdentityProvider,
  listIdentityProviders,
  proveIdentityDomains,
  removeIdentityProvider,
  updateIdentityProvider,
} from "../operations/identity_providers.ts";
import { IDENTITY_KINDS } from "../platform/schema_identities.ts";
import { accountBy, defineOperations, sellerBy } from "./door.ts";
import { readSecret, SELLER } from "./options.ts";
import { facts, type Output, table } from "./output.ts";
import type { Door } from "./server_door.ts";

/** The command `identity-provider`: by which identity providers a seller's people sign in. Source: OIDC-1. */

type Provider = StaticDecode<typeof createIdentityProvider.output>;

const SECRET_VARIABLE = "IDENTITY_CLIENT_SECRET";

export function addIdentityProviderCommands(program: Command): void {
  const provider = program.command("identity-provider").description("where people sign in, beside here");
  addList(provider);
  addAdd(provider);
  addSet(provider);
  addProve(provider);
  addRemove(provider);
}

type Of = { seller?: string };

function ofSeller(command: Command): Command {
  return command.option("--seller <reseller>", SELLER);
}

function addList(provider: Command): void {
  defineOperations<Of>(
    ofSeller(provider.command("list").description("list the identity providers, without their secrets")),
    {},
    async (ask, { seller }) => {
      const { identityProviders } = await ask(listIdentityProviders, await sellerBy(ask, seller));
      const rows = identityProviders.map((one) => [
        String(one.identityProviderId),
        one.name,
        one.kind,
        one.issuer,
        domainsOf(one),
        String(one.people),
        one.enabled ? "on" : "off",
      ]);
      return {
        text: table(["ID", "NAME", "KIND", "ISSUER", "DOMAINS", "PEOPLE", "STATE"], rows, "No identity providers."),
        json: { identityProviders },
      };
    },
  );
}

type Settings = Of & {
  clientId?: string;
  clientSecret?: string;
  clientSecretStdin?: boolean;
  scopes?: string;
  domains?: string;
  account?: string;
  roleClaim?: string;
  role?: string[];
};

function withSettings(command: Command): Command {
  return ofSeller(command)
    .option("--client-secret <secret>", `safer: --client-secret-stdin, or for add the variable ${SECRET_VARIABLE}`)
    .option("--client-secret-stdin", "read the client secret from standard input")
    .option("--scopes <scopes>", 'separated by spaces, as in "openid email profile"')
    .option("--domains <domains>", "mail domains whose addresses sign in, separated by commas; all: every domain")
    .option("--account <account>", "a customer whose members sign in by it, by id or e-mail address; none: nobody's")
    .option("--role-claim <claim>", "the claim that gives their role, as in groups")
    .option("--role <value=role...>", "a value of the claim and its role, as in staff=developer; may be repeated");
}

function addAdd(provider: Command): void {
  defineOperations<Settings & { kind: (typeof IDENTITY_KINDS)[number]; clientId: string; issuer?: string }>(
    withSettings(
      provider
        .command("add <name>")
        .description("add an identity provider; its issuer is asked first")
        .addOption(new Option("--kind <kind>", "what it is").choices([...IDENTITY_KINDS]).default("oidc"))
        .option("--issuer <url>", "its URL; Google and GitHub have one")
        .requiredOption("--client-id <id>", "what it gave you"),
    ),
    { changes: true, secretKey: true },
    async (ask, { kind, clientId, issuer, ...options }, [name = ""]) => {
      const clientSecret = await secretOf(options, SECRET_VARIABLE);
      if (clientSecret === undefined)
        throw new InputError(`Give the client secret: --client-secret-stdin, or the variable ${SECRET_VARIABLE}.`);
      const settings = await settingsOf(ask, options);
      const added = await ask(createIdentityProvider, { kind, name, clientId, issuer, clientSecret, ...settings });
      return show(added);
    },
  );
}

function addSet(provider: Command): void {
  defineOperations<Settings & { rename?: string; on?: true; off?: true }>(
    withSettings(
      provider
        .command("set <provider>")
        .description("change an identity provider, or switch it on or off; what is left out stays")
        .option("--rename <name>", "its new name")
        .option("--client-id <id>", "its new client id")
        .addOption(new Option("--on", "people sign in by it").conflicts("off"))
        .option("--off", "no one signs in by it, and who did is signed out"),
    ),
    { changes: true, secretKey: true },
    async (ask, { rename, on, off, clientId, ...options }, [reference = ""]) => {
      const of = await providerBy(ask, options, reference);
      const settings = await settingsOf(ask, options);
      const clientSecret = await secretOf(options);
      const enabled = on || off ? on === true : undefined;
      const changes = { ...settings, ...of, name: rename, clientId, clientSecret, enabled };
      return show(await ask(updateIdentityProvider, changes));
    },
  );
}

function addProve(provider: Command): void {
  defineOperations<Of>(
    ofSeller(provider.command("prove <provider>").description("look for the DNS records that prove its mail domains")),
    { changes: true },
    async (ask, options, [reference = ""]) =>
      show(await ask(proveIdentityDomains, await providerBy(ask, options, reference))),
  );
}

function addRemove(provider: Command): void {
  defineOperations<Of>(
    ofSeller(provider.command("remove <provider>").description("remove one, with the identities that people linked")),
    { changes: true },
    async (ask, options, [reference = ""]) => {
      const removed = await ask(removeIdentityProvider, await providerBy(ask, options, reference));
      return { text: "The identity provider is removed.", json: removed };
    },
  );
}

function secretOf({ clientSecret, clientSecretStdin }: Settings, variable?: string): Promise<string | undefined> {
  return readSecret({
    ...(clientSecret !== undefined && { given: clientSecret }),
    ...(clientSecretStdin !== undefined && { stdin: clientSecretStdin }),
    ...(variable !== undefined && { variable }),
  });
}

async function settingsOf(ask: Door, { seller, scopes, domains, account, roleClaim, role }: Settings) {
  return {
    ...(await sellerBy(ask, seller)),
    ...(scopes !== undefined && { scopes }),
    ...(domains !== undefined && { mailDomains: domains === "all" ? [] : domains.split(",") }),
    ...(account === "none" && { accountId: null, roleClaim: null, roles: [] }),
    ...(account !== undefined && account !== "none" && { accountId: (await accountBy(ask, account)).accountId }),
    ...(roleClaim !== undefined && { roleClaim }),
    ...(role !== undefined && { roles: role.map(roleOf) }),
  };
}

function roleOf(text: string): { value: string; role: MemberRole } {
  const at = text.lastIndexOf("=");
  const role = MEMBER_ROLES.find((one) => one === text.slice(at + 1).trim());
  if (at < 1 || role === undefined)
    throw new InputError(`--role is a value and a role, as in staff=developer. Roles: ${MEMBER_ROLES.join(", ")}.`);
  return { value: text.slice(0, at).trim(), role };
}

/** The identity provider with this id or name. Throws InputError. */
async function providerBy(ask: Door, { seller }: Of, reference: string) {
  const of = await sellerBy(ask, seller);
  const { identityProviders } = await ask(listIdentityProviders, of);
  const found = identityProviders.find((one) => String(one.identityProviderId) === reference || one.name === reference);
  if (!found)
    throw new InputError(`There is no identity provider ${JSON.stringify(reference)}: give its id or its name.`);
  return { ...of, identityProviderId: found.identityProviderId };
}

function domainsOf({ mailDomains }: Provider): string {
  if (mailDomains.length === 0) return "all";
  return mailDomains.map(({ domain, isProved }) => (isProved ? domain : `${domain} (not proved)`)).join(", ");
}

function show(provider: Provider): Output {
  const { identityProviderId, name, kind, issuer, clientId, enabled, roleClaim, roles, accountId } = provider;
  const text = facts([
    ["identity provider", `${identityProviderId} (${name})`],
    ["kind", kind],
    ["issuer", issuer],
    ["client id", clientId],
    ["mail domains", domainsOf(provider)],
    ...(accountId === null
      ? []
      : ([
          ["members of account", String(accountId)],
          ["role claim", `${roleClaim}: ${roles.map(({ value, role }) => `${value}=${role}`).join(", ")}`],
        ] satisfies [string, string][])),
    ["state", enabled ? "on" : "off"],
    ...provider.redirectUris.map((uri): [string, string] => ["redirect URI", uri]),
    ...provider.records.map((record): [string, string] => ["TXT record", `${record.name} ${record.value}`]),
  ]);
  return { text, json: provider };
}
