import type { Config } from "../config.ts";
import { labelOf } from "./host_names.ts";
import type { ResellerHost } from "./hosts_store.ts";

/** The DNS records that a reseller must set for a domain. Pure. Source: DOM-1, DOM-3. */

/** Below the domain, so that it conflicts with no other record; does not reveal the operator. */
const PROOF_LABEL = "_verify";
/** Characters of a token that make a name nobody has set: 48 bits. The longest domain leaves room for them. */
const BESIDE_CHARS = 12;

export type DomainRecord = {
  type: "A" | "TXT";
  name: string;
  /** The name inside its zone, as most DNS editors want it: "ai". A guess if the zone is not a registered name. */
  label: string;
  value: string;
};

/** The records that a domain must have; no AAAA, no CNAME. TXT only if the name must be proved. */
export function recordsOf(
  { host, contested, token }: Pick<ResellerHost, "host" | "contested" | "token">,
  { serverAddresses }: Pick<Config, "serverAddresses">,
): DomainRecord[] {
  const proofName = proofNameOf(host);
  const addresses = serverAddresses.map((value) => ({ type: "A" as const, name: host, label: labelOf(host), value }));
  if (!contested) return addresses;
  return [...addresses, { type: "TXT", name: proofName, label: labelOf(proofName), value: token }];
}

/** The name of the TXT record that proves a domain. */
export function proofNameOf(host: string): string {
  return `${PROOF_LABEL}.${host}`;
}

/** A name beside a domain that nobody has set, because it is made of the domain's token. Only a wildcard record answers for it. */
export function nameBeside(host: string, token: string): string {
  return `${token.slice(0, BESIDE_CHARS)}${host.slice(host.indexOf("."))}`;
}

/** The same in plain text, to pass on to the DNS administrator; the panel has it in its language. Does not reveal the operator. */
export function instructionsFor(host: string, records: readonly DomainRecord[]): string {
  const listed = records.map(
    ({ type, name, label, value }) => `   Type: ${type}\n   Name: ${label} (in full: ${name})\n   Value: ${value}\n`,
  );
  return [
    `DNS records for ${host}`,
    "",
    `1. Delete every CNAME and AAAA record of ${host}, and every A record of it that is not listed below.`,
    "",
    "2. Add these records:",
    "",
    ...listed,
    "3. Switch off any proxy or forwarding for these records: the name must resolve to this address.",
    "",
    "The change may take as long as the TTL of the old records. No other records of the domain need to change.",
  ].join("\n");
}
