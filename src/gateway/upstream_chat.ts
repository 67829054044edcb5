import type { KeyedRoute } from "../catalog/catalog.ts";
import { decodedReader, mayBeEncoded } from "../catalog/decoding.ts";
import { type ErrorReport, reportIn, reportOfBody } from "../catalog/error_reports.ts";
import { redactPrompt } from "../catalog/prompt_redaction.ts";
import type { ProviderClient, WholeOptions } from "../catalog/provider_client.ts";
import { ProviderFailure, type ProviderRejection, toProviderError } from "../catalog/provider_errors.ts";
import { memoryOf } from "../http/body.ts";
import { patch } from "../http/json_spans.ts";
import { ANSWER_MEMORY_FULL, type AnswerMemory } from "../platform/answer_memory.ts";
import { deadline } from "../platform/deadline.ts";
import { isRecord } from "../platform/records.ts";
import type { Owner } from "../platform/share_limit.ts";
import { Stop } from "../platform/stop.ts";
import { errorWithin, parseChat } from "./answer_forms.ts";
import { ANSWER_BYTES_MAX } from "./answer_size.ts";
import { type ChatToSend, chatPayload, type Payload } from "./chat_payload.ts";
import { ChoiceRepair, createdOf } from "./chat_shape.ts";
import { isMetadata, isTier, PROVIDER_FIELDS, writtenIn, writtenInAll } from "./chunks.ts";
import { rejectionInRequest } from "./client_paths.ts";
import type { Attempt } from "./dispatch.ts";
import { readsLegacyCalls } from "./legacy_functions.ts";
import { chatOpening, isEmptyAnswer, type Opening } from "./openings.ts";
import { payloadsIn, payloadsOfWhole, wholeOf } from "./other_form.ts";
import { type JsonObject, type ListPlaces, listIn, parseAnswer } from "./provider_json.ts";
import type { OpenedStream, ProviderRead } from "./relay.ts";
import { type EventSink, isDone, OversizedEvent, SseReader } from "./sse.ts";
import type { ReportedUsage, UsageCoverage } from "./usage_counts.ts";
import { USAGE_MEMBERS, UsageReports } from "./usage_reports.ts";
import { type CountedUsage, type ShownCharge, usageShown } from "./usage_shown.ts";

/** Calls of a provider for a chat, and what is read of its answers. What is sent: `chat_payload.ts`. */

/** How much of each text of a reported error is read. */
const ERROR_TEXT_CHARS_MAX = 8_192;
/** Of a reported error whose code is none: the provider failed. */
const STATUS_UNKNOWN = 502;
/** Maximum number of events that are read before one that begins the answer. */
const OPENING_PAYLOADS_MAX = 1_000;
/** Maximum size of all of them, in characters: twice an event of 8 MiB. */
const OPENING_CHARS_MAX = 16 * 1024 * 1024;
const SPACE = 32;
const LESS_THAN = 60;
const QUOTE = 34;
const OPENING_BRACKET = 91;
const OPENING_BRACE = 123;
/** A byte order mark has bytes from here on. */
const FIRST_OF_MARK = 128;
export const CHAT_PATH = "/chat/completions";

/** A call of one route whose answer is read whole: what it needs besides the body. */
export type WholeCall = Attempt & {
  provider: ProviderClient;
  /** What is read before it can be passed on counts there, for this account and tenant. */
  answerMemory: AnswerMemory;
  payer: Owner;
  requestId: string;
  totalMs: number;
};

/** A call of one route for text. */
export type TextCall = WholeCall & { firstByteMs: number };

export type ChatCall = TextCall & ChatToSend;

/**
 * A whole answer. `text` makes the JSON that the client gets, with the counts that are charged, and with the charge if the client asked
 * for it. `completionText` is what the model wrote in it.
 */
export type ChatAnswer = {
  text: (counted: CountedUsage, charge?: ShownCharge) => string;
  usage: ReportedUsage | undefined;
  /** The provider's usage object, unchanged. */
  rawUsage: unknown;
  completionText: string;
  /** The length of the whole completion text, if `completionText` is only a sample. */
  completionChars?: number;
  /** `usage` is only in part what the provider reported. */
  isEstimated?: boolean;
  /** What of the answer `usage` is of. */
  coverage?: UsageCoverage;
  /** It has nothing in it, and is free. */
  isEmpty?: boolean;
  dropped: string | undefined;
};

