import { patch, topLevelSpans } from "../http/json_spans.ts";
import type { Span } from "../http/json_text.ts";
import { isRecord } from "../platform/records.ts";
import { isCount, type ReportedUsage, USAGE_MEMBERS, UsageReports } from "./usage_counts.ts";
import { type CountedUsage, type ShownCharge, usageShown } from "./usage_shown.ts";
import { Written, type WrittenText } from "./written.ts";

/** Rewrites the chunks of a chat stream for the client, and reads the text and usage out of them. Source: STR-3, STR-4. */

/** A stream learns so many frames of a kind, and one more for each USES_A_FRAME chunks that had one: learning costs more than it saves once. */
const FRAMES_FREE = 8;
const USES_A_FRAME = 64;
/** The content of a JSON string without escapes. Others are parsed. */
const PLAIN = /^[^"\\\p{Cc}]*$/u;
/** How the events that are sent begin and end. Only events that are received in this form can have a frame. */
const EVENT_START = "data: ";
const EVENT_END = "\n\n";
const DONE_EVENT = "data: [DONE]\n\n";
const LETTERS = /^[\w-]*$/;
/** Fields of an answer or a chunk by which a provider says who it is: OpenRouter, Groq. They are not sent on. Source: PRV-25. */
export const PROVIDER_FIELDS = ["provider", "x_groq"];
const NOT_SENT = [...PROVIDER_FIELDS, ...USAGE_MEMBERS];
/** Fields of a chunk that are not sent on as received. */
const EDITED: ReadonlySet<string> = new Set([...["id", "object", "created", "model", "usage", "choices"], ...NOT_SENT]);

/** What the client has been sent so far. */
export type Relayed = WrittenText & {
  usage: ReportedUsage | undefined;
  /** The provider's last usage object, unchanged; undefined if there was none. */
  rawUsage: unknown;
};

export type StreamFacts = {
  requestId: string;
  createdUnix: number;
  modelId: string;
  wantsUsage: boolean;
  /** How many were asked for; one if it is not given. */
  choices?: number;
};

/** Turns the events of a provider's stream into those of the client, and reads the text and usage out of them. */
export type StreamRewriter = {
  /** What the client has been sent so far. */
  readonly relayed: Relayed;
  /** What the provider reported last. */
  readonly usage: ReportedUsage | undefined;
  /** The answer is complete: the provider may still break off, or report the usage. */
  readonly finished: boolean;
  /** `[DONE]` ends the stream, and is not given to the rewriter. Otherwise it is no event of an answer. */
  readonly endsWithDone: boolean;
  /** The last payload was the end of the stream. */
  readonly isOver: boolean;
  /** Fast path: as `EventSink.takeEvent`. What it returns an index for stands in `rewritten`. */
  rewriteEvent(text: string, at: number): number;
  readonly rewritten: string;
  /** The events for the client; undefined if none is sent now. Throws if the payload is no event of an answer. */
  rewrite(payload: string): string | undefined;
  /** The next event is too large to be read, and breaks the stream off. */
  oversized?(): void;
  /** What the answer used, as it was charged, and the charge if the client asked for it. Called before `lastEvents`. */
  counted(usage: CountedUsage, charge?: ShownCharge): void;
  /** The last events of an answer that is complete. */
  lastEvents(): string;
  /** The last events of a stream that broke off. `error`: an error envelope as JSON. */
  errorEvents(error: string | undefined): string;
};

/**
 * What stays the same in the events of a stream, as received and as sent: the text around one or two values that change. The chunk of
 * an event that has the frame is valid JSON if its changing values are. So only these are checked, and all the rest is neither parsed
 * nor searched.
 *
 *   received: head · first · middle · second · tail          sent: outHead · first · outMiddle · [second] · outTail
 *
 * `first` is the one text in the choices, or all of the choices. `second`, behind it, is a string that providers fill with random
 * letters (OpenAI: `obfuscation`), which is sent on, or the usage in every chunk, which is not. Without `second`, `middle` is "".
 */
type Frame = {
  head: string;
  middle: string;
  tail: string;
  outHead: string;
  outMiddle: string;
  outTail: string;
  first: "text" | "choices";
  second: "none" | "letters" | "usage";
  /** Events with the frame are sent as received. */
  isUnchanged: boolean;
};

/** Gives all chunks of a stream the same id, the same created and the client's model name, and takes the usage out of them. */
export class ChunkRewriter implements StreamRewriter {
  readonly #facts: StreamFacts;
  readonly #model: string;
  #id: string | undefined;
  #created: string | undefined;
  /** The provider's last chunk with only the usage. */
  #usageChunk: string | undefined;
  /** The frame around the choices, and the one around the only text in them. */
  #choicesFrame: Frame | undefined;
  #textFrame: Frame | undefined;
  readonly #choicesBudget = new FrameBudget();
  readonly #textBudget = new FrameBudget();
  readonly #reports = new UsageReports();
  #counted: { counted: CountedUsage; charge: ShownCharge | undefined } | undefined;
  readonly #written = new Written();
  /** Only of an answer with several choices. */
  readonly #choiceEnds: ChoiceEnds | undefined;
  finished = false;
  readonly endsWithDone = true;
  readonly isOver = false;

  constructor(facts: StreamFacts) {
    const { choices = 1 } = facts;
    this.#facts = facts;
    this.#model = JSON.stringify(facts.modelId);
    this.#choiceEnds = choices > 1 ? new ChoiceEnds(choices) : undefined;
  }

  get relayed(): Relayed {
    return {
      ...this.#written.soFar,
      usage: this.#reports.usage,
      rawUsage: this.#reports.raw,
    };
  }

  /** What the provider reported last. */
  get usage(): ReportedUsage | undefined {
    return this.#reports.usage;
  }

  counted(counted: CountedUsage, charge?: ShownCharge): void {
    this.#counted = { counted, charge };
  }

  /** Returns the event for the client; undefined if none is sent now. Throws if the provider's payload is not a chunk. */
  rewrite(received: string): string | undefined {
    // An event may arrive on several lines, and is sent on one. In JSON a line break is white space.
    const payload = received.includes("\n") ? received.replaceAll("\n", " ") : received;
    if (this.#choicesFrame !== undefined && this.rewriteEvent(eventOf(payload), 0) > 0) return this.rewritten;
    const rewritten = this.#rewriteWhole(payload);
    return rewritten === undefined ? undefined : eventOf(rewritten);
  }

  /** The event for the client, after `rewriteEvent` has found one. */
  rewritten = "";

  /**
   * Fast path: rewrites the event that begins at `at`, if it differs from an earlier one only in the values that a frame leaves open.
   * Returns the index after it and sets `rewritten`; otherwise returns −1, and nothing was noted.
   */
  rewriteEvent(text: string, at: number): number {
    if (this.#textFrame !== undefined) {
      const end = this.#rewriteFramed(text, at, this.#textFrame);
      if (end > 0) return end;
    }
    return this.#choicesFrame === undefined ? -1 : this.#rewriteFramed(text, at, this.#choicesFrame);
  }

  #rewriteFramed(text: string, at: number, frame: Frame): number {
    const { head, middle, tail, second: kind } = frame;
    if (!text.startsWith(head, at)) return -1;
    const start = at + head.length;
    const end = text.indexOf(EVENT_END, start) + EVENT_END.length;
    const tailStart = end - tail.length;
    if (tailStart < start || !text.startsWith(tail, tailStart)) return -1;
    const firstEnd = kind === "none" ? tailStart : text.indexOf(middle, start);
    const secondStart = firstEnd + middle.length;
    if (firstEnd < start || secondStart > tailStart) return -1;
    const first = text.slice(start, firstEnd);
    const second = kind === "none" ? "" : text.slice(secondStart, tailStart);
    if (kind === "letters" && !LETTERS.test(second)) return -1;
    const usage = kind === "usage" ? parsedLine(second) : undefined;
    if (kind === "usage" && !isRecord(usage)) return -1;
    if (!this.#noteFirst(first, frame, { sourceChars: end - at, hasUsage: usage !== undefined })) return -1;
    if (usage !== undefined) this.#reports.note(usage);
    this.#choicesBudget.used++;
    const { outHead, outMiddle, outTail, isUnchanged } = frame;
    if (isUnchanged) this.rewritten = text.slice(at, end);
    else this.rewritten = outHead + first + outMiddle + (kind === "letters" ? second : "") + outTail;
    return end;
  }

  /** Notes the text of a chunk that has the frame; false if its first value is not what the frame expects. */
  #noteFirst(
    first: string,
    frame: Frame,
    { sourceChars, hasUsage }: { sourceChars: number; hasUsage: boolean },
  ): boolean {
    if (frame.first === "text") {
      const text = PLAIN.test(first) ? first : parsed(`"${first}"`);
      if (typeof text !== "string") return false;
      this.#written.add(text, sourceChars);
      this.#textBudget.used++;
      return true;
    }
    const choices = parsedLine(first);
    // A chunk with only the usage is not sent now, and one with an error not at all.
    if (!Array.isArray(choices) || (choices.length === 0 && hasUsage) || errorIn({ choices }) !== undefined)
      return false;
    this.#reports.readChoices(choices);
    const text = this.#count(choices, sourceChars);
    if (text !== "" && this.#textBudget.take()) this.#textFrame = copied(textFrameOf(first, text, frame));
    return true;
  }

  #rewriteWhole(payload: string): string | undefined {
    const chunk: unknown = JSON.parse(payload);
    const spans = topLevelSpans(payload);
    if (!isRecord(chunk) || spans === undefined)
      throw new Error("the provider sent an event that is not a JSON object");
    if (errorIn(chunk) !== undefined) throw new Error("the provider sent an error event");

    const reports = this.#reports.read(chunk);
    const hasUsage = isPresent(chunk.usage);
    this.#identify(chunk);
    // A chunk with only the usage is kept for the end, and sent if the client asked for it.
    const choices = Array.isArray(chunk.choices) ? chunk.choices : [];
    const edits = new Map<string, string | null>();
    if (!Array.isArray(chunk.choices)) edits.set("choices", "[]");
    if ((hasUsage || reports) && choices.length === 0) {
      edits.set("usage", "null");
      if (this.#facts.wantsUsage) this.#usageChunk = this.#patched(payload, spans, edits);
      return undefined;
    }
    this.#count(choices, payload.length);
    // A client that did not ask for usage gets no such field, not even null: some SDKs reject it.
    edits.set("usage", this.#facts.wantsUsage ? "null" : null);
    const out = this.#patched(payload, spans, edits);
    if ((hasUsage ? isRecord(chunk.usage) : !reports) && this.#choicesBudget.take())
      this.#choicesFrame = copied(frameOf(payload, spans, out, hasUsage));
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
    this.#created = String(isCount(created) && created > 0 ? created : this.#facts.createdUnix);
  }

  #patched(payload: string, spans: ReadonlyMap<string, Span>, edits: Map<string, string | null>): string {
    edits.set("id", this.#id as string);
    edits.set("created", this.#created as string);
    edits.set("model", this.#model);
    edits.set("object", '"chat.completion.chunk"');
    for (const name of NOT_SENT) edits.set(name, null);
    return patch(payload, spans, edits);
  }

  /** Notes the text of the choices, and whether they finish the answer. Returns the text. */
  #count(choices: unknown[], sourceChars: number): string {
    if (this.#choiceEnds !== undefined) this.finished = this.#choiceEnds.note(choices);
    else if (choices.some(isFinish)) this.finished = true;
    const written = writtenInAll(choices);
    this.#written.add(written, sourceChars);
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

  constructor(asked: number) {
    this.#asked = asked;
  }

  /** Notes the choices of a chunk. Returns whether all that have begun have finished. */
  note(choices: unknown[]): boolean {
    for (const choice of choices) {
      if (!isRecord(choice)) continue;
      const index = isCount(choice.index) ? Math.min(choice.index, this.#asked - 1) : 0;
      this.#begun.add(index);
      if (isFinish(choice)) this.#finished.add(index);
    }
    return this.#finished.size > 0 && this.#finished.size === this.#begun.size;
  }
}

/** Whether a stream may learn another frame. */
class FrameBudget {
  /** Chunks that had the frame. */
  used = 0;
  #learned = 0;

  take(): boolean {
    if (this.#learned >= FRAMES_FREE + this.used / USES_A_FRAME) return false;
    this.#learned++;
    return true;
  }
}

/** A string of its own: a slice keeps the string that it was cut from in memory, and a concatenation all its parts. */
function copyOf(text: string): string {
  return Buffer.from(text).toString();
}

function eventOf(payload: string): string {
  return EVENT_START + payload + EVENT_END;
}

/** The frame around the choices of a chunk, and around what changes behind them; undefined if it has none. */
function frameOf(payload: string, spans: ReadonlyMap<string, Span>, out: string, hasUsage: boolean): Frame | undefined {
  const choices = spans.get("choices");
  const outSpans = out === payload ? spans : topLevelSpans(out);
  const outChoices = outSpans?.get("choices");
  if (choices === undefined || outSpans === undefined || outChoices === undefined) return undefined;
  const heads = {
    head: EVENT_START + payload.slice(0, choices.start),
    outHead: EVENT_START + out.slice(0, outChoices.start),
    isUnchanged: out === payload,
  };
  const first = "choices";
  if (hasUsage) {
    const usage = spans.get("usage") as Span;
    if (usage.start < choices.end) return undefined;
    const received = { middle: payload.slice(choices.end, usage.start), tail: payload.slice(usage.end) + EVENT_END };
    // In what is sent on nothing changes behind the choices.
    return { ...heads, ...received, outMiddle: out.slice(outChoices.end), outTail: EVENT_END, first, second: "usage" };
  }
  const [letters, outLetters] = lettersBehind(payload, spans, outSpans);
  if (letters === undefined || outLetters === undefined) {
    const tails = { tail: payload.slice(choices.end) + EVENT_END, outTail: out.slice(outChoices.end) + EVENT_END };
    return { ...heads, ...tails, middle: "", outMiddle: "", first, second: "none" };
  }
  return {
    ...heads,
    middle: payload.slice(choices.end, letters.start + 1),
    tail: payload.slice(letters.end - 1) + EVENT_END,
    outMiddle: out.slice(outChoices.end, outLetters.start + 1),
    outTail: out.slice(outLetters.end - 1) + EVENT_END,
    first,
    second: "letters",
  };
}

/** The frame with strings of its own: it lives as long as the stream. */
function copied(frame: Frame | undefined): Frame | undefined {
  if (frame === undefined) return undefined;
  const { head, middle, tail, outHead, outMiddle, outTail } = frame;
  return {
    ...frame,
    head: copyOf(head),
    middle: copyOf(middle),
    tail: copyOf(tail),
    outHead: copyOf(outHead),
    outMiddle: copyOf(outMiddle),
    outTail: copyOf(outTail),
  };
}

/** Where the last field stands, as received and as sent on, if it is a string of letters behind the choices that is sent on as received. */
function lettersBehind(
  payload: string,
  spans: ReadonlyMap<string, Span>,
  outSpans: ReadonlyMap<string, Span>,
): [Span?, Span?] {
  const [name = "", last] = [...spans].at(-1) ?? [];
  if (last === undefined || EDITED.has(name) || payload[last.start] !== '"') return [];
  return LETTERS.test(payload.slice(last.start + 1, last.end - 1)) ? [last, outSpans.get(name)] : [];
}

/** The frame around the only text of a chunk, whose choices `raw` have `frame`; undefined if the choices contain more than `text`. */
function textFrameOf(raw: string, text: string, frame: Frame): Frame | undefined {
  const json = JSON.stringify(text);
  const at = raw.lastIndexOf(json);
  if (at < 0) return undefined;
  const before = raw.slice(0, at + 1);
  const behind = raw.slice(at + json.length - 1);
  // Checked by putting another text there: it must be all that the model wrote.
  const other = `${text}~`;
  const choices = parsed(before + JSON.stringify(other).slice(1, -1) + behind);
  if (!Array.isArray(choices) || writtenInAll(choices) !== other) return undefined;
  const framed = { ...frame, head: frame.head + before, outHead: frame.outHead + before, first: "text" as const };
  return frame.second === "none"
    ? { ...framed, tail: behind + frame.tail, outTail: behind + frame.outTail }
    : { ...framed, middle: behind + frame.middle, outMiddle: behind + frame.outMiddle };
}

/** The parsed value; undefined if it is not JSON. The slow path then decides whether the payload is an error. */
function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** As `parsed`, but undefined for JSON with line breaks: in an event as it was received they end a line. */
function parsedLine(json: string): unknown {
  return json.includes("\n") || json.includes("\r") ? undefined : parsed(json);
}

/**
 * The error that an answer or a chunk reports, of itself or of a choice, as OpenRouter does; undefined if it reports none. A choice may
 * say with its finish_reason alone that the provider failed. Source: END-2, END-3.
 */
export function errorIn({ error, choices }: Readonly<Record<string, unknown>>): unknown {
  if (isPresent(error)) return error;
  if (!Array.isArray(choices)) return undefined;
  for (const choice of choices) {
    if (!isRecord(choice)) continue;
    if (isPresent(choice.error)) return choice.error;
    if (choice.finish_reason === "error") return {};
  }
  return undefined;
}

function isFinish(choice: unknown): boolean {
  return isRecord(choice) && typeof choice.finish_reason === "string" && choice.finish_reason !== "";
}

/** The text that the model wrote in all choices of a chunk. */
function writtenInAll(choices: unknown[]): string {
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
