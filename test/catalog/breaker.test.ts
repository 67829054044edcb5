import { expect, test } from "bun:test";
import { createBreakers, type Requester } from "../../src/catalog/breaker.ts";

const ANN: Requester = { accountId: 1, payerId: 1 };
const BEN: Requester = { accountId: 2, payerId: 2 };
const CARA: Requester = { accountId: 3, payerId: 3 };
/** Customers of one reseller. */
const RESELLER = 100;
const customer = (accountId: number): Requester => ({ accountId, payerId: RESELLER });

function clocked() {
  const clock = { ms: 0 };
  const breakers = createBreakers({ now: () => clock.ms });
  const fail = (times: number, routeId = 1, requester = ANN) => {
    for (let i = 0; i < times; i++) breakers.enter(routeId, requester)?.failed();
  };
  /** The same number of failures, of two payers in turn. */
  const failForAll = (times: number, routeId = 1) => {
    for (let i = 0; i < times; i++) fail(1, routeId, i % 2 === 0 ? ANN : BEN);
  };
  return { clock, breakers, fail, failForAll };
}

test("four consecutive failures do not open the breaker, the fifth does", () => {
  const { breakers, fail } = clocked();
  fail(4);
  expect(breakers.dueInMs(1)).toBe(0);
  fail(1);
  expect(breakers.enter(1, ANN)).toBeUndefined();
  expect(breakers.dueInMs(1)).toBe(1000);
});

