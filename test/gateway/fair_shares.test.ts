import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { type PanelSession, signInTo } from "../panel/panel_client.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import type { Person } from "../world.ts";
import { closeBalanced, expectRefusal, rawCall, withoutEffect } from "./checks.ts";
import { gaugeOf, shedBy } from "./metrics_reader.ts";
import { type Answer, chatBody, openShop, type Shop } from "./shop.ts";

/**
 * One customer, or one reseller with all its customers, overloads a replica, and other accounts notice nothing. The attacks
 * use bare sockets. Source: ADM-1, ADM-3, ADM-5.
 */
const MIB = 1024 * 1024;
const BODY_BYTES_MAX = 20 * MIB;
const BODY_MEMORY_MAX = 192 * MIB;
const IN_FLIGHT_MAX = 80;
const BODY_READS_MAX = 48;
/** An account may use a quarter of each of these, and a tenant half. */
const ACCOUNT_SHARE = 0.25;
const TENANT_SHARE = 0.5;

let shop: Shop;
let replica: ReplicaProcess;
let attacker: Person & { secret: string };
let neighbour: Person & { secret: string };
const sockets: Socket[] = [];

beforeAll(async () => {
  shop = await openShop({
    redisUrl: "",
    env: {
      INTERNAL_PORT: "0",
      BODY_BYTES_MAX: String(BODY_BYTES_MAX),
      BODY_MEMORY_MAX: String(BODY_MEMORY_MAX),
      BODY_READS_MAX: String(BODY_READS_MAX),
      IN_FLIGHT_MAX: String(IN_FLIGHT_MAX),
      ACCOUNT_SHARE: String(ACCOUNT_SHARE),
      TENANT_SHARE: String(TENANT_SHARE),
      // Deno does not always report that a client left before its response started: such a call ends at this limit.
      PROVIDER_FIRST_BYTE_MS: "8000",
    },
  });
  [replica] = shop.replicas as [ReplicaProcess];
  attacker = await shop.customer({ dailyLimit: 100_000 });
  neighbour = await shop.customer({ dailyLimit: 100_000 });
  for (let i = 0; i < 20; i++) expect((await shop.chat(neighbour.secret)).status).toBe(200);
});
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  shop.provider.reset();
  // Afterwards nothing is counted any more.
  for (const gauge of ["body_reads", "body_bytes", "in_flight_requests"])
    await until(async () => (await gaugeOf(replica, gauge)) === 0);
});
afterAll(() => closeBalanced(shop));

const head = (secret: string, length: number | "chunked") =>
  [
    "POST /v1/chat/completions HTTP/1.1",
    "Host: localhost",
    `Authorization: Bearer ${secret}`,
    "Content-Type: application/json",
    length === "chunked" ? "Transfer-Encoding: chunked" : `Content-Length: ${length}`,
    "",
    "",
  ].join("\r\n");

/** A socket that sends this and then waits. Has the status of the response, or 0 before it. */
function openSocket(...parts: (string | Uint8Array)[]): { status: () => number; socket: Socket } {
  let got = "";
  const socket = connect(replica.port, "127.0.0.1", () => {
    for (const part of parts) socket.write(part);
  });
  socket.on("data", (bytes) => {
    got += bytes;
  });
  socket.on("error", () => {}); // A refusal may come before all is sent.
  sockets.push(socket);
  return { socket, status: () => Number(/^HTTP\/1\.1 (\d+)/.exec(got)?.[1] ?? 0) };
}

const countOf = (all: readonly { status: () => number }[], status: number) =>
  all.filter((one) => one.status() === status).length;

/** Sends 100 requests of another account, ten at a time. Returns how many were served. */
async function servedToNeighbour(): Promise<number> {
  let served = 0;
  const ask = async () => {
    for (let i = 0; i < 10; i++) if ((await shop.chat(neighbour.secret)).status === 200) served++;
  };
  await Promise.all(Array.from({ length: 10 }, ask));
  return served;
}

const keysOf = (person: Person, count: number) =>
  Promise.all(Array.from({ length: count }, async () => (await shop.world.addKey(person)).secret));

