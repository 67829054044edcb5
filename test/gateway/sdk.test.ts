import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { OpenAIEmbeddings } from "@langchain/openai";
import OpenAI, {
  APIError,
  AuthenticationError,
  BadRequestError,
  InternalServerError,
  NotFoundError,
  PermissionDeniedError,
  RateLimitError,
} from "openai";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, withoutEffect } from "./checks.ts";
import { openShop, type Shop } from "./shop.ts";

/** An unchanged OpenAI SDK works with the gateway. Source: API-1, ERR-4, ERR-5, STR-2. */

const MESSAGES = [{ role: "user" as const, content: "Tell me about tolls." }];
const TOOLS = [
  {
    type: "function" as const,
    function: {
      name: "get_toll",
      parameters: { type: "object", properties: { road: { type: "string" } }, required: ["road"] },
    },
  },
];

let shop: Shop;
/** One request a minute. */
let narrow: ReplicaProcess;
let client: OpenAI;

beforeAll(async () => {
  // Without Redis: a busy one that answers late would have the replica count by itself, from zero.
  shop = await openShop({ redisUrl: "" });
  narrow = await shop.start({ RATE_PER_MINUTE: "1", REDIS_URL: "" });
  client = sdk((await shop.customer()).secret);
});
afterAll(() => closeBalanced(shop, narrow.kill));

/** The SDK with its defaults: two retries, its own headers. */
function sdk(apiKey: string, options: ConstructorParameters<typeof OpenAI>[0] = {}): OpenAI {
  return new OpenAI({ apiKey, baseURL: `${shop.origin}/v1`, organization: "org-x", project: "proj-x", ...options });
}

/** An SDK whose requests are counted, including retries. */
function counted(apiKey: string, options: ConstructorParameters<typeof OpenAI>[0] = {}) {
  const sent = { requests: 0 };
  const counting = (url: string | URL | Request, init?: RequestInit) => {
    sent.requests++;
    return fetch(url, init);
  };
  return { sent, client: sdk(apiKey, { fetch: counting, ...options }) };
}

async function errorOf(work: PromiseLike<unknown>): Promise<APIError> {
  const error = await Promise.resolve(work).then(
    () => new Error("it succeeded"),
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof APIError)) throw error;
  return error;
}

describe("embeddings", () => {
  const TEXTS = ["A toll gate", "A road with a barrier", "A toll gate"];

  test("embeddings.create asks for base64 and decodes it to numbers; an explicit float gets the same numbers", async () => {
    const { data, model, usage } = await client.embeddings.create({ model: "embed-a", input: TEXTS });
    expect(model).toBe("embed-a");
    expect(usage.prompt_tokens).toBeGreaterThan(0);
    expect(data.map(({ index, object }) => [index, object])).toEqual(TEXTS.map((_, i) => [i, "embedding"]));
    for (const { embedding } of data) expect(embedding).toHaveLength(256);
    expect(data[2]?.embedding).toEqual(data[0]?.embedding as number[]);
    expect(data[1]?.embedding).not.toEqual(data[0]?.embedding as number[]);
    const floats = await client.embeddings.create({ model: "embed-a", input: TEXTS, encoding_format: "float" });
    expect(floats.data).toEqual(data);
  });

  test("the SDK decodes the same numbers if the provider always answers in numbers", async () => {
    const { data } = await client.embeddings.create({ model: "embed-a", input: "A toll gate" });
    shop.provider.next({ embeddingReturn: "float" });
    expect((await client.embeddings.create({ model: "embed-a", input: "A toll gate" })).data).toEqual(data);
  });

  test("token ids as input, and fewer dimensions, are supported", async () => {
    const input = [[1, 2, 3], [4]];
    const { data, usage } = await client.embeddings.create({ model: "embed-a", input, dimensions: 16 });
    expect(data.map(({ embedding }) => embedding.length)).toEqual([16, 16]);
    expect(usage).toMatchObject({ prompt_tokens: 4, total_tokens: 4 });
  });

  test("an invalid input is a BadRequestError with its param", async () => {
    const error = await errorOf(client.embeddings.create({ model: "embed-a", input: ["x", ""] }));
    expect(error).toBeInstanceOf(BadRequestError);
    expect(error).toMatchObject({ param: "input.1", code: "invalid_request" });
  });

  // With base64, LangChain hands out the text undecoded.
  for (const encodingFormat of [undefined, "float"] as const)
    test(`LangChain's embedDocuments and embedQuery (encodingFormat: ${encodingFormat})`, async () => {
      const { secret, accountId } = await shop.customer();
      const embeddings = new OpenAIEmbeddings({
        apiKey: secret,
        model: "embed-a",
        batchSize: 2,
        ...(encodingFormat && { encodingFormat }),
        configuration: { baseURL: `${shop.origin}/v1` },
      });
      const documents = await embeddings.embedDocuments(TEXTS);
      expect(documents.map((numbers) => numbers.length)).toEqual([256, 256, 256]);
      const query = await embeddings.embedQuery("A toll gate");
      expect(query).toEqual(documents[0] as number[]);
      // Batches of two texts, and the query.
      expect(await shop.counters(accountId)).toMatchObject({ usage: 3, units: 3, holds: 0 });
    });
});

