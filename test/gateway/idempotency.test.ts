import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { Redis } from "ioredis";
import OpenAI from "openai";
import { type Service, startRedis } from "../../scripts/services.ts";
import { revokeKey } from "../../src/accounts/keys_store.ts";
import { type Bus, redisBus } from "../../src/platform/bus.ts";
import type { Db } from "../../src/platform/db.ts";
import { ownRedis, sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, expectRefusal, rawCall, withoutEffect } from "./checks.ts";
import { expectConflict, isFirst, isReplay } from "./idempotent_answers.ts";
import { type Answer, type CallOptions, chatBody, eventsOf, imageBody, openShop, type Shop } from "./shop.ts";

/**
 * A request with an Idempotency-Key is served and charged at most once. Two replicas, each a process, and one Redis.
 * Source: IDE-2, IDE-3, IDE-4.
 */
const LEASE_SECONDS = 3;
/** The TTL that Redis reports for a key that does not exist. */
const GONE = -2;

let redis: Service;
let spy: Redis;
let shop: Shop;
let db: Db;
let bus: Bus;

beforeAll(async () => {
  redis = await startRedis();
  spy = new Redis(redis.url);
  shop = await openShop({ replicas: 2, redisUrl: redis.url });
  db = shop.world.openDb();
  bus = redisBus(redis.url, quietLog().log);
});
afterEach(() => {
  shop.provider.reset();
});
afterAll(() => closeBalanced(shop, bus.close, () => spy.disconnect(), db.close, redis.stop));

const other = () => (shop.replicas[1] as ReplicaProcess).origin;

/** A chat request with an Idempotency-Key. */
const once = (
  secret: string,
  key: string,
  over: Record<string, unknown> = {},
  { headers, ...options }: CallOptions = {},
) => shop.chat(secret, over, { ...options, headers: { "idempotency-key": key, ...headers } });

let keys = 0;
const newKey = () => `order-${++keys}`;

/** A request whose client leaves as soon as `when` says so. */
async function leaves(secret: string, key: string, body: Record<string, unknown>, when: () => Promise<unknown>) {
  const client = new AbortController();
  const asked = fetch(`${shop.origin}/v1/chat/completions`, {
    method: "POST",
    signal: client.signal,
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", "idempotency-key": key },
    body: JSON.stringify({ ...chatBody(), ...body }),
  });
  const left = asked.then(
    (response) => response.text().catch(() => "cut"),
    () => "cut",
  );
  await when();
  client.abort();
  return await left;
}

const usageOf = async (accountId: number) => (await shop.counters(accountId)).usage;

describe("while the first is in flight", () => {
  test("the same request gets 409 with Retry-After on both replicas, and another body 400; afterwards it gets the first one's answer", async () => {
    const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
    const { held, open } = shop.provider.gate();
    shop.provider.next(held);
    const first = once(secret, key);
    await shop.provider.waitForCalls(1);
    expectConflict(await once(secret, key, {}, { origin: other() }), { inFlight: true });
    expectConflict(await once(secret, key), { inFlight: true });
    expectRefusal(await once(secret, key, { temperature: 0 }, { origin: other() }), "idempotency_mismatch");
    open();
    const served = await first;
    expect(isFirst(served)).toBe(true);
    expect(isReplay(await once(secret, key, {}, { origin: other() }))).toBe(true);
    expect(shop.provider.callCount()).toBe(1);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, released: 0, holds: 0 });
  });

  test("40 concurrent requests through both replicas make one provider call and one usage record; all responses but one are replays", async () => {
    const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
    shop.provider.always({ delayMs: 300 });
    const answers = await Promise.all(
      Array.from({ length: 40 }, (_, i) => once(secret, key, {}, i % 2 === 0 ? {} : { origin: other() })),
    );
    expect(answers.filter(isFirst)).toHaveLength(1);
    const [first] = answers.filter(isFirst);
    for (const answer of answers.filter((one) => !isFirst(one))) {
      if (isReplay(answer)) expect(answer.text).toBe(first?.text ?? "");
      else expectConflict(answer, { inFlight: true, first: first?.headers.get("x-request-id") ?? null });
    }
    expect(shop.provider.callCount()).toBe(1);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, released: 0, holds: 0 });
  });

  test("an SDK that retries a 409 gets the first's answer", async () => {
    const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
    let refused = 0;
    const client = new OpenAI({
      baseURL: `${other()}/v1`,
      apiKey: secret,
      maxRetries: 4,
      async fetch(url, options) {
        const answer = await fetch(url, options);
        if (answer.status === 409) refused++;
        return answer;
      },
    });
    const { held, open } = shop.provider.gate();
    shop.provider.next(held);
    const first = once(secret, key);
    await shop.provider.waitForCalls(1);
    const retried = client.chat.completions.create(chatBody() as never, { headers: { "idempotency-key": key } });
    await until(() => refused > 0);
    open();
    const answer = await retried;
    expect(answer).toMatchObject((await first).json);
    expect(shop.provider.callCount()).toBe(1);
    expect(await usageOf(accountId)).toBe(1);
  });
});

