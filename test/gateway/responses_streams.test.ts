import { expect, test } from "bun:test";
import type { StreamRewriter } from "../../src/gateway/chunks.ts";
import { ResponseEvents } from "../../src/gateway/responses/from_chat.ts";
import { OwnEvents } from "../../src/gateway/responses/own_responses.ts";
import { ToolNames } from "../../src/gateway/responses/tools.ts";
import { SseReader } from "../../src/gateway/sse.ts";
import { PROVIDER_STREAMS, wireOf } from "./provider_streams.ts";
import { checkLifeCycle, readEvents } from "./response_events.ts";
import { RESPONSES_STREAMS } from "./responses_streams.ts";

/** What a client gets as a response of the streams of real providers, however their bytes are cut. Source: STR-5, RSP-9. */

const WORDS = [" plain", ' "quoted"', "\n\ttab", " 中文 🚦", " \\ back", '","item_id":', "\ud83d", "\udea6"];
const TEXTS = Array.from({ length: 40 }, (_, n) => WORDS[n % WORDS.length] ?? "");
const PIECES = [100_000, 4_001, 61];
const response = {
  id: "resp_1",
  createdUnix: 5,
  modelId: "sold",
  metadata: "{}",
  previousResponseId: null,
  store: false,
  echo: '"tools":[]',
};

/** The whole stream that the client gets. */
function sentOf(wire: string, rewriter: StreamRewriter, pieceBytes: number): string {
  const reader = new SseReader();
  const bytes = new TextEncoder().encode(wire);
  let sent = "";
  for (let at = 0; at < bytes.length; at += pieceBytes)
    for (const payload of reader.push(bytes.subarray(at, at + pieceBytes)))
      if (payload !== "[DONE]") sent += rewriter.rewrite(payload) ?? "";
  rewriter.counted?.({ promptTokens: 11, cachedTokens: 0, completionTokens: 7 });
  return sent + rewriter.lastEvents();
}

test.each(PROVIDER_STREAMS)("translated: $name", (stream) => {
  for (const pieceBytes of PIECES) {
    const rewriter = new ResponseEvents({ response, names: new ToolNames(), seal: undefined });
    const ended = checkLifeCycle(readEvents(sentOf(wireOf(stream, TEXTS), rewriter, pieceBytes)));
    expect(ended).toMatchObject({ status: "completed", model: "sold", usage: { total_tokens: 18 } });
    expect(JSON.stringify(ended.output)).toContain("plain");
  }
});

test.each(RESPONSES_STREAMS)("passed through: $name", ({ opening, event, ending }) => {
  const said = TEXTS.join("");
  const wire = opening + TEXTS.map(event).join("") + ending(said, TEXTS.length);
  for (const pieceBytes of PIECES) {
    const sent = sentOf(wire, new OwnEvents(response), pieceBytes);
    const ended = checkLifeCycle(readEvents(sent));
    expect(ended).toMatchObject({ status: "completed", model: "sold", usage: { total_tokens: 18 } });
    expect(ended.output[0].content[0].text).toBe(said);
    // All but the last event is as the provider sent it, with the model's name and the gateway's id of the response.
    const upTo = (text: string) => text.slice(0, text.indexOf("event: response.completed"));
    expect(upTo(sent)).toBe(
      upTo(wire)
        .replaceAll("gpt-4o-mini-2024-07-18", "sold")
        .replace(/"id":"resp_\w+"/g, '"id":"resp_1"'),
    );
  }
});

/** As llama-server b10434 sends them: without numbers, and with few fields of the response. Source: RSP-13. */
const BARE = [
  { type: "response.created", response: { id: "resp_a6f", object: "response", status: "in_progress" } },
  { type: "response.in_progress", response: { id: "resp_a6f", object: "response", status: "in_progress" } },
  {
    type: "response.output_item.added",
    item: { content: [], id: "msg_hsA", role: "assistant", status: "in_progress", type: "message" },
  },
  { type: "response.content_part.added", item_id: "msg_hsA", part: { type: "output_text", text: "" } },
  { type: "response.output_text.delta", item_id: "msg_hsA", delta: "Anna and" },
  { type: "response.output_text.delta", item_id: "msg_hsA", delta: " Aluffy" },
];
const BARE_ITEM = {
  ...{ type: "message", status: "completed", id: "msg_hsA", role: "assistant" },
  content: [{ type: "output_text", annotations: [], logprobs: [], text: "Anna and Aluffy" }],
};
const BARE_END = [
  { type: "response.output_text.done", item_id: "msg_hsA", text: "Anna and Aluffy" },
  { type: "response.content_part.done", item_id: "msg_hsA", part: BARE_ITEM.content[0] },
  { type: "response.output_item.done", item: BARE_ITEM },
  {
    type: "response.completed",
    response: {
      ...{ id: "resp_a6f", object: "response", created_at: 1795837018, status: "completed", model: "stories260K" },
      output: [BARE_ITEM],
      usage: { input_tokens: 6, output_tokens: 12, total_tokens: 18, input_tokens_details: { cached_tokens: 5 } },
    },
  },
];
const wireOfBare = (events: readonly { type: string }[]) =>
  events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join("");

test("a provider's own stream whose events have no numbers gets them, and what its responses lack", () => {
  const sent = readEvents(sentOf(wireOfBare([...BARE, ...BARE_END]), new OwnEvents(response), 61));
  const ended = checkLifeCycle(sent);
  expect(ended).toMatchObject({ status: "completed", model: "sold", tools: [], error: null, created_at: 1795837018 });
  const events = [...sent] as { sequence_number: number; output_index?: number; content_index?: number }[];
  expect(events.map(({ sequence_number: number }) => number)).toEqual(events.map((_, i) => i));
  expect(events.slice(2, -1).map(({ output_index: index }) => index)).toEqual(events.slice(2, -1).map(() => 0));
  expect(events[4]).toMatchObject({ content_index: 0 });
});

test("of such a stream that breaks off, what has arrived is in the last event", () => {
  const events = new OwnEvents(response);
  for (const event of BARE) events.rewrite(JSON.stringify(event));
  const [failed] = readEvents(events.errorEvents(undefined));
  expect(failed).toMatchObject({ type: "response.failed", sequence_number: BARE.length });
  expect(JSON.stringify(failed)).toContain("Anna and Aluffy");
});

test("of a sound, what is said counts if the client leaves, and not its data", () => {
  const events = new OwnEvents(response);
  for (const [type, delta] of [
    ["response.audio.delta", "UklGRiQAAABXQVZF".repeat(1_000)],
    ["response.audio.transcript.delta", "Hello"],
  ])
    events.rewrite(JSON.stringify({ type, delta }));
  expect(events.relayed).toMatchObject({ text: "Hello", chars: 5 });
});

test("an event that is too large ends a provider's own stream as complete only if it has brought text; one that reports a failure never does", () => {
  const text = JSON.stringify({ type: "response.output_text.delta", output_index: 0, content_index: 0, delta: "Hi" });
  const events = new OwnEvents(response);
  events.oversized();
  expect(events.finished).toBe(false);
  events.rewrite(text);
  for (const type of ["response.failed", "error"])
    expect(() => events.rewrite(JSON.stringify({ type, response: { status: "failed" } }))).toThrow("an error event");
  expect(events.finished).toBe(false);
  events.oversized();
  expect([events.finished, events.relayed.text]).toEqual([true, "Hi"]);
});
