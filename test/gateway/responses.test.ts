import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { BAD_RESPONSES } from "../http/responses_cases.ts";
import { until } from "../platform/own_redis.ts";
import type { ModelSpec } from "../world.ts";
import { closeBalanced, expectRefusal, withoutEffect } from "./checks.ts";
import { checkLifeCycle, readEvents } from "./response_events.ts";
import { type CallOptions, openShop, responsesBody, type Shop } from "./shop.ts";

/** POST /v1/responses through a replica that is a process: refusals, ends, routes of both kinds. Source: API-14, RSP-1, RSP-2, RSP-3, RSP-5, RSP-7, RSP-10, RSP-11, END-3. */
let shop: Shop;

beforeAll(async () => {
  const model = (id: string, ...routes: NonNullable<ModelSpec["routes"]>): ModelSpec => ({
    ...{
      id,
      contextLength: 8192,
      inputMicroUsd: 3_000_000,
      outputMicroUsd: 15_000_000,
      defaultCapTokens: 1000,
      routes,
    },
  });
  const own = { provider: "first", ownResponses: true };
  shop = await openShop({
    models: [
      model("own", own),
      model("own-first", own, { provider: "second" }),
      model("own-second", { provider: "first" }, { provider: "second", ownResponses: true }),
      model("own-search", { ...own, allowedParams: ["tools.web_search", "input.web_search_call", "content.file"] }),
    ],
  });
});
afterEach(() => {
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop));

const ask = (secret: string, over: Record<string, unknown> = {}, options: CallOptions = {}) =>
  shop.call("/v1/responses", { secret, body: responsesBody(over), ...options });
const stream = async (secret: string, over: Record<string, unknown> = {}, options: CallOptions = {}) => {
  const answer = await ask(secret, { stream: true, ...over }, options);
  return { ...answer, events: readEvents(answer.text) };
};
const sent = () => JSON.parse(shop.provider.lastCall()?.body ?? "{}");
const SSE = "text/event-stream";
const streamOf = (...payloads: unknown[]) => ({
  contentType: SSE,
  body: payloads.map((payload) => `data: ${JSON.stringify(payload)}\n\n`).join(""),
});
const chunk = (delta: unknown, finish: string | null = null) => ({
  id: "chatcmpl-1",
  choices: [{ index: 0, delta, finish_reason: finish }],
});

async function receiptsOf(accountId: number) {
  return await shop.world.sql`select * from receipts where account_id = ${accountId}`;
}

test("a model with routes of both kinds reserves for the larger of the two forms of a request", async () => {
  const heldFor = async (model: string, over: Record<string, unknown>) => {
    const { secret, accountId } = await shop.payer(1_000_000_000n);
    expect((await ask(secret, { model, max_output_tokens: 10, ...over })).status).toBe(200);
    return Number((await receiptsOf(accountId))[0]?.held_nano_usd);
  };
  // A custom tool becomes a function with a schema, so that its translation is larger.
  const tools = Array.from({ length: 20 }, (_, i) => ({ type: "custom", name: `tool${i}` }));
  for (const [over, larger] of [
    [{}, "own"],
    [{ tools }, "chat-a"],
  ] as const) {
    const held = { own: await heldFor("own", over), "chat-a": await heldFor("chat-a", over) };
    expect(held[larger]).toBe(Math.max(...Object.values(held)));
    expect(held.own).not.toBe(held["chat-a"]);
    for (const model of ["own-first", "own-second"]) expect(await heldFor(model, over)).toBe(held[larger]);
  }
});

const USER = { role: "user", content: "Hello" };
const schema = (of: unknown) => ({ tools: [{ type: "function", name: "a", parameters: of }] });
let deep: unknown = {};
for (let i = 0; i < 70; i++) deep = { properties: { a: deep } };

