/** Random numbers from a seed: the same seed gives the same sequence. */
export type Random = {
  /** From 0 up to, not including, 1. */
  next(): number;
  /** A whole number, both ends included. */
  whole(min: number, max: number): number;
  /** Throws RangeError for an empty list. */
  pick<T>(items: readonly T[]): T;
  chance(share: number): boolean;
  shuffled<T>(items: readonly T[]): T[];
  /** A separate sequence, so that its use does not change the others. */
  fork(name: string): Random;
};

/** Mulberry32: one 32-bit state, good enough for tests and the same everywhere. */
export function randomOf(seed: number): Random {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const whole = (min: number, max: number) => min + Math.floor(next() * (max - min + 1));
  return {
    next,
    whole,
    pick(items) {
      const index = whole(0, items.length - 1);
      if (index >= items.length) throw new RangeError("there is nothing to pick from");
      return items[index] as (typeof items)[number];
    },
    chance: (share) => next() < share,
    shuffled(items) {
      const left = [...items];
      for (let i = left.length - 1; i > 0; i--) {
        const j = whole(0, i);
        [left[i], left[j]] = [left[j] as (typeof left)[number], left[i] as (typeof left)[number]];
      }
      return left;
    },
    fork(name) {
      let hash = seed ^ 0x811c9dc5;
      for (const char of name) hash = Math.imul(hash ^ (char.codePointAt(0) ?? 0), 0x01000193);
      return randomOf(hash);
    },
  };
}
