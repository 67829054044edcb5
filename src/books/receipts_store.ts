import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { minuteOf } from "../accounts/refusal_counts_store.ts";
import type { AnsweredBy } from "../ledger/answered_by.ts";
import { FurtherCounts, PriceParts, type Recomputed, type RecomputedLine, recompute } from "../ledger/price.ts";
import type { UsageReport } from "../ledger/reported_usage.ts";
import { type TriedRoute, triedOf } from "../ledger/tried_routes.ts";
import type { Db, Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { operatorMoney, resellerMoney } from "./usage_money.ts";
import { type BillingMode, REQUEST_ID } from "./usage_records_store.ts";

/** One request as recorded: settled or released. */
export type Receipt = {
  requestId: string;
  status: "settled" | "released";
  /** Why it ended this way; null while it runs. */
  reason: string | null;
  keyId: number;
  keyName: string | null;
  /** First and last characters of the key. */
  keyMasked: string | null;
  modelId: string;
  host: string;
  mode: BillingMode;
  units: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  /** Counts that may have prices of their own, and an image's price key; null: none. */
  furtherCounts: FurtherCounts | null;
  estimated: boolean;
  /** What else the provider counted, under its own names; null: nothing. Some of it is for the operator only. */
  reportedUsage: UsageReport | null;
  /** The routes that were tried, for admins only; null: the first one answered. */
  tried: TriedRoute[] | null;
  /** The route that answered, and what its provider charges the operator, for admins only; null: none did. */
  answeredBy: ReceiptAnswer | null;
  /** The prices at admission, by which it is charged; null: its model had none. */
  prices: ReceiptPrices | null;
  heldNanoUsd: bigint;
  chargedNanoUsd: bigint;
  /** What it cost beyond what could be charged: the operator's loss. */
  shortfallNanoUsd: bigint;
  /** What the units that it used are worth, as in `usage_money.ts`. Source: MON-21. */
  unitsNanoUsd: bigint;
  unitsCostNanoUsd: bigint;
  /** The reseller's markup at admission; null: none. Only the reseller and admins may see it. Source: MRK-4, MRK-8. */
  markup: ReceiptMarkup | null;
  /** The package that pays, and how much of it is used now, open holds included; null: the balance pays. */
  package: ReceiptPackage | null;
  createdAt: string;
  finishedAt: string | null;
};

/** `earnedNanoUsd`: what was charged above the operator's price. */
export type ReceiptMarkup = { basisPoints: number; costNanoUsd: bigint; earnedNanoUsd: bigint };

/** See `ledger/answered_by.ts`. `provider`: its name today; null: its route was deleted. */
export type ReceiptAnswer = AnsweredBy & { provider: string | null };

/** A row of `price_versions`: its id, since when it was valid, and its prices. */
export type ReceiptPrices = { versionId: number; validFrom: string; parts: PriceParts };

export type ReceiptPackage = {
  packageId: number;
  name: string;
  carryover: boolean;
  timeZone: string;
  /** The day that the request counts in, as 2030-01-31 in the package's time zone, and what is used of that day. */
  day: string;
  dayUnits: number;
  dailyLimit: number;
  totalUnits: number;
  totalLimit: number;
};

/** A finished request of this account; undefined if there is none. A request in flight has no receipt yet. */
export async function findReceipt(
  { db }: { db: Db },
  { accountId, requestId }: { accountId: number; requestId: string },
): Promise<Receipt | undefined> {
  const [row] = await db.sql`
    select r.*, r.day::text as day, k.name as key_name, k.prefix || '…' || k.suffix as key_masked, p.name as package_name,
      p.carryover, p.time_zone, r.units * p.unit_nano_usd as units_nano_usd, r.units * p.unit_cost_nano_usd as units_cost_nano_usd, p.daily_limit, p.total_limit, (package_as_shown(p)).units_taken as total_units, provider.name as provider,
      coalesce(d.units_taken - package_idle(p.account_id, p.id, d.day), 0) as day_units, v.prices as price_parts, v.valid_from as prices_from
    from (
      select request_id, outcome as status, reason, key_id, model_id, host, mode, package_id, day, units, held_nano_usd,
        charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, further_counts, estimated,
        price_version_id, reported_usage, tried, markup_basis_points, cost_nano_usd, route_id, first_ms,
        provider_cost_nano_usd, created_at, finished_at
      from receipts where request_id = ${requestId}::text::uuid and account_id = ${accountId}
    ) r
    left join keys k on k.id = r.key_id
    left join price_versions v on v.id = r.price_version_id
    left join routes route on route.id = r.route_id
    left join providers provider on provider.id = route.provider_id
    left join packages p on p.id = r.package_id
    left join package_days d on d.package_id = r.package_id and d.day = r.day
    limit 1`;
  return row && toReceipt(row);
}

/**
 * The parts of a receipt's charge, computed again from its counts and its price version; their sum, rounded up once, is what it
 * cost. null: nothing was charged, or the parts do not add up to it exactly. Source: MON-17.
 */
export function chargeOf(receipt: Receipt): RecomputedLine[] | null {
  const { prices, status, mode, chargedNanoUsd, shortfallNanoUsd } = receipt;
  if (prices === null || status !== "settled" || mode !== "payg") return null;
  const again = recomputeReceipt({ ...receipt, prices });
  const costNanoUsd = chargedNanoUsd + shortfallNanoUsd;
  return again === null || costNanoUsd === 0n || again.nanoUsd !== costNanoUsd ? null : again.lines;
}

/** What a receipt's counts cost by its price version and its markup; null: the version has no price for them. */
export function recomputeReceipt(receipt: Receipt & { prices: ReceiptPrices }): Recomputed | null {
  const { prices, furtherCounts, markup } = receipt;
  return recompute(prices.parts, { ...receipt, further: furtherCounts ?? undefined }, markup?.basisPoints ?? 0);
}

/** `costNanoUsd` and the margin are null if the provider cost is not known. */
export type ReceiptMoney = {
  usageRevenueNanoUsd: bigint;
  costNanoUsd: bigint | null;
  marginNanoUsd: bigint | null;
};

/**
 * Usage revenue, cost and margin of a request, for the operator or for the reseller of its account; null: it was
 * released. Source: MON-21, MON-22, MON-23.
 */
export function moneyOf(receipt: Receipt, reader: "operator" | "reseller"): ReceiptMoney | null {
  if (receipt.status !== "settled") return null;
  const amounts = { ...receipt, earnedNanoUsd: receipt.markup?.earnedNanoUsd ?? 0n };
  if (reader === "reseller") return resellerMoney(amounts);
  const providerCostNanoUsd = receipt.answeredBy?.providerCostNanoUsd ?? null;
  const money = operatorMoney(amounts, providerCostNanoUsd ?? 0n);
  return providerCostNanoUsd === null ? { ...money, costNanoUsd: null, marginNanoUsd: null } : money;
}

/** Whose requests may be found: everybody's, or those of an account and its customers. */
export type RequestScope = "everybody" | { accountId: number };

/**
 * The account of a request, whether it is settled, released, or refused (as long as refusals are kept).
 * Undefined: there is none in scope, which says nothing about other accounts.
 */
export async function findRequestAccount(
  { db }: { db: Db },
  { requestId, scope }: { requestId: string; scope: RequestScope },
): Promise<{ accountId: number; name: string } | undefined> {
  const inScope =
    scope === "everybody" ? db.sql`true` : db.sql`(a.id = ${scope.accountId} or a.reseller_id = ${scope.accountId})`;
  const [row] = await db.sql`
    select a.id, a.name from (
      select account_id from receipts where request_id = ${requestId}::text::uuid
      union all select account_id from refusal_counts
        where minute = ${minuteOf(requestId)}::text::timestamptz and last_request_id = ${requestId}::text::uuid
    ) r join accounts a on a.id = r.account_id
    where ${inScope} limit 1`;
  return row && { accountId: Number(row.id), name: String(row.name) };
}

/**
 * Why there is nothing of a request: its month is no longer kept. That says nothing of whether there was such a request. Undefined: that
 * is not why.
 */
export async function whyNotKept(sql: Sql, requestId: string): Promise<string | undefined> {
  if (!REQUEST_ID.test(requestId)) return undefined;
  const [row] = await sql`
    select to_char(month, 'YYYY-MM') as month, to_char(dropped_at at time zone 'UTC', 'YYYY-MM-DD') as day from receipt_seals
    where dropped_at is not null and ${requestId}::text::uuid >= receipt_month_floor(month)
      and ${requestId}::text::uuid < receipt_month_floor((month + interval '1 month')::date)`;
  return row && `Single requests of ${row.month} are no longer kept since ${row.day}. Sums of the month are.`;
}

const Reported = Type.Record(Type.String(), Type.Union([Type.Number(), Type.String()]));

function toPrices({ price_version_id, price_parts, prices_from }: Record<string, unknown>): ReceiptPrices | null {
  if (price_parts === null) return null;
  if (!Value.Check(PriceParts, price_parts)) throw new Error(`price version ${price_version_id} has an unknown format`);
  return { versionId: Number(price_version_id), validFrom: toIso(String(prices_from)), parts: price_parts };
}

function toReceipt(row: Record<string, unknown>): Receipt {
  const text = (value: unknown) => (typeof value === "string" ? value : null);
  return {
    requestId: String(row.request_id),
    status: row.status === "settled" ? "settled" : "released",
    reason: text(row.reason),
    keyId: Number(row.key_id),
    keyName: text(row.key_name),
    keyMasked: text(row.key_masked),
    modelId: String(row.model_id),
    host: String(row.host),
    mode: row.mode === "payg" ? "payg" : "package",
    units: Number(row.units),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    furtherCounts: Value.Check(FurtherCounts, row.further_counts) ? row.further_counts : null,
    estimated: row.estimated === true,
    reportedUsage: Value.Check(Reported, row.reported_usage) ? row.reported_usage : null,
    tried: triedOf(row.tried),
    answeredBy: toAnswer(row),
    prices: toPrices(row),
    heldNanoUsd: BigInt(String(row.held_nano_usd)),
    chargedNanoUsd: BigInt(String(row.charged_nano_usd)),
    shortfallNanoUsd: BigInt(String(row.shortfall_nano_usd)),
    unitsNanoUsd: BigInt(String(row.units_nano_usd ?? 0)),
    unitsCostNanoUsd: BigInt(String(row.units_cost_nano_usd ?? 0)),
    markup: toMarkup(row),
    package: row.package_name === null ? null : toPackage(row),
    createdAt: toIso(String(row.created_at)),
    finishedAt: row.finished_at === null ? null : toIso(String(row.finished_at)),
  };
}

function toAnswer({
  route_id,
  first_ms,
  provider_cost_nano_usd,
  provider,
}: Record<string, unknown>): ReceiptAnswer | null {
  if (route_id === null) return null;
  return {
    routeId: Number(route_id),
    provider: provider === null ? null : String(provider),
    firstMs: Number(first_ms),
    providerCostNanoUsd: provider_cost_nano_usd === null ? null : BigInt(String(provider_cost_nano_usd)),
  };
}

function toMarkup({
  markup_basis_points,
  cost_nano_usd,
  charged_nano_usd,
}: Record<string, unknown>): ReceiptMarkup | null {
  if (markup_basis_points === null) return null;
  const costNanoUsd = BigInt(String(cost_nano_usd));
  const aboveNanoUsd = BigInt(String(charged_nano_usd)) - costNanoUsd;
  return {
    basisPoints: Number(markup_basis_points),
    costNanoUsd,
    earnedNanoUsd: aboveNanoUsd > 0n ? aboveNanoUsd : 0n,
  };
}

function toPackage(row: Record<string, unknown>): ReceiptPackage {
  return {
    packageId: Number(row.package_id),
    name: String(row.package_name),
    carryover: row.carryover === true,
    timeZone: String(row.time_zone),
    day: String(row.day),
    dayUnits: Number(row.day_units),
    dailyLimit: Number(row.daily_limit),
    totalUnits: Number(row.total_units),
    totalLimit: Number(row.total_limit),
  };
}