describe("after the first was served", () => {
  test("its answer is replayed byte for byte, under its request id, and costs nothing: chat and image, package and balance", async () => {
    const [customer, payer] = [await shop.customer(), await shop.payer(1_000_000_000n)];
    for (const { secret, accountId } of [customer, payer]) {
      for (const call of [
        (options: CallOptions) => shop.chat(secret, {}, options),
        (options: CallOptions) => shop.call("/v1/images/generations", { secret, body: imageBody(), ...options }),
      ]) {
        const headers = { "idempotency-key": newKey() };
        const first = await call({ headers });
        expect(isFirst(first)).toBe(true);
        await withoutEffect(shop, async () => {
          for (const origin of [shop.origin, other()]) {
            const again = await call({ headers, origin });
            expect(again.status).toBe(200);
            expect(again.text).toBe(first.text);
            expect(again.headers.get("idempotent-replayed")).toBe("true");
            for (const name of ["content-type", "x-request-id", "cache-control"])
              expect(again.headers.get(name)).toBe(first.headers.get(name));
          }
        });
        const [receipt] = await shop.world.sql`
          select outcome from receipts where request_id = ${first.headers.get("x-request-id")} and account_id = ${accountId}`;
        expect(receipt?.outcome).toBe("settled");
      }
      expect(await shop.counters(accountId)).toMatchObject({ usage: 2, holds: 0 });
    }
  });

  test("400 idempotency_mismatch for a body that differs in one byte: the provider is not called", async () => {
    const [{ secret }, key] = [await shop.customer(), newKey()];
    const body = JSON.stringify(chatBody());
    const headers = { "idempotency-key": key };
    expect((await shop.call("/v1/chat/completions", { secret, headers, body })).status).toBe(200);
    await withoutEffect(shop, async () => {
      const answer = await shop.call("/v1/chat/completions", { secret, headers, body: `${body} `, origin: other() });
      expectRefusal(answer, "idempotency_mismatch");
    });
  });

  test("the same idempotency key on another path, with another API key, or in another case is another request", async () => {
    const [ann, bob, key] = [await shop.customer(), await shop.customer(), newKey()];
    const second = await shop.world.addKey(ann);
    const image = () =>
      shop.call("/v1/images/generations", {
        secret: ann.secret,
        body: imageBody(),
        headers: { "idempotency-key": key },
      });
    const answers = [
      await once(ann.secret, key),
      await once(bob.secret, key),
      await once(second.secret, key),
      await once(ann.secret, key.toUpperCase()),
      await image(),
    ];
    expect(answers.map(isFirst)).toEqual([true, true, true, true, true]);
    expect(new Set(answers.map(({ headers }) => headers.get("x-request-id"))).size).toBe(5);
    expect(shop.provider.callCount()).toBe(5);
  });

  test("a retry of a served stream gets 409 with x-should-retry: false, which names the first request", async () => {
    const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
    const { held, open } = shop.provider.gateAfter(3, { tokens: 15 });
    shop.provider.next(held);
    const streaming = once(secret, key, { stream: true });
    await shop.provider.waitForCalls(1);
    expectConflict(await once(secret, key, { stream: true }), { inFlight: true });
    open();
    const first = await streaming;
    expect(eventsOf(first.text).at(-1)).toBe("[DONE]");
    const conflict = async () => await once(secret, key, { stream: true }, { origin: other() });
    await until(async () => !(await conflict()).headers.has("retry-after"));
    await withoutEffect(shop, async () => {
      expectConflict(await conflict(), { inFlight: false, first: first.headers.get("x-request-id") });
      // Whether it is a stream is part of the body.
      expectRefusal(await once(secret, key), "idempotency_mismatch");
    });
    expect(await usageOf(accountId)).toBe(1);
  });

  test("an answer above 4 MiB is not kept: a retry gets 409, and the request is charged once", async () => {
    const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
    shop.provider.next({ content: "x".repeat(4 * 1024 * 1024), usage: { prompt_tokens: 9, completion_tokens: 9 } });
    const first = await once(secret, key);
    expect(isFirst(first)).toBe(true);
    expectConflict(await once(secret, key), { inFlight: false, first: first.headers.get("x-request-id") });
    shop.provider.next({ content: "x".repeat(3 * 1024 * 1024), usage: { prompt_tokens: 9, completion_tokens: 9 } });
    const large = newKey();
    const kept = await once(secret, large);
    const again = await once(secret, large, {}, { origin: other() });
    expect([isReplay(again), again.text === kept.text]).toEqual([true, true]);
    expect(await usageOf(accountId)).toBe(2);
  });

  test("a replay after revocation is refused with 401 invalid_api_key", async () => {
    const [{ secret, accountId, keyId }, key] = [await shop.customer(), newKey()];
    expect(isFirst(await once(secret, key))).toBe(true);
    await revokeKey({ db, bus }, { accountId, keyId });
    // The replicas learn of it a few milliseconds apart. Until then the kept answer may be replayed once more.
    for (const origin of [shop.origin, other()]) {
      await until(async () => (await once(secret, key, {}, { origin })).status === 401);
      await withoutEffect(shop, async () => expectRefusal(await once(secret, key, {}, { origin }), "invalid_api_key"));
    }
  });

  test("a replay counts towards the key's rate limit", async () => {
    // Without Redis: a busy one that answers late would have the replica count by itself, from zero.
    const slow = await shop.start({ RATE_PER_MINUTE: "2", REDIS_URL: "" });
    try {
      const [{ secret }, key] = [await shop.customer(), newKey()];
      const answers: Answer[] = [];
      for (let i = 0; i < 3; i++) answers.push(await once(secret, key, {}, { origin: slow.origin }));
      expect([isFirst(answers[0] as Answer), isReplay(answers[1] as Answer)]).toEqual([true, true]);
      expectRefusal(answers[2] as Answer, "too_many_requests");
    } finally {
      await slow.kill();
    }
  });
});

