import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { FactsOverride } from "../../src/catalog/dialects.ts";
import { until } from "../platform/own_redis.ts";
import { COUNTING } from "../replica.ts";
import type { ModelSpec } from "../world.ts";
import { closeBalanced, expectRefusal, withoutEffect } from "./checks.ts";
import { chatBody, eventsOf, openShop, PRICES, type Shop } from "./shop.ts";

/** Source: PAY-1, PAY-2, PAY-3, PAY-6, PAY-7, PAY-9, QUO-1, MON-2, MON-4, MON-5, USE-1, USE-4. */

const CHAT = "/v1/chat/completions";
/** What chatBody() can cost at most: 20 bytes of text, 8 tokens for its message and 8 for the reply, in nano-USD. */
const PROMPT_NANO = 36n * BigInt(PRICES.inputMicroUsd / 1000);
const OUTPUT_TOKEN_NANO = BigInt(PRICES.outputMicroUsd / 1000);
/** Deliberately odd, so that rounding shows. Micro-USD per million tokens. */
const ODD = { input: 2_500_001, cached: 312_503, output: 9_999_999 };

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", env: COUNTING, models: oddModels() });
});
afterAll(() => closeBalanced(shop));

function oddModels(): ModelSpec[] {
  const model = (id: string, upstreamModel = id, facts: FactsOverride = {}): ModelSpec => ({
    ...{ id, inputMicroUsd: ODD.input, cachedInputMicroUsd: ODD.cached, outputMicroUsd: ODD.output },
    ...{ defaultCapTokens: 1000, routes: [{ provider: "first", upstreamModel, facts }] },
  });
  return [
    model("chat-odd", "up-odd", { capField: "max_completion_tokens" }),
    model("chat-same", "chat-same", { streamOptions: "left_out" }),
    ...["over-1", "over-2", "over-3"].map((id) => model(id)),
  ];
}

const ids = async (secret: string): Promise<string[]> => {
  const { status, json } = await shop.call("/v1/models", { secret });
  expect(status).toBe(200);
  expect(json.object).toBe("list");
  return json.data.map((model: { id: string }) => model.id).sort();
};
const balanceOf = async (secret: string) => {
  const { status, json } = await shop.call("/v1/balance", { secret });
  expect({ status, object: json?.object }).toEqual({ status: 200, object: "balance" });
  return json;
};
const nanoOf = async (accountId: number): Promise<bigint> => {
  const [row] = await shop.world
    .sql`select balance_nano_usd::text as nano from balances where account_id = ${accountId}`;
  return BigInt(row?.nano);
};
const sentBody = () => shop.provider.lastCall()?.body ?? "";

