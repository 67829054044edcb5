import { afterAll, beforeAll, expect, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import { closeBalanced } from "./checks.ts";
import { imageBody, openShop, type Shop } from "./shop.ts";

/** Nothing that a provider counts is lost: counts without a price are kept with the receipt. Source: MON-10. */

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
});
afterAll(() => closeBalanced(shop));

const USAGE = {
  prompt_tokens: 100,
  completion_tokens: 50,
  prompt_tokens_details: { cached_tokens: 20, cache_write_tokens: 30, audio_tokens: 0 },
  completion_tokens_details: { reasoning_tokens: 40 },
  cost: 0.00014,
};
const KEPT = {
  "prompt_tokens_details.cache_write_tokens": 30,
  "completion_tokens_details.reasoning_tokens": 40,
  cost: "0.00014",
};

async function receiptOf(accountId: number) {
  const select = () => shop.world.sql`
    select prompt_tokens, cached_tokens, completion_tokens, estimated, reported_usage from receipts
    where account_id = ${accountId} and outcome = 'settled'`;
  await until(async () => (await select()).length === 1);
  const [row] = await select();
  return { ...row };
}

for (const stream of [false, true]) {
  test(`cache writes, reasoning and other reported counts are kept on the receipt, ${stream ? "streamed" : "JSON"}`, async () => {
    const customer = await shop.customer();
    shop.provider.next({ usage: USAGE });
    const { status, text } = await shop.chat(customer.secret, { stream, stream_options: { include_usage: true } });
    expect(status).toBe(200);
    // The customer sees the counts, and not what the operator pays.
    expect(text).toContain('"cache_write_tokens":30');
    expect(text).not.toContain("cost");
    expect(await receiptOf(customer.accountId)).toEqual({
      prompt_tokens: 100,
      cached_tokens: 20,
      completion_tokens: 50,
      estimated: false,
      reported_usage: KEPT,
    });
  });
}

test("a usage object without counts of tokens is kept too, next to the estimate", async () => {
  const customer = await shop.customer();
  shop.provider.next({ usageRaw: '{"queue_ms":7,"speed":9,"cache_creation_input_tokens":3}' });
  expect((await shop.chat(customer.secret)).status).toBe(200);
  expect(await receiptOf(customer.accountId)).toMatchObject({
    estimated: true,
    reported_usage: { queue_ms: 7, speed: 9, cache_creation_input_tokens: 3 },
  });
});

test("an ordinary report is not kept twice", async () => {
  const customer = await shop.customer();
  shop.provider.next({ usage: { prompt_tokens: 10, completion_tokens: 5 } });
  expect((await shop.chat(customer.secret)).status).toBe(200);
  expect(await receiptOf(customer.accountId)).toMatchObject({ prompt_tokens: 10, reported_usage: null });
});

test("an image's usage is kept, with the counts that it left out", async () => {
  const customer = await shop.customer();
  const data = [{ b64_json: "iVBORw0KGgo=" }];
  const usage = {
    total_tokens: 4200,
    input_tokens: 40,
    output_tokens: 4160,
    input_tokens_details: { text_tokens: 40 },
    estimated_cost: 0.04,
  };
  shop.provider.next({ body: JSON.stringify({ created: 1, data, usage }) });
  const answer = await shop.call("/v1/images/generations", { secret: customer.secret, body: imageBody() });
  expect(answer.status).toBe(200);
  const { estimated_cost, ...shown } = usage;
  expect(answer.json.usage).toEqual({ ...shown, input_tokens_details: { text_tokens: 40, image_tokens: 0 } });
  expect((await receiptOf(customer.accountId)).reported_usage).toEqual({
    total_tokens: 4200,
    input_tokens: 40,
    output_tokens: 4160,
    "input_tokens_details.text_tokens": 40,
    estimated_cost: String(estimated_cost),
  });
});

test("fields that identify the provider are not sent on", async () => {
  const { secret } = await shop.customer();
  const choices = [{ index: 0, message: { role: "assistant", content: "Tolls." }, finish_reason: "stop" }];
  const answer = {
    id: "gen-1",
    provider: "Acme",
    object: "chat.completion",
    choices,
    x_groq: { id: "req_1" },
    more: 1,
  };
  shop.provider.next({ contentType: "application/json", body: JSON.stringify(answer) });
  const { json } = await shop.chat(secret);
  expect(json).toMatchObject({ choices, more: 1 });
  expect(Object.keys(json)).not.toEqual(expect.arrayContaining(["provider"]));
  expect(JSON.stringify(json)).not.toMatch(/Acme|groq/);
});
