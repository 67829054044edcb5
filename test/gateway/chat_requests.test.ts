import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { closeBalanced, expectRefusal, withoutEffect } from "./checks.ts";
import { eventsOf, openShop, responsesBody, type Shop } from "./shop.ts";

/** Requests in forms that clients really send, and what reaches the provider of them. Source: API-5, API-15, PRV-29, DIA-5, DIA-6, DIA-9. */

let shop: Shop;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "", models: [READER] });
});
afterAll(() => closeBalanced(shop));

/** Its second route takes files. */
const READER = {
  id: "reader",
  routes: [{ provider: "first" }, { provider: "second", allowedParams: ["content.file"] }],
};

const sent = () => JSON.parse(shop.provider.lastCall()?.body ?? "");
const user = (content: unknown) => ({ role: "user", content });
const FILE = { type: "file", file: { file_data: "data:application/pdf;base64,AA==" } };
const AUDIO = { type: "input_audio", input_audio: { data: "AA==", format: "wav" } };
const INPUT_TEXT = { type: "input_text", text: "What is this?" };
const INPUT_FILE = { type: "input_file", file_data: "data:,x" };
const INPUT_IMAGE = { type: "input_image", image_url: "https://example.com/a.png" };
const CALL = { type: "function_call", call_id: "c", name: "f", arguments: "{}" };
const OUTPUT = { type: "function_call_output", call_id: "c" };
const TEXT = { type: "text", text: "What is 2+2?" };

