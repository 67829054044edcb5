import type {
  BatchInput,
  BatchOutput,
  Draw,
  DrawResult,
  Finish,
  FinishResult,
  ReserveRequest,
  ReserveResult,
} from "../../src/ledger/ledger_store.ts";

/**
 * The ledger's rules in memory, written from the specification and not from the SQL. The property tests compare both. The model has
 * no counters, queue positions, locks or batches. It has lists of holds, ends and balance changes, and counts them again for every
 * question. It has the rows of what replicas have drawn: drawn amounts count as held until they are used or returned.
 * Source: PAY-1, PAY-2, PAY-3, QUO-2, QUO-4, QUO-5, QUO-6, MON-7, END-13.
 */

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;
const MINUTE_MS = 60_000;
/** No zone changes its clocks twice within this time, and no calendar day is longer. */
const ZONE_CALM_MS = 40 * HOUR_MS;
const PICO_PER_NANO = 1000n;
const TURNS = ["within what was drawn", "others"] as const;
const BALANCE_DAY = "-infinity";
/** The number of a row to which the current draw has added. */
const NOT_YET = -1;

/** The terms of an offering. */
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
  endedEarly: boolean;
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

/** A granted request. */
export type ModelHold = {
  request: { requestId: string; accountId: number; keyId: number };
  mode: "package" | "payg";
  package: ModelPackage | null;
  /** The day of the reservation, in the package's zone. It counts, whenever the request ends. */
  day: string | null;
  /** The same in the key's zone, if the key had a daily limit then. */
  keyDay: string | null;
  nanoUsd: bigint;
  tokens: number;
  capTokens: number | null;
  leaseId: string;
};

/** What a lease has drawn of a package's day, of a balance (package null) or for a key with daily limits (keyId above 0). */
export type ModelEscrow = {
  accountId: number;
  leaseId: string;
  package: ModelPackage | null;
  keyId: number;
  day: string;
  drawNumber: number;
  units: number;
  tokens: number;
  nanoUsd: bigint;
  idleUnits: number;
  idleNanoUsd: bigint;
  recalled: boolean;
};

type Decision = Omit<ModelHold, "request" | "leaseId">;
/** The draw that a request is part of. */
type Asking = { draw: Draw; leaseId: string };

/** How it ended. */
export type ModelReceipt = {
  hold: ModelHold;
  /** When it was reserved, as its end says. */
  reservedAtMs: number;
  /** The day of its key for which it was counted afterwards, because the key's limits were set later that day; null: not. */
  countedOn: string | null;
  outcome: "settled" | "released";
  reason: string;
  units: number;
  chargedNanoUsd: bigint;
  shortfallNanoUsd: bigint;
  tokens: number;
};

/** No limit, as key_days has it. */
const NO_UNITS_MAX = 2_147_483_647;
const NO_NANO_MAX = 9_223_372_036_854_775_807n;

export class LedgerModel {
  nowMs: number;
  readonly accounts = new Map<number, Account>();
  readonly keys = new Map<number, ModelKey>();
  readonly offerings = new Map<number, Offering>();
  readonly packages: ModelPackage[] = [];
  readonly allotments: Allotment[] = [];
  /** Balance changes made by people; the receipts have the costs of requests. */
  readonly moved: { accountId: number; nanoUsd: bigint }[] = [];
  /** Requests in flight, as their replicas know them. */
  readonly holds = new Map<string, ModelHold>();
  escrows: ModelEscrow[] = [];
  readonly endedLeases = new Set<string>();
  readonly receipts = new Map<string, ModelReceipt>();
  /** By key and day. */
  private readonly keyDayMax = new Map<string, { units: number; nanoUsd: bigint }>();

  constructor(nowMs: number) {
    this.nowMs = nowMs;
  }

  // The counts of an account.

  free(accountId: number): bigint {
    return this.balance(accountId) - this.drawnNano(accountId);
  }

  drawnNano(accountId: number): bigint {
    return sum(this.escrowsOf(accountId).flatMap((e) => (e.package === null && e.keyId === 0 ? e.nanoUsd : [])));
  }

  idleNano(accountId: number): bigint {
    return sum(this.escrowsOf(accountId).map((e) => min(e.idleNanoUsd, e.nanoUsd)));
  }

  idleUnits(p: ModelPackage, within: (day: string) => boolean = () => true): number {
    return this.escrows.reduce(
      (n, e) => (e.package === p && within(e.day) ? n + Math.min(e.idleUnits, e.units) : n),
      0,
    );
  }