test("a success resets the count of failures", () => {
  const { breakers, fail } = clocked();
  fail(4);
  breakers.enter(1, ANN)?.succeeded();
  fail(4);
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("failures of one route do not affect another", () => {
  const { breakers, fail } = clocked();
  fail(5, 1);
  expect(breakers.enter(2, ANN)).toBeDefined();
});

test("a half-open breaker lets exactly one probe through, and its success closes the breaker", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  clock.ms = 999;
  expect(breakers.enter(1, ANN)).toBeUndefined();
  clock.ms = 1000;
  const probe = breakers.enter(1, ANN);
  expect(probe).toBeDefined();
  expect(breakers.enter(1, ANN)).toBeUndefined();
  expect(breakers.dueInMs(1)).toBeGreaterThan(0);
  probe?.succeeded();
  expect(breakers.enter(1, ANN)).toBeDefined();
  expect(breakers.dueInMs(1)).toBe(0);
});

test("each failed probe doubles the open time, up to 30 s", () => {
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

test("after the breaker has closed, it opens for 1 s again", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  clock.ms += 1000;
  fail(1);
  clock.ms += 2000;
  breakers.enter(1, ANN)?.succeeded();
  fail(5);
  expect(breakers.dueInMs(1)).toBe(1000);
});

test("after an abandoned probe the next one is allowed immediately", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  clock.ms = 1000;
  breakers.enter(1, ANN)?.abandoned();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("a probe that never reports is replaced after 10 s, and its late failure changes nothing", () => {
  const { clock, breakers, fail } = clocked();
  fail(5);
  clock.ms = 1000;
  const lost = breakers.enter(1, ANN);
  clock.ms = 10_999;
  expect(breakers.enter(1, ANN)).toBeUndefined();
  clock.ms = 11_000;
  const second = breakers.enter(1, ANN);
  expect(second).toBeDefined();
  lost?.failed();
  expect(breakers.dueInMs(1)).toBe(1000); // The second probe's lease, not a new opening.
  second?.succeeded();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("attempts that began before the breaker opened do not prolong it when they fail late", () => {
  const { clock, breakers, fail } = clocked();
  const early = Array.from({ length: 10 }, () => breakers.enter(1, ANN));
  fail(5);
  clock.ms = 500;
  for (const pass of early) pass?.failed();
  expect(breakers.dueInMs(1)).toBe(500);
});

test("a pass counts once, however often it reports", () => {
  const { breakers } = clocked();
  const pass = breakers.enter(1, ANN);
  for (let i = 0; i < 10; i++) pass?.failed();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("states() counts open and half-open routes; working ones are neither", () => {
  const { clock, breakers, fail } = clocked();
  // The metrics call it without its object.
  const { states } = breakers;
  fail(4, 1);
  fail(5, 2);
  fail(5, 3);
  expect(states()).toEqual({ open: 2, half_open: 0 });
  clock.ms = 1000;
  expect(breakers.states()).toEqual({ open: 0, half_open: 2 });
  breakers.enter(2, ANN)?.succeeded();
  breakers.enter(3, ANN)?.failed();
  expect(breakers.states()).toEqual({ open: 1, half_open: 0 });
});

test("five failures of one account close the route off for that account only", () => {
  const { breakers, fail } = clocked();
  fail(5);
  expect(breakers.enter(1, ANN)).toBeUndefined();
  for (let i = 0; i < 50; i++) expect(breakers.enter(1, BEN)).toBeDefined();
  expect(breakers.dueInMs(1, BEN)).toBe(0);
  expect(breakers.isForAll(1)).toBe(false);
  breakers.enter(1, BEN)?.succeeded();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("failures seen by two payers close the route off for everybody", () => {
  const { breakers, failForAll } = clocked();
  failForAll(5);
  expect(breakers.isForAll(1)).toBe(true);
  expect(breakers.enter(1, CARA)).toBeUndefined();
  expect(breakers.dueInMs(1, CARA)).toBe(1000);
});

test("a route closed off for one payer is closed off for everybody once another payer sees the failure", () => {
  const { breakers, fail } = clocked();
  fail(5);
  fail(1, 1, BEN);
  expect(breakers.enter(1, CARA)).toBeUndefined();
});

test("a connection that cannot be made counts for everybody", () => {
  const { breakers } = clocked();
  for (let i = 0; i < 5; i++) breakers.enter(1, ANN)?.failed({ unreachable: true });
  expect(breakers.enter(1, BEN)).toBeUndefined();
});

test("two customers of one reseller close a route off for that reseller's customers only", () => {
  const { breakers, fail } = clocked();
  for (let i = 0; i < 3; i++) fail(2, 1, customer(11 + i));
  expect(breakers.enter(1, customer(50))).toBeUndefined();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("a payer's failed probes do not keep others out: they may probe one second after each", () => {
  const { clock, breakers, failForAll } = clocked();
  failForAll(5);
  for (let i = 0; i < 6; i++) {
    clock.ms += breakers.dueInMs(1, ANN);
    breakers.enter(1, ANN)?.failed();
  }
  expect(breakers.dueInMs(1, ANN)).toBe(30_000);
  expect(breakers.dueInMs(1, CARA)).toBe(1000);
  clock.ms += 1000;
  breakers.enter(1, CARA)?.succeeded();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("failures of a key, and requests that a route cannot serve, are not failures: the breaker stays closed", () => {
  const { clock, breakers } = clocked();
  for (let i = 0; i < 20; i++) {
    breakers.enter(1, i % 2 ? ANN : BEN)?.unserved("unknown_model");
    breakers.enter(1, i % 2 ? ANN : BEN)?.abandoned();
    clock.ms += 1000;
  }
  expect(breakers.enter(1, CARA)).toBeDefined();
});

test("the reason why a route could not serve a request is kept until it serves one", () => {
  const { breakers } = clocked();
  expect(breakers.trouble(1)).toBeNull();
  breakers.enter(1, ANN)?.unserved("no_credit");
  expect(breakers.trouble(1)).toBe("no_credit");
  breakers.enter(1, BEN)?.succeeded();
  expect(breakers.trouble(1)).toBeNull();
});

test("after a probe that fails by its key, or cannot serve the request, the next one is allowed immediately", () => {
  const { clock, breakers, failForAll } = clocked();
  failForAll(5);
  clock.ms = 1000;
  breakers.enter(1, ANN)?.unserved("too_large");
  breakers.enter(1, ANN)?.abandoned();
  expect(breakers.enter(1, BEN)).toBeDefined();
});

test("ten thousand payers who see failures use bounded memory, and the bound lets none of them through", () => {
  const { breakers } = clocked();
  const passes = Array.from({ length: 10_000 }, (_, i) => breakers.enter(1, { accountId: i + 1, payerId: i + 1 }));
  for (const pass of passes) pass?.failed();
  expect(breakers.enter(1, { accountId: 99_999, payerId: 99_999 })).toBeUndefined();
});

test("beyond the payers that are remembered, nobody counts as new: a probe comes only when it is due", () => {
  const { clock, breakers } = clocked();
  const payer = (id: number) => ({ accountId: id, payerId: id });
  const passes = Array.from({ length: 100 }, (_, i) => breakers.enter(1, payer(i + 1)));
  for (const pass of passes) pass?.failed();
  clock.ms = 1000;
  breakers.enter(1, payer(1))?.failed();
  clock.ms = 2999;
  expect(breakers.enter(1, payer(100))).toBeUndefined();
  clock.ms = 3000;
  expect(breakers.enter(1, payer(100))).toBeDefined();
});
