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
  /** What it reserves of a package's token allowance: these for the prompt, margin included, and the output cap for each choice. */
  promptTokens: number;
  choices: number;
  /** Whether the output cap is sent on even if a package without a token allowance pays. */
  sendsCap: boolean;
  /** The prices of the reservation: an id of `price_versions`; null: the model has no price. */
  priceVersionId: number | null;
  /** The reseller's markup in the bounds above, in basis points; 0: none. */
  markupBasisPoints: number;
  /**
   * What the caller knows of the key and the host, and when that was true: the epochs of the account and of its tenant. With it the
   * request may be granted from what was drawn ahead. null: only the database can decide, as for a key with daily limits.
   */
  known: { mode: "package" | "payg"; epoch: number; tenantEpoch: number } | null;
};

/** What was drawn for a request, and what its receipt says of it. */
export type Drawn = {
  requestId: string;
  accountId: number;
  keyId: number;
  host: string;
  modelId: string;
  priceVersionId: number | null;
  /** The markup at the reservation, in basis points; 0: none. The charge has the same. */
  markupBasisPoints: number;
  /** The lease under which it was drawn. */
  leaseId: string;
  /** The package that gives a unit; 0: the balance pays. */
  packageId: number;
  /** The package's day that it counts in, ISO 8601; null: the balance pays. */
  day: string | null;
  /** The day that it counts in for the key's daily limits; null: the key has none. */
  keyDay: string | null;
  /** The reserved amount; 0 in package mode. */
  heldNanoUsd: bigint;
  /** Tokens reserved of the package's token allowance; null: it has none. */
  heldTokens: number | null;
  /** The output cap that was reserved, and is sent on; null: the client's own is, as it came. */
  capTokens: number | null;
  /** When it was reserved, by the database's clock: Unix time in microseconds. */
  reservedAtUs: number;
};

/** How a hold ends: what was drawn, and what was used. */
export type Finish = Drawn & {
  /** Charged; otherwise released. */
  settles: boolean;
  reason: EndReason;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  chargeNanoUsd: bigint;
  /** The operator's price of a charge with a markup; null: a charge without one, or none. */
  costNanoUsd: bigint | null;
  /** Nothing was sent to the client yet: if the balance does not cover the charge, refuse. */
  strict: boolean;
  estimated: boolean;
  /** Further counts that may have prices of their own, and an image's price key: FurtherCounts as JSON. null: none. */
  furtherCounts: string | null;
  /** The provider's other counts, JSON: see `reported_usage.ts`. */
  reportedUsage: string | null;
  /** The routes that were tried, JSON: see `tried_routes.ts`. null: the first one answered. */
  tried: string | null;
};

/** Why a hold ended. `ledger_finish` itself adds two reasons: `late` and `overrun_refused`. */
export const END_REASONS = [
  "complete",
  "client_left",
  "provider_failed",
  "provider_broke_off",
  "provider_rejected",
  "timed_out",
  "ended_by_us",
  "not_dispatched",
  "gateway_failed",
] as const;
export type EndReason = (typeof END_REASONS)[number];

export type ReserveResult = {
  /** null: granted. */
  code: string | null;
  /** The package that pays; null: the balance, or nothing was granted. */
  packageId: number | null;
  day: string | null;
  keyDay: string | null;
  heldNanoUsd: bigint;
  heldTokens: number | null;
  capTokens: number | null;
  limit: number | null;
  used: number | null;
  remaining: number | null;
  resetsAt: string | null;
};

export type FinishOutcome = "settled" | "released" | "refused" | "already" | "gone" | "busy" | "recall";
export type FinishResult = {
  outcome: FinishOutcome;
  chargedNanoUsd: bigint;
  /** What the balance did not cover: of a refused answer, all of it. */
  shortfallNanoUsd: bigint;
  units: number;
  /** Tokens that a package's request used and no package pays. */
  unpaidTokens: number;
};

/** One escrow row of this lease, as its replica accounts for it. What the database has beyond that is given back. */
export type Keep = {
  packageId: number;
  keyId: number;
  day: string;
  units: number;
  tokens: number;
  nanoUsd: bigint;
  idleUnits: number;
  idleNanoUsd: bigint;
};

/** What is idle in an escrow row, and since when: it says nothing of the row after a later draw. */
export type Idle = {
  /** The number of the last answered draw of the account under the row's lease; 0: none, and then the database ignores the figures. */
  drawNumber: number;
  units: number;
  nanoUsd: bigint;
};

