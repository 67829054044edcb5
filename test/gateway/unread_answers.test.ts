import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced } from "./checks.ts";
import { gaugeOf, shedBy } from "./metrics_reader.ts";
import { openRawClient, type RawClient } from "./raw_client.ts";
import { openShop, type Shop } from "./shop.ts";

/**
 * Clients that do not read whole answers. What the replica keeps for all of them is bounded, and those that keep most lose their connection.
 * Source: ADM-12.
 */
const MIB = 1024 * 1024;
const MEMORY_MAX = 32 * MIB;
/** More than the sockets of both ends take. */
const ANSWER_BYTES = 10 * MIB;
const CLIENTS = 12;

let shop: Shop;
let replica: ReplicaProcess;
const clients: RawClient[] = [];

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { INTERNAL_PORT: "0", ANSWER_MEMORY_MAX: String(MEMORY_MAX) } });
  [replica] = shop.replicas as [ReplicaProcess];
});
afterEach(async () => {
  shop.provider.reset();
  for (const client of clients.splice(0)) client.leave();
  await until(async () => (await held()) === 0);
});
afterAll(() => closeBalanced(shop));

const held = async () => (await gaugeOf(replica, "answer_bytes")) ?? 0;
const endedForMemory = async () =>
  ((await shedBy(replica, "answer_bytes_full")) ?? 0) + ((await shedBy(replica, "answer_bytes_per_account")) ?? 0);

/** A client that reads the head of its answer, and nothing more. */
async function openReader(secret: string): Promise<RawClient> {
  const client = openRawClient(replica.port, secret, { stream: false });
  clients.push(client);
  client.socket.once("data", () => client.socket.pause());
  await until(() => client.bytes() > 0 || client.closed());
  return client;
}

test("of many whole answers that nobody reads, some are kept; the others lose their connection, and all are charged", async () => {
  const { secret, accountId } = await shop.customer({ dailyLimit: 1_000 });
  shop.provider.always({ content: "x".repeat(ANSWER_BYTES) });
  for (let i = 1; i <= CLIENTS; i++) {
    await openReader(secret);
    await until(async () => (await shop.counters(accountId)).usage === i);
    expect(await held()).toBeLessThanOrEqual(MEMORY_MAX);
  }
  const kept = Math.floor(MEMORY_MAX / ANSWER_BYTES);
  expect(await endedForMemory()).toBe(CLIENTS - kept);
  expect(await held()).toBeWithin(kept * ANSWER_BYTES, MEMORY_MAX);
  expect(await shop.counters(accountId)).toMatchObject({ usage: CLIENTS, released: 0, holds: 0 });

  // A neighbour's answer is smaller than theirs.
  shop.provider.reset();
  const neighbour = await shop.customer();
  shop.provider.next({ content: "y".repeat(MIB) });
  const { status, text } = await shop.chat(neighbour.secret);
  expect([status, text.includes("y".repeat(MIB))]).toEqual([200, true]);
});

test("an answer that is read is held no longer, and is whole: with characters of every length, and with an Idempotency-Key", async () => {
  const { secret } = await shop.customer();
  const content = "aé中😀".repeat(100_000);
  for (const headers of [{}, { "idempotency-key": "one" }, { "idempotency-key": "one" }] as Record<string, string>[]) {
    shop.provider.next({ content });
    const { status, json } = await shop.chat(secret, {}, { headers });
    expect(status).toBe(200);
    expect(json.choices[0].message.content).toBe(content);
    await until(async () => (await held()) === 0);
    shop.provider.reset();
  }
});

test("a client that leaves in its answer frees what was kept for it", async () => {
  const { secret } = await shop.customer();
  shop.provider.next({ content: "x".repeat(ANSWER_BYTES) });
  const client = await openReader(secret);
  await until(async () => (await held()) >= ANSWER_BYTES);
  client.leave();
  await until(async () => (await held()) === 0);
});
