import type { Model, Route } from "../catalog/catalog.ts";
import type { ProviderClient } from "../catalog/provider_client.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Body } from "../http/body.ts";
import { patch, topLevelSpans } from "../http/json_spans.ts";
import { DuplicateField, type Span } from "../http/json_text.ts";
import { deadline } from "../platform/deadline.ts";
import { Stop } from "../platform/stop.ts";
import { type ReportedUsage, reportedUsageOf, writtenIn } from "./chunks.ts";
import type { Attempt } from "./dispatch.ts";
import { type Filtered, filterParameters } from "./parameters.ts";
import type { OpenedStream, ProviderRead } from "./relay.ts";
import type { ChatBody } from "./request_shapes.ts";
import { OversizedEvent, SseReader } from "./sse.ts";

/** Chat requests to a provider and its answers: what is changed in the body on the way out, and what is read on the way back. */

/** Maximum size of an answer that is not streamed. */
const ANSWER_BYTES_MAX = 32 * 1024 * 1024;
const PATH = "/chat/completions";

export type ChatCall = Attempt & {
  provider: ProviderClient;
  requestId: string;
  body: ChatBody;
  raw: Body;
  /** The body filtered by what any of the model's routes allows. */
  filtered: Filtered;
  model: Pick<Model, "allowedParams">;
  /** The output cap that was reserved; null if the client's own is sent on unchanged. */
  capTokens: number | null;
  firstByteMs: number;
  totalMs: number;
};

/** The body for a provider. `dropped`: the parameters that are not sent on, for the header `x-dropped-params`. */
export type Payload = { text: string; dropped: string | undefined };

/**
 * The body for a route: the client's bytes, without dropped parameters, and with the model's upstream name, a request for the
 * usage, and the cap of the hold.
 */
export function chatPayload({ body, raw, filtered, model, capTokens }: ChatCall, route: Route): Payload {
  const { allowedParams: allowed } = route;
  // Nearly always all routes allow the same. Then the body is sent as it was filtered for the reserve.
  const isSame = allowed.size === model.allowedParams.size;
  const { changed, dropped } = isSame ? filtered : filterParameters({ kind: "chat", body, spans: raw.spans, allowed });
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

/** A whole answer. `text` is the JSON that the client gets, `completionText` what the model wrote in it. */
export type ChatAnswer = {
  text: string;
  usage: ReportedUsage | undefined;
  /** The provider's usage object, unchanged. */
  rawUsage: unknown;
  completionText: string;
  dropped: string | undefined;
};

/** Calls a route and reads its whole answer. Throws ProviderFailure if it is not a chat completion. */
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

/** Calls a route and waits for the first event of its stream. Throws ProviderFailure if there is none, or it is an error. */
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
    // The call is aborted after any error: its response is not read further.
    stop.stop();
    if (late && !signal.aborted)
      throw new ProviderFailure("timeout", "no first event in time", { limit: "provider_first_byte" });
    throw error instanceof OversizedEvent ? new ProviderFailure("oversized", error.message) : error;
  } finally {
    stopClock();
    signal.removeEventListener("abort", onAbort);
  }
}

/** Reads until the first payload, which must be a chunk. Returns all payloads that arrived with it. Throws ProviderFailure, OversizedEvent. */
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

/** Parses a JSON object, with the places of its fields. Returns undefined if the text is not one, or has a field twice. */
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

/** What the model wrote, for counting if the provider reported no usage. */
function completionText(choices: unknown[]): string {
  return choices
    .map((choice) =>
      typeof choice === "object" && choice !== null && "message" in choice ? writtenIn(choice.message) : "",
    )
    .join("\n");
}
