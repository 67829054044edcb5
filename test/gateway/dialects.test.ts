import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { DIALECT_NAMES, DIALECTS, type DialectName, factsOf } from "../../src/catalog/dialects.ts";
import { PLAYED_NAMES, playedBy, refusalOf } from "../../src/demo/provider/dialects.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { World } from "../world.ts";
import { closeBalanced } from "./checks.ts";
import { embeddingBody, eventsOf, openShop, responsesBody, type Shop } from "./shop.ts";

/**
 * Each dialect, against a provider that refuses what that provider refuses, in its words: requests that use everything are served.
 * Source: DIA-1, DIA-2, DIA-3, DIA-4, DIA-5, DIA-6, DIA-7, DIA-8, DIA-9, DIA-10, DIA-11, DIA-12, MON-19.
 */

const IMAGE = { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } };
const WEATHER = {
  name: "weather",
  description: "The weather in a city.",
  parameters: { type: "object", properties: {} },
};
const CALL = { id: "call12345", type: "function", function: { name: "weather", arguments: '{"city":"Oslo"}' } };
const texts = (...all: string[]) => all.map((text) => ({ type: "text", text }));
const SAMPLING = {
  ...{ seed: 7, top_k: 40, min_p: 0.1, repetition_penalty: 1.1, frequency_penalty: 0.1, presence_penalty: 0.1 },
  ...{ logit_bias: { "50256": -100 }, logprobs: true, top_logprobs: 2 },
};

/** Requests for a chat, as clients send them. */
const CHATS: Readonly<Record<string, Record<string, unknown>>> = {
  "two instructions in a row, lists of texts, no tools, every parameter": {
    messages: [
      { role: "developer", content: "Be brief." },
      { role: "system", content: texts("Answer in English.", "Do not guess.") },
      { role: "user", name: "ann", content: texts("Tell me", "about tolls.") },
    ],
    ...{ max_tokens: 20, tools: [], tool_choice: "auto", parallel_tool_calls: true },
    ...{ stream_options: { include_usage: true }, user: "u-1", store: false, metadata: { job: "1" }, ...SAMPLING },
    reasoning: { effort: "low" },
  },
  "tool calls with and without content, an image from a tool, the newer cap": {
    messages: [
      { role: "user", content: "What is the weather?" },
      { role: "assistant", content: "", tool_calls: [CALL], reasoning_content: "The user asks for the weather." },
      { role: "tool", tool_call_id: CALL.id, content: [...texts("A photo:"), IMAGE] },
      { role: "assistant", content: null, tool_calls: [{ ...CALL, id: "call54321" }], refusal: null, annotations: [] },
      { role: "tool", tool_call_id: "call54321", content: "Rain." },
      { role: "user", content: "And tomorrow?" },
    ],
    ...{ max_completion_tokens: 30, tools: [{ type: "function", function: WEATHER }], tool_choice: "auto" },
  },
  "legacy functions": {
    messages: [
      { role: "user", content: "What is the weather?" },
      { role: "assistant", content: null, function_call: { name: "weather", arguments: '{"city":"Oslo"}' } },
      { role: "function", name: "weather", content: "Rain." },
      { role: "user", content: "And tomorrow?" },
    ],
    ...{ functions: [WEATHER], function_call: "auto", max_tokens: 25 },
  },
  "a choice of tools without tools": {
    messages: [{ role: "user", content: "Hello" }],
    ...{ tool_choice: "none", parallel_tool_calls: false, functions: [], function_call: "auto" },
  },
};

const RESPONSES: Readonly<Record<string, Record<string, unknown>>> = {
  "instructions, developer and system messages, a tool, its cap": {
    instructions: "Be brief.",
    input: [
      { role: "developer", content: "Answer in English." },
      { role: "user", content: [{ type: "input_text", text: "What is the weather?" }] },
      { type: "function_call", call_id: CALL.id, name: "weather", arguments: "{}" },
      { type: "function_call_output", call_id: CALL.id, output: "Rain." },
      { role: "user", content: "And tomorrow?" },
    ],
    tools: [{ type: "function", ...WEATHER }],
    ...{ max_output_tokens: 64, user: "u-1", store: false },
  },
  "no tools": { tools: [], tool_choice: "auto", parallel_tool_calls: true },
};

