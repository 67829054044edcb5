import { request as httpRequest, type IncomingMessage } from "node:http";
import { request as httpsRequest } from "node:https";
import { isIP, isIPv4, type LookupFunction } from "node:net";
import ipaddr from "ipaddr.js";
import { Refusal } from "../errors.ts";
import { type Address, type Resolve, resolveName } from "../platform/names.ts";
import type { Owner } from "../platform/share_limit.ts";
import { orAborted } from "../platform/stop.ts";
import { messageOf } from "../platform/thrown.ts";
import { within } from "../platform/time_limit.ts";

/** Longest URL accepted; browsers and proxies have about the same limit. */
const URL_CHARACTERS_MAX = 2048;
/** Addresses of a name that are considered; no call tries that many. */
const ADDRESSES_MAX = 32;
/** The part of IPv6 that is routed on the public internet today. Source: IANA IPv6 global unicast assignments. */
const PUBLIC_IPV6 = ipaddr.parseCIDR("2000::/3");
/** Azure's metadata service: the only such address outside the special ranges. */
const METADATA_IPV4 = "168.63.129.16";

export type { Address, Resolve };
/** A URL that may be called, and the addresses of its host at this moment. */
export type Callable = { url: URL; host: string; port: number; addresses: Address[] };

/** Whether the operator allows this URL's host and port to be on private addresses. */
export function mayBePrivate(address: string, allowPrivate: readonly string[]): boolean {
  const url = URL.parse(address);
  return url !== null && isAllowed(bareHost(url), portOf(url), allowPrivate);
}

type GuardOptions = {
  /** `host:port` pairs that the operator allows to be on private addresses. */
  allowPrivate: readonly string[];
  /** The name of the URL in error messages, as in "The provider's base URL". */
  purpose: string;
  /**
   * Whether errors name the address, or say why there is none, for the operator. Otherwise both have the same text,
   * because a customer who chooses the URL could find out which internal names exist, and where.
   */
  tellsAddresses?: boolean;
  /** The client that chooses the host, for its share of look-ups; left out: the operator chooses it. */
  owner?: Owner;
  /** Looks a name up. Only tests give one. */
  resolve?: Resolve;
};

/**
 * An outbound call that was refused or failed. The message is for the operator; without `tellsAddresses`, that of a
 * look-up may also be shown to others.
 */
export class GuardError extends Error {
  override readonly name = "GuardError";
  readonly kind: "refused" | "unresolved" | "failed" | "timeout" | "oversized";
  /** The HTTP status, if it was the failure. */
  readonly status: number | undefined;

  constructor(kind: GuardError["kind"], message: string, status?: number) {
    super(message);
    this.kind = kind;
    this.status = status;
  }
}

/**
 * Decides whether a URL may be called: http(s), no credentials, and every address of its host public, unless the
 * operator allowed that host and port. Throws GuardError (refused, unresolved), and a Refusal while too many names are looked up. The name may resolve differently a
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
      (error: unknown) => callback(error instanceof Error ? error : new Error(messageOf(error)), []),
    );
  };
}

export type FileOptions = {
  bytesMax: number;
  /** Time limit for the whole call: look-up, connect, headers, body. */
  timeoutMs: number;
  /** Time limit for the headers, and for each further piece; default: `timeoutMs`. */
  idleMs?: number;
  allowPrivate: readonly string[];
  /** Sent besides the fixed headers. */
  headers?: Readonly<Record<string, string>>;
  purpose?: string;
  signal?: AbortSignal;
  owner?: Owner;
  resolve?: Resolve;
};

/** A file whose headers have arrived. Nothing is read ahead of `read`. */
export type OpenFile = {
  contentType: string;
  /** In bytes; undefined if the server did not declare it. */
  length: number | undefined;
  /** The next bytes; undefined at the end. Throws GuardError (oversized, timeout, failed), or the reason of the signal. */
  read(): Promise<Uint8Array | undefined>;
  /** Closes the connection; idempotent. The caller that opens a file closes it. */
  close(): void;
};

/** Downloads a public URL completely. Throws as `openGuarded` and `read` do. */
export async function fetchGuarded(
  address: string,
  options: FileOptions & { onBytes?: (bytes: number) => void },
): Promise<{ bytes: Uint8Array; contentType: string }> {
  const file = await openGuarded(address, options);
  try {
    const pieces: Uint8Array[] = [];
    let size = 0;
    for (let piece = await file.read(); piece !== undefined; piece = await file.read()) {
      pieces.push(piece);
      size += piece.byteLength;
      options.onBytes?.(size);
    }
    return { bytes: new Uint8Array(Buffer.concat(pieces)), contentType: file.contentType };
  } finally {
    file.close();
  }
}

/**
 * Opens a public URL: no redirects, no compression, limits on size and time. Throws GuardError, or the reason of `signal`. Uses
 * node's client, because `fetch` cannot be told which address to connect to.
 */
