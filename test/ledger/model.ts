import type {
  BatchOutput,
  Finish,
  FinishResult,
  ReserveRequest,
  ReserveResult,
} from "../../src/ledger/ledger_store.ts";

/**
 * The ledger's rules in memory, written from the rulings and not from the SQL: the other opinion that the property tests ask.
 * It keeps no counters and no queue positions, knows no locks and no batches. It has lists of what was held, what ended and
 * what money came and went, and counts them anew for every question.
 * Source: PAY-1, PAY-2, PAY-3, QUO-2, QUO-4, QUO-5, QUO-6, MON-7, END-13.
 */

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MINUTE_MS = 60_000;
/** No zone's clocks are changed twice within this, nor is a calendar day longer. */
const ZONE_CALM_MS = 40 * HOUR_MS;
const PICO_PER_NANO = 1000n;
const TURNS = ["overrun", "within its hold", "without a hold"] as const;

/** What an offering sells. */
export type Terms = {
  days: number;
  dailyLimit: number;
  totalLimit: number;
  carryover: boolean;
  tokenLimit: number | null;
  modelIds: readonly string[] | null;
  timeZone: string;
};

export type ModelPackage = Terms & {
  packageId: number;
  accountId: number;
  startsAtMs: number;
  endsAtMs: number;
  /** What was left when it was ended before its time; null: it was not. */
  unitsDropped: number | null;
  allotmentId: number | null;
};

export type ModelKey = {
  keyId: number;
  accountId: number;
  mode: "package" | "payg";
  status: "enabled" | "disabled" | "revoked";
  modelIds: readonly string[] | null;
  unitsMax: number | null;
  nanoUsdMax: bigint | null;
  timeZone: string;
};

type Account = { accountId: number; resellerId: number | null; active: boolean; paygEnabled: boolean };
type Offering = { offeringId: number; terms: Terms; wholesaleNanoUsd: bigint };
type Allotment = { allotmentId: number; resellerId: number; offeringId: number; granted: number };

/** A request that was let through. */
export type ModelHold = {
  request: ReserveRequest;
  mode: "package" | "payg";
  package: ModelPackage | null;
  /** The day of the reservation, in the package's zone: the one that counts, whenever the request ends. */
  day: string | null;
  /** The same in the key's zone, if the key had a ceiling then. */
  keyDay: string | null;
  nanoUsd: bigint;
  tokens: number;
  capTokens: number | null;
  leaseEndsAtMs: number;
};

/** How it ended. */
export type ModelReceipt = {
  hold: ModelHold;
  outcome: "settled" | "released";
  reason: string;
  units: number;
  chargedNanoUsd: bigint;
  shortfallNanoUsd: bigint;
  tokens: number;
};

export class LedgerModel {
  nowMs: number;
  readonly accounts = new Map<number, Account>();
  readonly keys = new Map<number, ModelKey>();
  readonly offerings = new Map<number, Offering>();
  readonly packages: ModelPackage[] = [];
  readonly allotments: Allotment[] = [];
  /** Money that people moved; what requests cost stands in the receipts. */
  readonly moved: { accountId: number; nanoUsd: bigint }[] = [];
  readonly holds = new Map<string, ModelHold>();
  readonly receipts = new Map<string, ModelReceipt>();

  constructor(nowMs: number) {
    this.nowMs = nowMs;
  }

  // What an account has, counted.

  free(accountId: number): bigint {
    return this.balance(accountId) - this.held(accountId);
  }

  balance(accountId: number): bigint {
    const moved = this.moved.filter((entry) => entry.accountId === accountId).map((entry) => entry.nanoUsd);
    return sum(moved) - sum(this.endedOf(accountId).map((receipt) => receipt.chargedNanoUsd));
  }

  held(accountId: number): bigint {
    return sum(this.liveOf(accountId).map((hold) => hold.nanoUsd));
  }

