import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { until } from "../platform/own_redis.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { type KeyShop, MODEL, openKeyShop } from "./key_shop.ts";

/**
 * Keys of one provider on three replicas: what happens to a key that fails, when each replica uses it again, and what customers see
 * meanwhile: nothing. Source: PRV-10, PRV-13, PRV-14, PRV-15.
 */
const KEYS = 3;
let keys: KeyShop;
let people: { secret: string }[];

beforeAll(async () => {
  keys = await openKeyShop({ keys: KEYS, replicas: 3 });
  people = [await keys.customer(), await keys.customer()];
});
afterEach(async () => {
  keys.provider.reset();
  await until(async () => {
    await round("settle");
    return (await keys.states()).every((state) => state === "active");
  });
  // A minute later they would be forgotten.
  await keys.shop.world.sql`update provider_keys set failures = 0`;
  keys.provider.reset();
});
afterAll(() => closeBalanced(keys.shop, keys.close));

const told = (status: number, code: string, headers: Record<string, string> = {}): Behaviour => ({
  status,
  headers,
  body: JSON.stringify({ error: { message: "no", type: code, code, param: null } }),
});

let prompts = 0;
/** One request with a prompt of its own on each replica, by alternating customers. Returns the statuses. */
async function round(text: string): Promise<number[]> {
  prompts += 1;
  const { secret } = people[prompts % people.length] ?? { secret: "" };
  return await Promise.all(
    keys.origins.map(async (origin, i) => {
      const messages = [{ role: "user", content: `${text} ${prompts} ${i}` }];
      return (await keys.shop.chat(secret, { model: MODEL, messages }, { origin })).status;
    }),
  );
}

type Watched = {
  statuses: number[];
  /** Calls of the key that failed, and those that succeeded afterwards on each replica. */
  failed: number;
  back: number[];
  /** How often its models were listed. */
  lists: number;
};

/**
 * Key 1 fails in this way until `isOver`, under steady requests on all replicas, and then until each replica has used it successfully
 * again.
 */
async function watch(
  behaviour: Behaviour,
  isOver: (so: { failed: number; lists: number }) => boolean,
): Promise<Watched> {
  let isFaulty = true;
  let failedBefore = 0;
  const { provider } = keys;
  provider.when(({ headers }) => isFaulty && headers.authorization === keys.bearer(1), behaviour);
  const statuses: number[] = [];
  const ids = keys.origins.map(() => new Set<string>());
  const seen = () => {
    const calls = provider.calls().filter((call) => call.generation && keys.keyOf(call) === 1);
    const failed = calls.filter(({ status }) => status >= 400);
    const later = calls.filter(({ status, at }) => status === 200 && at > (failed[0]?.at ?? Number.POSITIVE_INFINITY));
    return {
      failed: failed.length,
      back: ids.map((own) => later.filter(({ headers }) => own.has(String(headers["x-request-id"]))).length),
      lists: provider.calls().filter(({ path, method }) => method === "GET" && path === "/v1/models").length,
    };
  };
  await until(async () => {
    prompts += 1;
    const { secret } = people[prompts % people.length] ?? { secret: "" };
    await Promise.all(
      keys.origins.map(async (origin, i) => {
        const messages = [{ role: "user", content: `watched ${prompts} ${i}` }];
        const answer = await keys.shop.chat(secret, { model: MODEL, messages }, { origin });
        statuses.push(answer.status);
        ids[i]?.add(answer.headers.get("x-request-id") ?? "");
      }),
    );
    const so = seen();
    // All replicas know of it when a whole round has not met it.
    if (isFaulty && so.failed > 0 && so.failed === failedBefore) isFaulty = !isOver(so);
    failedBefore = so.failed;
    return !isFaulty && so.back.every((count) => count > 0);
  }, 90_000);
  return { statuses, ...seen() };
}

test("429 with Retry-After: 2: every replica leaves the key alone and uses it again, and customers see nothing", async () => {
  const watched = await watch(told(429, "rate_limit_exceeded", { "retry-after": "2" }), () => true);
  expect(new Set(watched.statuses)).toEqual(new Set([200]));
  // Before the notification, each replica may have met the failure once for each of the two customers.
  expect(watched.failed).toBeLessThanOrEqual(6);
});

