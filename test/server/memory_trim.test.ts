import { afterEach, expect, jest, test } from "bun:test";
import { trimMemory } from "../../src/server/memory_trim.ts";

afterEach(() => void jest.useRealTimers());

/** For each sample of `inFlights`: how often memory was given back up to then. */
function givenBack(inFlights: number[]): number[] {
  jest.useFakeTimers();
  let now = 0;
  let given = 0;
  const watch = trimMemory({ inFlight: () => now, giveBack: () => given++ });
  const counts = inFlights.map((inFlight) => {
    now = inFlight;
    jest.advanceTimersByTime(5_000);
    return given;
  });
  watch.close();
  jest.advanceTimersByTime(60_000);
  expect(given).toBe(counts.at(-1) ?? 0);
  return counts;
}

test("memory is given back twice when a peak is over, and not again", () => {
  expect(givenBack([1000, 400, 101, 99, 90, 0, 0])).toEqual([0, 0, 0, 1, 2, 2, 2]);
});

test("each peak is measured from what the peak before left", () => {
  expect(givenBack([500, 0, 0, 100, 11, 10, 0, 0])).toEqual([0, 1, 2, 2, 2, 3, 4, 4]);
});

test("nothing is given back without a peak", () => {
  expect(givenBack([99, 0, 50, 0, 99, 9])).toEqual([0, 0, 0, 0, 0, 0]);
});