describe("a part of a message that cannot be sent", () => {
  test.each([
    ["a file", [user([FILE])], "messages.0.content.0"],
    ["audio, after other messages", [user("Hi"), user([AUDIO])], "messages.1.content.0"],
    ["two kinds", [user([AUDIO, FILE])], "messages.0.content.0"],
    ["an unknown type", [user([{ type: "hologram", text: "x" }])], "messages.0.content.0"],
    ["no type and no text", [user([{ words: "x" }])], "messages.0.content.0"],
    ["a text that is none", [user([{ text: 4 }])], "messages.0.content.0"],
    ["a system message", [{ role: "system", content: [FILE] }, user("Hi")], "messages.0.content.0"],
    ["a tool's", [user("Hi"), { role: "tool", tool_call_id: "c", content: [FILE] }], "messages.1.content.0"],
    ["a file beside a text", [user([TEXT, FILE])], "messages.0.content.1"],
    ["audio between texts", [user([TEXT, AUDIO, TEXT])], "messages.0.content.1"],
    ["a text under another name", [user([{ type: "text", content: "What is 2+2?" }])], "messages.0.content.0"],
    ["a text that is null", [user([TEXT, { type: "text", text: null }])], "messages.0.content.1"],
    ["an image without an address", [user([TEXT, { type: "image_url" }])], "messages.0.content.1"],
    [
      "an image whose address is none",
      [user([TEXT, { type: "image_url", image_url: { url: 5 } }])],
      "messages.0.content.1",
    ],
    ["a document as Anthropic's API has it", [user([TEXT, { type: "document", source: {} }])], "messages.0.content.1"],
    [
      "a tool's result that names no call",
      [user([TEXT, { type: "tool_result", content: "4" }])],
      "messages.0.content.1",
    ],
    [
      "a file in a tool's result",
      [user([{ type: "tool_result", tool_use_id: "c", content: [TEXT, FILE] }])],
      "messages.0.content.0.content.1",
    ],
    [
      "a call without a name",
      [user("Hi"), { role: "assistant", content: [{ type: "tool_use", id: "c" }] }],
      "messages.1.content.0",
    ],
    ["a call of the user", [user([TEXT, { type: "tool_use", id: "c", name: "f", input: {} }])], "messages.0.content.1"],
    ["an image as Ollama's API has it", [{ ...user("What is it?"), images: ["iVBORw0KGgo="] }], "messages.0.images"],
    ["files named by a message", [{ ...user("Read it."), file_ids: ["file-1"] }], "messages.0.file_ids"],
    [
      "a spoken answer",
      [user("Hi"), { role: "assistant", content: null, audio: { id: "audio_1" } }],
      "messages.1.audio",
    ],
  ])("%s is 400 with its path, whole and as a stream, and costs nothing", async (_, messages, param) => {
    const { secret } = await shop.customer();
    for (const stream of [false, true])
      await withoutEffect(shop, async () =>
        expectRefusal(await shop.chat(secret, { messages, stream }), "invalid_request", { param }),
      );
  });

  test.each([
    ["a file", [{ role: "user", content: [{ type: "input_file", file_data: "data:,x" }] }], "input.0.content.0"],
    [
      "a developer's",
      [{ role: "developer", content: [{ type: "input_file", file_data: "data:,x" }] }, user("Hi")],
      "input.0.content.0",
    ],
    ["a file beside a text", [user([INPUT_TEXT, INPUT_FILE])], "input.0.content.1"],
    ["an image of the developer's", [{ role: "developer", content: [INPUT_TEXT, INPUT_IMAGE] }], "input.0.content.1"],
    ["an image of the assistant's", [user("Hi"), { role: "assistant", content: [INPUT_IMAGE] }], "input.1.content.0"],
    ["a file of a tool", [CALL, { ...OUTPUT, output: [INPUT_TEXT, INPUT_FILE] }], "input.1.output.1"],
  ])("in a request for a response %s is 400 with its path", async (_, input, param) => {
    const { secret } = await shop.customer();
    await withoutEffect(shop, async () => {
      const answer = await shop.call("/v1/responses", { secret, body: responsesBody({ input }) });
      expectRefusal(answer, "invalid_request", { param });
    });
  });

  test("is sent to a route that takes it, and no other is asked", async () => {
    const { secret } = await shop.customer();
    const before = shop.provider.callCount();
    const messages = [user([TEXT, FILE])];
    expect((await shop.chat(secret, { model: "reader", messages })).status).toBe(200);
    expect(JSON.parse(shop.second.lastCall()?.body ?? "").messages).toEqual(messages);
    expect(shop.provider.callCount()).toBe(before);
    expect((await shop.chat(secret, { model: "reader", messages: [user([TEXT])] })).status).toBe(200);
    expect(shop.provider.callCount()).toBe(before + 1);
  });

  test("does not refuse a message with members that are empty", async () => {
    const { secret } = await shop.customer();
    const { status } = await shop.chat(secret, { messages: [{ ...user("Hi"), images: [], audio: null }] });
    expect(status).toBe(200);
    expect(sent().messages).toEqual([user("Hi")]);
  });

  test("that only another provider can read is left out and named", async () => {
    const { secret } = await shop.customer();
    const thought = { type: "redacted_thinking", data: "AA==" };
    const messages = [user("Hi"), { role: "assistant", content: [thought, TEXT] }, user("And?")];
    const { status, headers } = await shop.chat(secret, { messages });
    expect([status, headers.get("x-dropped-params")]).toEqual([200, "messages.1.content.0"]);
    expect(sent().messages[1]).toEqual({ role: "assistant", content: [TEXT] });
  });
});

test.each([
  ["no type", { text: "What is 2+2?" }, TEXT],
  ["input_text", { type: "input_text", text: "What is 2+2?" }, TEXT],
  ["output_text", { type: "output_text", text: "What is 2+2?" }, TEXT],
  [
    "input_image",
    { type: "input_image", image_url: "https://example.com/a.png", detail: "low" },
    { type: "image_url", image_url: { url: "https://example.com/a.png", detail: "low" } },
  ],
])("a part with %s is understood", async (_, part, chatPart) => {
  const { secret } = await shop.customer();
  const { status, headers } = await shop.chat(secret, { model: "vendor/chat-b", messages: [user([part])] });
  expect([status, headers.get("x-dropped-params")]).toEqual([200, null]);
  expect(sent().messages).toEqual([user([chatPart])]);
});