describe("/models lists the models that can serve a request", () => {
  const OVER = ["over-1", "over-2", "over-3"];
  const PRICED = [
    "chat-a",
    "chat-odd",
    "chat-same",
    "chat-two-routes",
    "embed-a",
    "image-a",
    ...OVER,
    "rerank-a",
    "vendor/chat-b",
  ];

  test("a package without a scope lists every enabled model", async () => {
    const { secret } = await shop.customer();
    expect(await ids(secret)).toEqual([...PRICED, "chat-unpriced"].sort());
  });

  test("the list is the intersection of key scope and package scope", async () => {
    const { secret } = await shop.customer(
      { modelIds: ["chat-a", "image-a"] },
      { modelIds: ["image-a", "vendor/chat-b"] },
    );
    expect(await ids(secret)).toEqual(["image-a"]);
    for (const hidden of ["chat-a", "vendor/chat-b"]) {
      expectRefusal(await shop.call(`/v1/models/${hidden}`, { secret }), "model_not_found", { param: "model" });
    }
  });

  test("a package with an enabled balance lists the package scope and all models with a price", async () => {
    const customer = await shop.customer({ modelIds: ["chat-unpriced"] });
    expect(await ids(customer.secret)).toEqual(["chat-unpriced"]);
    await shop.world.setBalance(customer, 1_000_000n);
    expect(await ids(customer.secret)).toEqual([...PRICED, "chat-unpriced"].sort());
  });

  test("a pay-as-you-go key lists models with a price, while the balance is enabled and above zero", async () => {
    const payer = await shop.payer(1n);
    expect(await ids(payer.secret)).toEqual(PRICED.sort());
    await shop.world.sql`select set_payg(${payer.accountId}, false)`;
    expect(await ids(payer.secret)).toEqual([]);
    const empty = await shop.customer(null, { mode: "payg" });
    await shop.world.sql`select set_payg(${empty.accountId}, true)`;
    expect(await ids(empty.secret)).toEqual([]);
  });

  test("a key without an entitlement gets an empty list with 200, as a connectivity check", async () => {
    expect(await ids((await shop.customer(null)).secret)).toEqual([]);
  });

  test("a package does not count before it starts or after it ends", async () => {
    const customer = await shop.customer({ modelIds: ["chat-a"] });
    await shop.world.assign(customer, await shop.world.addOffering({ modelIds: ["vendor/chat-b"] }), "after");
    expect(await ids(customer.secret)).toEqual(["chat-a"]);
    await shop.world
      .sql`select end_package(${customer.accountId}, (select min(id) from packages where account_id = ${customer.accountId}))`;
    expect(await ids(customer.secret)).toEqual(["vendor/chat-b"]);
  });
});

