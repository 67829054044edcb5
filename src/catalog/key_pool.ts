import { type Draw, rankOf } from "./affinity.ts";
import type { Requester } from "./breaker.ts";
import type { KeyedRoute, ModelRoute } from "./catalog.ts";
import type { FailureKind, ProviderFailure } from "./provider_errors.ts";

/**
 * Which of a provider's keys a request may use, as this replica knows it: in memory, for every request. `key_states.ts` shares the
 * states with the other replicas.
 */

/** The pause of a key whose provider asks for a pause without its length. */
const COOL_DOWN_DEFAULT_SECONDS = 1;
/** The assumed wait until the database has said when a key is probed, and while its probe is due. */
const PROBE_SOON_MS = 1_000;
/**
 * An account or payer that no request has. A state with it only changes the order of keys, and closes the key for
 * nobody.
 */
export const NOBODY = 0;

/**
 * Why a key is not used as usual. A quarantine applies to all models, a pause to one, because providers limit by model.
 * A key has at most one quarantine, and one pause for each model. Source: PRV-10, PRV-11.
 */
export type KeyRest = {
  readonly state: "cooling" | "quarantined";
  readonly why: FailureKind;
  /** The upstream model that is paused; null: quarantined. */
  readonly model: string | null;
  /** By the pool's clock: when the pause ends, or when the quarantined key is probed next. */
  readonly untilMs: number;
  /**
   * The account and payer whose requests met the failure. The key is closed for them, and tried last for all others.
   * null: closed for everybody.
   */
  readonly accountId: number | null;
  readonly payerId: number | null;
};

/** What the other replicas are told about a key. */
export type KeyReport =
  | {
      is: "resting";
      keyId: number;
      rest: KeyRest;
      /** How long a pause is. */
      seconds: number;
      /** The failure was that of a probe. */
      isProbe: boolean;
    }
  | { is: "recovered"; keyId: number };

export type KeyPool = {
  /**
   * A route with each key that this requester may use, in the order in which they are tried: first a key whose probe is
   * due, then active keys, then keys that rest because of others' requests. Within each group they are ordered by
   * weight.
   */
  usable(route: ModelRoute, requester: Requester, draw: Draw): readonly KeyedRoute[];
  /** Whether the key is in quarantine. Asked before an attempt: only an attempt that began in quarantine can end it. */
  isQuarantined(keyId: number): boolean;
  /** A quarantined key served a request: its quarantine is over. */
  recovered(keyId: number): void;
  /** Records a failure that is attributed to the key; others are ignored. */
  failed(route: KeyedRoute, requester: Requester, failure: ProviderFailure): void;
  /** Milliseconds until the requester may use one of the route's keys; 0: now. */
  dueInMs(route: ModelRoute, requester: Requester): number;
  /** Lets one request probe the key: the next one that asks for keys within `ms`. */
  letOneProbe(keyId: number, ms: number): void;
  /** Quarantined keys whose probe is due. `isWanted`: since then a request would have used the key. */
  due(): { keyId: number; why: FailureKind; isWanted: boolean }[];
  /** Replaces the states by the shared ones. `isKept`: keys that keep their own, newer state. */
  replace(rests: readonly (KeyRest & { keyId: number })[], isKept: (keyId: number) => boolean): void;
  /** Keys that are not active. */
  states(): { cooling: number; quarantined: number };
};

/** `now`: a monotonic clock in ms. `onReport`: called when a key's state changes because of a request. */
export function createKeyPool(options: { now: () => number; onReport: (report: KeyReport) => void }): KeyPool {
  return new RestingKeys(options);
}

class RestingKeys implements KeyPool {
  readonly #now: () => number;
  readonly #onReport: (report: KeyReport) => void;
  /** By key. Nearly always empty: then it costs a request one comparison. */
  #rests = new Map<number, readonly KeyRest[]>();
  /** Quarantined keys that a request would have used since their probe was due. */
  readonly #wanted = new Set<number>();
  /** The time until which one request may probe a key. */
  readonly #probes = new Map<number, number>();
  /** Keys that a request is probing now. */
  readonly #probed = new Set<number>();

  constructor({ now, onReport }: { now: () => number; onReport: (report: KeyReport) => void }) {
    this.#now = now;
    this.#onReport = onReport;
  }

