import ipaddr from "ipaddr.js";

/**
 * Where a request comes from: the connection's other end, or, where that is a proxy we trust, what the proxy says of it.
 * Read from the right, since everything left of a trusted proxy's own word may be the client's invention.
 */
export function clientAddress(peer: string, forwardedFor: string | null, trusted: readonly string[]): string {
  let address = plain(peer);
  const said = (forwardedFor ?? "").split(",").map((part) => part.trim());
  while (trusted.includes(address)) {
    const next = said.pop();
    if (next === undefined || !ipaddr.isValid(next)) break;
    address = plain(next);
  }
  return address;
}

/** An IPv4 address that a socket of both families shows as IPv6, in its own form. */
function plain(address: string): string {
  return ipaddr.isValid(address) ? ipaddr.process(address).toString() : address;
}