test("401: a probe lists the models, and every replica uses the key again; customers see nothing", async () => {
  // The first probe meets the fault.
  const watched = await watch(told(401, "invalid_api_key"), ({ lists }) => lists > 0);
  expect(new Set(watched.statuses)).toEqual(new Set([200]));
  expect(watched.failed).toBeLessThanOrEqual(6);
  // One replica of three probes at a time.
  expect(watched.lists).toBeWithin(2, 4);
});

test("a used-up quota: one request probes the key after a while, and every replica uses it again; customers see nothing", async () => {
  const watched = await watch(told(429, "insufficient_quota"), () => true);
  expect(new Set(watched.statuses)).toEqual(new Set([200]));
  expect(watched.failed).toBeLessThanOrEqual(6);
  expect(watched.lists).toBe(0);
});

describe("a pool with no usable key", () => {
  test("gets 503 with Retry-After below a minute: nothing is sent or charged; the keys recover by themselves", async () => {
    const { provider, shop } = keys;
    let isFaulty = true;
    provider.when(() => isFaulty, told(401, "invalid_api_key"));
    for (const { secret } of people) expectRefusal(await shop.chat(secret, { model: MODEL }), "provider_unavailable");
    await until(async () => (await keys.states()).every((state) => state === "quarantined"));
    const third = await keys.customer();
    const calls = provider.callCount();
    for (const origin of keys.origins)
      await until(async () => {
        const before = provider.callCount();
        const answer = await shop.chat(third.secret, { model: MODEL }, { origin });
        expectRefusal(answer, "provider_unavailable");
        expect(Number(answer.headers.get("retry-after"))).toBeWithin(1, 60);
        return provider.callCount() === before;
      });
    expect(provider.callCount() - calls).toBeLessThanOrEqual(3 * KEYS);
    expect(await shop.counters(third.accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
    isFaulty = false;
    await until(async () => (await shop.chat(third.secret, { model: MODEL })).status === 200);
  });

  test("a customer whose requests a key refuses does not take the key from others", async () => {
    const [attacker, neighbour] = [await keys.customer(), await keys.customer()];
    const poison = { model: MODEL, messages: [{ role: "user", content: "poison" }] };
    keys.provider.when(({ body }) => body.includes("poison"), told(401, "invalid_api_key"));
    const statuses: number[] = [];
    for (let i = 0; i < 8; i++) {
      expectRefusal(await keys.shop.chat(attacker.secret, poison), "provider_unavailable");
      for (const origin of keys.origins)
        statuses.push((await keys.shop.chat(neighbour.secret, { model: MODEL }, { origin })).status);
    }
    expect(new Set(statuses)).toEqual(new Set([200]));
  });
});

test("an image by URL is fetched with the key that it was ordered with", async () => {
  await keys.shop.addModels({ id: "image-keys", modality: "image", routes: [{ provider: "pool" }] });
  const host = "api.tollgate.test";
  const [{ secret } = { secret: "" }] = people;
  const body = { model: "image-keys", prompt: "A gate", response_format: "url" };
  const order = () => keys.shop.call("/v1/images/generations", { secret, host, body });
  await until(async () => (await order()).status === 200);
  const used = new Set<number>();
  for (let i = 0; i < 60 && used.size < KEYS; i++) {
    keys.provider.reset();
    const { json } = await order();
    const { pathname } = new URL(json.data[0].url);
    expect((await keys.shop.call(pathname, { host, method: "GET" })).status).toBe(200);
    // On a busy machine the first try of an order may have come too late.
    const last = (generation: boolean) => keys.provider.calls().findLast((call) => call.generation === generation);
    const [ordered, fetched] = [last(true), last(false)].map((call) => call && keys.keyOf(call));
    expect(fetched).toBe(ordered);
    used.add(ordered ?? 0);
  }
  expect(used.size).toBe(KEYS);
});
