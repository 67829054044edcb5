import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { type Answer, type CallOptions, eventsOf, openShop, type Shop } from "./shop.ts";

/**
 * A model with two routes: if one provider fails before the first byte, the other serves. Source: PRV-3, END-2, END-3, END-4, END-18.
 */
let shop: Shop;
/** Its time limits are short, for a provider that hangs. On a busy machine they also end good answers. */
let hasty: ReplicaProcess;
let good: { secret: string };

beforeAll(async () => {
  shop = await openShop();
  hasty = await shop.start({ PROVIDER_FIRST_BYTE_MS: "500" });
  good = await shop.customer({ dailyLimit: 100_000 });
});
afterEach(async () => {
  shop.provider.reset();
  shop.second.reset();
  // One good answer closes the breaker of each route, so that tests do not affect each other.
  for (const model of ["chat-a", "chat-two-routes"]) {
    await until(async () => {
      const calls = shop.provider.callCount();
      return (await shop.chat(good.secret, { model })).status === 200 && shop.provider.callCount() > calls;
    });
  }
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop, () => hasty.kill()));

const twoRoutes = (secret: string, over: Record<string, unknown> = {}, options: CallOptions = {}) =>
  shop.chat(secret, { model: "chat-two-routes", ...over }, options);

function expectServed(answer: Answer, isStream: boolean): void {
  expect(answer.status).toBe(200);
  if (isStream) expect(eventsOf(answer.text).at(-1)).toBe("[DONE]");
  else expect(answer.json.object).toBe("chat.completion");
}

/** A whole answer whose second choice broke off, as OpenRouter sends it. */
function answerWith(broken: Record<string, unknown>): string {
  const choice = { index: 0, message: { role: "assistant", content: "Toll" }, finish_reason: "stop" };
  const usage = { prompt_tokens: 10, completion_tokens: 2, total_tokens: 12 };
  return JSON.stringify({ id: "gen-1", choices: [choice, { ...choice, index: 1, ...broken }], usage });
}

const FAILURES: [string, Behaviour][] = [
  ["500", { status: 500 }],
  ["503 with a Retry-After", { status: 503, headers: { "retry-after": "9" } }],
  ["429", { status: 429 }],
  ["401: bad credentials", { status: 401 }],
  ["404: a model that it does not know", { status: 404 }],
  ["an HTML page", { html: true }],
  ["a redirect", { redirectTo: "http://127.0.0.1:1/v1/chat/completions" }],
  [
    "compressed in a way that is not known",
    { body: "\u001f\u009d\u0090", headers: { "content-encoding": "compress" } },
  ],
  ["a closed connection", { cutBeforeHeaders: true }],
  ["a body cut behind its headers", { cutAfterBytes: 0 }],
  ["200 with an error inside", { body: '{"error":{"message":"no","type":"server_error"}}' }],
  ["200 with an error beside its choices", { body: '{"error":{"message":"no"},"choices":[]}' }],
  ["200 with an error in a choice", { body: answerWith({ error: { code: 502, message: "no" } }) }],
  ["200 with a choice that ended with an error", { body: answerWith({ finish_reason: "error" }) }],
];

describe.each([
  ["JSON", false],
  ["stream", true],
] as const)("%s: the second route serves, under the same hold", (_, isStream) => {
  test.each(FAILURES)("after the first failed: %s", async (_, behaviour) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next(behaviour);
    const answer = await twoRoutes(secret, { stream: isStream });
    expectServed(answer, isStream);
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 1]);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0, units: 1 });
    const asked = [shop.provider.lastCall(), shop.second.lastCall()];
    for (const call of asked) expect(call?.headers["x-request-id"]).toBe(answer.headers.get("x-request-id") ?? "");
    expect(asked.map((call) => JSON.parse(call?.body ?? "").model)).toEqual(["up-chat-two-routes", "backup"]);
    expect(answer.text).not.toContain("backup");
  });
});

