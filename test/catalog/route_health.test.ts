import { expect, test } from "bun:test";
import { healthOf, worstHealth } from "../../src/catalog/route_health.ts";
import { ROUTE_STATES_NOTE, routeState, routesHealth } from "../../src/panel/web/pages/models/route_states.ts";

/** The state of a route by the sums of the last 24 hours. Source: PRV-23. */

const route = (over: object = {}) => ({
  enabled: true,
  providerEnabled: true,
  health: "answers" as const,
  breaker: { open: false, trouble: null },
  ...over,
});

test("a route without a request is untested, neither good nor bad", () => {
  expect(healthOf(undefined)).toBe("untested");
  expect(healthOf({ requests: 0, errors: 0 })).toBe("untested");
  expect(routesHealth([route({ health: "untested" })])).toMatchObject({ tone: "neutral", words: "1 route, untested" });
});

test("errors in a twentieth of the requests make a route degraded, in half of them failing", () => {
  const at = (requests: number, errors: number) => healthOf({ requests, errors });
  expect([at(100, 0), at(100, 4), at(100, 5), at(100, 49), at(100, 50), at(100, 100), at(1, 1)]).toEqual([
    ...(["answers", "answers", "degraded", "degraded", "failing", "failing", "failing"] as const),
  ]);
  // A stream that broke off in the hour after its request was counted.
  expect(at(0, 1)).toBe("failing");
  for (const share of ["5%", "50%"]) expect(ROUTE_STATES_NOTE).toContain(share);
});

test("a provider is as healthy as the worst of its routes that were called", () => {
  expect(worstHealth([])).toBe("untested");
  expect(worstHealth(["untested", "untested"])).toBe("untested");
  expect(worstHealth(["untested", "answers"])).toBe("answers");
  expect(worstHealth(["answers", "failing", "degraded"])).toBe("failing");
});

test("off, skipped by a replica, refused, failing: the first that is so is the state of a route", () => {
  const open = { open: true, trouble: null };
  const refused = { open: false, trouble: "no_credit" };
  expect(routeState(route({ enabled: false, breaker: open }))).toBe("off");
  expect(routeState(route({ providerEnabled: false, breaker: open }))).toBe("provider off");
  expect(routeState(route({ breaker: open, health: "failing" }))).toBe("left out");
  expect(routeState(route({ breaker: refused }))).toBe("refuses");
  expect(routeState(route({ breaker: refused, health: "failing" }))).toBe("failing");
  expect(routeState(route())).toBe("answers");
});

test("a model with a route that fails, or is degraded, is not shown as good", () => {
  expect(routesHealth([route(), route({ health: "failing" })])).toMatchObject({ tone: "warn", answering: 1 });
  expect(routesHealth([route({ health: "failing" })])).toMatchObject({ tone: "bad", answering: 0 });
  expect(routesHealth([route(), route({ health: "degraded" })])).toMatchObject({ tone: "warn", answering: 2 });
  expect(routesHealth([route(), route()])).toEqual({ tone: "ok", words: "2 routes", answering: 2 });
});
