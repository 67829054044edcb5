import { afterAll, afterEach, beforeAll, expect, test } from "bun:test";
import { closeBalanced, expectRefusal, withoutEffect } from "./checks.ts";
import { type Answer, openShop, type Shop } from "./shop.ts";

/** One request is one unit, so a package bounds what one may ask for. Source: QUO-11. */
let shop: Shop;

beforeAll(async () => {
  shop = await openShop();
});
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop));

const embed = (secret: string, input: unknown) =>
  shop.call("/v1/embeddings", { secret, body: { model: "embed-a", input } });
const respond = (secret: string, over: Record<string, unknown>) =>
  shop.call("/v1/responses", { secret, body: { model: "chat-a", input: "Why?", ...over } });
const sent = (): Record<string, unknown> => JSON.parse(shop.provider.lastCall()?.body ?? "{}");

async function expectBound(answer: () => Promise<Answer>, param: string, words: string): Promise<void> {
  await withoutEffect(shop, async () => {
    const refused = await answer();
    expectRefusal(refused, "invalid_request", { param });
    expect(refused.json.error.message).toContain(words);
  });
}

test("a package has bounds unless its offering sets others: 4 choices, 128 inputs, 2,000,000 tokens of prompt", async () => {
  const { secret } = await shop.customer();
  await expectBound(() => shop.chat(secret, { n: 5 }), "n", "at most 4 choices");
  expect((await shop.chat(secret, { n: 4, max_tokens: 5 })).status).toBe(200);
  await expectBound(() => embed(secret, Array(129).fill("toll")), "input", "at most 128 inputs");
  expect((await embed(secret, Array(128).fill("toll"))).status).toBe(200);
  const long = "x".repeat(2_000_001);
  const messages = [{ role: "user", content: long }];
  await expectBound(() => shop.chat(secret, { messages }), "messages", "at most 2000000 tokens of prompt");
  await expectBound(() => respond(secret, { input: long }), "input", "at most 2000000 tokens of prompt");
});

test("a bound on the output refuses a higher cap, and is sent on if the client sets none", async () => {
  const { secret } = await shop.customer({ requestBounds: { outputTokens: 300 } });
  await expectBound(() => shop.chat(secret, { max_tokens: 301 }), "max_tokens", "at most 300 tokens of output");
  await expectBound(() => shop.chat(secret, { max_completion_tokens: 301 }), "max_completion_tokens", "at most 300");
  await expectBound(() => respond(secret, { max_output_tokens: 301 }), "max_output_tokens", "at most 300");
  expect((await shop.chat(secret)).status).toBe(200);
  expect(sent()).toMatchObject({ max_tokens: 300 });
  expect((await shop.chat(secret, { max_tokens: 200, stream: true })).status).toBe(200);
  expect(sent()).toMatchObject({ max_tokens: 200 });
  expect((await respond(secret, {})).status).toBe(200);
  expect(sent()).toMatchObject({ max_tokens: 300 });
});

test("an offering may allow more", async () => {
  const { secret } = await shop.customer({ requestBounds: { choices: 128, inputs: 2_048 } });
  expect((await shop.chat(secret, { n: 128, max_tokens: 1 })).status).toBe(200);
  expect((await embed(secret, Array(2_048).fill("toll"))).status).toBe(200);
});

test("whoever pays by balance has no such bounds: every choice and token is paid", async () => {
  const { secret } = await shop.payer(10_000_000_000n);
  expect((await shop.chat(secret, { model: "vendor/chat-b", n: 8, max_tokens: 5 })).status).toBe(200);
});

test("the bounds of a queued package hold from its first request on, although the key was read before it began", async () => {
  const customer = await shop.customer({ requestBounds: { choices: 4 } });
  const queued = await shop.world.givePackage(customer, { requestBounds: { choices: 1 } });
  const { sql } = shop.world;
  const { accountId, secret } = customer;
  const [{ at }] = (await sql`select ledger_now() + interval '3 seconds' as at`) as unknown as [{ at: Date }];
  await sql`update packages set ends_at = ${at} where account_id = ${accountId} and id <> ${queued}`;
  await sql`update packages set starts_at = ${at} where id = ${queued}`;
  const isBefore = async () => (await sql`select 1 where ledger_now() < ${at}`).length > 0;
  // Each of these keeps what is known of the key in memory: for 30 s if nothing changes.
  while (await isBefore()) await shop.chat(secret, { n: 4, max_tokens: 1 });
  await expectBound(() => shop.chat(secret, { n: 2, max_tokens: 1 }), "n", "at most 1 choices");
  expect((await shop.chat(secret, { n: 1, max_tokens: 1 })).status).toBe(200);
});
