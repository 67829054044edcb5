import { describe, expect, test } from "bun:test";
import type { StreamRewriter } from "../../src/gateway/chunks.ts";
import { ResponseEvents } from "../../src/gateway/responses/from_chat.ts";
import { OwnEvents } from "../../src/gateway/responses/own_responses.ts";
import { ToolNames } from "../../src/gateway/responses/tools.ts";
import { type EventSink, SseReader } from "../../src/gateway/sse.ts";
import { PROVIDER_STREAMS, wireOf } from "./provider_streams.ts";
import { checkLifeCycle, readEvents } from "./response_events.ts";
import { RESPONSES_STREAMS } from "./responses_streams.ts";

/**
 * Events that are recognized by their frame are sent, and counted, as if each had been parsed. The streams are those of real providers.
 * Source: STR-5, RSP-9.
 */

const TEXTS = 400;
const WORDS = [
  " plain",
  ' "quoted"',
  "\n\ttab",
  " 中文 🚦",
  " \\ back",
  "",
  '","item_id":',
  '"},"logprobs":null',
  "\ud83d",
  "\udea6",
];
const SAID = Array.from({ length: TEXTS }, (_, n) => `${WORDS[n % WORDS.length]}${n % 4 === 0 ? n : ""}`);
const response = { id: "resp_1", createdUnix: 5, modelId: "sold", metadata: "{}", echo: '"tools":[]' };
const COUNTED = { promptTokens: 11, cachedTokens: 0, completionTokens: 7 };

type Streamed = { sent: string; taken: number; relayed: StreamRewriter["relayed"]; last: string };

/** What the client gets of a stream. Without frames, each event is parsed. */
function streamed(
  wire: string,
  rewriter: StreamRewriter,
  { pieceBytes, hasFrames }: { pieceBytes: number; hasFrames: boolean },
): Streamed {
  const reader = new SseReader();
  let sent = "";
  let taken = 0;
  const sink: EventSink = {
    takeEvent(text, at) {
      const end = hasFrames ? rewriter.rewriteEvent(text, at) : -1;
      if (end > 0) {
        sent += rewriter.rewritten;
        taken++;
      }
      return end;
    },
    takePayload(payload) {
      if (payload !== "[DONE]") sent += rewriter.rewrite(payload) ?? "";
    },
  };
  const bytes = new TextEncoder().encode(wire);
  let last: string;
  try {
    for (let at = 0; at < bytes.length; at += pieceBytes) reader.read(bytes.subarray(at, at + pieceBytes), sink);
    rewriter.counted?.(COUNTED);
    last = rewriter.finished ? rewriter.lastEvents() : rewriter.errorEvents(undefined);
  } catch (error) {
    last = `${error instanceof Error ? error.name : error}: ${rewriter.errorEvents(undefined)}`;
  }
  return { sent, taken, relayed: rewriter.relayed, last };
}

/** Streams with and without frames, which must not differ. */
function expectSame(wire: string, make: () => StreamRewriter, pieceBytes: number): Streamed {
  const framed = streamed(wire, make(), { pieceBytes, hasFrames: true });
  const { taken, ...parsed } = streamed(wire, make(), { pieceBytes, hasFrames: false });
  expect({ ...framed, taken }).toEqual({ ...parsed, taken });
  return framed;
}

const translated = () => new ResponseEvents({ response, names: new ToolNames(), seal: undefined });
const own = () => new OwnEvents(response);
const ownWire = ({ opening, event, ending }: (typeof RESPONSES_STREAMS)[number], texts = SAID) =>
  opening + texts.map(event).join("") + ending(texts.join(""), texts.length);
const PIECES = [1_000_000, 4_001, 61];

describe.each(PROVIDER_STREAMS.map((stream) => [stream.name, stream] as const))("translated: %s", (_, stream) => {
  test.each(PIECES)("in pieces of %d bytes", (pieceBytes) => {
    const { sent, last } = expectSame(wireOf(stream, SAID), translated, pieceBytes);
    expect(checkLifeCycle(readEvents(sent + last)).status).toBe("completed");
  });
});

test("most chunks of a plain stream are recognized", () => {
  const [plain] = PROVIDER_STREAMS;
  if (plain === undefined) throw new Error("there are no shapes");
  expect(expectSame(wireOf(plain, SAID), translated, 4_001).taken).toBeGreaterThan(0.7 * TEXTS);
});

describe.each(RESPONSES_STREAMS.map((stream) => [stream.name, stream] as const))("passed through: %s", (_, stream) => {
  test.each(PIECES)("in pieces of %d bytes", (pieceBytes) => {
    const wire = ownWire(stream);
    const { sent, last, taken } = expectSame(wire, own, pieceBytes);
    // An event is recognized if all its lines arrive together.
    if (pieceBytes > 1_000) expect(taken).toBeGreaterThan(0.7 * TEXTS);
    expect(checkLifeCycle(readEvents(sent + last))).toMatchObject({ status: "completed", model: "sold" });
    // What broke off has the texts that had arrived.
    expectSame(wire.slice(0, wire.length / 2), own, pieceBytes);
  });

  test.each([
    { what: "a quote inside a text", from: '"delta":"X"', to: '"delta":"X"X"' },
    { what: "an escape that is none", from: '"delta":"X"', to: '"delta":"\\x"' },
    { what: "a line break inside a text", from: '"delta":"X"', to: '"delta":"X\nX"' },
    { what: "a text that is a number", from: '"delta":"X"', to: '"delta":1' },
    { what: "a number with a zero in front", from: '"sequence_number":9', to: '"sequence_number":09' },
    { what: "a fraction", from: '"sequence_number":9', to: '"sequence_number":9.5' },
    { what: "other letters", from: '"obfuscation":"', to: '"obfuscation":"é ' },
    { what: "another item", from: '"output_index":0', to: '"output_index":1' },
    { what: "a field more", from: '"logprobs":[]', to: '"logprobs":[],"more":{}' },
    { what: "another type behind the same name", from: '{"type":"response.output_text.delta"', to: '{"type":"error"' },
    { what: "another name of the event", from: "event: response.output_text.delta", to: "event: a" },
    { what: "a text over two lines of data", from: '"delta":"X"', to: '"delta":\ndata: "X"' },
    { what: "a long payload", from: '"logprobs":[]', to: `"logprobs":["${"x".repeat(5_000)}"]` },
    { what: "no blank line", from: "}\n\n", to: "}\n" },
  ])("an event with $what is treated as if it had been parsed", ({ from, to }) => {
    const { opening, event, ending } = stream;
    const events = Array.from({ length: 10 }, (_, n) => event("X", n));
    expect(events[5]).toContain(from);
    events[5] = (events[5] ?? "").replace(from, to);
    expectSame(opening + events.join("") + ending("XXXXXXXXXX", 10), own, 1_000_000);
    const all = events.map((one) => one.replace(from, to));
    expectSame(opening + all.join("") + ending("XXXXXXXXXX", 10), own, 1_000_000);
  });
});
