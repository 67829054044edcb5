import ipaddr from "ipaddr.js";

/**
 * Where a request comes from: the connection's other end, or, where that is a proxy we trust, what the proxy says of it.
 * `trusted` are addresses and ranges as in 10.0.0.0/8. Read from the right, since everything left of a trusted proxy's own word may be the client's invention.
 */
export function clientAddress(peer: string, forwardedFor: string | null, trusted: readonly string[]): string {
  let address = plain(peer);
  const said = (forwardedFor ?? "").split(",").map((part) => part.trim());
  while (isTrusted(address, trusted)) {
    const next = said.pop();
    if (next === undefined || !ipaddr.isValid(next)) break;
    address = plain(next);
  }
  return address;
}

/** Whether an address is one of these, or within one of these ranges. */
function isTrusted(address: string, trusted: readonly string[]): boolean {
  return trusted.some((one) => (one.includes("/") ? isWithin(address, one) : plain(one) === address));
}

function isWithin(address: string, range: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.parse(address);
  const [base, bits] = ipaddr.parseCIDR(range);
  return parsed.kind() === base.kind() && parsed.match(base, bits);
}

/** An IPv4 address that a socket of both families shows as IPv6, in its own form. */
function plain(address: string): string {
  return ipaddr.isValid(address) ? ipaddr.process(address).toString() : address;
}