describe("bodies that do not arrive", () => {
  test("another account is served 100 of 100 while 34 keys of one account have six stalled bodies each; these time out after 10 s, not a minute", async () => {
    const keys = await keysOf(attacker, 34);
    const silent = keys.flatMap((key) =>
      Array.from({ length: 6 }, (_, i) => openSocket(head(key, i % 2 === 0 ? 50 : "chunked"))),
    );
    const mine = BODY_READS_MAX * ACCOUNT_SHARE;
    await until(() => countOf(silent, 429) === silent.length - mine);
    expect(await gaugeOf(replica, "body_reads")).toBe(mine);
    expect(await shedBy(replica, "body_reads_per_account")).toBe(silent.length - mine);
    expect(await servedToNeighbour()).toBe(100);
    // BODY_READ_MS is a minute.
    await until(() => countOf(silent, 400) === mine);
    const [key = ""] = keys;
    expect((await shop.chat(key)).status).toBe(200);
  });

  test("the customers of one reseller together get half of the body reads; another reseller's customer is served 100 of 100", async () => {
    const reseller = await shop.world.addReseller();
    const customers = await Promise.all(Array.from({ length: 5 }, () => shop.world.addCustomer(reseller.accountId)));
    const keys = await Promise.all([reseller, ...customers].map(async (one) => (await keysOf(one, 1))[0] ?? ""));
    const silent = keys.flatMap((key) =>
      Array.from({ length: BODY_READS_MAX * ACCOUNT_SHARE }, () => openSocket(head(key, 50))),
    );
    const theirs = BODY_READS_MAX * TENANT_SHARE;
    await until(() => countOf(silent, 429) === silent.length - theirs);
    expect(await shedBy(replica, "body_reads_per_tenant")).toBe(silent.length - theirs);
    const refused = await shop.chat(keys[5] ?? "");
    expectRefusal(refused, "too_many_requests");
    expect(refused.json.error).toMatchObject({
      limit: theirs,
      message: "This service has too many request bodies being read. Try again.",
    });
    expect(await servedToNeighbour()).toBe(100);
  });

  test("above the replica's maximum of body reads, a request gets 503 before its body is read", async () => {
    const people = await Promise.all(Array.from({ length: 4 }, () => shop.world.addCustomer()));
    const keys = (await Promise.all(people.map((one) => keysOf(one, 1)))).flat();
    for (const key of keys) for (let i = 0; i < BODY_READS_MAX * ACCOUNT_SHARE; i++) openSocket(head(key, 50));
    await until(async () => (await gaugeOf(replica, "body_reads")) === BODY_READS_MAX);
    expectRefusal(await shop.chat(neighbour.secret), "service_unavailable");
    expect(await shedBy(replica, "body_reads_full")).toBe(1);
    // Lists need no body.
    expect((await shop.call("/v1/models", { secret: neighbour.secret })).status).toBe(200);
  });
});

