import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readRouteStats } from "../../src/catalog/route_stats_store.ts";
import { reportsOf } from "../../src/catalog/route_sums.ts";
import type { Db } from "../../src/platform/db.ts";
import { ok, type PanelSession, signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, expectRefusal, tally } from "./checks.ts";
import { type CallOptions, openShop, type Shop } from "./shop.ts";

/**
 * Statistics of routes, over real sockets and two replicas: shared sums, the choice of a route, and tried routes on receipts.
 * Source: PRV-19, PRV-20, PRV-21, PRV-22, PRV-23, PRV-24, PRV-25.
 */
let shop: Shop;
let db: Db;
let admin: PanelSession;
let buyer: { secret: string; accountId: number };

beforeAll(async () => {
  shop = await openShop({ replicas: 2 });
  db = shop.world.openDb();
  admin = await signInTo(shop, await shop.world.addAdmin());
  buyer = await shop.customer({ dailyLimit: 100_000 });
});
afterEach(() => {
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop, () => db.close()));

let models = 0;
type Fields = Record<string, unknown>;

/** A model with a route to each provider, equal unless told otherwise, and perhaps a third one to the second provider. */
async function addModel(routes: { first?: Fields; second?: Fields; third?: Fields } = {}, fields = {}) {
  const id = `routed-${++models}`;
  ok(await admin.post("/admin/models", { id, enabled: false, ...fields }));
  const [first, second] = await shop.world.sql`select id::int from providers order by id`;
  const add = async (providerId: unknown, over = {}) =>
    ok(await admin.post("/admin/routes", { modelId: id, providerId, ...over })).id as number;
  const added = {
    id,
    first: await add(first?.id, routes.first),
    second: await add(second?.id, routes.second),
    third: routes.third === undefined ? 0 : await add(second?.id, routes.third),
  };
  // Once a replica lists it, the replica knows its routes too.
  ok(await admin.patch(`/admin/model?id=${id}`, { enabled: true }));
  for (const { origin } of shop.replicas)
    await until(async () => (await shop.call(`/v1/models/${id}`, { secret: buyer.secret, origin })).status === 200);
  return added;
}

let asked = 0;
/** Each request is a separate conversation: otherwise cache affinity would send all of them to one of several equal routes. */
const ask = (
  model: string,
  { origin = shop.origin, ...over }: Record<string, unknown> = {},
  onText?: CallOptions["onText"],
) => shop.chat(buyer.secret, { model, user: `conversation-${++asked}`, ...over }, { origin: String(origin), onText });
/** A stream that its provider cuts in the middle. */
const breaksOff = (model: string, over: Record<string, unknown> = {}) =>
  shop.brokenOff({ cutAfterChunks: 3, tokens: 10 }, (onText) => ask(model, { stream: true, ...over }, onText));

/** Sends requests until this many are served. A busy machine may refuse one before it reaches a provider; it is sent again. */
async function serve(model: string, count: number, origin: string): Promise<void> {
  for (let i = 0; i < count; i++) {
    await until(async () => {
      const answer = await ask(model, { origin });
      if (answer.status !== 200) expectRefusal(answer, "service_unavailable");
      return answer.status === 200;
    });
  }
}

/** The shared statistics of these routes. */
async function reports(...routeIds: number[]) {
  const known = reportsOf(await readRouteStats({ db }, "day", routeIds));
  return routeIds.map((id) => known.find(({ routeId }) => routeId === id));
}

const requestsOf = async (...routeIds: number[]) => (await reports(...routeIds)).map((report) => report?.requests ?? 0);

/** The tried routes of a request, as its receipt has them. */
async function triedBy(requestId: string | null) {
  const [row] = await shop.world.sql`select tried from receipts where request_id = ${requestId}::text::uuid`;
  return row?.tried as
    | { routeId: number; provider: string; key: string | null; ms: number; status: number | null; why: string }[]
    | null;
}

