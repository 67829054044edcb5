import { randomUUID } from "node:crypto";
import { ESCROW_VALID_MS } from "../platform/changes_store.ts";
import type { Hold } from "./ledger.ts";
import type { Draw, Drawn, DrawResult, Finish, Idle, Keep, ReserveRequest, ReserveResult } from "./ledger_store.ts";
import { RefusalMemory } from "./refusal_memory.ts";

/**
 * What this replica has drawn of each account, in memory. README.md explains escrow; `ledger_draw` in SQL decides what may be drawn.
 *
 * The database's row says what is drawn. Each unit of it is here in one of two places: *busy* (a request in flight, or its end on the
 * way) or *idle* (a request may be granted it at once). A draw tells the database how much of both is kept, so what this file does not
 * know of goes back. While a draw is under way, idle units that it does not keep are nowhere. Source: ESC-1, ESC-3, ESC-5, ESC-6.
 */

/** Idle units are renewed, or returned, at this age. */
const RENEW_MS = ESCROW_VALID_MS / 2;
/** An account without a request for this long keeps nothing idle. */
const QUIET_MS = 1_000;
/** After another replica asked for idle units, nothing is drawn ahead for this long. */
const RECALLED_MS = 1_000;
/** After a draw gave nothing ahead, because the limit is near. */
const NEAR_LIMIT_MS = 100;
/** The wall clock and the monotonic clock differ by more than this since the draw: the machine was suspended meanwhile. */
const DRIFT_MAX_MS = 1_000;
/** Use of an account is measured over the present and the last window. */
const WINDOW_MS = 500;
const BALANCE_DAY = "-infinity";

type Clocks = {
  /** Monotonic, in ms. */
  nowMs: () => number;
  /** The machine's clock: Unix time in ms. Only whether it agrees with the monotonic clock matters. */
  wallMs: () => number;
};

export type EscrowOptions = Clocks & {
  leaseMs: number;
  /** The most units that are drawn ahead for an account; 0: none, so that the database decides about every request. */
  unitsMax: number;
};

/** An escrow row, as this replica accounts for it. */
class Part {
  busyUnits = 0;
  busyTokens = 0;
  busyNano = 0n;
  idleUnits = 0;
  idleNano = 0n;
  readonly packageId: number;
  readonly keyId: number;
  readonly day: string;

  constructor(packageId: number, keyId: number, day: string) {
    this.packageId = packageId;
    this.keyId = keyId;
    this.day = day;
  }

  get isEmpty(): boolean {
    return this.busyUnits === 0 && this.busyTokens === 0 && this.busyNano === 0n && !this.hasIdle;
  }

  get hasIdle(): boolean {
    return this.idleUnits > 0 || this.idleNano > 0n;
  }
}

type Use = { requests: number; units: number; nano: bigint };

/** What a package gives at once, as the last draw said. */
type Package = { part: Part; modelIds: ReadonlySet<string> | null; untilMs: number };

class Account {
  readonly accountId: number;
  /** 0: none, or not known before the first request. */
  tenantId: number;
  readonly parts = new Map<string, Part>();
  package: Package | undefined;
  balance: Part | undefined;
  epoch = 0;
  tenantEpoch = 0;
  /** Until when idle units may be granted, by the monotonic clock, unless the clocks have drifted apart since. */
  validUntilMs = 0;
  drawnMs = 0;
  /** The number of the last draw that was answered in time; 0: none. A lost one may have run since. */
  answeredNumber = 0;
  /** The database's clock in the last draw, Unix time in microseconds; and when its answer was read here. */
  databaseUs = 0;
  answeredMs = 0;
  clockDifferenceMs = 0;
  drawClockDifferenceMs = 0;
  /** The rights of the account have changed: nothing is granted before the next draw. */
  isStale = false;
  /** A draw is under way. */
  isDrawing = false;
  /** A draw got no answer, or more was drawn than this file accounts for: the next draw gives it back. */
  isUnknown = false;
  /** The draw under way keeps more than is needed, to be safe. */
  keepsMore = false;
  /** At the last comparison the database had more than is accounted for here. */
  hadMore = false;
  /** What is idle has to go back. */
  isRecalled = false;
  /** Until then nothing is drawn ahead. */
  noneAheadUntilMs = Number.NEGATIVE_INFINITY;
  /** The database believes that something may be idle here. */
  isIdleKnown = false;
  readonly refusals = new RefusalMemory();
  usedMs: number;
  #windowMs: number;
  /** What was used in the present window, and in the last one. */
  #now: Use = { requests: 0, units: 0, nano: 0n };
  #before: Use = { requests: 0, units: 0, nano: 0n };

