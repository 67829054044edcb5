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
import { type Context, does } from "./context.ts";
import { accountOf } from "./options.ts";
import { facts, type Output, table } from "./output.ts";

/** The command `host`. */

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
