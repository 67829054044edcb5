import { isIPv6 } from "node:net";
import { LRUCache } from "lru-cache";
import { Refusal } from "../errors.ts";
import { type DnsAnswer, type DnsFailure, isDnsName, queryServers } from "./dns_query.ts";
import type { Owner } from "./share_limit.ts";
import { readSystemNames, type SystemNames } from "./system_names.ts";

/**
 * Looks up the addresses of names for outbound calls, as the system would (hosts file, search domains, name servers), but over our own
 * sockets. The system's look-up takes a thread of the runtime's pool for as long as a name server is silent, and the pool has as many
 * threads as the machine has cores: a few silent names would stop everything else that needs one. Source: SEC-3.
 */

/** For a whole look-up, its search domains included. */
const LOOK_UP_MS_MAX = 4_500;
/** Once a name has addresses of one family, those of the other are awaited this long. */
const OTHER_FAMILY_MS = 300;
/** An answer is kept as long as its TTL says, within these bounds. */
const KEPT_SECONDS = { min: 1, max: 60 };
/** How long a failure is kept, so that it is not looked up for each call. */
const FAILURE_MS = 5_000;
const CACHE_MAX = 10_000;
/** Names that a chain of CNAMEs may have. */
const CNAMES_MAX = 16;
/** Further questions for the end of such a chain, if the server did not follow it. */
const CHASES_MAX = 4;
/** How often the system's files are read. */
const SYSTEM_MS = 10_000;
/** Look-ups of one replica that clients cause, at once: in all, of one account and of one tenant. */
const CLIENT_LOOK_UPS_MAX = { all: 256, account: 8, tenant: 64 };
const RETRY_AFTER_SECONDS = 5;

export type Address = { address: string; family: 4 | 6 };
export type Resolve = (host: string) => Promise<Address[]>;

export type Names = {
  /**
   * The addresses of a name. `owner`: whose call it is, if a client chooses the name; otherwise the operator's. Concurrent look-ups of
   * one name share one. Throws NameError, or too_many_requests and service_unavailable while too many of clients are in progress.
   */
  resolve(host: string, owner?: Owner): Promise<Address[]>;
};

/** Why a name has no address. `isKnown`: the name servers say that it has none; otherwise they did not answer. */
export class NameError extends Error {
  override readonly name = "NameError";
  readonly isKnown: boolean;

  constructor(message: string, isKnown: boolean) {
    super(message);
    this.isKnown = isKnown;
  }
}

type NamesOptions = {
  /** A monotonic clock, ms. */
  now?: () => number;
  system: () => SystemNames;
};

/** What a look-up found. `keptMs`: for how long that counts. */
type Found = { addresses: Address[]; keptMs: number } | { error: NameError; keptMs: number };

export function createNames({ system: read, now = () => performance.now() }: NamesOptions): Names {
  const cache = new LRUCache<string, { found: Found; untilMs: number }>({ max: CACHE_MAX });
  const running = new Map<string, Promise<Found>>();
  const shares = createShares();
  let system: SystemNames | undefined;
  let readMs = 0;

  function systemNow(): SystemNames {
    if (system === undefined || now() - readMs >= SYSTEM_MS) {
      system = read();
      readMs = now();
    }
    return system;
  }

  /** Throws what `resolve` throws while too many look-ups are in progress. */
  function begin(host: string, names: SystemNames, owner?: Owner): Promise<Found> {
    const leave = owner ? shares.take(owner) : () => {};
    const looking = lookUp(host, names).finally(() => {
      leave();
      running.delete(host);
    });
    running.set(host, looking);
    return looking;
  }

  return {
    async resolve(typed, owner) {
      const host = typed.toLowerCase();
      const names = systemNow();
      const fixed = names.hosts.get(host) ?? loopbackOf(host);
      if (fixed) return fixed.map(toAddress);
      const known = cache.get(host);
      if (known && now() < known.untilMs) return addressesIn(known.found);
      const found = await (running.get(host) ?? begin(host, names, owner));
      cache.set(host, { found, untilMs: now() + found.keptMs });
      return addressesIn(found);
    },
  };
}

let servers: readonly string[] = [];
const systemNames = createNames({ system: () => readSystemNames(servers) });

/** Looks a name up as `Names.resolve` does, by this process's own resolver: one for all that calls elsewhere. */
export function resolveName(host: string, owner?: Owner): Promise<Address[]> {
  return systemNames.resolve(host, owner);
}

/** The name servers to ask instead of the system's; empty: the system's. Call it before the first look-up. */
export function setNameServers(addresses: readonly string[]): void {
  servers = addresses;
}

function addressesIn(found: Found): Address[] {
  if ("error" in found) throw found.error;
  return found.addresses;
}