test("a stream whose provider does not even send headers is asked of the second route: it has probably not begun", async () => {
  const { secret, accountId } = await shop.customer();
  shop.provider.next({ hang: "headers" });
  expectServed(await twoRoutes(secret, { stream: true }, { origin: hasty.origin }), true);
  expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 1]);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0, units: 1 });
});

test("pay-as-you-go is charged once, for the answer of the second route", async () => {
  const { secret, accountId } = await shop.payer(1_000_000_000n);
  shop.provider.next({ status: 500 });
  shop.second.next({ usage: { prompt_tokens: 10, completion_tokens: 20 } });
  expect((await twoRoutes(secret)).status).toBe(200);
  expect(await shop.counters(accountId)).toMatchObject({
    usage: 1,
    holds: 0,
    balance: 1_000_000_000 - 10 * 3_000 - 20 * 15_000,
  });
});

describe("a choice with an error is no answer", () => {
  const ERROR = { code: 502, message: "Upstream of acme broke off" };
  const ask = (secret: string, path: string) =>
    path === "/chat/completions"
      ? shop.chat(secret)
      : shop.call("/v1/responses", { secret, body: { model: "chat-a", input: "Hello" } });

  test.each(["/chat/completions", "/responses"])(
    "%s, whole: 503, nothing charged, whatever it reports",
    async (path) => {
      const { secret, accountId } = await shop.payer(1_000_000_000n);
      for (const broken of [{ error: ERROR }, { error: "broke off" }, { error: {}, finish_reason: "error" }]) {
        shop.provider.next({ body: answerWith(broken) });
        const answer = await ask(secret, path);
        expectRefusal(answer, "provider_unavailable");
        expect(answer.text).not.toContain("acme");
      }
      await until(async () => (await shop.counters(accountId)).released === 3);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, holds: 0, balance: 1_000_000_000 });
    },
  );

  test("its code counts as the status: a refusal of the request is 400 with its message", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ body: answerWith({ error: { code: 400, message: "The prompt is not allowed." } }) });
    const refused = await twoRoutes(secret);
    expectRefusal(refused, "invalid_request");
    expect(refused.json.error.message).toContain("The prompt is not allowed.");
    expect(shop.second.callCount()).toBe(0);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
  });

  test.each([{ error: ERROR }, { finish_reason: "error" }])(
    "streamed: it breaks off, and nothing is charged: %j",
    async (broken) => {
      const { secret, accountId } = await shop.customer();
      const chunk = (over: Record<string, unknown>) => ({
        id: "gen-1",
        choices: [{ index: 0, finish_reason: null, ...over }],
      });
      const payloads = [
        chunk({ delta: { content: "Toll" } }),
        chunk({ delta: { content: "s" } }),
        chunk({ delta: {}, ...broken }),
      ];
      const body = payloads.map((payload) => `data: ${JSON.stringify(payload)}\n\n`).join("");
      shop.provider.next({ contentType: "text/event-stream", body: `${body}data: [DONE]\n\n` });
      const { text } = await twoRoutes(secret, { stream: true });
      expect(text).toContain("Toll");
      expect(text).toContain('"provider_unavailable"');
      for (const never of ["[DONE]", "acme"]) expect(text).not.toContain(never);
      await until(async () => (await shop.counters(accountId)).released === 1);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
      // Before anything was sent, the next route is tried.
      shop.provider.next({ contentType: "text/event-stream", body: `data: ${JSON.stringify(chunk(broken))}\n\n` });
      expectServed(await twoRoutes(secret, { stream: true }), true);
      expect(shop.second.callCount()).toBe(1);
    },
  );
});

test("the second route serves a JSON answer that was cut in the middle, since nothing has reached the client", async () => {
  const { secret, accountId } = await shop.customer();
  shop.provider.next({ cutAfterBytes: 100 });
  expectServed(await twoRoutes(secret), false);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0 });
});

