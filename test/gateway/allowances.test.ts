import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { ownRedis, until } from "../platform/own_redis.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { type Answer, openShop, type Shop } from "./shop.ts";

/** Token allowances, and tokens a minute, under requests that set no output cap. Three replicas. Source: QUO-9, LIM-4, MON-5. */
/** The simulated provider writes as many words, or as the cap allows. */
const LONG = "Write 4000 words about tolls.";
const LONG_CHAT = { messages: [{ role: "user", content: LONG }] };
/** The model's output cap for requests without one. */
const DEFAULT_CAP = 1_000;

const redis = await ownRedis();
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ replicas: 3, redisUrl: redis.url, env: { RATE_REDIS_MS: "1000" } });
});
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop, redis.stop));

const originOf = (n: number) => shop.replicas[n % 3]?.origin ?? "";

/** `count` requests at once, over all replicas. */
function flood(count: number, ask: (n: number) => Promise<Answer>): Promise<Answer[]> {
  shop.provider.always({ delayMs: 50 });
  return Promise.all(Array.from({ length: count }, (_, n) => ask(n)));
}

/** When nothing is held any more: a release reaches the database after its answer. */
const usedOf = async (accountId: number) => {
  await until(async () => (await readUsed(accountId)).held === 0);
  return await readUsed(accountId);
};

const readUsed = async (accountId: number) => {
  const [row] = await shop.world.sql<{ used: number; reported: number; held: number }[]>`
    select package_tokens_spent(p.id)::int as used, (tokens_taken - package_tokens_spent(p.id))::int as held,
      (select coalesce(sum(prompt_tokens + completion_tokens), 0)::int from receipts r
       where r.account_id = p.account_id and outcome = 'settled') as reported
    from packages p where account_id = ${accountId}`;
  if (row === undefined) throw new Error("there is no package");
  return row;
};

const sentCaps = () =>
  shop.provider.calls().map(({ body }): unknown => {
    const sent: Record<string, unknown> = JSON.parse(body);
    return sent.max_completion_tokens ?? sent.max_tokens ?? sent.max_output_tokens;
  });

describe("a token allowance is exceeded by no request", () => {
  const ALLOWANCE = 60_000;
  const ways: [string, (secret: string, n: number) => Promise<Answer>][] = [
    ["chat", (secret, n) => shop.chat(secret, { ...LONG_CHAT, stream: n % 2 === 0 }, { origin: originOf(n) })],
    [
      "responses",
      (secret, n) =>
        shop.call("/v1/responses", {
          ...{ secret, origin: originOf(n) },
          body: { model: "chat-a", input: LONG, stream: n % 2 === 0 },
        }),
    ],
  ];
  test.each(ways)("%s", async (_, ask) => {
    const buyer = await shop.customer({ dailyLimit: 1_000, tokenLimit: ALLOWANCE });
    const answers = await flood(100, (n) => ask(buyer.secret, n));
    for (const answer of answers) if (answer.status !== 200) expectRefusal(answer, "package_quota_exceeded");
    const { used, reported, held } = await usedOf(buyer.accountId);
    expect({ held, reported }).toEqual({ held: 0, reported: used });
    expect(used).toBeLessThanOrEqual(ALLOWANCE);
    // What the allowance has is used: it refuses nobody too early.
    expect(used).toBeGreaterThan(ALLOWANCE / 2);
    for (const cap of sentCaps()) expect(cap).toBeLessThanOrEqual(DEFAULT_CAP);
  });

  test("embeddings, which are reserved by what their input may have", async () => {
    const buyer = await shop.customer({ dailyLimit: 1_000, tokenLimit: 500 });
    const answers = await flood(60, (n) =>
      shop.call("/v1/embeddings", {
        ...{ secret: buyer.secret, origin: originOf(n) },
        body: { model: "embed-a", input: "toll ".repeat(20) },
      }),
    );
    expect(answers.some(({ status }) => status === 402)).toBe(true);
    const { used, reported } = await usedOf(buyer.accountId);
    expect(reported).toBe(used);
    expect(used).toBeLessThanOrEqual(500);
  });

  test("the last tokens go to shorter answers; a cap that the client asked for is kept or refused", async () => {
    const buyer = await shop.customer({ dailyLimit: 1_000, tokenLimit: 1_000 });
    shop.provider.always({ tokens: 20 });
    const refused = await shop.chat(buyer.secret, { max_tokens: 2_000 });
    expectRefusal(refused, "package_quota_exceeded");
    expect(refused.json.error).toMatchObject({ limit: 1_000, used: 0, remaining: 1_000 });
    expect(refused.json.error.message).toContain("Ask for less output with max_tokens");
    expect((await shop.chat(buyer.secret)).status).toBe(200);
    const [cap] = sentCaps();
    expect(cap).toBeGreaterThan(256);
    expect(cap).toBeLessThan(1_000);
  });

  test("a package without an allowance sends its requests as they came", async () => {
    const buyer = await shop.customer();
    await shop.chat(buyer.secret);
    expect(sentCaps()).toEqual([undefined]);
  });

  test("a provider that ignores the cap: the rest of the allowance is taken, and what is above it is on the receipt", async () => {
    const buyer = await shop.customer({ dailyLimit: 1_000, tokenLimit: 1_000 });
    shop.provider.next({ usage: { prompt_tokens: 20, completion_tokens: 9_000, total_tokens: 9_020 } });
    expect((await shop.chat(buyer.secret)).status).toBe(200);
    expect(await usedOf(buyer.accountId)).toEqual({ used: 1_000, held: 0, reported: 9_020 });
    expectRefusal(await shop.chat(buyer.secret), "package_quota_exceeded");
  });
});

describe("tokens a minute", () => {
  const PER_MINUTE = 20_000;
  test.each(["account", "key", "model"])("of the %s are not exceeded by requests without a cap", async (owner) => {
    const buyer = await shop.customer({ dailyLimit: 1_000 });
    const ofModel = { "chat-a": { tokensPerMinute: PER_MINUTE } };
    const limits = owner === "model" ? { models: ofModel } : { tokensPerMinute: PER_MINUTE, models: {} };
    const { sql } = shop.world;
    if (owner === "key") await sql`update keys set limits = ${sql.json(limits)} where id = ${buyer.keyId}`;
    else await sql`update accounts set limits = ${sql.json(limits)} where id = ${buyer.accountId}`;
    await flood(60, (n) => shop.chat(buyer.secret, LONG_CHAT, { origin: originOf(n) }));
    const { reported } = await usedOf(buyer.accountId);
    expect(reported).toBeLessThanOrEqual(PER_MINUTE * 1.01);
    expect(reported).toBeGreaterThan(PER_MINUTE / 2);
  });

  test("a limit below the model's default lowers the cap that is sent", async () => {
    const buyer = await shop.customer();
    await shop.world.sql`update keys set limits = '{"tokensPerMinute": 1000, "models": {}}' where id = ${buyer.keyId}`;
    expect((await shop.chat(buyer.secret, LONG_CHAT)).json.usage.total_tokens).toBeLessThanOrEqual(1_000);
  });
});
