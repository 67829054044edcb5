import ipaddr from "ipaddr.js";

/**
 * The client's address: the peer of the connection, or, if that is a trusted proxy, the address in its X-Forwarded-For.
 * `trusted` are addresses and ranges as in 10.0.0.0/8. The header is read from the right, because a client can invent
 * everything left of the entry that a trusted proxy added.
 */
export function clientAddress(peer: string, forwardedFor: string | null, trusted: readonly string[]): string {
  let address = plain(peer);
  const said = (forwardedFor ?? "").split(",").map((part) => part.trim());
  while (isInNetworks(address, trusted)) {
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

/** Bits of an address that a provider's customers nearby share, by which what costs more than a request is limited too. */
const WIDER_BITS = { v4: 24, v6: 48 };

/** The wider network of an address: the /24 of an IPv4 address, the /48 of an IPv6 one. */
export function widerNetworkOf(address: string): string {
  if (ipaddr.IPv4.isValid(address))
    return `${ipaddr.IPv4.networkAddressFromCIDR(`${address}/${WIDER_BITS.v4}`)}/${WIDER_BITS.v4}`;
  if (!ipaddr.IPv6.isValid(address)) return address;
  return `${ipaddr.IPv6.networkAddressFromCIDR(`${address}/${WIDER_BITS.v6}`)}/${WIDER_BITS.v6}`;
}

/** Whether an address is in the list, or in one of its ranges. */
export function isInNetworks(address: string, networks: readonly string[]): boolean {
  return networks.some((one) => (one.includes("/") ? isWithin(address, one) : plain(one) === address));
}

/** Whether a text is an address, or a range as in 10.0.0.0/8. */
export function isNetwork(text: string): boolean {
  return text.includes("/")
    ? ipaddr.isValidCIDR(text)
    : ipaddr.IPv4.isValidFourPartDecimal(text) || ipaddr.IPv6.isValid(text);
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
