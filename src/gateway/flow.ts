import type { Model } from "../catalog/catalog.ts";
import type { Deps } from "../deps.ts";
import { type ErrorCode, Refusal, toEnvelope } from "../errors.ts";
import type { Body } from "../http/body.ts";
import { checker } from "../http/checks.ts";
import type { Hold, Usage } from "../ledger/ledger.ts";
import type { EndReason, ReserveRequest } from "../ledger/ledger_store.ts";
import { type Bound, capWithin, chatBound, imageBound, imageCharge, UNPRICED } from "../ledger/price.ts";
import { admitModel } from "./admission.ts";
import { type Counted, learn, NOTHING_RELAYED, overheadOf, usageOf } from "./charge.ts";
import type { Relayed } from "./chunks.ts";
import { type Attempt, type Dispatched, dispatch, type Outcome, restarting } from "./dispatch.ts";
import type { Caller, Leave } from "./door.ts";
import { type Sifted, sift } from "./parameters.ts";
import { type Prompt, type PromptSample, promptOf, promptTokens } from "./prompt.ts";
import type { StreamEnds } from "./relay.ts";
import { ChatBody, ImageBody } from "./request_shapes.ts";
import { type ChatCall, fetchChatAnswer, openChatStream } from "./upstream_chat.ts";
import { checkPrompt, fetchImageAnswer, type ImageCall, type ImagePrice, imagePriceOf } from "./upstream_images.ts";

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
  const sifted = sift({ kind: "chat", body, spans: raw.spans, allowed: model.allowedParams });
  const prompt = promptOf(body, raw, sifted.changed);
  const choices = body.n ?? 1;
  const hold = await reserveChat(deps, caller, model, body, { prompt, choices });
  const job: ChatJob = { deps, caller, model, body, raw, sifted, prompt, choices, hold, leave };
  return body.stream ? await streamChat(job) : await jsonChat(job);
}

/** Model → entitlement → reserve → relay → settle, for images. Source: contract › POST /images/generations. */
export async function image(deps: Deps, caller: Caller, raw: Body, leave: Leave): Promise<Response> {
  const body = readImage(raw);
  caller.trail.kind = "image";
  const model = modelOf(deps, caller, body.model, "image");
  const price = imagePriceOf(body, model.imagePrices);
  const hold = await reserveImage(deps, caller, model, price);
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
  // An image is made to its end even if the client leaves: it has been asked for, and is paid.
  const job: Job = { deps, caller, model, hold };
  const outcome = await dispatch(job, "finish", (route, own) => fetchImageAnswer({ ...call, ...own }, route));
  const chargeNanoUsd = hold.mode === "payg" && price.microUsd !== undefined ? imageCharge(price.microUsd) : 0n;
  const usage = { promptTokens: 0, cachedTokens: 0, completionTokens: 0, chargeNanoUsd, estimated: false };
  if (outcome.how !== "answered") return await endUnanswered(job, outcome, async () => usage);
  const { answer } = outcome;
  await settle(job, { ...usage, rawUsage: answer.rawUsage }, { strict: true, reason: endReason(caller) });
  leave();
  caller.trail.bytesOut = Buffer.byteLength(answer.text);
  return jsonResponse(answer.text, caller.requestId, answer.dropped);
}

/** The model a request names, noted on its trail whether or not the key may name it. Throws model_not_found, invalid_request. */
function modelOf(deps: Deps, { trail, key }: Caller, modelId: string, wants: "text" | "image"): Model {
  const model = deps.catalog.model(modelId);
  trail.modelId = model?.id ?? "";
  return admitModel(model, key, wants);
}

type Job = Dispatched;
type ChatJob = Job & { body: ChatBody; raw: Body; sifted: Sifted; prompt: Prompt; choices: number; leave: Leave };
/** What is still needed of a chat when its stream is open. Neither its body nor its prompt: thousands are open for minutes. */
type OpenChat = Job & { prompt: PromptSample; choices: number; leave: Leave };

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
    // Every provider refuses a tool's message that names no call.
    if (message.role === "tool" && typeof message.tool_call_id !== "string") {
      throw new Refusal("invalid_request", {
        message: `The field messages.${i}.tool_call_id is required.`,
        param: `messages.${i}.tool_call_id`,
      });
    }
  });
}

