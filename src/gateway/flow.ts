import { affinityOf } from "../catalog/affinity.ts";
import type { KeyedRoute, Model } from "../catalog/catalog.ts";
import type { Deps } from "../deps.ts";
import { type Body, keepInstead } from "../http/body.ts";
import { originOf } from "../http/host.ts";
import { factsOf } from "../http/request_facts.ts";
import type { Admitted } from "./admission.ts";
import { checkChatAnswer } from "./answer_size.ts";
import { type Caller, hasLeft } from "./authenticate.ts";
import { chargeShown, chatUsage, imageUsage, NOTHING_RELAYED } from "./charge.ts";
import type { ChatToSend } from "./chat_payload.ts";
import { ChunkRewriter, type StreamFacts, type StreamRewriter } from "./chunks.ts";
import { type Answered, type Attempt, dispatch } from "./dispatch.ts";
import { namerOf } from "./end_users.ts";
import { checkSent } from "./filtering.ts";
import { endStream, type Outcome, type StreamEnd, withHold } from "./hold.ts";
import { readsLegacyCalls } from "./legacy_functions.ts";
import type { MeteredEndpoint } from "./metered.ts";
import { requireModel } from "./models.ts";
import { CHAT_PARAMETERS, filterParameters } from "./parameters.ts";
import { hasUncounted, type Prompt, type PromptSample, promptOf } from "./prompt.ts";
import type { RelayEnd, StreamOwner, StreamPlan } from "./relay.ts";
import { checkRequestBounds } from "./request_bounds.ts";
import { asksForCharge, readChat, readImage } from "./request_shapes.ts";
import { imagePriceOf, type ReservedRequest, reserveChat, reserveImage } from "./reserve.ts";
import { ChatForm } from "./responses/chat_form.ts";
import { chatOfInput, hasInput, readChatInput } from "./responses/chat_input.ts";
import type { Keeper } from "./responses/stored_responses.ts";
import { noteBreak, noteImageCost, noteUnpaid, noteUsed } from "./route_notes.ts";
import { streamOutcome } from "./stream_ends.ts";
import { type ChatAnswer, type ChatCall, fetchChatAnswer, type OpenedChat, openChatStream } from "./upstream_chat.ts";
import { fetchImageAnswer, type ImageCall, type ImageLinks } from "./upstream_images.ts";
import { CREATE_CHAT, CREATE_IMAGE } from "./v1_operations.ts";

/**
 * Chat and images: from the admitted request to its answer. `metered.ts` has the steps before; embeddings, text completions and
 * reranking have files of their own. Who pays for each end, also when the client leaves: the table in `stream_ends.ts`.
 */

/** POST /v1/chat/completions, POST /v1/images/generations. */
export const CHAT: MeteredEndpoint = { path: "/chat/completions", operation: CREATE_CHAT, serve: chat, streams: true };
export const IMAGES: MeteredEndpoint = { path: "/images/generations", operation: CREATE_IMAGE, serve: image };

/** Body → model → reserve → dispatch → settle, for chat. Source: API-6. */
export async function chat(deps: Deps, caller: Caller, { raw, slots }: Admitted): Promise<Response> {
  const asked = hasInput(raw.value) ? askedInput(deps, caller, raw) : askedChat(deps, caller, raw);
  const { body, model, prompt, form } = asked;
  const choices = body.n ?? 1;
  checkRequestBounds(caller, {
    ...{ choices, inputs: 1, promptTokens: prompt.tokens, promptParam: form === undefined ? "messages" : "input" },
    ...{ capTokens: body.max_completion_tokens ?? body.max_tokens ?? null },
    capParam: typeof body.max_completion_tokens === "number" ? "max_completion_tokens" : "max_tokens",
  });
  const affinity = model.hasChoice ? affinityOf(caller.key.accountId, body) : undefined;
  const reserving = reserveChat(deps, caller, { model, body, prompt, choices });
  return await withHold({ deps, caller, model, slots, affinity }, reserving, (reserved) =>
    serveChat({ ...reserved, ...asked, choices, showsCharge: asksForCharge(body) }),
  );
}