  balance(accountId: number): bigint {
    const moved = this.moved.filter((entry) => entry.accountId === accountId).map((entry) => entry.nanoUsd);
    return sum(moved) - sum(this.endedOf(accountId).map((receipt) => receipt.chargedNanoUsd));
  }

  activePackage(accountId: number): ModelPackage | undefined {
    return this.packagesOf(accountId).find((p) => p.startsAtMs <= this.nowMs && this.nowMs < p.endsAtMs);
  }

  /** Units of a package, drawn and used; of one day, or of all days up to one. */
  units(p: ModelPackage, within: (day: string) => boolean = () => true): number {
    const drawn = this.escrows.reduce((n, e) => (e.package === p && within(e.day) ? n + e.units : n), 0);
    const on = ({ hold }: ModelReceipt) => hold.package === p && hold.day !== null && within(hold.day);
    return [...this.receipts.values()].filter(on).reduce((n, { units }) => n + units, drawn);
  }

  tokens(p: ModelPackage): number {
    return [...this.receipts.values()]
      .filter(({ hold }) => hold.package === p)
      .reduce((n, r) => n + r.tokens, this.tokensDrawn(p));
  }

  private tokensDrawn(p: ModelPackage): number {
    return this.escrows.reduce((n, e) => (e.package === p ? n + e.tokens : n), 0);
  }

  /** Requests and money of a key on a day, with those in flight. */
  keyDay(keyId: number, day: string): { units: number; nanoUsd: bigint } {
    const drawn = this.escrows.filter((e) => e.keyId === keyId && e.day === day);
    const used = [...this.receipts.values()].filter(
      ({ hold, outcome, countedOn }) =>
        hold.request.keyId === keyId && (hold.keyDay ?? countedOn) === day && outcome === "settled",
    );
    return {
      units: drawn.reduce((n, e) => n + e.units, 0) + used.length,
      nanoUsd: sum(drawn.map((e) => e.nanoUsd)) + sum(used.map((receipt) => receipt.chargedNanoUsd)),
    };
  }

  /** The highest limits under which a key reserved something on a day. */
  private raiseKeyDayMax(keyId: number, day: string): void {
    const key = this.keys.get(keyId);
    const before = this.keyDayMax.get(`${keyId} ${day}`) ?? { units: 0, nanoUsd: 0n };
    const [units, nanoUsd] = [key?.unitsMax ?? NO_UNITS_MAX, key?.nanoUsdMax ?? NO_NANO_MAX];
    this.keyDayMax.set(`${keyId} ${day}`, {
      units: Math.max(before.units, units),
      nanoUsd: nanoUsd > before.nanoUsd ? nanoUsd : before.nanoUsd,
    });
  }

  /**
   * Changes the daily limits of a key. What it has used of the day while it had none is counted from now on, and late settlements have
   * what the new limits leave. Source: KEY-9.
   */
  limitKey(key: ModelKey, { unitsMax, nanoUsdMax }: Pick<ModelKey, "unitsMax" | "nanoUsdMax">): void {
    if (key.unitsMax === unitsMax && key.nanoUsdMax === nanoUsdMax) return;
    Object.assign(key, { unitsMax, nanoUsdMax });
    const day = dateIn(key.timeZone, this.nowMs);
    const of = `${key.keyId} ${day}`;
    const isLimited = unitsMax !== null || nanoUsdMax !== null;
    const uncounted = isLimited ? this.uncountedOf(key, day) : [];
    for (const receipt of uncounted) receipt.countedOn = day;
    if (uncounted.length === 0 && !this.keyDayMax.has(of)) return;
    const used = isLimited ? this.keyDay(key.keyId, day) : { units: 0, nanoUsd: 0n };
    const most = { units: unitsMax ?? NO_UNITS_MAX, nanoUsd: nanoUsdMax ?? NO_NANO_MAX };
    this.keyDayMax.set(of, {
      units: Math.max(most.units, used.units),
      nanoUsd: used.nanoUsd > most.nanoUsd ? used.nanoUsd : most.nanoUsd,
    });
  }

