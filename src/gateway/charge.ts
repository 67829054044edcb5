import { imagePriceKey } from "../catalog/catalog_input.ts";
import type { Usage } from "../ledger/ledger.ts";
import { type Charge, retailChatCharge, retailImageCharge } from "../ledger/price.ts";
import type { PromptSample } from "./prompt.ts";
import type { ImagePrice, ReservedRequest } from "./reserve.ts";
import type { AnswerToCount, ReportedUsage } from "./usage_counts.ts";
import type { ShownCharge } from "./usage_shown.ts";

/** What an answer used, and what that costs. Source: MON-1, MON-7, END-5, MRK-2. */

/** Of one text our count is never more than this many times the provider's, whatever its tokenizer, and if ours is only an estimate. */
const REPEATED_TIMES_MAX = 3;
/** A package pays. */
const FREE: Charge = { chargeNanoUsd: 0n };

type ChatToCharge = ReservedRequest & { prompt: PromptSample };

export const NOTHING_RELAYED: AnswerToCount = { usage: undefined, completionText: "", isPart: true };

/**
 * What a chat answer used and costs, by the prices at which the request was reserved. Returns a promise only if tokens have to be
 * counted.
 */
export function chatUsage(request: ChatToCharge, answer: AnswerToCount): Usage | Promise<Usage> {
  const { usage, completionText, isPart = false, isEstimated = false, coverage = "whole" } = answer;
  // A count of zero is none: every prompt has a token, and so has every text.
  const isCounted = usage !== undefined && usage.promptTokens > 0 && (usage.completionTokens > 0 || !completionText);
  if (!isCounted || isPart || coverage === "part") return estimatedUsage(request, answer);
  if (coverage === "whole") return charged(request, answer, usage, isEstimated);
  return repeatedUsage(request, answer, { usage, ...coverage });
}

async function estimatedUsage(request: ChatToCharge, answer: AnswerToCount): Promise<Usage> {
  const { counted } = await estimate(request, answer);
  return charged(request, answer, largerOf(counted, answer.usage), true);
}

type Repeated = { usage: ReportedUsage; firstShare: number };

/** Some servers report the whole answer with each chunk, others repeat the report of the first one: the text shows which it was. */
async function repeatedUsage(
  request: ChatToCharge,
  answer: AnswerToCount,
  { usage, firstShare }: Repeated,
): Promise<Usage> {
  const { counted, isRough } = await estimate(request, answer);
  const ofAll = counted.completionTokens;
  const isOfLess = isOfFirst(usage.completionTokens, { ofAll, firstShare, isRough });
  return charged(request, answer, isOfLess ? largerOf(counted, usage) : usage, isOfLess);
}

/**
 * Whether a count is that of the text that had come with its first report, not of all of it: it is nearer to our count of the one than to
 * that of the other, as quotients. An estimate by characters may be three times too large, and shows only more than that. Source: MON-15.
 */
function isOfFirst(
  reported: number,
  { ofAll, firstShare, isRough }: { ofAll: number; firstShare: number; isRough: boolean },
): boolean {
  if (ofAll > REPEATED_TIMES_MAX * reported) return true;
  const ofFirst = Math.max(1, ofAll * firstShare);
  return !isRough && reported * reported < ofFirst * ofAll;
}

function charged(
  { model, hold }: ChatToCharge,
  answer: AnswerToCount,
  usage: ReportedUsage,
  estimated: boolean,
): Usage {
  const { promptTokens, cachedTokens, completionTokens, further } = usage;
  const isCharged = hold.mode === "payg" && model.prices !== null;
  const { chargeNanoUsd, costNanoUsd }: Charge = isCharged
    ? retailChatCharge(model.prices, usage, hold.markupBasisPoints)
    : FREE;
  const counts = { promptTokens, cachedTokens, completionTokens, further };
  return { ...counts, chargeNanoUsd, costNanoUsd, estimated, rawUsage: answer.rawUsage };
}

/** What an image used and costs. Images count no tokens; the receipt names the price by its size and quality. */
export function imageUsage({ hold }: ReservedRequest, { size, quality, microUsd }: ImagePrice): Usage {
  const isCharged = hold.mode === "payg" && microUsd !== undefined;
  const charge = isCharged ? retailImageCharge(microUsd, hold.markupBasisPoints) : FREE;
  const further = { image: imagePriceKey(size, quality) };
  return { promptTokens: 0, cachedTokens: 0, completionTokens: 0, further, ...charge, estimated: false };
}

/** What the client is told of the charge; undefined if it did not ask. Source: USE-7. */
export function chargeShown(
  { hold, showsCharge }: Pick<ReservedRequest, "hold"> & { showsCharge: boolean },
  chargedNanoUsd: bigint,
): ShownCharge | undefined {
  return showsCharge ? { mode: hold.mode, chargedNanoUsd } : undefined;
}

/** Our own count. `isRough`: that of the answer is an estimate by its characters. */
type Estimate = { counted: ReportedUsage; isRough: boolean };

async function estimate({ deps, caller, prompt }: ChatToCharge, answer: AnswerToCount): Promise<Estimate> {
  const { text, textBytes, imageTokens, fileTokens, ids } = prompt;
  const wait = answer.isPart ? "settlement" : "answer";
  const count = (of: string) => deps.tokens.count(of, caller.key, wait);
  const [prompted, completed] = await Promise.all([count(text), count(answer.completionText)]);
  const countedBytes = Buffer.byteLength(text);
  const promptTokens =
    countedBytes < textBytes ? Math.ceil((prompted.tokens * textBytes) / countedBytes) : prompted.tokens;
  const { completionText, completionChars = 0 } = answer;
  // What was not kept counts as the sample does.
  const share = Math.max(1, completionChars / Math.max(1, completionText.length));
  const counted = {
    // Never zero: a prompt without text still has its message format. Source: END-5.
    promptTokens: Math.max(1, promptTokens + ids + imageTokens + fileTokens),
    cachedTokens: 0,
    completionTokens: Math.ceil(completed.tokens * share),
  };
  return { counted, isRough: completed.isRough === true };
}

/** The minimum that a partial answer used. The prompt does not grow, so for it the reported count is used. */
function largerOf(counted: ReportedUsage, reported: ReportedUsage | undefined): ReportedUsage {
  if (reported === undefined) return counted;
  const { cachedTokens, further, totalTokens = 0 } = reported;
  const promptTokens = reported.promptTokens || counted.promptTokens;
  return {
    promptTokens,
    cachedTokens,
    // Of a total alone, what is not the prompt is the completion.
    completionTokens: Math.max(reported.completionTokens, counted.completionTokens, totalTokens - promptTokens),
    further,
  };
}