test.each([
  ["cut", { cutAfterChunks: 3, tokens: 10 }],
  ["error event", { errorEventAfterChunks: 3, tokens: 10 }],
] as const)("after the first byte nothing is retried: %s", async (_, behaviour) => {
  const { secret, accountId } = await shop.customer();
  const { text } = await shop.brokenOff(behaviour, (onText) => twoRoutes(secret, { stream: true }, { onText }));
  expect(text).not.toContain("[DONE]");
  expect(text).toContain('"provider_unavailable"');
  expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 0]);
  await until(async () => (await shop.counters(accountId)).released === 1);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0, holds: 0 });
});

describe("both fail", () => {
  test.each([
    ["JSON", false],
    ["stream", true],
  ] as const)("503 provider_unavailable with Retry-After, nothing charged: %s", async (_, stream) => {
    const { secret, accountId } = await shop.payer(1_000_000_000n);
    shop.provider.next({ status: 500 });
    shop.second.next({ status: 503, headers: { "retry-after": "7" } });
    expectRefusal(await twoRoutes(secret, { stream }), "provider_unavailable");
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 1]);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, balance: 1_000_000_000 });
  });

  test("Retry-After is the shortest of the providers'", async () => {
    const { secret } = await shop.customer();
    shop.provider.next({ status: 429, headers: { "retry-after": "4" } });
    shop.second.next({ status: 429, headers: { "retry-after": "2" } });
    expect((await twoRoutes(secret)).headers.get("retry-after")).toBe("2");
  });
});

describe("the provider refuses the request itself", () => {
  const refusal = (over: Record<string, unknown> = {}) => ({
    status: 400,
    body: JSON.stringify({
      error: {
        message: "temperature is too hot",
        type: "invalid_request_error",
        param: "temperature",
        code: null,
        ...over,
      },
    }),
  });

  test.each([
    ["JSON", false],
    ["stream", true],
  ] as const)("400 invalid_request with its message and param, released, no failover: %s", async (_, stream) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next(refusal());
    const answer = await twoRoutes(secret, { stream });
    expectRefusal(answer, "invalid_request", { param: "temperature" });
    expect(answer.json.error.message).toBe("temperature is too hot");
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 0]);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, units: 0 });
    const [receipt] = await shop.world.sql`select reason from receipts where account_id = ${accountId}`;
    expect(receipt?.reason).toBe("provider_rejected");
  });

  test("does not open the breaker, even after many repetitions", async () => {
    const { secret } = await shop.customer();
    for (let i = 0; i < 8; i++) shop.provider.next(refusal());
    for (let i = 0; i < 8; i++) expect((await shop.chat(secret)).status).toBe(400);
    expect(shop.provider.callCount()).toBe(8);
    expect((await shop.chat(secret)).status).toBe(200);
  });

  test("its message is cleaned of addresses and keys", async () => {
    const { secret } = await shop.customer();
    shop.provider.next(
      refusal({
        message: `Key ${shop.provider.apiKey} of org-canary12345 at ${shop.provider.baseUrl}/x says: too long`,
      }),
    );
    const { text, status } = await twoRoutes(secret);
    expect(status).toBe(400);
    expect(text).toContain("too long");
    for (const canary of [shop.provider.apiKey, "org-canary", String(shop.provider.port), "127.0.0.1"])
      expect(text).not.toContain(canary);
  });
});

