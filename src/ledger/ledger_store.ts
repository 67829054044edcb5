import { toIso } from "../accounts/checks.ts";
import type { Sql } from "../platform/db.ts";

/** The SQL of a batch: one autocommit SELECT of `ledger_batch` with a column of values an argument. */

/** What a request asks the ledger to hold. */
export type ReserveRequest = {
  requestId: string;
  accountId: number;
  /** The reseller whose customer the account is (or itself), 0 for none. */
  tenantId: number;
  keyId: number;
  host: string;
  /** The host is the service's own, not a reseller's domain. */
  ownHost: boolean;
  modelId: string;
  promptPico: bigint;
  /** −1: the model has no balance price. */
  outputPico: bigint;
  /** Output tokens wanted, and the fewest that make sense. */
  capMax: number;
  capMin: number;
  /** Tokens to hold of a package's token allowance. */
  tokenBound: number;
  /** The prices that it is admitted at: a row of `price_versions`; null: the model has none. */
  priceVersionId: number | null;
};

/** How a hold ends. `reap` releases only a hold whose lease has ended. */
export type Finish = {
  requestId: string;
  accountId: number;
  kind: "settle" | "release" | "reap";
  reason: EndReason;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  chargeNanoUsd: bigint;
  /** The answer was not sent yet: a charge that the balance does not cover refuses it. */
  strict: boolean;
  estimated: boolean;
  /** What the provider counted beside these counts, as JSON: see `reported_usage.ts`. Not there in older lines of a spool. */
  reportedUsage?: string | null;
};

/** Why a hold ended. `ledger_finish` itself adds two reasons: `late` and `overrun_refused`. */
export const END_REASONS = [
  "complete",
  "client_left",
  "provider_failed",
  "provider_broke_off",
  "provider_rejected",
  "ended_by_us",
  "not_dispatched",
  "reserve_timed_out",
  "lease_ended",
] as const;
export type EndReason = (typeof END_REASONS)[number];

export type ReserveResult = {
  /** null: granted. */
  code: string | null;
  mode: "package" | "payg" | null;
  heldNanoUsd: bigint;
  capTokens: number | null;
  limit: number | null;
  used: number | null;
  remaining: number | null;
  resetsAt: string | null;
};

export type FinishOutcome = "settled" | "released" | "refused" | "alive" | "already" | "gone" | "unknown" | "busy";
export type FinishResult = { outcome: FinishOutcome; chargedNanoUsd: bigint; shortfallNanoUsd: bigint; units: number };

export type BatchInput = {
  reserves: readonly ReserveRequest[];
  finishes: readonly Finish[];
  wait: boolean;
  retry: boolean;
  leaseSeconds: number;
};
export type BatchOutput = { reserved: ReserveResult[]; finished: FinishResult[] };

const COLUMNS = [
  ...["bool", "bool", "interval", "bigint[]", "bigint[]"],
  ...["uuid[]", "bigint[]", "text[]", "text[]", "int[]", "int[]", "int[]", "bigint[]", "bool[]", "bool[]", "text[]"],
  ...["int[]", "bigint[]", "bigint[]", "bigint[]", "text[]", "bool[]", "text[]", "bigint[]", "bigint[]"],
  ...["uuid[]", "bigint[]", "int[]", "int[]", "bigint[]"],
];
// Arrays travel as literals: cast in SQL, they need no type look-up and cost the client one string a column.
const BATCH_SQL = `select part, ords::text, outcome, mode, nano_usd, shortfall_nano_usd, units_or_cap, quota_limit, quota_used,
  quota_remaining, resets_at from ledger_batch(${COLUMNS.map((type, i) => `$${i + 1}::text::${type}`).join(", ")})`;

/** Runs one batch on `sql`. Results come back in the order of the requests and finishes. Throws what Postgres throws. */
export async function runBatch(
  sql: Sql,
  prepare: boolean,
  { reserves, finishes, wait, retry, leaseSeconds }: BatchInput,
): Promise<BatchOutput> {
  const places = byAccount(reserves);
  const requests = places.map((place) => reserves[place] as ReserveRequest);
  const lasts = lastsOfRuns(requests);
  const runs = lasts.map((last) => requests[last - 1] as ReserveRequest);
  // An account has one tenant, for good; a finish needs no tenant's lock.
  const locks = new Map<number, number>();
  for (const { accountId } of finishes) locks.set(accountId, 0);
  for (const { accountId, tenantId } of runs) locks.set(accountId, tenantId);
  const rows = await sql
    .unsafe(
      BATCH_SQL,
      [
        String(wait),
        String(retry),
        `${leaseSeconds} seconds`,
        plain([...locks.keys()], Number),
        plain([...locks.values()], Number),
        plain(finishes, (f) => f.requestId),
        plain(finishes, (f) => f.accountId),
        plain(finishes, (f) => f.kind),
        plain(finishes, (f) => f.reason),
        plain(finishes, (f) => f.promptTokens),
        plain(finishes, (f) => f.cachedTokens),
        plain(finishes, (f) => f.completionTokens),
        plain(finishes, (f) => f.chargeNanoUsd),
        plain(finishes, (f) => f.strict),
        plain(finishes, (f) => f.estimated),
        finishes.some((f) => f.reportedUsage) ? quoted(finishes, (f) => f.reportedUsage ?? null) : "{}",
        plain(lasts, Number),
        plain(runs, (a) => a.accountId),
        plain(runs, (a) => a.tenantId),
        plain(runs, (a) => a.keyId),
        quoted(runs, (a) => a.host),
        plain(runs, (a) => a.ownHost),
        quoted(runs, (a) => a.modelId),
        plain(runs, (a) => a.outputPico),
        plain(runs, (a) => a.priceVersionId),
        plain(requests, (a) => a.requestId),
        plain(requests, (a) => a.promptPico),
        plain(requests, (a) => a.capMax),
        plain(requests, (a) => a.capMin),
        plain(requests, (a) => a.tokenBound),
      ],
      { prepare },
    )
    .values();
  const output: BatchOutput = { reserved: new Array(requests.length), finished: new Array(finishes.length) };
  for (const [part, ords, ...answer] of rows as Iterable<[string, string, ...Answer]>) {
    if (part === "reserve") {
      const result = toReserveResult(answer);
      for (const place of placesIn(ords)) output.reserved[places[place] as number] = result;
    } else {
      const result = toFinishResult(answer);
      for (const place of placesIn(ords)) output.finished[place] = result;
    }
  }
  return output;
}

