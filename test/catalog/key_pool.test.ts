import { expect, test } from "bun:test";
import { createBreakers, type Requester } from "../../src/catalog/breaker.ts";
import type { KeyedRoute, ModelRoute } from "../../src/catalog/catalog.ts";
import { withFailover } from "../../src/catalog/failover.ts";
import { createKeyPool, type KeyReport } from "../../src/catalog/key_pool.ts";
import { type FailureFacts, type FailureKind, ProviderFailure } from "../../src/catalog/provider_errors.ts";
import type { Refusal } from "../../src/errors.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { rejectionOf, route } from "./sockets.ts";

/** Which key of a route is used, on one replica. Between replicas: test/gateway/provider_keys.test.ts. Source: PRV-10, PRV-11, PRV-12, PRV-13, PRV-16. */

const ANN = { accountId: 1, payerId: 1 };
const BEN = { accountId: 2, payerId: 2 };
const CARA = { accountId: 3, payerId: 3 };
const IN_ORDER = { choice: "order", speeds: new Map<number, number>() } as const;
const fail = (kind: FailureKind, facts: FailureFacts = {}) => new ProviderFailure(kind, "they said no", facts);
const LIMITED = fail("rate_limited", { status: 429, retryAfterSeconds: 7 });
const REFUSED = fail("credentials", { status: 401 });
const NO_QUOTA = fail("no_credit", { status: 429 });
const NO_CREDIT = fail("no_credit", { status: 402 });

/** A route whose keys are tried in the order of their ids, unless the test says otherwise. */
function withKeys(ids: readonly number[], fields: Partial<KeyedRoute> = {}): ModelRoute {
  const base = route("https://a.example/v1", fields);
  return { ...base, keyed: ids.map((id) => ({ ...base, key: { id, name: `k${id}`, weight: 1 } })) };
}

function setUp(routes: readonly ModelRoute[] = [withKeys([1, 2, 3])]) {
  const clock = { ms: 0 };
  const { log } = quietLog();
  const reports: KeyReport[] = [];
  const keys = createKeyPool({ now: () => clock.ms, onReport: (report) => void reports.push(report) });
  const breakers = createBreakers({ now: () => clock.ms });
  const tried: number[] = [];
  /** Serves with the first key for which `fails` has no failure; which keys were tried is in `tried`. */
  const ask = async (fails: Partial<Record<number, ProviderFailure>> = {}, requester: Requester = ANN) => {
    tried.length = 0;
    const { signal } = new AbortController();
    const options = {
      modelId: "chat-a",
      routes,
      ...IN_ORDER,
      breakers,
      keys,
      requester,
      random: () => 0.5,
      signal,
      log,
    };
    return await withFailover(options, async ({ key }) => {
      tried.push(key.id);
      const failure = fails[key.id];
      if (failure) throw failure;
      return key.id;
    });
  };
  const refusedWith = async (...args: Parameters<typeof ask>) => (await rejectionOf(ask(...args))) as Refusal;
  return { clock, keys, breakers, reports, tried, ask, refusedWith };
}

test("the next key is tried before the next route, and the route's breaker stays closed", async () => {
  const { ask, tried, breakers } = setUp([withKeys([1, 2]), withKeys([8], { id: 2, priority: 1 })]);
  for (let i = 0; i < 10; i++) expect(await ask({ 1: LIMITED })).toBe(2);
  expect(await ask({ 1: LIMITED, 2: REFUSED }, BEN)).toBe(8);
  expect(tried).toEqual([2, 1, 8]);
  expect(breakers.dueInMs(1)).toBe(0);
});

test("a request never fails while one of sixty keys can serve, whatever is wrong with the others", async () => {
  const ids = Array.from({ length: 60 }, (_, i) => i + 1);
  for (const failure of [LIMITED, REFUSED, NO_QUOTA]) {
    const { ask } = setUp([withKeys(ids)]);
    expect(await ask(Object.fromEntries(ids.slice(0, -1).map((id) => [id, failure])))).toBe(60);
  }
});

test("a failure of the provider ends the attempt at its route: no other key of it is tried", async () => {
  const { ask, tried } = setUp([withKeys([1, 2]), withKeys([8], { id: 2, priority: 1 })]);
  expect(await ask({ 1: fail("status", { status: 500 }) })).toBe(8);
  expect(tried).toEqual([1, 8]);
});

test("a request that one key cannot serve is tried with the next: limits, credit and permissions differ by key", async () => {
  for (const failure of [fail("too_large"), NO_CREDIT, fail("unknown_model"), fail("credentials", { status: 403 })])
    expect(await setUp().ask({ 1: failure })).toBe(2);
});

