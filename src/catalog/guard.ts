import { lookup as systemLookup } from "node:dns/promises";
import { request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { request as httpsRequest } from "node:https";
import { isIP, isIPv4, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";

/** Longest URL accepted; browsers and proxies have about the same limit. */
const URL_CHARACTERS_MAX = 2048;
/** Addresses of a name that are considered; no call tries that many. */
const ADDRESSES_MAX = 32;
/** All of IPv6 that is routed on the public internet today. Source: IANA IPv6 global unicast assignments. */
const PUBLIC_IPV6 = ipaddr.parseCIDR("2000::/3");
/** Azure's metadata service: the only such address outside the special ranges. */
const METADATA_IPV4 = "168.63.129.16";

export type Address = { address: string; family: 4 | 6 };
export type Resolve = (host: string) => Promise<Address[]>;
/** A URL that may be called, and the addresses of its host at this moment. */
export type Callable = { url: URL; host: string; port: number; addresses: Address[] };

type GuardOptions = {
  /** `host:port` pairs that the operator allows to be on private addresses. */
  allowPrivate: readonly string[];
  /** What the URL is, for error messages: "The provider's base URL". */
  purpose: string;
  /** Looks a name up. Only tests give one. */
  resolve?: Resolve;
};

/** An outbound call that was refused or failed. The message is for operators, never for clients. */
export class GuardError extends Error {
  override readonly name = "GuardError";
  readonly kind: "refused" | "unresolved" | "failed" | "timeout" | "oversized";

  constructor(kind: GuardError["kind"], message: string) {
    super(message);
    this.kind = kind;
  }
}

/**
 * Decides whether a URL may be called: http(s), no credentials, and every address of its host public, unless the
 * operator allowed that host and port. Throws GuardError (refused, unresolved). The name may resolve differently a
 * moment later: connect to the returned addresses, or use `guardedLookup`.
 */
export async function assertCallable(address: string | URL, options: GuardOptions): Promise<Callable> {
  const { url, host, port } = parseCallable(address, options.purpose);
  return { url, host, port, addresses: await resolveChecked(host, port, options) };
}

/** A `lookup` function for `node:net`, `node:http` and `node:https` that connects only to checked addresses. */
export function guardedLookup(port: number, options: GuardOptions): LookupFunction {
  return (host, { all }, callback) => {
    resolveChecked(host, port, options).then(
      (addresses) => {
        const [first] = addresses;
        if (all || !first) callback(null, addresses);
        else callback(null, first.address, first.family);
      },
      (error: unknown) => callback(error instanceof Error ? error : new Error(String(error)), []),
    );
  };
}

type FetchGuardedOptions = {
  bytesMax: number;
  /** Time limit for all of it: look-up, connect, headers, body. */
  timeoutMs: number;
  allowPrivate: readonly string[];
  purpose?: string;
  signal?: AbortSignal;
  resolve?: Resolve;
};

/**
 * Gets a public URL: no redirects, no compression, limits on size and time. Throws GuardError, or the reason of
 * `signal`. Uses node's client, because `fetch` cannot be told which address to connect to.
 */
export async function fetchGuarded(
  address: string,
  { bytesMax, timeoutMs, signal, ...options }: FetchGuardedOptions,
): Promise<{ bytes: Uint8Array; contentType: string }> {
  signal?.throwIfAborted();
  const guard = { purpose: "The file's address", ...options };
  const { url, host, port } = parseCallable(address, guard.purpose);
  // `lookup` is not called for a host that is an IP address.
  if (isIP(host)) await resolveChecked(host, port, guard);
  const request = url.protocol === "https:" ? httpsRequest : httpRequest;
  const init: RequestOptions = {
    method: "GET",
    agent: false,
    lookup: guardedLookup(port, guard),
    headers: { accept: "*/*", "accept-encoding": "identity", "user-agent": "tollgate" },
  };
  return new Promise((resolve, reject) => {
    const call = request(url.href, init, (response) => collect(response, bytesMax).then(succeed, fail));
    const timer = setTimeout(
      () => fail(new GuardError("timeout", `No whole answer within ${timeoutMs} ms.`)),
      timeoutMs,
    );
    const abort = () => fail(signal?.reason);
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", abort);
      call.destroy();
    };
    const succeed = (file: { bytes: Uint8Array; contentType: string }) => {
      finish();
      resolve(file);
    };
    const fail = (reason: unknown) => {
      finish();
      reject(reason instanceof GuardError || signal?.aborted ? reason : new GuardError("failed", messageOf(reason)));
    };
    signal?.addEventListener("abort", abort, { once: true });
    call.on("error", fail);
    call.end();
  });
}

async function collect(
  response: IncomingMessage,
  bytesMax: number,
): Promise<{ bytes: Uint8Array; contentType: string }> {
  const { statusCode, headers } = response;
  response.on("error", () => {}); // The loop below reports the error; destroying the call must not raise it again.
  if (statusCode !== 200) throw new GuardError("failed", `Answered with status ${statusCode}.`);
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity")
    throw new GuardError("failed", "Answered compressed, which was not asked for.");
  const oversized = new GuardError("oversized", `Larger than ${bytesMax} bytes.`);
  if (Number(headers["content-length"] ?? 0) > bytesMax) throw oversized;
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Uint8Array>) {
    size += chunk.byteLength;
    if (size > bytesMax) throw oversized;
    chunks.push(chunk);
  }
  if (!response.complete) throw new GuardError("failed", "The answer broke off.");
  return { bytes: new Uint8Array(Buffer.concat(chunks)), contentType: headers["content-type"] ?? "" };
}

