import type { Config } from "../config.ts";
import { Refusal } from "../errors.ts";
import { factsOf } from "./request_facts.ts";

/** Which host a request asks for. The API and the panel both begin with this. */

/**
 * The host of a request. `resellerId` is the owner of a reseller's domain; null for one of the service's own hosts. `tenantEpoch` is the
 * owner's epoch when the domain was looked up.
 */
export type Host = { name: string; resellerId: number | null; tenantEpoch?: number };

/** What finds hosts: the service's own, those of them that serve the panel, and resellers' active domains by name. */
export type HostDeps = {
  ownHosts: ReadonlySet<string>;
  panelHosts: ReadonlySet<string>;
  hosts: {
    /** Of those in memory; null: known not to be an active domain. */
    peek(name: string): ActiveDomain | undefined | null;
    get(name: string): Promise<ActiveDomain | undefined>;
  };
};
type ActiveDomain = { resellerId: number; tenantEpoch: number };

/** A Host header: a name, an optional trailing dot (the DNS root), and an optional port. */
const HOST = /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\.?(?::\d{0,5})?$/i;
const NAME = /^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/;

/**
 * The host of a request: one of the service's own, or a reseller's active domain. Returns a promise only when the domain is
 * not cached. Throws host_not_allowed (also by rejecting) and service_unavailable.
 */
export function hostOf(deps: Pick<HostDeps, "ownHosts" | "hosts">, request: Request): Host | Promise<Host> {
  const name = hostName(request.headers.get("host"), factsOf(request).url.hostname);
  if (deps.ownHosts.has(name)) return { name, resellerId: null };
  const known = deps.hosts.peek(name);
  if (known) return { name, resellerId: known.resellerId, tenantEpoch: known.tenantEpoch };
  return resellerHost(deps, name);
}

/** The panel is served on its own host and on resellers' active domains, never on a host of the API alone. Throws host_not_allowed. */
export async function panelHostOf(deps: HostDeps, request: Request): Promise<Host> {
  const host = await hostOf(deps, request);
  if (host.resellerId === null && !deps.panelHosts.has(host.name))
    throw unservedHost("The panel is not served on this host.");
  return host;
}

async function resellerHost(deps: Pick<HostDeps, "hosts">, name: string): Promise<Host> {
  const found = await deps.hosts.get(name);
  if (found === undefined) throw unservedHost();
  return { name, resellerId: found.resellerId, tenantEpoch: found.tenantEpoch };
}

/**
 * The host name of a request. `target` is the host of its URL: the runtimes take that from the Host header, and Deno from an
 * absolute request target, which wins over a different Host header (RFC 9112 §3.2.2; Bun drops the host of an absolute
 * target). The header must be well-formed in any case. Throws host_not_allowed.
 */
export function hostName(header: string | null, target: string): string {
  if (header === null || !HOST.test(header)) throw malformedHost();
  if (NAME.test(target)) return target;
  const isRooted = target.endsWith(".");
  throw unservedHost(isRooted ? "This host is not served here: leave out the dot at the end of its name." : undefined);
}

/**
 * The origin that clients reach a request's host under, as in `https://api.example.com`: what links to it are made of. It comes from
 * the configuration, because a proxy in front ends TLS. `url` is the request's.
 */
export function originOf(
  { config, ownHosts }: { config: Pick<Config, "baseUrl" | "aliasUrl" | "panelUrl">; ownHosts: ReadonlySet<string> },
  url: URL,
): string {
  const { hostname } = url;
  const { baseUrl, aliasUrl, panelUrl } = config;
  const own = [baseUrl, aliasUrl, panelUrl].find((one) => one !== "" && new URL(one).hostname === hostname);
  if (own !== undefined) return new URL(own).origin;
  // A local host of development has no proxy in front.
  return ownHosts.has(hostname) ? url.origin : siteUrl({ config }, hostname);
}

/** The base URL of the API for clients of a host. On a reseller's domain only that domain is named. No trailing slash. */
export function apiUrlOf(
  { config }: { config: Pick<Config, "baseUrl" | "aliasUrl" | "panelUrl"> },
  host: Host,
): string {
  const { baseUrl, aliasUrl } = config;
  if (host.resellerId !== null) return `${siteUrl({ config }, host.name)}/v1`;
  return aliasUrl !== "" && new URL(aliasUrl).hostname === host.name ? aliasUrl : baseUrl;
}

/** The panel's origin on a host, with the scheme and port of PANEL_URL. No trailing slash. */
export function siteUrl({ config }: { config: Pick<Config, "panelUrl"> }, hostName: string): string {
  const url = new URL(config.panelUrl);
  url.hostname = hostName;
  return url.origin;
}

/** The refusal of a Host header, or of the host of an absolute target, that is missing, duplicated or malformed. */
export function malformedHost(): Refusal {
  return new Refusal("host_not_allowed", {
    message: "The request needs one Host header: a host name, and at most a port from 0 to 65535.",
  });
}

/** The refusal of a host that this service does not serve. */
export function unservedHost(message = "This host is not served here."): Refusal {
  return new Refusal("host_not_allowed", { message });
}
