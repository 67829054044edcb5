import type { Config } from "../config.ts";
import { labelOf } from "./host_names.ts";
import type { ResellerHost } from "./hosts_store.ts";

/** What a reseller is told to set for a domain. Pure. Source: contract › What the service does, 3; rulings › Domains. */

/** Below the domain, so that it can stand beside any other record; it names nobody. */
const PROOF_LABEL = "_verify";

export type DomainRecord = {
  type: "A" | "TXT";
  name: string;
  /** The name inside its zone, as most DNS editors want it: "ai". A guess for zones that are not registered names. */
  label: string;
  value: string;
};

/** The records a domain must have; no AAAA, no CNAME. TXT only where the name must be proven. */
export function recordsOf(
  { host, contested, token }: Pick<ResellerHost, "host" | "contested" | "token">,
  { serverAddresses }: Pick<Config, "serverAddresses">,
): DomainRecord[] {
  const proofName = proofNameOf(host);
  const addresses = serverAddresses.map((value) => ({ type: "A" as const, name: host, label: labelOf(host), value }));
  if (!contested) return addresses;
  return [...addresses, { type: "TXT", name: proofName, label: labelOf(proofName), value: token }];
}

/** Where the TXT record stands that proves a name. */
export function proofNameOf(host: string): string {
  return `${PROOF_LABEL}.${host}`;
}

/** The same in plain text, to be handed on to whoever runs the DNS. Names no operator. */
export function instructionsFor(host: string, records: readonly DomainRecord[]): string {
  const listed = records.map(
    ({ type, name, label, value }) =>
      `   Type:  ${type}\n   Name:  ${label}   (in full: ${name})\n   Value: ${value}\n`,
  );
  return [
    `DNS records for ${host}`,
    "",
    `1. Delete every CNAME and AAAA record of ${host}, and every A record of it that is not listed below.`,
    "",
    "2. Add these records:",
    "",
    ...listed,
    "3. Switch off any proxy or forwarding for these records: the name must lead straight to this address.",
    "",
    "The change can take as long to be seen as the old records' TTL. Nothing else of the domain needs to change.",
  ].join("\n");
}