const chatModel = (dialect: DialectName) => `chat/${dialect}`;
const embeddingModel = (dialect: DialectName) => `embed/${dialect}`;

let shop: Shop;
const providers = new Map<DialectName, FakeProvider>();

beforeAll(async () => {
  for (const dialect of DIALECT_NAMES) providers.set(dialect, await startFakeProvider({ dialect }));
  const ports = [...providers.values()].map(({ port }) => `127.0.0.1:${port}`).join();
  shop = await openShop({ redisUrl: "", env: { PROVIDER_ALLOW_PRIVATE: ports }, fill: addDialects });
}, 120_000);
afterAll(async () => {
  await closeBalanced(shop);
  for (const provider of providers.values()) await provider.stop();
});

async function addDialects({ sql, addProvider, addModels }: World): Promise<void> {
  const key = Buffer.from(TEST_SECRET_KEY, "base64");
  for (const [dialect, provider] of providers) {
    const name = `plays ${dialect}`;
    const id = await addProvider(name, provider.baseUrl, encrypt(key, provider.apiKey));
    await sql`update providers set dialect = ${dialect} where id = ${id}`;
    const model = { contextLength: 8192, inputMicroUsd: 1000, defaultCapTokens: 50, routes: [{ provider: name }] };
    await addModels(
      { ...model, id: chatModel(dialect), modality: "multimodal", outputMicroUsd: 1000 },
      { ...model, id: embeddingModel(dialect), modality: "embedding", outputMicroUsd: 0 },
    );
  }
}

const providerOf = (dialect: DialectName): FakeProvider => {
  const provider = providers.get(dialect);
  if (provider === undefined) throw new Error(`no provider plays ${dialect}`);
  return provider;
};

/** What one call sends to the provider. Fails unless it was exactly one request. */
async function sentBy<T>(
  dialect: DialectName,
  ask: () => Promise<T>,
): Promise<{ answer: T; sent: Record<string, unknown> }> {
  const provider = providerOf(dialect);
  const before = provider.callCount();
  const answer = await ask();
  expect(provider.callCount() - before).toBe(1);
  return { answer, sent: JSON.parse(provider.lastCall()?.body ?? "") };
}

test("every dialect is played, and each refuses a request as a client sends it", () => {
  expect([...PLAYED_NAMES].sort()).toEqual([...DIALECT_NAMES].sort());
  const all = [...Object.values(CHATS), { encoding_format: "base64" }];
  for (const name of PLAYED_NAMES)
    expect([name, all.filter((body) => refusalOf(playedBy(name), body) !== undefined).length > 0]).toEqual([
      name,
      true,
    ]);
});

test("every fact that is known has its source", () => {
  for (const name of DIALECT_NAMES)
    for (const [fact, { source }] of Object.entries(DIALECTS[name].known))
      expect([name, fact, /^(?:reported: |\S+\.\S+)/.test(source)]).toEqual([name, fact, true]);
});

