import type { Sql } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Columns, readRows, rowsWriter } from "../platform/row_literals.ts";

/** The SQL of a batch: one SELECT of `ledger_batch` (drizzle/0002_ledger.sql), with an array of rows for each kind of input and of answer. */

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
  /** The route that answered, how soon, and what it costs the operator: see `answered_by.ts`. */
  routeId: number | null;
  firstMs: number | null;
  providerCostNanoUsd: bigint | null;
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

/** The columns of `finish_row`. */
export const FINISH_COLUMNS: Columns<{ end: Finish; idle: Idle }> = {
  request_id: ({ end }) => end.requestId,
  lease_id: ({ end }) => end.leaseId,
  account_id: ({ end }) => end.accountId,
  key_id: ({ end }) => end.keyId,
  model_id: ({ end }) => end.modelId,
  host: ({ end }) => end.host,
  package_id: ({ end }) => end.packageId,
  day: ({ end }) => end.day,
  key_day: ({ end }) => end.keyDay,
  held_nano_usd: ({ end }) => end.heldNanoUsd,
  held_tokens: ({ end }) => end.heldTokens,
  price_version_id: ({ end }) => end.priceVersionId,
  reserved_us: ({ end }) => end.reservedAtUs,
  settles: ({ end }) => end.settles,
  reason: ({ end }) => end.reason,
  prompt_tokens: ({ end }) => end.promptTokens,
  cached_tokens: ({ end }) => end.cachedTokens,
  completion_tokens: ({ end }) => end.completionTokens,
  charge_nano_usd: ({ end }) => end.chargeNanoUsd,
  is_strict: ({ end }) => end.strict,
  estimated: ({ end }) => end.estimated,
  further_counts: ({ end }) => end.furtherCounts,
  reported_usage: ({ end }) => end.reportedUsage,
  tried: ({ end }) => end.tried,
  markup_basis_points: ({ end }) => (end.costNanoUsd === null ? null : end.markupBasisPoints),
  cost_nano_usd: ({ end }) => end.costNanoUsd,
  route_id: ({ end }) => end.routeId,
  first_ms: ({ end }) => end.firstMs,
  provider_cost_nano_usd: ({ end }) => end.providerCostNanoUsd,
  idle_draw: ({ idle }) => idle.drawNumber,
  idle_units: ({ idle }) => idle.units,
  idle_nano_usd: ({ idle }) => idle.nanoUsd,
};
const finishRows = rowsWriter(FINISH_COLUMNS);

/** The columns of `keep_row`. */
export const KEEP_COLUMNS: Columns<Keep> = {
  package_id: (k) => k.packageId,
  key_id: (k) => k.keyId,
  day: (k) => k.day,
  units: (k) => k.units,
  tokens: (k) => k.tokens,
  nano_usd: (k) => k.nanoUsd,
  idle_units: (k) => k.idleUnits,
  idle_nano_usd: (k) => k.idleNanoUsd,
};
const keepRows = rowsWriter(KEEP_COLUMNS);

/** The columns of `draw_row`. */
export const DRAW_COLUMNS: Columns<Draw> = {
  account_id: (d) => d.accountId,
  tenant_id: (d) => d.tenantId,
  number: (d) => d.number,
  units: (d) => d.units,
  nano_usd: (d) => d.nanoUsd,
  known_epoch: (d) => d.knownEpoch,
  returns: (d) => d.returns,
  keeps: (d) => keepRows(d.keeps),
};
const drawRows = rowsWriter(DRAW_COLUMNS);

/** Requests of an account that differ only in ids and amounts, one after another. */
type Run = {
  /** The place of its account's draw, counted from 1. */
  place: number;
  /** The last one of that draw. */
  endsDraw: boolean;
  /** The numbers of its requests, counted from 1; none: `last` is below `first`. */
  first: number;
  last: number;
  /** One of its requests; undefined: a draw without a request. */
  request: ReserveRequest | undefined;
};
/** The columns of `run_row`. */
export const RUN_COLUMNS: Columns<Run> = {
  place: (r) => r.place,
  ends_draw: (r) => r.endsDraw,
  first_request: (r) => r.first,
  last_request: (r) => r.last,
  key_id: (r) => r.request?.keyId ?? null,
  host: (r) => r.request?.host ?? null,
  own_host: (r) => r.request?.ownHost ?? null,
  model_id: (r) => r.request?.modelId ?? null,
  output_pico: (r) => r.request?.outputPico ?? null,
};
const runRows = rowsWriter(RUN_COLUMNS);

/** The columns of `request_row`. */
export const REQUEST_COLUMNS: Columns<ReserveRequest> = {
  prompt_pico: (r) => r.promptPico,
  cap_max: (r) => r.capMax,
  cap_min: (r) => r.capMin,
  prompt_tokens: (r) => r.promptTokens,
  choices: (r) => r.choices,
};
const requestRows = rowsWriter(REQUEST_COLUMNS);

// The cast in SQL needs no look-up of the parameter's type.
const BATCH_SQL = `select ended, finished::text, drawn::text, reserved::text from ledger_batch($1::text::bool, $2::text::bigint[], $3::text::uuid,
  $4::text::int, $5::text::timestamptz, $6::text::bool, $7::text::finish_row[], $8::text::draw_row[], $9::text::run_row[], $10::text::request_row[])`;

