import type { Call } from "../../src/demo/provider/journal.ts";
import { ESCROW_VALID_MS } from "../../src/platform/changes_store.ts";
import type { FakeProvider } from "../fake_provider.ts";
import { type Entry, NUMBERED } from "./load.ts";
import { IMAGE, type Life, PRICES, type Seat, type Stage } from "./stage.ts";

/**
 * Compares the histories of clients, providers and books, once the books are at rest, and reports contradictions.
 * Source: END-1, END-15, REL-8.
 */

/** An answer whose client left may take the provider's whole time, and is settled after it. */
const SETTLED_LATER_MS_MAX = 20_000;
const PAUSE_AFTERMATH_MS = 12_000;
/** A client may notice the end of its replica before we do. */
const END_SEEN_MS = 1_500;

/**
 * lost: served but missing or wrong in the books · double: charged, granted or called too often · unbalanced: the books
 * contradict themselves · broken: a replica ended, an unexpected error, or the books never came to rest
 */
export type Column = "lost" | "double" | "unbalanced" | "broken";
export const COLUMNS: readonly Column[] = ["lost", "double", "unbalanced", "broken"];

/** A contradiction, and the time in which it may have happened. */
export type Finding = { column: Column; what: string; fromMs: number; toMs: number };

/** A receipt from the books. Money is in nano-USD. */
type Receipt = {
  requestId: string;
  accountId: number;
  keyId: number;
  mode: string;
  outcome: string;
  reason: string;
  units: number;
  chargedNano: bigint;
  shortfallNano: bigint;
  prompt: number;
  completion: number;
};

/** A provider's call, with the request number in its prompt. */
type Served = { call: Readonly<Call>; provider: string; requestId: string; n: number };

type Books = {
  receipts: Map<string, Receipt>;
  served: Served[];
  byRequest: Map<string, Served[]>;
  byNumber: Map<number, Served[]>;
  /**
   * Requests whose provider broke off in mid-stream, by the replicas' logs: the client cannot tell which end cut the
   * connection.
   */
  brokenOff: Set<string>;
  brokenAfterFinish: Set<string>;
};

export type Counts = {
  providerCalls: number;
  settled: number;
  released: number;
  /** Provider calls of requests without a receipt: their replica died or was frozen past its lease. */
  unfinished: number;
  late: number;
  losses: number;
};

const BROKE_OFF = /"requestId":"([^"]+)".*"message":"a provider's stream broke off"/;
/** The answer was complete, so it is charged. */
const BROKE_AFTER_FINISH =
  /"requestId":"([^"]+)".*"message":"a provider's stream broke off when its answer was complete"/;
/** Ends of a request that are charged. */
const CHARGED_REASONS = new Set(["complete", "client_left", "late"]);

/** Checks a run whose books are at rest. */
export async function check(stage: Stage, history: readonly Entry[]): Promise<{ findings: Finding[]; counts: Counts }> {
  const findings: Finding[] = [];
  const books = await readBooks(stage);
  const { receipts, served } = books;
  for (const entry of history) findings.push(...judge(entry, books, stage.replicas[entry.replica]));
  findings.push(...judgeCalls(books, history, stage));
  for (const what of await stage.world.unbalanced()) findings.push({ column: "unbalanced", what, ...always });
  for (const [column, what] of await beyondLimits(stage)) findings.push({ column, what, ...always });
  const all = [...receipts.values()];
  const count = (is: (receipt: Receipt) => boolean) => all.filter(is).length;
  return {
    findings,
    counts: {
      providerCalls: served.length,
      settled: count(({ outcome }) => outcome === "settled"),
      released: count(({ outcome }) => outcome === "released"),
      unfinished: served.filter(({ requestId }) => !receipts.has(requestId)).length,
      late: count(({ reason }) => reason === "late"),
      losses: count(isLoss),
    },
  };
}

/** Not at a particular time. */
const always = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY };

function isLoss({ reason, mode, units, shortfallNano }: Receipt): boolean {
  return shortfallNano > 0n || (reason === "late" && mode === "package" && units === 0);
}

