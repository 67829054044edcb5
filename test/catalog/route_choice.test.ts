import { expect, test } from "bun:test";
import fc from "fast-check";
import type { Route } from "../../src/catalog/catalog.ts";
import { orderRoutes } from "../../src/catalog/failover.ts";
import { speedRanks } from "../../src/catalog/route_speeds.ts";
import { noSums, type RouteSums, reportsOf } from "../../src/catalog/route_sums.ts";
import { BUCKETS, bucketOf, percentileMs } from "../../src/platform/durations.ts";
import { holds } from "../property.ts";
import { route } from "./sockets.ts";

/** Which route a request is sent to first. Source: PRV-19, PRV-20, PRV-21, PRV-23. */

const routeOf = (id: number, fields: Partial<Route> = {}) => route("https://a.example/v1", { id, ...fields });
const NO_SPEEDS = new Map<number, number>();
/** Not 1 in 20. */
const seldom = () => 0.5;

/** How often each route came first, of 10,000 times. */
function firsts(
  routes: readonly Route[],
  order: { choice: "order" | "weight" | "price" | "latency"; speeds?: Map<number, number> },
) {
  const random = pseudoRandom();
  const counts: Record<number, number> = {};
  for (let i = 0; i < 10_000; i++) {
    const [first] = orderRoutes(routes, { speeds: NO_SPEEDS, random, ...order });
    if (first) counts[first.id] = (counts[first.id] ?? 0) + 1;
  }
  return counts;
}

/** The same numbers in every run. */
function pseudoRandom(): () => number {
  let seed = 42;
  return () => {
    seed = (seed * 48271) % 2147483647;
    return seed / 2147483647;
  };
}

const idsBy = (choice: "order" | "weight" | "price" | "latency", routes: readonly Route[], speeds = NO_SPEEDS) =>
  orderRoutes(routes, { choice, speeds, random: seldom }).map(({ id }) => id);

test("by order, the lowest priority number is first, whatever the cost and the speed", () => {
  const routes = [
    routeOf(1, { priority: 2, cost: 1 }),
    routeOf(2, { priority: 1, cost: 9 }),
    routeOf(3, { priority: 3 }),
  ];
  expect(idsBy("order", routes, new Map([[2, 900]]))).toEqual([2, 1, 3]);
});

test("by weight, each route is first in proportion to its weight, whatever the priorities", () => {
  const counts = firsts([routeOf(1, { priority: 5, weight: 3 }), routeOf(2, { priority: 0, weight: 1 })], {
    choice: "weight",
  });
  expect((counts[1] ?? 0) / 10_000).toBeCloseTo(0.75, 1);
});

test("by price, the lowest cost is first; equal costs go by priority, and an unknown cost is last", () => {
  const routes = [
    routeOf(1, { cost: null, priority: -5 }),
    routeOf(2, { cost: 30 }),
    routeOf(3, { cost: 10, priority: 7 }),
    routeOf(4, { cost: 10, priority: 6 }),
    routeOf(5, { cost: 0, priority: 99 }),
  ];
  expect(idsBy("price", routes)).toEqual([5, 4, 3, 2, 1]);
  const unpriced = [routeOf(1, { priority: 1 }), routeOf(2, { priority: 0 })];
  expect(idsBy("price", unpriced)).toEqual([2, 1]);
});

test("by latency, the fastest route is first; 1 request in 20 goes to any route by weight, so that a slow one is measured again", () => {
  const routes = [routeOf(1, { priority: -9 }), routeOf(2)];
  expect(idsBy("latency", routes, new Map([[1, 400]]))).toEqual([2, 1]);
  const counts = firsts(routes, { choice: "latency", speeds: new Map([[1, 400]]) });
  // Half of the twentieth.
  expect((counts[1] ?? 0) / 10_000).toBeGreaterThan(0.018);
  expect((counts[1] ?? 0) / 10_000).toBeLessThan(0.032);
});

test("every choice tries every route once", () => {
  const choices = fc.constantFrom("order", "weight", "price", "latency" as const);
  const fields = fc.record({
    priority: fc.integer({ min: -2, max: 2 }),
    weight: fc.integer({ min: 1, max: 5 }),
    cost: fc.option(fc.nat(3)),
    speed: fc.nat(3),
  });
  holds(
    fc.property(
      choices,
      fc.array(fields, { maxLength: 8 }),
      fc.infiniteStream(fc.double({ min: 0, max: 0.999, noNaN: true })),
      (choice, all, draws) => {
        const routes = all.map(({ speed: _, ...one }, id) => routeOf(id, one));
        const speeds = new Map(all.map(({ speed }, id) => [id, speed]));
        const order = orderRoutes(routes, { choice, speeds, random: () => draws.next().value ?? 0 });
        expect(order.map(({ id }) => id).sort((a, b) => a - b)).toEqual(routes.map(({ id }) => id));
      },
    ),
  );
});

