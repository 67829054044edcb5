import type { Gate } from "../deps.ts";
import { Refusal } from "../errors.ts";

/** How long a client of a full replica is told to wait. */
const RETRY_AFTER_SECONDS = 1;

/** The door of metered work: at most `max` requests at once in this replica, and none once it drains. */
export function createGate(max: number): Gate {
  let inFlight = 0;
  let draining = false;
  let over = false;
  let onEmpty = () => {};
  const ends = new Set<() => void>();
  return {
    enter() {
      if (draining || inFlight >= max)
        throw new Refusal("service_unavailable", { retryAfterSeconds: RETRY_AFTER_SECONDS });
      inFlight++;
      let left = false;
      return () => {
        if (left) return;
        left = true;
        inFlight--;
        if (draining && inFlight === 0) onEmpty();
      };
    },
    inFlight: () => inFlight,
    draining: () => draining,
    drain() {
      draining = true;
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
