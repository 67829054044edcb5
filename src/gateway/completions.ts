import { type Static, Type } from "@sinclair/typebox";
import type { KeyedRoute, Model, Route } from "../catalog/catalog.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import type { Body } from "../http/body.ts";
import { checker } from "../http/checks.ts";
import { patch } from "../http/json_spans.ts";
import { isRecord } from "../platform/records.ts";
import type { Admitted } from "./admission.ts";
import { checkChatAnswer } from "./answer_size.ts";
import type { Caller } from "./authenticate.ts";
import type { Payload } from "./chat_payload.ts";
import { ChunkRewriter, type StreamFacts, type StreamRewriter } from "./chunks.ts";
import type { Attempt } from "./dispatch.ts";
import { namerOf } from "./end_users.ts";
import { callOf, serveStream, serveWhole, type TextRequest, unixSeconds } from "./flow.ts";
import { type Outcome, withHold } from "./hold.ts";
import type { MeteredEndpoint } from "./metered.ts";
import { requireModel } from "./models.ts";
import { chatGroups, filterParameters, parameterList } from "./parameters.ts";
import { checkRequestBounds } from "./request_bounds.ts";
import { asksForCharge, ChatBody, UsageOptions } from "./request_shapes.ts";
import { reserveChat } from "./reserve.ts";
import { Usage } from "./response_shapes.ts";
import { ChatForm } from "./responses/chat_form.ts";
import {
  type ChatAnswer,
  type ChatCall,
  chatAnswerOf,
  chatStream,
  completionOf,
  fetchChatAnswer,
  limitsOf,
  type OpenedChat,
  openChatStream,
  openStream,
} from "./upstream_chat.ts";
import { meteredOperation } from "./v1_operations.ts";

/**
 * POST /v1/completions, the legacy endpoint that autocomplete clients use: a prompt, and with it the text that shall follow the gap
 * (`suffix`). It is chat in another form. A route whose provider has its own /completions (fact `completions`) gets the request itself; any
 * other a chat with the prompt as the user's message. Answers are read as those of a chat, and written as text. Source: API-16.
 */

const PATH = "/completions";
const Nullable = <T extends Parameters<typeof Type.Union>[0][number]>(schema: T) =>
  Type.Optional(Type.Union([schema, Type.Null()]));

const CompletionBody = Type.Object(
  {
    model: ChatBody.properties.model,
    prompt: Type.Union(
      [Type.String({ minLength: 1 }), Type.Array(Type.String({ minLength: 1 }), { minItems: 1, maxItems: 1 })],
      { description: "The text to continue, or a list of one text. Token ids are not taken." },
    ),
    suffix: Nullable(Type.String({ description: "The text behind the gap, for models whose provider fills gaps." })),
    stream: ChatBody.properties.stream,
    stream_options: ChatBody.properties.stream_options,
    temperature: ChatBody.properties.temperature,
    max_tokens: ChatBody.properties.max_tokens,
    n: ChatBody.properties.n,
    usage: UsageOptions,
  },
  {
    title: "CompletionRequest",
    description:
      "Other fields are accepted. Supported ones are passed on to the model unchanged; the others are dropped, and named in the response header X-Dropped-Params.",
    additionalProperties: true,
  },
);
type CompletionBody = Static<typeof CompletionBody>;

const choices = Type.Array(
  Type.Object(
    {
      text: Type.String(),
      index: Type.Integer({ minimum: 0 }),
      logprobs: Type.Null(),
      finish_reason: Type.Union([Type.String(), Type.Null()]),
    },
    { title: "CompletionChoice" },
  ),
);
const completion = {
  id: Type.String(),
  object: Type.Literal("text_completion"),
  created: Type.Integer({ description: "Unix time, in seconds." }),
  model: Type.String({ description: "The model id of the request." }),
  choices,
};
const Completion = Type.Object({ ...completion, usage: Usage }, { title: "Completion" });
const CompletionEvent = Type.Object({ ...completion, usage: Nullable(Usage) }, { title: "CompletionEvent" });

