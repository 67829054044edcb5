import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { readEvents } from "./response_events.ts";
import { chatBody, embeddingBody, eventsOf, imageBody, openShop, PRICES, type Shop } from "./shop.ts";

/** What a provider reports, wherever and however, is what is charged, and what the client reads. Source: MON-18, USE-6, USE-7, USE-8. */

const MILLION = 1_000_000_000_000n;
let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
});
afterAll(() => closeBalanced(shop));

type Fields = Record<string, unknown>;
const CHOICE = { index: 0, finish_reason: "stop" };
const TEXT = "A toll gate is a gate.";

/** A whole answer with these members, and in its choice these. */
const whole = (more: Fields, choice: Fields = {}) =>
  JSON.stringify({
    id: "c",
    object: "chat.completion",
    created: 1_763_856_000,
    model: "m",
    choices: [{ ...CHOICE, message: { role: "assistant", content: TEXT }, ...choice }],
    ...more,
  });

const chunk = (choices: Fields[], more: Fields = {}) =>
  `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1_763_856_000, model: "m", choices, ...more })}\n\n`;
const said = (content: string) => chunk([{ index: 0, delta: { role: "assistant", content }, finish_reason: null }]);
/** A stream that ends with these chunks. */
const stream = (...ends: string[]) => [said(TEXT), ...ends, "data: [DONE]\n\n"].join("");
const stop = (more: Fields = {}, choice: Fields = {}) => chunk([{ ...CHOICE, delta: {}, ...choice }], more);

/** What is reported, and the counts: prompt, cached, completion. */
const FORMS: readonly { says: string; usage: unknown; counts: [number, number, number] }[] = [
  {
    says: "three integers",
    usage: { prompt_tokens: 500, completion_tokens: 300, total_tokens: 800 },
    counts: [500, 0, 300],
  },
  {
    says: "cached tokens beside the counts (Moonshot)",
    usage: { prompt_tokens: 500, completion_tokens: 300, cached_tokens: 400 },
    counts: [500, 400, 300],
  },
  {
    says: "hits and misses of a cache (DeepSeek)",
    usage: { prompt_tokens: 500, completion_tokens: 300, prompt_cache_hit_tokens: 400, prompt_cache_miss_tokens: 100 },
    counts: [500, 400, 300],
  },
  { says: "a prompt and a total", usage: { prompt_tokens: 21, total_tokens: 81 }, counts: [21, 0, 60] },
  { says: "a completion and a total", usage: { completion_tokens: 60, total_tokens: 81 }, counts: [21, 0, 60] },
  {
    says: "zeros and a total",
    usage: { prompt_tokens: 21, completion_tokens: 0, total_tokens: 81 },
    counts: [21, 0, 60],
  },
  {
    says: "texts",
    usage: { prompt_tokens: "500", completion_tokens: "300", total_tokens: "800" },
    counts: [500, 0, 300],
  },
  {
    says: "fractions",
    usage: { prompt_tokens: 500.0, completion_tokens: 299.2, total_tokens: 799.2 },
    counts: [500, 0, 300],
  },
  {
    says: "Anthropic's names, the cache beside the input",
    usage: { input_tokens: 100, output_tokens: 300, cache_read_input_tokens: 400, cache_creation_input_tokens: 0 },
    counts: [500, 400, 300],
  },
  {
    says: "Bedrock's names",
    usage: { inputTokens: 100, outputTokens: 300, totalTokens: 800, cacheReadInputTokens: 400 },
    counts: [500, 400, 300],
  },
  {
    says: "the names of responses",
    usage: { input_tokens: 500, output_tokens: 300, total_tokens: 800, input_tokens_details: { cached_tokens: 400 } },
    counts: [500, 400, 300],
  },
  {
    says: "Gemini's names, with thoughts",
    usage: {
      promptTokenCount: 500,
      cachedContentTokenCount: 400,
      candidatesTokenCount: 100,
      thoughtsTokenCount: 200,
      totalTokenCount: 800,
    },
    counts: [500, 400, 300],
  },
  { says: "Ollama's names", usage: { prompt_eval_count: 500, eval_count: 300 }, counts: [500, 0, 300] },
];
const GOOD = { prompt_tokens: 500, completion_tokens: 300, total_tokens: 800 };
const ZEROS = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };

