import type { Model, Route } from "../catalog/catalog.ts";
import { withFailover } from "../catalog/failover.ts";
import type { Deps } from "../deps.ts";
import { type ErrorCode, Refusal, toEnvelope } from "../errors.ts";
import type { Hold, Usage } from "../ledger/ledger.ts";
import type { Ask, EndReason } from "../ledger/ledger_store.ts";
import { type Bound, capWithin, chatBound, imageBound, imageCharge, UNPRICED } from "../ledger/price.ts";
import { Stop, type StopSignal } from "../platform/stop.ts";
import { admitModel } from "./admit.ts";
import type { Body } from "./body.ts";
import { type Counted, learn, NOTHING_RELAYED, usageOf } from "./charge.ts";
import { type ChatCall, fetchChatAnswer, openChatStream } from "./chat_wire.ts";
import type { Relayed } from "./chunks.ts";
import type { Caller, Leave } from "./door.ts";
import { checkPrompt, fetchImageAnswer, type ImageCall } from "./image_wire.ts";
import { type Prompt, promptOf, promptTokens } from "./prompt.ts";
import type { OpenedStream, StreamEnds } from "./relay.ts";
import { traced } from "./spans.ts";
import { ChatBody, checker, IMAGE_SIZE_DEFAULT, ImageBody } from "./wire.ts";

/**
 * The way of one request, the same for the API and for the panel:
 *
 *   host → key → rate → body → model → entitlement → reserve → relay → settle
 *
 * The door (host → key → rate → body) is door.ts. It decides in memory; `reserve` is the one wait before the provider,
 * and there the database decides. Every hold ends exactly once: settled, or released.
 */

/** Text up to here is worth a tokenizer when the balance fails the bound by bytes. Source: rulings › Money. */
const TOKENIZED_BYTES_MAX = 32 * 1024;
/** A cap that the client did not ask for is never lowered below this. Source: rulings › Money. */
const CAP_TOKENS_MIN = 256;
/** Refusals that a closer look at the prompt may turn: the bound by bytes asked for too much. */
const MONEY_SHORT: readonly ErrorCode[] = ["insufficient_balance", "key_spend_limit_exceeded"];

const checkChat = checker(ChatBody);
const checkImage = checker(ImageBody);

/** Model → entitlement → reserve → relay → settle, for chat. Source: contract › POST /chat/completions. */
export async function chat(deps: Deps, caller: Caller, raw: Body, leave: Leave): Promise<Response> {
  const body = readChat(raw);
  if (body.stream) caller.trail.kind = "stream";
  const model = modelOf(deps, caller, body.model, "text");
  const prompt = promptOf(body);
  const hold = await reserveChat(deps, caller, model, body, prompt);
  const job: ChatJob = { deps, caller, model, body, raw, prompt, hold, leave };
  return body.stream ? await streamChat(job) : await jsonChat(job);
}

/** Model → entitlement → reserve → relay → settle, for images. Source: contract › POST /images/generations. */
export async function image(deps: Deps, caller: Caller, raw: Body, leave: Leave): Promise<Response> {
  const body = readImage(raw);
  caller.trail.kind = "image";
  const model = modelOf(deps, caller, body.model, "image");
  const microUsd = model.imagePrices.get(body.size ?? IMAGE_SIZE_DEFAULT);
  const bound = microUsd === undefined ? UNPRICED : imageBound(microUsd);
  const hold = await reserve(deps, caller, { ...askOf(caller, model, bound), capMax: 0, capMin: 0, tokenBound: 0 });
  const call: Omit<ImageCall, keyof Attempt> = {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    totalMs: deps.config.providerTotalMs,
    allowPrivate: deps.config.providerAllowPrivate,
    createdUnix: unixSeconds(deps),
  };
  // An image is made to its end even if the client leaves: it has been asked for, and is paid.
  const text = await dispatch({ deps, caller, model, hold }, { endsWithClient: false }, (route, own) =>
    fetchImageAnswer({ ...call, ...own }, route),
  );
  const chargeNanoUsd = hold.mode === "payg" && microUsd !== undefined ? imageCharge(microUsd) : 0n;
  const usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, chargeNanoUsd, estimated: false };
  await settle({ deps, caller, hold }, usage, { strict: true, reason: endReason(caller) });
  leave();
  caller.trail.bytesOut = Buffer.byteLength(text);
  return jsonResponse(text, caller.requestId);
}