describe("/balance", () => {
  test("a standard package has today's allowance, the total and the dates", async () => {
    const { secret, accountId } = await shop.customer({ dailyLimit: 5, days: 2 });
    expect((await shop.chat(secret)).status).toBe(200);
    const [row] = await shop.world.sql`select id::int, name from packages where account_id = ${accountId}`;
    const { package: shown, payg, ...rest } = await balanceOf(secret);
    expect(rest).toEqual({
      object: "balance",
      mode: "package",
      quota: null,
      used_tokens: expect.any(Number),
      remaining_tokens: null,
    });
    expect(rest.used_tokens).toBeGreaterThan(0);
    expect(payg).toMatchObject({ enabled: false, balance_usd: 0 });
    const instant = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/);
    expect(shown).toEqual({
      id: row?.id,
      name: row?.name,
      starts_at: instant,
      ends_at: instant,
      daily_limit: 5,
      daily_remaining: 4,
      total_limit: 10,
      total_remaining: 9,
      carryover: false,
    });
  });

  test("a carryover package has the accumulated units; a standard one never more than the total", async () => {
    const carry = await shop.customer({ dailyLimit: 5, days: 10, carryover: true });
    await shop.world
      .sql`update packages set starts_at = starts_at - interval '2 days', first_day = first_day - 2 where account_id = ${carry.accountId}`;
    expect((await shop.chat(carry.secret)).status).toBe(200);
    expect((await balanceOf(carry.secret)).package).toMatchObject({
      daily_limit: 5,
      daily_remaining: 14,
      total_remaining: 49,
      carryover: true,
    });
    const short = await shop.customer({ dailyLimit: 5, totalLimit: 2 });
    expect((await balanceOf(short.secret)).package).toMatchObject({ daily_remaining: 2, total_remaining: 2 });
  });

  test("a request in progress counts as used, and its amount as reserved", async () => {
    const customer = await shop.customer({ dailyLimit: 5 });
    const payer = await shop.payer(1_000_000_000n);
    const calls = shop.provider.callCount();
    const { held: waiting, open } = shop.provider.gate();
    for (let i = 0; i < 2; i++) shop.provider.next(waiting);
    const slow = [shop.chat(customer.secret), shop.chat(payer.secret, { max_tokens: 100 })];
    await shop.provider.waitForCalls(calls + 2);
    expect((await balanceOf(customer.secret)).package).toMatchObject({ daily_remaining: 4, total_remaining: 149 });
    const held = PROMPT_NANO + 100n * OUTPUT_TOKEN_NANO;
    expect((await balanceOf(payer.secret)).payg).toMatchObject({ balance_usd: 1, held_usd: Number(held) / 1e9 });
    open();
    for (const { status } of await Promise.all(slow)) expect(status).toBe(200);
    expect((await balanceOf(payer.secret)).payg.held_usd).toBe(0);
  });

  test("a token allowance has quota, used_tokens and remaining_tokens, and gets 402 once it is used up", async () => {
    const { secret } = await shop.customer({ tokenLimit: 1_000 });
    shop.provider.next({ usage: { prompt_tokens: 40, completion_tokens: 560 } });
    expect((await shop.chat(secret)).status).toBe(200);
    expect(await balanceOf(secret)).toMatchObject({ quota: 1_000, used_tokens: 600, remaining_tokens: 400 });
    shop.provider.next({ usage: { prompt_tokens: 40, completion_tokens: 560 } });
    expect((await shop.chat(secret)).status).toBe(200);
    expect(await balanceOf(secret)).toMatchObject({ quota: 1_000, used_tokens: 1_000, remaining_tokens: 0 });
    await withoutEffect(shop, async () => expectRefusal(await shop.chat(secret), "package_quota_exceeded"));
  });

  test("used_tokens is the sum of chargedTokens in /usage; the service bears the rest of totalTokens", async () => {
    const { secret } = await shop.customer({ tokenLimit: 1_000 });
    for (let i = 0; i < 2; i++) {
      shop.provider.next({ usage: { prompt_tokens: 40, completion_tokens: 560 } });
      expect((await shop.chat(secret)).status).toBe(200);
    }
    const { json } = await shop.call("/v1/usage", { secret });
    const tokens = json.data.map((record: Record<string, number>) => [record.totalTokens, record.chargedTokens]);
    expect(tokens).toEqual([
      [600, 400],
      [600, 600],
    ]);
    expect((await balanceOf(secret)).used_tokens).toBe(1_000);
  });

  test("a pay-as-you-go key has no package, its balance as a double, and all tokens ever charged to it", async () => {
    const { secret } = await shop.payer(1_234_567_891n);
    shop.provider.next({ usage: { prompt_tokens: 7, completion_tokens: 5 } });
    expect((await shop.chat(secret)).status).toBe(200);
    const left = 1_234_567_891n - 7n * 3_000n - 5n * 15_000n;
    expect(await balanceOf(secret)).toEqual({
      object: "balance",
      mode: "payg",
      quota: null,
      used_tokens: 12,
      remaining_tokens: null,
      package: null,
      payg: { enabled: true, balance_usd: Number(left) / 1e9, held_usd: 0 },
    });
  });

  test("an account without a package gets null, with nothing used", async () => {
    expect(await balanceOf((await shop.customer(null)).secret)).toMatchObject({
      mode: "package",
      package: null,
      quota: null,
      used_tokens: 0,
      remaining_tokens: null,
    });
  });
});

