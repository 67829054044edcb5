import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { COUNTING } from "../replica.ts";
import { closeBalanced, endFaults, expectRefusal, withoutEffect } from "./checks.ts";
import { eventsOf, openShop, PRICES, type Shop } from "./shop.ts";

/**
 * Text completions: what a provider with /completions of its own gets, and what any other. What all metered endpoints have in common is
 * in metered_endpoints.test.ts. Source: API-16.
 */
let shop: Shop;

beforeAll(async () => {
  const { inputMicroUsd, outputMicroUsd } = PRICES;
  const model = { inputMicroUsd, outputMicroUsd, defaultCapTokens: 1000 };
  const own = { completions: "own" };
  shop = await openShop({
    env: COUNTING,
    models: [
      { ...model, id: "fills-gaps", routes: [{ provider: "first", facts: own }] },
      { ...model, id: "second-fills-gaps", routes: [{ provider: "first" }, { provider: "second", facts: own }] },
    ],
  });
});
afterEach(() => endFaults(shop, complete));
afterAll(() => closeBalanced(shop));

const complete = (secret: string, over: Record<string, unknown> = {}) =>
  shop.call("/v1/completions", {
    secret,
    body: { model: "chat-a", prompt: "A toll gate is", max_tokens: 16, ...over },
  });
const sentBody = (provider = shop.provider) => JSON.parse(provider.lastCall()?.body ?? "{}");

describe("a route whose provider has only chat", () => {
  test("gets the prompt as the user's message; the answer is a text completion", async () => {
    const { secret, accountId } = await shop.customer();
    const { status, json, headers } = await complete(secret, {
      temperature: 0.5,
      stop: ["\n"],
      echo: true,
      best_of: 3,
    });
    expect(status).toBe(200);
    expect(shop.provider.lastCall()?.path).toBe("/v1/chat/completions");
    expect(sentBody()).toMatchObject({
      model: "up-chat-a",
      messages: [{ role: "user", content: "A toll gate is" }],
      ...{ temperature: 0.5, stop: ["\n"] },
    });
    expect(Object.keys(sentBody())).not.toContain("prompt");
    expect(headers.get("x-dropped-params")).toBe("echo, best_of");
    expect(json).toMatchObject({
      ...{ object: "text_completion", model: "chat-a", id: expect.any(String), created: expect.any(Number) },
      choices: [{ text: expect.any(String), index: 0, logprobs: null, finish_reason: expect.any(String) }],
    });
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
  });

  test("a suffix that no route takes is 400, and no provider is called", async () => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () =>
      expectRefusal(await complete(secret, { suffix: "." }), "invalid_request", { param: "suffix" }),
    );
  });

  test("an empty suffix is none", async () => {
    const { secret } = await shop.customer();
    expect((await complete(secret, { suffix: "" })).status).toBe(200);
    expect((await complete(secret, { suffix: null })).status).toBe(200);
  });
});

describe("a route whose provider has /completions", () => {
  test("gets the request itself, with the suffix", async () => {
    const { secret } = await shop.customer();
    const over = { model: "fills-gaps", suffix: " barrier.", user: "me", usage: { include: true } };
    const { status, json } = await complete(secret, over);
    expect(status).toBe(200);
    expect(shop.provider.lastCall()?.path).toBe("/v1/completions");
    const { user, ...sent } = sentBody();
    expect(sent).toEqual({ model: "up-fills-gaps", prompt: "A toll gate is", suffix: " barrier.", max_tokens: 16 });
    expect(user).not.toBe("me");
    expect(json.choices[0].text.length).toBeGreaterThan(0);
    expect(json.usage).toMatchObject({ mode: "package", cost: 0 });
  });

  test("is asked if a request has a suffix, also behind one that has none", async () => {
    const { secret } = await shop.customer();
    const before = shop.provider.callCount();
    expect((await complete(secret, { model: "second-fills-gaps", suffix: "." })).status).toBe(200);
    expect(shop.provider.callCount()).toBe(before);
    expect(sentBody(shop.second)).toMatchObject({ suffix: "." });
    expect((await complete(secret, { model: "second-fills-gaps" })).status).toBe(200);
    expect(shop.provider.callCount()).toBe(before + 1);
  });

  test("a stream has texts, a usage if it was asked for, and [DONE]", async () => {
    const { secret, accountId } = await shop.customer();
    const over = { model: "fills-gaps", stream: true, stream_options: { include_usage: true } };
    const events = eventsOf((await complete(secret, over)).text);
    expect(events.at(-1)).toBe("[DONE]");
    const chunks = events.slice(0, -1).map((event) => JSON.parse(event));
    expect(new Set(chunks.map(({ id, object, model }) => `${id} ${object} ${model}`)).size).toBe(1);
    const usage = chunks.at(-1);
    expect(usage).toMatchObject({ choices: [], usage: { total_tokens: expect.any(Number) } });
    expect(chunks.at(-2)?.choices[0].finish_reason).toBeString();
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0 });
    const [receipt] = await shop.world
      .sql`select prompt_tokens, completion_tokens from receipts where account_id = ${accountId}`;
    expect(usage.usage).toMatchObject(receipt as Record<string, unknown>);
  });

  test("events in answer to a request without a stream, and a whole answer to a stream, are read", async () => {
    const { secret } = await shop.customer();
    const text = (finish: string | null) => ({
      ...{ id: "c", object: "text_completion", created: 1, model: "m" },
      choices: [{ index: 0, text: finish === null ? "Whole" : ".", logprobs: null, finish_reason: finish }],
    });
    const usage = { prompt_tokens: 4, completion_tokens: 2, total_tokens: 6 };
    const events = [text(null), { ...text("stop"), usage }].map((one) => `data: ${JSON.stringify(one)}\n\n`).join("");
    const headers = { "content-type": "text/event-stream" };
    shop.provider.next({ body: `${events}data: [DONE]\n\n`, headers });
    expect((await complete(secret, { model: "fills-gaps" })).json).toMatchObject({
      choices: [{ text: "Whole." }],
      usage,
    });
    shop.provider.next({ body: JSON.stringify({ ...text("stop"), usage }) });
    const relayed = eventsOf((await complete(secret, { model: "fills-gaps", stream: true })).text);
    expect(relayed.at(-1)).toBe("[DONE]");
    expect(
      relayed
        .slice(0, -1)
        .map((event) => JSON.parse(event).choices[0]?.text ?? "")
        .join(""),
    ).toBe(".");
  });
});

describe("the prompt", () => {
  test.each([
    ["token ids", [1, 2, 3]],
    ["two texts", ["a", "b"]],
    ["an empty text", ""],
    ["an empty list", []],
    ["nothing", undefined],
  ])("%s is refused by name", async (_, prompt) => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () =>
      expectRefusal(await complete(secret, { prompt }), "invalid_request", { param: "prompt" }),
    );
  });
});

test("OpenAI's SDK reads whole answers and streams", async () => {
  const { secret } = await shop.customer();
  const client = new OpenAI({ apiKey: secret, baseURL: `${shop.origin}/v1` });
  const whole = await client.completions.create({ model: "fills-gaps", prompt: "A toll gate is", suffix: "." });
  expect(whole.choices[0]?.text.length).toBeGreaterThan(0);
  let text = "";
  for await (const chunk of await client.completions.create({
    model: "chat-a",
    prompt: "A toll gate is",
    stream: true,
  }))
    text += chunk.choices[0]?.text ?? "";
  expect(text.length).toBeGreaterThan(0);
});