  activePackage(accountId: number): ModelPackage | undefined {
    return this.packagesOf(accountId).find((p) => p.startsAtMs <= this.nowMs && this.nowMs < p.endsAtMs);
  }

  /** Units of a package, held and used; of one day, or of all days up to one. */
  units(p: ModelPackage, within: (day: string) => boolean = () => true): number {
    const on = (hold: ModelHold) => hold.package === p && hold.day !== null && within(hold.day);
    const held = [...this.holds.values()].filter(on).length;
    return [...this.receipts.values()].filter((receipt) => on(receipt.hold)).reduce((n, { units }) => n + units, held);
  }

  tokens(p: ModelPackage): number {
    const held = [...this.holds.values()].filter((hold) => hold.package === p).reduce((n, hold) => n + hold.tokens, 0);
    return [...this.receipts.values()].filter(({ hold }) => hold.package === p).reduce((n, r) => n + r.tokens, held);
  }

  /** Requests and money of a key on a day, live holds included. */
  keyDay(keyId: number, day: string): { units: number; nanoUsd: bigint } {
    const on = (hold: ModelHold) => hold.request.keyId === keyId && hold.keyDay === day;
    const held = [...this.holds.values()].filter(on);
    const used = [...this.receipts.values()].filter(({ hold, outcome }) => on(hold) && outcome === "settled");
    return {
      units: held.length + used.length,
      nanoUsd: sum(held.map((hold) => hold.nanoUsd)) + sum(used.map((receipt) => receipt.chargedNanoUsd)),
    };
  }

  packagesOf(accountId: number): ModelPackage[] {
    return this.packages.filter((p) => p.accountId === accountId);
  }

  private liveOf(accountId: number): ModelHold[] {
    return [...this.holds.values()].filter((hold) => hold.request.accountId === accountId);
  }

  private endedOf(accountId: number): ModelReceipt[] {
    return [...this.receipts.values()].filter(({ hold }) => hold.request.accountId === accountId);
  }

  // Requests.

  /**
   * Several at once. What ends frees what the new ones may take. Of those that end together, providers that overran come
   * first, and what has no hold any more comes last; else each in the order in which it came.
   */
  batch(input: {
    reserves: readonly ReserveRequest[];
    finishes: readonly Finish[];
    retry: boolean;
    leaseSeconds: number;
  }): BatchOutput {
    const { reserves, finishes, retry, leaseSeconds } = input;
    const finished: FinishResult[] = new Array(finishes.length);
    const turns = finishes.map((finish) => this.turnOf(finish));
    for (const turn of TURNS) {
      for (const [i, finish] of finishes.entries()) if (turns[i] === turn) finished[i] = this.finish(finish);
    }
    return { reserved: reserves.map((request) => this.reserve(request, { retry, leaseSeconds })), finished };
  }

  private turnOf({ requestId, kind, chargeNanoUsd, promptTokens, completionTokens }: Finish): (typeof TURNS)[number] {
    const hold = this.holds.get(requestId);
    if (hold === undefined) return "without a hold";
    const limited = hold.package !== null && hold.package.tokenLimit !== null;
    const overran = chargeNanoUsd > hold.nanoUsd || (limited && promptTokens + completionTokens > hold.tokens);
    return kind === "settle" && overran ? "overrun" : "within its hold";
  }

  private reserve(
    request: ReserveRequest,
    { retry, leaseSeconds }: { retry: boolean; leaseSeconds: number },
  ): ReserveResult {
    const known = this.holds.get(request.requestId);
    if (retry && known !== undefined) return granted(known);
    if (retry && this.receipts.has(request.requestId)) return refused("ended");
    const decision = this.decide(request);
    if ("code" in decision) return decision;
    const hold: ModelHold = { request, ...decision, leaseEndsAtMs: this.nowMs + leaseSeconds * 1000 };
    this.holds.set(request.requestId, hold);
    return granted(hold);
  }

