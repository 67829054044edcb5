import { findKey } from "../../accounts/keys_store.ts";
import { findRefusal } from "../../accounts/refusal_counts_store.ts";
import type { Role } from "../../accounts/roles.ts";
import {
  chargeOf,
  findReceipt,
  moneyOf,
  type Receipt,
  type ReceiptMoney,
  whyNotKept,
} from "../../books/receipts_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { type RecomputedLine, retailAmount, retailPrice } from "../../ledger/price.ts";
import type { UsageReport } from "../../ledger/reported_usage.ts";

/** The receipt of one request: the amounts reserved, charged and released, and the calculation at the prices in force at admission. */

const TOKEN_DETAIL = /^(prompt|completion)_tokens_details\.\w+$/;

export type RequestReceipt = Omit<Receipt, "prices" | "unitsNanoUsd" | "unitsCostNanoUsd"> & {
  /** Usage revenue, cost and margin as its reader defines them; null: for customers, a reseller's own, and releases. */
  money: ReceiptMoney | null;
  givenBackNanoUsd: bigint;
  /** null: a package paid, or nothing was charged. */
  lines: ReceiptLine[] | null;
  /** The price version of `lines`, and when it came into force. null for a reseller's customer: it is the operator's. */
  priceVersionId: number | null;
  pricesFrom: string | null;
};

/**
 * A part of a charge, exact. At the operator's prices, with `markup` as a separate field; for a customer at retail
 * prices, whose sum, rounded up once, is the cost. Source: MRK-8.
 */
export type ReceiptLine = Pick<RecomputedLine, "part" | "count" | "hasOwnPrice"> & {
  /** Pico-USD per million tokens, per image or per request. */
  pricePicoUsd: bigint;
  /** 10⁻¹⁸ USD. */
  amountAttoUsd: bigint;
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

/** Who reads a receipt. `tenantId`: the reseller of a customer; else 0, or the reseller's own id. */
type Viewer = { role: Role; tenantId: number };

/** The receipt of a request of this account, as this viewer may see it. Throws not_found. */
export async function receiptOf(
  deps: Deps,
  { accountId, requestId, viewer }: { accountId: number; requestId: string; viewer: Viewer },
): Promise<RequestReceipt | RefusalReceipt> {
  const of = { accountId, requestId: requestId.toLowerCase() };
  const receipt = await findReceipt(deps, of);
  if (receipt) return withArithmetic(receipt, { ...viewer, isOwn: accountId === viewer.tenantId });
  const refusal = await findRefusal(deps, of);
  if (!refusal) throw await notFound(deps, of.requestId);
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

/** It does not tell whether another account has the request. */
const UNKNOWN_REQUEST =
  /*i18n*/ "No request here has this id. Refused requests are counted per minute and kept for a week: only the last one of each minute can be found by its id.";

/** For an id of which nothing is found: the panel shows its message. */
export async function notFound({ db }: Pick<Deps, "db">, requestId: string): Promise<Refusal> {
  return new Refusal("not_found", { message: (await whyNotKept(db.sql, requestId)) ?? UNKNOWN_REQUEST });
}

function withArithmetic(found: Receipt, viewer: Viewer & { isOwn: boolean }): RequestReceipt {
  const { role, tenantId } = viewer;
  const { prices, unitsNanoUsd: _, unitsCostNanoUsd: __, ...receipt } = found;
  const { heldNanoUsd, chargedNanoUsd } = receipt;
  const isCustomer = role === "customer";
  const lines = linesFor(found, isCustomer ? (found.markup?.basisPoints ?? 0) : 0);
  // A customer of a reseller learns nothing of the operator's prices, nor whether there is a markup on them.
  const shownPrices = lines === null || (isCustomer && tenantId !== 0) ? null : prices;
  return {
    ...receipt,
    reportedUsage: shownTo(role, receipt.reportedUsage),
    // Only admins learn the operator's providers.
    tried: role === "admin" ? receipt.tried : null,
    answeredBy: role === "admin" ? receipt.answeredBy : null,
    givenBackNanoUsd: chargedNanoUsd > heldNanoUsd ? 0n : heldNanoUsd - chargedNanoUsd,
    markup: isCustomer ? null : receipt.markup,
    money: moneyFor(found, viewer),
    lines,
    priceVersionId: shownPrices?.versionId ?? null,
    pricesFrom: shownPrices?.validFrom ?? null,
  };
}

function moneyFor(receipt: Receipt, { role, isOwn }: Viewer & { isOwn: boolean }): ReceiptMoney | null {
  if (role === "customer" || (role === "reseller" && isOwn)) return null;
  return moneyOf(receipt, role === "admin" ? "operator" : "reseller");
}

function linesFor(receipt: Receipt, markupBasisPoints: number): ReceiptLine[] | null {
  const lines = chargeOf(receipt);
  if (lines === null) return null;
  return lines.map(({ part, count, hasOwnPrice, microUsd, picoUsd }) => ({
    part,
    count,
    hasOwnPrice,
    pricePicoUsd: retailPrice(microUsd, markupBasisPoints),
    amountAttoUsd: retailAmount(picoUsd, markupBasisPoints),
  }));
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
