import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Socket } from "node:net";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { answerOf, type RawServer, startHungPort, startRawServer } from "../catalog/sockets.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { until } from "../platform/own_redis.ts";
import { type ReplicaProcess, TEST_SECRET_KEY } from "../replica.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { openRawClient } from "./raw_client.ts";
import { type Answer, eventsOf, imageBody, openShop, type Shop } from "./shop.ts";

/**
 * Provider faults beyond failover.test.ts: answers cut at every byte, decompression bombs, endless answers, answers that are
 * not HTTP, and data after the end. None is charged, no truncated answer is a 200, memory stays bounded, and the replica keeps
 * serving. Source: END-2, END-3, PRV-8.
 */
const CONNECT_MS = 500;
/** A busy machine unpacks 8 MiB of an event in some seconds. */
const FIRST_BYTE_MS = 10_000;
const SSE = "text/event-stream";
/** One less than the failures in a row that open a route's breaker. */
const AT_ONCE = 4;
const CUT_DELAY_MS = 5;
/** A whole answer of at most 32 MiB, and twice that for the sockets of both sides. */
const SENT_BYTES_MAX = 96 * 1024 * 1024;

let shop: Shop;
/** A replica that also has the raw and the hanging provider. */
let replica: ReplicaProcess;
let raw: RawServer;
let hung: Awaited<ReturnType<typeof startHungPort>>;
let answerRaw: (socket: Socket, request: string) => void = () => {};
let good: { secret: string };
const started: FakeProvider[] = [];

beforeAll(async () => {
  shop = await openShop();
  raw = await startRawServer((socket, request) => answerRaw(socket, request));
  hung = await startHungPort();
  const key = encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), "sk-raw-0123456789abcdef");
  for (const [model, baseUrl] of [
    ["chat-raw", raw.baseUrl],
    ["chat-hung", `http://127.0.0.1:${hung.port}/v1`],
  ] as const) {
    await shop.world.addProvider(model, baseUrl, key);
    await shop.world.addModels({
      id: model,
      contextLength: 8192,
      routes: [{ provider: model }, { provider: "second" }],
    });
  }
  const ports = [shop.provider.port, shop.second.port, raw.port, hung.port];
  replica = await shop.start({
    PROVIDER_ALLOW_PRIVATE: ports.map((port) => `127.0.0.1:${port}`).join(","),
    PROVIDER_CONNECT_MS: String(CONNECT_MS),
    PROVIDER_FIRST_BYTE_MS: String(FIRST_BYTE_MS),
    PROVIDER_TOTAL_MS: "20000",
  });
  good = await shop.customer({ dailyLimit: 1_000_000 });
});
afterEach(async () => {
  shop.provider.reset();
  shop.second.reset();
  // One good answer closes the breaker of a route, so that tests do not affect each other.
  for (const model of ["chat-a", "chat-two-routes", "image-a"]) {
    await until(async () => {
      const calls = [...started, shop.provider].map((one) => one.callCount());
      const { status } = model === "image-a" ? await image(good.secret) : await chat(good.secret, { model });
      return status === 200 && [...started, shop.provider].some((one, i) => one.callCount() > (calls[i] ?? 0));
    });
  }
  shop.provider.reset();
  shop.second.reset();
});
afterAll(async () => {
  const isAlive = replica.process.exitCode === null;
  await closeBalanced(shop, replica.kill, raw.close, hung.close, () => Promise.all(started.map((one) => one.stop())));
  expect(isAlive).toBe(true);
});

const chat = (secret: string, over: Record<string, unknown> = {}): Promise<Answer> =>
  shop.chat(secret, over, { origin: replica.origin });
const image = (secret: string, over: Record<string, unknown> = {}): Promise<Answer> =>
  shop.call("/v1/images/generations", { secret, body: imageBody(over), origin: replica.origin });

async function expectReleased(accountId: number, reason = "provider_failed"): Promise<void> {
  await until(async () => (await shop.counters(accountId)).holds === 0);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, units: 0 });
  const [receipt] = await shop.world.sql`select reason from receipts where account_id = ${accountId}`;
  expect(receipt?.reason).toBe(reason);
}

/** Runs `work` for each number from 0 to `last`, several at a time. */
async function forEach(last: number, work: (at: number) => Promise<void>): Promise<void> {
  let next = 0;
  const run = async () => {
    while (next <= last) await work(next++);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, run));
}

