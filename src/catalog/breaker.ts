import type { FailureKind } from "./provider_errors.ts";

/** Failures in a row that open a route's breaker. */
const FAILURES_MAX = 5;
/** The first opening lasts this long; each failed probe doubles it. */
const OPEN_FIRST_MS = 1_000;
const OPEN_MAX_MS = 30_000;
/** A probe may be a long answer: after this another one is let through, so that a recovered route is not closed off for minutes. */
const PROBE_LEASE_MS = 10_000;
/** Only failing routes are remembered. */
const ROUTES_MAX = 10_000;
/** Accounts and payers remembered of one route. Beyond them a failure is everybody's. */
const WITNESSES_MAX = 64;

/** Who makes an attempt: the account, and who answers for it: the reseller whose customer it is, else the account itself. */
export type Asker = { readonly accountId: number; readonly payerId: number };

/** One permitted attempt. Exactly one of these is called, once; later calls change nothing. */
export type Pass = {
  /** The provider answered. */
  succeeded(): void;
  /** `unreachable`: no connection could be made, which no request can cause. */
  failed(how?: { unreachable: boolean }): void;
  /** The provider is well, and asks to be left alone for this long. */
  coolDown(ms: number): void;
  /** The provider is well and does not serve this request, for a reason that the operator should know. */
  unserved(kind: FailureKind): void;
  /** The attempt ended for a reason that says nothing about the provider. */
  abandoned(): void;
};

export type Breakers = {
  /** Leave to try a route, or undefined while it is left alone for this asker, or its one probe is in flight. */
  enter(routeId: number, asker: Asker): Pass | undefined;
  /** Until this asker (default: any that met the failures) may try the route again; 0 when that is now. */
  dueInMs(routeId: number, asker?: Asker): number;
  /** Whether the route is left alone for everybody, and not only for the accounts that met its failures. */
  isForAll(routeId: number): boolean;
  /** Why the route did not serve a request since it last served one; null: no such reason. */
  trouble(routeId: number): FailureKind | null;
  /** Routes that are left alone now, that one probe tries, and whose provider asked for a pause. */
  states(): { open: number; half_open: number; cooling: number };
};

type State = {
  failures: number;
  witnesses: Witnesses;
  /** One of the failures was a connection that could not be made. */
  unreachable: boolean;
  /** How often it opened since it last worked; 0 while closed. */
  openings: number;
  openedAt: number;
  openUntil: number;
  /** When the probe in flight began. */
  probe: { since: number } | null;
};

type Pause = { until: number; witnesses: Witnesses };

/**
 * A breaker per route: closed, open for a growing time after FAILURES_MAX failures in a row, then half open for one
 * probe. Pure: `now` is a monotonic clock in milliseconds.
 *
 * A request can make a provider fail, so one account's failures prove nothing to the others. A route is left alone for the
 * account that met the failures; for its whole tenant once two accounts of it did; for everybody once two payers did, or
 * once no connection could be made. Any success closes the breaker.
 * Source: rulings › What is sent on, and what counts as a provider's failure.
 */
export function createBreakers({ now, onOpen }: { now: () => number; onOpen?: () => void }): Breakers {
  const states = new Map<number, State>();
  const pauses = new Map<number, Pause>();
  const troubles = new Map<number, FailureKind>();

  function open(state: State): void {
    state.openedAt = now();
    state.openUntil = state.openedAt + Math.min(OPEN_MAX_MS, OPEN_FIRST_MS * 2 ** state.openings);
    state.openings += 1;
    onOpen?.();
    state.failures = 0;
  }

  function witness(state: State, asker: Asker, unreachable: boolean): void {
    state.witnesses.add(asker);
    state.unreachable ||= unreachable;
  }

  function succeed(routeId: number): void {
    states.delete(routeId);
    troubles.delete(routeId);
  }

  function pause(routeId: number, asker: Asker, ms: number): void {
    const until = now() + ms;
    const known = pauseOf(routeId);
    const current = known ?? remember(pauses, routeId, { until, witnesses: new Witnesses() });
    // A second payer's word replaces the first one's: one large request may have been told to wait for long.
    current.until = current.witnesses.has(asker) ? Math.max(current.until, until) : until;
    current.witnesses.add(asker);
  }

  function pauseOf(routeId: number): Pause | undefined {
    const known = pauses.get(routeId);
    if (known === undefined || known.until > now()) return known;
    pauses.delete(routeId);
    return undefined;
  }

  function pausedMs(routeId: number, asker?: Asker): number {
    const known = pauseOf(routeId);
    return known && (asker === undefined || known.witnesses.concern(asker)) ? known.until - now() : 0;
  }

  const plain: Reports = {
    succeeded: succeed,
    failed(routeId, asker, unreachable) {
      const state = states.get(routeId) ?? remember(states, routeId, newState());
      witness(state, asker, unreachable);
      // Attempts that began before it opened fail late; they must not prolong it.
      if (state.openings > 0) return;
      state.failures += 1;
      if (state.failures >= FAILURES_MAX) open(state);
    },
    paused: pause,
    unserved: (routeId, kind) => void remember(troubles, routeId, kind),
    abandoned: () => {},
  };

  function probeReports(routeId: number, state: State): Reports {
    const probe = { since: now() };
    state.probe = probe;
    // Not so when another attempt has closed the breaker meanwhile, or the lease went to the next probe.
    const end = () => {
      if (states.get(routeId) !== state || state.probe !== probe) return false;
      state.probe = null;
      return true;
    };
    return {
      succeeded: succeed,
      failed(_, asker, unreachable) {
        if (!end()) return;
        witness(state, asker, unreachable);
        open(state);
      },
      paused(_, asker, ms) {
        end();
        pause(routeId, asker, ms);
      },
      unserved(_, kind) {
        end();
        remember(troubles, routeId, kind);
      },
      abandoned: () => void end(),
    };
  }

  return {
    enter(routeId, asker) {
      if (pauses.size > 0 && pausedMs(routeId, asker) > 0) return undefined;
      const state = states.get(routeId);
      if (state === undefined || !isShutTo(state, asker)) return new OncePass(routeId, asker, plain);
      if (waitMs(state, now(), asker) > 0) return undefined;
      return new OncePass(routeId, asker, probeReports(routeId, state));
    },

    dueInMs(routeId, asker) {
      const state = states.get(routeId);
      const shut = state !== undefined && (asker === undefined || isShutTo(state, asker));
      return Math.max(shut ? waitMs(state, now(), asker) : 0, pausedMs(routeId, asker));
    },

    isForAll(routeId) {
      const state = states.get(routeId);
      return (state !== undefined && isForAll(state)) || pauseOf(routeId)?.witnesses.isForAll() === true;
    },

    trouble: (routeId) => troubles.get(routeId) ?? null,

    states() {
      const counted = { open: 0, half_open: 0, cooling: 0 };
      for (const { openings, openUntil } of states.values())
        if (openings > 0) counted[openUntil > now() ? "open" : "half_open"]++;
      for (const { until } of pauses.values()) if (until > now()) counted.cooling++;
      return counted;
    },
  };
}

