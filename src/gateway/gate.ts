import { Refusal } from "../errors.ts";
import type { BodyRoom } from "../http/body.ts";
import type { Log } from "../platform/log.ts";
import type { ShedReason } from "../platform/metrics.ts";
import { type Fractions, type Owner, ShareLimit } from "../platform/share_limit.ts";

/**
 * The limits of one replica on metered requests: how many are in flight, how far the event loop may lag, and how much memory request
 * bodies and expected embeddings may take. `admission.ts` applies them, together with the rate limits.
 */

/** `Retry-After` when the replica takes no new work. */
const RETRY_AFTER_SECONDS = 1;
const TICK_MS = 100;
/** One late tick is a pause of the machine or of garbage collection. This many in a row mean more work than the process can do. */
const LATE_TICKS = 2;
/** Beyond this many times the limit, refusing only the busy accounts no longer helps. */
const OVERWHELMED_FACTOR = 4;
/** The memory that a body takes at most, as a multiple of its bytes: engines keep text beyond ASCII in two bytes a character. */
const WIDE_TEXT = 2;

/** Decides whether this replica takes a metered request. */
export type Gate = {
  /**
   * Admits a request whose body has not been read yet. It does not take a slot, but is refused if there is none. Throws
   * service_unavailable when the replica is full, is draining, lags or has no room in its spool; too_many_requests when the account
   * or tenant has its share of the slots.
   */
  admit(owner: Owner): Admission;
  /** Requests that have a slot. */
  inFlight(): number;
  /** The most requests that had a slot at once since the last call. */
  takePeak(): number;
  /** The replica is about to stop or is stopping: clients are told to connect elsewhere. */
  draining(): boolean;
  /** Reports the replica as draining, but still takes new work. */
  announce(): void;
  /** Refuses new work. Resolves when the last admitted request has ended. */
  drain(): Promise<void>;
  /** Tells `waiter` when the drain's deadline has passed, or immediately if it has, until it is removed. */
  addWaiter(waiter: DeadlineWaiter): void;
  removeWaiter(waiter: DeadlineWaiter): void;
  /** The drain's deadline has passed: ends all requests whose answer has not started. */
  endAll(): void;
};

/** A request whose answer has not started. An object, not a function: a function for each request costs memory. */
export type DeadlineWaiter = { onDeadline(): void };

/** One admitted request. */
export type Admission = {
  /** Takes a slot, once the body has been read. Throws service_unavailable, too_many_requests. */
  takeSlot(): void;
  /** Ends the admission and releases the slot; idempotent. */
  release(): void;
};

/** Limits how many request bodies are read at once, and how many bytes of them are kept; an account and a tenant get a share. */
export type Bodies = {
  /**
   * Reserves memory for a body of `bytes` (its declared length) that is read now. Throws service_unavailable if the replica has
   * no memory left for it, too_many_requests if the account or the tenant uses its share.
   */
  open(owner: Owner, bytes: number): BodyRoom;
  /** Number of bodies that are being read. */
  reading(): number;
  /** Bytes that are reserved. */
  bytes(): number;
};

type GateOptions = {
  /** Maximum number of requests in flight. */
  max: number;
  fractions: Fractions;
  /** The spool has no room for another settlement. */
  isSpoolFull: () => boolean;
  lag: () => LagState;
  onShed: (reason: ShedReason) => void;
};

/**
 * Makes the replica's gate. While the event loop lags, an account that already has a request here is refused, and one that has none
 * is admitted: a few busy customers do not take the service from the others. While the replica is overwhelmed, every request is
 * refused.
 */
export function createGate({ max, fractions, isSpoolFull, lag, onShed }: GateOptions): Gate {
  const reasons = { replica: "full", account: "in_flight_per_account", tenant: "in_flight_per_tenant" } as const;
  const slots = new ShareLimit({ max, fractions, what: "requests in flight", reasons, onShed });
  /** Number of admitted requests by account. */
  const admitted = new Map<number, number>();
  let admittedCount = 0;
  let isAnnounced = false;
  let isClosed = false;
  let isPastDeadline = false;
  let onEmpty = () => {};
  const waiters = new Set<DeadlineWaiter>();
  const onRelease = (accountId: number) => {
    admittedCount--;
    const left = (admitted.get(accountId) ?? 1) - 1;
    if (left === 0) admitted.delete(accountId);
    else admitted.set(accountId, left);
    if (isClosed && admittedCount === 0) onEmpty();
  };
  const shedReason = (accountId: number): ShedReason | undefined => {
    if (isClosed) return "draining";
    const state = lag();
    if (state === "overwhelmed" || (state === "behind" && admitted.has(accountId))) return "lag";
    return isSpoolFull() ? "spool_full" : undefined;
  };
  return {
    admit(owner) {
      const reason = shedReason(owner.accountId);
      if (reason !== undefined) {
        onShed(reason);
        throw new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
      }
      // Checked before the body is read: a request that would get no slot is refused without reading it.
      slots.check(owner, 1);
      admittedCount++;
      admitted.set(owner.accountId, (admitted.get(owner.accountId) ?? 0) + 1);
      return new GateAdmission(slots, owner, onRelease);
    },
    inFlight: () => slots.held,
    takePeak: () => slots.takePeak(),
    draining: () => isAnnounced,
    announce() {
      isAnnounced = true;
    },
    drain() {
      isAnnounced = true;
      isClosed = true;
      return new Promise((resolve) => {
        if (admittedCount === 0) resolve();
        else onEmpty = resolve;
      });
    },
    addWaiter(waiter) {
      if (isPastDeadline) waiter.onDeadline();
      else waiters.add(waiter);
    },
    removeWaiter: (waiter) => void waiters.delete(waiter),
    endAll() {
      isPastDeadline = true;
      for (const waiter of waiters) waiter.onDeadline();
    },
  };
}

