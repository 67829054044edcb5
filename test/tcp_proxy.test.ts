import { afterAll, beforeAll, expect, test } from "bun:test";
import { createServer, connect as dial, type Server, type Socket } from "node:net";
import { until } from "./platform/own_redis.ts";
import { type ProxyClock, startTcpProxy, type TcpProxy } from "./tcp_proxy.ts";

/** A server that answers with what it hears, behind a proxy. */

const ROUND_TRIP_BYTES = 5;

let server: Server;
let target = "";
let heardBytes = 0;
/** Whether the server answers, or only listens. */
let answering = true;

beforeAll(async () => {
  server = createServer((socket) => {
    socket.on("error", () => socket.destroy());
    socket.on("data", (bytes) => {
      heardBytes += bytes.length;
      if (answering) socket.write(bytes);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  if (address === null || typeof address === "string") throw new Error("no port");
  target = `tcp://127.0.0.1:${address.port}`;
});

afterAll(() => server.close());

type Client = { socket: Socket; got: () => string; closed: () => boolean; error: () => string };

function connectTo(proxy: TcpProxy): Client {
  let got = "";
  let closed = false;
  let error = "";
  const socket = dial(proxy.port, "127.0.0.1");
  socket.on("data", (bytes) => {
    got += bytes;
  });
  socket.on("error", (cause: Error & { code?: string }) => {
    error = cause.code ?? cause.message;
  });
  socket.on("close", () => {
    closed = true;
  });
  return { socket, got: () => got, closed: () => closed, error: () => error };
}

async function withProxy(work: (proxy: TcpProxy) => Promise<void>, clock?: ProxyClock): Promise<void> {
  const proxy = await startTcpProxy(target, clock);
  try {
    await work(proxy);
  } finally {
    await proxy.close();
  }
}

/** Bytes went to the server and back through another proxy: whatever would pass here has passed. */
async function roundTrip(): Promise<void> {
  await withProxy(async (other) => {
    const client = connectTo(other);
    for (let i = 1; i <= 5; i++) {
      client.socket.write(".");
      await until(() => client.got().length === i);
    }
  });
}

test("a plain proxy passes bytes and the end both ways", () =>
  withProxy(async (proxy) => {
    const client = connectTo(proxy);
    client.socket.write("hello");
    await until(() => client.got() === "hello");
    client.socket.end();
    await until(client.closed);
  }));

test("hang: connections stay open and new ones are accepted, but no byte passes; after mend every byte arrives, in order", () =>
  withProxy(async (proxy) => {
    const before = connectTo(proxy);
    before.socket.write("a");
    await until(() => before.got() === "a");
    proxy.hang();
    const heard = heardBytes;
    const during = connectTo(proxy);
    before.socket.write("bc");
    during.socket.write("x");
    await roundTrip();
    expect([before.got(), during.got(), heardBytes - ROUND_TRIP_BYTES]).toEqual(["a", "", heard]);
    expect([before.closed(), during.closed()]).toEqual([false, false]);
    before.socket.write("d");
    proxy.mend();
    await until(() => before.got() === "abcd" && during.got() === "x");
  }));

test("latency: every byte arrives later, in order, in each direction", () => {
  let nowMs = 0;
  const timers = new Map<() => void, number>();
  const clock: ProxyClock = {
    nowMs: () => nowMs,
    later(run, ms) {
      timers.set(run, nowMs + ms);
      return () => timers.delete(run);
    },
  };
  const moveTo = (ms: number) => {
    nowMs = ms;
    for (const [run, dueMs] of [...timers]) if (dueMs <= nowMs) run();
  };
  return withProxy(async (proxy) => {
    proxy.latency(100);
    const client = connectTo(proxy);
    const heard = heardBytes;
    client.socket.write("1");
    await until(() => timers.size === 1);
    moveTo(30);
    client.socket.write("2");
    await roundTrip();
    moveTo(99);
    await roundTrip();
    expect(heardBytes - 2 * ROUND_TRIP_BYTES).toBe(heard);
    // On the way back, each waits again.
    moveTo(100);
    await until(() => heardBytes === heard + 2 * ROUND_TRIP_BYTES + 1 && timers.size === 2);
    moveTo(130);
    await until(() => heardBytes === heard + 2 * ROUND_TRIP_BYTES + 2);
    moveTo(199);
    await roundTrip();
    expect(client.got()).toBe("");
    moveTo(200);
    await until(() => client.got() === "1");
    moveTo(1_000);
    await until(() => client.got() === "12");
    proxy.mend();
    client.socket.write("3");
    await until(() => client.got() === "123");
  }, clock);
});

test("reset: open and new connections get an RST; cut: they are closed normally", () =>
  withProxy(async (proxy) => {
    for (const how of ["reset", "cut"] as const) {
      const open = connectTo(proxy);
      open.socket.write("a");
      await until(() => open.got() === "a");
      proxy[how]();
      await until(open.closed);
      const next = connectTo(proxy);
      next.socket.write("b");
      await until(next.closed);
      expect(next.got()).toBe("");
      if (how === "reset") expect([open.error(), next.error()]).toEqual(["ECONNRESET", "ECONNRESET"]);
      else expect(open.error()).toBe("");
      proxy.mend();
    }
    const after = connectTo(proxy);
    after.socket.write("c");
    await until(() => after.got() === "c");
  }));

test("dropReplies: the server receives and the client does not; that connection stays silent after mend", () =>
  withProxy(async (proxy) => {
    const client = connectTo(proxy);
    proxy.dropReplies();
    const heard = heardBytes;
    client.socket.write("lost");
    await until(() => heardBytes === heard + 4);
    proxy.mend();
    client.socket.write("too");
    await until(() => heardBytes === heard + 7);
    const fresh = connectTo(proxy);
    fresh.socket.write("heard");
    await until(() => fresh.got() === "heard");
    expect([client.got(), client.closed()]).toEqual(["", false]);
  }));

test("dropNextReply: the server receives the request once, its reply is dropped, and only that connection is reset", () =>
  withProxy(async (proxy) => {
    const [asker, other] = [connectTo(proxy), connectTo(proxy)];
    const happened = proxy.dropNextReply("commit");
    other.socket.write("begin");
    await until(() => other.got() === "begin");
    const heard = heardBytes;
    asker.socket.write("commit");
    await happened;
    await until(asker.closed);
    expect([asker.got(), asker.error(), heardBytes]).toEqual(["", "ECONNRESET", heard + 6]);
    other.socket.write("commit");
    await until(() => other.got() === "begincommit");

    const any = proxy.dropNextReply();
    other.socket.write("x");
    await any;
    await until(other.closed);
    expect(other.got()).toBe("begincommit");
  }));

test("a reader that does not read makes the proxy stop reading: its buffer is bounded, and nothing is lost", () =>
  withProxy(async (proxy) => {
    answering = false;
    try {
      const client = connectTo(proxy);
      proxy.hang();
      let heard = heardBytes;
      const chunk = Buffer.alloc(256 * 1024, "x");
      let sentBytes = 0;
      // Far more than the proxy may keep and the kernel's buffers hold.
      for (let i = 0; i < 160; i++) {
        client.socket.write(chunk);
        sentBytes += chunk.length;
      }
      // Until the system takes no more.
      for (let left = -1; left !== client.socket.writableLength; ) {
        left = client.socket.writableLength;
        answering = true;
        await roundTrip();
        heard += ROUND_TRIP_BYTES;
        answering = false;
      }
      expect(client.socket.writableLength).toBeGreaterThan(sentBytes / 2);
      expect(heardBytes).toBe(heard);
      proxy.mend();
      await until(() => heardBytes === heard + sentBytes);
    } finally {
      answering = true;
    }
  }));