  /** The order of refusals: the key, its model scope, its ceilings, the entitlement. Source: ERR-3. */
  private decide(request: ReserveRequest): ReserveResult | Omit<ModelHold, "request" | "leaseEndsAtMs"> {
    const skewMs = unixMsOf(request.requestId) - this.nowMs;
    if (skewMs < -HOUR_MS || skewMs >= HOUR_MS) return refused("clock_skew");
    const key = this.keys.get(request.keyId);
    const account = this.accounts.get(request.accountId);
    if (key === undefined || account === undefined || key.status !== "enabled" || !this.mayAct(account)) {
      return refused("invalid_api_key");
    }
    if (key.modelIds !== null && !key.modelIds.includes(request.modelId)) return refused("model_not_found");

    const ceiling = this.ceilingOf(key);
    if (ceiling?.unitsLeft !== undefined && ceiling.unitsLeft <= 0) {
      return refused("key_request_limit_exceeded", {
        limit: key.unitsMax,
        used: ceiling.units,
        remaining: 0,
        resetsAt: ceiling.resetsAt,
      });
    }
    const keyDay = ceiling?.day ?? null;
    if (key.mode === "package") {
      const p = this.activePackage(request.accountId);
      const refusal = this.packageRefusal(request, p);
      if (refusal === null && p !== undefined) {
        const tokens = p.tokenLimit === null ? 0 : Math.min(request.tokenBound, p.tokenLimit - this.tokens(p));
        const day = dateIn(p.timeZone, this.nowMs);
        return { mode: "package", package: p, day, keyDay, nanoUsd: 0n, tokens, capTokens: null };
      }
      // The balance steps in only where an admin let it, and there is something on it.
      if (refusal !== null && !(account.paygEnabled && this.balance(request.accountId) > 0n)) return refusal;
    }
    return this.byBalance(request, { account, ceiling, keyDay });
  }

  private mayAct({ active, resellerId }: Account): boolean {
    return active && (resellerId === null || this.accounts.get(resellerId)?.active === true);
  }

  /** What is left of a key's ceilings on its day; undefined: it has none. */
  private ceilingOf({ keyId, unitsMax, nanoUsdMax, timeZone }: ModelKey) {
    if (unitsMax === null && nanoUsdMax === null) return undefined;
    const day = dateIn(timeZone, this.nowMs);
    const { units, nanoUsd } = this.keyDay(keyId, day);
    return {
      day,
      units,
      nanoUsd,
      nanoUsdMax,
      unitsLeft: unitsMax === null ? undefined : unitsMax - units,
      nanoUsdLeft: nanoUsdMax === null ? undefined : nanoUsdMax - nanoUsd,
      resetsAt: toIso(nextDayMs(timeZone, this.nowMs)),
    };
  }

  /** Why the package cannot serve; null: it can. */
  private packageRefusal(request: ReserveRequest, p: ModelPackage | undefined): ReserveResult | null {
    if (p === undefined) {
      const had = this.packagesOf(request.accountId).some((x) => x.startsAtMs < x.endsAtMs && x.endsAtMs <= this.nowMs);
      return refused(had ? "package_expired" : "package_required");
    }
    if (p.modelIds !== null && !p.modelIds.includes(request.modelId)) return refused("model_not_in_package");
    const allowance = this.allowanceOf(p);
    if (allowance.dayLeft <= 0) {
      return refused(p.carryover ? "carryover_quota_exceeded" : "daily_quota_exceeded", {
        limit: allowance.dayLimit,
        used: allowance.dayUsed,
        remaining: 0,
        resetsAt: allowance.resetsAt,
      });
    }
    if (allowance.totalLeft <= 0) {
      return refused("package_quota_exceeded", { limit: p.totalLimit, used: this.units(p), remaining: 0 });
    }
    const tokens = this.tokens(p);
    if (p.tokenLimit !== null && tokens >= p.tokenLimit) {
      return refused("package_tokens_exceeded", { limit: p.tokenLimit, used: tokens, remaining: 0 });
    }
    return null;
  }

