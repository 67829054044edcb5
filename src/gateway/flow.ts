import type { Model, Route } from "../catalog/catalog.ts";
import { withFailover } from "../catalog/failover.ts";
import type { Deps } from "../deps.ts";
import { type ErrorCode, Refusal, toEnvelope } from "../errors.ts";
import type { Hold } from "../ledger/ledger.ts";
import type { Ask, EndReason } from "../ledger/ledger_store.ts";
import { type Bound, capWithin, chatBound, imageBound, imageCharge, UNPRICED } from "../ledger/price.ts";
import { admitModel } from "./admit.ts";
import type { Body } from "./body.ts";
import { type Counted, learn, NOTHING_RELAYED, usageOf } from "./charge.ts";
import { type ChatCall, fetchChatAnswer, openChatStream } from "./chat_wire.ts";
import type { Caller, Leave } from "./door.ts";
import { checkPrompt, fetchImageAnswer, type ImageCall } from "./image_wire.ts";
import { type Prompt, promptOf, promptTokens } from "./prompt.ts";
import type { OpenedStream, StreamEnds } from "./relay.ts";
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
  const model = modelOf(deps, caller, body.model, "text");
  const prompt = promptOf(body);
  const hold = await reserveChat(deps, caller, model, body, prompt);
  const job: ChatJob = { deps, caller, model, body, raw, prompt, hold, leave };
  return body.stream ? await streamChat(job) : await jsonChat(job);
}

/** Model → entitlement → reserve → relay → settle, for images. Source: contract › POST /images/generations. */
export async function image(deps: Deps, caller: Caller, raw: Body, leave: Leave): Promise<Response> {
  const body = readImage(raw);
  const model = modelOf(deps, caller, body.model, "image");
  const microUsd = model.imagePrices.get(body.size ?? IMAGE_SIZE_DEFAULT);
  const bound = microUsd === undefined ? UNPRICED : imageBound(microUsd);
  const hold = await reserve(deps, caller, { ...askOf(caller, model, bound), capMax: 0, capMin: 0, tokenBound: 0 });
  const call: Omit<ImageCall, "signal"> = {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    totalMs: deps.config.providerTotalMs,
    allowPrivate: deps.config.providerAllowPrivate,
    createdUnix: unixSeconds(deps),
  };
  // An image is made to its end even if the client leaves: it has been asked for, and is paid.
  const text = await dispatch({ deps, caller, model, hold }, { endsWithClient: false }, (route, signal) =>
    fetchImageAnswer({ ...call, signal }, route),
  );
  const chargeNanoUsd = hold.mode === "payg" && microUsd !== undefined ? imageCharge(microUsd) : 0n;
  const usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, chargeNanoUsd, estimated: false };
  await deps.ledger.settle(hold, usage, { strict: true, reason: endReason(caller) });
  leave();
  return jsonResponse(text, caller.requestId);
}

/** The model a request names, noted on its trail whether or not the key may name it. Throws model_not_found, invalid_request. */
function modelOf(deps: Deps, { trail, key }: Caller, modelId: string, wants: "text" | "image"): Model {
  const model = deps.catalog.model(modelId);
  trail.modelId = model?.id ?? "";
  return admitModel(model, key, wants);
}

type Job = { deps: Deps; caller: Caller; model: Model; hold: Hold };
type ChatJob = Job & { body: ChatBody; raw: Body; prompt: Prompt; leave: Leave };

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
  const textBytes = Buffer.byteLength(prompt.text);
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
  const hold = await deps.ledger.reserve(ask);
  trail.held = true;
  deps.keyUses.note(key.keyId, host.name);
  return hold;
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
  const { deps, caller, hold, leave } = job;
  // The call runs to its end even if the client leaves, and is settled. Source: rulings › Who pays.
  const answer = await dispatch(job, { endsWithClient: false }, (route, signal) =>
    fetchChatAnswer(callOf(job, signal), route, unixSeconds(deps)),
  );
  const usage = await usageOf(job, answer);
  await deps.ledger.settle(hold, usage, { strict: true, reason: endReason(caller) }).finally(() => learn(job, usage));
  leave();
  return jsonResponse(answer.text, caller.requestId);
}

