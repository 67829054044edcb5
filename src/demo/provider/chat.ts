import type { Behaviour } from "./faults.ts";
import { type ChatRequest, ProviderError } from "./request.ts";
import { isRecord, type JsonRecord, sampleOf, seedOf, storyTokens, subjectOf, tokensOf } from "./text.ts";

const STORY_TOKENS_MAX = 4_096;
const STORY_TOKENS_MIN = 48;
const REASONING_TOKENS_MAX = 12;
const ARGUMENT_CHARS_PER_CHUNK = 9;
const GIANT_SLICE = "x".repeat(64 * 1024);

/** A part of a body, written in one call. `chunk`: it carries content, so pace, cuts and counts apply to it. */
export interface Piece {
  readonly text: string | Buffer;
  readonly chunk: boolean;
}

interface Choice {
  readonly reasoning: readonly string[];
  readonly content: readonly string[];
  readonly toolCall: { id: string; name: string; arguments: string } | null;
  readonly finish: "stop" | "length" | "tool_calls";
}

export interface ChatAnswer {
  readonly id: string;
  readonly created: number;
  readonly model: string;
  readonly choices: readonly Choice[];
  /** Usage as it is sent: a JSON object, or the text that a behaviour replaces it with. Null for none. */
  readonly usageText: string | null;
  readonly tokens: number;
}

/** The answer to a chat request. The same request always gets the same words, tokens and usage. */
export function answerChat(
  request: ChatRequest,
  facts: { id: number; created: number },
  behaviour: Behaviour = {},
): ChatAnswer {
  const seed = seedOf(request.prompt);
  const choices = Array.from({ length: request.choices }, (_, i) => choiceOf(request, seed + i, facts.id, behaviour));
  const reasoningTokens = choices.reduce((sum, { reasoning }) => sum + reasoning.length, 0);
  const tokens = choices.reduce((sum, choice) => sum + choiceTokens(choice, request.tokensMax), 0);
  return {
    id: chatId(facts.id),
    created: facts.created,
    model: behaviour.modelName ?? request.model,
    choices,
    usageText: usageText(request, tokens, reasoningTokens, behaviour),
    tokens,
  };
}

export function chatId(callId: number): string {
  return `chatcmpl-simulated${callId}`;
}

/** The beginning of an answer: the id and the time, by which two answers to the same request differ. */
export function chatHead(id: string, created: number, object: string): string {
  return `{"id":"${id}","object":"${object}","created":${created},`;
}

/** A chat.completion object without its head. It can be cached for requests with the same body. */
export function chatJsonTail(answer: ChatAnswer, behaviour: Behaviour = {}): string {
  const choices = answer.choices.map((choice, index) => ({
    index,
    message: {
      role: "assistant",
      content: choice.toolCall ? null : choice.content.join(""),
      refusal: null,
      annotations: [],
      ...(choice.reasoning.length > 0 && { reasoning_content: choice.reasoning.join("") }),
      ...(choice.toolCall && { tool_calls: [toolCallObject(choice.toolCall)] }),
    },
    logprobs: null,
    finish_reason: behaviour.endWithoutFinish ? null : choice.finish,
  }));
  const usage = answer.usageText === null ? "" : `,"usage":${answer.usageText}`;
  return `${modelFields(answer.model)}"choices":${JSON.stringify(choices)}${usage}}`;
}