  /** Today's allowance of a package, or the accumulated one, and when there is more. */
  allowanceOf(p: ModelPackage) {
    const today = dateIn(p.timeZone, this.nowMs);
    const begun = daysBegun(p, today);
    const dayLimit = p.carryover ? p.dailyLimit * begun : p.dailyLimit;
    const dayUsed = this.units(p, p.carryover ? undefined : (day) => day === today);
    const totalLeft = p.totalLimit - this.units(p);
    const tokensLeft = p.tokenLimit === null ? null : p.tokenLimit - this.tokens(p);
    const dayLeft = dayLimit - dayUsed;
    const midnightMs = nextDayMs(p.timeZone, this.nowMs);
    const granted = p.carryover ? p.dailyLimit * Math.min(begun + 1, p.days) - dayUsed : p.dailyLimit;
    const leftTomorrow = Math.min(totalLeft, granted) - (p.carryover ? Math.min(totalLeft, dayLeft) : 0);
    const isServed = midnightMs < p.endsAtMs && (tokensLeft === null || tokensLeft > 0);
    const leftAtReset = isServed ? leftTomorrow : 0;
    return {
      dayLimit,
      dayUsed,
      dayLeft,
      totalLeft,
      tokensLeft,
      resetsAt: leftAtReset > 0 ? toIso(midnightMs) : null,
      leftAtReset,
    };
  }

  private byBalance(
    request: ReserveRequest,
    {
      account,
      ceiling,
      keyDay,
    }: { account: Account; ceiling: ReturnType<LedgerModel["ceilingOf"]>; keyDay: string | null },
  ): ReserveResult | Omit<ModelHold, "request" | "leaseEndsAtMs"> {
    if (!account.paygEnabled) return refused("package_required");
    if (request.outputPico < 0n) return refused("payg_pricing_unavailable");
    const free = this.free(request.accountId);
    const left = ceiling?.nanoUsdLeft;
    const spendable = left !== undefined && left < free ? left : free;
    const bound = (cap: number) => ceilDivide(request.promptPico + BigInt(cap) * request.outputPico, PICO_PER_NANO);
    let capTokens = request.capMax;
    if (bound(capTokens) > spendable) {
      // A cap that the client did not ask for is the largest that can be paid, but not below the least that makes sense.
      while (capTokens > request.capMin && bound(capTokens) > spendable) capTokens--;
    }
    const nanoUsd = bound(capTokens);
    if (nanoUsd > free) {
      return refused("insufficient_balance", { limit: Number(nanoUsd), remaining: Number(free) });
    }
    if (ceiling !== undefined && nanoUsd > spendable) {
      return refused("key_spend_limit_exceeded", {
        limit: Number(ceiling.nanoUsdMax),
        used: Number(ceiling.nanoUsd),
        remaining: Math.max(Number(spendable), 0),
        resetsAt: ceiling.resetsAt,
      });
    }
    return { mode: "payg", package: null, day: null, keyDay, nanoUsd, tokens: 0, capTokens };
  }

