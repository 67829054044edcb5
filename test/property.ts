import fc from "fast-check";

/**
 * Random tests. A failure names its seed, and `PROPERTY_SEED` repeats it. `PROPERTY_TIMES` runs each random test so many times as often,
 * as before a release: `PROPERTY_TIMES=50 bun run test gateway/chunks`.
 */
export const SEED = Number(process.env.PROPERTY_SEED ?? Math.floor(Math.random() * 2 ** 31));
export const TIMES = Number(process.env.PROPERTY_TIMES ?? 1);
const RUNS = 100;

/** Throws, with the smallest values found, if a property does not hold for random values. */
export function holds<T>(property: fc.IAsyncProperty<T>, more?: fc.Parameters<T>): Promise<void>;
export function holds<T>(property: fc.IProperty<T>, more?: fc.Parameters<T>): void;
export function holds<T>(property: fc.IRawProperty<T>, { numRuns = RUNS, ...more }: fc.Parameters<T> = {}) {
  return fc.assert(property, { seed: SEED, ...more, numRuns: numRuns * TIMES });
}
