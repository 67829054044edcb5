import { Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { toIso } from "../accounts/checks.ts";
import { minuteOf } from "../accounts/refusal_counts_store.ts";
import { PriceParts } from "../ledger/price.ts";
import type { UsageReport } from "../ledger/reported_usage.ts";
import type { Db } from "../platform/db.ts";
import type { Mode } from "./usage_store.ts";

/** One request as the books know it: running, charged, or given back. */
export type Receipt = {
  requestId: string;
  status: "running" | "settled" | "released";
  /** Why it ended so; null while it runs. */
  reason: string | null;
  keyId: number;
  keyName: string | null;
  /** First and last characters of the key. */
  keyMasked: string | null;
  modelId: string;
  host: string;
  mode: Mode;
  units: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  estimated: boolean;
  /** What the provider counted beside these counts, by its own names; null: nothing. Some of it is the operator's own business. */
  reportedUsage: UsageReport | null;
  /** The prices it was admitted at, which it is charged by; null: its model had none. */
  prices: ReceiptPrices | null;
  heldNanoUsd: bigint;
  chargedNanoUsd: bigint;
  /** What it cost beyond what could be charged: the operator's loss. */
  shortfallNanoUsd: bigint;
  /** The output cap that the hold pays for; known while it runs, and only where the balance pays. */
  capTokens: number | null;
  /** The package that pays, and how much of it is used up by now, live holds included; null: the balance pays. */
  package: ReceiptPackage | null;
  createdAt: string;
  finishedAt: string | null;
};

/** A row of `price_versions`: since when it had counted, and what it says. */
export type ReceiptPrices = { validFrom: string; parts: PriceParts };

export type ReceiptPackage = {
  packageId: number;
  name: string;
  carryover: boolean;
  timeZone: string;
  /** The day that the request counts in, as 2030-01-31 in the package's zone, and what that day has used. */
  day: string;
  dayUnits: number;
  dailyLimit: number;
  totalUnits: number;
  totalLimit: number;
};

/** A request of this account, finished or not; undefined where there is none. */
export async function findReceipt(
  { db }: { db: Db },
  { accountId, requestId }: { accountId: number; requestId: string },
): Promise<Receipt | undefined> {
  const [row] = await db.sql`
    select r.*, r.day::text as day, k.name as key_name, k.prefix || '…' || k.suffix as key_masked, p.name as package_name,
      p.carryover, p.time_zone, p.daily_limit, p.total_limit, p.units_used + p.units_held as total_units,
      coalesce(d.units_used + d.units_held, 0) as day_units, v.prices as price_parts, v.valid_from as prices_from
    from (
      select request_id, outcome as status, reason, key_id, model_id, host, mode, package_id, day, units, held_nano_usd,
        charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, estimated,
        price_version_id, reported_usage, null::int as cap_tokens, created_at, finished_at
      from receipts where request_id = ${requestId}::text::uuid and account_id = ${accountId}
      union all
      select request_id, 'running', null, key_id, model_id, host, mode, package_id, day, 0, held_nano_usd, 0, 0, 0, 0, 0,
        false, price_version_id, null, cap_tokens, created_at, null
      from holds where request_id = ${requestId}::text::uuid and account_id = ${accountId}
    ) r
    left join keys k on k.id = r.key_id
    left join price_versions v on v.id = r.price_version_id
    left join packages p on p.id = r.package_id
    left join package_days d on d.package_id = r.package_id and d.day = r.day
    limit 1`;
  return row && toReceipt(row);
}

/** Whose requests may be found: everybody's, or an account's own and those of its customers. */
export type RequestScope = "everybody" | { accountId: number };

/**
 * The account that a request belongs to, whatever became of it: under way, charged, given back, or refused as far as refusals are
 * kept. undefined: there is none in scope, which says nothing of others.
 */
export async function findRequester(
  { db }: { db: Db },
  { requestId, scope }: { requestId: string; scope: RequestScope },
): Promise<{ accountId: number; name: string } | undefined> {
  const inScope =
    scope === "everybody" ? db.sql`true` : db.sql`(a.id = ${scope.accountId} or a.reseller_id = ${scope.accountId})`;
  const [row] = await db.sql`
    select a.id, a.name from (
      select account_id from receipts where request_id = ${requestId}::text::uuid
      union all select account_id from holds where request_id = ${requestId}::text::uuid
      union all select account_id from refusal_counts
        where minute = ${minuteOf(requestId)}::text::timestamptz and last_request_id = ${requestId}::text::uuid
    ) r join accounts a on a.id = r.account_id
    where ${inScope} limit 1`;
  return row && { accountId: Number(row.id), name: String(row.name) };
}

const Reported = Type.Record(Type.String(), Type.Union([Type.Number(), Type.String()]));

function toPrices({ price_version_id, price_parts, prices_from }: Record<string, unknown>): ReceiptPrices | null {
  if (price_parts === null) return null;
  if (!Value.Check(PriceParts, price_parts)) throw new Error(`price version ${price_version_id} has another form`);
  return { validFrom: toIso(String(prices_from)), parts: price_parts };
}

function toReceipt(row: Record<string, unknown>): Receipt {
  const text = (value: unknown) => (typeof value === "string" ? value : null);
  return {
    requestId: String(row.request_id),
    status: row.status === "running" ? "running" : row.status === "settled" ? "settled" : "released",
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
    estimated: row.estimated === true,
    reportedUsage: Value.Check(Reported, row.reported_usage) ? row.reported_usage : null,
    prices: toPrices(row),
    heldNanoUsd: BigInt(String(row.held_nano_usd)),
    chargedNanoUsd: BigInt(String(row.charged_nano_usd)),
    shortfallNanoUsd: BigInt(String(row.shortfall_nano_usd)),
    capTokens: row.cap_tokens === null ? null : Number(row.cap_tokens),
    package: row.package_name === null ? null : toPackage(row),
    createdAt: toIso(String(row.created_at)),
    finishedAt: row.finished_at === null ? null : toIso(String(row.finished_at)),
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
