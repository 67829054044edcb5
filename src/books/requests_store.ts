import { sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { readPage } from "./paged_reads_store.ts";
import { operatorMoney, resellerMoney, type UsageAmounts, type UsageMoney } from "./usage_money.ts";
import {
  type BillingMode,
  finished,
  modeOf,
  nameOf,
  type Page,
  type UsageQuery,
  unixMsOf,
} from "./usage_records_store.ts";

/** The list of finished requests of many accounts: how each ended, how long it took, and what it brought. Source: USE-9. */

export type RequestRow = {
  requestId: string;
  outcome: "charged" | "released";
  /** How it ended: one of the ledger's reasons. */
  reason: string;
  accountId: number;
  keyId: number;
  keyName: string | null;
  modelId: string;
  host: string;
  mode: BillingMode;
  /** The route that answered; null: none, or not known. Only for admins, as its provider's name. */
  routeId: number | null;
  provider: string | null;
  /** To the first event of a stream, or to the whole answer; null: there was none. */
  firstMs: number | null;
  durationMs: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  estimated: boolean;
  units: number;
  chargedNanoUsd: bigint;
  /** As the operator sees it; its cost and margin are null if the provider cost is not known. */
  operator: Pick<UsageMoney, "usageRevenueNanoUsd"> & { costNanoUsd: bigint | null; marginNanoUsd: bigint | null };
  /** As the reseller of the account sees it. */
  reseller: UsageMoney;
  createdAt: string;
  finishedAt: string;
};

export type RequestQuery = Omit<UsageQuery, "pageMsMax"> & { outcome?: "charged" | "released" | undefined };

/** Finished requests, newest first. Throws InputError. */
export async function listRequests(
  { db }: { db: Db },
  { outcome = "charged", ...query }: RequestQuery,
): Promise<Page<RequestRow>> {
  const { start, end } = query;
  if (start !== undefined && end !== undefined && unixMsOf(start, "start") >= unixMsOf(end, "end"))
    throw new InputError("The period must begin before its end.", "start");
  const { rows, next } = await readPage(finished(db, outcome === "charged" ? "settled" : "released", query));
  const [worths, providers] = [await worthsOf(db, rows), await providersOf(db, rows)];
  return { rows: rows.map((row) => toRow(row, worths, providers)), hasMore: next !== null, nextAfter: next };
}

type Worth = { unitNanoUsd: bigint; unitCostNanoUsd: bigint };
type Found = Record<string, unknown>;

/** What a unit of the rows' packages is worth, by package. */
async function worthsOf(db: Db, rows: readonly Found[]): Promise<Map<number, Worth>> {
  const ids = idsIn(rows, "package_id");
  if (ids.length === 0) return new Map();
  const found = await db.orm.execute<Found>(sql`
    select id, unit_nano_usd::text as unit, unit_cost_nano_usd::text as cost from packages where id in ${ids}`);
  return new Map(
    found.map(({ id, unit, cost }) => [
      Number(id),
      { unitNanoUsd: BigInt(String(unit)), unitCostNanoUsd: BigInt(String(cost)) },
    ]),
  );
}

/** The names of the providers of the rows' routes, by route. */
async function providersOf(db: Db, rows: readonly Found[]): Promise<Map<number, string>> {
  const ids = idsIn(rows, "route_id");
  if (ids.length === 0) return new Map();
  const found = await db.orm.execute<Found>(sql`
    select routes.id, providers.name from routes join providers on providers.id = routes.provider_id where routes.id in ${ids}`);
  return new Map(found.map(({ id, name }) => [Number(id), String(name)]));
}

const idsIn = (rows: readonly Found[], column: string): number[] => [
  ...new Set(rows.flatMap((row) => (row[column] === null ? [] : [Number(row[column])]))),
];

function toRow(row: Found, worths: ReadonlyMap<number, Worth>, providers: ReadonlyMap<number, string>): RequestRow {
  const routeId = row.route_id === null ? null : Number(row.route_id);
  const [createdAt, finishedAt] = [toIso(String(row.created_at)), toIso(String(row.finished_at))];
  const amounts = amountsOf(row, worths.get(Number(row.package_id)));
  const known = row.provider_cost_nano_usd === null ? null : BigInt(String(row.provider_cost_nano_usd));
  const money = operatorMoney(amounts, known ?? 0n);
  const isCharged = row.outcome === "settled";
  return {
    requestId: String(row.request_id),
    outcome: isCharged ? "charged" : "released",
    reason: String(row.reason),
    accountId: Number(row.account_id),
    keyId: Number(row.key_id),
    keyName: nameOf(row),
    modelId: String(row.model_id),
    host: String(row.host),
    mode: modeOf(row),
    routeId,
    provider: routeId === null ? null : (providers.get(routeId) ?? null),
    firstMs: row.first_ms === null ? null : Number(row.first_ms),
    durationMs: Math.max(0, Date.parse(finishedAt) - Date.parse(createdAt)),
    promptTokens: Number(row.prompt_tokens),
    cachedTokens: Number(row.cached_tokens),
    completionTokens: Number(row.completion_tokens),
    estimated: row.estimated === true,
    units: Number(row.units),
    chargedNanoUsd: amounts.chargedNanoUsd,
    operator: known === null && isCharged ? { ...money, costNanoUsd: null, marginNanoUsd: null } : money,
    reseller: resellerMoney(amounts),
    createdAt,
    finishedAt,
  };
}

function amountsOf(row: Found, worth: Worth | undefined): UsageAmounts {
  const chargedNanoUsd = BigInt(String(row.charged_nano_usd));
  const costNanoUsd = row.cost_nano_usd === null ? chargedNanoUsd : BigInt(String(row.cost_nano_usd));
  const units = BigInt(String(row.units));
  return {
    chargedNanoUsd,
    earnedNanoUsd: chargedNanoUsd > costNanoUsd ? chargedNanoUsd - costNanoUsd : 0n,
    unitsNanoUsd: units * (worth?.unitNanoUsd ?? 0n),
    unitsCostNanoUsd: units * (worth?.unitCostNanoUsd ?? 0n),
  };
}
