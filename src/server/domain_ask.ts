import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";

/**
 * Tells a TLS proxy whether it may get a certificate for a domain. The proxy asks during handshakes, so strangers decide how
 * often it asks, and for which names. Source: DOM-7.
 */

/** Names in a window that are not in memory: each costs a query. */
const LOOK_UPS_MAX = 100;
const WINDOW_MS = 1000;
/** The longest host name. */
const DOMAIN_CHARS_MAX = 253;

/**
 * Answers `?domain=NAME` with 200 for the service's own hosts and active reseller domains. Throws not_found for any other name,
 * invalid_request if there is not exactly one name, too_many_requests, service_unavailable.
 */
export function createDomainAsk({ hosts, clock }: Pick<Deps, "hosts" | "clock">): (url: URL) => Promise<Response> {
  const takeLookUp = createWindow(() => clock.nowMs());

  async function isServed(name: string): Promise<boolean> {
    if (hosts.isOwn(name)) return true;
    const known = hosts.peek(name);
    if (known !== undefined) return known !== null;
    takeLookUp();
    return (await hosts.get(name)) !== undefined;
  }

  return async ({ searchParams }) => {
    const [domain = "", ...others] = searchParams.getAll("domain");
    if (domain === "" || domain.length > DOMAIN_CHARS_MAX || others.length > 0)
      throw new Refusal("invalid_request", {
        message: "Give exactly one domain, as in ?domain=NAME.",
        param: "domain",
      });
    if (!(await isServed(domain.toLowerCase())))
      throw new Refusal("not_found", { message: "This domain is not served here." });
    return Response.json({ status: "served" });
  };
}

/** Returns a function that throws too_many_requests after LOOK_UPS_MAX calls in a window, which starts with its first call. */
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
