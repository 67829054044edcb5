import { afterAll, beforeAll, expect, test } from "bun:test";
import { connect } from "node:net";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, withoutEffect } from "./checks.ts";
import { chatBody, openShop, type Shop } from "./shop.ts";

/**
 * Requests that are refused before their body was read, on bare sockets: what arrives afterwards is read only to a bound, and a client
 * whose body is not much too large reads why it was refused. Source: ERR-7, RFC 9112 §9.6.
 */
const MIB = 1024 * 1024;
const ENDLESS_BYTES = 400 * MIB;
/** What is read of a refused body, and what the sockets of both ends and the request's reader hold, which is the system's to choose. */
const ACCEPTED_BYTES_MAX = (32 + 64) * MIB;
/** Larger than a body may be, and less than what is read on. */
const RATHER_LARGE_BYTES = 24 * MIB;
const BLOCK = "x".repeat(64 * 1024);

let shop: Shop;
let secret: string;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  ({ secret } = await shop.customer());
});
afterAll(() => closeBalanced(shop));

type Sent = { head: readonly string[]; bytes: number };

/**
 * Sends a head and a body, as fast as it is taken, until it is answered and sent, or the connection is closed. Returns the answer, and the
 * bytes that were taken.
 */
async function send({ head, bytes }: Sent): Promise<{ got: string; accepted: number }> {
  const isChunked = !head.some((line) => line.startsWith("Content-Length"));
  const block = isChunked ? `${BLOCK.length.toString(16)}\r\n${BLOCK}\r\n` : BLOCK;
  const socket = connect({ port: shop.replicas[0]?.port ?? 0, host: "127.0.0.1", allowHalfOpen: true });
  let got = "";
  let closed = false;
  let left = bytes;
  const whenEnded = () => {
    closed = true;
  };
  const sendOn = () => {
    while (!closed && left > 0) {
      left -= BLOCK.length;
      if (!socket.write(block)) return;
    }
    if (left <= 0 && isChunked && !closed) socket.write("0\r\n\r\n");
  };
  socket.on("data", (part) => {
    got += part;
  });
  socket.on("drain", sendOn);
  socket.on("error", () => {}); // "close" follows.
  for (const event of ["end", "close"]) socket.on(event, whenEnded);
  socket.write(`${head.join("\r\n")}\r\n\r\n`);
  sendOn();
  await until(() => closed || (left <= 0 && socket.writableLength === 0 && got.includes('"request_id":"')));
  const accepted = socket.bytesWritten - socket.writableLength;
  socket.destroy();
  return { got, accepted };
}

const JSON_TYPE = "Content-Type: application/json";
const headOf = (path: string, key: string, ...fields: string[]) => [
  `POST ${path} HTTP/1.1`,
  "Host: api.tollgate.test",
  `Authorization: Bearer ${key}`,
  ...fields,
];
const length = (bytes: number) => `Content-Length: ${bytes}`;
const CHUNKED = "Transfer-Encoding: chunked";
const CHAT = "/v1/chat/completions";

const REFUSED: [string, number, () => string[]][] = [
  ["an unknown key", 401, () => headOf(CHAT, "sk-unknown", JSON_TYPE, length(ENDLESS_BYTES))],
  ["an unknown key, in chunks", 401, () => headOf(CHAT, "sk-unknown", JSON_TYPE, CHUNKED)],
  ["a length above the limit", 413, () => headOf(CHAT, secret, JSON_TYPE, length(ENDLESS_BYTES))],
  ["chunks above the limit", 413, () => headOf(CHAT, secret, JSON_TYPE, CHUNKED)],
  ["another type", 415, () => headOf(CHAT, secret, "Content-Type: text/plain", length(ENDLESS_BYTES))],
  ["an unknown path", 404, () => headOf("/v1/unknown", secret, JSON_TYPE, length(ENDLESS_BYTES))],
  ["another method", 405, () => headOf("/v1/models", secret, JSON_TYPE, CHUNKED)],
  ["an unknown host", 403, () => [`POST ${CHAT} HTTP/1.1`, "Host: stranger.example", JSON_TYPE, length(ENDLESS_BYTES)]],
  [
    "a form of the panel without a session",
    401,
    () => ["POST /api/panel/keys HTTP/1.1", "Host: panel.tollgate.test", JSON_TYPE, length(ENDLESS_BYTES)],
  ],
];

test.each(REFUSED)(
  "of a body that is far too large, a bounded part is read, and the connection is closed: %s",
  async (_, __, head) => {
    await withoutEffect(shop, async () => {
      const { accepted } = await send({ head: head(), bytes: ENDLESS_BYTES });
      expect(accepted).toBeLessThan(ACCEPTED_BYTES_MAX);
    });
  },
);

test.each(REFUSED)("a client whose body is not much too large reads its refusal: %s", async (_, status, head) => {
  await withoutEffect(shop, async () => {
    const { got } = await send({
      head: head().map((line) => (line.startsWith("Content-Length") ? length(RATHER_LARGE_BYTES) : line)),
      bytes: RATHER_LARGE_BYTES,
    });
    expect(got).toStartWith(`HTTP/1.1 ${status} `);
    expect(got).toContain('"request_id":"');
  });
});

test("a body of 2 MiB that was read to its end and then refused leaves its connection open", async () => {
  const body = { ...chatBody(), model: "unknown", pad: "x".repeat(2 * MIB) };
  const { status, headers } = await shop.call(CHAT, { secret, body });
  expect([status, headers.get("connection")]).toEqual([404, null]);
});
