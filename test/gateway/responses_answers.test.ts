import { describe, expect, test } from "bun:test";
import { chatOpening } from "../../src/gateway/openings.ts";
import { fromChatAnswer, ResponseEvents } from "../../src/gateway/responses/from_chat.ts";
import { OUTPUT_CHARS_MAX } from "../../src/gateway/responses/output.ts";
import { echoOf } from "../../src/gateway/responses/response_object.ts";
import { openReasoning } from "../../src/gateway/responses/sealed_reasoning.ts";
import { readTools } from "../../src/gateway/responses/tools.ts";
import { PROVIDER_STREAMS } from "./provider_streams.ts";
import { checkLifeCycle, readEvents } from "./response_events.ts";
import { chatOf, type Fields, messagesOf, read, SEAL } from "./responses_input.ts";
import { eventsOf } from "./shop.ts";

/** The translation of chat completions, whole and streamed, back to responses. Source: RSP-6, RSP-9, RSP-10. */

function factsOf(over: Fields = {}, { sealed = false } = {}) {
  const body = read(over);
  const tools = readTools(body);
  const response = {
    id: "resp_0123",
    createdUnix: 5,
    modelId: "chat-a",
    metadata: JSON.stringify(body.metadata ?? {}),
    previousResponseId: body.previous_response_id ?? null,
    store: false,
    echo: echoOf(body, tools),
  };
  return { response, names: tools.names, seal: sealed ? SEAL : undefined };
}

/** The content that a chunk brings: one of the shapes adds text of its own. */
function contentIn(payload: string): string | undefined {
  return JSON.parse(payload).choices[0].delta.content || undefined;
}

const USAGE = { promptTokens: 11, cachedTokens: 3, completionTokens: 7 };

/** The events of a stream with these payloads, and the response at its end. */
function streamed(payloads: readonly string[], over: Fields = {}, options = {}) {
  const rewriter = new ResponseEvents(factsOf(over, options));
  let text = "";
  for (const payload of payloads) if (payload !== "[DONE]") text += rewriter.rewrite(payload) ?? "";
  rewriter.counted({ ...USAGE, further: rewriter.usage?.further });
  text += rewriter.lastEvents();
  const events = readEvents(text);
  return { events, response: checkLifeCycle(events), rewriter };
}

const chunk = (delta: unknown, finish: string | null = null, more: Fields = {}) =>
  JSON.stringify({ id: "chatcmpl-1", choices: [{ index: 0, delta, finish_reason: finish }], ...more });
const STOP = chunk({}, "stop");
const callChunk = (index: number | undefined, id: string | undefined, name: string | undefined, args: string) =>
  chunk({ tool_calls: [{ index, id, type: "function", function: { name, arguments: args } }] });
const kindsOf = (response: { output: { type: string }[] }) => response.output.map(({ type }) => type);

