import { markupFor } from "../accounts/markups.ts";
import type { Model } from "../catalog/catalog.ts";
import { imagePriceKey, QUALITY_DEFAULT } from "../catalog/catalog_input.ts";
import type { Deps } from "../deps.ts";
import { type ErrorCode, Refusal } from "../errors.ts";
import type { Hold } from "../ledger/ledger.ts";
import type { ReserveRequest } from "../ledger/ledger_store.ts";
import { type Bound, capWithin, chatBound, imageBound, UNPRICED, withMarkup } from "../ledger/price.ts";
import type { Slots } from "./admission.ts";
import type { Caller } from "./authenticate.ts";
import type { Prompt } from "./prompt.ts";
import { type ChatBody, IMAGE_SIZE_DEFAULT, type ImageBody } from "./request_shapes.ts";

/**
 * What a request reserves before its provider is called: the most that it can cost. Here it is decided whether the account is
 * entitled to it: from what this replica has drawn ahead, or else by the database.
 */

/** Text up to this size is counted by the tokenizer when the bound by bytes exceeds the balance. Source: MON-4. */
const TOKENIZED_BYTES_MAX = 32 * 1024;
/** An output cap that the client did not ask for is never lowered below this. Source: MON-5. */
const CAP_TOKENS_MIN = 256;
/** The database checks a key that ends within this time: its clock decides, and the estimate of it is behind after a machine was suspended. */
const KEY_ENDS_SOON_MS = 3_600_000;
const PERMILLE = 1000;
/** Refusals for money that a tighter bound may avoid: the bound by bytes reserves too much. */
const MONEY_SHORT: readonly ErrorCode[] = ["insufficient_balance", "key_spend_limit_exceeded"];

/** What an image reserves of tokens. */
const NO_TOKENS = { capMax: 0, capMin: 0, promptTokens: 0, choices: 0, sendsCap: false } as const;

/** A request that has a hold. `hold.ts` ends the hold, exactly once. */
export type ReservedRequest = {
  deps: Deps;
  caller: Caller;
  model: Model;
  hold: Hold;
  slots: Slots;
  /** Which of equal routes and keys are tried first, by `affinityOf`; undefined: any, by weight. */
  affinity?: number | undefined;
  /** The field of the request that has the prompt. Default: `messages`. */
  promptParam?: string;
};

type ChatToReserve = {
  model: Model;
  body: Pick<ChatBody, "max_tokens" | "max_completion_tokens">;
  prompt: Prompt;
  choices: number;
};

/**
 * Reserves a chat request: by the bound in bytes, and if only the money or a token allowance falls short and the text is short, by the
 * tokenizer's count. Returns a promise only if something outside the process has to be asked. Throws the entitlement's refusal.
 */
export function reserveChat(deps: Deps, caller: Caller, chat: ChatToReserve): Hold | Promise<Hold> {
  const asked = reserve(deps, caller, chatAsk(deps, caller, chat));
  return asked instanceof Promise ? orByCount(asked, deps, caller, chat) : asked;
}

/** What a reservation by the bound in bytes brings, or else one by the tokenizer's count. */
async function orByCount(asked: Promise<Hold>, deps: Deps, caller: Caller, chat: ChatToReserve): Promise<Hold> {
  const { prompt } = chat;
  try {
    return await asked;
  } catch (error) {
    const isShort = error instanceof Refusal && (MONEY_SHORT.includes(error.code) || error.facts.isPassing === true);
    if (!isShort || prompt.bytes > TOKENIZED_BYTES_MAX) throw error;
    const counted = await deps.tokens.count(prompt.text, caller.key, "reservation");
    if (!counted.exact) throw error;
    prompt.textTokens = counted.tokens + prompt.beyond;
    return await reserve(deps, caller, chatAsk(deps, caller, chat));
  }
}

function chatAsk(deps: Deps, caller: Caller, { model, body, prompt, choices }: ChatToReserve): ReserveRequest {
  const wanted = body.max_completion_tokens ?? body.max_tokens ?? null;
  const { hasMedia } = prompt;
  const bound = withMarkup(
    model.prices === null
      ? UNPRICED
      : chatBound(model.prices, { promptTokens: prompt.tokens, choices, hasMedia }, model.marginPermille),
    markupFor(caller.key.markups, model.id),
  );
  const promptTokens = Math.ceil((prompt.tokens * model.marginPermille) / PERMILLE);
  const minuteTokens = caller.limits.minuteTokens(model.id);
  // Whether the client's own cap is within the package's bound was checked before.
  const outputTokens = caller.key.requestBounds?.outputTokens ?? null;
  const defaultCap = Math.min(model.defaultCapTokens, outputTokens ?? model.defaultCapTokens);
  const capMax = capWithin(bound, wanted ?? capInMinute(defaultCap, { promptTokens, choices, minuteTokens }));
  const capMin = wanted === null ? Math.min(CAP_TOKENS_MIN, capMax) : capMax;
  return askOf(deps, caller, {
    ...{ model, bound, capMax, capMin, promptTokens, choices },
    sendsCap: (minuteTokens !== undefined || outputTokens !== null) && choices > 0,
  });
}