describe("models", () => {
  test("list and retrieve work, also for an id with a slash", async () => {
    const ids: string[] = [];
    for await (const model of client.models.list()) {
      ids.push(model.id);
      expect(model).toMatchObject({ object: "model", owned_by: "tollgate", created: expect.any(Number) });
    }
    const enabled = await shop.world.sql`select id from models where enabled`;
    expect(ids.sort()).toEqual(enabled.map(({ id }) => id).sort());
    for (const id of ids) expect((await client.models.retrieve(id)).id).toBe(id);
  });
});

describe("chat", () => {
  test("an answer has the client's model name, usage, and our request id", async () => {
    const answer = await client.chat.completions.create({ model: "chat-a", messages: MESSAGES });
    expect(answer.model).toBe("chat-a");
    expect(answer.choices[0]?.message.content).toBeTruthy();
    expect(answer.choices[0]?.finish_reason).toBe("stop");
    expect(answer.usage?.total_tokens).toBe(
      (answer.usage?.prompt_tokens ?? 0) + (answer.usage?.completion_tokens ?? 0),
    );
    const [record] = await shop.world
      .sql`select model_id, outcome from receipts where request_id = ${answer._request_id ?? null}`;
    expect(record).toMatchObject({ model_id: "chat-a", outcome: "settled" });
  });

  test("a stream without usage has none in any chunk", async () => {
    const stream = await client.chat.completions.create({ model: "vendor/chat-b", messages: MESSAGES, stream: true });
    let text = "";
    const ids = new Set<string>();
    for await (const chunk of stream) {
      expect(chunk.usage ?? null).toBeNull();
      expect(chunk.choices.length).toBe(1);
      expect(chunk.model).toBe("vendor/chat-b");
      ids.add(`${chunk.id} ${chunk.created}`);
      text += chunk.choices[0]?.delta.content ?? "";
    }
    expect(text.length).toBeGreaterThan(20);
    expect(ids.size).toBe(1);
  });

  test("a stream with usage has null in every chunk, and the counts in a last one without choices", async () => {
    const stream = await client.chat.completions.create({
      model: "chat-a",
      messages: MESSAGES,
      stream: true,
      stream_options: { include_usage: true },
    });
    const chunks = [];
    for await (const chunk of stream) chunks.push(chunk);
    const last = chunks.pop();
    expect(last?.choices).toEqual([]);
    expect(last?.usage?.completion_tokens).toBeGreaterThan(0);
    for (const chunk of chunks) expect(chunk.usage).toBeNull();
  });

  test("the SDK's accumulator returns the same answer as without a stream", async () => {
    const whole = await client.chat.completions.create({ model: "chat-a", messages: MESSAGES });
    const streamed = await client.chat.completions
      .stream({ model: "chat-a", messages: MESSAGES })
      .finalChatCompletion();
    expect(streamed.choices[0]?.message.content).toBe(whole.choices[0]?.message.content ?? "none");
  });

  test("tools work, as JSON and streamed, and so does the turn that answers them, with content null and tool_calls", async () => {
    const asked = await client.chat.completions.create({ model: "chat-a", messages: MESSAGES, tools: TOOLS });
    const message = asked.choices[0]?.message;
    const call = message?.tool_calls?.[0];
    if (message === undefined || call?.type !== "function") throw new Error("no tool was called");
    expect(asked.choices[0]?.finish_reason).toBe("tool_calls");
    expect(message.content).toBeNull();
    expect(JSON.parse(call.function.arguments)).toHaveProperty("road");

    const stream = await client.chat.completions.create({
      model: "chat-a",
      messages: MESSAGES,
      tools: TOOLS,
      stream: true,
    });
    let args = "";
    let name = "";
    for await (const chunk of stream) {
      const part = chunk.choices[0]?.delta.tool_calls?.[0];
      name += part?.function?.name ?? "";
      args += part?.function?.arguments ?? "";
    }
    expect(name).toBe("get_toll");
    expect(args).toBe(call.function.arguments);

    const answered = await client.chat.completions.create({
      model: "chat-a",
      messages: [...MESSAGES, message, { role: "tool", tool_call_id: call.id, content: "2 euro" }],
      tools: TOOLS,
    });
    expect(answered.choices[0]?.message.content).toBeTruthy();
  });

  test("role developer, content parts and structured answers are supported", async () => {
    const answer = await client.chat.completions.create({
      model: "chat-a",
      messages: [
        { role: "developer", content: "Be short." },
        {
          role: "user",
          content: [
            { type: "text", text: "What is this?" },
            { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
          ],
        },
      ],
      response_format: { type: "json_object" },
      max_completion_tokens: 500,
      reasoning_effort: "low",
    });
    expect(JSON.parse(answer.choices[0]?.message.content ?? "")).toBeObject();
  });

  test("dropped parameters cause no error, and the header names them, for JSON and streams", async () => {
    const asked = { model: "chat-a", messages: MESSAGES, store: true, service_tier: "priority" as const };
    const whole = await client.chat.completions.create(asked).withResponse();
    expect(whole.data.choices[0]?.message.content).toBeTruthy();
    const streamed = await client.chat.completions.create({ ...asked, stream: true }).withResponse();
    let text = "";
    for await (const chunk of streamed.data) text += chunk.choices[0]?.delta.content ?? "";
    expect(text).toBe(whole.data.choices[0]?.message.content ?? "none");
    for (const { response } of [whole, streamed])
      expect(response.headers.get("x-dropped-params")).toBe("store, service_tier");
  });

  test("an assistant message is sent back unchanged, with all fields of the SDK's type", async () => {
    const { choices } = await client.chat.completions.create({ model: "chat-a", messages: MESSAGES });
    const message = choices[0]?.message;
    if (message === undefined) throw new Error("no answer");
    const again = await client.chat.completions
      .create({
        model: "chat-a",
        messages: [...MESSAGES, { ...message, audio: null, function_call: null }, ...MESSAGES],
      })
      .withResponse();
    expect(again.response.headers.get("x-dropped-params")).toBeNull();
  });

  test("a stream that broke off is an error for the SDK, never a clean end", async () => {
    shop.provider.next({ errorEventAfterChunks: 3, chunkDelayMs: 20 });
    const stream = await client.chat.completions.create({ model: "chat-a", messages: MESSAGES, stream: true });
    let chunks = 0;
    const error = await errorOf(
      (async () => {
        for await (const chunk of stream) chunks += chunk.choices.length;
      })(),
    );
    expect(error.code).toBe("provider_unavailable");
    expect(chunks).toBeGreaterThan(0);
  });
});

describe("images", () => {
  test("are returned by URL, the default, and as base64", async () => {
    const byUrl = await client.images.generate({ model: "image-a", prompt: "A toll gate at dawn" });
    expect(byUrl.data?.[0]?.url).toMatch(/^http/);
    expect(byUrl.created).toBeGreaterThan(1_600_000_000);
    const inline = await client.images.generate({
      model: "image-a",
      prompt: "A toll gate at dawn",
      response_format: "b64_json",
      size: "512x512",
    });
    expect(
      Buffer.from(inline.data?.[0]?.b64_json ?? "", "base64")
        .subarray(1, 4)
        .toString(),
    ).toBe("PNG");
    expect(inline.data?.[0]?.url).toBeUndefined();
  });
});

describe("errors", () => {
  const ask = (of: OpenAI, over: Record<string, unknown> = {}) =>
    of.chat.completions.create({ model: "chat-a", messages: MESSAGES, ...over });

  test("401 is AuthenticationError, with our request id", async () => {
    const { sent, client: stranger } = counted("sk-nobody");
    const error = await errorOf(ask(stranger));
    expect(error).toBeInstanceOf(AuthenticationError);
    expect(error).toMatchObject({ status: 401, code: "invalid_api_key", type: "authentication_error", param: null });
    expect(error.requestID).toMatch(/^[0-9a-f-]{36}$/);
    expect(sent.requests).toBe(1);
  });

  test("403 is PermissionDeniedError", async () => {
    const { client: scoped } = counted((await shop.customer({ modelIds: ["vendor/chat-b"] })).secret);
    const error = await errorOf(ask(scoped));
    expect(error).toBeInstanceOf(PermissionDeniedError);
    expect(error.code).toBe("model_not_in_package");
  });

  test("404 is NotFoundError, naming the model as the bad parameter", async () => {
    for (const work of [ask(client, { model: "nobody" }), client.models.retrieve("no/body")]) {
      const error = await errorOf(work);
      expect(error).toBeInstanceOf(NotFoundError);
      expect(error).toMatchObject({ code: "model_not_found", param: "model" });
    }
    const unknown = client.embeddings.create({ model: "nobody", input: "x" });
    expect(await errorOf(unknown)).toBeInstanceOf(NotFoundError);
    const others = client.embeddings.create({ model: "chat-a", input: "x" });
    expect(await errorOf(others)).toBeInstanceOf(BadRequestError);
    expect(await errorOf(client.responses.create({ model: "nobody", input: "x" }))).toBeInstanceOf(NotFoundError);
    expect(await errorOf(client.responses.retrieve("resp_1"))).toBeInstanceOf(NotFoundError);
  });

  test("400 is BadRequestError, with the path of the bad field", async () => {
    const error = await errorOf(ask(client, { temperature: 3 }));
    expect(error).toBeInstanceOf(BadRequestError);
    expect(error).toMatchObject({ code: "invalid_request", param: "temperature" });
  });

  test("402 is an APIError, also for a stream; the SDK does not retry it, and no provider is called", async () => {
    const { sent, client: poor } = counted((await shop.customer(null)).secret);
    await withoutEffect(shop, async () => {
      for (const stream of [false, true]) {
        const error = await errorOf(ask(poor, { stream }));
        expect(error).toMatchObject({ status: 402, code: "package_required", type: "billing_error" });
        expect(error.message).toContain("402");
        expect(error.requestID).toMatch(/^[0-9a-f-]{36}$/);
      }
      expect((await errorOf(poor.images.generate({ model: "image-a", prompt: "A toll gate" }))).status).toBe(402);
    });
    expect(sent.requests).toBe(3);
  });

  test("429 is RateLimitError", async () => {
    const { client: busy } = counted((await shop.customer()).secret, { baseURL: `${narrow.origin}/v1`, maxRetries: 0 });
    await busy.models.list();
    const error = await errorOf(ask(busy));
    expect(error).toBeInstanceOf(RateLimitError);
    expect(error).toMatchObject({ code: "too_many_requests", type: "rate_limit_error" });
  });

  test("503 is InternalServerError; the SDK retries after Retry-After, and one answer is one unit", async () => {
    const customer = await shop.customer();
    const once = counted(customer.secret, { maxRetries: 0 });
    shop.provider.next({ status: 500 });
    const error = await errorOf(ask(once.client));
    expect(error).toBeInstanceOf(InternalServerError);
    expect(error).toMatchObject({ status: 503, code: "provider_unavailable", type: "provider_unavailable" });

    const patient = counted(customer.secret);
    shop.provider.next({ status: 500 });
    const answer = await ask(patient.client);
    expect(answer.choices.length).toBe(1);
    expect(patient.sent.requests).toBe(2);
    expect(await shop.counters(customer.accountId)).toMatchObject({ usage: 1, units: 1, released: 2, holds: 0 });
  });

  test("503 for an answer that is too large is not retried: the provider would make it again", async () => {
    const { client: patient, sent } = counted((await shop.customer()).secret);
    shop.provider.next({ giantLineBytes: 33 * 1024 * 1024 });
    expect(await errorOf(ask(patient))).toMatchObject({ status: 503, code: "provider_unavailable" });
    expect(sent.requests).toBe(1);
  });
});