class GateAdmission implements Admission {
  readonly #slots: ShareLimit;
  readonly #owner: Owner;
  readonly #onRelease: (accountId: number) => void;
  #state: "admitted" | "in flight" | "released" = "admitted";

  constructor(slots: ShareLimit, owner: Owner, onRelease: (accountId: number) => void) {
    this.#slots = slots;
    this.#owner = owner;
    this.#onRelease = onRelease;
  }

  takeSlot(): void {
    this.#slots.take(this.#owner, 1);
    this.#state = "in flight";
  }

  release(): void {
    if (this.#state === "released") return;
    if (this.#state === "in flight") this.#slots.give(this.#owner, 1);
    this.#state = "released";
    this.#onRelease(this.#owner.accountId);
  }
}

/** `"behind"`: accounts that have requests here get no more admitted. `"overwhelmed"`: no request is admitted. */
export type LagState = "none" | "behind" | "overwhelmed";

/** Measures how late the event loop runs. */
export type LagWatch = {
  /** How late the last tick was, in ms. */
  lagMs(): number;
  /** "none" again as soon as one tick is on time. */
  state(): LagState;
  close(): void;
};

/** Watches the event loop with one timer. `nowMs` is a monotonic clock; a tick that is more than `maxMs` late is too late. */
export function watchLag({ nowMs, maxMs, log }: { nowMs: () => number; maxMs: number; log: Log }): LagWatch {
  let lagMs = 0;
  let lateTicks = 0;
  let dueMs = nowMs() + TICK_MS;
  // Set again by each tick. An interval would catch up after a pause, and its extra ticks would look punctual.
  let timer = setTimeout(tick, TICK_MS);

  function tick(): void {
    const now = nowMs();
    lagMs = Math.max(0, now - dueMs);
    const before = lateTicks;
    lateTicks = lagMs > maxMs ? lateTicks + 1 : 0;
    if (lateTicks === LATE_TICKS)
      log.warn({ lagMs: Math.round(lagMs) }, "the event loop lags: accounts with requests here get no more admitted");
    if (lateTicks === 0 && before >= LATE_TICKS) log.info("the event loop no longer lags");
    dueMs = now + TICK_MS;
    timer = setTimeout(tick, TICK_MS);
  }

  return {
    lagMs: () => lagMs,
    state() {
      if (lateTicks < LATE_TICKS) return "none";
      return lagMs > OVERWHELMED_FACTOR * maxMs ? "overwhelmed" : "behind";
    },
    close: () => clearTimeout(timer),
  };
}

type BodiesOptions = {
  /** Maximum number of bodies that are read at once. */
  readsMax: number;
  /** Maximum memory of all bodies that are read or kept, in bytes. */
  bytesMax: number;
  /** Maximum size of one body, in bytes. Every account has room for one of these. */
  bodyBytesMax: number;
  fractions: Fractions;
  onShed: (reason: ShedReason) => void;
};

/** Makes the replica's limits on request bodies: how many are read at once, and how many bytes of them are kept. */
export function createBodies({ readsMax, bytesMax, bodyBytesMax, fractions, onShed }: BodiesOptions): Bodies {
  const reads = new ShareLimit({
    max: readsMax,
    fractions,
    what: "request bodies being read",
    reasons: { replica: "body_reads_full", account: "body_reads_per_account", tenant: "body_reads_per_tenant" },
    onShed,
  });
  const bytes = new ShareLimit({
    max: bytesMax,
    fractions,
    min: WIDE_TEXT * bodyBytesMax,
    what: "bytes of requests in flight",
    reasons: { replica: "body_bytes_full", account: "body_bytes_per_account", tenant: "body_bytes_per_tenant" },
    onShed,
  });
  return {
    open(owner, size) {
      reads.check(owner, 1);
      bytes.take(owner, size);
      reads.take(owner, 1);
      return new TakenRoom({ reads, bytes }, owner, size);
    },
    reading: () => reads.held,
    bytes: () => bytes.held,
  };
}

class TakenRoom implements BodyRoom {
  readonly #shares: { reads: ShareLimit; bytes: ShareLimit };
  readonly #owner: Owner;
  #bytes: number;
  #state: "reading" | "read" | "closed" = "reading";

  constructor(shares: { reads: ShareLimit; bytes: ShareLimit }, owner: Owner, bytes: number) {
    this.#shares = shares;
    this.#owner = owner;
    this.#bytes = bytes;
  }

  grow(bytes: number): void {
    // The request may have been answered while its body still arrives. Such a body is no longer counted, and must not be kept.
    if (this.#state === "closed") throw new Error("the body is not kept any more");
    this.#shares.bytes.take(this.#owner, bytes);
    this.#bytes += bytes;
  }

  wasRead(): void {
    if (this.#state !== "reading") return;
    this.#state = "read";
    this.#shares.reads.give(this.#owner, 1);
  }

  close(): void {
    if (this.#state === "closed") return;
    this.wasRead();
    this.#state = "closed";
    this.#shares.bytes.give(this.#owner, this.#bytes);
  }
}