/** The answer as server-sent events: role, content, finish, usage, `[DONE]`, as changed by the behaviour. */
export function chatPieces(answer: ChatAnswer, includeUsage: boolean, behaviour: Behaviour = {}): Piece[] {
  const newline = behaviour.crlf ? "\r\n" : "\n";
  const pieces: Piece[] = [];
  const event = (data: string, chunk = false) => {
    if (behaviour.commentLines) pieces.push({ text: `: still thinking${newline}${newline}`, chunk: false });
    pieces.push({ text: `data: ${data}${newline}${newline}`, chunk });
  };

  const usage = includeUsage ? answer.usageText : null;
  const usageIn = behaviour.usageIn ?? "own";
  const start = `${chatHead(answer.id, answer.created, "chat.completion.chunk")}${modelFields(answer.model)}"choices":[`;
  const end = usage === null ? "]}" : `],"usage":${usageIn === "every" ? usage : "null"}}`;
  const delta = (index: number, fields: unknown) =>
    `${start}{"index":${index},"delta":${JSON.stringify(fields)},"logprobs":null,"finish_reason":null}${end}`;

  let chunks = 0;
  for (const [index, choice] of answer.choices.entries()) {
    event(delta(index, { role: "assistant", content: choice.toolCall ? null : "", refusal: null }));
    for (const fields of contentDeltas(choice)) {
      if (chunks === behaviour.errorEventAfterChunks) break;
      event(delta(index, fields), true);
      if (++chunks === 1 && behaviour.giantLineBytes)
        pieces.push(...giantEvent(behaviour.giantLineBytes, (text) => delta(index, { content: text }), newline));
    }
  }
  if (behaviour.errorEventAfterChunks !== undefined) {
    event(
      new ProviderError(500, "The simulated provider ended the stream on purpose (organization org-simulated).", {
        type: "server_error",
      }).body(),
    );
    return pieces;
  }
  if (!behaviour.endWithoutFinish) {
    for (const [index, choice] of answer.choices.entries()) {
      const finishEnd = usage !== null && usageIn === "finish" ? `],"usage":${usage}}` : end;
      event(`${start}{"index":${index},"delta":{},"logprobs":null,"finish_reason":"${choice.finish}"}${finishEnd}`);
    }
    if (usage !== null && usageIn === "own") event(`${start}],"usage":${usage}}`);
  }
  if (!behaviour.endWithoutDone) event("[DONE]");
  return pieces;
}

/** GET /models without `id`, GET /models/{id} with one. Throws ProviderError 404. */
export function modelsJson(models: readonly string[], created: number, id?: string): string {
  const object = (model: string) => ({ id: model, object: "model", created, owned_by: "simulated" });
  if (id === undefined) return JSON.stringify({ object: "list", data: models.map(object) });
  if (!models.includes(id)) throw unknownModel(id);
  return JSON.stringify(object(id));
}

export function unknownModel(model: string): ProviderError {
  return new ProviderError(404, `The model '${model}' does not exist or you do not have access to it.`, {
    code: "model_not_found",
    param: "model",
  });
}

function modelFields(model: string): string {
  return `"model":${JSON.stringify(model)},"service_tier":"default","system_fingerprint":"fp_simulated",`;
}

function choiceOf(request: ChatRequest, seed: number, callId: number, behaviour: Behaviour): Choice {
  if (request.tool && behaviour.content === undefined && behaviour.tokens === undefined) {
    const sample = sampleOf(request.tool.parameters, subjectOf(request.prompt));
    const toolCall = {
      id: `call_simulated${callId}_${seed}`,
      name: request.tool.name,
      arguments: JSON.stringify(sample),
    };
    return { reasoning: [], content: [], toolCall, finish: "tool_calls" };
  }
  const cap = request.tokensMax ?? Number.POSITIVE_INFINITY;
  const planned =
    behaviour.content !== undefined ? tokensOf(behaviour.content) : plannedTokens(request, seed, behaviour.tokens);
  if (behaviour.content !== undefined || behaviour.tokens !== undefined) {
    return { reasoning: [], content: planned, toolCall: null, finish: planned.length >= cap ? "length" : "stop" };
  }
  // Reasoning counts towards the cap too, but leaves at least one token for the answer.
  const reasoning = request.model.includes("reason")
    ? tokensOf(`The question is about ${subjectOf(request.prompt)}, so a short story will do.`)
    : [];
  const shownReasoning = reasoning.slice(0, Math.min(REASONING_TOKENS_MAX, cap - 1));
  const content = planned.slice(0, cap - shownReasoning.length);
  return {
    reasoning: shownReasoning,
    content,
    toolCall: null,
    finish: content.length < planned.length ? "length" : "stop",
  };
}

function plannedTokens(request: ChatRequest, seed: number, count: number | undefined): string[] {
  if (count !== undefined) return storyTokens(request.prompt, seed, count);
  if (request.jsonSchema !== null) return tokensOf(JSON.stringify(jsonAnswer(request)));
  // "Write 500 words about …" asks for an answer that is long enough to watch or to interrupt.
  const asked = Number(/\b(\d{1,5})[ -](?:words?|tokens?)\b/iu.exec(request.prompt.slice(0, 10_000))?.[1] ?? 0);
  return storyTokens(
    request.prompt,
    seed,
    Math.min(asked || STORY_TOKENS_MIN + (seed % STORY_TOKENS_MIN), STORY_TOKENS_MAX),
  );
}