  /** What a key used on a day without limits. A late settlement that took nothing used nothing. */
  private uncountedOf({ keyId, timeZone }: ModelKey, day: string): ModelReceipt[] {
    return [...this.receipts.values()].filter(
      ({ hold, outcome, reason, units, chargedNanoUsd, reservedAtMs, countedOn }) =>
        hold.request.keyId === keyId &&
        hold.keyDay === null &&
        countedOn === null &&
        outcome === "settled" &&
        !(reason === "late" && units === 0 && chargedNanoUsd === 0n) &&
        dateIn(timeZone, reservedAtMs) === day,
    );
  }

  /** What a late settlement may take of its key's day. */
  private keyDayLeft({ request: { keyId }, keyDay }: ModelHold): { units: number; nanoUsd: bigint } {
    const highest = keyDay === null ? undefined : this.keyDayMax.get(`${keyId} ${keyDay}`);
    if (keyDay === null || highest === undefined) return { units: NO_UNITS_MAX, nanoUsd: NO_NANO_MAX };
    const { units, nanoUsd } = this.keyDay(keyId, keyDay);
    const left = highest.units - units;
    return { units: left, nanoUsd: left > 0 && highest.nanoUsd > nanoUsd ? highest.nanoUsd - nanoUsd : 0n };
  }

  packagesOf(accountId: number): ModelPackage[] {
    return this.packages.filter((p) => p.accountId === accountId);
  }

  private escrowsOf(accountId: number): ModelEscrow[] {
    return this.escrows.filter((e) => e.accountId === accountId);
  }

  private endedOf(accountId: number): ModelReceipt[] {
    return [...this.receipts.values()].filter(({ hold }) => hold.request.accountId === accountId);
  }

  // Requests.

  /**
   * One batch of a replica. Ends free drawn amounts. Of the ends of one batch, those within the amount drawn for them come first, then
   * the others in the order of their arrival.
   */
  batch(input: BatchInput): BatchOutput {
    const { finishes, idles, draws, reserves, leaseId } = input;
    const finished: FinishResult[] = new Array(finishes.length);
    const seen = new Set<string>();
    const turns = finishes.map((finish) => {
      const isFirst = !seen.has(finish.requestId);
      if (!isFirst || !this.isWithin(finish)) return "others";
      seen.add(finish.requestId);
      return "within what was drawn";
    });
    for (const turn of TURNS) {
      for (const [i, finish] of finishes.entries()) {
        if (turns[i] !== turn) continue;
        finished[i] = this.finish(finish);
        if (turn !== "within what was drawn") continue;
        const escrow = this.escrowFor(finish);
        const idle = idles[i];
        // After a later draw of its lease, an end's idle amount is ignored.
        if (escrow === undefined || idle?.drawNumber !== escrow.drawNumber) continue;
        escrow.idleUnits = Math.min(escrow.idleUnits, idle.units);
        escrow.idleNanoUsd = min(escrow.idleNanoUsd, idle.nanoUsd);
      }
    }
    const codes = draws.map((draw) => this.drawCode(draw, input));
    const recalled = draws.map((draw) => this.ownOf(draw, leaseId).some((e) => e.recalled));
    if (draws.some(({ returns }) => returns))
      for (const [i, draw] of draws.entries()) if (codes[i] === null) this.giveBack(draw, leaseId);
    const reserved: ReserveResult[] = new Array(reserves.length);
    const drawn = draws.map((draw, i) => {
      const isShort = this.decideAll({ draw, code: codes[i] ?? null, reserved, isShort: recalled[i] === true }, input);
      return this.drawAhead(draw, { code: codes[i] ?? null, isShort, recalled: recalled[i] === true }, input);
    });
    return { finished, drawn, reserved };
  }

  /** Whether an end uses no more than was drawn for it, of an escrow that is still there. */
  private isWithin(finish: Finish): boolean {
    if (this.receipts.has(finish.requestId) || this.escrowFor(finish) === undefined) return false;
    const tokens = finish.promptTokens + finish.completionTokens;
    return finish.chargeNanoUsd <= finish.heldNanoUsd && (finish.heldTokens === null || tokens <= finish.heldTokens);
  }

  escrowFor({ accountId, leaseId, packageId, day }: Pick<Finish, "accountId" | "leaseId" | "packageId" | "day">) {
    return this.escrows.find(
      (e) =>
        e.accountId === accountId &&
        e.leaseId === leaseId &&
        (e.package?.packageId ?? 0) === packageId &&
        e.keyId === 0 &&
        e.day === (day ?? BALANCE_DAY),
    );
  }

  private ownOf({ accountId }: Draw, leaseId: string): ModelEscrow[] {
    return this.escrowsOf(accountId).filter((e) => e.leaseId === leaseId);
  }

