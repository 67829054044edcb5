import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";

/** Names of hosts. Here and in every table a host is a lowercase name without a port. */

const HOST_CHARS_MAX = 253;
/** Leaves room for the label of the record that proves a name. */
const DOMAIN_CHARS_MAX = 240;
const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const LOCAL_HOSTS = ["localhost", "127.0.0.1"];
/** Second-level names under which countries register: `acme.co.uk` is an apex though it has three labels. */
const REGISTRY_LABELS = new Set(["ac", "co", "com", "edu", "gov", "net", "ne", "or", "org"]);

export type HostConfig = Pick<Config, "baseUrl" | "aliasUrl" | "panelUrl" | "allowLocalHosts">;

/** The service's own hosts: API, alias, panel, and the local ones where they are allowed. */
export function ownHosts(config: HostConfig): ReadonlySet<string> {
  const urls = [config.baseUrl, config.aliasUrl, config.panelUrl].filter((url) => url !== "");
  return new Set([...urls.map((url) => new URL(url).hostname), ...(config.allowLocalHosts ? LOCAL_HOSTS : [])]);
}

/** Whether `host` is spelled like a domain name in ASCII: two labels or more, not an address. */
export function isHostName(host: string): boolean {
  const labels = host.split(".");
  if (host.length > HOST_CHARS_MAX || labels.length < 2 || !labels.every((label) => LABEL.test(label))) return false;
  // Also refuses numbers that read as an IPv4 address, and labels that are no valid punycode.
  return (
    URL.canParse(`http://${host}`) && new URL(`http://${host}`).hostname === host && !/^\d+$/.test(labels.at(-1) ?? "")
  );
}

/**
 * A domain that a reseller may bring; given by the operator (`isGiven`) it may also be a name of the operator's own zone.
 * Throws InputError. Source: contract › What the service does, 3.
 */
export function checkDomain(value: string, own: ReadonlySet<string>, isGiven = false): string {
  const domain = value.trim();
  const wrong = (message: string) => new InputError(message, "host");
  if (/[^\x20-\x7e]/.test(domain)) throw wrong("Write the domain in its ASCII form (xn--…).");
  if (domain !== domain.toLowerCase()) throw wrong("Write the domain in lower case.");
  if (!isHostName(domain)) throw wrong("This is not a domain name, as in ai.example.com.");
  if (domain.length > DOMAIN_CHARS_MAX) throw wrong(`A domain may have at most ${DOMAIN_CHARS_MAX} characters.`);
  if (domain === zoneOf(domain)) throw wrong("Use a subdomain, as in ai.example.com, not the domain itself.");
  // A wildcard record beside or below our own names would prove them to anybody.
  const isOurs = [...own].some((host) => domain === host || (!isGiven && domain.endsWith(`.${zoneOf(host)}`)));
  if (isOurs) throw wrong("This name belongs to the service itself.");
  return domain;
}

/** How a record is called inside its zone: "ai" for ai.example.com, "_verify.ai" for _verify.ai.example.com. */
export function labelOf(name: string): string {
  return name.slice(0, -zoneOf(name).length - 1);
}

/** What is registered, as far as a name tells: two labels, or three. What is no name of labels is its own zone. */
function zoneOf(name: string): string {
  const labels = name.split(".");
  const [registry = "", country = ""] = labels.slice(-2);
  if (/^\d*$/.test(country)) return name;
  return labels.slice(country.length === 2 && REGISTRY_LABELS.has(registry) ? -3 : -2).join(".");
}
