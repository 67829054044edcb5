import { expect, test } from "bun:test";
import { createBreakers } from "../../src/catalog/breaker.ts";
import type { KeyedRoute, ModelRoute } from "../../src/catalog/catalog.ts";
import { orderRoutes, withFailover } from "../../src/catalog/failover.ts";
import { createKeyPool, type KeyReport } from "../../src/catalog/key_pool.ts";
import { type FailureKind, ProviderFailure, ProviderRejection } from "../../src/catalog/provider_errors.ts";
import { Refusal } from "../../src/errors.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { rejectionOf, route } from "./sockets.ts";

const ANN = { accountId: 1, payerId: 1 };
const BEN = { accountId: 2, payerId: 2 };
const A = route("https://a.example/v1", { id: 1, providerName: "a" });
const B = route("https://b.example/v1", { id: 2, providerName: "b", priority: 1 });
const IN_ORDER = { choice: "order", speeds: new Map<number, number>() } as const;
const down = (kind: FailureKind = "connect", retryAfterSeconds: number | null = null) =>
  new ProviderFailure(kind, "they said no", { status: null, retryAfterSeconds });

function setUp(routes: readonly ModelRoute[] = [A, B]) {
  const clock = { ms: 0 };
  const { log, lines } = quietLog();
  const breakers = createBreakers({ now: () => clock.ms });
  const reports: KeyReport[] = [];
  const keys = createKeyPool({ now: () => clock.ms, onReport: (report) => void reports.push(report) });
  const control = new AbortController();
  const tried: number[] = [];
  const run = <T>(attempt: (route: KeyedRoute) => Promise<T> | T, requester = ANN) =>
    withFailover(
      {
        modelId: "chat-a",
        routes,
        ...IN_ORDER,
        random: () => 0.5,
        breakers,
        keys,
        requester,
        signal: control.signal,
        log,
      },
      async (one) => {
        tried.push(one.key.id);
        return await attempt(one);
      },
    );
  return { clock, lines, breakers, keys, reports, control, tried, run };
}

test("after a failure the next route is tried, and its answer is returned", async () => {
  const { run, tried } = setUp();
  const answer = await run((one) => {
    if (one.id === 1) throw down();
    return "from b";
  });
  expect(answer).toBe("from b");
  expect(tried).toEqual([1, 2]);
});

test("the answer is provider_unavailable when all routes have failed; the providers' messages are only logged", async () => {
  const { run, lines } = setUp();
  const refusal = (await rejectionOf(run(() => Promise.reject(down())))) as Refusal;
  expect(refusal).toBeInstanceOf(Refusal);
  expect(refusal.code).toBe("provider_unavailable");
  expect(refusal.facts.retryAfterSeconds).toBe(1);
  expect(refusal.message).not.toContain("they said no");
  expect(lines.filter(({ detail }) => detail === "they said no").map(({ provider }) => provider)).toEqual(["a", "b"]);
  expect(JSON.stringify(lines)).not.toContain("sk-acme");
});

test("a rejection ends the request with invalid_request, message and param: no further route, no breaker failure", async () => {
  const { run, tried, breakers } = setUp();
  for (let i = 0; i < 10; i++) {
    const refusal = (await rejectionOf(
      run(() => Promise.reject(new ProviderRejection("too long", { status: 400, param: "messages" }))),
    )) as Refusal;
    expect([refusal.code, refusal.message, refusal.facts.param]).toEqual(["invalid_request", "too long", "messages"]);
  }
  expect(new Set(tried)).toEqual(new Set([1]));
  expect(breakers.dueInMs(1)).toBe(0);
});

test("a rejection shows that the provider works: the count of failures begins anew, and an open breaker closes", async () => {
  const { run, breakers, clock } = setUp([A]);
  const reject = () => rejectionOf(run(() => Promise.reject(new ProviderRejection("too long", { status: 400 }))));
  const fail = async (times: number) => {
    for (let i = 0; i < times; i++) await rejectionOf(run(() => Promise.reject(down("status"))));
  };
  await fail(4);
  await reject();
  await fail(4);
  expect(breakers.states()).toEqual({ open: 0, half_open: 0 });
  await fail(1);
  expect(breakers.states()).toEqual({ open: 1, half_open: 0 });
  clock.ms = 1_000;
  await reject();
  expect(breakers.states()).toEqual({ open: 0, half_open: 0 });
});

