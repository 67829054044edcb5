import { afterAll, beforeAll, expect, test } from "bun:test";
import { openaiSchema } from "../simulated_client.ts";
import { closeBalanced } from "./checks.ts";
import { type Answer, chatBody, eventsOf, imageBody, openShop, type Shop } from "./shop.ts";

/** Every response with a published shape is valid by OpenAI's own schema. Source: API-1. */

let shop: Shop;
let secret: string;
let check: (root: string, value: unknown) => void;

beforeAll(async () => {
  check = openaiSchema();
  shop = await openShop({ redisUrl: "" });
  ({ secret } = await shop.customer());
});
afterAll(() => closeBalanced(shop));

const isSuccess = (answer: Answer): Answer => {
  expect({ status: answer.status, error: answer.json?.error?.message }).toEqual({ status: 200, error: undefined });
  return answer;
};

test("the schema refuses invalid objects, so that passing it means something", () => {
  expect(() => check("Model", { id: "x", object: "model" })).toThrow();
  expect(() => check("ChatCompletion", { object: "chat.completion" })).toThrow();
  expect(() => check("ErrorResponse", { error: { message: "x" } })).toThrow();
});

test("models: the list, one, and the empty list", async () => {
  check("ModelList", isSuccess(await shop.call("/v1/models", { secret })).json);
  check("Model", isSuccess(await shop.call("/v1/models/vendor%2Fchat-b", { secret })).json);
  const poor = await shop.customer(null);
  const empty = isSuccess(await shop.call("/v1/models", { secret: poor.secret })).json;
  check("ModelList", empty);
  expect(empty.data).toEqual([]);
});

const TOOLS = [
  { type: "function", function: { name: "f", parameters: { type: "object", properties: { a: { type: "string" } } } } },
];
const CHATS: Record<string, Record<string, unknown>> = {
  plain: {},
  "with tools": { tools: TOOLS },
  "two choices": { n: 2 },
  "cut by its cap": { max_tokens: 3 },
  structured: { response_format: { type: "json_object" } },
};

for (const [what, over] of Object.entries(CHATS)) {
  test(`chat, ${what}: the answer, and every chunk of its stream, with and without usage`, async () => {
    const { json } = isSuccess(await shop.chat(secret, over));
    check("ChatCompletion", json);
    check("CompletionUsage", json.usage);
    for (const include_usage of [false, true]) {
      const { text, headers } = await shop.chat(secret, { ...over, stream: true, stream_options: { include_usage } });
      expect(headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
      const events = eventsOf(text);
      expect(events.pop()).toBe("[DONE]");
      expect(events.length).toBeGreaterThan(2);
      for (const event of events) check("ChatCompletionChunk", JSON.parse(event));
      const last = JSON.parse(events.at(-1) ?? "{}");
      expect(last.choices.length === 0).toBe(include_usage);
      if (include_usage) check("CompletionUsage", last.usage);
    }
  });
}

test("chat is complete even if the provider leaves fields out", async () => {
  const bare = {
    choices: [
      { index: 0, message: { role: "assistant", content: "x", refusal: null }, finish_reason: "stop", logprobs: null },
    ],
  };
  shop.provider.next({ body: JSON.stringify(bare), contentType: "application/json" });
  const { json } = isSuccess(await shop.chat(secret));
  check("ChatCompletion", json);
  expect(json.model).toBe("chat-a");
  const chunk = { choices: [{ index: 0, delta: { role: "assistant", content: "x" }, finish_reason: "stop" }] };
  shop.provider.next({ body: `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n`, contentType: "text/event-stream" });
  const events = eventsOf((await shop.chat(secret, { stream: true })).text);
  expect(events.length).toBe(2);
  check("ChatCompletionChunk", JSON.parse(events[0] ?? ""));
});

test("images: whatever the provider returns, in either format", async () => {
  for (const imageReturn of ["url", "b64", "both"] as const) {
    for (const response_format of ["url", "b64_json"]) {
      shop.provider.next({ imageReturn });
      const { json } = isSuccess(
        await shop.call("/v1/images/generations", { secret, body: imageBody({ response_format }) }),
      );
      check("ImagesResponse", json);
      expect(Object.keys(json.data[0])).toContain(response_format);
      expect(json.data.length).toBe(1);
    }
  }
});

test("errors on every kind of path", async () => {
  const stranger = await shop.customer(null);
  const answers = [
    await shop.call("/v1/models"),
    await shop.call("/v1/nothing"),
    await shop.call("/v1/models/nobody", { secret }),
    await shop.call("/v1/chat/completions", { secret, method: "DELETE" }),
    await shop.call("/v1/chat/completions", { secret, body: "{" }),
    await shop.call("/v1/usage?limit=0", { secret }),
    await shop.call("/v1/models", { secret, host: "foreign.test" }),
    await shop.call("/api/panel/me"),
    await shop.chat(stranger.secret, { stream: true }),
    await shop.call("/v1/images/generations", { secret, body: imageBody({ prompt: "x" }) }),
  ];
  for (const { status, json } of answers) {
    expect(status).toBeGreaterThanOrEqual(400);
    check("ErrorResponse", json);
  }
});

test("an error inside a stream is the same envelope", async () => {
  shop.provider.next({ errorEventAfterChunks: 2 });
  const events = eventsOf((await shop.chat(secret, chatBody({ stream: true }))).text);
  expect(events).not.toContain("[DONE]");
  const last = JSON.parse(events.at(-1) ?? "{}");
  check("ErrorResponse", last);
  expect(last.request_id).toMatch(/^[0-9a-f-]{36}$/);
});
