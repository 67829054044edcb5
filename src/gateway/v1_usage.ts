import { listUsageRecords, type UsageRow } from "../books/usage_records_store.ts";
import type { Deps } from "../deps.ts";
import { checker } from "../http/checks.ts";
import { refuseRepeated } from "../http/query.ts";
import { toUsd } from "../ledger/price.ts";
import type { Caller } from "./door.ts";
import { USAGE_LIMIT_DEFAULT, UsageQuery } from "./request_shapes.ts";
import type { UsageRecord } from "./response_shapes.ts";

const checkQuery = checker(UsageQuery);

/** GET /usage: the account's records on the key's hosts, newest first. Source: contract › GET /usage, rulings › Usage. */
export async function listUsage(
  { longReads }: Deps,
  { key, requestId, signal }: Caller,
  params: URLSearchParams,
): Promise<Response> {
  const query = readQuery(params);
  const asked = {
    accountId: key.accountId,
    // A key without a list of hosts may act on all that its account may.
    hosts: key.hosts === null ? null : [...key.hosts],
    limit: query.limit ?? USAGE_LIMIT_DEFAULT,
    ...(query.after !== undefined && { after: query.after }),
    ...(query.start !== undefined && { start: query.start }),
    ...(query.end !== undefined && { end: query.end }),
    ...(query.model !== undefined && { modelId: query.model }),
  };
  const reader = { door: "api", accountId: key.accountId, tenantId: key.tenantId } as const;
  const { rows, hasMore, nextAfter } = await longReads.run(reader, { signal }, (deps) => listUsageRecords(deps, asked));
  const body = { object: "list", mode: key.mode, data: rows.map(toWire), has_more: hasMore, next_after: nextAfter };
  return Response.json(body, { headers: { "x-request-id": requestId } });
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

/** A whole number, or the text itself for the check to refuse. */
function toNumber(value: string): number | string {
  return /^\d{1,9}$/.test(value) ? Number(value) : value;
}

function toWire(row: UsageRow): UsageRecord {
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
