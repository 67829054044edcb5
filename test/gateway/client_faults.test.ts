import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readdir } from "node:fs/promises";
import { sleep, until } from "../platform/own_redis.ts";
import { SEED } from "../property.ts";
import { randomOf } from "../random.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced } from "./checks.ts";
import { gaugeOf, timeOutsOf } from "./metrics_reader.ts";
import { openRawClient, type RawClient } from "./raw_client.ts";
import { openShop, type Shop } from "./shop.ts";

/**
 * Clients that leave a stream inside an event or in great numbers, half-close, or do not read. The request is settled, the
 * provider call is aborted, and nothing is left open. (Leaving at each event is in stream.test.ts.) Source: END-5, END-8.
 */
const CLIENT_IDLE_MS = 1_500;
const IN_A_ROW = 1_000;
const AT_A_TIME = 300;
/**
 * What the sockets from the provider to the replica, and from the replica to the client, may hold: on Linux up to 4 MiB to be sent and 32
 * MiB received, each, which grow by themselves. The provider's stream has no end.
 */
const HELD_UP_BYTES_MAX = 2 * (4 + 32 + 4) * 1024 * 1024;
/** Longer than any wait in these tests: a stream that did not notice its client leaving would hang until then. */
const IDLE_NEVER_MS = 3_600_000;

let shop: Shop;
/** A replica that disconnects clients that do not read. */
let strict: ReplicaProcess;
/** A replica that only notices clients that leave. */
let patient: ReplicaProcess;

beforeAll(async () => {
  console.log(`seed ${SEED}`);
  const idle = { PROVIDER_IDLE_MS: String(IDLE_NEVER_MS), PROVIDER_FIRST_BYTE_MS: String(IDLE_NEVER_MS) };
  shop = await openShop({ env: { ...idle, CLIENT_IDLE_MS: String(IDLE_NEVER_MS), INTERNAL_PORT: "0" } });
  patient = shop.replicas[0] as ReplicaProcess;
  strict = await shop.start({ CLIENT_IDLE_MS: String(CLIENT_IDLE_MS), INTERNAL_PORT: "0" });
});
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop, strict.kill));

async function receiptOf(accountId: number): Promise<Record<string, unknown>> {
  await until(async () => (await shop.counters(accountId)).usage === 1);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0, units: 1 });
  const [receipt] = await shop.world.sql`select * from receipts where account_id = ${accountId}`;
  return receipt as Record<string, unknown>;
}

/** Settled by our own count, never zero, and the provider call has ended. */
async function expectLeft(accountId: number, callId: number): Promise<Record<string, unknown>> {
  await shop.provider.waitForAborted(callId);
  const receipt = await receiptOf(accountId);
  expect(receipt).toMatchObject({ reason: "client_left", estimated: true });
  expect(Number(receipt.prompt_tokens)).toBeGreaterThan(0);
  return receipt;
}

describe("a client that leaves", () => {
  test.each([1, 200_000, 1_000_000, 2_500_000])("in the middle of an event of 3 MB, after %d bytes", async (bytes) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ tokens: 20, giantLineBytes: 3_000_000, chunkDelayMs: 100 });
    const client = openRawClient(patient.port, secret);
    client.socket.on("data", () => client.bytes() >= bytes && client.leave());
    await until(client.closed);
    await expectLeft(accountId, shop.provider.lastCall()?.id ?? 0);
  });

  test("after [DONE] is charged for the whole answer, by the provider's usage", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ tokens: 3 });
    const client = openRawClient(patient.port, secret);
    await until(() => client.got().includes("[DONE]"));
    client.leave();
    expect(await receiptOf(accountId)).toMatchObject({ reason: "complete", estimated: false, completion_tokens: 3 });
  });

  test("has left if it closes its sending side", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ tokens: 200, chunkDelayMs: 20 });
    const client = openRawClient(patient.port, secret);
    await until(() => client.events() >= 3);
    client.socket.end();
    await expectLeft(accountId, shop.provider.lastCall()?.id ?? 0);
    await until(client.closed);
    expect(client.got()).not.toContain("[DONE]");
  });
});