describe("a client that left", () => {
  test("before its JSON answer is charged once: the call runs to its end, and a retry gets the answer", async () => {
    const [{ secret, accountId }, key] = [await shop.payer(1_000_000_000n), newKey()];
    const { held, open } = shop.provider.gate({ content: "what the client never saw" });
    shop.provider.next(held);
    await leaves(secret, key, {}, () => shop.provider.waitForCalls(1));
    open();
    await until(async () => (await usageOf(accountId)) === 1);
    await until(async () => isReplay(await once(secret, key, {}, { origin: other() })));
    await withoutEffect(shop, async () => {
      const again = await once(secret, key);
      expect(again.json.choices[0].message.content).toBe("what the client never saw");
    });
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0 });
  });

  test("in the middle of a stream, or before its first byte, is charged once, and a retry gets 409", async () => {
    for (const fault of [{ hang: "mid_stream", cutAfterChunks: 3, tokens: 20 }, { hang: "headers" }] as const) {
      const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
      const before = shop.provider.callCount();
      shop.provider.next(fault);
      await leaves(secret, key, { stream: true }, async () => {
        await shop.provider.waitForCalls(before + 1);
        await sleep(300);
      });
      await until(async () => (await usageOf(accountId)) === 1);
      await until(async () => !(await once(secret, key, { stream: true })).headers.has("retry-after"));
      await withoutEffect(shop, async () =>
        expectConflict(await once(secret, key, { stream: true }, { origin: other() }), { inFlight: false }),
      );
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0 });
    }
  });
});

