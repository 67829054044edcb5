import { createHash } from "node:crypto";
import { isIP } from "node:net";
import { nodeFetch } from "./node_fetch.ts";
import { createReadOn, type ReadOn } from "./read_on.ts";

/**
 * The one file of `src/` that names Bun or Deno: serving, fetching, hashing and time, alike on both.
 */

/** Bun reads this variable only when the process starts, and rejects larger numbers. */
const FETCH_LIMIT_VARIABLE = "BUN_CONFIG_MAX_HTTP_REQUESTS";
const FETCH_LIMIT_DEFAULT = 256;
const FETCH_LIMIT_MAX = 65_535;
/** Bun counts a connection's idle time in steps of 4 s, up to this maximum. */
const IDLE_STEP_SECONDS = 4;
const IDLE_SECONDS_MAX = 255;
/**
 * What arrives of a body that nobody has read is left to the runtime if it is declared with at most this length: the runtime reads it to
 * its end, however long it is, and the connection can be used again.
 */
const LEFT_BODY_BYTES_MAX = 1024 * 1024;
/** On Deno, a larger answer is sent in pieces of this size, each when the client has read the one before. */
const PIECE_BYTES = 64 * 1024;

export type Peer = {
  /** The remote address of the connection; in production, the proxy's. Call it during the request. */
  address: () => string;
};

export type ServeOptions = {
  /** 0: a free port. */
  port: number;
  hostname: string;
  fetch(request: Request, peer: Peer): Response | Promise<Response>;
  /** The answer if `fetch` throws, so that no client gets a stack trace or the runtime's own error page. */
  onError(error: unknown): Response;
  /**
   * A client that reads nothing of its answer for this long is disconnected, and so is an idle keep-alive connection, give or take four
   * seconds. Deno does not close idle keep-alive connections. Event streams have their own limit.
   */
  clientIdleMs?: number;
  /** Other processes of this user listen on the port too, and the kernel spreads connections over all. Only on Bun. */
  sharesPort?: boolean;
};

export type Server = {
  port: number;
  /** Accepts no new connections; resolves when the open ones have ended, or were closed by closeNow. */
  stop(): Promise<void>;
  /** Closes every connection. On Deno, after stop: makes stop resolve; the connections close when the process exits. */
  closeNow(): Promise<void>;
};

/** Serves HTTP. Throws an Error whose code is EADDRINUSE when the port is taken. Does not limit the size of bodies: see `http/body.ts`. */
export function serve(options: ServeOptions): Server {
  return deno ? serveOnDeno(deno, options) : serveOnBun(options);
}

export const runtimeName: "bun" | "deno" = typeof Bun === "undefined" ? "deno" : "bun";

/** SHA-256 of bytes, or of a string's UTF-8. */
export function sha256(data: string | Uint8Array): Uint8Array {
  if (runtimeName !== "bun") return createHash("sha256").update(data).digest();
  const digest = new Uint8Array(32);
  Bun.SHA256.hash(data, digest);
  return digest;
}

/** The same in hex. */
export function sha256Hex(text: string): string {
  return runtimeName === "bun" ? Bun.SHA256.hash(text, "hex") : createHash("sha256").update(text).digest("hex");
}

/** Unix time, ms. For values that contain the time of day, such as a UUIDv7. Durations use a monotonic clock. */
export function wallClockMs(): number {
  return Date.now();
}

/**
 * Collects garbage and returns free memory to the system. Blocks for some milliseconds. Deno has no such call. Bun.shrink is not used:
 * it also discards all compiled code, which takes a minute of load to rebuild.
 */
export function giveMemoryBack(): void {
  if (runtimeName === "bun") Bun.gc(true);
}

/** Where calls to a provider go: to one address, under the URL's own name. Computed once for many calls. */
export type UpstreamTarget = {
  address: string;
  url: URL;
  /** The URL with the address in place of its name. */
  href: string;
  host: string;
  /** The name that the certificate must have; undefined: no TLS, or a bare address. */
  serverName: string | undefined;
};

/** The target of calls to `url`. Throws TypeError for a name without an address: only the outbound guard resolves names. */
export function upstreamTarget(url: string | URL, address?: string): UpstreamTarget {
  const target = new URL(url);
  const name = target.hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "");
  const to = address ?? name;
  if (isIP(to) === 0) throw new TypeError("an outbound call needs a checked address");
  const serverName = target.protocol === "https:" && isIP(name) === 0 ? name : undefined;
  const { host } = target;
  target.hostname = isIP(to) === 6 ? `[${to}]` : to;
  return { address: to, url: new URL(url), href: target.href, host, serverName };
}

/**
 * `fetch` for providers: connects to the target's address only; no time limit except the caller's signal; no redirects. It asks for an
 * unencoded body; a body with a `content-encoding` is returned undecoded, with that header.
 */
