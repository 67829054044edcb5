import { createHash } from "node:crypto";

/**
 * The one file of `src/` that names Bun or Deno: serving, fetching, hashing and time, alike on both.
 */

/** Bun reads this variable when its process starts, and never again; it refuses larger numbers. */
const FETCH_LIMIT_VARIABLE = "BUN_CONFIG_MAX_HTTP_REQUESTS";
const FETCH_LIMIT_DEFAULT = 256;
const FETCH_LIMIT_MAX = 65_535;

export type Peer = {
  /** Where the connection comes from: in production, the proxy's address. */
  address: string;
};

export type ServeOptions = {
  /** 0 takes a free one. */
  port: number;
  hostname: string;
  fetch(request: Request, peer: Peer): Response | Promise<Response>;
  /** Answers for a `fetch` that threw, so that no client meets a stack trace or the runtime's own page. */
  onError(error: unknown): Response;
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

/** Unix time, ms. For what carries the time of day by definition, as a UUIDv7 does; durations take a monotonic clock. */
export function wallClockMs(): number {
  return Date.now();
}

/** What `promise` resolves to; rejects with what `late` makes, or an Error, when that takes longer than `ms`. */
export function within<T>(ms: number, promise: Promise<T>, late?: () => Error): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(late?.() ?? new Error(`no answer within ${ms} ms`)), ms);
    promise.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}

/**
 * `fetch` for providers: no time limit but the caller's signal, no redirects, and the body as it was sent. It asks for
 * an unencoded body; one that comes with a `content-encoding` all the same still carries that header and is not decoded.
 */
export function upstreamFetch(url: string | URL, init: RequestInit): Promise<Response> {
  const headers = new Headers(init.headers);
  if (!headers.has("accept-encoding")) headers.set("accept-encoding", "identity");
  const asked: RequestInit = { ...init, headers, redirect: "manual" };
  // Bun's own: its idle limit of five minutes off, its decoding off (Deno does not decode what it did not ask for).
  return fetch(url, runtimeName === "bun" ? { ...asked, timeout: false, decompress: false, keepalive: true } : asked);
}

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

function serveOnBun({ port, hostname, fetch, onError }: ServeOptions): Server {
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
    fetch: (request, self) => fetch(request, { address: self.requestIP(request)?.address ?? "" }),
    error: onError,
  });
  return {
    port: server.port ?? port,
    stop: () => server.stop(),
    closeNow: () => server.stop(true),
  };
}

function serveOnDeno(runtime: DenoRuntime, { port, hostname, fetch, onError }: ServeOptions): Server {
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
    (request, info) => fetch(request, { address: info.remoteAddr.hostname ?? "" }),
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