/** The model a request names, noted on its trail whether or not the key may name it. Throws model_not_found, invalid_request. */
function modelOf(deps: Deps, { trail, key }: Caller, modelId: string, wants: "text" | "image"): Model {
  const model = deps.catalog.model(modelId);
  trail.modelId = model?.id ?? "";
  return admitModel(model, key, wants);
}

/** What each call of a provider has for itself. */
type Attempt = { signal: StopSignal; traceparent: string | undefined };
type Job = { deps: Deps; caller: Caller; model: Model; hold: Hold };
type ChatJob = Job & { body: ChatBody; raw: Body; prompt: Prompt; leave: Leave };
/** What is still needed of a chat when its stream is open. Not its body: thousands are open for minutes. */
type OpenChat = Job & { prompt: Prompt; leave: Leave };

/** The body of a chat request, by every rule that needs no model. Throws invalid_request. */
export function readChat(raw: Body): ChatBody {
  const body = checkChat(raw.value);
  checkChatRules(body);
  return body;
}

/** The body of an image request, by every rule that needs no model. Throws invalid_request. */
export function readImage(raw: Body): ImageBody {
  const body = checkImage(raw.value);
  checkPrompt(body);
  return body;
}

/** Rules of the contract that need more than a shape. Throws invalid_request. */
function checkChatRules(body: ChatBody): void {
  body.messages.forEach((message, i) => {
    const empty = message.content === undefined || message.content === null;
    // An assistant turn may consist of tool calls alone. Source: rulings › Streams.
    if (empty && message.role !== "assistant") {
      throw new Refusal("invalid_request", {
        message: `The field messages.${i}.content is required.`,
        param: `messages.${i}.content`,
      });
    }
  });
}

/**
 * Holds a chat request. The bound by bytes first; only if the money fails it, and the text is short, the tokenizer's.
 * Throws the entitlement's refusal.
 */
async function reserveChat(deps: Deps, caller: Caller, model: Model, body: ChatBody, prompt: Prompt): Promise<Hold> {
  const wanted = body.max_completion_tokens ?? body.max_tokens;
  const textBytes = prompt.bytes;
  const ask = (textTokens: number): Ask => {
    const tokens = promptTokens(prompt, textTokens, model.imageInputTokens);
    const bound =
      model.prices === null
        ? UNPRICED
        : chatBound(model.prices, { promptTokens: tokens, choices: body.n ?? 1 }, model.marginPermille);
    const capMax = capWithin(bound, wanted ?? model.defaultCapTokens);
    const capMin = wanted === undefined || wanted === null ? Math.min(CAP_TOKENS_MIN, capMax) : capMax;
    return { ...askOf(caller, model, bound), capMax, capMin, tokenBound: tokens + capMax };
  };
  try {
    return await reserve(deps, caller, ask(textBytes));
  } catch (error) {
    const short = error instanceof Refusal && MONEY_SHORT.includes(error.code);
    if (!short || textBytes > TOKENIZED_BYTES_MAX) throw error;
    const counted = await deps.tokens.count(prompt.text);
    if (!counted.exact) throw error;
    return await reserve(deps, caller, ask(counted.tokens));
  }
}

/** The hold; that its key was used is noted. Throws the entitlement's refusal. */
async function reserve(deps: Deps, { trail, key, host }: Caller, ask: Ask): Promise<Hold> {
  deps.failpoint("before_reserve");
  trail.askedMs = deps.clock.nowMs();
  let hold: Hold;
  try {
    hold = await deps.ledger.reserve(ask);
  } catch (error) {
    trail.refusedMs = deps.clock.nowMs();
    throw error;
  }
  trail.heldMs = deps.clock.nowMs();
  deps.failpoint("after_reserve");
  trail.held = true;
  deps.keyUses.note(key.keyId, host.name);
  return hold;
}