/** What a replica keeps of an account, and what it wants to draw ahead. */
export type Draw = {
  accountId: number;
  tenantId: number;
  /** It runs only if no draw of this lease and account with this or a higher number has run. */
  number: number;
  units: number;
  nanoUsd: bigint;
  /** The account's epoch of which this process knows. */
  knownEpoch: number;
  /** Less is kept than was drawn, or what an earlier draw gave is not known. */
  returns: boolean;
  keeps: readonly Keep[];
};

export type DrawResult = {
  /** null: it has run. Otherwise busy, stale, lease_ended or clock_skew. */
  code: string | null;
  /** The package and day whose units may be granted; null: none. */
  packageId: number | null;
  day: string | null;
  /** How long they may be, in ms. */
  goodMs: number;
  modelIds: string[] | null;
  /** Drawn ahead. nanoUsd null: pay-as-you-go is off. */
  units: number;
  nanoUsd: bigint | null;
  epoch: number;
  tenantEpoch: number;
  /** Another replica had asked for what lies unused here. */
  recalled: boolean;
  /** The database's clock when it ran: Unix time in microseconds. */
  nowUs: number;
};

export type BatchInput = {
  finishes: readonly Finish[];
  /** What is idle now in the escrow row of each of them. */
  idles: readonly Idle[];
  draws: readonly Draw[];
  /** Of accounts that are in `draws`. */
  reserves: readonly ReserveRequest[];
  leaseId: string;
  /** At most one part in this many of what is left is drawn ahead. */
  share: number;
  /** This machine's clock, Unix time in ms. */
  nowUnixMs: number;
  /** Wait for accounts that are locked. Otherwise their rows come back as `busy`. */
  wait: boolean;
};
/** In the order of the input. */
export type BatchOutput = { finished: FinishResult[]; drawn: DrawResult[]; reserved: ReserveResult[] };

/** The types of the arguments of `ledger_batch`, in its order. */
const ARGUMENTS = [
  ...["bool", "bigint[]"],
  ...[
    "uuid[]",
    "uuid[]",
    "bigint[]",
    "bigint[]",
    "text[]",
    "text[]",
    "bigint[]",
    "date[]",
    "date[]",
    "bigint[]",
    "bigint[]",
  ],
  ...["bigint[]", "bigint[]", "bool[]", "text[]", "int[]", "int[]", "int[]", "bigint[]", "bool[]", "bool[]"],
  ...["text[]", "text[]", "text[]", "int[]", "bigint[]", "bigint[]", "int[]", "bigint[]"],
  ...["uuid", "int", "timestamptz"],
  ...["bigint[]", "bigint[]", "bigint[]", "int[]", "bigint[]", "bigint[]", "bool"],
  ...["int[]", "bigint[]", "bigint[]", "date[]", "int[]", "bigint[]", "bigint[]", "int[]", "bigint[]"],
  ...["int[]", "int[]", "bigint[]", "text[]", "bool[]", "text[]", "bigint[]"],
  ...["bigint[]", "int[]", "int[]", "bigint[]", "int[]"],
];
// Arrays are sent as array literals: the cast in SQL needs no look-up of the array's type.
const BATCH_SQL = `select part, places::text, code, package_id, day::text, key_day::text, nano_usd, tokens, cap_tokens, quota_limit,
  quota_used, quota_remaining, resets_at, units, good_ms, to_json(model_ids)::text, epoch, tenant_epoch, recalled, now_us
  from ledger_batch(${ARGUMENTS.map((type, i) => `$${i + 1}::text::${type}`).join(", ")})`;

/** Runs one batch in one autocommit statement. Throws what Postgres throws. */
export async function runBatch(sql: Sql, prepare: boolean, input: BatchInput): Promise<BatchOutput> {
  const { finishes, idles, draws, reserves, leaseId, share, nowUnixMs, wait } = input;
  const { order, runs } = runsOf(draws, reserves);
  const requests = order.map((index) => reserves[index] as ReserveRequest);
  const rows = await sql
    .unsafe(
      BATCH_SQL,
      [
        String(wait),
        lockArgument(finishes, draws),
        ...finishArguments(finishes),
        plain(idles, (idle) => idle.drawNumber),
        plain(idles, (idle) => idle.units),
        plain(idles, (idle) => idle.nanoUsd),
        leaseId,
        String(share),
        new Date(nowUnixMs).toISOString(),
        ...drawArguments(draws),
        ...runArguments(runs),
        ...requestArguments(requests),
      ],
      { prepare },
    )
    .values();
  const output: BatchOutput = {
    finished: new Array(finishes.length),
    drawn: new Array(draws.length),
    reserved: new Array(requests.length),
  };
  for (const [part, places, ...answer] of rows as Iterable<[string, string, ...Answer]>) {
    const indexes = indexesOf(places);
    if (part === "finish") {
      const result = toFinishResult(answer);
      for (const i of indexes) output.finished[i] = result;
    } else if (part === "draw") {
      for (const i of indexes) output.drawn[i] = toDrawResult(answer);
    } else {
      const result = toReserveResult(answer);
      for (const i of indexes) output.reserved[order[i] as number] = result;
    }
  }
  return output;
}