/** The replica ended the last call when it had read as much as it reads of an answer, and what was in the sockets. */
async function expectEndedSoon(): Promise<void> {
  const call = await shop.provider.waitForEnd(shop.provider.lastCall()?.id ?? 0);
  expect(call.bytesSent).toBeGreaterThan(0);
  expect(call.bytesSent).toBeLessThan(SENT_BYTES_MAX);
}

describe("an answer cut at every byte: the next route serves, or 503; never a truncated 200", () => {
  const CONTENT = "Grüße 🚦";
  const ANSWER = JSON.stringify({
    id: "chatcmpl-1",
    object: "chat.completion",
    created: 1_700_000_000,
    model: "up",
    choices: [{ index: 0, message: { role: "assistant", content: CONTENT }, finish_reason: "stop" }],
    usage: { prompt_tokens: 3, completion_tokens: 4, total_tokens: 7 },
  });
  const cutAt = (body: string, framing: Behaviour) => {
    for (let at = 0; at < Buffer.byteLength(body); at++)
      shop.provider.when((call) => call.body.includes(`cut@${at}@`), {
        body,
        ...framing,
        cutAfterBytes: at,
        cutDelayMs: CUT_DELAY_MS,
      });
    shop.provider.always({ body });
  };

  test.each([
    ["with a length", {}],
    ["in chunks", { chunked: true }],
  ] as const)("chat, %s: the next route's answer, whole, under the same hold", async (_, framing) => {
    const { secret, accountId } = await shop.customer({ dailyLimit: 100_000 });
    const last = Buffer.byteLength(ANSWER);
    cutAt(ANSWER, framing);
    shop.second.always({ content: "the second's" });
    let seconds = 0;
    await forEach(last, async (at) => {
      const ask = (n: number) =>
        chat(secret, { model: "chat-two-routes", messages: [{ role: "user", content: `cut@${n}@` }] });
      const { status, json } = await ask(at);
      expect({ at, status }).toEqual({ at, status: 200 });
      expect({ at, content: json.choices[0].message.content }).toEqual({
        at,
        content: at < last ? "the second's" : CONTENT,
      });
      expect(json.model).toBe("chat-two-routes");
      if (at < last) {
        seconds++;
        expect((await ask(last)).json.choices[0].message.content).toBe(CONTENT);
      }
    });
    expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([2 * last + 1, seconds]);
    expect(await shop.counters(accountId)).toMatchObject({
      usage: 2 * last + 1,
      units: 2 * last + 1,
      released: 0,
      holds: 0,
    });
  });

  test("an image without another route gets 503 and is released", async () => {
    const { secret, accountId } = await shop.customer({ dailyLimit: 100_000 });
    const body = JSON.stringify({ created: 1, data: [{ b64_json: "iVBORw0KGgo=" }] });
    const last = Buffer.byteLength(body);
    cutAt(body, { chunked: true });
    await forEach(last, async (at) => {
      const answer = await image(secret, { prompt: `cut@${at}@`, response_format: "b64_json" });
      if (at === last) expect(answer.json.data).toEqual([{ b64_json: "iVBORw0KGgo=" }]);
      else {
        expectRefusal(answer, "provider_unavailable");
        expect((await image(secret, { prompt: `cut@${last}@` })).status).toBe(200);
      }
    });
    expect(await shop.counters(accountId)).toMatchObject({
      usage: last + 1,
      units: last + 1,
      released: last,
      holds: 0,
    });
  });
});

