import { whyNotKept } from "../books/receipts_store.ts";
import { findUsageRecord, listUsageRecords, type UsageRow } from "../books/usage_records_store.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { checker } from "../http/checks.ts";
import { refuseRepeated } from "../http/query.ts";
import { type Entitlement, entitlementOf, type PackageState } from "../ledger/entitlement_store.ts";
import { toUsd } from "../ledger/price.ts";
import type { Caller } from "./authenticate.ts";
import { USAGE_LIMIT_DEFAULT, UsageQuery } from "./request_shapes.ts";
import type { Balance, PackageEntitlement, UsageRecord } from "./response_shapes.ts";

/** GET /balance and GET /usage: what the key's account can spend, and what it has used. Nothing here is metered. */

const checkQuery = checker(UsageQuery);

/** GET /balance; its contents depend on the key's billing mode. Source: QUO-7, USE-4. */
export async function getBalance(deps: Deps, { key, requestId }: Caller): Promise<Response> {
  const entitlement = await entitlementOf(deps.db.sql, key.accountId);
  const body = key.mode === "package" ? packageBalance(entitlement) : paygBalance(entitlement);
  return Response.json(body, { headers: { "x-request-id": requestId } });
}

function packageBalance(entitlement: Entitlement): Balance {
  const state = entitlement.package;
  return {
    object: "balance",
    mode: "package",
    quota: state?.tokenLimit ?? null,
    used_tokens: state?.tokensUsed ?? 0,
    remaining_tokens: state?.tokensRemaining ?? null,
    package: state && toPackage(state),
    payg: toPayg(entitlement),
  };
}

function paygBalance(entitlement: Entitlement): Balance {
  return {
    object: "balance",
    mode: "payg",
    quota: null,
    used_tokens: entitlement.balanceTokensUsed,
    remaining_tokens: null,
    package: null,
    payg: toPayg(entitlement),
  };
}

function toPackage(state: PackageState): PackageEntitlement {
  return {
    id: state.id,
    name: state.name,
    starts_at: state.startsAt,
    ends_at: state.endsAt,
    daily_limit: state.dailyLimit,
    daily_remaining: state.dailyRemaining,
    total_limit: state.totalLimit,
    total_remaining: state.totalRemaining,
    carryover: state.carryover,
  };
}

/** Money becomes a double only here, on its way out. `held_usd` is part of `balance_usd`. */
function toPayg({ paygEnabled, balanceNanoUsd, heldNanoUsd }: Entitlement) {
  return {
    enabled: paygEnabled,
    balance_usd: toUsd(balanceNanoUsd),
    held_usd: toUsd(heldNanoUsd),
  };
}

/** GET /usage: the account's usage records on the key's hosts, newest first. Source: USE-1, USE-2, USE-3. */
export async function listUsage(
  { longReads }: Deps,
  { key, requestId, signal }: Caller,
  params: URLSearchParams,
): Promise<Response> {
  const query = readQuery(params);
  const asked = {
    accountId: key.accountId,
    // null: the key may be used on all hosts of its account.
    hosts: key.hosts === null ? null : [...key.hosts],
    limit: query.limit ?? USAGE_LIMIT_DEFAULT,
    ...(query.after !== undefined && { after: query.after }),
    ...(query.start !== undefined && { start: query.start }),
    ...(query.end !== undefined && { end: query.end }),
    ...(query.model !== undefined && { modelId: query.model }),
  };
  const reader = { side: "api", accountId: key.accountId, tenantId: key.tenantId } as const;
  const { rows, hasMore, nextAfter } = await longReads.run(reader, { signal }, (deps) => listUsageRecords(deps, asked));
  const body = {
    object: "list",
    mode: key.mode,
    data: rows.map(toUsageRecord),
    has_more: hasMore,
    next_after: nextAfter,
  };
  return Response.json(body, { headers: { "x-request-id": requestId } });
}

/** GET /usage/{requestId}: one record of those that `listUsage` lists. Source: USE-8. */
export async function getUsage(deps: Deps, { key, requestId }: Caller, asked: string): Promise<Response> {
  const hosts = key.hosts === null ? null : [...key.hosts];
  const row = await findUsageRecord(deps, { requestId: asked, accountId: key.accountId, hosts });
  // A record of another account, or of a host that the key may not be used on, reads as one that does not exist.
  if (row === undefined) {
    const message = (await whyNotKept(deps.db.sql, asked)) ?? "No usage record has this request id.";
    throw new Refusal("not_found", { message });
  }
  return Response.json(toUsageRecord(row), { headers: { "x-request-id": requestId } });
}

function readQuery(params: URLSearchParams): UsageQuery {
  refuseRepeated(params);
  const given: Record<string, unknown> = {};
  for (const name of Object.keys(UsageQuery.properties)) {
    const value = params.get(name);
    if (value !== null) given[name] = name === "limit" ? toNumber(value) : value;
  }
  return checkQuery(given);
}

/** A whole number, or the text unchanged, which the check then refuses. */
function toNumber(value: string): number | string {
  return /^\d{1,9}$/.test(value) ? Number(value) : value;
}

function toUsageRecord(row: UsageRow): UsageRecord {
  return {
    requestId: row.requestId,
    model: row.modelId,
    promptTokens: row.promptTokens,
    completionTokens: row.completionTokens,
    totalTokens: row.promptTokens + row.completionTokens,
    chargedTokens: row.chargedTokens,
    mode: row.mode,
    createdAt: row.createdAt,
    host: row.host,
    costUsd: toUsd(row.chargedNanoUsd),
    estimated: row.estimated,
    status: row.reason,
  };
}