/** Where it stands: the same report of 500, 0 and 300, whole and as the end of a stream. */
const PLACES: readonly { says: string; json?: string; events?: string }[] = [
  { says: "in the choice (Moonshot)", json: whole({}, { usage: GOOD }), events: stream(stop({}, { usage: GOOD })) },
  { says: "as usageMetadata", json: whole({ usageMetadata: GOOD }), events: stream(stop({ usageMetadata: GOOD })) },
  { says: "in x_groq", json: whole({ x_groq: { usage: GOOD } }), events: stream(stop({ x_groq: { usage: GOOD } })) },
  {
    says: "zeros beside it",
    json: whole({ usage: ZEROS }, { usage: GOOD }),
    events: stream(stop({ usage: ZEROS }, { usage: GOOD })),
  },
  { says: "followed by zeros", events: stream(stop({ usage: GOOD }), chunk([], { usage: ZEROS })) },
  { says: "followed by null", events: stream(stop({ usage: GOOD }), chunk([], { usage: null })) },
  { says: "followed by a list", events: stream(stop({ usage: GOOD }), chunk([], { usage: [1] })) },
  {
    says: "in two halves",
    events: stream(stop({ usage: { prompt_tokens: 500 } }), chunk([], { usage: { completion_tokens: 300 } })),
  },
  {
    says: "growing, in every chunk",
    events: stream(
      chunk([{ index: 0, delta: { content: "a" } }], { usage: { prompt_tokens: 500, completion_tokens: 1 } }),
      chunk([{ index: 0, delta: { content: "b" } }], { usage: { prompt_tokens: 500, completion_tokens: 250 } }),
      stop({ usage: GOOD }),
    ),
  },
];

/** Reports that count nothing, or no prompt. The gateway counts instead. */
const NONE: readonly [string, unknown][] = [
  ["none", undefined],
  ["null", null],
  ["an empty object", {}],
  ["a list", [1, 2, 3]],
  ["a text", "many"],
  ["zeros", ZEROS],
  ["negative counts", { prompt_tokens: -1, completion_tokens: -7, total_tokens: -8 }],
  ["nulls", { prompt_tokens: null, completion_tokens: null, total_tokens: null }],
];

type Shown = { prompt_tokens: number; completion_tokens: number; total_tokens: number } & Fields;

/** The usage in the answer: of the last chunk of a stream. */
function shownIn(answer: { text: string; json: { usage: Shown } }, isStream: boolean): Shown {
  if (!isStream) return answer.json.usage;
  const chunks = eventsOf(answer.text)
    .filter((payload) => payload !== "[DONE]")
    .map((payload) => JSON.parse(payload));
  for (const { usage } of chunks.slice(0, -1)) expect(usage).toBeNull();
  expect(chunks.at(-1).choices).toEqual([]);
  return chunks.at(-1).usage;
}

/** Answers a chat, and compares what the client reads with the usage record. Returns both. */
async function served(body: string, isStream: boolean) {
  const { secret } = await shop.payer(MILLION);
  shop.provider.next({ body, contentType: isStream ? "text/event-stream" : "application/json" });
  const over = isStream ? { stream: true, stream_options: { include_usage: true } } : {};
  const answer = await shop.chat(secret, over);
  expect(answer.status).toBe(200);
  const shown = shownIn(answer, isStream);
  const id = answer.headers.get("x-request-id");
  const { json: record } = await shop.call(`/v1/usage/${id}`, { secret });
  for (const count of [shown.prompt_tokens, shown.completion_tokens, shown.total_tokens])
    expect(Number.isInteger(count) && count >= 0).toBe(true);
  expect([shown.prompt_tokens, shown.completion_tokens, shown.total_tokens]).toEqual([
    record.promptTokens,
    record.completionTokens,
    record.totalTokens,
  ]);
  return { shown, record };
}

