import { affinityOf } from "../catalog/affinity.ts";
import type { KeyedRoute } from "../catalog/catalog.ts";
import type { Deps } from "../deps.ts";
import { originOf } from "../http/host.ts";
import { factsOf } from "../http/request_facts.ts";
import type { Usage } from "../ledger/ledger.ts";
import type { EndReason } from "../ledger/ledger_store.ts";
import { type Admitted, admit, Slots } from "./admission.ts";
import { checkChatAnswer } from "./answer_size.ts";
import { jsonResponse, streamResponse } from "./answers.ts";
import { authenticate, type Caller } from "./authenticate.ts";
import { chatUsage, imageUsage, learnOverrun, NOTHING_RELAYED } from "./charge.ts";
import type { StreamRewriter } from "./chunks.ts";
import { type Attempt, dispatch, type Unanswered } from "./dispatch.ts";
import { serveOnce } from "./idempotency.ts";
import { requireModel } from "./models.ts";
import { type Filtered, filterParameters } from "./parameters.ts";
import { type Prompt, type PromptSample, promptOf } from "./prompt.ts";
import { countRefusal } from "./refusal_counts.ts";
import type { RelayEnd, StreamOwner, StreamPlan } from "./relay.ts";
import { type ChatBody, readChat, readImage } from "./request_shapes.ts";
import { imagePriceOf, type ReservedRequest, reserveChat, reserveImage } from "./reserve.ts";
import { noteBreak, noteUsed } from "./route_notes.ts";
import { streamOutcome } from "./stream_ends.ts";
import { type ChatAnswer, type ChatCall, fetchChatAnswer, type OpenedChat, openChatStream } from "./upstream_chat.ts";
import { fetchImageAnswer, type ImageCall, type ImageLinks } from "./upstream_images.ts";

/**
 * The steps of one metered request, in order. Each step that can refuse is one function:
 *
 *   authenticate (host → key) → admit (gate → rate and per-key concurrency → body → replica slot) → serveOnce (idempotency claim)
 *   → readChat (body check) → requireModel → reserveChat (limits of model and tokens → entitlement) → dispatch → endHold (settle or release) → response
 *
 * With warm caches, only the rate limit and an Idempotency-Key ask anything outside the process before `reserveChat`: Redis, and
 * Postgres when a dead replica's claim is taken over. In the reserve, the database decides. Every hold ends exactly once, in `endHold`.
 *
 * This file says when a request is charged. Embeddings go the same way, in `embeddings.ts`. Who pays for each end, also when the client
 * leaves: the table in `stream_ends.ts`.
 */

/** Serves a metered request once it is admitted: `chat`, `image`, `embeddings`. Throws the refusal. */
type Serve = (deps: Deps, caller: Caller, admitted: Admitted) => Promise<Response>;

/** A metered endpoint. `numbersMax`: the numbers that its body may have beyond the values of any body. */
export type MeteredEndpoint = { serve: Serve; numbersMax?: number };

/** POST /v1/chat/completions, POST /v1/images/generations. */
export const CHAT: MeteredEndpoint = { serve: chat };
export const IMAGES: MeteredEndpoint = { serve: image };

/** A request to a metered endpoint. Throws the refusal. */
export async function serveMetered(
  deps: Deps,
  request: Request,
  { serve, numbersMax }: MeteredEndpoint,
): Promise<Response> {
  const authenticated = authenticate(deps, request);
  const caller = authenticated instanceof Promise ? await authenticated : authenticated;
  const slots = new Slots(caller.limits);
  caller.record.limits = caller.limits;
  try {
    const raw = await admit(deps, request, { owner: caller.key, slots, numbersMax });
    return await serveOnce(deps, { caller, request, raw, slots }, serve);
  } catch (error) {
    slots.release();
    countRefusal(deps, caller.record, error);
    throw error;
  }
}

/** Body → model → reserve → dispatch → settle, for chat. Source: API-6. */
export async function chat(deps: Deps, caller: Caller, { raw, slots }: Admitted): Promise<Response> {
  const body = readChat(raw);
  if (body.stream) caller.record.kind = "stream";
  const model = requireModel(deps, caller, body.model, "text");
  const filtered = filterParameters({ kind: "chat", body, spans: raw.spans, by: model });
  checkChatAnswer(body, filtered, model);
  const prompt = promptOf(body, raw, filtered.changed);
  const choices = body.n ?? 1;
  const affinity = model.hasChoice ? affinityOf(caller.key.accountId, body) : undefined;
  const reserved = reserveChat(deps, caller, { model, body, prompt, choices });
  // Awaited only when it is a promise: what was drawn ahead is granted without a turn of the event loop.
  const hold = reserved instanceof Promise ? await reserved : reserved;
  const request: ChatRequest = { deps, caller, model, body, raw, filtered, prompt, choices, hold, slots, affinity };
  if (!body.stream) {
    return await serveWhole(request, (route, attempt) =>
      fetchChatAnswer(callOf(request, attempt), route, unixSeconds(deps)),
    );
  }
  const plan = {
    requestId: caller.requestId,
    createdUnix: unixSeconds(deps),
    modelId: body.model,
    wantsUsage: body.stream_options?.include_usage === true,
    choices,
    readsOn: model.hidesTokens === true,
  };
  return await serveStream(request, plan, (route, attempt) => openChatStream(callOf(request, attempt), route));
}