/** Source: RFC 6761 › 6.3. */
function loopbackOf(host: string): string[] | undefined {
  return host === "localhost" || host.endsWith(".localhost") ? ["127.0.0.1", "::1"] : undefined;
}

function toAddress(address: string): Address {
  return { address, family: isIPv6(address) ? 6 : 4 };
}

/** Tries the name as it is and below the search domains, in the system's order. */
async function lookUp(host: string, names: SystemNames): Promise<Found> {
  const endsAt = performance.now() + LOOK_UP_MS_MAX;
  let failure: DnsFailure | undefined;
  for (const name of candidatesOf(host, names)) {
    const answer = await ask(name, names, endsAt);
    if (answer.addresses.length > 0) return { addresses: answer.addresses, keptMs: answer.keptMs };
    failure ??= answer.failure;
    if (performance.now() >= endsAt) break;
  }
  const error = failure ? new NameError(WHY[failure], false) : new NameError("no such name", true);
  return { error, keptMs: FAILURE_MS };
}

const WHY: Record<DnsFailure, string> = {
  silent: "the name servers do not answer",
  unreachable: "the name servers cannot be reached",
  refused: "the name servers refuse to answer",
  failed: "the name servers failed",
  garbled: "the name servers sent no valid answer",
};

/** The names that are asked for: by `search` and `ndots`, as resolv.conf(5) says. */
export function candidatesOf(host: string, { search, ndots }: Pick<SystemNames, "search" | "ndots">): string[] {
  const below = search.map((domain) => `${host}.${domain}`);
  const dots = host.split(".").length - 1;
  return (dots >= ndots ? [host, ...below] : [...below, host]).filter(isDnsName);
}

type Answered = { addresses: Address[]; keptMs: number; failure?: DnsFailure | undefined };

/** Asks for both families. `failure`: why nothing is known of a family without addresses. */
async function ask(name: string, { servers }: SystemNames, endsAt: number): Promise<Answered> {
  let asked = name;
  for (let chases = 0; ; chases++) {
    const questions = (["A", "AAAA"] as const).map((type) => ({ name: asked, type }));
    const timeoutMs = endsAt - performance.now();
    const answers = await queryServers(servers, questions, { timeoutMs, graceMs: OTHER_FAMILY_MS });
    const { end, addresses, ttlSeconds } = follow(asked, answers);
    const failure = answers.find((answer) => answer.failure)?.failure ?? undefined;
    if (addresses.length > 0 || end === asked || chases === CHASES_MAX || !isDnsName(end)) {
      const keptSeconds = Math.min(Math.max(ttlSeconds, KEPT_SECONDS.min), KEPT_SECONDS.max);
      return { addresses, keptMs: keptSeconds * 1000, failure };
    }
    asked = end;
  }
}

/** The name at the end of the answers' CNAMEs, its addresses, and the shortest TTL of these records. */
function follow(name: string, answers: readonly DnsAnswer[]) {
  const records = answers.flatMap((answer) => answer.records);
  const used: { ttlSeconds: number }[] = [];
  let end = name.toLowerCase();
  for (let steps = 0; steps < CNAMES_MAX; steps++) {
    const alias = records.find((record) => record.type === "CNAME" && record.name === end);
    if (!alias) break;
    used.push(alias);
    end = alias.value;
  }
  const own = records.filter(({ name, type }) => name === end && (type === "A" || type === "AAAA"));
  used.push(...own);
  const addresses = [...new Set(own.map(({ value }) => value))].map(toAddress);
  return { end, addresses, ttlSeconds: Math.min(...used.map((record) => record.ttlSeconds)) };
}

/** Counts look-ups that clients cause. An id of 0 means none, and is not counted. */
function createShares() {
  const counts = new Map<string, number>();
  const of = (id: string) => counts.get(id) ?? 0;
  const add = (ids: string[], change: number) => {
    for (const id of ids) {
      const count = of(id) + change;
      if (count === 0) counts.delete(id);
      else counts.set(id, count);
    }
  };
  return {
    take({ accountId, tenantId }: Owner): () => void {
      const { all, account, tenant } = CLIENT_LOOK_UPS_MAX;
      const ids = ["all"];
      if (accountId !== 0) ids.push(`account:${accountId}`);
      if (tenantId !== 0) ids.push(`tenant:${tenantId}`);
      const isFull = (id: string) => of(id) >= (id === "all" ? all : id.startsWith("account") ? account : tenant);
      const retryAfterSeconds = RETRY_AFTER_SECONDS;
      if (isFull("all")) throw new Refusal("service_unavailable", { retryAfterSeconds });
      if (ids.some(isFull)) {
        const message = "Too many names of this account are being looked up. Try again.";
        throw new Refusal("too_many_requests", { message, limit: account, retryAfterSeconds });
      }
      add(ids, 1);
      return () => add(ids, -1);
    },
  };
}