describe.each([...DIALECT_NAMES])("%s", (dialect) => {
  const facts = factsOf(dialect);
  const otherCap = facts.capField === "max_tokens" ? "max_completion_tokens" : "max_tokens";

  test.each(Object.keys(CHATS))("chat: %s", async (name) => {
    const { secret, accountId } = await shop.customer();
    const { json, status, text } = await shop.chat(secret, { model: chatModel(dialect), ...CHATS[name] });
    expect({ status, text: status === 200 ? "" : text }).toEqual({ status: 200, text: "" });
    expect(json.choices[0].finish_reason).toMatch(/^(?:stop|length|tool_calls|function_call)$/);
    expect(json.usage.total_tokens).toBeGreaterThan(0);
    const streamed = await shop.chat(secret, { model: chatModel(dialect), ...CHATS[name], stream: true });
    expect({ status: streamed.status, last: eventsOf(streamed.text).at(-1) }).toEqual({ status: 200, last: "[DONE]" });
    expect((await shop.counters(accountId)).units).toBe(2);
  });

  test.each(Object.keys(RESPONSES))("responses: %s", async (name) => {
    const { secret } = await shop.customer();
    const body = responsesBody({ model: chatModel(dialect), ...RESPONSES[name] });
    const { json, status, text } = await shop.call("/v1/responses", { secret, body });
    expect({ status, text: status === 200 ? "" : text }).toEqual({ status: 200, text: "" });
    expect(json.output.length).toBeGreaterThan(0);
    const streamed = await shop.call("/v1/responses", { secret, body: { ...body, stream: true } });
    expect({
      status: streamed.status,
      isWhole:
        streamed.text.includes("event: response.completed") || streamed.text.includes("event: response.incomplete"),
    }).toEqual({ status: 200, isWhole: true });
  });

  test("embeddings: numbers and base64, whichever it is asked for", async () => {
    const { secret } = await shop.customer();
    const ask = (over: object) =>
      sentBy(dialect, () =>
        shop.call("/v1/embeddings", {
          secret,
          body: embeddingBody({ model: embeddingModel(dialect), user: "u", ...over }),
        }),
      );
    const [plain, float, base64] = [
      await ask({}),
      await ask({ encoding_format: "float" }),
      await ask({ encoding_format: "base64" }),
    ];
    for (const { answer, sent } of [plain, float, base64]) {
      expect(answer.status).toBe(200);
      expect(sent.encoding_format).toBe(facts.embeddings === "float" ? undefined : "base64");
    }
    const numbers: number[] = plain.answer.json.data[0].embedding;
    expect(float.answer.json.data[0].embedding).toEqual(numbers);
    const bytes = Buffer.from(base64.answer.json.data[0].embedding, "base64");
    expect([...new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)]).toEqual(numbers);
  });

  test("the cap has one name, for a package and a balance, the client's own and the default", async () => {
    const [packaged, payer] = [await shop.customer(), await shop.payer(1_000_000_000n)];
    const model = chatModel(dialect);
    const capOf = async (secret: string, over: object) => {
      const { answer, sent } = await sentBy(dialect, () => shop.chat(secret, { model, ...over }));
      expect(answer.status).toBe(200);
      return [sent[facts.capField], sent[otherCap]];
    };
    for (const { secret } of [packaged, payer]) {
      expect(await capOf(secret, { max_tokens: 11 })).toEqual([11, undefined]);
      expect(await capOf(secret, { max_completion_tokens: 12 })).toEqual([12, undefined]);
      expect(await capOf(secret, { max_tokens: 11, max_completion_tokens: 12 })).toEqual([12, undefined]);
      expect(await capOf(secret, { [otherCap]: null })).toEqual([secret === payer.secret ? 50 : undefined, undefined]);
    }
  });

  test("several choices are all charged, whichever its usage is of", async () => {
    const { secret, accountId } = await shop.payer(1_000_000_000n);
    providerOf(dialect).next({ usage: { prompt_tokens: 6, completion_tokens: 20 } });
    const { answer } = await sentBy(dialect, () =>
      shop.chat(secret, { model: chatModel(dialect), n: 3, max_tokens: 25 }),
    );
    const lengths: number[] = answer.json.choices.map(
      (choice: { message: { content: string } }) => choice.message.content.length,
    );
    const [first = 0, ...others] = lengths;
    expect(others.length).toBe(2);
    const more = others.reduce((sum, length) => sum + Math.min(25, Math.ceil((20 * length) / first)), 0);
    const tokens = facts.choicesUsage === "first" ? 20 + more : 20;
    expect(answer.json.usage).toMatchObject({ prompt_tokens: 6, completion_tokens: tokens, total_tokens: 6 + tokens });
    const rows = await shop.world.sql`
      select completion_tokens, charged_nano_usd, estimated from receipts where account_id = ${accountId}`;
    const estimated = facts.choicesUsage === "first";
    // A thousand micro-USD for a million tokens: one nano-USD each.
    expect([...rows]).toEqual([{ completion_tokens: tokens, charged_nano_usd: String(6 + tokens), estimated }]);
  });
});