/** Checks a URL without looking its host up. Throws GuardError (refused). */
function parseCallable(address: string | URL, purpose: string): Omit<Callable, "addresses"> {
  const refuse = (why: string) => new GuardError("refused", `${purpose} ${why}.`);
  const written = String(address);
  if (written.length > URL_CHARACTERS_MAX) throw refuse("is too long");
  const url = URL.parse(written);
  if (!url) throw refuse("is not a URL");
  if (url.protocol !== "https:" && url.protocol !== "http:") throw refuse("must begin with https:// or http://");
  if (url.username !== "" || url.password !== "") throw refuse("must not contain a user name or password");
  const host = bareHost(url);
  // The URL parser reads 0x7f.1 and 2130706433 as 127.0.0.1. Nobody writes an address like that by accident.
  if (isIPv4(host) && !writtenHost(written).includes(host))
    throw refuse("must write its IP address as four decimal numbers");
  return { url, host, port: portOf(url) };
}

async function resolveChecked(host: string, port: number, options: GuardOptions): Promise<Address[]> {
  const { purpose, allowPrivate, resolve = resolveBySystem } = options;
  const family = isIP(host);
  const found =
    family === 0
      ? await resolve(host).catch((error: unknown) => {
          throw new GuardError("unresolved", `${purpose}: ${host} cannot be looked up (${messageOf(error)}).`);
        })
      : [{ address: host, family: family === 6 ? 6 : 4 } as const];
  const addresses = found.slice(0, ADDRESSES_MAX);
  if (addresses.length === 0) throw new GuardError("unresolved", `${purpose}: ${host} has no address.`);
  if (isAllowed(host, port, allowPrivate)) return addresses;
  // A single private address among public ones is refused too: which one is connected to would be chance.
  for (const { address } of addresses) {
    const why = whyNotPublic(address);
    if (why) throw new GuardError("refused", `${purpose} leads to ${address}, which is not a public address (${why}).`);
  }
  return addresses;
}

async function resolveBySystem(host: string): Promise<Address[]> {
  const found = await systemLookup(host, { all: true, verbatim: true });
  return found.map(({ address, family }) => ({ address, family: family === 6 ? 6 : 4 }));
}

/**
 * Why an address is not a public unicast address; undefined if it is. Only what is known to be public is allowed, so
 * that a new special range is refused.
 */
function whyNotPublic(address: string): string | undefined {
  if (isIP(address) === 0) return "unreadable";
  const ip = ipaddr.parse(address);
  if (ip.toString() === METADATA_IPV4) return "metadata";
  const range = ip.range();
  if (range !== "unicast") return range;
  return ip.kind() === "ipv6" && !ip.match(PUBLIC_IPV6) ? "not global" : undefined;
}

function isAllowed(host: string, port: number, allowPrivate: readonly string[]): boolean {
  const written = isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
  return allowPrivate.some((allowed) => allowed.toLowerCase() === written);
}

/** The host in lower case, without IPv6 brackets and without a final dot. */
function bareHost(url: URL): string {
  return url.hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "");
}

function writtenHost(address: string): string {
  return /^[^:]*:[/\\]*([^/\\?#]*)/.exec(address.trim())?.[1] ?? "";
}

function portOf(url: URL): number {
  if (url.port !== "") return Number(url.port);
  return url.protocol === "https:" ? 443 : 80;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