describe("shared sums", () => {
  test("answers, errors, refusals, breaks and input tokens of two replicas add up exactly", async () => {
    const { id, first } = await addModel({ second: { enabled: false } });
    shop.provider.always({
      usage: { prompt_tokens: 100, completion_tokens: 5, prompt_tokens_details: { cached_tokens: 60 } },
    });
    const origins = shop.replicas.map(({ origin }) => origin);
    for (let lot = 0; lot < 6; lot++) {
      const answers = await Promise.all(
        Array.from({ length: 10 }, (_, i) => ask(id, { origin: origins[i % 2], stream: i % 3 === 0 })),
      );
      expect(tally(answers)).toEqual({ served: 10 });
    }
    for (const origin of origins) {
      shop.provider.next({ status: 500 });
      expectRefusal(await ask(id, { origin }), "provider_unavailable");
      shop.provider.next({ status: 400 });
      expectRefusal(await ask(id, { origin }), "invalid_request");
      shop.provider.next({ status: 413 });
      expectRefusal(await ask(id, { origin }), "invalid_request");
      await breaksOff(id, { origin });
    }
    expect(shop.provider.callCount()).toBe(68);
    await until(async () => ((await requestsOf(first))[0] ?? 0) >= 68);
    const [after] = await reports(first);
    expect(after).toMatchObject({
      requests: 68,
      errors: 4,
      inputTokens: 6_000,
      cachedTokens: 3_600,
    });
    expect(after?.firstEvent?.p50Ms).toEqual(expect.any(Number));
    expect(after?.wholeAnswer?.p95Ms).toEqual(expect.any(Number));
  });

  test("a replica that is stopped writes its sums; one that is killed loses at most the last seconds", async () => {
    const { id, first } = await addModel({ second: { enabled: false } });
    const stopped = await shop.start();
    const killed = await shop.start();
    await serve(id, 7, stopped.origin);
    await stopped.stop();
    expect(await requestsOf(first)).toEqual([7]);
    await serve(id, 5, killed.origin);
    await until(async () => (await requestsOf(first))[0] === 12);
    await ask(id, { origin: killed.origin });
    await killed.kill();
    const [after = 0] = await requestsOf(first);
    // What it had written stays; its last request is lost, unless it was written just before.
    expect([12, 13]).toContain(after);
  });
});

describe("choice", () => {
  test("by price: the cheapest route is called, and another one if it fails; changed costs apply immediately", async () => {
    const cheap = { costInputMicroUsd: 100_000, costOutputMicroUsd: 400_000 };
    const dear = { costInputMicroUsd: 200_000, costOutputMicroUsd: 100_001 };
    const { id, first, second } = await addModel(
      { first: { ...dear, priority: -1 }, second: cheap },
      { routeChoice: "price" },
    );
    for (let i = 0; i < 10; i++) expect((await ask(id)).status).toBe(200);
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([0, 10]);
    shop.second.next({ status: 500 });
    expect((await ask(id)).status).toBe(200);
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 11]);
    ok(await admin.patch(`/admin/routes/${second}`, { costInputMicroUsd: null, costOutputMicroUsd: null }));
    await until(async () => {
      const calls = shop.provider.callCount();
      await ask(id);
      return shop.provider.callCount() > calls;
    });
    expect(ok(await admin.get(`/admin/model?id=${id}`)).routes).toMatchObject([
      { id: first, costInputMicroUsd: 200_000 },
      { id: second, costInputMicroUsd: null },
    ]);
  });

  test("by latency, of whole answers and of streams: replicas leave a slow route, and return when it is fast again", async () => {
    const { id, first, second } = await addModel({}, { routeChoice: "latency" });
    const callsOf = (of: typeof shop.provider) => {
      const streams = of.calls().filter(({ body }) => body.includes('"stream":true')).length;
      return { streams, whole: of.calls().length - streams };
    };
    /** The second route's share of this many requests of each kind. */
    const shares = async (count: number) => {
      const before = callsOf(shop.second);
      const all = shop.replicas.flatMap(({ origin }) =>
        Array.from({ length: count / 2 }, () => [
          ask(id, { stream: true, origin }),
          ask(id, { stream: false, origin }),
        ]),
      );
      await Promise.all(all.flat());
      const after = callsOf(shop.second);
      return [(after.streams - before.streams) / count, (after.whole - before.whole) / count];
    };
    const slow = (ms: number) => ({ delayMs: ms, firstByteDelayMs: ms });
    shop.provider.always(slow(400));
    // Both are measured. Then nearly all requests of both replicas go to the fast one.
    await until(async () => (await shares(40)).every((share) => share > 0.85));
    const [slowed, fast] = await reports(first, second);
    for (const kind of ["firstEvent", "wholeAnswer"] as const)
      expect(slowed?.[kind]?.p50Ms).toBeGreaterThan(fast?.[kind]?.p50Ms ?? Number.POSITIVE_INFINITY);
    // The slow route is measured now and then, so its recovery is noticed automatically.
    shop.provider.reset();
    shop.second.always(slow(1_500));
    await shop.world.sql`delete from route_stats where span = 5`;
    await until(async () => (await shares(40)).every((share) => share < 0.15));
  });
});