/** Sums of `answers` answers of `ms` each, and of so many errors. */
function sumsOf(
  routeId: number,
  ms: number,
  { answers = 20, errors = 0, kind = "whole" as RouteSums["kind"] } = {},
): RouteSums {
  const sums = { ...noSums(routeId, kind), requests: answers + errors, errors };
  sums.durations[bucketOf(ms)] = answers;
  return sums;
}

test("routes that are nearly as fast as the fastest, and those with fewer than 5 attempts, count as the fastest", () => {
  const models = [{ routes: [1, 2, 3, 4].map((id) => routeOf(id)) }];
  const sums = [sumsOf(1, 100), sumsOf(2, 110), sumsOf(3, 300), sumsOf(4, 5_000, { answers: 4 })];
  expect([...speedRanks(models, sums, "whole").keys()]).toEqual([3]);
});

test("errors count as time: a route that answers one attempt in four counts as four times as slow; one that never answers is last", () => {
  const models = [{ routes: [1, 2, 3].map((id) => routeOf(id)) }];
  const sums = [sumsOf(1, 100), sumsOf(2, 50, { answers: 5, errors: 15 }), sumsOf(3, 1, { answers: 0, errors: 20 })];
  const ranks = speedRanks(models, sums, "whole");
  expect(ranks.get(1)).toBeUndefined();
  expect(ranks.get(2)).toBeCloseTo(200, -2);
  expect(ranks.get(3)).toBe(Number.MAX_SAFE_INTEGER);
});

test("streams are compared by their first event, and whole answers by their end", () => {
  const models = [{ routes: [1, 2].map((id) => routeOf(id)) }];
  const sums = [sumsOf(1, 100, { kind: "stream" }), sumsOf(2, 900, { kind: "stream" }), sumsOf(1, 900), sumsOf(2, 100)];
  expect([...speedRanks(models, sums, "stream").keys()]).toEqual([2]);
  expect([...speedRanks(models, sums, "whole").keys()]).toEqual([1]);
});

test("one model's routes are not compared with another's", () => {
  const models = [{ routes: [routeOf(1)] }, { routes: [routeOf(2)] }];
  expect(speedRanks(models, [sumsOf(1, 10), sumsOf(2, 9_000)], "whole").size).toBe(0);
});

test("a percentile is off by at most a tenth, for any durations from 1 ms to 15 minutes", () => {
  const durations = fc.array(fc.double({ min: 1, max: 900_000, noNaN: true }), { minLength: 1, maxLength: 200 });
  holds(
    fc.property(durations, fc.constantFrom(0.5, 0.95, 1), (all, fraction) => {
      const buckets = new Uint32Array(BUCKETS);
      for (const ms of all) buckets[bucketOf(ms)] = (buckets[bucketOf(ms)] ?? 0) + 1;
      const exact = all.sort((a, b) => a - b)[Math.max(1, Math.ceil(fraction * all.length)) - 1] ?? 0;
      const found = percentileMs(buckets, fraction) ?? 0;
      // Rounded to a whole millisecond.
      expect(Math.abs(found - exact)).toBeLessThanOrEqual(exact * 0.1 + 0.5);
    }),
  );
  expect(percentileMs(new Uint32Array(BUCKETS), 0.5)).toBeNull();
});

test("durations of any size have a bucket", () => {
  for (const ms of [0, -5, 0.2, 1, 1e9, Number.MAX_VALUE, Number.POSITIVE_INFINITY]) {
    const bucket = bucketOf(ms);
    expect(Number.isInteger(bucket) && bucket >= 0 && bucket < BUCKETS).toBe(true);
  }
});

test("a report adds streams and whole answers, and keeps their times apart", () => {
  const [report] = reportsOf([
    { ...sumsOf(1, 100, { kind: "stream", errors: 2 }), inputTokens: 10, cachedTokens: 5 },
    { ...sumsOf(1, 2_000), inputTokens: 30, cachedTokens: 1 },
  ]);
  expect(report).toMatchObject({ routeId: 1, requests: 42, errors: 2, inputTokens: 40, cachedTokens: 6 });
  expect(report?.firstEvent?.p50Ms).toBeCloseTo(100, -1.5);
  expect(report?.wholeAnswer?.p95Ms).toBeCloseTo(2_000, -3);
});