/** The contradictions of one request with what its client saw. */
function judge(entry: Entry, books: Books, seat: Seat | undefined): Finding[] {
  const found: Finding[] = [];
  const calls = books.byNumber.get(entry.n) ?? [];
  const ids = new Set(calls.map(({ requestId }) => requestId));
  if (entry.requestId !== undefined) ids.add(entry.requestId);
  const [requestId = ""] = ids;
  const receipt = books.receipts.get(requestId);
  const say = (column: Column, what: string) =>
    found.push({
      column,
      what: `${what}: ${describe(entry, requestId, receipt)}`,
      fromMs: entry.startedMs,
      toMs: entry.endedMs,
    });

  if (ids.size > 1) say("double", "one request of a client became several");
  if (receipt !== undefined && (receipt.accountId !== entry.accountId || receipt.keyId !== entry.keyId))
    say("lost", "another account's or key's receipt");
  if (receipt?.outcome === "settled") {
    for (const what of wrongAmounts(entry, receipt)) say("lost", what);
    const mayPay = entry.saw === "error_event" && books.brokenAfterFinish.has(requestId);
    if (!mayPay && (entry.saw === "refused" || entry.saw === "error_event"))
      say("double", `${entry.saw} and charged all the same`);
  }
  if (entry.saw === "complete" && entry.kind !== "look") {
    if (receipt?.outcome !== "settled") say("lost", "a complete answer without a usage record");
    if (calls.length === 0) say("broken", "an answer that no provider gave");
  }
  if (receipt?.reason === "not_dispatched" && calls.length > 0) say("lost", "released as not dispatched, and was");
  if (receipt?.outcome === "released" && CHARGED_REASONS.has(receipt.reason))
    say("lost", "served, and released all the same");
  // A client that left in the middle pays for the chunks, unless the provider broke off at the same moment.
  const owesChunks = entry.saw === "left" && entry.chunks > 0 && !books.brokenOff.has(requestId);
  const isServed = owesChunks || calls.some(({ call }) => call.outcome === "complete" && call.status < 300);
  const isReaped = receipt === undefined || receipt.reason === "replica_died";
  if (isServed && isReaped && !mayBeReaped(entry, seat))
    say("lost", "served, and left to the reaper by a living replica");
  if (entry.saw === "unclean") say("broken", "an answer that is neither whole nor an error");
  if (entry.saw === "hung") say("broken", "no end in time");
  if (isUnexplainedBreak(entry, seat)) say("broken", `${entry.saw} by a replica that lives`);
  if (entry.saw === "refused" && !isRightRefusal(entry, calls)) say("broken", `refused with ${entry.code}`);
  return found;
}

function describe(entry: Entry, requestId: string, receipt: Receipt | undefined): string {
  const { n, replica, accountId, kind, model, saw, status, code, usage, chunks, conduct } = entry;
  const seen = {
    n,
    replica,
    accountId,
    kind,
    model,
    saw,
    status,
    code,
    usage,
    chunks,
    conduct,
    at: new Date(entry.startedMs),
    ms: entry.endedMs - entry.startedMs,
  };
  const written = receipt && {
    ...receipt,
    chargedNano: String(receipt.chargedNano),
    shortfallNano: String(receipt.shortfallNano),
  };
  return JSON.stringify({ requestId, seen, receipt: written ?? null });
}

/** Compares a settled receipt with the price list, and with the usage that the client was told. */
function wrongAmounts({ kind, model, saw, usage, chunks, conduct }: Entry, receipt: Receipt): string[] {
  const { mode, units, reason, prompt, completion, chargedNano, shortfallNano } = receipt;
  const wrong: string[] = [];
  const price = mode === "package" ? 0n : priceOf(model, prompt, completion);
  if (chargedNano + shortfallNano !== price) wrong.push(`charged other than its usage at its price, ${price} nano-USD`);
  if (mode === "package" && reason !== "late" && units !== 1) wrong.push("a package's request that is no unit");
  if (mode !== "package" && units !== 0) wrong.push("a unit of no package");
  if (kind === "image") return wrong;
  if (prompt === 0) wrong.push("a prompt of no tokens");
  if (chunks > 0 && completion === 0) wrong.push("what was relayed counts nothing");
  if (saw !== "complete") return wrong;
  if (usage !== undefined && (usage.prompt !== prompt || usage.completion !== completion))
    wrong.push("recorded other than the answer says");
  // This provider's tokens are its content events. For the stream of a stopped reader it reports none, so ours is an
  // estimate.
  if (kind === "stream" && conduct.slow !== "stops" && chunks !== completion)
    wrong.push("recorded other than what was streamed");
  return wrong;
}

function priceOf(model: string, prompt: number, completion: number): bigint {
  if (model === IMAGE.model) return PRICES.image * 1000n;
  // Micro-USD a million tokens are pico-USD a token, rounded up once. Cached tokens have no separate price here.
  const pico = BigInt(prompt) * PRICES.input + BigInt(completion) * PRICES.output;
  return (pico + 999n) / 1000n;
}

/** The reaper may return only what a killed or paused replica left, and requests that ended without an answer. */
function mayBeReaped(entry: Entry, seat: Seat | undefined): boolean {
  return entry.saw === "refused" || entry.saw === "error_event" || replicaFell(entry, seat);
}

