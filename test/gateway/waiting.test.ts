import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import type { FakeProvider } from "../fake_provider.ts";
import { signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { metricsOf } from "./metrics_reader.ts";
import { openRawClient } from "./raw_client.ts";
import { checkLifeCycle, readEvents } from "./response_events.ts";
import { chatBody, eventsOf, imageBody, openShop, responsesBody, type Shop } from "./shop.ts";

/**
 * A provider that does not begin for long: the client gets its headers and comments, and later what the request ends with. A provider
 * stays silent until a test has seen what it waits for. Source: STR-10, STR-11.
 */
const COMMENT = ": keep-alive\n\n";
const CHAT = "/v1/chat/completions";
const RESPONSES = "/v1/responses";
const STREAM_HEADERS_MS = "50";

let shop: Shop;
let replica: ReplicaProcess;
/** A replica that sends white space before answers that are not streamed, and no headers before a stream. */
let patient: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop({ env: { STREAM_HEADERS_MS, CLIENT_IDLE_MS: "2000", INTERNAL_PORT: "0" } });
  [replica] = shop.replicas as [ReplicaProcess];
  patient = await shop.start({ JSON_HEADERS_MS: "50", STREAM_HEADERS_MS: "0" });
});
afterEach(async () => {
  shop.provider.reset();
  shop.second.reset();
  // A good answer closes the breaker of a route, so that tests do not affect each other.
  const { secret } = await shop.customer();
  for (const model of ["chat-a", "chat-two-routes"])
    for (const { origin } of [replica, patient])
      await until(async () => {
        const calls = shop.provider.callCount();
        return (await shop.chat(secret, { model }, { origin })).status === 200 && shop.provider.callCount() > calls;
      });
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop, patient.kill));

/** The provider's next call gets no byte before the returned function is called. */
function gate(provider: FakeProvider, behaviour: Behaviour = {}): () => void {
  const { held, open } = provider.gate(behaviour);
  provider.next(held);
  return open;
}

type Opening = { path?: string; body: Record<string, unknown>; origin?: string; headers?: Record<string, string> };

/** An answer that is read as it arrives. */
async function open(secret: string, { path = CHAT, body, origin = replica.origin, headers = {} }: Opening) {
  const left = new AbortController();
  const response = await fetch(`${origin}${path}`, {
    method: "POST",
    headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
    signal: left.signal,
  });
  let got = "";
  const ended = (async () => {
    for await (const bytes of response.body as ReadableStream<Uint8Array>) got += new TextDecoder().decode(bytes);
  })().catch(() => {}); // Cut off: what came until then is what counts.
  return {
    response,
    /** Resolves when the client has waited for so long that it was sent this text `times` times. */
    waited: (text = COMMENT, times = 3) => until(() => got.split(text).length > times),
    ended: ended.then(() => got),
    leave: () => left.abort(),
  };
}

const stream = (over: Record<string, unknown> = {}) => chatBody({ stream: true, ...over });