/** Ends a hold charged. Throws insufficient_balance where `strict` and the provider overran what the balance covers. */
async function settle(
  { deps, caller, hold }: Omit<Job, "model">,
  usage: Usage,
  end: { strict?: boolean; reason: EndReason },
): Promise<void> {
  deps.failpoint("before_settle");
  caller.trail.settlingMs = deps.clock.nowMs();
  await deps.ledger.settle(hold, usage, end);
  caller.trail.settledMs = deps.clock.nowMs();
  caller.trail.end = end.reason;
  caller.trail.settled = true;
  deps.failpoint("after_settle");
}

/** Ends a hold uncharged. */
async function release({ deps, caller, hold }: Omit<Job, "model">, reason: EndReason): Promise<void> {
  caller.trail.releasingMs = deps.clock.nowMs();
  await deps.ledger.release(hold, reason);
  caller.trail.releasedMs = deps.clock.nowMs();
}

function askOf(
  { requestId, key, host }: Caller,
  model: Model,
  bound: Bound,
): Omit<Ask, "capMax" | "capMin" | "tokenBound"> {
  return {
    requestId,
    accountId: key.accountId,
    tenantId: key.tenantId,
    keyId: key.keyId,
    host: host.name,
    ownHost: host.resellerId === null,
    modelId: model.id,
    promptPico: bound.promptPico,
    outputPico: bound.outputPico,
  };
}

async function jsonChat(job: ChatJob): Promise<Response> {
  const { deps, caller, leave } = job;
  // The call runs to its end even if the client leaves, and is settled. Source: rulings › Who pays.
  const answer = await dispatch(job, { endsWithClient: false }, (route, own) =>
    fetchChatAnswer(callOf(job, own), route, unixSeconds(deps)),
  );
  const usage = await usageOf(job, answer);
  try {
    await settle(job, usage, { strict: true, reason: endReason(caller) });
  } finally {
    learn(job, usage);
  }
  leave();
  caller.trail.bytesOut = Buffer.byteLength(answer.text);
  return jsonResponse(answer.text, caller.requestId);
}

async function streamChat(job: ChatJob): Promise<Response> {
  const { deps, caller, model, body, prompt, hold, leave } = job;
  let opened: OpenedStream;
  try {
    opened = await dispatch(job, { endsWithClient: true }, (route, own) => openChatStream(callOf(job, own), route));
  } catch (error) {
    // Before the first byte, with the provider already at work: the prompt is paid. Source: rulings › Who pays.
    if (error instanceof ClientLeft) await settle(job, await usageOf(job, NOTHING_RELAYED), { reason: "client_left" });
    throw error;
  }
  // No other route will be tried: the body is not needed any more.
  job.raw.room.close();
  const facts = {
    requestId: caller.requestId,
    createdUnix: unixSeconds(deps),
    modelId: body.model,
    wantsUsage: body.stream_options?.include_usage === true,
  };
  const ends = new ChatEnds({ deps, caller, model, prompt, hold, leave });
  return new Response(deps.relays.start(opened, facts, ends), {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
      "x-request-id": caller.requestId,
    },
  });
}

/** What each end of a stream means for its hold. Source: rulings › Who pays when something breaks. */
class ChatEnds implements StreamEnds {
  readonly #job: OpenChat;

  constructor(job: OpenChat) {
    this.#job = job;
  }

  complete({ usage, text, bytes }: Relayed): Promise<void> {
    return this.#charge({ usage, completionText: text, completionBytes: bytes }, "complete");
  }

  clientLeft({ text, bytes }: Relayed): Promise<void> {
    return this.#charge({ usage: undefined, completionText: text, completionBytes: bytes }, "client_left");
  }

  brokeOff(why: string): Promise<string> {
    const { deps, caller, model } = this.#job;
    deps.log.warn({ requestId: caller.requestId, model: model.id, why }, "a provider's stream broke off");
    const message = "The model service broke off. Nothing was charged.";
    return this.#giveBack(new Refusal("provider_unavailable", { message }), "provider_broke_off");
  }

  endedByUs(): Promise<string> {
    return this.#giveBack(restarting(), "ended_by_us");
  }

  over(bytesOut: number): void {
    const { deps, caller } = this.#job;
    deps.sight.streamOver(caller.trail, bytesOut);
  }

