import { afterEach, expect, jest, test } from "bun:test";
import { trimMemory } from "../../src/server/memory_trim.ts";

afterEach(() => void jest.useRealTimers());

/** For each sample of `inFlights`: how often memory was returned so far. A sample is what is in flight, and the most since the last one. */
function returnedAt(inFlights: (number | [now: number, peak: number])[]): number[] {
  jest.useFakeTimers();
  let now = 0;
  let peak = 0;
  let given = 0;
  const watch = trimMemory({ inFlight: () => now, takePeak: () => peak, giveBack: () => given++ });
  const counts = inFlights.map((inFlight) => {
    [now, peak] = typeof inFlight === "number" ? [inFlight, inFlight] : inFlight;
    jest.advanceTimersByTime(5_000);
    return given;
  });
  watch.close();
  jest.advanceTimersByTime(60_000);
  expect(given).toBe(counts.at(-1) ?? 0);
  return counts;
}

test("after a peak, memory is returned twice, and not again", () => {
  expect(returnedAt([1000, 400, 101, 99, 90, 0, 0])).toEqual([0, 0, 0, 1, 2, 2, 2]);
});

test("each peak is measured from the level after the previous one", () => {
  expect(returnedAt([500, 0, 0, 100, 11, 10, 0, 0])).toEqual([0, 1, 2, 2, 2, 3, 4, 4]);
});

test("a wave that begins and ends between two samples is a peak", () => {
  expect(returnedAt([0, [0, 1000], 0, 0, [10, 100], 0, 0])).toEqual([0, 1, 2, 2, 3, 4, 4]);
});

test("without a peak no memory is returned", () => {
  expect(returnedAt([99, 0, 50, 0, 99, 9])).toEqual([0, 0, 0, 0, 0, 0]);
});
