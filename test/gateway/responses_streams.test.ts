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