function expectWhole(text: string): void {
  expect(text.startsWith(COMMENT)).toBe(true);
  expect(eventsOf(text).at(-1)).toBe("[DONE]");
  expect(text.replaceAll(COMMENT, "")).toMatch(/^data: \{/);
}

/** The error of a stream that has nothing but comments and one error event. */
function errorOf(text: string): Record<string, unknown> {
  const events = text.replaceAll(COMMENT, "");
  expect(events).toMatch(/^data: \{.*\}\n\n$/);
  return JSON.parse(events.slice("data: ".length));
}

async function lineOf(response: Response): Promise<Record<string, unknown>> {
  const id = response.headers.get("x-request-id") ?? "";
  const line = () =>
    replica
      .logged()
      .split("\n")
      .find((text) => text.includes('"message":"request"') && text.includes(id));
  await until(() => line() !== undefined);
  return JSON.parse(line() ?? "");
}

describe("a stream whose provider has not begun", () => {
  test("has its headers and comments, then the answer", async () => {
    const { secret, accountId } = await shop.customer();
    const begin = gate(shop.provider);
    const client = await open(secret, { body: stream({ foo: 1 }) });
    expect(client.response.status).toBe(200);
    expect(client.response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(client.response.headers.get("x-accel-buffering")).toBe("no");
    // What is dropped depends on the route that will answer.
    expect(client.response.headers.get("x-dropped-params")).toBeNull();
    await client.waited();
    expect((await shop.counters(accountId)).holds).toBe(1);
    begin();
    expectWhole(await client.ended);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0, units: 1 });
    const line = await lineOf(client.response);
    expect(line).toMatchObject({ status: 200, stream: true, end: "complete" });
    // The first byte is the provider's: comments are none.
    expect(Number(line.firstByteMs)).toBeGreaterThan(2 * Number(STREAM_HEADERS_MS));
  });

  test("has the next route's answer after the first has failed", async () => {
    const { secret, accountId } = await shop.customer();
    const fail = gate(shop.provider, { status: 500 });
    const begin = gate(shop.second);
    const client = await open(secret, { body: stream({ model: "chat-two-routes" }) });
    await client.waited();
    fail();
    await shop.second.waitForCalls(1);
    begin();
    expectWhole(await client.ended);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0, units: 1 });
  });

  test("ends with an error event after every route has failed, and costs nothing", async () => {
    const { secret, accountId } = await shop.customer();
    const counted = async () =>
      (await metricsOf(replica)).get(
        'tollgate_requests_total{route="POST /v1/chat/completions",code="200",refusal="provider_unavailable"}',
      ) ?? 0;
    const before = await counted();
    const fail = gate(shop.provider, { status: 500 });
    const failToo = gate(shop.second, { cutBeforeHeaders: true });
    const client = await open(secret, { body: stream({ model: "chat-two-routes" }) });
    await client.waited();
    fail();
    await shop.second.waitForCalls(1);
    failToo();
    expect(errorOf(await client.ended)).toMatchObject({
      error: { code: "provider_unavailable", type: "provider_unavailable", param: null },
      request_id: client.response.headers.get("x-request-id"),
    });
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, units: 0 });
    expect(await lineOf(client.response)).toMatchObject({
      status: 200,
      refusal: "provider_unavailable",
      end: "provider_failed",
    });
    expect(await counted()).toBe(before + 1);
  });

  test.each([
    ["400", { status: 400 }, 400, "invalid_request"],
    ["503", { status: 500 }, 503, "provider_unavailable"],
  ])("keeps the status %s of a quick refusal", async (_, behaviour, status, code) => {
    const { secret } = await shop.customer();
    shop.provider.next(behaviour);
    // On a busy machine no answer is quick.
    const answer = await shop.chat(secret, { stream: true }, { origin: patient.origin });
    expect(answer.status).toBe(status);
    expectRefusal(answer, code);
  });

  test.each<[string, Behaviour]>([
    ["has sent no headers", { hang: "headers" }],
    ["has sent headers", { hang: "first_byte" }],
  ])(
    "is left by its client when the provider %s: the prompt is charged, and the call aborted",
    async (_, behaviour) => {
      const { secret, accountId } = await shop.customer();
      const calls = shop.provider.callCount();
      shop.provider.next(behaviour);
      const client = await open(secret, { body: stream() });
      await client.waited();
      client.leave();
      const [call] = (await shop.provider.waitForCalls(calls + 1)).slice(-1);
      await shop.provider.waitForAborted(call?.id ?? 0);
      await until(async () => (await shop.counters(accountId)).holds === 0);
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, units: 1 });
      const [receipt] = await shop.world.sql`select reason from receipts where account_id = ${accountId}`;
      expect(receipt?.reason).toBe("client_left");
      expect(await lineOf(client.response)).toMatchObject({ status: 499, end: "client_left" });
    },
  );

  test("can be repeated with its Idempotency-Key after it has failed", async () => {
    const { secret, accountId } = await shop.customer();
    const headers = { "idempotency-key": "wait-1" };
    const fail = gate(shop.provider, { status: 500 });
    const client = await open(secret, { body: stream(), headers });
    await client.waited();
    const meanwhile = await shop.chat(secret, { stream: true }, { headers });
    expect(meanwhile.status).toBe(409);
    fail();
    errorOf(await client.ended);
    await until(async () => (await shop.chat(secret, { stream: true }, { headers })).status === 200);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
  });

  test("whose client then reads nothing is ended, and charged for what was sent", async () => {
    const { secret, accountId } = await shop.customer();
    const begin = gate(shop.provider, { endless: "events" });
    const client = openRawClient(replica.port, secret);
    await until(() => client.got().split(COMMENT).length > 3);
    begin();
    await until(() => client.events() > 3);
    client.socket.pause();
    await until(async () => (await shop.counters(accountId)).usage === 1);
    client.leave();
    expect(await shop.counters(accountId)).toMatchObject({ holds: 0, units: 1 });
  });

  test("ends with an error event at the drain's deadline, and costs nothing", async () => {
    const ending = await shop.start({ DRAIN_SECONDS: "1" });
    try {
      const { secret, accountId } = await shop.customer();
      shop.provider.next({ hang: "headers" });
      const client = await open(secret, { body: stream(), origin: ending.origin });
      await client.waited();
      expect(await ending.stop()).toBe(0);
      expect(errorOf(await client.ended)).toMatchObject({ error: { code: "service_unavailable" } });
      expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, units: 0 });
    } finally {
      await ending.kill();
    }
  });
});

