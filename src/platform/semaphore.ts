import type { Refusal } from "../errors.ts";

/** Limits concurrent work of one kind, in total and per account and tenant, with a bounded queue. */

/** The part that one account, or one tenant, may have. */
export type Share = {
  /** As in `account:7`. */
  id: string;
  atOnceMax: number;
  /** Of its waiting work. */
  waitingMax: number;
};

export type Places = {
  /**
   * Acquires a slot, after waiting if needed. Of those whose shares have room, who has the fewest slots by the first share is next, and of
   * these who came first: so accounts of one tenant take turns. Resolves to the function that
   * releases the slot; idempotent. Throws `shareFull` if the work's own shares are full, `allFull` otherwise, and the signal's reason.
   */
  enter(
    shares: readonly Share[],
    options: { waitMsMax: number; signal?: AbortSignal | undefined },
  ): Promise<() => void>;
  taken(): number;
};

type PlacesOptions = {
  max: number;
  /** Of all waiting work. */
  waitingMax: number;
  shareFull: () => Refusal;
  allFull: () => Refusal;
};

export function createSemaphore({ max, waitingMax, shareFull, allFull }: PlacesOptions): Places {
  const taken = createCounts();
  const waitingOf = createCounts();
  const waiting = new Set<Waiting>();
  let total = 0;

  const hasRoom = (shares: readonly Share[]) => shares.every(({ id, atOnceMax }) => taken.of(id) < atOnceMax);

  function take(shares: readonly Share[]): () => void {
    total++;
    for (const { id } of shares) taken.add(id, 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      total--;
      for (const { id } of shares) taken.add(id, -1);
      letIn();
    };
  }

  function letIn(): void {
    while (total < max) {
      const next = nextOf(waiting, { hasRoom, taken });
      if (next === undefined) return;
      next.begin(take(next.shares));
    }
  }

  function wait(shares: readonly Share[], waitMsMax: number, signal?: AbortSignal): Promise<() => void> {
    const { promise, resolve, reject } = Promise.withResolvers<() => void>();
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      waiting.delete(one);
      for (const { id } of shares) waitingOf.add(id, -1);
    };
    const one: Waiting = {
      shares,
      begin(leave) {
        end();
        resolve(leave);
      },
    };
    const onAbort = () => {
      end();
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      end();
      reject(hasRoom(shares) ? allFull() : shareFull());
    }, waitMsMax);
    signal?.addEventListener("abort", onAbort);
    waiting.add(one);
    for (const { id } of shares) waitingOf.add(id, 1);
    return promise;
  }

  return {
    async enter(shares, { waitMsMax, signal }) {
      signal?.throwIfAborted();
      if (total < max && hasRoom(shares)) return take(shares);
      if (shares.some((share) => waitingOf.of(share.id) >= share.waitingMax)) throw shareFull();
      if (waiting.size >= waitingMax) throw hasRoom(shares) ? allFull() : shareFull();
      return await wait(shares, waitMsMax, signal);
    },
    taken: () => total,
  };
}

/** Of those whose shares have room, the first that has the fewest slots by its first share. */
function nextOf(
  waiting: Iterable<Waiting>,
  { hasRoom, taken }: { hasRoom: (shares: readonly Share[]) => boolean; taken: { of(id: string): number } },
): Waiting | undefined {
  const slotsOf = ({ shares: [own] }: Waiting) => (own === undefined ? 0 : taken.of(own.id));
  let next: Waiting | undefined;
  for (const one of waiting)
    if (hasRoom(one.shares) && (next === undefined || slotsOf(one) < slotsOf(next))) next = one;
  return next;
}

type Waiting = { shares: readonly Share[]; begin(leave: () => void): void };

/** Counts by id. A count of 0 is not stored. */
function createCounts() {
  const counts = new Map<string, number>();
  return {
    of: (id: string) => counts.get(id) ?? 0,
    add(id: string, change: number): void {
      const count = (counts.get(id) ?? 0) + change;
      if (count === 0) counts.delete(id);
      else counts.set(id, count);
    },
  };
}