/** What is sent to a provider's own /completions, and of it to others what a chat takes. `echo`, `best_of` and `logprobs` are not: PRV-2. */
export const COMPLETION_PARAMETERS = parameterList([
  { title: "Basics", names: ["model", "prompt", "suffix", "stream", "n", "max_tokens"] },
  ...chatGroups("Sampling", "Token bias, stop sequences", "Streams", "End user"),
]);

/** POST /v1/completions. */
export const COMPLETIONS: MeteredEndpoint = {
  path: PATH,
  streams: true,
  operation: meteredOperation({
    id: "createCompletion",
    tag: "Chat",
    summary: "Create a text completion, whole or as a stream (legacy)",
    description: "For autocomplete clients. New programs use chat completions.",
    body: { schema: CompletionBody, example: { model: "gpt-mini", prompt: "A toll gate is", max_tokens: 32 } },
    answer: { schema: Completion, description: "The text. With stream: true, server-sent events." },
    events: CompletionEvent,
  }),
  serve: completions,
};

/** Without `prompt`: the errors of a union of lists would name the wrong variant. */
const checkFields = checker(
  Type.Object({ ...CompletionBody.properties, prompt: Type.Unknown() }, { additionalProperties: true }),
);

function readCompletion(raw: Body): CompletionBody & { prompt: string } {
  const { prompt, ...fields } = checkFields(raw.value);
  const text: unknown = Array.isArray(prompt) && prompt.length === 1 ? prompt[0] : prompt;
  if (typeof text === "string" && text !== "") return { ...fields, prompt: text };
  throw new Refusal("invalid_request", {
    message:
      "The field prompt must be a text of at least 1 character, or a list of one such text. Send each prompt by itself.",
    param: "prompt",
  });
}

/** Body → model → reserve → dispatch → settle, for text completions. */
async function completions(deps: Deps, caller: Caller, { raw, slots }: Admitted): Promise<Response> {
  const body = readCompletion(raw);
  if (body.stream) caller.record.kind = "stream";
  const model = requireModel(deps, caller, body.model, "text");
  checkSuffix(body, model);
  const form = chatFormOf(deps, caller, { body, raw, model });
  checkChatAnswer(form.body, form.filtered, model);
  const [prompt, count] = [form.prompt, body.n ?? 1];
  checkRequestBounds(caller, {
    ...{ choices: count, inputs: 1, promptTokens: prompt.tokens, promptParam: "prompt" },
    ...{ capTokens: body.max_tokens ?? null, capParam: "max_tokens" },
  });
  // Only its own fields were checked: a cap by another name is dropped.
  const { max_tokens } = body;
  const reserving = reserveChat(deps, caller, { model, body: { max_tokens }, prompt, choices: count });
  return await withHold({ deps, caller, model, slots, promptParam: "prompt" }, reserving, (reserved) => {
    const request = {
      ...reserved,
      raw,
      prompt,
      choices: count,
      showsCharge: asksForCharge(body),
      completion: body,
      form,
    };
    return body.stream ? serveEvents(request) : serveText(request);
  });
}

type CompletionRequest = TextRequest & { completion: CompletionBody; form: ChatForm };

/** Whether a route's provider gets the request itself. */
function hasOwn(route: Pick<Route, "facts">): boolean {
  return route.facts.completions === "own";
}

/** A chat has no place for the text behind the gap. */
function checkSuffix({ suffix }: CompletionBody, model: Model): void {
  if (!suffix || model.routes.some(hasOwn)) return;
  throw new Refusal("invalid_request", { message: "The model does not take a suffix.", param: "suffix" });
}