describe("the breaker", () => {
  test.each<[string, Behaviour]>([
    ["500", { status: 500 }],
    ["reset connections", { cutBeforeHeaders: true }],
  ])(
    "opens after repeated failures and stops calls; closes again when the provider recovers: %s",
    async (_, behaviour) => {
      const { secret } = await shop.customer();
      shop.provider.always(behaviour);
      for (let i = 0; i < 5; i++) expectRefusal(await shop.chat(secret), "provider_unavailable");
      expect(shop.provider.callCount()).toBe(5);
      for (let i = 0; i < 20; i++) expectRefusal(await shop.chat(secret), "provider_unavailable");
      // It is open for a second, in which at most one probe got through.
      expect(shop.provider.callCount()).toBeLessThanOrEqual(6);
      shop.provider.always(undefined);
      await until(async () => (await shop.chat(secret)).status === 200);
      const calls = shop.provider.callCount();
      for (let i = 0; i < 5; i++) expect((await shop.chat(secret)).status).toBe(200);
      expect(shop.provider.callCount()).toBe(calls + 5);
    },
  );

  test("of one route sends requests directly to the other", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.always({ status: 500 });
    for (let i = 0; i < 15; i++) expect((await twoRoutes(secret)).status).toBe(200);
    expect(shop.provider.callCount()).toBeLessThanOrEqual(6);
    expect(shop.second.callCount()).toBe(15);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 15, released: 0, holds: 0 });
  });
});

describe("nothing of the provider leaks to the client", () => {
  const headers = {
    "openai-organization": "org-canary-1",
    "openai-processing-ms": "12",
    "x-request-id": "req_canary",
    "set-cookie": "canary=1",
    "x-canary": "canary",
    server: "canary-server",
    via: "canary-proxy",
    "access-control-allow-origin": "*",
  };

  function expectNoLeak({ text, headers: got }: Answer): void {
    const all = `${text}\n${[...got].map(([name, value]) => `${name}: ${value}`).join("\n")}`;
    const canaries = [
      "canary",
      "org-simulated",
      shop.provider.apiKey,
      shop.second.apiKey,
      shop.provider.url,
      shop.second.url,
      "127.0.0.1",
      "up-chat",
      "backup",
    ];
    for (const canary of canaries) expect(all).not.toContain(canary);
    for (const name of [
      "openai-organization",
      "openai-processing-ms",
      "set-cookie",
      "server",
      "via",
      "access-control-allow-origin",
    ])
      expect(got.get(name)).toBeNull();
  }

  test.each([
    ["JSON", false],
    ["stream", true],
  ] as const)("good answers: %s", async (_, stream) => {
    const { secret } = await shop.customer();
    shop.provider.next({ headers, content: "fine" });
    const answer = await twoRoutes(secret, { stream });
    expect(answer.text).toContain("fine");
    expectNoLeak(answer);
  });

  test.each([500, 401, 429, 404])("%d answers", async (status) => {
    const { secret } = await shop.customer();
    const body = JSON.stringify({
      error: {
        message: `canary ${shop.provider.apiKey} at ${shop.provider.baseUrl}`,
        type: "canary_error",
        code: "canary",
      },
    });
    shop.provider.next({ headers, status, body });
    shop.second.next({ headers, status, body });
    const answer = await twoRoutes(secret);
    // A 404 of every route is about the request. Source: PRV-5.
    expectRefusal(answer, status === 404 ? "invalid_request" : "provider_unavailable");
    expectNoLeak(answer);
  });

  test("error events in the middle of a stream", async () => {
    const { secret } = await shop.customer();
    shop.provider.next({ headers, errorEventAfterChunks: 2, tokens: 5 });
    expectNoLeak(await twoRoutes(secret, { stream: true }));
  });

  test("none of the client's headers reach the provider: not its key, cookies or address", async () => {
    const { secret } = await shop.customer();
    await shop.chat(
      secret,
      {},
      {
        secret,
        headers: {
          "x-client-canary": "1",
          cookie: "c=canary",
          "openai-organization": "org-client",
          "x-forwarded-for": "198.51.100.7",
          "user-agent": "canary-agent/1",
        },
        body: { model: "chat-two-routes", messages: [{ role: "user", content: "hello" }] },
      },
    );
    const call = shop.provider.lastCall();
    const sent = JSON.stringify(call?.headers);
    for (const canary of ["canary", "org-client", "198.51.100.7", secret]) expect(sent).not.toContain(canary);
    expect(call?.headers.authorization).toBe(`Bearer ${shop.provider.apiKey}`);
  });
});
