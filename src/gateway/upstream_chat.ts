import type { Model, Route } from "../catalog/catalog.ts";
import type { ProviderClient } from "../catalog/provider_client.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Body } from "../http/body.ts";
import { DuplicateField, patch, type Span, topLevelSpans } from "../http/json_spans.ts";
import { deadline } from "../platform/deadline.ts";
import { Stop } from "../platform/stop.ts";
import { type ReportedUsage, reportedUsageOf, writtenIn } from "./chunks.ts";
import type { Attempt } from "./dispatch.ts";
import { type Sifted, sift } from "./parameters.ts";
import type { OpenedStream, ProviderRead } from "./relay.ts";
import type { ChatBody } from "./request_shapes.ts";
import { OversizedEvent, SseReader } from "./sse.ts";

/** Chat on the wire to a provider and back: what is patched on the way out, and what is read on the way in. */

/** An answer that is not streamed. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
const PATH = "/chat/completions";

export type ChatCall = Attempt & {
  provider: ProviderClient;
  requestId: string;
  body: ChatBody;
  raw: Body;
  /** By what any of the model's routes allows. */
  sifted: Sifted;
  model: Pick<Model, "allowedParams">;
  /** The cap that the balance pays for; null: the request goes as it came. */
  capTokens: number | null;
  firstByteMs: number;
  totalMs: number;
};

/** What goes to a provider. `dropped`: the parameters that were left out, for the header `x-dropped-params`. */
export type Payload = { text: string; dropped: string | undefined };

/**
 * The body for a route: the client's bytes, without what is not sent on, with the model's upstream name, usage asked for, and the
 * cap of the hold.
 */
export function chatPayload({ body, raw, sifted, model, capTokens }: ChatCall, route: Route): Payload {
  const { allowedParams: allowed } = route;
  // Nearly always no route allows more than another, and what the bound was made of is what is sent.
  const isSame = allowed.size === model.allowedParams.size;
  const { changed, dropped } = isSame ? sifted : sift({ kind: "chat", body, spans: raw.spans, allowed });
  const edits = new Map<string, string | null>();
  for (const [name, value] of changed) edits.set(name, value === undefined ? null : JSON.stringify(value));
  if (route.upstreamModel !== body.model) edits.set("model", JSON.stringify(route.upstreamModel));
  if (body.stream) {
    const options = changed.get("stream_options") ?? body.stream_options;
    edits.set(
      "stream_options",
      route.streamOptions ? JSON.stringify({ ...Object(options), include_usage: true }) : null,
    );
  }
  if (capTokens !== null) {
    edits.set("max_tokens", null);
    edits.set("max_completion_tokens", null);
    edits.set(route.capField, String(capTokens));
  }
  return { text: patch(raw.text, raw.spans, edits), dropped };
}

/** A whole answer, as the client gets it; what it used, by the provider's word; and what the model wrote in it. */
export type ChatAnswer = {
  text: string;
  usage: ReportedUsage | undefined;
  /** The provider's usage object as it came. */
  rawUsage: unknown;
  completionText: string;
  dropped: string | undefined;
};

/** Calls a route and reads its whole answer. Throws ProviderFailure when it is no chat completion. */
export async function fetchChatAnswer(call: ChatCall, route: Route, createdUnix: number): Promise<ChatAnswer> {
  const { provider, requestId, traceparent, beforeSend, signal, totalMs } = call;
  const limits = { signal, requestId, traceparent, beforeSend, totalMs, bytesMax: ANSWER_BYTES_MAX };
  const payload = chatPayload(call, route);
  const text = await provider.postWhole(route, PATH, payload.text, limits);
  const answer = parseObject(text);
  if (answer === undefined || !Array.isArray(answer.value.choices)) {
    throw new ProviderFailure("not_json", "the answer is not a chat completion");
  }
  const { value, spans } = answer;
  const edits = new Map<string, string>();
  if (value.model !== call.body.model) edits.set("model", JSON.stringify(call.body.model));
  if (typeof value.id !== "string") edits.set("id", JSON.stringify(`chatcmpl-${requestId}`));
  if (typeof value.created !== "number") edits.set("created", String(createdUnix));
  if (value.object !== "chat.completion") edits.set("object", '"chat.completion"');
  return {
    text: patch(text, spans, edits),
    usage: reportedUsageOf(value.usage),
    rawUsage: value.usage,
    completionText: completionText(answer.value.choices),
    dropped: payload.dropped,
  };
}

export type OpenedChat = OpenedStream & Pick<Payload, "dropped">;

/** Calls a route and waits for the first event of its stream. Throws ProviderFailure when there is none, or it is an error. */
export async function openChatStream(call: ChatCall, route: Route): Promise<OpenedChat> {
  const { provider, requestId, traceparent, beforeSend, signal, firstByteMs } = call;
  const payload = chatPayload(call, route);
  const stop = new Stop();
  const onAbort = () => stop.stop();
  signal.addEventListener("abort", onAbort, { once: true });
  let late = false;
  const stopClock = deadline(firstByteMs, () => {
    late = true;
    stop.stop();
  });
  try {
    const response = await provider.post(route, PATH, payload.text, {
      signal: stop,
      requestId,
      traceparent,
      beforeSend,
      firstByteMs,
      accept: "text/event-stream",
    });
    call.onHeaders();
    if (response.body === null) throw new ProviderFailure("not_json", "the answer is not an event stream");
    const reader = response.body.getReader();
    const sse = new SseReader();
    const first = await firstPayloads(reader, sse);
    return { reader, sse, first, call: stop, dropped: payload.dropped };
  } catch (error) {
    // Whatever was wrong with it: nothing more of it is wanted.
    stop.stop();
    if (late && !signal.aborted)
      throw new ProviderFailure("timeout", "no first event in time", { limit: "provider_first_byte" });
    throw error instanceof OversizedEvent ? new ProviderFailure("oversized", error.message) : error;
  } finally {
    stopClock();
    signal.removeEventListener("abort", onAbort);
  }
}

/** The payloads up to and with the first one, which is a chunk. Throws ProviderFailure, OversizedEvent. */
async function firstPayloads(reader: OpenedStream["reader"], sse: OpenedStream["sse"]): Promise<string[]> {
  for (;;) {
    const { done, value } = await firstBytes(reader);
    const payloads = done ? sse.end() : sse.push(value);
    const [first] = payloads;
    if (first !== undefined) {
      const event = first === "[DONE]" ? undefined : parseObject(first)?.value;
      if (event === undefined || (event.error !== undefined && event.error !== null)) {
        throw new ProviderFailure("not_json", "the stream began with an error");
      }
      return payloads;
    }
    if (done) throw new ProviderFailure("not_json", "the stream ended before it began");
  }
}

async function firstBytes(reader: OpenedStream["reader"]): Promise<ProviderRead> {
  try {
    return await reader.read();
  } catch {
    throw new ProviderFailure("cut", "the stream broke off before its first event");
  }
}

type JsonObject = { value: Record<string, unknown>; spans: Map<string, Span> };

/** A JSON object with its fields' places; undefined where the text is none, or a field stands twice: the caller says what it expected. */
function parseObject(text: string): JsonObject | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const spans = topLevelSpans(text);
    if (typeof value !== "object" || value === null || Array.isArray(value) || spans === undefined) return undefined;
    return { value: value as Record<string, unknown>, spans };
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof DuplicateField) return undefined;
    throw error;
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