/** The request as a chat: what is reserved by, and what routes without /completions of their own get. */
function chatFormOf(
  deps: Deps,
  caller: Caller,
  { body, raw, model }: { body: CompletionBody & { prompt: string }; raw: Body; model: Model },
): ChatForm {
  const namer = namerOf(deps, caller);
  const filter = { list: COMPLETION_PARAMETERS, body, spans: raw.spans, by: model, namer };
  const { changed, dropped } = filterParameters(filter);
  const { prompt, suffix, ...received } = body;
  const fields = Object.entries(received).filter(([name]) => !changed.has(name) || changed.get(name) !== undefined);
  const texts = suffix ? [prompt, suffix] : [prompt];
  const messages = texts.map((content) => ({ role: "user", content }));
  const form = new ChatForm({
    ...{ raw, model, namer, body: { ...Object.fromEntries(fields), model: body.model, messages } },
    ...{ places: ["prompt", "suffix"], reasoningPlaces: [], toolPlaces: [], dropped: dropped?.split(", ") ?? [] },
    fields: [[/^messages$/, "prompt"]],
  });
  raw.room.grow(form.raw.text.length);
  return form;
}

function serveText(request: CompletionRequest): Promise<Outcome> {
  const createdUnix = unixSeconds(request.deps);
  return serveWhole(request, async (route, attempt) => {
    const call = chatCallOf(request, attempt);
    const answer = await inNamesOf(request.form, () =>
      hasOwn(route)
        ? fetchOwn(request, { call, route, createdUnix })
        : fetchOfChat(request, { call, route, createdUnix }),
    );
    return { ...answer, text: (...shown) => textOf(answer.text(...shown)) };
  });
}

function serveEvents(request: CompletionRequest): Promise<Outcome> {
  const { deps, caller, completion, choices: count, showsCharge } = request;
  const plan: StreamFacts = {
    requestId: caller.requestId,
    createdUnix: unixSeconds(deps),
    modelId: completion.model,
    wantsUsage: completion.stream_options?.include_usage === true || showsCharge,
    choices: count,
  };
  return serveStream(request, plan, async (route, attempt) => {
    const call = chatCallOf(request, attempt);
    const opened = await inNamesOf(request.form, () => (hasOwn(route) ? openOwn : openOfChat)(request, call, route));
    return Object.assign(opened, { rewriter: new TextEvents(plan) });
  });
}

type ToFetch = { call: ChatCall; route: KeyedRoute; createdUnix: number };

async function fetchOwn(request: CompletionRequest, { call, route, createdUnix }: ToFetch): Promise<ChatAnswer> {
  const payload = ownPayload(request, call, route);
  const received = await call.provider.postWhole(route, PATH, payload.text, limitsOf(call));
  const completion = completionOf(asChat(received, "message"), { route, sent: payload.text });
  return chatAnswerOf(completion, { call, route, payload, createdUnix });
}

async function fetchOfChat({ completion, form }: CompletionRequest, { call, route, createdUnix }: ToFetch) {
  checkHasNoSuffix(completion);
  const answer = await fetchChatAnswer(call, route, createdUnix);
  return { ...answer, dropped: form.droppedWith(answer.dropped) };
}

function openOwn(request: CompletionRequest, call: ChatCall, route: KeyedRoute): Promise<OpenedChat> {
  const payload = ownPayload(request, call, route);
  const { opening, fromWhole, ...chat } = chatStream(payload, route);
  return openStream(call, route, {
    ...chat,
    path: PATH,
    opening: { read: opening.read, begins: (event) => opening.begins(withSaid(event, "delta")), ended: opening.ended },
    fromWhole: (text) => fromWhole(asChat(text, "message")),
  });
}

async function openOfChat({ completion, form }: CompletionRequest, call: ChatCall, route: KeyedRoute) {
  checkHasNoSuffix(completion);
  const opened = await openChatStream(call, route);
  return Object.assign(opened, { dropped: form.droppedWith(opened.dropped) });
}

/** The next route may have /completions of its own. */
function checkHasNoSuffix({ suffix }: CompletionBody): void {
  if (suffix) throw new ProviderFailure("unknown_model", "the route does not take a suffix");
}