  constructor(accountId: number, tenantId: number, nowMs: number) {
    this.accountId = accountId;
    this.tenantId = tenantId;
    this.usedMs = nowMs;
    this.#windowMs = nowMs;
  }

  partOf(packageId: number, keyId: number, day: string): Part {
    const name = `${packageId} ${keyId} ${day}`;
    let part = this.parts.get(name);
    if (part === undefined) {
      part = new Part(packageId, keyId, day);
      this.parts.set(name, part);
    }
    return part;
  }

  /** Notes a granted request, for the size of the next draw. */
  note(units: number, nano: bigint, nowMs: number): void {
    this.usedMs = nowMs;
    this.#turn(nowMs);
    this.#now.requests++;
    this.#now.units += units;
    this.#now.nano += nano;
  }

  /** What was used in the present and the last window. */
  used(nowMs: number): Use {
    this.#turn(nowMs);
    const [now, before] = [this.#now, this.#before];
    return { requests: now.requests + before.requests, units: now.units + before.units, nano: now.nano + before.nano };
  }

  #turn(nowMs: number): void {
    const ageMs = nowMs - this.#windowMs;
    if (ageMs < WINDOW_MS) return;
    this.#before = ageMs < 2 * WINDOW_MS ? this.#now : { requests: 0, units: 0, nano: 0n };
    this.#now = { requests: 0, units: 0, nano: 0n };
    this.#windowMs = nowMs;
  }

  get hasIdle(): boolean {
    for (const part of this.parts.values()) if (part.hasIdle) return true;
    return false;
  }

  dropIdle(): void {
    for (const part of this.parts.values()) {
      part.idleUnits = 0;
      part.idleNano = 0n;
    }
  }
}

export class Escrow {
  readonly #options: EscrowOptions;
  readonly #accounts = new Map<number, Account>();
  /** The requests that are busy, under the present lease. The spool may send the end of a request more than once. */
  readonly #busy = new Set<string>();
  #leaseId: string = randomUUID();
  #leaseUntilMs = Number.NEGATIVE_INFINITY;
  #drawNumber = 0;
  #isClosed = false;

  constructor(options: EscrowOptions) {
    this.#options = options;
  }

  get leaseId(): string {
    return this.#leaseId;
  }

  /** Whether the database knows of the lease. */
  get isLeaseTaken(): boolean {
    return this.#leaseUntilMs > Number.NEGATIVE_INFINITY;
  }

  /** The lease was taken or renewed by a statement that was sent at `sentMs`. */
  leaseRenewed(leaseId: string, sentMs: number): void {
    if (leaseId === this.#leaseId) this.#leaseUntilMs = Math.max(this.#leaseUntilMs, sentMs + this.#options.leaseMs);
  }

  /** A lease has ended: what was drawn under it is not ours any more. Requests in flight end under their own lease. */
  leaseEnded(leaseId: string): void {
    if (leaseId !== this.#leaseId) return;
    this.#accounts.clear();
    this.#busy.clear();
    this.#leaseId = randomUUID();
    this.#leaseUntilMs = Number.NEGATIVE_INFINITY;
  }

  /** Whether this process may hold anything now. */
  isLeased(): boolean {
    return this.#options.nowMs() < this.#leaseUntilMs;
  }

  /** Whether what the database granted may still be used: the answer may have been handled long after it was given. */
  isTimely({ leaseId, sentMs, sentUnixMs }: { leaseId: string; sentMs: number; sentUnixMs: number }): boolean {
    const nowMs = this.#options.nowMs();
    const driftMs = this.#options.wallMs() - sentUnixMs - (nowMs - sentMs);
    return this.isAlive(leaseId) && nowMs < sentMs + ESCROW_VALID_MS && Math.abs(driftMs) <= DRIFT_MAX_MS;
  }

  isAlive(leaseId: string): boolean {
    return leaseId === this.#leaseId && this.#options.nowMs() < this.#leaseUntilMs;
  }

  /** Grants a request from what is idle; undefined: the database has to decide. */
  grant(request: ReserveRequest): Hold | undefined {
    const { known } = request;
    const account = this.#accounts.get(request.accountId);
    if (known === null || account === undefined) return undefined;
    const nowMs = this.#options.nowMs();
    if (known.epoch < account.epoch || known.tenantEpoch < account.tenantEpoch || !this.#isValid(account, nowMs))
      return undefined;
    return known.mode === "package"
      ? this.#grantUnit(request, account, nowMs)
      : this.#grantMoney(request, account, nowMs);
  }

  #isValid(account: Account, nowMs: number): boolean {
    if (account.isStale || nowMs >= account.validUntilMs || nowMs >= this.#leaseUntilMs) return false;
    return Math.abs(this.#options.wallMs() - nowMs - account.clockDifferenceMs) <= DRIFT_MAX_MS;
  }

  #grantUnit(request: ReserveRequest, account: Account, nowMs: number): Hold | undefined {
    const { package: active } = account;
    if (active === undefined || active.part.idleUnits === 0 || nowMs >= active.untilMs) return undefined;
    if (active.modelIds !== null && !active.modelIds.has(request.modelId)) return undefined;
    active.part.idleUnits--;
    active.part.busyUnits++;
    account.note(1, 0n, nowMs);
    return this.#holdOf(
      request,
      this.#drawn(account, nowMs, {
        packageId: active.part.packageId,
        day: active.part.day,
        heldNanoUsd: 0n,
        capTokens: capSent(request),
      }),
    );
  }

