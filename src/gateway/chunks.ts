import { patch, type Span, topLevelSpans } from "./json_spans.ts";

/** The chunks of a chat stream, one after another: made the client's, and read for what they used. Source: rulings › Streams. */

/** Relayed text is kept up to here, for counting when the client leaves; beyond it only its length is. */
const TEXT_KEPT_MAX = 32 * 1024;

/** Token counts as a provider reports them. */
export type ReportedUsage = { promptTokens: number; cachedTokens: number; completionTokens: number };

/** What went to the client so far. */
export type Relayed = { text: string; bytes: number; usage: ReportedUsage | undefined };

export type StreamFacts = { requestId: string; createdUnix: number; modelId: string; wantsUsage: boolean };

/** Gives a stream one id, one created and the client's model name, and takes the usage out of it. */
export class ChunkRewriter {
  readonly #facts: StreamFacts;
  readonly #model: string;
  #id: string | undefined;
  #created: string | undefined;
  #usageJson: string | undefined;
  #usageChunk: string | undefined;
  finished = false;
  readonly relayed: Relayed = { text: "", bytes: 0, usage: undefined };

  constructor(facts: StreamFacts) {
    this.#facts = facts;
    this.#model = JSON.stringify(facts.modelId);
  }

  /** The payload for the client; undefined when it is not for the client now. Throws when the provider sent no chunk. */
  rewrite(payload: string): string | undefined {
    const chunk: unknown = JSON.parse(payload);
    const spans = topLevelSpans(payload);
    if (!isRecord(chunk) || spans === undefined)
      throw new Error("the provider sent an event that is not a JSON object");
    if (isPresent(chunk.error)) throw new Error("the provider sent an error event");

    const hasUsage = isPresent(chunk.usage);
    if (hasUsage) {
      const usage = usageOf(chunk.usage);
      this.relayed.usage = usage ?? this.relayed.usage;
      if (usage !== undefined) this.#usageJson = rawOf(payload, spans, "usage");
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
      this.#usageChunk = this.#patched(payload, spans, edits);
      return undefined;
    }
    this.#count(choices);
    if (this.#facts.wantsUsage) edits.set("usage", "null");
    else if (hasUsage) edits.set("usage", null);
    return this.#patched(payload, spans, edits);
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

  #count(choices: unknown[]): void {
    for (const choice of choices) {
      if (!isRecord(choice)) continue;
      if (typeof choice.finish_reason === "string" && choice.finish_reason !== "") this.finished = true;
      const text = writtenIn(choice.delta);
      this.relayed.bytes += text.length;
      if (this.relayed.text.length < TEXT_KEPT_MAX) this.relayed.text += text.slice(0, TEXT_KEPT_MAX);
    }
  }
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
export function usageOf(usage: unknown): ReportedUsage | undefined {
  if (!isRecord(usage)) return undefined;
  const { prompt_tokens, completion_tokens, prompt_tokens_details } = usage;
  if (!isCount(prompt_tokens) || !isCount(completion_tokens)) return undefined;
  const details =
    typeof prompt_tokens_details === "object" && prompt_tokens_details !== null ? prompt_tokens_details : {};
  const cached = "cached_tokens" in details && isCount(details.cached_tokens) ? details.cached_tokens : 0;
  return {
    promptTokens: prompt_tokens,
    cachedTokens: Math.min(cached, prompt_tokens),
    completionTokens: completion_tokens,
  };
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 2_000_000_000;
}