/** Runs one batch in one autocommit statement. Throws what Postgres throws. */
export async function runBatch(sql: Sql, prepare: boolean, input: BatchInput): Promise<BatchOutput> {
  const { finishes, idles, draws, reserves, leaseId, share, nowUnixMs, wait } = input;
  const { order, runs } = runsOf(draws, reserves);
  const [row] = await sql
    .unsafe(
      BATCH_SQL,
      [
        String(wait),
        `{${[...new Set([...finishes, ...draws].map(({ accountId }) => accountId))]}}`,
        leaseId,
        String(share),
        new Date(nowUnixMs).toISOString(),
        String(draws.some(({ returns }) => returns)),
        finishRows(finishes.map((end, i) => ({ end, idle: idles[i] ?? NOTHING_IDLE }))),
        drawRows(draws),
        runRows(runs),
        requestRows(order.map((index) => reserves[index] as ReserveRequest)),
      ],
      { prepare },
    )
    .values();
  const [ended, finished, drawn, reserved] = row as [number | null, string | null, string | null, string | null];
  const answers = readRows(finished);
  if (Number(ended) + answers.length !== finishes.length)
    throw new Error(`${finishes.length} ends: ${ended} as asked, ${answers.length} answers`);
  const output: BatchOutput = {
    finished: finishes.map(asAsked),
    drawn: readRows(drawn).map(toDrawResult),
    reserved: new Array(reserves.length),
  };
  for (const [place, ...answer] of answers) output.finished[Number(place) - 1] = toFinishResult(answer);
  for (const [, first, many, ...answer] of readRows(reserved)) {
    const result = toReserveResult(answer);
    const from = Number(first) - 1;
    for (let i = from; i < from + Number(many); i++) output.reserved[order[i] as number] = result;
  }
  return output;
}

const NOTHING_IDLE: Idle = { drawNumber: 0, units: 0, nanoUsd: 0n };

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
    const begin = (): Run => ({
      place: i + 1,
      endsDraw: false,
      first: order.length + 1,
      last: order.length,
      request: undefined,
    });
    let run = begin();
    for (const index of indexesOfAccount.get(accountId) ?? []) {
      const request = requests[index] as ReserveRequest;
      if (run.request !== undefined && !isSameRun(run.request, request)) {
        runs.push(run);
        run = begin();
      }
      order.push(index);
      run.last = order.length;
      run.request ??= request;
    }
    runs.push({ ...run, endsDraw: true });
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

/** The fields of an answer, in the order of its type. */
type Fields = readonly (string | null)[];

/** `reserve_answer`, without the requests that it is for. */
function toReserveResult([
  code = null,
  packageId = null,
  day = null,
  keyDay = null,
  nanoUsd,
  tokens = null,
  capTokens = null,
  limit = null,
  used = null,
  remaining = null,
  resetsAt,
]: Fields): ReserveResult {
  return {
    code,
    packageId: numberOf(packageId),
    day,
    keyDay,
    heldNanoUsd: BigInt(nanoUsd ?? 0),
    heldTokens: numberOf(tokens),
    capTokens: numberOf(capTokens),
    limit: numberOf(limit),
    used: numberOf(used),
    remaining: numberOf(remaining),
    resetsAt: resetsAt ? toIso(resetsAt) : null,
  };
}

/** The answer of an end that the database does not name: it ended as it asked. */
function asAsked({ settles, packageId, chargeNanoUsd }: Finish): FinishResult {
  return {
    outcome: settles ? "settled" : "released",
    chargedNanoUsd: settles ? chargeNanoUsd : 0n,
    shortfallNanoUsd: 0n,
    units: settles && packageId !== 0 ? 1 : 0,
    unpaidTokens: 0,
  };
}

/** `finish_answer`, without its place. */
function toFinishResult([outcome, charged, shortfall, units, unpaidTokens]: Fields): FinishResult {
  return {
    outcome: outcome as FinishOutcome,
    chargedNanoUsd: BigInt(charged ?? 0),
    shortfallNanoUsd: BigInt(shortfall ?? 0),
    units: Number(units),
    unpaidTokens: Number(unpaidTokens),
  };
}

/** `draw_answer` */
function toDrawResult([
  code = null,
  recalled,
  nowUs,
  epoch,
  tenantEpoch,
  packageId = null,
  day = null,
  units,
  nanoUsd,
  goodMs,
  modelIds,
]: Fields): DrawResult {
  return {
    code,
    packageId: numberOf(packageId),
    day,
    goodMs: Number(goodMs),
    modelIds: modelIds ? toTexts(modelIds) : null,
    units: Number(units),
    nanoUsd: nanoUsd ? BigInt(nanoUsd) : null,
    epoch: Number(epoch),
    tenantEpoch: Number(tenantEpoch),
    recalled: recalled === "t",
    nowUs: Number(nowUs),
  };
}

function numberOf(value: string | null): number | null {
  return value === null ? null : Number(value);
}

function toTexts(json: string): string[] {
  const texts: unknown = JSON.parse(json);
  return Array.isArray(texts) ? texts.map(String) : [];
}
