import { afterEach, expect, test } from "bun:test";
import { createServer, type Server } from "node:net";
import { connectToAny, firstReachable } from "../../src/platform/connect_any.ts";
import type { Address } from "../../src/platform/names.ts";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

async function listenOn(host: string): Promise<number> {
  const server = createServer((socket) => socket.on("error", () => socket.destroy()));
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  const address = server.address();
  return address !== null && typeof address === "object" ? address.port : 0;
}

const v4 = (address: string): Address => ({ address, family: 4 });
/** Reserved for documents: connections to it are not answered, or have no route. */
const NOWHERE = v4("192.0.2.1");
/** No connection here is ended by it. */
const { signal } = new AbortController();

test("the next address is tried when one refuses the connection or does not answer", async () => {
  const port = await listenOn("127.0.0.1");
  for (const first of [v4("127.0.0.9"), NOWHERE]) {
    const addresses = [first, first, first, v4("127.0.0.1")];
    expect(await firstReachable(addresses, port, signal)).toBe("127.0.0.1");
  }
  const unrouted: Address = { address: "2001:db8::1", family: 6 };
  expect(await firstReachable([unrouted, unrouted, v4("127.0.0.1")], port, signal)).toBe("127.0.0.1");
  const { address, socket } = await connectToAny([v4("127.0.0.1")], port, signal);
  expect([address, socket.destroyed]).toEqual(["127.0.0.1", false]);
  socket.destroy();
});

test("all refused, none given, and an abort are errors", async () => {
  const port = await listenOn("127.0.0.1");
  await expect(connectToAny([v4("127.0.0.8"), v4("127.0.0.9")], port, signal)).rejects.toThrow();
  await expect(connectToAny([], port, signal)).rejects.toThrow("no address");
  const stop = new AbortController();
  const waiting = connectToAny([NOWHERE], port, stop.signal);
  stop.abort(new Error("given up"));
  // Without a route the connection may have failed before.
  await expect(waiting).rejects.toThrow(/given up|NETUNREACH|unreachable|connect/i);
  await expect(connectToAny([v4("127.0.0.1")], port, AbortSignal.abort(new Error("too late")))).rejects.toThrow(
    "too late",
  );
});