/** Calls a route and reads its whole answer. Throws ProviderFailure if it is not a chat completion. */
export async function fetchChatAnswer(call: ChatCall, route: KeyedRoute, createdUnix: number): Promise<ChatAnswer> {
  const payload = chatPayload(call, route);
  return chatAnswerOf(await wholeChat(call, route, payload), { call, route, payload, createdUnix });
}

/** A whole answer for the client. */
export function chatAnswerOf(
  { text, value, spans, choices: received, reports, coverage, isEmpty }: Completion,
  { call, route, payload, createdUnix }: { call: ChatCall; route: KeyedRoute; payload: Payload; createdUnix: number },
): ChatAnswer {
  const { requestId } = call;
  const edits = new Map<string, string | null>();
  for (const name of [...PROVIDER_FIELDS, ...USAGE_MEMBERS, ...reports.foundIn]) edits.set(name, null);
  if (!isTier(value.service_tier)) edits.set("service_tier", null);
  if (!isMetadata(value.metadata)) edits.set("metadata", null);
  const choices = new ChoiceRepair(requestId, "message", readsLegacyCalls(call.body)).repaired(received);
  if (choices !== received) edits.set("choices", JSON.stringify(choices));
  const { usage: reported, raw } = reports;
  const written = choices.map((choice) => (isRecord(choice) ? writtenIn(choice.message) : ""));
  const isOfFirst = reported !== undefined && choices.length > 1 && route.facts.choicesUsage === "first";
  const usage = isOfFirst ? usageOfAll(reported, written, capOf(call)) : reported;
  if (value.model !== call.body.model) edits.set("model", JSON.stringify(call.body.model));
  if (typeof value.id !== "string" || value.id === "") edits.set("id", JSON.stringify(`chatcmpl-${requestId}`));
  const created = createdOf(value.created, createdUnix);
  if (value.created !== created) edits.set("created", String(created));
  if (value.object !== "chat.completion") edits.set("object", '"chat.completion"');
  return {
    text: (counted, charge) => patch(text, spans, edits.set("usage", usageShown({ counted, raw, charge }))),
    usage,
    rawUsage: raw,
    completionText: written.join("\n"),
    isEstimated: isOfFirst,
    coverage,
    dropped: payload.dropped,
    isEmpty,
  };
}

/** Sends a chat and reads its whole answer. Throws ProviderFailure, and ProviderRejection in the client's paths. */
export async function wholeChat(call: ChatCall, route: KeyedRoute, { text }: Payload): Promise<Completion> {
  try {
    const received = await call.provider.postWhole(route, CHAT_PATH, text, limitsOf(call));
    return completionOf(received, { route, sent: text });
  } catch (error) {
    throw rejectionInRequest(error, call, route);
  }
}

/** The output cap of each choice. */
function capOf({ body, capTokens }: ChatCall): number {
  return capTokens ?? body.max_completion_tokens ?? body.max_tokens ?? Number.MAX_SAFE_INTEGER;
}

/**
 * The usage of all choices, of which the provider reported the first: the others have as many tokens as their texts are long, and none more
 * than the cap. Source: MON-19.
 */
function usageOfAll(first: ReportedUsage, written: readonly string[], capTokens: number): ReportedUsage {
  const { completionTokens } = first;
  const firstChars = written[0]?.length ?? 0;
  const ofEach = written.map(({ length }) =>
    Math.min(firstChars === 0 ? completionTokens : Math.ceil((completionTokens * length) / firstChars), capTokens),
  );
  const others = ofEach.slice(1).reduce((sum, tokens) => sum + tokens, 0);
  return { ...first, completionTokens: completionTokens + others };
}

/** The limits of a call whose answer is read whole. */
export function limitsOf(call: WholeCall, bytesMax = ANSWER_BYTES_MAX): WholeOptions {
  const { requestId, traceparent, beforeSend, signal, totalMs, answerMemory, payer } = call;
  const hold = (onFull: () => void) => answerMemory.open(payer, onFull);
  return { signal, requestId, traceparent, beforeSend, totalMs, bytesMax, hold };
}

/** What was sent, and to which route. */
export type Called = { route: KeyedRoute; sent: string };

/** A whole chat answer, and what it reports. */
type Completion = JsonObject & {
  choices: unknown[];
  reports: UsageReports;
  /** What of the answer the reports are of: of one that came as events it may be a part. */
  coverage: UsageCoverage;
  isEmpty: boolean;
};

/**
 * Parses a whole chat answer, also one that came as events. Throws ProviderFailure if it is none, and ProviderFailure
 * or ProviderRejection if it reports an error, also of one of its choices: then it is broken off, as a stream is by an error event.
 */