  async #charge(answer: Counted, reason: EndReason): Promise<void> {
    const usage = await usageOf(this.#job, answer);
    try {
      await settle(this.#job, usage, { reason });
    } finally {
      this.#job.leave();
    }
    learn(this.#job, usage);
  }

  async #giveBack(refusal: Refusal, reason: EndReason): Promise<string> {
    const { caller, leave } = this.#job;
    try {
      await release(this.#job, reason);
    } finally {
      leave();
    }
    caller.trail.end = reason;
    return JSON.stringify(toEnvelope(refusal, caller.requestId));
  }
}

/** The client of a stream left after dispatch and before the first byte. Its hold is still to be settled. */
class ClientLeft extends Refusal {
  constructor() {
    super("service_unavailable", { message: "The client left." });
  }
}

/**
 * Calls the model's routes in turn until one answers, under the same hold. If none does the hold is released, unless
 * `endsWithClient` and the client left: then ClientLeft is thrown. Throws provider_unavailable, invalid_request,
 * service_unavailable (also when the drain's deadline comes first).
 */
async function dispatch<T>(
  job: Job,
  { endsWithClient }: { endsWithClient: boolean },
  attempt: (route: Route, own: Attempt) => Promise<T>,
): Promise<T> {
  const { deps, caller, model, hold } = job;
  const signal = new Stop();
  let endedByUs = false;
  const endWithClient = () => signal.stop();
  if (endsWithClient) caller.signal.addEventListener("abort", endWithClient, { once: true });
  const takeBack = deps.gate.onDeadline(() => {
    if (!signal.aborted) endedByUs = true;
    signal.stop();
  });
  let dispatched = false;
  try {
    if (caller.signal.aborted) throw new Refusal("service_unavailable", { message: "The client left." });
    const answered = await withFailover(
      {
        routes: model.routes,
        breakers: deps.breakers,
        random: Math.random,
        signal,
        log: deps.log,
        onTimeOut: deps.metrics.timedOut,
      },
      (route) => {
        // Past its lease the reaper may have given the hold back, or a retry taken over: then nothing may reach a provider.
        if (!deps.ledger.alive(hold) || caller.claim?.alive() === false) throw new Refusal("service_unavailable");
        if (!dispatched) caller.trail.dispatchedMs = deps.clock.nowMs();
        dispatched = true;
        caller.trail.route = route;
        return traced(caller.trail, route, deps.clock, (traceparent) => attempt(route, { signal, traceparent }));
      },
    );
    caller.trail.answeredMs = deps.clock.nowMs();
    return answered;
  } catch (error) {
    if (endedByUs) {
      await release(job, dispatched ? "ended_by_us" : "not_dispatched");
      throw restarting();
    }
    if (dispatched && signal.aborted) throw new ClientLeft();
    await release(job, !dispatched ? "not_dispatched" : isRejection(error) ? "provider_rejected" : "provider_failed");
    throw error;
  } finally {
    if (endsWithClient) caller.signal.removeEventListener("abort", endWithClient);
    takeBack();
  }
}

function restarting(): Refusal {
  return new Refusal("service_unavailable", { message: "The service is restarting. Nothing was charged." });
}

function isRejection(error: unknown): boolean {
  return error instanceof Refusal && error.code === "invalid_request";
}

function callOf({ deps, caller, body, raw, hold }: ChatJob, own: Attempt): ChatCall {
  const { providerFirstByteMs, providerTotalMs } = deps.config;
  return {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    capTokens: hold.capTokens,
    signal: own.signal,
    traceparent: own.traceparent,
    firstByteMs: providerFirstByteMs,
    totalMs: providerTotalMs,
  };
}

function endReason(caller: Caller): EndReason {
  return caller.signal.aborted ? "client_left" : "complete";
}

function unixSeconds(deps: Deps): number {
  return Math.floor(deps.clock.unixMs() / 1000);
}

/** An answer that is whole. */
export function jsonResponse(text: string, requestId: string): Response {
  return new Response(text, {
    headers: { "content-type": "application/json", "cache-control": "no-store", "x-request-id": requestId },
  });
}
