import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import process from "node:process";
import { startRedis } from "../../scripts/services.ts";
import { withReplica } from "../faults/fault_shop.ts";
import { sleep, until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, expectRefusal, withoutEffect } from "./checks.ts";
import { gaugeOf, metricsOf, shedBy, timeOutsOf } from "./metrics_reader.ts";
import { openRawClient } from "./raw_client.ts";
import { type Answer, openShop, type Shop } from "./shop.ts";

/**
 * An overloaded replica refuses new requests immediately, and serves those it has admitted. Each limit has its own replica
 * here, kept full; each refusal is checked and counted, and has no effect. Source: ADM-4.
 */

/** How long admitted requests keep a replica full: far longer than refusals take. */
const BUSY_MS = 10_000;

let shop: Shop;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: { INTERNAL_PORT: "0" } });
});
afterEach(() => {
  shop.provider.reset();
});
afterAll(() => closeBalanced(shop));

/** Runs `work` with its own replica. */
const withOwn = (env: Record<string, string>, work: (replica: ReplicaProcess) => Promise<void>) =>
  withReplica(() => shop.start(env), work);

const chatAt = (replica: ReplicaProcess, secret: string, over: Record<string, unknown> = {}) =>
  shop.chat(secret, over, { origin: replica.origin });

/** Sends `count` requests of one key at once: each is refused with `code`, and without effect. What fills the replica goes on meanwhile. */
async function expectShed(replica: ReplicaProcess, secret: string, count: number, code = "service_unavailable") {
  await withoutEffect(shop, async () => {
    const refused = Array.from({ length: count }, async (_, i) =>
      expectRefusal(await chatAt(replica, secret, { stream: i % 2 === 1 }), code),
    );
    await Promise.all(refused);
  });
}

const statuses = (answers: readonly Answer[]) => answers.map(({ status }) => status);