/**
 * Holds a chat request. The bound by bytes first; only if the money fails it, and the text is short, the tokenizer's.
 * Throws the entitlement's refusal.
 */
async function reserveChat(
  deps: Deps,
  caller: Caller,
  model: Model,
  body: ChatBody,
  { prompt, choices }: Pick<ChatJob, "prompt" | "choices">,
): Promise<Hold> {
  const wanted = body.max_completion_tokens ?? body.max_tokens;
  const overhead = overheadOf(model, caller.key);
  const onTop = { marginPermille: model.marginPermille, factorPermille: overhead.factorPermille };
  const ask = (): ReserveRequest => {
    const { textTokens, fixedTokens } = promptTokens(prompt, { imageInputTokens: model.imageInputTokens, overhead });
    const bound =
      model.prices === null ? UNPRICED : chatBound(model.prices, { textTokens, fixedTokens, choices }, onTop);
    const capMax = capWithin(bound, wanted ?? model.defaultCapTokens);
    const capMin = wanted === undefined || wanted === null ? Math.min(CAP_TOKENS_MIN, capMax) : capMax;
    return { ...askOf(caller, model, bound), capMax, capMin, tokenBound: textTokens + fixedTokens + capMax };
  };
  try {
    return await reserve(deps, caller, ask());
  } catch (error) {
    const short = error instanceof Refusal && MONEY_SHORT.includes(error.code);
    if (!short || prompt.bytes > TOKENIZED_BYTES_MAX) throw error;
    const counted = await deps.tokens.count(prompt.text);
    if (!counted.exact) throw error;
    prompt.textTokens = counted.tokens + prompt.beyond;
    return await reserve(deps, caller, ask());
  }
}

/** Holds an image request. Throws the entitlement's refusal; where only this size or quality has no price, in words that say so. */
async function reserveImage(deps: Deps, caller: Caller, model: Model, price: ImagePrice): Promise<Hold> {
  const { size, quality, microUsd } = price;
  const bound = microUsd === undefined ? UNPRICED : imageBound(microUsd);
  try {
    return await reserve(deps, caller, { ...askOf(caller, model, bound), capMax: 0, capMin: 0, tokenBound: 0 });
  } catch (error) {
    if (!(error instanceof Refusal) || error.code !== "payg_pricing_unavailable" || model.imagePrices.size === 0)
      throw error;
    const hasOtherQuality = [...model.imagePrices.keys()].some((key) => key.startsWith(`${size}/`));
    const what = hasOtherQuality ? `images of ${size} in ${quality} quality` : `images of ${size}`;
    throw new Refusal(error.code, {
      message: `This model has no pay-as-you-go price for ${what}.`,
      param: hasOtherQuality ? "quality" : "size",
    });
  }
}

/** The hold; that its key was used is noted. Throws the entitlement's refusal. */
async function reserve(deps: Deps, { trail, key, host }: Caller, ask: ReserveRequest): Promise<Hold> {
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
): Omit<ReserveRequest, "capMax" | "capMin" | "tokenBound"> {
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
    priceVersionId: model.priceVersionId,
  };
}

async function jsonChat(job: ChatJob): Promise<Response> {
  const { deps, caller, leave } = job;
  // The call runs to its end even if the client leaves, and is settled. Source: rulings › Who pays.
  const outcome = await dispatch(job, "finish", (route, own) =>
    fetchChatAnswer(callOf(job, own), route, unixSeconds(deps)),
  );
  if (outcome.how !== "answered") return await endUnanswered(job, outcome, () => usageOf(job, NOTHING_RELAYED));
  const { answer } = outcome;
  const usage = await usageOf(job, answer);
  try {
    await settle(job, usage, { strict: true, reason: endReason(caller) });
  } finally {
    learn(job, usage);
  }
  deps.hiddenTokens.note(job.model, caller.key.accountId, answer);
  leave();
  caller.trail.bytesOut = Buffer.byteLength(answer.text);
  return jsonResponse(answer.text, caller.requestId, answer.dropped);
}