export function completionOf(received: string, called: Called): Completion {
  const reports = new UsageReports();
  const payloads = payloadsIn(received);
  const { text, coverage } =
    payloads === undefined ? { text: received, coverage: "whole" as const } : assembled(payloads, reports, called);
  const answer = parseChat(text);
  if (answer !== undefined) throwReported(answer.value, called);
  const choices = answer?.value.choices;
  if (answer === undefined || !Array.isArray(choices)) throw notAnAnswer();
  reports.read(answer.value);
  return { ...answer, choices, reports, coverage, isEmpty: isEmptyAnswer(choices, reports) };
}

/** The whole answer that events say, whose usage is noted. */
function assembled(
  payloads: () => string[],
  reports: UsageReports,
  called: Called,
): Pick<Completion, "text" | "coverage"> {
  let chars = 0;
  try {
    const text = wholeOf(payloads(), (event) => {
      throwReported(event, called);
      reports.read(event);
      chars += Array.isArray(event.choices) ? writtenInAll(event.choices).length : 0;
      reports.mark(chars);
    });
    return { text, coverage: reports.coverageOf(chars) };
  } catch (error) {
    if (error instanceof SyntaxError || error instanceof OversizedEvent) throw notAnAnswer();
    throw error;
  }
}

function notAnAnswer(): ProviderFailure {
  return new ProviderFailure("not_json", "the answer is not a chat completion");
}

/** The entries of an answer that is a list of them, and its other fields. Throws ProviderFailure, ProviderRejection. */
export function entriesOf(
  text: string,
  places: ListPlaces,
  called: Called,
): { list: readonly unknown[] | undefined; fields: Readonly<Record<string, unknown>> } {
  let value: unknown;
  try {
    value = parseAnswer(text);
  } catch {
    throw new ProviderFailure("not_json", "the answer is not JSON");
  }
  const fields = isRecord(value) ? value : {};
  const list = listIn(value, places);
  // Beside entries only clear signs of an error count.
  throwReported(list === undefined ? (errorWithin(fields) ?? fields) : { ...fields, data: list }, called);
  return { list, fields };
}

/** Throws ProviderFailure or ProviderRejection if an answer or an event reports an error. */
export function throwReported(value: Readonly<Record<string, unknown>>, called: Called): void {
  const report = reportIn(value);
  if (report !== undefined) throw asProviderError(report, STATUS_UNKNOWN, called);
}

/** As `asProviderError`, of the object that a provider calls the error. */
export function reportedError(
  error: Readonly<Record<string, unknown>>,
  status: number,
  called: Called,
): ProviderFailure | ProviderRejection {
  return asProviderError(reportOfBody({ error }), status, called);
}

/**
 * The error that an answer reports although its HTTP status is good: what its codes say, as a status would. `status`: what it is if they
 * say nothing. What it quotes of the request is removed: it is logged.
 */
function asProviderError(
  { message, codes, param, status }: ErrorReport,
  unknown: number,
  { route, sent }: Called,
): ProviderFailure | ProviderRejection {
  const named = codes.slice(0, CODE_FIELDS.length).map((code, i) => [CODE_FIELDS[i], said(code)] as const);
  const error = { ...Object.fromEntries(named), param, message: said(message) };
  const text = redactPrompt(JSON.stringify({ error }), sent);
  return toProviderError({ status: status ?? unknown, text, secrets: [route.apiKey.reveal()] });
}

/** The fields in which `toProviderError` finds codes. */
const CODE_FIELDS = ["code", "type", "status", "status_code", "error_code", "err_code", "http_code"];

function said(value: unknown): string | undefined {
  return typeof value === "string" ? value.slice(0, ERROR_TEXT_CHARS_MAX) : undefined;
}

/** `isEmpty`: the stream has ended with nothing in it, and is free. */
export type OpenedChat = OpenedStream & Pick<Payload, "dropped"> & { isEmpty: boolean };

/** Calls a route and waits for the first chunk of its stream. Throws ProviderFailure if there is none, or it is an error. */
export function openChatStream(call: ChatCall, route: KeyedRoute): Promise<OpenedChat> {
  return openStream(call, route, streamOfChat(call, route));
}

/** The stream of a chat request. Throws ProviderFailure if a part of a message may not be sent to this route. */
export function streamOfChat(call: ChatCall, route: KeyedRoute): StreamToOpen {
  const rejectionOf = (error: unknown) => rejectionInRequest(error, call, route);
  return { ...chatStream(chatPayload(call, route), route), rejectionOf };
}

