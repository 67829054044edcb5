import type { Route } from "../catalog/catalog.ts";
import { type ProviderClient, readLimited } from "../catalog/provider_client.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Body } from "./body.ts";
import { type ReportedUsage, usageOf, writtenIn } from "./chunks.ts";
import { patch, topLevelSpans } from "./json_spans.ts";
import type { OpenedStream } from "./relay.ts";
import { createSseReader } from "./sse.ts";
import type { ChatBody } from "./wire.ts";

/** Chat on the wire to a provider and back: what is patched on the way out, and what is read on the way in. */

/** An answer that is not streamed. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
const PATH = "/chat/completions";

export type ChatCall = {
  provider: ProviderClient;
  requestId: string;
  body: ChatBody;
  raw: Body;
  /** The cap that the balance pays for; null: the request goes as it came. */
  capTokens: number | null;
  signal: AbortSignal;
  firstByteMs: number;
  totalMs: number;
};

/** The body for a route: the client's bytes, with the model's upstream name, usage asked for, and the cap of the hold. */
export function chatPayload({ body, raw, capTokens }: ChatCall, route: Route): string | Uint8Array<ArrayBuffer> {
  const edits = new Map<string, string | null>();
  if (route.upstreamModel !== body.model) edits.set("model", JSON.stringify(route.upstreamModel));
  if (body.stream) {
    edits.set(
      "stream_options",
      route.streamOptions ? JSON.stringify({ ...body.stream_options, include_usage: true }) : null,
    );
  }
  if (capTokens !== null) {
    edits.set("max_tokens", null);
    edits.set("max_completion_tokens", null);
    edits.set(route.capField, String(capTokens));
  }
  const text = patch(raw.text, raw.spans, edits);
  return text === raw.text ? raw.bytes : text;
}

/** A whole answer, as the client gets it, and what it used by the provider's word. */
export type ChatAnswer = { text: string; usage: ReportedUsage | undefined; completionText: string };

/** Calls a route and reads its whole answer. Throws ProviderFailure when it is no chat completion. */
export async function fetchChatAnswer(call: ChatCall, route: Route, createdUnix: number): Promise<ChatAnswer> {
  const { provider, requestId, signal, totalMs } = call;
  const startMs = performance.now();
  const response = await provider.post(route, PATH, chatPayload(call, route), {
    signal,
    requestId,
    firstByteMs: totalMs,
    accept: "application/json",
  });
  const text = new TextDecoder().decode(
    await readLimited(response, ANSWER_BYTES_MAX, signal, totalMs - (performance.now() - startMs)),
  );
  const value = parseObject(text);
  const spans = value && topLevelSpans(text);
  if (value === undefined || spans === undefined || !Array.isArray(value.choices)) {
    throw new ProviderFailure("not_json", "the answer is not a chat completion");
  }
  const edits = new Map([["model", JSON.stringify(call.body.model)]]);
  if (typeof value.id !== "string") edits.set("id", JSON.stringify(`chatcmpl-${requestId}`));
  if (typeof value.created !== "number") edits.set("created", String(createdUnix));
  if (value.object !== "chat.completion") edits.set("object", '"chat.completion"');
  return {
    text: patch(text, spans, edits),
    usage: usageOf(value.usage),
    completionText: completionText(value.choices),
  };
}

/** Calls a route and waits for the first event of its stream. Throws ProviderFailure when there is none, or it is an error. */
export async function openChatStream(call: ChatCall, route: Route): Promise<OpenedStream> {
  const { provider, requestId, signal, firstByteMs } = call;
  const abort = new AbortController();
  const onAbort = () => abort.abort();
  signal.addEventListener("abort", onAbort, { once: true });
  const timer = setTimeout(onAbort, firstByteMs);
  try {
    const response = await provider.post(route, PATH, chatPayload(call, route), {
      signal: abort.signal,
      requestId,
      firstByteMs,
      accept: "text/event-stream",
    });
    if (!/^text\/event-stream\s*(;|$)/i.test(response.headers.get("content-type") ?? "") || response.body === null) {
      abort.abort();
      throw new ProviderFailure("not_json", "the answer is not an event stream");
    }
    const reader = response.body.getReader();
    const sse = createSseReader();
    const first = await firstPayloads(reader, sse).catch((error) => {
      abort.abort();
      throw error;
    });
    return { reader, sse, first, abort: () => abort.abort() };
  } catch (error) {
    if (error instanceof ProviderFailure || signal.aborted || !abort.signal.aborted) throw error;
    throw new ProviderFailure("timeout", "no first event in time");
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", onAbort);
  }
}

async function firstPayloads(reader: OpenedStream["reader"], sse: OpenedStream["sse"]): Promise<string[]> {
  for (;;) {
    const { done, value } = await reader.read();
    const payloads = done ? sse.end() : sse.push(value);
    const [first] = payloads;
    if (first !== undefined) {
      const event = first === "[DONE]" ? undefined : parseObject(first);
      if (event === undefined || (event.error !== undefined && event.error !== null)) {
        throw new ProviderFailure("not_json", "the stream began with an error");
      }
      return payloads;
    }
    if (done) throw new ProviderFailure("not_json", "the stream ended before it began");
  }
}

function parseObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : undefined;
  } catch {
    return undefined; // The caller says what it expected.
  }
}

/** What the model wrote, for counting where the provider did not. */
function completionText(choices: unknown[]): string {
  return choices
    .map((choice) =>
      typeof choice === "object" && choice !== null && "message" in choice ? writtenIn(choice.message) : "",
    )
    .join("\n");
}