/** A request for text that has a hold: chat or responses. */
export type TextRequest = ReservedRequest & Pick<Admitted, "raw"> & { prompt: Prompt; choices: number };

type ChatRequest = TextRequest & { body: ChatBody; filtered: Filtered };

/** Dispatch → settle → JSON response. `ask` calls one route, and reads its whole answer. */
export async function serveWhole(
  request: TextRequest,
  ask: (route: KeyedRoute, attempt: Attempt) => Promise<ChatAnswer>,
): Promise<Response> {
  const { deps, caller, model } = request;
  // The call runs to its end even if the client leaves, and is settled. Source: END-7.
  const result = await dispatch(request, "finish", ask);
  if (result.how === "answered") {
    const { answer, route } = result;
    const counted = chatUsage(request, answer);
    const usage = counted instanceof Promise ? await counted : counted;
    learnOverrun(request, route, usage);
    noteUsed(deps, { route, kind: "whole", usage });
    await endHold(request, { how: "answered", usage });
    deps.hiddenTokens.note(model, caller.key.accountId, answer);
    const text = typeof answer.text === "string" ? answer.text : answer.text(usage);
    caller.record.bytesOut = Buffer.byteLength(text);
    return jsonResponse(text, caller.requestId, answer.dropped);
  }
  await endHold(request, result);
  throw result.error;
}

/**
 * Dispatch → relay → settle, for a stream. `open` calls one route, and waits for the first event of its answer.
 */
export async function serveStream(
  request: TextRequest,
  plan: StreamPlan,
  open: (route: KeyedRoute, attempt: Attempt) => Promise<OpenedChat>,
): Promise<Response> {
  const { deps, caller, model, prompt, choices, hold, slots } = request;
  const result = await dispatch(request, model.hidesTokens ? "read_on" : "abort", open);
  // No other route will be tried: the body is no longer needed.
  request.raw.room.close();
  if (result.how === "answered") {
    const { answer, route } = result;
    const { rewriter } = answer;
    // From here on `OpenChat` ends the hold.
    const owner = new OpenChat({ deps, caller, model, prompt: prompt.sample(), choices, hold, slots, route, rewriter });
    let stream: ReadableStream<Uint8Array> | null = deps.relays.start(answer, plan, owner);
    if (caller.signal.aborted) {
      // The client has left. The runtime does not cancel a stream that it has not started to read.
      void stream.cancel();
      stream = null;
    }
    return streamResponse(stream, caller.requestId, answer.dropped);
  }
  return await endUnanswered(request, result);
}

/** Ends the hold of a stream that no provider began. A client that left while a provider was working pays its prompt. Throws the refusal. */
async function endUnanswered(request: TextRequest, result: Unanswered): Promise<never> {
  if (result.how === "failed") await endHold(request, result);
  else await endHold(request, { how: "client_left", usage: await chatUsage(request, NOTHING_RELAYED) });
  throw result.error;
}