/** A chat stream to open. A whole answer is read as a short stream. */
export function chatStream(payload: Payload, route: KeyedRoute): StreamToOpen {
  const fromWhole = (text: string) => {
    const { value, reports, isEmpty } = completionOf(text, { route, sent: payload.text });
    return { payloads: payloadsOfWhole(value, reports), rest: "", isEmpty };
  };
  return { path: CHAT_PATH, ...payload, opening: chatOpening(), fromWhole };
}

/**
 * What is sent to open a stream. `opening`: which event begins the answer; a failure before it is tried on the next route. `fromWhole`: the
 * payloads of a stream for an answer that came whole; throws if it is none. `rejectionOf`: an error in the paths of the client's request.
 */
type StreamToOpen = Payload & {
  path: string;
  opening: Opening;
  fromWhole: (text: string) => Begun;
  rejectionOf?: (error: unknown) => unknown;
};

/** The payloads that arrived until the answer began, and whole lines behind them. `isEmpty`: it ended without a beginning. */
type Begun = { payloads: string[]; rest: string; isEmpty: boolean };

/** Calls a path of a route and waits for the first event of its stream. Throws ProviderFailure if there is none, or it is an error. */
export async function openStream(call: TextCall, route: KeyedRoute, sent: StreamToOpen): Promise<OpenedChat> {
  const { provider, requestId, traceparent, beforeSend, signal } = call;
  const firstByteMs = firstTokenMsOf(call, route);
  const stop = new Stop();
  const onAbort = () => stop.stop();
  signal.addEventListener("abort", onAbort, { once: true });
  const held = call.answerMemory.open(call.payer, onAbort);
  let late = false;
  let hasHeaders = false;
  const onLate = () => {
    late = true;
    stop.stop();
  };
  let stopClock = deadline(firstByteMs, onLate);
  const stopTotal = deadline(Math.max(firstByteMs, call.totalMs), onLate);
  /** Each event shows that the provider is at work. */
  const onEvents = () => {
    stopClock();
    stopClock = deadline(firstByteMs, onLate);
  };
  try {
    const response = await provider.post(route, sent.path, sent.text, {
      signal: stop,
      requestId,
      traceparent,
      beforeSend,
      firstByteMs,
      accept: "text/event-stream",
    });
    hasHeaders = true;
    call.onHeaders();
    if (response.body === null) throw new ProviderFailure("not_json", "the answer is not an event stream");
    const sse = new SseReader();
    const called = { route, sent: sent.text };
    const { begun, body } = await bodyOf(response.body.getReader());
    const reading = { reader: body, sse, held };
    const { payloads: first, rest, isEmpty } = await firstPayloads(reading, { ...sent, begun, called, onEvents });
    // Another route may answer: then nobody looks at this stream again, which has ended.
    if (isEmpty) held.close();
    return { ...reading, first, rest, call: stop, dropped: sent.dropped, isEmpty };
  } catch (error) {
    // The call is aborted after any error: its response is not read further.
    stop.stop();
    held.close();
    if (held.isFull) throw new ProviderFailure("no_memory", ANSWER_MEMORY_FULL, { work: "too_large" });
    if (late && !signal.aborted) {
      // A provider that has not even sent headers has probably not begun, and another may serve in time.
      const work = hasHeaders ? "begun" : "none";
      throw new ProviderFailure("timeout", "no first event in time", { limit: "provider_first_byte", work });
    }
    if (error instanceof OversizedEvent) throw new ProviderFailure("oversized", error.message, { work: "too_large" });
    throw sent.rejectionOf?.(error) ?? error;
  } finally {
    stopClock();
    stopTotal();
    signal.removeEventListener("abort", onAbort);
  }
}

/** How long the route may be silent before its first event. Source: DIA-10. */
function firstTokenMsOf({ firstByteMs, totalMs }: TextCall, { facts: { firstTokenSeconds } }: KeyedRoute): number {
  return firstTokenSeconds === null ? firstByteMs : Math.min(firstTokenSeconds * 1000, totalMs);
}

type Reading = Pick<OpenedStream, "reader" | "sse" | "held">;
type Opened = Pick<StreamToOpen, "opening" | "fromWhole"> & {
  /** The first read of the body. */
  begun: ProviderRead;
  called: Called;
  onEvents: () => void;
};

