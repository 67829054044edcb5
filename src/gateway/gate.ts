import type { Gate, Visit } from "../deps.ts";
import { Refusal } from "../errors.ts";
import type { ShedReason } from "../platform/metrics.ts";
import { type Fractions, type Owner, ShareLimit } from "../platform/share_limit.ts";
import type { Lateness } from "./event_loop_lag.ts";

/** How long a client of a full replica is told to wait. */
const RETRY_AFTER_SECONDS = 1;

type GateOptions = {
  /** Requests in flight at once. */
  max: number;
  fractions: Fractions;
  /** The spool has no room for another settlement. */
  isSpoolFull: () => boolean;
  /** Whether the event loop keeps up. */
  lateness: () => Lateness;
  onShed: (reason: ShedReason) => void;
};

/**
 * Decides whether this replica takes a metered request: at most `max` at once, none once it drains or its spool is full. While the
 * event loop is late, an account that has requests here already is refused, and one that has none is let in: what a few customers
 * send does not cost the others their place. While it is far too late, everybody is refused.
 */
export function createGate({ max, fractions, isSpoolFull, lateness, onShed }: GateOptions): Gate {
  const reasons = { replica: "full", account: "in_flight_per_account", tenant: "in_flight_per_tenant" } as const;
  const places = new ShareLimit({ max, fractions, what: "requests in flight", reasons, onShed });
  /** Requests that have arrived and not left yet, by account. */
  const present = new Map<number, number>();
  let visits = 0;
  let announced = false;
  let closed = false;
  let over = false;
  let onEmpty = () => {};
  const ends = new Set<() => void>();
  const onLeave = (accountId: number) => {
    visits--;
    const left = (present.get(accountId) ?? 1) - 1;
    if (left === 0) present.delete(accountId);
    else present.set(accountId, left);
    if (closed && visits === 0) onEmpty();
  };
  const shedReason = (accountId: number): ShedReason | undefined => {
    if (closed) return "draining";
    const late = lateness();
    if (late === "overwhelmed" || (late === "behind" && present.has(accountId))) return "lag";
    return isSpoolFull() ? "spool_full" : undefined;
  };
  return {
    arrive(owner) {
      const reason = shedReason(owner.accountId);
      if (reason !== undefined) {
        onShed(reason);
        throw new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
      }
      // Before its body is read: who would find no place afterwards is told so at once.
      places.check(owner, 1);
      visits++;
      present.set(owner.accountId, (present.get(owner.accountId) ?? 0) + 1);
      return new PlaceVisit(places, owner, onLeave);
    },
    inFlight: () => places.held,
    draining: () => announced,
    announce() {
      announced = true;
    },
    drain() {
      announced = true;
      closed = true;
      return new Promise((resolve) => {
        if (visits === 0) resolve();
        else onEmpty = resolve;
      });
    },
    onDeadline(end) {
      if (over) end();
      else ends.add(end);
      return () => void ends.delete(end);
    },
    endAll() {
      over = true;
      for (const end of ends) end();
    },
  };
}

class PlaceVisit implements Visit {
  readonly #places: ShareLimit;
  readonly #owner: Owner;
  readonly #onLeave: (accountId: number) => void;
  #state: "arrived" | "in flight" | "gone" = "arrived";

  constructor(places: ShareLimit, owner: Owner, onLeave: (accountId: number) => void) {
    this.#places = places;
    this.#owner = owner;
    this.#onLeave = onLeave;
  }

  enter(): void {
    this.#places.take(this.#owner, 1);
    this.#state = "in flight";
  }

  leave(): void {
    if (this.#state === "gone") return;
    if (this.#state === "in flight") this.#places.give(this.#owner, 1);
    this.#state = "gone";
    this.#onLeave(this.#owner.accountId);
  }
}