describe("a response whose provider has not begun", () => {
  test("has comments, then its events", async () => {
    const { secret } = await shop.customer();
    const begin = gate(shop.provider);
    const client = await open(secret, { path: RESPONSES, body: responsesBody({ stream: true }) });
    await client.waited();
    begin();
    const text = await client.ended;
    expect(text.startsWith(COMMENT)).toBe(true);
    expect(checkLifeCycle(readEvents(text)).status).toBe("completed");
  });

  test("ends with response.failed after its provider has failed", async () => {
    const { secret, accountId } = await shop.customer();
    const fail = gate(shop.provider, { status: 500 });
    const client = await open(secret, { path: RESPONSES, body: responsesBody({ stream: true }) });
    await client.waited();
    fail();
    const last = checkLifeCycle(readEvents(await client.ended));
    expect(last).toMatchObject({ status: "failed", error: { code: "server_error" } });
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, units: 0 });
  });
});

describe("an answer that is not streamed", () => {
  test("has no byte before it is complete, unless the operator switched that on", async () => {
    const { secret } = await shop.customer();
    const fail = gate(shop.provider, { status: 500 });
    const answered = shop.chat(secret);
    await shop.provider.waitForCalls(1);
    // A stream that begins later has waited for long.
    const begin = gate(shop.second);
    shop.provider.next({ status: 500 });
    const client = await open(secret, { body: stream({ model: "chat-two-routes" }) });
    await client.waited();
    fail();
    expectRefusal(await answered, "provider_unavailable");
    begin();
    expectWhole(await client.ended);
  });

  test("has white space before it where that is on, and is kept for its Idempotency-Key", async () => {
    const { secret, accountId } = await shop.customer();
    const headers = { "idempotency-key": "wait-2" };
    const begin = gate(shop.provider);
    const client = await open(secret, { body: chatBody(), origin: patient.origin, headers });
    expect(client.response.status).toBe(200);
    expect(client.response.headers.get("content-type")).toBe("application/json");
    await client.waited("\n");
    begin();
    const text = await client.ended;
    expect(text).toMatch(/^\n{3,}\{.*\}$/);
    expect(JSON.parse(text).object).toBe("chat.completion");
    const again = await shop.chat(secret, {}, { headers, origin: patient.origin });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect(again.text).toBe(text.trimStart());
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
  });

  test("has the error behind the white space, and costs nothing", async () => {
    const { secret, accountId } = await shop.customer();
    const fail = gate(shop.provider, { status: 500 });
    const client = await open(secret, { path: "/v1/images/generations", body: imageBody(), origin: patient.origin });
    await client.waited("\n");
    fail();
    expect(client.response.status).toBe(200);
    expect(JSON.parse(await client.ended)).toMatchObject({
      error: { code: "provider_unavailable" },
      request_id: client.response.headers.get("x-request-id"),
    });
    expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, holds: 0, units: 0 });
  });
});

test("the panel's playground waits in the same way", async () => {
  const person = await shop.world.addCustomer();
  await shop.world.givePackage(person, {});
  await shop.world.addKey(person);
  const session = await signInTo(shop, person);
  const fail = gate(shop.provider, { status: 500 });
  const calls = shop.provider.callCount();
  const answered = session.post("/ai/chat", stream());
  await shop.provider.waitForCalls(calls + 1);
  // A stream of the API that began later waits already.
  const later = await shop.customer();
  const begin = gate(shop.provider);
  const client = await open(later.secret, { body: stream() });
  await client.waited();
  fail();
  begin();
  const answer = await answered;
  expect(answer.status).toBe(200);
  expect(errorOf(answer.text)).toMatchObject({ error: { code: "provider_unavailable" } });
  expectWhole(await client.ended);
});
