import { afterEach, beforeEach, expect, jest, test } from "bun:test";
import { deadline } from "../../src/platform/deadline.ts";

beforeEach(() => void jest.useFakeTimers());
afterEach(() => void jest.useRealTimers());

test("each deadline fires once, not early, at most a twentieth late; those of equal length fire in order", () => {
  const came: string[] = [];
  const end = (name: string) => () => came.push(name);
  deadline(60, end("a"));
  jest.advanceTimersByTime(20);
  deadline(60, end("b"));
  deadline(10, end("short"));
  const at: [number, string[]][] = [
    [9, []],
    [2, ["short"]],
    [28, ["short"]],
    [4, ["short", "a"]],
    [16, ["short", "a"]],
    [4, ["short", "a", "b"]],
    [1_000, ["short", "a", "b"]],
  ];
  for (const [ms, names] of at) {
    jest.advanceTimersByTime(ms);
    expect(came).toEqual(names);
  }
});

test("a cancelled deadline never fires; after all are cancelled the same length works again", () => {
  let came = 0;
  const takeBack = Array.from({ length: 1000 }, () => deadline(30, () => came++));
  for (const back of takeBack) back();
  jest.advanceTimersByTime(100);
  expect(came).toBe(0);
  deadline(30, () => came++);
  jest.advanceTimersByTime(32);
  expect(came).toBe(1);
});
