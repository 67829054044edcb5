import { afterAll, afterEach, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readdir, readFile } from "node:fs/promises";
import { sleep, until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { openRawClient, type RawClient } from "./raw_client.ts";
import { openShop, type Shop } from "./shop.ts";

/**
 * What a client can do to a stream: leave at any event, leave before the first, half-close, read slowly or not at all, a
 * thousand times over. It is settled, the provider's call is ended at once, and nothing is left open. Source: END-5, END-8.
 */

setDefaultTimeout(180_000);
const SEED = Number(process.env.SEED ?? Math.floor(Math.random() * 2 ** 31));
const CLIENT_IDLE_MS = 1_500;
const IN_A_ROW = 1_000;
const AT_A_TIME = 300;
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
  shop = await openShop({ env: { ...idle, CLIENT_IDLE_MS: String(IDLE_NEVER_MS) } });
  patient = shop.replicas[0] as ReplicaProcess;
  strict = await shop.start({ CLIENT_IDLE_MS: String(CLIENT_IDLE_MS) });
});
afterEach(() => shop.provider.reset());
afterAll(async () => {
  try {
    await until(async () => (await shop.world.sql`select 1 from holds limit 1`).length === 0, 15_000);
    expect(await shop.world.unbalanced()).toEqual([]);
  } finally {
    await strict.kill();
    await shop.close();
  }
});

async function receiptOf(accountId: number): Promise<Record<string, unknown>> {
  await until(async () => (await shop.counters(accountId)).usage === 1, 15_000);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0, units: 1 });
  const [receipt] = await shop.world.sql`select * from receipts where account_id = ${accountId}`;
  return receipt as Record<string, unknown>;
}

/** Settled by our own count, never zero, and the provider call has ended. */
async function expectLeft(accountId: number, callId: number): Promise<Record<string, unknown>> {
  await shop.provider.waitForAborted(callId, 5_000);
  const receipt = await receiptOf(accountId);
  expect(receipt).toMatchObject({ reason: "client_left", estimated: true });
  expect(Number(receipt.prompt_tokens)).toBeGreaterThan(0);
  return receipt;
}

describe("a client that leaves", () => {
  const EVENTS = 8;

  test.each(Array.from({ length: EVENTS }, (_, k) => k + 1))("after event %d of ten", async (k) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ tokens: EVENTS, chunkDelayMs: 60 });
    const client = openRawClient(patient.port, secret);
    await until(() => client.events() >= k);
    client.leave();
    const receipt = await expectLeft(accountId, shop.provider.lastCall()?.id ?? 0);
    // What was relayed: the first event only names the role.
    if (k > 1) expect(Number(receipt.completion_tokens)).toBeGreaterThan(0);
    expect(Number(receipt.completion_tokens)).toBeLessThan(EVENTS * 8);
  });

  test.each([1, 200_000, 1_000_000, 2_500_000])("in the middle of an event of 3 MB, after %d bytes", async (bytes) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ tokens: 20, giantLineBytes: 3_000_000, chunkDelayMs: 100 });
    const client = openRawClient(patient.port, secret);
    client.socket.on("data", () => client.bytes() >= bytes && client.leave());
    await until(client.closed);
    await expectLeft(accountId, shop.provider.lastCall()?.id ?? 0);
  });

  test("before the first event: the prompt is charged", async () => {
    for (const hang of ["headers", "first_byte"] as const) {
      const { secret, accountId } = await shop.customer();
      shop.provider.reset();
      shop.provider.next({ hang });
      const client = openRawClient(patient.port, secret);
      const [call] = await shop.provider.waitForCalls(1);
      await sleep(50);
      client.leave();
      expect((await expectLeft(accountId, call?.id ?? 0)).completion_tokens).toBe(0);
    }
  });

  test("after [DONE]: the whole answer is charged, by the provider's usage", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ tokens: 3 });
    const client = openRawClient(patient.port, secret);
    await until(() => client.got().includes("[DONE]"));
    client.leave();
    expect(await receiptOf(accountId)).toMatchObject({ reason: "complete", estimated: false, completion_tokens: 3 });
  });

  test("half-closed: a client that closes its sending side has left", async () => {
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
    const startMs = performance.now();
    const before = await rssMb(strict);
    let peak = before;
    const isSettled = async () => {
      peak = Math.max(peak, await rssMb(strict));
      const counts = await Promise.all(clients.map(({ accountId }) => shop.counters(accountId)));
      return counts.every(({ usage }) => usage === 1);
    };
    await until(isSettled, 20_000);
    const tookMs = Math.round(performance.now() - startMs);
    console.log(`${clients.length} cut after ${tookMs} ms, memory ${Math.round(before)} to ${Math.round(peak)} MB`);
    for (const { client, accountId } of clients) {
      expect(await receiptOf(accountId)).toMatchObject({ reason: "client_left", estimated: true });
      // The end of the stream is behind data that the client has not read.
      client.socket.removeAllListeners("readable").resume();
      await until(client.closed);
      expect(client.got()).not.toContain("[DONE]");
    }
    expect(peak - before).toBeLessThan(40 + 12 * clients.length);
    await until(() => shop.provider.counters().open === 0);
  }

  test("twenty clients with endless streams: disconnected after CLIENT_IDLE_MS and settled, with bounded memory", async () => {
    shop.provider.always({ endless: "events" });
    const clients = await Promise.all(
      Array.from({ length: 20 }, async () => {
        const { secret, accountId } = await shop.customer();
        const client = openRawClient(strict.port, secret);
        client.socket.once("data", () => client.socket.pause());
        return { client, accountId };
      }),
    );
    await expectCut(clients);
  });

  test("reading one byte a second counts as not reading", async () => {
    shop.provider.next({ endless: "events" });
    const { secret, accountId } = await shop.customer();
    const client = openRawClient(strict.port, secret);
    client.socket.removeAllListeners("data");
    client.socket.on("readable", () => {}); // It is for `sip` to take what has come.
    const sip = setInterval(() => void client.socket.read(1), 1_000);
    await expectCut([{ client, accountId }]);
    clearInterval(sip);
  });

  test("endless lines and endless comments: disconnected too, or the line is too long", async () => {
    for (const [endless, reason] of [
      ["line", "provider_broke_off"],
      ["comments", "client_left"],
    ] as const) {
      shop.provider.next({ endless });
      const { secret, accountId } = await shop.customer();
      const client = openRawClient(strict.port, secret);
      client.socket.once("data", () => client.socket.pause());
      // Comments never end, and a client may wait for as long as it likes: so it leaves.
      if (endless === "comments") await sleep(1_000).then(client.leave);
      await until(async () => {
        const [row] = await shop.world.sql`select reason from receipts where account_id = ${accountId}`;
        return row?.reason === reason;
      }, 20_000);
      client.leave();
    }
    await until(() => shop.provider.counters().open === 0);
  });
});

