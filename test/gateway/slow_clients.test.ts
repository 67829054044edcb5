import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { connect } from "node:net";
import { sleep, until } from "../platform/own_redis.ts";
import { type ReplicaProcess, RUNTIME } from "../replica.ts";
import { closeBalanced, expectRefusal, rawCall, withoutEffect } from "./checks.ts";
import { gaugeOf, timeOutsOf } from "./metrics_reader.ts";
import { chatBody, openShop, type Shop } from "./shop.ts";

/**
 * Slow clients are disconnected: slow with their headers, with their body, or with reading. Others are served meanwhile. The
 * tests use bare sockets. (Clients that do not read a stream are in client_faults.test.ts.) Source: ADM-6.
 * Deno's server has no time limit for headers and idle connections: there the proxy must close them.
 */
const BODY_READ_MS = 1_000;
const CLIENT_IDLE_MS = 1_500;
/** A body that is more than what the system keeps of a connection, at both ends, and the blocks that it is sent in. */
const LATE_BYTES = 18 * 1024 * 1024;
const KEPT_BYTES_MAX = 12 * 1024 * 1024;
const BLOCK_BYTES = 64 * 1024;
/** A connection that takes no block for this long is full. */
const FULL_MS = 3_000;

let shop: Shop;
let replica: ReplicaProcess;
beforeAll(async () => {
  const env = { INTERNAL_PORT: "0", BODY_READ_MS: String(BODY_READ_MS), CLIENT_IDLE_MS: String(CLIENT_IDLE_MS) };
  shop = await openShop({ redisUrl: "", env });
  [replica] = shop.replicas as [ReplicaProcess];
});
afterEach(() => {
  shop.provider.reset();
});
afterAll(() => closeBalanced(shop));

/** A bare socket to the replica, and how it ended. */
function openSocket(...parts: string[]) {
  let bytes = 0;
  let closed = false;
  const socket = connect(replica.port, "127.0.0.1", () => {
    for (const part of parts) socket.write(part);
  });
  socket.on("data", (chunk) => {
    bytes += chunk.length;
  });
  socket.on("error", () => {}); // "close" follows.
  socket.on("close", () => {
    closed = true;
  });
  return { socket, bytes: () => bytes, closed: () => closed };
}

/** Writes one byte at intervals, until the socket is closed. */
async function trickle({ socket, closed }: ReturnType<typeof openSocket>, everyMs: number): Promise<void> {
  while (!closed()) {
    await sleep(everyMs);
    // Before the connection is open this would be sent ahead of the headers.
    if (socket.writable && !socket.connecting) socket.write("a");
  }
}

/** Sends blocks until the connection is closed or takes no more, at most LATE_BYTES. Returns the bytes that it took. */
async function sendWhatFits({ socket, closed }: ReturnType<typeof openSocket>, block: string): Promise<number> {
  let sent = 0;
  while (!closed() && sent < LATE_BYTES) {
    const isTaken = new Promise<boolean>((resolve) => socket.write(block, (error) => resolve(!error)));
    if (!(await Promise.race([isTaken, sleep(FULL_MS).then(() => false)]))) break;
    sent += block.length;
  }
  return sent;
}

const head = (secret: string, ...fields: string[]) =>
  [
    "POST /v1/chat/completions HTTP/1.1",
    "Host: localhost",
    `Authorization: Bearer ${secret}`,
    "Content-Type: application/json",
    ...fields,
    "",
    "",
  ].join("\r\n");

test("a client whose headers stop, trickle in or never start is disconnected; others are served meanwhile", async () => {
  const { secret } = await shop.customer();
  const unfinished = "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX-Slow: ";
  const whole = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const stopped = openSocket(unfinished);
  const trickling = openSocket(unfinished);
  const silent = openSocket();
  // The second request of a connection that has been served once.
  const second = openSocket(whole);
  await until(() => second.bytes() > 0);
  second.socket.write(unfinished);
  const all = [stopped, trickling, silent, second];
  const tricklings = Promise.all([trickle(trickling, 700), trickle(second, 700)]);
  for (let i = 0; i < 5; i++) {
    expect((await shop.chat(secret)).status).toBe(200);
    await sleep(300);
  }
  if (RUNTIME === "deno") {
    expect(all.map(({ closed }) => closed())).toEqual([false, false, false, false]);
    for (const { socket } of all) socket.destroy();
    return void (await tricklings);
  }
  await until(() => all.every(({ closed }) => closed()));
  await tricklings;
});

test("an idle keep-alive connection is closed", async () => {
  const whole = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const idle = openSocket(whole);
  await until(() => idle.bytes() > 0);
  if (RUNTIME === "deno") {
    const had = idle.bytes();
    await sleep(CLIENT_IDLE_MS + 5_000);
    idle.socket.write(whole);
    await until(() => idle.bytes() === 2 * had);
    return void idle.socket.destroy();
  }
  await until(() => idle.closed());
});

