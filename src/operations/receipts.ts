import { Type } from "@sinclair/typebox";
import { findKey } from "../accounts/keys_store.ts";
import { findRefusal } from "../accounts/refusal_counts_store.ts";
import type { Role } from "../accounts/roles.ts";
import {
  chargeOf,
  findReceipt,
  findRequestAccount,
  moneyOf,
  type Receipt,
  type ReceiptMoney,
  recomputeReceipt,
  whyNotKept,
} from "../books/receipts_store.ts";
import { Refusal } from "../errors.ts";
import { FurtherCounts, type Recomputed, type RecomputedLine, retailAmount, retailPrice } from "../ledger/price.ts";
import type { UsageReport } from "../ledger/reported_usage.ts";
import { TriedRoute } from "../ledger/tried_routes.ts";
import type { Db } from "../platform/db.ts";
import { holderInScope } from "./fence.ts";
import { Amount, At, BillingMode, orNull, RowId } from "./fields.ts";
import { type Caller, operation } from "./operation.ts";

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
  /** null for customers, and if there is nothing to compute: a package paid, nothing was charged, or it names no prices. */
  recomputed: RecomputedCharge | null;
};

/**
 * The charge of a balance, computed again at the operator's prices. `isExact`: it and the operator's price in it equal those of the receipt.
 * `hasPrices`: its price version has a price for each part that it used; else nothing could be computed.
 */
export type RecomputedCharge = Recomputed & { isExact: boolean; hasPrices: boolean };

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
type Viewer = Pick<Caller, "role" | "tenantId">;

const RequestId = Type.String({
  pattern: "^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
  says: "a request id, as in the X-Request-Id header",
});
const Count = Type.Integer();

const RefusalShape = Type.Object(
  {
    requestId: RequestId,
    status: Type.Literal("refused"),
    accountId: RowId,
    code: Type.String(),
    count: Type.Integer({ description: "Refusals of this kind in the minute." }),
    minute: At,
    keyId: orNull(RowId),
    keyName: orNull(Type.String()),
    modelId: orNull(Type.String()),
    host: Type.String(),
  },
  { title: "RefusedRequest" },
);

const ReceiptShape = Type.Object(
  {
    requestId: RequestId,
    status: Type.Union([Type.Literal("settled"), Type.Literal("released")]),
    accountId: RowId,
    reason: orNull(Type.String({ description: "How it ended." })),
    keyId: RowId,
    keyName: orNull(Type.String()),
    modelId: Type.String(),
    host: Type.String(),
    mode: BillingMode,
    units: Count,
    promptTokens: Count,
    cachedTokens: Count,
    completionTokens: Count,
    furtherCounts: orNull(FurtherCounts),
    estimated: Type.Boolean(),
    reportedUsage: orNull(Type.Record(Type.String(), Type.Union([Type.Number(), Type.String()]))),
    tried: orNull(Type.Array(TriedRoute, { description: "The routes that were tried, for admins." })),
    answeredBy: orNull(
      Type.Object(
        {
          routeId: RowId,
          provider: orNull(Type.String()),
          firstMs: Type.Integer(),
          providerCostNanoUsd: orNull(Amount),
        },
        { description: "For admins." },
      ),
    ),
    heldNanoUsd: Amount,
    chargedNanoUsd: Amount,
    shortfallNanoUsd: Amount,
    givenBackNanoUsd: Amount,
    markup: orNull(Type.Object({ basisPoints: Type.Integer(), costNanoUsd: Amount, earnedNanoUsd: Amount })),
    money: orNull(
      Type.Object({ usageRevenueNanoUsd: Amount, costNanoUsd: orNull(Amount), marginNanoUsd: orNull(Amount) }),
    ),
    package: orNull(
      Type.Object({
        packageId: RowId,
        name: Type.String(),
        carryover: Type.Boolean(),
        timeZone: Type.String(),
        day: Type.String(),
        dayUnits: Count,
        dailyLimit: Count,
        totalUnits: Count,
        totalLimit: Count,
      }),
    ),
    priceVersionId: orNull(RowId),
    pricesFrom: orNull(At),
    recomputed: orNull(
      Type.Object(
        {
          isExact: Type.Boolean({ description: "It equals what was charged." }),
          hasPrices: Type.Boolean({ description: "The prices of its time have one for each part that it used." }),
          costNanoUsd: Amount,
          nanoUsd: Amount,
          lines: Type.Array(
            Type.Object({
              part: Type.String(),
              count: Count,
              microUsd: Count,
              picoUsd: Amount,
              hasOwnPrice: Type.Boolean(),
            }),
          ),
        },
        { description: "The charge of a balance, computed again from the counts and the prices of its time." },
      ),
    ),
    createdAt: At,
    finishedAt: orNull(At),
  },
  { title: "Receipt" },
);

