import type { KeyedRoute } from "../../catalog/catalog.ts";
import { ProviderFailure } from "../../catalog/provider_errors.ts";
import { patch } from "../../http/json_spans.ts";
import { isRecord } from "../../platform/records.ts";
import { parseResponse } from "../answer_forms.ts";
import { PROVIDER_FIELDS, type Relayed, type StreamRewriter } from "../chunks.ts";
import { fileTokensOf, imageTokensOf, type PromptBounds } from "../media_tokens.ts";
import { isClientTool, overheadOf, Prompt } from "../prompt.ts";
import { parseObject } from "../provider_json.ts";
import {
  type ChatAnswer,
  limitsOf,
  type OpenedChat,
  openStream,
  reportedError,
  type TextCall,
  throwReported,
} from "../upstream_chat.ts";
import { type ReportedUsage, reportedUsageOf } from "../usage_counts.ts";
import type { CountedUsage, ShownCharge } from "../usage_shown.ts";
import { Written } from "../written.ts";
import { ArrivedItems } from "./arrived_items.ts";
import { eventText } from "./event_text.ts";
import { responseError } from "./from_chat.ts";
import { HOSTED_ITEMS } from "./hosted.ts";
import type { OwnBody } from "./own_parameters.ts";
import { refusal } from "./refusals.ts";
import { isMessageType } from "./request.ts";
import { missingIn, type ResponseFacts, responseJson, usageJson } from "./response_object.ts";

/**
 * Sends requests to a provider's own /responses. Its answers and events are passed on, with the client's model name. Source: RSP-2,
 * RSP-5, RSP-11.
 */

/** What a provider repeats of the request that the client did not send so: they are null, as in a translated response. */
const END_USER_FIELDS = ["user", "safety_identifier", "prompt_cache_key"] as const;
export const RESPONSES_PATH = "/responses";
const IMAGE_DATA = "data:image/";
/**
 * The limit, in characters of JSON, of all fields except the input: a provider repeats them in its events. An event
 * above the limit of event size ends the stream without a charge, so long instructions must not cause one.
 */
const REPEATED_CHARS_MAX = 1024 * 1024;
/** Types of content parts that are text. All others may be counted as another kind of input. */
const TEXT_PARTS: ReadonlySet<unknown> = new Set(["input_text", "output_text", "refusal"]);
/** Events that come before the answer itself. */
const OPENING: ReadonlySet<unknown> = new Set(["response.created", "response.in_progress", "response.queued"]);
/** Events with the whole response, which end a stream. */
const ENDS: ReadonlySet<unknown> = new Set(["response.completed", "response.incomplete"]);
const FAILURES: ReadonlySet<unknown> = new Set(["response.failed", "error"]);
const EVENT_TYPE = /^[\w.]+$/;
/** Events that belong to a part of a content. */
const IN_CONTENT = /^response\.(?:content_part|output_text|refusal|reasoning_text)\./;
/** Items whose places are counted. */
const ITEMS_MAX = 1_000;

type Fields = Readonly<Record<string, unknown>>;

export type OwnCall = TextCall & {
  body: OwnBody;
  /** The output cap: the client's, or that of the hold if it sent none. */
  capTokens: number | null;
  response: ResponseFacts;
};

/**
 * The prompt for counting: all of the JSON that is sent, without the data of images in contents and outputs, which
 * providers read as images. The same JSON elsewhere, such as in a tool's schema, is text and is counted. Throws
 * invalid_request if the fields that a provider repeats are too long.
 */