  /** The reason why a draw does not run; null if it runs. */
  private drawCode(draw: Draw, { leaseId, nowUnixMs }: BatchInput): string | null {
    if (this.endedLeases.has(leaseId)) return "lease_ended";
    if (Math.abs(nowUnixMs - this.nowMs) > HOUR_MS) return "clock_skew";
    return this.ownOf(draw, leaseId).some((e) => draw.number <= e.drawNumber) ? "stale" : null;
  }

  /** Returns what a lease has beyond what its replica keeps. */
  private giveBack(draw: Draw, leaseId: string): void {
    for (const e of this.ownOf(draw, leaseId)) {
      const keep = draw.keeps.find(
        (k) => k.packageId === (e.package?.packageId ?? 0) && k.keyId === e.keyId && k.day === e.day,
      );
      e.units = Math.min(e.units, keep?.units ?? 0);
      e.tokens = Math.min(e.tokens, keep?.tokens ?? 0);
      e.nanoUsd = min(e.nanoUsd, keep?.nanoUsd ?? 0n);
      Object.assign(e, { drawNumber: draw.number, idleUnits: 0, idleNanoUsd: 0n, recalled: false });
    }
  }

  /** Decides the requests of a draw, in their order. Returns whether a request waits for idle units or money. */
  private decideAll(
    { draw, code, reserved, isShort }: { draw: Draw; code: string | null; reserved: ReserveResult[]; isShort: boolean },
    { reserves, leaseId }: BatchInput,
  ): boolean {
    let short = isShort;
    for (const [i, request] of reserves.entries()) {
      if (request.accountId !== draw.accountId) continue;
      const decision = code === null ? this.decide(request, { draw, leaseId }) : refused(code);
      if ("limit" in decision) {
        short ||= decision.code === "recall";
        reserved[i] = decision;
        continue;
      }
      const hold: ModelHold = { request, ...decision, leaseId };
      const { package: p, day, keyDay, nanoUsd, tokens } = hold;
      const units = p === null ? 0 : 1;
      this.add(
        { accountId: draw.accountId, leaseId, package: p, keyId: 0, day: day ?? BALANCE_DAY },
        { units, tokens, nanoUsd },
      );
      if (keyDay !== null) {
        const ofKey = { accountId: draw.accountId, leaseId, package: null, keyId: request.keyId, day: keyDay };
        this.add(ofKey, { units: 1, tokens: 0, nanoUsd });
        this.raiseKeyDayMax(request.keyId, keyDay);
      }
      reserved[i] = granted(hold);
    }
    return short;
  }

  private drawAhead(
    draw: Draw,
    { code, isShort, recalled }: { code: string | null; isShort: boolean; recalled: boolean },
    { leaseId, share }: BatchInput,
  ): DrawResult {
    const { accountId, keeps } = draw;
    const result: DrawResult = {
      ...{ code, packageId: null, day: null, goodMs: 0, modelIds: null, units: 0, nanoUsd: null },
      ...{ epoch: 0, tenantEpoch: 0, recalled, nowUs: this.nowMs * 1000 },
    };
    if (code !== null) return result;
    const touched = new Set(
      keeps.map((k) => {
        const p = this.packages.find(({ packageId }) => packageId === k.packageId) ?? null;
        const of = { accountId, leaseId, package: p, keyId: k.keyId, day: k.day };
        const e = this.add(of, { units: 0, tokens: 0, nanoUsd: 0n });
        Object.assign(e, { idleUnits: k.idleUnits, idleNanoUsd: k.idleNanoUsd });
        return e;
      }),
    );
    for (const e of this.ownOf(draw, leaseId)) {
      if (e.drawNumber !== NOT_YET && !touched.has(e)) continue;
      if (!touched.has(e)) Object.assign(e, { idleUnits: 0, idleNanoUsd: 0n });
      Object.assign(e, { drawNumber: draw.number, recalled: false });
    }
    const account = this.accounts.get(accountId);
    if (account === undefined || !this.mayAct(account)) return result;
    const p = this.activePackage(accountId);
    if (p !== undefined && p.tokenLimit === null) {
      const today = dateIn(p.timeZone, this.nowMs);
      const { dayLeft, totalLeft } = this.allowanceOf(p);
      const units = isShort ? 0 : Math.max(0, Math.min(draw.units, Math.trunc(Math.min(dayLeft, totalLeft) / share)));
      Object.assign(result, { packageId: p.packageId, day: today, modelIds: p.modelIds, units });
      result.goodMs = Math.min(p.endsAtMs, nextDayMs(p.timeZone, this.nowMs)) - this.nowMs;
      if (units > 0) {
        const e = this.add({ accountId, leaseId, package: p, keyId: 0, day: today }, { units, tokens: 0, nanoUsd: 0n });
        Object.assign(e, { idleUnits: e.idleUnits + units, drawNumber: draw.number, recalled: false });
      }
    }
    if (account.paygEnabled) {
      const most = min(draw.nanoUsd, this.free(accountId) / BigInt(share));
      result.nanoUsd = isShort || most < 0n ? 0n : most;
      if (result.nanoUsd > 0n) {
        const of = { accountId, leaseId, package: null, keyId: 0, day: BALANCE_DAY };
        const e = this.add(of, { units: 0, tokens: 0, nanoUsd: result.nanoUsd });
        Object.assign(e, { idleNanoUsd: e.idleNanoUsd + result.nanoUsd, drawNumber: draw.number, recalled: false });
      }
    }
    return result;
  }