describe("very many clients that leave", () => {
  let random: () => number;
  beforeAll(() => {
    random = randomFrom(SEED);
  });

  /** One client that leaves at a random time, streaming or not, by closing or resetting its socket. */
  async function disconnect(secret: string): Promise<void> {
    const client = openRawClient(patient.port, secret, { stream: random() < 0.9 });
    const phase = random();
    if (phase > 0.4) await until(() => client.bytes() > 0 || client.closed(), 20_000);
    if (phase > 0.2) await sleep(random() * 60);
    if (random() < 0.3) client.socket.resetAndDestroy();
    else client.leave();
    await until(client.closed, 20_000);
  }

  test(`${IN_A_ROW} in a row, then ${AT_A_TIME} at a time: books balance, no hold, socket or relay is left`, async () => {
    const { secret, accountId } = await shop.customer({ dailyLimit: 1_000_000, days: 30 });
    // Connections to the provider are not reused here: a remaining one is a leak.
    shop.provider.always({ tokens: 10, chunkDelayMs: 5, firstByteDelayMs: 3, headers: { connection: "close" } });
    // Warms up, so that memory the runtime keeps is allocated before the measurement.
    await Promise.all(Array.from({ length: 100 }, () => disconnect(secret)));
    await quiet();
    const before = { fds: await fds(patient), rss: await rssMb(patient) };

    const startMs = performance.now();
    const row = async (n: number) => {
      for (let i = 0; i < n; i++) await disconnect(secret);
    };
    await Promise.all(Array.from({ length: 5 }, () => row(IN_A_ROW / 5)));
    const rowMs = Math.round(performance.now() - startMs);
    for (let i = 0; i < 2; i++) await Promise.all(Array.from({ length: AT_A_TIME }, () => disconnect(secret)));
    await quiet();
    const after = { fds: await fds(patient), rss: await rssMb(patient) };
    const outcomes = await shop.world.sql`
      select outcome, reason, count(*)::int as count from receipts where account_id = ${accountId} group by 1, 2 order by 3 desc`;
    console.log(
      `${IN_A_ROW} in ${rowMs} ms; sockets and files ${before.fds} → ${after.fds}, memory ${Math.round(before.rss)} → ${Math.round(after.rss)} MB; ${outcomes.map(({ reason, count }) => `${count} ${reason}`).join(", ")}`,
    );

    expect(after.fds).toBeLessThanOrEqual(before.fds + 5);
    expect(after.rss - before.rss).toBeLessThan(80);
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
    await until(async () => (await shop.world.sql`select 1 from holds limit 1`).length === 0, 20_000);
    await until(() => shop.provider.counters().open === 0, 20_000);
    await sleep(500);
  }
});

async function rssMb({ process }: ReplicaProcess): Promise<number> {
  const status = await readFile(`/proc/${process.pid}/status`, "utf8");
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024;
}

async function fds({ process }: ReplicaProcess): Promise<number> {
  return (await readdir(`/proc/${process.pid}/fd`)).length;
}

/** Pseudo-random numbers from 0 to 1; the same seed gives the same numbers. */
function randomFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
