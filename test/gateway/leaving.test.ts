import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { encrypt } from "../../src/platform/crypto.ts";
import { answerOf, startHangingPort, startHungPort } from "../catalog/sockets.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { COUNTING, type ReplicaProcess, TEST_SECRET_KEY } from "../replica.ts";
import { closeBalanced } from "./checks.ts";
import { openRawClient } from "./raw_client.ts";
import { openShop, PRICES, type Shop } from "./shop.ts";

/**
 * The cost of a request whose client leaves early, or whose provider breaks off late: only what a provider did is charged.
 * Source: END-5, END-6, END-8, END-9, END-10, END-11.
 */
const HEADERS_MS = 6_000;
const SSE = "text/event-stream";
const { inputMicroUsd, outputMicroUsd } = PRICES;
const MODEL = { contextLength: 8192, inputMicroUsd, outputMicroUsd, defaultCapTokens: 100_000 };

let shop: Shop;
/** A replica that also has the unreachable provider. */
let replica: ReplicaProcess;
let hung: Awaited<ReturnType<typeof startHungPort>>;

beforeAll(async () => {
  shop = await openShop();
  hung = await startHungPort();
  await addProvider("hung", hung.port);
  await shop.world.addModels(
    { ...MODEL, id: "chat-hung", routes: [{ provider: "hung" }] },
    { ...MODEL, id: "chat-hung-first", routes: [{ provider: "hung" }, { provider: "second" }] },
  );
  const ports = [shop.provider.port, shop.second.port, hung.port];
  replica = await shop.start({
    PROVIDER_ALLOW_PRIVATE: ports.map((port) => `127.0.0.1:${port}`).join(","),
    PROVIDER_HEADERS_MS: String(HEADERS_MS),
    INTERNAL_PORT: "0",
    DRAIN_SECONDS: "60",
  });
});
afterEach(() => {
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop, replica.kill, hung.close));

async function addProvider(name: string, port: number): Promise<void> {
  const key = encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), "sk-other-0123456789abcdef");
  await shop.world.addProvider(name, `http://127.0.0.1:${port}/v1`, key);
}

const leaver = (secret: string, over: Record<string, unknown> = {}) => openRawClient(replica.port, secret, over);

/** The one receipt of an account, once its request has ended. */
async function receiptOf(accountId: number): Promise<Record<string, unknown>> {
  const find = () => shop.world.sql`select * from receipts where account_id = ${accountId}`;
  await until(async () => (await find()).length === 1);
  expect((await shop.counters(accountId)).holds).toBe(0);
  return (await find())[0] as Record<string, unknown>;
}

async function expectReleased(accountId: number, reason: string): Promise<void> {
  expect(await receiptOf(accountId)).toMatchObject({ outcome: "released", reason });
  expect(await shop.counters(accountId)).toMatchObject({ usage: 0, units: 0 });
}