export function ownPrompt({ fields: { input, ...repeated } }: OwnBody, model: PromptBounds): Prompt {
  const items: readonly unknown[] = Array.isArray(input) ? input : [];
  let imageTokens = 0;
  let hasMedia = false;
  let hasFiles = hasHostedTools(repeated.tools);
  const countedPart = (part: unknown): unknown => {
    if (!isRecord(part) || TEXT_PARTS.has(part.type)) return part;
    hasMedia = true;
    hasFiles ||= part.type !== "input_image";
    if (part.type !== "input_image") return part;
    const { image_url: url } = part;
    const isData = typeof url === "string" && url.startsWith(IMAGE_DATA);
    imageTokens += imageTokensOf(isData ? url : undefined, model);
    return isData ? { ...part, image_url: "" } : part;
  };
  const counted = items.map((item): unknown => {
    if (!isRecord(item)) return item;
    const name = isMessageType(item.type) ? "content" : "output";
    const parts = item[name];
    // An output that is an object comes from a hosted tool, such as a screenshot.
    const isHosted = typeof item.type === "string" && HOSTED_ITEMS.has(item.type);
    hasFiles ||= isRecord(parts) || isHosted || hasHostedTools(item.tools);
    return Array.isArray(parts) ? { ...item, [name]: parts.map(countedPart) } : item;
  });
  const texts = [JSON.stringify(repeated), JSON.stringify(Array.isArray(input) ? counted : input)] as const;
  if (texts[0].length > REPEATED_CHARS_MAX) throw tooMuchRepeated(repeated);
  return new Prompt(texts, {
    overheadTokens: overheadOf(items.length === 0 ? 2 : items.length + 1, model),
    imageTokens,
    fileTokens: hasFiles ? fileTokensOf(model) : 0,
    hasMedia: hasMedia || hasFiles,
  });
}

/** What such tools find is added to the prompt. */
function hasHostedTools(tools: unknown): boolean {
  return Array.isArray(tools) && !tools.every(isClientTool);
}

function tooMuchRepeated({ instructions }: Fields): Error {
  const isText = typeof instructions === "string" && instructions.length > REPEATED_CHARS_MAX / 2;
  return refusal(
    isText ? "instructions" : "tools",
    `All fields but input have at most ${REPEATED_CHARS_MAX} characters of JSON together. Send long texts in input.`,
  );
}

function payloadOf({ body, capTokens }: OwnCall, route: KeyedRoute): string {
  const cap = capTokens === null ? {} : { max_output_tokens: capTokens };
  return JSON.stringify({ model: route.upstreamModel, ...body.fields, ...cap });
}

/** Calls a route's own /responses and reads its whole answer. Throws ProviderFailure if it is no response, ProviderRejection. */
export async function fetchOwnResponse(call: OwnCall, route: KeyedRoute): Promise<Omit<ChatAnswer, "dropped">> {
  const sent = payloadOf(call, route);
  const received = await call.provider.postWhole(route, RESPONSES_PATH, sent, limitsOf(call));
  const answer = parseResponse(received);
  const output = answer?.value.output;
  if (answer !== undefined && !Array.isArray(output)) throwReported(answer.value, { route, sent });
  if (answer === undefined || !Array.isArray(output))
    throw new ProviderFailure("not_json", "the answer is not a response");
  const { value, spans, text } = answer;
  if (value.status === "failed") throw failureOf(value, route, sent);
  if (value.status !== "completed" && value.status !== "incomplete")
    throw new ProviderFailure("not_json", "the response is not complete");
  const { usage, rawUsage } = usageOf(value.usage);
  const { id, modelId, metadata, previousResponseId, store } = call.response;
  const edits = new Map<string, string | null>([
    ["id", JSON.stringify(id)],
    ["model", JSON.stringify(modelId)],
    ["metadata", metadata],
    ["previous_response_id", JSON.stringify(previousResponseId)],
    ["store", String(store)],
    ...PROVIDER_FIELDS.map((name) => [name, null] as const),
    ...Object.entries(missingIn(value, call.response)).map(([name, one]) => [name, JSON.stringify(one)] as const),
    ...END_USER_FIELDS.filter((name) => spans.has(name)).map((name) => [name, "null"] as const),
  ]);
  return {
    text: (counted, charge) => patch(text, spans, edits.set("usage", usageJson(counted, charge))),
    usage,
    rawUsage,
    completionText: writtenInOutput(output),
  };
}