describe("/usage", () => {
  test("is listed newest first, paged by after and has_more, filtered by model, start and end", async () => {
    const { secret } = await shop.customer();
    const made: string[] = [];
    for (const model of ["chat-a", "vendor/chat-b", "chat-a", "chat-a", "vendor/chat-b"]) {
      made.unshift((await shop.chat(secret, { model })).headers.get("x-request-id") ?? "");
    }
    const list = async (query = "") => {
      const { status, json } = await shop.call(`/v1/usage${query}`, { secret });
      expect({ status, object: json.object, mode: json.mode }).toEqual({
        status: 200,
        object: "list",
        mode: "package",
      });
      return {
        ids: json.data.map((row: { requestId: string }) => row.requestId),
        more: json.has_more,
        data: json.data,
      };
    };
    const all = await list();
    expect(all).toMatchObject({ ids: made, more: false });
    const pages: string[] = [];
    for (let after = "", more = true; more; ) {
      const page = await list(`?limit=2${after}`);
      expect(page.ids.length).toBeLessThanOrEqual(2);
      pages.push(...page.ids);
      after = `&after=${page.ids.at(-1)}`;
      more = page.more;
    }
    expect(pages).toEqual(made);
    expect((await list("?limit=5")).more).toBe(false);
    expect((await list("?model=vendor%2Fchat-b")).ids).toEqual([made[0], made[3]]);
    expect((await list(`?after=${made[3]}`)).ids).toEqual([made[4]]);
    const today = new Date().toISOString().slice(0, 10);
    expect((await list(`?start=${today}`)).ids).toEqual(made);
    expect((await list("?end=2026-01-01")).ids).toEqual([]);
    expect((await list(`?start=${all.data[2].createdAt}`)).ids.length).toBeGreaterThanOrEqual(2);
  });

  test("each record has tokens, mode, host, status, and the cost to the nano-USD", async () => {
    const { secret } = await shop.payer(1_000_000_000n);
    shop.provider.next({ usage: { prompt_tokens: 11, completion_tokens: 13 } });
    const answer = await shop.chat(secret, {}, { host: "tollgate.test" });
    const { json } = await shop.call("/v1/usage", { secret });
    expect(json.mode).toBe("payg");
    expect(json.data).toEqual([
      {
        requestId: answer.headers.get("x-request-id"),
        model: "chat-a",
        promptTokens: 11,
        completionTokens: 13,
        totalTokens: 24,
        chargedTokens: 24,
        mode: "payg",
        createdAt: expect.stringMatching(/^\d{4}-.*Z$/),
        host: "tollgate.test",
        costUsd: (11 * 3_000 + 13 * 15_000) / 1e9,
        estimated: false,
        status: "complete",
      },
    ]);
  });

  test("shows only the key's hosts, if the key has a list, and never another account's rows", async () => {
    const customer = await shop.customer();
    const other = await shop.customer();
    const tied = await shop.world.addKey(customer, { hosts: ["tollgate.test"] });
    const there = (await shop.chat(customer.secret, {}, { host: "tollgate.test" })).headers.get("x-request-id");
    const here = (await shop.chat(customer.secret, {}, { host: "api.tollgate.test" })).headers.get("x-request-id");
    const theirs = (await shop.chat(other.secret)).headers.get("x-request-id");
    const seen = async (secret: string, query = "") => {
      const { json } = await shop.call(`/v1/usage${query}`, { secret, host: "tollgate.test" });
      return json.data.map((row: { requestId: string }) => row.requestId);
    };
    expect(await seen(tied.secret)).toEqual([there]);
    expect(await seen(customer.secret)).toEqual([here, there]);
    expect(await seen(other.secret)).toEqual([theirs]);
    // Another account's request id only marks a position, and reveals nothing.
    expect(await seen(customer.secret, `?after=${theirs}`)).toEqual([here, there]);
  });

  test("refused and failed requests are not usage; mode is the entitlement that paid", async () => {
    const customer = await shop.customer({ dailyLimit: 1 });
    shop.provider.next({ status: 500 });
    expect((await shop.chat(customer.secret)).status).toBe(503);
    expect((await shop.chat(customer.secret)).status).toBe(200);
    expect((await shop.chat(customer.secret)).status).toBe(402);
    await shop.world.setBalance(customer, 1_000_000_000n);
    // The refusal is remembered until the change is read.
    await until(async () => (await shop.chat(customer.secret)).status === 200);
    const { json } = await shop.call("/v1/usage", { secret: customer.secret });
    expect(json.data.map((row: { mode: string }) => row.mode)).toEqual(["payg", "package"]);
    expect(json.data[1].costUsd).toBe(0);
  });
});

