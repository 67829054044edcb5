import type { Model } from "../catalog/catalog.ts";
import { raiseMargin } from "../catalog/catalog_store.ts";
import type { Deps } from "../deps.ts";
import type { Hold, Usage } from "../ledger/ledger.ts";
import { chatCharge, marginAfterOverrun } from "../ledger/price.ts";
import type { ReportedUsage } from "./chunks.ts";
import type { Caller } from "./door.ts";
import type { PromptSample } from "./prompt.ts";

/** What an answer used, and what that costs. Source: rulings › Money, Who pays when something breaks. */

/** A rough count of text that no tokenizer may look at. */
const BYTES_A_TOKEN = 4;

/** The request that is charged. */
type Billed = { deps: Deps; caller: Caller; model: Model; hold: Hold };

/** An answer to count: by the provider's word, or else by its text. */
export type Counted = {
  usage: ReportedUsage | undefined;
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
  return { ...counts, chargeNanoUsd, estimated };
}

type Asked = { prompt: PromptSample; imageInputTokens: number };

async function estimate(deps: Deps, answer: Counted, { prompt, imageInputTokens }: Asked): Promise<ReportedUsage> {
  const { text, bytes, images } = prompt;
  const [prompted, completed] = await Promise.all([deps.tokens.count(text), deps.tokens.count(answer.completionText)]);
  const countedBytes = Buffer.byteLength(text);
  const promptTokens = countedBytes < bytes ? Math.ceil((prompted.tokens * bytes) / countedBytes) : prompted.tokens;
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

/** A provider that overran its hold will do so again: the model's bound is widened. Source: rulings › Money. */
export function learn({ deps, model, hold, caller }: Billed, usage: Usage): void {
  if (hold.mode !== "payg" || usage.chargeNanoUsd <= hold.heldNanoUsd) return;
  const margin = marginAfterOverrun(model.marginPermille, hold.heldNanoUsd, usage.chargeNanoUsd);
  deps.log.warn(
    { requestId: caller.requestId, model: model.id, margin },
    "a provider overran its bound; the model's margin is raised",
  );
  raiseMargin(deps, model.id, margin).catch((err) =>
    deps.log.error({ err, model: model.id }, "the margin could not be raised"),
  );
}