export function upstreamFetch(target: UpstreamTarget, init: UpstreamInit): Promise<Response> {
  const { method = "GET", body = null, signal = null } = init;
  const headers = { "accept-encoding": "identity", ...init.headers, host: target.host };
  if (runtimeName === "deno") return nodeFetch(target.url, { method, headers, body, signal }, target.address);
  // Turns off Bun's idle limit of five minutes and its decoding.
  const asked = { redirect: "manual", timeout: false, decompress: false, keepalive: true } as const;
  const { serverName } = target;
  if (serverName === undefined) return fetch(target.href, { method, headers, body, signal, ...asked });
  // Measured: Bun requests and verifies the certificate of `serverName`, and does not share connections between names.
  return fetch(target.href, { method, headers, body, signal, ...asked, tls: { serverName } });
}

export type UpstreamInit = {
  method?: string;
  /** Names in lower case. */
  headers?: Readonly<Record<string, string>>;
  body?: string | Uint8Array<ArrayBuffer> | null;
  signal?: AbortSignal;
};

/**
 * Raises the limit of concurrent outbound requests to `wanted`, and returns the limit. Call it before anything else. Bun's fetch
 * allows 256 over all hosts; further ones wait unnoticed. Setting the variable in a running process has no effect, so the process
 * replaces itself once with one that has it (same pid, same standard streams).
 */
export function raiseFetchLimit(wanted: number, env: Record<string, string | undefined> = process.env): number {
  if (runtimeName !== "bun") return Number.POSITIVE_INFINITY;
  const goal = Math.min(wanted, FETCH_LIMIT_MAX);
  const set = Number(env[FETCH_LIMIT_VARIABLE]);
  const limit = Number.isInteger(set) && set >= 1 && set <= FETCH_LIMIT_MAX ? set : FETCH_LIMIT_DEFAULT;
  // Windows has no execve: there the operator sets the variable, and the caller logs that.
  if (limit >= goal || process.platform === "win32" || !process.execve) return limit;
  const kept = Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return process.execve(process.execPath, ownCommand(), {
    ...Object.fromEntries(kept),
    [FETCH_LIMIT_VARIABLE]: String(goal),
  });
}

/** The command that started this process. Only on Bun: Deno hides its options. */
export function ownCommand(): string[] {
  return [process.execPath, ...process.execArgv, ...process.argv.slice(1)];
}

function serveOnBun(options: ServeOptions): Server {
  const { port, hostname, fetch, onError, clientIdleMs = Number.POSITIVE_INFINITY, sharesPort = false } = options;
  const idleSeconds = Math.min(Math.ceil(clientIdleMs / 1000) + IDLE_STEP_SECONDS, IDLE_SECONDS_MAX);
  const readOn = createReadOn();
  const server = Bun.serve({
    port,
    hostname,
    // Answers may be silent for minutes. Bun itself still closes connections with unfinished headers after about 12 s.
    idleTimeout: 0,
    // Above its limit Bun answers a bare 413; ours has an error body. Bodies are read only on demand.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    development: false,
    // Explicit, because with `development: false` alone a second server silently shares the port, contrary to the docs.
    reusePort: sharesPort,
    async fetch(request, self) {
      // No idle limit while the request is handled; an earlier request on this connection may have set one.
      self.timeout(request, 0);
      const response = await fetch(request, { address: () => self.requestIP(request)?.address ?? "" });
      // Bun 1.4.5 closes a connection that is answered before its request body has arrived, and from inside of that it sends the next
      // answer that is ready. With some 2,300 of them ready in one turn the stack overflows, and the process exits or hangs.
      if (mayStillArrive(request, response)) await nextTurn();
      self.timeout(request, isEventStream(response) || hasBegunEarly(response) ? IDLE_SECONDS_MAX : idleSeconds);
      return isLeftOver(request, response) && !isClosed(response) ? closedByBun(request, response, readOn) : response;
    },
    error: onError,
  });
  return {
    port: server.port ?? port,
    stop() {
      readOn.close();
      return server.stop();
    },
    closeNow: () => server.stop(true),
  };
}

/** Whether more may arrive of the request's body than is left to the runtime. A body that was read to its end stays locked. */
function isLeftOver(request: Request, response: Response): boolean {
  if (!mayStillArrive(request, response)) return false;
  const declared = Number(request.headers.get("content-length") ?? Number.POSITIVE_INFINITY);
  return declared > LEFT_BODY_BYTES_MAX && request.body?.locked === false;
}

/**
 * The same answer, whose connection Bun closes. Bun does so when the answer has ended, and has no other way to close one connection. So the
 * answer is sent, but ends only when enough of the body was read.
 */
function closedByBun(request: Request, response: Response, readOn: ReadOn): Response {
  const { status, headers } = response;
  headers.set("connection", "close");
  if (status < 400 || response.body === null) return response;
  const reader = response.body.getReader();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (!done) return controller.enqueue(value);
      if (request.body !== null) await readOn.read(request.body);
      controller.close();
    },
  });
  return new Response(body, { status, headers });
}

/** Whether the request's body may not have arrived completely: nobody read it, or the request was refused. */
function mayStillArrive({ headers, bodyUsed }: Request, { status }: Response): boolean {
  if (bodyUsed && status < 400) return false;
  return headers.has("content-length") || headers.has("transfer-encoding");
}