test("a rejection hides the model's name at the provider, unless the client uses that name", async () => {
  const told = async (upstreamModel: string, message: string) => {
    const { run } = setUp([route("https://a.example/v1", { upstreamModel })]);
    return ((await rejectionOf(run(() => Promise.reject(new ProviderRejection(message, { status: 400 }))))) as Refusal)
      .message;
  };
  expect(await told("gpt-4o", "The model `gpt-4o-2024-08-06` has no tools. Use GPT-4o.")).toBe(
    "The model `[model]` has no tools. Use [model].",
  );
  expect(await told("openai/gpt-4o", "gpt-4o, as openai/gpt-4o:free, is not gpt-4.")).toBe(
    "[model], as [model], is not gpt-4.",
  );
  expect(await told("a.b/c(d)*", "No a.b/c(d)* here, and no axb/c(d)*.")).toBe("No [model] here, and no axb/c(d)*.");
  expect(await told("router/auto", "tool_choice must be auto for router/auto.")).toBe(
    "tool_choice must be auto for [model].",
  );
  for (const known of ["chat-a", "vendor/Chat-A"])
    expect(await told(known, "Not with chat-a.")).toBe("Not with chat-a.");
});

test("a route with an open breaker is skipped; if all are open, no provider is called, and Retry-After lasts until the first is due", async () => {
  const { run, tried, clock } = setUp();
  for (let i = 0; i < 5; i++) expect(await run((one) => (one.id === 1 ? Promise.reject(down()) : "b"))).toBe("b");
  tried.length = 0;
  expect(await run((one) => one.providerName)).toBe("b");
  expect(tried).toEqual([2]);
  clock.ms = 400;
  for (let i = 0; i < 5; i++) await rejectionOf(run(() => Promise.reject(down())));
  tried.length = 0;
  const refusal = (await rejectionOf(run(() => "never"))) as Refusal;
  expect(tried).toEqual([]);
  expect(refusal.code).toBe("provider_unavailable");
  expect(refusal.facts.retryAfterSeconds).toBe(1);
  clock.ms = 1000;
  expect(await run((one) => one.providerName)).toBe("a");
});

/** Source: API-12. */
test("Retry-After is the shortest pause that any route asks for, and less than a minute", async () => {
  for (const [first, others, expected] of [
    [40, 7, 7],
    [60, 60, 59],
  ]) {
    const { run } = setUp();
    const failing = run((one) => Promise.reject(down("rate_limited", one.id === 1 ? first : others)));
    expect(((await rejectionOf(failing)) as Refusal).facts.retryAfterSeconds).toBe(expected);
  }
});

test("an abort ends the attempt immediately with its reason: no further route, no breaker failure", async () => {
  const { run, tried, control, breakers } = setUp();
  const reason = new Error("client left");
  const waiting = run(
    () => new Promise((_, reject) => control.signal.addEventListener("abort", () => reject(down()), { once: true })),
  );
  control.abort(reason);
  expect(await rejectionOf(waiting)).toBe(reason);
  expect(tried).toEqual([1]);
  for (let i = 0; i < 10; i++) expect(await rejectionOf(run(() => "never"))).toBe(reason);
  expect(tried).toEqual([1]);
  expect(breakers.dueInMs(1)).toBe(0);
});

test("an aborted probe leaves the breaker half open for the next", async () => {
  const { run, control, breakers, clock } = setUp([A]);
  for (let i = 0; i < 5; i++) await rejectionOf(run(() => Promise.reject(down())));
  clock.ms = 1000;
  const waiting = run(
    () => new Promise((_, reject) => control.signal.addEventListener("abort", () => reject(down()), { once: true })),
  );
  control.abort(new Error("client left"));
  await rejectionOf(waiting);
  expect(breakers.enter(1, ANN)).toBeDefined();
});

