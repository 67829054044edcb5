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
  /** As many failures, met by two payers in turn. */
  const failForAll = (times: number, routeId = 1) => {
    for (let i = 0; i < times; i++) fail(1, routeId, i % 2 === 0 ? ANN : BEN);
  };
  return { clock, breakers, fail, failForAll };
}

test("four failures in a row leave a route open to all, the fifth closes it off", () => {
  const { breakers, fail } = clocked();
  fail(4);
  expect(breakers.dueInMs(1)).toBe(0);
  fail(1);
  expect(breakers.enter(1, ANN)).toBeUndefined();
  expect(breakers.dueInMs(1)).toBe(1000);
});

test("a success between them starts the count anew", () => {
  const { breakers, fail } = clocked();
  fail(4);
  breakers.enter(1, ANN)?.succeeded();
  fail(4);
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("one route's failures do not touch another's", () => {
  const { breakers, fail } = clocked();
  fail(5, 1);
  expect(breakers.enter(2, ANN)).toBeDefined();
});

test("half open: exactly one probe is let through, and its success opens the way", () => {
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
  breakers.enter(1, ANN)?.succeeded();
  fail(5);
  expect(breakers.dueInMs(1)).toBe(1000);
});

test("an abandoned probe leaves its place to the next at once", () => {
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
  expect(breakers.dueInMs(1)).toBe(1000); // The second probe's place, not a new opening.
  second?.succeeded();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("attempts from before it opened neither prolong nor deepen it when they fail late", () => {
  const { clock, breakers, fail } = clocked();
  const early = Array.from({ length: 10 }, () => breakers.enter(1, ANN));
  fail(5);
  clock.ms = 500;
  for (const pass of early) pass?.failed();
  expect(breakers.dueInMs(1)).toBe(500);
});

test("a pass counts once, however often it is reported", () => {
  const { breakers } = clocked();
  const pass = breakers.enter(1, ANN);
  for (let i = 0; i < 10; i++) pass?.failed();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("what is open and what is half open is counted; what works is neither", () => {
  const { clock, breakers, fail } = clocked();
  fail(4, 1);
  fail(5, 2);
  fail(5, 3);
  expect(breakers.states()).toEqual({ open: 2, half_open: 0, cooling: 0 });
  clock.ms = 1000;
  expect(breakers.states()).toEqual({ open: 0, half_open: 2, cooling: 0 });
  breakers.enter(2, ANN)?.succeeded();
  breakers.enter(3, ANN)?.failed();
  expect(breakers.states()).toEqual({ open: 1, half_open: 0, cooling: 0 });
});

test("five failures of one account leave the route alone for that account, and for nobody else", () => {
  const { breakers, fail } = clocked();
  fail(5);
  expect(breakers.enter(1, ANN)).toBeUndefined();
  for (let i = 0; i < 50; i++) expect(breakers.enter(1, BEN)).toBeDefined();
  expect(breakers.dueInMs(1, BEN)).toBe(0);
  expect(breakers.isForAll(1)).toBe(false);
  breakers.enter(1, BEN)?.succeeded();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("failures that two payers met leave the route alone for everybody", () => {
  const { breakers, failForAll } = clocked();
  failForAll(5);
  expect(breakers.isForAll(1)).toBe(true);
  expect(breakers.enter(1, CARA)).toBeUndefined();
  expect(breakers.dueInMs(1, CARA)).toBe(1000);
});

test("another payer who meets the failure of a route that was left alone for one makes it everybody's", () => {
  const { breakers, fail } = clocked();
  fail(5);
  fail(1, 1, BEN);
  expect(breakers.enter(1, CARA)).toBeUndefined();
});

test("a connection that cannot be made is everybody's, whoever found out", () => {
  const { breakers } = clocked();
  for (let i = 0; i < 5; i++) breakers.enter(1, ANN)?.failed({ unreachable: true });
  expect(breakers.enter(1, BEN)).toBeUndefined();
});

test("two customers of one reseller close a route for its customers, and for nobody else's", () => {
  const { breakers, fail } = clocked();
  for (let i = 0; i < 3; i++) fail(2, 1, customer(11 + i));
  expect(breakers.enter(1, customer(50))).toBeUndefined();
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("who causes failures cannot keep others out with failed probes: they probe a second after each", () => {
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

test("a pause that a provider asked one account for concerns that account alone; a second payer's, everybody, for as long as that said", () => {
  const { clock, breakers } = clocked();
  breakers.enter(1, ANN)?.coolDown(40_000);
  expect(breakers.enter(1, ANN)).toBeUndefined();
  expect(breakers.dueInMs(1, ANN)).toBe(40_000);
  const meets = breakers.enter(1, BEN);
  expect(meets).toBeDefined();
  meets?.coolDown(3_000);
  expect(breakers.enter(1, CARA)).toBeUndefined();
  expect(breakers.states()).toEqual({ open: 0, half_open: 0, cooling: 1 });
  clock.ms = 3_000;
  for (const requester of [ANN, BEN, CARA]) expect(breakers.enter(1, requester)).toBeDefined();
  expect(breakers.states().cooling).toBe(0);
});

test("pauses are no failures, and requests that a route does not serve neither: the breaker stays closed", () => {
  const { clock, breakers } = clocked();
  for (let i = 0; i < 20; i++) {
    breakers.enter(1, i % 2 ? ANN : BEN)?.unserved("unknown_model");
    breakers.enter(1, i % 2 ? ANN : BEN)?.coolDown(1000);
    clock.ms += 1000;
  }
  expect(breakers.enter(1, CARA)).toBeDefined();
});

test("why a route did not serve a request is remembered until it serves one", () => {
  const { breakers } = clocked();
  expect(breakers.trouble(1)).toBeNull();
  breakers.enter(1, ANN)?.unserved("no_credit");
  expect(breakers.trouble(1)).toBe("no_credit");
  breakers.enter(1, BEN)?.succeeded();
  expect(breakers.trouble(1)).toBeNull();
});

test("a probe that ends in a pause, or in a request that is not served, leaves its place to the next", () => {
  const { clock, breakers, failForAll } = clocked();
  failForAll(5);
  clock.ms = 1000;
  breakers.enter(1, ANN)?.unserved("too_large");
  breakers.enter(1, ANN)?.coolDown(500);
  expect(breakers.enter(1, BEN)).toBeDefined();
});

test("ten thousand payers who meet failures are remembered in bounded room, and nobody is let through because of it", () => {
  const { breakers } = clocked();
  const passes = Array.from({ length: 10_000 }, (_, i) => breakers.enter(1, { accountId: i + 1, payerId: i + 1 }));
  for (const pass of passes) pass?.failed();
  expect(breakers.enter(1, { accountId: 99_999, payerId: 99_999 })).toBeUndefined();
});
