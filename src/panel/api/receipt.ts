import { findKey } from "../../accounts/keys_store.ts";
import { findRefusal } from "../../accounts/refusal_counts_store.ts";
import type { Role } from "../../accounts/roles.ts";
import { findReceipt, type Receipt } from "../../books/receipts_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { chatCharge, imageCharge, type PriceParts } from "../../ledger/price.ts";
import type { UsageReport } from "../../ledger/reported_usage.ts";

/** The receipt of one request: what was held, charged and given back, and the arithmetic at the prices it was admitted at. */

const PICO_PER_MICRO = 1_000_000n;
const TOKEN_DETAIL = /^(prompt|completion)_tokens_details\.\w+$/;

/** One part of a charge: `count` × `microUsd`; in pico-USD it is exact, and only the total is rounded, up to nano-USD. */
export type ReceiptLine = {
  part: "prompt" | "cached" | "completion" | "image";
  count: number;
  /** Micro-USD per million tokens, or an image. */
  microUsd: number;
  picoUsd: bigint;
};

export type RequestReceipt = Omit<Receipt, "prices"> & {
  givenBackNanoUsd: bigint;
  /** null: the package paid, or nothing was charged. Their sum, rounded up once, is what it cost. */
  lines: ReceiptLine[] | null;
  /** Since when the prices in `lines` had counted. */
  pricesFrom: string | null;
};

/** A refusal has no receipt of its own: it is counted with others of its minute. */
export type RefusalReceipt = {
  requestId: string;
  status: "refused";
  code: string;
  count: number;
  minute: string;
  keyId: number | null;
  keyName: string | null;
  modelId: string | null;
  host: string;
};

/** Of a request of this account, as one with this role may see it. Throws not_found. */
export async function receiptOf(
  deps: Deps,
  { accountId, requestId, role }: { accountId: number; requestId: string; role: Role },
): Promise<RequestReceipt | RefusalReceipt> {
  const of = { accountId, requestId: requestId.toLowerCase() };
  const receipt = await findReceipt(deps, of);
  if (receipt) return withArithmetic(receipt, role);
  const refusal = await findRefusal(deps, of);
  if (!refusal) throw new Refusal("not_found");
  const key = await findKey(deps, { accountId, keyId: refusal.keyId });
  return {
    requestId: of.requestId,
    status: "refused",
    code: refusal.code,
    count: refusal.count,
    minute: refusal.minute,
    keyId: refusal.keyId || null,
    keyName: key?.name ?? null,
    modelId: refusal.modelId || null,
    host: refusal.host,
  };
}

function withArithmetic({ prices, ...receipt }: Receipt, role: Role): RequestReceipt {
  const { status, heldNanoUsd, chargedNanoUsd } = receipt;
  const back = status === "running" || chargedNanoUsd > heldNanoUsd ? 0n : heldNanoUsd - chargedNanoUsd;
  const lines =
    prices === null || status !== "settled" || chargedNanoUsd === 0n ? null : linesOf(receipt, prices.parts);
  return {
    ...receipt,
    reportedUsage: shownTo(role, receipt.reportedUsage),
    givenBackNanoUsd: back,
    lines,
    pricesFrom: lines === null ? null : (prices?.validFrom ?? null),
  };
}

/**
 * Admins see all that the provider reported. Others see how their tokens divide, in the fields that OpenAI's API has for it:
 * what a provider adds may be what the operator pays for the answer.
 */
function shownTo(role: Role, reported: UsageReport | null): UsageReport | null {
  if (role === "admin" || reported === null) return reported;
  const shown = Object.entries(reported).filter(
    ([name, value]) => TOKEN_DETAIL.test(name) && typeof value === "number",
  );
  return shown.length === 0 ? null : Object.fromEntries(shown);
}

/** The parts of what a request cost; null where they do not make up the very sum. */
function linesOf(receipt: Omit<Receipt, "prices">, { tokens, images = {} }: PriceParts): ReceiptLine[] | null {
  const { promptTokens, completionTokens, chargedNanoUsd, shortfallNanoUsd } = receipt;
  const costNanoUsd = chargedNanoUsd + shortfallNanoUsd;
  if (promptTokens + completionTokens === 0) {
    const microUsd = Object.values(images).find((price) => imageCharge(price) === costNanoUsd);
    return microUsd === undefined
      ? null
      : [{ part: "image", count: 1, microUsd, picoUsd: BigInt(microUsd) * PICO_PER_MICRO }];
  }
  if (tokens === undefined) return null;
  const prices = {
    inputMicroUsd: tokens.input,
    cachedInputMicroUsd: tokens.cached_input,
    outputMicroUsd: tokens.output,
  };
  if (chatCharge(prices, receipt) !== costNanoUsd) return null;
  const cachedTokens = Math.min(receipt.cachedTokens, promptTokens);
  // A price in micro-USD per million tokens is the same number in pico-USD a token.
  const line = (part: ReceiptLine["part"], count: number, microUsd: number): ReceiptLine => ({
    part,
    count,
    microUsd,
    picoUsd: BigInt(count) * BigInt(microUsd),
  });
  return [
    line("prompt", promptTokens - cachedTokens, prices.inputMicroUsd),
    line("cached", cachedTokens, prices.cachedInputMicroUsd),
    line("completion", completionTokens, prices.outputMicroUsd),
  ].filter(({ count }) => count > 0);
}
