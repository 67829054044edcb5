import { afterAll, afterEach, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import process from "node:process";
import { type Service, startRedis } from "../../scripts/services.ts";
import { createKey, revokeKey } from "../../src/accounts/keys_store.ts";
import { type Bus, redisBus } from "../../src/platform/bus.ts";
import type { Db } from "../../src/platform/db.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import type { OfferingSpec } from "../world.ts";
import { expectRefusal } from "./checks.ts";
import { type Answer, chatBody, eventsOf, openShop, type Shop } from "./shop.ts";

/** Two replicas, each a process, on one database: they must agree. */

setDefaultTimeout(120_000);
const LEASE_SECONDS = 3;
let redis: Service;
let shop: Shop;
let db: Db;
let bus: Bus;

beforeAll(async () => {
  redis = await startRedis();
  shop = await openShop({
    replicas: 2,
    redisUrl: redis.url,
    env: { LEASE_SECONDS: String(LEASE_SECONDS), LEDGER_TIMEOUT_MS: "20000" },
  });
  db = shop.world.openDb();
  bus = redisBus(redis.url, quietLog().log);
});
afterEach(() => {
  shop.provider.reset();
});
afterAll(async () => {
  try {
    await until(async () => (await shop.world.sql`select 1 from holds limit 1`).length === 0, 20_000);
    expect(await shop.world.unbalanced()).toEqual([]);
  } finally {
    bus.close();
    await db.close();
    await shop.close();
    await redis.stop();
  }
});

/** The first replicas, as they were opened. */
const origins = () => shop.replicas.map(({ origin }) => origin);
const onBoth = (secret: string, over: Record<string, unknown> = {}) =>
  Promise.all(origins().map((origin) => shop.chat(secret, over, { origin })));

function tally(answers: readonly Answer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status, json } of answers) {
    const name = status === 200 ? "served" : `${status} ${json?.error?.code}`;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

describe("200 at once through both replicas against 100 units: exactly 100 provider calls, usage records and refusals", () => {
  // 20 bytes of text, 16 tokens around it, 10 tokens of output: the provider uses exactly what was reserved.
  const HELD = { prompt_tokens: 36, completion_tokens: 10 };
  const HELD_NANO_USD = 36n * 3_000n + 10n * 15_000n;

  async function race(buyer: { secret: string; accountId: number }, code: string): Promise<void> {
    shop.provider.always({ usage: HELD, tokens: 10, delayMs: 100 });
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, i) =>
        shop.chat(buyer.secret, { stream: i % 4 < 2, max_tokens: 10 }, { origin: origins()[i % 2] as string }),
      ),
    );
    expect(tally(answers)).toEqual({ served: 100, [`402 ${code}`]: 100 });
    for (const { status, text, headers } of answers) {
      if (status === 200 && headers.get("content-type")?.startsWith("text/event-stream"))
        expect(eventsOf(text).at(-1)).toBe("[DONE]");
    }
    expect(shop.provider.callCount()).toBe(100);
    expect(await shop.counters(buyer.accountId)).toMatchObject({ usage: 100, released: 0, holds: 0 });
  }

  const packages: [string, OfferingSpec, string][] = [
    ["daily", { dailyLimit: 100, days: 5 }, "daily_quota_exceeded"],
    ["total", { dailyLimit: 1000, totalLimit: 100, days: 5 }, "package_quota_exceeded"],
    ["carryover", { dailyLimit: 100, days: 5, carryover: true }, "carryover_quota_exceeded"],
  ];
  test.each(packages)("%s", async (_, spec, code) => {
    const customer = await shop.customer(spec);
    await race(customer, code);
    expect((await shop.counters(customer.accountId)).units).toBe(100);
  });

  test("balance", async () => {
    const payer = await shop.payer(100n * HELD_NANO_USD);
    await race(payer, "insufficient_balance");
    expect((await shop.counters(payer.accountId)).balance).toBe(0);
  });

  test("released units are granted again: half of the calls fail, and in the end every unit is used", async () => {
    const customer = await shop.customer({ dailyLimit: 30, days: 5 });
    let failed = 0;
    shop.provider.when(() => failed++ % 2 === 0 && failed < 8, {
      status: 400,
      body: '{"error":{"message":"no","type":"invalid_request_error"}}',
    });
    let served = 0;
    await Promise.all(
      Array.from({ length: 40 }, async (_, i) => {
        const { status } = await shop.chat(
          customer.secret,
          { stream: i % 4 < 2 },
          { origin: origins()[i % 2] as string },
        );
        if (status === 200) served++;
      }),
    );
    while ((await shop.chat(customer.secret)).status === 200) served++;
    expect(served).toBe(30);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 30, units: 30, holds: 0 });
  });
});

