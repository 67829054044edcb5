import { createServer, connect as dial, type Socket } from "node:net";

/** The buffer of one direction of a connection while it may not write; above it the sender is not read. */
const KEPT_BYTES_MAX = 1024 * 1024;

/** A TCP proxy in front of a test server that can misbehave, in one way at a time. */
export type TcpProxy = {
  /** The server's URL, by way of the proxy. */
  url: string;
  port: number;
  /** Closes open connections, and new ones. */
  cut(): void;
  /** Resets (RST) open connections, and new ones. */
  reset(): void;
  /** Passes requests and drops every reply, like a server that has received them and falls silent. */
  dropReplies(): void;
  /**
   * Swallows the next reply and resets that connection: a COMMIT whose answer is lost. With `asking`, the next reply on a
   * connection whose client sends this text from now on. Resolves when it has happened.
   */
  dropNextReply(asking?: string): Promise<void>;
  /** Connections stay open and new ones are accepted, but no byte passes. Kept bytes pass after `mend`. */
  hang(): void;
  /** Every byte arrives this many milliseconds later, in both directions. */
  latency(ms: number): void;
  /** How many connections were opened to it, also those that it closed at once. */
  connections(): number;
  /** New connections lead to the server of this URL. Open ones stay where they are, as when a name moves. */
  moveTo(url: string): void;
  /** As a plain proxy again. Connections whose replies were dropped stay silent. */
  mend(): void;
  close(): Promise<void>;
};

/** The time by which bytes are late. */
export type ProxyClock = {
  nowMs(): number;
  /** Runs something once, so many ms later. Returns what cancels that. */
  later(run: () => void, ms: number): () => void;
};

const MACHINE_CLOCK: ProxyClock = {
  nowMs: () => performance.now(),
  later(run, ms) {
    const timer = setTimeout(run, ms);
    return () => clearTimeout(timer);
  },
};

type Mode = "pass" | "cut" | "reset" | "drop" | "hang";
type Loss = { asking: string | undefined; done: () => void };
type Link = { client: Socket; upstream: Socket; wake(): void };

/** Listens on a free port before the server of `targetUrl`. */
export async function startTcpProxy(targetUrl: string, clock = MACHINE_CLOCK): Promise<TcpProxy> {
  let target = new URL(targetUrl);
  const links = new Set<Link>();
  let mode: Mode = "pass";
  let delayMs = 0;
  let loss: Loss | undefined;
  let opened = 0;

  const server = createServer((client) => {
    opened++;
    client.on("error", () => client.destroy());
    if (mode === "cut") return client.destroy();
    if (mode === "reset") return client.resetAndDestroy();
    const upstream = dial(Number(target.port), target.hostname);
    const gate = { open: () => mode !== "hang", delayMs: () => delayMs, clock };
    const forth = pump(client, upstream, gate);
    const back = pump(upstream, client, gate);
    const link: Link = {
      client,
      upstream,
      wake() {
        forth.wake();
        back.wake();
      },
    };
    links.add(link);
    const onClose = () => {
      forth.end();
      back.end();
      if (client.destroyed && upstream.destroyed) links.delete(link);
    };
    let silent = false;
    let asked = false;
    client.on("data", (bytes: Buffer) => {
      if (loss?.asking !== undefined && bytes.includes(loss.asking)) asked = true;
      // Also if the reply arrives after `mend`.
      if (mode === "drop") silent = true;
      forth.push(bytes);
    });
    upstream.on("data", (bytes: Buffer) => {
      if (loss && (loss.asking === undefined || asked)) {
        loss.done();
        loss = undefined;
        return client.resetAndDestroy();
      }
      if (mode === "drop") silent = true;
      if (!silent) back.push(bytes);
    });
    upstream.on("error", () => upstream.destroy());
    for (const socket of [client, upstream]) socket.on("close", onClose);
  });

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  const url = new URL(targetUrl);
  url.hostname = "127.0.0.1";
  url.port = String(address.port);

  const become = (next: Mode, nextDelayMs = 0) => {
    mode = next;
    delayMs = nextDelayMs;
    for (const link of links) {
      if (next === "cut" || next === "reset") {
        if (next === "cut") link.client.destroy();
        else link.client.resetAndDestroy();
        link.upstream.destroy();
      } else link.wake();
    }
  };
  return {
    url: url.href,
    port: address.port,
    cut: () => become("cut"),
    reset: () => become("reset"),
    dropReplies: () => become("drop"),
    dropNextReply(asking) {
      return new Promise((done) => {
        loss = { asking, done };
      });
    },
    hang: () => become("hang"),
    latency: (ms) => become("pass", ms),
    connections: () => opened,
    moveTo(url) {
      target = new URL(url);
    },
    mend: () => become("pass"),
    async close() {
      become("cut");
      await new Promise<void>((resolve) => server.close(() => resolve()));
    },
  };
}

type Gate = { open(): boolean; delayMs(): number; clock: ProxyClock };

/** One direction of a connection: keeps bytes that may not pass yet, in order, and reads no more than its buffer. */
function pump(from: Socket, to: Socket, { open, delayMs, clock }: Gate) {
  const kept: { bytes: Buffer; dueMs: number }[] = [];
  let keptBytes = 0;
  let blocked = false;
  let over = false;
  let cancel = () => {};

  function wake(): void {
    cancel();
    while (!blocked && open()) {
      const next = kept[0];
      if (next === undefined) break;
      const waitMs = next.dueMs - clock.nowMs();
      if (waitMs > 0) {
        cancel = clock.later(wake, waitMs);
        return;
      }
      kept.shift();
      keptBytes -= next.bytes.length;
      blocked = !to.write(next.bytes);
    }
    if (from.isPaused() && keptBytes < KEPT_BYTES_MAX) from.resume();
    if (over && kept.length === 0) to.end();
  }

  to.on("drain", () => {
    blocked = false;
    wake();
  });
  return {
    wake,
    push(bytes: Buffer): void {
      kept.push({ bytes, dueMs: clock.nowMs() + delayMs() });
      keptBytes += bytes.length;
      if (keptBytes >= KEPT_BYTES_MAX) from.pause();
      wake();
    },
    /** One side has ended: the other gets the kept bytes, and then its end. */
    end(): void {
      over = true;
      wake();
    },
  };
}