export const getReceipt = operation({
  name: "usage.receipt",
  says: "Returns the receipt of a finished request, with its charge computed again; or what is known of a refused one.",
  scope: "usage:read",
  roles: ["customer", "reseller", "admin"],
  route: "GET /usage/receipts/{requestId}",
  input: { requestId: RequestId, accountId: Type.Optional(RowId) },
  // The first that fits: the status of a refusal is its own.
  output: Type.Union([RefusalShape, ReceiptShape], { title: "ReceiptOrRefusal" }),
  async run(deps, { caller }, { requestId, accountId: wanted }) {
    const id = requestId.toLowerCase();
    const accountId = await requesterIn(deps, caller, { requestId: id, accountId: wanted });
    return await receiptOf(deps, { accountId, requestId: id, viewer: caller });
  },
});

/** The account that is named, or whose request it is: the caller's own, or one that it manages. Throws not_found. */
async function requesterIn(
  deps: { db: Db },
  caller: Caller,
  { requestId, accountId }: { requestId: string; accountId: number | undefined },
): Promise<number> {
  if (accountId !== undefined) return (await holderInScope(deps, caller, accountId)).accountId;
  const scope = caller.role === "admin" ? "everybody" : { accountId: caller.accountId };
  const found = await findRequestAccount(deps, { requestId, scope });
  if (found === undefined) throw await notFound(deps, requestId);
  return found.accountId;
}

async function receiptOf(
  deps: { db: Db },
  { viewer, ...of }: { accountId: number; requestId: string; viewer: Viewer },
): Promise<(RequestReceipt | RefusalReceipt) & { accountId: number }> {
  const { accountId, requestId } = of;
  const receipt = await findReceipt(deps, of);
  if (receipt) return { accountId, ...withArithmetic(receipt, { ...viewer, isOwn: accountId === viewer.tenantId }) };
  const refusal = await findRefusal(deps, of);
  if (!refusal) throw await notFound(deps, requestId);
  const key = await findKey(deps, { accountId, keyId: refusal.keyId });
  return {
    requestId,
    accountId,
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
export async function notFound({ db }: { db: Db }, requestId: string): Promise<Refusal> {
  return new Refusal("not_found", { message: (await whyNotKept(db.sql, requestId)) ?? UNKNOWN_REQUEST });
}

function withArithmetic(found: Receipt, viewer: Viewer & { isOwn: boolean }): RequestReceipt {
  const { role, tenantId } = viewer;
  const { prices, unitsNanoUsd: _, unitsCostNanoUsd: __, ...receipt } = found;
  const { heldNanoUsd, chargedNanoUsd } = receipt;
  const isCustomer = role === "customer";
  const lines = linesFor(found, isCustomer ? (found.markup?.basisPoints ?? 0) : 0);
  // A customer of a reseller learns nothing of the operator's prices, nor whether there is a markup on them.
  const shownPrices = isCustomer && (lines === null || tenantId !== 0) ? null : prices;
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
    recomputed: isCustomer ? null : chargeAgain(found),
  };
}

function chargeAgain(receipt: Receipt): RecomputedCharge | null {
  const { mode, status, prices, markup, chargedNanoUsd, shortfallNanoUsd } = receipt;
  if (mode !== "payg" || status !== "settled" || prices === null) return null;
  const again = recomputeReceipt({ ...receipt, prices });
  if (again === null) return { lines: [], nanoUsd: 0n, costNanoUsd: 0n, isExact: false, hasPrices: false };
  const isCharged = again.nanoUsd === chargedNanoUsd + shortfallNanoUsd;
  return {
    ...again,
    hasPrices: true,
    isExact: isCharged && (markup?.costNanoUsd ?? again.costNanoUsd) === again.costNanoUsd,
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