describe("the balance is charged exactly", () => {
  const usage = { prompt_tokens: 1001, completion_tokens: 7, prompt_tokens_details: { cached_tokens: 128 } };
  const ceilNano = (pico: number) => BigInt(Math.ceil(pico / 1000));

  for (const stream of [false, true]) {
    test(`the charge of a chat with cached input is rounded up once, on the total${stream ? ", streamed" : ""}`, async () => {
      const payer = await shop.payer(1_000_000_000n);
      shop.provider.next({ usage });
      expect((await shop.chat(payer.secret, { model: "chat-odd", stream })).status).toBe(200);
      const charge = ceilNano(873 * ODD.input + 128 * ODD.cached + 7 * ODD.output);
      expect(await nanoOf(payer.accountId)).toBe(1_000_000_000n - charge);
      const { json } = await shop.call("/v1/usage", { secret: payer.secret });
      expect(json.data).toMatchObject([
        { costUsd: Number(charge) / 1e9, promptTokens: 1001, completionTokens: 7, estimated: false },
      ]);
    });
  }

  test("cached input costs the input price if the model has no cached price; more cached than prompt tokens count as all cached", async () => {
    for (const cached_tokens of [40, 1_000_000]) {
      const payer = await shop.payer(1_000_000_000n);
      shop.provider.next({
        usage: { prompt_tokens: 100, completion_tokens: 1, prompt_tokens_details: { cached_tokens } },
      });
      expect((await shop.chat(payer.secret)).status).toBe(200);
      expect(await nanoOf(payer.accountId)).toBe(1_000_000_000n - 315_000n);
    }
  });

  test("what is no count in a usage object is ignored: the tokens are counted here, and marked estimated", async () => {
    for (const bad of [
      { prompt_tokens: -5 },
      { completion_tokens: -1.5, total_tokens: -1.5 },
      { completion_tokens: "seven", total_tokens: "many" },
      { prompt_tokens: null, total_tokens: null },
    ]) {
      const payer = await shop.payer(1_000_000_000n);
      shop.provider.next({ usage: bad });
      expect((await shop.chat(payer.secret)).status).toBe(200);
      const { json } = await shop.call("/v1/usage", { secret: payer.secret });
      expect(json.data[0]).toMatchObject({ estimated: true });
      expect(json.data[0].promptTokens).toBeGreaterThan(0);
      expect(json.data[0].completionTokens).toBeGreaterThan(0);
      expect(await nanoOf(payer.accountId)).toBeLessThan(1_000_000_000n);
    }
  });

  for (const stream of [false, true])
    test(`a count of zero is none: the tokens are counted here, and marked estimated${stream ? ", streamed" : ""}`, async () => {
      const content = "a long answer ".repeat(1000);
      for (const [reported, promptMin, completion] of [
        [{ prompt_tokens: 0, completion_tokens: 0 }, 1, 3000],
        [{ prompt_tokens: 40, completion_tokens: 0 }, 40, 3000],
        [{ prompt_tokens: 0, completion_tokens: 5000 }, 1, 5000],
      ] as const) {
        const payer = await shop.payer(1_000_000_000n);
        shop.provider.next({ content, usage: reported });
        expect((await shop.chat(payer.secret, { stream })).status).toBe(200);
        const { json } = await shop.call("/v1/usage", { secret: payer.secret });
        const { promptTokens, completionTokens, estimated } = json.data[0];
        expect(estimated).toBe(true);
        expect(promptTokens).toBeGreaterThanOrEqual(promptMin);
        expect(Math.abs(completionTokens - completion)).toBeLessThan(50);
        const charge = BigInt(promptTokens) * 3_000n + BigInt(completionTokens) * 15_000n;
        expect(await nanoOf(payer.accountId)).toBe(1_000_000_000n - charge);
      }
    });

  test("an answer without text and without completion tokens is free; with tokens it is charged", async () => {
    const { secret, accountId } = await shop.customer();
    for (const stream of [false, true]) {
      shop.provider.next({ content: "", tokens: 0, usage: { prompt_tokens: 12, completion_tokens: 0 } });
      const { status, text, json } = await shop.chat(secret, { stream, stream_options: { include_usage: true } });
      expect(status).toBe(200);
      const usage = stream ? JSON.parse(eventsOf(text).at(-2) ?? "{}").usage : json.usage;
      expect(usage).toMatchObject({ prompt_tokens: 12, completion_tokens: 0, total_tokens: 12 });
      if (stream) expect(eventsOf(text).at(-1)).toBe("[DONE]");
    }
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
    shop.provider.next({ content: "", tokens: 0, usage: { prompt_tokens: 12, completion_tokens: 9 } });
    expect((await shop.chat(secret)).status).toBe(200);
    const { json } = await shop.call("/v1/usage", { secret });
    expect(json.data).toMatchObject([{ promptTokens: 12, completionTokens: 9, estimated: false }]);
  });
});