/** Calls a route's own /responses and waits for the first event of the answer. Throws ProviderFailure, ProviderRejection. */
export async function openOwnStream(call: OwnCall, route: KeyedRoute): Promise<Omit<OpenedChat, "dropped">> {
  const text = payloadOf(call, route);
  const begins = (event: Readonly<Fields>) => {
    if (FAILURES.has(event.type)) throw failureOf(isRecord(event.response) ? event.response : event, route, text);
    return !OPENING.has(event.type);
  };
  const opened = await openStream(call, route, {
    path: RESPONSES_PATH,
    text,
    dropped: undefined,
    opening: { read: (payload) => parseObject(payload)?.value, begins, ended: () => notOpened() },
    fromWhole: () => notOpened(),
  });
  opened.rewriter = new OwnEvents(call.response);
  return opened;
}

function notOpened(): never {
  throw new ProviderFailure("not_json", "the answer is not a stream of a response");
}

/** The error for a response that failed before its answer began. */
function failureOf(failed: Fields, route: KeyedRoute, sent: string): Error {
  const error = isRecord(failed.error) ? failed.error : failed;
  return reportedError(error, STATUSES.get(error.code) ?? 500, { route, sent });
}

/** The HTTP status of each error code of a failed response. */
const STATUSES: ReadonlyMap<unknown, number> = new Map([
  ["rate_limit_exceeded", 429],
  ["insufficient_quota", 429],
  ["invalid_prompt", 400],
  ["context_length_exceeded", 400],
]);

/** The counts under their names in chat completions, as receipts keep them. */
function usageOf(usage: unknown): { usage: ReportedUsage | undefined; rawUsage: unknown } {
  if (!isRecord(usage)) return { usage: undefined, rawUsage: usage ?? undefined };
  const { input_tokens, output_tokens, input_tokens_details, output_tokens_details, ...rest } = usage;
  const rawUsage = {
    prompt_tokens: input_tokens,
    completion_tokens: output_tokens,
    prompt_tokens_details: input_tokens_details,
    completion_tokens_details: output_tokens_details,
    ...rest,
  };
  return { usage: reportedUsageOf(rawUsage), rawUsage };
}

/** The text that the model wrote, to be counted if the provider reports no usage. */
function writtenInOutput(output: readonly unknown[]): string {
  const texts: string[] = [];
  for (const item of output) {
    if (!isRecord(item)) continue;
    for (const said of [item.name, item.arguments, item.input]) if (typeof said === "string") texts.push(said);
    for (const list of [item.content, item.summary]) {
      if (!Array.isArray(list)) continue;
      for (const part of list) {
        const { text, refusal } = isRecord(part) ? part : {};
        for (const said of [text, refusal]) if (typeof said === "string") texts.push(said);
      }
    }
  }
  return texts.join("\n");
}

/** A piece of a sound as base64. What is said in it comes as text, too. */
const SOUND = "response.audio.delta";

/** Passes on the events of a provider's /responses. The last one waits for the settlement. */
export class OwnEvents implements StreamRewriter {
  readonly endsWithDone = false;
  finished = false;
  isOver = false;
  #facts: ResponseFacts;
  /** The ids of the items so far, by their places. */
  readonly #items: unknown[] = [];
  readonly #written = new Written();
  readonly #arrived = new ArrivedItems();
  #usage: ReportedUsage | undefined;
  #rawUsage: unknown;
  /** What was charged, as JSON. */
  #usageJson: string | undefined;
  /** The last event, until it is sent. */
  #last: { type: string; event: Record<string, unknown> } | undefined;
  #sequence = 0;

  constructor(facts: ResponseFacts) {
    this.#facts = facts;
  }