test("a body that stops or trickles in gets 400 after BODY_READ_MS: its slot is released, nothing is charged, and the connection is closed", async () => {
  const { secret } = await shop.customer();
  const before = (await timeOutsOf(replica, "body")) ?? 0;
  const half = JSON.stringify(chatBody()).slice(0, 40);
  const chunk = `${half.length.toString(16)}\r\n${half}\r\n`;
  await withoutEffect(shop, async () => {
    const answers = Promise.all([
      rawCall(replica.port, head(secret, "Content-Length: 5000"), half),
      rawCall(replica.port, head(secret, "Transfer-Encoding: chunked"), chunk),
      rawCall(replica.port, head(secret, "Content-Length: 5000")),
    ]);
    await until(async () => (await gaugeOf(replica, "body_reads")) === 3);
    expect(await gaugeOf(replica, "body_bytes")).toBe(5_000 + half.length + 5_000);
    // Only requests whose bodies were read take a slot.
    expect(await gaugeOf(replica, "in_flight_requests")).toBe(0);
    for (const answer of await answers) {
      expectRefusal(answer, "invalid_request");
      expect(answer.json.error.message).toContain("in time");
    }
  });
  expect(await gaugeOf(replica, "body_reads")).toBe(0);
  expect(await gaugeOf(replica, "body_bytes")).toBe(0);
  expect(await timeOutsOf(replica, "body")).toBe(before + 3);
  const trickling = openSocket(head(secret, "Content-Length: 5000"), half);
  await withoutEffect(shop, async () => {
    const ended = trickle(trickling, 300);
    await ended;
  });
  expect(trickling.bytes()).toBeGreaterThan(0);
  expect(await gaugeOf(replica, "body_reads")).toBe(0);
  expect((await shop.chat(secret)).status).toBe(200);
});

test.each([
  ["with a length", `Content-Length: ${LATE_BYTES}`, (block: string) => block],
  ["in chunks", "Transfer-Encoding: chunked", (block: string) => `${block.length.toString(16)}\r\n${block}\r\n`],
] as const)("of a body that was late, the replica reads no more after its answer: %s", async (_, field, framed) => {
  const { secret } = await shop.customer();
  const late = openSocket(head(secret, field), framed('{"model":'));
  await until(() => late.bytes() > 0);
  const sent = await sendWhatFits(late, framed("a".repeat(BLOCK_BYTES)));
  expect(sent).toBeLessThan(KEPT_BYTES_MAX);
  await until(() => late.closed());
  late.socket.destroy();
  expect(await gaugeOf(replica, "body_bytes")).toBe(0);
  expect((await shop.chat(secret)).status).toBe(200);
});

test("a panel form has the same time limit, signed in or not", async () => {
  const before = (await timeOutsOf(replica, "body")) ?? 0;
  const lines = [
    "POST /api/panel/sign-in HTTP/1.1",
    "Host: panel.tollgate.test",
    "Origin: http://panel.tollgate.test",
    "Content-Type: application/json",
    "Content-Length: 500",
  ];
  const answer = await rawCall(replica.port, `${lines.join("\r\n")}\r\n\r\n`, '{"email":');
  expect([answer.status, answer.json?.error?.message]).toEqual([422, "The body did not arrive in time."]);
  expect(await timeOutsOf(replica, "body")).toBe(before + 1);
});

test("a client that does not read its complete answer is disconnected, and settled once", async () => {
  const { secret, accountId } = await shop.customer();
  const content = "x".repeat(24 * 1024 * 1024);
  shop.provider.next({ content });
  const body = JSON.stringify(chatBody());
  const client = openSocket(head(secret, `Content-Length: ${body.length}`), body);
  await until(() => client.bytes() > 0);
  client.socket.pause();
  await until(async () => (await shop.counters(accountId)).usage === 1);
  // The client gets only what the kernel has buffered.
  await sleep(CLIENT_IDLE_MS + 10_000);
  client.socket.resume();
  await until(() => client.closed());
  expect(client.bytes()).toBeLessThan(content.length);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
});

test.each([
  ["JSON", false],
  ["stream", true],
] as const)("a client that reads its answer slowly but steadily gets all of it: %s", async (_, stream) => {
  const { secret } = await shop.customer();
  const size = 24 * 1024 * 1024;
  shop.provider.next(
    stream ? { contentType: "text/event-stream", body: streamOf(size) } : { content: "x".repeat(size) },
  );
  const body = JSON.stringify(chatBody({ stream }));
  const client = openSocket(head(secret, `Content-Length: ${body.length}`), body);
  await until(() => client.bytes() > 0);
  // Pauses and continues, in total for longer than a client may be idle.
  while (client.bytes() < size && !client.closed()) {
    client.socket.pause();
    await sleep(400);
    client.socket.resume();
    const had = client.bytes();
    await until(() => client.bytes() > had || client.closed());
  }
  expect(client.bytes()).toBeGreaterThan(size);
});

/** A provider's stream of events of 1 MB, of this size in total. */
function streamOf(size: number): string {
  const chunk = (delta: object, finish_reason: string | null) =>
    `data: ${JSON.stringify({ id: "1", choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
  const event = chunk({ content: "x".repeat(1_000_000) }, null);
  return `${event.repeat(Math.ceil(size / 1_000_000))}${chunk({}, "stop")}data: [DONE]\n\n`;
}
