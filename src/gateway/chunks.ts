import { patch, topLevelSpans } from "../http/json_spans.ts";
import type { Span } from "../http/json_text.ts";

/** Rewrites the chunks of a chat stream for the client, and reads the text and usage out of them. Source: STR-3, STR-4. */

/** Relayed text is kept up to this length, in characters, for counting if the client leaves. Beyond it only the length is kept. */
const TEXT_KEPT_MAX = 32 * 1024;
/** A slice of a string keeps the whole string in memory. Once slices keep more than this alive, they are copied. */
const SLICED_CHARS_MAX = 4 * 1024;
/** Maximum number of envelopes learned from one stream. Beyond it the provider's chunks differ too much for the fast path. */
const ENVELOPES_MAX = 4;
/** The same for the envelopes of a text. */
const TEXT_ENVELOPES_MAX = 8;
/** The content of a JSON string without escapes. Others are parsed. */
const PLAIN = /^[^"\\\p{Cc}]*$/u;

/** Token counts as a provider reports them. */
export type ReportedUsage = {
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** The part of the completion tokens that is reasoning, visible or not. */
  reasoningTokens: number;
};

/** What the client has been sent so far. */
export type Relayed = {
  /** The beginning of the text, up to TEXT_KEPT_MAX characters. */
  text: string;
  /** Length of the whole text, in characters. */
  chars: number;
  usage: ReportedUsage | undefined;
  /** The provider's last usage object, unchanged; undefined if there was none. */
  rawUsage: unknown;
};

export type StreamFacts = { requestId: string; createdUnix: number; modelId: string; wantsUsage: boolean };

/**
 * The text before and after the choices of a chunk, as received and as sent on. Most chunks of a stream have the same envelope. Then
 * only the choices are parsed: if they are one JSON value, the whole chunk is valid JSON. The same is done for the text before
 * and after the one text in the choices, which must be a JSON string.
 */
type Envelope = { head: string; tail: string; outHead: string; outTail: string };

/** Gives all chunks of a stream the same id, the same created and the client's model name, and takes the usage out of them. */
export class ChunkRewriter {
  readonly #facts: StreamFacts;
  readonly #model: string;
  #id: string | undefined;
  #created: string | undefined;
  #usageJson: string | undefined;
  #usageChunk: string | undefined;
  /** The envelope of the choices. */
  #envelope: Envelope | undefined;
  #envelopesLearned = 0;
  /** The envelope of the one text in the choices. */
  #textEnvelope: Envelope | undefined;
  #textEnvelopesLearned = 0;
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

  /** Returns the payload for the client; undefined if it is not sent now. Throws if the provider's payload is not a chunk. */
  rewrite(received: string): string | undefined {
    // An event may arrive on several lines, and is sent on one. In JSON a line break is white space.
    const payload = received.includes("\n") ? received.replaceAll("\n", " ") : received;
    return this.#rewriteText(payload) ?? this.#rewriteChoices(payload) ?? this.#rewriteWhole(payload);
  }

  /** Fast path: a chunk that differs from an earlier one only in its text. */
  #rewriteText(payload: string): string | undefined {
    const envelope = this.#textEnvelope;
    const raw = envelope && insideOf(payload, envelope);
    if (raw === undefined) return undefined;
    const text = PLAIN.test(raw) ? raw : parsed(`"${raw}"`);
    if (typeof text !== "string") return undefined;
    this.#written.add(text, payload.length);
    return inEnvelope(payload, raw, envelope as Envelope);
  }

  /** Fast path: a chunk that differs from an earlier one only in its choices. */
  #rewriteChoices(payload: string): string | undefined {
    const envelope = this.#envelope;
    const raw = envelope && insideOf(payload, envelope);
    const choices = raw && parsed(raw);
    if (!Array.isArray(choices)) return undefined;
    const text = this.#count(choices, payload.length);
    if (text !== "" && this.#textEnvelopesLearned < TEXT_ENVELOPES_MAX) {
      this.#textEnvelopesLearned++;
      this.#textEnvelope = textEnvelopeOf(raw as string, text, envelope as Envelope);
    }
    return inEnvelope(payload, raw as string, envelope as Envelope);
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
      // The last valid usage counts, and is sent to the client.
      this.#usage = usage;
      this.#usageJson = rawOf(payload, spans, "usage");
      this.#usageChunk = undefined;
    }
    // The first chunk decides for all. Some providers leave these empty; then ours are used.
    if (this.#id === undefined) {
      const said = typeof chunk.id === "string" && chunk.id !== "" ? chunk.id : `chatcmpl-${this.#facts.requestId}`;
      this.#id = JSON.stringify(said);
      this.#created = String(isCount(chunk.created) && chunk.created > 0 ? chunk.created : this.#facts.createdUnix);
    }
    // A chunk with only the usage is kept for the end, and sent if the client asked for it.
    const choices = Array.isArray(chunk.choices) ? chunk.choices : [];
    const edits = new Map<string, string | null>();
    if (!Array.isArray(chunk.choices)) edits.set("choices", "[]");
    if (hasUsage && choices.length === 0) {
      if (usage !== undefined) this.#usageChunk = this.#patched(payload, spans, edits);
      return undefined;
    }
    this.#count(choices, payload.length);
    // A client that did not ask for usage gets no such field, not even null: some SDKs reject it.
    edits.set("usage", this.#facts.wantsUsage ? "null" : null);
    const out = this.#patched(payload, spans, edits);
    if (!hasUsage && this.#envelopesLearned < ENVELOPES_MAX) {
      this.#envelopesLearned++;
      this.#envelope = envelopeOf(payload, spans, out);
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

  /** Notes the text of the choices, and whether they finish the answer. Returns the text. */
  #count(choices: unknown[], sourceChars: number): string {
    if (choices.some(isFinish)) this.finished = true;
    const written = writtenInAll(choices);
    this.#written.add(written, sourceChars);
    return written;
  }
}