  get relayed(): Relayed {
    return { ...this.#written.soFar, usage: this.#usage, rawUsage: this.#rawUsage, coverage: "whole" };
  }

  get usage(): ReportedUsage | undefined {
    return this.#usage;
  }

  rewrite(received: string): string | undefined {
    const { value: event, text } = parseObject(received) ?? {};
    if (event === undefined || text === undefined || typeof event.type !== "string" || !EVENT_TYPE.test(event.type))
      throw new Error("the provider sent an event without a type");
    const { type, delta, response } = event;
    if (FAILURES.has(type)) throw new Error("the provider sent an error event");
    const isNumbered = this.#number(type, event);
    if (typeof event.sequence_number === "number") this.#sequence = event.sequence_number + 1;
    // The data of a sound is no text: estimated as such, a second of it would be thousands of tokens.
    if (typeof delta === "string" && type !== SOUND) this.#written.add(delta, received.length);
    if (!isRecord(response)) {
      this.#arrived.take(event, received.length);
      if (isNumbered) return eventOf(type, event);
      // An event may arrive on several lines, and is sent on one: a line break is white space in JSON.
      return `event: ${type}\ndata: ${text.includes("\n") ? text.replaceAll("\n", " ") : text}\n\n`;
    }
    const { id, modelId, metadata, previousResponseId, store } = this.#facts;
    const ours = {
      id,
      model: modelId,
      metadata: JSON.parse(metadata),
      previous_response_id: previousResponseId,
      store,
    };
    const missing = missingIn(response, this.#facts);
    Object.assign(response, ours, missing);
    // A provider that returns the request's other fields itself does so in all events: keeping them would only take memory.
    if (!Object.hasOwn(missing, "tools")) this.#facts = { ...this.#facts, echo: "" };
    for (const name of PROVIDER_FIELDS) delete response[name];
    for (const name of END_USER_FIELDS) if (Object.hasOwn(response, name)) response[name] = null;
    if (!ENDS.has(type)) return eventOf(type, event);
    // Some providers leave the output out of the last event, and clients that read it there would find no answer.
    if (!Array.isArray(response.output) || response.output.length === 0)
      response.output = this.#arrived.json().map((item) => JSON.parse(item));
    const { usage, rawUsage } = usageOf(response.usage);
    this.#usage = usage;
    this.#rawUsage = rawUsage;
    this.#last = { type, event };
    this.finished = this.isOver = true;
    return undefined;
  }

  /** Adds the numbers that a server leaves out of an event, and strict clients need. Returns whether any was. Source: RSP-13. */
  #number(type: string, event: Record<string, unknown>): boolean {
    const { item, item_id: itemId } = event;
    const id = isRecord(item) ? item.id : itemId;
    let isChanged = fill(event, "sequence_number", this.#sequence);
    if (id !== undefined && typeof event.output_index !== "number")
      isChanged = fill(event, "output_index", this.#placeOf(id)) || isChanged;
    if (IN_CONTENT.test(type)) isChanged = fill(event, "content_index", 0) || isChanged;
    return isChanged;
  }

  #placeOf(id: unknown): number {
    const place = this.#items.indexOf(id);
    if (place >= 0 || this.#items.length >= ITEMS_MAX) return Math.max(0, place);
    return this.#items.push(id) - 1;
  }

  /** Only events that repeat the answer are so large: its text has been delivered, and is charged by our count. Source: END-16. */
  oversized(): void {
    this.finished = this.#written.length > 0;
  }

  counted(usage: CountedUsage, charge?: ShownCharge): void {
    this.#usageJson = usageJson(usage, charge);
  }

  response(): string {
    return JSON.stringify(this.#ended()?.event.response);
  }

  lastEvents(): string {
    const last = this.#ended();
    return last === undefined ? "" : eventOf(last.type, last.event);
  }

  /** The last event, with what was counted. */
  #ended() {
    const response = this.#last?.event.response;
    if (isRecord(response) && this.#usageJson !== undefined) response.usage = JSON.parse(this.#usageJson);
    return this.#last;
  }

  errorEvents(error: string | undefined): string {
    const usage = this.#usageJson;
    const state = { status: "failed", items: this.#arrived.json(), error: responseError(error), usage } as const;
    return eventText("response.failed", this.#sequence, `"response":${responseJson(this.#facts, state)}`);
  }
}

/** Sets a number that is none. Returns whether it did. */
function fill(event: Record<string, unknown>, name: string, value: number): boolean {
  if (typeof event[name] === "number") return false;
  event[name] = value;
  return true;
}

function eventOf(type: string, event: Fields): string {
  return `event: ${type}\ndata: ${JSON.stringify(event)}\n\n`;
}