/** A chat that is checked and filtered. `raw`: the text that is sent; `form`: it is a translation. */
type AskedChat = Pick<ChatToSend, "body" | "raw" | "filtered"> & {
  model: Model;
  prompt: Prompt;
  form: ChatForm | undefined;
};

function askedChat(deps: Deps, caller: Caller, raw: Body): AskedChat {
  const body = readChat(raw);
  if (body.stream) caller.record.kind = "stream";
  const model = requireModel(deps, caller, body.model, "text");
  const filtered = filterParameters({
    list: CHAT_PARAMETERS,
    body,
    spans: raw.spans,
    by: model,
    namer: namerOf(deps, caller),
  });
  checkSent(filtered.unsent);
  checkChatAnswer(body, filtered, model);
  const prompt = promptOf(body, { raw, changed: filtered.changed, model });
  return { body, raw, model, filtered, prompt, form: undefined };
}

/** A request of the Responses API, as a chat. Source: API-15. */
function askedInput(deps: Deps, caller: Caller, raw: Body): AskedChat {
  const input = readChatInput(raw);
  if (input.request.stream) caller.record.kind = "stream";
  const model = requireModel(deps, caller, input.request.model, "text");
  const namer = namerOf(deps, caller);
  const form = new ChatForm({ raw, model, namer, ...chatOfInput(input, namer) });
  const body = readChat(form.raw);
  checkChatAnswer(body, form.filtered, model);
  // From here on nothing of the received text is sent or kept. Source: ADM-5.
  keepInstead(raw, [form.raw.text]);
  return { body, raw: form.raw, model, filtered: form.filtered, prompt: form.prompt, form };
}

function serveChat(request: ChatRequest): Promise<Outcome> {
  const { deps, caller, body, choices, form } = request;
  const createdUnix = unixSeconds(deps);
  if (!body.stream)
    return serveWhole(request, (route, attempt) =>
      inNamesOf(form, fetchChatAnswer(callOf(request, attempt), route, createdUnix)),
    );
  const plan = {
    requestId: caller.requestId,
    createdUnix,
    modelId: body.model,
    wantsUsage: body.stream_options?.include_usage === true || request.showsCharge,
    choices,
    hasLegacyCalls: readsLegacyCalls(body),
  };
  return serveStream(request, plan, (route, attempt) =>
    inNamesOf(form, openChatStream(callOf(request, attempt), route)),
  );
}

/** An answer to a translation, or its rejection, with the paths of the client's request. */
function inNamesOf<T extends { dropped: string | undefined }>(
  form: ChatForm | undefined,
  asked: Promise<T>,
): Promise<T> {
  if (form === undefined) return asked;
  return asked.then(
    (answer) => Object.assign(answer, { dropped: form.droppedWith(answer.dropped) }),
    (error: unknown) => {
      throw form.rejectionOf(error);
    },
  );
}

/** A request for text that has a hold: chat or responses. `showsCharge`: the client asked what it costs. `keeper` stores the answer. */
export type TextRequest = ReservedRequest &
  Pick<Admitted, "raw"> & { prompt: Prompt; choices: number; showsCharge: boolean; keeper?: Keeper | undefined };

type ChatRequest = TextRequest & AskedChat;

/** Dispatch → the whole answer and its usage. `ask` calls one route, and reads its whole answer. */
export async function serveWhole(
  request: TextRequest,
  ask: (route: KeyedRoute, attempt: Attempt) => Promise<ChatAnswer>,
): Promise<Outcome> {
  const { deps, caller, model } = request;
  // The call runs to its end even if the client leaves, and is settled. Source: END-7.
  const result = await dispatch(request, "finish", ask);
  if (result.how === "failed") return result;
  const { answer, route } = result;
  const counted = chatUsage(request, answer);
  const usage = counted instanceof Promise ? await counted : counted;
  if (answer.isEmpty)
    return { how: "free", text: answer.text(usage, chargeShown(request, 0n)), dropped: answer.dropped };
  noteUsed(request, { route, kind: "whole", usage });
  deps.hiddenTokens.note(model, caller.key.accountId, answer);
  const text = answer.text(usage, chargeShown(request, usage.chargeNanoUsd));
  return { how: "answered", usage, text, dropped: answer.dropped, keeper: request.keeper };
}