describe("the output cap", () => {
  test("is the model's default in the route's field, if the client sends none", async () => {
    const { secret } = await shop.payer(1_000_000_000n);
    expect((await shop.chat(secret)).status).toBe(200);
    expect(JSON.parse(sentBody())).toEqual({ ...chatBody(), model: "up-chat-a", max_tokens: 1000 });
    expect((await shop.chat(secret, { model: "chat-odd", max_tokens: null })).status).toBe(200);
    expect(JSON.parse(sentBody())).toEqual({ ...chatBody(), model: "up-odd", max_completion_tokens: 1000 });
  });

  /** One byte is one token here: the tokenizer cannot find fewer than the bound. */
  const tiny = chatBody({ messages: [{ role: "user", content: "x" }] });
  const TINY_NANO = 17n * BigInt(PRICES.inputMicroUsd / 1000);
  const ask = (secret: string, over: Record<string, unknown> = {}) => shop.chat(secret, { ...tiny, ...over });

  test("is lowered to what the balance can pay, never below 256, if the client sends none", async () => {
    for (const tokens of [500n, 256n]) {
      const { secret } = await shop.payer(TINY_NANO + tokens * OUTPUT_TOKEN_NANO);
      expect((await ask(secret)).status).toBe(200);
      expect(JSON.parse(sentBody()).max_tokens).toBe(Number(tokens));
    }
    const { secret } = await shop.payer(TINY_NANO + 256n * OUTPUT_TOKEN_NANO - 1n);
    await withoutEffect(shop, async () => expectRefusal(await ask(secret), "insufficient_balance"));
  });

  test("of the client is kept, under either name, or refused with 402; it is never lowered", async () => {
    for (const cap of [
      { max_tokens: 50 },
      { max_completion_tokens: 50 },
      { max_tokens: 900, max_completion_tokens: 50 },
    ]) {
      const { secret } = await shop.payer(TINY_NANO + 50n * OUTPUT_TOKEN_NANO);
      expect((await ask(secret, cap)).status).toBe(200);
      expect(JSON.parse(sentBody())).toEqual({ ...tiny, model: "up-chat-a", max_tokens: 50 });
    }
    const { secret } = await shop.payer(TINY_NANO + 50n * OUTPUT_TOKEN_NANO);
    await withoutEffect(shop, async () => expectRefusal(await ask(secret, { max_tokens: 51 }), "insufficient_balance"));
  });

  test("applies to each of n choices", async () => {
    const { secret } = await shop.payer(TINY_NANO + 100n * OUTPUT_TOKEN_NANO);
    await withoutEffect(shop, async () =>
      expectRefusal(await ask(secret, { max_tokens: 51, n: 2 }), "insufficient_balance"),
    );
    expect((await ask(secret, { max_tokens: 50, n: 2 })).status).toBe(200);
  });

  test("is checked with the tokenizer if the balance does not cover the bound by bytes, up to 32 KB of text", async () => {
    const words = { max_tokens: 10, messages: [{ role: "user", content: "hello ".repeat(2_000) }] };
    const { secret, accountId } = await shop.payer(10_000_000n);
    const reported = { usage: { prompt_tokens: 2_010, completion_tokens: 10 } };
    shop.provider.next(reported);
    // Until the tokenizer's tables are loaded, texts are estimated, and an estimate is not accepted.
    await until(async () => (await shop.chat(secret, words)).status === 200);
    expect(JSON.parse(sentBody()).max_tokens).toBe(10);
    expect(await nanoOf(accountId)).toBe(10_000_000n - 2_010n * 3_000n - 10n * 15_000n);

    const long = await shop.payer(50_000_000n);
    const longer = { ...words, messages: [{ role: "user", content: "hello ".repeat(6_000) }] };
    await withoutEffect(shop, async () => expectRefusal(await shop.chat(long.secret, longer), "insufficient_balance"));
    // Embeddings are counted the same way.
    const texts = { model: "embed-a", input: ["hello ".repeat(1_000), "hello ".repeat(1_000)] };
    const reader = await shop.payer(2_050n * 3_000n);
    shop.provider.next({ usage: { prompt_tokens: 2_010 } });
    expect((await shop.call("/v1/embeddings", { secret: reader.secret, body: texts })).status).toBe(200);
    // Text without spaces would keep a tokenizer busy for seconds. Its time is limited either way: tokens.test.ts.
    const hostile = { ...words, messages: [{ role: "user", content: "a".repeat(32_000) }] };
    expect([200, 402]).toContain((await shop.chat(long.secret, hostile)).status);
  });
});

