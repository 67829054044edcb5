import { afterEach, expect, test } from "bun:test";
import { createServer, type Server, type Socket } from "node:net";
import { createStripe } from "../../src/commerce/stripe_client.ts";
import { Secret } from "../../src/platform/crypto.ts";

/** What Stripe's address answers is bounded in bytes and in time, however its length is declared. */

const MEBIBYTE = 1024 * 1024;
/** Well below what the answer sends, and well above what is read and what the sockets hold. */
const SENT_MAX = 64 * MEBIBYTE;
const CHUNK = `${(64 * 1024).toString(16)}\r\n${" ".repeat(64 * 1024)}\r\n`;

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** Answers with these headers, and then with chunks for as long as they are read. */
async function endless(headers: string): Promise<{ base: string; sent: () => number }> {
  let sent = 0;
  const server = createServer((socket: Socket) => {
    socket.on("error", () => socket.destroy());
    socket.once("data", () => {
      socket.write(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${headers}transfer-encoding: chunked\r\n\r\n`);
      const more = () => {
        while (!socket.destroyed && sent < 2 * SENT_MAX) {
          sent += CHUNK.length;
          if (!socket.write(CHUNK)) return void socket.once("drain", more);
        }
        socket.destroy();
      };
      more();
    });
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = address !== null && typeof address === "object" ? address.port : 0;
  return { base: `http://127.0.0.1:${port}`, sent: () => sent };
}

test("an answer without an end is refused, chunked, and with a wrong length", async () => {
  for (const headers of ["", "content-length: 2\r\n"]) {
    const { base, sent } = await endless(headers);
    const stripe = await createStripe({ stripeApiBase: base }, new Secret("sk_test_x"));
    await expect(stripe.events.list({ limit: 1 })).rejects.toThrow();
    expect([headers, sent() < SENT_MAX]).toEqual([headers, true]);
  }
});
