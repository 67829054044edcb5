import type { StaticDecode } from "@sinclair/typebox";
import type { Command } from "commander";
import { InputError } from "../errors.ts";
import {
  activateDomain,
  addDomain,
  type DomainDetails,
  listDomains,
  removeDomain,
  suspendDomain,
} from "../operations/domains.ts";
import { accountBy, defineOperations } from "./door.ts";
import { facts, type Output, table } from "./output.ts";
import type { Door } from "./server_door.ts";

/** The command `host`. */

export function addHostCommands(program: Command): void {
  const host = program.command("host").description("domains of resellers");

  defineOperations<{ reseller: string }>(
    host
      .command("add <domain>")
      .description(
        "add a reseller's subdomain; point its A record at this service first. It is active immediately, with --server when its DNS records are right",
      )
      .requiredOption("--reseller <account>", "reseller of the domain, by id or e-mail address"),
    { changes: true },
    async (ask, { reseller }, [host = ""]) =>
      showHost(await ask(addDomain, { host, resellerId: (await accountBy(ask, reseller)).accountId })),
  );

  defineOperations<{ reseller?: string }>(
    host
      .command("list")
      .description("list domains by name")
      .option("--reseller <account>", "only domains of this reseller"),
    {},
    async (ask, { reseller }) => {
      const rows = (await ask(listDomains, await resellerBy(ask, reseller))).domains;
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

  for (const [name, description, operation] of [
    ["suspend", "stop serving a domain immediately, until it is activated", suspendDomain],
    ["activate", "serve a domain, whatever its DNS check found", activateDomain],
  ] as const)
    defineOperations<ResellerOption>(
      resellerOption(host.command(`${name} <domain>`).description(description)),
      { changes: true },
      async (ask, { reseller }, [domain = ""]) => showHost(await ask(operation, await domainBy(ask, domain, reseller))),
    );
  defineOperations<ResellerOption>(
    resellerOption(host.command("remove <domain>").description("remove a domain from its reseller, immediately")),
    { changes: true },
    async (ask, { reseller }, [domain = ""]) => {
      const ref = await domainBy(ask, domain, reseller);
      await ask(removeDomain, ref);
      return { text: `${ref.host} is removed.`, json: { ...ref, status: "removed" } };
    },
  );
}

async function resellerBy(ask: Door, reference: string | undefined): Promise<{ resellerId?: number }> {
  return reference === undefined ? {} : { resellerId: (await accountBy(ask, reference)).accountId };
}

/** The domain of that name: the named reseller's, the active one, or the only one. Throws InputError. */
async function domainBy(ask: Door, domain: string, reseller: string | undefined) {
  const { domains } = await ask(listDomains, await resellerBy(ask, reseller));
  const claims = domains.filter(({ host }) => host === domain);
  const found = claims.find(({ status }) => status === "active") ?? (claims.length === 1 ? claims[0] : undefined);
  if (found) return { host: found.host, resellerId: found.resellerId };
  throw new InputError(
    claims.length > 1
      ? "Several resellers have added this domain, and it is active for none of them. Name one with --reseller."
      : "There is no such domain.",
  );
}

function showHost({ host, resellerId, status, instructions }: StaticDecode<typeof DomainDetails>): Output {
  const text = facts([
    ["domain", host],
    ["reseller", String(resellerId)],
    ["status", status],
  ]);
  const isReady = status === "active" || status === "suspended";
  return { text: isReady ? text : `${text}\n\n${instructions}`, json: { host, resellerId, status } };
}
