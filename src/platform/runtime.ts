import { createHash } from "node:crypto";
import { isIP } from "node:net";
import { nodeFetch } from "./node_fetch.ts";

/**
 * The one file of `src/` that names Bun or Deno: serving, fetching, hashing and time, alike on both.
 */

/** Bun reads this variable when its process starts, and never again; it refuses larger numbers. */
const FETCH_LIMIT_VARIABLE = "BUN_CONFIG_MAX_HTTP_REQUESTS";
const FETCH_LIMIT_DEFAULT = 256;
const FETCH_LIMIT_MAX = 65_535;
/** Bun counts a connection's silence in steps of 4 s, and knows no longer one than this. */
const IDLE_STEP_SECONDS = 4;
const IDLE_SECONDS_MAX = 255;
/** On Deno an answer larger than this goes out in such pieces, each as the client takes it. */
const PIECE_BYTES = 64 * 1024;

export type Peer = {
  /** Where the connection comes from: in production, the proxy's address. To be asked while the request is under way. */
  address: () => string;
};

export type ServeOptions = {
  /** 0 takes a free one. */
  port: number;
  hostname: string;
  fetch(request: Request, peer: Peer): Response | Promise<Response>;
  /** Answers for a `fetch` that threw, so that no client meets a stack trace or the runtime's own page. */
  onError(error: unknown): Response;
  /**
   * A client that takes no byte of its answer for so long is cut, and so is a connection kept alive for nothing, give or
   * take four seconds. Deno cuts no connection that is kept alive. Event streams keep their own time.
   */
  clientIdleMs?: number;
};

export type Server = {
  port: number;
  /** Takes no new connection; resolves when those under way have ended, or were ended by closeNow. */
  stop(): Promise<void>;
  /** Cuts every connection. On Deno, after stop: makes stop resolve, and leaves the cutting to the process's exit. */
  closeNow(): Promise<void>;
};

/** Serves HTTP. Throws an Error whose code is EADDRINUSE when the port is taken. Nothing that a client sends is limited in size here: see `gateway/body.ts`. */
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

/** Unix time, ms. For what carries the time of day by definition, as a UUIDv7 does; durations take a monotonic clock. */
export function wallClockMs(): number {
  return Date.now();
}

/**
 * Collects garbage and gives free memory back to the system: some milliseconds in which nothing else runs. Deno has no such call.
 * Bun.shrink is not for a process that goes on: it throws away all compiled code too, which takes a minute of load to come back.
 */
export function giveMemoryBack(): void {
  if (runtimeName === "bun") Bun.gc(true);
}

/** Where a call to a provider goes: to one address, under the URL's own name. Worked out once for many calls. */
export type UpstreamTarget = {
  address: string;
  url: URL;
  /** The URL with the address in place of its name. */
  href: string;
  host: string;
  /** Whose certificate the other side has to show; undefined: without TLS, or to a bare address. */
  serverName: string | undefined;
};

/** The target of calls to `url`. Throws TypeError for a name without an address: names are looked up by the outbound guard alone. */
export function upstreamTarget(url: string | URL, address?: string): UpstreamTarget {
  const target = new URL(url);
  const name = target.hostname.replace(/^\[|\]$/g, "").replace(/\.$/, "");
  const to = address ?? name;
  if (isIP(to) === 0) throw new TypeError("an outbound call needs the address that was checked");
  const serverName = target.protocol === "https:" && isIP(name) === 0 ? name : undefined;
  const { host } = target;
  target.hostname = isIP(to) === 6 ? `[${to}]` : to;
  return { address: to, url: new URL(url), href: target.href, host, serverName };
}

/**
 * `fetch` for providers: to the target's address and nowhere else; no time limit but the caller's signal, no redirects, and
 * the body as it was sent. It asks for an unencoded body; one that comes with a `content-encoding` all the same still
 * carries that header and is not decoded.
 */
export function upstreamFetch(target: UpstreamTarget, init: UpstreamInit): Promise<Response> {
  const { method = "GET", body = null, signal = null } = init;
  const headers = { "accept-encoding": "identity", ...init.headers, host: target.host };
  if (runtimeName === "deno") return nodeFetch(target.url, { method, headers, body, signal }, target.address);
  // Bun's own: its idle limit of five minutes off, its decoding off.
  const asked = { redirect: "manual", timeout: false, decompress: false, keepalive: true } as const;
  const { serverName } = target;
  if (serverName === undefined) return fetch(target.href, { method, headers, body, signal, ...asked });
  // Measured: Bun then asks for, and verifies, the certificate of `serverName`, and keeps connections apart by it.
  return fetch(target.href, { method, headers, body, signal, ...asked, tls: { serverName } });
}

export type UpstreamInit = {
  method?: string;
  /** By names in lower case. */
  headers?: Readonly<Record<string, string>>;
  body?: string | Uint8Array<ArrayBuffer> | null;
  signal?: AbortSignal;
};

/**
 * Makes room for `wanted` outbound requests at once, and returns how many there is room for; call it before anything
 * else. Bun's fetch takes 256 at a time over all hosts, the rest wait unseen. Setting the variable in a running process
 * changes nothing, so the process replaces itself with one that has it (same pid, same standard streams), once.
 */
