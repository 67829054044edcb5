import { Agent, createServer, type IncomingMessage, request, type ServerResponse } from "node:http";

/** How often each backend is asked whether it is ready, and the time limit of its answer. */
const POLL_MS = 100;
const ANSWER_MS = 1_000;
/** Consecutive answers that may be missing, as proxies count them: a busy machine is sometimes late. */
const MISSES_MAX = 2;

/** A minimal proxy in front of replicas: it sends requests to ready replicas in turn, and records failures. */
export type HttpProxy = {
  origin: string;
  /** Takes one more backend, by its port. It is served once it says that it is ready. */
  add(port: number): void;
  remove(port: number): void;
  /** Whether this backend is served. */
  isReady(port: number): boolean;
  /** Errors on the way to a backend or back, which a client would see as a failure of the service. */
  failures(): readonly string[];
  /** Requests passed on so far, by port. */
  passed(port: number): number;
  close(): Promise<void>;
};

type Backend = { port: number; ready: boolean; asking: boolean; misses: number; passed: number };

/**
 * Listens on a free port. Bodies go through as they come, both ways; connections to backends are kept alive and used again.
 * A request is sent a second time only if its connection was refused, before a byte of it was sent.
 */
export async function startHttpProxy(): Promise<HttpProxy> {
  const agent = new Agent({ keepAlive: true });
  const backends = new Map<number, Backend>();
  const failures: string[] = [];
  let turn = 0;

  const next = (not: readonly Backend[]): Backend | undefined => {
    const ready = [...backends.values()].filter((one) => one.ready && !not.includes(one));
    return ready[turn++ % Math.max(1, ready.length)];
  };

  function pass(incoming: IncomingMessage, outgoing: ServerResponse, refused: readonly Backend[] = []): void {
    const backend = next(refused);
    if (backend === undefined) {
      fail(outgoing, "no backend is ready");
      return;
    }
    const { connection: _, ...headers } = incoming.headers;
    const { method = "GET", url: path = "/" } = incoming;
    const onward = request({ agent, host: "127.0.0.1", port: backend.port, method, path, headers });
    let begun = false;
    onward.on("socket", (socket) => {
      const send = () => {
        begun = true;
        incoming.pipe(onward);
      };
      if (socket.connecting) socket.once("connect", send);
      else send();
    });
    onward.on("response", (answer) => {
      backend.passed++;
      const { connection: _hop, "transfer-encoding": _coding, ...fields } = answer.headers;
      outgoing.writeHead(answer.statusCode ?? 502, fields);
      answer.pipe(outgoing);
      answer.on("error", (error) => {
        failures.push(`the answer of ${backend.port} broke off: ${error.message}`);
        outgoing.destroy();
      });
    });
    onward.on("error", (error) => {
      const isRefused = !begun && "code" in error && error.code === "ECONNREFUSED";
      if (isRefused) pass(incoming, outgoing, [...refused, backend]);
      else fail(outgoing, `${method} ${path} to ${backend.port}: ${error.message}`);
    });
  }

  function fail(outgoing: ServerResponse, why: string): void {
    failures.push(why);
    if (outgoing.headersSent) outgoing.destroy();
    else outgoing.writeHead(502).end(why);
  }

  async function ask(backend: Backend): Promise<void> {
    // One check at a time: concurrent checks would count one pause as three misses.
    if (backend.asking) return;
    backend.asking = true;
    try {
      const answer = await fetch(`http://127.0.0.1:${backend.port}/readyz`, {
        signal: AbortSignal.timeout(ANSWER_MS),
        keepalive: false,
      });
      await answer.arrayBuffer();
      backend.ready = answer.status === 200;
      backend.misses = 0;
    } catch {
      // It has ended, or does not answer. A request that it refuses goes to another backend.
      if (++backend.misses > MISSES_MAX) backend.ready = false;
    } finally {
      backend.asking = false;
    }
  }

  const server = createServer((incoming, outgoing) => pass(incoming, outgoing));
  server.keepAliveTimeout = 60_000;
  const polling = setInterval(() => {
    for (const backend of backends.values()) void ask(backend);
  }, POLL_MS);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");

  return {
    origin: `http://localhost:${address.port}`,
    add: (port) => void backends.set(port, { port, ready: false, asking: false, misses: 0, passed: 0 }),
    remove: (port) => void backends.delete(port),
    isReady: (port) => backends.get(port)?.ready ?? false,
    failures: () => failures,
    passed: (port) => backends.get(port)?.passed ?? 0,
    async close() {
      clearInterval(polling);
      agent.destroy();
      server.closeAllConnections();
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}