/** The default output cap, lowered to what fits in the limit of tokens a minute. Source: LIM-4. */
function capInMinute(
  capTokens: number,
  { promptTokens, choices, minuteTokens }: { promptTokens: number; choices: number; minuteTokens: number | undefined },
): number {
  if (minuteTokens === undefined || choices === 0) return capTokens;
  const fitting = Math.floor((minuteTokens - promptTokens) / choices);
  return Math.min(capTokens, Math.max(CAP_TOKENS_MIN, fitting));
}

/** Reserves an embedding request: a chat request without output. Throws the entitlement's refusal. */
export function reserveEmbedding(
  deps: Deps,
  caller: Caller,
  { model, prompt }: Pick<ChatToReserve, "model" | "prompt">,
): Hold | Promise<Hold> {
  return reserveChat(deps, caller, { model, prompt, body: { max_tokens: 0 }, choices: 0 });
}

/**
 * Reserves an image request. Throws the entitlement's refusal; if the model has prices, but none for this size or quality, the
 * message says so.
 */
export async function reserveImage(
  deps: Deps,
  caller: Caller,
  { model, price }: { model: Model; price: ImagePrice },
): Promise<Hold> {
  const { size, quality, microUsd } = price;
  const priced = microUsd === undefined ? UNPRICED : imageBound(microUsd);
  const bound = withMarkup(priced, markupFor(caller.key.markups, model.id));
  try {
    return await reserve(deps, caller, askOf(deps, caller, { model, bound, ...NO_TOKENS }));
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

/** What an image costs the balance, by its size and the quality that is sent on. */
export type ImagePrice = {
  size: string;
  quality: string;
  /** In micro-USD; undefined: it has no price. */
  microUsd: number | undefined;
};

/** The price of the requested image. A quality without a price is not sent on, and the default quality is charged. */
export function imagePriceOf(body: ImageBody, prices: Model["imagePrices"]): ImagePrice {
  const size = body.size ?? IMAGE_SIZE_DEFAULT;
  const wanted = qualityOf(body);
  const priced = typeof wanted === "string" ? prices.get(imagePriceKey(size, wanted)) : undefined;
  if (typeof wanted === "string" && priced !== undefined) return { size, quality: wanted, microUsd: priced };
  return { size, quality: QUALITY_DEFAULT, microUsd: prices.get(imagePriceKey(size)) };
}

/** The quality that the client sent, of any type: the shape does not check it. */
export function qualityOf(body: Readonly<Record<string, unknown>>): unknown {
  return body.quality;
}

/**
 * Counts the request to the limits of its model and of tokens a minute, and asks the ledger for a hold. Returns a promise only if
 * something outside the process has to be asked. Throws too_many_requests, and the entitlement's refusal.
 */
function reserve(deps: Deps, caller: Caller, ask: ReserveRequest): Hold | Promise<Hold> {
  const entered = caller.limits.enterModel(ask.modelId, ask.promptTokens + ask.capMax * ask.choices);
  return entered === undefined ? grantOrAsk(deps, caller, ask) : entered.then(() => grantOrAsk(deps, caller, ask));
}

function grantOrAsk(deps: Deps, caller: Caller, ask: ReserveRequest): Hold | Promise<Hold> {
  deps.failpoint("before_reserve");
  caller.record.reserveStartedMs = deps.clock.nowMs();
  // Nothing may follow that can throw: the hold belongs to nobody before `withHold` has it.
  return deps.ledger.grant(ask) ?? askDatabase(deps, caller, ask);
}

async function askDatabase(deps: Deps, caller: Caller, ask: ReserveRequest): Promise<Hold> {
  try {
    return await deps.ledger.reserve(ask);
  } catch (error) {
    caller.record.reserveRefusedMs = deps.clock.nowMs();
    throw error;
  }
}

/** What the ledger may rely on without asking the database: nothing for a key that only the database can check. */
function knownOf({ key, host }: Caller, nowUnixMs: number): ReserveRequest["known"] {
  const endsSoon = key.expiresAtMs !== null && key.expiresAtMs - nowUnixMs < KEY_ENDS_SOON_MS;
  if (key.hasLimits || endsSoon) return null;
  if (host.resellerId === null) return { mode: key.mode, epoch: key.epoch, tenantEpoch: key.tenantEpoch };
  if (host.tenantEpoch === undefined) return null;
  return { mode: key.mode, epoch: key.epoch, tenantEpoch: Math.min(key.tenantEpoch, host.tenantEpoch) };
}

type ToAsk = Pick<ReserveRequest, "capMax" | "capMin" | "promptTokens" | "choices" | "sendsCap"> & {
  model: Model;
  bound: Bound;
};

function askOf(deps: Deps, caller: Caller, { model, bound, ...tokens }: ToAsk): ReserveRequest {
  const { requestId, key, host } = caller;
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
    ...tokens,
    priceVersionId: model.priceVersionId,
    markupBasisPoints: markupFor(key.markups, model.id),
    known: knownOf(caller, deps.clock.unixMs()),
  };
}
