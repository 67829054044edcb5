import { getServers } from "node:dns";
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { isIP } from "node:net";
import { type DnsServer, parseResolver } from "./dns_query.ts";

/**
 * What the system knows about names: the files that its own look-ups read. They are read synchronously: asynchronous reads would wait
 * for a thread of the runtime's pool.
 */

const RESOLV_CONF = "/etc/resolv.conf";
const HOSTS = "/etc/hosts";
/** The beginning of a file that is read. */
const FILE_BYTES_MAX = 1024 * 1024;
/** As in resolv.conf(5), except that glibc reads three servers. */
const SERVERS_MAX = 8;
const SEARCH_MAX = 32;
const NDOTS_MAX = 15;
const NDOTS_DEFAULT = 1;

export type SystemNames = {
  servers: readonly DnsServer[];
  /** Domains that are appended to a short name. */
  search: readonly string[];
  /** A name with fewer dots is looked up in the search domains first. */
  ndots: number;
  /** Names with fixed addresses, in lower case. */
  hosts: ReadonlyMap<string, readonly string[]>;
};

/** Reads both files. `servers` replace those of the system. */
export function readSystemNames(servers: readonly string[]): SystemNames {
  const found = parseResolvConf(textOf(RESOLV_CONF));
  const named = servers.length > 0 ? servers.map(parseResolver) : found.servers;
  return { ...found, servers: named.length > 0 ? named : otherServers(), hosts: parseHosts(textOf(HOSTS)) };
}

export function parseResolvConf(text: string): Omit<SystemNames, "hosts"> {
  const servers: DnsServer[] = [];
  let search: string[] = [];
  let ndots = NDOTS_DEFAULT;
  for (const [keyword, ...values] of wordsOf(text, /[#;].*/)) {
    if (keyword === "nameserver" && isIP(values[0] ?? "") !== 0) servers.push(parseResolver(values[0] ?? ""));
    // The last line of either counts.
    if (keyword === "search" || keyword === "domain")
      search = values.slice(0, SEARCH_MAX).map((domain) => domain.toLowerCase().replace(/\.$/, ""));
    const [, digits] = keyword === "options" ? (/\bndots:(\d+)/.exec(values.join(" ")) ?? []) : [];
    if (digits !== undefined) ndots = Math.min(Number(digits), NDOTS_MAX);
  }
  return { servers: servers.slice(0, SERVERS_MAX), search: search.filter((domain) => domain !== ""), ndots };
}

export function parseHosts(text: string): Map<string, string[]> {
  const hosts = new Map<string, string[]>();
  for (const [address = "", ...names] of wordsOf(text, /#.*/)) {
    if (isIP(address) === 0) continue;
    for (const name of names) {
      const key = name.toLowerCase();
      hosts.set(key, [...(hosts.get(key) ?? []), address]);
    }
  }
  return hosts;
}

function wordsOf(text: string, comment: RegExp): string[][] {
  return text.split("\n").map((line) => line.replace(comment, "").trim().split(/\s+/));
}

/** For a system without resolv.conf, such as Windows: the runtime knows its servers. */
function otherServers(): DnsServer[] {
  return getServers().flatMap((address) => {
    try {
      return [parseResolver(address)];
    } catch {
      return []; // An address of a form that we cannot call, as with a zone.
    }
  });
}

/** A file's beginning; empty if it cannot be read, as on a system that does not have it. */
function textOf(path: string): string {
  let file: number | undefined;
  try {
    file = openSync(path, "r");
    const bytes = Buffer.alloc(Math.min(fstatSync(file).size, FILE_BYTES_MAX));
    return bytes.toString("utf8", 0, readSync(file, bytes));
  } catch {
    return "";
  } finally {
    if (file !== undefined) closeSync(file);
  }
}
