import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import { closeBalanced } from "./checks.ts";
import { openShop, type Shop } from "./shop.ts";

/** An unchanged OpenAI SDK works with POST /v1/responses. Source: API-14, RSP-8, RSP-9. */

const TOOLS = [
  {
    type: "function" as const,
    name: "get_toll",
    strict: true,
    parameters: {
      type: "object",
      properties: { road: { type: "string" } },
      required: ["road"],
      additionalProperties: false,
    },
  },
];

let shop: Shop;
let client: OpenAI;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  client = new OpenAI({ apiKey: (await shop.customer()).secret, baseURL: `${shop.origin}/v1` });
});
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop));

describe("responses.create", () => {
  test("returns an answer with the client's model name, usage, and our request id", async () => {
    const response = await client.responses.create({ model: "chat-a", input: "Tell me about tolls." });
    expect(response).toMatchObject({ object: "response", status: "completed", model: "chat-a", error: null });
    expect(response.output_text.length).toBeGreaterThan(20);
    expect(response.id).toMatch(/^resp_[0-9a-f]{32}$/);
    expect(response.usage?.total_tokens).toBe(
      (response.usage?.input_tokens ?? 0) + (response.usage?.output_tokens ?? 0),
    );
    expect(response.usage?.input_tokens).toBeGreaterThan(0);
    const [record] = await shop.world
      .sql`select model_id, outcome, prompt_tokens from receipts where request_id = ${response._request_id ?? null}`;
    expect(record).toMatchObject({ model_id: "chat-a", outcome: "settled" });
    expect(Number(record?.prompt_tokens)).toBe(response.usage?.input_tokens ?? -1);
  });

  test("streams the same text, and each event's sequence number is one above the last", async () => {
    const stream = await client.responses.create({ model: "chat-a", input: "Tell me about tolls.", stream: true });
    const events = [];
    for await (const event of stream) events.push(event);
    expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, i) => i));
    const text = events.map((event) => (event.type === "response.output_text.delta" ? event.delta : "")).join("");
    const last = events.at(-1);
    if (last?.type !== "response.completed") throw new Error(`the last event is ${last?.type}`);
    expect(last.response.output).toMatchObject([{ type: "message", content: [{ type: "output_text", text }] }]);
    expect(last.response.usage?.output_tokens).toBeGreaterThan(0);
  });
});

describe("responses.stream", () => {
  test("accumulates to the answer that is not streamed", async () => {
    const whole = await client.responses.create({ model: "chat-a", input: "Tell me about tolls." });
    const streamed = await client.responses.stream({ model: "chat-a", input: "Tell me about tolls." }).finalResponse();
    expect(streamed.output_text).toBe(whole.output_text);
  });

  test("supports a tool call, and the turn that answers it", async () => {
    const input: OpenAI.Responses.ResponseInput = [{ role: "user", content: "What does the road cost?" }];
    const asked = await client.responses.stream({ model: "chat-a", input, tools: TOOLS, store: false }).finalResponse();
    const call = asked.output.find((item) => item.type === "function_call");
    if (call === undefined) throw new Error("no tool was called");
    expect(call.name).toBe("get_toll");
    expect(JSON.parse(call.arguments)).toHaveProperty("road");
    const answer = await client.responses.create({
      model: "chat-a",
      input: [...input, call, { type: "function_call_output", call_id: call.call_id, output: "3 crowns" }],
      tools: TOOLS,
    });
    expect(answer.output_text).toBeTruthy();
    const { messages } = JSON.parse(shop.provider.lastCall()?.body ?? "");
    expect(messages).toMatchObject([
      { role: "user" },
      { role: "assistant", content: null, tool_calls: [{ id: call.call_id, function: { name: "get_toll" } }] },
      { role: "tool", tool_call_id: call.call_id, content: "3 crowns" },
    ]);
  });
});

describe("responses.parse", () => {
  test("requests structured output, and parses it", async () => {
    const schema = {
      type: "object",
      properties: { road: { type: "string" } },
      required: ["road"],
      additionalProperties: false,
    };
    const format = { type: "json_schema" as const, name: "toll", strict: true, schema };
    const parsed = await client.responses.parse({ model: "chat-a", input: "A toll.", text: { format } });
    expect(JSON.parse(parsed.output_text)).toHaveProperty("road");
    expect(JSON.parse(shop.provider.lastCall()?.body ?? "").response_format).toEqual({
      type: "json_schema",
      json_schema: { name: "toll", strict: true, schema },
    });
  });
});