describe("a revoked key", () => {
  async function expectRevoked(disturb: () => Promise<void> | void, modelsMsMax: number): Promise<number> {
    const customer = await shop.customer();
    for (const { status } of await onBoth(customer.secret)) expect(status).toBe(200);
    const models = () =>
      Promise.all(origins().map((origin) => shop.call("/v1/models", { secret: customer.secret, origin })));
    for (const { status } of await models()) expect(status).toBe(200);
    await disturb();
    const calls = shop.provider.callCount();
    await revokeKey({ db, bus }, customer);
    const startedAt = performance.now();
    for (const stream of [false, true])
      for (const answer of await onBoth(customer.secret, { stream })) expectRefusal(answer, "invalid_api_key");
    expect(shop.provider.callCount()).toBe(calls);
    await until(async () => (await models()).every(({ status }) => status === 401), 10_000);
    const tookMs = performance.now() - startedAt;
    expect(tookMs).toBeLessThan(modelsMsMax);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 2, holds: 0 });
    return Math.round(tookMs);
  }

  test("is refused by both replicas immediately, also for /models", async () => {
    await expectRevoked(() => {}, 1000);
  });

  test("Redis frozen: metered requests are refused immediately, /models after the next poll of changes", async () => {
    try {
      const tookMs = await expectRevoked(() => void process.kill(redis.pid, "SIGSTOP"), 4000);
      console.log(`Redis frozen: /models refused after ${tookMs} ms`);
    } finally {
      process.kill(redis.pid, "SIGCONT");
    }
  });

  test("Redis down: the same; and when it is back, immediately again", async () => {
    const tookMs = await expectRevoked(() => void process.kill(redis.pid, "SIGKILL"), 4000);
    console.log(`Redis gone: /models refused after ${tookMs} ms`);
    const { port } = redis;
    await redis.stop();
    redis = await startRedis({ port });
    await until(() => bus.healthy(), 10_000);
    await expectRevoked(() => {}, 2500);
  });

  test("no grant commits after the revocation, while both replicas are hammered", async () => {
    // Within the revoking transaction, which has its lock: any later grant ignored the revocation.
    await shop.world.sql.unsafe(`
      create table revoked_keys (key_id bigint, at timestamptz);
      create function note_revoked() returns trigger language plpgsql as
        'begin insert into revoked_keys values (new.id, clock_timestamp()); return null; end';
      create trigger note_revoked after update of status on keys for each row execute function note_revoked()`);
    for (let round = 0; round < 5; round++) {
      shop.provider.reset();
      const customer = await shop.customer({ dailyLimit: 100_000 });
      let over = false;
      const answers: Answer[] = [];
      const hammer = async (i: number) => {
        while (!over)
          answers.push(await shop.chat(customer.secret, { stream: i % 4 < 2 }, { origin: origins()[i % 2] as string }));
      };
      const hammers = Array.from({ length: 24 }, (_, i) => hammer(i));
      await until(() => answers.length > 50, 20_000);
      await revokeKey({ db, bus }, customer);
      const refused = () => answers.filter(({ status }) => status === 401).length;
      await until(() => refused() > 20, 20_000);
      over = true;
      await Promise.all(hammers);
      const [late] = await shop.world.sql`
        select count(*)::int as granted, count(*) filter (where g.created_at > r.at)::int as after
        from (select key_id, created_at from receipts union all select key_id, created_at from holds) g
        join revoked_keys r using (key_id) where key_id = ${customer.keyId}`;
      expect(late?.after).toBe(0);
      expect(Object.keys(tally(answers)).sort()).toEqual(["401 invalid_api_key", "served"]);
      expect(tally(answers).served).toBe(late?.granted);
      expect(shop.provider.callCount()).toBe(late?.granted);
    }
  });
});

/** Written without the panel, so that no replica is notified: remembered refusals last this long. */
const REMEMBERED_MS = 250;

describe("new entitlements take effect on both", () => {
  test("a package, after both refused because there was none", async () => {
    const customer = await shop.customer(null);
    for (const answer of await onBoth(customer.secret)) expectRefusal(answer, "package_required");
    await shop.world.givePackage(customer);
    await sleep(REMEMBERED_MS);
    for (const { status } of await onBoth(customer.secret)) expect(status).toBe(200);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 2, units: 2 });
  });

  test("a larger package, after both refused because the first was used up", async () => {
    const customer = await shop.customer({ dailyLimit: 2 });
    for (const { status } of await onBoth(customer.secret)) expect(status).toBe(200);
    for (const answer of await onBoth(customer.secret)) expectRefusal(answer, "daily_quota_exceeded");
    await shop.world.givePackage(customer, { dailyLimit: 2 });
    await sleep(REMEMBERED_MS);
    for (const { status } of await onBoth(customer.secret)) expect(status).toBe(200);
  });

  test("a top-up", async () => {
    const payer = await shop.payer(1n);
    for (const answer of await onBoth(payer.secret)) expectRefusal(answer, "insufficient_balance");
    await shop.world.setBalance(payer, 1_000_000_000n);
    await sleep(REMEMBERED_MS);
    for (const { status } of await onBoth(payer.secret)) expect(status).toBe(200);
  });

  test("a key", async () => {
    const person = await shop.customer();
    const config = {
      baseUrl: "http://api.tollgate.test/v1",
      aliasUrl: "",
      panelUrl: "",
      allowLocalHosts: true,
      billingTimeZone: "UTC",
    };
    const wanted = {
      accountId: person.accountId,
      name: "new",
      mode: "package" as const,
      modelIds: null,
      hosts: null,
      expiresAt: null,
    };
    const { secret } = await createKey({ db, bus, config }, wanted);
    for (const { status } of await onBoth(secret)) expect(status).toBe(200);
  });
});