describe("a client that does not read", () => {
  async function expectCut(clients: { client: RawClient; accountId: number }[]): Promise<void> {
    const isSettled = async () => {
      const counts = await Promise.all(clients.map(({ accountId }) => shop.counters(accountId)));
      return counts.every(({ usage }) => usage === 1);
    };
    await until(isSettled);
    for (const { client, accountId } of clients) {
      expect(await receiptOf(accountId)).toMatchObject({ reason: "client_left", estimated: true });
      // The client must read the rest before it sees the end of the stream.
      client.socket.removeAllListeners("readable").resume();
      await until(client.closed);
      expect(client.got()).not.toContain("[DONE]");
    }
    await until(() => shop.provider.counters().open === 0);
    // The client took nothing: what a provider could send fills the sockets of both sides, and a piece of it the replica.
    const calls = shop.provider.calls().filter(({ generation }) => generation);
    expect(calls).toHaveLength(clients.length);
    for (const { bytesSent } of calls) expect(bytesSent).toBeLessThan(HELD_UP_BYTES_MAX);
  }

  test("is disconnected after CLIENT_IDLE_MS, counted and settled; twenty endless streams are held up by their clients", async () => {
    const customers = await Promise.all(Array.from({ length: 20 }, () => shop.customer()));
    // The streams begin together: on a busy machine the first ones could keep the replica from reserving the others in time.
    const { held, open } = shop.provider.gate({ endless: "events" });
    shop.provider.always(held);
    const clients = customers.map(({ secret, accountId }) => {
      const client = openRawClient(strict.port, secret);
      client.socket.once("data", () => client.socket.pause());
      return { client, accountId };
    });
    await shop.provider.waitForCalls(clients.length);
    open();
    await expectCut(clients);
    expect(await timeOutsOf(strict, "client_idle")).toBe(clients.length);
  });

  test("counts as not reading at one byte a second", async () => {
    shop.provider.next({ endless: "events" });
    const { secret, accountId } = await shop.customer();
    const client = openRawClient(strict.port, secret);
    client.socket.removeAllListeners("data");
    client.socket.on("readable", () => {}); // Only `sip` reads.
    const sip = setInterval(() => void client.socket.read(1), 1_000);
    await expectCut([{ client, accountId }]);
    clearInterval(sip);
  });

  test("and so makes the provider break off, has left: it pays for what it was sent, and is told so", async () => {
    shop.provider.next({ endless: "events", cutWhenBlockedMs: 3_000 });
    const { secret, accountId } = await shop.customer();
    const client = openRawClient(patient.port, secret);
    client.socket.once("data", () => client.socket.pause());
    await until(() => shop.provider.counters().open === 1);
    await until(() => shop.provider.counters().open === 0);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 0 });
    client.socket.resume();
    await until(() => client.got().includes("What was sent is charged."));
    expect(await receiptOf(accountId)).toMatchObject({ reason: "client_left", estimated: true });
    expect(client.events()).toBeGreaterThan(20);
    expect(client.got()).not.toContain("[DONE]");
    client.leave();
  });

  test("may wait through endless comments; when it leaves, the request is settled", async () => {
    shop.provider.next({ endless: "comments" });
    const { secret, accountId } = await shop.customer();
    const client = openRawClient(strict.port, secret);
    client.socket.once("data", () => client.socket.pause());
    await sleep(1_000);
    client.leave();
    expect(await receiptOf(accountId)).toMatchObject({ reason: "client_left" });
    await until(() => shop.provider.counters().open === 0);
  });
});