test("an account that met a pause does not use the key until it ends; other accounts use it last", async () => {
  const { ask, refusedWith, tried, clock } = setUp([withKeys([1, 2])]);
  await ask({ 1: LIMITED });
  await refusedWith({ 2: fail("status", { status: 500 }) });
  expect(tried).toEqual([2]);
  expect(await ask({ 2: LIMITED }, BEN)).toBe(1);
  expect(tried).toEqual([2, 1]);
  clock.ms = 7_000;
  expect(await ask()).toBe(1);
});

test("a pause that a second payer meets applies to everybody, for the time that this payer was told", async () => {
  const { refusedWith, ask, clock, tried } = setUp([withKeys([1])]);
  expect(
    (await refusedWith({ 1: fail("rate_limited", { status: 429, retryAfterSeconds: 40 }) })).facts.retryAfterSeconds,
  ).toBe(40);
  await refusedWith({ 1: fail("rate_limited", { status: 429, retryAfterSeconds: 3 }) }, BEN);
  for (const requester of [ANN, BEN, CARA]) {
    expect((await refusedWith({}, requester)).facts.retryAfterSeconds).toBe(3);
    expect(tried).toEqual([]);
  }
  clock.ms = 3_000;
  for (const requester of [ANN, BEN, CARA]) expect(await ask({}, requester)).toBe(1);
});

test("two customers of one reseller close a key for that reseller's customers only", async () => {
  const { refusedWith, ask } = setUp([withKeys([1])]);
  for (const accountId of [11, 12]) await refusedWith({ 1: LIMITED }, { accountId, payerId: 10 });
  expect((await refusedWith({}, { accountId: 13, payerId: 10 })).code).toBe("provider_unavailable");
  expect(await ask({}, BEN)).toBe(1);
});

test("a pause applies to one model: requests for another model use the key last", async () => {
  const [small, large] = [withKeys([1, 2], { upstreamModel: "small" }), withKeys([1, 2], { upstreamModel: "large" })];
  const { keys } = setUp();
  const [first] = small.keyed;
  if (!first) throw new Error("no key");
  for (const requester of [ANN, BEN]) keys.failed(first, requester, LIMITED);
  const orderOf = (one: ModelRoute) => keys.usable(one, CARA, () => 0.5).map(({ key }) => key.id);
  expect([orderOf(small), orderOf(large)]).toEqual([[2], [2, 1]]);
  // One account that is paused for a second model does not close the first for longer, nor the second for others.
  const [ofLarge] = large.keyed;
  if (ofLarge) keys.failed(ofLarge, ANN, LIMITED);
  expect([orderOf(large), keys.usable(large, ANN, () => 0.5).length]).toEqual([[2, 1], 1]);
});

test("a 429 without a time pauses the key for one second", async () => {
  const { ask, clock } = setUp([withKeys([1, 2])]);
  await ask({ 1: fail("rate_limited", { status: 429 }) });
  clock.ms = 999;
  expect(await ask()).toBe(2);
  clock.ms = 1_000;
  expect(await ask()).toBe(1);
});

test("a 401 and a used-up quota quarantine the key, without a time limit", async () => {
  for (const failure of [REFUSED, NO_QUOTA]) {
    const { ask, clock, keys } = setUp([withKeys([1, 2])]);
    expect(await ask({ 1: failure })).toBe(2);
    clock.ms = 3_600_000;
    expect(await ask()).toBe(2);
    expect(keys.states()).toEqual({ cooling: 0, quarantined: 1 });
  }
});

test("a 403 may concern the request: the key stays active, and is tried as before", async () => {
  const { ask, tried, keys } = setUp([withKeys([1, 2])]);
  expect(await ask({ 1: fail("credentials", { status: 403 }) })).toBe(2);
  expect(keys.states()).toEqual({ cooling: 0, quarantined: 0 });
  expect(await ask()).toBe(1);
  expect(tried).toEqual([1]);
});

test("a failure that is not a probe's does not move the next probe of a quarantined key", async () => {
  const { ask, clock, keys } = setUp([withKeys([1, 2])]);
  await ask({ 1: NO_QUOTA });
  clock.ms = 700;
  // Another payer's request tries the key last.
  await rejectionOf(ask({ 1: NO_QUOTA, 2: NO_QUOTA }, BEN));
  clock.ms = 1_000;
  expect(keys.due().map(({ keyId }) => keyId)).toEqual([1]);
});

test("a 402 makes the key the last choice and closes it for nobody; the client gets 400 when every key answers 402", async () => {
  const { ask, refusedWith, tried } = setUp([withKeys([1, 2])]);
  expect(await ask({ 1: NO_CREDIT })).toBe(2);
  expect(await ask()).toBe(2);
  for (let i = 0; i < 5; i++) expect((await refusedWith({ 1: NO_CREDIT, 2: NO_CREDIT })).code).toBe("invalid_request");
  expect(tried).toEqual([1, 2]);
});