describe("a request that was sent to no provider", () => {
  test.each([
    ["its only provider cannot be reached", "chat-hung", true],
    ["its first provider cannot be reached, the second is well", "chat-hung-first", true],
    ["not streamed: its only provider cannot be reached", "chat-hung", false],
    ["not streamed: its first provider cannot be reached, the second is well", "chat-hung-first", false],
  ] as const)("costs nothing when its client leaves: %s", async (_, model, stream) => {
    const people = await Promise.all(Array.from({ length: 5 }, () => shop.customer()));
    await Promise.all(
      people.map(async ({ secret, accountId }) => {
        const client = leaver(secret, { model, stream });
        await until(async () => (await shop.counters(accountId)).holds === 1);
        await sleep(300);
        client.leave();
      }),
    );
    for (const { accountId } of people) {
      const { outcome, reason, units } = await receiptOf(accountId);
      // With JSON the client gets the provider's failure first.
      const reasons = stream ? ["not_dispatched"] : ["not_dispatched", "provider_failed"];
      expect({ outcome, units, isRight: reasons.includes(String(reason)) }).toEqual({
        outcome: "released",
        units: 0,
        isRight: true,
      });
    }
    // No further route is tried for a client that has left.
    expect(shop.second.callCount()).toBe(0);
  });

  test.each([true, false])("no further route is tried once the client has left (stream: %p)", async (stream) => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ delayMs: 1_000, status: 500 });
    const client = leaver(secret, { model: "chat-two-routes", stream });
    await shop.provider.waitForCalls(1);
    client.leave();
    await expectReleased(accountId, "provider_failed");
    expect(shop.second.callCount()).toBe(0);
  });

  test("costs nothing if the provider has answered before but refuses connections now", async () => {
    const body = '{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}';
    const answer = answerOf(200, { "content-type": "application/json" }, body).toString();
    const hanging = await startHangingPort(answer);
    const hostPort = `127.0.0.1:${hanging.port}`;
    const own = await shop.start({ PROVIDER_ALLOW_PRIVATE: hostPort, PROVIDER_CONNECT_MS: "1500" });
    try {
      await addProvider("hanging", hanging.port);
      await shop.world.addModels({ ...MODEL, id: "chat-hanging", routes: [{ provider: "hanging" }] });
      const [{ secret }, left] = await Promise.all([shop.customer(), shop.customer()]);
      const answers = async () => (await shop.chat(secret, { model: "chat-hanging" }, { origin: own.origin })).status;
      await until(async () => (await answers()) === 200);
      await hanging.hang();
      const client = openRawClient(own.port, left.secret, { model: "chat-hanging" });
      await until(async () => (await shop.counters(left.accountId)).holds === 1);
      await sleep(100);
      client.leave();
      await expectReleased(left.accountId, "provider_failed");
    } finally {
      await own.kill();
      hanging.close();
    }
  });

  test("of 300 clients that leave 0 to 40 ms after sending, only those whose request reached the provider are charged", async () => {
    const { secret, accountId } = await shop.customer({ dailyLimit: 1_000_000 });
    shop.provider.always({ tokens: 20, delayMs: 20, chunkDelayMs: 5, headers: { connection: "close" } });
    const row = async (waitMs: number) => {
      for (let i = 0; i < 30; i++) {
        const client = leaver(secret);
        await new Promise((resolve) => client.socket.once("connect", resolve));
        await sleep(Math.random() * waitMs);
        client.leave();
      }
    };
    let usage = 0;
    // On a busy machine all 300 may have left before the first was sent: the next 300 stay twice as long.
    for (let round = 0; round < 10 && usage === 0; round++) {
      await Promise.all(Array.from({ length: 10 }, () => row(40 * 2 ** round)));
      await until(async () => (await shop.counters(accountId)).holds === 0);
      await until(() => shop.provider.counters().open === 0);
      usage = (await shop.counters(accountId)).usage;
      expect(usage).toBeLessThanOrEqual(shop.provider.callCount());
    }
    expect(usage).toBeGreaterThan(0);
  });
});

describe("a provider that is silent before its first event", () => {
  for (const hang of ["headers", "first_byte"] as const)
    test(`clients that leave early pay for the prompt, the provider calls are aborted, and the breaker stays closed: hangs before its ${hang}`, async () => {
      shop.provider.always({ hang });
      await Promise.all(
        Array.from({ length: 8 }, async () => {
          const { secret, accountId } = await shop.customer();
          const content = `Tell me about toll ${accountId}.`;
          const client = leaver(secret, { model: "chat-two-routes", messages: [{ role: "user", content }] });
          await shop.provider.waitForCalls(8);
          // On a busy machine one of the 8 may be asked twice before another one is asked.
          await until(() => shop.provider.calls().some(({ body }) => body.includes(content)));
          client.leave();
          const receipt = await receiptOf(accountId);
          expect(receipt).toMatchObject({ outcome: "settled", reason: "client_left", units: 1, completion_tokens: 0 });
          expect(Number(receipt.prompt_tokens)).toBeGreaterThan(0);
        }),
      );
      await until(() => shop.provider.counters().open === 0);
      shop.provider.reset();
      const { secret } = await shop.customer();
      expect((await shop.chat(secret, { model: "chat-two-routes" }, { origin: replica.origin })).status).toBe(200);
      expect([shop.provider.callCount(), shop.second.callCount()]).toEqual([1, 0]);
    });

  test("a client that leaves after PROVIDER_HEADERS_MS pays nothing, because the provider was too slow", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ hang: "headers" });
    const client = leaver(secret);
    const [call] = await shop.provider.waitForCalls(1);
    await sleep(HEADERS_MS + 500);
    client.leave();
    await shop.provider.waitForAborted(call?.id ?? 0);
    await expectReleased(accountId, "provider_failed");
  });

  test("a client that leaves after PROVIDER_HEADERS_MS pays if the headers had arrived", async () => {
    const { secret, accountId } = await shop.customer();
    shop.provider.next({ hang: "first_byte" });
    const client = leaver(secret);
    await shop.provider.waitForCalls(1);
    await sleep(HEADERS_MS + 500);
    client.leave();
    expect(await receiptOf(accountId)).toMatchObject({ outcome: "settled", reason: "client_left", units: 1 });
  });
});