describe("503 service_unavailable while the replica is full; admitted requests are served", () => {
  test("IN_FLIGHT_MAX: requests above it are refused immediately with Retry-After; lists are served; the next request is admitted when one ends", async () => {
    await withOwn({ IN_FLIGHT_MAX: "3" }, async (replica) => {
      const customers = await Promise.all([shop.customer(), shop.customer(), shop.customer(), shop.customer()]);
      const [first, second, third, other] = customers;
      shop.provider.always({ delayMs: BUSY_MS });
      const admitted = [
        chatAt(replica, first.secret),
        chatAt(replica, second.secret),
        chatAt(replica, third.secret, { stream: true }),
      ];
      await shop.provider.waitForCalls(3);
      expect(await gaugeOf(replica, "in_flight_requests")).toBe(3);
      await expectShed(replica, other.secret, 40);
      expect((await shop.call("/v1/models", { secret: other.secret, origin: replica.origin })).status).toBe(200);
      expect((await shop.call("/readyz", { origin: replica.origin })).status).toBe(200);
      expect(await shedBy(replica, "full")).toBe(40);
      // All were refused while these were served.
      expect(await gaugeOf(replica, "in_flight_requests")).toBe(3);
      expect(statuses(await Promise.all(admitted))).toEqual([200, 200, 200]);
      shop.provider.reset();
      expect((await chatAt(replica, other.secret)).status).toBe(200);
      await until(async () => (await gaugeOf(replica, "in_flight_requests")) === 0);
      expect(await shop.counters(first.accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
      expect(await shop.counters(other.accountId)).toMatchObject({ usage: 1, holds: 0, units: 1, released: 0 });
    });
  });

  test("LEDGER_QUEUE_MAX: requests above it, of any account, are refused without asking the ledger; the queue is served when the lock is released", async () => {
    await withOwn({ LEDGER_QUEUE_MAX: "2", LEDGER_TIMEOUT_MS: "30000" }, async (replica) => {
      const [busy, other] = await Promise.all([shop.customer(), shop.customer()]);
      const lock = await lockAccount(busy.accountId);
      const queued = [chatAt(replica, busy.secret), chatAt(replica, busy.secret)];
      await until(async () => (await gaugeOf(replica, "ledger_queue_rows")) === 2);
      await expectShed(replica, other.secret, 10);
      expect(await shedBy(replica, "ledger_queue")).toBe(10);
      await lock.release();
      expect(statuses(await Promise.all(queued))).toEqual([200, 200]);
      expect((await chatAt(replica, other.secret)).status).toBe(200);
      expect(await gaugeOf(replica, "ledger_queue_rows")).toBe(0);
      expect(await shop.counters(busy.accountId)).toMatchObject({ usage: 2, holds: 0, units: 2, released: 0 });
    });
  });

  test("LEDGER_TIMEOUT_MS: a reserve that waits longer is refused, and leaves no hold; other accounts are served meanwhile", async () => {
    await withOwn({ LEDGER_TIMEOUT_MS: "5000" }, async (replica) => {
      const [busy, other] = await Promise.all([shop.customer(), shop.customer()]);
      const lock = await lockAccount(busy.accountId);
      const calls = shop.provider.callCount();
      const waiting = chatAt(replica, busy.secret);
      expect((await chatAt(replica, other.secret)).status).toBe(200);
      expectRefusal(await waiting, "service_unavailable");
      expect(shop.provider.callCount()).toBe(calls + 1);
      expect(await shedBy(replica, "ledger_timeout")).toBe(1);
      await lock.release();
      await until(async () => (await shop.counters(busy.accountId)).holds === 0);
      expect((await chatAt(replica, busy.secret)).status).toBe(200);
      expect(await shop.counters(busy.accountId)).toMatchObject({ usage: 1, units: 1, holds: 0 });
    });
  });

  test("SPOOL_BYTES_MAX: while the spool is full, requests are refused immediately and the replica is not ready; requests are served after the replay", async () => {
    await withOwn({ SPOOL_BYTES_MAX: "1024", LEDGER_TIMEOUT_MS: "1800" }, async (replica) => {
      const [busy, other] = await Promise.all([shop.customer(), shop.customer()]);
      const streams = 8;
      shop.provider.always({ chunkDelayMs: 40, tokens: 50 });
      const admitted = Array.from({ length: streams }, () => chatAt(replica, busy.secret, { stream: true }));
      await shop.provider.waitForCalls(streams);
      const lock = await lockAccount(busy.accountId);
      // Settled on disk: the clients get complete answers.
      for (const { text } of await Promise.all(admitted)) expect(text).toContain("[DONE]");
      expect(await gaugeOf(replica, "spool_settlements")).toBe(streams);
      expect(await gaugeOf(replica, "spool_bytes")).toBeGreaterThan(1024);
      const ready = await shop.call("/readyz", { origin: replica.origin });
      expect([ready.status, ready.json]).toEqual([503, { status: "not_ready", reason: "spool_full" }]);
      await expectShed(replica, other.secret, 6);
      expect(await shedBy(replica, "spool_full")).toBe(6);
      await lock.release();
      await until(async () => (await shop.call("/readyz", { origin: replica.origin })).status === 200);
      await until(async () => (await gaugeOf(replica, "spool_settlements")) === 0);
      expect(await gaugeOf(replica, "spool_bytes")).toBe(0);
      shop.provider.reset();
      expect((await chatAt(replica, other.secret)).status).toBe(200);
      expect(await shop.counters(busy.accountId)).toMatchObject({
        usage: streams,
        units: streams,
        released: 0,
        holds: 0,
      });
    });
  });

  test("EVENT_LOOP_LAG_MAX_MS: while the event loop lags, an account with requests in flight gets no more admitted; admitted ones are served, and new ones afterwards", async () => {
    await withOwn({ EVENT_LOOP_LAG_MAX_MS: "100", LEDGER_TIMEOUT_MS: "10000" }, async (replica) => {
      const customer = await shop.customer({ dailyLimit: 100_000 });
      const answers: Answer[] = [];
      const asked: Promise<unknown>[] = [];
      const refused = () => answers.filter(({ status }) => status === 503);
      const { pid } = replica.process;
      // Simulates an overloaded machine: the process is stopped most of the time.
      for (let turn = 0; refused().length === 0 && turn < 60; turn++) {
        process.kill(pid ?? 0, "SIGSTOP");
        await sleep(400);
        process.kill(pid ?? 0, "SIGCONT");
        for (let n = 0; n < 5; n++) asked.push(chatAt(replica, customer.secret).then((answer) => answers.push(answer)));
        await sleep(60);
      }
      await Promise.all(asked);
      expect(refused().length).toBeGreaterThan(0);
      for (const answer of refused()) expectRefusal(answer, "service_unavailable");
      // Each has its reason, and on a busy machine there may be others.
      const shed = [...(await metricsOf(replica))].filter(([name]) => name.startsWith("tollgate_shed_requests_total{"));
      expect(shed.reduce((sum, [, count]) => sum + count, 0)).toBe(refused().length);
      expect(await shedBy(replica, "lag")).toBeGreaterThan(0);
      const served = answers.length - refused().length;
      await until(async () => (await chatAt(replica, customer.secret)).status === 200);
      expect(statuses(answers).filter((status) => status !== 503 && status !== 200)).toEqual([]);
      expect(await shop.counters(customer.accountId)).toMatchObject({ usage: served + 1, units: served + 1, holds: 0 });
      // In seconds, and back below the limit.
      await until(async () => ((await gaugeOf(replica, "event_loop_lag_seconds")) ?? 1) <= 0.1);
    });
  });

  test("a single pause of the process is not an overload: requests that arrived during it are served", async () => {
    await withOwn({ EVENT_LOOP_LAG_MAX_MS: "500" }, async (replica) => {
      const customer = await shop.customer();
      expect((await chatAt(replica, customer.secret)).status).toBe(200);
      process.kill(replica.process.pid ?? 0, "SIGSTOP");
      const asked = Array.from({ length: 5 }, () => chatAt(replica, customer.secret));
      await sleep(1_500);
      process.kill(replica.process.pid ?? 0, "SIGCONT");
      expect(statuses(await Promise.all(asked))).toEqual([200, 200, 200, 200, 200]);
      expect(await shedBy(replica, "lag")).toBe(0);
    });
  });
});

describe("429 too_many_requests for one key; others are served", () => {
  test("RATE_IN_FLIGHT limits concurrent requests; a slot is released when the answer has ended or the client has left", async () => {
    await withOwn({ RATE_IN_FLIGHT: "2" }, async (replica) => {
      const [one, other] = await Promise.all([shop.customer(), shop.customer()]);
      shop.provider.next({ delayMs: BUSY_MS });
      const slow = chatAt(replica, one.secret);
      await shop.provider.waitForCalls(1);
      shop.provider.next({ chunkDelayMs: 50, tokens: 5_000 });
      const stream = openRawClient(replica.port, one.secret);
      await until(() => stream.events() > 0);
      await expectShed(replica, one.secret, 10, "too_many_requests");
      expect(await shedBy(replica, "in_flight_per_key")).toBe(10);
      expect((await shop.call("/v1/models", { secret: one.secret, origin: replica.origin })).status).toBe(200);
      expect((await chatAt(replica, other.secret)).status).toBe(200);
      expect((await slow).status).toBe(200);
      expect((await chatAt(replica, one.secret)).status).toBe(200);
      stream.leave();
      await until(async () => (await gaugeOf(replica, "in_flight_requests")) === 0);
      shop.provider.always({ delayMs: 200 });
      const both = await Promise.all([chatAt(replica, one.secret), chatAt(replica, one.secret)]);
      expect(statuses(both)).toEqual([200, 200]);
      expect(await shop.counters(one.accountId)).toMatchObject({ holds: 0, usage: 5, units: 5 });
    });
  });

  test("RATE_PER_MINUTE limits the requests of a minute, over all endpoints", async () => {
    await withOwn({ RATE_PER_MINUTE: "3", REDIS_URL: "" }, async (replica) => {
      const [one, other] = await Promise.all([shop.customer(), shop.customer()]);
      const call = (path: string) => shop.call(path, { secret: one.secret, origin: replica.origin });
      for (let i = 0; i < 2; i++) expect((await chatAt(replica, one.secret)).status).toBe(200);
      expect((await call("/v1/balance")).status).toBe(200);
      await expectShed(replica, one.secret, 5, "too_many_requests");
      expectRefusal(await call("/v1/models"), "too_many_requests");
      expect(await shedBy(replica, "rate")).toBe(6);
      expect((await chatAt(replica, other.secret)).status).toBe(200);
    });
  });
});

describe("time limits on providers and Redis; each timeout is counted", () => {
  test("a provider that is too slow with the first byte, the whole answer, or between two chunks fails; then its breaker opens", async () => {
    const env = { PROVIDER_FIRST_BYTE_MS: "300", PROVIDER_TOTAL_MS: "300", PROVIDER_IDLE_MS: "300" };
    await withOwn(env, async (replica) => {
      const { secret, accountId } = await shop.customer();
      shop.provider.always({ hang: "mid_stream", cutAfterChunks: 2, tokens: 9 });
      expect((await chatAt(replica, secret, { stream: true })).text).toContain("provider_unavailable");
      expect(await timeOutsOf(replica, "provider_idle")).toBe(1);
      shop.provider.always({ hang: "headers" });
      expectRefusal(await chatAt(replica, secret), "provider_unavailable");
      expect(await timeOutsOf(replica, "provider_total")).toBe(1);
      for (let i = 1; i <= 4; i++) {
        expectRefusal(await chatAt(replica, secret, { stream: true }), "provider_unavailable");
        expect(await timeOutsOf(replica, "provider_first_byte")).toBe(i);
      }
      expect((await metricsOf(replica)).get("tollgate_breaker_openings_total")).toBe(1);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0, released: 6 });
    });
  });

  test("RATE_REDIS_MS: a Redis that does not answer delays no request, and is counted", async () => {
    const redis = await startRedis();
    try {
      await withOwn({ REDIS_URL: redis.url }, async (replica) => {
        const { secret } = await shop.customer();
        // The limiter is not asked until its connection is open.
        await until(async () => (await chatAt(replica, secret)).status === 200);
        process.kill(redis.pid, "SIGSTOP");
        await until(async () => {
          expect((await chatAt(replica, secret)).status).toBe(200);
          return ((await timeOutsOf(replica, "rate_redis")) ?? 0) >= 1;
        });
      });
    } finally {
      process.kill(redis.pid, "SIGCONT");
      await redis.stop();
    }
  });
});

/** Holds an account's lock in its own session, like a long transaction. */
async function lockAccount(accountId: number): Promise<{ release(): Promise<void> }> {
  const held = Promise.withResolvers<void>();
  const locked = Promise.withResolvers<void>();
  const over = shop.world.sql.begin(async (tx) => {
    await tx`select lock_accounts(${`{${accountId}}`}::text::bigint[])`;
    locked.resolve();
    await held.promise;
  });
  await locked.promise;
  return {
    async release() {
      held.resolve();
      await over;
    },
  };
}