describe("answers", () => {
  for (const { name, opening, event, ending, field } of PROVIDER_STREAMS) {
    test(`a stream as from ${name} has one complete life cycle`, () => {
      const texts = ["Gates ", "cost ", '3 "crowns".\n'];
      const payloads = [
        ...eventsOf(opening),
        ...texts.map(event),
        ...eventsOf(ending).filter((payload) => payload !== "[DONE]"),
      ];
      const { response } = streamed(payloads);
      expect(response.status).toBe("completed");
      const [first] = response.output;
      const said = texts.map((text, n) => contentIn(event(text, n)) ?? text).join("");
      if (field === "content") expect(first).toMatchObject({ type: "message", content: [{ text: said }] });
      else if (field === "arguments") expect(first).toMatchObject({ type: "function_call", arguments: said });
      else expect(first).toMatchObject({ type: "reasoning", summary: [{ text: said }] });
      expect(JSON.stringify(response)).not.toContain("chatcmpl");
    });
  }

  test("an answer of tool calls alone opens and closes no message", () => {
    const { events, response } = streamed([callChunk(0, "call_1", "get_toll", '{"a":1}'), chunk({}, "tool_calls")]);
    expect(kindsOf(response)).toEqual(["function_call"]);
    expect(events.some(({ type }) => type.includes("content_part") || type.includes("output_text"))).toBe(false);
    expect(response.output[0]).toMatchObject({ call_id: "call_1", name: "get_toll", arguments: '{"a":1}' });
  });

  test("reasoning before the text is a summary, and the message is announced after it", () => {
    const { events, response } = streamed([
      chunk({ role: "assistant", content: null, reasoning_content: "Hm" }),
      chunk({ reasoning_content: "m." }),
      chunk({ content: "3" }),
      STOP,
    ]);
    expect(kindsOf(response)).toEqual(["reasoning", "message"]);
    expect(events.map(({ type }) => type)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.reasoning_summary_part.added",
      "response.reasoning_summary_text.delta",
      "response.reasoning_summary_text.delta",
      "response.reasoning_summary_text.done",
      "response.reasoning_summary_part.done",
      "response.output_item.done",
      "response.output_item.added",
      "response.content_part.added",
      "response.output_text.delta",
      "response.output_text.done",
      "response.content_part.done",
      "response.output_item.done",
      "response.completed",
    ]);
  });

  test("reasoning that is in two fields is used once", () => {
    const { response } = streamed([
      chunk({ reasoning: "Hm.", reasoning_content: "Hm." }),
      chunk({ content: "3" }),
      STOP,
    ]);
    expect(response.output[0].summary).toEqual([{ type: "summary_text", text: "Hm." }]);
  });

  test("thinking and text can be parts of a content that is a list", () => {
    const thinking = { type: "thinking", thinking: [{ type: "text", text: "Hm." }] };
    const { response } = streamed([
      chunk({ content: [thinking] }),
      chunk({ content: [{ type: "text", text: "3" }] }),
      STOP,
    ]);
    expect(kindsOf(response)).toEqual(["reasoning", "message"]);
  });

  test("every count of the usage is a number, also if the provider reports none or null", () => {
    for (const usage of [
      undefined,
      null,
      { prompt_tokens: 11, completion_tokens: 7, completion_tokens_details: null },
    ]) {
      const { response } = streamed([chunk({ content: "3" }), STOP, JSON.stringify({ choices: [], usage })]);
      expect(response.usage).toEqual({
        input_tokens: 11,
        input_tokens_details: { cached_tokens: 3, cache_write_tokens: 0 },
        output_tokens: 7,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: 18,
      });
    }
  });

  test("a usage chunk after the finish_reason counts", () => {
    const usage = { prompt_tokens: 21, completion_tokens: 9, completion_tokens_details: { reasoning_tokens: 4 } };
    const { rewriter, response } = streamed([chunk({ content: "3" }), STOP, JSON.stringify({ choices: [], usage })]);
    expect(rewriter.relayed.usage).toMatchObject({ promptTokens: 21, completionTokens: 9, further: { reasoning: 4 } });
    expect(response.usage.output_tokens_details).toEqual({ reasoning_tokens: 4 });
  });

  test("each parallel call is an item, even if their parts alternate", () => {
    const { response } = streamed([
      callChunk(0, "call_1", "get_toll", ""),
      callChunk(1, "call_2", "get_road", '{"b"'),
      callChunk(0, undefined, undefined, '{"a":1}'),
      callChunk(1, undefined, undefined, ":2}"),
      chunk({}, "tool_calls"),
    ]);
    expect(response.output).toMatchObject([
      { call_id: "call_1", name: "get_toll", arguments: '{"a":1}' },
      { call_id: "call_2", name: "get_road", arguments: '{"b":2}' },
    ]);
  });

  test.each([
    ["all with the index 0", 0, 0],
    ["without an index", undefined, undefined],
  ])("parallel calls %s", (_, first, second) => {
    const { response } = streamed([
      callChunk(first, "call_1", "get_toll", '{"a":1}'),
      callChunk(second, "call_2", "get_toll", '{"a":2}'),
      chunk({}, "tool_calls"),
    ]);
    expect(response.output.map((item: Fields) => item.arguments)).toEqual(['{"a":1}', '{"a":2}']);
  });

  test("a call may have its arguments before its name, and no id or arguments", () => {
    const { response } = streamed([
      callChunk(0, undefined, undefined, '{"a":'),
      callChunk(0, undefined, "get_toll", "1}"),
      callChunk(1, undefined, "get_road", ""),
      chunk({}, "tool_calls"),
    ]);
    expect(response.output).toMatchObject([{ arguments: '{"a":1}' }, { arguments: "{}" }]);
    for (const item of response.output) expect(item.call_id).toMatch(/^call_\w+$/);
  });

  test("calls between two texts keep their place, and no text is repeated", () => {
    const { response } = streamed([
      chunk({ content: "Let me see." }),
      callChunk(0, "call_1", "get_toll", "{}"),
      chunk({ content: "Done." }),
      chunk({}, "tool_calls"),
    ]);
    expect(kindsOf(response)).toEqual(["message", "function_call", "message"]);
  });

  test("a refusal is a separate part", () => {
    const { events, response } = streamed([chunk({ refusal: "I can" }), chunk({ refusal: "not." }), STOP]);
    expect(response.output[0].content).toEqual([{ type: "refusal", refusal: "I cannot." }]);
    expect(events.map(({ type }) => type)).toContain("response.refusal.done");
  });

  test("an empty answer is an empty message, so that clients do not repeat the request", () => {
    const { response } = streamed([chunk({ role: "assistant", content: "" }), STOP]);
    expect(response.output).toMatchObject([{ type: "message", content: [{ type: "output_text", text: "" }] }]);
  });

  test("an answer that was cut by the limit or a filter is incomplete, with the reason", () => {
    for (const [finish, reason] of [
      ["length", "max_output_tokens"],
      ["content_filter", "content_filter"],
    ] as const) {
      const { response } = streamed([chunk({ content: "3" }), chunk({}, finish)]);
      expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason } });
      expect(response.output[0].status).toBe("incomplete");
    }
  });

  test("an answer that breaks off ends as failed, with the output that had arrived and without usage", () => {
    const rewriter = new ResponseEvents(factsOf());
    const begun = rewriter.rewrite(chunk({ content: "Gates" })) ?? "";
    const error = JSON.stringify({ error: { message: "It broke off.", code: "provider_unavailable" } });
    const response = checkLifeCycle(readEvents(begun + rewriter.errorEvents(error)));
    expect(response).toMatchObject({
      status: "failed",
      error: { code: "server_error", message: "It broke off." },
      usage: null,
      output: [{ status: "incomplete", content: [{ text: "Gates" }] }],
    });
  });

  test("an error event fails the stream", () => {
    const rewriter = new ResponseEvents(factsOf());
    expect(() => rewriter.rewrite('{"error":{"message":"no"}}')).toThrow("error event");
  });

  test("an answer of more than 4 Mi characters is incomplete: the rest is counted, and not kept", () => {
    // The limit is inside a character of two units.
    const first = "x".repeat(OUTPUT_CHARS_MAX - 3);
    const { events, response, rewriter } = streamed([
      chunk({ content: first }),
      chunk({ content: "🚦🚦🚦" }),
      chunk({ reasoning: "more" }),
      callChunk(0, "call_1", "get_toll", "{}"),
      chunk({ refusal: "no" }),
      STOP,
    ]);
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(kindsOf(response)).toEqual(["message"]);
    expect(response.output[0].content[0].text).toBe(`${first}🚦\ufffd`);
    expect(events.filter(({ delta }) => delta !== undefined)).toHaveLength(2);
    expect(rewriter.relayed.chars).toBe(first.length + "🚦🚦🚦moreget_toll{}no".length);
  });

  test("an answer of more than 1,000 items is incomplete, and has the first 1,000; a filter stays the reason", () => {
    const calls = Array.from({ length: 1_005 }, (_, i) => callChunk(i, `call_${i}`, "get_toll", `{"a":${i}}`));
    for (const [finish, reason] of [
      ["tool_calls", "max_output_tokens"],
      ["content_filter", "content_filter"],
    ] as const) {
      const { response, rewriter } = streamed([
        ...calls,
        callChunk(3, undefined, undefined, "more"),
        chunk({}, finish),
      ]);
      expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason } });
      expect(response.output.map((item: Fields) => item.arguments)).toEqual(
        calls.slice(0, 1_000).map((_, i) => `{"a":${i}}`),
      );
      expect(rewriter.relayed.text).toContain('{"a":1004}');
    }
  });

  test("a role alone does not begin an answer: after an error the next route can be tried", () => {
    expect(chatOpening().begins(JSON.parse(chunk({ role: "assistant", content: "" })))).toBe(false);
    for (const delta of [{ content: "3" }, { reasoning: "3" }, { tool_calls: [{}] }])
      expect(chatOpening().begins(JSON.parse(chunk(delta)))).toBe(true);
    expect(chatOpening().begins(JSON.parse(STOP))).toBe(false);
  });

  test("a custom tool's call is returned as a custom call, with the raw text", () => {
    const tools = [{ type: "custom", name: "apply_patch", description: "Patches" }];
    const { events, response } = streamed(
      [callChunk(0, "call_1", "apply_patch", '{"input":"*** Beg'), callChunk(0, undefined, undefined, 'in\\n"}'), STOP],
      { tools },
    );
    expect(response.output).toMatchObject([
      { type: "custom_tool_call", call_id: "call_1", name: "apply_patch", input: "*** Begin\n" },
    ]);
    expect(events.filter(({ type }) => type.includes("custom_tool_call_input")).map((event) => event.delta)).toEqual([
      "*** Begin\n",
      undefined,
    ]);
    // Models do not always keep to the schema.
    const raw = streamed([callChunk(0, "call_1", "apply_patch", "*** Begin"), STOP], { tools });
    expect(raw.response.output[0].input).toBe("*** Begin");
  });

  test("a call of a tool in a namespace is returned with its own name and the namespace", () => {
    const inner = { type: "function", name: "read", parameters: { type: "object" } };
    const tools = [
      { type: "namespace", name: "mcp__files__", tools: [inner] },
      { ...inner, name: "read" },
    ];
    const { body } = chatOf({ tools });
    const names = (body.tools as { function: { name: string } }[]).map((tool) => tool.function.name);
    expect(names).toEqual(["mcp__files__read", "read"]);
    const { response } = streamed([callChunk(0, "c1", names[0], "{}"), callChunk(1, "c2", names[1], "{}"), STOP], {
      tools,
    });
    expect(response.output).toMatchObject([{ name: "read", namespace: "mcp__files__" }, { name: "read" }]);
    expect(response.output[1].namespace).toBeUndefined();
  });

  test("a whole answer has the items of the stream", () => {
    const message = {
      role: "assistant",
      reasoning_content: "Hm.",
      content: "Let me see.",
      tool_calls: [
        { id: "call_1", type: "function", function: { name: "a", arguments: "{}" } },
        { id: "call_2", type: "function", function: { name: "b", arguments: "{}" } },
      ],
    };
    const { text, completionText } = fromChatAnswer({ choices: [{ message, finish_reason: "tool_calls" }] }, factsOf());
    const whole = JSON.parse(text(USAGE));
    const { response } = streamed([chunk(message), chunk({}, "tool_calls")]);
    expect(whole).toEqual(response);
    expect(kindsOf(whole)).toEqual(["reasoning", "message", "function_call", "function_call"]);
    expect(completionText).toContain("Let me see.");
  });

  test("a whole answer above the limits has what the stream has", () => {
    const message = { role: "assistant", content: "x".repeat(OUTPUT_CHARS_MAX + 5) };
    const { text, completionChars } = fromChatAnswer({ choices: [{ message, finish_reason: "stop" }] }, factsOf());
    const { response } = streamed([chunk(message), STOP]);
    expect(JSON.parse(text(USAGE))).toEqual(response);
    expect(response).toMatchObject({ status: "incomplete", incomplete_details: { reason: "max_output_tokens" } });
    expect(completionChars).toBe(OUTPUT_CHARS_MAX + 5);
  });

  test("the response object has the fields that clients read, and those of the request", () => {
    const tools = [{ type: "function", name: "get_toll", parameters: { type: "object" } }, { type: "web_search" }];
    const { response } = streamed([chunk({ content: "3" }), STOP], {
      tools,
      instructions: "Be brief.",
      metadata: { road: "north" },
      temperature: 0.5,
    });
    expect(response).toMatchObject({
      id: "resp_0123",
      object: "response",
      created_at: 5,
      model: "chat-a",
      instructions: "Be brief.",
      metadata: { road: "north" },
      temperature: 0.5,
      top_p: null,
      tool_choice: "auto",
      tools: [tools[0]],
      parallel_tool_calls: true,
      error: null,
      incomplete_details: null,
    });
    expect(response.output[0].content[0]).toEqual({ type: "output_text", text: "3", annotations: [], logprobs: [] });
  });

  test("long instructions and tools are not repeated in a stream's events", () => {
    expect(echoOf(read({ instructions: "x".repeat(40_000) }), readTools(read({}))).length).toBeLessThan(1_000);
  });

  test("a stream's reasoning is sealed only if the client asks for it, and can be sent back", () => {
    const payloads = [chunk({ reasoning_content: "Hm." }), chunk({ content: "3" }), STOP];
    expect(streamed(payloads).response.output[0]).not.toHaveProperty("encrypted_content");
    const [item] = streamed(payloads, {}, { sealed: true }).response.output;
    expect(openReasoning(SEAL, item.encrypted_content, "")).toBe("Hm.");
    const call = { type: "function_call", id: "fc_9", call_id: "call_1", name: "a", arguments: "{}" };
    const output = { type: "function_call_output", call_id: "call_1", output: "1" };
    expect(messagesOf([{ ...item, summary: [] }, call, output])[0]).toMatchObject({ reasoning_content: "Hm." });
  });
});