test("the hold ends once if the replica shuts down before it is known whether a client that left pays", async () => {
  const own = await shop.start({ DRAIN_SECONDS: "1" });
  const { secret, accountId } = await shop.customer();
  shop.provider.next({ hang: "headers" });
  const client = openRawClient(own.port, secret);
  await shop.provider.waitForCalls(1);
  client.leave();
  expect(await own.stop()).toBe(0);
  const { outcome, reason } = await receiptOf(accountId);
  expect(["released: ended_by_us", "settled: client_left"]).toContain(`${outcome}: ${reason}`);
});

describe("leaving in the middle of an answer", () => {
  const REPORTS = [
    ["5,000 tokens reported", { usageIn: "every", usage: { prompt_tokens: 11, completion_tokens: 5_000 } }, 5_000],
    [
      "no completion tokens reported",
      { usageIn: "every", usage: { prompt_tokens: 11, completion_tokens: 0 } },
      undefined,
    ],
    ["nothing reported", {}, undefined],
  ] as const;
  for (const [what, usage, expected] of REPORTS)
    test(`is charged for the larger of the relayed text and the last reported usage: ${what}`, async () => {
      const { secret, accountId } = await shop.payer(10_000_000_000n);
      shop.provider.next({ ...usage, tokens: 500, chunkDelayMs: 20 });
      const client = leaver(secret, { max_tokens: 20_000 });
      await until(() => client.events() >= 8);
      client.leave();
      const receipt = await receiptOf(accountId);
      expect(receipt).toMatchObject({ reason: "client_left", estimated: true });
      const [prompt, completion] = [Number(receipt.prompt_tokens), Number(receipt.completion_tokens)];
      if ("usage" in usage) expect(prompt).toBe(11);
      if (expected !== undefined) expect(completion).toBe(expected);
      else expect(completion).toBeGreaterThan(5);
      expect(Number(receipt.charged_nano_usd)).toBe(prompt * 3_000 + completion * 15_000);
      expect(Number(receipt.charged_nano_usd)).toBeLessThan(Number(receipt.held_nano_usd));
    });
});

test("an answer without usage that is too long to be kept is counted as a sample of it is, in any script", async () => {
  const { secret, accountId } = await shop.payer(10_000_000_000n);
  const event = (content: string, finish: string | null = null) =>
    `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta: { content }, finish_reason: finish }] })}\n\n`;
  const chars = 60_000;
  const body = `${event("世界".repeat(500)).repeat(chars / 1_000)}${event("", "stop")}data: [DONE]\n\n`;
  shop.provider.next({ contentType: SSE, body });
  const { text } = await shop.chat(secret, { stream: true, max_tokens: 100_000 }, { origin: replica.origin });
  expect(text).toContain("[DONE]");
  const receipt = await receiptOf(accountId);
  expect(receipt).toMatchObject({ reason: "complete", estimated: true });
  expect(Number(receipt.completion_tokens)).toBeGreaterThan(0.7 * chars);
});

test("a stream that begins with spaces is charged for what follows them when its client leaves", async () => {
  // Its tokenizer has not started when the client leaves, on any machine that is not idle.
  const own = await shop.start(COUNTING);
  const { secret, accountId } = await shop.payer(10_000_000_000n);
  const event = (content: string) =>
    `data: ${JSON.stringify({ id: "c", choices: [{ index: 0, delta: { content }, finish_reason: null }] })}\n\n`;
  const body = event(" ".repeat(1_024)).repeat(32) + event("闸门按它卖出的计数".repeat(100)).repeat(22);
  // Its end does not come while the client is there: all that is charged is our count.
  const cut = { cutAfterBytes: Buffer.byteLength(body), cutDelayMs: 60_000 };
  shop.provider.next({ contentType: SSE, chunked: true, body: `${body}data: [DONE]\n\n`, ...cut });
  const client = openRawClient(own.port, secret, { max_tokens: 100_000 });
  await until(() => client.events() >= 54);
  client.leave();
  const receipt = await receiptOf(accountId);
  expect(receipt).toMatchObject({ reason: "client_left", estimated: true });
  // o200k has 256 tokens for the spaces and 19,800 for the text. However busy the machine is, 16 runs spread over both are counted: 3,000
  // counts of only these were from 12,228 to 23,281.
  expect(Number(receipt.completion_tokens)).toBeGreaterThan(11_000);
  expect(Number(receipt.completion_tokens)).toBeLessThan(25_000);
  await own.kill();
});

