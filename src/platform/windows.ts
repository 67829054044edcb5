import { LRUCache } from "lru-cache";

/** Ids counted at once; beyond, those not seen for longest are forgotten. */
const IDS_MAX = 50_000;

/** `msLeft`: until the window of the count ends; 0: none is open. */
export type Count = { count: number; msLeft: number };

/** Counts ids in fixed windows, each of which starts with its id's first count. In this process's memory. */
export type Windows = {
  add(id: string): Count;
  get(id: string): Count;
  remove(id: string): void;
};

/** `now` is the monotonic clock, ms. */
export function createWindows(windowMs: number, now: () => number): Windows {
  const windows = new LRUCache<string, { count: number; endsAt: number }>({ max: IDS_MAX });
  const live = (id: string) => {
    const window = windows.get(id);
    return window !== undefined && window.endsAt > now() ? window : undefined;
  };
  return {
    add(id) {
      let window = live(id);
      if (!window) {
        window = { count: 0, endsAt: now() + windowMs };
        windows.set(id, window);
      }
      window.count++;
      return { count: window.count, msLeft: window.endsAt - now() };
    },
    get(id) {
      const window = live(id);
      return window ? { count: window.count, msLeft: window.endsAt - now() } : { count: 0, msLeft: 0 };
    },
    remove: (id) => void windows.delete(id),
  };
}
