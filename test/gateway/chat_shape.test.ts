import { describe, expect, test } from "bun:test";
import { ChoiceRepair, createdOf } from "../../src/gateway/chat_shape.ts";
import { ChunkRewriter } from "../../src/gateway/chunks.ts";

/** Answers of providers in the shape of OpenAI's schema. Source: STR-6. */

type Fields = Record<string, unknown>;

test.each<[string, unknown, number]>([
  ["whole seconds", 1_763_856_000, 1_763_856_000],
  ["a fraction", 1_763_856_000.53, 1_763_856_000],
  ["milliseconds", 1_763_856_000_530, 1_763_856_000],
  ["microseconds", 1_763_856_000_530_000, 1_763_856_000],
  ["nanoseconds", 1_763_856_000_530_000_000, 1_763_856_000],
  ["a text", "1763856000.53", 1_763_856_000],
  ["an ISO time", "2025-11-23T00:00:00.530Z", 1_763_856_000],
  ["nothing", undefined, 7],
  ["zero", 0, 7],
  ["a negative number", -5, 7],
  ["a word", "now", 7],
  ["infinity", Number.POSITIVE_INFINITY, 7],
])("created: %s", (_, created, expected) => {
  expect(createdOf(created, 7)).toBe(expected);
});

const whole = (choice: Fields) => new ChoiceRepair("r1", "message").repaired([choice])[0] as Fields;
const said = (message: Fields) => whole({ index: 0, message, finish_reason: "stop" }).message as Fields;
const GOOD = { index: 0, message: { role: "assistant", content: "Tolls." }, finish_reason: "stop" };

describe("whole answers", () => {
  test("what is good stays the same object", () => {
    const choices = [GOOD, { ...GOOD, index: 1 }];
    expect(new ChoiceRepair("r1", "message").repaired(choices)).toBe(choices);
  });

  test("a missing index is the place, a missing role the assistant's, missing content null, a missing finish_reason stop", () => {
    const repair = new ChoiceRepair("r1", "message");
    const choices = [{ message: { content: "a" } }, { message: { role: "assistant" }, finish_reason: "stop" }];
    expect(repair.repaired(choices)).toEqual([
      { index: 0, message: { role: "assistant", content: "a" }, finish_reason: "stop" },
      { index: 1, message: { role: "assistant", content: null }, finish_reason: "stop" },
    ]);
  });

  test("tool calls get an id and a type, and arguments that are an object become its JSON", () => {
    const calls = [
      { function: { name: "a", arguments: { x: 1 } } },
      { id: "c2", type: "function", function: { name: "b", arguments: "{}" } },
      { id: "", function: { name: "c", arguments: [1] } },
    ];
    expect(said({ role: "assistant", content: null, tool_calls: calls }).tool_calls).toEqual([
      { id: "call_r1_0_0", type: "function", function: { name: "a", arguments: '{"x":1}' } },
      { id: "c2", type: "function", function: { name: "b", arguments: "{}" } },
      { id: "call_r1_0_2", type: "function", function: { name: "c", arguments: "[1]" } },
    ]);
    expect(said({ role: "assistant", content: null, function_call: { name: "a", arguments: { x: 1 } } })).toEqual({
      role: "assistant",
      content: null,
      tool_calls: [{ id: "call_r1_0_0", type: "function", function: { name: "a", arguments: '{"x":1}' } }],
    });
  });

  test("a content that is a list: text, and what the model thought; other parts beside it", () => {
    const image = { type: "image_url", image_url: { url: "data:," } };
    const content = [
      { type: "thinking", thinking: [{ type: "text", text: "Hm. " }] },
      { type: "reasoning", text: "So." },
      { type: "text", text: "Tolls" },
      image,
      { text: " cost." },
    ];
    expect(said({ role: "assistant", content })).toEqual({
      role: "assistant",
      content: "Tolls cost.",
      reasoning_content: "Hm. So.",
      content_parts: [image],
    });
    expect(said({ role: "assistant", content: [] }).content).toBe("");
    expect(said({ role: "assistant", content, reasoning_content: "Hm." }).reasoning_content).toBe("Hm.");
  });

  test.each([
    ["model_length", "length"],
    ["MAX_TOKENS", "length"],
    ["sensitive", "content_filter"],
    ["SAFETY", "content_filter"],
    ["end_turn", "stop"],
    ["tool_use", "tool_calls"],
    ["stop", "stop"],
    ["x_other", "stop"],
    ["content_filter: PROHIBITED_CONTENT", "content_filter"],
    ["maxPredictedTokensReached", "length"],
  ])("the finish_reason %s is %s", (reason, expected) => {
    expect(whole({ ...GOOD, finish_reason: reason }).finish_reason).toBe(expected);
  });
});

/** The choices that a client gets for a stream of chunks with these choices. */
function streamed(...chunks: Fields[][]): Fields[] {
  const rewriter = new ChunkRewriter({ requestId: "r1", createdUnix: 7, modelId: "m", wantsUsage: false });
  return chunks.flatMap((choices, n) => {
    const event = rewriter.rewrite(JSON.stringify({ id: `c${n}`, created: 1_763_856_000 + n, model: "x", choices }));
    return JSON.parse(event?.slice("data: ".length) ?? "").choices;
  });
}

/** The tool calls of a stream whose deltas have these. */
function callsOf(...deltas: Fields[][]) {
  const choices = streamed(...deltas.map((tool_calls) => [{ index: 0, delta: { tool_calls }, finish_reason: null }]));
  return choices.flatMap(({ delta }) => (delta as { tool_calls: Fields[] }).tool_calls);
}
const begin = (name: string, more: Fields = {}, args: unknown = "") => ({
  ...{ type: "function", function: { name, arguments: args } },
  ...more,
});
const more = (args: unknown, over: Fields = {}) => ({ function: { arguments: args }, ...over });

