import { afterEach, expect, jest, test } from "bun:test";
import { watchPeak } from "../../src/server/memory_trim.ts";

afterEach(() => void jest.useRealTimers());

/** How often memory was given back by each look, when so many requests were in flight at it. */
function looks(inFlights: number[]): number[] {
  jest.useFakeTimers();
  let now = 0;
  let given = 0;
  const watch = watchPeak({ inFlight: () => now, giveBack: () => given++ });
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

test("memory is given back when a peak is over, twice, and then left alone", () => {
  expect(looks([1000, 400, 101, 99, 90, 0, 0])).toEqual([0, 0, 0, 1, 2, 2, 2]);
});

test("each peak counts anew, from what was left of the one before", () => {
  expect(looks([500, 0, 0, 100, 11, 10, 0, 0])).toEqual([0, 1, 2, 2, 2, 3, 4, 4]);
});

test("a quiet replica is left alone", () => {
  expect(looks([99, 0, 50, 0, 99, 9])).toEqual([0, 0, 0, 0, 0, 0]);
});