test("a request that a quarantined key serves ends the quarantine, unless the request began before it", async () => {
  const { ask, keys, reports } = setUp([withKeys([1])]);
  await rejectionOf(ask({ 1: REFUSED }));
  expect(await ask({}, BEN)).toBe(1);
  expect(reports.map(({ is }) => is)).toEqual(["resting", "recovered"]);
  expect(keys.states()).toEqual({ cooling: 0, quarantined: 0 });

  const late = setUp([withKeys([1])]);
  const [only] = withKeys([1]).keyed;
  const begun = {
    modelId: "chat-a",
    keys: late.keys,
    breakers: late.breakers,
    requester: BEN,
    ...IN_ORDER,
    random: () => 0.5,
    routes: [withKeys([1])],
  };
  await withFailover({ ...begun, signal: new AbortController().signal, log: quietLog().log }, async () => {
    if (only) late.keys.failed(only, ANN, REFUSED);
  });
  expect(late.keys.states()).toEqual({ cooling: 0, quarantined: 1 });
});

test("a due probe is made by one request, before all other keys; its failure is reported as a probe's", async () => {
  const { ask, tried, keys, clock, reports } = setUp([withKeys([1, 2])]);
  await ask({ 1: NO_QUOTA });
  clock.ms = 5_000;
  await ask();
  expect(keys.due()).toEqual([{ keyId: 1, why: "no_credit", isWanted: true }]);
  keys.letOneProbe(1, 10_000);
  expect(await ask({ 1: NO_QUOTA })).toBe(2);
  expect(tried).toEqual([1, 2]);
  await ask();
  expect(tried).toEqual([2]);
  expect(reports.map((report) => report.is === "resting" && report.isProbe)).toEqual([false, true]);
  keys.letOneProbe(1, 10_000);
  clock.ms = 15_000;
  await ask();
  expect(tried).toEqual([2]);
  keys.letOneProbe(1, 10_000);
  expect(await ask()).toBe(1);
  expect(reports.at(-1)).toEqual({ is: "recovered", keyId: 1 });
});

test("a pool with no usable key gets 503 without a call, with Retry-After below 60 s", async () => {
  const { refusedWith, tried } = setUp([withKeys([1, 2])]);
  for (const requester of [ANN, BEN]) await refusedWith({ 1: REFUSED, 2: LIMITED }, requester);
  const refusal = await refusedWith({}, CARA);
  expect([refusal.code, tried]).toEqual(["provider_unavailable", []]);
  expect(refusal.facts.retryAfterSeconds).toBe(1);
});

test("a thousand concurrent failures are reported once, and once more when a second payer meets them", async () => {
  const { keys, reports } = setUp();
  const [first] = withKeys([1]).keyed;
  if (!first) throw new Error("no key");
  for (let i = 0; i < 1_000; i++) keys.failed(first, ANN, LIMITED);
  expect(reports.length).toBe(1);
  for (let i = 0; i < 1_000; i++) keys.failed(first, BEN, LIMITED);
  expect(reports.length).toBe(2);
  expect(reports[1]).toMatchObject({ rest: { accountId: null, payerId: null, model: "up-1" } });
});

test("shared states replace the replica's own, except for keys whose own state is not yet reported", () => {
  const { keys } = setUp();
  const [one, two] = withKeys([1, 2]).keyed;
  if (!one || !two) throw new Error("no keys");
  for (const key of [one, two]) keys.failed(key, ANN, REFUSED);
  keys.replace([], (keyId) => keyId === 2);
  expect([keys.isQuarantined(1), keys.isQuarantined(2)]).toEqual([false, true]);
});

test("a probe that was allowed ends with the quarantine: a later quarantine waits for a probe of its own", async () => {
  const { ask, keys, tried } = setUp([withKeys([1, 2])]);
  await ask({ 1: NO_QUOTA });
  keys.letOneProbe(1, 10_000);
  // Another replica's request was served by the key.
  keys.replace([], () => false);
  await ask({ 1: NO_QUOTA });
  expect(await ask()).toBe(2);
  expect(tried).toEqual([2]);
});

test("the route that an affinity chooses does not decide which of its keys is tried first", async () => {
  const { keys, breakers } = setUp();
  const routes = [withKeys([1, 2]), withKeys([1, 2], { id: 2 })];
  const chosen: Record<string, number> = {};
  for (let i = 0; i < 400; i++) {
    const choice = { ...IN_ORDER, affinity: (i * 2_654_435_761) % 2 ** 32, random: () => 0.5 };
    const { signal } = new AbortController();
    const options = {
      modelId: "chat-a",
      routes,
      ...choice,
      breakers,
      keys,
      requester: ANN,
      signal,
      log: quietLog().log,
    };
    const name = await withFailover(options, async ({ id, key }) => `route ${id}, key ${key.id}`);
    chosen[name] = (chosen[name] ?? 0) + 1;
  }
  expect(Object.keys(chosen).length).toBe(4);
  for (const count of Object.values(chosen)) expect(count).toBeWithin(60, 141);
});