/** The text of the model so far: its beginning, and the length of all of it. */
class Written {
  /** In characters. */
  length = 0;
  #pieces: string[] = [];
  #keptChars = 0;
  #slicedChars = 0;

  /** `sourceChars`: the length of the string that the piece may be a slice of. */
  add(piece: string, sourceChars: number): void {
    this.length += piece.length;
    if (piece === "" || this.#keptChars >= TEXT_KEPT_MAX) return;
    const kept = piece.slice(0, TEXT_KEPT_MAX);
    this.#keptChars += kept.length;
    this.#pieces.push(kept);
    this.#slicedChars += sourceChars;
    if (this.#slicedChars > SLICED_CHARS_MAX) this.#pieces = [this.text];
  }

  /** The kept text, copied into one string. */
  get text(): string {
    this.#slicedChars = 0;
    return this.#pieces.join("");
  }
}

/** The envelope of the choices of a chunk without usage. */
function envelopeOf(payload: string, spans: ReadonlyMap<string, Span>, out: string): Envelope | undefined {
  const received = spans.get("choices");
  const sent = out === payload ? received : topLevelSpans(out)?.get("choices");
  return (
    received &&
    sent && {
      head: payload.slice(0, received.start),
      tail: payload.slice(received.end),
      outHead: out.slice(0, sent.start),
      outTail: out.slice(sent.end),
    }
  );
}

/** The envelope of the text of a chunk, whose choices `raw` have `envelope`; undefined if the choices contain more than `text`. */
function textEnvelopeOf(raw: string, text: string, envelope: Envelope): Envelope | undefined {
  const json = JSON.stringify(text);
  const at = raw.lastIndexOf(json);
  if (at < 0) return undefined;
  const before = raw.slice(0, at + 1);
  const behind = raw.slice(at + json.length - 1);
  // Checked by putting another text there: it must be all that the model wrote.
  const other = `${text}~`;
  const choices = parsed(before + JSON.stringify(other).slice(1, -1) + behind);
  if (!Array.isArray(choices) || writtenInAll(choices) !== other) return undefined;
  return {
    head: envelope.head + before,
    tail: behind + envelope.tail,
    outHead: envelope.outHead + before,
    outTail: behind + envelope.outTail,
  };
}

/** The part of the payload inside the envelope; undefined if it has another envelope. */
function insideOf(payload: string, { head, tail }: Envelope): string | undefined {
  const end = payload.length - tail.length;
  return end >= head.length && payload.startsWith(head) && payload.endsWith(tail)
    ? payload.slice(head.length, end)
    : undefined;
}

function inEnvelope(payload: string, inside: string, { head, tail, outHead, outTail }: Envelope): string {
  return head === outHead && tail === outTail ? payload : outHead + inside + outTail;
}

/** The parsed value; undefined if it is not JSON. The slow path then decides whether the payload is an error. */
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

/** The text that the model wrote in all choices of a chunk. */
function writtenInAll(choices: unknown[]): string {
  let written = "";
  for (const choice of choices) if (isRecord(choice)) written += writtenIn(choice.delta);
  return written;
}

/** The text that the model wrote in a delta or message: content, reasoning, a refusal, tool calls. */
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

/** The counts of a provider's usage object; undefined if they are not valid counts. */
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

/** 0 if there is no such count. */
function countIn(details: unknown, name: string): number {
  const count = isRecord(details) ? details[name] : undefined;
  return isCount(count) ? count : 0;
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 2_000_000_000;
}