/** The client's bytes, without what is not sent, and with what the route's facts and the hold say. */
function ownPayload({ completion, raw, form }: CompletionRequest, { capTokens }: ChatCall, route: KeyedRoute): Payload {
  const filter = { list: COMPLETION_PARAMETERS, body: completion, spans: raw.spans, by: route, namer: form.namer };
  const { changed, dropped } = filterParameters(filter);
  const edits = new Map<string, string | null>();
  for (const [name, value] of changed) edits.set(name, value === undefined ? null : JSON.stringify(value));
  if (route.upstreamModel !== completion.model) edits.set("model", JSON.stringify(route.upstreamModel));
  if (capTokens !== null && capTokens !== completion.max_tokens) edits.set("max_tokens", String(capTokens));
  const isAsked = completion.stream === true && route.facts.streamOptions === "sent";
  const options = { ...completion.stream_options, include_usage: true };
  edits.set("stream_options", isAsked ? JSON.stringify(options) : null);
  return { text: patch(raw.text, raw.spans, edits), dropped };
}

/** An answer, or its rejection with the client's names of fields. */
async function inNamesOf<T>(form: ChatForm, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask();
  } catch (error) {
    throw form.rejectionOf(error);
  }
}

function chatCallOf(request: CompletionRequest, attempt: Attempt): ChatCall {
  const { body, raw, filtered } = request.form;
  return callOf({ ...request, body, raw, filtered }, attempt);
}

/** Of a whole answer or of a chunk: where a chat has what the model says. */
type Said = "message" | "delta";
type Fields = Readonly<Record<string, unknown>>;
/** An event on one line. */
const DATA_LINE = /^(data: ?)(\{.*\})(?=\r?$)/gm;

/** A text completion as a chat; also one that came as events. Anything else stays as it is. */
function asChat(received: string, said: Said): string {
  const value = parsed(received);
  if (value !== undefined) return JSON.stringify(withSaid(value, said));
  return received.replace(DATA_LINE, (_, data: string, json: string) => data + asChat(json, "delta"));
}

function withSaid(value: Fields, said: Said): Fields {
  if (!Array.isArray(value.choices)) return value;
  const choices = value.choices.map((choice: unknown) => {
    if (!isRecord(choice) || typeof choice.text !== "string") return choice;
    const { text, ...rest } = choice;
    return { ...rest, [said]: { content: text } };
  });
  return { ...value, choices };
}

/** A chat answer, or a chunk of one, as a text completion. */
function textOf(chat: string): string {
  const value = parsed(chat);
  if (value === undefined) throw new Error("a chat answer is a JSON object");
  const choices = Array.isArray(value.choices) ? value.choices.map(textChoice) : [];
  return JSON.stringify({ ...value, object: "text_completion", choices });
}

function textChoice(choice: unknown, place: number) {
  const { index = place, finish_reason = null, delta, message = delta }: Fields = isRecord(choice) ? choice : {};
  const { content, refusal }: Fields = isRecord(message) ? message : {};
  const text = typeof content === "string" ? content : typeof refusal === "string" ? refusal : "";
  return { text, index, logprobs: null, finish_reason };
}

function parsed(json: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return isRecord(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The events of a text completion: those of a chat, written as text. */
class TextEvents implements StreamRewriter {
  readonly #chat: ChunkRewriter;
  readonly endsWithDone = true;
  readonly isOver = false;

  constructor(facts: StreamFacts) {
    this.#chat = new ChunkRewriter(facts);
  }

  get relayed() {
    return this.#chat.relayed;
  }

  get usage() {
    return this.#chat.usage;
  }

  get finished(): boolean {
    return this.#chat.finished;
  }

  get wentOn(): boolean {
    return this.#chat.wentOn;
  }

  rewrite(payload: string): string | undefined {
    const events = this.#chat.rewrite(asChat(payload, "delta"));
    return events === undefined ? undefined : asText(events);
  }

  counted(...[usage, charge]: Parameters<StreamRewriter["counted"]>): void {
    this.#chat.counted(usage, charge);
  }

  lastEvents(): string {
    return asText(this.#chat.lastEvents());
  }

  errorEvents(error: string | undefined): string {
    return this.#chat.errorEvents(error);
  }
}

function asText(events: string): string {
  return events.replace(DATA_LINE, (_, data: string, json: string) => data + textOf(json));
}
