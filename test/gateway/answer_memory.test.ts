import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import type { Socket } from "node:net";
import { encrypt } from "../../src/platform/crypto.ts";
import { type RawServer, startRawServer } from "../catalog/sockets.ts";
import { until } from "../platform/own_redis.ts";
import { type ReplicaProcess, TEST_SECRET_KEY } from "../replica.ts";
import { closeBalanced } from "./checks.ts";
import { gaugeOf, shedBy } from "./metrics_reader.ts";
import { openRawClient, type RawClient } from "./raw_client.ts";
import { openShop, type Shop } from "./shop.ts";

/**
 * Providers that send much of what cannot be passed on yet: events that do not end, before the answer and in it, and whole answers that
 * stop half way. What the replica holds of all of them is bounded, and only those that hold most are ended. Source: ADM-12.
 */
const MIB = 1024 * 1024;
const MEMORY_MAX = 24 * MIB;
const LINE_BYTES = 5 * MIB;
const MODEL = "chat-raw";
const STREAM_HEAD = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const EVENT = (content: string) => `data: {"choices":[{"index":0,"delta":{"content":"${content}"}}]}\n\n`;

/** What the provider sends: before the first event, in the middle of a stream, and as a whole answer. It never ends it. */
const HELD = {
  first: `${STREAM_HEAD}data: {"x":"`,
  middle: `${STREAM_HEAD}${EVENT("one")}data: {"x":"`,
  whole: 'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{"x":"',
  declared: `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${2 * LINE_BYTES}\r\n\r\n{"x":"`,
} as const;
type Held = keyof typeof HELD;

let shop: Shop;
let replica: ReplicaProcess;
let raw: RawServer;
/** The provider's side of each call, by the prompt. */
const calls = new Map<string, Socket>();
let asks = 0;
const clients: RawClient[] = [];

beforeAll(async () => {
  raw = await startRawServer((socket, request) => {
    const asked = /"content":"(\w+)/.exec(request)?.[1];
    if (asked === undefined) return;
    asks++;
    calls.set(asked, socket);
  });
  shop = await openShop({
    redisUrl: "",
    env: {
      INTERNAL_PORT: "0",
      ANSWER_MEMORY_MAX: String(MEMORY_MAX),
      PROVIDER_ALLOW_PRIVATE: raw.hostPort,
    },
    fill: async ({ addProvider, addModels }) => {
      const key = encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), "sk-raw-0123456789abcdef");
      await addProvider(MODEL, raw.baseUrl, key);
      await addModels({ id: MODEL, contextLength: 8192, routes: [{ provider: MODEL }] });
    },
  });
  [replica] = shop.replicas as [ReplicaProcess];
});
afterEach(async () => {
  for (const socket of calls.values()) socket.destroy();
  calls.clear();
  asks = 0;
  for (const client of clients.splice(0)) client.leave();
  await until(async () => (await gaugeOf(replica, "answer_bytes")) === 0);
  await until(async () => (await gaugeOf(replica, "in_flight_requests")) === 0);
});
afterAll(async () => {
  raw.close();
  await closeBalanced(shop);
});

/** A request whose provider has been reached, and sends what the test writes to `provider`. */
async function ask(secret: string, prompt: string, stream = true): Promise<{ client: RawClient; provider: Socket }> {
  const client = openRawClient(replica.port, secret, {
    model: MODEL,
    stream,
    messages: [{ role: "user", content: prompt }],
  });
  clients.push(client);
  await until(() => calls.has(prompt) || client.got() !== "");
  expect(client.got()).toBe("");
  return { client, provider: calls.get(prompt) as Socket };
}

/** Sends a part of an answer that cannot be passed on, and waits until the replica holds it or has ended one. */
async function sendPart(provider: Socket, kind: Held, bytes: number): Promise<void> {
  const before = await heldOrEnded();
  provider.write(HELD[kind]);
  provider.write("a".repeat(bytes));
  await until(async () => (await heldOrEnded()) >= before + bytes);
}

/** Bytes that are held, and, for each answer that was ended, as many as it may have held. */
async function heldOrEnded(): Promise<number> {
  return ((await gaugeOf(replica, "answer_bytes")) ?? 0) + (await endedForMemory()) * 4 * LINE_BYTES;
}

/** The attacker alone may hold as much as all: either limit may be reached first. */
async function endedForMemory(): Promise<number> {
  const counts = ["answer_bytes_full", "answer_bytes_per_account"].map((reason) => shedBy(replica, reason));
  return (await Promise.all(counts)).reduce<number>((sum, count) => sum + (count ?? 0), 0);
}

test.each(Object.keys(HELD) as Held[])(
  "of ten answers that hold 5 MiB each, those that hold most are ended, and the neighbour's stream is not (%s)",
  async (kind) => {
    const neighbour = await shop.customer();
    const { client, provider } = await ask(neighbour.secret, "neighbour");
    await sendPart(provider, "middle", MIB);
    const endedBefore = await endedForMemory();

    const attacker = await shop.customer({ dailyLimit: 1_000 });
    const isStream = kind === "first" || kind === "middle";
    const attacks: RawClient[] = [];
    for (let i = 0; i < 10; i++) {
      const attack = await ask(attacker.secret, `attack${i}`, isStream);
      attacks.push(attack.client);
      await sendPart(attack.provider, kind, LINE_BYTES);
      expect((await gaugeOf(replica, "answer_bytes")) ?? 0).toBeLessThanOrEqual(MEMORY_MAX);
    }
    // Of those with a declared length all of it is held at once.
    const fit = Math.floor((MEMORY_MAX - MIB) / (kind === "declared" ? 2 * LINE_BYTES : LINE_BYTES));
    await until(async () => (await endedForMemory()) === endedBefore + 10 - fit);
    const isEnded = (one: RawClient) => one.got().includes("provider_unavailable");
    await until(() => attacks.filter(isEnded).length === 10 - fit);

    provider.write('"}\n\n');
    provider.write(
      `${EVENT("two")}data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n`,
    );
    await until(() => client.got().includes("[DONE]"));
    expect(client.got()).toContain("two");
    expect(client.got()).not.toContain("error");
    await until(async () => (await shop.counters(neighbour.accountId)).usage === 1);
    expect(await shop.counters(attacker.accountId)).toMatchObject({ usage: 0, released: 10 - fit });
    // What was made is not made again.
    expect(asks).toBe(11);
  },
);