describe("a prompt with an image or a file", () => {
  const IMAGE = { type: "image_url", image_url: { url: "https://pictures.example/one.png" } };
  const messages = [{ role: "user", content: [{ type: "text", text: "What is this?" }, IMAGE] }];
  const USED = { tokens: 40, chunkDelayMs: 50, usage: { prompt_tokens: 36_835, completion_tokens: 41 } };

  test("is read to the end if its client leaves, and charged by the provider's usage", async () => {
    const { secret, accountId } = await shop.payer(10_000_000_000n);
    shop.provider.next(USED);
    const client = leaver(secret, { messages, max_tokens: 1_000 });
    await until(() => client.events() >= 3);
    client.leave();
    expect((await shop.provider.waitForEnd(shop.provider.lastCall()?.id ?? 0)).outcome).toBe("complete");
    expect(await receiptOf(accountId)).toMatchObject({
      ...{ outcome: "settled", reason: "client_left", estimated: false },
      ...{ prompt_tokens: 36_835, completion_tokens: 41 },
    });
  });

  test("is read to the end also if its client leaves before the first event, and as a response", async () => {
    const { secret, accountId } = await shop.payer(10_000_000_000n);
    shop.provider.next({ ...USED, firstByteDelayMs: 1_000 });
    const client = leaver(secret, { messages, max_tokens: 1_000 });
    const [call] = await shop.provider.waitForCalls(1);
    await sleep(200);
    client.leave();
    expect((await shop.provider.waitForEnd(call?.id ?? 0)).outcome).toBe("complete");
    expect(await receiptOf(accountId)).toMatchObject({ estimated: false, prompt_tokens: 36_835 });
  });

  test("is charged by its bound if its answer cannot be read to the end", async () => {
    const own = await shop.start({ PROVIDER_TOTAL_MS: "1000" });
    const { secret, accountId } = await shop.payer(10_000_000_000n);
    shop.provider.next({ ...USED, tokens: 1_000 });
    const client = openRawClient(own.port, secret, { messages, max_tokens: 1_000 });
    await until(() => client.events() >= 3);
    client.leave();
    const receipt = await receiptOf(accountId);
    expect(receipt).toMatchObject({ outcome: "settled", reason: "client_left", estimated: true });
    const [model] = await shop.world.sql`select image_most_tokens as most from models where id = 'chat-a'`;
    expect(Number(receipt.prompt_tokens)).toBeGreaterThan(Number(model?.most));
    await own.kill();
  });
});