describe("connections", () => {
  test.each([
    ["JSON", false],
    ["stream", true],
  ] as const)("a connect that hangs ends after PROVIDER_CONNECT_MS: the next route serves (%s)", async (_, stream) => {
    const { secret, accountId } = await shop.customer();
    // The first provider never accepts the connection.
    expect((await chat(secret, { model: "chat-hung", stream })).status).toBe(200);
    expect(shop.second.callCount()).toBe(1);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0 });
  });

  test("a provider that never reads the request causes 503, and the hold is released", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ hang: "connect" });
    expectRefusal(await chat(secret, { stream: true }), "provider_unavailable");
    await expectReleased(accountId);
  });

  const chunkedBody = (chunks: string) =>
    `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n${chunks}`;
  test.each([
    ["noise", "\u0000\u0001\u0002 hello\r\n\r\n"],
    ["half a status line", "HTTP/1.1 2"],
    ["another protocol", "SSH-2.0-OpenSSH_9.6\r\n"],
    ["a status that is no number", "HTTP/1.1 OK 200\r\ncontent-length: 2\r\n\r\n{}"],
    [
      "headers of 8 MB",
      `HTTP/1.1 200 OK\r\n${`x-filler: ${"y".repeat(8_000)}\r\n`.repeat(1_000)}content-length: 2\r\n\r\n{}`,
    ],
    ["a chunk size that is none", chunkedBody("zz\r\n{}\r\n0\r\n\r\n")],
    ["a chunk size beyond all measure", chunkedBody("ffffffffffffffff\r\n{}")],
    [
      "two lengths",
      "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\ncontent-length: 900\r\n\r\n{}",
    ],
    ["no content though it says JSON", String(answerOf(204, { "content-type": "application/json" }))],
    [
      "a field that stands twice",
      String(answerOf(200, { "content-type": "application/json" }, '{"id":"a","choices":[],"id":"b","choices":[]}')),
    ],
    ["JSON nested without end", String(answerOf(200, { "content-type": "application/json" }, "[".repeat(200_000)))],
    ...["DEEP", '{"choices":DEEP}', '{"data":{"choices":[{"message":{"content":DEEP}}]}}', '[{"choices":[]},DEEP]'].map(
      (form): [string, string] => [
        `JSON nested as deep, with its ends: ${form}`,
        String(
          answerOf(
            200,
            { "content-type": "application/json" },
            form.replace("DEEP", "[".repeat(200_000) + "]".repeat(200_000)),
          ),
        ),
      ],
    ),
    ["a list that is no JSON", String(answerOf(200, { "content-type": "application/json" }, "[boom"))],
  ])("an answer that is no HTTP, or no answer: the next route serves (%s)", async (_, wire) => {
    const { secret, accountId } = await shop.customer();
    answerRaw = (socket) => {
      socket.write(wire);
      setTimeout(() => socket.destroy(), 50);
    };
    const { status, json } = await chat(secret, { model: "chat-raw" });
    expect(status).toBe(200);
    expect(json.choices[0].message.content.length).toBeGreaterThan(10);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0 });
    // Five failures would open its breaker.
    const choice = { index: 0, message: { role: "assistant", content: "ok" }, finish_reason: "stop" };
    const body = JSON.stringify({ choices: [choice] });
    answerRaw = (socket) => socket.write(answerOf(200, { "content-type": "application/json" }, body));
    const isServed = async () =>
      (await chat(good.secret, { model: "chat-raw" })).json.choices[0].message.content === "ok";
    await until(isServed);
  });
});

describe("decompression bombs and endless answers: 503 or an error event, and the call is ended soon", () => {
  test.each([
    ["JSON", false, {}],
    ["JSON that says it is not compressed", false, { headers: { "content-encoding": "identity" } }],
    ["a stream", true, {}],
    ["a stream that says it is not compressed", true, { headers: { "content-encoding": "identity" } }],
  ] as const)("256 MB gzipped: %s", async (_, stream, behaviour) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ gzipBomb: true, ...behaviour });
    expectRefusal(await chat(secret, { stream }), "provider_unavailable");
    await expectReleased(accountId);
    // Unpacked on demand, up to the limit of an answer or an event.
    await expectEndedSoon();
  });

  test.each([
    ["JSON of a gigabyte", false, { giantLineBytes: 1_000_000_000 }],
    ["an error's body without end", false, { status: 500, endless: "line" }],
    [
      "a stream whose first line never ends",
      true,
      { body: "data: ", contentType: SSE, chunked: true, endless: "line" },
    ],
    [
      "a stream whose first event never comes",
      true,
      { body: ": hello\n\n", contentType: SSE, chunked: true, endless: "comments" },
    ],
  ] as const)("before the first byte: 503, released (%s)", async (_, stream, behaviour) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next(behaviour);
    expectRefusal(await chat(secret, { stream }), "provider_unavailable");
    // Comments without end keep a stream open until the time limit.
    const isLate = "endless" in behaviour && behaviour.endless === "comments";
    await expectReleased(accountId, isLate ? "timed_out" : "provider_failed");
    // Nothing of a comment is kept.
    if (!isLate) await expectEndedSoon();
    await until(() => shop.provider.counters().open === 0);
  });

  test("an endless line in the middle of a stream ends it with an error event, and the hold is released", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ endless: "line" });
    const { text } = await chat(secret, { stream: true });
    expect(JSON.parse(eventsOf(text).at(-1) ?? "").error.code).toBe("provider_unavailable");
    expect(text).not.toContain("[DONE]");
    await expectReleased(accountId, "provider_broke_off");
    await expectEndedSoon();
  });

  test("endless events are relayed as long as the client stays", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ endless: "events" });
    const client = openRawClient(replica.port, secret);
    await until(() => client.bytes() > 300_000_000);
    client.leave();
    await until(async () => (await shop.counters(accountId)).usage === 1);
    const [receipt] = await shop.world
      .sql`select reason, estimated, completion_tokens from receipts where account_id = ${accountId}`;
    expect(receipt).toMatchObject({ reason: "client_left", estimated: true });
    // Eight of these letters are a token.
    expect(Number(receipt?.completion_tokens)).toBeGreaterThan(30_000_000);
  });

  test("only the first of ten thousand images is fetched if one was requested", async () => {
    const { secret, accountId } = await shop.customer();
    const url = `${shop.second.url}/images/none.png`;
    shop.provider.next({
      body: JSON.stringify({ created: 1, data: [{ b64_json: "iVBORw0KGgo=" }, ...Array(10_000).fill({ url })] }),
    });
    const { status, json } = await image(secret, { response_format: "b64_json" });
    expect([status, json.data.length, shop.second.counters().calls]).toEqual([200, 1, 0]);
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1 });
  });
});