describe("fields that are passed through unchanged", () => {
  const RAW =
    '  {"messages" : [ {"role":"user", "content":"h\\u00e9 \\ud83d\\udc4d","prefix":1.0e2} ],\n\t"model":"chat-a" ,"temperature":1.00,"logit_bias":{"5":12345678901234567890},"guided_json":{"model":"chat-a"},"seed":7 }\n';

  test("a package request is sent byte for byte: only the model name is replaced, and no cap is added", async () => {
    const { secret } = await shop.customer();
    expect((await shop.call(CHAT, { secret, body: RAW })).status).toBe(200);
    expect(sentBody()).toBe(RAW.replace('"model":"chat-a" ,', '"model":"up-chat-a" ,'));
    const same = RAW.replaceAll("chat-a", "chat-same");
    expect((await shop.call(CHAT, { secret, body: same })).status).toBe(200);
    expect(sentBody()).toBe(same);
    expect(shop.provider.lastCall()?.headers["content-type"]).toMatch(/^application\/json/);
  });

  test("a stream requests usage if the route supports stream_options, and keeps the client's other options; otherwise stream_options is dropped", async () => {
    const { secret } = await shop.customer();
    expect((await shop.chat(secret, { stream: true })).status).toBe(200);
    expect(JSON.parse(sentBody())).toEqual({
      ...chatBody(),
      model: "up-chat-a",
      stream: true,
      stream_options: { include_usage: true },
    });
    await shop.chat(secret, { stream: true, stream_options: { include_usage: false, include_obfuscation: false } });
    expect(JSON.parse(sentBody()).stream_options).toEqual({ include_usage: true, include_obfuscation: false });
    const { text } = await shop.chat(secret, {
      model: "chat-same",
      stream: true,
      stream_options: { include_usage: true },
    });
    expect(JSON.parse(sentBody())).toEqual(chatBody({ model: "chat-same", stream: true }));
    expect(eventsOf(text).at(-1)).toBe("[DONE]");
    const { json } = await shop.call("/v1/usage?limit=1", { secret });
    expect(json.data[0]).toMatchObject({ model: "chat-same", estimated: true });
    expect(json.data[0].completionTokens).toBeGreaterThan(0);
  });

  test("an image request gets our default size, and is otherwise unchanged", async () => {
    const { secret } = await shop.customer();
    const raw = '{"prompt":"A toll  gate", "style":"vivid","model":"image-a"}';
    expect((await shop.call("/v1/images/generations", { secret, body: raw })).status).toBe(200);
    expect(sentBody()).toBe('{"prompt":"A toll  gate", "style":"vivid","model":"up-image-a","size":"1024x1024"}');
  });

  test("an answer, as JSON or a stream, keeps unknown fields and has the client's model name", async () => {
    const { secret } = await shop.customer();
    const message = { role: "assistant", content: "x", reasoning_content: "hm", vendor: { a: [1] } };
    const whole = {
      id: "c1",
      object: "chat.completion",
      created: 7,
      model: "up-chat-a",
      choices: [{ index: 0, message, finish_reason: "stop", vendor: 2 }],
      usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2, vendor: 3 },
      vendor: { b: null },
    };
    shop.provider.next({ body: JSON.stringify(whole), contentType: "application/json" });
    expect((await shop.chat(secret)).text).toBe(JSON.stringify({ ...whole, model: "chat-a" }));

    const chunk = {
      id: "c2",
      object: "chat.completion.chunk",
      created: 7,
      model: "up-chat-a",
      choices: [{ index: 0, delta: { role: "assistant", reasoning_content: "hm", vendor: 1 }, finish_reason: "stop" }],
      vendor: 2,
    };
    shop.provider.next({
      body: `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`,
      contentType: "text/event-stream",
    });
    const [event, done] = eventsOf((await shop.chat(secret, { stream: true })).text);
    expect(JSON.parse(event ?? "")).toEqual({ ...chunk, model: "chat-a" });
    expect(done).toBe("[DONE]");
  });
});

