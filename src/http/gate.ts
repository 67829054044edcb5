import type { Gate, Visit } from "../deps.ts";
import { Refusal } from "../errors.ts";
import type { ShedReason } from "../platform/metrics.ts";
import { type Fractions, type Owner, Shares } from "../platform/shares.ts";

/** How long a client of a full replica is told to wait. */
const RETRY_AFTER_SECONDS = 1;

type GateOptions = {
  /** Requests in flight at once. */
  max: number;
  fractions: Fractions;
  /** Why the replica is in no state to take more, beside being full or draining; undefined: it is well. */
  unfit: () => ShedReason | undefined;
  onShed: (reason: ShedReason) => void;
};

/** The door of metered work: at most `max` requests at once in this replica, none while it is unfit or once it drains. */
export function createGate({ max, fractions, unfit, onShed }: GateOptions): Gate {
  const reasons = { replica: "full", account: "in_flight_per_account", tenant: "in_flight_per_tenant" } as const;
  const places = new Shares({ max, fractions, what: "requests in flight", reasons, onShed });
  let visits = 0;
  let announced = false;
  let closed = false;
  let over = false;
  let onEmpty = () => {};
  const ends = new Set<() => void>();
  const onLeave = () => {
    visits--;
    if (closed && visits === 0) onEmpty();
  };
  return {
    arrive(owner) {
      const reason = closed ? "draining" : unfit();
      if (reason !== undefined) {
        onShed(reason);
        throw new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
      }
      // Before its body is read: who would find no place afterwards is told so at once.
      places.check(owner, 1);
      visits++;
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
  readonly #places: Shares;
  readonly #owner: Owner;
  readonly #onLeave: () => void;
  #state: "arrived" | "in flight" | "gone" = "arrived";

  constructor(places: Shares, owner: Owner, onLeave: () => void) {
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
    this.#onLeave();
  }
}