describe("data after the end of a stream", () => {
  const chunk = (delta: unknown, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 5, model: "up", choices: [{ index: 0, delta, finish_reason: finish }] })}\n\n`;
  const usage = `data: ${JSON.stringify({ id: "c", choices: [], usage: { prompt_tokens: 3, completion_tokens: 4 } })}\n\n`;
  const DONE = "data: [DONE]\n\n";

  test.each([
    [
      "a chunk behind [DONE]",
      `${chunk({ content: "a" })}${chunk({}, "stop")}${usage}${DONE}${chunk({ content: "late" })}`,
      2,
    ],
    ["two [DONE]", `${chunk({ content: "a" })}${chunk({}, "stop")}${usage}${DONE}${DONE}`, 2],
    [
      "an error behind [DONE]",
      `${chunk({ content: "a" })}${chunk({}, "stop")}${usage}${DONE}data: {"error":{"message":"late"}}\n\n`,
      2,
    ],
    ["noise behind [DONE]", `${chunk({ content: "a" })}${chunk({}, "stop")}${usage}${DONE}\u0000\u0001 oops`, 2],
    [
      "a chunk behind the finish",
      `${chunk({ content: "a" })}${chunk({}, "stop")}${chunk({ x_late: 1 })}${usage}${DONE}`,
      3,
    ],
    ["two finishes", `${chunk({ content: "a" })}${chunk({}, "stop")}${chunk({}, "length")}${usage}${DONE}`, 3],
    [
      "usage twice: the larger counts",
      `${chunk({ content: "a" })}${chunk({}, "stop")}${usage}${usage.replace("4}", "1}")}${DONE}`,
      2,
    ],
    [
      "empty events between",
      `data:\n\n${chunk({ content: "a" })}data: \n\ndata\n\n${chunk({}, "stop")}${usage}${DONE}`,
      2,
    ],
  ])("%s: settled once by the provider's word, one [DONE], nothing behind it", async (_, body, chunks) => {
    for (const framing of [{}, { chunked: true, splitEvery: 11 }]) {
      const { secret, accountId } = await shop.customer();
      shop.provider.next({ body, contentType: SSE, ...framing });
      const { status, text } = await chat(secret, { stream: true });
      const events = eventsOf(text);
      expect([status, events.length, events.indexOf("[DONE]")]).toEqual([200, chunks + 1, chunks]);
      expect(text).toEndWith(DONE);
      expect(text).not.toContain('"late"');
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, units: 1, released: 0, holds: 0 });
      const [receipt] = await shop.world
        .sql`select reason, estimated, completion_tokens from receipts where account_id = ${accountId}`;
      expect(receipt).toMatchObject({ reason: "complete", estimated: false, completion_tokens: 4 });
    }
  });
});

// Last, because it replaces the first provider.
test("the second route serves while the first refuses connections; once it is back on its port, it serves again", async () => {
  const { secret, accountId } = await shop.customer();
  const { port } = shop.provider;
  await shop.provider.stop();
  for (const stream of [false, true, false])
    expect((await chat(secret, { model: "chat-two-routes", stream })).status).toBe(200);
  expect(shop.second.callCount()).toBe(3);
  expectRefusal(await chat(secret), "provider_unavailable");
  const back = await startFakeProvider({ port });
  started.push(back);
  await until(async () => (await chat(secret, { model: "chat-two-routes" })).status === 200 && back.callCount() > 0);
  const { usage, released, holds } = await shop.counters(accountId);
  expect({ released, holds, units: usage }).toEqual({
    released: 1,
    holds: 0,
    units: shop.second.callCount() + back.callCount(),
  });
});