export function raiseFetchLimit(wanted: number, env: Record<string, string | undefined> = process.env): number {
  if (runtimeName !== "bun") return Number.POSITIVE_INFINITY;
  const goal = Math.min(wanted, FETCH_LIMIT_MAX);
  const set = Number(env[FETCH_LIMIT_VARIABLE]);
  const limit = Number.isInteger(set) && set >= 1 && set <= FETCH_LIMIT_MAX ? set : FETCH_LIMIT_DEFAULT;
  // Windows has no execve: there the operator sets the variable, and the caller says so in the log.
  if (limit >= goal || process.platform === "win32" || !process.execve) return limit;
  const kept = Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return process.execve(process.execPath, [process.execPath, ...process.execArgv, ...process.argv.slice(1)], {
    ...Object.fromEntries(kept),
    [FETCH_LIMIT_VARIABLE]: String(goal),
  });
}

function serveOnBun({ port, hostname, fetch, onError, clientIdleMs = Number.POSITIVE_INFINITY }: ServeOptions): Server {
  const idleSeconds = Math.min(Math.ceil(clientIdleMs / 1000) + IDLE_STEP_SECONDS, IDLE_SECONDS_MAX);
  const server = Bun.serve({
    port,
    hostname,
    // Answers may be silent for minutes. Unfinished headers are still cut, by Bun itself, after some 12 s.
    idleTimeout: 0,
    // Above its limit Bun answers a bare 413; ours has an envelope. Bodies are read only as fast as they are asked for.
    maxRequestBodySize: Number.MAX_SAFE_INTEGER,
    development: false,
    // Said aloud: with `development: false` alone, a second server shares the port in silence, whatever the docs say.
    reusePort: false,
    async fetch(request, self) {
      // Nothing is counted while we are at work; what an earlier request on this connection set would be.
      self.timeout(request, 0);
      const response = await fetch(request, { address: () => self.requestIP(request)?.address ?? "" });
      if (mayStillArrive(request, response)) await nextTurn();
      self.timeout(request, isEventStream(response) ? IDLE_SECONDS_MAX : idleSeconds);
      return response;
    },
    error: onError,
  });
  return {
    port: server.port ?? port,
    stop: () => server.stop(),
    closeNow: () => server.stop(true),
  };
}

/** Whether the end of the request's body may not have come yet: nobody read the body, or the request was refused. */
function mayStillArrive({ headers, bodyUsed }: Request, { status }: Response): boolean {
  if (bodyUsed && status < 400) return false;
  return headers.has("content-length") || headers.has("transfer-encoding");
}

/**
 * Waits for the next turn of the event loop. Bun 1.4.5 closes a connection that is answered before its request body has arrived, and
 * from inside of that it sends the next answer that is ready. With some 2,300 of them ready in one turn the stack overflows, and the
 * process exits or hangs.
 */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

function isEventStream({ headers }: Response): boolean {
  return headers.get("content-type")?.startsWith("text/event-stream") ?? false;
}

function serveOnDeno(runtime: DenoRuntime, options: ServeOptions): Server {
  const { port, hostname, fetch, onError, clientIdleMs = Number.POSITIVE_INFINITY } = options;
  const abort = new AbortController();
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
      return Number.isFinite(clientIdleMs) ? inPieces(response, clientIdleMs) : response;
    },
  );
  const cut = Promise.withResolvers<void>();
  let stopping = false;
  return {
    port: server.addr.port,
    stop() {
      stopping = true;
      return Promise.race([server.shutdown(), cut.promise]);
    },
    async closeNow() {
      // Deno cannot abort a server that is shutting down (BadResource, which ends the process): what is left of it ends
      // when the process exits, and nobody waits for it any longer.
      if (!stopping) abort.abort();
      stopping = true;
      cut.resolve();
    },
  };
}

/** The same answer, cut where the client takes no piece of it for `idleMs`: Deno waits for it without end. */
async function inPieces(response: Response, idleMs: number): Promise<Response> {
  if (response.body === null || isEventStream(response)) return response;
  const { status, headers } = response;
  const reader = response.body.getReader();
  // What is made of a text comes in one piece.
  const { done, value } = await reader.read();
  if (done) return new Response(null, { status, headers });
  if (value.byteLength > PIECE_BYTES) return new Response(cutWhenIdle(value, reader, idleMs), { status, headers });
  const next = await reader.read();
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
      reader.cancel().catch(() => {}); // Nobody is left to hear of it.
    }, idleMs);
  };
  const cancel = (reason: unknown) => {
    clearTimeout(idle);
    return reader.cancel(reason);
  };
  // Nothing ahead of what is asked for: that it is asked for says that the client reads.
  return new ReadableStream({ pull, cancel }, { highWaterMark: 0 });
}

/** As much of Deno as is used here; its types are not installed. */
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
    handler: (request: Request, info: { remoteAddr: { hostname?: string } }) => Response | Promise<Response>,
  ): { addr: { port: number }; shutdown(): Promise<void> };
};

const { Deno: deno } = globalThis as { Deno?: DenoRuntime };
