import ipaddr from "ipaddr.js";

/**
 * The client's address: the peer of the connection, or, if that is a trusted proxy, the address in its X-Forwarded-For.
 * `trusted` are addresses and ranges as in 10.0.0.0/8. The header is read from the right, because a client can invent
 * everything left of the entry that a trusted proxy added.
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

/** Bits of an IPv6 address that its network gives out; the others are the customer's own. Source: RFC 6177. */
const IPV6_NETWORK_BITS = 64;

/** What limits by address count: an IPv4 address, or the /64 of an IPv6 one, since its holder has all addresses in it. */
export function networkOf(address: string): string {
  if (!ipaddr.IPv6.isValid(address)) return address;
  return `${ipaddr.IPv6.networkAddressFromCIDR(`${address}/${IPV6_NETWORK_BITS}`)}/${IPV6_NETWORK_BITS}`;
}

/** Whether an address is in the list, or in one of its ranges. */
function isTrusted(address: string, trusted: readonly string[]): boolean {
  return trusted.some((one) => (one.includes("/") ? isWithin(address, one) : plain(one) === address));
}

function isWithin(address: string, range: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.parse(address);
  const [base, bits] = ipaddr.parseCIDR(range);
  return parsed.kind() === base.kind() && parsed.match(base, bits);
}

/** The address in its own form: a dual-stack socket shows IPv4 as IPv6. */
function plain(address: string): string {
  return ipaddr.isValid(address) ? ipaddr.process(address).toString() : address;
}