/** A body and its first read, decoded if it is encoded without saying so. Throws ProviderFailure. */
async function bodyOf(reader: OpenedStream["reader"]): Promise<{ begun: ProviderRead; body: OpenedStream["reader"] }> {
  const begun = await firstBytes(reader);
  if (begun.done || !mayBeEncoded(begun.value)) return { begun, body: reader };
  const body = decodedReader(begun.value, reader);
  return { begun: await firstBytes(body), body };
}

/**
 * Reads until the first payload that begins the answer; each before it must be a good event. Throws ProviderFailure, ProviderRejection, OversizedEvent.
 */
async function firstPayloads({ reader, sse, held }: Reading, opened: Opened): Promise<Begun> {
  const beginning = new Beginning(opened);
  let isLooked = false;
  for (let read = opened.begun; ; read = await firstBytes(reader)) {
    const { done, value } = read;
    const form: BodyForm | undefined = isLooked || value === undefined ? undefined : formOf(value);
    isLooked ||= form !== undefined;
    if (form === "json" && value !== undefined) return opened.fromWhole(await restOf(value, { reader, held }));
    if (form === "page") throw new ProviderFailure("not_json", "the answer is not an event stream");
    const { length } = beginning.payloads;
    if (done) sse.finish(beginning);
    else sse.read(value, beginning);
    if (beginning.payloads.length > length) opened.onEvents();
    if (done) beginning.end();
    const { payloads, rest, isEmpty } = beginning;
    if (isEmpty !== undefined) return { payloads, rest, isEmpty };
    held.hold(beginning.bytes + sse.heldBytes);
  }
}

/** The events until the answer begins. Those behind it are left as they came: the relay has a faster way to read them. */
class Beginning implements EventSink {
  readonly payloads: string[] = [];
  /** Whole lines behind the payloads. */
  rest = "";
  /** undefined: the answer has neither begun nor ended. */
  isEmpty: boolean | undefined;
  /** Memory that the payloads take. */
  bytes = 0;
  readonly #opened: Opened;
  #chars = 0;

  constructor(opened: Opened) {
    this.#opened = opened;
  }

  takeEvent(text: string, at: number): number {
    if (this.isEmpty === undefined) return -1;
    this.rest = text.slice(at);
    return text.length;
  }

  takePayload(payload: string): void {
    this.payloads.push(payload);
    // Further entries of an event that is a list.
    if (this.isEmpty !== undefined) return;
    if (isDone(payload)) {
      this.end();
      return;
    }
    if (begins(payload, this.#opened)) {
      this.isEmpty = false;
      return;
    }
    this.#chars += payload.length;
    this.bytes += memoryOf(payload);
    if (this.#chars > OPENING_CHARS_MAX) throw new OversizedEvent("the events before the answer are too large");
    if (this.payloads.length > OPENING_PAYLOADS_MAX) this.isEmpty = false;
  }

  end(): void {
    this.isEmpty ??= this.#opened.opening.ended();
  }
}

/** Whether the answer begins with this payload. Throws what it reports, or if it is no event. */
function begins(payload: string, { opening, called }: Opened): boolean {
  const event = opening.read(payload);
  if (event === undefined) throw new ProviderFailure("not_json", "the stream began with something else than an event");
  throwReported(event, called);
  return opening.begins(event);
}

type BodyForm = "json" | "page" | "events";

/** What a body is, by its first visible byte; undefined if there is none yet. */
function formOf(bytes: Uint8Array): BodyForm | undefined {
  const first = bytes.find((byte) => byte > SPACE && byte < FIRST_OF_MARK);
  if (first === undefined) return undefined;
  if (first === OPENING_BRACE || first === OPENING_BRACKET || first === QUOTE) return "json";
  return first === LESS_THAN ? "page" : "events";
}

/** The whole text of a body whose first bytes are `begun`. Throws ProviderFailure, OversizedEvent. */
async function restOf(begun: Uint8Array, { reader, held }: Pick<Reading, "reader" | "held">): Promise<string> {
  const pieces = [begun];
  for (let size = begun.length; ; ) {
    const { done, value } = await firstBytes(reader);
    if (done) return new TextDecoder().decode(Buffer.concat(pieces));
    pieces.push(value);
    size += value.length;
    if (size > ANSWER_BYTES_MAX) throw new OversizedEvent("the answer is too large");
    held.hold(size);
  }
}

async function firstBytes(reader: OpenedStream["reader"]): Promise<ProviderRead> {
  try {
    return await reader.read();
  } catch (error) {
    if (error instanceof ProviderFailure) throw error;
    throw new ProviderFailure("cut", "the stream broke off before its first event");
  }
}
