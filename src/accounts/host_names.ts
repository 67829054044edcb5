import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import { DOMAIN_CHARS_MAX, HOST_CHARS_MAX } from "../limits.ts";

/** Host names. Everywhere in the code and the tables, a host is a lowercase name without a port. */

const LABEL = /^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$/;
const LOCAL_HOSTS = ["localhost", "127.0.0.1"];
/** Second-level labels under which countries register names: `acme.co.uk` is an apex although it has three labels. */
const REGISTRY_LABELS = new Set(["ac", "co", "com", "edu", "gov", "net", "ne", "or", "org"]);

export type HostConfig = Pick<Config, "baseUrl" | "aliasUrl" | "panelUrl" | "allowLocalHosts">;

/** The service's own hosts: API, alias, panel, and local ones if they are allowed. */
export function ownHosts(config: HostConfig): ReadonlySet<string> {
  const urls = [config.baseUrl, config.aliasUrl, config.panelUrl].filter((url) => url !== "");
  return new Set([...urls.map((url) => new URL(url).hostname), ...(config.allowLocalHosts ? LOCAL_HOSTS : [])]);
}

/** Whether `host` is a syntactically valid ASCII domain name: two labels or more, not an IP address. */
export function isHostName(host: string): boolean {
  const labels = host.split(".");
  if (host.length > HOST_CHARS_MAX || labels.length < 2 || !labels.every((label) => LABEL.test(label))) return false;
  // The URL check also rejects numbers that parse as an IPv4 address, and invalid punycode.
  return (
    URL.canParse(`http://${host}`) && new URL(`http://${host}`).hostname === host && !/^\d+$/.test(labels.at(-1) ?? "")
  );
}

/**
 * A domain that a reseller may add. If the operator adds it (`isGiven`), it may also be in the operator's own zone. Throws InputError.
 * Source: DOM-1.
 */
export function checkDomain(value: string, own: ReadonlySet<string>, isGiven = false): string {
  const domain = value.trim();
  const wrong = (message: string) => new InputError(message, "host");
  if (/[^\x20-\x7e]/.test(domain)) throw wrong("Write the domain in its ASCII form (xn--…).");
  if (domain !== domain.toLowerCase()) throw wrong("Write the domain in lower case.");
  if (!isHostName(domain)) throw wrong("This is not a domain name, as in ai.example.com.");
  if (domain.length > DOMAIN_CHARS_MAX) throw wrong(`A domain may have at most ${DOMAIN_CHARS_MAX} characters.`);
  if (domain === zoneOf(domain)) throw wrong("Use a subdomain, as in ai.example.com, not the domain itself.");
  // With a wildcard record in our own zone, anybody could prove names in it.
  const isOurs = [...own].some((host) => domain === host || (!isGiven && domain.endsWith(`.${zoneOf(host)}`)));
  if (isOurs) throw wrong("This name belongs to the service itself.");
  return domain;
}

/** The name of a record inside its zone: "ai" for ai.example.com, "_verify.ai" for _verify.ai.example.com. */
export function labelOf(name: string): string {
  return name.slice(0, -zoneOf(name).length - 1);
}

/** The registered domain, judged by its name: the last two labels, or three. An IP address is its own zone. */
function zoneOf(name: string): string {
  const labels = name.split(".");
  const [registry = "", country = ""] = labels.slice(-2);
  if (/^\d*$/.test(country)) return name;
  return labels.slice(country.length === 2 && REGISTRY_LABELS.has(registry) ? -3 : -2).join(".");
}