describe("tried routes", () => {
  test("are not recorded for a request that the first route answered", async () => {
    const { id } = await addModel();
    const { headers } = await ask(id);
    expect(await triedBy(headers.get("x-request-id"))).toBeNull();
  });

  test.each([false, true])("are all three routes for a request that failed over twice, stream %s", async (stream) => {
    const { id, first, second, third } = await addModel({
      first: { priority: 1 },
      second: { priority: 2 },
      third: { priority: 3, upstreamModel: "third" },
    });
    shop.provider.next({ status: 503, delayMs: 60 });
    shop.second.next({ status: 429 });
    const { status, headers } = await ask(id, { stream });
    expect(status).toBe(200);
    const tried = await triedBy(headers.get("x-request-id"));
    expect(tried).toMatchObject([
      { routeId: first, provider: "first", status: 503, why: "status" },
      { routeId: second, provider: "second", status: 429, why: "rate_limited" },
      { routeId: third, provider: "second", upstreamModel: "third", status: null, why: "answered" },
    ]);
    expect(tried?.[0]?.ms).toBeGreaterThanOrEqual(60);
  });

  test("are on the released receipt if no route answers; a route with an open breaker is recorded as skipped", async () => {
    const { id, first } = await addModel({ second: { enabled: false } });
    const other = await shop.customer();
    const failing = () => shop.chat(other.secret, { model: id });
    shop.provider.always({ status: 500 });
    const answer = await failing();
    expectRefusal(answer, "provider_unavailable");
    expect(answer.text).not.toContain("first");
    expect(await triedBy(answer.headers.get("x-request-id"))).toMatchObject([
      { routeId: first, why: "status", status: 500 },
    ]);
    for (let i = 0; i < 4; i++) await failing();
    const skipped = await failing();
    expect(await triedBy(skipped.headers.get("x-request-id"))).toMatchObject([
      { routeId: first, key: null, ms: 0, why: "skipped" },
    ]);
  });

  test("are recorded for a stream that broke off, and for a request that the provider refused", async () => {
    const { id, first } = await addModel({ second: { enabled: false } });
    const broken = await breaksOff(id);
    expect(broken.text).not.toContain("[DONE]");
    await until(async () => (await triedBy(broken.headers.get("x-request-id"))) !== undefined);
    expect(await triedBy(broken.headers.get("x-request-id"))).toMatchObject([{ routeId: first, why: "broke_off" }]);
    shop.provider.next({ status: 400 });
    const refused = await ask(id);
    expect(await triedBy(refused.headers.get("x-request-id"))).toMatchObject([
      { routeId: first, status: 400, why: "rejected" },
    ]);
  });

  test("are shown only to admins: neither the customer nor its reseller gets a provider's name", async () => {
    const reseller = await shop.world.addReseller();
    const host = "ai.routes.test";
    await shop.world.addHost(reseller, host);
    const customer = await shop.world.addCustomer(reseller.accountId);
    await shop.world.givePackage(customer, {});
    const { secret } = await shop.world.addKey(customer);
    const { id } = await addModel({ second: { priority: 1 } });
    shop.provider.next({ status: 500 });
    const { headers, status } = await shop.chat(secret, { model: id });
    expect(status).toBe(200);
    const requestId = headers.get("x-request-id");
    const path = `/receipts/${requestId}?accountId=${customer.accountId}`;
    expect(ok(await admin.get(path)).tried).toMatchObject([{ provider: "first" }, { provider: "second" }]);
    const viewers = [
      [await signInTo(shop, reseller), path],
      [await signInTo(shop, customer, { host }), `/receipts/${requestId}`],
    ] as const;
    for (const [viewer, own] of viewers) {
      const { text, json } = await viewer.get(own);
      expect(json).toMatchObject({ requestId, tried: null });
      expect(text).not.toMatch(/"(first|second)"|tried":\[/);
      expectRefusal(await viewer.get("/admin/routes"), "not_found");
    }
  });
});

describe("the admin's list of routes", () => {
  test("is sorted by the requested measure, with the figures of the model's page", async () => {
    const { id, first, second } = await addModel({ second: { priority: 1 } });
    shop.provider.always({ status: 500 });
    for (let i = 0; i < 3; i++) expect((await ask(id)).status).toBe(200);
    await until(async () => (await requestsOf(first, second)).every((count) => count >= 3));
    const byErrors = ok(await admin.get("/admin/routes?by=errors")).routes;
    const rates = byErrors.map(({ report }: { report: { errors: number; requests: number } | null }) =>
      report === null ? -1 : report.errors / report.requests,
    );
    expect(rates).toEqual([...rates].sort((a: number, b: number) => b - a));
    const own = byErrors.filter(({ modelId }: { modelId: string }) => modelId === id);
    expect(own.map((route: { id: number }) => route.id)).toEqual([first, second]);
    const model = ok(await admin.get(`/admin/model?id=${id}`));
    expect(model.reports.map(({ routeId }: { routeId: number }) => routeId).sort()).toEqual([first, second].sort());
    expectRefusal(await admin.get("/admin/routes?by=price"), "validation_failed", { param: "by" });
  });

  test("gets 422 for an unknown choice, and for costs below zero, above the limit, or of input alone", async () => {
    const { id, first } = await addModel();
    expectRefusal(await admin.patch(`/admin/model?id=${id}`, { routeChoice: "random" }), "validation_failed", {
      param: "routeChoice",
    });
    const costs: [Record<string, unknown>, string][] = [
      [{ costInputMicroUsd: 1 }, "costOutputMicroUsd"],
      [{ costOutputMicroUsd: 1 }, "costInputMicroUsd"],
      [{ costInputMicroUsd: null, costOutputMicroUsd: 1 }, "costInputMicroUsd"],
      [{ costInputMicroUsd: -1, costOutputMicroUsd: 1 }, "costInputMicroUsd"],
      [{ costInputMicroUsd: 1, costOutputMicroUsd: 1e30 }, "costOutputMicroUsd"],
      [{ costImageMicroUsd: 0.5 }, "costImageMicroUsd"],
    ];
    for (const [body, param] of costs)
      expectRefusal(await admin.patch(`/admin/routes/${first}`, body), "validation_failed", { param });
    expect(ok(await admin.get(`/admin/model?id=${id}`)).routes[0]).toMatchObject({
      costInputMicroUsd: null,
      costOutputMicroUsd: null,
      costImageMicroUsd: null,
    });
  });
});