  private finish(finish: Finish): FinishResult {
    const hold = this.holds.get(finish.requestId);
    if (hold === undefined) return this.finishAgain(finish);
    if (finish.kind === "reap" && this.nowMs < hold.leaseEndsAtMs) return ended("alive");
    const extraMax = this.free(hold.request.accountId);
    const tokensLeft =
      hold.package?.tokenLimit == null ? undefined : hold.package.tokenLimit - this.tokens(hold.package);
    this.holds.delete(finish.requestId);
    const receipt: ModelReceipt = {
      hold,
      outcome: "released",
      reason: finish.reason,
      units: 0,
      chargedNanoUsd: 0n,
      shortfallNanoUsd: 0n,
      tokens: 0,
    };
    this.receipts.set(finish.requestId, receipt);
    if (finish.kind !== "settle") return ended("released");

    const coveredNanoUsd = hold.nanoUsd + (hold.mode === "payg" ? extraMax : 0n);
    if (finish.strict && finish.chargeNanoUsd > coveredNanoUsd) {
      receipt.reason = "overrun_refused";
      return ended("refused");
    }
    receipt.outcome = "settled";
    receipt.units = hold.mode === "package" ? 1 : 0;
    // Beyond the hold either the whole rest is taken, or nothing: then the rest is the operator's loss.
    receipt.chargedNanoUsd =
      finish.chargeNanoUsd <= coveredNanoUsd ? finish.chargeNanoUsd : min(finish.chargeNanoUsd, hold.nanoUsd);
    receipt.shortfallNanoUsd = finish.chargeNanoUsd - receipt.chargedNanoUsd;
    const tokens = finish.promptTokens + finish.completionTokens;
    receipt.tokens = tokensLeft === undefined ? tokens : Math.min(tokens, hold.tokens + tokensLeft);
    return ended("settled", receipt);
  }

  /** A request that has no hold any more, or never had one. */
  private finishAgain(finish: Finish): FinishResult {
    const receipt = this.receipts.get(finish.requestId);
    if (receipt === undefined) return ended("unknown");
    if (receipt.outcome === "settled") return ended("already", receipt);
    // What was refused strictly, and delivered all the same since nobody heard of it, comes from the spool, not strict any more.
    const isLate = receipt.reason === "lease_ended" || (receipt.reason === "overrun_refused" && !finish.strict);
    if (finish.kind === "settle" && finish.strict && receipt.reason === "overrun_refused") return ended("refused");
    if (finish.kind !== "settle" || !isLate) return ended("gone");

    // The reaper gave it back. The record is written; units and money as far as they are still there, the rest is a loss.
    const { hold } = receipt;
    const p = hold.package;
    receipt.units = p !== null && hold.day !== null && this.hasRoomOn(p, hold.day) ? 1 : 0;
    let tokens = finish.promptTokens + finish.completionTokens;
    if (p !== null && p.tokenLimit !== null) tokens = Math.min(tokens, p.tokenLimit - this.tokens(p));
    receipt.tokens = p !== null && receipt.units === 0 ? 0 : tokens;
    const free = this.free(hold.request.accountId);
    const taken = finish.chargeNanoUsd <= free ? finish.chargeNanoUsd : min(hold.nanoUsd, free);
    receipt.chargedNanoUsd = p === null ? taken : 0n;
    receipt.shortfallNanoUsd = finish.chargeNanoUsd - receipt.chargedNanoUsd;
    receipt.outcome = "settled";
    receipt.reason = "late";
    return ended("settled", receipt);
  }

  /** Whether one more unit can be counted on a day. What carryover takes on a day is gone on all that follow. */
  private hasRoomOn(p: ModelPackage, day: string): boolean {
    if (this.units(p) >= p.totalLimit) return false;
    if (!p.carryover) return this.units(p, (other) => other === day) < p.dailyLimit;
    const today = dateIn(p.timeZone, this.nowMs);
    for (let at = day; at <= today; at = addDays(at, 1)) {
      if (this.units(p, (other) => other <= at) >= p.dailyLimit * daysBegun(p, at)) return false;
    }
    return true;
  }

  /** Longer leases; one that has ended is not revived. Returns those that were still alive. */
  renew(requestIds: readonly string[], leaseSeconds: number): string[] {
    return requestIds.filter((requestId) => {
      const hold = this.holds.get(requestId);
      if (hold === undefined || hold.leaseEndsAtMs <= this.nowMs) return false;
      hold.leaseEndsAtMs = this.nowMs + leaseSeconds * 1000;
      return true;
    });
  }

  // What people change.

