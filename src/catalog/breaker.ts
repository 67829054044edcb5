/** Failures in a row that open a route's breaker. */
const FAILURES_MAX = 5;
/** The first opening lasts this long; each failed probe doubles it. */
const OPEN_FIRST_MS = 1_000;
const OPEN_MAX_MS = 30_000;
/** A probe may be a long answer: after this another one is let through, so that a recovered route is not closed off for minutes. */
const PROBE_LEASE_MS = 10_000;
/** Only failing routes are remembered. */
const ROUTES_MAX = 10_000;

/** One permitted attempt. Exactly one of the three is called, once; later calls change nothing. */
export type Pass = {
  /** The provider answered. */
  succeeded(): void;
  failed(): void;
  /** The attempt ended for a reason that says nothing about the provider. */
  abandoned(): void;
};

export type Breakers = {
  /** Leave to try a route, or undefined while its breaker is open or its one probe is under way. */
  enter(routeId: number): Pass | undefined;
  /** Until the route may be tried again; 0 when it may be now. */
  dueInMs(routeId: number): number;
  /** How many routes are left alone now, and of how many one request tries. */
  states(): { open: number; half_open: number };
};

type State = {
  failures: number;
  /** How often it opened since it last worked; 0 while closed. */
  openings: number;
  openUntil: number;
  /** When the probe under way began. */
  probe: { since: number } | null;
};

/**
 * A breaker per route: closed, open for a growing time after FAILURES_MAX failures in a row, then half open for one
 * probe. Pure: `now` is a monotonic clock in milliseconds.
 */
export function createBreakers({ now, onOpen }: { now: () => number; onOpen?: () => void }): Breakers {
  const states = new Map<number, State>();

  function open(state: State): void {
    state.openUntil = now() + Math.min(OPEN_MAX_MS, OPEN_FIRST_MS * 2 ** state.openings);
    state.openings += 1;
    onOpen?.();
    state.failures = 0;
  }

  function countFailure(routeId: number): void {
    const state = states.get(routeId) ?? remember(states, routeId);
    // Attempts that began before it opened fail late; they must not prolong it.
    if (state.openings > 0) return;
    state.failures += 1;
    if (state.failures >= FAILURES_MAX) open(state);
  }

  const plain: Reports = {
    succeeded: (routeId) => void states.delete(routeId),
    failed: countFailure,
    abandoned: () => {},
  };

  function enterAsProbe(routeId: number, state: State): Reports {
    const probe = { since: now() };
    state.probe = probe;
    // Not so when another attempt has closed the breaker meanwhile, or the lease went to the next probe.
    const isCurrent = () => states.get(routeId) === state && state.probe === probe;
    const endProbe = (then: () => void) => () => {
      if (!isCurrent()) return;
      state.probe = null;
      then();
    };
    return {
      succeeded: () => void states.delete(routeId),
      failed: endProbe(() => open(state)),
      abandoned: endProbe(() => {}),
    };
  }

  return {
    enter(routeId) {
      const state = states.get(routeId);
      if (state && waitMs(state, now()) > 0) return undefined;
      return new OncePass(routeId, state && state.openings > 0 ? enterAsProbe(routeId, state) : plain);
    },

    dueInMs(routeId) {
      const state = states.get(routeId);
      return state ? waitMs(state, now()) : 0;
    },

    states() {
      const counted = { open: 0, half_open: 0 };
      for (const { openings, openUntil } of states.values())
        if (openings > 0) counted[openUntil > now() ? "open" : "half_open"]++;
      return counted;
    },
  };
}

function waitMs(state: State, now: number): number {
  // A probe under way will report soon: whoever asks meanwhile is told to come back after the shortest opening.
  if (state.probe && now < state.probe.since + PROBE_LEASE_MS) return OPEN_FIRST_MS;
  return Math.max(0, state.openUntil - now);
}

function remember(states: Map<number, State>, routeId: number): State {
  const [oldest] = states.keys();
  if (states.size >= ROUTES_MAX && oldest !== undefined) states.delete(oldest);
  const state: State = { failures: 0, openings: 0, openUntil: 0, probe: null };
  states.set(routeId, state);
  return state;
}

/** What becomes of an attempt at a route. */
type Reports = Record<keyof Pass, (routeId: number) => void>;

class OncePass implements Pass {
  readonly #routeId: number;
  #reports: Reports | undefined;

  constructor(routeId: number, reports: Reports) {
    this.#routeId = routeId;
    this.#reports = reports;
  }

  succeeded(): void {
    this.#end("succeeded");
  }

  failed(): void {
    this.#end("failed");
  }

  abandoned(): void {
    this.#end("abandoned");
  }

  #end(how: keyof Pass): void {
    const reports = this.#reports;
    this.#reports = undefined;
    reports?.[how](this.#routeId);
  }
}