describe("bad input", () => {
  // The same cases for a translated model are in bad_input.test.ts.
  for (const [name, wrong, param = null, code = "invalid_request"] of BAD_RESPONSES) {
    if (typeof wrong !== "object" || !("model" in Object(wrong)) || Object(wrong).model !== "chat-a") continue;
    test(`a provider's own /responses, ${name}: a clear error, nothing charged and nothing sent`, async () => {
      const customer = await shop.customer();
      await withoutEffect(shop, async () => {
        const over = { input: undefined, ...(wrong as Record<string, unknown>), model: "own" };
        expectRefusal(await ask(customer.secret, over), code, { param });
      });
    });
  }

  test("a schema of 2 MB is refused", async () => {
    const customer = await shop.customer();
    const large = schema({ type: "object", description: "x".repeat(2_000_000) });
    await withoutEffect(shop, async () => {
      for (const model of ["chat-a", "own"])
        expectRefusal(await ask(customer.secret, { model, ...large }), "invalid_request", {
          param: "tools.0.parameters",
        });
    });
  });

  test("fields that a provider repeats in its events are limited; the input may be longer", async () => {
    const customer = await shop.customer();
    const long = " ".repeat(1024 * 1024);
    const tools = Array.from({ length: 5 }, (_, i) => ({
      ...{ type: "function", name: `f${i}` },
      parameters: { type: "object", description: "x".repeat(250_000) },
    }));
    await withoutEffect(shop, async () => {
      for (const [param, over] of [
        ["instructions", { instructions: long }],
        ["tools", { tools }],
      ] as const)
        expectRefusal(await ask(customer.secret, { model: "own", ...over }), "invalid_request", { param });
    });
    expect((await ask(customer.secret, { model: "own", input: long })).status).toBe(200);
    expect((await ask(customer.secret, { instructions: long })).status).toBe(200);
  });

  test("a schema of 70 levels is refused", async () => {
    const customer = await shop.customer();
    await withoutEffect(shop, async () => {
      const answer = await ask(customer.secret, schema(deep));
      expect([answer.status, answer.json.error.code]).toEqual([400, "invalid_request"]);
    });
  });

  test("a recursive schema is sent", async () => {
    const { secret } = await shop.customer();
    const tree = { type: "object", properties: { left: { $ref: "#" } } };
    expect((await ask(secret, schema(tree))).status).toBe(200);
    expect(sent().tools[0].function.parameters).toEqual(tree);
  });

  test("an image model, an unknown model and no entitlement are refused as in chat", async () => {
    const customer = await shop.customer();
    const nobody = await shop.customer(null);
    await withoutEffect(shop, async () => {
      expectRefusal(await ask(customer.secret, { model: "image-a" }), "invalid_request", { param: "model" });
      expectRefusal(await ask(customer.secret, { model: "nothing" }), "model_not_found", { param: "model" });
      expectRefusal(await ask(nobody.secret), "package_required");
      expectRefusal(await shop.call("/v1/responses", { secret: customer.secret }), "method_not_allowed");
    });
  });

  test("POST /v1/messages is not served, and its error names the endpoints that are", async () => {
    const answer = await shop.call("/v1/messages", { body: {} });
    expectRefusal(answer, "not_found");
    expect(answer.json.error.message).toContain("/v1/chat/completions");
  });
});

