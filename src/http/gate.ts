import type { Gate } from "../deps.ts";
import { Refusal } from "../errors.ts";
import type { ShedReason } from "../platform/metrics.ts";

/** How long a client of a full replica is told to wait. */
const RETRY_AFTER_SECONDS = 1;

type GateOptions = {
  /** Requests at once. */
  max: number;
  /** Why the replica is in no state to take more, beside being full or draining; undefined: it is well. */
  unfit: () => ShedReason | undefined;
  onShed: (reason: ShedReason) => void;
};

/** The door of metered work: at most `max` requests at once in this replica, none while it is unfit or once it drains. */
export function createGate({ max, unfit, onShed }: GateOptions): Gate {
  let inFlight = 0;
  let announced = false;
  let closed = false;
  let over = false;
  let onEmpty = () => {};
  const ends = new Set<() => void>();
  const obstacle = () => (closed ? "draining" : inFlight >= max ? "full" : unfit());
  return {
    enter() {
      const reason = obstacle();
      if (reason !== undefined) {
        onShed(reason);
        throw new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
      }
      inFlight++;
      let left = false;
      return () => {
        if (left) return;
        left = true;
        inFlight--;
        if (closed && inFlight === 0) onEmpty();
      };
    },
    inFlight: () => inFlight,
    draining: () => announced,
    announce() {
      announced = true;
    },
    drain() {
      announced = true;
      closed = true;
      return new Promise((resolve) => {
        if (inFlight === 0) resolve();
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
