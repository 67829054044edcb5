import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { signInTo } from "../panel/panel_client.ts";
import { ownRedis, sleep, until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { expectRefusal } from "./checks.ts";
import { shedBy } from "./metrics_reader.ts";
import { type Answer, chatBody, eventsOf, imageBody, openShop, type Shop } from "./shop.ts";

/** Limits of requests and tokens that were set for an offering, an account or a key, over two replicas. Source: LIM-1, LIM-2, LIM-3, LIM-4, LIM-5, LIM-7. */
const PER_MINUTE = 100_000;
/** These tests count: a slow Redis on a busy machine must not count as unreachable. */
const PATIENT = { RATE_REDIS_MS: "1000" };

// Keys of other databases have the same ids: they must not be counted together.
const redis = await ownRedis();
let shop: Shop;
let replicas: ReplicaProcess[];

beforeAll(async () => {
  shop = await openShop({ replicas: 2, redisUrl: redis.url, env: { INTERNAL_PORT: "0", ...PATIENT } });
  replicas = shop.replicas;
  // The replicas have counted each other: until then, each request asks Redis.
  await sleep(4_000);
});
afterEach(() => shop.provider.reset());
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
  await redis.stop();
});

type Limits = { requestsPerMinute?: number; tokensPerMinute?: number; requestsAtOnce?: number };
type ModelLimits = Limits & { models?: Record<string, Limits> };

/** A customer with limits of its package, of its account, and of its key. */
async function limited({ offering, account, key }: { offering?: ModelLimits; account?: ModelLimits; key?: Limits }) {
  const { sql } = shop.world;
  const json = (limits: ModelLimits) => sql.json({ models: {}, ...limits } as never);
  const person = await shop.customer({
    dailyLimit: 1_000_000,
    requestBounds: { choices: 8 },
    ...(offering && { limits: offering }),
  });
  if (account) await sql`update accounts set limits = ${json(account)} where id = ${person.accountId}`;
  if (key) await sql`update keys set limits = ${json(key)} where id = ${person.keyId}`;
  return person;
}

const originOf = (i: number) => replicas[i % replicas.length]?.origin ?? "";
const chat = (secret: string, i: number, over: Record<string, unknown> = {}) =>
  shop.chat(secret, over, { origin: originOf(i) });

/** The answers to `count` requests over both replicas, `width` at once. */
async function many(count: number, width: number, ask: (i: number) => Promise<Answer>): Promise<Answer[]> {
  const answers: Answer[] = [];
  let next = 0;
  const visit = async () => {
    for (let i = next++; i < count; i = next++) answers.push(await ask(i));
  };
  await Promise.all(Array.from({ length: width }, visit));
  return answers;
}

const served = (answers: readonly Answer[]) => answers.filter(({ status }) => status === 200);
const header = ({ headers }: Answer, name: string) => Number(headers.get(`x-ratelimit-${name}`));

function expectLimited(answer: Answer, message: string, limit: number): void {
  expectRefusal(answer, "too_many_requests");
  expect(answer.json.error.limit).toBe(limit);
  expect(answer.json.error.message).toContain(message);
  const seconds = Number(answer.headers.get("retry-after"));
  expect(seconds).toBeGreaterThanOrEqual(1);
  expect(seconds).toBeLessThan(60);
}