describe("bodies that are large", () => {
  const content = "x".repeat(BODY_BYTES_MAX - 100);
  const large = Buffer.from(JSON.stringify(chatBody({ messages: [{ role: "user", content }] })));
  const accountBytes = BODY_MEMORY_MAX * ACCOUNT_SHARE;

  test("all but two of 60 stalled bodies of 20 MiB from one key are refused unread; another account is served", async () => {
    const all = Array.from({ length: 60 }, () =>
      openSocket(head(attacker.secret, large.length), large.subarray(0, -1)),
    );
    await until(() => countOf(all, 429) === 58);
    expect(await gaugeOf(replica, "body_bytes")).toBe(2 * large.length);
    expect(await shedBy(replica, "body_bytes_per_account")).toBe(58);
    expect(await servedToNeighbour()).toBe(100);
    expectRefusal(
      await rawCall(replica.port, head(attacker.secret, accountBytes - 2 * large.length + 1)),
      "too_many_requests",
    );
  });

  test("their memory is counted until the provider has answered; an open stream counts none", async () => {
    const inside = shop.provider.gateAfter(1);
    const [ofStream, ofJson] = [shop.provider.gate(inside.held), shop.provider.gate()];
    shop.provider.always(ofJson.held);
    shop.provider.when(({ body }) => body.includes('"stream":true'), ofStream.held);
    const streamed = JSON.stringify(
      chatBody({ stream: true, messages: [{ role: "user", content: "é".repeat(50_000) }] }),
    );
    const whole = JSON.stringify(chatBody({ messages: [{ role: "user", content: "x".repeat(50_000) }] }));
    const stream = shop.call("/v1/chat/completions", { secret: neighbour.secret, body: streamed });
    const json = shop.call("/v1/chat/completions", { secret: neighbour.secret, body: whole });
    await shop.provider.waitForCalls(2);
    // Text beyond ASCII is kept in two bytes a character.
    expect(await gaugeOf(replica, "body_bytes")).toBe(2 * streamed.length + whole.length);
    ofStream.open();
    ofJson.open();
    await until(async () => (await gaugeOf(replica, "open_streams")) === 1);
    await until(async () => (await gaugeOf(replica, "body_bytes")) === 0);
    expect(await gaugeOf(replica, "open_streams")).toBe(1);
    inside.open();
    expect([(await stream).status, (await json).status]).toEqual([200, 200]);
  });

  test("the body that is built for a provider is counted instead of the client's, until the provider has answered", async () => {
    const inside = shop.provider.gateAfter(1);
    const before = shop.provider.gate(inside.held);
    shop.provider.always(before.held);
    // In the arguments of a function, each quotation mark takes four characters in place of two.
    const called = { type: "custom_tool_call", call_id: "call_1", name: "a", input: '"'.repeat(50_000) };
    const output = { type: "custom_tool_call_output", call_id: "call_1", output: "1" };
    const tools = [{ type: "custom", name: "a" }];
    // What is stored is counted too.
    const asked = { model: "chat-a", input: [called, output], tools, stream: true, store: false };
    const received = JSON.stringify(asked).length;
    const stream = shop.call("/v1/responses", { secret: neighbour.secret, body: asked });
    await shop.provider.waitForCalls(1);
    const counted = (await gaugeOf(replica, "body_bytes")) ?? 0;
    expect(received).toBeLessThan(101_000);
    expect([counted > 200_000, counted < 201_000]).toEqual([true, true]);
    before.open();
    await until(async () => (await gaugeOf(replica, "open_streams")) === 1);
    await until(async () => (await gaugeOf(replica, "body_bytes")) === 0);
    expect(await gaugeOf(replica, "open_streams")).toBe(1);
    inside.open();
    expect((await stream).status).toBe(200);
  });

  test("a chunked body is counted as it grows, and refused above the account's share; an abandoned one is no longer counted", async () => {
    // Two bodies of half the account's share, so the third is refused.
    const half = new Uint8Array(accountBytes / 3).fill(32);
    const parts = (bytes: Uint8Array) => [`${bytes.length.toString(16)}\r\n`, bytes, "\r\n"];
    const all = [0, 1, 2].map(() => openSocket(head(attacker.secret, "chunked"), ...parts(half)));
    await until(async () => (await gaugeOf(replica, "body_bytes")) === 3 * half.length);
    const more = openSocket(head(attacker.secret, "chunked"), ...parts(half.subarray(0, 70_000)));
    await until(() => more.status() === 429);
    expect(await servedToNeighbour()).toBe(100);
    all[0]?.socket.destroy();
    await until(async () => (await gaugeOf(replica, "body_bytes")) === 2 * half.length);
  });
});

describe("bodies in chunks of one byte", () => {
  test("ten of 10,000 chunks count as their bytes, and are served when they end", async () => {
    const all = Array.from({ length: 10 }, () =>
      openSocket(head(attacker.secret, "chunked"), "1\r\n \r\n".repeat(10_000)),
    );
    await until(async () => (await gaugeOf(replica, "body_bytes")) === 100_000);
    const body = JSON.stringify(chatBody());
    for (const { socket } of all) socket.write(`${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`);
    await until(() => countOf(all, 200) === all.length);
  });
});

describe("bodies of many values", () => {
  const bombs: [string, (bytes: number) => string, string][] = [
    ["content parts", (bytes) => `{"messages":[{"content":[${"{},".repeat(bytes / 3)}{}]}]}`, "messages.0.content"],
    ["an unknown field", (bytes) => `{"extra":{"deep":[${"[],".repeat(bytes / 3)}1]}}`, "extra.deep"],
    ["numbers", (bytes) => `{"messages":[${"1,".repeat(bytes / 2)}1]}`, "messages"],
  ];
  for (const [what, bombOf, param] of bombs) {
    test(`20 MiB of ${what}, nine times: 400 with the field; nothing is charged, and nothing of them is kept`, async () => {
      const bomb = Buffer.from(bombOf(BODY_BYTES_MAX - 100));
      expect(bomb.length).toBeGreaterThan(BODY_BYTES_MAX - 200);
      await withoutEffect(shop, async () => {
        for (let i = 0; i < 9; i++) {
          const answer = await rawCall(replica.port, head(attacker.secret, bomb.length), bomb);
          expectRefusal(answer, "invalid_request", { param });
          expect(answer.json.error.message).toBe("The body has more than 100000 values.");
        }
      });
      expect(await gaugeOf(replica, "body_bytes")).toBe(0);
      expect((await shop.chat(neighbour.secret)).status).toBe(200);
    });
  }
});

