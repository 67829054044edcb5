import { findKey } from "../../accounts/keys_store.ts";
import { findRefusal } from "../../accounts/refusal_counts_store.ts";
import type { Model } from "../../catalog/catalog.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { chatCharge, imageCharge } from "../../ledger/price.ts";
import { findReceipt, type Receipt } from "../../ledger/receipt_store.ts";

/**
 * The receipt of one request: what was held, charged and given back, and the arithmetic. Prices are not kept with a receipt:
 * today's are shown as today's, and a sum is broken into its parts only where today's prices give that very sum.
 */

const PICO_PER_MICRO = 1_000_000n;

/** One part of a charge: `count` × `microUsd`; in pico-USD it is exact, and only the total is rounded, up to nano-USD. */
export type ReceiptLine = {
  part: "prompt" | "cached" | "completion" | "image";
  count: number;
  /** Micro-USD per million tokens, or an image. */
  microUsd: number;
  picoUsd: bigint;
};

export type RequestReceipt = Receipt & {
  givenBackNanoUsd: bigint;
  /** null: the package paid, nothing was charged, or the prices have changed since. */
  lines: ReceiptLine[] | null;
  /** Today's prices, which need not be those it was charged by; null: the model has none, or is not sold any more. */
  currentPrices: { tokens: Model["prices"]; images: { size: string; microUsd: number }[] } | null;
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

/** Of a request of this account. Throws not_found. */
export async function receiptOf(
  deps: Deps,
  { accountId, requestId }: { accountId: number; requestId: string },
): Promise<RequestReceipt | RefusalReceipt> {
  const of = { accountId, requestId: requestId.toLowerCase() };
  const receipt = await findReceipt(deps, of);
  if (receipt) return withArithmetic(receipt, deps.catalog.model(receipt.modelId));
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

function withArithmetic(receipt: Receipt, model: Model | undefined): RequestReceipt {
  const { status, heldNanoUsd, chargedNanoUsd } = receipt;
  const back = status === "running" || chargedNanoUsd > heldNanoUsd ? 0n : heldNanoUsd - chargedNanoUsd;
  const images = [...(model?.imagePrices ?? [])].map(([size, microUsd]) => ({ size, microUsd }));
  const tokens = model?.prices ?? null;
  return {
    ...receipt,
    givenBackNanoUsd: back,
    lines: model === undefined || status !== "settled" || chargedNanoUsd === 0n ? null : linesOf(receipt, model),
    currentPrices: tokens === null && images.length === 0 ? null : { tokens, images },
  };
}

/** The parts of what a request cost, if they make up the very sum by today's prices. */
function linesOf(receipt: Receipt, { prices, imagePrices }: Model): ReceiptLine[] | null {
  const { promptTokens, completionTokens, chargedNanoUsd, shortfallNanoUsd } = receipt;
  const costNanoUsd = chargedNanoUsd + shortfallNanoUsd;
  if (promptTokens + completionTokens === 0) {
    const microUsd = [...imagePrices.values()].find((price) => imageCharge(price) === costNanoUsd);
    return microUsd === undefined
      ? null
      : [{ part: "image", count: 1, microUsd, picoUsd: BigInt(microUsd) * PICO_PER_MICRO }];
  }
  if (prices === null || chatCharge(prices, receipt) !== costNanoUsd) return null;
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