/** The places of the requests, an account's together and in arrival order. */
function byAccount(requests: readonly ReserveRequest[]): number[] {
  const accountAt = (place: number) => (requests[place] as ReserveRequest).accountId;
  return requests.map((_, place) => place).sort((a, b) => accountAt(a) - accountAt(b));
}

/** The last request of each run, counted from 1. A run: neighbours that differ in nothing but their ids and amounts. */
function lastsOfRuns(requests: readonly ReserveRequest[]): number[] {
  return requests.flatMap((request, i) => {
    const next = requests[i + 1];
    return next !== undefined && isSameRun(request, next) ? [] : [i + 1];
  });
}

function isSameRun(a: ReserveRequest, b: ReserveRequest): boolean {
  return (
    a.accountId === b.accountId &&
    a.tenantId === b.tenantId &&
    a.keyId === b.keyId &&
    a.host === b.host &&
    a.ownHost === b.ownHost &&
    a.modelId === b.modelId &&
    a.outputPico === b.outputPico &&
    a.priceVersionId === b.priceVersionId
  );
}

/** The places that an int[] of Postgres, as text, counts from 1. */
function placesIn(ords: string): number[] {
  return ords
    .slice(1, -1)
    .split(",")
    .map((ord) => Number(ord) - 1);
}

/** Longer leases for the named holds. Returns the ids that still had one. */
export async function renewLeases(sql: Sql, requestIds: readonly string[], leaseSeconds: number): Promise<Set<string>> {
  const rows =
    await sql`select renew_leases(${`{${requestIds.join(",")}}`}::text::uuid[], ${`${leaseSeconds} seconds`}::interval) as id`;
  return new Set(rows.map((row) => String(row.id)));
}

/** Holds whose lease has ended, oldest first. */
export async function expiredHolds(sql: Sql, rowsMax: number): Promise<{ requestId: string; accountId: number }[]> {
  const rows = await sql`
    select request_id, account_id from holds where lease_ends_at <= ledger_now() order by lease_ends_at limit ${rowsMax}`;
  return rows.map((row) => ({ requestId: String(row.request_id), accountId: Number(row.account_id) }));
}

/** Makes the coming months' partitions of receipts. */
export async function makeReceiptMonths(sql: Sql, monthsAhead: number): Promise<number> {
  const [row] = await sql`select make_receipt_months(${monthsAhead}) as made`;
  return Number(row?.made);
}

/** outcome, mode, nano_usd, shortfall_nano_usd, units_or_cap, quota_limit, quota_used, quota_remaining, resets_at */
type Answer = [
  string | null,
  string | null,
  string,
  string,
  number | null,
  string | null,
  string | null,
  string | null,
  unknown,
];

function toReserveResult([code, mode, nanoUsd, , cap, limit, used, remaining, resetsAt]: Answer): ReserveResult {
  const number = (value: string | number | null) => (value === null ? null : Number(value));
  return {
    code,
    mode: mode === "package" || mode === "payg" ? mode : null,
    heldNanoUsd: BigInt(nanoUsd),
    capTokens: cap,
    limit: number(limit),
    used: number(used),
    remaining: number(remaining),
    resetsAt: resetsAt === null ? null : toIso(resetsAt instanceof Date ? resetsAt.toISOString() : String(resetsAt)),
  };
}

function toFinishResult([outcome, , nanoUsd, shortfall, units]: Answer): FinishResult {
  return {
    outcome: outcome as FinishOutcome,
    chargedNanoUsd: BigInt(nanoUsd),
    shortfallNanoUsd: BigInt(shortfall),
    units: Number(units),
  };
}

/** An array literal of values that need no quotes: numbers, booleans, UUIDs, words, null. */
function plain<T>(rows: readonly T[], pick: (row: T) => string | number | bigint | boolean | null): string {
  let literal = "{";
  for (let i = 0; i < rows.length; i++) literal += (i > 0 ? "," : "") + String(pick(rows[i] as T));
  return `${literal}}`;
}

/** An array literal of texts; null is none. */
function quoted<T>(rows: readonly T[], pick: (row: T) => string | null): string {
  let literal = "{";
  for (let i = 0; i < rows.length; i++) {
    const text = pick(rows[i] as T);
    literal += `${i > 0 ? "," : ""}${text === null ? "null" : `"${text.replace(/[\\"]/g, "\\$&")}"`}`;
  }
  return `${literal}}`;
}