  private add(
    of: Pick<ModelEscrow, "accountId" | "leaseId" | "package" | "keyId" | "day">,
    { units, tokens, nanoUsd }: Pick<ModelEscrow, "units" | "tokens" | "nanoUsd">,
  ): ModelEscrow {
    let e = this.escrows.find(
      (x) =>
        x.accountId === of.accountId &&
        x.leaseId === of.leaseId &&
        x.package === of.package &&
        x.keyId === of.keyId &&
        x.day === of.day,
    );
    if (e === undefined) {
      e = {
        ...of,
        ...{ units: 0, tokens: 0, nanoUsd: 0n, idleUnits: 0, idleNanoUsd: 0n, recalled: false },
        drawNumber: 0,
      };
      this.escrows.push(e);
    }
    e.units += units;
    e.tokens += tokens;
    e.nanoUsd += nanoUsd;
    if (units > 0 || nanoUsd > 0n || tokens > 0) e.drawNumber = NOT_YET;
    return e;
  }

  /** Recalls the idle amounts of the other leases. Returns whether any are idle, including this lease's. */
  private recall(accountId: number, p: ModelPackage | null, { draw, leaseId }: Asking): boolean {
    const others = this.escrowsOf(accountId).filter(
      (e) => e.leaseId !== leaseId && e.package === p && (e.idleUnits > 0 || e.idleNanoUsd > 0n),
    );
    for (const e of others) e.recalled = true;
    const own = draw.keeps.some((k) =>
      p === null ? k.idleNanoUsd > 0n : k.packageId === p.packageId && k.idleUnits > 0,
    );
    return others.length > 0 || own;
  }

  /** Returns what ended leases have drawn. */
  reap(): void {
    this.escrows = this.escrows.filter((e) => !this.endedLeases.has(e.leaseId));
  }