describe("a first attempt that failed frees the key", () => {
  const failures: { what: string; fault: Parameters<Shop["provider"]["next"]>[0]; stream: boolean; status: number }[] =
    [
      { what: "the provider fails", fault: { status: 500 }, stream: false, status: 503 },
      { what: "the provider refuses the request", fault: { status: 400 }, stream: false, status: 400 },
      { what: "a stream that does not begin", fault: { status: 500 }, stream: true, status: 503 },
      { what: "a stream that breaks off", fault: { cutAfterChunks: 2, tokens: 9 }, stream: true, status: 200 },
    ];
  for (const { what, fault, stream, status } of failures) {
    test(`${what}: the next attempt is served, and charged once`, async () => {
      const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
      const first = await shop.brokenOff(fault, (onText) => once(secret, key, { stream }, { onText }));
      expect(first.status).toBe(status);
      if (status === 200) expect(first.text).not.toContain("[DONE]");
      // The claim of a stream is freed shortly after its last byte.
      let second = await once(secret, key, { stream }, { origin: other() });
      await until(async () => {
        if (second.status === 409) second = await once(secret, key, { stream }, { origin: other() });
        return second.status !== 409;
      });
      expect(isFirst(second)).toBe(true);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 1, units: 1, holds: 0 });
    });
  }

  test("after a 402, 404 or 400 the same idempotency key is served once the cause is fixed, also with another body", async () => {
    const payer = await shop.payer(0n);
    const key = newKey();
    await withoutEffect(shop, async () => {
      expectRefusal(await once(payer.secret, key), "insufficient_balance");
      expectRefusal(await once(payer.secret, key, { model: "none" }), "model_not_found", { param: "model" });
      expectRefusal(await once(payer.secret, key, { messages: "no" }), "invalid_request", { param: "messages" });
    });
    await shop.world.setBalance(payer, 1_000_000_000n);
    expect(isFirst(await once(payer.secret, key, {}, { origin: other() }))).toBe(true);
    expect(isReplay(await once(payer.secret, key))).toBe(true);
  });
});