describe("Cursor's requests at /chat/completions", () => {
  const asked = {
    model: "chat-a",
    input: [
      { role: "system", content: "You are a coding assistant." },
      { role: "user", content: [{ type: "input_text", text: "List the files." }] },
      { type: "function_call", call_id: "call_1", name: "list_files", arguments: "{}" },
      { type: "function_call_output", call_id: "call_1", output: "a.ts" },
      { role: "user", content: "Thanks. And now?" },
    ],
    tools: [
      {
        type: "function",
        name: "list_files",
        description: "Lists files.",
        parameters: { type: "object" },
        strict: false,
      },
    ],
    tool_choice: "auto",
    ...{ store: false, include: ["reasoning.encrypted_content"], prompt_cache_retention: "24h", user: "ann" },
  };

  test("are translated, and answered as a chat", async () => {
    const { secret, accountId } = await shop.customer();
    const { status, json } = await shop.call("/v1/chat/completions", { secret, body: asked });
    expect([status, json.object, json.model]).toEqual([200, "chat.completion", "chat-a"]);
    expect(sent()).toMatchObject({
      model: "up-chat-a",
      messages: [
        { role: "system", content: "You are a coding assistant." },
        user("List the files."),
        { role: "assistant", tool_calls: [{ id: "call_1", function: { name: "list_files", arguments: "{}" } }] },
        { role: "tool", tool_call_id: "call_1", content: "a.ts" },
        user("Thanks. And now?"),
      ],
      tools: [{ type: "function", function: { name: "list_files", description: "Lists files." } }],
      tool_choice: "auto",
    });
    expect((await shop.counters(accountId)).units).toBe(1);
  });

  test("as a stream, with its usage, end with [DONE]", async () => {
    const { secret } = await shop.customer();
    const body = { ...asked, stream: true, stream_options: { include_usage: true }, max_tokens: 40 };
    const { status, text } = await shop.call("/v1/chat/completions", { secret, body });
    const events = eventsOf(text);
    expect([status, events.at(-1)]).toEqual([200, "[DONE]"]);
    expect(JSON.parse(events.at(-2) ?? "")).toMatchObject({
      object: "chat.completion.chunk",
      usage: { prompt_tokens: expect.any(Number) },
    });
    expect(sent().max_tokens).toBe(40);
  });

  test("keep the fields of a chat, and its cap under either name", async () => {
    const { secret } = await shop.customer();
    const format = { type: "json_object" };
    const ask = (over: object) => shop.call("/v1/chat/completions", { secret, body: { ...asked, ...over } });
    expect((await ask({ max_output_tokens: 33, response_format: format, n: 2, temperature: 0.5 })).status).toBe(200);
    expect(sent()).toMatchObject({ max_tokens: 33, response_format: format, n: 2, temperature: 0.5 });
  });

  test("are refused with paths of the request as it was sent", async () => {
    const { secret } = await shop.customer();
    const wrong: [object, string][] = [
      [{ input: [{ type: "hologram" }] }, "input.0.type"],
      [{ input: 5 }, "input"],
      [{ previous_response_id: "resp_1" }, "previous_response_id"],
      [{ input: [{ type: "item_reference", id: "msg_1" }] }, "input"],
      [{ tools: [{ type: "function" }] }, "tools.0.name"],
      [{ temperature: 9 }, "temperature"],
      [{ max_tokens: 0 }, "max_tokens"],
      [{ model: "absent" }, "model"],
      [{ input: [{ role: "user", content: [{ type: "input_file", file_data: "data:,x" }] }] }, "input.0.content.0"],
    ];
    for (const [over, param] of wrong)
      await withoutEffect(shop, async () => {
        const { json } = await shop.call("/v1/chat/completions", { secret, body: { ...asked, ...over } });
        expect([over, json.error?.param]).toEqual([over, param]);
      });
  });

  test("name what is left out by its path in the request", async () => {
    const { secret } = await shop.customer();
    const body = { ...asked, tools: [...asked.tools, { type: "web_search" }], mystery: 1 };
    const { headers } = await shop.call("/v1/chat/completions", { secret, body });
    expect(headers.get("x-dropped-params")?.split(", ").sort()).toEqual([
      "mystery",
      "prompt_cache_retention",
      "tools.1",
    ]);
  });

  test("with messages, tools without function are understood", async () => {
    const { secret } = await shop.customer();
    const tool_choice = { type: "function", name: "list_files" };
    const { headers, status } = await shop.chat(secret, { tools: asked.tools, tool_choice });
    expect([status, headers.get("x-dropped-params")]).toEqual([200, null]);
    expect(sent().tools).toEqual([
      {
        type: "function",
        function: { name: "list_files", description: "Lists files.", parameters: { type: "object" }, strict: false },
      },
    ]);
    expect(sent().tool_choice).toEqual({ type: "function", function: { name: "list_files" } });
  });
});

