import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { type Answer, type CallOptions, openShop, type Shop } from "./shop.ts";

/**
 * One customer's mistakes and attacks must not open a breaker for others; a provider that is really down must still be
 * detected quickly. Source: PRV-4, PRV-5, PRV-6.
 */
const MISTAKES = 12;
const POISON = "poisoned prompt";
let shop: Shop;
/** Its time limits are short, for a provider that hangs. On a busy machine they also end good answers. */
let hasty: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop();
  hasty = await shop.start({ PROVIDER_FIRST_BYTE_MS: "400", PROVIDER_TOTAL_MS: "900" });
});
afterEach(async () => {
  shop.provider.reset();
  shop.second.reset();
  const { secret } = await shop.customer();
  for (const { origin } of [shop, hasty])
    for (const model of ["chat-a", "chat-two-routes"])
      await until(async () => (await shop.chat(secret, { model }, { origin })).status === 200);
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop, () => hasty.kill()));

const told = (status: number, message: string, more: Record<string, unknown> = {}, headers = {}): Behaviour => ({
  status,
  headers,
  body: JSON.stringify({ error: { message, type: "invalid_request_error", param: null, code: null, ...more } }),
});
const OPENAI_TOO_LARGE = told(
  429,
  "Request too large for gpt-4o in organization org-0123456789abcdef on tokens per min (TPM): Limit 30000, Requested 36835. The input or output tokens must be reduced in order to run successfully. Visit https://platform.openai.com/account/rate-limits to learn more.",
  { type: "tokens", code: "rate_limit_exceeded" },
);
const OPENROUTER_SHORT = told(
  402,
  "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 3245. To increase, visit https://openrouter.ai/settings/credits and upgrade to a paid account",
  { code: 402 },
);
const NO_IMAGES = told(404, "No endpoints found that support image input", { code: 404 });
const GROQ_TOO_LARGE = told(
  413,
  "Request too large for model `llama-3.3-70b-versatile` in organization `org_01kgg5588eftc8k70aes4864eb` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested 14137, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
  { type: "tokens", code: "rate_limit_exceeded" },
);

const poisoned = (secret: string, over: Record<string, unknown> = {}, options: CallOptions = {}) =>
  shop.chat(secret, { messages: [{ role: "user", content: POISON }], ...over }, options);
const onPoison = (behaviour: Behaviour) => shop.provider.when((call) => call.body.includes(POISON), behaviour);

/** Messages that a provider addresses to its own customer, the operator. */
function expectNoBusinessOfOurs({ text }: Answer): void {
  for (const word of [
    "organization",
    "org-",
    "org_",
    "Limit",
    "credits",
    "afford",
    "Upgrade",
    "billing",
    "gpt-4o",
    "llama",
  ])
    expect(text).not.toContain(word);
}

describe("a request that is too large or too expensive for the provider is the client's error: 400", () => {
  for (const [what, behaviour] of [
    ["429 of a request above the operator's token rate", OPENAI_TOO_LARGE],
    ["413 of a request above the operator's token rate", GROQ_TOO_LARGE],
    ["402 of a request that the operator's credit does not cover", OPENROUTER_SHORT],
    ["404 of images sent to a text model", NO_IMAGES],
  ] as const)
    test(`after a dozen from one customer, another customer's chats are still answered: ${what}`, async () => {
      const [attacker, neighbour] = [await shop.customer(), await shop.customer()];
      onPoison(behaviour);
      const neighbours: number[] = [];
      for (let i = 0; i < MISTAKES; i++) {
        const answer = await poisoned(attacker.secret);
        expectRefusal(answer, "invalid_request");
        expectNoBusinessOfOurs(answer);
        if (i > MISTAKES / 2) neighbours.push((await shop.chat(neighbour.secret)).status);
      }
      for (let i = 0; i < 5; i++) neighbours.push((await shop.chat(neighbour.secret, { stream: i % 2 === 1 })).status);
      expect(neighbours.filter((status) => status !== 200)).toEqual([]);
      expect((await shop.chat(attacker.secret)).status).toBe(200);
      expect(await shop.counters(attacker.accountId)).toMatchObject({
        usage: 1,
        released: MISTAKES,
        holds: 0,
        units: 1,
      });
    });

  test.each([
    ["429, too large", OPENAI_TOO_LARGE],
    ["402", OPENROUTER_SHORT],
    ["404", NO_IMAGES],
  ] as const)("%s: another route that takes the request serves it", async (_, behaviour) => {
    const { secret } = await shop.customer();
    shop.provider.next(behaviour);
    expect((await shop.chat(secret, { model: "chat-two-routes" })).status).toBe(200);
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 1]);
  });

  test("if one route refuses it and another is down, the client is asked to retry: 503", async () => {
    const { secret } = await shop.customer();
    shop.provider.next(NO_IMAGES);
    shop.second.next({ status: 500 });
    expectRefusal(await shop.chat(secret, { model: "chat-two-routes" }), "provider_unavailable");
  });
});