describe("a provider that overruns the hold", () => {
  // Prompt of 36 and a cap of 100: the reserved amount, and the cost of twice the cap.
  const held = BigInt(Math.ceil((36 * ODD.input + 100 * ODD.output) / 1000));
  const charge = BigInt(Math.ceil((36 * ODD.input + 200 * ODD.output) / 1000));
  const overrun = { usage: { prompt_tokens: 36, completion_tokens: 200 } };

  test("gets 402 insufficient_balance if its answer is not streamed and not covered: nothing charged, no usage record", async () => {
    const payer = await shop.payer(charge - 1n);
    shop.provider.next(overrun);
    expectRefusal(await shop.chat(payer.secret, { model: "over-1", max_tokens: 100 }), "insufficient_balance");
    expect(await nanoOf(payer.accountId)).toBe(charge - 1n);
    expect(await shop.counters(payer.accountId)).toMatchObject({ usage: 0, released: 1, holds: 0 });
  });

  test("is charged in full if the rest of the balance covers it", async () => {
    const payer = await shop.payer(charge);
    shop.provider.next(overrun);
    expect((await shop.chat(payer.secret, { model: "over-2", max_tokens: 100 })).status).toBe(200);
    expect(await nanoOf(payer.accountId)).toBe(0n);
  });

  test("is charged the reserved amount if its answer is streamed and not covered; the operator bears the rest, and the balance is never negative", async () => {
    const payer = await shop.payer(charge - 1n);
    shop.provider.next(overrun);
    const { text } = await shop.chat(payer.secret, { model: "over-3", max_tokens: 100, stream: true });
    expect(eventsOf(text).at(-1)).toBe("[DONE]");
    const [receipt] = await shop.world
      .sql`select charged_nano_usd::text as charged, shortfall_nano_usd::text as shortfall from receipts where account_id = ${payer.accountId}`;
    expect(receipt).toEqual({ charged: String(held), shortfall: String(charge - held) });
    expect(await nanoOf(payer.accountId)).toBe(charge - 1n - held);
  });
});
