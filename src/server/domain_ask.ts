import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { inTime } from "../platform/in_time.ts";

/**
 * Whether a TLS proxy may get a certificate for a name: it asks at a handshake with a name it has none for, so strangers
 * decide how often and for what. Source: contract › What the service does, 3.
 */

/** Names that memory does not know, in a window: each costs a look at the database. */
const LOOK_UPS_MAX = 100;
const WINDOW_MS = 1000;
/** The longest name of a host. */
const DOMAIN_CHARS_MAX = 253;

/**
 * Answers `?domain=NAME`: 200 for one of the service's own hosts or an active reseller domain. Throws not_found for
 * any other name, invalid_request where there is not exactly one, too_many_requests, service_unavailable.
 */
export function createDomainAsk({ hosts, clock }: Pick<Deps, "hosts" | "clock">): (url: URL) => Promise<Response> {
  const takeLookUp = createWindow(() => clock.nowMs());

  async function isServed(name: string): Promise<boolean> {
    if (hosts.isOwn(name)) return true;
    const known = hosts.peek(name);
    if (known !== undefined) return known !== null;
    takeLookUp();
    return (await inTime(hosts.get(name))) !== undefined;
  }

  return async ({ searchParams }) => {
    const [domain = "", ...others] = searchParams.getAll("domain");
    if (domain === "" || domain.length > DOMAIN_CHARS_MAX || others.length > 0)
      throw new Refusal("invalid_request", { message: "Ask with one domain, as in ?domain=NAME.", param: "domain" });
    if (!(await isServed(domain.toLowerCase())))
      throw new Refusal("not_found", { message: "This name is not served here." });
    return Response.json({ status: "served" });
  };
}

/** Returns what throws too_many_requests after LOOK_UPS_MAX calls in a window that starts with its first. */
function createWindow(nowMs: () => number): () => void {
  let count = 0;
  let endsAtMs = Number.NEGATIVE_INFINITY;
  return () => {
    const now = nowMs();
    if (now >= endsAtMs) [count, endsAtMs] = [0, now + WINDOW_MS];
    if (count >= LOOK_UPS_MAX) throw new Refusal("too_many_requests", { retryAfterSeconds: (endsAtMs - now) / 1000 });
    count++;
  };
}