  /** The order of refusals: the key, its model scope, its daily limits, the entitlement. Source: ERR-3. */
  private decide(request: ReserveRequest, asking: Asking): ReserveResult | Decision {
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
      const refusal = this.packageRefusal(request, p, asking);
      if (refusal === null && p !== undefined) {
        const day = dateIn(p.timeZone, this.nowMs);
        const { tokens, capTokens } = this.tokensFor(request, p);
        return { mode: "package", package: p, day, keyDay, nanoUsd: 0n, tokens, capTokens };
      }
      // The balance pays only if an admin has enabled it and it is above zero.
      if (refusal?.code === "recall") return refusal;
      if (refusal !== null && !(account.paygEnabled && this.balance(request.accountId) > 0n)) return refusal;
    }
    return this.byBalance(request, { account, ceiling, keyDay, asking });
  }

  private mayAct({ active, resellerId }: Account): boolean {
    return active && (resellerId === null || this.accounts.get(resellerId)?.active === true);
  }

  /** The rest of a key's daily limits on its day; undefined without limits. */
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

  /** The reason why the package cannot serve; null if it can. */
  private packageRefusal(request: ReserveRequest, p: ModelPackage | undefined, asking: Asking): ReserveResult | null {
    if (p === undefined) {
      const had = this.packagesOf(request.accountId).some((x) => x.startsAtMs < x.endsAtMs && x.endsAtMs <= this.nowMs);
      return refused(had ? "package_expired" : "package_required");
    }
    if (p.modelIds !== null && !p.modelIds.includes(request.modelId)) return refused("model_not_in_package");
    const allowance = this.allowanceOf(p);
    if (Math.min(allowance.dayLeft, allowance.totalLeft) <= 0 && this.recall(request.accountId, p, asking))
      return refused("recall");
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
    if (p.tokenLimit === null) return null;
    const used = this.tokens(p);
    const remaining = p.tokenLimit - used;
    const wanted = this.tokensFor(request, p).tokens;
    if (remaining > 0 && wanted <= remaining) return null;
    const isUsedUp = used - this.tokensDrawn(p) >= p.tokenLimit;
    const facts = { limit: p.tokenLimit, used, remaining };
    return refused(isUsedUp ? "package_tokens_exceeded" : "package_tokens_short", facts);
  }

  /** What a request reserves of a token allowance. Without a cap from the client, its output cap is lowered to what is left. */
  private tokensFor(
    { promptTokens, choices, capMax, capMin }: ReserveRequest,
    p: ModelPackage,
  ): { tokens: number; capTokens: number | null } {
    if (p.tokenLimit === null) return { tokens: 0, capTokens: null };
    const left = p.tokenLimit - this.tokens(p);
    let capTokens = capMax;
    while (capTokens > capMin && promptTokens + capTokens * Math.max(choices, 1) > left) capTokens--;
    return { tokens: promptTokens + capTokens * choices, capTokens };
  }

  /** Today's allowance of a package, or the accumulated one, and when there is more. */
  allowanceOf(p: ModelPackage, { asShown = false } = {}) {
    const today = dateIn(p.timeZone, this.nowMs);
    // Idle amounts of replicas are shown as left.
    const idle = (within?: (day: string) => boolean) => (asShown ? this.idleUnits(p, within) : 0);
    const begun = daysBegun(p, today);
    const dayLimit = p.carryover ? p.dailyLimit * begun : p.dailyLimit;
    const within = p.carryover ? undefined : (day: string) => day === today;
    const dayUsed = this.units(p, within) - idle(within);
    const totalLeft = p.totalLimit - this.units(p) + idle();
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
      asking,
    }: { account: Account; ceiling: ReturnType<LedgerModel["ceilingOf"]>; keyDay: string | null; asking: Asking },
  ): ReserveResult | Decision {
    if (!account.paygEnabled) return refused("package_required");
    if (request.outputPico < 0n) return refused("payg_pricing_unavailable");
    const free = this.free(request.accountId);
    const left = ceiling?.nanoUsdLeft;
    const spendable = left !== undefined && left < free ? left : free;
    const bound = (cap: number) => ceilDivide(request.promptPico + BigInt(cap) * request.outputPico, PICO_PER_NANO);
    let capTokens = request.capMax;
    if (bound(capTokens) > free && this.recall(request.accountId, null, asking)) return refused("recall");
    if (bound(capTokens) > spendable) {
      // Without a cap from the client, the cap is the largest that can be paid, but not below the minimum.
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
    const before = this.receipts.get(finish.requestId);
    const escrow = this.escrowFor(finish);
    if (before !== undefined || escrow === undefined) return this.finishAgain(finish, before);
    const hold = this.holdOf(finish);
    const isMoney = finish.packageId === 0;
    const extraMax = this.free(finish.accountId);
    if (finish.settles && this.recallFor(finish, { isLive: true })) return ended("recall");
    const tokensLeft =
      hold.package?.tokenLimit == null ? undefined : hold.package.tokenLimit - this.tokens(hold.package);
    this.holds.delete(finish.requestId);
    this.takeBack(escrow, { units: isMoney ? 0 : 1, tokens: hold.tokens, nanoUsd: hold.nanoUsd });
    const ofKey = this.escrows.find(
      (e) => e.leaseId === finish.leaseId && e.keyId === finish.keyId && e.day === finish.keyDay,
    );
    if (ofKey !== undefined) this.takeBack(ofKey, { units: 1, tokens: 0, nanoUsd: hold.nanoUsd });
    const receipt: ModelReceipt = {
      hold,
      ...this.beganAs(finish),
      outcome: "released",
      reason: finish.reason,
      units: 0,
      chargedNanoUsd: 0n,
      shortfallNanoUsd: 0n,
      tokens: 0,
    };
    this.receipts.set(finish.requestId, receipt);
    if (!finish.settles) return ended("released");

    const coveredNanoUsd = hold.nanoUsd + (hold.mode === "payg" ? extraMax : 0n);
    if (finish.strict && finish.chargeNanoUsd > coveredNanoUsd) {
      receipt.reason = "overrun_refused";
      receipt.shortfallNanoUsd = finish.chargeNanoUsd;
      return ended("refused", receipt);
    }
    receipt.outcome = "settled";
    receipt.units = hold.mode === "package" ? 1 : 0;
    // The charge above the hold is taken whole or not at all; then it is the operator's loss.
    receipt.chargedNanoUsd =
      finish.chargeNanoUsd <= coveredNanoUsd ? finish.chargeNanoUsd : min(finish.chargeNanoUsd, hold.nanoUsd);
    receipt.shortfallNanoUsd = finish.chargeNanoUsd - receipt.chargedNanoUsd;
    const tokens = finish.promptTokens + finish.completionTokens;
    receipt.tokens = tokensLeft === undefined ? tokens : Math.min(tokens, hold.tokens + tokensLeft);
    return ended("settled", receipt, tokens);
  }

  private beganAs({ reservedAtUs }: Finish): Pick<ModelReceipt, "reservedAtMs" | "countedOn"> {
    return { reservedAtMs: Math.min(this.nowMs, reservedAtUs / 1000), countedOn: null };
  }

  private takeBack(escrow: ModelEscrow, { units, tokens, nanoUsd }: Pick<ModelEscrow, "units" | "tokens" | "nanoUsd">) {
    escrow.units -= units;
    escrow.tokens -= tokens;
    escrow.nanoUsd -= nanoUsd;
  }

  /** The data of an end about its request. */
  private holdOf(finish: Finish): ModelHold {
    const p = this.packages.find(({ packageId }) => packageId === finish.packageId) ?? null;
    return {
      ...{ request: finish, mode: p === null ? "payg" : "package", package: p, day: finish.day, keyDay: finish.keyDay },
      ...{ nanoUsd: finish.heldNanoUsd, tokens: finish.heldTokens ?? 0, capTokens: finish.capTokens },
      leaseId: finish.leaseId,
    };
  }

  /** A request that has ended, or whose escrow the reaper has returned. */
  private finishAgain(finish: Finish, before: ModelReceipt | undefined): FinishResult {
    if (before?.outcome === "settled") return ended("already", before);
    // A strict refusal whose answer was lost: the response was delivered, so the spool settles it, no longer strictly.
    if (before?.reason === "overrun_refused" && finish.settles && finish.strict) return ended("refused");
    if (!finish.settles || (before !== undefined && before.reason !== "overrun_refused")) return ended("gone");
    if (this.recallFor(finish, { isLive: false })) return ended("recall");

    this.holds.delete(finish.requestId);
    const found = before?.hold ?? this.holdOf(finish);
    const keyLeft = this.keyDayLeft(found);
    // Without a unit of its key it takes nothing, and counts towards no limit of the key.
    const hold = keyLeft.units > 0 ? found : { ...found, keyDay: null };
    const receipt: ModelReceipt = before ?? {
      ...{ hold, outcome: "released", reason: "late", units: 0, chargedNanoUsd: 0n, shortfallNanoUsd: 0n, tokens: 0 },
      ...this.beganAs(finish),
    };
    this.receipts.set(finish.requestId, receipt);
    // The reaper has returned it. The record is written; units and money are taken as far as available, the rest is a loss.
    const p = hold.package;
    receipt.hold = hold;
    receipt.units = p !== null && hold.day !== null && keyLeft.units > 0 && this.hasRoomOn(p, hold.day) ? 1 : 0;
    const used = finish.promptTokens + finish.completionTokens;
    let tokens = used;
    if (p !== null && p.tokenLimit !== null) tokens = Math.min(tokens, p.tokenLimit - this.tokens(p));
    receipt.tokens = p !== null && receipt.units === 0 ? 0 : tokens;
    const free = this.free(hold.request.accountId);
    const taken = finish.chargeNanoUsd <= free ? finish.chargeNanoUsd : min(hold.nanoUsd, free);
    receipt.chargedNanoUsd = p === null ? min(taken, keyLeft.nanoUsd) : 0n;
    receipt.shortfallNanoUsd = finish.chargeNanoUsd - receipt.chargedNanoUsd;
    receipt.outcome = "settled";
    receipt.reason = "late";
    return ended("settled", receipt, used);
  }

  /**
   * No loss, no refusal and no free unit while money or units are idle: the settlement waits for them. isLive: what was drawn for the
   * request is still there. Source: ESC-2, END-13.
   */
  private recallFor(finish: Finish, { isLive }: { isLive: boolean }): boolean {
    const { package: p, day, nanoUsd } = this.holdOf(finish);
    const isShort =
      p === null
        ? finish.chargeNanoUsd > this.free(finish.accountId) + (isLive ? nanoUsd : 0n)
        : !isLive && day !== null && !this.hasRoomOn(p, day);
    if (!isShort) return false;
    const idle = this.escrowsOf(finish.accountId).filter(
      (e) => e.package === p && (e.idleUnits > 0 || e.idleNanoUsd > 0n),
    );
    for (const e of idle) if (e.leaseId !== finish.leaseId) e.recalled = true;
    return idle.length > 0;
  }

  /** Whether one more unit can be counted on a day. With carryover, a unit used on a day is missing on all later days. */
  private hasRoomOn(p: ModelPackage, day: string): boolean {
    if (this.units(p) >= p.totalLimit) return false;
    if (!p.carryover) return this.units(p, (other) => other === day) < p.dailyLimit;
    const today = dateIn(p.timeZone, this.nowMs);
    for (let at = day; at <= today; at = addDays(at, 1)) {
      if (this.units(p, (other) => other <= at) >= p.dailyLimit * daysBegun(p, at)) return false;
    }
    return true;
  }

  // Changes made by people.

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
    this.packages.push({ ...terms, packageId, accountId, startsAtMs, endsAtMs, endedEarly: false, allotmentId });
    if (when === "now") lineUp(queued, endsAtMs);
    return null;
  }

  piecesUsed(allotmentId: number): number {
    return this.packages.filter((p) => p.allotmentId === allotmentId).length;
  }

  /** Ends a package early; the packages after it move up. False if it has already ended. */
  endPackage(p: ModelPackage): boolean {
    if (p.endsAtMs <= this.nowMs) return false;
    this.cut(p);
    lineUp(this.queueOf(p.accountId), this.activePackage(p.accountId)?.endsAtMs ?? this.nowMs);
    return true;
  }

  private cut(p: ModelPackage): void {
    p.endedEarly = true;
    p.startsAtMs = Math.min(p.startsAtMs, this.nowMs);
    p.endsAtMs = this.nowMs;
  }

  private queueOf(accountId: number): ModelPackage[] {
    const queued = this.packagesOf(accountId).filter((p) => p.startsAtMs > this.nowMs);
    return queued.sort((a, b) => a.startsAtMs - b.startsAtMs || a.packageId - b.packageId);
  }

  /** Adds to a balance, or takes from its available part. Returns the new balance, null if refused. */
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