describe("requests a minute", () => {
  for (const [limit, most] of [
    [120, 120],
    [400, 404],
  ] as const) {
    test(`are limited for an account by its offering: ${limit} over two replicas and two keys, and at most 1 % more`, async () => {
      const person = await limited({ offering: { requestsPerMinute: limit } });
      const other = await shop.world.addKey(person);
      const answers = await many(limit + 80, 16, (i) => chat(i % 3 === 0 ? other.secret : person.secret, i));
      expect(served(answers).length).toBeGreaterThanOrEqual(limit);
      expect(served(answers).length).toBeLessThanOrEqual(most);
      expect(shop.provider.callCount()).toBe(served(answers).length);
      const refused = answers.find(({ status }) => status === 429) as Answer;
      expectLimited(refused, "This account may send", limit);
      expect(header(refused, "remaining-requests")).toBe(0);
    });
  }

  test("are limited for a key, an account and a model: the lowest limit decides, and the refusal names it", async () => {
    const person = await limited({
      offering: { requestsPerMinute: 9, models: { "chat-a": { requestsPerMinute: 4 } } },
      account: { requestsPerMinute: 7 },
      key: { requestsPerMinute: 5 },
    });
    const other = await shop.world.addKey(person);
    const ofModel = await many(5, 1, (i) => chat(person.secret, i));
    expect(served(ofModel)).toHaveLength(4);
    expectLimited(ofModel[4] as Answer, "This account, with the model chat-a, may send 4", 4);
    // The refused request counted for the key, which has sent 5 now.
    expectLimited(await chat(person.secret, 0, { model: "vendor/chat-b" }), "This API key may send 5", 5);
    const ofAccount = await many(3, 1, (i) => chat(other.secret, i, { model: "vendor/chat-b" }));
    expectLimited(ofAccount.at(-1) as Answer, "This account may send 7", 7);
  });

  test("are also limited by the configuration", async () => {
    const person = await limited({ account: { requestsPerMinute: 1_000_000 } });
    const answer = await chat(person.secret, 0);
    expect(header(answer, "limit-requests")).toBe(PER_MINUTE);
  });
});

describe("tokens a minute", () => {
  /** Of `chatBody()`, with this output cap. */
  const CAPPED = { max_tokens: 100 };
  const usedBy = (answer: Answer): number => answer.json.usage.total_tokens;
  const wantedOf = ({ json }: Answer) => Number(/this request may use (\d+)/.exec(json.error.message)?.[1]);

  test("are reserved before a request and corrected after it: sequential requests can use the whole limit", async () => {
    const person = await limited({ account: { tokensPerMinute: 3_000 } });
    shop.provider.always({ tokens: 20 });
    let used = 0;
    let refused: Answer | undefined;
    for (let i = 0; i < 300 && refused === undefined; i++) {
      const answer = await chat(person.secret, i, CAPPED);
      if (answer.status === 200) {
        used += usedBy(answer);
        // Returned tokens are reported soon: near the limit, the other replica must know.
        expect(header(answer, "remaining-tokens")).toBeGreaterThanOrEqual(3_000 - used - 200);
        if (3_000 - used < 400) await sleep(600);
      } else refused = answer;
    }
    expectLimited(refused as Answer, "This account may use 3000 tokens a minute", 3_000);
    const wanted = wantedOf(refused as Answer);
    expect(wanted).toBeGreaterThan(100);
    // It was refused only because its reservation was above the rest of the limit.
    expect(3_000 - used).toBeLessThan(wanted);
    expect(refused?.json.error.remaining).toBe(3_000 - used);
    expect(header(refused as Answer, "remaining-tokens")).toBe(3_000 - used);
  });

  test("are never reserved beyond the limit by concurrent requests over two replicas", async () => {
    const person = await limited({ key: { tokensPerMinute: 2_000 } });
    shop.provider.always({ delayMs: 500 });
    const answers = await many(60, 60, (i) => chat(person.secret, i, CAPPED));
    const refused = answers.find(({ status }) => status === 429) as Answer;
    const wanted = wantedOf(refused);
    expect(served(answers)).toHaveLength(Math.floor(2_000 / wanted));
    expectLimited(refused, "This API key may use 2000 tokens a minute", 2_000);
  });

  test("reserve the whole output cap for each of n choices", async () => {
    const person = await limited({ account: { tokensPerMinute: 2_000 } });
    shop.provider.always({ delayMs: 500 });
    const answers = await many(8, 8, (i) => chat(person.secret, i, { ...CAPPED, n: 8 }));
    const wanted = wantedOf(answers.find(({ status }) => status === 429) as Answer);
    expect(wanted).toBeGreaterThan(8 * CAPPED.max_tokens);
    expect(served(answers)).toHaveLength(Math.floor(2_000 / wanted));
  });

  test("count in full if an answer used more than was reserved, and not at all if it failed", async () => {
    const person = await limited({ account: { models: { "chat-a": { tokensPerMinute: 5_000 } } } });
    shop.provider.next({ status: 500 });
    expect((await chat(person.secret, 0, CAPPED)).status).toBe(503);
    expect((await chat(person.secret, 0, { ...CAPPED, temperature: 9 })).status).toBe(400);
    shop.provider.next({ usage: { prompt_tokens: 40, completion_tokens: 4_900, total_tokens: 4_940 } });
    expect((await chat(person.secret, 0, CAPPED)).status).toBe(200);
    const refused = await chat(person.secret, 0, CAPPED);
    expectLimited(refused, "This account, with the model chat-a, may use 5000 tokens a minute", 5_000);
    expect(refused.json.error.remaining).toBe(60);
    // Another model has no such limit.
    expect((await chat(person.secret, 0, { model: "vendor/chat-b" })).status).toBe(200);
  });

  test("do not refuse a request that may use more than the whole limit, if nothing else was used in the minute", async () => {
    const person = await limited({ account: { tokensPerMinute: 50 } });
    const first = await chat(person.secret, 0, CAPPED);
    expect(first.status).toBe(200);
    expectLimited(await chat(person.secret, 0, CAPPED), "50 tokens a minute", 50);
  });

  test("are returned when the entitlement refuses the request", async () => {
    const payer = await shop.payer(1n);
    await shop.world.sql`update keys set limits = '{"tokensPerMinute": 2000, "models": {}}' where id = ${payer.keyId}`;
    for (let i = 0; i < 30; i++) expectRefusal(await chat(payer.secret, 0, CAPPED), "insufficient_balance");
    expect(header(await chat(payer.secret, 0, CAPPED), "remaining-tokens")).toBe(2_000);
  });

  test("are not reserved for an image, which counts as a request of its model", async () => {
    const person = await limited({ account: { tokensPerMinute: 1, models: { "image-a": { requestsPerMinute: 2 } } } });
    const draw = () => shop.call("/v1/images/generations", { secret: person.secret, body: imageBody() });
    expect([(await draw()).status, (await draw()).status]).toEqual([200, 200]);
    expectLimited(await draw(), "with the model image-a, may send 2", 2);
  });
});