describe.each([
  ["whole", false],
  ["a stream", true],
] as const)("%s", (_, isStream) => {
  const bodyOf = (usage: unknown) =>
    isStream ? stream(stop(), chunk([], { usage })) : whole(usage === undefined ? {} : { usage });

  test.each(FORMS.map((form) => [form.says, form] as const))(
    "%s",
    async (_, { usage, counts: [prompt, cached, completion] }) => {
      const { shown, record } = await served(bodyOf(usage), isStream);
      expect(record).toMatchObject({ promptTokens: prompt, completionTokens: completion, estimated: false });
      const details = shown.prompt_tokens_details as { cached_tokens?: number } | undefined;
      expect(details?.cached_tokens ?? 0).toBe(cached);
      const microUsd =
        (prompt - cached) * PRICES.inputMicroUsd + cached * PRICES.inputMicroUsd + completion * PRICES.outputMicroUsd;
      expect(record.costUsd).toBeCloseTo(microUsd / 1e12, 9);
    },
  );

  test.each(PLACES.flatMap((place) => ((isStream ? place.events : place.json) ? [[place.says, place] as const] : [])))(
    "usage that stands %s",
    async (_, { json = "", events = "" }) => {
      const { record } = await served(isStream ? events : json, isStream);
      expect(record).toMatchObject({ promptTokens: 500, completionTokens: 300, estimated: false });
    },
  );

  test.each(NONE)("%s: our count is charged, and shown", async (_, usage) => {
    const { record } = await served(bodyOf(usage), isStream);
    expect(record.estimated).toBe(true);
    expect(record.promptTokens).toBeGreaterThan(0);
    expect(record.completionTokens).toBeGreaterThan(0);
  });

  test("a prompt alone: our count of the completion", async () => {
    const { record } = await served(bodyOf({ prompt_tokens: 500 }), isStream);
    expect(record).toMatchObject({ promptTokens: 500, estimated: true });
    expect(record.completionTokens).toBeGreaterThan(0);
  });

  test("a total alone: what is not the prompt is the completion", async () => {
    const { record } = await served(bodyOf({ total_tokens: 800 }), isStream);
    expect(record).toMatchObject({ totalTokens: 800, estimated: true });
  });

  test("details that are no counts are not shown, and neither is what the operator pays", async () => {
    const usage = { ...GOOD, cost: 5, prompt_tokens_details: { cached_tokens: 7, audio_tokens: "x", more: -1 } };
    const { shown } = await served(bodyOf(usage), isStream);
    expect(shown).toEqual({ ...GOOD, prompt_tokens_details: { cached_tokens: 7 } });
  });
});

test("a stream that did not ask has no usage in any chunk, wherever the provider put it", async () => {
  const { secret } = await shop.payer(MILLION);
  for (const { events } of PLACES) {
    if (events === undefined) continue;
    shop.provider.next({ body: events, contentType: "text/event-stream" });
    const { text } = await shop.chat(secret, { stream: true });
    expect(text).toEndWith("data: [DONE]\n\n");
    expect(text).not.toMatch(/usage|prompt_tokens/i);
  }
});

test.each(NONE)("embeddings with %s as usage: our count is charged, and shown", async (_, usage) => {
  const { secret } = await shop.payer(MILLION);
  const data = [{ object: "embedding", index: 0, embedding: [0.5, 0.25] }];
  shop.provider.next({ body: JSON.stringify({ object: "list", data, usage }) });
  const { status, json, headers } = await shop.call("/v1/embeddings", { secret, body: embeddingBody() });
  expect(status).toBe(200);
  const { json: record } = await shop.call(`/v1/usage/${headers.get("x-request-id")}`, { secret });
  const { promptTokens } = record;
  expect(promptTokens).toBeGreaterThan(0);
  expect(json.usage).toEqual({ prompt_tokens: promptTokens, completion_tokens: 0, total_tokens: promptTokens });
});

test.each([false, true])("a response has the counts that were charged (stream: %p)", async (isStream) => {
  const { secret } = await shop.payer(MILLION);
  for (const usage of [undefined, {}, { input_tokens: "500", output_tokens: 300 }]) {
    const body = isStream ? stream(stop({}, { usage })) : whole({}, { usage });
    shop.provider.next({ body, contentType: isStream ? "text/event-stream" : "application/json" });
    const request = { model: "chat-a", input: "What is a toll gate?", stream: isStream, usage: { include: true } };
    const answer = await shop.call("/v1/responses", { secret, body: request });
    expect(answer.headers.get("x-dropped-params")).toBeNull();
    const last = isStream ? readEvents(answer.text).at(-1)?.response : answer.json;
    const { json: record } = await shop.call(`/v1/usage/${answer.headers.get("x-request-id")}`, { secret });
    expect(last.usage).toMatchObject({
      input_tokens: record.promptTokens,
      output_tokens: record.completionTokens,
      total_tokens: record.totalTokens,
      cost: record.costUsd,
      mode: "payg",
    });
    expect(record.costUsd).toBeGreaterThan(0);
  }
});