/** `locked_accounts` */
function lockArgument(finishes: readonly Finish[], draws: readonly Draw[]): string {
  const accounts = new Set<number>();
  for (const { accountId } of finishes) accounts.add(accountId);
  for (const { accountId } of draws) accounts.add(accountId);
  return plain([...accounts], Number);
}

/** `finish_*` without `finish_idle_*` */
function finishArguments(finishes: readonly Finish[]): string[] {
  return [
    plain(finishes, (f) => f.requestId),
    plain(finishes, (f) => f.leaseId),
    plain(finishes, (f) => f.accountId),
    plain(finishes, (f) => f.keyId),
    quoted(finishes, (f) => f.modelId),
    quoted(finishes, (f) => f.host),
    plain(finishes, (f) => f.packageId),
    plain(finishes, (f) => f.day),
    plain(finishes, (f) => f.keyDay),
    plain(finishes, (f) => f.heldNanoUsd),
    plain(finishes, (f) => f.heldTokens),
    plain(finishes, (f) => f.priceVersionId),
    plain(finishes, (f) => f.reservedAtUs),
    plain(finishes, (f) => f.settles),
    plain(finishes, (f) => f.reason),
    plain(finishes, (f) => f.promptTokens),
    plain(finishes, (f) => f.cachedTokens),
    plain(finishes, (f) => f.completionTokens),
    plain(finishes, (f) => f.chargeNanoUsd),
    plain(finishes, (f) => f.strict),
    plain(finishes, (f) => f.estimated),
    finishes.some((f) => f.furtherCounts) ? quoted(finishes, (f) => f.furtherCounts) : "{}",
    finishes.some((f) => f.reportedUsage) ? quoted(finishes, (f) => f.reportedUsage) : "{}",
    finishes.some((f) => f.tried) ? quoted(finishes, (f) => f.tried) : "{}",
    ...markupArguments(finishes),
  ];
}

/** `finish_markups`, `finish_costs` */
function markupArguments(finishes: readonly Finish[]): string[] {
  if (!finishes.some((f) => f.costNanoUsd !== null)) return ["{}", "{}"];
  return [
    plain(finishes, (f) => (f.costNanoUsd === null ? null : f.markupBasisPoints)),
    plain(finishes, (f) => f.costNanoUsd),
  ];
}

/** `draw_*`, `keep_*`, `idle_*` */
function drawArguments(draws: readonly Draw[]): string[] {
  const keeps = draws.flatMap((draw) => draw.keeps);
  let keepLast = 0;
  return [
    plain(draws, (d) => d.accountId),
    plain(draws, (d) => d.tenantId),
    plain(draws, (d) => d.number),
    plain(draws, (d) => d.units),
    plain(draws, (d) => d.nanoUsd),
    plain(draws, (d) => d.knownEpoch),
    String(draws.some((d) => d.returns)),
    plain(draws, (d) => {
      keepLast += d.keeps.length;
      return keepLast;
    }),
    plain(keeps, (k) => k.packageId),
    plain(keeps, (k) => k.keyId),
    plain(keeps, (k) => k.day),
    plain(keeps, (k) => k.units),
    plain(keeps, (k) => k.tokens),
    plain(keeps, (k) => k.nanoUsd),
    plain(keeps, (k) => k.idleUnits),
    plain(keeps, (k) => k.idleNanoUsd),
  ];
}

/** `run_*` */
function runArguments(runs: readonly Run[]): string[] {
  return [
    plain(runs, (r) => r.place),
    plain(runs, (r) => r.last),
    plain(runs, (r) => r.request?.keyId ?? null),
    quoted(runs, (r) => r.request?.host ?? null),
    plain(runs, (r) => r.request?.ownHost ?? null),
    quoted(runs, (r) => r.request?.modelId ?? null),
    plain(runs, (r) => r.request?.outputPico ?? null),
  ];
}

/** `request_*` */
function requestArguments(requests: readonly ReserveRequest[]): string[] {
  return [
    plain(requests, (r) => r.promptPico),
    plain(requests, (r) => r.capMax),
    plain(requests, (r) => r.capMin),
    plain(requests, (r) => r.promptTokens),
    plain(requests, (r) => r.choices),
  ];
}