/** Whether the request's replica died or was frozen before it can have written the request's end. */
function replicaFell(entry: Entry, seat: Seat | undefined): boolean {
  const untilMs = entry.endedMs + SETTLED_LATER_MS_MAX;
  const died = servingLives(entry, seat).some(({ endedMs }) => endedMs <= untilMs);
  const paused = seat?.pauses.some(
    ({ fromMs, toMs }) => fromMs <= untilMs && toMs + PAUSE_AFTERMATH_MS >= entry.startedMs,
  );
  return died || paused === true;
}

/** The lives of the seat's processes that the request may have met. */
function servingLives({ startedMs, endedMs }: Entry, seat: Seat | undefined): Life[] {
  return (seat?.lives ?? []).filter(
    (life) => life.startedMs <= endedMs + END_SEEN_MS && life.endedMs >= startedMs - END_SEEN_MS,
  );
}

function isUnexplainedBreak(entry: Entry, seat: Seat | undefined): boolean {
  if (entry.saw !== "cut" && entry.saw !== "no_answer" && entry.saw !== "nobody") return false;
  const lives = servingLives(entry, seat);
  // Between two processes nobody listens, and a leaving process accepts no more.
  return (
    !lives.some(({ leavingMs, endedMs }) => Math.min(leavingMs, endedMs) <= entry.endedMs + END_SEEN_MS) &&
    lives.length > 0 &&
    !lives.some(({ startedMs }) => startedMs > entry.startedMs)
  );
}

const PASSING_REFUSALS = new Set(["service_unavailable", "provider_unavailable"]);

function isRightRefusal({ code = "", may }: Entry, calls: readonly Served[]): boolean {
  if (PASSING_REFUSALS.has(code) || may.has(code)) return true;
  // The provider refused the request itself.
  return code === "invalid_request" && calls.some(({ call }) => call.status === 400);
}

/** Every call belongs to a request with a receipt, unless its replica died; and no route was asked twice for one request. */
function judgeCalls(
  { receipts, served, byRequest }: Books,
  history: readonly Entry[],
  { replicas }: Pick<Stage, "replicas">,
): Finding[] {
  const found: Finding[] = [];
  const entries = new Map(history.map((entry) => [entry.n, entry]));
  for (const { call, requestId, provider, n } of served) {
    const entry = entries.get(n);
    if (!receipts.has(requestId) && (entry === undefined || !replicaFell(entry, replicas[entry.replica])))
      found.push({
        column: "lost",
        what: `${provider} was called without a receipt: request ${requestId}, number ${n}`,
        fromMs: call.at,
        toMs: call.at,
      });
  }
  for (const [requestId, calls] of byRequest) {
    const providers = new Set(calls.map(({ provider }) => provider));
    const [first] = calls;
    if (first === undefined || providers.size === calls.length) continue;
    const outcomes = calls.map(({ provider, call }) => `${provider} ${call.status} ${call.outcome}`).join(", ");
    found.push({
      column: "double",
      what: `a provider was called twice for one hold: ${requestId}: ${outcomes}`,
      fromMs: first.call.at,
      toMs: first.call.at,
    });
  }
  return found;
}