describe("requests in flight", () => {
  let session: PanelSession;
  beforeAll(async () => {
    session = await signInTo(shop, attacker);
  });

  test("one account gets a quarter of the slots over all its keys and the panel; another account is served 100 of 100", async () => {
    const keys = await keysOf(attacker, 4);
    const mine = IN_FLIGHT_MAX * ACCOUNT_SHARE;
    const shedBefore = (await shedBy(replica, "body_reads_per_account")) ?? 0;
    // Until they are released, only the other account's requests are answered.
    shop.provider.when((body) => JSON.stringify(body).includes("wait for it"), { hang: "headers" });
    const waiting = JSON.stringify(chatBody({ messages: [{ role: "user", content: "wait for it" }], stream: true }));
    const all = Array.from({ length: 2 * mine }, (_, i) =>
      openSocket(head(keys[i % 4] ?? "", waiting.length), waiting),
    );
    await until(() => countOf(all, 429) === mine);
    expect(await gaugeOf(replica, "in_flight_requests")).toBe(mine);
    const refusal = await shop.chat(attacker.secret);
    expectRefusal(refusal, "too_many_requests");
    expect(refusal.json.error).toMatchObject({ limit: mine, message: expect.stringContaining("This account") });
    expectRefusal(await session.post("/ai/chat", chatBody()), "too_many_requests");
    // Many arrive at once: some are refused before their bodies are read.
    const shed = [await shedBy(replica, "in_flight_per_account"), await shedBy(replica, "body_reads_per_account")];
    expect((shed[0] ?? 0) + (shed[1] ?? 0) - shedBefore).toBe(mine + 2);
    expect(shed[0]).toBeGreaterThanOrEqual(2);
    expect(await servedToNeighbour()).toBe(100);
    for (const { socket } of all) socket.destroy();
    await until(async () => (await gaugeOf(replica, "in_flight_requests")) === 0);
    expect((await session.post("/ai/chat", chatBody())).status).toBe(200);
  });
});

describe("requests a minute", () => {
  let narrow: ReplicaProcess;
  beforeAll(async () => {
    narrow = await shop.start({ RATE_ACCOUNT_PER_MINUTE: "6", RATE_TENANT_PER_MINUTE: "9" });
  });
  afterAll(() => narrow.kill());
  const list = (secret = "") => shop.call("/v1/models", { secret, origin: narrow.origin });
  const expectTooMany = (answer: Answer, limit: number) => {
    expectRefusal(answer, "too_many_requests");
    expect(answer.json.error.limit).toBe(limit);
    expect(Number(answer.headers.get("retry-after"))).toBeGreaterThan(1);
  };

  test("one account has a rate limit over all its keys and the panel's playground; panel pages are not counted", async () => {
    const person = await shop.world.addCustomer();
    const keys = await keysOf(person, 3);
    for (let i = 0; i < 6; i++) expect((await list(keys[i % 3])).status).toBe(200);
    expectTooMany(await list(keys[0]), 6);
    expectTooMany(await shop.chat(keys[1] ?? "", {}, { origin: narrow.origin }), 6);
    const session = await signInTo(shop, person, { origin: narrow.origin });
    expectTooMany(await session.post("/ai/chat", chatBody()), 6);
    expect((await session.get("/me")).status).toBe(200);
    expect(await shedBy(narrow, "rate_per_account")).toBe(3);
    for (let i = 0; i < 6; i++) expect((await list(neighbour.secret)).status).toBe(200);
  });

  test("one reseller has a rate limit over all its customers", async () => {
    const reseller = await shop.world.addReseller();
    const customers = [await shop.world.addCustomer(reseller.accountId), reseller];
    const keys = (await Promise.all(customers.map((one) => keysOf(one, 2)))).flat();
    for (let i = 0; i < 9; i++) expect((await list(keys[i % 4])).status).toBe(200);
    for (const key of keys) expectTooMany(await list(key), 9);
    expect(await shedBy(narrow, "rate_per_tenant")).toBe(4);
    const other = await shop.world.addCustomer((await shop.world.addReseller()).accountId);
    expect((await list((await keysOf(other, 1))[0])).status).toBe(200);
  });
});
