import type { KeySnapshot } from "../accounts/key_snapshots_store.ts";
import type { BodyRoom, Deps, Visit } from "../deps.ts";
import { type Body, readBody } from "../http/body.ts";
import { keyPrefixOf } from "../platform/crypto.ts";
import type { IdempotencyClaim } from "../platform/idempotency_claims.ts";
import { factsOf, type Trail } from "../platform/request_facts.ts";
import type { Owner } from "../platform/share_limit.ts";
import { admitKey, type Host, hostName, unservedHost } from "./admission.ts";
import { countRefusal } from "./refusals.ts";
import { newTrail } from "./telemetry.ts";

/** The door to the flow: host → key → rate → body. What comes behind it is in flow.ts. */

/** Who asks: a key that may act, on a host it may act on. */
export type Caller = {
  requestId: string;
  key: KeySnapshot;
  host: Host;
  signal: AbortSignal;
  trail: Trail;
  /** Of a request that is to be served once. */
  claim?: Pick<IdempotencyClaim, "alive">;
};
/** Gives back the places a request took in the limits. A second call does nothing. */
export type Leave = () => void;

/** Host → key. Throws host_not_allowed, invalid_api_key. */
export async function identify(deps: Deps, request: Request): Promise<Caller> {
  // Nearly always both are in memory: what is no promise is not waited for.
  const named = hostOf(deps, request);
  const host = named instanceof Promise ? await named : named;
  // The panel's own host is the panel's alone.
  if (host.resellerId === null && !deps.apiHosts.has(host.name)) throw unservedHost();
  const secret = /^bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
  const known = secret === undefined ? undefined : deps.keys.find(secret);
  const found = known instanceof Promise ? await known : known;
  const trail = noteTrail(request, host, found);
  if (found && secret) trail.keyPrefix = keyPrefixOf(secret);
  try {
    const key = admitKey(found, host, deps.clock.unixMs());
    return { requestId: trail.requestId, key, host, signal: request.signal, trail };
  } catch (error) {
    countRefusal(deps, trail, error);
    throw error;
  }
}

/** The host of a request: the service's own, or a reseller's active domain. Throws host_not_allowed, also later. */
export function hostOf(deps: Deps, request: Request): Host | Promise<Host> {
  const name = hostName(request.headers.get("host"), factsOf(request).url.hostname);
  if (deps.ownHosts.has(name)) return { name, resellerId: null };
  const known = deps.hosts.peek(name);
  if (known) return { name, resellerId: known.resellerId };
  return resellerHost(deps, name);
}

async function resellerHost(deps: Deps, name: string): Promise<Host> {
  const found = await deps.hosts.get(name);
  if (found === undefined) throw unservedHost();
  return { name, resellerId: found.resellerId };
}

/** The beginning of a request's trail, noted in its facts: whose it is, as far as is known. */
export function noteTrail(request: Request, host: Host, known?: { accountId: number; keyId?: number }): Trail {
  const { accountId = 0, keyId = 0 } = known ?? {};
  const facts = factsOf(request);
  const trail = newTrail(facts.requestId, host.name, { accountId, keyId });
  trail.trace = facts.trace;
  facts.trail = trail;
  return trail;
}

/** Who asks for metered work: the id whose rate it counts to, as `key:7`, and whose shares it takes. */
export type Asker = { limitId: string; owner: Owner };

/**
 * Rate → body → a place among the requests in flight. Nothing of the body is read before its rate is known to be kept. Throws
 * too_many_requests, service_unavailable, and what `readBody` throws.
 */
export async function withBody(
  deps: Deps,
  { limitId, owner }: Asker,
  request: Request,
  work: (raw: Body, leave: Leave) => Promise<Response>,
): Promise<Response> {
  const places = new Places(deps.gate.arrive(owner));
  try {
    places.rate = await deps.limiter.enter(limitId, owner);
    const raw = await readBody(deps, request, { bytesMax: deps.config.bodyBytesMax, owner });
    places.room = raw.room;
    places.visit.enter();
    return await work(raw, places.leave);
  } catch (error) {
    places.leave();
    throw error;
  }
}

/** The places that a request has taken. A closure of `withBody` would keep the request's body for as long as its stream is open. */
class Places {
  readonly visit: Visit;
  room: BodyRoom | undefined;
  rate: Leave | undefined;

  constructor(visit: Visit) {
    this.visit = visit;
  }

  readonly leave: Leave = () => {
    this.room?.close();
    this.visit.leave();
    this.rate?.();
  };
}