type StreamedRequest = ReservedRequest & {
  prompt: PromptSample;
  choices: number;
  route: KeyedRoute;
  /** Told what the answer used, if the client is told by it. */
  rewriter: StreamRewriter | undefined;
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
    const request = this.#request;
    const { deps, caller, model, route } = request;
    const outcome = streamOutcome(request, end);
    if (end.how === "broke_off" || end.how === "broke_after_finish") noteBreak(request, route);
    if (outcome.how === "failed") {
      await endHold(request, outcome);
      return outcome.event;
    }
    if (end.how === "complete") deps.hiddenTokens.note(model, caller.key.accountId, outcome.answer);
    const usage = await chatUsage(request, outcome.answer);
    learnOverrun(request, route, usage);
    noteUsed(deps, { route, kind: "stream", usage });
    await endHold(request, { how: outcome.how, usage });
    request.rewriter?.counted?.(usage);
    if (end.how === "broke_after_finish") caller.record.end = "provider_broke_off";
    return outcome.event;
  }

  closed(bytesOut: number): void {
    const { deps, caller } = this.#request;
    deps.telemetry.streamOver(caller.record, bytesOut);
  }
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
  const hold = await reserveImage(deps, caller, { model, price });
  const request: ReservedRequest = { deps, caller, model, hold, slots };
  const call: Omit<ImageCall, keyof Attempt> = {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    price,
    totalMs: deps.config.providerTotalMs,
    allowPrivate: deps.config.providerAllowPrivate,
    createdUnix: unixSeconds(deps),
    links: imageLinks(deps, caller, received),
  };
  // The call runs to its end even if the client leaves: the image was ordered, and is paid.
  const result = await dispatch(request, "finish", (route, attempt) =>
    fetchImageAnswer({ ...call, ...attempt }, route),
  );
  const usage = imageUsage(request, price);
  if (result.how === "answered") {
    const { answer } = result;
    await endHold(request, { how: "answered", usage: { ...usage, rawUsage: answer.rawUsage } });
    caller.record.bytesOut = Buffer.byteLength(answer.text);
    return jsonResponse(answer.text, caller.requestId, answer.dropped);
  }
  await endHold(request, result);
  throw result.error;
}

/** What the URLs of a request's images are made of. */
function imageLinks(deps: Deps, { key: { accountId, tenantId } }: Caller, request: Request): ImageLinks {
  const { secretKey, imageUrlSeconds } = deps.config;
  // Called once there is an image: it may take as long to make as its URL is valid.
  const expiresUnixMs = () => deps.clock.unixMs() + imageUrlSeconds * 1000;
  return { secretKey, origin: originOf(deps, factsOf(request).url), accountId, tenantId, expiresUnixMs };
}

/** How a request that has a hold ended. */
type Outcome =
  /** The whole answer has arrived, and nothing of it was sent to the client yet. */
  | { how: "answered"; usage: Usage }
  /** A stream's answer is complete. All of it but the last event was sent. */
  | { how: "streamed"; usage: Usage }
  /** The client of a stream left after the request had reached a provider. */
  | { how: "client_left"; usage: Usage }
  /** There is no answer, or it broke off: nobody pays. */
  | { how: "failed"; reason: EndReason };

/**
 * Ends the hold of a request: the only place in the gateway that settles or releases. (The ledger itself releases a reservation that
 * got no answer in time, and a hold whose lease has ended.) Afterwards, the request's slots are released and its idempotency claim is
 * told. For a whole answer it throws insufficient_balance if the answer cost more than the balance covers, and
 * service_unavailable if a retry took the request over: the client does not get the answer, and pays nothing.
 */
export function endHold(request: ReservedRequest, outcome: Outcome): Promise<void> {
  switch (outcome.how) {
    case "answered": {
      const reason = request.caller.signal.aborted ? "client_left" : "complete";
      return settle(request, outcome.usage, { strict: true, reason });
    }
    case "streamed":
      return settle(request, outcome.usage, { reason: "complete" });
    case "client_left":
      return settle(request, outcome.usage, { reason: "client_left" });
    case "failed":
      return release(request, outcome.reason);
  }
}

async function settle(
  { deps, caller, hold, slots }: ReservedRequest,
  usage: Usage,
  end: { strict?: boolean; reason: EndReason },
): Promise<void> {
  const { record, claim } = caller;
  let isCharged = false;
  slots.tokensUsed = usage.promptTokens + usage.completionTokens;
  try {
    deps.failpoint("before_settle");
    record.settleStartedMs = deps.clock.nowMs();
    await deps.ledger.settle(hold, usage, end);
    isCharged = true;
    record.settledMs = deps.clock.nowMs();
    record.end = end.reason;
    deps.failpoint("after_settle");
  } finally {
    slots.release();
    claim?.holdEnded(isCharged);
  }
}

async function release({ deps, caller, hold, slots }: ReservedRequest, reason: EndReason): Promise<void> {
  const { record, claim } = caller;
  try {
    record.releaseStartedMs = deps.clock.nowMs();
    await deps.ledger.release(hold, reason);
    record.releasedMs = deps.clock.nowMs();
    record.end = reason;
  } finally {
    slots.release();
    claim?.holdEnded(false);
  }
}

function callOf({ deps, caller, model, body, raw, filtered, hold }: ChatRequest, attempt: Attempt): ChatCall {
  const { providerFirstByteMs, providerTotalMs } = deps.config;
  return {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    filtered,
    model,
    capTokens: hold.capTokens,
    ...attempt,
    firstByteMs: providerFirstByteMs,
    totalMs: providerTotalMs,
  };
}

export function unixSeconds(deps: Deps): number {
  return Math.floor(deps.clock.unixMs() / 1000);
}