describe("a model that hides tokens", () => {
  const HIDDEN = { tokens: 10, usage: { completion_tokens: 5_000 } };
  const stateOf = async (model: string) => {
    const [row] = await shop.world.sql`select hides_tokens from models where id = ${model}`;
    return row?.hides_tokens as boolean | null;
  };
  const ask = (secret: string, model: string, stream: boolean) =>
    shop.chat(secret, { model, stream }, { origin: replica.origin });

  /** A new model, loaded by the replica. */
  async function newModel(id: string, hidesTokens: boolean | null): Promise<string> {
    await shop.world.addModels({ ...MODEL, id, hidesTokens, routes: [{ provider: "first" }] });
    const { secret } = await shop.customer();
    await until(async () => (await ask(secret, id, false)).status === 200);
    // The replica has loaded the current catalog.
    shop.provider.reset();
    return id;
  }

  test("is detected from complete answers to two accounts, streamed or not; one odd answer is not enough", async () => {
    const model = await newModel("chat-learned", null);
    const [one, two] = await Promise.all([shop.customer(), shop.customer()]);
    shop.provider.always(HIDDEN);
    await ask(one.secret, model, true);
    await ask(one.secret, model, false);
    await sleep(500);
    expect(await stateOf(model)).toBeNull();
    shop.provider.always({ tokens: 10 });
    await ask(two.secret, model, true);
    shop.provider.always(HIDDEN);
    await ask(one.secret, model, true);
    await ask(one.secret, model, false);
    await sleep(500);
    // One account alone does not decide for others whose answers hide no tokens.
    expect(await stateOf(model)).toBeNull();
    await ask(two.secret, model, true);
    await until(async () => (await stateOf(model)) === true);
    const [entry] = await shop.world.sql`
      select actor_id, before, after from audit_entries where subject = 'models' and subject_id = ${model} order by id desc limit 1`;
    expect([entry?.actor_id, entry?.before, entry?.after]).toMatchObject([null, null, { hides_tokens: true }]);
  });

  test("is not detected from answers without hidden tokens, nor against an admin's setting", async () => {
    const visible = await newModel("chat-visible", null);
    const refused = await newModel("chat-refused", false);
    for (let i = 0; i < 4; i++) {
      const { secret } = await shop.customer();
      shop.provider.always({ content: "世界 🚦 እንኳን ደህና መጡ ".repeat(40) });
      await ask(secret, visible, i % 2 === 0);
      shop.provider.always(HIDDEN);
      await ask(secret, refused, i % 2 === 0);
    }
    await sleep(500);
    expect([await stateOf(visible), await stateOf(refused)]).toEqual([null, false]);
  });

  test("is read to the end if the client leaves, and charged by the provider's usage", async () => {
    const model = await newModel("chat-hides", true);
    const { secret, accountId } = await shop.payer(10_000_000_000n);
    shop.provider.next({ ...HIDDEN, tokens: 40, chunkDelayMs: 50 });
    const client = leaver(secret, { model, max_tokens: 20_000 });
    await until(() => client.events() >= 3);
    client.leave();
    const call = await shop.provider.waitForEnd(shop.provider.lastCall()?.id ?? 0);
    expect(call.outcome).toBe("complete");
    expect(await receiptOf(accountId)).toMatchObject({
      outcome: "settled",
      reason: "client_left",
      estimated: false,
      completion_tokens: 5_000,
    });
  });

  test("is read to the end also if the client leaves before the first event", async () => {
    const model = await newModel("chat-hides-early", true);
    for (const behaviour of [{ delayMs: 3_500 }, { firstByteDelayMs: 1_000 }]) {
      shop.provider.reset();
      const { secret, accountId } = await shop.payer(10_000_000_000n);
      shop.provider.next({ ...HIDDEN, ...behaviour });
      const client = leaver(secret, { model, max_tokens: 20_000 });
      const [call] = await shop.provider.waitForCalls(1);
      await sleep(200);
      client.leave();
      expect((await shop.provider.waitForEnd(call?.id ?? 0)).outcome).toBe("complete");
      expect(await receiptOf(accountId)).toMatchObject({
        reason: "client_left",
        estimated: false,
        completion_tokens: 5_000,
      });
    }
  });

  test("a draining replica waits for streams that are read to their end; at its deadline they are settled by the known usage", async () => {
    const model = await newModel("chat-hides-drained", true);
    for (const [drainSeconds, whole] of [
      ["60", true],
      ["1", false],
    ] as const) {
      const own = await shop.start({ DRAIN_SECONDS: drainSeconds });
      const { secret, accountId } = await shop.customer();
      shop.provider.next({ ...HIDDEN, tokens: 100, chunkDelayMs: 60 });
      const client = openRawClient(own.port, secret, { model });
      await until(() => client.events() >= 3);
      client.leave();
      await sleep(300);
      expect((await shop.counters(accountId)).holds).toBe(1);
      expect(await own.stop()).toBe(0);
      const receipt = await receiptOf(accountId);
      expect(receipt).toMatchObject({ outcome: "settled", reason: "client_left", estimated: !whole });
      if (whole) expect(receipt.completion_tokens).toBe(5_000);
      else expect(Number(receipt.completion_tokens)).toBeLessThan(500);
    }
  });
});

describe("the connection breaks after the finish_reason", () => {
  const event = (fields: Record<string, unknown>) =>
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", ...fields })}\n\n`;
  const TEXT = event({ choices: [{ index: 0, delta: { content: "A toll." }, finish_reason: null }] });
  const FINISH = event({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
  const USAGE = event({ choices: [], usage: { prompt_tokens: 12, completion_tokens: 700, total_tokens: 712 } });

  test.each([
    ["and the usage", TEXT + FINISH + USAGE, { estimated: false, prompt_tokens: 12, completion_tokens: 700 }],
    ["alone: what was relayed is counted", TEXT + FINISH, { estimated: true }],
  ])("%s: settled; the client gets an error event and no [DONE]", async (_, came, expected) => {
    const { secret, accountId } = await shop.payer(1_000_000_000n);
    const cut = {
      contentType: SSE,
      chunked: true,
      body: `${came}data: [DONE]\n\n`,
      cutAfterBytes: Buffer.byteLength(came),
    };
    const { text, headers } = await shop.brokenOff(
      cut,
      (onText) => shop.chat(secret, { stream: true }, { origin: replica.origin, onText }),
      { hasRead: (read) => read.includes("A toll.") },
    );
    expect(text).not.toContain("[DONE]");
    expect(text).toContain("A toll.");
    const last = JSON.parse(text.trim().split("\n\n").at(-1)?.slice("data: ".length) ?? "");
    expect(last).toMatchObject({
      error: { code: "provider_unavailable" },
      request_id: headers.get("x-request-id"),
    });
    expect(await receiptOf(accountId)).toMatchObject({ outcome: "settled", reason: "complete", ...expected });
  });
});
