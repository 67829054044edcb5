import type { Refusal } from "../errors.ts";

/** Places for work of one kind, so many at once, of which nobody has more than its share. */

/** What one account, or one tenant, may have of the places. */
export type Share = {
  /** Who: `account:7`. */
  id: string;
  atOnceMax: number;
  /** Of its work that waits for a place. */
  waitingMax: number;
};

export type Places = {
  /**
   * Takes a place, if need be after waiting for one. Who waits longest for a place of theirs is served first. Resolves to what
   * gives the place back; a second call of that does nothing. Throws `shareFull` where the work's own shares are full, `allFull`
   * where they are not, and the signal's reason.
   */
  enter(
    shares: readonly Share[],
    options: { waitMsMax: number; signal?: AbortSignal | undefined },
  ): Promise<() => void>;
  taken(): number;
};

type PlacesOptions = {
  max: number;
  /** Of all that wait. */
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
    for (const one of waiting) {
      if (total >= max) return;
      if (hasRoom(one.shares)) one.begin(take(one.shares));
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
      if (waiting.size >= waitingMax) throw allFull();
      return await wait(shares, waitMsMax, signal);
    },
    taken: () => total,
  };
}

type Waiting = { shares: readonly Share[]; begin(leave: () => void): void };

/** Counts by id; those of 0 take no room. */
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
