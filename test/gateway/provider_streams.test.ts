import { describe, expect, test } from "bun:test";
import { createParser } from "eventsource-parser";
import { DIALECT_NAMES } from "../../src/catalog/dialects.ts";
import { ChunkRewriter } from "../../src/gateway/chunks.ts";
import { type EventSink, SseReader } from "../../src/gateway/sse.ts";
import { PROVIDER_STREAMS, type ProviderStream, wireOf } from "./provider_streams.ts";

/** The client's streams for the streams of real providers, compared with the result of another parser. Source: STR-3, STR-4, STR-5. */

const MODEL = "sold/name";
const REQUEST_ID = "r1";
const EVENTS = 60;
const WORDS = [" plain", ' "quoted"', "\n\ttab", " 中文 🚦", " \\ back", "", ',"usage":', '"},"logprobs":null', " end"];
const TEXTS = Array.from({ length: EVENTS }, (_, n) => `${WORDS[n % WORDS.length]}${n}`);

type Chunk = Record<string, unknown> & { choices: { index: number; delta?: Record<string, unknown> }[] };

/** The payloads of a text of server-sent events, by another parser than ours. */
function payloadsIn(wire: string): string[] {
  const payloads: string[] = [];
  createParser({ onEvent: ({ data }) => payloads.push(data) }).feed(wire);
  return payloads;
}

const chunksIn = (wire: string): Chunk[] =>
  payloadsIn(wire)
    .filter((payload) => payload !== "[DONE]")
    .map((payload) => JSON.parse(payload));

/** The payloads that the client gets, the usage chunk of the end with them. */
function sentOf(wire: string, wantsUsage: boolean, pieceBytes: number): { sent: Chunk[]; rewriter: ChunkRewriter } {
  const reader = new SseReader();
  const rewriter = new ChunkRewriter({ requestId: REQUEST_ID, createdUnix: 5, modelId: MODEL, wantsUsage });
  const bytes = new TextEncoder().encode(wire);
  let sent = "";
  const sink: EventSink = {
    takeEvent(text, at) {
      const end = rewriter.rewriteEvent(text, at);
      if (end > 0) sent += rewriter.takeRewritten();
      return end;
    },
    takePayload(payload) {
      if (payload !== "[DONE]") sent += rewriter.rewrite(payload) ?? "";
    },
  };
  for (let at = 0; at < bytes.length; at += pieceBytes) reader.read(bytes.subarray(at, at + pieceBytes), sink);
  const usage = rewriter.usageChunk();
  if (usage !== undefined) sent += `data: ${usage}\n\n`;
  return { sent: chunksIn(sent), rewriter };
}

/** The text in a chunk's deltas, in the field that the stream uses. */
function textOf(chunks: readonly Chunk[], field: ProviderStream["field"]): string {
  type Call = { function?: { arguments?: string } };
  return chunks
    .flatMap(({ choices }) => choices)
    .map(({ delta }) => {
      if (field !== "arguments") return (delta?.[field] as string | null | undefined) ?? "";
      return ((delta?.tool_calls as Call[] | undefined) ?? []).map((call) => call.function?.arguments ?? "").join("");
    })
    .join("");
}

const idsOf = ({ id, object, created, model }: Chunk) => ({ id, object, created, model });
function othersOf({ id, object, created, model, usage, ...others }: Chunk) {
  return others;
}
/** In place of an empty list of choices, at the beginning of a stream. */
const NO_CHOICE = [{ index: 0, delta: { role: "assistant" }, finish_reason: null }];
/** A provider's payload without the fields that identify it, with the role that a delta's null stands for, and what it leaves out. */
function passedOf({ provider, x_groq, choices, ...passed }: ReturnType<typeof othersOf>) {
  const shaped = ({ delta = {}, ...choice }: Chunk["choices"][number]) => ({
    finish_reason: null,
    ...choice,
    delta: delta.role === null ? { ...delta, role: "assistant" } : delta,
  });
  return { ...passed, choices: choices.length === 0 ? NO_CHOICE : choices.map(shaped) };
}

test("there is a stream of each dialect", () => {
  const streamed = new Set(PROVIDER_STREAMS.map(({ dialect }) => dialect));
  expect(DIALECT_NAMES.filter((name) => name !== "generic" && !streamed.has(name))).toEqual([]);
  expect(new Set(PROVIDER_STREAMS.map(({ name }) => name)).size).toBe(PROVIDER_STREAMS.length);
});

describe.each(PROVIDER_STREAMS.map((stream): [string, ProviderStream] => [stream.name, stream]))("%s", (_, stream) => {
  const wire = wireOf(stream, TEXTS);
  const received = chunksIn(wire);
  const reported = received.findLast(({ usage }) => usage !== undefined && usage !== null)?.usage;
  // Sent only with the usage, if the client asked for it.
  const isUsageOnly = ({ choices, usage }: Chunk) => choices.length === 0 && usage !== undefined && usage !== null;
  const withChoices = received.filter((chunk) => !isUsageOnly(chunk));

  test.each([
    [true, 1_000_000],
    [false, 1_000_000],
    [true, 97],
    [false, 1],
  ])("usage asked for: %p, in pieces of %p bytes: every event, with its own fields, in order", (wantsUsage, bytes) => {
    const { sent, rewriter } = sentOf(wire, wantsUsage, bytes);
    const events = wantsUsage && reported !== undefined ? sent.slice(0, -1) : sent;
    expect(events.map(othersOf)).toEqual(withChoices.map((chunk) => passedOf(othersOf(chunk))));
    expect(textOf(events, stream.field)).toBe(textOf(received, stream.field));
    expect(textOf(events, stream.field).length).toBeGreaterThan(TEXTS.join("").length - 1);
    expect(rewriter.finished).toBe(true);
  });

  test("all events have one id, one creation time and the sold model name", () => {
    const { sent } = sentOf(wire, true, 1_000_000);
    const [first] = received.filter(({ id }) => id !== "");
    const isUnnamed = received[0]?.id === "";
    const expected = {
      id: isUnnamed ? `chatcmpl-${REQUEST_ID}` : first?.id,
      object: "chat.completion.chunk",
      // Of the first event, as the id is.
      created: received[0]?.created === 0 ? 5 : received[0]?.created,
      model: MODEL,
    };
    for (const chunk of sent) expect(idsOf(chunk)).toEqual(expected);
  });

  test("usage comes once, at the end, if it was requested; otherwise no event has it", () => {
    const { sent, rewriter } = sentOf(wire, true, 1_000_000);
    const told = sent.filter(({ usage }) => usage !== null);
    expect(told.map(({ usage }) => usage)).toEqual(reported === undefined ? [] : [reported]);
    if (reported !== undefined) expect(sent.at(-1)).toMatchObject({ choices: [], usage: reported });
    expect(rewriter.relayed.rawUsage).toEqual(reported);
    expect(sentOf(wire, false, 1_000_000).sent.filter((chunk) => "usage" in chunk)).toEqual([]);
  });

  test("the relayed count is that of the model's text", () => {
    const { rewriter } = sentOf(wire, false, 1_000_000);
    expect(rewriter.relayed.text).toEndWith(textOf(received, stream.field));
  });
});
