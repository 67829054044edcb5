import type { Hold } from "./ledger.ts";
import type { ReserveRequest } from "./ledger_store.ts";

/** The open holds of this replica, and until when each lease runs. */

type Granted = Pick<Hold, "mode" | "heldNanoUsd" | "capTokens">;
type LiveHold = Hold & { leaseUntilMs: number; ended: boolean };

export type LiveHolds = {
  /** Adds the hold of a granted request, whose lease began at `leasedMs`. */
  add(request: ReserveRequest, granted: Granted, leasedMs: number): Hold;
  /** Whether the lease is still running. */
  alive(hold: Hold): boolean;
  /** Marks a hold as ended. Throws if it was ended before: that is a bug of the caller and must be noticed. */
  end(hold: Hold): void;
  /** Forgets a hold: its end is in the database or in the spool. */
  delete(requestId: string): void;
  /** Holds that have used at least a third of their lease. */
  due(): Hold[];
  /** Starts a new lease at `leasedMs` for a hold that is still here. */
  renew(requestId: string, leasedMs: number): void;
  count(): number;
};

/** `nowMs` is the monotonic clock. */
export function createLiveHolds({ leaseMs, nowMs }: { leaseMs: number; nowMs: () => number }): LiveHolds {
  const live = new Map<string, LiveHold>();
  return {
    add({ requestId, accountId }, { mode, heldNanoUsd, capTokens }, leasedMs) {
      const leaseUntilMs = leasedMs + leaseMs;
      const hold: LiveHold = { requestId, accountId, mode, heldNanoUsd, capTokens, leaseUntilMs, ended: false };
      live.set(requestId, hold);
      return hold;
    },
    alive: ({ requestId }) => nowMs() < (live.get(requestId)?.leaseUntilMs ?? 0),
    end({ requestId }) {
      const known = live.get(requestId);
      if (known === undefined || known.ended) throw new Error(`hold ${requestId} was ended twice`);
      known.ended = true;
    },
    delete(requestId) {
      live.delete(requestId);
    },
    due() {
      const dueMs = nowMs() + (leaseMs * 2) / 3;
      return [...live.values()].filter((hold) => !hold.ended && hold.leaseUntilMs < dueMs);
    },
    renew(requestId, leasedMs) {
      const known = live.get(requestId);
      if (known !== undefined) known.leaseUntilMs = leasedMs + leaseMs;
    },
    count: () => live.size,
  };
}
