import type { Route } from "../catalog/catalog.ts";
import type { Deps } from "../deps.ts";
import type { Usage } from "../ledger/ledger.ts";
import type { EndReason } from "../ledger/ledger_store.ts";
import { type Admitted, admit, Slots } from "./admission.ts";
import { authenticate, type Caller } from "./authenticate.ts";
import { chatUsage, imageUsage, learnOverrun, NOTHING_RELAYED } from "./charge.ts";
import { type Attempt, dispatch, type Unanswered } from "./dispatch.ts";
import { serveOnce } from "./idempotency.ts";
import { requireModel } from "./models.ts";
import { type Filtered, filterParameters } from "./parameters.ts";
import { type Prompt, type PromptSample, promptOf } from "./prompt.ts";
import { countRefusal } from "./refusal_counts.ts";
import type { RelayEnd, StreamOwner } from "./relay.ts";
import { type ChatBody, readChat, readImage } from "./request_shapes.ts";
import { imagePriceOf, type ReservedRequest, reserveChat, reserveImage } from "./reserve.ts";
import { jsonResponse, streamResponse } from "./responses.ts";
import { streamOutcome } from "./stream_ends.ts";
import { type ChatCall, fetchChatAnswer, openChatStream } from "./upstream_chat.ts";
import { fetchImageAnswer, type ImageCall } from "./upstream_images.ts";

/**
 * The steps of one metered request, in order. Each step that can refuse is one function:
 *
 *   authenticate (host → key) → admit (gate → rate and per-key concurrency → body → replica slot) → serveOnce (idempotency claim)
 *   → readChat (body check) → requireModel → reserveChat (entitlement) → dispatch → endHold (settle or release) → response
 *
 * With warm caches, only the rate limit and an Idempotency-Key ask anything outside the process before `reserveChat`: Redis, and
 * Postgres when a dead replica's claim is taken over. In the reserve, the database decides. Every hold ends exactly once, in `endHold`.
 *
 * This file says when a request is charged. Which end of a stream is free: `stream_ends.ts`. How much is charged: `charge.ts`. When a
 * client that leaves before the answer pays: `Calls` in `dispatch.ts`.
 */

/** Serves a metered request once it is admitted: `chat` or `image`. Throws the refusal. */
type Serve = (deps: Deps, caller: Caller, admitted: Admitted) => Promise<Response>;

/** POST /v1/chat/completions, POST /v1/images/generations. Throws the refusal. */
export async function serveMetered(deps: Deps, request: Request, serve: Serve): Promise<Response> {
  const caller = await authenticate(deps, request);
  const slots = new Slots();
  try {
    const raw = await admit(deps, request, { rateId: rateIdOf(caller), owner: caller.key, slots });
    return await serveOnce(deps, { caller, request, raw, slots }, serve);
  } catch (error) {
    slots.release();
    countRefusal(deps, caller.record, error);
    throw error;
  }
}

/** The id under which the rate limiter counts an API key. */
export function rateIdOf({ key }: Caller): string {
  return `key:${key.keyId}`;
}

/** Body → model → reserve → dispatch → settle, for chat. Source: API-6. */
export async function chat(deps: Deps, caller: Caller, { raw, slots }: Admitted): Promise<Response> {
  const body = readChat(raw);
  if (body.stream) caller.record.kind = "stream";
  const model = requireModel(deps, caller, body.model, "text");
  const filtered = filterParameters({ kind: "chat", body, spans: raw.spans, allowed: model.allowedParams });
  const prompt = promptOf(body, raw, filtered.changed);
  const choices = body.n ?? 1;
  const hold = await reserveChat(deps, caller, { model, body, prompt, choices });
  const request: ChatRequest = { deps, caller, model, body, raw, filtered, prompt, choices, hold, slots };
  return body.stream ? await streamChat(request) : await jsonChat(request);
}

type ChatRequest = ReservedRequest &
  Pick<Admitted, "raw"> & { body: ChatBody; filtered: Filtered; prompt: Prompt; choices: number };

async function jsonChat(request: ChatRequest): Promise<Response> {
  const { deps, caller, model } = request;
  // The call runs to its end even if the client leaves, and is settled. Source: END-7.
  const result = await dispatch(request, "finish", (route, attempt) =>
    fetchChatAnswer(callOf(request, attempt), route, unixSeconds(deps)),
  );
  if (result.how === "answered") {
    const { answer, route } = result;
    const usage = await chatUsage(request, answer);
    learnOverrun(request, route, usage);
    await endHold(request, { how: "answered", usage });
    deps.hiddenTokens.note(model, caller.key.accountId, answer);
    caller.record.bytesOut = Buffer.byteLength(answer.text);
    return jsonResponse(answer.text, caller.requestId, answer.dropped);
  }
  await endHold(request, result);
  throw result.error;
}

async function streamChat(request: ChatRequest): Promise<Response> {
  const { deps, caller, model, body, prompt, choices, hold, slots } = request;
  const result = await dispatch(request, model.hidesTokens ? "read_on" : "abort", (route, attempt) =>
    openChatStream(callOf(request, attempt), route),
  );
  // No other route will be tried: the body is no longer needed.
  request.raw.room.close();
  if (result.how === "answered") {
    const { answer, route } = result;
    const plan = {
      requestId: caller.requestId,
      createdUnix: unixSeconds(deps),
      modelId: body.model,
      wantsUsage: body.stream_options?.include_usage === true,
      readsOn: model.hidesTokens === true,
    };
    // From here on `OpenChat` ends the hold.
    const owner = new OpenChat({ deps, caller, model, prompt: prompt.sample(), choices, hold, slots, route });
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
async function endUnanswered(request: ChatRequest, result: Unanswered): Promise<never> {
  if (result.how === "failed") await endHold(request, result);
  else await endHold(request, { how: "client_left", usage: await chatUsage(request, NOTHING_RELAYED) });
  throw result.error;
}

/**
 * A chat whose stream is open; the relay tells it how the stream ended. It keeps neither the body nor the whole prompt: thousands of
 * streams are open for minutes.
 */
class OpenChat implements StreamOwner {
  readonly #request: ReservedRequest & { prompt: PromptSample; choices: number; route: Route };

  constructor(request: ReservedRequest & { prompt: PromptSample; choices: number; route: Route }) {
    this.#request = request;
  }

  /** Ends the hold, before the last event goes out. Returns the error event, if the client is sent one. */
  async ended(end: RelayEnd): Promise<string | undefined> {
    const request = this.#request;
    const { deps, caller, model, route } = request;
    const outcome = streamOutcome(request, end);
    if (outcome.how === "failed") {
      await endHold(request, outcome);
      return outcome.event;
    }
    if (end.how === "complete") deps.hiddenTokens.note(model, caller.key.accountId, outcome.answer);
    const usage = await chatUsage(request, outcome.answer);
    learnOverrun(request, route, usage);
    await endHold(request, { how: outcome.how, usage });
    if (end.how === "broke_after_finish") caller.record.end = "provider_broke_off";
    return outcome.event;
  }

  closed(bytesOut: number): void {
    const { deps, caller } = this.#request;
    deps.telemetry.streamOver(caller.record, bytesOut);
  }
}

/** Body → model → reserve → dispatch → settle, for images. Source: API-7. */
export async function image(deps: Deps, caller: Caller, { raw, slots }: Admitted): Promise<Response> {
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
function endHold(request: ReservedRequest, outcome: Outcome): Promise<void> {
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

function unixSeconds(deps: Deps): number {
  return Math.floor(deps.clock.unixMs() / 1000);
}
