import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { COUNTING, type ReplicaProcess } from "../replica.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { openRawClient, type RawClient } from "./raw_client.ts";
import { type CallOptions, chatBody, eventsOf, openShop, type Shop } from "./shop.ts";

/** Streams, through a replica that is a process, over sockets. Source: END-3, END-5, END-7, STR-1, STR-2, STR-3. */
let shop: Shop;
/** Its time limits are short, for providers that fall silent. On a busy machine they also end good streams. */
let hasty: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop({ env: COUNTING });
  hasty = await shop.start({ PROVIDER_IDLE_MS: "1500", PROVIDER_FIRST_BYTE_MS: "3000" });
  // The tokenizer estimates until its tables are loaded. One exact count shows that it is ready.
  const { secret } = await shop.customer();
  await until(async () => {
    shop.provider.next({ omitUsage: true });
    await shop.chat(secret, { messages: [{ role: "user", content: "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" }] });
    const { json } = await shop.call("/v1/usage?limit=1", { secret });
    return json.data[0].promptTokens !== 8;
  });
});
afterEach(() => {
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop, () => hasty.kill()));

const SSE = "text/event-stream";
/** A provider's stream as text, so that it can contain anything. */
const streamOf = (...payloads: string[]) => ({
  contentType: SSE,
  body: payloads.map((payload) => `data: ${payload}\n\n`).join(""),
});
const chunkOf = (delta: unknown, over: Record<string, unknown> = {}) =>
  JSON.stringify({
    id: "chatcmpl-1",
    object: "chat.completion.chunk",
    created: 1_700_000_000,
    model: "up-chat-a",
    choices: [{ index: 0, delta, finish_reason: null }],
    ...over,
  });
const FINISH = chunkOf({}, { choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });

const chunksIn = (text: string) =>
  eventsOf(text)
    .filter((payload) => payload !== "[DONE]")
    .map((payload) => JSON.parse(payload));
const contentIn = (text: string) =>
  chunksIn(text)
    .map((chunk) => chunk.choices?.[0]?.delta?.content ?? "")
    .join("");
const stream = (secret: string, over: Record<string, unknown> = {}, options: CallOptions = {}) =>
  shop.chat(secret, { stream: true, ...over }, options);

async function receiptOf(accountId: number) {
  const rows = await shop.world.sql`select * from receipts where account_id = ${accountId}`;
  expect(rows.length).toBe(1);
  return rows[0] as Record<string, unknown>;
}

/** Nothing was charged, nothing is reserved, and no usage record was written. */
async function expectReleased(accountId: number, reason: string): Promise<void> {
  await until(async () => (await shop.counters(accountId)).holds === 0);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 0, released: 1, units: 0 });
  expect((await receiptOf(accountId)).reason).toBe(reason);
}

/** One unit, one record by our own count, with tokens in it. */
async function expectLeft(accountId: number): Promise<Record<string, unknown>> {
  await until(async () => (await shop.counters(accountId)).usage === 1);
  expect(await shop.counters(accountId)).toMatchObject({ usage: 1, released: 0, holds: 0, units: 1 });
  const receipt = await receiptOf(accountId);
  expect(receipt).toMatchObject({ reason: "client_left", estimated: true });
  expect(Number(receipt.prompt_tokens)).toBeGreaterThan(0);
  return receipt;
}

/** A stream read from a bare socket, which can stop reading and leave at any time. */
const openSocket = (secret: string, body: Record<string, unknown>) =>
  openRawClient(shop.replicas[0]?.port ?? 0, secret, body);