async function streamChat(job: ChatJob): Promise<Response> {
  const { deps, caller, hold, body } = job;
  let opened: OpenedStream;
  try {
    opened = await dispatch(job, { endsWithClient: true }, (route, signal) =>
      openChatStream(callOf(job, signal), route),
    );
  } catch (error) {
    // Before the first byte, with the provider already at work: the prompt is paid. Source: rulings › Who pays.
    if (error instanceof ClientLeft)
      await deps.ledger.settle(hold, await usageOf(job, NOTHING_RELAYED), { reason: "client_left" });
    throw error;
  }
  const facts = {
    requestId: caller.requestId,
    createdUnix: unixSeconds(deps),
    modelId: body.model,
    wantsUsage: body.stream_options?.include_usage === true,
  };
  return new Response(deps.relays.start(opened, facts, streamEnds(job)), {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
      "x-request-id": caller.requestId,
    },
  });
}

/** What each end of a stream means for its hold. Source: rulings › Who pays when something breaks. */
function streamEnds(job: ChatJob): StreamEnds {
  const { deps, caller, hold, leave } = job;
  const settle = async (answer: Counted, reason: EndReason) => {
    const usage = await usageOf(job, answer);
    await deps.ledger.settle(hold, usage, { reason }).finally(leave);
    learn(job, usage);
  };
  const release = async (refusal: Refusal, reason: EndReason) => {
    await deps.ledger.release(hold, reason).finally(leave);
    return JSON.stringify(toEnvelope(refusal, caller.requestId));
  };
  return {
    complete: (relayed) =>
      settle({ usage: relayed.usage, completionText: relayed.text, completionBytes: relayed.bytes }, "complete"),
    clientLeft: (relayed) =>
      settle({ usage: undefined, completionText: relayed.text, completionBytes: relayed.bytes }, "client_left"),
    async brokeOff(why) {
      deps.log.warn({ requestId: caller.requestId, model: job.model.id, why }, "a provider's stream broke off");
      return release(
        new Refusal("provider_unavailable", { message: "The model service broke off. Nothing was charged." }),
        "provider_broke_off",
      );
    },
    endedByUs: () => release(restarting(), "ended_by_us"),
  };
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
  { deps, caller, model, hold }: Job,
  { endsWithClient }: { endsWithClient: boolean },
  attempt: (route: Route, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const call = new AbortController();
  const { signal } = call;
  let endedByUs = false;
  const endWithClient = () => call.abort();
  if (endsWithClient) caller.signal.addEventListener("abort", endWithClient, { once: true });
  const takeBack = deps.gate.onDeadline(() => {
    if (!signal.aborted) endedByUs = true;
    call.abort();
  });
  let dispatched = false;
  try {
    if (caller.signal.aborted) throw new Refusal("service_unavailable", { message: "The client left." });
    return await withFailover(
      { routes: model.routes, breakers: deps.breakers, random: Math.random, signal, log: deps.log },
      (route) => {
        // Past its lease the reaper may have given the hold back: then nothing may reach a provider.
        if (!deps.ledger.alive(hold)) throw new Refusal("service_unavailable");
        dispatched = true;
        return attempt(route, signal);
      },
    );
  } catch (error) {
    if (endedByUs) {
      await deps.ledger.release(hold, dispatched ? "ended_by_us" : "not_dispatched");
      throw restarting();
    }
    if (dispatched && signal.aborted) throw new ClientLeft();
    await deps.ledger.release(
      hold,
      !dispatched ? "not_dispatched" : isRejection(error) ? "provider_rejected" : "provider_failed",
    );
    throw error;
  } finally {
    caller.signal.removeEventListener("abort", endWithClient);
    takeBack();
  }
}

function restarting(): Refusal {
  return new Refusal("service_unavailable", { message: "The service is restarting. Nothing was charged." });
}

function isRejection(error: unknown): boolean {
  return error instanceof Refusal && error.code === "invalid_request";
}

function callOf({ deps, caller, body, raw, hold }: ChatJob, signal: AbortSignal): ChatCall {
  const { providerFirstByteMs, providerTotalMs } = deps.config;
  return {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    capTokens: hold.capTokens,
    signal,
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

function jsonResponse(text: string, requestId: string): Response {
  return new Response(text, {
    headers: { "content-type": "application/json", "cache-control": "no-store", "x-request-id": requestId },
  });
}
