import { expect, test } from "bun:test";
import { createBreakers } from "../../src/catalog/breaker.ts";

function clocked() {
  const clock = { ms: 0 };
  const breakers = createBreakers({ now: () => clock.ms });
  const fail = (times: number, routeId = 1) => {
    for (let i = 0; i < times; i++) breakers.enter(routeId)?.failed();
  };
  return { clock, breakers, fail };
}

test("four failures in a row leave a route open to all, the fifth closes it off", () => {
  const { breakers, fail } = clocked();
  fail(4);
  expect(breakers.dueInMs(1)).toBe(0);
  fail(1);
  expect(breakers.enter(1)).toBeUndefined();
  expect(breakers.dueInMs(1)).toBe(1000);
});

test("a success between them starts the count anew", () => {
  const { breakers, fail } = clocked();
  fail(4);
  breakers.enter(1)?.succeeded();
  fail(4);
  expect(breakers.enter(1)).toBeDefined();
});

test("one route's failures do not touch another's", () => {
  const { breakers, fail } = clocked();
  fail(5, 1);
  expect(breakers.enter(2)).toBeDefined();
});

test("half open: exactly one probe is let through, and its success opens the way", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  clock.ms = 999;
  expect(breakers.enter(1)).toBeUndefined();
  clock.ms = 1000;
  const probe = breakers.enter(1);
  expect(probe).toBeDefined();
  expect(breakers.enter(1)).toBeUndefined();
  expect(breakers.dueInMs(1)).toBeGreaterThan(0);
  probe?.succeeded();
  expect(breakers.enter(1)).toBeDefined();
  expect(breakers.dueInMs(1)).toBe(0);
});

test("each failed probe doubles the time, up to 30 s", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  const waits: number[] = [];
  for (let i = 0; i < 8; i++) {
    waits.push(breakers.dueInMs(1));
    clock.ms += breakers.dueInMs(1);
    fail(1);
  }
  expect(waits).toEqual([1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000]);
});

test("after it closed, the time begins at 1 s again", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  clock.ms += 1000;
  fail(1);
  clock.ms += 2000;
  breakers.enter(1)?.succeeded();
  fail(5);
  expect(breakers.dueInMs(1)).toBe(1000);
});

test("an abandoned probe leaves its place to the next at once", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  clock.ms = 1000;
  breakers.enter(1)?.abandoned();
  expect(breakers.enter(1)).toBeDefined();
});

test("a probe that never reports is replaced after 10 s, and its late failure changes nothing", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  clock.ms = 1000;
  const lost = breakers.enter(1);
  clock.ms = 10_999;
  expect(breakers.enter(1)).toBeUndefined();
  clock.ms = 11_000;
  const second = breakers.enter(1);
  expect(second).toBeDefined();
  lost?.failed();
  expect(breakers.dueInMs(1)).toBe(1000); // The second probe's place, not a new opening.
  second?.succeeded();
  expect(breakers.enter(1)).toBeDefined();
});

test("attempts from before it opened neither prolong nor deepen it when they fail late", () => {
  const { clock, breakers, fail } = clocked();
  const early = Array.from({ length: 10 }, () => breakers.enter(1));
  fail(5);
  clock.ms = 500;
  for (const pass of early) pass?.failed();
  expect(breakers.dueInMs(1)).toBe(500);
});

test("a pass counts once, however often it is reported", () => {
  const { breakers } = clocked();
  const pass = breakers.enter(1);
  for (let i = 0; i < 10; i++) pass?.failed();
  expect(breakers.enter(1)).toBeDefined();
});

test("what is open and what is half open is counted; what works is neither", () => {
  const { clock, breakers, fail } = clocked();
  fail(4, 1);
  fail(5, 2);
  fail(5, 3);
  expect(breakers.states()).toEqual({ open: 2, half_open: 0 });
  clock.ms = 1000;
  expect(breakers.states()).toEqual({ open: 0, half_open: 2 });
  breakers.enter(2)?.succeeded();
  breakers.enter(3)?.failed();
  expect(breakers.states()).toEqual({ open: 1, half_open: 0 });
});