describe("usage: {include: true}", () => {
  const clientOf = (apiKey: string) => new OpenAI({ apiKey, baseURL: `${shop.origin}/v1`, maxRetries: 0 });
  const asking = { usage: { include: true } };
  const recordOf = async (secret: string, id: string | null | undefined) =>
    (await shop.call(`/v1/usage/${id}`, { secret })).json;

  test("OpenAI's SDK reads the cost of a chat, of a stream and of embeddings, as in the record", async () => {
    const { secret, accountId } = await shop.payer(MILLION);
    const client = clientOf(secret);
    const messages = chatBody().messages as OpenAI.ChatCompletionMessageParam[];
    const chat = await client.chat.completions.create({ model: "chat-a", messages, ...asking });
    const chatRecord = await recordOf(secret, chat._request_id);
    expect(chat.usage).toMatchObject({ cost: chatRecord.costUsd, mode: "payg" });
    expect(chatRecord.costUsd).toBeGreaterThan(0);

    const { data: events, response } = await client.chat.completions
      .create({ model: "chat-a", messages, stream: true, ...asking })
      .withResponse();
    let usage: unknown;
    for await (const event of events) usage = event.usage ?? usage;
    const streamRecord = await recordOf(secret, response.headers.get("x-request-id"));
    expect(usage).toMatchObject({ cost: streamRecord.costUsd, mode: "payg", total_tokens: streamRecord.totalTokens });
    expect(response.headers.get("x-dropped-params")).toBeNull();

    const embeddings = await client.embeddings.create({ model: "embed-a", input: "A toll gate", ...asking });
    expect(embeddings.usage).toMatchObject({ mode: "payg", cost: expect.any(Number) });
    const image = await client.images.generate({ model: "image-a", prompt: "A toll gate", ...asking } as never);
    expect((image as unknown as { usage: unknown }).usage).toMatchObject({
      mode: "payg",
      cost: PRICES.imageMicroUsd / 1e6,
    });
    expect(await shop.counters(accountId)).toMatchObject({ usage: 4, holds: 0 });
  });

  test("a package pays: no cost", async () => {
    const { secret } = await shop.customer();
    const { json } = await shop.chat(secret, asking);
    expect(json.usage).toMatchObject({ cost: 0, mode: "package" });
  });

  test("it is sent to no provider, and neither named as dropped nor shown without being asked for", async () => {
    const { secret } = await shop.customer();
    for (const usage of [{ include: true }, { include: false }, { include: null }, {}, null]) {
      const { status, json, headers } = await shop.chat(secret, { usage });
      expect(status).toBe(200);
      expect(headers.get("x-dropped-params")).toBeNull();
      expect("cost" in json.usage).toBe(usage?.include === true);
      expect(shop.provider.lastCall()?.body).not.toContain('"usage"');
    }
  });

  test("a wrong type is refused, and costs nothing", async () => {
    const { secret, accountId } = await shop.customer();
    for (const usage of [true, "include", [], 1, { include: "yes" }, { include: 1 }, { include: {} }]) {
      const param = typeof usage === "object" && !Array.isArray(usage) ? "usage.include" : "usage";
      expectRefusal(await shop.chat(secret, { usage }), "invalid_request", { param });
      const bodies = {
        "/v1/embeddings": embeddingBody({ usage }),
        "/v1/images/generations": imageBody({ usage }),
        "/v1/responses": { model: "chat-a", input: "x", usage },
      };
      for (const [path, body] of Object.entries(bodies))
        expectRefusal(await shop.call(path, { secret, body }), "invalid_request", { param });
    }
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 0, holds: 0 });
  });
});

describe("GET /usage/{requestId}", () => {
  test("the record is that of the list", async () => {
    const { secret } = await shop.payer(MILLION);
    const { headers } = await shop.chat(secret);
    const { json: list } = await shop.call("/v1/usage", { secret });
    const { status, json } = await shop.call(`/v1/usage/${headers.get("x-request-id")}`, { secret });
    expect(status).toBe(200);
    expect(json).toEqual(list.data[0]);
    const upper = await shop.call(`/v1/usage/${headers.get("x-request-id")?.toUpperCase()}/`, { secret });
    expect(upper.json).toEqual(json);
  });

  test("another account's, another host's, a released and an unknown request are not found", async () => {
    const owner = await shop.payer(MILLION);
    const { headers } = await shop.chat(owner.secret);
    const id = headers.get("x-request-id");
    const elsewhere = await shop.world.addKey(owner, { mode: "payg", hosts: ["127.0.0.1"] });
    const stranger = await shop.payer(MILLION);
    shop.provider.next({ status: 400, body: '{"error":{"message":"no"}}' });
    const refused = await shop.chat(owner.secret);
    expect(refused.status).toBe(400);
    await until(async () => (await shop.counters(owner.accountId)).released === 1);
    const notFound = async (path: string, secret: string, host?: string) =>
      expectRefusal(await shop.call(`/v1/usage/${path}`, { secret, ...(host !== undefined && { host }) }), "not_found");
    await notFound(`${id}`, stranger.secret);
    await notFound(`${id}`, elsewhere.secret, "127.0.0.1");
    await notFound(`${refused.headers.get("x-request-id")}`, owner.secret);
    for (const bad of ["01a21369-bd9a-757c-9814-2835237b2aa6", "x", "%00", "'", "a".repeat(2_000)])
      await notFound(bad, owner.secret);
    const { status } = await shop.call(`/v1/usage/${id}`, { secret: "sk-wrong" });
    expect(status).toBe(401);
  });
});