function jsonAnswer(request: ChatRequest): unknown {
  const subject = subjectOf(request.prompt);
  if (isRecord(request.jsonSchema) && Object.keys(request.jsonSchema).length > 0)
    return sampleOf(request.jsonSchema, subject);
  return { topic: subject, answer: `A short story about ${subject}.`, words: 5 };
}

function toolCallObject({ id, name, arguments: args }: NonNullable<Choice["toolCall"]>): JsonRecord {
  return { id, type: "function", function: { name, arguments: args } };
}

/** The deltas that carry content. A tool call's arguments are split at any character of their JSON. */
function* contentDeltas({ reasoning, content, toolCall }: Choice): Generator<JsonRecord> {
  for (const token of reasoning) yield { reasoning_content: token };
  for (const token of content) yield { content: token };
  if (!toolCall) return;
  yield { tool_calls: [{ index: 0, ...toolCallObject({ ...toolCall, arguments: "" }) }] };
  for (let at = 0; at < toolCall.arguments.length; at += ARGUMENT_CHARS_PER_CHUNK) {
    yield {
      tool_calls: [{ index: 0, function: { arguments: toolCall.arguments.slice(at, at + ARGUMENT_CHARS_PER_CHUNK) } }],
    };
  }
}

/** One event of about `bytes` bytes, as slices of one shared string, so that even a gigabyte needs no memory here. */
function giantEvent(bytes: number, eventWith: (text: string) => string, newline: string): Piece[] {
  const [before = "", after = ""] = eventWith("@giant@").split("@giant@");
  return [
    { text: `data: ${before}`, chunk: false },
    ...giantPieces(bytes, GIANT_SLICE),
    { text: `${after}${newline}${newline}`, chunk: false },
  ];
}

/** `bytes` bytes, as pieces that share one string. */
export function giantPieces(bytes: number, slice = " ".repeat(GIANT_SLICE.length)): Piece[] {
  const whole: Piece = { text: slice, chunk: false };
  const pieces = new Array<Piece>(Math.floor(bytes / slice.length)).fill(whole);
  pieces.push({ text: slice.slice(0, bytes % slice.length), chunk: false });
  return pieces;
}

function choiceTokens({ reasoning, content, toolCall }: Choice, tokensMax: number | null): number {
  if (!toolCall) return reasoning.length + content.length;
  // Arguments are always complete, because half a JSON document is useless, but they never count more than the cap.
  return Math.min(1 + Math.ceil(toolCall.arguments.length / 4), tokensMax ?? Number.POSITIVE_INFINITY);
}

function usageText(
  request: ChatRequest,
  completionTokens: number,
  reasoningTokens: number,
  behaviour: Behaviour,
): string | null {
  const usage = {
    prompt_tokens: request.promptTokens,
    completion_tokens: completionTokens,
    total_tokens: request.promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: request.cachedTokens, audio_tokens: 0 },
    completion_tokens_details: {
      reasoning_tokens: reasoningTokens,
      audio_tokens: 0,
      accepted_prediction_tokens: 0,
      rejected_prediction_tokens: 0,
    },
  };
  return usageJson(usage, behaviour);
}

/** A usage object as it is sent; null for none. */
export function usageJson(usage: JsonRecord, behaviour: Behaviour): string | null {
  if (behaviour.omitUsage) return null;
  if (behaviour.usageRaw !== undefined) return behaviour.usageRaw;
  if (!behaviour.usage) return JSON.stringify(usage);
  const changed: Record<string, unknown> = { ...usage, ...behaviour.usage };
  const { prompt_tokens: prompt, completion_tokens: completion = 0 } = changed;
  if (!("total_tokens" in behaviour.usage) && typeof prompt === "number" && typeof completion === "number")
    changed.total_tokens = prompt + completion;
  return looseJson(changed);
}

/** JSON with NaN, Infinity and big integers as bare words and digits, as careless providers send it. */
function looseJson(value: unknown): string {
  const marked = JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "bigint" || (typeof inner === "number" && !Number.isFinite(inner)) ? `@bare:${inner}@` : inner,
  );
  return marked.replace(/"@bare:([-\w]+)@"/g, "$1");
}
