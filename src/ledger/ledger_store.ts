import { toIso } from "../accounts/checks.ts";
import type { Sql } from "../platform/db.ts";

/** The SQL of a batch: one autocommit SELECT of `ledger_batch` with a column of values an argument. */

/** What a request asks the ledger to hold. */
export type Ask = {
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
};

/** Why a hold ended. `late` and `overrun_refused` are set by the ledger itself. */
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
  asks: readonly Ask[];
  finishes: readonly Finish[];
  wait: boolean;
  retry: boolean;
  leaseSeconds: number;
};
export type BatchOutput = { reserved: ReserveResult[]; finished: FinishResult[] };

const COLUMNS = [
  ...["bool", "bool", "interval"],
  ...["uuid[]", "bigint[]", "text[]", "text[]", "int[]", "int[]", "int[]", "bigint[]", "bool[]", "bool[]"],
  ...[
    "uuid[]",
    "bigint[]",
    "bigint[]",
    "bigint[]",
    "text[]",
    "bool[]",
    "text[]",
    "bigint[]",
    "bigint[]",
    "int[]",
    "int[]",
    "bigint[]",
  ],
];
// Arrays travel as literals: cast in SQL, they need no type look-up and cost the client one string a column.
const BATCH_SQL = `select * from ledger_batch(${COLUMNS.map((type, i) => `$${i + 1}::text::${type}`).join(", ")})`;

/** Runs one batch on `sql`. Rows come back in the order they were given. Throws what Postgres throws. */
export async function runBatch(
  sql: Sql,
  prepare: boolean,
  { asks, finishes, wait, retry, leaseSeconds }: BatchInput,
): Promise<BatchOutput> {
  const rows = await sql.unsafe(
    BATCH_SQL,
    [
      String(wait),
      String(retry),
      `${leaseSeconds} seconds`,
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
      plain(asks, (a) => a.requestId),
      plain(asks, (a) => a.accountId),
      plain(asks, (a) => a.tenantId),
      plain(asks, (a) => a.keyId),
      quoted(asks, (a) => a.host),
      plain(asks, (a) => a.ownHost),
      quoted(asks, (a) => a.modelId),
      plain(asks, (a) => a.promptPico),
      plain(asks, (a) => a.outputPico),
      plain(asks, (a) => a.capMax),
      plain(asks, (a) => a.capMin),
      plain(asks, (a) => a.tokenBound),
    ],
    { prepare },
  );
  const output: BatchOutput = { reserved: new Array(asks.length), finished: new Array(finishes.length) };
  for (const row of rows) {
    const index = Number(row.ord) - 1;
    if (row.part === "reserve") output.reserved[index] = toReserveResult(row);
    else output.finished[index] = toFinishResult(row);
  }
  return output;
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

type Row = Record<string, unknown>;

function toReserveResult(row: Row): ReserveResult {
  const number = (value: unknown) => (value === null ? null : Number(value));
  return {
    code: row.outcome === null ? null : String(row.outcome),
    mode: row.mode === "package" || row.mode === "payg" ? row.mode : null,
    heldNanoUsd: BigInt(String(row.nano_usd)),
    capTokens: number(row.units_or_cap),
    limit: number(row.quota_limit),
    used: number(row.quota_used),
    remaining: number(row.quota_remaining),
    resetsAt:
      row.resets_at === null
        ? null
        : toIso(row.resets_at instanceof Date ? row.resets_at.toISOString() : String(row.resets_at)),
  };
}

function toFinishResult(row: Row): FinishResult {
  return {
    outcome: String(row.outcome) as FinishOutcome,
    chargedNanoUsd: BigInt(String(row.nano_usd)),
    shortfallNanoUsd: BigInt(String(row.shortfall_nano_usd)),
    units: Number(row.units_or_cap),
  };
}

/** An array literal of values that need no quotes: numbers, booleans, UUIDs, words. */
function plain<T>(rows: readonly T[], pick: (row: T) => string | number | bigint | boolean): string {
  let literal = "{";
  for (let i = 0; i < rows.length; i++) literal += (i > 0 ? "," : "") + String(pick(rows[i] as T));
  return `${literal}}`;
}

/** An array literal of texts. */
function quoted<T>(rows: readonly T[], pick: (row: T) => string): string {
  let literal = "{";
  for (let i = 0; i < rows.length; i++)
    literal += `${i > 0 ? "," : ""}"${pick(rows[i] as T).replace(/[\\"]/g, "\\$&")}"`;
  return `${literal}}`;
}