  /** Gives an account a package, whose id the database chose. Returns the code of a refusal, or null. */
  assign(order: {
    accountId: number;
    offeringId: number;
    when: "now" | "after";
    payerId: number | null;
    fromAllotment: boolean;
    packageId: number;
  }): string | null {
    const { accountId, offeringId, when, payerId, fromAllotment, packageId } = order;
    const offering = this.offerings.get(offeringId);
    if (offering === undefined) return "not_found";
    let allotmentId: number | null = null;
    if (fromAllotment) {
      const piece = this.allotments.find(
        (a) => a.resellerId === payerId && a.offeringId === offeringId && this.piecesUsed(a.allotmentId) < a.granted,
      );
      if (piece === undefined) return "allotment_used_up";
      allotmentId = piece.allotmentId;
    } else if (payerId !== null) {
      if (this.free(payerId) < offering.wholesaleNanoUsd) return "insufficient_balance";
      this.moved.push({ accountId: payerId, nanoUsd: -offering.wholesaleNanoUsd });
    }

    const active = this.activePackage(accountId);
    if (when === "now" && active !== undefined) this.cut(active);
    const ends = this.packagesOf(accountId).map((p) => p.endsAtMs);
    const startsAtMs = when === "now" ? this.nowMs : Math.max(this.nowMs, ...ends);
    const { terms } = offering;
    const endsAtMs = daysLaterMs(terms.timeZone, startsAtMs, terms.days);
    const queued = this.queueOf(accountId);
    this.packages.push({ ...terms, packageId, accountId, startsAtMs, endsAtMs, unitsDropped: null, allotmentId });
    if (when === "now") lineUp(queued, endsAtMs);
    return null;
  }

  piecesUsed(allotmentId: number): number {
    return this.packages.filter((p) => p.allotmentId === allotmentId).length;
  }

  /** Ends a package before its time; those behind it move up. False: it has ended. */
  endPackage(p: ModelPackage): boolean {
    if (p.endsAtMs <= this.nowMs) return false;
    this.cut(p);
    lineUp(this.queueOf(p.accountId), this.activePackage(p.accountId)?.endsAtMs ?? this.nowMs);
    return true;
  }

  private cut(p: ModelPackage): void {
    p.unitsDropped = p.totalLimit - this.units(p);
    p.startsAtMs = Math.min(p.startsAtMs, this.nowMs);
    p.endsAtMs = this.nowMs;
  }

  private queueOf(accountId: number): ModelPackage[] {
    const queued = this.packagesOf(accountId).filter((p) => p.startsAtMs > this.nowMs);
    return queued.sort((a, b) => a.startsAtMs - b.startsAtMs || a.packageId - b.packageId);
  }

  /** Adds to a balance, or takes away what is not held. Returns the new balance, null if refused. */
  addBalance(accountId: number, nanoUsd: bigint): bigint | null {
    if (this.free(accountId) + nanoUsd < 0n) return null;
    this.moved.push({ accountId, nanoUsd });
    return this.balance(accountId);
  }

  /** Returns the code of a refusal, or null. */
  transfer(fromId: number, toId: number, nanoUsd: bigint): string | null {
    if (fromId === toId) return "not_found";
    if (this.free(fromId) < nanoUsd) return "insufficient_balance";
    this.moved.push({ accountId: fromId, nanoUsd: -nanoUsd }, { accountId: toId, nanoUsd });
    return null;
  }
}

/** Queued packages stand one behind the other. */
function lineUp(queued: readonly ModelPackage[], fromMs: number): void {
  let startsAtMs = fromMs;
  for (const p of queued) {
    p.startsAtMs = startsAtMs;
    p.endsAtMs = daysLaterMs(p.timeZone, startsAtMs, p.days);
    startsAtMs = p.endsAtMs;
  }
}