describe("concurrent requests", () => {
  test("are limited for a key, and for an account over two keys and two replicas; a slot is released when its request ends", async () => {
    const person = await limited({ account: { requestsAtOnce: 3 }, key: { requestsAtOnce: 2 } });
    const other = await shop.world.addKey(person);
    shop.provider.always({ hang: "headers" });
    const leaving = new AbortController();
    const open = [person.secret, person.secret, other.secret].map((secret, i) =>
      fetch(`${originOf(i)}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
        body: JSON.stringify(chatBody({ stream: true })),
        signal: leaving.signal,
      }).catch(() => undefined),
    );
    await shop.provider.waitForCalls(3);
    shop.provider.reset();
    expectLimited(await chat(person.secret, 0), "This API key may have 2 requests at once", 2);
    const refused = await chat(other.secret, 1);
    expectLimited(refused, "This account may have 3 requests at once", 3);
    expect(refused.headers.get("retry-after")).toBe("1");
    leaving.abort();
    await Promise.all(open);
    await until(async () => (await chat(other.secret, 1)).status === 200);
  });

  test("are limited for a model", async () => {
    const person = await limited({ account: { models: { "chat-a": { requestsAtOnce: 1 } } } });
    const { held, open } = shop.provider.gate();
    shop.provider.next(held);
    const first = chat(person.secret, 0);
    await shop.provider.waitForCalls(1);
    expectLimited(await chat(person.secret, 1), "with the model chat-a, may have 1 request at once", 1);
    expect((await chat(person.secret, 1, { model: "vendor/chat-b" })).status).toBe(200);
    open();
    expect((await first).status).toBe(200);
    await until(async () => (await chat(person.secret, 1)).status === 200);
    expect(await shedBy(replicas[1] as ReplicaProcess, "at_once_per_model")).toBeGreaterThanOrEqual(1);
  });
});

describe("the headers", () => {
  const NAMES = ["requests", "tokens"].flatMap((kind) =>
    ["limit", "remaining", "reset"].map((what) => `x-ratelimit-${what}-${kind}`),
  );
  const shown = ({ headers }: Answer) => NAMES.filter((name) => headers.has(name));
  const DURATION = /^(\d+ms|[1-5]?\ds|1m0s)$/;

  test("show the rest of the limit, on 500 answers over two replicas; exactly if the limit is so low that every request asks Redis", async () => {
    for (const [limit, off] of [
      [190, 0],
      [2_000, 20],
    ] as const) {
      const person = await limited({ account: { requestsPerMinute: limit } });
      for (let i = 0; i < 250; i++) {
        const answer = await chat(person.secret, i);
        const left = Math.max(0, limit - i - 1);
        expect(answer.status).toBe(i < limit ? 200 : 429);
        expect(header(answer, "limit-requests")).toBe(limit);
        expect(Math.abs(header(answer, "remaining-requests") - left)).toBeLessThanOrEqual(off);
        expect(answer.headers.get("x-ratelimit-reset-requests")).toMatch(DURATION);
      }
    }
  });

  test("are on every metered answer: streams, images, refusals; those of tokens only where tokens are limited", async () => {
    const person = await limited({ account: { requestsPerMinute: 50 } });
    const asks: [number, () => Promise<Answer>][] = [
      [200, () => chat(person.secret, 0)],
      [200, () => chat(person.secret, 0, { stream: true })],
      [200, () => shop.call("/v1/images/generations", { secret: person.secret, body: imageBody() })],
      [400, () => chat(person.secret, 0, { temperature: 9 })],
      [404, () => chat(person.secret, 0, { model: "no-such-model" })],
      [415, () => shop.chat(person.secret, {}, { headers: { "content-type": "text/plain" } })],
    ];
    for (const [status, ask] of asks) {
      const answer = await ask();
      expect([answer.status, shown(answer)]).toEqual([status, NAMES.slice(0, 3)]);
    }
    const tokens = await limited({ key: { tokensPerMinute: 10_000 } });
    const stream = await chat(tokens.secret, 0, { stream: true });
    expect(eventsOf(stream.text).at(-1)).toBe("[DONE]");
    expect(shown(stream)).toEqual(NAMES);
    expect(shown(await chat(tokens.secret, 0, { temperature: 9 }))).toEqual(NAMES);
    // Nobody is authenticated, and nothing is metered.
    expect(shown(await chat("sk-wrong", 0))).toEqual([]);
    expect(shown(await shop.call("/v1/models", { secret: person.secret }))).toEqual([]);
  });

  test("name the limit that has the least left", async () => {
    const person = await limited({
      account: { requestsPerMinute: 30, models: { "chat-a": { requestsPerMinute: 10, tokensPerMinute: 4_000 } } },
      key: { requestsPerMinute: 20, tokensPerMinute: 9_000 },
    });
    const ofModel = await chat(person.secret, 0);
    expect([header(ofModel, "limit-requests"), header(ofModel, "remaining-requests")]).toEqual([10, 9]);
    expect(header(ofModel, "limit-tokens")).toBe(4_000);
    const other = await chat(person.secret, 0, { model: "vendor/chat-b" });
    expect([header(other, "limit-requests"), header(other, "remaining-requests")]).toEqual([20, 18]);
    expect(header(other, "limit-tokens")).toBe(9_000);
  });

  test("are on a replayed answer too", async () => {
    const person = await limited({ key: { requestsPerMinute: 40 } });
    const headers = { "idempotency-key": "limits-1" };
    await shop.chat(person.secret, {}, { headers });
    const replayed = await shop.chat(person.secret, {}, { headers });
    expect(replayed.headers.get("idempotent-replayed")).toBe("true");
    expect(header(replayed, "remaining-requests")).toBe(38);
  });
});

describe("the playground", () => {
  test("counts towards the limits of the account and its models, and shows them", async () => {
    const person = await limited({
      account: { requestsPerMinute: 3, tokensPerMinute: 5_000, models: { "chat-a": { requestsPerMinute: 2 } } },
    });
    const session = await signInTo(shop, person);
    expect((await chat(person.secret, 0)).status).toBe(200);
    const second = await session.post("/ai/chat", chatBody());
    expect(second.status).toBe(200);
    expect(header(second, "remaining-requests")).toBe(0);
    expect(header(second, "limit-tokens")).toBe(5_000);
    const refused = await session.post("/ai/chat", chatBody());
    expect(refused.status).toBe(429);
    expect(refused.json.error.message).toContain("with the model chat-a, may send 2");
    expect((await session.post("/ai/chat", chatBody({ model: "vendor/chat-b" }))).json.error.limit).toBe(3);
  });
});