/**
 * Whether an answer is read to its end after its client has left, because only the provider's report says what it costs: the model hides
 * tokens, or the prompt has images or files, which we cannot count. Source: END-6.
 */
function readsOnWhenLeft({ model, prompt }: Pick<TextRequest, "model" | "prompt">): boolean {
  return model.hidesTokens === true || hasUncounted(prompt);
}

/** Dispatch → relay. `open` calls one route, and waits for the first event of its answer. */
export async function serveStream(
  request: TextRequest,
  plan: StreamFacts,
  open: (route: KeyedRoute, attempt: Attempt) => Promise<OpenedChat>,
): Promise<Outcome> {
  const readsOn = readsOnWhenLeft(request);
  const result = await dispatch(request, readsOn ? "read_on" : "abort", open);
  // No other route will be tried: the body is no longer needed.
  request.raw.room.close();
  if (result.how === "failed") return result;
  if (result.how === "answered") return relay(request, result, { ...plan, readsOn, payer: request.caller.key });
  // A client that left while a provider was working pays its prompt.
  return { how: "client_left", usage: await chatUsage(request, NOTHING_RELAYED), error: result.error };
}

/** Hands the hold over to an `OpenChat`. If that fails, the provider's call is aborted. */
function relay(
  { deps, caller, model, prompt, choices, showsCharge, hold, slots, keeper }: TextRequest,
  { answer, route, sentMs }: Answered<OpenedChat>,
  plan: StreamPlan,
): Outcome {
  const { dropped } = answer;
  let stream: ReadableStream<Uint8Array>;
  try {
    const rewriter = answer.rewriter ?? new ChunkRewriter(plan);
    const owned = { deps, caller, model, prompt: prompt.sample(), choices, showsCharge, hold, slots };
    const owner = new OpenChat({ ...owned, route, sentMs, rewriter, keeper, isEmpty: answer.isEmpty });
    stream = deps.relays.start({ ...answer, rewriter }, plan, owner);
  } catch (error) {
    answer.call.stop();
    answer.held.close();
    throw error;
  }
  const isLeft = hasLeft(caller);
  // From here on the stream itself is told. The caller lives as long as it, and the wait need not.
  caller.wait = undefined;
  if (!isLeft) return { how: "relayed", stream, dropped };
  // The client has left. The runtime does not cancel a stream that it has not started to read.
  void stream.cancel();
  return { how: "relayed", stream: null, dropped };
}

type StreamedRequest = ReservedRequest & {
  prompt: PromptSample;
  choices: number;
  showsCharge: boolean;
  route: KeyedRoute;
  sentMs: number;
  /** Told what the answer used, and what was charged for it: its last events may say so. */
  rewriter: StreamRewriter;
  keeper: Keeper | undefined;
  /** It has nothing in it, and is free. */
  isEmpty: boolean;
};

/**
 * A chat whose stream is open; the relay tells it how the stream ended. It keeps neither the body nor the whole prompt: thousands of
 * streams are open for minutes.
 */
class OpenChat implements StreamOwner {
  readonly #request: StreamedRequest;

  constructor(request: StreamedRequest) {
    this.#request = request;
  }

