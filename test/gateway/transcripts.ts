import { createParser } from "eventsource-parser";
import { ChoiceRepair } from "../../src/gateway/chat_shape.ts";

/** Streams as a provider may send them, and the expected output of a relay, computed by another parser. */

type Choice = { index: number; delta: unknown; finish_reason: string | null };
type Chunk = Record<string, unknown> & { choices: Choice[] };

/** What a provider sends, chunk by chunk, and its text on the wire. */
export type Transcript = { bytes: Uint8Array; chunks: Chunk[] };
export type UsageIn = "own" | "finish" | "every" | "none";

export const UPSTREAM = { id: "chatcmpl-7", created: 1_700_000_000, model: "up" };
export const USAGE = { prompt_tokens: 11, completion_tokens: 7, total_tokens: 18 };

/**
 * An answer with all the features of providers' streams: characters of two to four bytes, every line ending, comments, fields other
 * than data, an event on several lines, reasoning, a tool's call in parts, and usage in one of three places.
 */
export function richTranscript(usageIn: UsageIn): Transcript {
  const every = usageIn === "every" ? { usage: USAGE } : {};
  const chunk = (delta: unknown, finish: string | null = null, over: Record<string, unknown> = {}): Chunk => ({
    ...UPSTREAM,
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta, finish_reason: finish }],
    ...every,
    ...over,
  });
  const call = (fields: Record<string, unknown>) => ({ tool_calls: [{ index: 0, ...fields }] });
  const chunks = [
    chunk({ role: "assistant", content: "" }),
    chunk({ reasoning_content: "hm, é" }),
    chunk({ content: '中文 🚦\n\n"data: [DONE]"' }, null, { x_vendor: { id: 1, deep: ["ł"] } }),
    chunk(call({ id: "call_1", type: "function", function: { name: "f", arguments: '{"a":' } })),
    chunk(call({ function: { arguments: '"\u2028"}' } })),
    chunk({}, "tool_calls", usageIn === "finish" ? { usage: USAGE } : {}),
    ...(usageIn === "own" ? [{ ...chunk({}), choices: [], usage: USAGE }] : []),
  ];
  const [role, thought, text, begun, rest, finish, ...usage] = chunks.map((one) => JSON.stringify(one));
  const wire = [
    ": connected\r\n\r\n",
    `data: ${role}\n\n: keep-alive\n\n`,
    `event: chunk\r\nid: 7\r\ndata:${thought}\r\n\r\n`,
    `retry: 10\rdata: ${text}\r\r`,
    `data: {\r\ndata: ${begun?.slice(1, -1)}\ndata:}\r\r\n`,
    `: still here\n\n\n\ndata: ${rest}\n\r\n`,
    `data: ${finish}\n\n`,
    ...usage.map((one) => `data: ${one}\n\n`),
    "data: [DONE]\n\n",
  ];
  return { bytes: new TextEncoder().encode(wire.join("")), chunks };
}

/** A short one, for tests that need a connection for every byte. */
export function shortTranscript(): Transcript {
  const chunk = (delta: unknown, finish: string | null): Chunk => ({
    ...UPSTREAM,
    object: "chat.completion.chunk",
    choices: [{ index: 0, delta, finish_reason: finish }],
  });
  const chunks = [chunk({ content: "é 中" }, null), chunk({ content: "🚦" }, null), chunk({}, "stop")];
  const all = [...chunks, { ...chunk({}, null), choices: [], usage: USAGE }];
  const [first, second, ...others] = all.map((one) => JSON.stringify(one));
  const wire = [`data: ${first}\n\n: ping\r\n\r\ndata: ${second}\r\n\r\n`, ...others.map((one) => `data: ${one}\n\n`)];
  return { bytes: new TextEncoder().encode(`${wire.join("")}data: [DONE]\n\n`), chunks: all };
}

/** The payloads that are complete in these bytes, as another parser reads them. */
export function payloadsIn(bytes: Uint8Array): string[] {
  const payloads: string[] = [];
  const parser = createParser({ onEvent: ({ data }) => payloads.push(data) });
  // The colon shows that no LF follows a CR at the end; the line that it begins never ends.
  parser.feed(`${new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes)}:`);
  return payloads.filter((payload) => payload !== "");
}

/** The chunk that the client of model `modelId` must get for each chunk; undefined if it gets none, or only at the end. */
export function relayedChunks(
  chunks: readonly Chunk[],
  { modelId, wantsUsage }: { modelId: string; wantsUsage: boolean },
): (Chunk | undefined)[] {
  const shape = new ChoiceRepair("", "delta");
  return chunks.map(({ usage, ...chunk }) => {
    const choices = shape.repaired(chunk.choices);
    if (usage !== undefined && chunk.choices.length === 0) return undefined;
    return { ...chunk, choices, model: modelId, ...(wantsUsage && { usage: null }) } as Chunk;
  });
}