/** Neighbours that differ only in ids and amounts. */
type Run = {
  /** The place of its account's draw, counted from 1. */
  place: number;
  /** The number of its last request, counted from 1. */
  last: number;
  /** One of its requests; undefined: a draw without a request. */
  request: ReserveRequest | undefined;
};

/** The runs of all draws, and the indexes of the requests in that order: by draw, then by arrival. Every request's account has a draw. */
function runsOf(draws: readonly Draw[], requests: readonly ReserveRequest[]): { order: number[]; runs: Run[] } {
  const indexesOfAccount = new Map<number, number[]>(draws.map(({ accountId }) => [accountId, []]));
  requests.forEach(({ accountId }, index) => {
    const indexes = indexesOfAccount.get(accountId);
    if (indexes === undefined) throw new Error(`no draw for account ${accountId}`);
    indexes.push(index);
  });
  const order: number[] = [];
  const runs: Run[] = [];
  for (const [i, { accountId }] of draws.entries()) {
    let run: Run = { place: i + 1, last: order.length, request: undefined };
    for (const index of indexesOfAccount.get(accountId) ?? []) {
      const request = requests[index] as ReserveRequest;
      if (run.request !== undefined && !isSameRun(run.request, request)) {
        runs.push(run);
        run = { place: i + 1, last: order.length, request: undefined };
      }
      order.push(index);
      run.last = order.length;
      run.request ??= request;
    }
    runs.push(run);
  }
  return { order, runs };
}

function isSameRun(a: ReserveRequest, b: ReserveRequest): boolean {
  return (
    a.keyId === b.keyId &&
    a.host === b.host &&
    a.ownHost === b.ownHost &&
    a.modelId === b.modelId &&
    a.outputPico === b.outputPico
  );
}

/** Array indexes from an int[] of Postgres, as text, that counts from 1. */
function indexesOf(places: string): number[] {
  return places
    .slice(1, -1)
    .split(",")
    .map((place) => Number(place) - 1);
}

/** The columns of BATCH_SQL after `places`. bigint arrives as text. */
type Answer = [
  code: string | null,
  packageId: string | null,
  day: string | null,
  keyDay: string | null,
  nanoUsd: string | null,
  tokens: string | null,
  capTokens: number | null,
  limit: string | null,
  used: string | null,
  remaining: string | null,
  resetsAt: unknown,
  units: number | null,
  goodMs: string | null,
  modelIds: string | null,
  epoch: string | null,
  tenantEpoch: string | null,
  recalled: boolean | null,
  nowUs: string | null,
];

function toReserveResult(answer: Answer): ReserveResult {
  const [code, packageId, day, keyDay, nanoUsd, tokens, capTokens, limit, used, remaining, resetsAt] = answer;
  return {
    code,
    packageId: numberOf(packageId),
    day,
    keyDay,
    heldNanoUsd: BigInt(nanoUsd ?? 0),
    heldTokens: numberOf(tokens),
    capTokens,
    limit: numberOf(limit),
    used: numberOf(used),
    remaining: numberOf(remaining),
    resetsAt: resetsAt === null ? null : toIso(resetsAt instanceof Date ? resetsAt.toISOString() : String(resetsAt)),
  };
}

function toFinishResult([outcome, , , , nanoUsd, shortfall, , unpaidTokens, , , , units]: Answer): FinishResult {
  return {
    outcome: outcome as FinishOutcome,
    chargedNanoUsd: BigInt(nanoUsd ?? 0),
    shortfallNanoUsd: BigInt(shortfall ?? 0),
    units: units ?? 0,
    unpaidTokens: Number(unpaidTokens ?? 0),
  };
}

function toDrawResult(answer: Answer): DrawResult {
  const [code, packageId, day, , nanoUsd, , , , , , , units, goodMs, modelIds, epoch, tenantEpoch, recalled, nowUs] =
    answer;
  return {
    code,
    packageId: numberOf(packageId),
    day,
    goodMs: Number(goodMs ?? 0),
    modelIds: modelIds === null ? null : toTexts(modelIds),
    units: units ?? 0,
    nanoUsd: nanoUsd === null ? null : BigInt(nanoUsd),
    epoch: Number(epoch ?? 0),
    tenantEpoch: Number(tenantEpoch ?? 0),
    recalled: recalled === true,
    nowUs: Number(nowUs ?? 0),
  };
}

function numberOf(value: string | number | null): number | null {
  return value === null ? null : Number(value);
}

function toTexts(json: string): string[] {
  const texts: unknown = JSON.parse(json);
  return Array.isArray(texts) ? texts.map(String) : [];
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
