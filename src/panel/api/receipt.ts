import { findKey } from "../../accounts/keys_store.ts";
import { findRefusal } from "../../accounts/refusal_counts_store.ts";
import type { Role } from "../../accounts/roles.ts";
import { findReceipt, type Receipt } from "../../books/receipts_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { chatCharge, imageCharge, type PriceParts } from "../../ledger/price.ts";
import type { UsageReport } from "../../ledger/reported_usage.ts";

/** The receipt of one request: the amounts reserved, charged and released, and the calculation at the prices in force at admission. */

const PICO_PER_MICRO = 1_000_000n;
const TOKEN_DETAIL = /^(prompt|completion)_tokens_details\.\w+$/;

/** One part of a charge: `count` × `microUsd`. Exact in pico-USD; only the total is rounded, up to a nano-USD. */
export type ReceiptLine = {
  part: "prompt" | "cached" | "completion" | "image";
  count: number;
  /** Micro-USD per million tokens, or per image. */
  microUsd: number;
  picoUsd: bigint;
};

export type RequestReceipt = Omit<Receipt, "prices"> & {
  givenBackNanoUsd: bigint;
  /** The sum, rounded up once, is the cost. null: a package paid, or nothing was charged. */
  lines: ReceiptLine[] | null;
  /** When the prices in `lines` came into force. */
  pricesFrom: string | null;
};

/** A refused request has no receipt of its own: refusals are counted per minute. */
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

/** The receipt of a request of this account, as a viewer with this role may see it. Throws not_found. */
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
  const released = status === "running" || chargedNanoUsd > heldNanoUsd ? 0n : heldNanoUsd - chargedNanoUsd;
  const lines =
    prices === null || status !== "settled" || chargedNanoUsd === 0n ? null : linesOf(receipt, prices.parts);
  return {
    ...receipt,
    reportedUsage: shownTo(role, receipt.reportedUsage),
    givenBackNanoUsd: released,
    lines,
    pricesFrom: lines === null ? null : (prices?.validFrom ?? null),
  };
}

/**
 * Admins see everything that the provider reported. Others see only OpenAI's token details: a provider's own fields may tell what
 * the operator pays.
 */
function shownTo(role: Role, reported: UsageReport | null): UsageReport | null {
  if (role === "admin" || reported === null) return reported;
  const shown = Object.entries(reported).filter(
    ([name, value]) => TOKEN_DETAIL.test(name) && typeof value === "number",
  );
  return shown.length === 0 ? null : Object.fromEntries(shown);
}

/** The parts of a request's cost; null if they do not add up to it exactly. */
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
  // Micro-USD per million tokens equals pico-USD per token.
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
