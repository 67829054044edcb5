import { reportIn } from "../catalog/error_reports.ts";
import { hasQuirks } from "../http/json_quirks.ts";
import { patch, topLevelSpans } from "../http/json_spans.ts";
import type { Span } from "../http/json_text.ts";
import { isRecord } from "../platform/records.ts";
import { hasOdd, parseChat } from "./answer_forms.ts";
import { ChoiceRepair, createdOf } from "./chat_shape.ts";
import {
  ChunkFrames,
  EVENT_END,
  EVENT_START,
  type Frame,
  type Hole,
  isPlainAt,
  isValue,
  parsed,
  parsedLine,
} from "./chunk_frames.ts";
import { finishOf } from "./finish_reasons.ts";
import { saidIn } from "./said.ts";
import { isCount, meaningOf, type ReportedUsage, type UsageCoverage } from "./usage_counts.ts";
import { SENT_ON, USAGE_MEMBERS, UsageReports } from "./usage_reports.ts";
import { type CountedUsage, type ShownCharge, usageShown } from "./usage_shown.ts";
import { Written, type WrittenText } from "./written.ts";

/** Rewrites the chunks of a chat stream for the client, and reads the text and usage out of them. Source: STR-3, STR-4. */

/** The content of a JSON string without escapes. Others are parsed. */
const PLAIN = /^[^"\\\p{Cc}]*$/u;
/** After so many events in a row that had no frame of a text, as with log probabilities, only one in this many tries them. */
const TEXT_MISSES_MAX = 32;
const TEXTS_AGAIN_ONE_IN = 64;
const DONE_EVENT = "data: [DONE]\n\n";
/**
 * Fields of an answer or a chunk by which a provider says who it is, or what the operator pays: OpenRouter, Groq, Vercel, LiteLLM, NanoGPT.
 * They are not sent on. Source: PRV-25.
 */
export const PROVIDER_FIELDS = [
  ...["provider", "x_groq", "providerMetadata", "provider_metadata", "_hidden_params", "x_nanogpt_pricing"],
  ...["cost", "response_cost", "pricing"],
];
const NOT_SENT = [...PROVIDER_FIELDS, ...USAGE_MEMBERS];
/** Fields of a chunk that are not sent on as received. */
const EDITED: ReadonlySet<string> = new Set([
  ...["id", "object", "created", "model", "usage", "choices", "service_tier"],
  ...NOT_SENT,
]);
/** In place of an empty list: clients that did not ask for usage read the first choice of every chunk. Azure begins without one. */
const NO_CHOICE = [{ index: 0, delta: {}, finish_reason: null }];
/** OpenAI's service tiers. Others, as Groq's `on_demand`, are not sent on: strict clients fail at them. */
const TIERS: ReadonlySet<unknown> = new Set([undefined, null, "auto", "default", "flex", "scale", "priority"]);

/** Whether a `service_tier` of a provider is sent on. */
export function isTier(tier: unknown): boolean {
  return TIERS.has(tier);
}

/** Whether a `metadata` of a whole answer is sent on: OpenAI's has texts alone, and strict clients fail at others, as Nebius has them. */
export function isMetadata(metadata: unknown): boolean {
  return (
    !isPresent(metadata) || (isRecord(metadata) && Object.values(metadata).every((one) => typeof one === "string"))
  );
}

/** Members by which a chunk may say that it is no good one, or that report a usage: they are read in every chunk that has another value. */
const TELLING: ReadonlySet<string> = new Set([
  ...["error", "errors", "object", "type", "event", "code", "status", "status_code", "success", "base_resp"],
  ...["message", "msg", "detail", "meta", "x_groq", ...USAGE_MEMBERS],
]);

function isTelling(name: string): boolean {
  return TELLING.has(name) || meaningOf(name, false) !== undefined;
}

const RULES = { edited: EDITED, isTelling, readAtEnd: SENT_ON };

/** The values in the holes of the event that is rewritten now. All streams have the same list: it is used for one event at a time. */
const VALUES: string[] = [];

/** An object in the place of a value that may report a usage, or in which an answer may stand. */
const MAY_TELL = /token|usage|choices|message|delta/i;

/** What the client has been sent so far. */
export type Relayed = WrittenText & {
  usage: ReportedUsage | undefined;
  /** The provider's last usage object, unchanged; undefined if there was none. */
  rawUsage: unknown;
  /** What of the text `usage` is of. */
  coverage: UsageCoverage;
};

export type StreamFacts = {
  requestId: string;
  createdUnix: number;
  modelId: string;
  wantsUsage: boolean;
  /** How many were asked for; one if it is not given. */
  choices?: number;
  /** The client reads `function_call` in place of tool calls. */
  hasLegacyCalls?: boolean;
};

/** Turns the events of a provider's stream into those of the client, and reads the text and usage out of them. */
export type StreamRewriter = {
  /** What the client has been sent so far. */
  readonly relayed: Relayed;
  /** What the provider reported last. */
  readonly usage: ReportedUsage | undefined;
  /** The answer is complete: the provider may still break off, or report the usage. */
  readonly finished: boolean;
  /** Text came behind the finish: the provider writes a finish reason into every chunk, and it does not say that the answer is complete. */
  readonly wentOn?: boolean;
  /** `[DONE]` ends the stream, and is not given to the rewriter. Otherwise it is no event of an answer. */
  readonly endsWithDone: boolean;
  /** The last payload was the end of the stream. */
  readonly isOver: boolean;
  /** Fast path, if it has one: as `EventSink.takeEvent`. What it returns an index for is then taken by `takeRewritten`. */
  rewriteEvent?(text: string, at: number): number;
  takeRewritten?(): string;
  /** The events for the client; undefined if none is sent now. Throws if the payload is no event of an answer. */
  rewrite(payload: string): string | undefined;
  /** The next event is too large to be read, and breaks the stream off. */
  oversized?(): void;
  /** What the answer used, as it was charged, and the charge if the client asked for it. Called before `lastEvents`. */
  counted(usage: CountedUsage, charge?: ShownCharge): void;
  /** The response object of an answer that is complete, as JSON; called before `lastEvents`. Chats have none. */
  response?(): string;
  /** The last events of an answer that is complete. */
  lastEvents(): string;
  /** The last events of a stream that broke off. `error`: an error envelope as JSON. */
  errorEvents(error: string | undefined): string;
};

/** Gives all chunks of a stream the same id, the same created and the client's model name, and takes the usage out of them. */
export class ChunkRewriter implements StreamRewriter {
  readonly #facts: StreamFacts;
  readonly #model: string;
  #id: string | undefined;
  #created: string | undefined;
  /** The provider's last chunk with only the usage. */
  #usageChunk: string | undefined;
  readonly #frames = new ChunkFrames(RULES);
  readonly #repair: ChoiceRepair;
  /** Events in a row that had only the frame of the choices. */
  #textMisses = 0;
  readonly #reports = new UsageReports();
  #counted: { counted: CountedUsage; charge: ShownCharge | undefined } | undefined;
  readonly #written = new Written();
  #rewritten = "";
  /** Only of an answer with several choices. */
  readonly #choiceEnds: ChoiceEnds | undefined;
  finished = false;
  /** How much text there was with the first finish reason of an answer with one choice. */
  #finishedAt: number | undefined;
  readonly endsWithDone = true;
  readonly isOver = false;

  constructor(facts: StreamFacts) {
    const { choices = 1 } = facts;
    this.#facts = facts;
    this.#model = JSON.stringify(facts.modelId);
    this.#repair = new ChoiceRepair(facts.requestId, "delta", facts.hasLegacyCalls);
    this.#choiceEnds = choices > 1 ? new ChoiceEnds(choices) : undefined;
  }

  get relayed(): Relayed {
    return {
      ...this.#written.soFar,
      usage: this.#reports.usage,
      rawUsage: this.#reports.raw,
      coverage: this.#reports.coverageOf(this.#written.length),
    };
  }

  /** What the provider reported last. */
  get usage(): ReportedUsage | undefined {
    return this.#reports.usage;
  }

  get wentOn(): boolean {
    return this.#finishedAt !== undefined && this.#written.length > this.#finishedAt;
  }

  counted(counted: CountedUsage, charge?: ShownCharge): void {
    this.#counted = { counted, charge };
  }

  /** Returns the event for the client; undefined if none is sent now. Throws if the provider's payload is not a chunk. */
  rewrite(received: string): string | undefined {
    // An event may arrive on several lines, and is sent on one. In JSON a line break is white space.
    const payload = received.includes("\n") ? received.replaceAll("\n", " ") : received;
    if (this.#frames.choices.length > 0 && this.rewriteEvent(eventOf(payload), 0) > 0) return this.takeRewritten();
    const rewritten = this.#rewriteWhole(payload);
    return rewritten === undefined ? undefined : eventOf(rewritten);
  }

  takeRewritten(): string {
    const rewritten = this.#rewritten;
    // While the stream waits for its next event, nothing of this one is kept.
    this.#rewritten = "";
    return rewritten;
  }

  /**
   * Fast path: rewrites the event that begins at `at`, if it differs from an earlier one only in the values that a frame leaves open.
   * Returns the index after it, and `takeRewritten` the event for the client; otherwise returns −1, and nothing was noted.
   */
  rewriteEvent(text: string, at: number): number {
    const { texts, choices } = this.#frames;
    if (this.#textMisses < TEXT_MISSES_MAX || this.#textMisses % TEXTS_AGAIN_ONE_IN === 0)
      for (const frame of texts) {
        const end = this.#rewriteFramed(text, at, frame);
        if (end < 0) continue;
        this.#textMisses = 0;
        return end;
      }
    for (const frame of choices) {
      const end = this.#rewriteFramed(text, at, frame);
      if (end < 0) continue;
      this.#textMisses++;
      return end;
    }
    return -1;
  }

  #rewriteFramed(text: string, at: number, frame: Frame): number {
    const end = this.#fill(text, at, frame);
    if (end < 0) return -1;
    const { outHead, holes, isUnchanged } = frame;
    const received = this.#take(frame, end - at);
    if (received === undefined) return -1;
    this.#frames.choicesBudget.used++;
    if (isUnchanged && received) {
      this.#rewritten = text.slice(at, end);
      return end;
    }
    let out = outHead;
    for (let i = 0; i < holes.length; i++) {
      const { passes, outBehind } = holes[i] as Hole;
      out += passes ? VALUES[i] + outBehind : outBehind;
    }
    this.#rewritten = out;
    return end;
  }

  /** Finds the values in the holes of an event. Returns the index after it; −1 if it does not have the frame. Notes nothing. */
  #fill(text: string, at: number, { head, holes }: Frame): number {
    if (!text.startsWith(head, at)) return -1;
    let start = at + head.length;
    const end = text.indexOf(EVENT_END, start) + EVENT_END.length;
    const last = holes.length - 1;
    const { behind: tail } = holes[last] as Hole;
    const lastEnd = end - tail.length;
    if (lastEnd < start || !text.startsWith(tail, lastEnd)) return -1;
    for (let i = 0; i <= last; i++) {
      const { what, passes, behind } = holes[i] as Hole;
      const stop = i === last ? lastEnd : text.indexOf(behind, start);
      if (stop < start || stop > lastEnd) return -1;
      const isPlain = what === "value" && isPlainAt(text, start, stop);
      // What is not sent on, and needs no parser, is not cut out.
      const value = isPlain && !passes ? "" : text.slice(start, stop);
      if (what === "value" && !isPlain && (MAY_TELL.test(value) || !isValue(value))) return -1;
      if (what === "timings" && !isValue(value)) return -1;
      VALUES[i] = value;
      start = stop + behind.length;
    }
    return end;
  }

  /**
   * Reads the values of an event that has the frame, and puts the choices as they are sent in the place of those that were received.
   * Returns whether they are the same; undefined if they are not what the frame expects, and then nothing was noted.
   */
  #take(frame: Frame, sourceChars: number): boolean | undefined {
    const { holes } = frame;
    let usage: unknown;
    let isReceived: boolean | undefined;
    for (let i = 0; i < holes.length; i++) {
      if (holes[i]?.what !== "usage") continue;
      usage = parsedLine(VALUES[i] as string);
      if (usage !== null && !isRecord(usage)) return undefined;
    }
    for (let i = 0; i < holes.length; i++) {
      const { what } = holes[i] as Hole;
      if (what === "text") isReceived = this.#takeText(VALUES[i] as string, sourceChars);
      else if (what === "choices") isReceived = this.#takeChoices(frame, i, sourceChars);
    }
    if (isReceived === undefined) return undefined;
    if (isRecord(usage)) this.#reports.note(usage);
    else if (frame.repeatsUsage) this.#reports.repeat();
    this.#reports.mark(this.#written.length);
    return isReceived;
  }

  #takeText(raw: string, sourceChars: number): true | undefined {
    const text = PLAIN.test(raw) ? raw : parsed(`"${raw}"`);
    if (typeof text !== "string" || !text.isWellFormed()) return undefined;
    this.#written.add(text, sourceChars);
    this.#frames.textBudget.used++;
    return true;
  }

  #takeChoices(frame: Frame, place: number, sourceChars: number): boolean | undefined {
    const raw = VALUES[place] as string;
    const received = parsedLine(raw);
    // A chunk without choices may be the usage, which is not sent now, or an error.
    if (!Array.isArray(received) || received.length === 0) return undefined;
    if (reportIn({ choices: received }) !== undefined || hasOdd(received)) return undefined;
    if (hasQuirks(raw, received)) return undefined;
    if (frame.isReadAtEnd && received.some(isFinished)) return undefined;
    this.#reports.readChoices(received);
    const choices = this.#repaired(received);
    const text = this.#count(choices, sourceChars);
    const out = choices === received ? raw : JSON.stringify(choices);
    VALUES[place] = out;
    const outOf = (other: string) => this.#sentFor(other, `${text}~`);
    if (text !== "") this.#frames.learnText(frame, { text, raw, out, outOf });
    return out === raw;
  }

  /** The choices as they are sent. Calls that are numbered anew depend on the chunks before. */
  #repaired(received: unknown[]): unknown[] {
    const choices = this.#repair.repaired(received);
    if (choices !== received && (received.some(hasCalls) || this.#repair.isHolding)) this.#frames.forgetTexts();
    return choices;
  }

  /** What is sent for choices with another text; undefined if that is not all that the model wrote. */
  #sentFor(raw: string, text: string): string | undefined {
    const received = parsed(raw);
    // With only the text changed, nothing new begins, and so repairing the choices once more notes nothing.
    if (!Array.isArray(received) || writtenInAll(received) !== text) return undefined;
    const choices = this.#repair.repaired(received);
    return choices === received ? raw : JSON.stringify(choices);
  }

  #rewriteWhole(received: string): string | undefined {
    const read = parseChat(received);
    if (read === undefined) throw new Error("the provider sent an event that is not a JSON object");
    const { value: chunk, spans, text: payload } = read;
    if (reportIn(chunk) !== undefined) throw new Error("the provider sent an error event");

    const hasUsage = isPresent(chunk.usage);
    const isMore = hasUsage && isEmptyList(chunk.choices) && this.#choiceEnds?.isReportOfMore() === true;
    const reports = isMore ? this.#reports.readMore(chunk) : this.#reports.read(chunk, goesOn(chunk));
    // What has neither is no chunk: a ping, a status of the provider. Source: STR-9.
    if (!Array.isArray(chunk.choices) && !hasUsage && !reports) return undefined;
    this.#identify(chunk);
    // A chunk with only the usage is kept for the end, and sent if the client asked for it.
    const given = Array.isArray(chunk.choices) ? chunk.choices : [];
    const hasNone = given.length === 0 && !hasUsage && !reports;
    const choices = this.#repaired(hasNone ? NO_CHOICE : given);
    const edits = new Map<string, string | null>();
    if (choices !== chunk.choices) edits.set("choices", JSON.stringify(choices));
    if (!isTier(chunk.service_tier)) edits.set("service_tier", null);
    if ((hasUsage || reports) && choices.length === 0) {
      this.#reports.mark(this.#written.length);
      edits.set("usage", "null");
      if (this.#facts.wantsUsage) this.#usageChunk = this.#patched(payload, spans, edits);
      return undefined;
    }
    this.#count(choices, payload.length);
    const hasTokens = this.#reports.mark(this.#written.length);
    // A client that did not ask for usage gets no such field, not even null: some SDKs reject it.
    edits.set("usage", this.#facts.wantsUsage ? "null" : null);
    const out = this.#patched(payload, spans, edits);
    const isAsReceived = payload === received;
    if (isAsReceived && (hasUsage ? isRecord(chunk.usage) : !reports))
      this.#frames.learn({ payload, spans, out, hasTokens });
    return out;
  }

  lastEvents(): string {
    const usage = this.usageChunk();
    return `${usage === undefined ? "" : eventOf(usage)}${DONE_EVENT}`;
  }

  /** No [DONE]: a clean end would read as success. */
  errorEvents(error: string | undefined): string {
    return eventOf(String(error));
  }

  /** The last chunk for a client that asked for usage: what was counted for the charge, whatever the provider reported. */
  usageChunk(): string | undefined {
    const { usage, raw } = this.#reports;
    const { counted = usage, charge } = this.#counted ?? {};
    if (!this.#facts.wantsUsage || counted === undefined) return undefined;
    this.#identify({});
    const chunk = this.#usageChunk ?? this.#patched("{}", new Map(), new Map([["choices", "[]"]]));
    const spans = topLevelSpans(chunk) ?? new Map();
    return patch(chunk, spans, new Map([["usage", usageShown({ counted, raw, charge })]]));
  }

  /** The first chunk decides for all. Some providers leave these empty; then ours are used. */
  #identify({ id, created }: Readonly<Record<string, unknown>>): void {
    if (this.#id !== undefined) return;
    this.#id = JSON.stringify(typeof id === "string" && id !== "" ? id : `chatcmpl-${this.#facts.requestId}`);
    this.#created = String(createdOf(created, this.#facts.createdUnix));
  }

  #patched(payload: string, spans: ReadonlyMap<string, Span>, edits: Map<string, string | null>): string {
    edits.set("id", this.#id as string);
    edits.set("created", this.#created as string);
    edits.set("model", this.#model);
    edits.set("object", '"chat.completion.chunk"');
    for (const name of NOT_SENT) edits.set(name, null);
    // A usage of zeros may have been found in `usage`, where ours stands.
    for (const name of this.#reports.foundIn) if (!edits.has(name)) edits.set(name, null);
    return patch(payload, spans, edits);
  }

  /** Notes the text of the choices, and whether they finish the answer. Returns the text. */
  #count(choices: unknown[], sourceChars: number): string {
    if (this.#choiceEnds !== undefined) this.finished = this.#choiceEnds.note(choices);
    else if (choices.some(isFinished)) this.finished = true;
    const written = writtenInAll(choices);
    this.#written.add(written, sourceChars);
    if (this.finished && this.#choiceEnds === undefined) this.#finishedAt ??= this.#written.length;
    return written;
  }
}

/**
 * Which of several choices have begun and finished. Not how many were asked for: some providers always send one, and some of them
 * end without [DONE]. Source: END-3, END-11.
 */
class ChoiceEnds {
  readonly #asked: number;
  readonly #begun = new Set<number>();
  readonly #finished = new Set<number>();

  /** How many had finished when a usage came. */
  #reported = 0;

  constructor(asked: number) {
    this.#asked = asked;
  }

  /**
   * A usage came, alone in its chunk. Returns whether it is that of one more choice: another has finished since the usage before. A usage
   * of all choices comes once, or again at the end. Source: MON-19.
   */
  isReportOfMore(): boolean {
    const before = this.#reported;
    this.#reported = this.#finished.size;
    return before > 0 && this.#finished.size > before;
  }

  /** Notes the choices of a chunk. Returns whether all that have begun have finished. */
  note(choices: unknown[]): boolean {
    for (const choice of choices) {
      if (!isRecord(choice)) continue;
      const index = isCount(choice.index) ? Math.min(choice.index, this.#asked - 1) : 0;
      this.#begun.add(index);
      if (isFinished(choice)) this.#finished.add(index);
    }
    return this.#finished.size > 0 && this.#finished.size === this.#begun.size;
  }
}

export function eventOf(payload: string): string {
  return EVENT_START + payload + EVENT_END;
}

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0;
}

/** Whether a chunk is one of an answer's middle: it has choices, and none of them finishes. */
function goesOn({ choices }: Readonly<Record<string, unknown>>): boolean {
  return Array.isArray(choices) && choices.length > 0 && !choices.some(isFinished);
}

function hasCalls(choice: unknown): boolean {
  const said = isRecord(choice) ? saidIn(choice, "delta") : undefined;
  return isRecord(said) && (said.tool_calls ?? said.toolCalls ?? said.function_call ?? null) !== null;
}

function isFinished(choice: unknown): boolean {
  return finishOf(choice) !== undefined;
}

/** The text that the model wrote in all choices of a chunk. */
export function writtenInAll(choices: unknown[]): string {
  let written = "";
  for (const choice of choices) if (isRecord(choice)) written += writtenIn(choice.delta);
  return written;
}

/** The text that the model wrote in a delta or message: content, reasoning, a refusal, calls of functions and of custom tools. */
export function writtenIn(message: unknown): string {
  if (!isRecord(message)) return "";
  const { content, reasoning_content, reasoning, refusal, tool_calls, function_call } = message;
  let text = textIn(content) + textIn(reasoning_content) + textIn(refusal);
  // Some providers send the same text in both fields.
  if (reasoning !== reasoning_content) text += textIn(reasoning);
  if (Array.isArray(tool_calls))
    for (const call of tool_calls) if (isRecord(call)) text += calledIn(call.function) + calledIn(call.custom);
  return text + calledIn(function_call);
}

function calledIn(call: unknown): string {
  return isRecord(call) ? textIn(call.name) + textIn(call.arguments) + textIn(call.input) : "";
}

/** A text, or the texts of a list of parts: text, and thinking with texts of its own. */
function textIn(content: unknown): string {
  if (typeof content === "string") return content;
  let text = "";
  if (Array.isArray(content))
    for (const part of content) if (isRecord(part)) text += textIn(part.text) + textIn(part.thinking);
  return text;
}

function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}