describe("charges", () => {
  for (const model of ["chat-a", "own"]) {
    test(`${model}: the tokens that the provider reports, whole and streamed`, async () => {
      const { accountId, secret } = await shop.payer(1_000_000_000n);
      const usage = { prompt_tokens: 100, completion_tokens: 10 };
      shop.provider.always({ usage });
      const whole = await ask(secret, { model });
      expect(whole.json.usage).toMatchObject({ input_tokens: 100, output_tokens: 10, total_tokens: 110 });
      const { events } = await stream(secret, { model });
      expect(checkLifeCycle(events).usage).toMatchObject({ input_tokens: 100, output_tokens: 10 });
      for (const receipt of await receiptsOf(accountId)) {
        expect(receipt).toMatchObject({ outcome: "settled", estimated: false, reported_usage: null });
        // 100 tokens at 3 and 10 at 15 USD per million.
        expect(Number(receipt.charged_nano_usd)).toBe(450_000);
      }
    });

    test(`${model}: our own count if the provider reports none; the client gets the same count`, async () => {
      const { accountId, secret } = await shop.payer(1_000_000_000n);
      shop.provider.always({ omitUsage: true });
      const whole = await ask(secret, { model });
      const { events } = await stream(secret, { model });
      const receipts = await receiptsOf(accountId);
      expect(receipts.map((receipt) => receipt.estimated)).toEqual([true, true]);
      for (const usage of [whole.json.usage, checkLifeCycle(events).usage]) {
        expect(receipts.map((receipt) => Number(receipt.completion_tokens))).toContain(usage.output_tokens);
        expect(usage.input_tokens).toBeGreaterThan(0);
      }
    });
  }

  test("the cap of the hold is sent, in the route's field", async () => {
    const { secret } = await shop.payer(1_000_000_000n);
    await ask(secret);
    expect(sent().max_tokens).toBe(1000);
    await ask(secret, { max_output_tokens: 5 });
    expect(sent().max_tokens).toBe(5);
    await ask(secret, { model: "own", max_output_tokens: 5 });
    expect(sent()).toMatchObject({ max_output_tokens: 5, store: false, model: "up-own" });
  });

  test("a prompt that the balance does not cover reaches no provider, even if it is a tool's schema", async () => {
    const customer = await shop.payer(3_000_000n);
    const tools = [{ type: "function", name: "a", description: "x".repeat(100_000) }];
    await withoutEffect(shop, async () => {
      for (const model of ["chat-a", "own"])
        expectRefusal(await ask(customer.secret, { model, tools }), "insufficient_balance");
    });
  });
});

