import type { KeySnapshot } from "../accounts/key_snapshots_store.ts";
import type { Model } from "../catalog/catalog.ts";
import { greaterOverhead, type Overhead, overheadShown } from "../catalog/overhead.ts";
import { learnOverhead } from "../catalog/overhead_store.ts";
import type { Deps } from "../deps.ts";
import type { Hold, Usage } from "../ledger/ledger.ts";
import { chatCharge } from "../ledger/price.ts";
import { requesterOf } from "./admission.ts";
import type { ReportedUsage } from "./chunks.ts";
import type { Caller } from "./door.ts";
import type { PromptSample } from "./prompt.ts";

/** What an answer used, and what that costs. Source: rulings › Money, Who pays when something breaks. */

/** A rough count of text that no tokenizer may look at. */
const BYTES_A_TOKEN = 4;

/** The request that is charged. */
type Billed = { deps: Deps; caller: Caller; model: Model; hold: Hold };
type Overrunning = Billed & { prompt: Pick<PromptSample, "framedTokens" | "images">; choices: number };

/** An answer to count: by the provider's word, or else by its text. */
export type Counted = {
  usage: ReportedUsage | undefined;
  /** The provider's usage object as it came. */
  rawUsage?: unknown;
  completionText: string;
  completionBytes?: number;
  /** The usage is what the provider reported last, and the text what was relayed: the larger of both counts. */
  isPart?: boolean;
};
export const NOTHING_RELAYED: Counted = { usage: undefined, completionText: "" };

/** What an answer used and costs, by the prices the request was admitted at. */
export async function usageOf(
  { deps, model, hold, prompt }: Billed & { prompt: PromptSample },
  answer: Counted,
): Promise<Usage> {
  const { usage, isPart = false } = answer;
  const estimated = usage === undefined || isPart;
  const { promptTokens, cachedTokens, completionTokens } = estimated
    ? largerOf(await estimate(deps, answer, { prompt, imageInputTokens: model.imageInputTokens }), usage)
    : usage;
  const counts = { promptTokens, cachedTokens, completionTokens };
  const chargeNanoUsd = hold.mode === "payg" && model.prices !== null ? chatCharge(model.prices, counts) : 0n;
  return { ...counts, chargeNanoUsd, estimated, rawUsage: answer.rawUsage };
}

type Asked = { prompt: PromptSample; imageInputTokens: number };

async function estimate(deps: Deps, answer: Counted, { prompt, imageInputTokens }: Asked): Promise<ReportedUsage> {
  const { text, textBytes, images } = prompt;
  const [prompted, completed] = await Promise.all([deps.tokens.count(text), deps.tokens.count(answer.completionText)]);
  const countedBytes = Buffer.byteLength(text);
  const promptTokens =
    countedBytes < textBytes ? Math.ceil((prompted.tokens * textBytes) / countedBytes) : prompted.tokens;
  const beyond = Math.max(0, (answer.completionBytes ?? 0) - answer.completionText.length);
  return {
    // Never zero: a prompt without text has at least its frame. Source: rulings › Who pays.
    promptTokens: Math.max(1, promptTokens + images * imageInputTokens),
    cachedTokens: 0,
    completionTokens: completed.tokens + Math.ceil(beyond / BYTES_A_TOKEN),
    reasoningTokens: 0,
  };
}

/** What an answer that was left used at least. A prompt does not grow: of it the provider's word counts. */
function largerOf(counted: ReportedUsage, reported: ReportedUsage | undefined): ReportedUsage {
  if (reported === undefined) return counted;
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = reported;
  return {
    promptTokens: promptTokens || counted.promptTokens,
    cachedTokens,
    completionTokens: Math.max(completionTokens, reasoningTokens, counted.completionTokens),
    reasoningTokens,
  };
}

/** What is held on top of a request's bound: the greater of what holds for everybody and of what the account itself has shown. */
export function overheadOf(model: Model, key: KeySnapshot): Overhead {
  const own = key.overheads?.get(model.id);
  return own === undefined ? model.overhead : greaterOverhead(model.overhead, own);
}

/**
 * What used more than it was held for teaches its route's overhead: to the account at once, to others once several payers have
 * met it. Source: rulings › Money.
 */
export function learn({ deps, model, hold, caller, prompt, choices }: Overrunning, usage: Usage): void {
  const { route } = caller.trail;
  if (hold.mode !== "payg" || usage.chargeNanoUsd <= hold.heldNanoUsd || model.prices === null || !route) return;
  deps.metrics.overran();
  const held = {
    textTokens: prompt.framedTokens,
    images: prompt.images,
    imageInputTokens: model.imageInputTokens,
    outputTokens: (hold.capTokens ?? 0) * choices,
  };
  // A count of ours says nothing about the provider's.
  const known = overheadOf(model, caller.key);
  const shown = usage.estimated ? undefined : overheadShown(held, usage, { known, prices: model.prices });
  const facts = { requestId: caller.requestId, model: model.id, provider: route.providerName, routeId: route.id };
  const { heldNanoUsd } = hold;
  deps.log.warn(
    { ...facts, shown, heldNanoUsd: String(heldNanoUsd), chargeNanoUsd: String(usage.chargeNanoUsd) },
    "an answer cost more than was held for it",
  );
  if (shown === undefined) return;
  learnOverhead(deps, { routeId: route.id, ...requesterOf(caller.key), shown }).catch((err) =>
    deps.log.error({ ...facts, err }, "the route's overhead could not be kept"),
  );
}