  usable(route: ModelRoute, requester: Requester, draw: Draw): readonly KeyedRoute[] {
    const keyed = orderKeys(route.keyed, draw);
    if (this.#rests.size === 0) return keyed;
    const [probe, active, last]: [KeyedRoute[], KeyedRoute[], KeyedRoute[]] = [[], [], []];
    for (const one of keyed) {
      const rests = this.#restsOf(one.key.id);
      if (rests === undefined) active.push(one);
      else if (this.#takeProbe(one.key.id, rests)) probe.push(one);
      else if (!rests.some((rest) => isClosedBy(rest, requester, one.upstreamModel))) last.push(one);
    }
    return [...probe, ...active, ...last];
  }

  isQuarantined(keyId: number): boolean {
    return this.#rests.size > 0 && this.#quarantineOf(keyId) !== undefined;
  }

  recovered(keyId: number): void {
    this.#probed.delete(keyId);
    if (this.#quarantineOf(keyId) === undefined) return;
    this.#set(
      keyId,
      (this.#restsOf(keyId) ?? []).filter(({ state }) => state !== "quarantined"),
    );
    this.#onReport({ is: "recovered", keyId });
  }

  failed(route: KeyedRoute, requester: Requester, failure: ProviderFailure): void {
    const fault = faultOf(failure);
    if (fault === undefined) return;
    const { id } = route.key;
    const isProbe = this.#probed.delete(id);
    const isOfRequest = failure.blame === "request";
    const met: KeyRest = {
      state: fault.state,
      why: failure.kind,
      model: fault.state === "cooling" ? route.upstreamModel : null,
      untilMs: this.#now() + fault.seconds * 1000,
      accountId: isOfRequest ? NOBODY : requester.accountId,
      payerId: isOfRequest ? NOBODY : requester.payerId,
    };
    const rests = this.#restsOf(id) ?? [];
    const prior = rests.find(({ model }) => model === met.model);
    const rest = prior === undefined ? met : merge(prior, met);
    if (!isProbe && prior !== undefined && isSame(prior, rest)) return;
    this.#set(id, [...rests.filter((one) => one !== prior), rest]);
    this.#onReport({ is: "resting", keyId: id, rest, seconds: (rest.untilMs - this.#now()) / 1000, isProbe });
  }

  dueInMs(route: ModelRoute, requester: Requester): number {
    const waits = route.keyed.map(({ key, upstreamModel }) => {
      const closed = (this.#restsOf(key.id) ?? []).filter((rest) => isClosedBy(rest, requester, upstreamModel));
      return Math.max(0, ...closed.map((rest) => this.#waitMs(rest)));
    });
    return Math.min(...waits);
  }

  letOneProbe(keyId: number, ms: number): void {
    this.#wanted.delete(keyId);
    this.#probes.set(keyId, this.#now() + ms);
  }

  due(): { keyId: number; why: FailureKind; isWanted: boolean }[] {
    const now = this.#now();
    return [...this.#rests].flatMap(([keyId, rests]) =>
      rests
        .filter(({ state, untilMs }) => state === "quarantined" && untilMs <= now)
        .map(({ why }) => ({ keyId, why, isWanted: this.#wanted.has(keyId) })),
    );
  }

  replace(rests: readonly (KeyRest & { keyId: number })[], isKept: (keyId: number) => boolean): void {
    const next = new Map([...this.#rests].filter(([keyId]) => isKept(keyId)));
    for (const { keyId, ...rest } of rests) if (!isKept(keyId)) next.set(keyId, [...(next.get(keyId) ?? []), rest]);
    this.#rests = next;
    for (const noted of [this.#wanted, this.#probes, this.#probed])
      for (const keyId of noted.keys()) if (!this.isQuarantined(keyId)) noted.delete(keyId);
  }

  states(): { cooling: number; quarantined: number } {
    const counted = { cooling: 0, quarantined: 0 };
    for (const keyId of [...this.#rests.keys()])
      if (this.isQuarantined(keyId)) counted.quarantined++;
      else if (this.#restsOf(keyId) !== undefined) counted.cooling++;
    return counted;
  }

  /** The current rests of a key; undefined: none. */
  #restsOf(keyId: number): readonly KeyRest[] | undefined {
    const rests = this.#rests.get(keyId);
    if (rests === undefined) return undefined;
    const now = this.#now();
    if (rests.every(({ state, untilMs }) => state === "quarantined" || untilMs > now)) return rests;
    this.#set(
      keyId,
      rests.filter(({ state, untilMs }) => state === "quarantined" || untilMs > now),
    );
    return this.#rests.get(keyId);
  }

  #set(keyId: number, rests: readonly KeyRest[]): void {
    if (rests.length === 0) this.#rests.delete(keyId);
    else this.#rests.set(keyId, rests);
  }

  #quarantineOf(keyId: number): KeyRest | undefined {
    return this.#rests.get(keyId)?.find(({ state }) => state === "quarantined");
  }

  #waitMs({ state, untilMs }: KeyRest): number {
    return Math.max(state === "quarantined" ? PROBE_SOON_MS : 0, untilMs - this.#now());
  }

  /** Whether this request should probe the key. If the probe is due, records that a request wants the key. */
  #takeProbe(keyId: number, rests: readonly KeyRest[]): boolean {
    const quarantine = rests.find(({ state }) => state === "quarantined");
    if (quarantine === undefined) return false;
    const probeUntil = this.#probes.get(keyId);
    if (probeUntil === undefined) {
      if (quarantine.untilMs <= this.#now()) this.#wanted.add(keyId);
      return false;
    }
    this.#probes.delete(keyId);
    if (probeUntil <= this.#now()) return false;
    this.#probed.add(keyId);
    return true;
  }
}

/** A route with each of its keys in the order in which they are tried while all are active. Does not change its argument. */
export function orderKeys(keyed: readonly KeyedRoute[], draw: Draw): readonly KeyedRoute[] {
  if (keyed.length <= 1) return keyed;
  const ranked = keyed.map((one) => ({ one, rank: rankOf(draw(one.key.id), one.key.weight) }));
  return ranked.sort((a, b) => a.rank - b.rank).map(({ one }) => one);
}

type Fault = { state: KeyRest["state"]; seconds: number };

/** What a failure says about the key; undefined: nothing. Source: PRV-10, PRV-16. */
function faultOf({ kind, blame, retryAfterSeconds }: ProviderFailure): Fault | undefined {
  if (kind === "no_credit" || (kind === "credentials" && blame === "key"))
    return { state: "quarantined", seconds: PROBE_SOON_MS / 1000 };
  if (kind !== "rate_limited") return undefined;
  return { state: "cooling", seconds: Math.max(1, retryAfterSeconds ?? COOL_DOWN_DEFAULT_SECONDS) };
}

/**
 * Whether a rest closes the key for this request. A failure of one account, or of one reseller's, does not close it
 * for others. Source: PRV-11.
 */
function isClosedBy(rest: KeyRest, { accountId, payerId }: Requester, model: string): boolean {
  if (rest.model !== null && rest.model !== model) return false;
  if (rest.payerId === null) return true;
  return rest.payerId === payerId && (rest.accountId === null || rest.accountId === accountId);
}

/** Merges a rest that was met again. The store merges by the same rule. */
function merge(prior: KeyRest, met: KeyRest): KeyRest {
  const rest = {
    ...met,
    accountId: both(prior.accountId, met.accountId),
    payerId: both(prior.payerId, met.payerId),
  };
  // Only a probe moves the next one.
  if (prior.state === "quarantined") return { ...rest, untilMs: prior.untilMs };
  // The second payer's pause replaces the first one's: one large request may have been told to wait for long.
  return rest.payerId === prior.payerId ? { ...rest, untilMs: Math.max(prior.untilMs, met.untilMs) } : rest;
}

function both(prior: number | null, met: number | null): number | null {
  if (prior === NOBODY) return met;
  if (met === NOBODY || prior === met) return prior;
  return null;
}

/** Whether nothing has changed that must be reported: concurrent requests meet the same failure within a moment. */
function isSame(a: KeyRest, b: KeyRest): boolean {
  const isSameScope = a.accountId === b.accountId && a.payerId === b.payerId;
  return a.why === b.why && isSameScope && b.untilMs - a.untilMs < PROBE_SOON_MS;
}
