import type { KeySnapshot } from "../accounts/key_snapshots_store.ts";
import type { Requester } from "../catalog/breaker.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { type Host, hostOf, unservedHost } from "../http/host.ts";
import { keyPrefixOf } from "../platform/crypto.ts";
import type { LimitedRequest } from "../platform/rate_limit.ts";
import { countRefusal } from "./refusal_counts.ts";
import { type RequestRecord, startRecord } from "./request_record.ts";
import type { Wait } from "./waiting.ts";

/**
 * The first step of every request: which host it came to, and which API key it has. Both are in memory nearly always. For
 * a metered request the ledger checks key, account and host again under its lock, so a stale cache entry lets nothing through.
 */

/** The authenticated caller of one request. */
export type Caller = {
  requestId: string;
  key: KeySnapshot;
  host: Host;
  /** Aborted when the client leaves before its response has begun, and with some runtimes also after that: ask `hasLeft`. */
  signal: AbortSignal;
  record: RequestRecord;
  /** What the request counts towards: rate limits and concurrency limits. */
  limits: LimitedRequest;
  /** Set for a request that may be sent its headers while it waits for a provider. */
  wait?: Wait | undefined;
  /** Set for a request with an Idempotency-Key. */
  claim?: CallerClaim;
};

/** The idempotency claim of a request, as the steps of the request see it. */
export type CallerClaim = {
  /** False if another attempt may have taken the claim over: then no provider may be called. */
  alive(): boolean;
  /** The hold of the request has ended: charged or not. */
  holdEnded(isCharged: boolean): void;
};

/** Whether the client has left, also while it waits behind its headers. */
export function hasLeft({ signal, wait }: Caller): boolean {
  return signal.aborted || wait?.isLeft === true;
}

/**
 * Host → key. Returns a promise only if the host or the key is not cached. Throws host_not_allowed, invalid_api_key,
 * service_unavailable, also by rejecting.
 */
export function authenticate(deps: Deps, request: Request): Caller | Promise<Caller> {
  const host = hostOf(deps, request);
  return host instanceof Promise
    ? host.then((named) => authenticateOn(deps, request, named))
    : authenticateOn(deps, request, host);
}

function authenticateOn(deps: Deps, request: Request, host: Host): Caller | Promise<Caller> {
  // The panel's own host serves the panel only.
  if (host.resellerId === null && !deps.apiHosts.has(host.name)) throw unservedHost();
  const secret = /^bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
  const key = secret === undefined ? undefined : deps.keys.find(secret);
  return key instanceof Promise
    ? key.then((found) => callerOf(deps, request, { host, secret, found }))
    : callerOf(deps, request, { host, secret, found: key });
}

type Presented = { host: Host; secret: string | undefined; found: KeySnapshot | undefined };

function callerOf(deps: Deps, request: Request, { host, secret, found }: Presented): Caller {
  const record = startRecord(request, host, found);
  if (found && secret) record.keyPrefix = keyPrefixOf(secret);
  try {
    const key = requireUsableKey(found, host, deps.clock.unixMs());
    const limits = deps.limiter.begin(`key:${key.keyId}`, key, key.limits);
    return { requestId: record.requestId, key, host, signal: request.signal, record, limits };
  } catch (error) {
    countRefusal(deps, record, error);
    throw error;
  }
}

/** Checks that a key may be used now, on this host. Throws invalid_api_key, host_not_allowed. */
export function requireUsableKey(key: KeySnapshot | undefined, host: Host, nowUnixMs: number): KeySnapshot {
  if (
    key === undefined ||
    key.status !== "enabled" ||
    key.accountStatus !== "active" ||
    key.tenantStatus !== "active" ||
    (key.expiresAtMs !== null && key.expiresAtMs <= nowUnixMs)
  ) {
    throw new Refusal("invalid_api_key");
  }
  if (!keyAllowsHost(key, host)) throw new Refusal("host_not_allowed");
  return key;
}

/** A key without a list of hosts works on the service's own hosts and on its reseller's domains. A list only narrows that. */
function keyAllowsHost(key: KeySnapshot, host: Host): boolean {
  if (host.resellerId !== null && host.resellerId !== key.tenantId) return false;
  return key.hosts === null || key.hosts.has(host.name);
}

/** To whom the experience with a provider's route is attributed. A reseller answers for its customers. */
export function requesterOf({ accountId, tenantId }: Pick<KeySnapshot, "accountId" | "tenantId">): Requester {
  return { accountId, payerId: tenantId > 0 ? tenantId : accountId };
}
