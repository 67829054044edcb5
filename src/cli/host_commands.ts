import type { Command } from "commander";
import {
  addHost,
  findHost,
  type HostRef,
  listHosts,
  type ResellerHost,
  removeHost,
  setHostStatus,
} from "../accounts/hosts_store.ts";
import { InputError } from "../errors.ts";
import { type Context, defineCommand } from "./context.ts";
import { accountOf } from "./options.ts";
import { facts, type Output, table } from "./output.ts";

/** The command `host`. */

export function addHostCommands(program: Command): void {
  const host = program.command("host").description("domains of resellers");

  defineCommand<{ reseller: string }>(
    host
      .command("add <domain>")
      .description("add a reseller's subdomain, active immediately; point its A record at this service first")
      .requiredOption("--reseller <account>", "reseller of the domain, by id or e-mail address"),
    { changes: true },
    async (context, { reseller }, [domain = ""]) => {
      const { accountId } = await accountOf(context, reseller);
      return showHost(await addHost(context, { host: domain, resellerId: accountId, status: "active" }));
    },
  );

  defineCommand<{ reseller?: string }>(
    host
      .command("list")
      .description("list domains by name")
      .option("--reseller <account>", "only domains of this reseller"),
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
          row.nextCheckAt ?? (row.byHand ? "none: set manually" : "none"),
        ]),
        "No domains.",
      );
      return { text, json: { hosts: rows } };
    },
  );

  const resellerOption = (command: Command) =>
    command.option("--reseller <account>", "reseller of the domain, if several have added it; by id or e-mail address");
  type ResellerOption = { reseller?: string };

  defineCommand<ResellerOption>(
    resellerOption(
      host.command("suspend <domain>").description("stop serving a domain immediately, until it is activated"),
    ),
    { changes: true },
    async (context, { reseller }, [domain = ""]) =>
      showHost(await setHostStatus(context, { ...(await hostOf(context, domain, reseller)), status: "suspended" })),
  );
  defineCommand<ResellerOption>(
    resellerOption(host.command("activate <domain>").description("serve a domain, whatever its DNS check found")),
    { changes: true },
    async (context, { reseller }, [domain = ""]) =>
      showHost(await setHostStatus(context, { ...(await hostOf(context, domain, reseller)), status: "active" })),
  );
  defineCommand<ResellerOption>(
    resellerOption(host.command("remove <domain>").description("remove a domain from its reseller, immediately")),
    { changes: true },
    async (context, { reseller }, [domain = ""]) => {
      const ref = await hostOf(context, domain, reseller);
      if (!(await removeHost(context, ref, true))) throw new InputError("There is no such domain.");
      return { text: `${ref.host} is removed.`, json: { ...ref, status: "removed" } };
    },
  );
}

/** The domain of that name that is not removed: the named reseller's, the active one, or the only one. Throws InputError. */
async function hostOf(context: Context, domain: string, reseller: string | undefined): Promise<HostRef> {
  const resellerId = reseller === undefined ? undefined : (await accountOf(context, reseller)).accountId;
  const found = await findHost(context, { host: domain, ...(resellerId !== undefined && { resellerId }) });
  if (found) return { host: found.host, resellerId: found.resellerId };
  const claims = (await listHosts(context)).filter(({ host }) => host === domain);
  throw new InputError(
    claims.length > 1 && resellerId === undefined
      ? "Several resellers have added this domain, and it is active for none of them. Name one with --reseller."
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