  #grantMoney(request: ReserveRequest, account: Account, nowMs: number): Hold | undefined {
    const { balance } = account;
    if (balance === undefined || balance.idleNano === 0n || request.outputPico < 0n) return undefined;
    const nano = (request.promptPico + BigInt(request.capMax) * request.outputPico + 999n) / 1000n;
    if (nano > balance.idleNano) return undefined;
    balance.idleNano -= nano;
    balance.busyNano += nano;
    account.note(0, nano, nowMs);
    return this.#holdOf(
      request,
      this.#drawn(account, nowMs, { packageId: 0, day: null, heldNanoUsd: nano, capTokens: request.capMax }),
    );
  }

  /** The database's clock is counted on from its last answer: so a request is never noted later than it was granted. */
  #drawn(
    { databaseUs, answeredMs }: Account,
    nowMs: number,
    drawn: Pick<Terms, "packageId" | "day" | "heldNanoUsd" | "capTokens">,
  ): Terms {
    const reservedAtUs = databaseUs + Math.floor((nowMs - answeredMs) * 1000);
    return { ...drawn, leaseId: this.#leaseId, keyDay: null, heldTokens: null, reservedAtUs };
  }

  /** Accounts for a request that the database granted in the last draw, under the present lease. */
  granted(request: ReserveRequest, result: ReserveResult): Hold {
    const { packageId, day, keyDay, heldNanoUsd, heldTokens } = result;
    const capTokens = result.capTokens ?? capSent(request);
    const terms = { packageId: packageId ?? 0, day, keyDay, heldNanoUsd, heldTokens, capTokens };
    const account = this.#accountOf(request.accountId, request.tenantId);
    const hold = this.#holdOf(request, { ...terms, leaseId: this.#leaseId, reservedAtUs: account.databaseUs });
    addBusy(account, hold, 1);
    // Only what could have been granted from here counts for how much is drawn ahead.
    const isMeasured = request.known !== null && keyDay === null && heldTokens === null;
    if (isMeasured) account.note(hold.packageId > 0 ? 1 : 0, heldNanoUsd, this.#options.nowMs());
    return hold;
  }

  /** The database granted a request that nobody waits for any more. */
  unwanted(accountId: number): void {
    const account = this.#accounts.get(accountId);
    if (account) account.isUnknown = true;
  }

  /** The hold of a request that was granted under the present lease. */
  #holdOf(request: ReserveRequest, terms: Terms): Hold {
    this.#busy.add(request.requestId);
    return holdOf(request, terms);
  }

  /**
   * The end of a hold is in the database; told more than once, it counts once. `isGone`: it found nothing to end, so what was drawn goes
   * back with the next draw.
   */
  ended(hold: Drawn, isGone: boolean): void {
    const account = this.#accounts.get(hold.accountId);
    if (account === undefined || hold.leaseId !== this.#leaseId) return;
    if (this.#busy.delete(hold.requestId)) addBusy(account, hold, -1);
    if (isGone) account.isUnknown = true;
  }

  /** What is idle now in the escrow row that gives a hold. */
  idleOf({ accountId, leaseId, packageId, day }: Pick<Drawn, "accountId" | "leaseId" | "packageId" | "day">): Idle {
    const account = leaseId === this.#leaseId ? this.#accounts.get(accountId) : undefined;
    const part = account?.parts.get(`${packageId} 0 ${day ?? BALANCE_DAY}`);
    return {
      drawNumber: account?.answeredNumber ?? 0,
      units: part?.idleUnits ?? 0,
      nanoUsd: part?.idleNano ?? 0n,
    };
  }

  /**
   * Rights of these accounts, or of customers of these resellers, have changed, or may have: nothing is granted before the next draw.
   * One pass, however many accounts changed.
   */
  accountsChanged(ids: ReadonlySet<number>): void {
    if (ids.size === 0) return;
    for (const account of this.#accounts.values()) {
      if (!ids.has(account.accountId) && !ids.has(account.tenantId)) continue;
      account.isStale = true;
      account.refusals.invalidate();
    }
  }

  allChanged(): void {
    for (const account of this.#accounts.values()) account.isStale = true;
    this.invalidateRefusals();
  }

  /** What was refused a moment ago, of the account of a request. */
  refusalsOf({ accountId, tenantId }: Pick<ReserveRequest, "accountId" | "tenantId">): RefusalMemory {
    return this.#accountOf(accountId, tenantId).refusals;
  }

  /** Of one account something came back; without one, of any. */
  invalidateRefusals(accountId?: number): void {
    const accounts = accountId === undefined ? this.#accounts.values() : [this.#accounts.get(accountId)];
    for (const account of accounts) account?.refusals.invalidate();
  }

  /** Another replica, or a request here, needs what is idle. */
  recall(accountId: number): void {
    const account = this.#accounts.get(accountId);
    if (account === undefined) return;
    account.isRecalled = true;
    account.noneAheadUntilMs = this.#options.nowMs() + RECALLED_MS;
  }

  /** Accounts that need a draw now, though no request asks for one. Forgets accounts that nothing is known of any more. */
  due(): number[] {
    const nowMs = this.#options.nowMs();
    const due: number[] = [];
    for (const account of this.#accounts.values()) {
      if (this.#needsDraw(account, nowMs)) due.push(account.accountId);
      else if (isForgotten(account, nowMs)) this.#accounts.delete(account.accountId);
    }
    return due;
  }

  #needsDraw(account: Account, nowMs: number): boolean {
    if (account.isDrawing) return false;
    if (account.isUnknown) return true;
    if (!account.isIdleKnown) return false;
    const isQuiet = nowMs - account.usedMs >= QUIET_MS;
    return account.isStale || account.isRecalled || isQuiet || nowMs - account.drawnMs >= RENEW_MS;
  }

  /** Whether a batch that has rows of the account anyway should draw for it too. */
  wantsDraw(accountId: number): boolean {
    const account = this.#accounts.get(accountId);
    if (account === undefined) return false;
    const nowMs = this.#options.nowMs();
    if (this.#needsDraw(account, nowMs)) return true;
    const target = this.#target(account, nowMs);
    return (
      (account.package !== undefined && account.package.part.idleUnits < target.units / 2) ||
      (account.balance !== undefined && account.balance.idleNano < target.nano / 2n)
    );
  }

  /** How much should be idle: twice what was used lately. Nothing for an account that is hardly used. */
  #target(account: Account, nowMs: number): { units: number; nano: bigint } {
    const { unitsMax } = this.#options;
    if (this.#isClosed || unitsMax === 0 || nowMs < account.noneAheadUntilMs) return { units: 0, nano: 0n };
    const { requests, units, nano } = account.used(nowMs);
    return requests < 2 ? { units: 0, nano: 0n } : { units: Math.min(unitsMax, units * 2), nano: nano * 2n };
  }

  /** The next draw of an account. `finishes`: the ends in the same batch, which the database applies first. */
  compose(accountId: number, tenantId: number, finishes: readonly Finish[]): Draw {
    const nowMs = this.#options.nowMs();
    const account = this.#accountOf(accountId, tenantId);
    const isQuiet = nowMs - account.usedMs >= QUIET_MS;
    const isOver = this.#isClosed || isQuiet || account.isStale || account.isRecalled || !this.#isValid(account, nowMs);
    const returns = account.isUnknown || (isOver && account.isIdleKnown);
    if (isOver) account.dropIdle();
    const target = isQuiet ? { units: 0, nano: 0n } : this.#target(account, nowMs);
    const idleUnits = account.package?.part.idleUnits ?? 0;
    const idleNano = account.balance?.idleNano ?? 0n;
    // Whatever happens while this draw is under way needs another one.
    account.isUnknown = false;
    account.isStale = false;
    account.isRecalled = false;
    account.isDrawing = true;
    const ending = finishes.filter((finish) => this.#busy.has(finish.requestId) && !mayWait(finish));
    account.keepsMore = finishes.some(mayWait);
    account.drawClockDifferenceMs = this.#options.wallMs() - nowMs;
    return {
      accountId,
      tenantId: account.tenantId,
      number: ++this.#drawNumber,
      units: Math.max(0, target.units - idleUnits),
      nanoUsd: target.nano > idleNano ? target.nano - idleNano : 0n,
      knownEpoch: account.epoch,
      returns,
      keeps: keepsOf(account, ending),
    };
  }

  /** A draw has no answer, and if it gets one, that is ignored. */
  lost({ accountId }: Draw): void {
    const account = this.#accounts.get(accountId);
    if (account === undefined) return;
    account.isDrawing = false;
    account.isUnknown = true;
    // A row carries the number of the next draw, also if that is refused: then this one can no longer run.
    if (account.parts.size === 0) account.partOf(0, 0, BALANCE_DAY);
  }

  /** The answer to a draw that was sent at `sentMs` under a lease. */
  drawn(draw: Draw, result: DrawResult, { sentMs, leaseId }: { sentMs: number; leaseId: string }): void {
    const account = this.#accounts.get(draw.accountId);
    if (account === undefined || leaseId !== this.#leaseId) return;
    account.isDrawing = false;
    if (result.code !== null) {
      account.isUnknown = true;
      return;
    }
    // What was kept was granted by former rights, perhaps: it goes back, and the change waits for that.
    const wasKept = draw.keeps.some((keep) => keep.idleUnits > 0 || keep.idleNanoUsd > 0n);
    if (wasKept && result.epoch > draw.knownEpoch) account.isStale = true;
    if (account.keepsMore) account.isUnknown = true;
    account.epoch = result.epoch;
    account.tenantEpoch = result.tenantEpoch;
    account.drawnMs = sentMs;
    account.answeredNumber = draw.number;
    account.databaseUs = result.nowUs;
    account.answeredMs = this.#options.nowMs();
    account.validUntilMs = sentMs + ESCROW_VALID_MS;
    account.clockDifferenceMs = account.drawClockDifferenceMs;
    account.package = undefined;
    account.balance = undefined;
    if (result.packageId !== null && result.day !== null) {
      const part = account.partOf(result.packageId, 0, result.day);
      part.idleUnits += result.units;
      const modelIds = result.modelIds && new Set(result.modelIds);
      account.package = { part, modelIds, untilMs: sentMs + result.goodMs };
    }
    if (result.nanoUsd !== null) {
      const part = account.partOf(0, 0, BALANCE_DAY);
      part.idleNano += result.nanoUsd;
      account.balance = part;
    }
    account.isIdleKnown = wasKept || result.units > 0 || (result.nanoUsd ?? 0n) > 0n;
    if (draw.units > 0 && result.units === 0 && draw.nanoUsd === 0n) account.noneAheadUntilMs = sentMs + NEAR_LIMIT_MS;
    if (result.recalled) this.recall(account.accountId);
    this.#tidy(account, draw);
  }

  /** Idle units of a package or day that is over, or of a balance that may not pay, go back. Empty rows of former days are forgotten. */
  #tidy(account: Account, draw: Draw): void {
    for (const [name, part] of account.parts) {
      if (part === account.package?.part || part === account.balance) continue;
      if (part.hasIdle) account.isUnknown = true;
      part.idleUnits = 0;
      part.idleNano = 0n;
      const wasIdle = draw.keeps.some((k) => k.day === part.day && (k.idleUnits > 0 || k.idleNanoUsd > 0n));
      if (part.isEmpty && !wasIdle) account.parts.delete(name);
    }
  }

  /** From now on nothing is drawn ahead, and every draw gives back what is idle. Returns the accounts that need one. */
  close(): number[] {
    this.#isClosed = true;
    return [...this.#accounts.values()]
      .filter((account) => account.isUnknown || account.isIdleKnown || account.isDrawing)
      .map(({ accountId }) => accountId);
  }

  /**
   * Compares what the database has drawn of an account with what is accounted for here. If it has more, twice in a row, the next draw
   * gives it back. (Once says nothing: an end may be on its way.) Returns whether the account needs a draw now.
   */
  compare(accountId: number, drawn: { units: number; nanoUsd: bigint }): boolean {
    const account = this.#accounts.get(accountId) ?? this.#unknown(accountId);
    let units = 0;
    let nano = 0n;
    for (const part of account.parts.values()) {
      if (part.packageId > 0) units += part.busyUnits + part.idleUnits;
      if (part.packageId === 0 && part.keyId === 0) nano += part.busyNano + part.idleNano;
    }
    const hasMore = drawn.units > units || drawn.nanoUsd > nano;
    account.isUnknown ||= hasMore && account.hadMore;
    account.hadMore = hasMore;
    return account.isUnknown && !account.isDrawing;
  }

  /** An account of which nothing is known here: its next draw gives back all. No request has told its tenant yet. */
  #unknown(accountId: number): Account {
    const account = this.#accountOf(accountId, 0);
    account.isUnknown = true;
    return account;
  }

  tenantOf(accountId: number): number {
    return this.#accounts.get(accountId)?.tenantId ?? 0;
  }

  #accountOf(accountId: number, tenantId: number): Account {
    let account = this.#accounts.get(accountId);
    if (account === undefined) {
      account = new Account(accountId, tenantId, this.#options.nowMs());
      this.#accounts.set(accountId, account);
    }
    if (account.tenantId === 0) account.tenantId = tenantId;
    return account;
  }
}

/** Nothing is known of the account any more, and no draw under way will bring something. */
function isForgotten(account: Account, nowMs: number): boolean {
  if (account.isDrawing || nowMs - account.usedMs <= QUIET_MS * 10) return false;
  return [...account.parts.values()].every((part) => part.isEmpty);
}

/** The terms on which a request was granted. */
type Terms = Omit<
  Drawn,
  "requestId" | "accountId" | "keyId" | "host" | "modelId" | "priceVersionId" | "markupBasisPoints"
>;

function holdOf(request: ReserveRequest, terms: Terms): Hold {
  const { requestId, accountId, keyId, host, modelId, priceVersionId, markupBasisPoints } = request;
  const mode = terms.packageId > 0 ? "package" : "payg";
  return { requestId, accountId, keyId, host, modelId, priceVersionId, markupBasisPoints, ...terms, mode };
}

/** The output cap that is sent on for a request of a package without a token allowance; null: none of ours. */
function capSent({ sendsCap, capMax }: ReserveRequest): number | null {
  return sendsCap ? capMax : null;
}

/** The escrow rows that give a hold: of the package or the balance, and of the key's daily limits. */
function partsOf(account: Account, { packageId, day, keyId, keyDay }: Drawn): Part[] {
  const payer = account.partOf(packageId, 0, day ?? BALANCE_DAY);
  return keyDay === null ? [payer] : [payer, account.partOf(0, keyId, keyDay)];
}

/** Adds a hold to what its parts account for, or takes it off. A key's part counts requests and money, never tokens. */
function addBusy(account: Account, hold: Drawn, sign: 1 | -1): void {
  const { packageId, heldTokens, heldNanoUsd } = hold;
  for (const part of partsOf(account, hold)) {
    if (packageId > 0 || part.keyId > 0) part.busyUnits += sign;
    if (part.packageId > 0) part.busyTokens += sign * (heldTokens ?? 0);
    part.busyNano += BigInt(sign) * heldNanoUsd;
  }
}

/**
 * Whether the database may leave the hold as it is: a charge above it waits while money lies unused in an escrow. So the draw beside it
 * keeps the hold, and another draw gives it back if the end has run. Source: ESC-1
 */
function mayWait({ settles, packageId, chargeNanoUsd, heldNanoUsd }: Finish): boolean {
  return settles && packageId === 0 && chargeNanoUsd > heldNanoUsd;
}

/** What the replica keeps, without the busy holds that end in the same batch. */
function keepsOf(account: Account, ending: readonly Finish[]): Keep[] {
  for (const finish of ending) addBusy(account, finish, -1);
  const keeps = [...account.parts.values()].map((part) => ({
    packageId: part.packageId,
    keyId: part.keyId,
    day: part.day,
    units: Math.max(0, part.busyUnits + part.idleUnits),
    tokens: Math.max(0, part.busyTokens),
    nanoUsd: part.busyNano + part.idleNano,
    idleUnits: part.idleUnits,
    idleNanoUsd: part.idleNano,
  }));
  for (const finish of ending) addBusy(account, finish, 1);
  return keeps;
}