describe("tools in messages as Anthropic's API has them", () => {
  const USE = { type: "tool_use", id: "toolu_1", name: "toll", input: { gate: 2 } };
  const called = { id: "toolu_1", type: "function", function: { name: "toll", arguments: '{"gate":2}' } };
  const result = (content: unknown) => ({ type: "tool_result", tool_use_id: "toolu_1", content });
  const answer = (content: unknown) => ({ role: "tool", tool_call_id: "toolu_1", content });

  test.each<[string, object[], object[]]>([
    [
      "a call and its result become a chat's",
      [user("What?"), { role: "assistant", content: [TEXT, USE] }, user([result("3 euros"), TEXT])],
      [user("What?"), { role: "assistant", content: [TEXT], tool_calls: [called] }, answer("3 euros"), user([TEXT])],
    ],
    [
      "a call alone, and a result in parts",
      [user("What?"), { role: "assistant", content: [USE] }, user([result([TEXT])])],
      [user("What?"), { role: "assistant", content: null, tool_calls: [called] }, answer([TEXT])],
    ],
    [
      "a result without content is an empty one",
      [user("What?"), { role: "assistant", content: [USE] }, user([{ type: "tool_result", tool_use_id: "toolu_1" }])],
      [user("What?"), { role: "assistant", content: null, tool_calls: [called] }, answer("")],
    ],
    [
      "a call that the message already has is one",
      [user("What?"), { role: "assistant", content: [USE], tool_calls: [called] }, answer("3")],
      [user("What?"), { role: "assistant", content: null, tool_calls: [called] }, answer("3")],
    ],
  ])("%s", async (_, messages, chat) => {
    const { secret } = await shop.customer();
    const { status, headers } = await shop.chat(secret, { messages });
    expect([status, headers.get("x-dropped-params")]).toEqual([200, null]);
    expect(sent().messages).toEqual(chat);
  });
});

describe("legacy functions", () => {
  const WEATHER = { name: "weather", parameters: { type: "object" } };

  test("a function's message needs its name, and content", async () => {
    const { secret } = await shop.customer();
    const ask = (message: object) => shop.chat(secret, { messages: [user("Hi"), { role: "function", ...message }] });
    expectRefusal(await ask({ content: "Rain." }), "invalid_request", { param: "messages.1.name" });
    expectRefusal(await ask({ name: 5, content: "Rain." }), "invalid_request", { param: "messages.1.name" });
    expectRefusal(await ask({ name: "weather" }), "invalid_request", { param: "messages.1.content" });
  });

  test("reach a provider that takes them as they are", async () => {
    const { secret } = await shop.customer();
    const messages = [
      user("Hi"),
      { role: "assistant", content: null, function_call: { name: "weather", arguments: "{}" } },
      { role: "function", name: "weather", content: "Rain." },
    ];
    expect((await shop.chat(secret, { messages, functions: [WEATHER], function_call: "auto" })).status).toBe(200);
    expect(sent()).toMatchObject({ messages, functions: [WEATHER], function_call: "auto" });
  });
});

test("a body that no fact concerns reaches the provider byte for byte", async () => {
  const { secret } = await shop.customer();
  const raw =
    '{ "model":"chat-a", "messages":[{"role":"system","content":"Be \\u0062rief."} ,{"role":"user","content":[{"type":"text","text":"Hi"}]}], "max_tokens" : 7,"tools":[{"type":"function","function":{"name":"f"}}],"parallel_tool_calls":true }';
  expect((await shop.call("/v1/chat/completions", { secret, body: raw })).status).toBe(200);
  expect(shop.provider.lastCall()?.body).toBe(raw.replace('"chat-a"', '"up-chat-a"'));
});