/** Calendar days of a package that have begun, at most its own number. */
export function daysBegun({ startsAtMs, timeZone, days }: ModelPackage, today: string): number {
  const firstDay = dateIn(timeZone, startsAtMs);
  return Math.min((Date.parse(today) - Date.parse(firstDay)) / DAY_MS + 1, days);
}

function granted(hold: ModelHold): ReserveResult {
  return { ...refused(null), mode: hold.mode, heldNanoUsd: hold.nanoUsd, capTokens: hold.capTokens };
}

type RefusalFacts = Partial<Pick<ReserveResult, "limit" | "used" | "remaining" | "resetsAt">>;

function refused(code: string | null, facts: RefusalFacts = {}): ReserveResult {
  const nothing = { limit: null, used: null, remaining: null, resetsAt: null };
  return { code, mode: null, heldNanoUsd: 0n, capTokens: null, ...nothing, ...facts };
}

function ended(outcome: FinishResult["outcome"], receipt?: ModelReceipt): FinishResult {
  return {
    outcome,
    chargedNanoUsd: receipt?.chargedNanoUsd ?? 0n,
    shortfallNanoUsd: receipt?.shortfallNanoUsd ?? 0n,
    units: receipt?.units ?? 0,
  };
}

// Calendars, by the runtime's own zones and not the database's.

const formats = new Map<string, Intl.DateTimeFormat>();

/** What a zone's clocks show at an instant, read as if it were UTC. */
export function wallMs(timeZone: string, atMs: number): number {
  let format = formats.get(timeZone);
  if (format === undefined) {
    format = new Intl.DateTimeFormat("sv-SE", { timeZone, dateStyle: "short", timeStyle: "medium" });
    formats.set(timeZone, format);
  }
  return Date.parse(`${format.format(atMs).replace(" ", "T")}Z`) + (((atMs % 1000) + 1000) % 1000);
}

/** The calendar date of a zone at an instant. */
export function dateIn(timeZone: string, atMs: number): string {
  return new Date(wallMs(timeZone, atMs)).toISOString().slice(0, 10);
}

/** The first instant of the zone's next calendar day, whatever its clocks show then. */
export function nextDayMs(timeZone: string, atMs: number): number {
  const today = dateIn(timeZone, atMs);
  let before = Math.floor(atMs / MINUTE_MS);
  let after = before + (2 * ZONE_CALM_MS) / MINUTE_MS;
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (dateIn(timeZone, middle * MINUTE_MS) > today) after = middle;
    else before = middle;
  }
  return after * MINUTE_MS;
}

/**
 * The same time of day that many dates later. A time that the clocks leap over is read by the offset before the leap; of one
 * that they show twice it is the second.
 */
export function daysLaterMs(timeZone: string, atMs: number, days: number): number {
  const wanted = wallMs(timeZone, atMs) + days * DAY_MS;
  const offsets = [-ZONE_CALM_MS, ZONE_CALM_MS].map((ms) => wallMs(timeZone, wanted + ms) - (wanted + ms));
  const instants = offsets.map((offset) => wanted - offset);
  const real = instants.filter((instant) => wallMs(timeZone, instant) === wanted);
  return real.length > 0 ? Math.max(...real) : (instants[0] as number);
}

export function addDays(date: string, days: number): string {
  return new Date(Date.parse(date) + days * DAY_MS).toISOString().slice(0, 10);
}

/** The moment in a UUIDv7. */
export function unixMsOf(requestId: string): number {
  return Number.parseInt(requestId.slice(0, 8) + requestId.slice(9, 13), 16);
}

export function toIso(atMs: number): string {
  return new Date(atMs).toISOString();
}

function sum(amounts: readonly bigint[]): bigint {
  return amounts.reduce((total, amount) => total + amount, 0n);
}

function min(a: bigint, b: bigint): bigint {
  return a < b ? a : b;
}

function ceilDivide(a: bigint, b: bigint): bigint {
  return (a + b - 1n) / b;
}