describe("ends", () => {
  for (const model of ["chat-a", "own"]) {
    test(`${model}: a break in mid-stream is response.failed, and nothing is charged`, async () => {
      const { accountId, secret } = await shop.customer();
      for (const behaviour of [
        { cutAfterChunks: 3 },
        { errorEventAfterChunks: 3 },
        { endWithoutFinish: true, endWithoutDone: true },
      ]) {
        const { events, text } = await shop.brokenOff(behaviour, (onText) => stream(secret, { model }, { onText }));
        const response = events.at(-1)?.response;
        expect(response).toMatchObject({ status: "failed", error: { code: "server_error" }, usage: null });
        expect(text).not.toMatch(/organization|org-simulated|up-own|up-chat-a/);
        if (model === "chat-a") checkLifeCycle(events);
      }
      await until(async () => (await shop.counters(accountId)).released === 3);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, holds: 0, units: 0 });
    });

    test(`${model}: an answer cut by the limit is response.incomplete, and charged`, async () => {
      const { accountId, secret } = await shop.customer();
      const { events } = await stream(secret, { model, max_output_tokens: 4 });
      expect(checkLifeCycle(events)).toMatchObject({
        status: "incomplete",
        incomplete_details: { reason: "max_output_tokens" },
      });
      const whole = await ask(secret, { model, max_output_tokens: 4 });
      expect(whole.json).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
      expect(await shop.counters(accountId)).toMatchObject({ usage: 2, units: 2, holds: 0 });
    });

    test(`${model}: a client that leaves a stream pays for the relayed output`, async () => {
      const { accountId, secret } = await shop.customer();
      shop.provider.next({ tokens: 500, chunkDelayMs: 20 });
      const leave = new AbortController();
      const response = await fetch(`${shop.origin}/v1/responses`, {
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
        body: JSON.stringify(responsesBody({ model, stream: true })),
        signal: leave.signal,
      });
      const decoder = new TextDecoder();
      let text = "";
      for await (const part of response.body ?? []) {
        text += decoder.decode(part, { stream: true });
        if (text.includes("output_text.delta")) break;
      }
      leave.abort();
      await until(async () => (await shop.counters(accountId)).usage === 1);
      const [receipt] = await receiptsOf(accountId);
      expect(receipt).toMatchObject({ reason: "client_left", estimated: true });
      expect(Number(receipt?.prompt_tokens)).toBeGreaterThan(0);
      expect(await shop.counters(accountId)).toMatchObject({ holds: 0, units: 1 });
    });

    test(`${model}: a provider's failure before the answer is a 503, and nothing is charged`, async () => {
      const { accountId, secret } = await shop.customer();
      shop.provider.next({ status: 500 });
      expectRefusal(await ask(secret, { model, stream: true }), "provider_unavailable");
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
    });

    test(`${model}: a refusal by the provider is a 400 with its message`, async () => {
      const { secret } = await shop.customer();
      const error = {
        message: "Invalid value for the seed.",
        type: "invalid_request_error",
        param: "seed",
        code: null,
      };
      shop.provider.next({ status: 400, body: JSON.stringify({ error }), contentType: "application/json" });
      expectRefusal(await ask(secret, { model }), "invalid_request", { param: "seed" });
    });
  }

  test("an answer above the limits of an output is response.incomplete, charged once, and made by one provider only", async () => {
    const { accountId, secret } = await shop.customer();
    const usage = { prompt_tokens: 20, completion_tokens: 30_000, total_tokens: 30_020 };
    const call = (n: number) => ({
      index: n,
      id: `call_${n}`,
      type: "function",
      function: { name: "f", arguments: "{}" },
    });
    const answers: Record<string, unknown>[] = [
      { content: "x".repeat(5 * 1024 * 1024) },
      { content: "Gates.", tool_calls: Array.from({ length: 1_001 }, (_, n) => call(n)) },
    ];
    for (const said of answers) {
      shop.provider.next(streamOf(chunk(said), chunk({}, "stop"), { choices: [], usage }));
      const ended = checkLifeCycle((await stream(secret, { model: "own-second" })).events);
      const choices = [{ index: 0, message: { role: "assistant", ...said }, finish_reason: "stop" }];
      shop.provider.next({ contentType: "application/json", body: JSON.stringify({ choices, usage }) });
      const { json } = await ask(secret, { model: "own-second" });
      for (const response of [ended, json]) {
        expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
        expect(response.usage).toMatchObject({ input_tokens: 20, output_tokens: 30_000 });
      }
      expect(json.output.length).toBe(ended.output.length);
    }
    expect(shop.second.callCount()).toBe(0);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 4, released: 0, units: 4, holds: 0 });
    const receipts = await receiptsOf(accountId);
    expect(receipts.map(({ completion_tokens: tokens, estimated }) => [Number(tokens), estimated])).toEqual(
      receipts.map(() => [30_000, false]),
    );
  });

  test("a provider's error about a field of chat completions names the field of this API", async () => {
    const { secret } = await shop.customer();
    const inner = { type: "function", name: "a" };
    const tools = [{ type: "web_search" }, { type: "namespace", name: "n", tools: [inner] }, inner];
    const refused = async (param: string) => {
      const error = { message: "It is not valid.", type: "invalid_request_error", param, code: null };
      shop.provider.next({ status: 400, body: JSON.stringify({ error }), contentType: "application/json" });
      return (await ask(secret, { instructions: "Be brief.", input: [USER], tools })).json.error.param;
    };
    expect(await refused("messages.1.content")).toBe("input.0.content");
    for (const index of ["[1]", ".[1]"])
      expect(await refused(`messages${index}.content[0]`)).toBe("input.0.content[0]");
    expect(await refused("messages.[0].content")).toBe("instructions");
    expect(await refused("messages")).toBe("input");
    expect(await refused("max_completion_tokens")).toBe("max_output_tokens");
    expect(await refused("response_format")).toBe("text.format");
    expect(await refused("response_format.json_schema.schema")).toBe("text.format.schema");
    expect(await refused("tools[0].function.parameters")).toBe("tools.1.tools.0.parameters");
    expect(await refused("tools[1].function")).toBe("tools.2");
  });

  test("an error of a provider's own /responses names the item and the tool of the request, even if earlier ones were dropped", async () => {
    const { secret } = await shop.customer();
    const reasoning = { type: "reasoning", summary: [] };
    const tools = [{ type: "web_search" }, { type: "function", name: "a" }];
    for (const stream of [true, false])
      for (const [param, expected] of [
        ["input[0].content", "input.1.content"],
        ["tools[0].name", "tools.1.name"],
        ["text.format", "text.format"],
      ]) {
        const error = { message: "It is not valid.", type: "invalid_request_error", param, code: null };
        shop.provider.next({ status: 400, body: JSON.stringify({ error }), contentType: "application/json" });
        const refused = await ask(secret, { model: "own", stream, input: [reasoning, USER], tools });
        expectRefusal(refused, "invalid_request", { param: expected });
      }
  });

  test("a repeated request with an Idempotency-Key is charged once, and gets the same response", async () => {
    const { accountId, secret } = await shop.customer();
    const headers = { "idempotency-key": "one" };
    const first = await ask(secret, {}, { headers });
    const second = await ask(secret, {}, { headers });
    expect(second.text).toBe(first.text);
    expect(second.headers.get("idempotent-replayed")).toBe("true");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1 });
  });
});