  /** Ends the hold, before the last event goes out. Returns the error event, if the client is sent one. */
  async ended(end: RelayEnd): Promise<string | undefined> {
    const { keeper, rewriter, caller } = this.#request;
    try {
      const event = await endStream(this.#request, () => streamEndOf(this.#request, end));
      if (end.how === "broke_after_finish") caller.record.end = "provider_broke_off";
      const isKept = keeper !== undefined && end.how === "complete" && !this.#request.isEmpty;
      const response = isKept ? rewriter.response?.() : undefined;
      if (response !== undefined) await keeper?.keep(response);
      return event;
    } finally {
      keeper?.close();
    }
  }

  closed(bytesOut: number): void {
    const { deps, caller } = this.#request;
    deps.telemetry.streamOver(caller.record, bytesOut);
  }
}

/** What the end of a stream means for its hold. The rewriter is told what the answer used once it is settled. */
async function streamEndOf(request: StreamedRequest, end: RelayEnd): Promise<StreamEnd> {
  const { deps, caller, model, route, rewriter } = request;
  const outcome = streamOutcome(request, end);
  const isUnpaid = end.how === "fell_silent" || end.how === "oversized";
  if (isUnpaid || end.how === "broke_off" || end.how === "broke_after_finish") noteBreak(request, route);
  if (isUnpaid) noteUnpaid(request, route, request.sentMs);
  if (outcome.how === "failed") return outcome;
  if (end.how === "complete") deps.hiddenTokens.note(model, caller.key.accountId, outcome.answer);
  const usage = await chatUsage(request, outcome.answer);
  const settled = (chargedNanoUsd: bigint) => rewriter.counted(usage, chargeShown(request, chargedNanoUsd));
  if (request.isEmpty) return { how: "free", settled };
  noteUsed(request, { route, kind: "stream", usage });
  return { how: outcome.how, usage, event: outcome.event, settled };
}

/** Body → model → reserve → dispatch → settle, for images. Source: API-7. */
export async function image(
  deps: Deps,
  caller: Caller,
  { request: received, raw, slots }: Admitted,
): Promise<Response> {
  const body = readImage(raw);
  caller.record.kind = "image";
  const model = requireModel(deps, caller, body.model, "image");
  const price = imagePriceOf(body, model.imagePrices);
  const links = imageLinks(deps, caller, received);
  const reserving = reserveImage(deps, caller, { model, price });
  return await withHold({ deps, caller, model, slots }, reserving, async (reserved) => {
    const call: Omit<ImageCall, keyof Attempt> = {
      provider: deps.provider,
      answerMemory: deps.answerMemory,
      payer: caller.key,
      requestId: caller.requestId,
      body,
      raw,
      namer: namerOf(deps, caller),
      price,
      totalMs: deps.config.providerTotalMs,
      allowPrivate: deps.config.providerAllowPrivate,
      createdUnix: unixSeconds(deps),
      links,
    };
    // The call runs to its end even if the client leaves: the image was ordered, and is paid.
    const result = await dispatch(reserved, "finish", (route, attempt) =>
      fetchImageAnswer({ ...call, ...attempt }, route),
    );
    if (result.how === "failed") return result;
    const { rawUsage, dropped } = result.answer;
    const usage = { ...imageUsage(reserved, price), rawUsage };
    noteImageCost(reserved, result.route, price.microUsd);
    const charge = chargeShown({ ...reserved, showsCharge: asksForCharge(body) }, usage.chargeNanoUsd);
    return { how: "answered", usage, text: result.answer.text(charge), dropped };
  });
}

/** What the URLs of a request's images are made of. */
function imageLinks(deps: Deps, { key: { accountId, tenantId } }: Caller, request: Request): ImageLinks {
  const { secretKey, imageUrlSeconds } = deps.config;
  // Called once there is an image: it may take as long to make as its URL is valid.
  const expiresUnixMs = () => deps.clock.unixMs() + imageUrlSeconds * 1000;
  return { secretKey, origin: originOf(deps, factsOf(request).url), accountId, tenantId, expiresUnixMs };
}

/** A call of a route for a chat. */
export function callOf(
  {
    deps,
    caller,
    model,
    body,
    raw,
    filtered,
    hold,
  }: Pick<ChatRequest, "deps" | "caller" | "model" | "body" | "raw" | "filtered" | "hold">,
  attempt: Attempt,
): ChatCall {
  const { providerFirstByteMs, providerTotalMs } = deps.config;
  return {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    namer: namerOf(deps, caller),
    filtered,
    model,
    capTokens: hold.capTokens,
    ...attempt,
    answerMemory: deps.answerMemory,
    payer: caller.key,
    firstByteMs: providerFirstByteMs,
    totalMs: providerTotalMs,
  };
}

export function unixSeconds(deps: Deps): number {
  return Math.floor(deps.clock.unixMs() / 1000);
}
