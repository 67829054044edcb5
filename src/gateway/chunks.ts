import { patch, type Span, topLevelSpans } from "../http/json_spans.ts";

/** The chunks of a chat stream, one after another: made the client's, and read for what they used. Source: rulings › Streams. */

/** Relayed text is kept up to here, for counting when the client leaves; beyond it only its length is. */
const TEXT_KEPT_MAX = 32 * 1024;
/** A piece of a text keeps all of it in memory: as many characters of chunks are held for what was cut out of them. */
const HELD_CHARS_MAX = 4 * 1024;
/** A provider whose chunks differ in more than their choices is given up on for the short way, */
const FRAMES_MAX = 4;
/** and one whose choices differ in more than their text for the shortest. */
const TEXT_FRAMES_MAX = 8;
/** What stands between a JSON string's quotes, if nothing in it is escaped. Others are left to the parser. */
const PLAIN = /^[^"\\\p{Cc}]*$/u;

/** Token counts as a provider reports them. */
export type ReportedUsage = {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** Of the completion's: those that the model thought, seen or not. */
  reasoningTokens: number;
};

/** What went to the client so far. */
export type Relayed = {
  /** The beginning of the text, up to TEXT_KEPT_MAX characters. */
  text: string;
  /** Length of the whole text, in characters. */
  chars: number;
  usage: ReportedUsage | undefined;
  /** The provider's last usage object as it came; undefined: there was none. */
  rawUsage: unknown;
};

export type StreamFacts = { requestId: string; createdUnix: number; modelId: string; wantsUsage: boolean };

/**
 * What the chunks of a stream have around their choices, most of them the very same: as it comes, and as it goes out. Where
 * the frame is the same the choices alone have to be parsed; that they are one JSON value makes all of it one again. So it is
 * with what stands around the text of a choice, which is one JSON string.
 */
type Frame = { head: string; tail: string; outHead: string; outTail: string };

/** Gives a stream one id, one created and the client's model name, and takes the usage out of it. */
export class ChunkRewriter {
  readonly #facts: StreamFacts;
  readonly #model: string;
  #id: string | undefined;
  #created: string | undefined;
  #usageJson: string | undefined;
  #usageChunk: string | undefined;
  /** Around the choices. */
  #frame: Frame | undefined;
  #framesMade = 0;
  /** Around the one text in them. */
  #textFrame: Frame | undefined;
  #textFramesMade = 0;
  #usage: ReportedUsage | undefined;
  #rawUsage: unknown;
  readonly #written = new Written();
  finished = false;

  constructor(facts: StreamFacts) {
    this.#facts = facts;
    this.#model = JSON.stringify(facts.modelId);
  }

  get relayed(): Relayed {
    return {
      text: this.#written.text,
      chars: this.#written.length,
      usage: this.#usage,
      rawUsage: this.#rawUsage,
    };
  }

  /** What the provider reported last. */
  get usage(): ReportedUsage | undefined {
    return this.#usage;
  }

  /** The payload for the client; undefined when it is not for the client now. Throws when the provider sent no chunk. */
  rewrite(received: string): string | undefined {
    // An event may come on several lines and goes out on one; in JSON a line break is only ever space.
    const payload = received.includes("\n") ? received.replaceAll("\n", " ") : received;
    return this.#rewriteText(payload) ?? this.#rewriteChoices(payload) ?? this.#rewriteWhole(payload);
  }

  /** Of a chunk that is the one before with another text. */
  #rewriteText(payload: string): string | undefined {
    const frame = this.#textFrame;
    const raw = frame && insideOf(payload, frame);
    if (raw === undefined) return undefined;
    const text = PLAIN.test(raw) ? raw : parsed(`"${raw}"`);
    if (typeof text !== "string") return undefined;
    this.#written.add(text, payload.length);
    return inFrame(payload, raw, frame as Frame);
  }

  /** Of a chunk that is the one before with other choices. */
  #rewriteChoices(payload: string): string | undefined {
    const frame = this.#frame;
    const raw = frame && insideOf(payload, frame);
    const choices = raw && parsed(raw);
    if (!Array.isArray(choices)) return undefined;
    const text = this.#count(choices, payload.length);
    if (text !== "" && this.#textFramesMade < TEXT_FRAMES_MAX) {
      this.#textFramesMade++;
      this.#textFrame = textFrameOf(raw as string, text, frame as Frame);
    }
    return inFrame(payload, raw as string, frame as Frame);
  }

  #rewriteWhole(payload: string): string | undefined {
    const chunk: unknown = JSON.parse(payload);
    const spans = topLevelSpans(payload);
    if (!isRecord(chunk) || spans === undefined)
      throw new Error("the provider sent an event that is not a JSON object");
    if (isPresent(chunk.error)) throw new Error("the provider sent an error event");

    const hasUsage = isPresent(chunk.usage);
    const usage = reportedUsageOf(chunk.usage);
    if (hasUsage && (usage !== undefined || this.#usage === undefined)) this.#rawUsage = chunk.usage;
    if (usage !== undefined) {
      // The last that can be believed counts, and is what the client is told.
      this.#usage = usage;
      this.#usageJson = rawOf(payload, spans, "usage");
      this.#usageChunk = undefined;
    }
    // The first chunk decides for all; ours where it leaves them empty, as some providers do.
    if (this.#id === undefined) {
      const said = typeof chunk.id === "string" && chunk.id !== "" ? chunk.id : `chatcmpl-${this.#facts.requestId}`;
      this.#id = JSON.stringify(said);
      this.#created = String(isCount(chunk.created) && chunk.created > 0 ? chunk.created : this.#facts.createdUnix);
    }
    // The chunk that only carries the usage waits for the end, and goes out if the client asked for it.
    const choices = Array.isArray(chunk.choices) ? chunk.choices : [];
    const edits = new Map<string, string | null>();
    if (!Array.isArray(chunk.choices)) edits.set("choices", "[]");
    if (hasUsage && choices.length === 0) {
      if (usage !== undefined) this.#usageChunk = this.#patched(payload, spans, edits);
      return undefined;
    }
    this.#count(choices, payload.length);
    // Who did not ask gets no such field, not even null: some SDKs refuse it.
    edits.set("usage", this.#facts.wantsUsage ? "null" : null);
    const out = this.#patched(payload, spans, edits);
    if (!hasUsage && this.#framesMade < FRAMES_MAX) {
      this.#framesMade++;
      this.#frame = frameOf(payload, spans, out);
    }
    return out;
  }

  /** The last chunk for a client that asked for usage. */
  usageChunk(): string | undefined {
    if (!this.#facts.wantsUsage || this.#usageJson === undefined) return undefined;
    if (this.#usageChunk !== undefined) return this.#usageChunk;
    return `{"id":${this.#id},"object":"chat.completion.chunk","created":${this.#created},"model":${this.#model},"choices":[],"usage":${this.#usageJson}}`;
  }

  #patched(payload: string, spans: ReadonlyMap<string, Span>, edits: Map<string, string | null>): string {
    edits.set("id", this.#id as string);
    edits.set("created", this.#created as string);
    edits.set("model", this.#model);
    edits.set("object", '"chat.completion.chunk"');
    return patch(payload, spans, edits);
  }

  /** Returns what the model wrote. */
  #count(choices: unknown[], heldChars: number): string {
    if (choices.some(isFinish)) this.finished = true;
    const written = writtenInAll(choices);
    this.#written.add(written, heldChars);
    return written;
  }
}

/** What the model wrote so far, as much of it as is kept. */
class Written {
  /** In characters. */
  length = 0;
  #pieces: string[] = [];
  #keptChars = 0;
  #heldChars = 0;

  /** `heldChars`: of what the piece may be cut out of. */
  add(piece: string, heldChars: number): void {
    this.length += piece.length;
    if (piece === "" || this.#keptChars >= TEXT_KEPT_MAX) return;
    const kept = piece.slice(0, TEXT_KEPT_MAX);
    this.#keptChars += kept.length;
    this.#pieces.push(kept);
    this.#heldChars += heldChars;
    if (this.#heldChars > HELD_CHARS_MAX) this.#pieces = [this.text];
  }

  /** One text of its own. */
  get text(): string {
    this.#heldChars = 0;
    return this.#pieces.join("");
  }
}

/** The frame of a chunk that came and went out without a usage. */
function frameOf(payload: string, spans: ReadonlyMap<string, Span>, out: string): Frame | undefined {
  const came = spans.get("choices");
  const went = out === payload ? came : topLevelSpans(out)?.get("choices");
  return (
    came &&
    went && {
      head: payload.slice(0, came.start),
      tail: payload.slice(came.end),
      outHead: out.slice(0, went.start),
      outTail: out.slice(went.end),
    }
  );
}

/** The frame of a chunk's text, whose choices `raw` stand in `frame` and are written on with `text`; undefined where they are with more. */
function textFrameOf(raw: string, text: string, frame: Frame): Frame | undefined {
  const json = JSON.stringify(text);
  const at = raw.lastIndexOf(json);
  if (at < 0) return undefined;
  const before = raw.slice(0, at + 1);
  const behind = raw.slice(at + json.length - 1);
  // It is the text's place if another text there is all that changes, and is all that is written.
  const other = `${text}~`;
  const choices = parsed(before + JSON.stringify(other).slice(1, -1) + behind);
  if (!Array.isArray(choices) || writtenInAll(choices) !== other) return undefined;
  return {
    head: frame.head + before,
    tail: behind + frame.tail,
    outHead: frame.outHead + before,
    outTail: behind + frame.outTail,
  };
}

/** What stands in the frame; undefined: it is another one. */
function insideOf(payload: string, { head, tail }: Frame): string | undefined {
  const end = payload.length - tail.length;
  return end >= head.length && payload.startsWith(head) && payload.endsWith(tail)
    ? payload.slice(head.length, end)
    : undefined;
}

function inFrame(payload: string, inside: string, { head, tail, outHead, outTail }: Frame): string {
  return head === outHead && tail === outTail ? payload : outHead + inside + outTail;
}

/** Undefined where it is no JSON: looked at as a whole it says what is wrong, or that only the frame has changed. */
function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

function isFinish(choice: unknown): boolean {
  return isRecord(choice) && typeof choice.finish_reason === "string" && choice.finish_reason !== "";
}

/** What the model wrote in all choices of a chunk. */
function writtenInAll(choices: unknown[]): string {
  let written = "";
  for (const choice of choices) if (isRecord(choice)) written += writtenIn(choice.delta);
  return written;
}

/** What the model wrote in a delta or message: text, reasoning, a refusal, calls of tools. */
export function writtenIn(message: unknown): string {
  if (!isRecord(message)) return "";
  const { content, reasoning_content, reasoning, refusal, tool_calls, function_call } = message;
  let text = "";
  for (const part of [content, reasoning_content, reasoning, refusal]) if (typeof part === "string") text += part;
  const calls = Array.isArray(tool_calls) ? tool_calls.map((call) => (isRecord(call) ? call.function : undefined)) : [];
  for (const call of [...calls, function_call]) {
    if (!isRecord(call)) continue;
    for (const part of [call.name, call.arguments]) if (typeof part === "string") text += part;
  }
  return text;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isPresent(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function rawOf(text: string, spans: ReadonlyMap<string, Span>, name: string): string | undefined {
  const span = spans.get(name);
  return span && text.slice(span.start, span.end);
}

/** The counts of a provider's usage object; undefined when they are not counts. */
export function reportedUsageOf(usage: unknown): ReportedUsage | undefined {
  if (!isRecord(usage)) return undefined;
  const { prompt_tokens, completion_tokens, prompt_tokens_details, completion_tokens_details } = usage;
  if (!isCount(prompt_tokens) || !isCount(completion_tokens)) return undefined;
  return {
    promptTokens: prompt_tokens,
    cachedTokens: Math.min(countIn(prompt_tokens_details, "cached_tokens"), prompt_tokens),
    completionTokens: completion_tokens,
    reasoningTokens: countIn(completion_tokens_details, "reasoning_tokens"),
  };
}

/** 0 where there is no such count. */
function countIn(details: unknown, name: string): number {
  const count = isRecord(details) ? details[name] : undefined;
  return isCount(count) ? count : 0;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 2_000_000_000;
}
