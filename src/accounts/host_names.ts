import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";

/** Names of hosts. Here and in every table a host is a lowercase name without a port. */

const HOST_CHARS_MAX = 253;
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

/** A domain that a reseller may bring. Throws InputError. Source: contract › What the service does, 3. */
export function checkDomain(value: string, own: ReadonlySet<string>): string {
  const domain = value.trim();
  const wrong = (message: string) => new InputError(message, "host");
  if (/[^\x20-\x7e]/.test(domain)) throw wrong("Write the domain in its ASCII form (xn--…).");
  if (domain !== domain.toLowerCase()) throw wrong("Write the domain in lower case.");
  if (!isHostName(domain)) throw wrong("This is not a domain name, as in ai.example.com.");
  if (isApex(domain.split("."))) throw wrong("Use a subdomain, as in ai.example.com, not the domain itself.");
  // Names below ours are the operator's to give: a wildcard record would prove them to anybody.
  if ([...own].some((host) => domain === host || domain.endsWith(`.${host}`)))
    throw wrong("This name belongs to the service itself.");
  return domain;
}

function isApex(labels: string[]): boolean {
  if (labels.length < 3) return true;
  const [registry = "", country = ""] = labels.slice(-2);
  return labels.length === 3 && country.length === 2 && REGISTRY_LABELS.has(registry);
}