describe("framing", () => {
  test("the headers of a stream", async () => {
    const { secret } = await shop.customer();
    const { status, headers } = await stream(secret);
    expect(status).toBe(200);
    expect(headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(headers.get("cache-control")).toBe("no-cache, no-transform");
    expect(headers.get("x-accel-buffering")).toBe("no");
    expect(headers.get("content-encoding")).toBeNull();
    expect(headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
  });

  test("only data events, each a chunk, and [DONE] as the last", async () => {
    const { secret } = await shop.customer();
    shop.provider.next({ commentLines: true, crlf: true, splitEvery: 7, content: "Grüße, 世界 🚦" });
    const { text } = await stream(secret);
    expect(text).toMatch(/^(?:data: [^\n\r]+\n\n)+$/);
    expect(eventsOf(text).at(-1)).toBe("[DONE]");
    expect(contentIn(text)).toBe("Grüße, 世界 🚦");
    for (const chunk of chunksIn(text)) expect(chunk.object).toBe("chat.completion.chunk");
  });

  test("one id, one created and the client's model name, even if the provider's vary", async () => {
    const { secret } = await shop.customer();
    shop.provider.next(
      streamOf(
        chunkOf({ role: "assistant" }, { id: "first", model: "a" }),
        chunkOf({ content: "x" }, { id: "second", created: 1_800_000_000, model: "b" }),
        chunkOf({ content: "y" }, { id: null, created: null, object: "chunk", model: null }),
        FINISH,
        "[DONE]",
      ),
    );
    const chunks = chunksIn((await stream(secret)).text);
    expect(chunks.length).toBe(4);
    for (const chunk of chunks)
      expect(chunk).toMatchObject({
        id: "first",
        created: 1_700_000_000,
        model: "chat-a",
        object: "chat.completion.chunk",
      });
  });

  test.each([
    ["missing", { id: undefined, created: undefined, object: undefined }],
    ["empty", { id: "", created: 0, object: "" }],
    ["of another type", { id: null, created: "now", object: 7 }],
  ])("id, created and object are ours where the provider's first are %s", async (_, over) => {
    const { secret } = await shop.customer();
    shop.provider.next(
      streamOf(chunkOf({ content: "x" }, over), chunkOf({ content: "y" }, { id: "late" }), FINISH, "[DONE]"),
    );
    const { text, headers } = await stream(secret);
    const chunks = chunksIn(text);
    for (const chunk of chunks) {
      expect(chunk.id).toBe(`chatcmpl-${headers.get("x-request-id")}`);
      expect(chunk.created).toBeGreaterThan(1_700_000_000);
      expect(chunk.object).toBe("chat.completion.chunk");
    }
  });

  test("unknown fields pass through: reasoning, tool deltas, anything", async () => {
    const { secret } = await shop.customer();
    const deltas = [
      { role: "assistant", reasoning_content: "hm", x_vendor: { deep: [1, { model: "inner", usage: 1 }] } },
      { tool_calls: [{ index: 0, id: "call_1", type: "function", function: { name: "f", arguments: '{"a":' } }] },
      { tool_calls: [{ index: 0, function: { arguments: '"\\u00e9"}' } }] },
    ];
    shop.provider.next(
      streamOf(
        ...deltas.map((delta) => chunkOf(delta, { service_tier: "flex", big: 12345678901234567890n.toString() })),
        FINISH,
        "[DONE]",
      ),
    );
    const chunks = chunksIn((await stream(secret)).text);
    expect(chunks.slice(0, 3).map((chunk) => chunk.choices[0].delta)).toEqual(deltas);
    expect(chunks[0]).toMatchObject({ service_tier: "flex", big: "12345678901234567890" });
  });

  test("a very large event passes, and one above the limit ends the stream", async () => {
    const good = await shop.customer();
    shop.provider.next({ giantLineBytes: 6_000_000, tokens: 3, omitUsage: true });
    const { text } = await stream(good.secret);
    expect(text.length).toBeGreaterThan(6_000_000);
    expect(eventsOf(text).at(-1)).toBe("[DONE]");
    // Counted, whatever its length.
    expect(Number((await receiptOf(good.accountId)).completion_tokens)).toBeGreaterThan(600_000);
    const bad = await shop.customer();
    shop.provider.next({ giantLineBytes: 20_000_000, tokens: 3 });
    expect((await stream(bad.secret)).text).not.toContain("[DONE]");
    await expectReleased(bad.accountId, "provider_broke_off");
  });
});

describe("usage", () => {
  test.each(["own", "finish", "every"] as const)(
    "the usage chunk is sent only on request, as the last one, and the others have usage null (provider: %s)",
    async (usageIn) => {
      const { secret } = await shop.customer();
      shop.provider.always({ usageIn, tokens: 5 });
      const silent = chunksIn((await stream(secret)).text);
      for (const chunk of silent) {
        // Not even as null: a client that did not ask may not take it.
        expect(chunk).not.toHaveProperty("usage");
        expect(chunk.choices.length).toBe(1);
      }
      const asked = chunksIn((await stream(secret, { stream_options: { include_usage: true } })).text);
      const last = asked.pop();
      expect(last).toMatchObject({
        choices: [],
        usage: { completion_tokens: 5 },
        model: "chat-a",
        object: "chat.completion.chunk",
        id: asked[0].id,
      });
      for (const chunk of asked) {
        expect(chunk).toHaveProperty("usage", null);
        expect(chunk.choices.length).toBe(1);
      }
      for (const { body } of shop.provider.calls()) expect(JSON.parse(body).stream_options.include_usage).toBe(true);
    },
  );

  test("is settled before the last byte: a client that has read [DONE] finds the usage record", async () => {
    for (let i = 0; i < 10; i++) {
      const { secret, accountId } = await shop.customer();
      const response = await fetch(`${shop.origin}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
        body: JSON.stringify({ ...chatBody(), stream: true }),
      });
      const reader = (response.body as ReadableStream<Uint8Array>).getReader();
      let text = "";
      while (!text.includes("[DONE]")) {
        const { done, value } = await reader.read();
        if (done) throw new Error("no [DONE]");
        text += new TextDecoder().decode(value);
      }
      expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0, units: 1 });
      await reader.cancel();
    }
  });

  test("escaped text from the provider is counted unescaped", async () => {
    const plain = "世界".repeat(200);
    const escaped = plain.replace(/./g, (c) => `\\u${c.charCodeAt(0).toString(16)}`);
    async function counted(content: string): Promise<unknown> {
      const { secret, accountId } = await shop.customer();
      shop.provider.next(streamOf(chunkOf({ content: "@" }).replace("@", content), FINISH, "[DONE]"));
      expect(contentIn((await stream(secret)).text)).toBe(plain);
      return (await receiptOf(accountId)).completion_tokens;
    }
    // On a busy machine a count may be given up for an estimate; it then differs from the other one.
    await until(async () => (await counted(escaped)) === (await counted(plain)));
  });
});

describe("the provider breaks off: an error event, no [DONE], released, no usage record", () => {
  async function expectBrokenOff(
    behaviour: Behaviour,
    reason = "provider_broke_off",
    { over, origin = shop.origin }: { over?: Record<string, unknown>; origin?: string } = {},
    hasRead?: (text: string) => boolean,
  ): Promise<string> {
    const { secret, accountId } = await shop.customer();
    const send = (onText: CallOptions["onText"]) => stream(secret, over, { origin, onText });
    const { status, text, headers } = await shop.brokenOff(behaviour, send, { hasRead });
    expect({ status, text: status === 200 ? "" : text }).toEqual({ status: 200, text: "" });
    const events = eventsOf(text);
    expect(text).not.toContain("[DONE]");
    expect(JSON.parse(events.at(-1) ?? "")).toEqual({
      error: { message: expect.any(String), type: "provider_unavailable", code: "provider_unavailable", param: null },
      request_id: headers.get("x-request-id"),
    });
    for (const payload of events.slice(0, -1)) expect(JSON.parse(payload)).toHaveProperty("choices");
    expect(text).not.toContain("org-simulated");
    await expectReleased(accountId, reason);
    return text;
  }

  test("after any chunk of an answer: the client gets the chunks that arrived before", async () => {
    const chunks = 8;
    // The first chunk has only the role: an answer that ends with it has not begun. Source: END-21.
    for (let at = 2; at <= chunks; at++) {
      const hasRead = (text: string) => chunksIn(text).length >= at;
      await expectBrokenOff({ cutAfterChunks: at, tokens: chunks }, "provider_broke_off", {}, hasRead);
    }
  });

  test("inside an event", () => expectBrokenOff({ cutAfterBytes: 900, tokens: 20 }));
  test("ends with neither finish_reason nor [DONE]", () =>
    expectBrokenOff({ endWithoutFinish: true, endWithoutDone: true, tokens: 4 }));
  test("an error event in the middle", () => expectBrokenOff({ errorEventAfterChunks: 3, tokens: 10 }));
  test("falls silent for PROVIDER_IDLE_MS", async () => {
    // The provider says nothing more until the replica has left it.
    await expectBrokenOff({ hang: "mid_stream", cutAfterChunks: 3, tokens: 10 }, "timed_out", hasty);
    const call = shop.provider.lastCall();
    await shop.provider.waitForAborted(call?.id ?? 0);
  });

  test.each([
    ["text", "oops"],
    ["cut short", '{"id":"x","choices":[{"index":0,"delta":{"content":"a'],
    ["wrong inside", '{"id":"x","choices":[{"index":0,"delta":{"content":}}]}'],
    ["brackets that do not match", '{"id":"x","choices":[{]}'],
    ["not an object", "[1]"],
  ])("an event that is malformed JSON: %s", (_, payload) =>
    expectBrokenOff(streamOf(chunkOf({ content: "a" }), payload, chunkOf({ content: "b" }), FINISH, "[DONE]")),
  );

  test("a finish_reason without [DONE] is a complete answer", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ endWithoutDone: true, tokens: 4 });
    expect(eventsOf((await stream(secret)).text).at(-1)).toBe("[DONE]");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0 });
    expect(await receiptOf(accountId)).toMatchObject({ reason: "complete", estimated: false });
  });

  test("[DONE] without a finish_reason is a complete answer", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ endWithoutFinish: true, tokens: 4 });
    expect(eventsOf((await stream(secret)).text).at(-1)).toBe("[DONE]");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0 });
  });

  test("a finish_reason of one choice does not finish an answer with another that was cut", async () => {
    const part = (index: number, content: string, finish: string | null = null) =>
      chunkOf({}, { choices: [{ index, delta: { content }, finish_reason: finish }] });
    const begun = [part(0, "yes"), part(1, "a long answer of which only the begin"), part(0, "", "stop")];
    const text = await expectBrokenOff(streamOf(...begun), "provider_broke_off", { over: { n: 2 } });
    expect(text).toContain("only the begin");
    const { secret, accountId } = await shop.customer();
    shop.provider.next(streamOf(...begun, part(1, "ning.", "stop")));
    expect(eventsOf((await stream(secret, { n: 2 })).text).at(-1)).toBe("[DONE]");
    expect(await shop.counters(accountId)).toMatchObject({ usage: 1, holds: 0 });
  });

  test("an empty finish_reason does not finish the answer", () =>
    expectBrokenOff(streamOf(chunkOf({}, { choices: [{ index: 0, delta: { content: "a" }, finish_reason: "" }] }))));

  test.each([
    ["500", { status: 500 }],
    ["cut before the headers", { cutBeforeHeaders: true }],
    ["cut behind the headers", { cutAfterBytes: 0 }],
    [
      "an error as the first event",
      { errorEventAfterChunks: 0, body: 'data: {"error":{"message":"no"}}\n\n', contentType: SSE },
    ],
    ["[DONE] alone", streamOf("[DONE]")],
    ["an empty stream", { body: ": nothing\n\n", contentType: SSE }],
    ["no event in time", { hang: "first_byte" as const }],
    ["JSON in place of a stream", { body: "{}" }],
  ])("before the first event: 503 as JSON with the real status, released (%s)", async (_, behaviour) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next(behaviour);
    const { origin } = "hang" in behaviour ? hasty : shop;
    expectRefusal(await stream(secret, {}, { origin }), "provider_unavailable");
    await expectReleased(accountId, "hang" in behaviour ? "timed_out" : "provider_failed");
    // Closes the breaker of the route, for the next test.
    expect((await stream(secret, {}, { origin })).status).toBe(200);
  });
});

describe("the client leaves", () => {
  /** The provider's answer does not end before it is aborted. Returns the call. */
  async function leave(client: RawClient, callId: number) {
    client.leave();
    return await shop.provider.waitForAborted(callId);
  }

  test.each(["headers", "first_byte"] as const)(
    "before the first event, the provider hangs before its %s: the prompt is charged, the call is aborted",
    async (hang) => {
      const { secret, accountId } = await shop.customer();
      shop.provider.reset();
      shop.provider.next({ hang });
      const client = openSocket(secret, {});
      const [call] = await shop.provider.waitForCalls(1);
      await sleep(50); // For the headers to arrive.
      await leave(client, call?.id ?? 0);
      expect((await expectLeft(accountId)).completion_tokens).toBe(0);
    },
  );

  test("of a prompt without text: more than zero tokens are charged, by what was reserved for its image", async () => {
    const { secret, accountId } = await shop.customer();
    // It is read on, and the provider reports nothing.
    shop.provider.next({ firstByteDelayMs: 500, omitUsage: true, tokens: 3 });
    const client = openSocket(secret, {
      model: "vendor/chat-b",
      messages: [{ role: "user", content: [{ type: "image_url", image_url: { url: "https://example.com/a.png" } }] }],
    });
    await shop.provider.waitForCalls(1);
    client.leave();
    await expectLeft(accountId);
  });

  test("after any number of events: the relayed text is charged", async () => {
    for (let events = 1; events <= 8; events++) {
      shop.provider.reset();
      const { secret, accountId } = await shop.customer();
      shop.provider.next(shop.provider.gateAfter(events + 3, { tokens: 500 }).held);
      const client = openSocket(secret, {});
      await until(() => client.events() >= events);
      const call = await leave(client, shop.provider.lastCall()?.id ?? 0);
      const completion = Number((await expectLeft(accountId)).completion_tokens);
      // The first event only names the role.
      if (events > 1) expect(completion).toBeGreaterThanOrEqual(Math.max(1, events - 2));
      expect(completion).toBeLessThanOrEqual(call.chunksSent * 2 + 5);
    }
  });

  test("while the provider is silent: also aborted", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ hang: "mid_stream", cutAfterChunks: 3, tokens: 20 });
    const client = openSocket(secret, {});
    await until(() => client.events() >= 4);
    await leave(client, shop.provider.lastCall()?.id ?? 0);
    await expectLeft(accountId);
  });

  test("not streaming: the call runs to its end and is settled by the provider's usage", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ delayMs: 400, tokens: 9 });
    const client = openSocket(secret, { stream: false });
    const [call] = await shop.provider.waitForCalls(1);
    client.leave();
    expect((await shop.provider.waitForEnd(call?.id ?? 0)).outcome).toBe("complete");
    await until(async () => (await shop.counters(accountId)).usage === 1);
    expect(await receiptOf(accountId)).toMatchObject({ estimated: false, completion_tokens: 9, reason: "client_left" });
  });
});