describe("the header", () => {
  test("gets 400 invalid_request unless it is 1 to 255 visible ASCII characters; requests without it are independent", async () => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () => {
      for (const key of ["", "a b", "a\tb", "x".repeat(256), "naïve"]) {
        const answer = await once(secret, key);
        expectRefusal(answer, "invalid_request", { param: null });
        expect(answer.json.error.message).toContain("Idempotency-Key");
      }
      const body = JSON.stringify(chatBody());
      const twice = await rawCall(
        (shop.replicas[0] as ReplicaProcess).port,
        `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${secret}\r\ncontent-type: application/json\r\n` +
          `idempotency-key: one\r\nidempotency-key: two\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      );
      expectRefusal(twice, "invalid_request");
    });
    expect(isFirst(await once(secret, "x".repeat(255)))).toBe(true);
    const plain = [await shop.chat(secret), await shop.chat(secret)];
    expect(plain.map(isFirst)).toEqual([true, true]);
    expect(shop.provider.callCount()).toBe(3);
  });

  test("is checked after the readability of the body and before the model", async () => {
    const { secret } = await shop.customer();
    const headers = { "idempotency-key": "a b" };
    await withoutEffect(shop, async () => {
      const broken = await shop.call("/v1/chat/completions", { secret, headers, body: "{" });
      expectRefusal(broken, "invalid_request");
      expect(broken.json.error.message).toContain("JSON");
      expectRefusal(await once(secret, "a b", { model: "none" }), "invalid_request", { param: null });
    });
  });
});

test("Redis contains neither key nor prompt nor answer in clear text", async () => {
  const { secret } = await shop.customer();
  const canary = "canary-7f3a";
  shop.provider.next({ content: `${canary}-answer` });
  const messages = [{ role: "user", content: `${canary}-prompt` }];
  expect(isFirst(await once(secret, `${canary}-key`, { messages }))).toBe(true);
  expect(isReplay(await once(secret, `${canary}-key`, { messages }))).toBe(true);
  const names = await spy.keys("*");
  expect(names.some((name) => name.startsWith("tollgate:answer:"))).toBe(true);
  for (const name of names) {
    // As in Redis's dump, and as its commands return it.
    const dumped = [name, (await spy.dumpBuffer(name))?.toString("latin1") ?? ""];
    const type = await spy.type(name);
    if (type === "hash") dumped.push(JSON.stringify(await spy.hgetall(name)));
    if (type === "string") dumped.push(await spy.getBuffer(name).then((bytes) => bytes?.toString("latin1") ?? ""));
    for (const text of dumped) expect(text).not.toMatch(/canary|Bearer|sk-[0-9A-Za-z]{20}/);
    const ttl = await spy.ttl(name);
    // Keys that expired since the listing are missing, as they should be.
    if (ttl !== GONE) expect(ttl).toBeGreaterThan(0);
  }
});

describe("Redis", () => {
  test("is silent or down: requests with an idempotency key get 503 without a provider call; all others are served", async () => {
    const own = await ownRedis();
    const replica = await shop.start({ REDIS_URL: own.url });
    try {
      const { origin } = replica;
      const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
      expect(isFirst(await once(secret, key, {}, { origin }))).toBe(true);
      for (const [trouble, mend] of [
        [own.freeze, own.thaw],
        [own.stop, own.start],
      ] as const) {
        await trouble();
        await withoutEffect(shop, async () => {
          for (const name of [key, newKey()]) {
            // Redis is mended only afterwards: this does not wait for it.
            const answer = await once(secret, name, {}, { origin });
            expectRefusal(answer, "service_unavailable");
            expect(answer.json.error.message).toContain("Idempotency-Key");
          }
        });
        expect(isFirst(await shop.chat(secret, {}, { origin }))).toBe(true);
        await mend();
        const name = newKey();
        await until(async () => (await once(secret, name, {}, { origin })).status === 200);
      }
      expect(await shop.counters(accountId)).toMatchObject({ usage: 5, holds: 0 });
    } finally {
      await replica.kill();
      await own.stop();
    }
  });

  test("goes down while a request is in flight: the request is served; a retry gets the ledger's answer", async () => {
    const own = await ownRedis();
    const env = { REDIS_URL: own.url, LEASE_SECONDS: String(LEASE_SECONDS) };
    const replica = await shop.start(env);
    try {
      const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
      const { held, open } = shop.provider.gate();
      shop.provider.next(held);
      const first = once(secret, key, {}, { origin: replica.origin });
      await shop.provider.waitForCalls(1);
      own.freeze();
      open();
      expect(isFirst(await first)).toBe(true);
      own.thaw();
      let answer: Answer | undefined;
      await until(async () => {
        answer = await once(secret, key, {}, { origin: replica.origin });
        return answer.status !== 503 && !answer.headers.has("retry-after");
      });
      // Whether noted late or lapsed and looked up, it is never served again.
      if (answer?.status !== 200) expectConflict(answer as Answer, { inFlight: false });
      else expect(isReplay(answer)).toBe(true);
      expect(shop.provider.callCount()).toBe(1);
      expect(await usageOf(accountId)).toBe(1);
    } finally {
      await replica.kill();
      await own.stop();
    }
  });

  test("is not configured: a single replica keeps the same rules in memory", async () => {
    const alone = await shop.start({ REDIS_URL: "" });
    try {
      const { origin } = alone;
      const [{ secret, accountId }, key] = [await shop.customer(), newKey()];
      const { held, open } = shop.provider.gate();
      shop.provider.next(held);
      const first = once(secret, key, {}, { origin });
      await shop.provider.waitForCalls(1);
      expectConflict(await once(secret, key, {}, { origin }), { inFlight: true });
      expectRefusal(await once(secret, key, { n: 1 }, { origin }), "idempotency_mismatch");
      open();
      const served = await first;
      await withoutEffect(shop, async () => {
        const again = await once(secret, key, {}, { origin });
        expect([isReplay(again), again.text]).toEqual([true, served.text]);
        expect(again.headers.get("x-request-id")).toBe(served.headers.get("x-request-id"));
        expectRefusal(await once(secret, key, { n: 1 }, { origin }), "idempotency_mismatch");
      });
      const streamed = newKey();
      expect(isFirst(await once(secret, streamed, { stream: true }, { origin }))).toBe(true);
      await until(async () => !(await once(secret, streamed, { stream: true }, { origin })).headers.has("retry-after"));
      expectConflict(await once(secret, streamed, { stream: true }, { origin }), { inFlight: false });
      const failed = newKey();
      shop.provider.next({ status: 500 });
      expectRefusal(await once(secret, failed, {}, { origin }), "provider_unavailable");
      expect(isFirst(await once(secret, failed, {}, { origin }))).toBe(true);
      const many = newKey();
      const answers = await Promise.all(Array.from({ length: 40 }, () => once(secret, many, {}, { origin })));
      expect(answers.filter(isFirst)).toHaveLength(1);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 4, released: 1, holds: 0 });
      expect(await alone.stop()).toBe(0);
    } finally {
      await alone.kill();
    }
  });
});