describe("streams", () => {
  test("the first delta of each choice has a role, and every choice an index", () => {
    const text = (content: string) => ({ delta: { content }, finish_reason: null });
    const choices = streamed([text("a")], [text("b")], [text("c")], [text("d"), text("e")], [text("f"), text("g")]);
    expect(choices.map(({ index, delta }) => [index, ...Object.values(delta as Fields)])).toEqual([
      [0, "a", "assistant"],
      [0, "b"],
      [0, "c"],
      [0, "d"],
      [1, "e", "assistant"],
      [0, "f"],
      [1, "g"],
    ]);
  });

  test("contents that are lists become text in every chunk, also on the fast path", () => {
    const part = (type: string, text: string) => [
      { index: 0, delta: { content: [{ type, [type]: text }] }, finish_reason: null },
    ];
    const texts = Array.from({ length: 12 }, (_, n) => ` word "${n}"`);
    const chunks = [...texts.map((text) => part("thinking", text)), ...texts.map((text) => part("text", text))];
    const deltas = streamed(...chunks).map(({ delta }) => delta as Fields);
    expect(deltas.slice(0, 12).map(({ reasoning_content }) => reasoning_content)).toEqual(texts);
    expect(deltas.slice(12).map(({ content }) => content)).toEqual(texts);
    expect(deltas.slice(12).every((delta) => !("reasoning_content" in delta))).toBe(true);
  });

  test("calls without an index are numbered by their id", () => {
    const calls = callsOf(
      [begin("a", { id: "x" })],
      [more("1", { id: "x" })],
      [begin("b", { id: "y" })],
      [more("2", { id: "y" })],
      [more("3", { id: "x" })],
    );
    // Only the beginning of a call has the id: some clients would join the texts.
    expect(calls.map(({ index, id }) => [index, id])).toEqual([
      [0, "x"],
      [0, undefined],
      [1, "y"],
      [1, undefined],
      [0, undefined],
    ]);
  });

  test("parts that continue a call repeat nothing, and have no nulls", () => {
    const calls = callsOf(
      [{ index: 0, id: "x", type: "function", function: { name: "a", arguments: null } }],
      [{ index: 0, id: "x", type: "function", function: { name: "a", arguments: "1" } }],
      [{ index: "0", id: null, type: null, function: { name: null, arguments: "2" } }],
      [{ index: 0, id: "", type: "", function: { name: "", arguments: "3" } }],
    );
    expect(calls).toEqual([
      { index: 0, id: "x", type: "function", function: { name: "a", arguments: "" } },
      { index: 0, function: { arguments: "1" } },
      { index: 0, function: { arguments: "2" } },
      { index: 0, function: { arguments: "3" } },
    ]);
  });

  test("calls without an index and an id are numbered by their order, and get ids", () => {
    const calls = callsOf([begin("a"), begin("b")], [more("1"), more("2")], [begin("c")], [more("3")]);
    expect(calls.map(({ index, id }) => [index, id])).toEqual([
      [0, "call_r1_0_0"],
      [1, "call_r1_0_1"],
      [0, undefined],
      [1, undefined],
      [2, "call_r1_0_2"],
      [2, undefined],
    ]);
  });

  test("calls that all have the index 0 are told apart by their ids, also on the fast path", () => {
    const args = Array.from({ length: 12 }, (_, n) => more(`${n}`, { index: 0 }));
    const one = (id: string) => [[begin("f", { index: 0, id })], ...args.map((arg) => [arg])];
    const calls = callsOf(...one("x"), ...one("y"));
    expect(calls.map(({ index }) => index)).toEqual([...Array(13).fill(0), ...Array(13).fill(1)]);
    expect(calls[13]).toMatchObject({ id: "y", index: 1 });
  });

  test("a good stream of calls passes unchanged", () => {
    const deltas = [
      begin("a", { index: 0, id: "x" }),
      more("1", { index: 0 }),
      begin("b", { index: 1, id: "y" }),
      more("2", { index: 1 }),
    ];
    expect(callsOf(...deltas.map((delta) => [delta]))).toEqual(deltas);
  });

  test("arguments that are an object are sent as its JSON, and count as written", () => {
    const rewriter = new ChunkRewriter({ requestId: "r1", createdUnix: 7, modelId: "m", wantsUsage: false });
    const tool_calls = [begin("f", { index: 0, id: "x" }, { road: "A1" })];
    const event = rewriter.rewrite(
      JSON.stringify({ choices: [{ index: 0, delta: { role: "assistant", tool_calls } }] }),
    );
    expect(event).toContain(JSON.stringify('{"road":"A1"}'));
    expect(rewriter.relayed.text).toBe('f{"road":"A1"}');
  });

  test("created is in whole seconds, and the same in all chunks", () => {
    const rewriter = new ChunkRewriter({ requestId: "r1", createdUnix: 7, modelId: "m", wantsUsage: true });
    for (let n = 0; n < 12; n++) {
      const choices = [{ index: 0, delta: { role: "assistant", content: `w${n}` } }];
      const event = rewriter.rewrite(JSON.stringify({ id: `c${n}`, created: 1_763_856_000_000 + n, choices })) ?? "";
      expect(JSON.parse(event.slice("data: ".length))).toMatchObject({ id: "c0", created: 1_763_856_000, choices });
    }
  });
});