describe("many clients that leave", () => {
  let random: () => number;
  beforeAll(() => {
    random = randomOf(SEED).next;
  });

  /** One client that leaves at a random time, streaming or not, by closing or resetting its socket. */
  async function disconnect(secret: string): Promise<void> {
    const client = openRawClient(patient.port, secret, { stream: random() < 0.9 });
    const phase = random();
    if (phase > 0.4) await until(() => client.bytes() > 0 || client.closed());
    if (phase > 0.2) await sleep(random() * 60);
    if (random() < 0.3) client.socket.resetAndDestroy();
    else client.leave();
    await until(client.closed);
  }

  test(`${IN_A_ROW} in a row, then ${AT_A_TIME} at a time, leave no hold, socket or relay, and the books balance`, async () => {
    const { secret, accountId } = await shop.customer({ dailyLimit: 1_000_000, days: 30 });
    // Connections to the provider are not reused here: a remaining one is a leak.
    shop.provider.always({ tokens: 10, chunkDelayMs: 5, firstByteDelayMs: 3, headers: { connection: "close" } });
    // Warms up: the connections that the replica keeps are open before they are counted.
    await Promise.all(Array.from({ length: 100 }, () => disconnect(secret)));
    await quiet();
    const before = await fds(patient);
    const row = async (n: number) => {
      for (let i = 0; i < n; i++) await disconnect(secret);
    };
    await Promise.all(Array.from({ length: 5 }, () => row(IN_A_ROW / 5)));
    for (let i = 0; i < 2; i++) await Promise.all(Array.from({ length: AT_A_TIME }, () => disconnect(secret)));
    await quiet();
    const after = await fds(patient);
    const outcomes = await shop.world.sql`
      select outcome, reason, count(*)::int as count from receipts where account_id = ${accountId} group by 1, 2 order by 3 desc`;
    console.log(
      `sockets and files ${before} → ${after}; ${outcomes.map(({ reason, count }) => `${count} ${reason}`).join(", ")}`,
    );

    expect(after).toBeLessThanOrEqual(before + 5);
    for (const held of ["open_streams", "in_flight_requests", "body_bytes", "body_reads"])
      expect({ held, of: await gaugeOf(patient, held) }).toEqual({ held, of: 0 });
    for (const { outcome, reason } of outcomes)
      expect([outcome, reason]).toEqual([reason === "not_dispatched" ? "released" : "settled", expect.any(String)]);
    const counters = await shop.counters(accountId);
    const [sums] = await shop.world.sql`
      select count(*) filter (where outcome = 'settled' and prompt_tokens = 0)::int as zero, count(*)::int as receipts,
        count(*) filter (where reason = 'not_dispatched')::int as undispatched from receipts where account_id = ${accountId}`;
    expect({ zero: sums?.zero, holds: counters.holds, units: counters.units }).toEqual({
      zero: 0,
      holds: 0,
      units: counters.usage,
    });
    // Every call that reached the provider has a receipt. A call that was aborted before may not have reached it.
    const dispatched = Number(sums?.receipts) - Number(sums?.undispatched);
    expect(shop.provider.callCount()).toBeLessThanOrEqual(dispatched);
    expect(shop.provider.callCount()).toBeGreaterThan(dispatched * 0.8);
    expect(dispatched).toBeGreaterThan(IN_A_ROW / 2);
    expect(await shop.world.unbalanced()).toEqual([]);
    // The replica still serves.
    expect((await shop.chat(secret, { stream: true })).text).toContain("[DONE]");
  });

  /** Nothing is in progress: no hold, and no provider call. */
  async function quiet(): Promise<void> {
    await until(
      async () => (await shop.world.sql`select 1 from escrows where units > 0 or nano_usd > 0 limit 1`).length === 0,
    );
    await until(() => shop.provider.counters().open === 0);
    await sleep(500);
  }
});

async function fds({ process }: ReplicaProcess): Promise<number> {
  return (await readdir(`/proc/${process.pid}/fd`)).length;
}