function newState(): State {
  const witnesses = new Witnesses();
  return { failures: 0, witnesses, unreachable: false, openings: 0, openedAt: 0, openUntil: 0, probe: null };
}

function isForAll(state: State): boolean {
  return state.openings > 0 && (state.unreachable || state.witnesses.isForAll());
}

function isShutTo(state: State, asker: Asker): boolean {
  return state.openings > 0 && (state.unreachable || state.witnesses.concern(asker));
}

function waitMs(state: State, now: number, asker: Asker | undefined): number {
  // A probe in flight will report soon: whoever asks meanwhile is told to come back after the shortest opening.
  if (state.probe && now < state.probe.since + PROBE_LEASE_MS) return OPEN_FIRST_MS;
  // A payer who has not met the failure yet probes early: the failed probes of those who cause it must not keep others out.
  const isNew = asker !== undefined && !state.unreachable && !state.witnesses.has(asker);
  const due = isNew ? Math.min(state.openUntil, state.openedAt + OPEN_FIRST_MS) : state.openUntil;
  return Math.max(0, due - now);
}

/** Whose attempts met a failure since the last success. */
class Witnesses {
  readonly #accounts = new Set<number>();
  readonly #payers = new Set<number>();

  add({ accountId, payerId }: Asker): void {
    if (this.#accounts.size < WITNESSES_MAX) this.#accounts.add(accountId);
    if (this.#payers.size < WITNESSES_MAX) this.#payers.add(payerId);
  }

  /** Whether this asker's payer is one of them. */
  has({ payerId }: Asker): boolean {
    return this.#payers.has(payerId) || this.#payers.size >= WITNESSES_MAX;
  }

  isForAll(): boolean {
    return this.#payers.size > 1;
  }

  /** Whether what they met says anything about this asker's requests. */
  concern({ accountId, payerId }: Asker): boolean {
    if (this.isForAll()) return true;
    return this.#payers.has(payerId) && (this.#accounts.size > 1 || this.#accounts.has(accountId));
  }
}

/** Sets a value, and forgets the oldest where there are too many. */
function remember<V>(map: Map<number, V>, routeId: number, value: V): V {
  const [oldest] = map.keys();
  if (map.size >= ROUTES_MAX && oldest !== undefined && !map.has(routeId)) map.delete(oldest);
  map.set(routeId, value);
  return value;
}

/** What becomes of an attempt at a route. */
type Reports = {
  succeeded(routeId: number): void;
  failed(routeId: number, asker: Asker, unreachable: boolean): void;
  paused(routeId: number, asker: Asker, ms: number): void;
  unserved(routeId: number, kind: FailureKind): void;
  abandoned(): void;
};

class OncePass implements Pass {
  readonly #routeId: number;
  readonly #asker: Asker;
  #reports: Reports | undefined;

  constructor(routeId: number, asker: Asker, reports: Reports) {
    this.#routeId = routeId;
    this.#asker = asker;
    this.#reports = reports;
  }

  succeeded(): void {
    this.#once()?.succeeded(this.#routeId);
  }

  failed({ unreachable } = { unreachable: false }): void {
    this.#once()?.failed(this.#routeId, this.#asker, unreachable);
  }

  coolDown(ms: number): void {
    this.#once()?.paused(this.#routeId, this.#asker, ms);
  }

  unserved(kind: FailureKind): void {
    this.#once()?.unserved(this.#routeId, kind);
  }

  abandoned(): void {
    this.#once()?.abandoned();
  }

  #once(): Reports | undefined {
    const reports = this.#reports;
    this.#reports = undefined;
    return reports;
  }
}