/** Checks the limits again, from receipts alone, without the ledger's counters. */
async function beyondLimits({ world: { sql } }: Stage): Promise<[Column, string][]> {
  const rules: [Column, string, PromiseLike<Record<string, unknown>[]>][] = [
    [
      "double",
      "more units or tokens of a package than it has",
      sql`
      select p.id, sum(r.units) as units, p.total_limit, sum(r.charged_tokens) as tokens, p.token_limit
      from receipts r join packages p on p.id = r.package_id group by p.id
      having sum(r.units) > p.total_limit or sum(r.charged_tokens) > p.token_limit`,
    ],
    [
      "double",
      "more units on a day than the package has",
      sql`
      select p.id, r.day, sum(r.units) as units, p.daily_limit from receipts r join packages p on p.id = r.package_id
      where not p.carryover group by p.id, r.day having sum(r.units) > p.daily_limit`,
    ],
    [
      "double",
      "more units than a carryover package had accumulated",
      sql`
      select * from (
        select p.id, r.day, sum(sum(r.units)) over (partition by p.id order by r.day) as units,
          p.daily_limit * least(r.day - p.first_day + 1, p.days) as allowance
        from receipts r join packages p on p.id = r.package_id where p.carryover group by p.id, r.day
      ) sums where units > allowance`,
    ],
    [
      "double",
      "more requests of a key than its ceiling",
      sql`
      select k.id, r.key_day, count(*), k.daily_units_max from receipts r join keys k on k.id = r.key_id
      where r.outcome = 'settled' and r.reason <> 'late' and r.key_day is not null
      group by k.id, r.key_day having count(*) > k.daily_units_max`,
    ],
    [
      "double",
      "more spent by a key than its ceiling",
      sql`
      select k.id, r.key_day, sum(r.charged_nano_usd), k.daily_spend_max_nano_usd from receipts r join keys k on k.id = r.key_id
      where r.outcome = 'settled' and r.reason <> 'late' and r.key_day is not null
      group by k.id, r.key_day having sum(r.charged_nano_usd) > k.daily_spend_max_nano_usd`,
    ],
    [
      "double",
      "a balance below zero",
      sql`
      select account_id, sum(amount_nano_usd) from balance_entries group by account_id having sum(amount_nano_usd) < 0`,
    ],
    [
      "double",
      "charged twice",
      sql`
      select request_id, count(*) from balance_entries where kind = 'charge' group by request_id having count(*) > 1`,
    ],
    [
      "double",
      "granted after the key's revocation had returned",
      sql`
      select r.request_id, r.created_at, k.at from receipts r join revoked_keys k using (key_id) where r.created_at > k.at`,
    ],
    [
      "double",
      // Packages are ended here without notifying the replicas, so what they had drawn stays valid for a moment.
      "granted outside of the package's time",
      sql`
      select r.request_id, r.created_at, p.starts_at, p.ends_at from receipts r join packages p on p.id = r.package_id
      where r.created_at < p.starts_at or r.created_at > p.ends_at + make_interval(secs => ${ESCROW_VALID_MS / 1000})`,
    ],
    [
      "unbalanced",
      "counted on another day than the database's at the time of the reservation",
      sql`
      select r.request_id, r.created_at, r.day, p.time_zone from receipts r join packages p on p.id = r.package_id
      where r.day <> (r.created_at at time zone p.time_zone)::date`,
    ],
    [
      "unbalanced",
      "units used other than the settled receipts'",
      sql`
      select p.account_id, sum(p.units_taken - package_drawn(p)) as counted, coalesce(max(r.units), 0) as settled from packages p
      left join (select account_id, sum(units) as units from receipts where outcome = 'settled' group by account_id) r using (account_id)
      group by p.account_id having sum(p.units_taken - package_drawn(p)) <> coalesce(max(r.units), 0)`,
    ],
    [
      "unbalanced",
      "still held at rest",
      sql`select account_id, lease_id, units, nano_usd from escrows where units > 0 or nano_usd > 0`,
    ],
  ];
  const found: [Column, string][] = [];
  for (const [column, what, query] of rules)
    for (const row of await query) found.push([column, `${what}: ${JSON.stringify(row)}`]);
  return found;
}

async function readBooks({ world, provider, second, replicas }: Stage): Promise<Books> {
  const rows = await world.sql`
    select request_id, account_id, key_id, mode, outcome, reason, units, charged_nano_usd, shortfall_nano_usd, prompt_tokens,
      completion_tokens from receipts`;
  const receipts = new Map<string, Receipt>();
  for (const row of rows) {
    receipts.set(String(row.request_id), {
      requestId: String(row.request_id),
      accountId: Number(row.account_id),
      keyId: Number(row.key_id),
      mode: String(row.mode),
      outcome: String(row.outcome),
      reason: String(row.reason),
      units: Number(row.units),
      chargedNano: BigInt(row.charged_nano_usd),
      shortfallNano: BigInt(row.shortfall_nano_usd),
      prompt: Number(row.prompt_tokens),
      completion: Number(row.completion_tokens),
    });
  }
  const served = [...readJournal("the first provider", provider), ...readJournal("the second provider", second)];
  const group = <K>(key: (one: Served) => K) => Map.groupBy(served, key);
  const lines = replicas.flatMap((seat) => seat.logs().flatMap((log) => log.split("\n")));
  const requestsIn = (pattern: RegExp) => new Set(lines.flatMap((line) => pattern.exec(line)?.[1] ?? []));
  return {
    receipts,
    served,
    byRequest: group(({ requestId }) => requestId),
    byNumber: group(({ n }) => n),
    brokenOff: requestsIn(BROKE_OFF),
    brokenAfterFinish: requestsIn(BROKE_AFTER_FINISH),
  };
}

/** Throws if the journal has dropped calls, because then nothing can be checked. */
function readJournal(name: string, provider: FakeProvider): Served[] {
  const calls = provider.calls();
  if (calls.length !== provider.counters().calls) throw new Error(`the journal of ${name} is incomplete`);
  return calls
    .filter(({ generation }) => generation)
    .map((call) => {
      const requestId = String(call.headers["x-request-id"] ?? "");
      return { call, provider: name, requestId, n: Number(NUMBERED.exec(call.body)?.[1] ?? -1) };
    });
}
