import type { FailureKind } from "./provider_errors.ts";

/** Consecutive failures that open a route's breaker. */
const FAILURES_MAX = 5;
/** How long a breaker first stays open; each failed probe doubles it. */
const OPEN_FIRST_MS = 1_000;
const OPEN_MAX_MS = 30_000;
/** A probe may take minutes: after this time another one is allowed, so that a recovered route is not kept closed off. */
const PROBE_LEASE_MS = 10_000;
/** Only failing routes are remembered. */
const ROUTES_MAX = 10_000;
/** Accounts and payers remembered per route. Beyond that a failure counts for everybody. */
const WITNESSES_MAX = 64;

/** The account that makes a request, and its payer: its reseller, or the account itself if it has none. */
export type Requester = { readonly accountId: number; readonly payerId: number };

/** Permission for one attempt at a route. Exactly one of these is called, once; later calls change nothing. */
export type Pass = {
  /** The provider answered. */
  succeeded(): void;
  /** `unreachable`: no connection could be made, which no request can cause. */
  failed(how?: { unreachable: boolean }): void;
  /** The provider works but cannot serve this request, for a reason that the operator should know. */
  unserved(kind: FailureKind): void;
  /** The attempt ended for a reason that says nothing about the provider. */
  abandoned(): void;
};

export type Breakers = {
  /** Permission to try a route; undefined while the route is closed off for this requester, or its one probe is in flight. */
  enter(routeId: number, requester: Requester): Pass | undefined;
  /** Milliseconds until this requester (default: those who saw the failures) may try the route again; 0: now. */
  dueInMs(routeId: number, requester?: Requester): number;
  /** Whether the route is closed off for everybody, not only for the accounts that saw its failures. */
  isForAll(routeId: number): boolean;
  /** Why the route could not serve a request since its last success; null: no such reason. */
  trouble(routeId: number): FailureKind | null;
  /** How many routes have an open breaker, or wait for a probe. */
  states(): { open: number; half_open: number };
  /** The routes that are skipped now or have a trouble, at most `max`: what this replica tells the others. */
  report(max: number): RouteBreaker[];
};

/** What one replica knows of a route that it skips, or that could not serve a request. */
export type RouteBreaker = {
  routeId: number;
  /** 0: it is not skipped. */
  dueInMs: number;
  forAll: boolean;
  trouble: FailureKind | null;
};

type State = {
  failures: number;
  witnesses: Witnesses;
  /** Whether one of the failures was that no connection could be made. */
  unreachable: boolean;
  /** How often the breaker opened since the last success; 0: it is closed. */
  openings: number;
  openedAt: number;
  openUntil: number;
  /** The probe in flight. */
  probe: Probe | null;
};
type Probe = { readonly state: State; readonly since: number };

/**
 * A circuit breaker per route: closed; open for a growing time after FAILURES_MAX consecutive failures; then half open: one
 * probe is let through. Any success closes it. Pure: `now` is a monotonic clock in milliseconds.
 *
 * A request can make a provider fail, so the failures of one account prove nothing to the others. A breaker is open for the
 * account that saw the failures; for its whole tenant once two of its accounts saw them; for everybody once two payers saw
 * them, or once no connection could be made.
 * Source: PRV-4, PRV-6.
 */
export function createBreakers(options: { now: () => number; onOpen?: () => void }): Breakers {
  return new RouteBreakers(options);
}

class RouteBreakers implements Breakers {
  readonly #now: () => number;
  readonly #onOpen: (() => void) | undefined;
  readonly #states = new Map<number, State>();
  readonly #troubles = new Map<number, FailureKind>();

  constructor({ now, onOpen }: { now: () => number; onOpen?: () => void }) {
    this.#now = now;
    this.#onOpen = onOpen;
  }