export async function openGuarded(address: string, options: FileOptions): Promise<OpenFile> {
  const { bytesMax, timeoutMs, idleMs = timeoutMs, signal, headers, ...more } = options;
  const guard = { purpose: "The file's address", tellsAddresses: true, ...more };
  const { url, host, port } = parseCallable(address, guard.purpose);
  // `lookup` is not called for a host that is an IP address.
  if (isIP(host)) await resolveChecked(host, port, guard);
  signal?.throwIfAborted();
  const ended = new AbortController();
  const leave = () => ended.abort(signal?.reason);
  signal?.addEventListener("abort", leave, { once: true });
  const late = () => new GuardError("timeout", `No whole answer within ${timeoutMs} ms.`);
  const idle = () => new GuardError("timeout", `No bytes within ${idleMs} ms.`);
  const timer = setTimeout(() => ended.abort(late()), timeoutMs);
  const call = (url.protocol === "https:" ? httpsRequest : httpRequest)(url.href, {
    method: "GET",
    agent: false,
    lookup: guardedLookup(port, guard),
    headers: { ...headers, accept: "*/*", "accept-encoding": "identity", "user-agent": "tollgate" },
  });
  const answered = new Promise<IncomingMessage>((resolve, reject) => {
    call.on("response", resolve);
    call.on("error", reject); // Not removed, because a destroyed call may still emit an error.
  });
  answered.catch(() => {}); // Handled below, unless a limit comes first.
  const close = () => {
    clearTimeout(timer);
    signal?.removeEventListener("abort", leave);
    call.destroy();
  };
  ended.signal.addEventListener("abort", close, { once: true });
  /** `promise` within the limits; any failure as a GuardError. */
  const limited = async <T>(promise: Promise<T>): Promise<T> => {
    try {
      return await within(idleMs, orAborted(promise, ended.signal), idle);
    } catch (thrown) {
      close();
      throw thrown instanceof GuardError || signal?.aborted ? thrown : new GuardError("failed", messageOf(thrown));
    }
  };
  call.end();
  const response = await limited(answered);
  response.on("error", () => {}); // `read` reports it; destroying the call must not raise it again.
  return await limited(openFile(response, { bytesMax, limited, close }));
}

type Reading = { bytesMax: number; limited: <T>(promise: Promise<T>) => Promise<T>; close: () => void };

async function openFile(response: IncomingMessage, { bytesMax, limited, close }: Reading): Promise<OpenFile> {
  const { statusCode, headers } = response;
  if (statusCode !== 200) throw new GuardError("failed", `Answered with status ${statusCode}.`, statusCode);
  const encoding = headers["content-encoding"];
  if (encoding !== undefined && encoding !== "identity")
    throw new GuardError("failed", "Answered compressed, which was not asked for.");
  const oversized = () => new GuardError("oversized", `Larger than ${bytesMax} bytes.`);
  const said = headers["content-length"];
  const length = said === undefined ? undefined : Number(said);
  if (length !== undefined && length > bytesMax) throw oversized();
  const pieces: AsyncIterator<Uint8Array> = response[Symbol.asyncIterator]();
  let size = 0;
  const next = async (): Promise<Uint8Array | undefined> => {
    const { done, value } = await pieces.next();
    if (done === true) {
      if (response.complete) return undefined;
      throw new GuardError("failed", "The answer broke off.");
    }
    size += value.byteLength;
    if (size > bytesMax) throw oversized();
    return value;
  };
  return { contentType: headers["content-type"] ?? "", length, read: () => limited(next()), close };
}

/** Checks a URL without looking its host up. Throws GuardError (refused). */
function parseCallable(address: string | URL, purpose: string): Omit<Callable, "addresses"> {
  const refuse = (why: string) => new GuardError("refused", `${purpose} ${why}.`);
  const written = String(address);
  if (written.length > URL_CHARACTERS_MAX) throw refuse("is too long");
  const url = URL.parse(written);
  if (!url) throw refuse("is not a URL");
  // Percent-encoding can make it longer than it was written.
  if (url.href.length > URL_CHARACTERS_MAX) throw refuse("is too long");
  if (url.protocol !== "https:" && url.protocol !== "http:") throw refuse("must begin with https:// or http://");
  if (url.username !== "" || url.password !== "") throw refuse("must not contain a user name or password");
  const host = bareHost(url);
  // The URL parser reads 0x7f.1 and 2130706433 as 127.0.0.1. Nobody writes an address like that by accident.
  if (isIPv4(host) && !writtenHost(written).includes(host))
    throw refuse("must write its IP address as four decimal numbers");
  return { url, host, port: portOf(url) };
}

async function resolveChecked(host: string, port: number, options: GuardOptions): Promise<Address[]> {
  const { purpose, allowPrivate, tellsAddresses = false, owner } = options;
  const { resolve = (name: string) => resolveName(name, owner) } = options;
  const refuse = (kind: GuardError["kind"], detail: string) =>
    new GuardError(kind, purpose + (tellsAddresses ? detail : ": this host is unknown, or not a public address."));
  const family = isIP(host);
  const found =
    family === 0
      ? await resolve(host).catch((error: unknown) => {
          if (error instanceof Refusal) throw error;
          throw refuse("unresolved", `: ${host} cannot be looked up (${messageOf(error)}).`);
        })
      : [{ address: host, family: family === 6 ? 6 : 4 } as const];
  const addresses = found.slice(0, ADDRESSES_MAX);
  if (addresses.length === 0) throw refuse("unresolved", `: ${host} has no address.`);
  if (isAllowed(host, port, allowPrivate)) return addresses;
  // A single private address among public ones is refused too, because any of them might be connected to.
  for (const { address } of addresses) {
    const why = whyNotPublic(address);
    if (why) {
      const detail = `leads to ${address}, which is not a public address (${why})`;
      throw refuse("refused", ` ${detail}. If it is yours, add ${hostAndPort(host, port)} to PROVIDER_ALLOW_PRIVATE.`);
    }
  }
  return addresses;
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
  return allowPrivate.some((allowed) => allowed.toLowerCase() === hostAndPort(host, port));
}

/** A host and port as `PROVIDER_ALLOW_PRIVATE` has them. */
function hostAndPort(host: string, port: number): string {
  return isIP(host) === 6 ? `[${host}]:${port}` : `${host}:${port}`;
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
