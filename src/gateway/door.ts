import type { KeySnapshot } from "../accounts/keys_store.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { within } from "../platform/runtime.ts";
import { admitKey, type Host, hostName } from "./admit.ts";
import { type Body, readBody } from "./body.ts";
import { countingRefusals, type Trail } from "./refusals.ts";

/** The door to the flow: host → key → rate → body. What comes behind it is in flow.ts. */

/** A look-up that takes longer has met a silent database. */
const LOOK_UP_MS_MAX = 1_800;

/** Who asks: a key that may act, on a host it may act on. */
export type Caller = { requestId: string; key: KeySnapshot; host: Host; signal: AbortSignal; trail: Trail };
/** Gives back the places a request took in the limits. A second call does nothing. */
export type Leave = () => void;

/** Host → key. Throws host_not_allowed, invalid_api_key. */
export async function identify(deps: Deps, request: Request, requestId: string): Promise<Caller> {
  const host = await hostOf(deps, request);
  // The panel's own host is the panel's alone.
  if (host.resellerId === null && !deps.apiHosts.has(host.name)) throw unservedHost();
  const secret = /^bearer +(\S+)$/i.exec(request.headers.get("authorization") ?? "")?.[1];
  const found = secret === undefined ? undefined : await inTime(deps.keys.find(secret));
  const trail = trailOf(requestId, host, found);
  const key = await countingRefusals(deps, trail, () => admitKey(found, host, deps.clock.unixMs()));
  return { requestId, key, host, signal: request.signal, trail };
}

/** The host of a request: the service's own, or a reseller's active domain. Throws host_not_allowed. */
export async function hostOf(deps: Deps, request: Request): Promise<Host> {
  const name = hostName(request.headers.get("host"), new URL(request.url).hostname);
  if (deps.ownHosts.has(name)) return { name, resellerId: null };
  const found = await inTime(deps.hosts.get(name));
  if (found === undefined) throw unservedHost();
  return { name, resellerId: found.resellerId };
}

function unservedHost(): Refusal {
  return new Refusal("host_not_allowed", { message: "This host is not served here." });
}

/** The beginning of a request's trail: whose it is, as far as is known. */
export function trailOf(requestId: string, host: Host, known?: { accountId: number; keyId?: number }): Trail {
  const { accountId = 0, keyId = 0 } = known ?? {};
  return { requestId, accountId, keyId, modelId: "", host: host.name, held: false };
}

/** What a look-up brings, or service_unavailable: a silent database must not keep a client waiting. */
export function inTime<T>(lookUp: Promise<T>): Promise<T> {
  return within(LOOK_UP_MS_MAX, lookUp, () => new Refusal("service_unavailable"));
}

/** Rate, while the body is read. The first refusal by the order of the contract wins. Throws too_many_requests, service_unavailable. */
export async function withBody(
  deps: Deps,
  limitId: string,
  request: Request,
  work: (raw: Body, leave: Leave) => Promise<Response>,
): Promise<Response> {
  const leaveGate = deps.gate.enter();
  let leaveRate: Leave | undefined;
  let left = false;
  const leave = () => {
    if (left) return;
    left = true;
    leaveGate();
    leaveRate?.();
  };
  try {
    const reading = readBody(request, deps.config.bodyBytesMax);
    reading.catch(() => {}); // Its refusal is thrown below, once the rate has been asked.
    await deps.limiter.take(limitId);
    leaveRate = await deps.limiter.enter(limitId);
    return await work(await reading, leave);
  } catch (error) {
    leave();
    throw error;
  }
}