/** Queued packages follow each other. */
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

function granted({ package: p, day, keyDay, nanoUsd, tokens, capTokens }: ModelHold): ReserveResult {
  const heldTokens = p === null || p.tokenLimit === null ? null : tokens;
  return {
    ...refused(null),
    packageId: p?.packageId ?? null,
    day,
    keyDay,
    heldNanoUsd: nanoUsd,
    heldTokens,
    capTokens,
  };
}

type RefusalFacts = Partial<Pick<ReserveResult, "limit" | "used" | "remaining" | "resetsAt">>;

function refused(code: string | null, facts: RefusalFacts = {}): ReserveResult {
  const nothing = { limit: null, used: null, remaining: null, resetsAt: null };
  const drawn = { packageId: null, day: null, keyDay: null, heldNanoUsd: 0n, heldTokens: null, capTokens: null };
  return { code, ...drawn, ...nothing, ...facts };
}

function ended(outcome: FinishResult["outcome"], receipt?: ModelReceipt, usedTokens?: number): FinishResult {
  return {
    outcome,
    chargedNanoUsd: receipt?.chargedNanoUsd ?? 0n,
    shortfallNanoUsd: receipt?.shortfallNanoUsd ?? 0n,
    units: receipt?.units ?? 0,
    unpaidTokens: receipt?.hold.mode === "package" && usedTokens !== undefined ? usedTokens - receipt.tokens : 0,
  };
}

// Calendars, by the runtime's time zones and not the database's.

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

/** The first instant of the zone's next calendar day, at any local time. */
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
 * The same time of day, this many dates later. A time that the clocks skip is read by the offset before the change. Of a time that
 * occurs twice, it is the second.
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