/** A stream that is read as it arrives. */
async function openStream(origin: string, secret: string) {
  const response = await fetch(`${origin}/v1/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
    body: JSON.stringify({ ...chatBody(), stream: true }),
  });
  let got = "";
  const ended = (async () => {
    for await (const bytes of response.body as ReadableStream<Uint8Array>) got += new TextDecoder().decode(bytes);
  })().catch(() => {}); // Cut off: what came until then is what counts.
  return { status: response.status, got: () => got, ended };
}

describe("a replica ends", () => {
  test("SIGKILL in the middle of a stream: another one releases its hold after the lease, no usage record, books balance", async () => {
    const victim = await shop.start();
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ hang: "mid_stream", cutAfterChunks: 5, tokens: 20 });
    const stream = await openStream(victim.origin, secret);
    await until(() => stream.got().includes("data: "));
    // Longer than a lease: it is renewed while the replica lives.
    await sleep((LEASE_SECONDS + 1) * 1000);
    expect(await shop.counters(accountId)).toMatchObject({ holds: 1, usage: 0, released: 0 });
    await victim.kill();
    const killedAt = performance.now();
    await stream.ended;
    expect(stream.got()).not.toContain("[DONE]");
    await until(async () => (await shop.counters(accountId)).holds === 0, 15_000);
    console.log(
      `the hold of a killed replica was released after ${Math.round(performance.now() - killedAt)} ms (lease ${LEASE_SECONDS} s)`,
    );
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, units: 0 });
    const [receipt] = await shop.world.sql`select reason from receipts where account_id = ${accountId}`;
    expect(receipt?.reason).toBe("lease_ended");
    expect(await shop.world.unbalanced()).toEqual([]);
  });

  test("SIGTERM: short streams finish, long ones end with an error event and are released; exit code 0", async () => {
    const ending = await shop.start({ DRAIN_SECONDS: "2" });
    const short = await shop.customer();
    const long = await shop.customer();
    shop.provider.next({ chunkDelayMs: 30, tokens: 40 });
    const finishes = await openStream(ending.origin, short.secret);
    shop.provider.next({ chunkDelayMs: 50, tokens: 5000 });
    const isEnded = await openStream(ending.origin, long.secret);
    await until(() => finishes.got() !== "" && isEnded.got() !== "");
    const startedAt = performance.now();
    const exited = ending.stop();
    await Promise.all([finishes.ended, isEnded.ended]);
    expect(await exited).toBe(0);
    expect(performance.now() - startedAt).toBeLessThan(6000);
    expect(eventsOf(finishes.got()).at(-1)).toBe("[DONE]");
    expect(isEnded.got()).not.toContain("[DONE]");
    expect(JSON.parse(eventsOf(isEnded.got()).at(-1) ?? "")).toMatchObject({
      error: { code: "service_unavailable", type: "server_error" },
    });
    expect(await shop.counters(short.accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
    expect(await shop.counters(long.accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, units: 0 });
    const [receipt] = await shop.world.sql`select reason from receipts where account_id = ${long.accountId}`;
    expect(receipt?.reason).toBe("ended_by_us");
    await shop.provider.waitForAborted(shop.provider.lastCall()?.id ?? 0);
  });

  test("SIGTERM: requests without an answer at the deadline get 503 and are released, and the provider calls are aborted", async () => {
    const ending = await shop.start({ DRAIN_SECONDS: "1" });
    const customers = await Promise.all([shop.customer(), shop.customer()]);
    shop.provider.always({ hang: "headers" });
    const answers = customers.map(({ secret }, i) => shop.chat(secret, { stream: i === 1 }, { origin: ending.origin }));
    const calls = await shop.provider.waitForCalls(2);
    const exited = ending.stop();
    for (const answer of await Promise.all(answers)) expectRefusal(answer, "service_unavailable");
    expect(await exited).toBe(0);
    for (const { accountId } of customers)
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, units: 0 });
    for (const { id } of calls) await shop.provider.waitForAborted(id);
  });

  test("SIGTERM: requests that end within the drain time are answered and settled", async () => {
    const ending = await shop.start();
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ delayMs: 600 });
    const answer = shop.chat(secret, {}, { origin: ending.origin });
    await shop.provider.waitForCalls(1);
    const exited = ending.stop();
    expect((await answer).status).toBe(200);
    expect(await exited).toBe(0);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0 });
  });
});
