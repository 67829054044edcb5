import type { Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";

/** The SQL of a batch: one SELECT of `ledger_batch` (drizzle/0002_ledger.sql), with one array per column of its input. */

/** What a request needs reserved. */
export type ReserveRequest = {
  requestId: string;
  accountId: number;
  /** The reseller that the account belongs to (or is); 0: none. */
  tenantId: number;
  keyId: number;
  host: string;
  /** Whether the host is the service's own and not a reseller's domain. */
  ownHost: boolean;
  modelId: string;
  /** Upper bound of the prompt, or of the image, in pico-USD, margin included. */
  promptPico: bigint;
  /** Upper bound of one output token, in pico-USD, margin included. −1: the model has no balance price. */
  outputPico: bigint;
  /** The wanted output cap. */
  capMax: number;
  /** The lowest acceptable output cap. */
  capMin: number;
  /** Tokens to reserve of a package's token allowance. */
  tokenBound: number;
  /** The prices of the reservation: an id of `price_versions`; null: the model has no price. */
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
  /** Nothing was sent to the client yet: if the balance does not cover the charge, refuse. */
  strict: boolean;
  estimated: boolean;
  /** The provider's other counts, JSON: see `reported_usage.ts`. Missing in spools of older releases. */
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
  /** Wait for accounts that are locked. Otherwise their rows come back as `busy`. */
  wait: boolean;
  /** A row may have been sent before: look for it first. */
  retry: boolean;
  leaseSeconds: number;
};
/** In the order of the input. */
export type BatchOutput = { reserved: ReserveResult[]; finished: FinishResult[] };

/** The types of the arguments of `ledger_batch`, in its order. */
const ARGUMENTS = [
  ...["bool", "bool", "interval", "bigint[]", "bigint[]"],
  ...["uuid[]", "bigint[]", "text[]", "text[]", "int[]", "int[]", "int[]", "bigint[]", "bool[]", "bool[]", "text[]"],
  ...["int[]", "bigint[]", "bigint[]", "bigint[]", "text[]", "bool[]", "text[]", "bigint[]", "bigint[]"],
  ...["uuid[]", "bigint[]", "int[]", "int[]", "bigint[]"],
];
// Arrays are sent as array literals: the cast in SQL needs no look-up of the array's type.
const BATCH_SQL = `select part, places::text, outcome, mode, nano_usd, shortfall_nano_usd, units_or_cap, quota_limit, quota_used,
  quota_remaining, resets_at from ledger_batch(${ARGUMENTS.map((type, i) => `$${i + 1}::text::${type}`).join(", ")})`;

/** Runs one batch in one autocommit statement. Throws what Postgres throws. */
export async function runBatch(
  sql: Sql,
  prepare: boolean,
  { reserves, finishes, wait, retry, leaseSeconds }: BatchInput,
): Promise<BatchOutput> {
  const order = byAccount(reserves);
  const requests = order.map((index) => reserves[index] as ReserveRequest);
  const lasts = lastsOfRuns(requests);
  const runs = lasts.map((last) => requests[last - 1] as ReserveRequest);
  const rows = await sql
    .unsafe(
      BATCH_SQL,
      [
        String(wait),
        String(retry),
        `${leaseSeconds} seconds`,
        ...lockArguments(finishes, runs),
        ...finishArguments(finishes),
        plain(lasts, Number),
        ...runArguments(runs),
        ...requestArguments(requests),
      ],
      { prepare },
    )
    .values();
  const output: BatchOutput = { reserved: new Array(requests.length), finished: new Array(finishes.length) };
  for (const [part, places, ...answer] of rows as Iterable<[string, string, ...Answer]>) {
    if (part === "reserve") {
      const result = toReserveResult(answer);
      for (const i of indexesOf(places)) output.reserved[order[i] as number] = result;
    } else {
      const result = toFinishResult(answer);
      for (const i of indexesOf(places)) output.finished[i] = result;
    }
  }
  return output;
}

/** `locked_*`. An account never changes its tenant. To end a hold needs no lock of the tenant. */
function lockArguments(finishes: readonly Finish[], runs: readonly ReserveRequest[]): string[] {
  const tenants = new Map<number, number>();
  for (const { accountId } of finishes) tenants.set(accountId, 0);
  for (const { accountId, tenantId } of runs) tenants.set(accountId, tenantId);
  return [plain([...tenants.keys()], Number), plain([...tenants.values()], Number)];
}

/** `finish_*` */
function finishArguments(finishes: readonly Finish[]): string[] {
  return [
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
  ];
}

/** `run_*` without `run_lasts` */
function runArguments(runs: readonly ReserveRequest[]): string[] {
  return [
    plain(runs, (r) => r.accountId),
    plain(runs, (r) => r.tenantId),
    plain(runs, (r) => r.keyId),
    quoted(runs, (r) => r.host),
    plain(runs, (r) => r.ownHost),
    quoted(runs, (r) => r.modelId),
    plain(runs, (r) => r.outputPico),
    plain(runs, (r) => r.priceVersionId),
  ];
}

/** `request_*` */
function requestArguments(requests: readonly ReserveRequest[]): string[] {
  return [
    plain(requests, (r) => r.requestId),
    plain(requests, (r) => r.promptPico),
    plain(requests, (r) => r.capMax),
    plain(requests, (r) => r.capMin),
    plain(requests, (r) => r.tokenBound),
  ];
}

/** The indexes of the requests, those of an account together and in arrival order. */
function byAccount(requests: readonly ReserveRequest[]): number[] {
  const accountAt = (index: number) => (requests[index] as ReserveRequest).accountId;
  return requests.map((_, index) => index).sort((a, b) => accountAt(a) - accountAt(b));
}

/** The last request of each run, counted from 1. A run: neighbours that differ only in ids and amounts. */
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

/** Array indexes from an int[] of Postgres, as text, that counts from 1. */
function indexesOf(places: string): number[] {
  return places
    .slice(1, -1)
    .split(",")
    .map((place) => Number(place) - 1);
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

/** An array literal of values that need no quotes: numbers, booleans, UUIDs, plain words, null. */
function plain<T>(rows: readonly T[], pick: (row: T) => string | number | bigint | boolean | null): string {
  let literal = "{";
  for (let i = 0; i < rows.length; i++) literal += (i > 0 ? "," : "") + String(pick(rows[i] as T));
  return `${literal}}`;
}

/** An array literal of any text. */
function quoted<T>(rows: readonly T[], pick: (row: T) => string | null): string {
  let literal = "{";
  for (let i = 0; i < rows.length; i++) {
    const text = pick(rows[i] as T);
    literal += `${i > 0 ? "," : ""}${text === null ? "null" : `"${text.replace(/[\\"]/g, "\\$&")}"`}`;
  }
  return `${literal}}`;
}