  enter(routeId: number, requester: Requester): Pass | undefined {
    const state = this.#states.get(routeId);
    if (state === undefined || !isOpenFor(state, requester)) return new OncePass(this, routeId, requester);
    if (waitMs(state, this.#now(), requester) > 0) return undefined;
    state.probe = { state, since: this.#now() };
    return new OncePass(this, routeId, requester, state.probe);
  }

  dueInMs(routeId: number, requester?: Requester): number {
    const state = this.#states.get(routeId);
    const isOpen = state !== undefined && (requester === undefined || isOpenFor(state, requester));
    return isOpen ? waitMs(state, this.#now(), requester) : 0;
  }

  isForAll(routeId: number): boolean {
    const state = this.#states.get(routeId);
    return state !== undefined && isOpenForAll(state);
  }

  trouble(routeId: number): FailureKind | null {
    return this.#troubles.get(routeId) ?? null;
  }

  /** An arrow function, because the metrics call it without `this`. */
  readonly states = () => {
    const counted = { open: 0, half_open: 0 };
    for (const { openings, openUntil } of this.#states.values())
      if (openings > 0) counted[openUntil > this.#now() ? "open" : "half_open"]++;
    return counted;
  };

  report(max: number): RouteBreaker[] {
    const known = new Set([...this.#states.keys(), ...this.#troubles.keys()]);
    const found: RouteBreaker[] = [];
    for (const routeId of known) {
      if (found.length >= max) break;
      const dueInMs = Math.ceil(this.dueInMs(routeId));
      const trouble = this.trouble(routeId);
      if (dueInMs > 0 || trouble !== null) found.push({ routeId, dueInMs, forAll: this.isForAll(routeId), trouble });
    }
    return found;
  }

  succeed(routeId: number): void {
    this.#states.delete(routeId);
    this.#troubles.delete(routeId);
  }

  fail(routeId: number, requester: Requester, unreachable: boolean): void {
    const state = this.#states.get(routeId) ?? remember(this.#states, routeId, newState());
    state.witnesses.add(requester);
    state.unreachable ||= unreachable;
    // Attempts that began before the breaker opened may fail late; they must not prolong it.
    if (state.openings > 0) return;
    state.failures += 1;
    if (state.failures >= FAILURES_MAX) this.#open(state);
  }

  /** A probe that no longer counts (see `endProbe`) changes nothing. */
  failProbe(routeId: number, probe: Probe, { requester, unreachable }: { requester: Requester; unreachable: boolean }) {
    if (!this.endProbe(routeId, probe)) return;
    const { state } = probe;
    state.witnesses.add(requester);
    state.unreachable ||= unreachable;
    this.#open(state);
  }

  /** False if another attempt has closed the breaker meanwhile, or the probe's lease went to the next probe. */
  endProbe(routeId: number, probe: Probe): boolean {
    const { state } = probe;
    if (this.#states.get(routeId) !== state || state.probe !== probe) return false;
    state.probe = null;
    return true;
  }

  noteTrouble(routeId: number, kind: FailureKind): void {
    remember(this.#troubles, routeId, kind);
  }

  #open(state: State): void {
    state.openedAt = this.#now();
    state.openUntil = state.openedAt + Math.min(OPEN_MAX_MS, OPEN_FIRST_MS * 2 ** state.openings);
    state.openings += 1;
    this.#onOpen?.();
    state.failures = 0;
  }
}

class OncePass implements Pass {
  readonly #routeId: number;
  readonly #requester: Requester;
  readonly #probe: Probe | undefined;
  #breakers: RouteBreakers | undefined;

  constructor(breakers: RouteBreakers, routeId: number, requester: Requester, probe?: Probe) {
    this.#breakers = breakers;
    this.#routeId = routeId;
    this.#requester = requester;
    this.#probe = probe;
  }

  succeeded(): void {
    this.#once()?.succeed(this.#routeId);
  }

  failed({ unreachable } = { unreachable: false }): void {
    const requester = this.#requester;
    if (this.#probe === undefined) this.#once()?.fail(this.#routeId, requester, unreachable);
    else this.#once()?.failProbe(this.#routeId, this.#probe, { requester, unreachable });
  }

  unserved(kind: FailureKind): void {
    this.#ended()?.noteTrouble(this.#routeId, kind);
  }

  abandoned(): void {
    this.#ended();
  }

  /** Undefined from the second call on. */
  #once(): RouteBreakers | undefined {
    const breakers = this.#breakers;
    this.#breakers = undefined;
    return breakers;
  }

  /** The same, after ending the probe if this attempt is one. */
  #ended(): RouteBreakers | undefined {
    const breakers = this.#once();
    if (this.#probe !== undefined) breakers?.endProbe(this.#routeId, this.#probe);
    return breakers;
  }
}

function newState(): State {
  const witnesses = new Witnesses();
  return { failures: 0, witnesses, unreachable: false, openings: 0, openedAt: 0, openUntil: 0, probe: null };
}

function isOpenForAll(state: State): boolean {
  return state.openings > 0 && (state.unreachable || state.witnesses.areForAll());
}

function isOpenFor(state: State, requester: Requester): boolean {
  return state.openings > 0 && (state.unreachable || state.witnesses.concern(requester));
}

/** Milliseconds until a probe is allowed. */
function waitMs(state: State, now: number, requester: Requester | undefined): number {
  // A probe in flight will report soon: until then everybody is told to retry after the shortest opening.
  if (state.probe && now < state.probe.since + PROBE_LEASE_MS) return OPEN_FIRST_MS;
  // A payer who has not seen the failure may probe early: failed probes of those who cause it must not keep others out.
  const isNew = requester !== undefined && !state.unreachable && !state.witnesses.has(requester);
  const due = isNew ? Math.min(state.openUntil, state.openedAt + OPEN_FIRST_MS) : state.openUntil;
  return Math.max(0, due - now);
}

/** The accounts and payers whose attempts failed since the last success. */
class Witnesses {
  readonly #accounts = new Set<number>();
  readonly #payers = new Set<number>();

  add({ accountId, payerId }: Requester): void {
    if (this.#accounts.size < WITNESSES_MAX) this.#accounts.add(accountId);
    if (this.#payers.size < WITNESSES_MAX) this.#payers.add(payerId);
  }

  /** Whether the requester's payer is one of them. */
  has({ payerId }: Requester): boolean {
    return this.#payers.has(payerId) || this.#payers.size >= WITNESSES_MAX;
  }

  /** Whether they are too different for the requests to be the cause. */
  areForAll(): boolean {
    return this.#payers.size > 1;
  }

  /** Whether what they saw says anything about this requester's requests. */
  concern({ accountId, payerId }: Requester): boolean {
    if (this.areForAll()) return true;
    return this.#payers.has(payerId) && (this.#accounts.size > 1 || this.#accounts.has(accountId));
  }
}

/** Sets a value, and drops the oldest one if there are too many. */
function remember<V>(map: Map<number, V>, routeId: number, value: V): V {
  const [oldest] = map.keys();
  if (map.size >= ROUTES_MAX && oldest !== undefined && !map.has(routeId)) map.delete(oldest);
  map.set(routeId, value);
  return value;
}