/** Waits for the next turn of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Whether the connection is closed after the answer: Bun does it immediately, Deno when it has read the body. */
function isClosed({ headers }: Response): boolean {
  return headers.get("connection") === "close";
}

function isEventStream({ headers }: Response): boolean {
  return headers.get("content-type")?.startsWith("text/event-stream") ?? false;
}

/** A JSON answer whose headers are sent before it is known. */
function hasBegunEarly({ headers }: Response): boolean {
  return headers.get("x-accel-buffering") === "no";
}

function serveOnDeno(runtime: DenoRuntime, options: ServeOptions): Server {
  const { port, hostname, fetch, onError, clientIdleMs = Number.POSITIVE_INFINITY } = options;
  const abort = new AbortController();
  const readOn = createReadOn();
  const server = runtime.serve(
    {
      port,
      hostname,
      signal: abort.signal,
      automaticCompression: false,
      onListen: () => {},
      onError,
    },
    async (request, info) => {
      const response = await fetch(request, { address: () => info.remoteAddr.hostname ?? "" });
      const closes = isClosed(response) && mayStillArrive(request, response);
      if ((closes || isLeftOver(request, response)) && request.body?.locked === false) {
        // Either fails if the client has left.
        const sent = info.completed.catch(() => {});
        closeOnDeno(request.body, closes ? undefined : readOn, sent).catch(() => {});
      }
      return Number.isFinite(clientIdleMs) ? inPieces(response, clientIdleMs) : response;
    },
  );
  const cut = Promise.withResolvers<void>();
  let stopping = false;
  return {
    port: server.addr.port,
    stop() {
      stopping = true;
      readOn.close();
      return Promise.race([server.shutdown(), cut.promise]);
    },
    async closeNow() {
      // Deno cannot abort a server that is shutting down (BadResource, which ends the process): its connections close when
      // the process exits, and `stop` does not wait for them.
      if (!stopping) abort.abort();
      stopping = true;
      cut.resolve();
    },
  };
}

/**
 * Closes the connection of a request that was answered before its body had arrived, if the answer says so or if too much is left. Deno
 * does so when the body is cancelled after the answer was sent. Cancelled before, the body is read to its end, however long it is.
 */
async function closeOnDeno(body: ReadableStream<Uint8Array>, readOn: ReadOn | undefined, sent: Promise<void>) {
  // Taken before the answer is sent: what nobody has taken by then is read to its end.
  if (readOn !== undefined) return readOn.read(body, sent);
  const reader = body.getReader();
  await sent;
  // A piece that was asked for before must have arrived, or the cancelled body is read to its end too.
  await reader.read();
  await reader.cancel();
}

/** The same answer, but ended if the client reads no piece of it for `idleMs`: Deno would wait forever. */
async function inPieces(response: Response, idleMs: number): Promise<Response> {
  if (response.body === null || isEventStream(response)) return response;
  const { status, headers } = response;
  const reader = response.body.getReader();
  // A response made from a string has one chunk.
  const { done, value } = await reader.read();
  if (done) return new Response(null, { status, headers });
  if (value.byteLength > PIECE_BYTES || hasBegunEarly(response))
    return new Response(cutWhenIdle(value, reader, idleMs), { status, headers });
  const next = await reader.read().catch(() => undefined);
  // It has broken off: so does the answer, where it reads on.
  if (next === undefined) return new Response(cutWhenIdle(value, reader, idleMs), { status, headers });
  if (next.done) return new Response(value, { status, headers });
  return new Response(cutWhenIdle(Buffer.concat([value, next.value]), reader, idleMs), { status, headers });
}

function cutWhenIdle(
  begun: Uint8Array<ArrayBuffer>,
  reader: ReadableStreamDefaultReader<Uint8Array<ArrayBuffer>>,
  idleMs: number,
): ReadableStream<Uint8Array> {
  let bytes = begun;
  let idle: ReturnType<typeof setTimeout> | undefined;
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
    clearTimeout(idle);
    if (bytes.byteLength === 0) {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      bytes = value;
    }
    controller.enqueue(bytes.subarray(0, PIECE_BYTES));
    bytes = bytes.subarray(PIECE_BYTES);
    idle = setTimeout(() => {
      controller.error(new Error("The client does not read."));
      reader.cancel().catch(() => {}); // The client is gone.
    }, idleMs);
  };
  const cancel = (reason: unknown) => {
    clearTimeout(idle);
    return reader.cancel(reason);
  };
  // No read-ahead: a pull means that the client has read the previous piece.
  return new ReadableStream({ pull, cancel }, { highWaterMark: 0 });
}

/** The part of Deno that is used here; its types are not installed. */
type DenoRuntime = {
  serve(
    options: {
      port: number;
      hostname: string;
      signal: AbortSignal;
      automaticCompression: boolean;
      onListen: () => void;
      onError: (error: unknown) => Response;
    },
    handler: (
      request: Request,
      info: { remoteAddr: { hostname?: string }; completed: Promise<void> },
    ) => Response | Promise<Response>,
  ): { addr: { port: number }; shutdown(): Promise<void> };
};

const { Deno: deno } = globalThis as { Deno?: DenoRuntime };