describe("routes", () => {
  test("a route with its own /responses gets the request itself, and its events are passed on with the client's model name", async () => {
    const { secret } = await shop.customer();
    const { events } = await stream(secret, {
      model: "own",
      instructions: "Be brief.",
      user: "u",
      metadata: { a: "b" },
    });
    expect(shop.provider.lastCall()?.path).toBe("/v1/responses");
    expect(sent()).toEqual({
      model: "up-own",
      store: false,
      input: "Tell me about tolls.",
      instructions: "Be brief.",
      stream: true,
      user: expect.stringMatching(/^[\w-]{43}$/),
    });
    expect(checkLifeCycle(events)).toMatchObject({ status: "completed", model: "own", metadata: { a: "b" } });
    expect(JSON.stringify(events)).not.toContain("up-own");
    expect((await ask(secret, { model: "own" })).json).toMatchObject({ object: "response", model: "own" });
  });

  const item = (said: string) => ({
    ...{ id: "msg_1", type: "message", role: "assistant", status: "completed" },
    content: [{ type: "output_text", text: said, annotations: [] }],
  });
  /** A stream of a provider's own /responses, up to its last event. */
  const ownStream = () => {
    const at = { item_id: "msg_1", output_index: 0, content_index: 0 };
    const response = { id: "resp_1", status: "in_progress", output: [] };
    const events: [string, Record<string, unknown>][] = [
      ["created", { response }],
      ["in_progress", { response }],
      ["output_item.added", { output_index: 0, item: { ...item(""), content: [] } }],
      ["content_part.added", { ...at, part: { type: "output_text", text: "" } }],
      ["output_text.delta", { ...at, delta: "Gates." }],
      ["output_item.done", { output_index: 0, item: item("Gates.") }],
    ];
    const payloads = events.map(([type, fields], i) => ({ type: `response.${type}`, sequence_number: i, ...fields }));
    return { ...streamOf(...payloads), length: payloads.length };
  };

  test("a provider's own stream that ends with [DONE] in place of its last event has broken off", async () => {
    const { accountId, secret } = await shop.customer();
    const { body, contentType } = ownStream();
    shop.provider.next({ contentType, body: `${body}data: [DONE]\n\n` });
    const { events } = await stream(secret, { model: "own" });
    expect(checkLifeCycle(events)).toMatchObject({ status: "failed", output: [item("Gates.")] });
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
  });

  test("a provider's own stream whose last events are too large to be read is charged for what was delivered", async () => {
    const { accountId, secret } = await shop.customer();
    const { body, contentType, length } = ownStream();
    const begun = body.slice(0, body.lastIndexOf("data: "));
    const line = "toll gates ".repeat(1_000);
    const at = { item_id: "msg_1", output_index: 0, content_index: 0 };
    const deltas = Array.from({ length: 800 }, (_, n) =>
      JSON.stringify({ type: "response.output_text.delta", sequence_number: length + n, ...at, delta: line }),
    );
    const said = line.repeat(800);
    const response = { id: "resp_1", status: "completed", output: [item(said)], usage: null };
    const last = JSON.stringify({ type: "response.completed", sequence_number: length + 800, response });
    expect(last.length).toBeGreaterThan(8 * 1024 * 1024);
    const events = [...deltas, last].map((payload) => `data: ${payload}\n\n`).join("");
    shop.provider.next({ contentType, body: begun + events });
    const sentEvents = (await stream(secret, { model: "own" })).events;
    expect(sentEvents.filter(({ delta }) => delta === line)).toHaveLength(800);
    const ended = sentEvents.at(-1)?.response;
    expect([ended.status, ended.error.message]).toEqual(["failed", expect.stringContaining("It was charged")]);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, units: 1, holds: 0 });
    const [receipt] = await receiptsOf(accountId);
    expect(receipt).toMatchObject({ outcome: "settled", estimated: true });
    expect(Number(receipt?.completion_tokens)).toBeGreaterThan(1_000_000);
    expect(ended.usage.output_tokens).toBe(Number(receipt?.completion_tokens));
  });

  test("an event of a provider's own stream that is too large before any text was delivered is not charged", async () => {
    const { accountId, secret } = await shop.customer();
    const { contentType } = ownStream();
    const giant = `data: {"type":"response.output_text.delta","delta":"${"x".repeat(9 * 1024 * 1024)}"}\n\n`;
    const begun = `data: {"type":"response.output_item.added","output_index":0,"item":{}}\n\n`;
    shop.provider.next({ contentType, body: begun + giant });
    const { text } = await stream(secret, { model: "own" });
    expect(text).toContain("Nothing was charged");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
  });

  test("the last event of a provider's own stream has the whole output, and the usage that is charged, whatever it leaves out", async () => {
    const { accountId, secret } = await shop.customer();
    const usage = { input_tokens: 20, output_tokens: 6, total_tokens: 30, input_tokens_details: null, cost: 0.01 };
    const response = { id: "resp_1", status: "completed", provider: "Acme", output: [], usage };
    const { body, contentType, length } = ownStream();
    const last = { type: "response.completed", sequence_number: length, response };
    shop.provider.next({ contentType, body: `${body}data: ${JSON.stringify(last)}\n\n` });
    const ended = checkLifeCycle((await stream(secret, { model: "own" })).events);
    const counted = {
      ...{ input_tokens: 20, input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 } },
      ...{ output_tokens: 10, output_tokens_details: { reasoning_tokens: 4 }, total_tokens: 30 },
    };
    expect(ended).toMatchObject({ status: "completed", output: [item("Gates.")] });
    expect(ended.usage).toEqual(counted);
    const whole = { ...response, object: "response", output: [item("Gates.")] };
    shop.provider.next({ contentType: "application/json", body: JSON.stringify(whole) });
    const { json } = await ask(secret, { model: "own" });
    expect(json.usage).toEqual(counted);
    expect([json.provider, ended.provider]).toEqual([undefined, undefined]);
    const receipts = await receiptsOf(accountId);
    expect(receipts.map((receipt) => Number(receipt.completion_tokens))).toEqual([10, 10]);
  });

  for (const [model, first, second] of [
    ["own-first", "/v1/responses", "/v1/chat/completions"],
    ["own-second", "/v1/chat/completions", "/v1/responses"],
  ] as const) {
    test(`${model}: the next route is tried in its own format`, async () => {
      const { accountId, secret } = await shop.customer();
      for (const isStreamed of [true, false]) {
        shop.provider.next({ status: 500 });
        const answer = await ask(secret, { model, stream: isStreamed });
        expect(answer.status).toBe(200);
        if (isStreamed) expect(checkLifeCycle(readEvents(answer.text)).model).toBe(model);
        expect(shop.provider.lastCall()?.path).toBe(first);
        expect(shop.second.lastCall()?.path).toBe(second);
      }
      expect(await shop.counters(accountId)).toMatchObject({ usage: 2, units: 2, holds: 0 });
    });
  }

  test("a failure between the first event and the answer is tried on the next route", async () => {
    const { secret } = await shop.customer();
    const opening = { type: "response.created", sequence_number: 0, response: { id: "resp_1", status: "in_progress" } };
    const error = { code: "server_error", message: "Overloaded." };
    shop.provider.next(streamOf(opening, { type: "response.failed", sequence_number: 1, response: { error } }));
    expect(checkLifeCycle((await stream(secret, { model: "own-first" })).events).status).toBe("completed");
    shop.provider.next(streamOf(chunk({ role: "assistant", content: "" }), { error: { message: "Overloaded." } }));
    expect(checkLifeCycle((await stream(secret, { model: "own-second" })).events).status).toBe("completed");
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([2, 2]);
  });

  test("the log leaves out what a provider's failed response quotes of the prompt", async () => {
    const { secret } = await shop.customer();
    const input = "The treasure is buried below the third gate of the southern road.";
    const error = { code: "server_error", message: `Overloaded while reading: ${input}` };
    const failed = { id: "resp_1", object: "response", status: "failed", output: [], error };
    shop.provider.next(streamOf({ type: "response.failed", sequence_number: 0, response: failed }));
    expectRefusal(await ask(secret, { model: "own", stream: true, input }), "provider_unavailable");
    shop.provider.next({ contentType: "application/json", body: JSON.stringify(failed) });
    expectRefusal(await ask(secret, { model: "own", input }), "provider_unavailable");
    const logged = () => shop.replicas[0]?.logged() ?? "";
    await until(() => logged().split("Overloaded while reading").length === 3);
    expect(logged()).not.toContain("treasure");
  });

  test("events before the answer are kept up to a limit; above it the route has failed", async () => {
    const { accountId, secret } = await shop.customer();
    const response = { id: "resp_1", status: "in_progress", output: [], instructions: "x".repeat(4 * 1024 * 1024) };
    const opening = { type: "response.in_progress", response };
    const begun = { type: "response.output_text.delta", output_index: 0, item_id: "m", content_index: 0, delta: "x" };
    shop.provider.next(streamOf(...Array(5).fill(opening), begun));
    expectRefusal(await ask(secret, { model: "own", stream: true }), "provider_unavailable");
    shop.provider.next(streamOf(...Array(3).fill(opening), begun));
    expect((await stream(secret, { model: "own" })).status).toBe(200);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, holds: 0 });
  });

  test("hosted tools are dropped and named, also on a route with its own /responses, unless it allows them", async () => {
    const { secret } = await shop.customer();
    const tools = [{ type: "web_search" }, { type: "function", name: "a" }];
    for (const model of ["chat-a", "own"]) {
      const { headers, status } = await ask(secret, { model, tools, seed: 1, service_tier: "flex" });
      expect(status).toBe(200);
      expect(headers.get("x-dropped-params")).toContain("tools.0");
      expect(sent().tools).toHaveLength(1);
    }
    const allowed = await ask(secret, { model: "own-search", tools, tool_choice: { type: "web_search" } });
    expect(allowed.headers.get("x-dropped-params")).toBeNull();
    expect(sent()).toMatchObject({ tools, tool_choice: { type: "web_search" } });
  });

  test("a file is refused with its path in the request if the routes take no files", async () => {
    const { secret } = await shop.customer();
    const file = { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" };
    const content = [{ type: "input_text", text: "What is this?" }, file];
    for (const model of ["chat-a", "own"]) {
      const answer = await ask(secret, { model, instructions: "Be brief.", input: [{ role: "user", content }] });
      expectRefusal(answer, "invalid_request", { param: "input.0.content.1" });
    }
    await ask(secret, { model: "own-search", input: [{ role: "user", content }] });
    expect(sent().input[0].content).toEqual(content);
  });

  test("reasoning reaches the client as a summary and as sealed content, and the model again in the next turn", async () => {
    const { secret } = await shop.customer();
    const tool = { index: 0, id: "call_1", type: "function", function: { name: "a", arguments: "{}" } };
    shop.provider.next(
      streamOf(chunk({ reasoning_content: "Hm." }), chunk({ tool_calls: [tool] }), chunk({}, "tool_calls")),
    );
    const { events } = await stream(secret, { include: ["reasoning.encrypted_content"], ...schema({}) });
    const [reasoning, called] = checkLifeCycle(events).output;
    expect(reasoning.summary).toEqual([{ type: "summary_text", text: "Hm." }]);
    const input = [
      { ...reasoning, summary: [] },
      called,
      { type: "function_call_output", call_id: "call_1", output: "3" },
    ];
    expect((await ask(secret, { input })).status).toBe(200);
    expect(sent().messages[0]).toMatchObject({ role: "assistant", reasoning_content: "Hm." });
    const other = await shop.customer();
    expectRefusal(await ask(other.secret, { input }), "invalid_request", { param: "input.0.encrypted_content" });
  });
});