async function streamChat(job: ChatJob): Promise<Response> {
  const { deps, caller, model, body, prompt, choices, hold, leave } = job;
  const outcome = await dispatch(job, model.hidesTokens ? "read_on" : "abort", (route, own) =>
    openChatStream(callOf(job, own), route),
  );
  // No other route will be tried: the body is not needed any more.
  job.raw.room.close();
  if (outcome.how !== "answered") return await endUnanswered(job, outcome, () => usageOf(job, NOTHING_RELAYED));
  const facts = {
    requestId: caller.requestId,
    createdUnix: unixSeconds(deps),
    modelId: body.model,
    wantsUsage: body.stream_options?.include_usage === true,
    readsOn: model.hidesTokens === true,
  };
  const ends = new ChatEnds({ deps, caller, model, prompt: prompt.sample(), choices, hold, leave });
  let stream: ReadableStream<Uint8Array> | null = deps.relays.start(outcome.answer, facts, ends);
  if (caller.signal.aborted) {
    // Nobody takes this stream, which the runtime may not notice. Its end is told to `ends`, as any other.
    void stream.cancel();
    stream = null;
  }
  return new Response(stream, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
      "x-request-id": caller.requestId,
      ...droppedHeader(outcome.answer.dropped),
    },
  });
}

/** Ends the hold of a request that brought no answer, and throws what its client gets. `owed`: what a client that left pays. */
async function endUnanswered(
  job: Job,
  outcome: Exclude<Outcome<never>, { how: "answered" }>,
  owed: () => Promise<Usage>,
): Promise<never> {
  switch (outcome.how) {
    case "client_left":
      await settle(job, await owed(), { reason: "client_left" });
      break;
    case "unpaid":
      await release(job, outcome.reason);
  }
  throw outcome.error;
}

/** What each end of a stream means for its hold. Source: rulings › Who pays when something breaks. */
class ChatEnds implements StreamEnds {
  readonly #job: OpenChat;

  constructor(job: OpenChat) {
    this.#job = job;
  }

  complete(relayed: Relayed): Promise<void> {
    const answer = countedOf(relayed);
    const { deps, caller, model } = this.#job;
    deps.hiddenTokens.note(model, caller.key.accountId, answer);
    return this.#charge(answer, "complete");
  }

  clientLeft(relayed: Relayed, isWhole: boolean): Promise<void> {
    const { deps, caller, model } = this.#job;
    if (model.hidesTokens && !isWhole)
      deps.log.warn(
        { requestId: caller.requestId, model: model.id },
        "an answer of a model that hides tokens was not read to its end: those not yet reported are not charged",
      );
    return this.#charge({ ...countedOf(relayed), isPart: !isWhole }, "client_left");
  }

  async brokeAfterFinish(relayed: Relayed, why: string): Promise<string> {
    const { deps, caller, model } = this.#job;
    deps.log.warn(
      { requestId: caller.requestId, model: model.id, why },
      "a provider's stream broke off when its answer was complete",
    );
    await this.#charge(countedOf(relayed), "complete");
    caller.trail.end = "provider_broke_off";
    const message = "The model service broke off after the answer was complete. It was charged.";
    return JSON.stringify(toEnvelope(new Refusal("provider_unavailable", { message }), caller.requestId));
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

function countedOf({ usage, rawUsage, text, bytes }: Relayed): Counted {
  return { usage, rawUsage, completionText: text, completionBytes: bytes };
}

function callOf({ deps, caller, model, body, raw, sifted, hold }: ChatJob, own: Attempt): ChatCall {
  const { providerFirstByteMs, providerTotalMs } = deps.config;
  return {
    provider: deps.provider,
    requestId: caller.requestId,
    body,
    raw,
    sifted,
    model,
    capTokens: hold.capTokens,
    ...own,
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

export const DROPPED_HEADER = "x-dropped-params";

/** Names the parameters that were not sent on. Source: rulings › What is sent on. */
function droppedHeader(dropped: string | undefined): Record<string, string> | undefined {
  return dropped === undefined ? undefined : { [DROPPED_HEADER]: dropped };
}

/** An answer that is whole. `dropped`: the parameters that were not sent on. */
export function jsonResponse(text: string, requestId: string, dropped?: string): Response {
  return new Response(text, {
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-request-id": requestId,
      ...droppedHeader(dropped),
    },
  });
}