test("an internal error passes through and is no breaker failure", async () => {
  const { run, tried, breakers } = setUp();
  for (let i = 0; i < 10; i++)
    expect(await rejectionOf(run(() => Promise.reject(new TypeError("ours"))))).toBeInstanceOf(TypeError);
  expect(new Set(tried)).toEqual(new Set([1]));
  expect(breakers.dueInMs(1)).toBe(0);
});

test("at most five routes are tried for one request", async () => {
  const { run, tried } = setUp(Array.from({ length: 9 }, (_, id) => route(A.baseUrl, { id })));
  await rejectionOf(run(() => Promise.reject(down())));
  expect(tried.length).toBe(5);
});

test("a model without a route gets provider_unavailable", async () => {
  const { run } = setUp([]);
  expect(((await rejectionOf(run(() => "never"))) as Refusal).code).toBe("provider_unavailable");
});

test("priority comes before weight; within one priority a route is first in proportion to its weight", () => {
  let seed = 1;
  const random = () => {
    seed = (seed * 48271) % 2147483647;
    return seed / 2147483647;
  };
  const routes = [
    { ...A, id: 1, weight: 3 },
    { ...A, id: 2, weight: 1 },
    { ...A, id: 3, weight: 1000, priority: 1 },
  ];
  let first = 0;
  for (let i = 0; i < 10_000; i++) {
    const order = orderRoutes(routes, { ...IN_ORDER, random }).map(({ id }) => id);
    if (order[0] === 1) first += 1;
    expect(order[2]).toBe(3);
  }
  expect(first / 10_000).toBeGreaterThan(0.73);
  expect(first / 10_000).toBeLessThan(0.77);
});

test("a request that no route can serve gets invalid_request with our own message, and is logged", async () => {
  for (const kind of ["too_large", "unknown_model", "unsupported", "no_credit"] as const) {
    const { run, tried, lines, breakers } = setUp();
    for (let i = 0; i < 10; i++) {
      const refusal = (await rejectionOf(run(() => Promise.reject(down(kind))))) as Refusal;
      expect(refusal.code).toBe("invalid_request");
      expect(refusal.message).not.toContain("they said no");
    }
    expect(tried.length).toBe(20);
    expect([breakers.dueInMs(1), breakers.trouble(1)]).toEqual([0, kind]);
    expect(lines.some((line) => line.kind === kind && line.detail === "they said no")).toBe(true);
  }
});

test("a request that one route cannot serve goes to the next; if that one fails or is skipped, the answer is 503", async () => {
  const { run, tried } = setUp();
  const unknown = () => Promise.reject(down("unknown_model"));
  expect(await run((one) => (one.id === 1 ? unknown() : "b"))).toBe("b");
  const failed = run((one) => (one.id === 1 ? unknown() : Promise.reject(down("status"))));
  expect(((await rejectionOf(failed)) as Refusal).code).toBe("provider_unavailable");
  for (let i = 0; i < 4; i++)
    await rejectionOf(run((one) => (one.id === 1 ? unknown() : Promise.reject(down("status")))));
  tried.length = 0;
  expect(((await rejectionOf(run(unknown))) as Refusal).code).toBe("provider_unavailable");
  expect(tried).toEqual([1]);
});

test("a provider that asks for a pause is skipped for that time, and does not count as failing", async () => {
  const { run, tried, clock, keys } = setUp();
  const limited = (one: KeyedRoute) => (one.id === 1 ? Promise.reject(down("rate_limited", 7)) : "b");
  for (const requester of [ANN, BEN]) expect(await run(limited, requester)).toBe("b");
  tried.length = 0;
  for (let i = 0; i < 5; i++) await run(limited, { accountId: 3, payerId: 3 });
  expect(tried).toEqual([2, 2, 2, 2, 2]);
  expect(keys.states()).toEqual({ cooling: 1, quarantined: 0 });
  clock.ms = 7000;
  expect(await run((one) => one.providerName)).toBe("a");
});