describe("a provider that fails for one customer only is skipped for that customer only", () => {
  const FAILURES: [string, Behaviour][] = [
    ["500", { status: 500 }],
    ["a closed connection", { cutBeforeHeaders: true }],
    ["a time-out", { hang: "headers" }],
    ["an HTML page", { html: true }],
    ["403", { status: 403 }],
  ];
  for (const [what, behaviour] of FAILURES)
    test(`the other customer's chats are all answered: ${what}`, async () => {
      const [attacker, neighbour] = [await shop.customer(), await shop.customer()];
      onPoison(behaviour);
      const { origin } = "hang" in behaviour ? hasty : shop;
      for (let i = 0; i < 6; i++)
        expectRefusal(await poisoned(attacker.secret, {}, { origin }), "provider_unavailable");
      const statuses: number[] = [];
      for (let i = 0; i < 4; i++) {
        await poisoned(attacker.secret, {}, { origin });
        statuses.push((await shop.chat(neighbour.secret, {}, { origin })).status);
      }
      expect(statuses).toEqual([200, 200, 200, 200]);
    });

  test("the customers of one reseller do not open a breaker for others", async () => {
    const reseller = await shop.world.addReseller();
    const attackers = await Promise.all(
      Array.from({ length: 6 }, async () => {
        const person = await shop.world.addCustomer(reseller.accountId);
        await shop.world.givePackage(person);
        return await shop.world.addKey(person);
      }),
    );
    const neighbour = await shop.customer();
    onPoison({ status: 500 });
    for (const { secret } of [...attackers, ...attackers]) await poisoned(secret);
    const statuses: number[] = [];
    for (let i = 0; i < 5; i++) statuses.push((await shop.chat(neighbour.secret)).status);
    expect(statuses).toEqual([200, 200, 200, 200, 200]);
  });

  test("a provider that hangs is skipped once a single customer has met it", async () => {
    const { secret } = await shop.customer();
    shop.provider.always({ hang: "headers" });
    const { origin } = hasty;
    for (let i = 0; i < 5; i++) expectRefusal(await shop.chat(secret, {}, { origin }), "provider_unavailable");
    const calls = shop.provider.callCount();
    expectRefusal(await shop.chat(secret, {}, { origin }), "provider_unavailable");
    expect(shop.provider.callCount()).toBe(calls);
  });

  test("two customers who meet the same failures open the breaker for everybody", async () => {
    const [one, other, third] = [await shop.customer(), await shop.customer(), await shop.customer()];
    shop.provider.always({ status: 500 });
    for (let i = 0; i < 3; i++) {
      await shop.chat(one.secret);
      await shop.chat(other.secret);
    }
    const calls = shop.provider.callCount();
    expectRefusal(await shop.chat(third.secret), "provider_unavailable");
    expect(shop.provider.callCount()).toBe(calls);
  });
});

describe("429: the provider's rate limit", () => {
  const RATE = told(
    429,
    "Rate limit reached for gpt-4o in organization org-0123456789abcdef on tokens per min (TPM): Limit 30000, Used 29937, Requested 385. Please try again in 20s.",
    { type: "tokens", code: "rate_limit_exceeded" },
  );

  test("skips the route for its Retry-After: the other one serves, and nothing counts as a failure", async () => {
    const [one, other, third] = [await shop.customer(), await shop.customer(), await shop.customer()];
    shop.provider.next(RATE);
    shop.provider.next(RATE);
    for (const { secret } of [one, other, third, one, other]) {
      expect((await shop.chat(secret, { model: "chat-two-routes" })).status).toBe(200);
    }
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([2, 5]);
  });

  test("that only one customer meets skips the route for that customer only, with the provider's Retry-After", async () => {
    const [attacker, neighbour] = [await shop.customer(), await shop.customer()];
    onPoison(RATE);
    for (let i = 0; i < 6; i++) {
      const answer = await poisoned(attacker.secret, { model: "chat-unpriced" });
      expectRefusal(answer, "provider_unavailable");
      expect(Number(answer.headers.get("retry-after"))).toBeWithin(15, 21);
      expect((await shop.chat(neighbour.secret, { model: "chat-unpriced" })).status).toBe(200);
    }
  });
});
